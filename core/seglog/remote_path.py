"""`RemotePath`: a path that names an object in a store and keeps its URL.

An object store has no directories; the parts of a key before its slashes serve as such. So a URL is a path: its parts
are the scheme, the bucket (or host) and the parts of the key, and `parent`, `name` and `/` work as for any path. It
prints as its URL. It is never a local path: passing it to the operating system raises a ConfigError, so that no local
file is read, created or locked instead of an object.
"""

from __future__ import annotations

from pathlib import Path, PosixPath
from typing import NoReturn, Self
from urllib.parse import quote

from seglog.errors import ConfigError

OBJECT_STORES = ("s3", "gs", "az")
WEB_SERVERS = ("http", "https")
SNAPSHOT_MARK = "#"  # of a path that names a snapshot of a backup: REPOSITORY#SNAPSHOT
SCHEMES = (*OBJECT_STORES, *WEB_SERVERS)
COPY_ON_A_DISK = "COPY-ON-A-DISK"  # stands in a command for a log directory whose URL it does not take
_STARTS = tuple(f"{scheme}://" for scheme in SCHEMES)


class RemotePath(PosixPath):
    """A path like `s3://bucket/key`, made by `locations.parse_location` or from another such path."""

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
        """The path one level up; a store is its own parent, like the root of a file system."""
        return self if len(self.parts) <= 2 and self.scheme in SCHEMES else super().parent

    def __str__(self) -> str:
        if not self.parts or not self.parts[0].endswith(":"):
            return "/".join(self.parts) or "."  # the result of `relative_to`
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
        """Returns True."""
        return True

    def absolute(self) -> Self:
        """Returns the path itself."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002 (pathlib's)
        """Returns the path itself: an object store has no links."""
        return self


def is_url(name: object) -> bool:
    """True if the name of a file, as an OSError has it, is a URL's."""
    return isinstance(name, RemotePath) or (isinstance(name, str) and name.startswith(_STARTS))


def remote_path(scheme: str, store: str, *parts: str) -> RemotePath:
    """Returns the path of the object whose key has these parts."""
    return RemotePath(f"{scheme}:", store, *parts)


def why_absent(path: Path, usual: str) -> str:
    """Returns the reason why a path is missing: `usual`, or for a web server, why it shows no directories. For what may
    mean a snapshot of a backup, it says how to get directories of it: commands that read show them in place.
    """
    if isinstance(path, RemotePath) and path.scheme in WEB_SERVERS:
        without = "a web server without listings (WebDAV) shows no directories"
        return f"nothing is seen there; {without}: verify, dump, export and salvage take a single file"
    if SNAPSHOT_MARK in str(path):
        return f"{usual}; if it is a snapshot of a backup, make directories of it with `seglog backup restore` first"
    return usual
