"""Indexes as a killed broker leaves them: with preallocated zeros after what was written; and what is read of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.storage.local import LocalFile

PREALLOCATED = 10 << 20  # segment.index.bytes; a time index has the whole entries that fit


def pad(index: Path, size: int = PREALLOCATED, *, allocated: bool = False) -> None:
    """Grows an index with zeros, which take disk space if `allocated`."""
    entry = 12 if index.suffix == ".timeindex" else 8
    size = size // entry * entry
    if allocated:
        with index.open("ab") as file:
            file.write(bytes(size - index.stat().st_size))
    else:
        os.truncate(index, size)


def pad_all(log_directory: Path, *, allocated: bool = False) -> None:
    """Pads the indexes of the last segment of each partition, as a broker has them."""
    for partition in (each for each in log_directory.iterdir() if each.is_dir()):
        for suffix in ("index", "timeindex"):
            if indexes := sorted(partition.glob(f"*.{suffix}")):
                pad(indexes[-1], allocated=allocated)


@contextmanager
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """The bytes that are read of local files while the `with` lasts, by suffix."""
    read: Counter[str] = Counter()
    once, into_once = LocalFile._read_once, LocalFile._read_into_once

    def read_once(file: LocalFile, position: int, size: int) -> bytes:
        data = once(file, position, size)
        read[file.path.suffix] += len(data)
        return data

    def read_into_once(file: LocalFile, position: int, view: memoryview) -> int:
        count = into_once(file, position, view)
        read[file.path.suffix] += count
        return count

    with monkeypatch.context() as patched:
        patched.setattr(LocalFile, "_read_once", read_once)
        patched.setattr(LocalFile, "_read_into_once", read_into_once)
        yield read
