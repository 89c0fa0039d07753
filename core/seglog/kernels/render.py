"""Renders batches and records as lines of text or JSON, a whole chunk in one call (`seglog dump`).

`render` continues where the state array says, and returns when everything is written or the next line does not fit the
buffer; the caller takes the output and calls again. The order is that of the log: a batch, then its records. Text and
JSON differ only in the fixed words around the values.

A record whose line might exceed the whole buffer is not written here: the call before ends, and the next one says so
(STATE_LARGE). `look.dump.large_records` writes its line in pieces, so that no record makes a buffer grow.
"""

from __future__ import annotations

from seglog import layout
from seglog.kernels._jit import copy_bytes, inlined, kernel
from seglog.kernels.arrays import Batches, BatchRow, Bytes, RecordRow, Records, WritableBytes, WritableInt64s
from seglog.kernels.text import (
    MOST_JSON_EXPANSION,
    SLACK,
    make_cells,
    put_base64,
    put_integer,
    put_json_text,
    put_word,
)
from seglog.kernels.varint import read_varint
from seglog.model import NO_SEQUENCE, codec_name

JSON = 0
TEXT = 1

# State (int64), which is passed from call to call.
STATE_BATCH = 0  # batch to continue with
STATE_ROW = 1  # row to continue with
STATE_BATCH_DONE = 2  # 1 once the batch's own line is written
STATE_NEEDED = 3  # bytes that the next line needs, if it did not fit an empty buffer
STATE_RECORDS = 4  # lines of records written so far
STATE_LARGE = 5  # 1 if nothing was written because the next record is larger than the buffer
STATE_SIZE = 6

# Flags of a batch.
SHOW_BATCH = 1
VALID = 2
SHOW_RECORDS = 4

# Upper bounds of bytes written.
LINE_BYTES = 1024  # for a line without key, value, headers and prefix
HEADER_BYTES = 128  # for a header without the bytes of its key and value

JSON_WORDS = [
    *(',"magic":', ',"base_offset":', ',"last_offset":', ',"count":', ',"codec":'),
    *(f'"{codec_name(number)}"' for number in range(8)),
    *(',"timestamp_type":', '"NoTimestampType"', '"CreateTime"', '"LogAppendTime"'),
    *(',"base_timestamp":', ',"max_timestamp":', ',"delete_horizon":', ',"producer_id":'),
    *(',"producer_epoch":', ',"base_sequence":', ',"last_sequence":', ',"transactional":'),
    *(',"control":', ',"leader_epoch":', ',"crc":', ',"valid":', "false", "true", "null", "}\n"),
    *(',"timestamp":', ',"sequence":', ',"headers":[', "]"),
    *(',"trusted":false', "{", ",{", "}", ',"size":', '"'),
    *(',"key":"', ',"key_b64":"', ',"key":null', ',"value":"', ',"value_b64":"', ',"value":null'),
    *('"key":"', '"key_b64":"'),
]
TEXT_WORDS = [
    *(" magic=", " base_offset=", " last_offset=", " count=", " codec="),
    *map(codec_name, range(8)),
    *(" timestamp_type=", "NoTimestampType", "CreateTime", "LogAppendTime"),
    *(" base_timestamp=", " max_timestamp=", " delete_horizon=", " producer_id="),
    *(" producer_epoch=", " base_sequence=", " last_sequence=", " transactional="),
    *(" control=", " leader_epoch=", " crc=", " valid=", "false", "true", "null", "\n"),
    *(" timestamp=", " sequence=", " headers=[", "]"),
    *(" trusted=false", "{", ", {", "}", " size=", '"'),
    *(' key="', ' key_b64="', " key=null", ' value="', ' value_b64="', " value=null"),
    *('key="', 'key_b64="'),
]
assert len(JSON_WORDS) == len(TEXT_WORDS)
_CELLS, _SIZES = make_cells([*JSON_WORDS, *TEXT_WORDS])
_STYLE = len(JSON_WORDS)

# The numbers of the words.
_MAGIC = JSON_WORDS.index(',"magic":')
_BASE_OFFSET = JSON_WORDS.index(',"base_offset":')
_LAST_OFFSET = JSON_WORDS.index(',"last_offset":')
_COUNT = JSON_WORDS.index(',"count":')
_CODEC = JSON_WORDS.index(',"codec":')
_CODEC_NAME = JSON_WORDS.index('"none"')  # the first of eight, in the order of the codec's number
_TIMESTAMP_TYPE = JSON_WORDS.index(',"timestamp_type":')
_TIMESTAMP_TYPE_NAME = JSON_WORDS.index('"NoTimestampType"')  # the first of three
_BASE_TIMESTAMP = JSON_WORDS.index(',"base_timestamp":')
_MAX_TIMESTAMP = JSON_WORDS.index(',"max_timestamp":')
_DELETE_HORIZON = JSON_WORDS.index(',"delete_horizon":')
_PRODUCER_ID = JSON_WORDS.index(',"producer_id":')
_PRODUCER_EPOCH = JSON_WORDS.index(',"producer_epoch":')
_BASE_SEQUENCE = JSON_WORDS.index(',"base_sequence":')
_LAST_SEQUENCE = JSON_WORDS.index(',"last_sequence":')
_TRANSACTIONAL = JSON_WORDS.index(',"transactional":')
_CONTROL = JSON_WORDS.index(',"control":')
_LEADER_EPOCH = JSON_WORDS.index(',"leader_epoch":')
_CRC = JSON_WORDS.index(',"crc":')
_VALID = JSON_WORDS.index(',"valid":')
_FALSE = JSON_WORDS.index("false")
_TRUE = JSON_WORDS.index("true")
_NULL = JSON_WORDS.index("null")
_LINE_END = JSON_WORDS.index("}\n")
_TIMESTAMP = JSON_WORDS.index(',"timestamp":')
_SEQUENCE = JSON_WORDS.index(',"sequence":')
HEADERS = JSON_WORDS.index(',"headers":[')
HEADERS_END = JSON_WORDS.index("]")
_UNTRUSTED = JSON_WORDS.index(',"trusted":false')
HEADER = JSON_WORDS.index("{")
NEXT_HEADER = JSON_WORDS.index(",{")
HEADER_END = JSON_WORDS.index("}")
_SIZE = JSON_WORDS.index(',"size":')
QUOTE = JSON_WORDS.index('"')
# Each of these is the first of three: as text, as base64, null. The key of a header is never null, nor base64.
KEY = JSON_WORDS.index(',"key":"')
VALUE = JSON_WORDS.index(',"value":"')
HEADER_KEY = JSON_WORDS.index('"key":"')
AS_TEXT, AS_BASE64, AS_NULL = range(3)

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
        return put_word(_CELLS, _SIZES, word + AS_NULL, out, p)
    if not base64:
        end = put_json_text(out, put_word(_CELLS, _SIZES, word + AS_TEXT, out, p), data, start, start + size)
        if end >= 0:
            return put_word(_CELLS, _SIZES, style + QUOTE, out, end)
    p = put_base64(out, put_word(_CELLS, _SIZES, word + AS_BASE64, out, p), data, start, start + size)
    return put_word(_CELLS, _SIZES, style + QUOTE, out, p)


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
        p = put_word(_CELLS, _SIZES, style + (HEADER if k == 0 else NEXT_HEADER), out, p)
        size, at = read_varint(arena, at, end)
        p = _bytes(out, p, style + HEADER_KEY, style, False, arena, at, size)
        at += size
        size, at = read_varint(arena, at, end)
        p = _bytes(out, p, style + VALUE, style, base64, arena, at, size)
        at += max(size, 0)
        p = put_word(_CELLS, _SIZES, style + HEADER_END, out, p)
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
    p = _bytes(out, p, style + KEY, style, base64, arena, key_at, key_size)
    value_at, value_size = int(row["value_position"]), int(row["value_size"])
    p = _bytes(out, p, style + VALUE, style, base64, arena, value_at, value_size)
    p = put_word(_CELLS, _SIZES, style + HEADERS, out, p)
    if row["header_count"] > 0:
        p = _put_headers(out, p, style, base64, arena, row)
    p = put_word(_CELLS, _SIZES, style + HEADERS_END, out, p)
    if not trusted:
        p = put_word(_CELLS, _SIZES, style + _UNTRUSTED, out, p)
    return put_word(_CELLS, _SIZES, style + _LINE_END, out, p)


@inlined
def text_bytes(row: RecordRow, contents: bool) -> int:
    """Returns the most bytes of a record that are written as text: headers, and with `contents` key and value."""
    size = max(int(row["key_size"]), 0) + max(int(row["value_size"]), 0) if contents else 0
    if row["header_count"] > 0:
        size += int(row["position"]) + int(row["size"]) - int(row["headers_position"])
    return size


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
    was written, the next record is large (STATE_LARGE), or `state[STATE_NEEDED]` is the room that the next line needs.
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
                needed = LINE_BYTES + SLACK + len(record_prefix) + int(rows[r]["header_count"]) * HEADER_BYTES
                needed += MOST_JSON_EXPANSION * text_bytes(rows[r], True)
                if needed > len(out) - p:
                    state[STATE_LARGE] = 1 if needed > len(out) and p == 0 else 0
                    full = True
                    break
                trusted = shown & VALID != 0
                p = _put_record(out, p, style, base64, trusted, record_prefix, arena, batches[b], rows[r])
                state[STATE_RECORDS] += 1
            r += 1
        if full:
            break
        state[STATE_BATCH_DONE] = 0
        b += 1
    state[STATE_BATCH], state[STATE_ROW] = b, r
    return p
