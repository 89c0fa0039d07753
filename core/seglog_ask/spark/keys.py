"""Keys on their way between tasks, for `clean` and `latest`: collected in one task, packed, opened in another.

Dirty records go through the cleaner's own offset map, so that only the newest record of each key leaves the task. When
the map is full, its entries are sent and an empty map takes over; the reducer keeps the newest of both. Records before
the first dirty offset are sent one by one, because each is kept or dropped on its own.

Spark moves rows slowly and bytes fast, so a task sends one blob per reducer, not one row per record: 5 million keys
travel as a few hundred rows. A blob:

    0   kind (8 bytes)      ENTRIES, CLEAN, SURVIVORS, SUPERSEDED; OBJECT is a pickled value
    8   group               the group that it is about
    16  count               of entries
    24  key size            of every key, or -1 if sizes follow
    32  ordinals            uint32 each: the record's number within its group
        sizes               uint32 each, only if they differ
        keys                back to back
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seglog.cleaner.chunks import invalid_records
from seglog.cleaner.offset_map import KeyReader, KeyTable, OffsetMap
from seglog.cleaner.round import CleanerOptions
from seglog.errors import IncompleteError
from seglog.kernels import key_exchange
from seglog.scan.segment_scan import Chunk

ENTRIES = 0  # the newest record of each key in a part of a group
CLEAN = 1  # every record before the first dirty offset
SURVIVORS = 2  # ordinals of the entries that are the newest of all
SUPERSEDED = 3  # ordinals of the clean records whose key is dirty too
OBJECT = 4

Bytes = bytes | memoryview

_HEADER_BYTES = 32
_MOST_KEY_BYTES = 64 << 20
_NOTHING = np.zeros(0, dtype=np.int64)
_CLEAN_KEYS_AT_ONCE = 1 << 20
_CLEAN_BYTES_AT_ONCE = 32 << 20


# --- blobs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys as spans in `arena` (int64 positions and sizes), with their records' ordinals (int64)."""

    arena: np.ndarray
    positions: np.ndarray
    sizes: np.ndarray
    ordinals: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as arrays. `sizes` are those of the keys; empty if it only has ordinals."""

    kind: int
    group: int
    ordinals: np.ndarray
    sizes: np.ndarray
    keys: np.ndarray


def by_reducer(
    kind: int, group: int, keys: Keys, seeds: np.ndarray, hash_mask: int, reducers: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (reducer, blob) for the entries; nothing for a reducer without entries."""
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
            same = int(sizes[part][0]) if (sizes[part] == sizes[part][0]).all() else -1
            header = np.array([kind, group, part.stop - part.start, same], dtype=np.int64)
            arrays = (header, ordinals[part], sizes[part] if same < 0 else sizes[:0], out[key_part])
            yield target, b"".join(array.tobytes() for array in arrays)


def _bounded(sizes: np.ndarray, first: int, last: int, begin: int) -> Iterator[tuple[slice, slice]]:
    """Yields parts of a run, each of about _MOST_KEY_BYTES of keys at most, so that a row stays far below 2 GiB."""
    ends = np.cumsum(sizes[first:last], dtype=np.int64)
    at = 0
    while at < len(ends):
        start = int(ends[at - 1]) if at else 0
        stop = max(int(np.searchsorted(ends, start + _MOST_KEY_BYTES, side="right")), at + 1)
        yield slice(first + at, first + stop), slice(begin + start, begin + int(ends[stop - 1]))
        at = stop


def ordinals_blob(kind: int, group: int, ordinals: np.ndarray) -> bytes:
    """Packs ordinals without keys."""
    header = np.array([kind, group, len(ordinals), 0], dtype=np.int64)
    return header.tobytes() + ordinals.astype(np.uint32).tobytes()


def object_blob(value: object) -> bytes:
    """Packs a Python value."""
    return np.array([OBJECT, 0, 0, 0], dtype=np.int64).tobytes() + pickle.dumps(value)


def opened(data: Bytes) -> Any:
    """Returns a blob as arrays over `data` (`Blob`), or an OBJECT's value. Raises IncompleteError if it was cut."""
    if len(data) < _HEADER_BYTES:
        raise IncompleteError(f"a message between tasks has {len(data)} bytes")
    kind, group, count, same = np.frombuffer(data, dtype=np.int64, count=4).tolist()
    if kind == OBJECT:
        return pickle.loads(data[_HEADER_BYTES:])
    if len(data) < _HEADER_BYTES + 4 * count * (1 if same >= 0 else 2):
        raise IncompleteError("a message between tasks is not whole")
    ordinals = np.frombuffer(data, dtype=np.uint32, count=count, offset=_HEADER_BYTES)
    at = _HEADER_BYTES + 4 * count
    if same >= 0:
        sizes = np.full(count if kind in (ENTRIES, CLEAN) else 0, same, dtype=np.int64)
    else:
        sizes = np.frombuffer(data, dtype=np.uint32, count=count, offset=at).astype(np.int64)
        at += 4 * count
    keys = np.frombuffer(data, dtype=np.uint8, offset=at)
    if int(sizes.sum()) != len(keys):
        raise IncompleteError("a message between tasks is not whole")
    return Blob(kind, group, ordinals, sizes, keys)


# --- collecting -----------------------------------------------------------------------------------------------


class DirtyKeys:
    """The newest record of each key from the first dirty offset on, with ordinals as `RecordFilter` counts them."""

    def __init__(self, options: CleanerOptions, first_dirty_offset: int) -> None:
        self._options, self._first_dirty_offset = replace(options, jobs=1), first_dirty_offset
        self._before = self._without_key = 0
        self._begin()

    def _begin(self) -> None:
        self._map = OffsetMap(self._options)
        self._reader = KeyReader(self._first_dirty_offset, self._options.strategy, self._map.seeds, self._map.hash_mask)

    @property
    def records(self) -> int:
        """The number of records with an ordinal."""
        return self._before + self._map.next_ordinal

    @property
    def without_key(self) -> int:
        """The number of records without a key in fully dirty batches."""
        return self._without_key + self._map.without_key

    def add(self, chunk: Chunk, skipped: np.ndarray) -> Iterator[Keys]:
        """Adds the records of batches that are not `skipped` (bool); yields the entries of a full map."""
        yield from self._mapped(lambda: self._reader.tables(chunk, skipped))

    def add_rows(self, arena: np.ndarray, rows: np.ndarray) -> Iterator[Keys]:
        """Adds decoded records (layout.RECORD, spans in `arena`), all dirty; yields the entries of a full map."""
        yield from self._mapped(lambda: self._reader.tables_of_rows(arena, rows))

    def _mapped(self, tables: Callable[[], Iterator[KeyTable]]) -> Iterator[Keys]:
        """Adds `tables()` in as many passes as they need; yields the entries of each full map."""
        start = self._map.next_ordinal
        self._put(tables())
        if not self._map.is_full:
            return
        while self._map.is_full:
            yield self.rest()
            self._map.begin_pass(start)
            self._put(tables())
        yield self.rest()
        self._before, self._without_key = self.records, self.without_key
        self._begin()

    def _put(self, tables: Iterator[KeyTable]) -> None:
        for table in tables:
            self._map.put(table)
            self._reader.give_back(table)

    def rest(self) -> Keys:
        """Returns the entries of the map, which are not yielded yet."""
        count = self._map.entries
        positions, sizes, ordinals = (np.empty(count, dtype=np.int64) for _ in range(3))
        found = key_exchange.live_entries(self._map.store, self._map.key_overhead, positions, sizes, ordinals)
        assert found == count, "the offset map's store does not hold its entries"
        return Keys(self._map.store, positions, sizes, ordinals + self._before)


class CleanKeys:
    """The records before the first dirty offset, up to the batch that contains it."""

    def __init__(self, first_dirty_offset: int) -> None:
        self._first_dirty_offset = first_dirty_offset
        self._waiting: list[Keys] = []
        self._held = self._held_bytes = 0
        self._ended = first_dirty_offset <= 0
        self.records = 0

    def add(self, chunk: Chunk, control: np.ndarray, dirty: np.ndarray) -> Iterator[Keys]:
        """Adds the records of clean data batches, and of the first dirty one; yields keys when there are many."""
        if self._ended:
            return
        data = np.flatnonzero(~control)
        first_dirty = np.flatnonzero(dirty[data])
        if len(first_dirty):
            data, self._ended = data[: first_dirty[0] + 1], True
        for records in chunk.records(chunk.batches[data]):
            bad = np.flatnonzero(records.status)
            if len(bad):
                raise invalid_records(chunk.path, records.batches[bad[0]], int(records.status[bad[0]]))
            self._take(records.arena, records.rows)
        if self._held >= _CLEAN_KEYS_AT_ONCE or self._held_bytes >= _CLEAN_BYTES_AT_ONCE:
            yield self.rest()

    def _take(self, arena: np.ndarray, rows: np.ndarray) -> None:
        ordinals = self.records + np.arange(len(rows), dtype=np.int64)
        self.records += len(rows)
        wanted = (rows["key_size"] >= 0) & (rows["offset"] < self._first_dirty_offset)
        positions = rows["key_position"][wanted].astype(np.int64)
        sizes = rows["key_size"][wanted].astype(np.int64)
        if not len(positions):
            return
        ends = np.cumsum(sizes)
        keys = np.empty(int(ends[-1]), dtype=np.uint8)
        count, zero = len(positions), np.zeros(1, dtype=np.int64)
        unused = np.empty(count, dtype=np.uint32)
        # one target for all keys: copies them back to back
        targets = np.zeros(count, dtype=np.int32)
        key_exchange.scatter(
            arena, positions, sizes, ordinals[wanted], targets, zero, zero.copy(), unused, unused.copy(), keys
        )
        self._waiting.append(Keys(keys, ends - sizes, sizes, ordinals[wanted]))
        self._held += len(sizes)
        self._held_bytes += len(keys)

    def rest(self) -> Keys:
        """Returns the keys that are not yielded yet."""
        waiting, self._waiting, self._held, self._held_bytes = self._waiting, [], 0, 0
        if not waiting:
            return Keys(np.zeros(0, dtype=np.uint8), _NOTHING, _NOTHING, _NOTHING)
        sizes = np.concatenate([keys.sizes for keys in waiting])
        arena = np.concatenate([keys.arena for keys in waiting])
        return Keys(arena, np.cumsum(sizes) - sizes, sizes, np.concatenate([keys.ordinals for keys in waiting]))
