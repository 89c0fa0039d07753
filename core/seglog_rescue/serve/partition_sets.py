"""Sets of partitions, as a number of bits for each topic: thousands of groups may each be assigned thousands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

_TOPIC_BYTES = 160  # an entry of a dictionary with its number, beside the bits


@dataclass(frozen=True, slots=True)
class PartitionSet:
    """An immutable set of partitions. `bits` has a number for each topic, whose bit N is set for partition N."""

    bits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, topics: Mapping[str, Iterable[int]]) -> Self:
        """Makes the set of the partitions of each topic. The numbers are at least 0."""
        bits = {}
        for topic, numbers in topics.items():
            total = 0
            for number in numbers:
                total |= 1 << number
            if total:
                bits[topic] = total
        return cls(bits)

    def __or__(self, other: PartitionSet) -> PartitionSet:
        if not self.bits or not other.bits:
            return self if self.bits else other
        return PartitionSet({**self.bits, **{topic: self.bits.get(topic, 0) | b for topic, b in other.bits.items()}})

    def __and__(self, other: PartitionSet) -> PartitionSet:
        return self._each(lambda topic, bits: bits & other.bits.get(topic, 0))

    def __sub__(self, other: PartitionSet) -> PartitionSet:
        return self._each(lambda topic, bits: bits & ~other.bits.get(topic, 0))

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __le__(self, other: PartitionSet) -> bool:
        return not self - other

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yields topics and numbers, in the order of the topics' names."""
        for topic in sorted(self.bits):
            for number in self.numbers(topic):
                yield topic, number

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self.bits.values())

    def numbers(self, topic: str) -> list[int]:
        """Returns the partitions of a topic in ascending order."""
        found, rest = [], self.bits.get(topic, 0)
        while rest:
            lowest = rest & -rest
            found.append(lowest.bit_length() - 1)
            rest ^= lowest
        return found

    def of_topics(self, topics: Iterable[str]) -> PartitionSet:
        """Returns the partitions of some topics."""
        return PartitionSet({topic: self.bits[topic] for topic in topics if topic in self.bits})

    @property
    def size(self) -> int:
        """The bytes that it takes in memory."""
        return sum(_TOPIC_BYTES + bits.bit_length() // 8 for bits in self.bits.values())

    def _each(self, bits_of: Callable[[str, int], int]) -> PartitionSet:
        return PartitionSet({topic: new for topic, bits in self.bits.items() if (new := bits_of(topic, bits))})
