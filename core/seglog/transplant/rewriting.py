"""Rewrites the batch header fields that mean something only in the cluster that wrote them. Records and offsets stay.

- The leader epoch (outside the checksum) becomes 0. The new cluster counts from its own beginning, and a follower skips
  batches whose epoch is above its leader's.
- A batch outside transactions loses its producer (id, epoch and sequence -1): only duplicate detection needs it. No
  broker makes a producer's state from such a batch, however it comes by it.
- The producer of a transaction's batch or marker moves to the ids from 2^62 on. It must remain, as markers and the
  index of aborted transactions name it. A controller hands out ids from 0 on, in blocks of 1000, and never gets there.

So the new cluster never hands out an id that is in the data, and takes none of its writes for a duplicate (Kafka:
ProducerStateManager, ProducerIdControlManager). Rewriting a second time changes nothing. Messages of magic 0 and 1
have none of these fields.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seglog import layout
from seglog.format.decoder import checksums

LEADER_EPOCH = 0
FOREIGN_PRODUCERS = 1 << 62  # the first id of producers of other clusters

_EPOCH_BYTES = np.arange(layout.PARTITION_LEADER_EPOCH_OFFSET, layout.PARTITION_LEADER_EPOCH_OFFSET + 4)
_PRODUCER_BYTES = np.arange(layout.PRODUCER_ID_OFFSET, layout.RECORDS_COUNT_OFFSET)  # id, epoch, base sequence
_CRC_BYTES = np.arange(layout.CRC_OFFSET, layout.CRC_OFFSET + 4)
_FOREIGN_BIT = 0x40  # of an id's first byte: 2^62


@dataclass(slots=True)
class Rewritten:
    """The numbers of batches with a new leader epoch, without their producer now, and with a moved producer id."""

    epochs: int = 0
    forgotten: int = 0
    moved: int = 0

    def add(self, other: Rewritten) -> None:
        """Adds the counts of `other`."""
        self.epochs += other.epochs
        self.forgotten += other.forgotten
        self.moved += other.moved


def foreign_id(producer_id: int) -> int:
    """Returns the new id of a transaction's producer."""
    return producer_id | FOREIGN_PRODUCERS


def counted(rows: np.ndarray) -> Rewritten:
    """Counts the changes that `rewrite` makes to these batches (layout.BATCH)."""
    batches = rows[rows["magic"] >= 2]
    forgotten, moved = _whose_producer_changes(batches)
    epochs = int(np.count_nonzero(batches["leader_epoch"] != LEADER_EPOCH))
    return Rewritten(epochs, int(np.count_nonzero(forgotten)), int(np.count_nonzero(moved)))


def rewrite(data: np.ndarray, rows: np.ndarray, position: int) -> np.ndarray:
    """Rewrites batches (layout.BATCH) in `data`, whose first byte lies at `position` of the file.

    Returns the rows whose checksum must be recomputed (`seal`). `data` need only hold the headers.
    """
    batches = rows[rows["magic"] >= 2]
    at = (batches["position"] - position).astype(np.int64)
    data[at[:, None] + _EPOCH_BYTES] = 0
    forgotten, moved = _whose_producer_changes(batches)
    data[at[forgotten][:, None] + _PRODUCER_BYTES] = 0xFF
    data[at[moved] + layout.PRODUCER_ID_OFFSET] |= _FOREIGN_BIT
    changed: np.ndarray = batches[forgotten | moved]
    return changed


def seal(data: np.ndarray, batches: np.ndarray, position: int) -> None:
    """Recomputes the checksums of whole batches in `data`."""
    if len(batches):
        set_checksums(data, batches, position, checksums(data, batches, position))


def set_checksums(data: np.ndarray, batches: np.ndarray, position: int, values: np.ndarray) -> None:
    """Writes these checksums into the batches' headers."""
    at = (batches["position"] - position).astype(np.int64)
    data[at[:, None] + _CRC_BYTES] = values.astype(">u4").view(np.uint8).reshape(-1, 4)


def _whose_producer_changes(batches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the masks of the batches that lose their producer, and of those whose producer moves."""
    known = batches["producer_id"] >= 0
    transactional = (batches["attributes"] & layout.TRANSACTIONAL_MASK) != 0
    return known & ~transactional, known & transactional & (batches["producer_id"] < FOREIGN_PRODUCERS)
