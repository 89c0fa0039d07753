"""Kafka 0.7 entries: both magics, compressed sets, and where a walk stops."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.format.compression import compress
from seglog.format.message_07 import End07, payloads, walk_messages
from seglog.format.payloads import DecompressionError
from seglog.model import Compression
from tests.support.messages_07 import encode_message

NONE, GZIP, SNAPPY = Compression.NONE, Compression.GZIP, Compression.SNAPPY
LIMIT = 1 << 20


def compressed_set(contents: list[bytes], codec: Compression) -> bytes:
    """One entry that holds the payloads as a compressed set."""
    return encode_message(compress(codec, b"".join(encode_message(payload) for payload in contents)), codec=codec)


def contents(data: bytes, limit: int = LIMIT) -> list[list[bytes]]:
    return [[bytes(p) for p in payloads(message, limit)] for message in walk_messages(data).messages]


def test_layouts_are_those_of_0_7() -> None:
    checksum = struct.pack(">I", zlib.crc32(b"hello"))
    assert encode_message(b"hello", magic=0) == bytes.fromhex("0000000a00") + checksum + b"hello"
    assert encode_message(b"hello", magic=1) == bytes.fromhex("0000000b0100") + checksum + b"hello"


def test_positions_follow_each_other() -> None:
    data = encode_message(b"a", 0) + encode_message(b"bc") + compressed_set([b"d", b"e"], GZIP) + encode_message(b"")
    walk = walk_messages(data)
    assert [m.position for m in walk.messages] == [0, *[m.next_position for m in walk.messages[:-1]]]
    assert (walk.end_position, walk.end) == (len(data), End07.COMPLETE)
    assert [m.codec for m in walk.messages] == [NONE, NONE, GZIP, NONE]
    assert all(m.is_valid for m in walk.messages)
    assert contents(data) == [[b"a"], [b"bc"], [b"d", b"e"], [b""]]


@given(st.lists(st.tuples(st.sampled_from([NONE, GZIP, SNAPPY]), st.lists(st.binary(max_size=50), max_size=5))))
def test_round_trip(entries: list[tuple[Compression, list[bytes]]]) -> None:
    data, expected = b"", []
    for codec, bodies in entries:
        if codec is NONE:
            data += b"".join(encode_message(body, magic=i % 2) for i, body in enumerate(bodies))
            expected += [[body] for body in bodies]
        else:
            data += compressed_set(bodies, codec)
            expected.append(bodies)
    assert contents(data) == expected


def test_every_truncation_keeps_the_whole_messages() -> None:
    data = encode_message(b"one", 0) + encode_message(b"two")
    first = len(encode_message(b"one", 0))
    for size in range(len(data)):
        walk = walk_messages(data[:size])
        assert len(walk.messages) == (size >= first)
        assert walk.end_position == (first if size >= first else 0)
        assert walk.end is (End07.COMPLETE if size in (0, first) else End07.TRUNCATED)


@pytest.mark.parametrize(
    ("junk", "end"),
    [
        (bytes(20), End07.INVALID_SIZE),
        (bytes.fromhex("000000040102030405"), End07.INVALID_SIZE),
        (bytes.fromhex("000000050100000000"), End07.INVALID_SIZE),
        (bytes.fromhex("ffffffff0000000000"), End07.INVALID_SIZE),
        (bytes.fromhex("7fffffff0000000000"), End07.TRUNCATED),
        (bytes.fromhex("000000050200000000"), End07.INVALID_MAGIC),
        (bytes.fromhex("00000005ff00000000"), End07.INVALID_MAGIC),
    ],
)
def test_the_walk_stops_at_junk(junk: bytes, end: End07) -> None:
    data = encode_message(b"good")
    walk = walk_messages(data + junk)
    assert (len(walk.messages), walk.end_position, walk.end) == (1, len(data), end)


def test_a_changed_payload_fails_its_checksum_and_the_walk_goes_on() -> None:
    data = bytearray(encode_message(b"one") + encode_message(b"two"))
    data[10] ^= 1
    assert [m.is_valid for m in walk_messages(data).messages] == [False, True]


def test_attributes_are_not_covered_by_the_checksum() -> None:
    data = bytearray(encode_message(b"one"))
    data[5] = 3
    message = walk_messages(data).messages[0]
    assert message.is_valid
    assert message.codec is None
    with pytest.raises(DecompressionError, match="codec 3"):
        payloads(message, LIMIT)


def test_an_inner_message_with_a_wrong_checksum_is_an_error() -> None:
    inner = bytearray(encode_message(b"one"))
    inner[-1] ^= 1
    with pytest.raises(DecompressionError, match="checksum"):
        contents(encode_message(compress(GZIP, inner), codec=GZIP))


def test_sets_within_sets_are_opened_down_to_a_limit() -> None:
    data = compressed_set([b"x"], GZIP)
    for _ in range(3):
        data = encode_message(compress(GZIP, data), codec=GZIP)
    assert contents(data) == [[b"x"]]
    with pytest.raises(DecompressionError, match="nested"):
        contents(encode_message(compress(GZIP, data), codec=GZIP))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_a_set_that_expands_beyond_the_limit_is_too_large(codec: Compression) -> None:
    with pytest.raises(DecompressionError) as caught:
        contents(compressed_set([bytes(1 << 20)], codec), limit=1000)
    assert caught.value.too_large


@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda body: encode_message(body, codec=GZIP)))
def test_random_bytes_never_raise_in_a_walk(data: bytes) -> None:
    for message in walk_messages(data).messages:
        try:
            payloads(message, LIMIT)
        except DecompressionError as error:
            assert error.reason
