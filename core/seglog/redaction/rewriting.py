"""Rewrites one batch so that named records lose their value, or are gone. Everything else of it stays.

Base offset, last offset, timestamps, sequences, producer, leader epoch and codec stay, and the bytes of the records
that are not named. A batch that loses whole records keeps its place as a cleaned one does: fewer records, perhaps
none, the same offsets (Kafka: MemoryRecords.filterTo). Messages of magic 0 and 1 keep their format: a plain one is an
entry of its own, compressed ones lie in a wrapper.

A key may become a digest of itself, by a secret that only this run knows: equal keys stay equal, so compaction goes on
as before, and nobody can find out by trying which key it was.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError, RefusedError
from seglog.format.builder import varint
from seglog.format.columns import STATUS_REASONS, Records, joined
from seglog.format.compression import compress
from seglog.format.decoder import decode_records
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.format.windows import WHOLE_LIMIT
from seglog.model import NO_TIMESTAMP

DIGEST_BYTES = 16

_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_ENTRY = struct.Struct(">qi")
_MAGIC_AT = layout.MESSAGE_MAGIC_OFFSET


@dataclass(frozen=True, slots=True)
class Erasure:
    """What is erased of a named record.

    `whole_record`: the record goes; otherwise its value, which becomes null or, with `zeros`, as many zero bytes.
    `drop_headers`: its headers go with the value. `secret`: keys become digests by it; None keeps them.
    """

    whole_record: bool = False
    zeros: bool = False
    drop_headers: bool = False
    secret: bytes | None = field(default=None, repr=False)

    @property
    def keeps_key(self) -> bool:
        """True if a record stays, under its own key."""
        return not self.whole_record and self.secret is None

    def digest(self, key: bytes) -> bytes:
        """Returns what stands in a key's place."""
        if self.secret is None:
            return key
        return hashlib.blake2b(key, key=self.secret, digest_size=DIGEST_BYTES).hexdigest().encode()

    def done(self, records: Records) -> np.ndarray:
        """Returns which records already are as this erasure leaves them (bool, one a record); keys do not count."""
        rows = records.rows
        if self.whole_record:
            return np.zeros(len(rows), dtype=np.bool_)
        empty = rows["value_size"] == 0 if self.zeros else rows["value_size"] < 0
        if self.zeros:
            empty |= rows["value_size"] < 0
            for i in np.flatnonzero(~empty).tolist():
                start = int(rows["value_position"][i])
                empty[i] = not records.arena[start : start + int(rows["value_size"][i])].any()
        if self.drop_headers:
            empty &= rows["header_count"] == 0
        result: np.ndarray = empty
        return result


def rewritten(path: Path, data: np.ndarray, row: np.ndarray, offsets: np.ndarray, erasure: Erasure) -> bytes:
    """Returns the entry without what `erasure` takes from its records at `offsets` (ascending); empty if nothing stays.

    `data` (uint8) holds exactly the entry of the table `row` (layout.BATCH, one row). Raises CorruptRecordError if it
    cannot be decoded, RefusedError if it is larger than what can be rewritten.
    """
    at = row.copy()
    at["position"] = 0
    records = _decoded(path, data, row, list(decode_records(data, at, 0, limit=WHOLE_LIMIT)))
    chosen = np.isin(records.rows["offset"], offsets)
    if row["magic"][0] >= 2:
        return _batch(data, records, chosen, erasure)
    if row["attributes"][0] & layout.CODEC_MASK:
        return _wrapper(data, row[0], records, chosen, erasure)
    return b"" if erasure.whole_record else _message(records, 0, erasure)


def _decoded(path: Path, data: np.ndarray, row: np.ndarray, parts: list[Records]) -> Records:
    span = int(row["position"][0]), int(row["base_offset"][0]), int(row["last_offset"][0])
    if len(data) > WHOLE_LIMIT or sum(len(part.arena) for part in parts) > WHOLE_LIMIT:
        raise RefusedError(
            f"{path}: the batch at position {span[0]} (offsets {span[1]} to {span[2]}) is larger than {WHOLE_LIMIT}"
            " bytes, and cannot be rewritten; nothing was changed"
        )
    bad = next((int(status) for part in parts for status in part.status if status), 0)
    if bad:
        raise CorruptRecordError(path, STATUS_REASONS[bad], *span)
    return joined(parts)


# --- magic 2


def _batch(data: np.ndarray, records: Records, chosen: np.ndarray, erasure: Erasure) -> bytes:
    header = RecordBatchHeader.read(data[: layout.RECORD_BATCH_OVERHEAD].tobytes())
    rows, arena = records.rows, records.arena
    pieces: list[bytes | memoryview] = []
    for i, named in enumerate(chosen.tolist()):
        if not named:
            start = int(rows["position"][i])
            pieces.append(arena[start : start + int(rows["size"][i])].tobytes())
        elif not erasure.whole_record:
            pieces.append(_record(records, i, erasure))
    if erasure.whole_record:
        stay = rows[~chosen]
        header = replace(header, count=len(stay))
        if not header.attributes & layout.TIMESTAMP_TYPE_MASK:
            header = replace(header, max_timestamp=int(stay["timestamp"].max()) if len(stay) else NO_TIMESTAMP)
    payload = b"".join(pieces)
    codec = header.attributes & layout.CODEC_MASK
    return encode_batch(header, compress(codec, payload) if codec and header.count else payload)


def _record(records: Records, i: int, erasure: Erasure) -> bytes:
    """Returns record `i` of a batch of magic 2, with its length."""
    row = records.rows[i]
    start, end = int(row["position"]), int(row["position"]) + int(row["size"])
    raw = records.arena[start:end].tobytes()
    head = _after_varint(raw, 0)
    numbers = _after_varint(raw, _after_varint(raw, head + 1))  # attributes, timestamp delta, offset delta
    key = records.key(i)
    body = [
        raw[head:numbers],
        _sized(None if key is None else erasure.digest(key)),
        _sized(_value(records, i, erasure)),
    ]
    if erasure.drop_headers:
        body.append(varint(0))
    else:
        body += [varint(int(row["header_count"])), raw[int(row["headers_position"]) - start :]]
    joined_body = b"".join(body)
    return varint(len(joined_body)) + joined_body


def _value(records: Records, i: int, erasure: Erasure) -> bytes | None:
    """Returns what stands in the place of a value."""
    size = int(records.rows["value_size"][i])
    return bytes(size) if erasure.zeros and size >= 0 else None


def _after_varint(data: bytes, p: int) -> int:
    while data[p] >= 0x80:
        p += 1
    return p + 1


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


# --- magic 0 and 1


def _message(records: Records, i: int, erasure: Erasure) -> bytes:
    """Returns the log entry of record `i`; its offset, attributes and timestamp stay."""
    start = int(records.rows["position"][i])
    raw = records.arena[start : start + int(records.rows["size"][i])].tobytes()
    key = records.key(i)
    return _entry(raw, None if key is None else erasure.digest(key), _value(records, i, erasure))


def _wrapper(data: np.ndarray, row: np.void, records: Records, chosen: np.ndarray, erasure: Erasure) -> bytes:
    inner: list[bytes] = []
    for i, named in enumerate(chosen.tolist()):
        start = int(records.rows["position"][i])
        if not named:
            inner.append(records.arena[start : start + int(records.rows["size"][i])].tobytes())
        elif not erasure.whole_record:
            inner.append(_message(records, i, erasure))
    if not inner:
        return b""
    raw = data.tobytes()
    codec, magic = int(row["attributes"]) & layout.CODEC_MASK, int(row["magic"])
    if chosen[-1] and erasure.whole_record:  # inner offsets of magic 1 count back from the wrapper's
        raw = _OFFSET.pack(int(records.rows["offset"][~chosen][-1])) + raw[_OFFSET.size :]
    at = _key_at(magic) + _SIZE.size
    (size,) = _SIZE.unpack_from(raw, at - _SIZE.size)
    return _entry(raw, None if size < 0 else raw[at : at + size], compress(codec, b"".join(inner), magic=magic))


def _key_at(magic: int) -> int:
    return layout.MESSAGE_V0_KEY_SIZE_OFFSET if magic == 0 else layout.MESSAGE_V1_KEY_SIZE_OFFSET


def _entry(raw: bytes, key: bytes | None, value: bytes | None) -> bytes:
    """Returns a message with the offset, attributes and timestamp of `raw`, and with this key and value."""
    magic = raw[_MAGIC_AT]
    body = raw[_MAGIC_AT : _key_at(magic)] + _int_sized(key) + _int_sized(value)
    message = zlib.crc32(body).to_bytes(4, "big") + body
    offset, _ = _ENTRY.unpack_from(raw)
    return _ENTRY.pack(offset, len(message)) + message


def _int_sized(data: bytes | None) -> bytes:
    return _SIZE.pack(-1) if data is None else _SIZE.pack(len(data)) + data
