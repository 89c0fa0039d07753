"""The one place where text becomes a path: what users, SQL and other programs write for where a log lies.

A plain path is itself. A `file:` URI is what Spark makes of a path in SQL. Any other scheme names a file system that
seglog does not reach by itself.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from seglog.arguments import described
from seglog.errors import ConfigError, UnsupportedError

# `hdfs:/x`, `s3a://bucket/x`: a path of this machine that begins so is written `./hdfs:/x`.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = "file:"
_FILE_HOSTS = ("", "localhost")


def parse_location(location: str | os.PathLike[str]) -> Path:
    """The path that `location` means. ConfigError for text that can be none: empty, or what no file can be called;
    UnsupportedError for one on another file system, also where it became a Path; TypeError for what is no path.
    """
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
        scheme = found[1].lower()
        raise UnsupportedError(
            f"{text}: seglog reads mounted file systems and not {scheme}: itself; mount it and give the mounted path"
        )
    return Path(path)


def _path_of_uri(text: str) -> str:
    """The path in a `file:` URI. `#` and `?` are part of it: a file system has no queries, and names with them."""
    rest = text[len(_FILE) :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in _FILE_HOSTS:
            raise UnsupportedError(f"{text}: it names the machine {host}; give the path on this one")
        rest = slash + path
    return os.fsdecode(unquote_to_bytes(os.fsencode(rest)))  # %ff is a byte, whatever the text's encoding


def require_name(text: str) -> None:
    """ConfigError for text that no file can be called: with a NUL, or with half a character (a lone surrogate)."""
    if "\0" in text:
        raise ConfigError(f"{text!r}: no path has a NUL in it")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{text!r}: no path has half a character in it") from error
