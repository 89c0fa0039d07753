"""Turns text into a path: one of this machine, or a `RemotePath` for a URL.

`parse_location` is the only place where text becomes a path. Users, SQL and other programs write:

| text | path |
|---|---|
| a plain path | that path |
| `file:/a/b` | `/a/b`, percent-decoded; Spark writes a path in SQL like this |
| `s3://bucket/key`, `gs://…`, `az://container/…` | a `RemotePath`; the key is used as written, as by stores' tools |
| `http://host/a`, `https://…` | a `RemotePath`; percent-decoded, as in any URL |
| `s3a://…`, `s3n://…` | the same as `s3://…`, as Hadoop's users write it |
| any other scheme | an error: seglog does not reach that file system |

A `RemotePath` prints as its URL, and only a `RemotePath` is read from an object store: nothing looks at the text again.
A Path that began as a URL (`Path("s3://bucket/key")`, which pathlib turns into `s3:/bucket/key`) means the URL too. A
file of this machine with such a name is written `./s3:/x`, and becomes an absolute path.

Credentials do not belong in a URL, which ends up in logs and on screens. A URL with a user part or a query is refused,
and the message repeats neither.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from seglog.arguments import described
from seglog.errors import ConfigError, UnsupportedError
from seglog.remote_path import SCHEMES, WEB_SERVERS, RemotePath, remote_path

# `hdfs:/x`, `s3://bucket/x`; a local path that begins like this must be written `./hdfs:/x`.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = "file:"
_FILE_HOSTS = ("", "localhost")
_OF_HADOOP = {"s3a": "s3", "s3n": "s3"}
_AZURE_OF_HADOOP = ("abfs", "abfss", "wasb", "wasbs")
_CONTAINER_AND_ACCOUNT = re.compile(r"([a-z0-9$-]{3,63})@([a-z0-9]{3,24})(?:\.[a-z0-9.-]+)?")
_STORE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")


def parse_location(location: str | os.PathLike[str]) -> Path:
    """Returns the path of `location`, a RemotePath for a URL.

    Raises ConfigError for text that is empty or cannot name a file or object, UnsupportedError for an unknown scheme,
    and TypeError if `location` is not a path.
    """
    if isinstance(location, RemotePath):
        return location
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    if not isinstance(text, str):
        raise TypeError(f"a path must be text or a pathlib.Path, not {described(location)}")
    require_name(text)
    path = _path_of_uri(text) if text.lower().startswith(_FILE) else text
    if not path:  # not the working directory: a variable was not set
        raise ConfigError(f"'{text}' is an empty path: was a variable not set?")
    require_name(path)
    found = None if path is not text else _SCHEME.match(text)
    if found is not None:
        return _path_of_url(found[1].lower(), text[found.end() :])
    local = Path(path)
    # pathlib turns `./s3:/x` into `s3:/x`, which would be a URL when read again
    return local.absolute() if _SCHEME.match(str(local)) else local


def require_local(path: str | os.PathLike[str]) -> None:
    """Raises ConfigError for a URL, where a directory of this machine is needed."""
    if isinstance(path, RemotePath):
        os.fspath(path)


def _path_of_url(scheme: str, rest: str) -> RemotePath:
    """Returns the path of a URL; `rest` is the text after its scheme and first slash."""
    store, slash, key = rest.removeprefix("/").partition("/")
    scheme = _OF_HADOOP.get(scheme, scheme)
    if scheme in _AZURE_OF_HADOOP:
        raise UnsupportedError(_as_azure(scheme, store, key))
    special = r"[?#]" if scheme in WEB_SERVERS else r"\?"  # a key of a store may have a `#`
    shown = f"{scheme}://{re.split(special, store.rpartition('@')[2] + slash + key)[0]}"
    if not _STORE.fullmatch(store.rpartition("@")[2]):
        shown = f"{scheme}://…"  # otherwise a secret with a slash would be shown
    if scheme not in SCHEMES:
        raise UnsupportedError(
            f"{shown}: seglog reads {', '.join(f'{known}:' for known in SCHEMES)} and mounted file systems, but not"
            f" {scheme}; mount it, and name the mounted path"
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
        raise ConfigError(f"{shown}: a URL needs a bucket or host and a key, and no part may be empty, . or ..")
    for part in parts:
        require_name(part)
    return remote_path(scheme, store, *parts)


def _as_azure(scheme: str, store: str, key: str) -> str:
    """Returns how to write a URL of Hadoop's Azure file systems, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`."""
    found = _CONTAINER_AND_ACCOUNT.fullmatch(store)
    if found is None or "?" in key:
        return f"{scheme}://…: write az://CONTAINER/KEY, and set AZURE_STORAGE_ACCOUNT_NAME"
    container, account = found.groups()
    url = f"az://{container}/{key}".rstrip("/")
    return f"{scheme}://{store}/{key}: write {url}, and set AZURE_STORAGE_ACCOUNT_NAME={account}"


def _path_of_uri(text: str) -> str:
    """Returns the path in a `file:` URI. `#` and `?` belong to it: file names may contain them."""
    rest = text[len(_FILE) :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in _FILE_HOSTS:
            raise UnsupportedError(f"{text}: it names another machine, {host}; name a path on this one")
        rest = slash + path
    return os.fsdecode(unquote_to_bytes(os.fsencode(rest)))  # %ff is a byte, whatever the text's encoding


def require_name(text: str) -> None:
    """Raises ConfigError for text that cannot name a file: with a NUL, or with half a character (a lone surrogate)."""
    if "\0" in text:
        raise ConfigError(f"{text!r}: a path cannot contain a NUL")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r}: a path cannot contain half a character") from error
