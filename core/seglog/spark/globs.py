"""What a glob stands for, in any file system: each directory on its way is listed once."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from pathlib import Path

from seglog.errors import NotALogError
from seglog.storage.filesystem import FileSystem

_GLOB = frozenset("*?[")


def expand(fs: FileSystem, path: Path) -> list[Path]:
    """The paths that a glob stands for; a path that exists stands for itself. NotALogError when nothing fits."""
    if not _GLOB & set(str(path)) or fs.status(path) is not None:
        return [path]
    above = next(one for one in path.parents if not _GLOB & set(str(one)))
    found = [above]
    for part in path.parts[len(above.parts) :]:
        found = list(_matching(fs, found, part))
    if not found:
        raise NotALogError(path, "nothing matches")
    return found


def _matching(fs: FileSystem, directories: Iterable[Path], part: str) -> Iterator[Path]:
    for directory in directories:
        status = fs.status(directory)
        if status is None or not status.is_directory:
            continue
        names = fs.list(directory) if _GLOB & set(part) else [part]
        for name in names:
            hidden = name.startswith(".") and not part.startswith(".")
            if name == part or (not hidden and fnmatch.fnmatchcase(name, part)):
                yield directory / name
