"""Selects batches and records by offset, time, producer, key, and bytes that they contain.

A `Selection` is judged by names (`reaches`), by indexes (`verification.stretches`, which asks `log.places`), by headers
of batches (`ended`, and `of` without records), and by records (`of`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from seglog.format.columns import Records
from seglog.kernels.row_keys import match_keys
from seglog.model import NO_PRODUCER_ID, NO_TIMESTAMP, Isolation


class SelectedRecords(NamedTuple):
    """The selected records (`rows`) and, a bool per batch, the selected batches (`batches_shown`)."""

    rows: np.ndarray
    batches_shown: np.ndarray


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions, all of which must hold; None means no condition.

    Offsets and times (epoch milliseconds) are inclusive at the start and exclusive at the end. `isolation` is not
    applied here, because it depends on the log's transactions: the caller applies it (`verification.unsettled`).
    `contained` must be in the key, the value, or the key or value of a header.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    first_timestamp: int | None = None
    end_timestamp: int | None = None
    producer_id: int | None = None
    key: bytes | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    contained: bytes | None = None

    @property
    def is_committed(self) -> bool:
        """True if records of aborted and open transactions are excluded."""
        return self.isolation == Isolation.READ_COMMITTED

    @property
    def by_record(self) -> bool:
        """True if only the records themselves can decide."""
        return self.key is not None or self.contained is not None

    @property
    def everything(self) -> bool:
        """True if there is no condition besides `isolation`."""
        return replace(self, isolation=Isolation.READ_UNCOMMITTED) == EVERYTHING

    @property
    def begins(self) -> bool:
        """True if offsets or times have a first one."""
        return self.first_offset is not None or self.first_timestamp is not None

    @property
    def ends(self) -> bool:
        """True if offsets or times have an end."""
        return self.end_offset is not None or self.end_timestamp is not None

    def ended(self, batches: np.ndarray) -> np.ndarray:
        """Returns which batches (bool) lie at or beyond the end. A batch's smallest timestamp is in no header."""
        beyond = np.zeros(len(batches), dtype=bool)
        if self.end_offset is not None:
            beyond |= batches["base_offset"] >= self.end_offset
        if self.end_timestamp is not None:
            beyond |= np.minimum(batches["base_timestamp"], batches["max_timestamp"]) >= self.end_timestamp
        return beyond

    def reaches(self, first_offset: int, last_offset: int | None) -> bool:
        """True if a range of offsets (a last one of None: no end) overlaps the selected range."""
        begins = self.end_offset is None or first_offset < self.end_offset
        return begins and (self.first_offset is None or last_offset is None or last_offset >= self.first_offset)

    @property
    def takes_bare_messages(self) -> bool:
        """True if messages without timestamp, producer and key (Kafka 0.7) are selected."""
        in_time = (self.first_timestamp is None or self.first_timestamp <= NO_TIMESTAMP) and (
            self.end_timestamp is None or self.end_timestamp > NO_TIMESTAMP
        )
        return in_time and self.producer_id in (None, NO_PRODUCER_ID) and not self.by_record

    def starting_at(self, offset: int) -> Selection:
        """Returns this selection, restricted to `offset` and later."""
        return self if offset <= (self.first_offset or 0) else replace(self, first_offset=offset)

    def of(self, records: Records, with_records: bool) -> SelectedRecords:
        """Selects from `records`. A batch is judged by its header, or by its records if `with_records` is set."""
        if self.everything:
            return SelectedRecords(records.rows, np.ones(len(records.batches), dtype=bool))
        of_batches = self._batches(records.batches)
        rows = records.rows
        if not with_records or len(rows) == 0:
            return SelectedRecords(rows, of_batches)
        rows = rows[self._rows(records) & of_batches[rows["batch"]]]
        decided = np.zeros(len(of_batches), dtype=bool)
        decided[rows["batch"]] = True
        # A batch without readable records is judged by its header.
        without = np.ones(len(of_batches), dtype=bool)
        without[records.rows["batch"]] = False
        return SelectedRecords(rows, decided | (of_batches & without & (not self.by_record)))

    def _batches(self, batches: np.ndarray) -> np.ndarray:
        chosen = np.ones(len(batches), dtype=bool)
        if self.first_offset is not None:
            chosen &= batches["last_offset"] >= self.first_offset
        if self.end_offset is not None:
            # A legacy wrapper's header does not tell its first offset.
            chosen &= (batches["base_offset"] < self.end_offset) | (batches["magic"] < 2)
        if self.first_timestamp is not None:
            chosen &= batches["max_timestamp"] >= self.first_timestamp
        if self.producer_id is not None:
            chosen &= batches["producer_id"] == self.producer_id
        return chosen

    def _rows(self, records: Records) -> np.ndarray:
        rows = records.rows
        chosen = np.ones(len(rows), dtype=bool)
        if self.key is not None:
            match_keys(records.arena, rows, np.frombuffer(self.key, dtype=np.uint8), chosen)
        if self.first_offset is not None:
            chosen &= rows["offset"] >= self.first_offset
        if self.end_offset is not None:
            chosen &= rows["offset"] < self.end_offset
        if self.first_timestamp is not None:
            chosen &= rows["timestamp"] >= self.first_timestamp
        if self.end_timestamp is not None:
            chosen &= rows["timestamp"] < self.end_timestamp
        if self.contained is not None:
            chosen &= _containing(records, self.contained)
        return chosen


def _containing(records: Records, text: bytes) -> np.ndarray:
    """Returns a mask of the records whose key, value, header keys or header values contain these bytes.

    The whole arena is searched at once, and a hit is looked up: most records have none.
    """
    rows, data = records.rows, records.arena.tobytes()
    chosen = np.full(len(rows), not text)
    order = np.argsort(rows["position"], kind="stable")
    starts = rows["position"][order]
    at = data.find(text) if text else -1
    while at >= 0:
        i = int(np.searchsorted(starts, at, side="right")) - 1
        after = at + 1
        if i >= 0:
            row = int(order[i])
            if _is_within(records, row, at, text):
                chosen[row] = True
                after = max(after, int(rows["position"][row]) + int(rows["size"][row]))
        at = data.find(text, after)
    return chosen


def _is_within(records: Records, i: int, at: int, text: bytes) -> bool:
    """True if the bytes found at this position lie in the key or value of record `i`, or if a header has them."""
    row = records.rows[i]
    for part in ("key", "value"):
        begin = int(row[f"{part}_position"])
        if begin <= at and at + len(text) <= begin + int(row[f"{part}_size"]):
            return True
    names = (header.key.encode("utf-8", "surrogateescape") for header in records.headers(i))
    return any(text in name for name in names) or any(text in (header.value or b"") for header in records.headers(i))


EVERYTHING = Selection()
