"""Partitioners send keys where Kafka's Java client, librdkafka and Sarama send them."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import pytest

from seglog_ask.operations.partitioners import PARTITIONERS, fnv1a, murmur2

BY_NAME = {one.name: one for one in PARTITIONERS}


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # Kafka: UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed


def test_fnv1a_is_that_of_its_authors() -> None:
    # http://www.isthe.com/chongo/src/fnv/test_fnv.c
    assert [fnv1a(key) for key in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_sarama_takes_absolute_values() -> None:
    # of a hash with the highest bit set, as Go and C take it: 0xE40C292C is -468965076
    assert BY_NAME["fnv1a"].partition(b"a", 1000) == 468965076 % 1000
    assert BY_NAME["fnv1a-positive"].partition(b"a", 1000) == (0xE40C292C & 0x7FFFFFFF) % 1000


@pytest.mark.parametrize(("name", "function"), [("murmur2", "murmur2"), ("crc32", "consistent"), ("fnv1a", "fnv1a")])
def test_librdkafka_sends_keys_to_the_same_partitions(name: str, function: str) -> None:
    package = pytest.importorskip("confluent_kafka")
    libraries = sorted((Path(package.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*.so*"))
    if not libraries:
        pytest.skip("this confluent-kafka brings no librdkafka of its own")
    partitioner = getattr(ctypes.CDLL(str(libraries[0])), f"rd_kafka_msg_partitioner_{function}")
    partitioner.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    ]
    partitioner.restype = ctypes.c_int32
    chance = random.Random(1)
    keys = [b"", *(chance.randbytes(chance.randrange(40)) for _ in range(20_000))]
    for key in keys:
        count = chance.choice((1, 2, 3, 12, 50, 1000, 2**31 - 1))
        assert BY_NAME[name].partition(key, count) == partitioner(None, key, len(key), count, None, None), key
