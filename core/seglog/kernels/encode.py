"""Encodes record rows into v2 batches (Kafka: DefaultRecord.writeTo, MemoryRecordsBuilder).

One pass over the rows. For each record:

1. measure it (varints in their shortest form); check its spans against the arena, and its offset and timestamp against
   Kafka's rules;
2. if the batch is full (records or bytes), close it and begin another; if `out` is full, stop;
3. write length, deltas and spans; copy the encoded headers, which go from `headers_position` to the record's end.

Closing a batch writes its 61-byte header in front of the records, the checksum if asked for, and a row of
`layout.BATCH`.
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import copy_bytes, inlined, kernel, store_byte, store_int16, store_int32, store_int64
from seglog.kernels.arrays import (
    Batches,
    BatchRow,
    Bytes,
    RecordRow,
    Records,
    WritableBatches,
    WritableBatchRow,
    WritableBytes,
)
from seglog.kernels.crc32c import crc32c
from seglog.kernels.varint import varint_size, write_varint
from seglog.model import NO_SEQUENCE, NO_TIMESTAMP

# Why encoding stopped.
ENCODE_COMPLETE = 0
ENCODE_FULL = 1  # no room in `out` or `batches` for the next batch
SPAN_INVALID = 2  # a key, value or header span that leaves the arena
TIMESTAMP_INVALID = 3  # a negative timestamp other than -1
OFFSET_INVALID = 4  # offsets that do not ascend, or are too far from the base offset
KEY_MISSING = 5

_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_LOG_OVERHEAD = layout.LOG_OVERHEAD
_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK
_ATTRIBUTES = layout.ATTRIBUTES_OFFSET
_INT32_MAX = layout.INT32_MAX
_INT64_MAX = layout.INT64_MAX

# Most bytes of a record's varints and attributes: length, timestamp delta, offset delta, key size, value size, header
# count; all but the timestamp delta are of 32 bits.
_MOST_RECORD_OVERHEAD = 5 * layout.MAX_VARINT_BYTES + layout.MAX_VARLONG_BYTES + layout.RECORD_ATTRIBUTES_BYTES


@kernel
def _span_valid(position: int, size: int, end: int) -> bool:
    return size <= 0 or (position >= 0 and position <= end and size <= end - position)


@kernel
def _headers_size(row: RecordRow) -> int:
    """Returns the bytes of the encoded headers, which end where the record does; negative if the row is invalid."""
    if row["header_count"] <= 0:
        return 0
    return int(row["position"]) + int(row["size"]) - int(row["headers_position"])


@inlined
def _body_size(row: RecordRow, timestamp_delta: int, offset_delta: int, end: int) -> int:
    """Returns the bytes of the record after its length varint, or -1 if a span leaves the arena of `end` bytes."""
    key_size = int(row["key_size"])
    value_size = int(row["value_size"])
    header_count = int(row["header_count"])
    headers_size = _headers_size(row)
    if headers_size < 2 * header_count or header_count < 0 or key_size < -1 or value_size < -1:
        return -1
    if not (
        _span_valid(int(row["key_position"]), key_size, end)
        and _span_valid(int(row["value_position"]), value_size, end)
        and _span_valid(int(row["headers_position"]), headers_size, end)
    ):
        return -1
    sizes = varint_size(key_size) + varint_size(value_size) + varint_size(header_count)
    deltas = varint_size(timestamp_delta) + varint_size(offset_delta)
    return layout.RECORD_ATTRIBUTES_BYTES + deltas + sizes + max(key_size, 0) + max(value_size, 0) + headers_size


@kernel
def _write_record(
    arena: Bytes,
    row: RecordRow,
    timestamp_delta: int,
    offset_delta: int,
    body_size: int,
    out: WritableBytes,
    p: int,
) -> int:
    """Writes one measured record at `p`; returns the index after it."""
    p = write_varint(out, p, body_size)
    store_byte(out, p, 0)  # attributes: unused
    p = write_varint(out, p + layout.RECORD_ATTRIBUTES_BYTES, timestamp_delta)
    p = write_varint(out, p, offset_delta)
    key_size = int(row["key_size"])
    p = write_varint(out, p, key_size)
    if key_size > 0:
        copy_bytes(arena, int(row["key_position"]), out, p, key_size)
        p += key_size
    value_size = int(row["value_size"])
    p = write_varint(out, p, value_size)
    if value_size > 0:
        copy_bytes(arena, int(row["value_position"]), out, p, value_size)
        p += value_size
    p = write_varint(out, p, int(row["header_count"]))
    headers_size = _headers_size(row)
    if headers_size > 0:
        copy_bytes(arena, int(row["headers_position"]), out, p, headers_size)
        p += headers_size
    return p


@kernel
def write_batch_header(out: WritableBytes, p: int, row: BatchRow) -> None:
    """Writes the 61-byte header that `row` (layout.BATCH, magic 2) describes at `p`. The caller checks the bounds."""
    store_int64(out, p + layout.BASE_OFFSET_OFFSET, row["base_offset"])
    store_int32(out, p + layout.LENGTH_OFFSET, int(row["size"]) - _LOG_OVERHEAD)
    store_int32(out, p + layout.PARTITION_LEADER_EPOCH_OFFSET, int(row["leader_epoch"]))
    store_byte(out, p + layout.MAGIC_OFFSET, 2)
    store_int32(out, p + layout.CRC_OFFSET, row["crc"])
    store_int16(out, p + layout.ATTRIBUTES_OFFSET, int(row["attributes"]))
    store_int32(out, p + layout.LAST_OFFSET_DELTA_OFFSET, row["last_offset"] - row["base_offset"])
    store_int64(out, p + layout.BASE_TIMESTAMP_OFFSET, row["base_timestamp"])
    store_int64(out, p + layout.MAX_TIMESTAMP_OFFSET, row["max_timestamp"])
    store_int64(out, p + layout.PRODUCER_ID_OFFSET, row["producer_id"])
    store_int16(out, p + layout.PRODUCER_EPOCH_OFFSET, int(row["producer_epoch"]))
    store_int32(out, p + layout.BASE_SEQUENCE_OFFSET, int(row["base_sequence"]))
    store_int32(out, p + layout.RECORDS_COUNT_OFFSET, int(row["count"]))


@kernel
def seal_batch(out: WritableBytes, p: int, row: WritableBatchRow, checksum: bool) -> None:
    """Writes the header in front of a batch's records; with `checksum`, also the CRC-32C."""
    row["crc"] = 0
    write_batch_header(out, p, row)
    if checksum:
        crc = crc32c(out, p + _ATTRIBUTES, p + int(row["size"]))
        row["crc"] = crc
        store_int32(out, p + layout.CRC_OFFSET, crc)


@kernel
def seal_batches(out: WritableBytes, batches: WritableBatches, checksum: bool) -> None:
    """Calls `seal_batch` for every row; positions are indexes in `out`, which is large enough."""
    for i in range(len(batches)):
        seal_batch(out, int(batches[i]["position"]), batches[i], checksum)


@kernel
def _begin_batch(row: WritableBatchRow, template: BatchRow, position: int, done: int, base_offset: int) -> None:
    """Opens a batch row; its sequence comes after the `done` records of this append that precede it."""
    row["position"] = position
    row["base_offset"] = base_offset
    row["last_offset"] = base_offset
    row["base_timestamp"] = NO_TIMESTAMP
    row["max_timestamp"] = NO_TIMESTAMP
    row["producer_id"] = template["producer_id"]
    row["crc"] = 0
    row["size"] = _OVERHEAD
    row["count"] = 0
    row["leader_epoch"] = template["leader_epoch"]
    sequence = int(template["base_sequence"])
    row["base_sequence"] = NO_SEQUENCE if sequence < 0 else (sequence + done) & _INT32_MAX
    row["producer_epoch"] = template["producer_epoch"]
    row["attributes"] = template["attributes"]
    row["magic"] = 2


@kernel
def _end_batch(out: WritableBytes, row: WritableBatchRow, template: BatchRow, end: int, checksum: bool) -> None:
    row["size"] = end - row["position"]
    if int(row["attributes"]) & _TIMESTAMP_TYPE_MASK != 0:
        row["max_timestamp"] = template["max_timestamp"]
    seal_batch(out, int(row["position"]), row, checksum)


@kernel
def encode_batches(
    arena: Bytes,
    rows: Records,
    first: int,
    template: Batches,
    most_records: int,
    most_bytes: int,
    consecutive: bool,
    checksum: bool,
    out: WritableBytes,
    batches: WritableBatches,
) -> tuple[int, int, int, int]:
    """Encodes `rows[first:]` into as many batches as fit `out` (uint8) and `batches` (layout.BATCH).

    `template` (one row) gives base offset, leader epoch, producer, sequence, attributes and, for append time,
    the max timestamp. With `consecutive`, records are numbered from the template's base offset; otherwise they keep the
    rows' offsets: the first batch then starts at the template's base offset, each later one at its first record.
    `most_bytes` limits a batch before compression, header included, but every batch takes at least one record.
    Positions in `batches` are indexes in `out`. A batch that does not fit `out` whole is left for the next call.
    Returns (row after the last one encoded, bytes, batches, status).
    """
    end = len(arena)
    head = template[0]
    count_done = 0  # batches closed
    p = 0  # index after the last closed batch
    done = first  # row after the last closed batch
    at = 0
    open_batch = False
    i = first
    while i < len(rows):
        row = rows[i]
        timestamp = int(row["timestamp"])
        offset = int(head["base_offset"]) + (i - first) if consecutive else int(row["offset"])
        if timestamp < -1:
            return done, p, count_done, TIMESTAMP_INVALID
        if not open_batch:
            if count_done == len(batches) or len(out) - p < _OVERHEAD:
                return done, p, count_done, ENCODE_FULL
            base_offset = offset if i > first else int(head["base_offset"])
            _begin_batch(batches[count_done], head, p, i - first, base_offset)
            batches[count_done]["base_timestamp"] = timestamp
            at = p + _OVERHEAD
            open_batch = True
        batch = batches[count_done]
        delta = offset - int(batch["base_offset"])
        started = batch["count"] > 0
        if delta < 0 or delta > _INT32_MAX or (started and offset <= batch["last_offset"]):
            return done, p, count_done, OFFSET_INVALID
        timestamp_delta = timestamp - int(batch["base_timestamp"])
        body_size = _body_size(row, timestamp_delta, delta, end)
        if body_size < 0:
            return done, p, count_done, SPAN_INVALID
        size = varint_size(body_size) + body_size
        if started and (batch["count"] >= most_records or at + size - p > most_bytes):
            _end_batch(out, batch, head, at, checksum)
            p, done, open_batch = at, i, False
            count_done += 1
            continue
        if size > len(out) - at:
            return done, p, count_done, ENCODE_FULL
        at = _write_record(arena, row, timestamp_delta, delta, body_size, out, at)
        batch["count"] += 1
        batch["last_offset"] = offset
        batch["max_timestamp"] = max(int(batch["max_timestamp"]), timestamp)
        i += 1
    if open_batch:
        _end_batch(out, batches[count_done], head, at, checksum)
        return i, at, count_done + 1, ENCODE_COMPLETE
    return i, p, count_done, ENCODE_COMPLETE


@kernel
def encoded_bound(rows: Records, first: int, last: int) -> int:
    """Returns an upper bound of the bytes of `rows[first:last]` encoded, without batch headers."""
    total = 0
    for i in range(first, last):
        row = rows[i]
        spans = max(int(row["key_size"]), 0) + max(int(row["value_size"]), 0) + max(_headers_size(row), 0)
        total += spans + _MOST_RECORD_OVERHEAD
    return total


@kernel
def check_rows(arena_size: int, rows: Records, key_required: bool) -> tuple[int, int, int, int, int]:
    """Checks rows before any of them is encoded, so that an append is refused as a whole.

    Returns (status, row it is about, smallest timestamp other than -1, largest timestamp, bytes of the largest batch
    that holds one record). The timestamps are -1 if no row has one. KEY_MISSING comes only with `key_required`.
    """
    smallest = _INT64_MAX
    largest = -1
    most = 0
    for i in range(len(rows)):
        row = rows[i]
        timestamp = int(row["timestamp"])
        if timestamp < -1:
            return TIMESTAMP_INVALID, i, -1, -1, 0
        if key_required and row["key_size"] < 0:
            return KEY_MISSING, i, -1, -1, 0
        body_size = _body_size(row, 0, 0, arena_size)
        if body_size < 0:
            return SPAN_INVALID, i, -1, -1, 0
        if timestamp >= 0:
            smallest = min(smallest, timestamp)
            largest = max(largest, timestamp)
        most = max(most, body_size)
    if largest < 0:
        smallest = -1
    return ENCODE_COMPLETE, 0, smallest, largest, _OVERHEAD + varint_size(most) + most
