"""Renders batches and records as lines of text or JSON, a whole chunk in one call (`seglog dump`).

`render` continues where the state array says, and returns when everything is written or the next line does not fit the
buffer; the caller takes the output and calls again. The order is that of the log: a batch, then its records. Text and
JSON differ only in the fixed words around the values.

A record whose line might exceed the whole buffer is written in pieces, over as many calls as needed: no record makes a
buffer grow.
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import copy_bytes, inlined, kernel
from seglog.kernels.arrays import Batches, BatchRow, Bytes, RecordRow, Records, WritableBytes, WritableInt64s
from seglog.kernels.text import (
    MOST_JSON_EXPANSION,
    SLACK,
    is_utf8,
    make_cells,
    put_base64,
    put_integer,
    put_json_text,
    put_word,
    text_cut,
)
from seglog.kernels.varint import read_varint
from seglog.model import NO_SEQUENCE

JSON = 0
TEXT = 1

# State (int64), which is passed from call to call.
STATE_BATCH = 0  # batch to continue with
STATE_ROW = 1  # row to continue with
STATE_BATCH_DONE = 2  # 1 once the batch's own line is written
STATE_NEEDED = 3  # bytes that the next line needs, if it did not fit an empty buffer
STATE_RECORDS = 4  # lines of records written so far
# The rest is for a record in pieces.
STATE_PART = 5  # part to continue with (…_PART)
STATE_AT = 6  # 1 + bytes of the part that are done; 0 before it begins
STATE_IS_TEXT = 7  # 1 if the part is written as text, not as base64
STATE_HEADER = 8  # number of the header
STATE_PLACE = 9  # position of the header's key or value
STATE_SIZE = 10

# Flags of a batch.
SHOW_BATCH = 1
VALID = 2
SHOW_RECORDS = 4

# Upper bounds of bytes written.
LINE_BYTES = 1024  # for a line without key, value, headers and prefix
HEADER_BYTES = 128  # for a header without the bytes of its key and value
_WORDS_BYTES = 128  # for three words side by side, with the bytes they spoil
_LEAST_PIECE = 12  # least bytes of a part to write at once: room for a character, and whole steps of base64

_JSON_WORDS = [
    *(',"magic":', ',"base_offset":', ',"last_offset":', ',"count":', ',"codec":'),
    *('"none"', '"gzip"', '"snappy"', '"lz4"', '"zstd"', '"unknown"', '"unknown"', '"unknown"'),
    *(',"timestamp_type":', '"NoTimestampType"', '"CreateTime"', '"LogAppendTime"'),
    *(',"base_timestamp":', ',"max_timestamp":', ',"delete_horizon":', ',"producer_id":'),
    *(',"producer_epoch":', ',"base_sequence":', ',"last_sequence":', ',"transactional":'),
    *(',"control":', ',"leader_epoch":', ',"crc":', ',"valid":', "false", "true", "null", "}\n"),
    *(',"timestamp":', ',"sequence":', ',"headers":[', "]"),
    *(',"trusted":false', "{", ",{", "}", ',"size":', '"'),
    *(',"key":"', ',"key_b64":"', ',"key":null', ',"value":"', ',"value_b64":"', ',"value":null'),
    *('"key":"', '"key_b64":"'),
]
_TEXT_WORDS = [
    *(" magic=", " base_offset=", " last_offset=", " count=", " codec="),
    *("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown"),
    *(" timestamp_type=", "NoTimestampType", "CreateTime", "LogAppendTime"),
    *(" base_timestamp=", " max_timestamp=", " delete_horizon=", " producer_id="),
    *(" producer_epoch=", " base_sequence=", " last_sequence=", " transactional="),
    *(" control=", " leader_epoch=", " crc=", " valid=", "false", "true", "null", "\n"),
    *(" timestamp=", " sequence=", " headers=[", "]"),
    *(" trusted=false", "{", ", {", "}", " size=", '"'),
    *(' key="', ' key_b64="', " key=null", ' value="', ' value_b64="', " value=null"),
    *('key="', 'key_b64="'),
]
assert len(_JSON_WORDS) == len(_TEXT_WORDS)
_CELLS, _SIZES = make_cells([*_JSON_WORDS, *_TEXT_WORDS])
_STYLE = len(_JSON_WORDS)

# The numbers of the words.
_MAGIC = _JSON_WORDS.index(',"magic":')
_BASE_OFFSET = _JSON_WORDS.index(',"base_offset":')
_LAST_OFFSET = _JSON_WORDS.index(',"last_offset":')
_COUNT = _JSON_WORDS.index(',"count":')
_CODEC = _JSON_WORDS.index(',"codec":')
_CODEC_NAME = _JSON_WORDS.index('"none"')  # the first of eight, in the order of the codec's number
_TIMESTAMP_TYPE = _JSON_WORDS.index(',"timestamp_type":')
_TIMESTAMP_TYPE_NAME = _JSON_WORDS.index('"NoTimestampType"')  # the first of three
_BASE_TIMESTAMP = _JSON_WORDS.index(',"base_timestamp":')
_MAX_TIMESTAMP = _JSON_WORDS.index(',"max_timestamp":')
_DELETE_HORIZON = _JSON_WORDS.index(',"delete_horizon":')
_PRODUCER_ID = _JSON_WORDS.index(',"producer_id":')
_PRODUCER_EPOCH = _JSON_WORDS.index(',"producer_epoch":')
_BASE_SEQUENCE = _JSON_WORDS.index(',"base_sequence":')
_LAST_SEQUENCE = _JSON_WORDS.index(',"last_sequence":')
_TRANSACTIONAL = _JSON_WORDS.index(',"transactional":')
_CONTROL = _JSON_WORDS.index(',"control":')
_LEADER_EPOCH = _JSON_WORDS.index(',"leader_epoch":')
_CRC = _JSON_WORDS.index(',"crc":')
_VALID = _JSON_WORDS.index(',"valid":')
_FALSE = _JSON_WORDS.index("false")
_TRUE = _JSON_WORDS.index("true")
_NULL = _JSON_WORDS.index("null")
_LINE_END = _JSON_WORDS.index("}\n")
_TIMESTAMP = _JSON_WORDS.index(',"timestamp":')
_SEQUENCE = _JSON_WORDS.index(',"sequence":')
_HEADERS = _JSON_WORDS.index(',"headers":[')
_HEADERS_END = _JSON_WORDS.index("]")
_UNTRUSTED = _JSON_WORDS.index(',"trusted":false')
_HEADER = _JSON_WORDS.index("{")
_NEXT_HEADER = _JSON_WORDS.index(",{")
_HEADER_END = _JSON_WORDS.index("}")
_SIZE = _JSON_WORDS.index(',"size":')
_QUOTE = _JSON_WORDS.index('"')
# Each of these is the first of three: as text, as base64, null. The key of a header is never null, nor base64.
_KEY = _JSON_WORDS.index(',"key":"')
_VALUE = _JSON_WORDS.index(',"value":"')
_HEADER_KEY = _JSON_WORDS.index('"key":"')
_AS_TEXT, _AS_BASE64, _AS_NULL = range(3)

_CODEC_MASK = layout.CODEC_MASK
_TIMESTAMP_TYPE_MASK = layout.TIMESTAMP_TYPE_MASK
_TRANSACTIONAL_MASK = layout.TRANSACTIONAL_MASK
_CONTROL_MASK = layout.CONTROL_MASK
_DELETE_HORIZON_MASK = layout.DELETE_HORIZON_MASK


@inlined
def _field(out: WritableBytes, p: int, word: int, value: int) -> int:
    return put_integer(out, put_word(_CELLS, _SIZES, word, out, p), value)


@inlined
def _flag(out: WritableBytes, p: int, word: int, style: int, value: bool) -> int:
    p = put_word(_CELLS, _SIZES, word, out, p)
    return put_word(_CELLS, _SIZES, style + (_TRUE if value else _FALSE), out, p)


@inlined
def _bytes(out: WritableBytes, p: int, word: int, style: int, base64: bool, data: Bytes, start: int, size: int) -> int:
    """Writes a key, value or part of a header: as text if it is UTF-8, else in base64, or null for a negative size."""
    if size < 0:
        return put_word(_CELLS, _SIZES, word + _AS_NULL, out, p)
    if not base64:
        end = put_json_text(out, put_word(_CELLS, _SIZES, word + _AS_TEXT, out, p), data, start, start + size)
        if end >= 0:
            return put_word(_CELLS, _SIZES, style + _QUOTE, out, end)
    p = put_base64(out, put_word(_CELLS, _SIZES, word + _AS_BASE64, out, p), data, start, start + size)
    return put_word(_CELLS, _SIZES, style + _QUOTE, out, p)


@kernel
def _put_batch(out: WritableBytes, p: int, style: int, prefix: Bytes, batch: BatchRow, valid: bool) -> int:
    """Writes the line of one batch; `prefix` precedes the position."""
    copy_bytes(prefix, 0, out, p, len(prefix))
    p = put_integer(out, p + len(prefix), int(batch["position"]))
    attributes = int(batch["attributes"])
    magic = int(batch["magic"])
    sequence = int(batch["base_sequence"])
    delta = int(batch["last_offset"]) - int(batch["base_offset"])
    horizon = magic >= 2 and attributes & _DELETE_HORIZON_MASK != 0
    p = _field(out, p, style + _SIZE, int(batch["size"]))
    p = _field(out, p, style + _MAGIC, magic)
    p = _field(out, p, style + _BASE_OFFSET, int(batch["base_offset"]))
    p = _field(out, p, style + _LAST_OFFSET, int(batch["last_offset"]))
    p = _field(out, p, style + _COUNT, int(batch["count"]))
    p = put_word(_CELLS, _SIZES, style + _CODEC, out, p)
    p = put_word(_CELLS, _SIZES, style + _CODEC_NAME + (attributes & _CODEC_MASK), out, p)
    p = put_word(_CELLS, _SIZES, style + _TIMESTAMP_TYPE, out, p)
    kind = 0 if magic == 0 else (2 if attributes & _TIMESTAMP_TYPE_MASK != 0 else 1)
    p = put_word(_CELLS, _SIZES, style + _TIMESTAMP_TYPE_NAME + kind, out, p)
    p = put_word(_CELLS, _SIZES, style + _BASE_TIMESTAMP, out, p)
    if horizon:
        p = put_word(_CELLS, _SIZES, style + _NULL, out, p)
    else:
        p = put_integer(out, p, int(batch["base_timestamp"]))
    p = _field(out, p, style + _MAX_TIMESTAMP, int(batch["max_timestamp"]))
    p = put_word(_CELLS, _SIZES, style + _DELETE_HORIZON, out, p)
    if horizon:
        p = put_integer(out, p, int(batch["base_timestamp"]))
    else:
        p = put_word(_CELLS, _SIZES, style + _NULL, out, p)
    p = _field(out, p, style + _PRODUCER_ID, int(batch["producer_id"]))
    p = _field(out, p, style + _PRODUCER_EPOCH, int(batch["producer_epoch"]))
    p = _field(out, p, style + _BASE_SEQUENCE, sequence)
    last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + delta) & layout.INT32_MAX
    p = _field(out, p, style + _LAST_SEQUENCE, last_sequence)
    p = _flag(out, p, style + _TRANSACTIONAL, style, magic >= 2 and attributes & _TRANSACTIONAL_MASK != 0)
    p = _flag(out, p, style + _CONTROL, style, magic >= 2 and attributes & _CONTROL_MASK != 0)
    p = _field(out, p, style + _LEADER_EPOCH, int(batch["leader_epoch"]))
    p = _field(out, p, style + _CRC, int(batch["crc"]))
    p = _flag(out, p, style + _VALID, style, valid)
    return put_word(_CELLS, _SIZES, style + _LINE_END, out, p)


@kernel
def _put_headers(out: WritableBytes, p: int, style: int, base64: bool, arena: Bytes, row: RecordRow) -> int:
    at = int(row["headers_position"])
    end = int(row["position"]) + int(row["size"])
    for k in range(int(row["header_count"])):
        p = put_word(_CELLS, _SIZES, style + (_HEADER if k == 0 else _NEXT_HEADER), out, p)
        size, at = read_varint(arena, at, end)
        p = _bytes(out, p, style + _HEADER_KEY, style, False, arena, at, size)
        at += size
        size, at = read_varint(arena, at, end)
        p = _bytes(out, p, style + _VALUE, style, base64, arena, at, size)
        at += max(size, 0)
        p = put_word(_CELLS, _SIZES, style + _HEADER_END, out, p)
    return p


@inlined
def _put_head(out: WritableBytes, p: int, style: int, prefix: Bytes, batch: BatchRow, row: RecordRow) -> int:
    """Writes a record's line up to its key; `prefix` precedes the offset. JSON includes the producer and epochs."""
    copy_bytes(prefix, 0, out, p, len(prefix))
    p = put_integer(out, p + len(prefix), int(row["offset"]))
    p = _field(out, p, style + _TIMESTAMP, int(row["timestamp"]))
    if style == 0:
        p = _field(out, p, _PRODUCER_ID, int(batch["producer_id"]))
        p = _field(out, p, _PRODUCER_EPOCH, int(batch["producer_epoch"]))
    p = _field(out, p, style + _SEQUENCE, int(row["sequence"]))
    return _field(out, p, _LEADER_EPOCH, int(batch["leader_epoch"])) if style == 0 else p


@inlined
def _put_record(
    out: WritableBytes,
    p: int,
    style: int,
    base64: bool,
    trusted: bool,
    prefix: Bytes,
    arena: Bytes,
    batch: BatchRow,
    row: RecordRow,
) -> int:
    p = _put_head(out, p, style, prefix, batch, row)
    key_at, key_size = int(row["key_position"]), int(row["key_size"])
    p = _bytes(out, p, style + _KEY, style, base64, arena, key_at, key_size)
    value_at, value_size = int(row["value_position"]), int(row["value_size"])
    p = _bytes(out, p, style + _VALUE, style, base64, arena, value_at, value_size)
    p = put_word(_CELLS, _SIZES, style + _HEADERS, out, p)
    if row["header_count"] > 0:
        p = _put_headers(out, p, style, base64, arena, row)
    p = put_word(_CELLS, _SIZES, style + _HEADERS_END, out, p)
    if not trusted:
        p = put_word(_CELLS, _SIZES, style + _UNTRUSTED, out, p)
    return put_word(_CELLS, _SIZES, style + _LINE_END, out, p)


# --- a record in pieces -----------------------------------------------------------------------------------------------

_HEAD_PART = 0
_KEY_PART = 1
_VALUE_PART = 2
_HEADERS_PART = 3
_HEADER_KEY_PART = 4
_HEADER_VALUE_PART = 5
_TAIL_PART = 6


@kernel
def _continue_bytes(
    out: WritableBytes,
    p: int,
    word: int,
    style: int,
    base64: bool,
    arena: Bytes,
    start: int,
    size: int,
    state: WritableInt64s,
) -> tuple[int, bool]:
    """Continues what `_bytes` writes at once; returns (index after it, True if it is done and a word still fits)."""
    if state[STATE_AT] == 0:
        if len(out) - p < _WORDS_BYTES:
            return p, False
        if size < 0:
            return put_word(_CELLS, _SIZES, word + _AS_NULL, out, p), True
        state[STATE_IS_TEXT] = 1 if not base64 and is_utf8(arena, start, start + size) else 0
        p = put_word(_CELLS, _SIZES, word + (_AS_TEXT if state[STATE_IS_TEXT] == 1 else _AS_BASE64), out, p)
        state[STATE_AT] = 1
    at = state[STATE_AT] - 1
    while at < size:
        most = (len(out) - _WORDS_BYTES - p) // MOST_JSON_EXPANSION
        if most < _LEAST_PIECE:
            break
        if state[STATE_IS_TEXT] == 1:
            stop = text_cut(arena, start + at, start + size, most)
            p = put_json_text(out, p, arena, start + at, stop)
        else:
            stop = start + min(size, at + most // 3 * 3)
            p = put_base64(out, p, arena, start + at, stop)
        at = stop - start
    if at < size or len(out) - p < _WORDS_BYTES:
        state[STATE_AT] = at + 1
        return p, False
    state[STATE_AT] = 0
    return put_word(_CELLS, _SIZES, style + _QUOTE, out, p), True


@kernel
def _continue_headers(
    out: WritableBytes, p: int, style: int, base64: bool, arena: Bytes, row: RecordRow, state: WritableInt64s
) -> tuple[int, bool]:
    """Continues what `_put_headers` writes at once; returns (index after it, True if it is done)."""
    end = int(row["position"]) + int(row["size"])
    while state[STATE_HEADER] < row["header_count"]:
        size, at = read_varint(arena, state[STATE_PLACE], end)
        if state[STATE_PART] == _HEADER_KEY_PART:
            if state[STATE_AT] == 0:
                if len(out) - p < 2 * _WORDS_BYTES:
                    return p, False
                p = put_word(_CELLS, _SIZES, style + (_HEADER if state[STATE_HEADER] == 0 else _NEXT_HEADER), out, p)
            p, done = _continue_bytes(out, p, style + _HEADER_KEY, style, False, arena, at, size, state)
            if not done:
                return p, False
            state[STATE_PART] = _HEADER_VALUE_PART
        else:
            p, done = _continue_bytes(out, p, style + _VALUE, style, base64, arena, at, size, state)
            if not done:
                return p, False
            p = put_word(_CELLS, _SIZES, style + _HEADER_END, out, p)
            state[STATE_HEADER] += 1
            state[STATE_PART] = _HEADER_KEY_PART
        state[STATE_PLACE] = at + max(size, 0)
    return p, True


@kernel
def _continue_record(
    out: WritableBytes,
    p: int,
    style: int,
    base64: bool,
    trusted: bool,
    prefix: Bytes,
    arena: Bytes,
    batch: BatchRow,
    row: RecordRow,
    state: WritableInt64s,
) -> tuple[int, bool]:
    """Continues what `_put_record` writes at once; returns (index after it, True if the line is done)."""
    if state[STATE_PART] == _HEAD_PART:
        if len(out) - p < LINE_BYTES + SLACK + len(prefix):
            return p, False
        p = _put_head(out, p, style, prefix, batch, row)
        state[STATE_PART] = _KEY_PART
    if state[STATE_PART] == _KEY_PART:
        at, size = int(row["key_position"]), int(row["key_size"])
        p, done = _continue_bytes(out, p, style + _KEY, style, base64, arena, at, size, state)
        if not done:
            return p, False
        state[STATE_PART] = _VALUE_PART
    if state[STATE_PART] == _VALUE_PART:
        at, size = int(row["value_position"]), int(row["value_size"])
        p, done = _continue_bytes(out, p, style + _VALUE, style, base64, arena, at, size, state)
        if not done:
            return p, False
        state[STATE_PART] = _HEADERS_PART
    if state[STATE_PART] == _HEADERS_PART:
        if len(out) - p < _WORDS_BYTES:
            return p, False
        p = put_word(_CELLS, _SIZES, style + _HEADERS, out, p)
        state[STATE_HEADER], state[STATE_PLACE] = 0, int(row["headers_position"])
        state[STATE_PART] = _HEADER_KEY_PART
    if state[STATE_PART] != _TAIL_PART:
        p, done = _continue_headers(out, p, style, base64, arena, row, state)
        if not done:
            return p, False
        state[STATE_PART] = _TAIL_PART
    if len(out) - p < _WORDS_BYTES:
        return p, False
    state[STATE_PART] = _HEAD_PART
    p = put_word(_CELLS, _SIZES, style + _HEADERS_END, out, p)
    if not trusted:
        p = put_word(_CELLS, _SIZES, style + _UNTRUSTED, out, p)
    return put_word(_CELLS, _SIZES, style + _LINE_END, out, p), True


@kernel
def render(
    style: int,
    base64: bool,
    prefix: Bytes,
    record_prefix: Bytes,
    arena: Bytes,
    batches: Batches,
    flags: Bytes,
    rows: Records,
    out: WritableBytes,
    state: WritableInt64s,
) -> int:
    """Writes lines for `batches` (layout.BATCH) and `rows` (layout.RECORD, ascending by batch) into `out`.

    A batch's line begins with `prefix`, then its position; a record's with `record_prefix`, then its offset. `flags`
    (uint8, one per batch) says what to show. Returns the number of bytes written. `state` (int64[STATE_SIZE], zeros
    before the first call) holds the progress: everything is done when `state[STATE_BATCH] == len(batches)`. If nothing
    was written, `state[STATE_NEEDED]` is the room that the next line needs.
    """
    style *= _STYLE
    p = 0
    b, r = state[STATE_BATCH], state[STATE_ROW]
    while b < len(batches):
        shown = int(flags[b])
        if state[STATE_BATCH_DONE] == 0:
            if shown & SHOW_BATCH:
                needed = LINE_BYTES + SLACK + len(prefix)
                if needed > len(out) - p:
                    state[STATE_NEEDED] = needed
                    break
                p = _put_batch(out, p, style, prefix, batches[b], shown & VALID != 0)
            state[STATE_BATCH_DONE] = 1
        full = False
        while r < len(rows) and int(rows[r]["batch"]) <= b:
            if shown & SHOW_RECORDS:
                head = LINE_BYTES + SLACK + len(record_prefix)
                needed = head + int(rows[r]["header_count"]) * HEADER_BYTES
                needed += MOST_JSON_EXPANSION * int(rows[r]["size"])
                if needed > len(out):
                    trusted = shown & VALID != 0
                    p, done = _continue_record(
                        out, p, style, base64, trusted, record_prefix, arena, batches[b], rows[r], state
                    )
                    full = not done
                elif needed > len(out) - p:
                    full = True
                else:
                    trusted = shown & VALID != 0
                    p = _put_record(out, p, style, base64, trusted, record_prefix, arena, batches[b], rows[r])
                if full:
                    state[STATE_NEEDED] = head
                    break
                state[STATE_RECORDS] += 1
            r += 1
        if full:
            break
        state[STATE_BATCH_DONE] = 0
        b += 1
    state[STATE_BATCH], state[STATE_ROW] = b, r
    return p
