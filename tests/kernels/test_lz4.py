"""The LZ4 kernel: what the library compresses comes back, and no damage leaves the buffers."""

from __future__ import annotations

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.format.compression import compress
from seglog.kernels import lz4 as kernels
from tests.support.interpreted import both

FRAMES = both(kernels, "decompress_frame")
TEXT = b"".join(b'{"id": %d, "name": "customer %d", "tags": ["a", "b"]}' % (i, i * 7 % 13) for i in range(60))


def frame(data: bytes) -> np.ndarray:
    return np.frombuffer(compress(3, data), dtype=np.uint8)


@pytest.mark.parametrize("decompress", FRAMES)
@pytest.mark.parametrize("data", [b"", b"x", b"a" * 5000, TEXT, bytes(range(256)) * 3, b"ab" * 400, b"abcdefg" * 90])
def test_a_frame_comes_back_in_a_buffer_of_its_very_size(decompress, data: bytes) -> None:
    source = frame(data)
    out = np.full(len(data) + 3, 7, dtype=np.uint8)
    assert decompress(source, 0, len(source), True, out, 2, len(data) + 2) == len(data) + 2
    assert out[2 : len(data) + 2].tobytes() == data
    assert out[:2].tolist() == [7, 7] and out[-1] == 7, "bytes outside the room are left alone"


@pytest.mark.parametrize("decompress", FRAMES)
def test_too_little_room_is_distinguished_from_damage(decompress) -> None:
    source = frame(TEXT)
    out = np.zeros(len(TEXT), dtype=np.uint8)
    for room in (0, 1, len(TEXT) // 2, len(TEXT) - 1):
        assert decompress(source, 0, len(source), True, out, 0, room) == kernels.NO_ROOM
    assert decompress(source, 0, len(source) - 1, True, out, 0, len(out)) == kernels.NO_END_MARK


@given(st.binary(max_size=600), st.integers(1, 40))
@settings(max_examples=100)
def test_any_data_comes_back(piece: bytes, times: int) -> None:
    data = piece * times
    source = frame(data)
    out = np.zeros(len(data) + 64, dtype=np.uint8)
    assert kernels.decompress_frame(source, 0, len(source), True, out, 0, len(out)) == len(data)
    assert out[: len(data)].tobytes() == data


@given(st.integers(0, 2**32), st.integers(0, 255), st.integers(0, 1200))
@settings(max_examples=300)
def test_damage_gives_the_same_status_compiled_and_interpreted(at: int, value: int, room: int) -> None:
    source = frame(TEXT[:1000]).copy()
    source[at % len(source)] = value
    results = []
    for decompress in FRAMES:  # the interpreted one fails at any access out of bounds
        out = np.zeros(1200, dtype=np.uint8)
        after = decompress(source, 0, len(source), False, out, 0, room)
        results.append((after, out[: max(after, 0)].tobytes()))
    assert results[0] == results[1]


def test_blocks_agree_with_the_library() -> None:
    block = np.frombuffer(bytes(cramjam.lz4.compress_block(TEXT, store_size=False)), dtype=np.uint8)
    out = np.zeros(len(TEXT), dtype=np.uint8)
    assert kernels.decompress_block(block, 0, len(block), out, 0, len(out)) == len(TEXT)
    assert out.tobytes() == TEXT


COMPRESSORS = both(kernels, "compress_frame")


def largest_frame(size: int) -> int:
    """Bytes of a frame whose blocks do not get smaller: header, end mark, and the size in front of each block."""
    return 11 + size + 4 * -(-size // kernels.BLOCK_BYTES)


def compressed(compress_frame, data: bytes, before: int = 3) -> bytes:
    """By the kernel, with bytes around it that it may read but not write."""
    source = np.frombuffer(b"\x07" * before + data, dtype=np.uint8)
    room = largest_frame(len(data))
    out = np.full(room + 9, 7, dtype=np.uint8)
    after = compress_frame(source, before, len(source), out, 2, np.empty(kernels.TABLE_SLOTS, dtype=np.uint16))
    assert out[:2].tolist() == [7, 7] and (out[room + 2 :] == 7).all()
    return out[2:after].tobytes()


@given(st.lists(st.binary(max_size=40) | st.sampled_from([b"abcd", b"x" * 30, TEXT[:400]]), max_size=30))
@settings(max_examples=60, deadline=None)
def test_what_the_kernel_compresses_the_library_reads_and_both_kernels_write_the_same(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    compiled, plain = (compressed(compress_frame, data) for compress_frame in COMPRESSORS)
    assert compiled == plain
    assert bytes(cramjam.lz4.decompress(compiled)) == data
    out = np.zeros(len(data), dtype=np.uint8)
    source = np.frombuffer(compiled, dtype=np.uint8)
    assert kernels.decompress_frame(source, 0, len(source), True, out, 0, len(out)) == len(data)
    assert out.tobytes() == data


@pytest.mark.parametrize("size", [65535, 65536, 65537, 200_000])
def test_frames_of_several_blocks_random_and_regular(size: int) -> None:
    chance = np.random.default_rng(size)
    for data in (chance.bytes(size), (TEXT * (size // len(TEXT) + 1))[:size], bytes(size)):
        packed = compressed(kernels.compress_frame, data)
        assert bytes(cramjam.lz4.decompress(packed)) == data
        assert len(packed) <= largest_frame(size)


def test_it_compresses_about_as_well_as_the_library() -> None:
    text = TEXT * 8
    assert len(compressed(kernels.compress_frame, text)) < 1.1 * len(frame(text))
