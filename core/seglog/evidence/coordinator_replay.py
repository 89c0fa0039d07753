"""The one reader of the group coordinators' topics: what `__consumer_offsets` and `__share_group_state` say at their
end, or said at a time.

1. Records count in the order of the log; the last value of a key is its value, a tombstone ends it.
2. What a transaction wrote waits for its marker. With COMMIT it counts, unless a later record of the log has set the
   key meanwhile; with ABORT it never was. A tombstone ends what waits for its key, too.
3. A share group's snapshot begins a key anew; the updates after it change it.
4. Damaged batches and gaps are passed over, and remembered.

Kafka: GroupMetadataManager, OffsetMetadataManager.replay and replayEndTransactionMarker, ShareCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.columns import STATUS_REASONS
from seglog.log.markers import Marker, read_markers
from seglog.scan.log_walk import Gap, WalkedEntries, walk_view
from seglog.scan.view import PartitionView

OFFSETS_TOPIC = "__consumer_offsets"
SHARE_TOPIC = "__share_group_state"

_DAMAGE_SHOWN = 8
_KEY_TYPE_BYTES = 2
_SHARE_SNAPSHOT = b"\x00\x00"


@dataclass(frozen=True, slots=True)
class Stored:
    """A value of a key, and the record that set it: its offset in the coordinator's log, epoch milliseconds."""

    key: bytes
    value: bytes
    offset: int
    timestamp: int


class CoordinatorReplay:
    """The state after the pieces that `take` was given, in order; with `until_ms` as of that time (epoch
    milliseconds, inclusive).

    `values` are the last values by key, `pending` those of open transactions by producer id. `end_offset` is the
    offset after the last good batch; `missing` counts offsets below it, up to `until_ms`, of which no record is there:
    compaction took them. `damage` are the first sentences about what could not be read, `damaged` counts all.
    """

    def __init__(self, until_ms: int | None = None) -> None:
        self.values: dict[bytes, Stored] = {}
        self.pending: dict[int, dict[bytes, Stored]] = {}
        self.end_offset = 0
        self.missing = 0
        self.damage: list[str] = []
        self.damaged = 0
        self._until_ms = until_ms

    def take_view(self, view: PartitionView) -> None:
        """All of a partition. What a broker has half written at its end is no damage. Raises OSError."""
        for segment, step in walk_view(view):
            if isinstance(step, Gap) and step.at_end and view.is_written(segment):
                continue
            self.take(step, segment.log)

    def take(self, step: WalkedEntries | Gap, path: Path) -> None:
        """The next entries of the log file `path`, or the next gap."""
        if isinstance(step, Gap):
            self._tell(f"{path}: position {step.position}: {step.length} bytes are not a batch")
            return
        for row in step.batches[~step.valid]:
            self._tell(f"{path}: position {int(row['position'])}: the checksum of the batch is wrong")
        batches = step.batches[step.valid]
        if not len(batches):
            return
        self._count(batches)
        control = (batches["magic"] >= 2) & ((batches["attributes"] & layout.CONTROL_MASK) != 0)
        begin = 0
        for at in np.flatnonzero(control).tolist():
            self._data(step, batches[begin:at], path)
            self._end(step, batches[at : at + 1], path)
            begin = at + 1
        self._data(step, batches[begin:], path)

    def _tell(self, sentence: str) -> None:
        self.damaged += 1
        if self.damaged <= _DAMAGE_SHOWN:
            self.damage.append(sentence)

    def _count(self, batches: np.ndarray) -> None:
        """Offsets that are missing before and within the batches."""
        wanted = batches if self._until_ms is None else batches[batches["max_timestamp"] <= self._until_ms]
        if len(wanted):
            held = int(wanted["count"].astype(np.int64).sum())
            self.missing += max(0, int(wanted["last_offset"][-1]) + 1 - self.end_offset - held)
        self.end_offset = max(self.end_offset, int(batches["last_offset"].max()) + 1)

    def _counts(self, timestamp: int) -> bool:
        return self._until_ms is None or timestamp <= self._until_ms

    def _data(self, piece: WalkedEntries, batches: np.ndarray, path: Path) -> None:
        if not len(batches):
            return
        for records in piece.records(batches):
            for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
                reason = STATUS_REASONS.get(int(records.status[i]), "its records cannot be read")
                self._tell(f"{path}: position {int(records.batches[i]['position'])}: {reason}")
            rows = records.rows
            for i in range(len(records)):
                key, timestamp = records.key(i), int(rows[i]["timestamp"])
                if key is None or not self._counts(timestamp):
                    continue
                batch = records.batches[rows[i]["batch"]]
                transactional = int(batch["magic"]) >= 2 and int(batch["attributes"]) & layout.TRANSACTIONAL_MASK
                value = records.value(i)
                if value is None:
                    self._remove(key)
                    continue
                stored = Stored(key, value, int(rows[i]["offset"]), timestamp)
                if transactional:
                    self.pending.setdefault(int(batch["producer_id"]), {})[key] = stored
                else:
                    self._set(stored)

    def _end(self, piece: WalkedEntries, batch: np.ndarray, path: Path) -> None:
        """A control batch: of a marker, the end of its producer's transaction."""
        if not piece.complete:
            self._tell(
                f"{path}: position {int(batch['position'][0])}: a control batch of {int(batch['size'][0])} bytes"
            )
            return
        for marker in read_markers(piece.data, batch, piece.position, path):
            if marker is None or (isinstance(marker, Marker) and not self._counts(marker.timestamp)):
                continue
            if not isinstance(marker, Marker):
                self._tell(str(marker))
                continue
            for stored in self.pending.pop(int(batch["producer_id"][0]), {}).values():
                known = self.values.get(stored.key)
                if not marker.aborted and (known is None or known.offset < stored.offset):
                    self._set(stored)

    def _set(self, stored: Stored) -> None:
        self.values[stored.key] = stored

    def _remove(self, key: bytes) -> None:
        self.values.pop(key, None)
        for waiting in self.pending.values():
            waiting.pop(key, None)


class ShareReplay(CoordinatorReplay):
    """The same of `__share_group_state`. `chains` maps a key without its type to its snapshot, if that is still
    there, and the updates after it.
    """

    def __init__(self, until_ms: int | None = None) -> None:
        super().__init__(until_ms)
        self.chains: dict[bytes, list[Stored]] = {}

    def _set(self, stored: Stored) -> None:
        chain = self.chains.setdefault(stored.key[_KEY_TYPE_BYTES:], [])
        if stored.key[:_KEY_TYPE_BYTES] == _SHARE_SNAPSHOT:
            chain.clear()
        chain.append(stored)

    def _remove(self, key: bytes) -> None:
        self.chains.pop(key[_KEY_TYPE_BYTES:], None)


def pending_values(replay: CoordinatorReplay) -> Iterator[Stored]:
    """What open transactions have written."""
    for waiting in replay.pending.values():
        yield from waiting.values()
