"""The one place where text becomes a path: what users, SQL and other programs write for where a log lies.

A plain path is itself. A `file:` URI is what Spark makes of a path in SQL. Any other scheme names a file system that
seglog does not reach by itself.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from seglog.errors import UnsupportedError

# `hdfs:/x`, `s3a://bucket/x`: a path of this machine that begins so is written `./hdfs:/x`.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE_HOSTS = ("", "localhost")


def parse_location(location: str | Path) -> Path:
    """The path that `location` means. UnsupportedError for one on another file system, also where it became a Path."""
    text = str(location)
    found = _SCHEME.match(text)
    scheme = "file" if text.lower().startswith("file:") else found[1].lower() if found else None
    if scheme is None:
        return Path(text)
    if scheme != "file":
        raise UnsupportedError(
            f"{text}: seglog reads mounted file systems and not {scheme}: itself; mount it and give the mounted path"
        )
    parts = urlsplit(text)
    if parts.netloc.lower() not in _FILE_HOSTS:
        raise UnsupportedError(f"{text}: it names the machine {parts.netloc}; give the path on this one")
    return Path(unquote(parts.path))
