"""The offset map's memory: slots, key store and bits, and what to do when one of them is full.

Mirrors SkimpyOffsetMap, with two differences that `kernels.offset_map` explains: keys are compared by their bytes, and
a full map ends an index pass, not the round. Three eighths of the dedupe buffer are slots, five eighths
hold keys; KEY_STORE_BYTES on top of it hold the rest of the keys. Slots grow from few, so that a log of few keys
neither touches the whole buffer nor leaves the processor's cache.
"""

from __future__ import annotations

import os

import numpy as np

from seglog import layout
from seglog.cleaner.key_tables import KeyTable
from seglog.cleaner.options import CleanerOptions
from seglog.errors import ConfigError
from seglog.kernels import offset_map as kernels
from seglog.kernels.hashing import SEED_WORDS

KEY_STORE_BYTES = 64 << 20
_FIRST_SLOTS = 1 << 14
_GROWTH = 4
_SLOTS_A_KEY = 4  # expected: few keys are then met on the way to another
_LOAD_WHILE_GROWING = 0.6
_HIGHEST_LOAD = 0.95
_NO_BITS = np.zeros(1, dtype=np.uint8)


def _store(size: int) -> np.ndarray:
    """Room for the bytes of keys; its pages take memory when they are written. ConfigError where it cannot be had."""
    try:
        return np.empty(size, dtype=np.uint8)
    except (MemoryError, ValueError) as error:
        raise ConfigError(
            f"this machine does not give {size} bytes for the keys of a cleaning round: lower"
            " log.cleaner.dedupe.buffer.size (--dedupe-buffer-size); the round takes more passes, with the same result"
        ) from error


class OffsetMap:
    """One round's map over at most `most_records` records; `key_tables.KeyReader` fills the tables that it takes."""

    def __init__(self, options: CleanerOptions, most_records: int = layout.INT64_MAX) -> None:
        self._most_slots = max(options.dedupe_buffer_bytes * 3 // 8 // kernels.SLOT_BYTES, 8)
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
        self._state = np.zeros(kernels.STATE_SLOTS, dtype=np.int64)
        self._settings = np.zeros(kernels.SETTINGS_SLOTS, dtype=np.int64)
        self._settings[kernels.VERSION] = int(options.strategy.kind)
        self._settings[kernels.STORE_LIMIT] = store_limit
        self._settings[kernels.ENTRY_LIMIT] = self._limit
        self._allocate(min(_FIRST_SLOTS, self._most_slots))

    # --- what a round reads --------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """Keys in the map."""
        return int(self._state[kernels.ENTRIES])

    @property
    def is_full(self) -> bool:
        """Whether a record of this pass was left for another one."""
        return bool(self._state[kernels.FULL])

    @property
    def bytes_used(self) -> int:
        """Bytes of slots and keys."""
        return len(self.slots) + int(self._state[kernels.STORE_USED])

    @property
    def slot_count(self) -> int:
        """Slots that the map has now."""
        return int(self._settings[kernels.SLOTS])

    @property
    def key_overhead(self) -> int:
        """Bytes in front of each key in the store."""
        return kernels.VERSIONED_OVERHEAD if self._settings[kernels.VERSION] else kernels.OVERHEAD

    # --- filling -------------------------------------------------------------------------------------------

    def begin_pass(self, ordinal: int) -> None:
        """Forgets the keys and starts over at the record with this ordinal; what is settled stays so."""
        self._first_pass = False
        self._state[:] = 0
        self.next_ordinal = self._first_ordinal = ordinal
        self.slots[:] = 0

    def release(self) -> None:
        """Gives the memory of slots and keys back: from here on only the bits are asked."""
        self.slots, self.store = np.zeros(kernels.SLOT_BYTES, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
        self._settings[kernels.SLOTS] = self._state[kernels.STORE_USED] = 0

    def put(self, table: KeyTable) -> None:
        """Puts the records of a table, which are the next ones."""
        self._reserve(table.records)
        self._state[[kernels.ROW, kernels.KEY_POSITION]] = 0
        while True:
            outcome = kernels.put_keys(
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
            if outcome == kernels.PUT_COMPLETE:
                break
            self._make_room(outcome, table)
        self.next_ordinal += table.records
        if self._first_pass:
            self.without_key += table.without_key

    def _make_room(self, outcome: int, table: KeyTable) -> None:
        row = int(self._state[kernels.ROW])
        if outcome == kernels.PUT_GROW:
            self._grow(self.next_ordinal - self._first_ordinal + int(table.ordinals[row]))
        elif outcome == kernels.PUT_STORE:  # a single key larger than the whole store
            more = int(table.sizes[row]) + self.key_overhead + 3
            self.store = np.concatenate((self.store, np.empty(more, dtype=np.uint8)))
        else:
            self._begin_tracking(self.next_ordinal + int(table.ordinals[row]))

    def _begin_tracking(self, ordinal: int) -> None:
        """From here on `settled` tells which need no other pass: records in front of this one, which found no room."""
        self._settled = np.zeros(len(self.survivors), dtype=np.uint8)
        self._settled[: ordinal // 8] = 0xFF
        self._settled[ordinal // 8] = (1 << ordinal % 8) - 1
        self._settings[kernels.TRACKING] = 1

    def _reserve(self, records: int) -> None:
        wanted = (self.next_ordinal + records) // 8 + 1
        if wanted > len(self.survivors):
            more = np.zeros(max(wanted, 2 * len(self.survivors)) - len(self.survivors), dtype=np.uint8)
            self.survivors = np.concatenate((self.survivors, more))
        if self._settings[kernels.TRACKING] and len(self._settled) < len(self.survivors):
            more = np.zeros(len(self.survivors) - len(self._settled), dtype=np.uint8)
            self._settled = np.concatenate((self._settled, more))

    # --- slots ---------------------------------------------------------------------------------------------

    def _allocate(self, count: int) -> None:
        # not np.zeros: memory of np.empty may lie in huge pages, which random access needs
        self.slots = np.empty(count * kernels.SLOT_BYTES, dtype=np.uint8)
        self.slots[:] = 0
        self._settings[kernels.SLOTS] = count
        largest = count == self._most_slots
        self._settings[kernels.GROW_AT] = self._limit if largest else int(count * _LOAD_WHILE_GROWING)

    def _grow(self, records: int) -> None:
        """Makes room for more keys; `records` of this pass have been put."""
        slots, count = self.slots, self.slot_count
        wanted = max(count * _GROWTH, int(self._expected_keys(records) * _SLOTS_A_KEY))
        self._allocate(min(wanted, self._most_slots))
        kernels.rehash(
            slots, count, self.slots, self.slot_count, self.store, self.key_overhead, self.seeds, self.hash_mask
        )

    def _expected_keys(self, records: int) -> float:
        """How many keys there will be, by how rarely one has come twice so far (the birthday problem).

        Under keys of unequal weight it is too few, and the slots grow again.
        """
        twice = records - self.entries
        return min(records * records / (2 * max(twice, 1)), self._most_records)
