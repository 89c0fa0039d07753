"""Selects partitions, batches and records by name, offset, time, producer, key, and bytes that they contain.

A `Selection` is judged by names (`chooses`, `reaches`), by indexes (which `log.places` asks: `verification.stretches`,
`table.plan.splits`), by headers of batches (`may_be_in`, `ended`), and by records (`rows_of`). A table's filter, which
is an Arrow expression, is judged by what names and indexes tell of the records of a place: a `Selection`, too
(`table.engines.pruning`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import and_
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from seglog import layout
from seglog.model import NO_PRODUCER_ID, NO_TIMESTAMP, Isolation, TopicPartition

if TYPE_CHECKING:
    from seglog.format.columns import Records
    from seglog.scan.key_set import KeySet
    from seglog.scan.offset_set import OffsetSet

_T = TypeVar("_T")


class SelectedRecords(NamedTuple):
    """The selected records (`rows`) and, a bool per batch, the selected batches (`batches_shown`)."""

    rows: np.ndarray
    batches_shown: np.ndarray


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions, all of which must hold; None means no condition.

    Offsets and times (epoch milliseconds) are inclusive at the start and exclusive at the end. `isolation` is not
    applied here, because it depends on the log's transactions: the caller applies it (`verification.unsettled`).
    `contained` must be in the key, the value, or the key or value of a header. Keys and offsets are never printed: an
    erasure is about them.
    """

    first_offset: int | None = None
    end_offset: int | None = None
    first_timestamp: int | None = None
    end_timestamp: int | None = None
    producer_id: int | None = None
    keys: KeySet | None = field(default=None, repr=False)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    contained: bytes | None = None
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | range | None = None
    offsets: OffsetSet | None = field(default=None, repr=False)

    @property
    def is_committed(self) -> bool:
        """True if records of aborted and open transactions are excluded."""
        return self.isolation == Isolation.READ_COMMITTED

    @property
    def by_record(self) -> bool:
        """True if only the records themselves can decide."""
        return self.keys is not None or self.contained is not None

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

    def within(self, other: Selection) -> Selection:
        """Returns this selection, restricted to the topics, partitions, offsets and times of another."""
        return replace(
            self,
            first_offset=_both(max, self.first_offset, other.first_offset),
            end_offset=_both(min, self.end_offset, other.end_offset),
            first_timestamp=_both(max, self.first_timestamp, other.first_timestamp),
            end_timestamp=_both(min, self.end_timestamp, other.end_timestamp),
            topics=_both(and_, self.topics, other.topics),
            partitions=_common(self.partitions, other.partitions),
        )

    # --- judged by names

    def chooses(self, key: TopicPartition) -> bool:
        """True if records of this partition can be selected."""
        chosen = self.partitions is None or key.partition in self.partitions
        return chosen and (self.topics is None or key.topic in self.topics)

    def reaches(self, first_offset: int, last_offset: int | None) -> bool:
        """True if a range of offsets (a last one of None: no end) holds selected ones."""
        begins = self.end_offset is None or first_offset < self.end_offset
        overlaps = begins and (self.first_offset is None or last_offset is None or last_offset >= self.first_offset)
        return overlaps and (self.offsets is None or self.offsets.reaches(first_offset, last_offset))

    # --- judged by headers of batches

    def ended(self, batches: np.ndarray) -> np.ndarray:
        """Returns which batches (bool) lie at or beyond the end. A batch's smallest timestamp is in no header."""
        beyond = np.zeros(len(batches), dtype=bool)
        if self.end_offset is not None:
            beyond |= batches["base_offset"] >= self.end_offset
        if self.end_timestamp is not None:
            beyond |= np.minimum(batches["base_timestamp"], batches["max_timestamp"]) >= self.end_timestamp
        return beyond

    def may_be_in(self, batches: np.ndarray, *, believed: bool = False) -> np.ndarray:
        """Returns which batches (bool) may hold selected records, by their headers.

        A wrapper of magic 0 or 1 does not tell its first offset, and has whatever timestamp its producer gave it,
        unless the broker set it (log append time), or its header is `believed`.
        """
        chosen = np.ones(len(batches), dtype=bool)
        if self.first_offset is not None:
            chosen &= batches["last_offset"] >= self.first_offset
        if self.end_offset is not None:
            chosen &= (batches["base_offset"] < self.end_offset) | (batches["magic"] < 2)
        if self.first_timestamp is not None:
            flags = batches["attributes"] & (layout.CODEC_MASK | layout.TIMESTAMP_TYPE_MASK)
            untold = (batches["magic"] < 2) & (flags != 0) & (flags < layout.TIMESTAMP_TYPE_MASK) & (not believed)
            chosen &= untold | (batches["max_timestamp"] >= self.first_timestamp)
        if self.producer_id is not None:
            chosen &= batches["producer_id"] == self.producer_id
        return chosen if self.offsets is None else chosen & self.offsets.may_be_in(batches)

    # --- judged by records

    def of(self, records: Records, with_records: bool) -> SelectedRecords:
        """Selects from `records`. A batch is judged by its records if `with_records` is set; else, and if none of them
        can be read, by its header, which is believed.
        """
        if self.everything:
            return SelectedRecords(records.rows, np.ones(len(records.batches), dtype=bool))
        of_batches, rows = self.may_be_in(records.batches, believed=True), records.rows
        if not with_records or len(rows) == 0:
            return SelectedRecords(rows, of_batches)
        rows = self.rows_of(records)
        decided = np.zeros(len(of_batches), dtype=bool)
        decided[rows["batch"]] = True
        # A batch without readable records is judged by its header.
        without = np.ones(len(of_batches), dtype=bool)
        without[records.rows["batch"]] = False
        return SelectedRecords(rows, decided | (of_batches & without & (not self.by_record)))

    def rows_of(self, records: Records) -> np.ndarray:
        """Returns the selected records (rows of layout.RECORD)."""
        mask = self.mask(records)
        rows: np.ndarray = records.rows if mask.all() else records.rows[mask]
        return rows

    def mask(self, records: Records) -> np.ndarray:
        """Returns which records are selected (bool, one a record)."""
        rows = records.rows
        chosen = np.ones(len(rows), dtype=bool) if self.keys is None else self.keys.mask(records)
        if self.first_offset is not None:
            chosen &= rows["offset"] >= self.first_offset
        if self.end_offset is not None:
            chosen &= rows["offset"] < self.end_offset
        if self.first_timestamp is not None:
            chosen &= rows["timestamp"] >= self.first_timestamp
        if self.end_timestamp is not None:
            chosen &= rows["timestamp"] < self.end_timestamp
        if self.offsets is not None:
            chosen &= self.offsets.mask(rows["offset"])
        if self.producer_id is not None:
            chosen &= (records.batches["producer_id"] == self.producer_id)[rows["batch"]]
        if self.contained is not None:
            chosen &= _containing(records, self.contained)
        return chosen


def _both(combined: Callable[[_T, _T], _T], one: _T | None, other: _T | None) -> _T | None:
    return other if one is None else one if other is None else combined(one, other)


def _common(one: frozenset[int] | range | None, other: frozenset[int] | range | None) -> frozenset[int] | range | None:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, range) and isinstance(other, range):
        return range(max(one.start, other.start), min(one.stop, other.stop))
    numbers = other if isinstance(one, range) else one
    return frozenset(number for number in numbers if number in one and number in other)


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
