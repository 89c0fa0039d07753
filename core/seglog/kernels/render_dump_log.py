"""Renders batches and records exactly as kafka-dump-log does (Kafka: DumpLogSegments), a whole chunk in one call.

Records that need an object decoder (control records, internal topics) come as ready text: if `has_ending` is set for a
row, `endings` holds the bytes after its metadata. Everything else is written here. A record whose line might exceed
the whole buffer is written in pieces, as in `render`.
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import copy_bytes, inlined, kernel, load_uint32, store_byte
from seglog.kernels.arrays import Batches, BatchRow, Bytes, Int64s, RecordRow, Records, WritableBytes, WritableInt64s
from seglog.kernels.legacy import crc32
from seglog.kernels.render import (
    SHOW_BATCH,
    SHOW_RECORDS,
    STATE_AT,
    STATE_BATCH,
    STATE_BATCH_DONE,
    STATE_HEADER,
    STATE_NEEDED,
    STATE_PART,
    STATE_PLACE,
    STATE_RECORDS,
    STATE_ROW,
    VALID,
)
from seglog.kernels.text import MOST_JAVA_EXPANSION, SLACK, make_cells, put_integer, put_java_text, put_word, text_cut
from seglog.kernels.varint import read_varint
from seglog.model import NO_SEQUENCE

# Flags of a run.
PRINT_DATA = 1  # keys and payloads as text
SKIP_METADATA = 2

LINE_BYTES = 1024  # upper bound of a line without header keys, key and payload
HEADER_BYTES = 8  # upper bound for a header without the bytes of its key
_LEAST_PIECE = 8  # least bytes of a text to write at once: room for a character

_WORDS = [
    *("baseOffset: ", " lastOffset: ", " count: ", " baseSequence: ", " lastSequence: ", " producerId: "),
    *(" producerEpoch: ", " partitionLeaderEpoch: ", " isTransactional: ", " isControl: "),
    *(" deleteHorizonMs: ", "OptionalLong.empty", "OptionalLong[", "]", " position: "),
    *(" NoTimestampType: ", " CreateTime: ", " LogAppendTime: ", " size: ", " magic: "),
    *(" compresscodec: none crc: ", " compresscodec: gzip crc: ", " compresscodec: snappy crc: "),
    *(" compresscodec: lz4 crc: ", " compresscodec: zstd crc: ", " compresscodec: unknown crc: "),
    *(" isvalid: ", "false", "true", "offset: ", "| offset: ", " keySize: ", " valueSize: "),
    *(" sequence: ", " headerKeys: [", ",", " isValid: ", " crc: ", " key: ", " payload: "),
    *("| key: ", "| payload: "),
]
_CELLS, _SIZES = make_cells(_WORDS)

# The numbers of the words.
_BASE_OFFSET = _WORDS.index("baseOffset: ")
_LAST_OFFSET = _WORDS.index(" lastOffset: ")
_COUNT = _WORDS.index(" count: ")
_BASE_SEQUENCE = _WORDS.index(" baseSequence: ")
_LAST_SEQUENCE = _WORDS.index(" lastSequence: ")
_PRODUCER_ID = _WORDS.index(" producerId: ")
_PRODUCER_EPOCH = _WORDS.index(" producerEpoch: ")
_LEADER_EPOCH = _WORDS.index(" partitionLeaderEpoch: ")
_TRANSACTIONAL = _WORDS.index(" isTransactional: ")
_CONTROL = _WORDS.index(" isControl: ")
_DELETE_HORIZON = _WORDS.index(" deleteHorizonMs: ")
_EMPTY = _WORDS.index("OptionalLong.empty")
_PRESENT = _WORDS.index("OptionalLong[")
_BRACKET = _WORDS.index("]")
_POSITION = _WORDS.index(" position: ")
_TIMESTAMP_TYPE = _WORDS.index(" NoTimestampType: ")  # the first of three
_BATCH_SIZE = _WORDS.index(" size: ")
_MAGIC = _WORDS.index(" magic: ")
_CODEC = _WORDS.index(" compresscodec: none crc: ")  # the first of six, in the order of the codec's number
_UNKNOWN_CODEC = layout.LAST_CODEC + 1
_VALID = _WORDS.index(" isvalid: ")
_FALSE = _WORDS.index("false")
_TRUE = _WORDS.index("true")
_OFFSET = _WORDS.index("offset: ")
_RECORD_OFFSET = _WORDS.index("| offset: ")
_KEY_SIZE = _WORDS.index(" keySize: ")
_VALUE_SIZE = _WORDS.index(" valueSize: ")
_SEQUENCE = _WORDS.index(" sequence: ")
_HEADER_KEYS = _WORDS.index(" headerKeys: [")
_COMMA = _WORDS.index(",")
_RECORD_VALID = _WORDS.index(" isValid: ")
_RECORD_CRC = _WORDS.index(" crc: ")
_KEY = _WORDS.index(" key: ")
_PAYLOAD = _WORDS.index(" payload: ")
_FIRST_KEY = _WORDS.index("| key: ")
_FIRST_PAYLOAD = _WORDS.index("| payload: ")
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
            p = put_word(_CELLS, _SIZES, _BRACKET, out, p)
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
            p = put_word(_CELLS, _SIZES, _COMMA, out, p)
        size, at = read_varint(arena, at, end)
        p = put_java_text(out, p, arena, at, at + size)
        at += size
        size, at = read_varint(arena, at, end)
        at += max(size, 0)
    return p


@kernel
def _put_numbers(out: WritableBytes, p: int, arena: Bytes, batch: BatchRow, row: RecordRow) -> int:
    """Writes a record's metadata up to the keys of its headers."""
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
    return put_word(_CELLS, _SIZES, _HEADER_KEYS, out, p)


@kernel
def _put_metadata(out: WritableBytes, p: int, arena: Bytes, batch: BatchRow, row: RecordRow) -> int:
    p = _put_numbers(out, p, arena, batch, row)
    if batch["magic"] < 2:
        return p
    if row["header_count"] > 0:
        p = _put_header_keys(out, p, arena, row)
    return put_word(_CELLS, _SIZES, _BRACKET, out, p)


@kernel
def _put_contents(out: WritableBytes, p: int, arena: Bytes, row: RecordRow, skip: bool) -> int:
    first = skip
    if row["key_size"] >= 0:
        p = put_word(_CELLS, _SIZES, _FIRST_KEY if first else _KEY, out, p)
        first = False
        start = int(row["key_position"])
        p = put_java_text(out, p, arena, start, start + int(row["key_size"]))
    if row["value_size"] >= 0:
        p = put_word(_CELLS, _SIZES, _FIRST_PAYLOAD if first else _PAYLOAD, out, p)
        start = int(row["value_position"])
        p = put_java_text(out, p, arena, start, start + int(row["value_size"]))
    return p


# --- a record in pieces -----------------------------------------------------------------------------------------------

_HEAD_PART = 0
_HEADERS_PART = 1
_CONTENTS_PART = 2
_KEY_PART = 3
_PAYLOAD_PART = 4
_TAIL_PART = 5


@kernel
def _continue_text(
    out: WritableBytes, p: int, word: int, arena: Bytes, start: int, size: int, state: WritableInt64s
) -> tuple[int, bool]:
    """Continues a text after a word (-1: none); returns (index after it, True if it is done and a word still fits)."""
    if state[STATE_AT] == 0:
        if len(out) - p < 2 * SLACK:
            return p, False
        if word >= 0:
            p = put_word(_CELLS, _SIZES, word, out, p)
        state[STATE_AT] = 1
    at = state[STATE_AT] - 1
    while at < size:
        most = (len(out) - SLACK - p) // MOST_JAVA_EXPANSION
        if most < _LEAST_PIECE:
            break
        stop = text_cut(arena, start + at, start + size, most)
        p = put_java_text(out, p, arena, start + at, stop)
        at = stop - start
    if at < size or len(out) - p < SLACK:
        state[STATE_AT] = at + 1
        return p, False
    state[STATE_AT] = 0
    return p, True


@kernel
def _continue_header_keys(
    out: WritableBytes, p: int, arena: Bytes, row: RecordRow, state: WritableInt64s
) -> tuple[int, bool]:
    """Continues what `_put_header_keys` writes at once, and the bracket after it."""
    end = int(row["position"]) + int(row["size"])
    while state[STATE_HEADER] < row["header_count"]:
        size, at = read_varint(arena, state[STATE_PLACE], end)
        comma = -1 if state[STATE_HEADER] == 0 else _COMMA
        p, done = _continue_text(out, p, comma, arena, at, size, state)
        if not done:
            return p, False
        size, at = read_varint(arena, at + size, end)
        state[STATE_PLACE] = at + max(size, 0)
        state[STATE_HEADER] += 1
    if len(out) - p < SLACK:
        return p, False
    return put_word(_CELLS, _SIZES, _BRACKET, out, p), True


@kernel
def _continue_contents(
    out: WritableBytes, p: int, arena: Bytes, row: RecordRow, skip: bool, state: WritableInt64s
) -> tuple[int, bool]:
    """Continues what `_put_contents` writes at once."""
    has_key = row["key_size"] >= 0
    if state[STATE_PART] == _CONTENTS_PART:
        state[STATE_PART] = _KEY_PART if has_key else _PAYLOAD_PART
    if state[STATE_PART] == _KEY_PART:
        word = _FIRST_KEY if skip else _KEY
        p, done = _continue_text(out, p, word, arena, int(row["key_position"]), int(row["key_size"]), state)
        if not done:
            return p, False
        state[STATE_PART] = _PAYLOAD_PART
    if row["value_size"] < 0:
        return p, True
    word = _FIRST_PAYLOAD if skip and not has_key else _PAYLOAD
    return _continue_text(out, p, word, arena, int(row["value_position"]), int(row["value_size"]), state)


@kernel
def _continue_ending(
    out: WritableBytes, p: int, endings: Bytes, start: int, end: int, state: WritableInt64s
) -> tuple[int, bool]:
    """Continues copying a ready text."""
    at = start + max(state[STATE_AT] - 1, 0)
    size = max(0, min(end - at, len(out) - SLACK - p))
    copy_bytes(endings, at, out, p, size)
    state[STATE_AT] = at + size - start + 1
    if at + size < end:
        return p + size, False
    state[STATE_AT] = 0
    return p + size, True


@kernel
def _continue_record(
    flags_of_run: int,
    out: WritableBytes,
    p: int,
    arena: Bytes,
    batch: BatchRow,
    row: RecordRow,
    endings: Bytes,
    start: int,
    end: int,
    state: WritableInt64s,
) -> tuple[int, bool]:
    """Continues a record's line; unless `start` is -1, `endings[start:end]` replaces its key and payload."""
    skip, contents = flags_of_run & SKIP_METADATA != 0, flags_of_run & PRINT_DATA != 0
    done = True
    if state[STATE_PART] == _HEAD_PART:
        if len(out) - p < LINE_BYTES + SLACK:
            return p, False
        state[STATE_PART] = _CONTENTS_PART
        if not skip:
            p = _put_numbers(out, p, arena, batch, row)
            if batch["magic"] >= 2:
                state[STATE_HEADER], state[STATE_PLACE] = 0, int(row["headers_position"])
                state[STATE_PART] = _HEADERS_PART
    if state[STATE_PART] == _HEADERS_PART:
        p, done = _continue_header_keys(out, p, arena, row, state)
        if not done:
            return p, False
        state[STATE_PART] = _CONTENTS_PART
    if state[STATE_PART] != _TAIL_PART:
        if start >= 0:
            p, done = _continue_ending(out, p, endings, start, end, state)
        elif contents:
            p, done = _continue_contents(out, p, arena, row, skip, state)
        if not done:
            return p, False
        state[STATE_PART] = _TAIL_PART
    if len(out) - p < 1:
        return p, False
    state[STATE_PART] = _HEAD_PART
    store_byte(out, p, _LINE_FEED)
    return p + 1, True


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
                needed += MOST_JAVA_EXPANSION * int(rows[r]["size"])
                if needed > len(out):
                    start = ending_bounds[r] if has_ending[r] else -1
                    p, done = _continue_record(
                        flags_of_run, out, p, arena, batches[b], rows[r], endings, start, start + ending, state
                    )
                    full = not done
                elif needed > len(out) - p:
                    full = True
                else:
                    if not skip:
                        p = _put_metadata(out, p, arena, batches[b], rows[r])
                    if has_ending[r]:
                        copy_bytes(endings, ending_bounds[r], out, p, ending)
                        p += ending
                    elif contents:
                        p = _put_contents(out, p, arena, rows[r], skip)
                    store_byte(out, p, _LINE_FEED)
                    p += 1
                if full:
                    state[STATE_NEEDED] = LINE_BYTES + SLACK
                    break
                state[STATE_RECORDS] += 1
            r += 1
        if full:
            break
        state[STATE_BATCH_DONE] = 0
        b += 1
    state[STATE_BATCH], state[STATE_ROW] = b, r
    return p
