"""Slow and obvious twins of the kernels, written from the specification and not from the kernels."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import crc32c as crc32c_library


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit: a microsecond a byte, so that batches have the library's."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """The shortest zig-zag varint of an int64."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def bytes_field(value: bytes | None) -> bytes:
    """A length-prefixed nullable byte string of a v2 record."""
    return varint(-1) if value is None else varint(len(value)) + value


@dataclass(frozen=True)
class NaiveRecord:
    """A record with deltas, as it lies in a batch."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    def encode(self) -> bytes:
        """The record with its length prefix."""
        body = b"\x00" + varint(self.timestamp_delta) + varint(self.offset_delta)
        body += bytes_field(self.key) + bytes_field(self.value) + varint(len(self.headers))
        for name, value in self.headers:
            body += varint(len(name)) + name + bytes_field(value)
        return varint(len(body)) + body


def batch_v2(
    base_offset: int,
    records: list[NaiveRecord],
    *,
    base_timestamp: int = 1000,
    max_timestamp: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 0,
    payload: bytes | None = None,
) -> bytes:
    """A record batch; `payload` replaces the encoded records (compressed, or damaged on purpose)."""
    body = b"".join(record.encode() for record in records) if payload is None else payload
    if last_offset_delta is None:
        last_offset_delta = max((record.offset_delta for record in records), default=0)
    if max_timestamp is None:
        max_timestamp = max((base_timestamp + record.timestamp_delta for record in records), default=-1)
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        *producer,
        len(records),
    )
    covered += body
    head = struct.pack(">qiibI", base_offset, 9 + len(covered), leader_epoch, 2, crc32c_library.crc32c(covered))
    return head + covered


def message(
    offset: int, magic: int, key: bytes | None, value: bytes | None, *, timestamp: int = -1, attributes: int = 0
) -> bytes:
    """A log entry of magic 0 or 1; any other magic has the fields of magic 1, as Kafka reads them."""
    import zlib

    covered = struct.pack(">bb", magic, attributes)
    if magic != 0:
        covered += struct.pack(">q", timestamp)
    for field in (key, value):
        covered += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered
