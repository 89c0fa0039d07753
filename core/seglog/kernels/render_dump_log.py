"""Renders batches and records exactly as kafka-dump-log does (Kafka: DumpLogSegments), a whole chunk in one call.

Records that need an object decoder (control records, internal topics) come as ready text: if `has_ending` is set for a
row, `endings` holds the bytes after its metadata. Everything else is written here, except a record whose line might
exceed the whole buffer, as in `render`.
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import copy_bytes, inlined, kernel, load_uint32, store_byte
from seglog.kernels.arrays import Batches, BatchRow, Bytes, Int64s, RecordRow, Records, WritableBytes, WritableInt64s
from seglog.kernels.legacy import crc32
from seglog.kernels.render import (
    SHOW_BATCH,
    SHOW_RECORDS,
    STATE_BATCH,
    STATE_BATCH_DONE,
    STATE_LARGE,
    STATE_NEEDED,
    STATE_RECORDS,
    STATE_ROW,
    VALID,
    text_bytes,
)
from seglog.kernels.text import MOST_JAVA_EXPANSION, SLACK, make_cells, put_integer, put_java_text, put_word
from seglog.kernels.varint import read_varint
from seglog.model import NO_SEQUENCE, codec_name

# Flags of a run.
PRINT_DATA = 1  # keys and payloads as text
SKIP_METADATA = 2

LINE_BYTES = 1024  # upper bound of a line without header keys, key and payload
HEADER_BYTES = 8  # upper bound for a header without the bytes of its key

WORDS = [
    *("baseOffset: ", " lastOffset: ", " count: ", " baseSequence: ", " lastSequence: ", " producerId: "),
    *(" producerEpoch: ", " partitionLeaderEpoch: ", " isTransactional: ", " isControl: "),
    *(" deleteHorizonMs: ", "OptionalLong.empty", "OptionalLong[", "]", " position: "),
    *(" NoTimestampType: ", " CreateTime: ", " LogAppendTime: ", " size: ", " magic: "),
    *(f" compresscodec: {codec_name(number)} crc: " for number in range(layout.LAST_CODEC + 2)),
    *(" isvalid: ", "false", "true", "offset: ", "| offset: ", " keySize: ", " valueSize: "),
    *(" sequence: ", " headerKeys: [", ",", " isValid: ", " crc: ", " key: ", " payload: "),
    *("| key: ", "| payload: "),
]
_CELLS, _SIZES = make_cells(WORDS)

# The numbers of the words.
_BASE_OFFSET = WORDS.index("baseOffset: ")
_LAST_OFFSET = WORDS.index(" lastOffset: ")
_COUNT = WORDS.index(" count: ")
_BASE_SEQUENCE = WORDS.index(" baseSequence: ")
_LAST_SEQUENCE = WORDS.index(" lastSequence: ")
_PRODUCER_ID = WORDS.index(" producerId: ")
_PRODUCER_EPOCH = WORDS.index(" producerEpoch: ")
_LEADER_EPOCH = WORDS.index(" partitionLeaderEpoch: ")
_TRANSACTIONAL = WORDS.index(" isTransactional: ")
_CONTROL = WORDS.index(" isControl: ")
_DELETE_HORIZON = WORDS.index(" deleteHorizonMs: ")
_EMPTY = WORDS.index("OptionalLong.empty")
_PRESENT = WORDS.index("OptionalLong[")
BRACKET = WORDS.index("]")
_POSITION = WORDS.index(" position: ")
_TIMESTAMP_TYPE = WORDS.index(" NoTimestampType: ")  # the first of three
_BATCH_SIZE = WORDS.index(" size: ")
_MAGIC = WORDS.index(" magic: ")
_CODEC = WORDS.index(" compresscodec: none crc: ")  # the first of six, in the order of the codec's number
_UNKNOWN_CODEC = layout.LAST_CODEC + 1
_VALID = WORDS.index(" isvalid: ")
_FALSE = WORDS.index("false")
_TRUE = WORDS.index("true")
_OFFSET = WORDS.index("offset: ")
_RECORD_OFFSET = WORDS.index("| offset: ")
_KEY_SIZE = WORDS.index(" keySize: ")
_VALUE_SIZE = WORDS.index(" valueSize: ")
_SEQUENCE = WORDS.index(" sequence: ")
_HEADER_KEYS = WORDS.index(" headerKeys: [")
COMMA = WORDS.index(",")
_RECORD_VALID = WORDS.index(" isValid: ")
_RECORD_CRC = WORDS.index(" crc: ")
KEY = WORDS.index(" key: ")
PAYLOAD = WORDS.index(" payload: ")
FIRST_KEY = WORDS.index("| key: ")
FIRST_PAYLOAD = WORDS.index("| payload: ")
_LINE_FEED = 0x0A

_CODEC_MASK = layout.CODEC_MASK
_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK


@inlined
def _field(out: WritableBytes, p: int, word: int, value: int) -> int:
    return put_integer(out, put_word(_CELLS, _SIZES, word, out, p), value)


@inlined
def _flag(out: WritableBytes, p: int, word: int, value: bool) -> int:
    p = put_word(_CELLS, _SIZES, word, out, p)
    return put_word(_CELLS, _SIZES, _TRUE if value else _FALSE, out, p)


@kernel
def _timestamp_type(magic: int, attributes: int) -> int:
    """Returns the number of the word for a timestamp's type; messages inside a wrapper have the wrapper's type."""
    if magic == 0:
        return _TIMESTAMP_TYPE
    return _TIMESTAMP_TYPE + (2 if attributes & _TIMESTAMP_TYPE_MASK != 0 else 1)


@kernel
def _put_batch(out: WritableBytes, p: int, batch: BatchRow, valid: bool) -> int:
    attributes, magic = int(batch["attributes"]), int(batch["magic"])
    if magic < 2:
        p = _field(out, p, _OFFSET, int(batch["last_offset"]))
    else:
        base, last = int(batch["base_offset"]), int(batch["last_offset"])
        sequence = int(batch["base_sequence"])
        last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + last - base) & layout.INT32_MAX
        p = _field(out, p, _BASE_OFFSET, base)
        p = _field(out, p, _LAST_OFFSET, last)
        p = _field(out, p, _COUNT, int(batch["count"]))
        p = _field(out, p, _BASE_SEQUENCE, sequence)
        p = _field(out, p, _LAST_SEQUENCE, last_sequence)
        p = _field(out, p, _PRODUCER_ID, int(batch["producer_id"]))
        p = _field(out, p, _PRODUCER_EPOCH, int(batch["producer_epoch"]))
        p = _field(out, p, _LEADER_EPOCH, int(batch["leader_epoch"]))
        p = _flag(out, p, _TRANSACTIONAL, attributes & layout.TRANSACTIONAL_MASK != 0)
        p = _flag(out, p, _CONTROL, attributes & layout.CONTROL_MASK != 0)
        p = put_word(_CELLS, _SIZES, _DELETE_HORIZON, out, p)
        if attributes & layout.DELETE_HORIZON_MASK != 0:
            p = _field(out, p, _PRESENT, int(batch["base_timestamp"]))
            p = put_word(_CELLS, _SIZES, BRACKET, out, p)
        else:
            p = put_word(_CELLS, _SIZES, _EMPTY, out, p)
    p = _field(out, p, _POSITION, int(batch["position"]))
    p = _field(out, p, _timestamp_type(magic, attributes), int(batch["max_timestamp"]))
    p = _field(out, p, _BATCH_SIZE, int(batch["size"]))
    p = _field(out, p, _MAGIC, magic)
    p = put_word(_CELLS, _SIZES, _CODEC + min(attributes & _CODEC_MASK, _UNKNOWN_CODEC), out, p)
    p = put_integer(out, p, int(batch["crc"]))
    p = _flag(out, p, _VALID, valid)
    store_byte(out, p, _LINE_FEED)
    return p + 1


@kernel
def _put_header_keys(out: WritableBytes, p: int, arena: Bytes, row: RecordRow) -> int:
    at = int(row["headers_position"])
    end = int(row["position"]) + int(row["size"])
    for k in range(int(row["header_count"])):
        if k > 0:
            p = put_word(_CELLS, _SIZES, COMMA, out, p)
        size, at = read_varint(arena, at, end)
        p = put_java_text(out, p, arena, at, at + size)
        at += size
        size, at = read_varint(arena, at, end)
        at += max(size, 0)
    return p


@kernel
def _put_metadata(out: WritableBytes, p: int, arena: Bytes, batch: BatchRow, row: RecordRow) -> int:
    magic, attributes = int(batch["magic"]), int(batch["attributes"])
    at = int(row["position"])
    p = _field(out, p, _RECORD_OFFSET, int(row["offset"]))
    p = _field(out, p, _timestamp_type(magic, attributes), int(row["timestamp"]))
    p = _field(out, p, _KEY_SIZE, int(row["key_size"]))
    p = _field(out, p, _VALUE_SIZE, int(row["value_size"]))
    if magic < 2:
        stored = load_uint32(arena, at + layout.MESSAGE_CRC_OFFSET)
        computed = crc32(arena, at + layout.MESSAGE_MAGIC_OFFSET, at + int(row["size"]))
        p = _flag(out, p, _RECORD_VALID, stored == computed)
        return _field(out, p, _RECORD_CRC, stored)
    p = _field(out, p, _SEQUENCE, int(row["sequence"]))
    p = put_word(_CELLS, _SIZES, _HEADER_KEYS, out, p)
    if row["header_count"] > 0:
        p = _put_header_keys(out, p, arena, row)
    return put_word(_CELLS, _SIZES, BRACKET, out, p)


@kernel
def _put_contents(out: WritableBytes, p: int, arena: Bytes, row: RecordRow, skip: bool) -> int:
    first = skip
    if row["key_size"] >= 0:
        p = put_word(_CELLS, _SIZES, FIRST_KEY if first else KEY, out, p)
        first = False
        start = int(row["key_position"])
        p = put_java_text(out, p, arena, start, start + int(row["key_size"]))
    if row["value_size"] >= 0:
        p = put_word(_CELLS, _SIZES, FIRST_PAYLOAD if first else PAYLOAD, out, p)
        start = int(row["value_position"])
        p = put_java_text(out, p, arena, start, start + int(row["value_size"]))
    return p


@kernel
def render_dump_log(
    flags_of_run: int,
    arena: Bytes,
    batches: Batches,
    flags: Bytes,
    rows: Records,
    endings: Bytes,
    ending_bounds: Int64s,
    has_ending: Bytes,
    out: WritableBytes,
    state: WritableInt64s,
) -> int:
    """Writes lines into `out`, with the same state and flags of batches as `render.render`.

    If `has_ending[r]` (uint8) is set, row r ends with `endings[ending_bounds[r]:ending_bounds[r + 1]]` instead of its
    key and payload.
    """
    skip, contents = flags_of_run & SKIP_METADATA != 0, flags_of_run & PRINT_DATA != 0
    p = 0
    b, r = state[STATE_BATCH], state[STATE_ROW]
    while b < len(batches):
        shown = int(flags[b])
        if state[STATE_BATCH_DONE] == 0:
            if shown & SHOW_BATCH:
                if len(out) - p < LINE_BYTES + SLACK:
                    state[STATE_NEEDED] = LINE_BYTES + SLACK
                    break
                p = _put_batch(out, p, batches[b], shown & VALID != 0)
            state[STATE_BATCH_DONE] = 1
        full = False
        while r < len(rows) and int(rows[r]["batch"]) <= b:
            if shown & SHOW_RECORDS:
                ending = ending_bounds[r + 1] - ending_bounds[r] if has_ending[r] else 0
                needed = LINE_BYTES + SLACK + int(rows[r]["header_count"]) * HEADER_BYTES + ending
                needed += MOST_JAVA_EXPANSION * text_bytes(rows[r], contents and not has_ending[r])
                if needed > len(out) - p:
                    state[STATE_LARGE] = 1 if needed > len(out) and p == 0 else 0
                    full = True
                    break
                if not skip:
                    p = _put_metadata(out, p, arena, batches[b], rows[r])
                if has_ending[r]:
                    copy_bytes(endings, ending_bounds[r], out, p, ending)
                    p += ending
                elif contents:
                    p = _put_contents(out, p, arena, rows[r], skip)
                store_byte(out, p, _LINE_FEED)
                p += 1
                state[STATE_RECORDS] += 1
            r += 1
        if full:
            break
        state[STATE_BATCH_DONE] = 0
        b += 1
    state[STATE_BATCH], state[STATE_ROW] = b, r
    return p
