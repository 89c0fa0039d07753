"""`TwinLogs`: the same steps done with seglog's `Log` and with Kafka's `UnifiedLog`, and compared after each.

A step is a method. It is done by both; either both refuse (with errors that mean the same) or both do it. Then offsets,
epochs, segments with the number of their index entries, producers and the names of snapshots must agree. After an
orderly close every file must. `Parted` says what differs.

Files may be damaged while the log is closed after a kill; both get the same damage. Differences that DIFFERENCES.md
names are not stepped into, and `LostTwin` says when Kafka itself can go no further.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seglog import errors, layout
from seglog.configuration.keys import LogConfig
from seglog.format.columns import STATUS_REASONS
from seglog.format.producer_snapshot import decode_snapshot
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.log.validator import AppendOrigin
from seglog.storage.local import LocalFileSystem
from tests.support.kafka import KafkaFailure, KafkaHarness
from tests.support.manual_clock import ManualClock

START_MS = 1_700_000_000_000

# What Kafka's refusals are here. One that is not listed is an accident of Kafka's (IllegalArgumentException, …): any
# refusal is right then.
SAME: dict[str, type[errors.SeglogError]] = {
    "CorruptRecordException": errors.CorruptRecordError,
    "InvalidRecordException": errors.SeglogError,  # also met while Kafka words another refusal
    "RecordValidationException": errors.SeglogError,  # carries any of them
    "InvalidTimestampException": errors.InvalidTimestampError,
    "RecordTooLargeException": errors.RecordTooLargeError,
    "RecordBatchTooLargeException": errors.RecordBatchTooLargeError,
    "OffsetsOutOfOrderException": errors.OffsetsOutOfOrderError,
    "UnexpectedAppendOffsetException": errors.UnexpectedAppendOffsetError,
    "OutOfOrderSequenceException": errors.OutOfOrderSequenceError,
    "InvalidProducerEpochException": errors.ProducerFencedError,
    "TransactionCoordinatorFencedException": errors.ProducerFencedError,
    "InvalidTxnStateException": errors.InvalidTransactionStateError,
    "OffsetOutOfRangeException": errors.OffsetOutOfRangeError,
}


# Kafka rolled, or wrote, before it failed: its log is not what it says any more.
BROKEN_TWIN = {"LogSegmentOffsetOverflowException", "KafkaStorageException", "InvalidOffsetException"}

# An index that takes no more; a batch that names no epoch, which seglog lets follow another; a compressed batch whose
# records are numbered anew.
ACCIDENTS = (
    "Attempt to append to a full",
    "invalid partition leader epoch entry EpochEntry[epoch=-1,",
    "key is skipped in PartialDefaultRecord",
)

# What Kafka takes and seglog does not, by the tables of DIFFERENCES.md.
REFUSED_HERE: tuple[tuple[type[errors.SeglogError], str], ...] = (
    (errors.InvalidRecordError, "ends before it begins"),
    (errors.CorruptRecordError, "its offsets are too large"),
    (errors.SegmentOffsetOverflowError, "does not fit a segment"),
    (errors.InvalidRecordError, "not a transaction marker"),
    (errors.InvalidTimestampError, "is negative"),
    (errors.InvalidRecordError, "the append holds no records"),
    (errors.InvalidRecordError, "a control batch cannot be rebuilt"),
    (errors.UnexpectedAppendOffsetError, "below the log end offset"),
)


class Parted(AssertionError):
    """The two logs do not agree."""


class LostTwin(Exception):
    """Kafka failed in a way after which its log is not what its files say; nothing can be compared any more."""


class TwinLogs:
    """Two partitions of one name below `root`, opened when made; both get `config`, which are fields of LogConfig,
    `topic`, the topic's configuration by Kafka's keys, and forget a producer after `producer_expiration_ms`.
    """

    def __init__(
        self,
        kafka: KafkaHarness,
        root: Path,
        *,
        topic: Mapping[str, str] | None = None,
        producer_expiration_ms: int = 86_400_000,
        **config: int,
    ) -> None:
        self._kafka = kafka
        self.ours, self.theirs = root / "seglog" / "t-0", root / "kafka" / "t-0"
        for directory in (self.ours, self.theirs):
            directory.mkdir(parents=True)
        keys = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1), **(topic or {})}
        self._config = replace(LogConfig.from_mapping(keys), **config)  # type: ignore[arg-type]
        self._expiration_ms = producer_expiration_ms
        self._options = {**config, "config": keys, "producer_expiration_ms": producer_expiration_ms}
        self._clock = ManualClock(START_MS)
        self._log_start = 0
        self._hostile = self._damaged = False
        self._ours: dict[str, Any] = {}
        self._theirs: dict[str, Any] = {}
        self.log: Log = self._opened(clean=True, recovery_point=0)

    # --- opening and closing --------------------------------------------------------------------------------

    def _opened(self, clean: bool, recovery_point: int) -> Log:
        options = {"clean": clean, "recovery_point": recovery_point, "log_start_offset": self._log_start}
        theirs = self._kafka.live(self.theirs, "open", now_ms=self._clock.now_ms(), **options, **self._options)
        try:
            log = Log.open(
                self.ours,
                self._config,
                fs=LocalFileSystem(),
                clock=self._clock,
                options=LoadOptions(
                    clean_shutdown=clean,
                    recovery_point=recovery_point,
                    log_start_offset=self._log_start,
                    producer_expiration_ms=self._expiration_ms,
                ),
            )
        except errors.SeglogError as error:
            if "error" in theirs:
                raise LostTwin(f"neither opens: {theirs['error']}, {error}") from error
            raise Parted(f"seglog does not open what Kafka opens: {error}") from error
        if "error" in theirs:
            raise LostTwin(f"Kafka does not open it: {theirs['error']}: {theirs['message']}")
        if any("split into segments" in event for event in log.recovery.events):
            raise LostTwin("Kafka's split segment remembers the bytes since an index entry that it does not have")
        self._compare(log, theirs["state"])
        return log

    def reopen(self) -> None:
        """Closes both in order, compares every file, and opens them again."""
        self.close()
        self.log = self._opened(clean=True, recovery_point=0)

    def close(self) -> None:
        self._log_start = self.log.log_start_offset
        self.log.close()
        answer = self._kafka.live(self.theirs, "close")
        if "error" in answer:
            raise LostTwin(f"Kafka does not close: {answer['error']}: {answer['message']}")
        self._compare_files()

    def kill(self, recovery_point: int, damage: Callable[[Path], None] | None = None) -> None:
        """Ends both as a kill does, damages both directories, and recovers both from `recovery_point` on."""
        self._log_start = self.log.log_start_offset
        if hasattr(self, "log"):
            for segment in self.log.segments:
                segment.close_files()
        with contextlib.suppress(KafkaFailure):  # it may be closed, or never have been opened
            self._kafka.live(self.theirs, "kill")
        if damage is not None:
            self._damaged = True
            for directory in (self.ours, self.theirs):
                damage(directory)
        self.log = self._opened(clean=False, recovery_point=recovery_point)

    def abandon(self) -> None:
        """Lets both go, whatever state they are in."""
        if hasattr(self, "log"):
            for segment in self.log.segments:
                segment.close_files()
        with contextlib.suppress(KafkaFailure):  # it may be closed, or never have been opened
            self._kafka.live(self.theirs, "kill")

    # --- steps ----------------------------------------------------------------------------------------------

    def append(self, data: bytes, origin: AppendOrigin, leader_epoch: int, hostile: bool = False) -> bool:
        """Appends to both; whether they took it. Of `hostile` bytes, which may be wrong in several ways, it does not
        matter for which one they are refused.
        """

        def ours() -> object:
            if origin is AppendOrigin.REPLICATION:
                return self.log.append_as_follower(data, leader_epoch)
            return self.log.append_batches(data, origin=origin, leader_epoch=leader_epoch)

        encoded = base64.b64encode(data).decode()
        self._hostile = hostile
        taken = self._step(ours, "append", data=encoded, origin=origin.value, leader_epoch=leader_epoch)
        self._hostile = False
        if taken and hostile and origin is AppendOrigin.CLIENT:
            self._compare_newest()
        return taken

    def truncate_to(self, offset: int) -> bool:
        return self._step(lambda: self.log.truncate_to(offset), "truncate_to", offset=offset)

    def truncate_fully(self, offset: int) -> bool:
        return self._step(lambda: self.log.truncate_fully(offset), "truncate_fully", offset=offset)

    def delete_records(self, offset: int) -> bool:
        return self._step(lambda: self.log.increment_log_start_offset(offset), "delete_records", offset=offset)

    def high_watermark(self, offset: int) -> bool:
        return self._step(lambda: self.log.update_high_watermark(offset), "high_watermark", offset=offset)

    def roll(self) -> bool:
        return self._step(self.log.roll, "roll")

    def flush(self) -> bool:
        return self._step(self.log.flush, "flush")

    def wait(self, ms: int) -> bool:
        return self._step(lambda: self._clock.advance(ms), "wait", ms=ms)

    def retain(self, retention_ms: int, retention_bytes: int) -> bool:
        from seglog.log.retention import apply_retention, plan_retention, remove_deleted

        def ours() -> None:
            before = self.log.config
            self.log.config = replace(before, retention_ms=retention_ms, retention_bytes=retention_bytes)
            try:
                remove_deleted(self.log.fs, apply_retention(self.log, plan_retention(self.log, self._clock.now_ms())))
            finally:
                self.log.config = before

        return self._step(ours, "retain", retention_ms=retention_ms, retention_bytes=retention_bytes)

    def _step(self, ours: Callable[[], object], step: str, **options: Any) -> bool:
        try:
            theirs = self._kafka.live(self.theirs, step, **options)
        except KafkaFailure as failure:
            if failure.error == "OutOfMemoryError":
                raise LostTwin(str(failure)) from failure
            raise
        refusal: errors.SeglogError | None = None
        try:
            ours()
        except errors.SeglogError as error:
            refusal = error
        told = f"{step} { ({k: v for k, v in options.items() if k != 'data'}) }"
        if theirs.get("error") in BROKEN_TWIN or any(text in theirs.get("message", "") for text in ACCIDENTS):
            raise LostTwin(f"{theirs['error']}: {theirs['message']}")
        undecodable = self._hostile and any(reason in str(refusal) for reason in STATUS_REASONS.values())
        if refusal is not None and "error" not in theirs and (undecodable or _is_named(refusal)):
            raise LostTwin(f"seglog alone refuses: {refusal}")
        if ("error" in theirs) != (refusal is not None):
            said = f"{theirs['error']}: {theirs['message']}" if "error" in theirs else "done"
            raise Parted(f"{told}: Kafka: {said}; seglog: {type(refusal).__name__} {refusal}")
        if refusal is not None and not self._hostile:
            expected = SAME.get(theirs["error"], errors.SeglogError)
            if not isinstance(refusal, expected):
                raise Parted(f"{told}: Kafka: {theirs['error']}: {theirs['message']}; seglog: {refusal!r}")
        idle = state_of(self.log) == self._ours and (step == "append" or refusal is not None)
        if idle and theirs["state"] != self._theirs:
            raise LostTwin(f"Kafka changed its log, and wrote nothing: {theirs.get('error')}: {theirs.get('message')}")
        try:
            self._compare(self.log, theirs["state"])
        except Parted as error:
            raise Parted(f"after {told} (refused: {refusal}): {error}") from None
        return refusal is None

    # --- comparing ------------------------------------------------------------------------------------------

    def _compare(self, log: Log, theirs: dict[str, Any]) -> None:
        ours = self._ours = state_of(log)
        self._theirs = theirs
        differing = [name for name in theirs if ours[name] != theirs[name]]
        if differing == ["lastStableOffset"] and self._damaged:
            raise LostTwin("Kafka looks for the batch at the last stable offset, and damage lies before it")
        if log.log_end_offset > 2**62:
            raise LostTwin("that many unflushed messages are more than flush.messages")
        if any(segment.trailing_bytes for segment in log.segments):
            raise LostTwin("a torn tail is cut off by the next append, which Kafka writes after it")
        if differing == ["lastStableOffset"] and _holds_nothing(log, ours[differing[0]], theirs[differing[0]]):
            return  # where an open transaction began below the log start, Kafka names the first batch that is left
        if differing:
            told = "; ".join(f"{name}: Kafka {theirs[name]}, seglog {ours[name]}" for name in differing)
            raise Parted(told)

    def _compare_newest(self) -> None:
        """The active segments must be equal, unless Kafka kept record offsets that seglog numbered anew."""
        path = self.log.segments.active.path
        ours, theirs = path.read_bytes(), (self.theirs / path.name).read_bytes()
        if ours != theirs and len(ours) == len(theirs):
            raise LostTwin("a client's record offsets are numbered anew where Kafka writes them as they came")

    def _compare_files(self) -> None:
        ours, theirs = _files(self.ours), _files(self.theirs)
        if ours.keys() != theirs.keys():
            raise Parted(f"files of Kafka alone: {theirs.keys() - ours.keys()}, ours: {ours.keys() - theirs.keys()}")
        for name, content in theirs.items():
            if ours[name] != content:
                raise Parted(f"{name}: Kafka {content!r}, seglog {ours[name]!r}")


def _holds_nothing(log: Log, first: int, end: int) -> bool:
    batches = log.read(first, 1, None).batches
    if not len(batches):
        return first < end
    begins, ends = int(batches["base_offset"][0]), int(batches["last_offset"][0])
    within = int(batches["magic"][0]) < 2 and first < end <= ends  # a wrapper's row says only where it ends
    return begins == end or first < end < begins or within


def _is_named(refusal: errors.SeglogError) -> bool:
    return any(isinstance(refusal, kind) and reason in str(refusal) for kind, reason in REFUSED_HERE)


def state_of(log: Log) -> dict[str, Any]:
    """What `LiveLog.state` tells, of a `Log`."""
    producers = {
        str(p.producer_id): [
            p.epoch,
            p.coordinator_epoch,
            p.last_timestamp,
            p.transaction_first_offset,
            [[b.last_sequence, b.last_offset, b.offset_delta, b.timestamp] for b in p.batches],
        ]
        for p in log.producers.producers.values()
    }
    return {
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        "highWatermark": log.high_watermark,
        "lastStableOffset": log.last_stable_offset,
        "recoveryPoint": log.recovery_point,
        "epochs": [[entry.epoch, entry.start_offset] for entry in log.leader_epochs.entries],
        "segments": [[s.base_offset, s.size, s.offset_index.entries, s.time_index.entries] for s in log.segments],
        "producers": producers,
        "snapshots": sorted(path.name for path in log.directory.glob("*.snapshot")),
    }


def _files(directory: Path) -> dict[str, object]:
    """Name → contents; of snapshots the entries, whose order means nothing. Kafka makes empty files where none is, and
    counts transactions in a last stable offset that begin after the marker."""
    found: dict[str, object] = {}
    for path in directory.iterdir():
        data = path.read_bytes()
        if path.suffix == ".snapshot":
            found[path.name] = sorted(json.dumps(repr(entry)) for entry in decode_snapshot(data, path))
        elif path.suffix == ".txnindex" and data:
            whole = len(data) // layout.TRANSACTION_INDEX_ENTRY.itemsize
            rows = np.frombuffer(data, layout.TRANSACTION_INDEX_ENTRY, whole).copy()
            rows["last_stable_offset"] = np.minimum(rows["last_stable_offset"], rows["last_offset"] + 1)
            found[path.name] = (rows.tobytes(), data[rows.nbytes :])
        elif data not in (b"", b"0\n0\n") or path.suffix == ".log":
            found[path.name] = data
    return found
