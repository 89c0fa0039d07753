"""What cleaning tasks send each other: one binary a reducer, not one row a record.

    0   kind (8 bytes)      ENTRIES, CLEAN, SURVIVORS, SUPERSEDED; OBJECT is a pickled value
    8   group               the group that it speaks of
    16  count               entries
    24  key size            of every key, or -1: sizes follow
    32  ordinals            uint32 each; of the record, counted within its group
        sizes               uint32 each, only when they differ
        keys                side by side

Spark moves rows slowly and bytes fast: 5 million keys travel as a few hundred rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seglog.errors import IncompleteError
from seglog.kernels import key_exchange

ENTRIES = 0  # the newest record of each key in a part of a group
CLEAN = 1  # records in front of the first dirty offset, each of them
SURVIVORS = 2  # ordinals of the entries that are the newest of all
SUPERSEDED = 3  # ordinals of the clean records whose key is dirty too
OBJECT = 4

Bytes = bytes | memoryview

_HEADER_BYTES = 32
_MOST_KEY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Keys:
    """Entries: spans of keys in `arena` (int64 positions and sizes) and ordinals (int64)."""

    arena: np.ndarray
    positions: np.ndarray
    sizes: np.ndarray
    ordinals: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob taken apart. `sizes` are those of the keys; of ordinals alone it is empty."""

    kind: int
    group: int
    ordinals: np.ndarray
    sizes: np.ndarray
    keys: np.ndarray


def by_reducer(
    kind: int, group: int, keys: Keys, seeds: np.ndarray, hash_mask: int, reducers: int
) -> Iterator[tuple[int, bytes]]:
    """(reducer, blob) for the entries; reducers without an entry get none."""
    targets = np.empty(len(keys), dtype=np.int32)
    counts, key_bytes = np.zeros(reducers, dtype=np.int64), np.zeros(reducers, dtype=np.int64)
    key_exchange.assign(keys.arena, keys.positions, keys.sizes, seeds, hash_mask, reducers, targets, counts, key_bytes)
    ends, key_ends = np.cumsum(counts), np.cumsum(key_bytes)
    ordinals, sizes = np.empty(len(keys), dtype=np.uint32), np.empty(len(keys), dtype=np.uint32)
    out = np.empty(int(key_bytes.sum()), dtype=np.uint8)
    entry_places, key_places = ends - counts, key_ends - key_bytes
    key_exchange.scatter(
        keys.arena, keys.positions, keys.sizes, keys.ordinals, targets, entry_places, key_places, ordinals, sizes, out
    )
    for target in np.flatnonzero(counts).tolist():
        first, last = int(ends[target] - counts[target]), int(ends[target])
        begin = int(key_ends[target] - key_bytes[target])
        for part, key_part in _bounded(sizes, first, last, begin):
            yield target, _entries(kind, group, ordinals[part], sizes[part], out[key_part])


def _bounded(sizes: np.ndarray, first: int, last: int, begin: int) -> Iterator[tuple[slice, slice]]:
    """The run in parts of at most about _MOST_KEY_BYTES of keys, so that a row stays far below 2 GiB."""
    ends = np.cumsum(sizes[first:last], dtype=np.int64)
    at = 0
    while at < len(ends):
        start = int(ends[at - 1]) if at else 0
        stop = max(int(np.searchsorted(ends, start + _MOST_KEY_BYTES, side="right")), at + 1)
        yield slice(first + at, first + stop), slice(begin + start, begin + int(ends[stop - 1]))
        at = stop


def _entries(kind: int, group: int, ordinals: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> bytes:
    same = int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else -1
    header = np.array([kind, group, len(ordinals), same], dtype=np.int64)
    parts = (header, ordinals, sizes[:0] if same >= 0 else sizes, keys)
    return b"".join(part.tobytes() for part in parts)


def ordinals_blob(kind: int, group: int, ordinals: np.ndarray) -> bytes:
    """A blob of ordinals alone."""
    header = np.array([kind, group, len(ordinals), 0], dtype=np.int64)
    return header.tobytes() + ordinals.astype(np.uint32).tobytes()


def object_blob(value: object) -> bytes:
    """A blob that holds a Python value."""
    return np.array([OBJECT, 0, 0, 0], dtype=np.int64).tobytes() + pickle.dumps(value)


def opened(data: Bytes) -> Any:
    """A blob as arrays over `data` (`Blob`), or the value of an OBJECT. IncompleteError for one that was cut."""
    if len(data) < _HEADER_BYTES:
        raise IncompleteError(f"a message between cleaning tasks has {len(data)} bytes")
    kind, group, count, same = np.frombuffer(data, dtype=np.int64, count=4).tolist()
    if kind == OBJECT:
        return pickle.loads(data[_HEADER_BYTES:])
    ordinals = np.frombuffer(data, dtype=np.uint32, count=count, offset=_HEADER_BYTES)
    at = _HEADER_BYTES + 4 * count
    if same >= 0:
        sizes = np.full(count if kind in (ENTRIES, CLEAN) else 0, same, dtype=np.int64)
    else:
        sizes = np.frombuffer(data, dtype=np.uint32, count=count, offset=at).astype(np.int64)
        at += 4 * count
    keys = np.frombuffer(data, dtype=np.uint8, offset=at)
    if int(sizes.sum()) != len(keys):
        raise IncompleteError("a message between cleaning tasks is not whole")
    return Blob(kind, group, ordinals, sizes, keys)
