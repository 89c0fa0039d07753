"""A cluster that a replay goes into, without a broker: what it was given is there to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from seglog.model import Record, TopicPartition
from seglog_rescue.serve.replay.target import Arrived, Delivered, TargetCluster


class MemoryCluster(TargetCluster):
    """`topics` are partitions by name. Records arrive at once; a commit of a group replaces none before."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.bootstrap = "memory:9092"
        self._counts = dict(topics)
        self.records: dict[TopicPartition, list[Record]] = {}
        self.commits: dict[str, list[tuple[TopicPartition, int]]] = {}
        self.stamping: set[str] = set()

    def __exit__(self, *_: object) -> None:
        pass

    def topics(self) -> tuple[str, dict[str, int]]:
        return "memory", self._counts

    def end_offset(self, partition: TopicPartition) -> int:
        return len(self.records.get(partition, ()))

    def records_from(self, partition: TopicPartition, offset: int, end: int) -> Iterator[Arrived]:
        for number, record in enumerate(self.records.get(partition, ())[offset:end], offset):
            yield Arrived(number, record.key, record.value, tuple(record.headers), record.timestamp)

    def start(self, delivered: Delivered) -> None:
        self._delivered = delivered

    def send(self, partition: TopicPartition, record: Record) -> None:
        taken = self.records.setdefault(partition, [])
        taken.append(record)
        self._delivered(partition, len(taken) - 1)

    def flush(self, waiting: Callable[[], None]) -> None:
        waiting()

    def commit(self, group: str, offsets: Sequence[tuple[TopicPartition, int]]) -> None:
        assert group not in self.commits
        self.commits[group] = list(offsets)

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: offset for key, offset in self.commits.get(group, ()) if key in partitions}

    def stamping_topics(self, topics: Sequence[str]) -> list[str]:
        return [topic for topic in topics if topic in self.stamping]
