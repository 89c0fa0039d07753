"""Checks the rules that batches and records must keep (specification §10.6), and finds where an entry may begin.

Broken rules are reported as bits. `judge_batches` looks at headers, with a small state array that is passed from call
to call; `judge_rows` looks at decoded records. `find_entry` resynchronises past damage.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import inlined, kernel, load_byte, load_int8, load_int32, load_int64, load_uint32
from seglog.kernels.arrays import Batches, BatchRow, Bools, Bytes, Int8s, Records, WritableBatches, WritableInt64s
from seglog.kernels.batches import WALK_COMPLETE, WALK_PARTIAL, header_valid, walk_batches
from seglog.kernels.crc32c import crc32c
from seglog.kernels.legacy import crc32
from seglog.kernels.records import RECORDS_VALID
from seglog.kernels.spans import read_record
from seglog.model import NO_LEADER_EPOCH, NO_TIMESTAMP

# Bits of a header.
OFFSETS_NOT_ASCENDING = 1 << 0
OFFSET_OUT_OF_SEGMENT = 1 << 1
MAGIC_UNKNOWN = 1 << 2
CODEC_UNKNOWN = 1 << 3
OFFSET_DELTA_INVALID = 1 << 4
COUNT_INVALID = 1 << 5
PRODUCER_INVALID = 1 << 6
CONTROL_INVALID = 1 << 7
LEADER_EPOCH_DECREASING = 1 << 8
TIMESTAMP_NEGATIVE = 1 << 9

# Bits of a batch's records.
RECORD_OFFSETS_INVALID = 1 << 16
RECORD_TIMESTAMP_ABOVE_MAX = 1 << 17
RECORD_COUNT_DIFFERS = 1 << 18

# State of `judge_batches` (int64).
STATE_LAST_OFFSET = 0  # the last offset so far
STATE_LEADER_EPOCH = 1  # the highest leader epoch so far
STATE_BATCHES = 2
STATE_RECORDS = 3
STATE_FIRST_OFFSET = 4
STATE_SIZE = 5

_LOG_OVERHEAD = layout.LOG_OVERHEAD
_RECORD_BATCH_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_SIZE_BYTES = layout.MESSAGE_SIZE_BYTES
_CODEC_MASK = layout.CODEC_MASK
_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK
_TRANSACTIONAL_MASK = layout.TRANSACTIONAL_MASK
_CONTROL_MASK = layout.CONTROL_MASK


@kernel
def _judge_record_batch(batch: BatchRow) -> int:
    """Returns the bits of a single v2 header."""
    bits = 0
    attributes = int(batch["attributes"])
    count = int(batch["count"])
    delta = int(batch["last_offset"]) - int(batch["base_offset"])
    if attributes & _CODEC_MASK > layout.LAST_CODEC:
        bits |= CODEC_UNKNOWN
    if delta < 0:
        bits |= OFFSET_DELTA_INVALID
    if count < 0 or count > max(delta, 0) + 1:
        bits |= COUNT_INVALID
    control = attributes & _CONTROL_MASK != 0
    producer = int(batch["producer_id"])
    if control and count > 1 and producer >= 0:  # a marker; KRaft's batches have several records, and no producer
        bits |= CONTROL_INVALID
    if producer < 0:
        if attributes & _TRANSACTIONAL_MASK != 0:
            bits |= PRODUCER_INVALID
    elif batch["producer_epoch"] < 0 or (not control and batch["base_sequence"] < 0):
        bits |= PRODUCER_INVALID
    return bits


@inlined
def _judge_batch(batch: BatchRow, least_offset: int, most_offset: int, state: WritableInt64s) -> int:
    """Returns the bits of a header that follows those in `state`, and updates `state`."""
    bits = 0
    magic = int(batch["magic"])
    base, last = int(batch["base_offset"]), int(batch["last_offset"])
    if magic == 2:
        bits = _judge_record_batch(batch)
    elif magic < 0 or magic > 2:
        bits = MAGIC_UNKNOWN
    elif int(batch["attributes"]) & _CODEC_MASK > layout.LAST_MESSAGE_CODEC:
        bits = CODEC_UNKNOWN
    if base < least_offset or last > most_offset:
        bits |= OFFSET_OUT_OF_SEGMENT
    if base <= state[STATE_LAST_OFFSET]:
        bits |= OFFSETS_NOT_ASCENDING
    if batch["max_timestamp"] < NO_TIMESTAMP:
        bits |= TIMESTAMP_NEGATIVE
    epoch = int(batch["leader_epoch"])
    if magic == 2 and epoch != NO_LEADER_EPOCH and epoch < state[STATE_LEADER_EPOCH]:
        bits |= LEADER_EPOCH_DECREASING
    state[STATE_LEADER_EPOCH] = max(state[STATE_LEADER_EPOCH], epoch)
    if bits & (OFFSET_OUT_OF_SEGMENT | OFFSETS_NOT_ASCENDING | OFFSET_DELTA_INVALID) == 0:
        state[STATE_LAST_OFFSET] = last
        if state[STATE_FIRST_OFFSET] < 0:
            state[STATE_FIRST_OFFSET] = base
    state[STATE_BATCHES] += 1
    state[STATE_RECORDS] += max(int(batch["count"]), 0) if magic >= 2 else 1
    return bits


@kernel
def judge_batches(
    batches: Batches,
    valid: Bools,
    least_offset: int,
    most_offset: int,
    state: WritableInt64s,
    out: WritableInt64s,
) -> int:
    """Fills `out` (int64, one per batch) with the rules that each header breaks; returns the number of such batches.

    Offsets must lie in [`least_offset`, `most_offset`]. Batches that are not `valid` (their checksum is wrong) are
    skipped and leave the state alone.
    """
    flagged = 0
    for i in range(len(batches)):
        bits = _judge_batch(batches[i], least_offset, most_offset, state) if valid[i] else 0
        out[i] = bits
        if bits != 0:
            flagged += 1
    return flagged


@kernel
def judge_rows(rows: Records, batches: Batches, status: Int8s, last_offset: int, out: WritableInt64s) -> int:
    """Fills `out` (int64, one per batch) with the rules that each batch's decoded records break.

    `last_offset` is that of the previous batch, which legacy inner messages must exceed (int64 minimum: unknown).
    Returns the number of batches that break a rule.
    """
    flagged = 0
    r = 0
    for i in range(len(batches)):
        batch = batches[i]
        bits = 0
        magic = int(batch["magic"])
        least = int(batch["base_offset"]) if magic >= 2 else last_offset + 1
        most = int(batch["last_offset"])
        bounded = int(batch["attributes"]) & _TIMESTAMP_TYPE_MASK == 0 and magic > 0
        max_timestamp = int(batch["max_timestamp"])
        first = r
        while r < len(rows) and int(rows[r]["batch"]) == i:
            offset = int(rows[r]["offset"])
            if offset < least or offset > most:
                bits |= RECORD_OFFSETS_INVALID
            least = offset + 1
            if bounded and int(rows[r]["timestamp"]) > max_timestamp:
                bits |= RECORD_TIMESTAMP_ABOVE_MAX
            r += 1
        if status[i] == RECORDS_VALID and magic >= 2 and r - first != int(batch["count"]):
            bits |= RECORD_COUNT_DIFFERS
        if most > last_offset:
            last_offset = most
        out[i] = bits
        if bits != 0:
            flagged += 1
    return flagged


@inlined
def _checksum_right(data: Bytes, start: int, end: int) -> bool:
    """True if the checksum of the entry `data[start:end]` is the one stored in it."""
    if load_int8(data, start + layout.MAGIC_OFFSET) >= 2:
        return bool(crc32c(data, start + layout.ATTRIBUTES_OFFSET, end) == load_uint32(data, start + layout.CRC_OFFSET))
    stored = load_uint32(data, start + layout.MESSAGE_CRC_OFFSET)
    return bool(crc32(data, start + layout.MESSAGE_MAGIC_OFFSET, end) == stored)


@kernel
def _records_right(data: Bytes, p: int, end: int, batch: BatchRow) -> bool:
    """True if `data[p:end]` holds the records of an uncompressed batch, and they keep the rules of `judge_rows`."""
    count = int(batch["count"])
    base_offset, base_timestamp = np.int64(batch["base_offset"]), np.int64(batch["base_timestamp"])
    last_offset, max_timestamp = int(batch["last_offset"]), int(batch["max_timestamp"])
    bounded = int(batch["attributes"]) & _TIMESTAMP_TYPE_MASK == 0
    least = base_offset
    for _ in range(count):
        status, p, timestamp_delta, _, delta, _, _, _, _ = read_record(data, p, end)
        offset = base_offset + delta
        if status != RECORDS_VALID or offset < least or offset > last_offset:
            return False
        if bounded and base_timestamp + timestamp_delta > max_timestamp:
            return False
        least = offset + 1
    return count == 0 or p == end


@kernel
def walk_clean(
    data: Bytes,
    end: int,
    file_position: int,
    checksums: bool,
    records: bool,
    least_offset: int,
    most_offset: int,
    rows: WritableBatches,
    state: WritableInt64s,
) -> tuple[int, bool]:
    """Walks `data[:end]` while everything is right: framing, the rules of `judge_batches`, and on request checksums
    and records.

    `rows` (layout.BATCH) is scratch. Returns (bytes of whole entries, True if neither they nor what follows them is
    wrong). An entry that continues after `end` is not wrong. With `records`, a compressed entry or one of magic 0 or 1
    is, because its records are not checked here.
    """
    p = 0
    while p < end:
        count, stop, status = walk_batches(data, p, end, file_position + p, rows)
        for i in range(count):
            if _judge_batch(rows[i], least_offset, most_offset, state) != 0:
                return p, False
        if checksums:
            for i in range(count):
                start = int(rows[i]["position"]) - file_position
                if not _checksum_right(data, start, start + int(rows[i]["size"])):
                    return p, False
        if records:
            for i in range(count):
                if int(rows[i]["magic"]) != 2 or int(rows[i]["attributes"]) & _CODEC_MASK != 0:
                    return p, False
                start = int(rows[i]["position"]) - file_position
                if not _records_right(data, start + _RECORD_BATCH_OVERHEAD, start + int(rows[i]["size"]), rows[i]):
                    return p, False
        p = stop
        if status in (WALK_PARTIAL, WALK_COMPLETE):
            return p, True
        if count == 0:
            return p, False
    return p, True


@kernel
def _plausible_record_batch(data: Bytes, p: int, room: int, least_offset: int, most_offset: int) -> bool:
    size = load_int32(data, p + layout.LENGTH_OFFSET) + _LOG_OVERHEAD
    if size < _RECORD_BATCH_OVERHEAD or size > room:
        return False
    base_offset = load_int64(data, p + layout.BASE_OFFSET_OFFSET)
    if base_offset < least_offset or base_offset > most_offset:
        return False
    delta = load_int32(data, p + layout.LAST_OFFSET_DELTA_OFFSET)
    if delta < 0 or delta > most_offset - base_offset:
        return False
    count = load_int32(data, p + layout.RECORDS_COUNT_OFFSET)
    codec = load_byte(data, p + layout.ATTRIBUTES_LOW_OFFSET) & _CODEC_MASK
    return bool(codec <= layout.LAST_CODEC and 0 <= count <= delta + 1)


@kernel
def _plausible_message(
    data: Bytes, p: int, end: int, room: int, magic: int, least_offset: int, most_offset: int
) -> bool:
    overhead = layout.MESSAGE_V0_OVERHEAD if magic == 0 else layout.MESSAGE_V1_OVERHEAD
    length = load_int32(data, p + layout.SIZE_OFFSET)
    if length < overhead or length + _LOG_OVERHEAD > room:
        return False
    offset = load_int64(data, p + layout.OFFSET_OFFSET)
    if offset < least_offset or offset > most_offset:
        return False
    if load_byte(data, p + layout.MESSAGE_ATTRIBUTES_OFFSET) & _CODEC_MASK > layout.LAST_MESSAGE_CODEC:
        return False
    key_at = p + (layout.MESSAGE_V0_KEY_SIZE_OFFSET if magic == 0 else layout.MESSAGE_V1_KEY_SIZE_OFFSET)
    key_size = load_int32(data, key_at)
    if key_size < -1 or key_size > length - overhead:
        return False
    value_at = key_at + _SIZE_BYTES + max(key_size, 0)
    if value_at + _SIZE_BYTES > end:
        return True  # the value lies after the buffer: the checksum will tell
    value_size = load_int32(data, value_at)
    return bool(value_size >= -1 and max(key_size, 0) + max(value_size, 0) + overhead == length)


@kernel
def find_entry(data: Bytes, start: int, end: int, beyond: int, least_offset: int, most_offset: int) -> int:
    """Finds the first place in `data[start:end]` where an entry may begin that ends at most `beyond` bytes after `end`.

    Only headers are checked, and only if all 61 bytes of a batch's (34 of a message's) lie before `end`. Offsets must
    lie in [`least_offset`, `most_offset`]. Returns -1 if there is no such place.
    """
    p = start - 1
    while p < end - _LOG_OVERHEAD - layout.MESSAGE_V1_OVERHEAD:
        p += 1
        if load_int64(data, p + layout.SIZE_OFFSET) == 0:
            p += 4  # no entry has size 0, and eight zero bytes in a row hold the sizes of five places
            continue
        magic = load_byte(data, p + layout.MAGIC_OFFSET)
        if magic > 2:
            continue
        room = end - p + beyond
        if magic == 2:
            if p + _RECORD_BATCH_OVERHEAD <= end and _plausible_record_batch(data, p, room, least_offset, most_offset):
                return p
        elif _plausible_message(data, p, end, room, magic, least_offset, most_offset):
            return p
    # The shortest message of magic 0 is 8 bytes shorter than one of magic 1. It matters only at the end of the file.
    if beyond == 0:
        least = max(start, end - _LOG_OVERHEAD - layout.MESSAGE_V1_OVERHEAD + 1)
        for p in range(least, end - _LOG_OVERHEAD - layout.MESSAGE_V0_OVERHEAD + 1):
            if load_byte(data, p + layout.MAGIC_OFFSET) == 0 and _plausible_message(
                data, p, end, end - p, 0, least_offset, most_offset
            ):
                return p
    return -1


@kernel
def find_good_entry(
    data: Bytes, start: int, end: int, beyond: int, least_offset: int, most_offset: int, work: int
) -> tuple[int, bool, int]:
    """Finds the next plausible entry (`find_entry`) whose checksum is right, as far as it lies in `data[:end]`.

    `work` limits the bytes to checksum; candidates larger than its rest are skipped. Returns (position or -1, True if
    the checksum is right, work left). The caller must check a candidate that continues after `end`.
    """
    p = start
    while True:
        p = find_entry(data, p, end, beyond, least_offset, most_offset)
        if p < 0:
            return -1, False, work
        size = load_int32(data, p + layout.SIZE_OFFSET) + _LOG_OVERHEAD
        if size <= work:
            if size > end - p:
                return p, False, work
            work -= size
            if header_valid(data, p, size) and _checksum_right(data, p, p + size):
                return p, True, work
        p += 1
