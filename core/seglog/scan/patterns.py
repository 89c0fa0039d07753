"""Patterns of paths: `*`, `?`, `[…]` and `{a,b}`, in paths of this machine and (but for `?`) in URLs.

A shell expands the patterns of local paths, but not those of URLs, and not those in quotes. A path that exists is taken
literally, whatever characters it has.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from seglog.doors import door
from seglog.errors import ConfigError, NotALogError
from seglog.locations import parse_location
from seglog.remote_path import SNAPSHOT_MARK
from seglog.storage.filesystem import FileSystem

_GLOB = frozenset("*?[")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST_ALTERNATIVES = 10_000


def is_pattern(text: str) -> bool:
    """True if the text has characters of a pattern."""
    return bool(_GLOB & set(text)) or _BRACES.search(text) is not None


def matching_paths(fs: FileSystem, text: str) -> list[Path]:
    """Returns the paths that a text names; several for a pattern.

    Raises NotALogError if nothing matches a pattern, ConfigError for too many or nested braces.
    """
    path = parse_location(text)
    if not is_pattern(text) or fs.status(path) is not None:
        return [path]
    matching = [path for alternative in _alternatives(text) for path in expand(fs, parse_location(alternative))]
    return list(dict.fromkeys(matching))


def snapshot_around(fs: FileSystem, path: Path) -> tuple[FileSystem, Path]:
    """Returns a file system that shows the snapshot of a backup in which a path lies, and the path there; both as they
    are if it is in none. Raises RefusedError if a repository has no such snapshot, CorruptTierError, OSError.
    """
    shown = door("snapshot")(fs, path) if SNAPSHOT_MARK in str(path) else None
    return (fs, path) if shown is None else shown


def expand(fs: FileSystem, path: Path) -> list[Path]:
    """Expands `*`, `?` and `[…]`, in a snapshot of a backup too; lists each directory once. Raises NotALogError if
    nothing matches.
    """
    if not _GLOB & set(str(path)) or fs.status(path) is not None:
        return [path]
    fs, path = snapshot_around(fs, path)
    above = next(one for one in path.parents if not _GLOB & set(str(one)))
    found = [above]
    for part in path.parts[len(above.parts) :]:
        found = list(_matching(fs, found, part))
    if not found:
        raise NotALogError(path, "nothing matches")
    return found


def _alternatives(text: str) -> Iterator[str]:
    """Yields the text with each choice of `{a,b}`."""
    parts = _BRACES.split(text)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    rest = "".join(parts[::2])
    if "{" in rest and "}" in rest and len(parts) > 1:
        raise ConfigError(f"{text[:200]}: braces inside braces are not expanded; name the paths one by one")
    count = 1
    for each in choices:
        count *= len(each)
    if count > _MOST_ALTERNATIVES:
        raise ConfigError(f"{text[:200]}: the braces stand for {count} paths, more than {_MOST_ALTERNATIVES}")
    yield from map("".join, product(*choices))


def _matching(fs: FileSystem, directories: Iterable[Path], part: str) -> Iterator[Path]:
    for directory in directories:
        status = fs.status(directory)
        if status is None or not status.is_directory:
            continue
        for name in fs.list(directory) if _GLOB & set(part) else [part]:
            hidden = name.startswith(".") and not part.startswith(".")
            if name == part or (not hidden and fnmatch.fnmatchcase(name, part)):
                yield directory / name
