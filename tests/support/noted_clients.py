"""What clients of a busy broker were told and saw, and how a log that is a part of theirs differs from it.

Producers note what was acknowledged, and two consumers every record that they get, under both isolations, from the
first one on. A log of later, made of a prefix of theirs, has what they saw up to its end: a compacted one the latest
record of each key, and nothing that was not written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog import open_log
from seglog.scan.listing import list_partition
from seglog.storage.local import LocalFileSystem
from tests.support.busy_broker import TOPICS
from tests.support.consumers import Place
from tests.support.dead_clusters import ISOLATIONS

FS = LocalFileSystem()
CATCH_UP_S = 90.0
COMPACTED = {topic for topic, config in TOPICS.items() if "compact" in str(config.get("cleanup_policy"))}
TRANSACTIONAL = ("paid", "paid-keys")
PLACES: list[Place] = [(topic, n) for topic, config in TOPICS.items() for n in range(config.get("partitions", 1))]

Seen = tuple[bytes | None, bytes | None]  # key and value


@dataclass(frozen=True)
class Told:
    """What was acknowledged at some instant: the last offset, and the last one of a transaction that had ended."""

    acknowledged: Mapping[Place, int]
    ended: Mapping[Place, int]


@dataclass
class Notes:
    """All of it, by isolation and partition."""

    rows: dict[str, dict[Place, dict[int, Seen]]] = field(
        default_factory=lambda: {isolation: {place: {} for place in PLACES} for isolation in ISOLATIONS}
    )
    reached: dict[str, dict[Place, int]] = field(
        default_factory=lambda: {isolation: dict.fromkeys(PLACES, 0) for isolation in ISOLATIONS}
    )
    written: dict[Place, dict[int, Seen]] = field(default_factory=lambda: {place: {} for place in PLACES})
    _acknowledged: dict[Place, int] = field(default_factory=dict)
    _closed: dict[Place, int] = field(default_factory=dict)
    _ended: dict[Place, int] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def delivered(self, error: Any, message: Any) -> None:
        """A producer's record was acknowledged, or failed."""
        if error is not None:
            return
        place, offset = (message.topic(), message.partition()), message.offset()
        with self._guard:
            self.written[place][offset] = message.key(), message.value()
            self._acknowledged[place] = max(offset, self._acknowledged.get(place, -1))

    def settled(self, topic: str, has_ended: bool) -> None:
        """A transaction's records are acknowledged, or it has ended. Its markers may be written after that, but are
        there when the records of the next one are."""
        place = (topic, 0)
        with self._guard:
            if has_ended:
                self._closed[place] = self._acknowledged.get(place, -1)
            elif place in self._closed:
                self._ended[place] = self._closed[place]

    def told(self) -> Told:
        """What was acknowledged until now."""
        with self._guard:
            return Told(dict(self._acknowledged), dict(self._ended))

    # --- consumers ----------------------------------------------------------------------------------------

    def watch(self, bootstrap: str, isolation: str, ending: threading.Event) -> None:
        """Consumes everything until the end."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": bootstrap, "group.id": f"watch-{isolation}", "enable.auto.commit": False}
        settings |= {"enable.partition.eof": True, "isolation.level": isolation, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "fetch.wait.max.ms": 50, "log_level": 0})
        rows, reached = self.rows[isolation], self.reached[isolation]
        try:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in PLACES])
            while not ending.is_set():
                for message in consumer.consume(1000, timeout=0.2):
                    place, error, offset = (message.topic(), message.partition()), message.error(), message.offset()
                    if error is None:
                        rows[place][offset] = message.key(), message.value()
                        reached[place] = offset + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        reached[place] = max(reached[place], offset)
        finally:
            consumer.close()

    def has_caught_up(self, place: Place, isolation: str, end: int) -> bool:
        """Waits for a consumer to have seen what lies below an offset."""
        deadline = time.monotonic() + CATCH_UP_S
        while self.reached[isolation][place] < end:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    # --- judging ------------------------------------------------------------------------------------------

    def differences(self, place: Place, directory: Path, told: Told, start: int) -> Iterator[str]:
        """Yields how the partition in a directory, whose log starts at `start`, differs from what it must be."""
        name = f"{place[0]}-{place[1]}"
        with open_log(directory) as log:
            end = log.log_end_offset
            logs = {
                isolation: {each.offset: (each.key, each.value) for each in log.records(start, isolation)}
                for isolation in ISOLATIONS
            }
        if end <= told.acknowledged.get(place, -1):
            yield f"{name} ends at {end}, and {told.acknowledged[place]} was acknowledged before"
        for isolation, rows in logs.items():
            last = max(rows, default=start - 1)
            bound = end if isolation == ISOLATIONS[0] else max(last + 1, told.ended.get(place, -1) + 1)
            if not self.has_caught_up(place, isolation, bound if isolation == ISOLATIONS[0] else last + 1):
                yield f"{name}, {isolation}: the consumer has not reached {bound} in {CATCH_UP_S:.0f} s"
                continue
            for sentence in self.of_rows(place, isolation, rows, start, bound):
                yield f"{name}, {isolation}, [{start}, {bound}): {sentence}"

    def of_rows(self, place: Place, isolation: str, rows: Mapping[int, Seen], start: int, bound: int) -> Iterator[str]:
        seen, written = self.rows[isolation][place], self.written[place]
        strange = [at for at, row in rows.items() if row != seen.get(at, written.get(at))]
        if strange:
            yield f"{len(strange)} records were not written, the first at {strange[0]}"
        known = {at: row for at, row in seen.copy().items() if start <= at < bound}
        if place[0] in COMPACTED:
            latest = {row[0]: (at, row[1]) for at, row in sorted(known.items())}
            newer = {row[0]: at for at, row in sorted(rows.items())}  # than what lies below `bound`
            may_be_aborted = place[0] in TRANSACTIONAL and isolation == ISOLATIONS[0]
            known = {
                at: (key, value)
                for key, (at, value) in latest.items()
                if value is not None and not may_be_aborted and newer.get(key, -1) <= at
            }
        missing = sorted(known.keys() - rows.keys())
        if missing:
            yield f"{len(missing)} records are missing, the first at {missing[0]}, the last at {missing[-1]}"


def first_offset(directory: Path) -> int:
    """Where the first segment of a partition begins."""
    return list_partition(FS, directory).segments[0].base_offset
