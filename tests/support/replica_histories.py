"""Histories of a replicated partition from seeds, without any broker: leaders append, followers cut and fetch, brokers
die and are elected, cleanly or not. What is left becomes log directories.

The truth is kept record by record: a record is its offset, its leader epoch and a number of its own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.format.checkpoint import EpochEntry, format_leader_epochs, format_offset_checkpoint
from seglog.model import TopicPartition
from tests.support.log_files import batch
from tests.support.lost_clusters import broker_directory, registration, topic_records
from tests.support.metadata_records import metadata_record, write_metadata_log

ORDERS = TopicPartition("orders", 0)


@dataclass(frozen=True, slots=True)
class Written:
    """A record: two of different numbers are different records, even at one offset."""

    epoch: int
    number: int


@dataclass(slots=True)
class Replica:
    """A broker's log, its epochs as it learned them, and the high watermark that it knows."""

    log: list[Written] = field(default_factory=list)
    high_watermark: int = 0


@dataclass(slots=True)
class History:
    """A partition on brokers 1, 2, 3 …; `acknowledged` are the records that producers with acks=all were told of."""

    replicas: dict[int, Replica]
    isr: set[int] = field(default_factory=set)
    alive: set[int] = field(default_factory=set)
    leader: int = -1
    epoch: int = -1
    written: int = 0
    changes: list[bytes] = field(default_factory=list)
    acknowledged: set[tuple[int, Written]] = field(default_factory=set)

    def elect(self, node: int) -> None:
        """Makes a broker the leader; one that was not in sync is then alone in sync."""
        if node not in self.isr:
            self.isr = {node}
        self.isr &= self.alive | {node}
        self.leader, self.epoch = node, self.epoch + 1
        self._changed()

    def _changed(self, *, elected: bool = True) -> None:
        fields = {"isr": sorted(self.isr)} | ({"leader": self.leader} if elected else {})
        self.changes.append(metadata_record("PARTITION_CHANGE_RECORD", partitionId=0, topicId=_topic(), **fields))

    def append(self, count: int) -> None:
        """The leader writes records."""
        for _ in range(count):
            self.written += 1
            self.replicas[self.leader].log.append(Written(self.epoch, self.written))

    def fetch(self, node: int, most: int) -> None:
        """A follower cuts what its leader has not, and takes up to `most` records; in sync again when it has all."""
        mine, theirs = self.replicas[node].log, self.replicas[self.leader].log
        common = shared(mine, theirs)
        mine[common:] = theirs[common : common + most]
        self.replicas[node].high_watermark = min(len(mine), self.replicas[self.leader].high_watermark)
        if len(mine) == len(theirs) and node not in self.isr:
            self.isr.add(node)
            self._changed(elected=False)

    def advance(self) -> None:
        """The leader raises its high watermark to what all in sync have, and acknowledges."""
        end = min(len(self.replicas[node].log) for node in self.isr)
        leader = self.replicas[self.leader]
        leader.high_watermark = max(leader.high_watermark, end)
        self.acknowledged |= {(offset, leader.log[offset]) for offset in range(leader.high_watermark)}

    def kill(self, node: int) -> None:
        """A broker dies; the last one in sync stays in the ISR."""
        self.alive.discard(node)
        if node in self.isr and len(self.isr) > 1:
            self.isr.discard(node)
            if node != self.leader:
                self._changed(elected=False)
        if node == self.leader:
            self.leader, self.epoch = -1, self.epoch + 1
            self._changed()


def shared(one: Sequence[Written], other: Sequence[Written]) -> int:
    """Returns how many records two logs have in common at their beginning."""
    for offset, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return offset
    return min(len(one), len(other))


def lost_by(choice: int, logs: Mapping[int, Sequence[Written]]) -> set[tuple[int, Written]]:
    """Returns the records, with their offsets, that another copy has and this one has not."""
    kept = set(enumerate(logs[choice]))
    return {entry for log in logs.values() for entry in enumerate(log)} - kept


def history(seed: int, brokers: int = 3, steps: int = 40) -> History:
    """Returns a history; the same one for a seed."""
    chance = random.Random(seed)
    nodes = list(range(1, brokers + 1))
    made = History({node: Replica() for node in nodes}, set(nodes), set(nodes))
    made.elect(chance.choice(nodes))
    for _ in range(steps):
        _step(made, chance)
    return made


def _step(made: History, chance: random.Random) -> None:
    dead = sorted(made.replicas.keys() - made.alive)
    if made.leader < 0:
        ready = sorted(made.isr & made.alive)
        if ready:
            made.elect(chance.choice(ready))
        elif made.alive and chance.random() < 0.3:
            made.elect(chance.choice(sorted(made.alive)))
        elif dead:
            made.alive.add(chance.choice(dead))
        return
    what = chance.random()
    followers = sorted(made.alive - {made.leader})
    if what < 0.4:
        made.append(chance.randint(1, 6))
    elif what < 0.75 and followers:
        made.fetch(chance.choice(followers), chance.randint(1, 8))
        made.advance()
    elif what < 0.85:
        made.kill(chance.choice(sorted(made.alive)))
    elif dead:
        made.alive.add(chance.choice(dead))


def _topic() -> str:
    from seglog.format.uuids import format_uuid
    from tests.support.lost_clusters import TOPIC_IDS

    return format_uuid(TOPIC_IDS["orders"])


def write_directories(made: History, directory: Path) -> list[Path]:
    """Writes each broker's log directory, as a killed broker leaves it; the first one has the metadata log."""
    nodes = sorted(made.replicas)
    paths = []
    for node in nodes:
        replica, path = made.replicas[node], directory / str(node)
        broker_directory(path, node, {"orders-0": [0]})
        place = path / "orders-0"
        contents = [
            batch(i, value=str(written.number).encode(), epoch=written.epoch) for i, written in enumerate(replica.log)
        ]
        (place / f"{0:020}.log").write_bytes(b"".join(contents))
        epochs = [written.epoch for written in replica.log]
        entries = [EpochEntry(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))]
        (place / "leader-epoch-checkpoint").write_bytes(format_leader_epochs(entries))
        checkpoint = format_offset_checkpoint({ORDERS: replica.high_watermark})
        (path / "replication-offset-checkpoint").write_bytes(checkpoint)
        paths.append(path)
    topic = topic_records("orders", [nodes], epoch=-1)
    write_metadata_log(paths[0], [*map(registration, nodes), *topic, *made.changes])
    return paths
