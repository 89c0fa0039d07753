"""Reads the written entries of an offset or time index, without the zeros that a broker preallocates after them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.filenames import FileKind, parse_file_name
from seglog.format.index_entries import decode_offset_index, decode_time_index, used_entries
from seglog.storage.filesystem import FileSystem, require_size
from seglog.storage.padding import written_bytes, written_front

MOST_INDEX_BYTES = 256 << 20


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
    rows = (decode_time_index if is_time else decode_offset_index)(data, base_offset)
    used = used_entries(rows, base_offset)
    count = size // entry.itemsize
    return IndexEntries(rows[:used], size, 0 if is_time and count == 1 else count - used)
