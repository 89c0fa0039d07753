"""Collecting the keys of a group of segments for the exchange between cleaning tasks.

Dirty records go through the cleaner's own offset map, so that of each key only the newest leaves the task; when the map
is full, what it holds is sent and the work goes on with an empty one: the reducer takes the newest of both. Records in
front of the first dirty offset are sent one by one, as each of them stays or goes on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from seglog.cleaner.chunks import invalid_records
from seglog.cleaner.offset_map import KeyReader, KeyTable, OffsetMap
from seglog.cleaner.round import CleanerOptions
from seglog.kernels import key_exchange
from seglog.scan.segment_scan import Chunk
from seglog.spark.cleaning_blobs import Keys

_NOTHING = np.zeros(0, dtype=np.int64)
_CLEAN_KEYS_AT_ONCE = 1 << 20
_CLEAN_BYTES_AT_ONCE = 32 << 20


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
        """Records that have an ordinal."""
        return self._before + self._map.next_ordinal

    @property
    def without_key(self) -> int:
        """As `OffsetMap.without_key`."""
        return self._without_key + self._map.without_key

    def add(self, chunk: Chunk, skipped: np.ndarray) -> Iterator[Keys]:
        """Puts the records of batches that are not `skipped` (bool); yields the entries of a map that was full."""
        yield from self._mapped(lambda: self._reader.tables(chunk, skipped))

    def add_rows(self, arena: np.ndarray, rows: np.ndarray) -> Iterator[Keys]:
        """The same for decoded records (layout.RECORD, spans in `arena`), all of them dirty."""
        yield from self._mapped(lambda: self._reader.tables_of_rows(arena, rows))

    def _mapped(self, tables: Callable[[], Iterator[KeyTable]]) -> Iterator[Keys]:
        """Puts `tables()` until each of their records has been in the map; yields the entries of each that was full."""
        start = self._map.next_ordinal
        self._put(tables())
        if not self._map.is_full:
            return
        while self._map.is_full:
            yield self._entries()
            self._map.begin_pass(start)
            self._put(tables())
        yield self._entries()
        self._before, self._without_key = self.records, self.without_key
        self._begin()

    def _put(self, tables: Iterator[KeyTable]) -> None:
        for table in tables:
            self._map.put(table)
            self._reader.give_back(table)

    def rest(self) -> Keys:
        """The entries that were not yielded yet."""
        return self._entries()

    def _entries(self) -> Keys:
        count = self._map.entries
        positions, sizes, ordinals = (np.empty(count, dtype=np.int64) for _ in range(3))
        found = key_exchange.live_entries(self._map.store, self._map.key_overhead, positions, sizes, ordinals)
        assert found == count, "the offset map's store does not hold its entries"
        return Keys(self._map.store, positions, sizes, ordinals + self._before)


class CleanKeys:
    """The records in front of the first dirty offset, up to the batch in which that lies."""

    def __init__(self, first_dirty_offset: int) -> None:
        self._first_dirty_offset = first_dirty_offset
        self._waiting: list[Keys] = []
        self._held = self._held_bytes = 0
        self._ended = first_dirty_offset <= 0
        self.records = 0

    def add(self, chunk: Chunk, control: np.ndarray, dirty: np.ndarray) -> Iterator[Keys]:
        """Takes the records of batches that are neither control batches nor dirty, and of the first dirty one."""
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
        self._copy(arena, positions, sizes, ordinals[wanted], keys)
        self._waiting.append(Keys(keys, ends - sizes, sizes, ordinals[wanted]))
        self._held += len(sizes)
        self._held_bytes += len(keys)

    @staticmethod
    def _copy(
        arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray, ordinals: np.ndarray, keys: np.ndarray
    ) -> None:
        """Copies the keys side by side: everything to one target."""
        zero = np.zeros(1, dtype=np.int64)
        count = len(positions)
        key_exchange.scatter(
            arena,
            positions,
            sizes,
            ordinals,
            np.zeros(count, dtype=np.int32),
            zero,
            zero.copy(),
            np.empty(count, dtype=np.uint32),
            np.empty(count, dtype=np.uint32),
            keys,
        )

    def rest(self) -> Keys:
        """What was not yielded yet."""
        waiting, self._waiting, self._held, self._held_bytes = self._waiting, [], 0, 0
        if not waiting:
            return Keys(np.zeros(0, dtype=np.uint8), _NOTHING, _NOTHING, _NOTHING)
        sizes = np.concatenate([keys.sizes for keys in waiting])
        arena = np.concatenate([keys.arena for keys in waiting])
        return Keys(arena, np.cumsum(sizes) - sizes, sizes, np.concatenate([keys.ordinals for keys in waiting]))
