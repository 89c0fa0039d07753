"""How a path names an object of a store: `RemotePath`, a path that keeps its URL.

An object store has no directories; what a key has before its slashes serves as one. So a URL is a path: its parts are
the scheme, the bucket (or host) and the parts of the key, and `parent`, `name`, `/` are those of any path. It prints as
its URL. It is never a path of this machine: whatever would hand it to the operating system gets a ConfigError, so
that no local file is read, made or locked in place of an object.
"""

from __future__ import annotations

from pathlib import Path, PosixPath
from typing import NoReturn, Self
from urllib.parse import quote

from seglog.errors import ConfigError

OBJECT_STORES = ("s3", "gs", "az")
WEB_SERVERS = ("http", "https")
SCHEMES = (*OBJECT_STORES, *WEB_SERVERS)


class RemotePath(PosixPath):
    """`s3://bucket/key`: made by `remote.routing.parse_location`, and by going on from such a path."""

    @property
    def scheme(self) -> str:
        """`s3`, `gs`, `az`, `http` or `https`."""
        return self.parts[0].removesuffix(":") if self.parts else ""

    @property
    def store(self) -> str:
        """The bucket, the container, or the host and port."""
        return self.parts[1] if len(self.parts) > 1 else ""

    @property
    def key(self) -> str:
        """The object's name in its store; empty for the store itself."""
        return "/".join(self.parts[2:])

    @property
    def parent(self) -> Self:
        """The path one level up; a store, like the root of a file system, is its own."""
        return self if len(self.parts) <= 2 and self.scheme in SCHEMES else super().parent

    def __str__(self) -> str:
        if not self.parts or not self.parts[0].endswith(":"):
            return "/".join(self.parts) or "."  # what `relative_to` gives
        key = quote(self.key, errors="surrogateescape") if self.scheme in WEB_SERVERS else self.key
        return f"{self.scheme}://{self.store}" + (f"/{key}" if key else "")

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __fspath__(self) -> NoReturn:
        raise ConfigError(
            f"{self}: this needs a local directory, and seglog only reads where a URL leads: copy it to a disk first"
        )

    def __reduce__(self) -> tuple[type[Self], tuple[str, ...]]:
        return type(self), self.parts

    def is_absolute(self) -> bool:
        """It leads to the same place from everywhere."""
        return True

    def absolute(self) -> Self:
        """Itself."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002 (pathlib's)
        """Itself: an object store has no links."""
        return self


def remote_path(scheme: str, store: str, *parts: str) -> RemotePath:
    """The path of an object whose key has these parts."""
    return RemotePath(f"{scheme}:", store, *parts)


def why_absent(path: Path, usual: str) -> str:
    """What an error says of a path where nothing is: `usual`, and of a web server, why a directory may not be seen."""
    if isinstance(path, RemotePath) and path.scheme in WEB_SERVERS:
        without = "a web server without listings (WebDAV) shows no directories"
        return f"nothing is seen there; {without}: verify, dump, export and salvage take a single file"
    return usual
