"""The one place where text becomes a path: what users, SQL and other programs write for where a log lies.

| what is written | what it is |
|---|---|
| a plain path | itself |
| `file:/a/b` | what Spark makes of a path in SQL: `/a/b`, percent-decoded |
| `s3://bucket/key`, `gs://…`, `az://container/…` | a `RemotePath`; the key as it is written, as the stores' tools do |
| `http://host/a`, `https://…` | a `RemotePath`; percent-decoded, as in any URL |
| any other scheme | a file system that seglog does not reach by itself |

A `RemotePath` prints as its URL, and is the only path that `remote.routing` takes to an object store: text decides
here, nothing looks at it again. A Path that began as a URL (`Path("s3://bucket/key")`, which pathlib makes
`s3:/bucket/key`) means the URL, too. A file of this machine with such a name is written `./s3:/x`, and becomes an
absolute path.

Credentials do not belong in a URL, which goes to logs and screens: one with a user part or a query is refused, and
neither is repeated.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from seglog.arguments import described
from seglog.errors import ConfigError, UnsupportedError
from seglog.remote_path import SCHEMES, WEB_SERVERS, RemotePath, remote_path

# `hdfs:/x`, `s3a://bucket/x`: a path of this machine that begins so is written `./hdfs:/x`.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = "file:"
_FILE_HOSTS = ("", "localhost")
_STORE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")


def parse_location(location: str | os.PathLike[str]) -> Path:
    """The path that `location` means, a RemotePath for a URL. ConfigError for text that can be none: empty, or what no
    file or object can be called; UnsupportedError for a scheme that is not known; TypeError for what is no path.
    """
    if isinstance(location, RemotePath):
        return location
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    if not isinstance(text, str):
        raise TypeError(f"a path is text or a pathlib.Path, not {described(location)}")
    require_name(text)
    path = _path_of_uri(text) if text.lower().startswith(_FILE) else text
    if not path:  # not the working directory: a variable was not set
        raise ConfigError(f"'{text}' is an empty path: name a log or a log directory")
    require_name(path)
    found = None if path is not text else _SCHEME.match(text)
    if found is not None:
        return _path_of_url(found[1].lower(), text[found.end() :])
    local = Path(path)
    # what pathlib has made of `./s3:/x` would be a URL for whoever reads it again
    return local.absolute() if _SCHEME.match(str(local)) else local


def require_local(path: str | os.PathLike[str]) -> None:
    """ConfigError for a URL where a directory of this machine is needed."""
    if isinstance(path, RemotePath):
        os.fspath(path)


def _path_of_url(scheme: str, rest: str) -> RemotePath:
    """The object that a URL names; `rest` is what follows its scheme and first slash."""
    store, slash, key = rest.removeprefix("/").partition("/")
    special = r"[?#]" if scheme in WEB_SERVERS else r"\?"  # a key of a store may have a `#`
    shown = f"{scheme}://{re.split(special, store.rpartition('@')[2] + slash + key)[0]}"
    if not _STORE.fullmatch(store.rpartition("@")[2]):
        shown = f"{scheme}://…"  # a secret with a slash in it would end up in what is shown
    if scheme not in SCHEMES:
        raise UnsupportedError(
            f"{shown}: seglog reads {', '.join(f'{known}:' for known in SCHEMES)} and mounted file systems, but not"
            f" {scheme}: mount it, and name the mounted path"
        )
    if "@" in store or re.search(special, store + key):
        raise ConfigError(
            f"{shown}: a URL cannot have a user part, a query or a fragment; give credentials as the store's"
            " own tools take them, such as AWS_ACCESS_KEY_ID in the environment"
        )
    parts = key.removesuffix("/").split("/") if key.removesuffix("/") else []
    if scheme in WEB_SERVERS:
        parts = [os.fsdecode(unquote_to_bytes(os.fsencode(part))) for part in parts]
    if shown.endswith("…") or any(part in ("", ".", "..") or "/" in part for part in parts):
        raise ConfigError(f"{shown}: a URL names a bucket or host and a key, and no part of it is empty, . or ..")
    for part in parts:
        require_name(part)
    return remote_path(scheme, store, *parts)


def _path_of_uri(text: str) -> str:
    """The path in a `file:` URI. `#` and `?` are part of it: a file system has no queries, and names with them."""
    rest = text[len(_FILE) :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in _FILE_HOSTS:
            raise UnsupportedError(f"{text}: it names the machine {host}; name the path on this one")
        rest = slash + path
    return os.fsdecode(unquote_to_bytes(os.fsencode(rest)))  # %ff is a byte, whatever the text's encoding


def require_name(text: str) -> None:
    """ConfigError for text that no file can be called: with a NUL, or with half a character (a lone surrogate)."""
    if "\0" in text:
        raise ConfigError(f"{text!r}: a path cannot hold a NUL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r}: a path cannot hold half a character") from error
