"""What the operating system says about a path."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What the operating system says about a path.

    `size` and `allocated` (blocks really taken, less than `size` in a sparse file) are in bytes;
    `modified_ms` is the modification time rounded down to milliseconds, as Java's `File.lastModified` gives
    it. `names` counts hard links. A file is special when it is neither a regular file nor a directory nor a link.
    `version` is an object's ETag; a store's alone has one.
    """

    size: int
    modified_ms: int
    modified_ns: int
    inode: int
    device: int
    mode: int
    owner: int
    group: int
    allocated: int
    is_directory: bool
    is_link: bool = False
    is_special: bool = False
    names: int = 1
    version: str = ""
