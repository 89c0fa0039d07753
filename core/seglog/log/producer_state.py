"""The producers of a log: epochs, last batches and open transactions, and their snapshots (Kafka:
ProducerStateManager).

The state at offset M is the result of all batches below M. A snapshot `<M>.snapshot` holds it, so that opening a log
replays only the batches after the newest snapshot. Replay goes by the batch table: batches without a producer id cost
nothing, the others one step each; control records are decoded in bulk.

Rules of a replay (specification §6.2, origin replication): any sequences and epochs are accepted; a non-transactional
batch inside its producer's transaction is an error; a control batch without records only makes its producer known.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptSnapshotError, InvalidRecordError, InvalidTransactionStateError
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.control import ControlRecordError, parse_control_type, parse_coordinator_epoch
from seglog.format.decoder import batch_error, decode_records
from seglog.format.filenames import FileKind, parse_file_name, segment_file_name
from seglog.format.producer_snapshot import ProducerEntry, decode_snapshot, encode_snapshot
from seglog.format.record_batch import last_sequence
from seglog.model import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, ControlType
from seglog.storage.filesystem import FileSystem, write_atomically

DEFAULT_EXPIRATION_MS = 86_400_000
BATCHES_KEPT = 5
NOT_A_MARKER = "the control record of a producer is not a transaction marker"
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """The remembered part of a producer's batch, to recognise it when it is sent again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record; sequences wrap to 0 after 2^31-1."""
        return (self.last_sequence - self.offset_delta) & layout.INT32_MAX


@dataclass(slots=True)
class ProducerState:
    """One producer. `batches` holds its last batches, oldest first; `transaction_first_offset` is -1 outside one."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    transaction_first_offset: int = NO_OFFSET
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The sequence that must follow the last one."""
        return 0 if self.last_sequence == layout.INT32_MAX else self.last_sequence + 1

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def in_transaction(self) -> bool:
        return self.transaction_first_offset != NO_OFFSET

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Returns the remembered batch with these sequences in the current epoch, or None."""
        if epoch != self.epoch:
            return None
        wanted = (first_sequence, last_sequence)
        return next((b for b in self.batches if (b.first_sequence, b.last_sequence) == wanted), None)

    def copy(self) -> ProducerState:
        """Returns an independent copy."""
        return replace(self, batches=self.batches.copy())

    def _take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction whose marker was read: `first_offset` is its first data, `last_offset` the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


Completed = Callable[[CompletedTransaction, int], None]


class SnapshotRefusedError(OSError):
    """The snapshot at `offset` is one that a broker cannot write; only where its behaviour is predicted."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the producer snapshot at offset {offset} cannot be written")
        self.offset = offset


class ProducerStateManager:
    """The producers of one log, up to `end_offset`, and the snapshots in its directory.

    With `strict` false, contradictions that make a broker refuse the log are ignored (only for reading). `snapshots`
    are the end offsets of those in the directory, ascending, if the caller knows them. Writing one of the `unwritable`
    ones raises SnapshotRefusedError.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        *,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        strict: bool = True,
        snapshots: list[int] | None = None,
        unwritable: frozenset[int] = frozenset(),
    ) -> None:
        self.directory, self.expiration_ms = directory, expiration_ms
        self.producers: dict[int, ProducerState] = {}
        self.end_offset = 0
        self._fs, self._strict, self._unwritable = fs, strict, unwritable
        self._ongoing: dict[int, int] = {}  # first offset → producer id
        self._unreplicated: dict[int, int] = {}  # first offset → marker's offset, until the high watermark passes it
        self._snapshot_offset = 0
        self.snapshots: list[int] = [] if snapshots is None else snapshots  # ascending: a log may have ten thousand
        if snapshots is None:
            self.load_snapshot_names()

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.producers and not self._unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open, or whose marker is not yet replicated."""
        return min((*self._ongoing, *self._unreplicated), default=None)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset → producer id of every open transaction."""
        return dict(self._ongoing)

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Returns the first offset of another producer's earliest open transaction, else the one after the marker."""
        others = (first for first, producer in self._ongoing.items() if producer != completed.producer_id)
        return min(others, default=completed.last_offset + 1)

    def on_high_watermark(self, offset: int) -> None:
        """Forgets completed transactions whose marker lies below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= offset}

    # --- batches --------------------------------------------------------------------------------------------

    def replay(
        self,
        data: np.ndarray,
        batches: np.ndarray,
        file_position: int,
        path: Path,
        completed: Completed | None = None,
    ) -> None:
        """Replays `batches` (layout.BATCH, in log order), whose bytes are in `data` (first byte at `file_position`).

        Calls `completed` for each transaction that ends, with the last stable offset then, and moves `end_offset`.
        Raises InvalidRecordError for a broken control record, InvalidTransactionStateError by the rules above and for a
        control record of a type other than a marker's (Kafka: IllegalArgumentException, which recovery fails with); all
        leave the state as after the batch before.
        """
        rows = batches[batches["producer_id"] >= 0]
        if len(rows):
            self._replay_rows(data, rows, file_position, path, completed)
        if len(batches):
            self.end_offset = int(batches["last_offset"][-1]) + 1

    @contextlib.contextmanager
    def unchanged_on_error(self, batches: np.ndarray) -> Iterator[None]:
        """Restores the state if replaying `batches` (layout.BATCH) raises an error."""
        ids = set(batches["producer_id"][batches["producer_id"] >= 0].tolist())
        known = {id_: self.producers[id_].copy() for id_ in ids if id_ in self.producers}
        end_offset, ongoing, unreplicated = self.end_offset, dict(self._ongoing), dict(self._unreplicated)
        try:
            yield
        except BaseException:
            for id_ in ids - known.keys():
                self.producers.pop(id_, None)
            self.producers.update(known)
            self.end_offset, self._ongoing, self._unreplicated = end_offset, ongoing, unreplicated
            raise

    def _replay_rows(
        self, data: np.ndarray, rows: np.ndarray, file_position: int, path: Path, completed: Completed | None
    ) -> None:
        control = (rows["attributes"] & layout.CONTROL_MASK) != 0
        markers = read_markers(data, rows[control], file_position, path) if control.any() else iter(())
        columns = [rows[name].tolist() for name in _REPLAYED]
        for producer_id, epoch, sequence, base, last, timestamp, attributes, position, count in zip(
            *columns, strict=True
        ):
            producer = self.producers.get(producer_id)
            if attributes & layout.CONTROL_MASK:
                marker = next(markers)
                if isinstance(marker, InvalidRecordError):
                    self.end_offset = base
                    raise marker
                if marker is None and count > 0 and self._strict:
                    self.end_offset = base
                    raise InvalidTransactionStateError(
                        f"{path}: position {position}: {NOT_A_MARKER} (offset {base}), and a broker's recovery fails"
                        " there; a repair takes it out"
                    )
                if marker is not None or count == 0:
                    producer = producer or self._added(producer_id)
                if marker is not None and producer is not None:
                    self._end_transaction(producer, epoch, base, marker, completed)
                continue
            transactional = bool(attributes & layout.TRANSACTIONAL_MASK)
            producer = producer or self._added(producer_id)
            self._begin_or_continue(producer, base, last, transactional, path, position)
            producer._take_epoch(epoch)
            delta = last - base
            producer.batches.append(BatchMetadata(last_sequence(sequence, delta), last, delta, timestamp))
            producer.last_timestamp = timestamp

    def _added(self, producer_id: int) -> ProducerState:
        self.producers[producer_id] = ProducerState(producer_id)
        return self.producers[producer_id]

    def _begin_or_continue(
        self, producer: ProducerState, base: int, last: int, transactional: bool, path: Path, position: int
    ) -> None:
        if transactional and not producer.in_transaction:
            producer.transaction_first_offset = base
            self._ongoing[base] = producer.producer_id
        elif producer.in_transaction and not transactional and self._strict:
            self.end_offset = base
            raise InvalidTransactionStateError(
                f"{path}: position {position}: producer {producer.producer_id} wrote a non-transactional batch"
                f" (offsets {base} to {last}) inside the transaction that began at offset"
                f" {producer.transaction_first_offset}"
            )

    def _end_transaction(
        self, producer: ProducerState, epoch: int, offset: int, marker: Marker, completed: Completed | None
    ) -> None:
        first = producer.transaction_first_offset
        producer._take_epoch(epoch)
        producer.coordinator_epoch, producer.last_timestamp = marker.coordinator_epoch, marker.timestamp
        producer.transaction_first_offset = NO_OFFSET
        if first == NO_OFFSET:
            return
        transaction = CompletedTransaction(producer.producer_id, first, offset, marker.aborted)
        if completed is not None:
            completed(transaction, self.last_stable_offset(transaction))
        self._ongoing.pop(first, None)
        self._unreplicated[first] = offset

    # --- snapshots ------------------------------------------------------------------------------------------

    def load_snapshot_names(self) -> None:
        """Lists the directory's snapshots again."""
        names = self._fs.list(self.directory) if self._fs.status(self.directory) is not None else []
        parsed = (parse_file_name(name) for name in names if name.endswith(FileKind.PRODUCER_SNAPSHOT.value))
        self.snapshots = sorted(name.offset for name in parsed if name is not None)

    def snapshot_path(self, offset: int) -> Path:
        return self.directory / segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT)

    def take_snapshot(self) -> Path | None:
        """Writes the state at `end_offset` and returns the file; None if the newest snapshot is as new."""
        if self.end_offset <= self._snapshot_offset:
            return None
        path = self.snapshot_path(self.end_offset)
        if self.end_offset in self._unwritable:
            raise SnapshotRefusedError(self.end_offset)
        write_atomically(self._fs, path, encode_snapshot(_entries_of(self.producers.values())))
        place = bisect_left(self.snapshots, self.end_offset)
        if self.snapshots[place : place + 1] != [self.end_offset]:
            self.snapshots.insert(place, self.end_offset)
        self._snapshot_offset = self.end_offset
        return path

    def remove_snapshot(self, offset: int) -> None:
        """Removes a snapshot's file, if it exists."""
        self.forget_snapshot(offset)
        path = self.snapshot_path(offset)
        if self._fs.status(path) is not None:
            self._fs.remove(path)

    def forget_snapshot(self, offset: int) -> None:
        """Drops a snapshot from the list; its file is gone, or the caller removes it."""
        place = bisect_left(self.snapshots, offset)
        if self.snapshots[place : place + 1] == [offset]:
            del self.snapshots[place]

    def remove_stray_snapshots(self, base_offsets: Iterable[int]) -> None:
        """Keeps the snapshots at a segment's base and the largest other one, if it is above all bases."""
        bases = set(base_offsets)
        self.load_snapshot_names()
        strays = [offset for offset in self.snapshots if offset not in bases]
        if strays and (not bases or strays[-1] >= max(bases)):
            strays.pop()
        for offset in strays:
            self.remove_snapshot(offset)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Removes the snapshots outside (`log_start_offset`, `log_end_offset`] and loads the newest remaining one."""
        at_start, at_end = bisect_right(self.snapshots, log_start_offset), bisect_right(self.snapshots, log_end_offset)
        for offset in (*self.snapshots[:at_start], *self.snapshots[at_end:]):
            self.remove_snapshot(offset)
        if log_end_offset != self.end_offset:
            self._clear()
            self._load_newest_snapshot(log_start_offset, now_ms)
        else:
            self.on_log_start_offset(log_start_offset)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Forgets completed transactions below the new log start; producers stay."""
        self.on_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
        latest = self.latest_snapshot_offset
        self._snapshot_offset = log_start_offset if latest is None else latest

    def forget(self) -> None:
        """Forgets the state, so that `rebuild_producer_state` replays everything after a snapshot."""
        self._clear()
        self.end_offset = -1

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forgets everything, snapshots included; the log continues at `offset`."""
        self._clear()
        for found in list(self.snapshots):
            self.remove_snapshot(found)
        self._snapshot_offset, self.end_offset = 0, offset

    def _clear(self) -> None:
        self.producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()

    def _load_newest_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        while self.snapshots:
            offset = self.snapshots[-1]
            path = self.snapshot_path(offset)
            try:
                entries = decode_snapshot(self._fs.read_bytes(path), path)
            except CorruptSnapshotError:
                self.remove_snapshot(offset)
                continue
            for entry in entries:
                self._restore(entry, now_ms)
            self.end_offset = self._snapshot_offset = offset
            return
        self.end_offset = self._snapshot_offset = log_start_offset

    def _restore(self, entry: ProducerEntry, now_ms: int) -> None:
        producer = ProducerState(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.timestamp,
            entry.current_txn_first_offset,
        )
        if entry.last_offset >= 0:
            batch = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
            producer.batches.append(batch)
        if producer.in_transaction:
            self._ongoing[producer.transaction_first_offset] = producer.producer_id
        elif now_ms - producer.last_timestamp >= self.expiration_ms:
            return
        self.producers[producer.producer_id] = producer


_REPLAYED = (
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "base_offset",
    "last_offset",
    "max_timestamp",
    "attributes",
    "position",
    "count",
)


def _entries_of(producers: Iterable[ProducerState]) -> list[ProducerEntry]:
    return [
        ProducerEntry(
            producer_id=p.producer_id,
            producer_epoch=p.epoch,
            last_sequence=p.last_sequence,
            last_offset=p.last_data_offset,
            offset_delta=p.batches[-1].offset_delta if p.batches else 0,
            timestamp=p.last_timestamp,
            coordinator_epoch=p.coordinator_epoch,
            current_txn_first_offset=p.transaction_first_offset,
        )
        for p in producers
    ]


# --- transaction markers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marker:
    """A COMMIT or ABORT record. `timestamp` in epoch milliseconds."""

    aborted: bool
    coordinator_epoch: int
    timestamp: int


def read_markers(
    data: np.ndarray, batches: np.ndarray, file_position: int, path: Path
) -> Iterator[Marker | InvalidRecordError | None]:
    """Yields the marker of each control batch (layout.BATCH, bytes in `data`), in order (Kafka: EndTransactionMarker).

    None for a batch without records or of another control type, such as a KRaft log's; an InvalidRecordError, not
    raised, for one that cannot be read. Control batches are decoded in bulk.
    """
    for records in decode_records(data, batches, file_position):
        if records.rows_before:
            continue  # a later part of a batch
        first_rows = np.searchsorted(records.rows["batch"], np.arange(len(records.batches)))
        for i, row in enumerate(first_rows.tolist()):
            batch = records.batches[i]
            if int(batch["count"]) == 0:
                yield None
            elif row == len(records.rows) or records.rows[row]["batch"] != i:
                reason = STATUS_REASONS.get(int(records.status[i]), "no record is there")
                yield batch_error(InvalidRecordError, path, reason, batch)
            else:
                yield _marker(records, row, path, batch)


def _marker(records: Records, row: int, path: Path, batch: np.void) -> Marker | InvalidRecordError | None:
    try:
        kind, _ = parse_control_type(records.key(row))
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        epoch = parse_coordinator_epoch(records.value(row))
    except ControlRecordError as error:
        return batch_error(InvalidRecordError, path, str(error), batch)
    return Marker(kind is ControlType.ABORT, epoch, int(records.rows[row]["timestamp"]))
