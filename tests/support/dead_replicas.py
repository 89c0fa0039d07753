"""Real clusters that die from seeds, and what is lost when one is started from each of its brokers.

    python -m tests.support.dead_replicas --first 1 --count 60

A seed decides which brokers die, when, and whether one that was not in sync is elected, which broker has two log
directories, what is damaged, and whether a disk is lost. `seglog replicas` predicts, from the dead directories, what
starting from a broker loses; then the cluster is started that way, and each partition's log is compared record by
record with what the copies had held.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.clock import SystemClock
from seglog.operations.replicas import ReplicasReport, ReplicasRequest, collect, compare, write_collected
from seglog.rescue.replicas.comparison import Choice, PartitionVerdict
from seglog.scan.listing import list_log_directory, list_partition
from seglog.scan.log_walk import LogWalk, WalkedEntries
from seglog.storage.local import LocalFileSystem
from tests.support.kafka.cluster import Cluster

FS, CLOCK = LocalFileSystem(), SystemClock()
NODES = (1, 2, 3)
TOPICS = {"plain": 2, "safe": 2, "keyed": 1}
LIMIT_SECONDS = 600
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}

Row = tuple[int, int, bytes]  # offset, leader epoch, value
Rows = dict[str, dict[int, set[Row]]]  # by partition, then broker


@dataclass
class Outcome:
    """What a seed came to: the lost records by partition, predicted and real, and the sentences that say its story."""

    seed: int
    predicted: dict[str, set[Row]] = field(default_factory=dict)
    lost: dict[str, set[Row]] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    facts_agree: bool = True
    order_kept: bool = True
    acknowledged_wrong: set[tuple[str, Row]] = field(default_factory=set)

    @property
    def is_right(self) -> bool:
        """True if what was predicted is what was lost."""
        return self.predicted == self.lost and self.facts_agree and self.order_kept and not self.acknowledged_wrong


def rows_of(directories: Mapping[int, Iterable[Path]]) -> Rows:
    """Every record with a right checksum in the brokers' log directories."""
    rows: Rows = {}
    for node, paths in directories.items():
        for path in paths:
            for place in list_log_directory(FS, path).live if path.exists() else ():
                if place.topic_partition.topic in TOPICS:
                    rows.setdefault(str(place.topic_partition), {})[node] = set(_records(place.path))
    return rows


def _records(directory: Path) -> Iterable[Row]:
    for segment in list_partition(FS, directory).segments:
        for step in LogWalk(FS, segment.log):
            if isinstance(step, WalkedEntries):
                good = step.batches[step.valid]
                epochs = {int(row["base_offset"]): int(row["leader_epoch"]) for row in good}
                for records in step.records(good):
                    for record in records:
                        base = max(offset for offset in epochs if offset <= record.offset)
                        yield record.offset, epochs[base], record.value or b""


class DyingCluster:
    """A cluster of three brokers that a seed kills."""

    def __init__(self, seed: int, place: Path) -> None:
        self.chance, self.place, self.story = random.Random(seed), place, list[str]()
        self.two = self.chance.choice(NODES)
        self.paths = {
            node: [place / f"b{node}{part}" for part in ("a", "b")[: 2 if node == self.two else 1]] for node in NODES
        }
        self.controller = place / "controller"
        self.written = 0
        self.acknowledged: set[tuple[str, int, bytes]] = set()

    def live(self) -> None:
        """Lets it work and die; afterwards nothing runs."""
        with Cluster(self.controller, self.paths, settings=SETTINGS) as cluster:
            self._make_topics(cluster)
            self._produce(cluster, 30, "all")
            order = self.chance.sample(NODES, 3)
            for node in order[:2]:
                self._produce(cluster, 20, self.chance.choice(("1", "all")))
                self._kill(cluster, node)
                if self.chance.random() < 0.6:
                    time.sleep(6)  # long enough for the others to be alone in sync
                self._produce(cluster, 15, "1")
            if self.chance.random() < 0.5:
                self._elect(cluster, order[0], order[2])
            self._produce(cluster, 5, "1")
        self.story.append("all killed")

    def _make_topics(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        admin = next(iter(cluster.brokers.values())).admin()
        for topic, count in TOPICS.items():
            more = {"min.insync.replicas": "2"} if topic == "safe" else {}
            if topic == "keyed":
                more |= {"cleanup.policy": "compact", "internal.segment.bytes": "4096"}
                more |= {"min.cleanable.dirty.ratio": "0.01"}
            new = NewTopic(topic, num_partitions=count, replication_factor=len(NODES), config=more)
            admin.create_topics([new])[topic].result(60)

    def _kill(self, cluster: Cluster, node: int) -> None:
        self.story.append(f"broker {node} killed")
        cluster.kill_broker(node)

    def _elect(self, cluster: Cluster, stale: int, last: int) -> None:
        """The last broker dies, the first to die comes back, and is elected although it is not in sync."""
        self._kill(cluster, last)
        cluster.start(stale)
        elect(cluster, self.story)
        self._produce(cluster, 15, "1")

    def _produce(self, cluster: Cluster, count: int, acks: str) -> None:
        """Produces to every partition; what is not acknowledged in time is given up."""
        from confluent_kafka import Producer

        settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 1}
        client = Producer(settings | {"message.timeout.ms": 4000, "retries": 2})
        for _ in range(count):
            for topic, partitions in TOPICS.items():
                for number in range(partitions):
                    self.written += 1
                    value = b"%d" % self.written
                    key = b"key %d" % self.chance.randrange(8)
                    told = (lambda error, message: self._told(error, message)) if acks == "all" else None
                    client.produce(topic, value, key, partition=number, on_delivery=told)
            client.poll(0)
            if self.chance.random() < 0.3:
                client.flush(1)
        client.flush(8)

    def _told(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.add((f"{message.topic()}-{message.partition()}", message.offset(), message.value()))

    def wound(self) -> None:
        """Damages a replica, or loses a disk, or leaves all as it is."""
        what = self.chance.random()
        if what < 0.3:
            lost = self.paths[self.two].pop()
            shutil.rmtree(lost)
            self.story.append(f"disk {lost.name} of broker {self.two} lost")
        elif what < 0.65:
            node = self.chance.choice(NODES)
            logs = [
                log for path in self.paths[node] for topic in TOPICS for log in sorted(path.glob(f"{topic}-?/*.log"))
            ]
            log = self.chance.choice([each for each in logs if each.stat().st_size > 200])
            data = bytearray(log.read_bytes())
            at = self.chance.randrange(61, len(data))
            data[at] ^= 1
            log.write_bytes(data)
            self.story.append(f"broker {node}: {log.parent.name}/{log.name} damaged at {at}")

    @property
    def directories(self) -> list[Path]:
        """All log directories that are left, and the controller's."""
        return [path for paths in self.paths.values() for path in paths] + [self.controller]


def elect(cluster: Cluster, story: list[str]) -> None:
    """Elects a leader for each partition without one, in sync or not."""
    from confluent_kafka import TopicPartition

    admin = next(iter(cluster.brokers.values())).admin()
    wanted = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
    deadline = time.monotonic() + LIMIT_SECONDS
    while -1 in (leaders := _leaders(cluster, admin)).values():
        assert time.monotonic() < deadline, leaders
        _ask_for_leaders(admin, wanted)
        time.sleep(1)
    story.append("leaders: " + ", ".join(f"{topic}-{number} {node}" for (topic, number), node in leaders.items()))


def _ask_for_leaders(admin: Any, partitions: list[Any]) -> None:
    """Asks for an unclean election; a controller that does not answer in time is asked again by the caller."""
    from confluent_kafka import ElectionType, KafkaError, KafkaException

    try:
        admin.elect_leaders(ElectionType.UNCLEAN, partitions).result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise


def _leaders(cluster: Cluster, admin: Any) -> dict[tuple[str, int], int]:
    """Returns the leader of each partition; -1 for one that does not run, which the controller notices later."""
    topics = admin.list_topics(timeout=30).topics
    return {
        (topic, number): found.leader if found.leader in cluster.brokers else -1
        for topic in TOPICS
        for number, found in topics[topic].partitions.items()
    }


def start_from(dying: DyingCluster, node: int, story: list[str]) -> None:
    """Starts the cluster from one broker: it leads every partition that it has, then the others follow it."""
    cluster = Cluster(dying.controller, {node: dying.paths[node]}, settings=SETTINGS)
    with cluster:
        elect(cluster, story)
        for other in NODES:
            if other != node:
                cluster.directories[other] = dying.paths[other]
                cluster.start(other)
        _settle(cluster)


def start_in_order(dying: DyingCluster, report: ReplicasReport) -> dict[str, int]:
    """Starts the brokers as the report says, with its elections; returns the leaders by partition."""
    from confluent_kafka import TopicPartition

    first = report.start.order[0]
    cluster = Cluster(dying.controller, {first: dying.paths[first]}, settings=SETTINGS)
    with cluster:
        for node in report.start.order:
            if node != first:
                cluster.directories[node] = dying.paths[node]
                cluster.start(node)
            admin = cluster.brokers[node].admin()
            names = [name.rpartition("-") for name in report.start.elected.get(node, ())]
            asked = [TopicPartition(topic, int(number)) for topic, _, number in names if topic in TOPICS]
            deadline = time.monotonic() + LIMIT_SECONDS
            while any(_leaders(cluster, admin)[each.topic, each.partition] != node for each in asked):
                assert time.monotonic() < deadline, _leaders(cluster, admin)
                _ask_for_leaders(admin, asked)
                time.sleep(1)
        _settle(cluster)
        leaders = _leaders(cluster, cluster.brokers[first].admin())
    dying.story.append(f"started in the order {report.start.order}, elected {sorted(report.start.elected)}")
    return {f"{topic}-{number}": node for (topic, number), node in leaders.items()}


def _settle(cluster: Cluster) -> None:
    """Waits until every follower has what its leader has."""
    admin = next(iter(cluster.brokers.values())).admin()
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        topics = admin.list_topics(timeout=30).topics
        if all(len(found.isrs) == 3 for topic in TOPICS for found in topics[topic].partitions.values()):
            return
        time.sleep(1)
    raise TimeoutError("followers are not in sync")


def predicted(report: ReplicasReport, node: int, rows: Rows) -> dict[str, set[Row]]:
    """The records that starting from a broker loses, by the report's ranges and the holders' records."""
    found: dict[str, set[Row]] = {}
    for verdict in report.partitions:
        name = str(verdict.partition)
        choice = next((each for each in verdict.choices if each.node == node), None)
        if name in rows and choice is not None:
            found[name] = _lost_rows(choice, rows[name])
    return found


def _lost_rows(choice: Choice, rows: Mapping[int, set[Row]]) -> set[Row]:
    return {row for loss in choice.losses for row in rows.get(loss.node, set()) if loss.first <= row[0] < loss.end}


def judged_wrong(verdict: PartitionVerdict, rows: Rows, acknowledged: set[tuple[str, int, bytes]]) -> set[Row]:
    """Records that producers were told are safe, and that the report calls not acknowledged."""
    name = str(verdict.partition)
    return {
        row
        for choice in verdict.choices
        for loss in choice.losses
        if loss.acknowledged.value == "no"
        for row in rows.get(name, {}).get(loss.node, set())
        if loss.first <= row[0] < loss.end and (name, row[0], row[2]) in acknowledged
    }


def try_seed(seed: int, place: Path) -> Outcome:
    """Makes the cluster of a seed, predicts, starts it from a broker, and compares."""
    outcome = Outcome(seed)
    dying = DyingCluster(seed, place / "cluster")
    dying.place.mkdir(parents=True)
    outcome.story = dying.story
    dying.live()
    dying.wound()
    rows = rows_of(dying.paths)
    report = compare(FS, CLOCK, ReplicasRequest(dying.directories))
    facts = []
    for owner, paths in {**dying.paths, 3000: [dying.controller]}.items():
        facts.append(place / f"{owner}.facts")
        write_collected(FS, collect(FS, CLOCK, ReplicasRequest(paths)), facts[-1])
    outcome.facts_agree = compare(FS, CLOCK, ReplicasRequest(facts)).partitions == report.partitions
    for verdict in report.partitions:
        name = str(verdict.partition)
        outcome.acknowledged_wrong |= {(name, row) for row in judged_wrong(verdict, rows, dying.acknowledged)}
    whole = [node for node in NODES if all(node in copies for copies in rows.values())]
    node = dying.chance.choice(whole)
    leaders = dict.fromkeys(rows, node)
    if set(report.start.order) == set(NODES) and dying.chance.random() < 0.4:
        leaders |= start_in_order(dying, report)
        expected = {name: leader for name, leader in report.start.leaders.items() if name in rows}
        outcome.order_kept = all(leaders[name] == leader for name, leader in expected.items())
    else:
        dying.story.append(f"started from broker {node}")
        start_from(dying, node, dying.story)
    after = rows_of(dying.paths)
    for name, copies in rows.items():
        held, leader = set().union(*copies.values()), leaders[name]
        outcome.predicted[name] = predicted(report, leader, rows)[name]
        outcome.lost[name] = held - after[name][leader]
        if name.startswith("keyed"):  # compaction goes on meanwhile: what it removes was not lost
            newest = max((row[0] for row in after[name][leader]), default=-1)
            outcome.lost[name] = {
                row for row in outcome.lost[name] if row in outcome.predicted[name] or row[0] > newest
            }
    return outcome


def say(line: str) -> None:
    """Writes a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Tries seeds, and says what each came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    asked = parser.parse_args()
    wrong = 0
    for seed in range(asked.first, asked.first + asked.count):
        with tempfile.TemporaryDirectory() as place:
            outcome = try_seed(seed, Path(place))
        counts = {name: len(rows) for name, rows in outcome.lost.items() if rows}
        verdict = "right" if outcome.is_right else "WRONG"
        say(f"seed {seed}: {verdict}; lost {counts}; {'; '.join(outcome.story)}")
        if not outcome.is_right:
            wrong += 1
            for name in outcome.lost:
                more = sorted(outcome.predicted[name] ^ outcome.lost[name])[:10]
                if more:
                    say(f"  {name}: predicted or lost, not both: {more}")
            say(f"  facts agree: {outcome.facts_agree}; order kept: {outcome.order_kept}")
            say(f"  acknowledged although said not to be: {outcome.acknowledged_wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
