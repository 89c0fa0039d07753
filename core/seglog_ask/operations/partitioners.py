"""Which partition a producer's client sends a key to: the partitioners of Kafka's Java client, librdkafka and Sarama.

- murmur2: Kafka's Utils.murmur2 and BuiltInPartitioner; librdkafka's rd_kafka_msg_partitioner_murmur2.
- crc32: librdkafka's rd_kafka_msg_partitioner_consistent; Sarama's NewConsistentCRCHashPartitioner.
- fnv1a: Sarama's NewHashPartitioner; librdkafka's rd_kafka_msg_partitioner_fnv1a.
- fnv1a-positive: Sarama's NewReferenceHashPartitioner.

They differ in what they do with a null or an empty key; `keyless` says it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_MURMUR_SEED, _MURMUR_M, _MURMUR_R = 0x9747B28C, 0x5BD1E995, 24
_FNV_START, _FNV_PRIME = 0x811C9DC5, 0x01000193


@dataclass(frozen=True, slots=True)
class Partitioner:
    """A rule by which clients choose a partition: `clients` use it, and `keyless` says what they do without a key.

    `hash` gives a number that is not negative; the partition is its remainder.
    """

    name: str
    clients: str
    keyless: str
    hash: Callable[[bytes], int]

    def partition(self, key: bytes, partitions: int) -> int:
        """Returns the partition of a key, of that many."""
        return self.hash(key) % partitions


def murmur2(key: bytes) -> int:
    """Returns the hash as Java's int, from -2^31 to 2^31 - 1 (Kafka: Utils.murmur2)."""
    h = (_MURMUR_SEED ^ len(key)) & _WORD
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * _MURMUR_M & _WORD
        k = (k ^ k >> _MURMUR_R) * _MURMUR_M & _WORD
        h = h * _MURMUR_M & _WORD ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MURMUR_M & _WORD
    h = (h ^ h >> 13) * _MURMUR_M & _WORD
    h ^= h >> 15
    return h - (1 << 32) if h > _POSITIVE else h


def fnv1a(key: bytes) -> int:
    """Returns the 32-bit FNV-1a hash."""
    h = _FNV_START
    for byte in key:
        h = (h ^ byte) * _FNV_PRIME & _WORD
    return h


def _absolute(number: int) -> int:
    """Returns the absolute value of 32 bits taken as a signed number."""
    return (1 << 32) - number if number > _POSITIVE else number


PARTITIONERS = (
    Partitioner(
        "murmur2",
        "Java, kafka-python, KafkaJS, franz-go; librdkafka with murmur2 or murmur2_random",
        "Java and murmur2_random send a null key anywhere, librdkafka's murmur2 as an empty one",
        lambda key: murmur2(key) & _POSITIVE,
    ),
    Partitioner(
        "crc32",
        "librdkafka (C, Python, Go, .NET) by default, and with consistent; CRC of Sarama and kafka-go",
        "by default librdkafka sends a null or an empty key anywhere; with consistent a null key as an empty one",
        zlib.crc32,
    ),
    Partitioner(
        "fnv1a",
        "Sarama by default, kafka-go's Hash; librdkafka with fnv1a or fnv1a_random",
        "Sarama and fnv1a_random send a null key anywhere, librdkafka's fnv1a as an empty one",
        lambda key: _absolute(fnv1a(key)),
    ),
    Partitioner(
        "fnv1a-positive",
        "Sarama's NewReferenceHashPartitioner, kafka-go's ReferenceHash",
        "a null key goes anywhere",
        lambda key: fnv1a(key) & _POSITIVE,
    ),
)
