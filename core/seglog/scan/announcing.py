"""Announces files of the partitions that come next, so that an object store delivers them side by side.

Commands look at one partition after the other, and of each at a few small files. In a store each of these is a request,
and waiting for one after the other takes most of the time. So while a partition is worked on, the files of the next
ones are on their way, as many at once as there may be requests. On a disk nothing is announced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from seglog.format.filenames import FileKind
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.padding import FRONT_BYTES

_PARTITIONS = 16  # announced ahead
_FILES = 64  # of one partition
_BYTES = 16 << 20
_SMALL_BYTES = 256 << 10

T = TypeVar("T")
# Of a directory's entries: (name, first byte, bytes) of what will be read.
Choice = Callable[[Sequence[tuple[str, FileStatus]]], Iterator[tuple[str, int, int]]]


def small_files(entries: Sequence[tuple[str, FileStatus]]) -> Iterator[tuple[str, int, int]]:
    """Chooses every small file, and the beginnings of indexes."""
    for name, status in entries:
        if status.size <= _SMALL_BYTES:
            yield name, 0, status.size
        elif name.endswith((FileKind.OFFSET_INDEX.value, FileKind.TIME_INDEX.value)):
            yield name, 0, FRONT_BYTES


def ends(entries: Sequence[tuple[str, FileStatus]]) -> Iterator[tuple[str, int, int]]:
    """Chooses what shows where logs end: all time indexes, and the last segment's offset index and end."""
    last = _last_segment(entries)
    for name, status in entries:
        if name == f"{last}{FileKind.LOG.value}":
            yield name, max(0, status.size - FRONT_BYTES), min(status.size, FRONT_BYTES)
        elif name == f"{last}{FileKind.OFFSET_INDEX.value}" or name.endswith(FileKind.TIME_INDEX.value):
            yield name, 0, min(status.size, FRONT_BYTES)


def logs(entries: Sequence[tuple[str, FileStatus]]) -> Iterator[tuple[str, int, int]]:
    """Chooses small logs, and the indexes of the last segment, which a view reads."""
    last = _last_segment(entries)
    for name, status in entries:
        if name.endswith(FileKind.LOG.value) and status.size <= _SMALL_BYTES:
            yield name, 0, status.size
        elif name in (f"{last}{FileKind.OFFSET_INDEX.value}", f"{last}{FileKind.TIME_INDEX.value}"):
            yield name, 0, min(status.size, FRONT_BYTES)


def _last_segment(entries: Sequence[tuple[str, FileStatus]]) -> str:
    """Returns the name of the last segment's files without their suffix."""
    names = (name for name, _ in entries if name.endswith(FileKind.LOG.value))
    return max(names, default="").removesuffix(FileKind.LOG.value)


def announced(fs: FileSystem, items: Iterable[T], path_of: Callable[[T], Path], choice: Choice) -> Iterator[T]:
    """Yields `items` after announcing what `choice` takes of their directories, a few directories ahead."""
    coming: deque[tuple[T, int]] = deque()
    source, held = iter(items), 0
    while True:
        while not coming or (len(coming) < _PARTITIONS and held < _BYTES):
            try:
                item = next(source)
            except StopIteration:
                break
            if not coming and fs.reads_at_once(path_of(item)) < 2:
                yield item
                continue
            size = _announce(fs, path_of(item), choice)
            coming.append((item, size))
            held += size
        if not coming:
            return
        item, size = coming.popleft()
        held -= size
        yield item


def _announce(fs: FileSystem, directory: Path, choice: Choice) -> int:
    """Announces the chosen files of a directory; returns their bytes."""
    announced = 0
    with suppress(OSError):  # the work itself meets it again
        entries = [(name, status) for name, status in fs.entries(directory) if not status.is_directory]
        for name, start, size in list(choice(entries))[:_FILES]:
            if size:
                with fs.open(directory / name, "r") as file:
                    file.advise_wanted(start, size)
                announced += min(size, _SMALL_BYTES)
    return announced
