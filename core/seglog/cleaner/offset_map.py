"""The offset map's memory: slots, key store and bits, and what to do when one of them is full.

Mirrors SkimpyOffsetMap, with two differences that `kernels.offset_map` explains: keys are compared by their bytes, and
a full map ends an index pass, not the round. Three eighths of the dedupe buffer are slots, five eighths
hold keys; KEY_STORE_BYTES on top of it hold the rest of the keys. Slots grow from few, so that a small log neither
touches the whole buffer nor leaves the processor's cache.
"""

from __future__ import annotations

import os

import numpy as np

from seglog.cleaner.options import CleanerOptions
from seglog.kernels import offset_map as kernels
from seglog.kernels.decode import rows_needed
from seglog.kernels.hashing import SEED_WORDS
from seglog.kernels.key_blocks import BLOCK_BYTES, BLOCK_ROW_BYTES, SLOT_BYTES

KEY_STORE_BYTES = 64 << 20
_FIRST_SLOTS = 1 << 14
_GROWTH = 4
_LOAD_WHILE_GROWING = 0.6
_HIGHEST_LOAD = 0.95
_NO_BITS = np.zeros(1, dtype=np.uint8)


class OffsetMap:
    """One round's map. Offsets below `first_dirty_offset` never enter it."""

    def __init__(self, options: CleanerOptions, first_dirty_offset: int) -> None:
        self._most_slots = max(options.dedupe_buffer_bytes * 3 // 8 // SLOT_BYTES, 8)
        self._limit = min(options.entry_limit, int(self._most_slots * _HIGHEST_LOAD))
        self._store_limit = options.dedupe_buffer_bytes * 5 // 8 + KEY_STORE_BYTES
        self.seeds = np.frombuffer(os.urandom(8 * SEED_WORDS), dtype=np.int64)
        self.header = np.frombuffer(options.strategy.header.encode(), dtype=np.uint8)
        self.store = np.empty(self._store_limit, dtype=np.uint8)  # pages that are not written take no memory
        self.survivors = np.zeros(1 << 13, dtype=np.uint8)
        self._settled = _NO_BITS
        self._block = np.zeros(BLOCK_BYTES, dtype=np.uint8)
        self._state = np.zeros(kernels.STATE_SLOTS, dtype=np.int64)
        self._settings = np.zeros(kernels.SETTINGS_SLOTS, dtype=np.int64)
        self._settings[kernels.FIRST_DIRTY] = first_dirty_offset
        self._settings[kernels.HASH_MASK] = options.hash_mask
        self._settings[kernels.VERSION] = int(options.strategy.kind)
        self._settings[kernels.STORE_BYTES] = self._settings[kernels.STORE_LIMIT] = self._store_limit
        self._settings[kernels.ENTRY_LIMIT] = self._limit
        self._settings[kernels.COUNTING] = 1
        self._without_key = 0
        self._allocate(min(_FIRST_SLOTS, self._most_slots))

    # --- what a round reads --------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """Keys in the map."""
        return int(self._state[kernels.ENTRIES])

    @property
    def next_ordinal(self) -> int:
        """The number that the next record will get."""
        return int(self._state[kernels.NEXT_ORDINAL])

    @property
    def is_full(self) -> bool:
        """Whether a record of this pass was left for another one."""
        return bool(self._state[kernels.FULL])

    @property
    def slot_count(self) -> int:
        """Slots that the map has now."""
        return int(self._settings[kernels.SLOTS])

    @property
    def key_overhead(self) -> int:
        """Bytes in front of each key in the store."""
        return 24 if self._settings[kernels.VERSION] else 12

    @property
    def hash_mask(self) -> int:
        return int(self._settings[kernels.HASH_MASK])

    # --- filling -------------------------------------------------------------------------------------------

    @property
    def without_key(self) -> int:
        """Records without a key that the first pass met in batches that are dirty as a whole."""
        return self._without_key + int(self._state[kernels.WITHOUT_KEY])

    def begin_pass(self, ordinal: int) -> None:
        """Forgets the keys and starts over at the record with this ordinal; what is settled stays so."""
        self._without_key = self.without_key
        self._settings[kernels.COUNTING] = 0
        self._state[:] = 0
        self._state[kernels.NEXT_ORDINAL] = ordinal
        self.slots[:] = 0

    def add_batches(
        self, arena: np.ndarray, starts: np.ndarray, ends: np.ndarray, batches: np.ndarray, skipped: np.ndarray
    ) -> int:
        """Puts the records of v2 batches; returns 0, or the status of the bad record in batch `bad_batch`."""
        self._reserve(int(rows_needed(batches, starts, ends)))
        self._rewind()
        while True:
            outcome = kernels.index_batches(
                arena,
                starts,
                ends,
                batches,
                skipped,
                self._state,
                self._settings,
                self.seeds,
                self.header,
                self.slots,
                self.store,
                self.survivors,
                self._settled,
                self._block,
            )
            if outcome >= 0:
                return int(outcome)
            self._make_room(outcome)

    @property
    def bad_batch(self) -> int:
        """The batch that made `add_batches` return a status."""
        return int(self._state[kernels.CURSOR])

    def add_rows(self, arena: np.ndarray, rows: np.ndarray) -> None:
        """Puts decoded messages of magic 0 and 1 (layout.RECORD, spans in `arena`)."""
        self._reserve(len(rows))
        self._rewind()
        while True:
            outcome = kernels.index_rows(
                arena,
                rows,
                self._state,
                self._settings,
                self.seeds,
                self.slots,
                self.store,
                self.survivors,
                self._settled,
                self._block,
            )
            if outcome == kernels.INDEX_COMPLETE:
                return
            self._make_room(outcome)

    def _rewind(self) -> None:
        self._state[[kernels.CURSOR, kernels.RECORDS_DONE, kernels.BLOCK_ROWS, kernels.BLOCK_DONE]] = 0
        self._state[kernels.POSITION] = -1

    def _make_room(self, outcome: int) -> None:
        if outcome == kernels.INDEX_GROW:
            self._grow()
        elif outcome == kernels.INDEX_STORE:  # a single key larger than the whole store
            self.store = np.concatenate((self.store, np.empty(self._oversized_key(), dtype=np.uint8)))
            self._settings[kernels.STORE_BYTES] = len(self.store)
        else:
            self._begin_tracking()

    def _oversized_key(self) -> int:
        at = int(self._state[kernels.BLOCK_DONE]) * BLOCK_ROW_BYTES + 16
        return int.from_bytes(self._block[at : at + 8].tobytes(), "big") + 32

    def _begin_tracking(self) -> None:
        """From here on `settled` tells which records need no other pass: all in front of the one that did not fit."""
        at = int(self._state[kernels.BLOCK_DONE]) * BLOCK_ROW_BYTES + 24
        ordinal = int.from_bytes(self._block[at : at + 8].tobytes(), "big")
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
        self.slots = np.empty(count * SLOT_BYTES, dtype=np.uint8)
        self.slots[:] = 0
        self._settings[kernels.SLOTS] = count
        largest = count == self._most_slots
        self._settings[kernels.GROW_AT] = self._limit if largest else int(count * _LOAD_WHILE_GROWING)

    def _grow(self) -> None:
        slots, count = self.slots, self.slot_count
        self._allocate(min(count * _GROWTH, self._most_slots))
        kernels.rehash(
            slots, count, self.slots, self.slot_count, self.store, self.key_overhead, self.seeds, self.hash_mask
        )
