"""Logs that nobody wrote in good faith: real batches, changed in one way or several, with right checksums again.

Seeds are small batches of the fixtures: every magic, codec, transactions, control batches. `hostile_log(number)` is the
same log for the same number, everywhere. A log is a few batches; of some of them

- header fields, record counts, attributes, sizes are set to what nobody expects;
- numbers within records (varints: lengths, deltas, counts) are replaced, with the record's length made right or not;
- keys, values and headers become bytes that writers of text must take care of;
- bytes of the records, or of what a codec made of them, are changed, cut, repeated or lost;
- inner messages of wrappers are treated in the same ways.

Then every entry is sealed with the checksum of the bytes that its size field claims, nearly always.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import crc32c
import numpy as np

from seglog import layout
from seglog.format.compression import compress, decompress
from seglog.format.decoder import scan_batches
from seglog.format.payloads import DecompressionError
from tests.support.fixtures import KAFKA
from tests.support.naive import varint

_MOST_SEED_BYTES = 1600
_PLAIN_LIMIT = 1 << 16
_MOST_BATCHES = 4
_UNSEALED = 0.03

_EXTREMES = [
    *(0, 1, -1, 2, -2, 6, 7, 63, 64, -64, -65, 127, 128, 8191, 8192, 2**15 - 1, 2**16, 2**27, 2**31 - 1, -(2**31)),
    *(2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1, 2**63 - 2, 2**61),
]
_TEXTS = [
    *(b"", b"\x01" * 40, b"\x01" * 900 + b"\xff", b'"\\' * 200 + b"\xc3", b"\xe2\x82\xac" * 30, b"\xed\xa0\x80" * 20),
    *(
        b"\xff" * 300,
        b"plain text of more than eight bytes",
        b"\xf0\x9f\x98" * 40,
        b"\x00",
        b"1234567\x80",
        b"a" * 2000,
    ),
]
# offset in the header, format
_V2_FIELDS = [(0, ">q"), (12, ">i"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (51, ">h")]
_V2_FIELDS += [(53, ">i"), (57, ">i"), (16, ">b")]


@dataclass
class _Entry:
    """A log entry taken apart: what is in front of its payload, the payload expanded, and whether it was compressed."""

    head: bytearray
    plain: bytes
    codec: int
    magic: int
    raw: bytes = b""  # as a codec made it; empty: made anew from `plain`

    def copy(self) -> _Entry:
        return _Entry(bytearray(self.head), self.plain, self.codec, self.magic, self.raw)

    def encoded(self) -> bytearray:
        """The entry with its size field right, unsealed."""
        payload = self.plain if self.codec == 0 else self.raw or _compressed(self.codec, self.plain, self.magic)
        if self.magic < 2 and self.codec:
            payload = struct.pack(">i", len(payload)) + payload
        data = self.head + payload
        struct.pack_into(">i", data, layout.SIZE_OFFSET, len(data) - layout.LOG_OVERHEAD)
        return data


def _compressed(codec: int, plain: bytes, magic: int) -> bytes:
    return compress(codec, plain, magic=magic) if codec <= 4 else plain


@dataclass
class _Seeds:
    """Entries of one log, in order; the first ones and others by chance make an input."""

    name: str
    entries: list[_Entry] = field(default_factory=list)


@cache
def seeds() -> list[_Seeds]:
    """What the fixtures hold of small entries, by log."""
    found = []
    for path in sorted(KAFKA.rglob("*.log")):
        entries = list(_entries_of(path.read_bytes()))
        if entries:
            found.append(_Seeds(str(path.relative_to(KAFKA)), entries))
    return found


def _entries_of(data: bytes) -> Iterator[_Entry]:
    array = np.frombuffer(data, dtype=np.uint8)
    for row in scan_batches(array, 0, len(array), 0).batches:
        position, size, magic = int(row["position"]), int(row["size"]), int(row["magic"])
        if size > _MOST_SEED_BYTES:
            continue
        codec = int(row["attributes"]) & layout.CODEC_MASK
        head = layout.RECORD_BATCH_OVERHEAD if magic >= 2 else layout.MAGIC_OFFSET + 2 + (8 if magic else 0)
        if magic < 2 and codec:
            head += 4 + max(0, struct.unpack_from(">i", data, position + head)[0])  # the key, which wrappers have not
        payload = data[position + head + (4 if magic < 2 and codec else 0) : position + size]
        try:
            plain = bytes(decompress(codec, payload, magic=magic, limit=_PLAIN_LIMIT))
        except DecompressionError:
            continue
        yield _Entry(bytearray(data[position : position + head]), plain, codec, magic)


def hostile_log(number: int) -> bytes:
    """The log of a number; `hostile_log(n)` of different `n` differ nearly always."""
    chance = random.Random(f"hostile {number}")
    seed = seeds()[number % len(seeds())]
    first = chance.randrange(len(seed.entries))
    entries = [entry.copy() for entry in seed.entries[first : first + chance.randint(1, _MOST_BATCHES)]]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _change_entry(chance.choice(entries), chance)
    parts = [entry.encoded() for entry in entries]
    if chance.random() < 0.2:
        _change_order(parts, chance)
    if chance.random() < 0.15:
        part = chance.choice(parts)
        if len(part) >= layout.LOG_OVERHEAD:
            struct.pack_into(">i", part, layout.SIZE_OFFSET, _size_near(len(part), chance))
    data = bytearray(b"".join(parts))
    position = 0
    for part in parts:
        if chance.random() >= _UNSEALED:
            _seal(data, position)
        position += len(part)
    if chance.random() < 0.1:
        del data[max(1, len(data) - chance.randrange(1, 90)) :]
    return bytes(data)


def _size_near(size: int, chance: random.Random) -> int:
    return chance.choice((size - layout.LOG_OVERHEAD + chance.randint(-20, 20), 14, 26, 49, 2**31 - 1, -1, 0))


def _seal(data: bytearray, position: int) -> None:
    """Gives the entry at `position` the checksum of what its size field claims, where all of that is there."""
    if len(data) - position < layout.LOG_OVERHEAD + layout.LEAST_ENTRY_SIZE:
        return
    end = position + layout.LOG_OVERHEAD + struct.unpack_from(">i", data, position + layout.SIZE_OFFSET)[0]
    if end > len(data) or end - position < layout.HEADER_UP_TO_MAGIC:
        return
    if struct.unpack_from(">b", data, position + layout.MAGIC_OFFSET)[0] >= 2:
        if end - position >= layout.ATTRIBUTES_OFFSET:
            checksum = crc32c.crc32c(memoryview(data)[position + layout.ATTRIBUTES_OFFSET : end])
            struct.pack_into(">I", data, position + layout.CRC_OFFSET, checksum)
    else:
        checksum = zlib.crc32(memoryview(data)[position + layout.MESSAGE_MAGIC_OFFSET : end])
        struct.pack_into(">I", data, position + layout.MESSAGE_CRC_OFFSET, checksum)


def _change_order(parts: list[bytearray], chance: random.Random) -> None:
    kind, at = chance.randrange(4), chance.randrange(len(parts))
    if kind == 0:
        parts.insert(at, bytearray(parts[at]))
    elif kind == 1:
        chance.shuffle(parts)
    elif kind == 2:
        parts.insert(at, bytearray(chance.randbytes(chance.randrange(1, 60))))
    elif len(parts) > 1:
        del parts[at]


def _change_entry(entry: _Entry, chance: random.Random) -> None:
    if chance.random() < 0.25:
        _change_head(entry, chance)
    elif entry.codec and chance.random() < 0.35:
        packed = bytearray(entry.raw or _compressed(entry.codec, entry.plain, entry.magic))
        _change_bytes(packed, chance)
        entry.raw = bytes(packed)
    else:
        entry.plain = _changed_plain(entry, chance)
        entry.raw = b""
    if chance.random() < 0.04:
        entry.codec = chance.randrange(8)  # the head says otherwise
    if entry.magic < 2 and chance.random() < 0.05:
        struct.pack_into(">b", entry.head, layout.MAGIC_OFFSET, chance.choice((0, 1, -1, -128, 2)))


def _change_head(entry: _Entry, chance: random.Random) -> None:
    if entry.magic >= 2:
        at, kind = chance.choice(_V2_FIELDS)
    else:
        at, kind = chance.choice(((0, ">q"), (16, ">b"), (17, ">b"), (18, ">q")))
    if at + struct.calcsize(kind) > len(entry.head):
        return
    bits = 8 * struct.calcsize(kind)
    value = struct.unpack_from(kind, entry.head, at)[0]
    value = chance.choice(
        (chance.choice(_EXTREMES), value ^ 1 << chance.randrange(bits), value + chance.randint(-9, 9))
    )
    struct.pack_into(kind.upper() if bits < 64 else ">Q", entry.head, at, value % (1 << bits))
    if chance.random() < 0.5:
        entry.codec = entry.head[layout.ATTRIBUTES_OFFSET + 1 if entry.magic >= 2 else 17] & layout.CODEC_MASK


def _change_bytes(data: bytearray, chance: random.Random) -> None:
    """Bytes changed without knowing what they are."""
    if not data:
        data += chance.randbytes(chance.randrange(9))
        return
    at, kind = chance.randrange(len(data)), chance.randrange(7)
    if kind == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at] = chance.randrange(256)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        del data[at : at + chance.randrange(1, 9)]
    elif kind == 4:
        data[at:at] = chance.randbytes(chance.randrange(1, 9))
    elif kind == 5:
        data += chance.randbytes(chance.randrange(1, 20))
    else:
        data[at : at + 4] = struct.pack(">i", chance.choice(_EXTREMES) % 2**31)


def _changed_plain(entry: _Entry, chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        data = bytearray(entry.plain)
        _change_bytes(data, chance)
        return bytes(data)
    if entry.magic >= 2:
        return _changed_records(entry.plain, chance)
    return _changed_messages(entry.plain, chance) if entry.codec else _changed_spans(entry.plain, chance)


# --- records of magic 2 -------------------------------------------------------------------------------------------


def _changed_records(plain: bytes, chance: random.Random) -> bytes:
    records = list(_records_of(plain))
    if not records:
        return plain
    for _ in range(chance.choice((1, 1, 2))):
        _change_record(records[chance.randrange(len(records))], chance)
    if chance.random() < 0.2:
        records.insert(chance.randrange(len(records)), list(chance.choice(records)))
    return b"".join(map(_record, records))


def _records_of(plain: bytes) -> Iterator[list[bytes]]:
    """Each record's parts after its length: attributes, numbers and bytes, alternately."""
    position = 0
    while position < len(plain):
        length, p = _read_varint(plain, position)
        end = p + length
        if length <= 0 or end > len(plain):
            return
        parts = [plain[p : p + 1]]
        p += 1
        for _ in range(2):
            _, after = _read_varint(plain, p)
            parts.append(plain[p:after])
            p = after
        for count in (2, None):
            if count is None:
                count, after = _read_varint(plain, p)
                parts.append(plain[p:after])
                p, count = after, 2 * max(0, min(count, end - after))
            for _ in range(count):
                size, after = _read_varint(plain, p)
                parts += [plain[p:after], plain[after : after + max(size, 0)]]
                p = after + max(size, 0)
        yield parts
        position = end


def _read_varint(data: bytes, p: int) -> tuple[int, int]:
    raw = shift = 0
    while p < len(data):
        byte = data[p]
        p += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return raw >> 1 ^ -(raw & 1), p


def _record(parts: list[bytes]) -> bytes:
    """A record of its parts; a first part of more than one byte brings its own length."""
    body = b"".join(parts)
    if len(parts[0]) == 1:
        return varint(len(body)) + body
    return body


def _change_record(parts: list[bytes], chance: random.Random) -> None:
    kind = chance.randrange(6)
    if kind == 0:  # a number, and nothing follows it
        parts[chance.choice([1, 2, *range(3, len(parts), 2)])] = _number(chance)
    elif kind == 1:  # bytes with their size
        at = chance.choice([4, 6, *range(9, len(parts), 2)])
        if at < len(parts):
            parts[at] = chance.choice(_TEXTS)
            parts[at - 1] = varint(len(parts[at]))
    elif kind == 2:  # null
        at = chance.choice((4, 6))
        parts[at], parts[at - 1] = b"", varint(-1)
    elif kind == 3:  # headers
        headers = [(chance.choice(_TEXTS), chance.choice(_TEXTS)) for _ in range(chance.randrange(1, 6))]
        parts[7:] = [varint(len(headers)), *(p for pair in headers for part in pair for p in (varint(len(part)), part))]
    elif kind == 4:  # the record's own length
        parts[0] = _number(chance) + parts[0][-1:]
    else:
        at = chance.randrange(len(parts))
        parts[at] = parts[at] + chance.randbytes(chance.randrange(3))


def _number(chance: random.Random) -> bytes:
    """A varint: of an extreme, a small number, or in a form longer than it must be."""
    number = varint(chance.choice(_EXTREMES) if chance.random() < 0.6 else chance.randint(-70, 70))
    if chance.random() < 0.2:
        number = number[:-1] + bytes([number[-1] | 0x80]) + b"\x80" * chance.randrange(9) + b"\x00"
    return number[: chance.randrange(1, 11)] if chance.random() < 0.1 else number


# --- messages of magic 0 and 1 --------------------------------------------------------------------------------------


def _changed_messages(plain: bytes, chance: random.Random) -> bytes:
    """The messages inside a wrapper."""
    messages, position = [], 0
    while len(plain) - position >= layout.LOG_OVERHEAD:
        size = struct.unpack_from(">i", plain, position + layout.SIZE_OFFSET)[0]
        end = position + layout.LOG_OVERHEAD + size
        if size < layout.LEAST_ENTRY_SIZE or end > len(plain):
            break
        messages.append(bytearray(plain[position:end]))
        position = end
    if not messages:
        return plain
    for _ in range(chance.choice((1, 1, 2))):
        inner = chance.choice(messages)
        kind = chance.randrange(6) if len(inner) >= 18 else 5  # it may have been cut short already
        if kind == 0:
            struct.pack_into(">q", inner, 0, _clipped(chance.choice(_EXTREMES), 63))
        elif kind == 1:
            struct.pack_into(">b", inner, layout.MAGIC_OFFSET, chance.choice((0, 1, -1, -128, 2, 127)))
        elif kind == 2:
            inner[layout.MESSAGE_ATTRIBUTES_OFFSET] = chance.randrange(256)
        elif kind == 3:
            inner[18:] = _changed_spans(bytes(inner[18:]), chance)
            struct.pack_into(">i", inner, layout.SIZE_OFFSET, len(inner) - layout.LOG_OVERHEAD)
        elif kind == 4:
            struct.pack_into(">i", inner, layout.SIZE_OFFSET, _clipped(_size_near(len(inner), chance), 31))
        else:
            _change_bytes(inner, chance)
    for inner in messages:
        _seal(inner, 0)
    if chance.random() < 0.2:
        _change_order(messages, chance)
    return b"".join(messages)


def _changed_spans(data: bytes, chance: random.Random) -> bytes:
    """What follows a message's attributes: key and value with their sizes, in magic 1 a timestamp before them."""
    changed = bytearray(data)
    if len(changed) < 8 or chance.random() < 0.3:
        _change_bytes(changed, chance)
        return bytes(changed)
    if chance.random() < 0.4:
        text = chance.choice(_TEXTS)
        begin = 8 if len(data) >= 16 and chance.random() < 0.5 else 0
        return data[:begin] + struct.pack(">i", -1) + struct.pack(">i", len(text)) + text
    at = chance.choice((0, 4, 8)) if len(changed) >= 12 else 0
    struct.pack_into(">i", changed, at, _clipped(chance.choice(_EXTREMES), 31))
    return bytes(changed)


def _clipped(value: int, bits: int) -> int:
    return max(-(1 << bits), min(value, (1 << bits) - 1))
