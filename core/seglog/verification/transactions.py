"""Transactions in a log: where they begin and end. Which hang, `transaction_coordinators` tells.

1. The good batches of a partition are walked in order; counts are kept per producer for transactional ones.
2. A marker ends its producer's transaction. A transaction without a marker at the end of the log is open.
3. The newest snapshot may hold a transaction open whose records are gone; a broker also holds it open.

Memory grows with the number of producers that have an open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from seglog import layout
from seglog.errors import CorruptSnapshotError, InvalidRecordError
from seglog.format.producer_snapshot import decode_snapshot
from seglog.log.producer_state import read_markers
from seglog.scan.listing import PartitionListing, SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.storage.filesystem import FileSystem

_NO_MARKER = (-1, -1)


class TransactionState(Enum):
    """How a transaction ended, or that it is open."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction in one partition.

    `first_offset` is that of its first record here, `last_offset` its marker's (None while open). The timestamps are
    those of its first batch and of its marker, or of its last batch while open. `bytes` counts whole batches. `source`
    is "log", or "snapshot" if only the newest producer snapshot knows it. `hanging` is None if unknown or if the
    transaction ended. `coordinator` is what the coordinator's log says of its producer. `is_decided` is True if the
    coordinator had decided to commit: the producer got the confirmation, and only the marker is missing.
    `previous_end` is the timestamp of the producer's previous marker here, -1 if none. While it is open, `open_ms` is
    the time since its first batch; `ends` says what will end it, and `ends_at_ms` when at the latest (None if unknown).
    """

    producer_id: int
    producer_epoch: int
    state: TransactionState
    first_offset: int
    last_offset: int | None
    first_timestamp: int
    last_timestamp: int
    batches: int
    records: int
    bytes: int
    file: str
    position: int
    coordinator_epoch: int = -1
    source: str = "log"
    hanging: bool | None = None
    coordinator: str = ""
    is_decided: bool = False
    previous_end: int = -1
    open_ms: int | None = None
    ends: str = ""
    ends_at_ms: int | None = None

    @property
    def duration_ms(self) -> int:
        """The time from its first batch to its marker, or to its last batch."""
        return max(0, self.last_timestamp - self.first_timestamp)

    def as_dict(self, partition: str) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        return {
            "type": "transaction",
            "partition": partition,
            "state": self.state.value,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "coordinator_epoch": self.coordinator_epoch,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "first_timestamp": self.first_timestamp,
            "last_timestamp": self.last_timestamp,
            "duration_ms": self.duration_ms,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "file": self.file,
            "position": self.position,
            "source": self.source,
            "hanging": self.hanging,
            "coordinator": self.coordinator or None,
            "open_ms": self.open_ms,
            "ends": self.ends or None,
            "ends_at": self.ends_at_ms,
        }


class TransactionWalk:
    """Finds the transactions in the steps of a walk over one partition: `ended`, then `left_open`; or `of_logs`."""

    def __init__(self, fs: FileSystem, listing: PartitionListing) -> None:
        self._fs, self._listing = fs, listing
        self._open: dict[int, Transaction] = {}
        self._last_marker: dict[int, tuple[int, int]] = {}  # offset and timestamp

    def of_logs(self, segments: Sequence[SegmentFiles]) -> Iterator[Transaction]:
        """Yields the transactions in these logs: ended ones in the order of their markers, then open ones by offset.
        Damaged batches are skipped. Raises OSError.
        """
        yield from self.ended((segment, step) for segment in segments for step in LogWalk(self._fs, segment.log))
        yield from self.left_open()

    def ended(self, steps: Iterable[tuple[SegmentFiles, WalkedEntries | Gap]]) -> Iterator[Transaction]:
        """Yields the transactions that end in `steps`, the pieces and gaps of the log."""
        for segment, step in steps:
            if not isinstance(step, Gap):
                yield from self._piece(step, segment.log)

    def left_open(self) -> list[Transaction]:
        """Returns the transactions that are open at the end of the log, after `ended`."""
        for transaction in self._of_snapshot():
            if transaction.producer_id not in self._open:
                self._open[transaction.producer_id] = transaction
        return sorted(self._open.values(), key=lambda transaction: transaction.first_offset)

    def _piece(self, piece: WalkedEntries, path: Path) -> Iterator[Transaction]:
        rows = piece.batches[piece.valid & (piece.batches["magic"] == 2)]
        rows = rows[(rows["attributes"] & layout.TRANSACTIONAL_MASK) != 0]
        control = rows[(rows["attributes"] & layout.CONTROL_MASK) != 0] if piece.complete else rows[:0]
        markers = iter(read_markers(piece.data, control, piece.position, path))
        for row in rows:
            if not int(row["attributes"]) & layout.CONTROL_MASK:
                self._data(row, path)
            elif piece.complete:
                marker = next(markers, None)
                if marker is not None and not isinstance(marker, InvalidRecordError):
                    producer_id, offset = int(row["producer_id"]), int(row["base_offset"])
                    self._last_marker[producer_id] = offset, marker.timestamp
                    begun = self._open.pop(producer_id, None)
                    if begun is not None:
                        yield replace(
                            begun,
                            state=TransactionState.ABORTED if marker.aborted else TransactionState.COMMITTED,
                            last_offset=offset,
                            last_timestamp=marker.timestamp,
                            coordinator_epoch=marker.coordinator_epoch,
                        )

    def _data(self, row: np.void, path: Path) -> None:
        producer_id, count = int(row["producer_id"]), int(row["count"])
        begun = self._open.get(producer_id)
        if begun is None:
            begun = Transaction(
                producer_id=producer_id,
                producer_epoch=int(row["producer_epoch"]),
                state=TransactionState.OPEN,
                first_offset=int(row["base_offset"]),
                last_offset=None,
                first_timestamp=int(row["max_timestamp"]) if count == 0 else int(row["base_timestamp"]),
                last_timestamp=int(row["max_timestamp"]),
                batches=0,
                records=0,
                bytes=0,
                file=path.name,
                position=int(row["position"]),
                previous_end=self._last_marker.get(producer_id, _NO_MARKER)[1],
            )
        self._open[producer_id] = replace(
            begun,
            batches=begun.batches + 1,
            records=begun.records + count,
            bytes=begun.bytes + int(row["size"]),
            last_timestamp=max(begun.last_timestamp, int(row["max_timestamp"])),
        )

    def _of_snapshot(self) -> Iterator[Transaction]:
        """Yields transactions that the newest readable snapshot holds open and whose records the log does not have."""
        for snapshot in reversed(self._listing.snapshots):
            try:
                entries = decode_snapshot(self._fs.read_bytes(snapshot.path), snapshot.path)
            except CorruptSnapshotError:
                continue
            for entry in entries:
                ended = self._last_marker.get(entry.producer_id, _NO_MARKER)[0] >= entry.current_txn_first_offset
                if entry.current_txn_first_offset >= 0 and not ended:
                    yield Transaction(
                        producer_id=entry.producer_id,
                        producer_epoch=entry.producer_epoch,
                        state=TransactionState.OPEN,
                        first_offset=entry.current_txn_first_offset,
                        last_offset=None,
                        first_timestamp=entry.timestamp,
                        last_timestamp=entry.timestamp,
                        batches=0,
                        records=0,
                        bytes=0,
                        file=snapshot.path.name,
                        position=0,
                        coordinator_epoch=entry.coordinator_epoch,
                        source="snapshot",
                    )
            return
