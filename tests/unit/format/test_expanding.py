"""Payloads expanded in pieces: what `compression` gives and refuses at once, they give and refuse as well."""

from __future__ import annotations

import gc
import random
import struct
import weakref
import zlib

import cramjam
import numpy as np
import pytest

from seglog.format import payloads
from seglog.format.compression import compress, decompress, expanded
from seglog.format.payloads import DecompressionError, FilePayload, MemoryPayload, Payload
from seglog.kernels import lz4
from seglog.model import Compression
from tests.support import zstd
from tests.support.broken.hostile_logs import seeds

CODECS = list(Compression)
LIMIT = 1 << 22


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_into(self, position: int, buffer: memoryview) -> int:
        piece = self._data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


def in_pieces(codec: int, payload: Payload, magic: int = 2, room: int = 5000) -> bytes | None:
    """What the payload expands to, or None when it is refused."""
    out, found = memoryview(bytearray(room)), b""
    try:
        expansion = expanded(codec, payload, magic)
        while size := expansion.read_into(out):
            found += out[:size]
            assert size == room or expansion.read_into(out) == 0
    except DecompressionError:
        return None
    return found


def at_once(codec: int, data: bytes, magic: int = 2) -> bytes | None:
    try:
        return bytes(decompress(codec, data, magic=magic, limit=LIMIT))
    except DecompressionError:
        return None


def texts() -> list[bytes]:
    chance = random.Random(5)
    return [b"", b"x", b"abc" * 100_000, chance.randbytes(200_000), bytes(1_500_000), chance.randbytes(999) * 300]


@pytest.mark.parametrize("size", [3, 200_000, 2_500_000])
@pytest.mark.parametrize("end", [0, 0x80000000, 1, 0x80000001])
@pytest.mark.parametrize("checksum", [None, b"", b"\x01\x02\x03", b"\x01\x02\x03\x04", b"\x01\x02\x03\x04 rest"])
def test_lz4_frames_end_in_pieces_where_they_end_at_once(size: int, end: int, checksum: bytes | None) -> None:
    """A frame with any end mark, without (None) or with a content checksum, cut or whole."""
    data = random.Random(size).randbytes(size)
    packed = bytearray(compress(Compression.LZ4, data)[:-4]) + struct.pack("<I", end)
    if checksum is not None:
        packed[lz4.FLAGS_AT] |= lz4.CONTENT_CHECKSUM
        header = np.frombuffer(bytes(packed[: lz4.LEAST_HEADER_BYTES]), dtype=np.uint8)
        packed[lz4.LEAST_HEADER_BYTES - 1] = lz4.header_checksum(header, lz4.FLAGS_AT, lz4.LEAST_HEADER_BYTES - 1)
        packed += checksum
    found = at_once(Compression.LZ4, bytes(packed))
    assert in_pieces(Compression.LZ4, MemoryPayload(bytes(packed))) == found
    is_whole = end & lz4.SIZE_MASK == 0 and (checksum is None or len(checksum) >= 4)
    assert found == (data if is_whole else None)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("number", range(6))
def test_pieces_are_the_whole(codec: Compression, number: int) -> None:
    plain = texts()[number]
    packed = compress(codec, plain)
    assert in_pieces(codec, MemoryPayload(packed)) == plain
    inside = b"before" + packed + b"after"
    assert in_pieces(codec, FilePayload(Bytes(inside), 6, len(packed)), room=70_000) == plain


def framings() -> list[tuple[str, int, bytes]]:
    """Streams that Kafka reads and does not write."""
    text, other = b"one two three " * 5000, b"four five " * 900
    gzip = compress(1, text)
    snappy = compress(2, text)
    frame = zstd.frame(text, told=True, checked=True)
    skippable = struct.pack("<II", 0x184D2A53, 40) + bytes(40)
    return [
        ("two members", 1, gzip + zlib.compress(other, 9, wbits=31)),
        ("bytes after a member", 1, gzip + b"\x1f\x8bxx"),
        ("a zero byte after a member", 1, gzip + bytes(1)),
        ("two xerial streams", 2, snappy + compress(2, other)),
        ("a raw block", 2, bytes(cramjam.snappy.compress_raw(text))),
        ("a length cut short", 2, snappy + b"\0\0"),
        ("two frames", 4, frame + compress(4, other)),
        ("a skippable frame between", 4, frame + skippable + frame),
        ("content size and one segment", 4, zstd.frame(b"small")),
    ]


@pytest.mark.parametrize(("codec", "packed"), [case[1:] for case in framings()], ids=[case[0] for case in framings()])
def test_every_framing_gives_the_same_at_once_and_in_pieces(codec: int, packed: bytes) -> None:
    found = in_pieces(codec, MemoryPayload(packed))
    assert found is not None
    assert found == at_once(codec, packed)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_stream_that_breaks_off_is_refused(codec: Compression) -> None:
    packed = compress(codec, b"some text " * 20_000)
    for size in (0, 1, 5, 9, 20, len(packed) // 2, len(packed) - 1):
        assert in_pieces(codec, MemoryPayload(packed[:size])) == at_once(codec, packed[:size]), size
    assert in_pieces(codec, MemoryPayload(packed[:-1])) is None or codec is Compression.SNAPPY


@pytest.mark.parametrize("number", range(12))
def test_damaged_streams_are_refused_alike(number: int) -> None:
    chance = random.Random(number)
    entries = [entry for seed in seeds() for entry in seed.entries if entry.codec]
    for _ in range(60):
        entry = chance.choice(entries)
        packed = bytearray(compress(entry.codec, entry.plain * chance.choice((1, 1, 40)), magic=entry.magic))
        for _ in range(chance.choice((1, 1, 3))):
            packed[chance.randrange(len(packed))] = chance.randrange(256)
        if chance.random() < 0.2:
            packed += chance.randbytes(chance.randrange(1, 40))
        one = at_once(entry.codec, bytes(packed), entry.magic)
        two = in_pieces(entry.codec, MemoryPayload(bytes(packed)), entry.magic)
        assert one == two, (entry.codec, one and len(one), two and len(two), packed.hex())


def test_a_block_is_believed_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "BLOCK_LIMIT", 10_000)
    with pytest.raises(DecompressionError, match="expands to more than 10000 bytes") as caught:
        block = MemoryPayload(bytes(cramjam.snappy.compress_raw(bytes(20_000))))
        expanded(2, block, 2).read_into(memoryview(bytearray(10)))
    assert caught.value.too_large


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(DecompressionError, match="unknown compression codec 7"):
        expanded(7, MemoryPayload(np.zeros(5, dtype=np.uint8)), 2)


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_a_payload_is_gone_with_its_expansion(codec: Compression) -> None:
    packed = np.frombuffer(compress(codec, b"text " * 100_000), dtype=np.uint8).copy()
    gone = weakref.ref(packed)
    gc.disable()
    try:
        expansion = expanded(codec, MemoryPayload(packed), 2)
        assert expansion.read_into(memoryview(bytearray(1000))) == 1000
        del expansion, packed
        assert gone() is None
    finally:
        gc.enable()
