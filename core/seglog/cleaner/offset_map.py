"""The offset map: reads keys from chunks into tables, puts the tables into the map, and finds dead chunks.

Mirrors SkimpyOffsetMap, with two differences that `kernels.offset_map` explains: keys are compared by their bytes, and
a full map ends an index pass, not the round. The map's memory is slots, a key store and a bit per record. Three eighths
of the dedupe buffer are slots and five eighths hold keys; another KEY_STORE_BYTES hold the rest of the keys. The slots
start small and grow, so a log of few keys neither touches the whole buffer nor leaves the processor's cache.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.cleaner.chunks import OpenPart, attributes_met, invalid_records, open_parts
from seglog.cleaner.opened_payloads import OpenedPayloads
from seglog.cleaner.round import CleanerOptions, RoundPlan, Strategy, StrategyKind
from seglog.errors import ConfigError
from seglog.kernels import key_tables, offset_map
from seglog.kernels.bits import any_bit
from seglog.kernels.hashing import SEED_WORDS
from seglog.ordered_pool import Account
from seglog.scan.segment_scan import Chunk

KEY_STORE_BYTES = 64 << 20
DECIDED_ELSEWHERE = layout.CONTROL_MASK | layout.TRANSACTIONAL_MASK  # not by a batch's records alone
_FIRST_SLOTS = 1 << 14
_GROWTH = 4
_SLOTS_A_KEY = 4  # expected slots per key: so many that a lookup rarely meets other keys
_LOAD_WHILE_GROWING = 0.6
_HIGHEST_LOAD = 0.95
_NO_BITS = np.zeros(1, dtype=np.uint8)
# Rows of a key table: enough to make the cost of a call negligible (with 16384 rows instead of 8192, a round takes 0.97
# of the CPU time), and few enough for a core's cache.
_ROWS = 16384
_KEY_BYTES = _ROWS * 24
_SPARE_TABLES = 12


@dataclass(slots=True)
class KeyTable:
    """Keys with hashes and ordinals, in the layout of `kernels.key_tables`. The table uses up `records` ordinals.

    `without_key` counts the records without a key in fully dirty batches.
    """

    hashes: np.ndarray
    sizes: np.ndarray
    ordinals: np.ndarray
    versions: np.ndarray
    presence: np.ndarray
    keys: np.ndarray
    rows: int = 0
    records: int = 0
    without_key: int = 0

    @classmethod
    def empty(cls, versioned: bool, key_bytes: int = _KEY_BYTES) -> KeyTable:
        versions = _ROWS if versioned else 0
        return cls(
            hashes=np.empty(_ROWS, dtype=np.int64),
            sizes=np.empty(_ROWS, dtype=np.int32),
            ordinals=np.empty(_ROWS, dtype=np.int32),
            versions=np.empty(versions, dtype=np.int64),
            presence=np.empty(versions, dtype=np.int8),
            keys=np.empty(key_bytes, dtype=np.uint8),
        )

    @property
    def columns(self) -> key_tables.Columns:
        """The arrays as the kernels take them."""
        return self.hashes, self.sizes, self.ordinals, self.versions, self.presence, self.keys


class KeyReader:
    """Reads the keys of the records at or after `first_dirty_offset`, for several threads at once.

    `seeds` and `hash_mask` are those of the offset map that takes the tables. Tables that are given back are reused:
    fresh memory costs as much as filling it.
    """

    def __init__(self, first_dirty_offset: int, strategy: Strategy, seeds: np.ndarray, hash_mask: int) -> None:
        self._seeds = seeds
        self._header = np.frombuffer(strategy.header.encode("utf-8", "surrogateescape"), dtype=np.uint8)
        self._versioned = strategy.kind is not StrategyKind.OFFSET
        self._settings = np.zeros(key_tables.SETTINGS_SLOTS, dtype=np.int64)
        self._settings[key_tables.FIRST_DIRTY] = first_dirty_offset
        self._settings[key_tables.HASH_MASK] = hash_mask
        self._settings[key_tables.VERSION] = int(strategy.kind)
        self._spare: deque[KeyTable] = deque()

    def tables(
        self,
        chunk: Chunk,
        skipped: np.ndarray,
        account: Account | None = None,
        opened: OpenedPayloads | None = None,
    ) -> Iterator[KeyTable]:
        """Yields the tables of a chunk's batches that are not `skipped` (bool), in order.

        `account` and `opened` are as for `open_parts`. Raises InvalidRecordError for a batch whose records cannot be
        read.
        """
        for part in open_parts(chunk, ~skipped, account, opened, in_windows=True):
            passed_over = skipped[part.first : part.last]
            if part.records is None:
                yield from self._of_batches(chunk, part, passed_over)
                continue
            # skipped entries come first, all before the first mapped offset
            first = int(np.count_nonzero(passed_over))
            rows = part.records.rows
            yield from self.tables_of_rows(part.arena, rows[np.searchsorted(rows["batch"], first) :])

    def _of_batches(self, chunk: Chunk, part: OpenPart, skipped: np.ndarray) -> Iterator[KeyTable]:
        batches, marks = part.batches(chunk), skipped.view(np.uint8)

        def fill(cursor: np.ndarray, columns: key_tables.Columns) -> int:
            outcome = key_tables.gather_batches(
                part.arena,
                part.starts,
                part.ends,
                batches,
                marks,
                cursor,
                self._settings,
                self._seeds,
                self._header,
                columns,
            )
            if outcome > 0:
                raise invalid_records(chunk.path, batches[cursor[key_tables.BATCH]], outcome)
            return outcome

        return self._filled(fill)

    def tables_of_rows(self, arena: np.ndarray, rows: np.ndarray) -> Iterator[KeyTable]:
        """Yields the tables of decoded records (layout.RECORD, spans in `arena`). Ignores their headers."""

        def fill(cursor: np.ndarray, columns: key_tables.Columns) -> int:
            return key_tables.gather_rows(arena, rows, cursor, self._settings, self._seeds, columns)

        return self._filled(fill)

    def _filled(self, fill: Callable[[np.ndarray, key_tables.Columns], int]) -> Iterator[KeyTable]:
        cursor = np.zeros(key_tables.CURSOR_SLOTS, dtype=np.int64)
        cursor[key_tables.POSITION] = -1
        outcome = key_tables.TABLE_FULL
        while outcome == key_tables.TABLE_FULL:
            table = self._table(int(cursor[key_tables.NEXT_KEY_BYTES]))
            outcome = fill(cursor, table.columns)
            table.rows, table.records = int(cursor[key_tables.ROWS]), int(cursor[key_tables.RECORDS])
            table.without_key = int(cursor[key_tables.WITHOUT_KEY])
            yield table

    def _table(self, key_bytes: int) -> KeyTable:
        if key_bytes <= _KEY_BYTES:
            with suppress(IndexError):  # none to spare
                return self._spare.pop()
        return KeyTable.empty(self._versioned, max(key_bytes, _KEY_BYTES))

    def give_back(self, table: KeyTable) -> None:
        """Takes back a table whose keys are in the map."""
        if len(self._spare) < _SPARE_TABLES and len(table.keys) == _KEY_BYTES:
            self._spare.append(table)


def _store(size: int) -> np.ndarray:
    """Allocates the key store; its pages take memory only once written. Raises ConfigError if that is impossible."""
    try:
        return np.empty(size, dtype=np.uint8)
    except (MemoryError, ValueError) as error:
        raise ConfigError(
            f"this machine cannot provide {size} bytes for the keys of a cleaning round: lower"
            " log.cleaner.dedupe.buffer.size (--dedupe-buffer-size); the round takes more passes, with the same result"
        ) from error


class OffsetMap:
    """One round's map over at most `most_records` records. `KeyReader` fills the tables that it takes."""

    def __init__(self, options: CleanerOptions, most_records: int = layout.INT64_MAX) -> None:
        self._most_slots = max(options.dedupe_buffer_bytes * 3 // 8 // offset_map.SLOT_BYTES, 8)
        self._limit = min(options.entry_limit, int(self._most_slots * _HIGHEST_LOAD))
        store_limit = options.dedupe_buffer_bytes * 5 // 8 + KEY_STORE_BYTES
        self.seeds = np.frombuffer(os.urandom(8 * SEED_WORDS), dtype=np.int64)
        self.hash_mask = options.hash_mask
        self.store = _store(store_limit)
        self.survivors = np.zeros(1 << 13, dtype=np.uint8)
        self.next_ordinal = 0
        self.without_key = 0
        self._settled = _NO_BITS
        self._most_records = most_records
        self._first_pass = True
        self._first_ordinal = 0
        self._state = np.zeros(offset_map.STATE_SLOTS, dtype=np.int64)
        self._settings = np.zeros(offset_map.SETTINGS_SLOTS, dtype=np.int64)
        self._settings[offset_map.VERSION] = int(options.strategy.kind)
        self._settings[offset_map.STORE_LIMIT] = store_limit
        self._settings[offset_map.ENTRY_LIMIT] = self._limit
        self._allocate(min(_FIRST_SLOTS, self._most_slots))

    @property
    def entries(self) -> int:
        """Keys in the map."""
        return int(self._state[offset_map.ENTRIES])

    @property
    def is_full(self) -> bool:
        """True if a record of this pass was left for another pass."""
        return bool(self._state[offset_map.FULL])

    @property
    def bytes_used(self) -> int:
        """Bytes of slots and keys."""
        return len(self.slots) + int(self._state[offset_map.STORE_USED])

    @property
    def slot_count(self) -> int:
        """The current number of slots."""
        return int(self._settings[offset_map.SLOTS])

    @property
    def key_overhead(self) -> int:
        """Bytes before each key in the store."""
        return offset_map.VERSIONED_OVERHEAD if self._settings[offset_map.VERSION] else offset_map.OVERHEAD

    # --- filling

    def begin_pass(self, ordinal: int) -> None:
        """Forgets the keys and starts over at the record with this ordinal. Settled records stay settled."""
        self._first_pass = False
        self._state[:] = 0
        self.next_ordinal = self._first_ordinal = ordinal
        self.slots[:] = 0

    def release(self) -> None:
        """Frees the slots and the key store. From then on only the bits are used."""
        self.slots, self.store = np.zeros(offset_map.SLOT_BYTES, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
        self._settings[offset_map.SLOTS] = self._state[offset_map.STORE_USED] = 0

    def put(self, table: KeyTable) -> None:
        """Puts the next records, those of a table."""
        self._reserve(table.records)
        self._state[[offset_map.ROW, offset_map.KEY_POSITION]] = 0
        while True:
            outcome = offset_map.put_keys(
                table.columns,
                table.rows,
                self.next_ordinal,
                self._state,
                self._settings,
                self.slots,
                self.store,
                self.survivors,
                self._settled,
            )
            if outcome == offset_map.PUT_COMPLETE:
                break
            self._make_room(outcome, table)
        self.next_ordinal += table.records
        if self._first_pass:
            self.without_key += table.without_key

    def _make_room(self, outcome: int, table: KeyTable) -> None:
        row = int(self._state[offset_map.ROW])
        if outcome == offset_map.PUT_GROW:
            self._grow(self.next_ordinal - self._first_ordinal + int(table.ordinals[row]))
        elif outcome == offset_map.PUT_STORE:  # a single key larger than the whole store
            more = int(table.sizes[row]) + self.key_overhead + 3
            self.store = np.concatenate((self.store, np.empty(more, dtype=np.uint8)))
        else:
            self._begin_tracking(self.next_ordinal + int(table.ordinals[row]))

    def _begin_tracking(self, ordinal: int) -> None:
        """Marks all records before this ordinal as settled, because this one found no room, and tracks the rest."""
        self._settled = np.zeros(len(self.survivors), dtype=np.uint8)
        self._settled[: ordinal // 8] = 0xFF
        self._settled[ordinal // 8] = (1 << ordinal % 8) - 1
        self._settings[offset_map.TRACKING] = 1

    def _reserve(self, records: int) -> None:
        wanted = (self.next_ordinal + records) // 8 + 1
        if wanted > len(self.survivors):
            more = np.zeros(max(wanted, 2 * len(self.survivors)) - len(self.survivors), dtype=np.uint8)
            self.survivors = np.concatenate((self.survivors, more))
        if self._settings[offset_map.TRACKING] and len(self._settled) < len(self.survivors):
            more = np.zeros(len(self.survivors) - len(self._settled), dtype=np.uint8)
            self._settled = np.concatenate((self._settled, more))

    # --- slots

    def _allocate(self, count: int) -> None:
        # np.empty, not np.zeros: it may get huge pages, which random access needs
        self.slots = np.empty(count * offset_map.SLOT_BYTES, dtype=np.uint8)
        self.slots[:] = 0
        self._settings[offset_map.SLOTS] = count
        largest = count == self._most_slots
        self._settings[offset_map.GROW_AT] = self._limit if largest else int(count * _LOAD_WHILE_GROWING)

    def _grow(self, records: int) -> None:
        """Allocates more slots, after `records` of this pass have been put."""
        slots, count = self.slots, self.slot_count
        wanted = max(count * _GROWTH, int(self._expected_keys(records) * _SLOTS_A_KEY))
        self._allocate(min(wanted, self._most_slots))
        offset_map.rehash(
            slots, count, self.slots, self.slot_count, self.store, self.key_overhead, self.seeds, self.hash_mask
        )

    def _expected_keys(self, records: int) -> float:
        """Estimates the number of keys from how rarely one has come twice so far (the birthday problem).

        For unevenly distributed keys the estimate is too low, and the slots grow again.
        """
        twice = records - self.entries
        return min(records * records / (2 * max(twice, 1)), self._most_records)


# --- dead chunks


@dataclass(frozen=True, slots=True)
class DeadStretch:
    """Whole batches in the bytes [`position`, `end`) of a segment's file, with the number of their records."""

    position: int
    end: int
    batches: int
    records: int

    @property
    def size(self) -> int:
        return self.end - self.position


class IndexedChunks:
    """The chunks that the index has met, so that the copy can find the dead ones: every record has a later version.

    A topic of few keys, such as `__consumer_offsets`, consists almost entirely of dead chunks, and its round reads the
    log once instead of twice. Kafka reads it twice.

    A chunk is left out if more than its records decides about a batch: transactions and markers, messages of magic 0
    and 1, a batch that stays as a header (the last one of a producer or of the round).
    """

    def __init__(self, plan: RoundPlan) -> None:
        self._plan = plan
        self._last_offsets = np.sort(plan.last_records.offsets)
        self._columns: dict[int, array[int]] = {}

    def by_records_alone(self, chunk: Chunk) -> bool:
        """True if only its records decide what stays of a chunk, and all of them are indexed."""
        batches = chunk.batches
        first, last = int(batches["base_offset"][0]), int(batches["last_offset"][-1])
        if (batches["magic"] < 2).any() or attributes_met(batches) & DECIDED_ELSEWHERE:
            return False
        if first < self._plan.first_mapped_offset or last + 1 >= self._plan.first_uncleanable_offset:
            return False
        before, until = np.searchsorted(self._last_offsets, (first, last + 1))
        return bool(before == until)

    def note(self, base_offset: int, chunk: Chunk, batches: int, ordinal: int, records: int) -> None:
        """Notes a chunk of the segment at `base_offset`, in log order, of which only its records decide what stays.

        `ordinal` is that of its first record. Uses only the chunk's position and size.
        """
        columns = self._columns.setdefault(base_offset, array("q"))
        columns.extend((chunk.position, chunk.size, batches, ordinal, records))

    def dead(self, base_offset: int, survivors: np.ndarray) -> Iterator[DeadStretch]:
        """Yields the stretches of the segment at `base_offset` without a bit in `survivors` (uint8), in order, merged
        where they adjoin.
        """
        found: DeadStretch | None = None
        columns = self._columns.get(base_offset, array("q"))
        for i in range(0, len(columns), 5):
            position, size, batches, ordinal, records = columns[i : i + 5]
            if records and any_bit(survivors, ordinal, records):
                continue
            if found is not None and found.end == position:
                found = DeadStretch(found.position, position + size, found.batches + batches, found.records + records)
                continue
            if found is not None:
                yield found
            found = DeadStretch(position, position + size, batches, records)
        if found is not None:
            yield found
