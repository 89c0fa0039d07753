"""Writes the rest of a v2 batch (Kafka: MemoryRecords.filterTo, buildRetainedRecordsInto, writeEmptyHeader).

The rows of `kept` say where each record to keep begins. The base timestamp is the delete horizon if there is one, else
the first kept record's timestamp. Records are copied; only where a timestamp delta changes are length and delta written
anew.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import (
    copy_bytes,
    inlined,
    kernel,
    load_int32,
    move_bytes,
    store_byte,
    store_int32,
)
from seglog.kernels.arrays import BatchRow, Bytes, Int64s, WritableBatchRow, WritableBytes, WritableInt64s
from seglog.kernels.encode import seal_batch
from seglog.kernels.filter_slots import (
    BATCHES_EMPTIED,
    BATCHES_REBUILT,
    BATCHES_VERBATIM,
    COMPRESSED,
    HORIZONS_SET,
    IN_PLACE,
    NEW_HORIZON,
    RECORDS_WRITTEN,
    STAMP_MARKER,
    TOMBSTONES_KEPT,
)
from seglog.kernels.records import RECORDS_VALID
from seglog.kernels.spans import read_record
from seglog.kernels.varint import read_varint, read_varlong, varint_size, write_varint
from seglog.model import NO_TIMESTAMP

# How a batch was written (values of the caller's `actions`).
VERBATIM = 0
EMPTY = 1
REBUILT = 2

# A row of `kept` is an int32: where a record begins. The rest is read from the record once more. Rows must be small: a
# large batch has one for each record in addition to its payload. No arena has 2 GiB.
KEPT_ROW_BYTES = 4

# Most bytes that a new timestamp delta and the longer length add to a record. Where records are rebuilt in place, this
# many bytes per record are free in front of them.
MOST_GROWTH = 12

_APPEND_TIME = layout.TIMESTAMP_TYPE_MASK
_HORIZON = layout.DELETE_HORIZON_MASK
_EMPTY_ATTRIBUTES = layout.TIMESTAMP_TYPE_MASK | layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK
_REBUILT_ATTRIBUTES = _EMPTY_ATTRIBUTES | layout.CODEC_MASK
_OVERHEAD = layout.RECORD_BATCH_OVERHEAD


@inlined
def keep_row(kept: WritableBytes, n: int, start: int) -> None:
    """Fills row `n` of the records to keep with the one at `start`, which `read_record` has accepted."""
    store_int32(kept, n * KEPT_ROW_BYTES, start)


@inlined
def _kept_record(arena: Bytes, kept: Bytes, n: int) -> tuple[int, int, int, int]:
    """Returns (start, end, timestamp delta, position after that delta) of the record in row `n`."""
    start = load_int32(kept, n * KEPT_ROW_BYTES)
    length, body = read_varint(arena, start, len(arena))
    stop = body + length
    delta, rest = read_varlong(arena, body + layout.RECORD_ATTRIBUTES_BYTES, stop)
    return start, stop, delta, rest


@kernel
def _lead(arena: Bytes, start: int, kept: Bytes, n: int, row: BatchRow, base: int) -> int:
    """Returns how far before `start`, where the first record begins, rebuilding in place must begin to write.

    No record then overwrites one that is still to be read.
    """
    append_time = int(row["attributes"]) & _APPEND_TIME != 0
    old_base = np.int64(row["base_timestamp"])
    latest = np.int64(row["max_timestamp"])
    written = 0
    lead = 0
    for k in range(n):
        begin, stop, delta, rest = _kept_record(arena, kept, k)
        changed = (latest if append_time else old_base + delta) - base
        if changed == delta:
            written += stop - begin
        else:
            length = layout.RECORD_ATTRIBUTES_BYTES + varint_size(changed) + stop - rest
            written += varint_size(length) + length
        lead = max(lead, written - (stop - start))
    return lead


@kernel
def _rebuild_records(
    arena: Bytes,
    start: int,
    kept: Bytes,
    n: int,
    row: BatchRow,
    out: WritableBytes,
    p: int,
    in_place: bool,
    rebuilt: WritableBatchRow,
) -> int:
    """Writes the kept records at `p`, and timestamps and count into `rebuilt`; returns the index after them.

    `row` is the source batch, whose records begin at `start`. `rebuilt["base_timestamp"]` holds the delete horizon if
    the attributes of `rebuilt` say so. With `in_place`, `out` is the arena; the function then chooses the position
    itself and stores it in `rebuilt["position"]`.
    """
    append_time = int(row["attributes"]) & _APPEND_TIME != 0
    old_base = np.int64(row["base_timestamp"])  # sums wrap, as in Kafka
    latest = np.int64(row["max_timestamp"])
    if int(rebuilt["attributes"]) & _HORIZON == 0:
        _, _, first_delta, _ = _kept_record(arena, kept, 0)
        rebuilt["base_timestamp"] = latest if append_time else old_base + first_delta
    base = np.int64(rebuilt["base_timestamp"])
    if in_place:
        p = start - _lead(arena, start, kept, n, row, base)
        rebuilt["position"] = p
    most = np.int64(NO_TIMESTAMP)
    for k in range(n):
        begin, stop, delta, rest = _kept_record(arena, kept, k)
        timestamp = latest if append_time else old_base + delta
        most = max(most, timestamp)
        if timestamp - base == delta:
            move_bytes(arena, begin, out, p, stop - begin)
            p += stop - begin
        else:
            p = write_varint(out, p, layout.RECORD_ATTRIBUTES_BYTES + varint_size(timestamp - base) + stop - rest)
            store_byte(out, p, 0)
            p = write_varint(out, p + layout.RECORD_ATTRIBUTES_BYTES, timestamp - base)
            move_bytes(arena, rest, out, p, stop - rest)
            p += stop - rest
    rebuilt["max_timestamp"] = latest if append_time else most
    rebuilt["count"] = n
    return p


@inlined
def _begin(row: BatchRow, position: int, out: WritableBatchRow) -> None:
    """Fills a row of the output with the source batch's fields and the new position."""
    out["position"] = position
    out["base_offset"] = row["base_offset"]
    out["last_offset"] = row["last_offset"]
    out["base_timestamp"] = row["base_timestamp"]
    out["max_timestamp"] = row["max_timestamp"]
    out["producer_id"] = row["producer_id"]
    out["crc"] = row["crc"]
    out["size"] = row["size"]
    out["count"] = row["count"]
    out["leader_epoch"] = row["leader_epoch"]
    out["base_sequence"] = row["base_sequence"]
    out["producer_epoch"] = row["producer_epoch"]
    out["attributes"] = row["attributes"]
    out["magic"] = row["magic"]


@kernel
def write_batch(
    data: Bytes,
    data_position: int,
    arena: Bytes,
    start: int,
    row: BatchRow,
    flags: int,
    kept: Bytes,
    n: int,
    tombstones: int,
    settings: Int64s,
    out: WritableBytes,
    at: int,
    target: WritableBatchRow,
    counters: WritableInt64s,
) -> tuple[int, int]:
    """Writes the rest of a batch at `at`, and its row to `target`; returns (index after it, action).

    The batch's payload begins at `start`.
    """
    compressed = settings[COMPRESSED] != 0
    attributes = int(row["attributes"])
    stamped = attributes & _HORIZON != 0
    stamp = (tombstones > 0 or flags & STAMP_MARKER != 0) and not stamped
    _begin(row, at, target)
    counters[RECORDS_WRITTEN] += n
    counters[TOMBSTONES_KEPT] += tombstones
    if n == 0:
        counters[BATCHES_EMPTIED] += 1
        target["base_timestamp"] = NO_TIMESTAMP
        target["size"] = _OVERHEAD
        target["count"] = 0
        target["attributes"] = attributes & _EMPTY_ATTRIBUTES
        seal_batch(out, at, target, True)
        return at + _OVERHEAD, EMPTY
    if n == int(row["count"]) and not stamp:
        counters[BATCHES_VERBATIM] += 1
        if compressed:
            return at, VERBATIM
        copy_bytes(data, data_position, out, at, int(row["size"]))
        return at + int(row["size"]), VERBATIM
    counters[BATCHES_REBUILT] += 1
    stamp = stamp and settings[NEW_HORIZON] >= 0  # a horizon that no clock can reach is not written
    if stamp:
        counters[HORIZONS_SET] += 1
        target["base_timestamp"] = settings[NEW_HORIZON]
    target["attributes"] = attributes & _REBUILT_ATTRIBUTES | (_HORIZON if stamp or stamped else 0)
    if compressed:
        stop = _rebuild_records(arena, start, kept, n, row, out, at, settings[IN_PLACE] != 0, target)
        target["size"] = stop - target["position"]
        return stop, REBUILT
    stop = _rebuild_records(arena, start, kept, n, row, out, at + _OVERHEAD, False, target)
    target["size"] = stop - at
    seal_batch(out, at, target, True)
    return stop, REBUILT


@kernel
def stamp_records(
    arena: Bytes, start: int, end: int, row: BatchRow, kept: WritableBytes, out: WritableBytes, target: WritableBatchRow
) -> tuple[int, int]:
    """Rewrites all records of a batch relative to the delete horizon in `target["base_timestamp"]`.

    `target["attributes"]` has the delete horizon bit set. Returns (index after the records in `out`, record status).
    """
    count = int(row["count"])
    p = start
    for n in range(count):
        status, stop, _, _, _, _, _, _, _ = read_record(arena, p, end)
        if status != RECORDS_VALID:
            return 0, status
        keep_row(kept, n, p)
        p = stop
    return _rebuild_records(arena, start, kept, count, row, out, 0, False, target), RECORDS_VALID
