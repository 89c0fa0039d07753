"""Builds v2 batches from columns, split by record count and bytes (Kafka: MemoryRecordsBuilder).

1. `columns_of` turns records into columns once: one arena, one row per record, headers already encoded.
2. `encode_columns` writes batches in pieces of bounded size. The kernel writes uncompressed batches completely. With a
   codec, it writes the records uncompressed; threads compress the payloads (the codecs release the GIL), and headers
   and checksums are written last.

`message_set` builds messages of magic 0 and 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from operator import index

import numpy as np

from seglog import layout
from seglog.arguments import described, integer
from seglog.errors import AppendError, InvalidTimestampError
from seglog.format import checksum
from seglog.format.checksum import byte_view
from seglog.format.columns import Records
from seglog.format.compression import compress
from seglog.kernels import crc32c as crc32c_kernel
from seglog.kernels import encode as kernels
from seglog.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Compression,
    Header,
    Record,
)

DEFAULT_BATCH_BYTES = 16384  # the producer's batch.size
PIECE_BYTES = 4 << 20

_MOST_RECORDS = layout.INT32_MAX
_HEADER_BYTES = layout.RECORD_BATCH_OVERHEAD
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The settings shared by all batches of a build.

    `batch_bytes` limits a batch before compression, header included; a larger record gets a batch of its own.
    `append_time_ms` is the max timestamp of LogAppendTime batches, or None for CreateTime.
    """

    codec: Compression = Compression.NONE
    batch_records: int = _MOST_RECORDS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    leader_epoch: int = NO_LEADER_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    append_time_ms: int | None = None
    level: int | None = None

    def template(self, base_offset: int, records_before: int) -> np.ndarray:
        """Returns a row of `layout.BATCH` for the kernel; its sequence comes after the `records_before`."""
        row = np.zeros(1, dtype=layout.BATCH)
        row["base_offset"] = base_offset
        row["leader_epoch"] = self.leader_epoch
        row["producer_id"] = self.producer_id
        row["producer_epoch"] = self.producer_epoch
        sequence = self.base_sequence
        row["base_sequence"] = NO_SEQUENCE if sequence < 0 else (sequence + records_before) & layout.INT32_MAX
        attributes = int(self.codec) | (layout.TRANSACTIONAL_MASK if self.transactional else 0)
        if self.append_time_ms is not None:
            attributes |= layout.TIMESTAMP_TYPE_MASK
            row["max_timestamp"] = self.append_time_ms
        row["attributes"] = attributes
        row["magic"] = 2
        return row


@dataclass(frozen=True, slots=True)
class EncodedBatches:
    """Finished batches back to back in `data` (uint8); `batches` (layout.BATCH) has positions in `data`.

    Valid until the iterator that yielded it advances.
    """

    data: np.ndarray
    batches: np.ndarray


# --- columns --------------------------------------------------------------------------------------------


def columns_of(records: Iterable[Record]) -> Records:
    """Returns records as columns. A timestamp or offset of None becomes -1; offsets and sequences are kept.

    Raises AppendError if keys, values and headers together take 2 GiB or more, and TypeError for an item that is not a
    record, or has a key or value that is not bytes.
    """
    if isinstance(records, Record | str | bytes) or not isinstance(records, Iterable):
        raise TypeError(f"records must be an iterable of seglog.Record, not {described(records)}")
    pieces: list[bytes] = []
    table: list[tuple[int, ...]] = []
    at = 0
    for record in records:
        try:
            value, key, timestamp, headers, offset, sequence = record
            key_size = -1 if key is None else len(key)
            value_size = -1 if value is None else len(value)
            piece = b"".join((key or b"", value or b""))
            value_at, headers_at = at + (key_size if key_size > 0 else 0), at + len(piece)
            if headers:
                piece += b"".join(_encoded_header(header) for header in headers)
            stamp = NO_TIMESTAMP if timestamp is None else index(timestamp)
            numbers = (-1 if offset is None else index(offset), stamp)
            spans = (at, len(piece), at, key_size, value_at, value_size, headers_at, len(headers))
            table.append((*numbers, *spans, 0, index(sequence)))
        except (AttributeError, TypeError, ValueError):
            _require_record(len(table), record)
            raise
        pieces.append(piece)
        at += len(piece)
        if at > layout.INT32_MAX:
            raise AppendError("the records of one append take 2 GiB or more; append them in parts")
    try:
        rows = np.array(table, dtype=layout.RECORD) if table else np.zeros(0, dtype=layout.RECORD)
    except OverflowError:
        wrong = next((i for i, row in enumerate(table) if any(abs(number) >= 2**63 for number in row[:2])), 0)
        raise ValueError(f"records[{wrong}]: its timestamp, offset or sequence is too large a number") from None
    return columns(np.frombuffer(bytearray().join(pieces), dtype=np.uint8), rows)


def _require_record(i: int, record: object) -> None:
    """Raises TypeError, with the reason, if `record` is not a valid record."""
    if not isinstance(record, Record):
        raise TypeError(f"records[{i}] must be a seglog.Record, not {described(record)}")
    for name, data in (("key", record.key), ("value", record.value)):
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"records[{i}].{name} must be bytes or None, not {described(data)}")
    for name in ("timestamp", "offset", "sequence"):
        number = getattr(record, name)
        if number is not None or name == "sequence":
            integer(f"records[{i}].{name}", number)
    if not isinstance(record.headers, Iterable) or not all(isinstance(each, Header) for each in record.headers):
        raise TypeError(f"records[{i}].headers must be seglog.Header, not {described(record.headers)}")
    for header in record.headers:
        if not isinstance(header.key, str) or not isinstance(header.value, bytes | None):
            raise TypeError(
                f"records[{i}].headers: a key must be text and a value bytes or None, not {described(header)}"
            )


def columns(arena: np.ndarray, rows: np.ndarray) -> Records:
    """Returns columns that belong to no batch yet: `arena` is uint8, `rows` of `layout.RECORD`.

    If `header_count` is not 0, the encoded headers go from `headers_position` to `position + size`.
    """
    return Records(arena, rows, np.zeros(0, dtype=layout.BATCH), np.zeros(0, dtype=np.int8))


def columns_of_arrays(
    values: np.ndarray,
    value_offsets: np.ndarray,
    timestamps: np.ndarray,
    *,
    keys: np.ndarray | None = None,
    key_offsets: np.ndarray | None = None,
    null_values: np.ndarray | None = None,
    null_keys: np.ndarray | None = None,
) -> Records:
    """Returns columns of Arrow-like buffers: values back to back (uint8), with n + 1 offsets into them; keys likewise.

    `timestamps` are epoch milliseconds (-1: the log chooses); masks are True for null. Without `keys`, every key is
    null. Raises AppendError if keys and values together take 2 GiB or more.
    """
    count = len(timestamps)
    arena = values if keys is None else np.concatenate([values, keys])
    if len(arena) > layout.INT32_MAX:
        raise AppendError("the records of one append take 2 GiB or more; append them in parts")
    rows = np.zeros(count, dtype=layout.RECORD)
    rows["timestamp"] = timestamps
    rows["offset"] = -1
    rows["sequence"] = NO_SEQUENCE
    rows["key_size"] = -1
    rows["value_position"] = value_offsets[:count]
    rows["value_size"] = np.diff(value_offsets)
    if keys is not None and key_offsets is not None:
        rows["key_position"] = key_offsets[:count] + len(values)
        rows["key_size"] = np.diff(key_offsets)
    if null_values is not None:
        rows["value_size"][null_values] = -1
    if null_keys is not None:
        rows["key_size"][null_keys] = -1
    return columns(arena, rows)


def _encoded_header(header: Header) -> bytes:
    name = header.key.encode("utf-8", "surrogateescape")
    if header.value is None:
        return varint(len(name)) + name + varint(-1)
    return varint(len(name)) + name + varint(len(header.value)) + header.value


def varint(value: int) -> bytes:
    """Returns `value` as a zig-zag number (Kafka: ByteUtils.writeVarint)."""
    raw = value << 1 if value >= 0 else (~value << 1) | 1
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


# --- batches --------------------------------------------------------------------------------------------


def encode_columns(
    records: Records,
    base_offset: int,
    options: BatchOptions,
    *,
    keep_offsets: bool = False,
    pool: Executor | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[EncodedBatches]:
    """Encodes `records` into batches that start at `base_offset`, in pieces of about `piece_bytes`.

    Records are numbered consecutively, or with `keep_offsets` keep their own ascending offsets (at least
    `base_offset`). `pool` compresses batches in parallel. Raises InvalidTimestampError for a timestamp below -1, and
    AppendError for a row that leaves its arena or an offset that does not fit; earlier pieces have then been yielded.
    """
    # Writable, although nothing writes it: kernels are compiled once, for writable buffers.
    arena, rows = np.require(records.arena, np.uint8, ["C", "W"]), records.rows
    first = 0
    out = np.empty(piece_bytes, dtype=np.uint8)
    table = np.empty(max(16, piece_bytes // 1024), dtype=layout.BATCH)
    sealed = options.codec == Compression.NONE and crc32c_kernel.HARDWARE
    while first < len(rows):
        start = int(rows["offset"][first]) if keep_offsets and first else base_offset + first
        template = options.template(base_offset if not first else start, first)
        last, size, count, status = kernels.encode_batches(
            arena,
            rows,
            first,
            template,
            options.batch_records,
            options.batch_bytes,
            not keep_offsets,
            sealed,
            out,
            table,
        )
        if status not in (kernels.ENCODE_COMPLETE, kernels.ENCODE_FULL):
            _refuse(status, last, rows, table[count])
        if count == 0:
            # not even one batch fits
            out = np.empty(_room_needed(rows, first, options, len(out)), dtype=np.uint8)
            continue
        first = last
        data, batches = out[:size], table[:count]
        if options.codec != Compression.NONE:
            yield _compressed(data, batches, options, pool)
        else:
            yield EncodedBatches(data if sealed else _with_checksums(data, batches), batches)


def encode_all(records: Records, base_offset: int, options: BatchOptions, *, keep_offsets: bool = False) -> bytes:
    """Returns the batches of `encode_columns` as one bytes object, for small inputs."""
    pieces = encode_columns(records, base_offset, options, keep_offsets=keep_offsets)
    return b"".join(piece.data.tobytes() for piece in pieces)


def _room_needed(rows: np.ndarray, first: int, options: BatchOptions, room: int) -> int:
    """Returns a size above `room` that is enough for the batch that begins at `first`."""
    one = _HEADER_BYTES + int(kernels.encoded_bound(rows, first, first + 1))
    return max(2 * room, one, min(options.batch_bytes, 64 << 20) + _HEADER_BYTES)


def _refuse(status: int, row: int, rows: np.ndarray, batch: np.void) -> None:
    bad = row + int(batch["count"])  # the batch was open when the record was met
    if status == kernels.TIMESTAMP_INVALID:
        bad = row + int(np.argmax(rows["timestamp"][row:] < NO_TIMESTAMP))
        stamp = int(rows["timestamp"][bad])
        raise InvalidTimestampError(f"record {bad}: timestamp {stamp} is negative; Kafka's cleaner cannot handle it")
    if status == kernels.OFFSET_INVALID:
        raise AppendError(f"record {bad}: offset {int(rows['offset'][bad])} does not follow the one before it")
    raise AppendError(f"record {bad}: its key, value or headers lie outside their buffer")


def _with_checksums(data: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """Fills in the checksums with the library, for processors without the instruction."""
    view = byte_view(data)
    for row in batches:
        start = int(row["position"])
        crc = checksum.crc32c(view[start + layout.ATTRIBUTES_OFFSET : start + int(row["size"])])
        row["crc"] = crc
        _CRC.pack_into(view, start + layout.CRC_OFFSET, crc)
    return data


def _compressed(data: np.ndarray, batches: np.ndarray, options: BatchOptions, pool: Executor | None) -> EncodedBatches:
    starts = batches["position"] + _HEADER_BYTES
    ends = batches["position"] + batches["size"]
    view = byte_view(data)
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))

    def payload(span: tuple[int, int]) -> bytes:
        return compress(options.codec, view[span[0] : span[1]], level=options.level)

    payloads: Sequence[bytes] = list(map(payload, spans) if pool is None else pool.map(payload, spans))
    sizes = np.array([len(piece) for piece in payloads], dtype=np.int64) + _HEADER_BYTES
    table = batches.copy()
    table["size"] = sizes
    table["position"] = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), dtype=np.uint8)
    target = byte_view(out)
    for i, piece in enumerate(payloads):
        at = int(table["position"][i]) + _HEADER_BYTES
        target[at : at + len(piece)] = piece
    kernels.seal_batches(out, table, crc32c_kernel.HARDWARE)
    return EncodedBatches(out if crc32c_kernel.HARDWARE else _with_checksums(out, table), table)
