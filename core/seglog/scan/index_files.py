"""Reads the written entries of an offset or time index, without the zeros that a broker preallocates after them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import RefusedError
from seglog.format.filenames import FileKind, parse_file_name
from seglog.format.index_entries import decode_offset_index, decode_time_index, used_entries
from seglog.scan.listing import PartitionListing
from seglog.storage.filesystem import FileSystem, require_size
from seglog.storage.padding import FRONT_BYTES, written_bytes, written_front

MOST_INDEX_BYTES = 256 << 20
_MOST_AT_ONCE = 64  # segments whose indexes are read together


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """The written entries of an index file: OFFSET_POSITION or TIMESTAMP_OFFSET rows (`format.index_entries`).

    `size` is the file's, in bytes. `padding` counts the entries of zeros after `rows`; the only entry of a time index
    counts as written, as a segment of one record at timestamp 0 has such an entry.
    """

    rows: np.ndarray
    size: int
    padding: int


def read_index(fs: FileSystem, path: Path, base_offset: int, *, past_zeros: bool = False) -> IndexEntries:
    """Reads an index; its name says which kind it is.

    With `past_zeros` everything that follows zeros is found, too: only damage lies there. Without it, zeros are not
    read. Raises RefusedError for a file that is too large for an index, and OSError.
    """
    name = parse_file_name(path.name)
    is_time = name is not None and name.kind is FileKind.TIME_INDEX
    entry = layout.TIME_INDEX_ENTRY if is_time else layout.OFFSET_INDEX_ENTRY
    with fs.open(path, "r") as file:
        size = require_size(file, MOST_INDEX_BYTES)
        data = (written_bytes if past_zeros else written_front)(file, entry.itemsize)
    rows, count = _decoded(data, base_offset, is_time=is_time), size // entry.itemsize
    return IndexEntries(rows, size, 0 if is_time and count == 1 else count - len(rows))


def small_indexes(fs: FileSystem, listing: PartitionListing, *, log_bytes: int = 0) -> Mapping[str, bytes]:
    """Returns the contents of the time indexes and of the last segment's offset index, by name, if they are few and
    small: all are read at once. Those left out, and all if one of them cannot be read, are to be read one by one.

    With `log_bytes` the last segment's `.log` is among them if it has at most that many.
    """
    segments = listing.segments
    if not 0 < len(segments) <= _MOST_AT_ONCE or fs.reads_at_once(listing.directory) > 1:
        return {}
    paths = [one.time_index for one in segments if one.index_size <= FRONT_BYTES]
    if segments[-1].index_size <= FRONT_BYTES:
        paths.append(segments[-1].offset_index)
    if 0 < segments[-1].size <= log_bytes:
        paths.append(segments[-1].log)
    names = [path.name for path in paths if path is not None]
    with suppress(OSError, RefusedError):  # reading it alone meets it again
        return dict(zip(names, fs.read_each(listing.directory, names), strict=True))
    return {}


def index_rows(fs: FileSystem, path: Path, base_offset: int, held: Mapping[str, bytes]) -> np.ndarray:
    """Returns the rows of an index, from what is `held` (`small_indexes`) or from its file. Raises as `read_index`."""
    data = held.get(path.name)
    return read_index(fs, path, base_offset).rows if data is None else held_rows(path, data, base_offset)


def held_rows(path: Path, data: bytes, base_offset: int) -> np.ndarray:
    """Returns the rows of `read_index` from the contents of a small index."""
    return _decoded(data, base_offset, is_time=path.name.endswith(FileKind.TIME_INDEX.value))


def _decoded(data: bytes, base_offset: int, *, is_time: bool) -> np.ndarray:
    rows = (decode_time_index if is_time else decode_offset_index)(data, base_offset)
    return rows[: used_entries(rows, base_offset)]
