"""Stretches of the dirty section of which no record survives: the copy passes over them unread.

The index has read and checked them, and its bits say that each of their records has a later one. A topic of few keys,
as `__consumer_offsets` is, consists of such stretches nearly everywhere, and its round reads the log once in place of
twice. Kafka reads it twice.

What decides on a batch besides its records keeps a chunk out: transactions and markers, messages of magic 0 and 1, a
batch that stays as a header (the last one of a producer, or of the round).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.cleaner.chunks import attributes_met
from seglog.cleaner.round import RoundPlan
from seglog.scan.segment_scan import Chunk

_DECIDED_ELSEWHERE = layout.CONTROL_MASK | layout.TRANSACTIONAL_MASK


@dataclass(frozen=True, slots=True)
class DeadStretch:
    """Whole batches [`position`, `end`) of a segment, in bytes of its file, with the records that they have."""

    position: int
    end: int
    batches: int
    records: int

    @property
    def size(self) -> int:
        return self.end - self.position


class IndexedChunks:
    """The chunks that the index has met, for the copy to ask which of them are dead."""

    def __init__(self, plan: RoundPlan) -> None:
        self._plan = plan
        self._last_offsets = np.sort(plan.last_records.offsets)
        self._columns: dict[int, array[int]] = {}

    def by_records_alone(self, chunk: Chunk) -> bool:
        """Whether nothing but its records says what stays of a chunk, all of which were indexed."""
        batches = chunk.batches
        first, last = int(batches["base_offset"][0]), int(batches["last_offset"][-1])
        if (batches["magic"] < 2).any() or attributes_met(batches) & _DECIDED_ELSEWHERE:
            return False
        if first < self._plan.first_mapped_offset or last + 1 >= self._plan.first_uncleanable_offset:
            return False
        before, until = np.searchsorted(self._last_offsets, (first, last + 1))
        return bool(before == until)

    def note(self, base_offset: int, chunk: Chunk, batches: int, ordinal: int, records: int) -> None:
        """Takes a chunk of the segment at `base_offset`, in log order, that is decided on by its records alone.

        `ordinal` is that of its first record. Of the chunk only place and size are looked at.
        """
        columns = self._columns.setdefault(base_offset, array("q"))
        columns.extend((chunk.position, chunk.size, batches, ordinal, records))

    def dead(self, base_offset: int, survivors: np.ndarray) -> Iterator[DeadStretch]:
        """The stretches of the segment at `base_offset` without a bit in `survivors` (uint8), in order and apart."""
        found: DeadStretch | None = None
        columns = self._columns.get(base_offset, array("q"))
        for i in range(0, len(columns), 5):
            position, size, batches, ordinal, records = columns[i : i + 5]
            if _any_survives(survivors, ordinal, records):
                continue
            if found is not None and found.end == position:
                found = DeadStretch(found.position, position + size, found.batches + batches, found.records + records)
                continue
            if found is not None:
                yield found
            found = DeadStretch(position, position + size, batches, records)
        if found is not None:
            yield found


def _any_survives(survivors: np.ndarray, ordinal: int, records: int) -> bool:
    bits = np.unpackbits(survivors[ordinal // 8 : (ordinal + records + 7) // 8], bitorder="little")
    return bool(bits[ordinal % 8 :][:records].any())
