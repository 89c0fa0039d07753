"""Filling tables of keys for the offset map, from the parts of a chunk (`kernels.key_tables`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from seglog.cleaner.chunks import OpenPart, invalid_records, open_parts
from seglog.cleaner.opened_payloads import OpenedPayloads
from seglog.cleaner.options import Strategy, StrategyKind
from seglog.kernels import key_tables as kernels
from seglog.memory_budget import Account
from seglog.scan.segment_scan import Chunk

# Enough rows that a call costs nothing beside them (twice as many as 8192 take 0.97 of the CPU), and few enough that a
# table stays in a core's cache.
_ROWS = 16384
_KEY_BYTES = _ROWS * 24
_SPARE_TABLES = 12


@dataclass(slots=True)
class KeyTable:
    """Keys with hashes and ordinals, as `kernels.key_tables` lays them out; `records` ordinals are used up.

    `without_key` counts records without key in batches that are dirty as a whole.
    """

    columns: kernels.Columns
    rows: int = 0
    records: int = 0
    without_key: int = 0

    @classmethod
    def empty(cls, versioned: bool, key_bytes: int = _KEY_BYTES) -> KeyTable:
        versions = _ROWS if versioned else 0
        return cls(
            (
                np.empty(_ROWS, dtype=np.int64),
                np.empty(_ROWS, dtype=np.int32),
                np.empty(_ROWS, dtype=np.int32),
                np.empty(versions, dtype=np.int64),
                np.empty(versions, dtype=np.int8),
                np.empty(key_bytes, dtype=np.uint8),
            )
        )

    @property
    def sizes(self) -> np.ndarray:
        return self.columns[1]

    @property
    def keys(self) -> np.ndarray:
        return self.columns[5]

    @property
    def ordinals(self) -> np.ndarray:
        return self.columns[2]


class KeyReader:
    """Reads the keys of the records at or after `first_dirty_offset`, for several threads at once.

    `seeds` and `hash_mask` are those of the offset map that will take the tables. Tables that are given back are
    filled again: fresh memory costs as much as filling it.
    """

    def __init__(self, first_dirty_offset: int, strategy: Strategy, seeds: np.ndarray, hash_mask: int) -> None:
        self._seeds = seeds
        self._header = np.frombuffer(strategy.header.encode("utf-8", "surrogateescape"), dtype=np.uint8)
        self._versioned = strategy.kind is not StrategyKind.OFFSET
        self._settings = np.zeros(kernels.SETTINGS_SLOTS, dtype=np.int64)
        self._settings[kernels.FIRST_DIRTY] = first_dirty_offset
        self._settings[kernels.HASH_MASK] = hash_mask
        self._settings[kernels.VERSION] = int(strategy.kind)
        self._spare: deque[KeyTable] = deque()

    def tables(
        self,
        chunk: Chunk,
        skipped: np.ndarray,
        account: Account | None = None,
        opened: OpenedPayloads | None = None,
    ) -> Iterator[KeyTable]:
        """The tables of a chunk's batches that are not `skipped` (bool), in order; a large part counts in `account`.

        `opened` as in `open_parts`. InvalidRecordError for a batch whose records cannot be read.
        """
        for part in open_parts(chunk, ~skipped, account, opened, in_windows=True):
            passed_over = skipped[part.first : part.last]
            if part.records is None:
                yield from self._of_batches(chunk, part, passed_over)
                continue
            # skipped entries, all in front of the first mapped offset, come first
            first = int(np.count_nonzero(passed_over))
            rows = part.records.rows
            yield from self.tables_of_rows(part.arena, rows[np.searchsorted(rows["batch"], first) :])

    def _of_batches(self, chunk: Chunk, part: OpenPart, skipped: np.ndarray) -> Iterator[KeyTable]:
        batches, marks = part.batches(chunk), skipped.view(np.uint8)

        def fill(cursor: np.ndarray, columns: kernels.Columns) -> int:
            outcome = kernels.gather_batches(
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
                raise invalid_records(chunk.path, batches[cursor[kernels.BATCH]], outcome)
            return outcome

        return self._filled(fill)

    def tables_of_rows(self, arena: np.ndarray, rows: np.ndarray) -> Iterator[KeyTable]:
        """The tables of decoded records (layout.RECORD, spans in `arena`); their headers are not looked at."""

        def fill(cursor: np.ndarray, columns: kernels.Columns) -> int:
            return kernels.gather_rows(arena, rows, cursor, self._settings, self._seeds, columns)

        return self._filled(fill)

    def _filled(self, fill: Callable[[np.ndarray, kernels.Columns], int]) -> Iterator[KeyTable]:
        cursor = np.zeros(kernels.CURSOR_SLOTS, dtype=np.int64)
        cursor[kernels.POSITION] = -1
        outcome = kernels.TABLE_FULL
        while outcome == kernels.TABLE_FULL:
            table = self._table(int(cursor[kernels.NEXT_KEY_BYTES]))
            outcome = fill(cursor, table.columns)
            table.rows, table.records = int(cursor[kernels.ROWS]), int(cursor[kernels.RECORDS])
            table.without_key = int(cursor[kernels.WITHOUT_KEY])
            yield table

    def _table(self, key_bytes: int) -> KeyTable:
        if key_bytes <= _KEY_BYTES:
            with suppress(IndexError):  # none to spare
                return self._spare.pop()
        return KeyTable.empty(self._versioned, max(key_bytes, _KEY_BYTES))

    def give_back(self, table: KeyTable) -> None:
        """Takes a table whose keys are in the map."""
        if len(self._spare) < _SPARE_TABLES and len(table.keys) == _KEY_BYTES:
            self._spare.append(table)
