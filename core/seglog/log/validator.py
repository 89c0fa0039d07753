"""Validation of batches by a leader or a follower before they are written (Kafka: UnifiedLog.analyze…, LogValidator).

1. `analyze` checks framing, magic, size limit and checksum of every batch; it drops a trailing partial batch, and for a
   follower the batches of a later leader's epoch.
2. `validate_for_leader` accepts a single batch if it is v2 or compressed. It checks counts, control bits and sequences
   of clients, keys in compacted topics, and timestamps. Then it sets offsets, leader epoch, timestamp type and codec:
   in place if the payload can stay, otherwise by rebuilding the batch (magic 0 and 1, another codec, other deltas).
3. `validate_for_follower` checks that offsets ascend and start at or after the log end.
4. `check_producer` checks a leader's batch against its producer (Kafka: ProducerAppendInfo; specification §7.3). A
   client's batch that is one of the last five in the same epoch is a duplicate. An older epoch is fenced; a marker also
   by its coordinator's epoch. A client's first sequence must follow the last one, or be 0 in a new epoch; unknown
   producers may begin anywhere. A batch outside transactions must not come while the producer has one open. (Replaying
   a log accepts any sequences and epochs: `producer_state`.)

This module writes nothing and never changes the caller's bytes.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from enum import Enum

import numpy as np

from seglog import layout
from seglog.configuration.keys import LogConfig
from seglog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from seglog.format.builder import BatchOptions, EncodedBatches, columns, encode_columns
from seglog.format.checksum import byte_view, crc32c
from seglog.format.columns import STATUS_REASONS, Records, joined
from seglog.format.decoder import BatchScan, batch_error, checksums_match, decode_records, scan_batches, wrong_checksum
from seglog.format.record_batch import RecordBatchHeader
from seglog.format.windows import WHOLE_LIMIT
from seglog.kernels.batches import WALK_BAD_HEADER, WALK_BAD_SIZE
from seglog.log.producer_state import BatchMetadata, ProducerState, ProducerStateManager
from seglog.model import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Compression, TimestampType

_WHERE = "appended data"


class AppendOrigin(Enum):
    """The origin of appended batches (Kafka: AppendOrigin)."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


def analyze(
    data: bytes | bytearray | memoryview | np.ndarray, most_bytes: int | None, leader_epoch: int | None = None
) -> EncodedBatches:
    """Splits `data` into batches and checks framing and checksums; `most_bytes` of None checks no size.

    Drops the first batch of an epoch above `leader_epoch` and all after it, unchecked: a leader's answer may reach a
    follower after the next leader's (KAFKA-18723). Drops a trailing partial batch, too. Returns a copy. Raises
    CorruptRecordError or RecordTooLargeError.
    """
    buffer = np.frombuffer(data, dtype=np.uint8).copy()
    scan = scan_batches(buffer, 0, len(buffer), 0)
    batches, end = scan.batches, scan.consumed
    _check_framing(buffer, scan)
    later = np.flatnonzero(batches["leader_epoch"] > (layout.INT32_MAX if leader_epoch is None else leader_epoch))
    if len(later):
        batches, end = batches[: later[0]], int(batches["position"][later[0]])
    elif scan.status == WALK_BAD_HEADER:
        reason = "a batch is smaller than its header, or its offsets are too large"
        raise CorruptRecordError(_WHERE, reason, scan.consumed)
    if most_bytes is not None:
        for row in batches[batches["size"] > most_bytes]:
            raise RecordTooLargeError(
                f"a batch of {int(row['size'])} bytes is larger than max.message.bytes ({most_bytes})"
            )
    for row in batches[~checksums_match(buffer, batches, 0)]:
        raise wrong_checksum(_WHERE, row)
    for row in batches[(batches["attributes"] & layout.CODEC_MASK) > max(Compression)]:
        codec = int(row["attributes"]) & layout.CODEC_MASK
        raise InvalidRecordError(_WHERE, f"unknown codec {codec}", int(row["position"]))
    return EncodedBatches(buffer[:end], batches)


def _check_framing(buffer: np.ndarray, scan: BatchScan) -> None:
    """Raises CorruptRecordError for an invalid size or magic, also in a trailing partial batch (Kafka:
    ByteBufferLogInputStream.nextBatchSize).
    """
    if scan.status == WALK_BAD_SIZE:
        raise CorruptRecordError(_WHERE, "no batch can be so small", scan.consumed)
    for row in scan.batches[(scan.batches["magic"] < 0) | (scan.batches["magic"] > 2)]:
        raise CorruptRecordError(_WHERE, f"unknown magic {int(row['magic'])}", int(row["position"]))
    rest = buffer[scan.consumed :]
    if len(rest) < layout.LOG_OVERHEAD:
        return
    size = int.from_bytes(bytes(rest[layout.SIZE_OFFSET : layout.LOG_OVERHEAD]), "big", signed=True)
    has_magic = len(rest) >= layout.HEADER_UP_TO_MAGIC
    if size < layout.LEAST_ENTRY_SIZE or (has_magic and size > layout.INT32_MAX - layout.LOG_OVERHEAD):
        raise CorruptRecordError(_WHERE, f"no batch can have the size {size}", scan.consumed)
    if has_magic and rest[layout.MAGIC_OFFSET] > 2:
        magic = int(rest[layout.MAGIC_OFFSET : layout.MAGIC_OFFSET + 1].view(np.int8)[0])
        raise CorruptRecordError(_WHERE, f"unknown magic {magic}", scan.consumed)


# --- leader ---------------------------------------------------------------------------------------------


def validate_for_leader(
    analyzed: EncodedBatches,
    config: LogConfig,
    *,
    origin: AppendOrigin,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> EncodedBatches:
    """Returns the batch to write for client or coordinator batches, with offsets from `base_offset` on.

    `append_time_ms` is the current time, for timestamp checks and LogAppendTime. Raises InvalidRecordError,
    InvalidTimestampError or RecordTooLargeError; then nothing must be written.
    """
    batches = analyzed.batches
    codecs = batches["attributes"] & layout.CODEC_MASK
    if len(batches) > 1 and (batches["magic"].max() >= 2 or codecs.any()):
        raise InvalidRecordError(_WHERE, f"{len(batches)} batches in one append; a v2 or compressed append has one")
    if batches["magic"].min() != batches["magic"].max():
        raise InvalidRecordError(_WHERE, "the batches have different magic values")
    modern = int(batches["magic"][0]) == 2  # the bytes hold all attributes, the row only the meaningful ones
    header = RecordBatchHeader.read(analyzed.data) if modern else RecordBatchHeader.of_row(batches[0])
    if origin == AppendOrigin.CLIENT and header.magic == 2:
        _check_client_batch(header)
    records = _decoded(analyzed)
    _check_records(records, header, config, append_time_ms)
    if header.magic < 2:
        _check_inner_checksums(records, bool(codecs.any()))
    target = Compression(int(codecs.max()))
    # control batches stay as they are: the broker never compresses them
    if config.codec is not None and not (header.is_control and target == 0):
        target = config.codec
    expected = np.arange(len(records), dtype=np.int64) + header.base_offset
    consecutive = header.last_offset_delta + 1 == len(records) and bool((records.rows["offset"] == expected).all())
    if header.magic == 2 and target == header.codec and consecutive:
        return _in_place(analyzed, header, records, config, base_offset, leader_epoch, append_time_ms)
    return _rebuilt(records, header, target, config, base_offset, leader_epoch, append_time_ms)


def _check_client_batch(header: RecordBatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecordError(_WHERE, f"a client's batch starts at offset 0, this one at {header.base_offset}")
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        raise InvalidRecordError(
            _WHERE, f"{header.count} records, but offsets for {header.last_offset_delta + 1} of them"
        )
    if header.is_control:
        raise InvalidRecordError(_WHERE, "clients do not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecordError(_WHERE, f"producer {header.producer_id} without a sequence")


def _decoded(analyzed: EncodedBatches) -> Records:
    """Returns all records of the append in one table. Raises InvalidRecordError if a batch cannot be decoded."""
    parts = list(decode_records(analyzed.data, analyzed.batches, 0, limit=WHOLE_LIMIT))
    for part in parts:
        for i in np.flatnonzero(part.status):
            row = part.batches[i]
            raise InvalidRecordError(_WHERE, STATUS_REASONS[int(part.status[i])], int(row["position"]))
    return joined(parts)


def _check_records(records: Records, header: RecordBatchHeader, config: LogConfig, now_ms: int) -> None:
    rows = records.rows
    if len(rows) == 0:
        raise InvalidRecordError(_WHERE, "the append holds no records")
    if config.compact and not header.is_control and (rows["key_size"] < 0).any():
        missing = int(np.argmax(rows["key_size"] < 0))
        raise InvalidRecordError(_WHERE, f"record {missing} has no key, which a compacted topic requires")
    stamps = rows["timestamp"]
    if (stamps < NO_TIMESTAMP).any():
        raise InvalidTimestampError(f"timestamp {int(stamps.min())} is negative")
    check_timestamps(stamps, config, now_ms)
    carries_append_time = header.magic > 0 and header.timestamp_type == TimestampType.LOG_APPEND_TIME
    if carries_append_time and (config.message_timestamp_type != TimestampType.CREATE_TIME or (stamps == -1).any()):
        raise InvalidTimestampError("a producer's batch must not carry the log's append time")


def check_timestamps(stamps: np.ndarray, config: LogConfig, now_ms: int) -> None:
    """Raises InvalidTimestampError unless every timestamp (int64) lies within the accepted distance from now.

    Only for CreateTime; -1 is always accepted. Kafka: message.timestamp.before.max.ms, …after.max.ms (KIP-937).
    """
    if config.message_timestamp_type != TimestampType.CREATE_TIME or len(stamps) == 0:
        return
    newest = int(stamps.max())
    if newest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {newest} is more than {config.message_timestamp_after_max_ms} ms after now ({now_ms})"
        )
    if config.message_timestamp_before_max_ms >= now_ms + 1:
        return
    old = stamps[(stamps != NO_TIMESTAMP) & (stamps < now_ms - config.message_timestamp_before_max_ms)]
    if len(old):
        raise InvalidTimestampError(
            f"timestamp {int(old.min())} is more than {config.message_timestamp_before_max_ms} ms before now ({now_ms})"
        )


def _check_inner_checksums(records: Records, compressed: bool) -> None:
    """Checks the own checksums of messages inside a wrapper, which the wrapper's does not replace."""
    if not compressed:
        return
    view = byte_view(records.arena)
    for position, size in zip(records.rows["position"].tolist(), records.rows["size"].tolist(), strict=True):
        stored = int.from_bytes(view[position + layout.MESSAGE_CRC_OFFSET : position + layout.MAGIC_OFFSET], "big")
        if zlib.crc32(view[position + layout.MESSAGE_MAGIC_OFFSET : position + size]) != stored:
            raise CorruptRecordError(_WHERE, "the checksum of a message inside a wrapper is wrong")


def _in_place(
    analyzed: EncodedBatches,
    header: RecordBatchHeader,
    records: Records,
    config: LogConfig,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> EncodedBatches:
    """Changes the header and keeps the payload; computes the checksum again only if its range changed."""
    if config.message_timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes, max_timestamp = header.attributes | layout.TIMESTAMP_TYPE_MASK, append_time_ms
    else:
        attributes = header.attributes & ~layout.TIMESTAMP_TYPE_MASK
        max_timestamp = int(records.rows["timestamp"].max())
    written = replace(
        header,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        max_timestamp=max_timestamp,
    )
    data = analyzed.data
    written.write(data)
    if (attributes, max_timestamp) != (header.attributes, header.max_timestamp):
        crc = crc32c(byte_view(data)[layout.ATTRIBUTES_OFFSET :])
        replace(written, crc=crc).write(data)
    return EncodedBatches(data, scan_batches(data, 0, len(data), 0).batches)


def _rebuilt(
    records: Records,
    header: RecordBatchHeader,
    codec: Compression,
    config: LogConfig,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> EncodedBatches:
    """Builds one new v2 batch of the same records."""
    if header.is_control:
        raise InvalidRecordError(_WHERE, "a control batch cannot be rebuilt")
    if header.producer_id != NO_PRODUCER_ID and (header.producer_epoch < 0 or header.base_sequence < 0):
        reason = f"producer {header.producer_id} has epoch {header.producer_epoch}, sequence {header.base_sequence}"
        raise InvalidRecordError(_WHERE, f"{reason}: a batch with them cannot be rebuilt")
    append_time = append_time_ms if config.message_timestamp_type == TimestampType.LOG_APPEND_TIME else None
    options = BatchOptions(
        codec=codec,
        batch_bytes=layout.INT32_MAX,
        leader_epoch=leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.magic == 2 and header.is_transactional,
        append_time_ms=append_time,
        level=None if config.codec is None else config.compression_level(config.codec),
    )
    source = columns(records.arena, records.rows)
    (built,) = encode_columns(source, base_offset, options, piece_bytes=len(records.arena) + 64 * len(records) + 128)
    size, most = len(built.data), config.max_message_bytes
    if size > most:
        raise RecordTooLargeError(f"the rebuilt batch of {size} bytes is larger than max.message.bytes ({most})")
    return built


# --- follower -------------------------------------------------------------------------------------------


def validate_for_follower(analyzed: EncodedBatches, log_end_offset: int) -> None:
    """Checks that a follower may write these batches as they are.

    Raises OffsetsOutOfOrderError if last offsets do not ascend, UnexpectedAppendOffsetError if the first offset lies
    below `log_end_offset`, InvalidRecordError if a batch ends below its own base or has an epoch below -1.
    """
    batches = analyzed.batches
    disordered = np.flatnonzero(np.diff(batches["last_offset"]) <= 0)
    if len(disordered):
        row = batches[disordered[0] + 1]
        raise OffsetsOutOfOrderError(
            f"offsets {int(row['base_offset'])} to {int(row['last_offset'])} do not follow the batch before"
        )
    for row in batches[batches["leader_epoch"] < NO_LEADER_EPOCH]:
        raise InvalidRecordError(_WHERE, f"there is no leader epoch {int(row['leader_epoch'])}", int(row["position"]))
    for row in batches[(batches["base_offset"] < 0) | (batches["last_offset"] < batches["base_offset"])]:
        raise batch_error(InvalidRecordError, _WHERE, "the batch ends before it begins, or lies below 0", row)
    first = first_offset_of(analyzed, int(batches["base_offset"][0]))
    if first < log_end_offset:
        raise UnexpectedAppendOffsetError(
            f"the append starts at offset {first}, below the log end offset {log_end_offset}"
        )


def first_offset_of(analyzed: EncodedBatches, unknown: int) -> int:
    """Returns the offset of the first batch's first record; a compressed wrapper must be decoded for it."""
    row = analyzed.batches[:1]
    if row["magic"][0] >= 2 or not row["attributes"][0] & layout.CODEC_MASK:
        return int(row["base_offset"][0])
    records = next(decode_records(analyzed.data, row, 0))
    return int(records.rows["offset"][0]) if len(records) else unknown


# --- producers ------------------------------------------------------------------------------------------


def check_producer(
    producers: ProducerStateManager, batch: np.ndarray, origin: AppendOrigin, coordinator_epoch: int | None
) -> BatchMetadata | None:
    """Returns None if the batch (one row of layout.BATCH) may be written, or the batch that it duplicates.

    `coordinator_epoch` is a marker's. Raises ProducerFencedError, OutOfOrderSequenceError or
    InvalidTransactionStateError.
    """
    header = RecordBatchHeader.of_row(batch[0])
    state = producers.producers.get(header.producer_id)
    if state is None:
        _check_epoch(ProducerState(header.producer_id), header, coordinator_epoch)
        return None
    if origin == AppendOrigin.CLIENT:
        known = state.duplicate_of(header.producer_epoch, header.base_sequence, header.last_sequence)
        if known is not None:
            return known
    _check_epoch(state, header, coordinator_epoch)
    if header.is_control:
        return None
    if origin == AppendOrigin.CLIENT:
        _check_sequence(state, header)
    if state.in_transaction and not header.is_transactional:
        raise InvalidTransactionStateError(
            f"producer {header.producer_id} has a transaction open since offset"
            f" {state.transaction_first_offset}; a batch outside transactions cannot follow"
        )
    return None


def _check_epoch(state: ProducerState, header: RecordBatchHeader, coordinator_epoch: int | None) -> None:
    if header.producer_epoch < state.epoch:
        raise ProducerFencedError(
            f"producer {state.producer_id} is at epoch {state.epoch}; epoch {header.producer_epoch} is over"
        )
    if coordinator_epoch is not None and coordinator_epoch < state.coordinator_epoch:
        raise ProducerFencedError(
            f"producer {state.producer_id} had a marker of coordinator epoch {state.coordinator_epoch};"
            f" epoch {coordinator_epoch} is over"
        )


def _check_sequence(state: ProducerState, header: RecordBatchHeader) -> None:
    if state.epoch == NO_PRODUCER_EPOCH:
        return
    same_epoch = header.producer_epoch == state.epoch
    expected = state.next_sequence if same_epoch else 0
    if header.base_sequence != expected:
        raise OutOfOrderSequenceError(
            f"producer {state.producer_id} (epoch {header.producer_epoch}): sequence {header.base_sequence} came"
            f" where {expected} must follow"
        )
