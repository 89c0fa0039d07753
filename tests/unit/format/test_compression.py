"""The codecs' framings against bytes that Kafka 4.3.0 wrote, and against bytes nobody should have written."""

from __future__ import annotations

import gzip
import os
import random
import struct
import tracemalloc
import zlib

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.format.compression import compress, compressed_pieces, decompress, decompress_into, expanded
from seglog.format.payloads import DecompressionError, MemoryPayload
from seglog.kernels.xxhash import xxh32
from tests.support import zstd

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (0, GZIP, SNAPPY, LZ4, ZSTD)
NAMED = pytest.mark.parametrize("codec", CODECS, ids=["none", "gzip", "snappy", "lz4", "zstd"])
COMPRESSING = pytest.mark.parametrize("codec", CODECS[1:], ids=["gzip", "snappy", "lz4", "zstd"])
LIMIT = 1 << 20
RECORDS = bytes.fromhex("14000000046b310476310010000a02046b320100")
KAFKA_STREAMS = {
    GZIP: "1f8b08000000000000ff1361606060c936642933641060e06262c93662640000be61dd5f14000000",
    SNAPPY: "82534e4150505900000000010000000100000016144c14000000046b310476310010000a02046b320100",
    LZ4: "04224d186040821400008014000000046b310476310010000a02046b32010000000000",
    ZSTD: "28b52ffd0058a0000014000000046b310476310010000a02046b320100010000",
}
V0_INNER = bytes.fromhex(
    "00000000000000640000001257e7496e0000000000026b310000000276310000000000000065000000108b23e3da"
    "0000000000026b32ffffffff"
)
V1_INNER = bytes.fromhex(
    "00000000000000000000001ab1a6ec76010000000000000003e8000000026b31000000027631000000000000000100000018"
    "017bb92e010000000000000003ed000000026b32ffffffff"
)
V1_LZ4 = (
    "04224d186040823a00000016000100631ab1a6ec760110008003e8000000026b31060010760600000200001d005018017bb92e"
    "0900000200c003ed000000026b32ffffffff00000000"
)
V0_LZ4 = (
    "04224d1860401a330000001200010091640000001257e7496e0f0080026b31000000027606000002009065000000108b23e3da"
    "0d008000026b32ffffffff00000000"
)
V1_GZIP = (
    "1f8b08000000000000ff63608003a98dcbde94314239cc2f800453b621882c33840a82242518ab77eac155bd05ab32fa0f0400"
    "70b7048c4a000000"
)
V0_SNAPPY = (
    "82534e41505059000000000100000001000000343a0000090120640000001257e7496e050f1c026b310000000276010601"
    "015065000000108b23e3da0000000000026b32ffffffff"
)


def unpack(codec: int, data: bytes, magic: int = 2, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, data, magic=magic, limit=limit))


def lz4_frame(
    blocks: list[bytes],
    flags: int = 0x60,
    descriptor: int = 0x40,
    extra: bytes = b"",
    checksum: int | None = None,
) -> bytes:
    header = bytes([flags, descriptor]) + extra
    if checksum is None:
        checksum = xxh32(np.frombuffer(header, dtype=np.uint8), 0, len(header)) >> 8 & 0xFF
    return b"\x04\x22\x4d\x18" + header + bytes([checksum]) + b"".join(blocks) + bytes(4)


def stored_block(data: bytes, with_checksum: bool = False) -> bytes:
    checksum = struct.pack("<I", xxh32(np.frombuffer(data, dtype=np.uint8), 0, len(data))) if with_checksum else b""
    return struct.pack("<I", len(data) | 0x80000000) + data + checksum


def text(size: int) -> bytes:
    return b"".join(b"record %d of a log;" % i for i in range(size // 15 + 1))[:size]


@COMPRESSING
def test_reads_what_kafka_wrote(codec: int) -> None:
    assert unpack(codec, bytes.fromhex(KAFKA_STREAMS[codec])) == RECORDS


@pytest.mark.parametrize("codec", [SNAPPY, LZ4])
def test_writes_the_very_bytes_kafka_writes_where_the_library_is_the_same(codec: int) -> None:
    assert compress(codec, RECORDS).hex() == KAFKA_STREAMS[codec]


@COMPRESSING
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 5 << 19])
def test_large_streams_are_compressed_in_pieces_to_the_same_bytes(codec: int, size: int) -> None:
    data = text(size // 2) + random.Random(size).randbytes(size - size // 2)
    pieces = list(compressed_pieces(codec, data))
    stream = b"".join(pieces)
    assert unpack(codec, stream, limit=size + 1) == data
    assert stream == compress(codec, data)
    if codec == GZIP:  # whose compressor is given a large stream in parts
        whole = zlib.compressobj(-1, zlib.DEFLATED, -zlib.MAX_WBITS)
        assert stream[10:-8] == whole.compress(data) + whole.flush()
        assert zlib.decompress(stream, 31) == data
    if codec != ZSTD:
        assert max(map(len, pieces)) <= (1 << 20) + (1 << 17)


def test_gzip_and_zstd_headers_are_those_of_kafka() -> None:
    assert compress(GZIP, RECORDS)[:10].hex() == KAFKA_STREAMS[GZIP][:20]
    frame = compress(ZSTD, RECORDS)
    assert frame[:5].hex() == KAFKA_STREAMS[ZSTD][:10], "neither content size nor checksum nor dictionary"
    assert frame[5] <= 0x58, "the window fits the batch, and is never above Kafka's 2 MiB"


def test_xerial_stream_of_hello_matches_kafka() -> None:
    assert compress(SNAPPY, b"hello").hex() == "82534e41505059000000000100000001" + "00000007051068656c6c6f"


@pytest.mark.parametrize(
    ("codec", "magic", "stream", "expected"),
    [
        (LZ4, 1, V1_LZ4, V1_INNER),
        (LZ4, 0, V0_LZ4, V0_INNER),
        (GZIP, 1, V1_GZIP, V1_INNER),
        (SNAPPY, 0, V0_SNAPPY, V0_INNER),
    ],
)
def test_reads_the_wrappers_of_old_brokers(codec: int, magic: int, stream: str, expected: bytes) -> None:
    assert unpack(codec, bytes.fromhex(stream), magic) == expected


@NAMED
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 1, 100, 32768, 32769, 65536, 65537, 300_000])
def test_every_size_comes_back(codec: int, magic: int, size: int) -> None:
    for data in (text(size), os.urandom(size), bytes(size)):
        assert unpack(codec, compress(codec, data, magic=magic), magic) == data


@NAMED
@given(data=st.binary(max_size=3000))
def test_round_trip(codec: int, data: bytes) -> None:
    assert unpack(codec, compress(codec, data)) == data


@pytest.mark.parametrize(("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, -7), (ZSTD, 19)])
def test_what_any_level_has_compressed_comes_back(codec: int, level: int) -> None:
    assert unpack(codec, compress(codec, text(100_000), level=level)) == text(100_000)


@NAMED
def test_decompressing_into_an_arena_touches_only_its_part(codec: int) -> None:
    out = np.full(5000, 0xEE, dtype=np.uint8)
    assert decompress_into(codec, compress(codec, text(3000)), out, 1000) == 3000
    assert out[1000:4000].tobytes() == text(3000)
    assert (out[:1000] == 0xEE).all()


@NAMED
def test_an_arena_of_the_exact_size_is_enough(codec: int) -> None:
    out = np.empty(70_000, dtype=np.uint8)
    assert decompress_into(codec, compress(codec, text(70_000)), out) == 70_000


@NAMED
@pytest.mark.parametrize("room", [0, 1, 69_999])
def test_output_that_does_not_fit_is_too_large_and_not_corrupt(codec: int, room: int) -> None:
    for data in (text(70_000), os.urandom(70_000)):
        with pytest.raises(DecompressionError) as caught:
            decompress_into(codec, compress(codec, data), np.empty(room, dtype=np.uint8))
        assert caught.value.too_large
        with pytest.raises(DecompressionError) as caught:
            decompress(codec, compress(codec, data), magic=2, limit=room)
        assert caught.value.too_large


@COMPRESSING
def test_a_bomb_stops_at_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(50 << 20))
    with pytest.raises(DecompressionError) as caught:
        decompress(codec, bomb, magic=2, limit=100_000)
    assert caught.value.too_large
    assert "100000" in caught.value.reason


@COMPRESSING
def test_every_truncation_is_an_error_or_a_prefix(codec: int) -> None:
    data = text(2000)
    stream = compress(codec, data)
    for size in range(len(stream)):
        try:
            found = unpack(codec, stream[:size])
        except DecompressionError as error:
            assert not error.too_large or codec == SNAPPY
        else:
            assert codec == SNAPPY, "only a xerial stream can end between chunks"
            assert data.startswith(found)


@COMPRESSING
@settings(max_examples=200)
@given(data=st.data())
def test_damaged_streams_raise_only_the_documented_error(codec: int, data: st.DataObject) -> None:
    stream = bytearray(compress(codec, text(500)))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    for magic in (0, 2):
        try:
            assert len(unpack(codec, bytes(stream), magic, limit=4000)) <= 4000
        except DecompressionError as error:
            assert error.reason


@given(codec=st.integers(0, 7), stream=st.binary(max_size=200), magic=st.integers(0, 2))
def test_random_bytes_raise_only_the_documented_error(codec: int, stream: bytes, magic: int) -> None:
    try:
        assert len(unpack(codec, stream, magic, limit=1000)) <= 1000
    except DecompressionError as error:
        assert error.reason


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, dtype=np.uint8)])
@NAMED
def test_any_buffer_is_taken(codec: int, buffer: type) -> None:
    assert unpack(codec, buffer(compress(codec, buffer(RECORDS)))) == RECORDS


def test_unknown_codec_is_named() -> None:
    with pytest.raises(DecompressionError, match="unknown compression codec 5"):
        unpack(5, b"abc")
    with pytest.raises(ValueError, match="unknown compression codec 7"):
        compress(7, b"abc")


def test_a_large_payload_of_zstd_is_decompressed_where_it_is_wanted() -> None:
    size = 40 << 20
    chance = np.random.default_rng(1)
    data = np.repeat(chance.integers(0, 256, size // 8, dtype=np.uint8), 8)
    packed, arena = compress(ZSTD, data), np.empty(size, dtype=np.uint8)
    tracemalloc.start()
    try:
        assert decompress_into(ZSTD, packed, arena) == size
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size // 2
    assert np.array_equal(arena, data)


class TestGzip:
    def test_members_in_a_row_are_joined(self) -> None:
        assert unpack(GZIP, gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")) == b"one two"

    def test_bytes_after_the_last_member_are_ignored(self) -> None:
        assert unpack(GZIP, compress(GZIP, b"one") + b"junk") == b"one"
        assert unpack(GZIP, compress(GZIP, b"") + b"junk") == b""

    def test_junk_after_a_member_does_not_hide_a_lack_of_room(self) -> None:
        with pytest.raises(DecompressionError) as caught:
            unpack(GZIP, compress(GZIP, text(9000)) + b"junk", limit=8999)
        assert caught.value.too_large

    def test_a_wrong_checksum_is_an_error(self) -> None:
        stream = bytearray(compress(GZIP, b"one"))
        stream[-5] ^= 1
        with pytest.raises(DecompressionError, match="gzip"):
            unpack(GZIP, bytes(stream))


class TestSnappy:
    def test_without_the_magic_all_is_one_raw_block(self) -> None:
        assert unpack(SNAPPY, bytes(cramjam.snappy.compress_raw(text(50_000)))) == text(50_000)
        assert unpack(SNAPPY, bytes(cramjam.snappy.compress_raw(b"x"))) == b"x"

    def test_streams_in_a_row_are_joined(self) -> None:
        assert unpack(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two")) == b"one two"

    def test_chunks_are_of_32_kib(self) -> None:
        stream = compress(SNAPPY, os.urandom(32768 + 5))
        first = struct.unpack_from(">i", stream, 16)[0]
        assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + first]) == 32768

    def test_a_chunk_longer_than_the_data_is_an_error(self) -> None:
        for length in (100, -2, 2**31 - 1):
            with pytest.raises(DecompressionError, match="chunk"):
                unpack(SNAPPY, compress(SNAPPY, b"") + struct.pack(">i", length) + b"abc")

    def test_a_block_that_claims_4_gib_is_refused_before_anything_is_allocated(self) -> None:
        with pytest.raises(DecompressionError) as caught:
            unpack(SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(30))
        assert caught.value.too_large

    def test_the_version_of_the_first_header_does_not_count_and_that_of_a_later_one_does(self) -> None:
        unversioned = b"\x82SNAPPY\x00" + struct.pack(">ii", 0, 1)
        one, two = compress(SNAPPY, b"one "), compress(SNAPPY, b"two")
        assert unpack(SNAPPY, unversioned + one[16:] + two) == b"one two"
        with pytest.raises(DecompressionError, match="version 0"):
            unpack(SNAPPY, one + unversioned + two[16:])

    def test_empty_input_is_an_error(self) -> None:
        with pytest.raises(DecompressionError, match="empty"):
            unpack(SNAPPY, b"")


class TestLz4:
    def test_header_checksum_of_magic_0_covers_the_magic_number(self) -> None:
        assert compress(LZ4, b"", magic=0).hex() == "04224d1860401a00000000"
        assert compress(LZ4, b"", magic=1).hex() == "04224d1860408200000000"

    def test_wrong_header_checksum_passes_in_magic_0_only(self) -> None:
        frame = lz4_frame([stored_block(b"abc")], checksum=0x55)
        assert unpack(LZ4, frame, 0) == b"abc"
        for magic in (1, 2):
            with pytest.raises(DecompressionError, match="header's checksum"):
                unpack(LZ4, frame, magic)

    @pytest.mark.parametrize(
        ("flags", "descriptor"),
        [
            (0x40, 0x40),
            (0x20, 0x40),
            (0xA0, 0x40),
            (0x61, 0x40),
            (0x62, 0x40),
            (0x60, 0x30),
            (0x60, 0xC0),
            (0x60, 0x41),
        ],
        ids=[
            "linked",
            "version 0",
            "version 2",
            "dictionary",
            "reserved",
            "small blocks",
            "reserved bit",
            "low bits",
        ],
    )
    def test_headers_kafka_does_not_read_are_refused(self, flags: int, descriptor: int) -> None:
        with pytest.raises(DecompressionError, match="lz4"):
            unpack(LZ4, lz4_frame([stored_block(b"abc")], flags, descriptor))

    @pytest.mark.parametrize(("code", "size"), [(0x40, 1 << 16), (0x50, 1 << 18), (0x60, 1 << 20), (0x70, 1 << 22)])
    def test_blocks_up_to_their_declared_size_are_read(self, code: int, size: int) -> None:
        data = os.urandom(size)
        assert unpack(LZ4, lz4_frame([stored_block(data)], descriptor=code), limit=size) == data
        with pytest.raises(DecompressionError, match="larger than the frame allows"):
            unpack(LZ4, lz4_frame([stored_block(data + b"x")], descriptor=code), limit=2 * size)

    def test_content_size_is_skipped(self) -> None:
        frame = lz4_frame([stored_block(b"abc")], flags=0x68, extra=struct.pack("<q", 999))
        assert unpack(LZ4, frame) == b"abc"

    @pytest.mark.parametrize("size", [3, 15, 16, 17, 4097])
    def test_block_checksums_are_verified(self, size: int) -> None:
        block = stored_block(text(size), with_checksum=True)
        assert unpack(LZ4, lz4_frame([block], flags=0x70)) == text(size)
        with pytest.raises(DecompressionError, match="block's checksum"):
            unpack(LZ4, lz4_frame([block[:-1] + bytes([block[-1] ^ 1])], flags=0x70))

    def test_content_checksum_and_what_follows_are_ignored(self) -> None:
        assert unpack(LZ4, lz4_frame([stored_block(b"abc")], flags=0x64) + b"\x00\x01\x02\x03junk") == b"abc"

    @pytest.mark.parametrize("rest", [b"", b"\x00", b"\x00\x01\x02"])
    def test_a_content_checksum_must_be_there(self, rest: bytes) -> None:
        """Kafka reads it, without comparing (BufferUnderflowException where it is missing)."""
        with pytest.raises(DecompressionError, match="content checksum"):
            unpack(LZ4, lz4_frame([stored_block(b"abc")], flags=0x64) + rest)

    @pytest.mark.parametrize("rest", [b"", bytes(4), b"\xff\xff\xff\xff junk"])
    def test_a_block_size_of_zero_ends_the_frame_even_with_the_stored_bit(self, rest: bytes) -> None:
        """Kafka masks the bit before it looks for the end mark (Lz4BlockInputStream.readBlock)."""
        whole = lz4_frame([stored_block(b"abc")])
        assert unpack(LZ4, whole[:-4] + struct.pack("<I", 0x80000000) + rest) == b"abc"

    @pytest.mark.parametrize("mark", [1, 0x12345678, 0x80000001])
    def test_any_other_block_size_does_not_end_it(self, mark: int) -> None:
        with pytest.raises(DecompressionError, match="lz4: a block is larger"):
            unpack(LZ4, lz4_frame([stored_block(b"abc")])[:-4] + struct.pack("<I", mark))

    def test_a_block_that_expands_to_nothing_does_not_end_the_frame(self) -> None:
        """Kafka's buffered reader takes an empty read for the end of the stream (ChunkedBytesStream.fill)."""
        nothing = struct.pack("<I", 1) + bytes(1)  # a sequence without literals and without a match
        frame = lz4_frame([nothing, stored_block(b"abc"), nothing, nothing, stored_block(b"def"), nothing])
        assert unpack(LZ4, frame) == b"abcdef"
        expansion, out = expanded(LZ4, MemoryPayload(frame), 2), memoryview(bytearray(9))
        assert out[: expansion.read_into(out)] == b"abcdef"

    def test_a_second_frame_is_ignored(self) -> None:
        assert unpack(LZ4, compress(LZ4, b"one") + compress(LZ4, b"two")) == b"one"

    def test_frames_of_the_reference_library_are_read(self) -> None:
        frame = bytes(cramjam.lz4.compress(text(200_000)))
        if not frame[4] & 0x20:
            with pytest.raises(DecompressionError, match="linked"):
                unpack(LZ4, frame)
        else:
            assert unpack(LZ4, frame) == text(200_000)

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", 0x02CC5D05),
            (b"a", 0x550D7456),
            (b"abc", 0x32D153FF),
            (b"Nobody inspects the spammish repetition", 0xE2293B2F),
        ],
    )
    def test_xxhash_matches_its_published_values(self, data: bytes, expected: int) -> None:
        assert xxh32(np.frombuffer(data, dtype=np.uint8), 0, len(data)) == expected


class TestZstd:
    def test_frames_with_content_size_and_in_a_row_are_read(self) -> None:
        assert unpack(ZSTD, bytes(cramjam.zstd.compress(b"one ")) + compress(ZSTD, b"two")) == b"one two"

    def test_frames_without_content_size_are_read_to_the_last(self) -> None:
        """The library's decompressor ends after the first of them and says nothing."""
        assert unpack(ZSTD, compress(ZSTD, b"one ") + compress(ZSTD, b"two")) == b"one two"
        skippable = struct.pack("<II", 0x184D2A50, 3) + b"any"
        assert unpack(ZSTD, skippable + compress(ZSTD, b"one ") + skippable + compress(ZSTD, b"two")) == b"one two"

    @pytest.mark.parametrize("after", [b"x", b"garbage", b"\x28\xb5\x2f\xfd"])
    @pytest.mark.parametrize("told", [False, True], ids=["without content size", "with content size"])
    def test_bytes_after_the_frame_are_damage(self, after: bytes, told: bool) -> None:
        frame = bytes(cramjam.zstd.compress(b"one")) if told else compress(ZSTD, b"one")
        with pytest.raises(DecompressionError):
            unpack(ZSTD, frame + after)

    @pytest.mark.parametrize(("log", "read"), [(20, True), (27, True), (28, False), (31, False)])
    def test_windows_above_128_mebibytes_are_refused_as_kafka_does(self, log: int, read: bool) -> None:
        frame = zstd.stream(b"one", window_log=log)
        if read:
            assert unpack(ZSTD, frame) == b"one"
        else:
            with pytest.raises(DecompressionError):
                unpack(ZSTD, frame)

    def test_a_false_content_size_does_not_allocate(self) -> None:
        frame = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 2**62) + bytes(10)
        with pytest.raises(DecompressionError):
            unpack(ZSTD, frame)
