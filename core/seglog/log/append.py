"""The append path: records or batches in, a longer active segment out (Kafka: UnifiedLog.append).

1. Check columns as a whole, then encode them piece by piece; analyse and validate batches.
2. Check sizes against the segment's limit, and producers against their sequences, epochs and transactions. A batch that
   a producer sends again is answered with its first offsets and not written.
3. Write the run of batches that the active segment still takes in one go, roll, and repeat.
4. For each run: leader epochs, producer state, aborted transactions, and last the new log end, which shows the run to
   readers.
5. Flush if `flush.messages` or `flush.ms` ask for it.

A kill at any moment loses nothing that a flush has covered: recovery cuts the bytes after the last whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np

from seglog import layout
from seglog.arguments import described, flag, instance, integer, within
from seglog.errors import (
    AppendError,
    InvalidRecordError,
    InvalidTimestampError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    SegmentOffsetOverflowError,
)
from seglog.format.builder import (
    DEFAULT_BATCH_BYTES,
    BatchOptions,
    EncodedBatches,
    columns,
    columns_of,
    encode_all,
    encode_columns,
)
from seglog.format.columns import Records
from seglog.format.control import encode_control_key, encode_transaction_marker
from seglog.format.filenames import segment_file_name
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.kernels import encode as kernels
from seglog.log.producer_state import NOT_A_MARKER, BatchMetadata, read_markers
from seglog.log.reader import require_end
from seglog.log.segment import LogSegment
from seglog.log.validator import (
    AppendOrigin,
    analyze,
    check_producer,
    check_timestamps,
    first_offset_of,
    validate_for_follower,
    validate_for_leader,
)
from seglog.log.writer import SegmentWriter, WritableLog
from seglog.model import NO_LEADER_EPOCH, NO_TIMESTAMP, Compression, ControlType, Record, TimestampType
from seglog.units import count_text

_WHERE = "appended records"


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """The result of an append. `last_offset` is -1 if there was nothing to write (Kafka: LogAppendInfo).

    `max_timestamp` is the largest in the append, `log_append_time` the time that the log gave the batches, or -1 if
    they kept theirs. `duplicate`: the producer had sent this before; offsets and times are those of the first append.
    `flushed`: everything up to `last_offset` is on stable storage.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    batches: int
    bytes: int
    duplicate: bool = False
    flushed: bool = False

    @property
    def count(self) -> int:
        """The number of offsets taken."""
        return self.last_offset - self.first_offset + 1 if self.last_offset >= 0 else 0


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """An idempotent or transactional producer (KIP-98).

    With `base_sequence` None its batch continues after the producer's last one, or begins at 0. A `transactional` batch
    opens the producer's transaction, which `Log.append_end_txn_marker` ends.
    """

    producer_id: int
    producer_epoch: int = 0
    base_sequence: int | None = None
    transactional: bool = False

    def __post_init__(self) -> None:
        for name in ("producer_id", "producer_epoch", "base_sequence"):
            if getattr(self, name) is not None or name != "base_sequence":
                object.__setattr__(self, name, integer(name, getattr(self, name)))
        flag("transactional", self.transactional)
        if not 0 <= self.producer_id <= layout.INT64_MAX or not 0 <= self.producer_epoch < 2**15:
            raise ValueError(f"producer {self.producer_id} with epoch {self.producer_epoch} is impossible")
        if self.base_sequence is not None and not 0 <= self.base_sequence <= layout.INT32_MAX:
            raise ValueError(f"sequence {self.base_sequence} is not from 0 to 2147483647")


class Appender:
    """Writes to one log; the caller holds the log's lock."""

    def __init__(self, log: WritableLog) -> None:
        self._log, self.writer = log, SegmentWriter(log)

    # --- records and columns ------------------------------------------------------------------------------

    def append_records(
        self,
        records: Iterable[Record] | Records,
        *,
        codec: Compression | None,
        producer: ProducerIdentity | None,
        leader_epoch: int,
        batch_records: int | None,
        batch_bytes: int | None,
        pool: Executor | None,
    ) -> AppendInfo:
        """Builds batches and writes them. A timestamp of None or -1 becomes now."""
        log = self._log
        source = records if isinstance(records, Records) else columns_of(records)
        now_ms = log.clock.now_ms()
        if len(source) == 0:
            return AppendInfo(log.log_end_offset, -1, NO_TIMESTAMP, NO_TIMESTAMP, 0, 0)
        self._check_offsets_left(len(source))
        options = self._options(codec, producer, leader_epoch, batch_records, batch_bytes, now_ms)
        source = self._checked(source, options, now_ms)
        parts = encode_columns(source, log.log_end_offset, options, pool=pool)
        if options.codec == Compression.NONE and producer is None:
            return self._write(parts, AppendOrigin.CLIENT, now_ms, as_one=False)
        # whether the log takes a batch shows only when it is finished: finish all before writing any
        finished = [EncodedBatches(part.data.copy(), part.batches.copy()) for part in parts]
        return self._check_and_write(finished, AppendOrigin.CLIENT, now_ms, as_one=False)

    def _options(
        self,
        codec: Compression | None,
        producer: ProducerIdentity | None,
        leader_epoch: int,
        batch_records: int | None,
        batch_bytes: int | None,
        now_ms: int,
    ) -> BatchOptions:
        config = self._log.config
        stored = config.codec if config.codec is not None else codec or Compression.NONE
        limits = {"batch_records": batch_records, "batch_bytes": batch_bytes}
        if any(limit is not None and integer(name, limit) < 1 for name, limit in limits.items()):
            raise AppendError(f"a batch of {batch_records} records and {batch_bytes} bytes holds nothing")
        wanted = DEFAULT_BATCH_BYTES if batch_bytes is None else batch_bytes
        options = BatchOptions(
            codec=stored,
            batch_records=layout.INT32_MAX if batch_records is None else min(batch_records, layout.INT32_MAX),
            batch_bytes=min(wanted, config.max_message_bytes, config.segment_bytes),
            leader_epoch=_checked_epoch(leader_epoch),
            append_time_ms=now_ms if self._sets_time else None,
            level=config.compression_level(stored),
        )
        if producer is None:
            return options
        if not isinstance(producer, ProducerIdentity):
            raise TypeError(f"producer must be a seglog.ProducerIdentity, not {described(producer)}")
        sequence = producer.base_sequence
        if sequence is None:
            state = self._log.producers.producers.get(producer.producer_id)
            continues = state is not None and state.epoch == producer.producer_epoch
            sequence = state.next_sequence if state is not None and continues else 0
        return replace(
            options,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            transactional=producer.transactional,
        )

    def _checked(self, source: Records, options: BatchOptions, now_ms: int) -> Records:
        """Makes all checks that need no encoding; returns the columns with missing timestamps filled in."""
        config, rows = self._log.config, source.rows
        status, bad, oldest, newest, largest = kernels.check_rows(len(source.arena), rows, config.compact)
        if status == kernels.TIMESTAMP_INVALID:
            stamp = int(rows["timestamp"][bad])
            raise InvalidTimestampError(f"record {bad}: timestamp {stamp} is negative")
        if status == kernels.KEY_MISSING:
            raise InvalidRecordError(_WHERE, f"record {bad} has no key, which a compacted topic requires")
        if status == kernels.SPAN_INVALID:
            raise AppendError(f"record {bad}: key, value or headers lie outside their buffer")
        if options.codec == Compression.NONE:
            self._check_size(largest)
        check_timestamps(np.array([oldest, newest], dtype=np.int64), config, now_ms)
        if oldest >= 0 and not (rows["timestamp"] < 0).any():
            return source
        filled = rows.copy()
        filled["timestamp"][filled["timestamp"] < 0] = now_ms
        return columns(source.arena, filled)

    # --- batches ------------------------------------------------------------------------------------------

    def append_as_leader(
        self, data: bytes | bytearray | memoryview | np.ndarray, origin: AppendOrigin, leader_epoch: int
    ) -> AppendInfo:
        """Validates batches, assigns their offsets and writes them (specification §7)."""
        log = self._log
        analyzed = analyze(data, log.config.max_message_bytes)
        now_ms = log.clock.now_ms()
        if len(analyzed.batches) == 0:
            return AppendInfo(log.log_end_offset, -1, NO_TIMESTAMP, NO_TIMESTAMP, 0, 0)
        self._check_offsets_left(sum(map(int, np.maximum(analyzed.batches["count"], 1))))
        valid = validate_for_leader(
            analyzed,
            log.config,
            origin=origin,
            base_offset=log.log_end_offset,
            leader_epoch=_checked_epoch(leader_epoch),
            append_time_ms=now_ms,
        )
        return self._check_and_write([valid], origin, now_ms)

    def append_as_follower(self, data: bytes | bytearray | memoryview | np.ndarray, leader_epoch: int) -> AppendInfo:
        """Writes batches as they are; those of an epoch above `leader_epoch` are left out."""
        log = self._log
        analyzed = analyze(data, None, _checked_epoch(leader_epoch))
        if len(analyzed.batches) == 0:
            return AppendInfo(log.log_end_offset, -1, NO_TIMESTAMP, NO_TIMESTAMP, 0, 0)
        validate_for_follower(analyzed, log.log_end_offset)
        return self._check_and_write([analyzed], AppendOrigin.REPLICATION, log.clock.now_ms())

    def roll(self) -> LogSegment:
        """Begins a new segment at the log end. Raises CorruptRecordError where that is damage: the new segment would
        take the offsets of good batches behind it.
        """
        require_end(self._log.view, writing=True)
        return self.writer.roll_to(self._log.log_end_offset)

    # --- shared -------------------------------------------------------------------------------------------

    @property
    def _sets_time(self) -> bool:
        return self._log.config.message_timestamp_type == TimestampType.LOG_APPEND_TIME

    def _check_offsets_left(self, count: int) -> None:
        """Raises AppendError if `count` more records would move the log end beyond the largest offset."""
        end = self._log.log_end_offset
        if count > layout.INT64_MAX - end:
            raise AppendError(
                f"{self._log.directory}: {count_text(count, 'record')} from offset {end} on need offsets above 2^63-2"
            )

    def _check_size(self, size: int) -> None:
        config = self._log.config
        if size > config.max_message_bytes:
            raise RecordTooLargeError(
                f"a batch of {count_text(size, 'byte')} is larger than max.message.bytes ({config.max_message_bytes})"
            )
        if size > config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"a batch of {count_text(size, 'byte')} is larger than segment.bytes ({config.segment_bytes})"
            )

    def _check_and_write(
        self, parts: list[EncodedBatches], origin: AppendOrigin, now_ms: int, as_one: bool = True
    ) -> AppendInfo:
        """Checks sizes and producers, then writes; does not write a batch that came before."""
        total = sum(len(part.data) for part in parts)
        if origin == AppendOrigin.CLIENT:
            self._check_size(max(int(part.batches["size"].max()) for part in parts))
        elif total > self._log.config.segment_bytes:
            raise RecordBatchTooLargeError(
                f"an append of {count_text(total, 'byte')} is larger than segment.bytes"
                f" ({self._log.config.segment_bytes})"
            )
        for part in parts:
            self._check_markers(part)
        known = None
        if origin != AppendOrigin.REPLICATION and int(parts[0].batches["producer_id"][0]) >= 0:
            known = self._known_batch(parts[0], origin)
        if known is None:
            return self._write(parts, origin, now_ms, as_one=as_one)
        if sum(len(part.batches) for part in parts) > 1:
            raise OutOfOrderSequenceError(
                f"the first of several batches was appended before, at offsets {known.first_offset} to"
                f" {known.last_offset}"
            )
        first, last, stamp = known.first_offset, known.last_offset, known.timestamp
        append_time = stamp if self._sets_time else NO_TIMESTAMP
        flushed = self._log.recovery_point > last
        return AppendInfo(first, last, stamp, append_time, 0, 0, duplicate=True, flushed=flushed)

    def _check_markers(self, part: EncodedBatches) -> None:
        """Raises InvalidRecordError if a producer's control batch is neither a transaction marker nor empty."""
        rows = part.batches
        control = rows[(rows["producer_id"] >= 0) & (rows["attributes"] & layout.CONTROL_MASK != 0)]
        if not len(control):
            return
        for row, marker in zip(control, read_markers(part.data, control, 0, self._log.directory), strict=True):
            if marker is None and int(row["count"]) > 0:
                raise InvalidRecordError(_WHERE, NOT_A_MARKER, int(row["position"]))
            if isinstance(marker, InvalidRecordError):
                raise marker

    def _known_batch(self, part: EncodedBatches, origin: AppendOrigin) -> BatchMetadata | None:
        batch = part.batches[:1]
        epoch = None
        if int(batch["attributes"][0]) & layout.CONTROL_MASK:
            for marker in read_markers(part.data, batch, 0, self._log.directory):
                if isinstance(marker, InvalidRecordError):
                    raise marker
                epoch = None if marker is None else marker.coordinator_epoch
        return check_producer(self._log.producers, batch, origin, epoch)

    def _write(self, parts: Iterable[EncodedBatches], origin: AppendOrigin, now_ms: int, as_one: bool) -> AppendInfo:
        log, replicated = self._log, origin != AppendOrigin.REPLICATION
        require_end(log.view, writing=True)
        first_offset, max_timestamp, count, size = -1, NO_TIMESTAMP, 0, 0
        for part in parts:
            if first_offset < 0:
                first_offset = first_offset_of(part, int(part.batches["base_offset"][0]))
            if as_one:
                self._write_as_one(part, first_offset, now_ms, replicated)
            else:
                self._write_runs(part, now_ms, replicated)
            max_timestamp = max(max_timestamp, int(part.batches["max_timestamp"].max()))
            count += len(part.batches)
            size += len(part.data)
        append_time = now_ms if self._sets_time and replicated else NO_TIMESTAMP
        flushed = log.flush_if_due(now_ms)
        return AppendInfo(
            first_offset, log.log_end_offset - 1, max_timestamp, append_time, count, size, flushed=flushed
        )

    def _write_as_one(self, part: EncodedBatches, first_offset: int, now_ms: int, replicated: bool) -> None:
        """Writes all batches into one segment, as Kafka does with the batches of one call."""
        log, whole = self._log, part.batches[-1:].copy()
        whole["size"] = len(part.data)
        whole["max_timestamp"] = part.batches["max_timestamp"].max()
        rolls = not self.writer.room(whole, now_ms)
        base_offset = log.segments.active.base_offset
        if rolls:
            # a wrapper's first offset shows only after decompression: at most 2^31-1 before its last (Kafka: maybeRoll)
            modern = part.batches["magic"][0] >= 2
            least = first_offset if modern else int(whole["last_offset"][0]) - layout.INT32_MAX
            base_offset = max(log.log_end_offset, least)
        relative = part.batches["last_offset"] - base_offset
        for row in part.batches[(relative < 0) | (relative > layout.INT32_MAX)]:
            path = log.directory / segment_file_name(base_offset)
            raise SegmentOffsetOverflowError(path, base_offset, int(row["last_offset"]), int(row["position"]))
        if rolls:
            self.writer.check_producers(part.data, part.batches)
            self.writer.roll_to(base_offset)
        self.writer.write_run(part.data, part.batches, 0, replicated)

    def _write_runs(self, part: EncodedBatches, now_ms: int, replicated: bool) -> None:
        """Writes batches in runs that the active segment takes, as if each batch had come in a call of its own."""
        at = 0
        while at < len(part.batches):
            rows = part.batches[at:]
            run = self.writer.room(rows, now_ms)
            if run == 0:
                self.writer.roll_to(self._log.log_end_offset)
                # an empty segment takes a batch even if its index has no room for a single entry
                run = max(1, self.writer.room(rows, now_ms))
            start = int(rows["position"][0])
            end = int(rows["position"][run - 1]) + int(rows["size"][run - 1])
            self.writer.write_run(part.data[start:end], rows[:run], start, replicated)
            at += run


def _checked_epoch(leader_epoch: object) -> int:
    return within("leader_epoch", leader_epoch, NO_LEADER_EPOCH, layout.INT32_MAX)


def encode_end_txn_marker(producer: ProducerIdentity, commit: bool, coordinator_epoch: int, timestamp: int) -> bytes:
    """Encodes the control batch that ends a transaction, as a coordinator sends it (Kafka: EndTransactionMarker)."""
    instance("producer", producer, ProducerIdentity, "a seglog.ProducerIdentity")
    coordinator_epoch = within("coordinator_epoch", coordinator_epoch, 0, layout.INT32_MAX)
    timestamp = within("timestamp", timestamp, 0, layout.INT64_MAX)
    kind = ControlType.COMMIT if flag("commit", commit) else ControlType.ABORT
    record = Record(encode_transaction_marker(coordinator_epoch), encode_control_key(kind), timestamp)
    payload = encode_all(columns_of([record]), 0, BatchOptions())[layout.RECORD_BATCH_OVERHEAD :]
    header = RecordBatchHeader(
        attributes=layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        count=1,
    )
    return encode_batch(header, payload)
