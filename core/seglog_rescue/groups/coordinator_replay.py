"""Replays `__consumer_offsets` and `__share_group_state`: their state at the end of the log, or at a given time.

1. Records apply in log order. A key has its last value; a tombstone removes it.
2. What a transaction wrote waits for its marker. COMMIT applies it, unless a later record has set the key meanwhile;
   ABORT discards it. A tombstone also removes waiting values of its key.
3. A share group's snapshot starts a key afresh; the updates after it modify it.
4. Damaged batches and gaps are skipped and reported.

Kafka: GroupMetadataManager, OffsetMetadataManager.replay and replayEndTransactionMarker, ShareCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.columns import STATUS_REASONS
from seglog.format.decoder import WRONG_CHECKSUM, control_batches
from seglog.log.producer_state import Marker, read_markers
from seglog.scan.log_walk import Gap, WalkedEntries, walk_view
from seglog.scan.view import PartitionView
from seglog.units import count_is, count_text

OFFSETS_TOPIC = "__consumer_offsets"
SHARE_TOPIC = "__share_group_state"

_DAMAGE_SHOWN = 8
_KEY_TYPE_BYTES = 2
_SHARE_SNAPSHOT = b"\x00\x00"


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A value of a key, and the offset and timestamp (epoch ms) of the record that set it."""

    key: bytes
    value: bytes
    offset: int
    timestamp: int


class CoordinatorReplay:
    """The state after the steps given to `take`; with `until_ms`, as of that time (epoch ms, inclusive).

    `values` maps keys to their last values, `pending` maps producer ids to those of open transactions. `end_offset` is
    the offset after the last good batch. `missing` counts the offsets below it, up to `until_ms`, whose records
    compaction removed. `damage` has the first messages about what could not be read; `damaged` counts all.
    """

    def __init__(self, until_ms: int | None = None) -> None:
        self.values: dict[bytes, StoredRecord] = {}
        self.pending: dict[int, dict[bytes, StoredRecord]] = {}
        self.end_offset = 0
        self.missing = 0
        self.damage: list[str] = []
        self.damaged = 0
        self._until_ms = until_ms

    def take_view(self, view: PartitionView) -> None:
        """Takes a whole partition. A batch that a broker is writing at its end is not damage. Raises OSError."""
        for segment, step in walk_view(view):
            if isinstance(step, Gap) and step.at_end and view.is_written(segment):
                continue
            self.take(step, segment.log)

    def take(self, step: WalkedEntries | Gap, path: Path) -> None:
        """Takes the next entries of the log file `path`, or the next gap."""
        if isinstance(step, Gap):
            self._report(f"{path}: position {step.position}: {count_is(step.length, 'byte')} not a batch")
            return
        for row in step.batches[~step.valid]:
            self._report(f"{path}: position {int(row['position'])}: {WRONG_CHECKSUM}")
        batches = step.batches[step.valid]
        if not len(batches):
            return
        self._count_missing(batches)
        control = control_batches(batches)
        begin = 0
        for at in np.flatnonzero(control).tolist():
            self._data(step, batches[begin:at], path)
            self._end(step, batches[at : at + 1], path)
            begin = at + 1
        self._data(step, batches[begin:], path)

    def _report(self, message: str) -> None:
        self.damaged += 1
        if self.damaged <= _DAMAGE_SHOWN:
            self.damage.append(message)

    def _count_missing(self, batches: np.ndarray) -> None:
        """Counts the offsets that are missing before and within the batches."""
        wanted = batches if self._until_ms is None else batches[batches["max_timestamp"] <= self._until_ms]
        if len(wanted):
            held = int(wanted["count"].astype(np.int64).sum())
            self.missing += max(0, int(wanted["last_offset"][-1]) + 1 - self.end_offset - held)
        self.end_offset = max(self.end_offset, int(batches["last_offset"].max()) + 1)

    def _is_in_time(self, timestamp: int) -> bool:
        return self._until_ms is None or timestamp <= self._until_ms

    def _data(self, piece: WalkedEntries, batches: np.ndarray, path: Path) -> None:
        if not len(batches):
            return
        for records in piece.records(batches):
            for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
                reason = STATUS_REASONS.get(int(records.status[i]), "its records cannot be read")
                self._report(f"{path}: position {int(records.batches[i]['position'])}: {reason}")
            rows = records.rows
            for i in range(len(records)):
                key, timestamp = records.key(i), int(rows[i]["timestamp"])
                if key is None or not self._is_in_time(timestamp):
                    continue
                batch = records.batches[rows[i]["batch"]]
                transactional = int(batch["magic"]) >= 2 and int(batch["attributes"]) & layout.TRANSACTIONAL_MASK
                value = records.value(i)
                if value is None:
                    self._remove(key)
                    continue
                stored = StoredRecord(key, value, int(rows[i]["offset"]), timestamp)
                if transactional:
                    self.pending.setdefault(int(batch["producer_id"]), {})[key] = stored
                else:
                    self._set(stored)

    def _end(self, piece: WalkedEntries, batch: np.ndarray, path: Path) -> None:
        """Takes a control batch; a marker ends its producer's transaction."""
        if not piece.complete:
            position, size = int(batch["position"][0]), int(batch["size"][0])
            self._report(
                f"{path}: position {position}: a control batch of {count_text(size, 'byte')} is too large to read"
            )
            return
        for marker in read_markers(piece.data, batch, piece.position, path):
            if marker is None or (isinstance(marker, Marker) and not self._is_in_time(marker.timestamp)):
                continue
            if not isinstance(marker, Marker):
                self._report(str(marker))
                continue
            for stored in self.pending.pop(int(batch["producer_id"][0]), {}).values():
                known = self.values.get(stored.key)
                if not marker.aborted and (known is None or known.offset < stored.offset):
                    self._set(stored)

    def _set(self, stored: StoredRecord) -> None:
        self.values[stored.key] = stored

    def _remove(self, key: bytes) -> None:
        self.values.pop(key, None)
        for waiting in self.pending.values():
            waiting.pop(key, None)


class ShareReplay(CoordinatorReplay):
    """The replay of `__share_group_state`. `chains` maps a key without its type to its snapshot, if it still exists,
    and the updates after it.
    """

    def __init__(self, until_ms: int | None = None) -> None:
        super().__init__(until_ms)
        self.chains: dict[bytes, list[StoredRecord]] = {}

    def _set(self, stored: StoredRecord) -> None:
        chain = self.chains.setdefault(stored.key[_KEY_TYPE_BYTES:], [])
        if stored.key[:_KEY_TYPE_BYTES] == _SHARE_SNAPSHOT:
            chain.clear()
        chain.append(stored)

    def _remove(self, key: bytes) -> None:
        self.chains.pop(key[_KEY_TYPE_BYTES:], None)


def pending_values(replay: CoordinatorReplay) -> Iterator[StoredRecord]:
    """Yields the values that open transactions have written."""
    for waiting in replay.pending.values():
        yield from waiting.values()
