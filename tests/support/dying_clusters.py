"""Real clusters of three brokers that a seed brings up, sets to work, and kills.

A seed decides the release, the kind of quorum and whether replicas out of sync may be eligible (KIP-966); which broker
has two log directories; who compacts; in which order brokers die, are fenced or close in order, who comes back, and
whether one that was not in sync is elected; what is damaged then, and whether a disk is lost. From seed 61 on,
directories of partitions are removed or have other names then, too (`DyingCluster._rename`).
"""

from __future__ import annotations

import atexit
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import Any

from seglog.format.uuids import format_uuid
from seglog.scan.listing import list_log_directory, list_partition
from seglog.scan.log_walk import LogWalk, WalkedEntries
from seglog.storage.local import LocalFileSystem
from seglog_rescue.serve.endpoint import Address
from tests.support.kafka.archive import loading
from tests.support.kafka.broker import CLUSTER_ID, QUICK_COMPILER, server_properties, with_dynamic_quorum
from tests.support.kafka.cluster import CONTROLLER_ID, Cluster
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION, find_java
from tests.support.raw_client import RawClient

FS = LocalFileSystem()
NODES = (1, 2, 3)
TOPICS = {"plain": 2, "safe": 2, "free": 1, "keyed": 1}
ASSIGNED = {"plain": [[1, 2, 3], [2, 3, 1]], "safe": [[3, 1, 2], [1, 3, 2]], "free": [[2, 1, 3]], "keyed": [[3, 2, 1]]}
LIMIT_SECONDS = 90
SESSION_SECONDS = 5
NEVER_MS = "3600000"
RENAMING_FROM = 61  # the first seed whose clusters lose a partition's directory, and have `-future` and `-stray` left
ELECT_LEADERS, UNCLEAN = 43, 1  # its key in the protocol, and its kind of election
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "broker.heartbeat.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.index.size.max.bytes": "65536",
}

Row = tuple[int, int, bytes | None, bytes | None]  # offset, leader epoch, key, value
Rows = dict[str, dict[int, set[Row]]]  # by partition, then broker
NOTHING: Mapping[Path, Path] = MappingProxyType({})


def rows_of(
    directories: Mapping[int, Iterable[Path]],
    topics: Iterable[str] = TOPICS,
    instead: Mapping[Path, Path] = NOTHING,
    turned: set[tuple[str, int]] | None = None,
) -> Rows:
    """Every record with a right checksum in the brokers' log directories. `instead` are the directories that a broker
    serves in place of those with a partition's name. `turned` gets the partitions, each with its broker, of which a
    batch has a leader epoch above one that follows: its rows have that one."""
    rows: Rows = {}
    for node, paths in directories.items():
        for path in paths:
            for place in list_log_directory(FS, path).live if path.exists() else ():
                if place.topic_partition.topic in topics:
                    served = instead.get(place.path, place.path)
                    name, every = str(place.topic_partition), _records(served)
                    right = list(_with_least_epochs(every))
                    rows.setdefault(name, {})[node] = set(right)
                    if turned is not None and right[::-1] != every:
                        turned.add((name, node))
    return rows


def _records(directory: Path) -> list[Row]:
    rows: list[Row] = []
    for segment in list_partition(FS, directory).segments:
        for step in LogWalk(FS, segment.log):
            if isinstance(step, WalkedEntries):
                good = step.batches[step.valid]
                epochs = {int(row["base_offset"]): int(row["leader_epoch"]) for row in good}
                for records in step.records(good):
                    for record in records:
                        base = max(offset for offset in epochs if offset <= record.offset)
                        rows.append((record.offset, epochs[base], record.key, record.value))
    return rows


def _with_least_epochs(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows, the last one first, none with an epoch above one that follows: a leader never goes back, so that is a
    turned bit."""
    least = rows[-1][1] if rows else 0
    for offset, epoch, key, value in reversed(rows):
        least = min(least, epoch)
        yield offset, least, key, value


@dataclass(frozen=True, slots=True)
class Kind:
    """What a cluster is made of. `eligible`: eligible.leader.replicas.version is 1."""

    release: str
    dynamic: bool
    eligible: bool

    @classmethod
    def of(cls, seed: int) -> Kind:
        """The kind of a seed; eight in a row are all different."""
        return cls((KAFKA_VERSION, NEWER_KAFKA_VERSION)[seed >> 2 & 1], bool(seed & 1), bool(seed & 2))

    def __str__(self) -> str:
        words = "dynamic" if self.dynamic else "static", "ELR" if self.eligible else "no ELR"
        return f"{self.release}, {', '.join(words)}"


@cache
def _formatted(kind: Kind) -> Path:
    """A controller's log directory, formatted by Kafka's own tool."""
    place = Path(mkdtemp(prefix="clusters-formatted-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    directory, own = place / "controller", {"process.roles": "controller", "node.id": str(CONTROLLER_ID)}
    properties = server_properties(directory, own, alone=False)
    options = ["--feature", f"eligible.leader.replicas.version={int(kind.eligible)}"]
    if kind.dynamic:
        properties = with_dynamic_quorum(properties)
        options.append("--standalone")
    (place / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    said = ["format", "-t", CLUSTER_ID, "-c", str(place / "server.properties"), *options]
    command = [find_java(), "-Xmx256m", "-XX:+UseSerialGC", *QUICK_COMPILER, *loading(kind.release)]
    done = subprocess.run([*command, "kafka.tools.StorageTool", *said], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"kafka-storage {' '.join(said)}:\n{done.stdout + done.stderr}")
    return directory


SITUATIONS = (
    *("killed", "closed in order", "fenced", "went on after it was fenced", "back in time"),
    *("elected out of sync", "no leader for long", "disk lost", "log damaged"),
    *("log emptied: zeros", "log emptied: files removed", "log emptied: directory removed"),
    *("a move between disks was cut short", "a move between disks was recorded", "only a stray copy is left"),
)


def format_controller(kind: Kind, directory: Path) -> None:
    """Makes a controller's log directory, without starting a process where one of the kind has been made."""
    shutil.copytree(_formatted(kind), directory)


def format_broker(directory: Path, node: int, number: int) -> None:
    """Makes a broker's log directory, with a number of its own below 2^60 for its id."""
    directory.mkdir(parents=True)
    directory_id = format_uuid(uuid.UUID(int=(node << 64) + number + (1 << 126)))
    lines = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={node}\ndirectory.id={directory_id}\n"
    (directory / "meta.properties").write_text(lines)


class DyingCluster:
    """A cluster of three brokers that a seed kills. `story` has a sentence for each thing that befell it, and `met` the
    `SITUATIONS` that came about."""

    def __init__(self, seed: int, place: Path) -> None:
        self.seed, self.chance, self.place = seed, random.Random(seed), place
        self.story, self.met = list[str](), set[str]()
        self.kind = Kind.of(seed)
        self.two = self.chance.choice(NODES)
        self.paths = {
            node: [place / f"b{node}{part}" for part in ("a", "b")[: 2 if node == self.two else 1]] for node in NODES
        }
        self.controller = place / "controller"
        self.written = 0
        self.acknowledged: set[tuple[str, int, bytes | None]] = set()
        self._stopped = set[int]()
        self.served_instead = dict[Path, Path]()  # the directory that a move has filled, by the one that it replaces

    def live(self) -> None:
        """Lets it work and die; afterwards nothing runs."""
        self._format()
        own = {node: {"log.cleaner.backoff.ms": self.chance.choice(("300", "300", NEVER_MS))} for node in NODES}
        lazy = [node for node in NODES if own[node]["log.cleaner.backoff.ms"] == NEVER_MS]
        self.story.append(f"{self.kind}, broker {self.two} has two disks, compacting seldom: {lazy}")
        kind = self.kind
        with Cluster(
            self.controller, self.paths, settings=SETTINGS, own=own, release=kind.release, dynamic=kind.dynamic
        ) as cluster:
            self._make_topics(cluster)
            self._produce(cluster, 30, "all")
            order = self.chance.sample(NODES, 3)
            for node in order[:2]:
                self._produce(cluster, 20, self.chance.choice(("1", "all")))
                self._ended(cluster, node)
                if self.chance.random() < 0.6:
                    time.sleep(SESSION_SECONDS + 1)  # long enough for the others to be alone in sync
                self._produce(cluster, 15, "1")
            self._last_act(cluster, order[0], order[2])
        self.story.append("all killed")

    def _format(self) -> None:
        format_controller(self.kind, self.controller)
        for node, paths in self.paths.items():
            for path in paths:
                format_broker(path, node, self.chance.getrandbits(60))

    def _ended(self, cluster: Cluster, node: int) -> None:
        """A broker ends: it is killed, closed in order, or stands still until it is fenced, and is killed then or soon
        after it has gone on."""
        what = self.chance.random()
        if what < 0.5:
            self._kill(cluster, node)
        elif what < 0.65:
            self._tell("closed in order", node)
            cluster.brokers.pop(node).stop()
        else:
            process = cluster.brokers[node].process
            process.send_signal(signal.SIGSTOP)
            self._stopped.add(node)
            time.sleep(SESSION_SECONDS + 1)
            self._produce(cluster, 15, "1")
            self._stopped.discard(node)
            self._tell("fenced", node)
            if self.chance.random() < 0.5:
                process.send_signal(signal.SIGCONT)
                time.sleep(self.chance.choice((0.3, 3)))
                self._tell("went on after it was fenced", node)
            self._kill(cluster, node)

    def _last_act(self, cluster: Cluster, first: int, last: int) -> None:
        what = self.chance.random()
        if what < 0.25:
            self._produce(cluster, 5, "1")
        elif what < 0.5:  # the last broker dies, the first to die comes back, and is elected although not in sync
            self._kill(cluster, last)
            cluster.start(first)
            broker = cluster.brokers[first]
            given = leaders_of(broker.admin(), {first})
            elect(broker.admin(), {first: broker.bootstrap}, self.story)
            if -1 in given.values():
                self.met.add("elected out of sync")
            self._produce(cluster, 15, "1")
        elif what < 0.75:  # the same, but nobody is elected: partitions have no leader for long
            self._kill(cluster, last)
            cluster.start(first)
            self.story.append(f"broker {first} alone, and nobody elected")
            time.sleep(SESSION_SECONDS + 3)
            if -1 in leaders_of(cluster.brokers[first].admin(), {first}).values():
                self.met.add("no leader for long")
            self._produce(cluster, 5, "1", ["free"])
        else:  # the first to die comes back and follows, then the last one dies
            cluster.start(first)
            self._tell("back in time", first)
            time.sleep(self.chance.choice((0.5, 4)))
            self._produce(cluster, 10, "1")
            self._kill(cluster, last)
            self._produce(cluster, 10, "1")

    def _make_topics(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        configs = {
            "plain": {},
            "safe": {"min.insync.replicas": "2"},
            "free": {"unclean.leader.election.enable": "true"},
            "keyed": {
                "cleanup.policy": "compact",
                "internal.segment.bytes": "4096",
                "min.cleanable.dirty.ratio": "0.01",
            },
        }
        admin = next(iter(cluster.brokers.values())).admin()
        for topic, assigned in ASSIGNED.items():
            new = NewTopic(topic, num_partitions=len(assigned), replica_assignment=assigned, config=configs[topic])
            admin.create_topics([new])[topic].result(60)

    def _tell(self, situation: str, node: int) -> None:
        self.story.append(f"broker {node} {situation}")
        self.met.add(situation)

    def _kill(self, cluster: Cluster, node: int) -> None:
        self._tell("killed", node)
        cluster.kill_broker(node)

    def _produce(self, cluster: Cluster, count: int, acks: str, topics: Iterable[str] = TOPICS) -> None:
        """Produces to every partition; what is not acknowledged in time is given up."""
        from confluent_kafka import Producer

        bootstrap = ",".join(node.bootstrap for number, node in cluster.brokers.items() if number not in self._stopped)
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 1}
        settings |= {"message.timeout.ms": 3000, "retries": 2, "log_level": 0, "reconnect.backoff.ms": 500}
        client = Producer(settings | {"reconnect.backoff.max.ms": 1000, "metadata.recovery.strategy": "none"})
        for _ in range(count):
            for topic in topics:
                for number in range(TOPICS[topic]):
                    self.written += 1
                    key, value = b"key %d" % self.chance.randrange(8), b"%d" % self.written
                    if topic == "keyed":
                        value = b"" if self.chance.random() < 0.1 else value * 8
                    told = (lambda error, message: self._told(error, message)) if acks == "all" else None
                    client.produce(topic, value or None, key, partition=number, on_delivery=told)
            client.poll(0)
            if self.chance.random() < 0.3:
                client.flush(1)
        client.flush(6)

    def _told(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.add((f"{message.topic()}-{message.partition()}", message.offset(), message.value()))

    # --- what befalls the dead ---------------------------------------------------------------------------------

    def wound(self) -> None:
        """Damages replicas, or loses a disk, or leaves all as it is."""
        what = self.chance.random()
        if what < 0.3:
            lost = self.paths[self.two].pop(self.chance.randrange(2))
            shutil.rmtree(lost)
            self.story.append(f"disk {lost.name} of broker {self.two} lost")
            self.met.add("disk lost")
        if 0.2 < what < 0.75:
            for _ in range(self.chance.choice((1, 1, 2))):
                self._damage(self.chance.choice(NODES))
        if self.chance.random() < 0.3:
            self._empty(self.chance.choice(NODES))
        if self.seed >= RENAMING_FROM:
            self._rename()

    def _rename(self) -> None:
        """One directory of a partition is removed, and another one is a stray; on the broker with two disks, a move
        between these was cut short, before or after the controller had recorded the new place."""
        moved, removed, stray = self.chance.sample([("plain", 0), ("plain", 1), ("safe", 0), ("safe", 1)], 3)
        recorded = self.chance.random() < 0.5
        if len(self.paths[self.two]) == 2:
            self._move_half(f"{moved[0]}-{moved[1]}", recorded=recorded)
        self._away(self.chance.choice(NODES), f"{removed[0]}-{removed[1]}", stray=False)
        self._away(self.chance.choice(NODES), f"{stray[0]}-{stray[1]}", stray=True)

    def _move_half(self, name: str, *, recorded: bool) -> None:
        """Leaves a partition as a move between the two disks does. `recorded`: what the controller knows as its place
        has the copy that was filled, which lacks its name yet; else that copy has only the first half of the log."""
        home = next((path for path in self.paths[self.two] if (path / name).exists()), None)
        if home is None:
            return
        other = next(path for path in self.paths[self.two] if path != home)
        future = f"{name}.{self.chance.getrandbits(128):032x}-future"
        if recorded:
            shutil.copytree(home / name, other / name)
            (home / name).rename(home / future)
            self.served_instead[other / name] = home / future
            what = "a move between disks was recorded"
        else:
            shutil.copytree(home / name, other / future)
            log = max((other / future).glob("*.log"))
            log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
            what = "a move between disks was cut short"
        self.story.append(f"broker {self.two}: {what}: {name}")
        self.met.add(what)

    def _away(self, node: int, name: str, *, stray: bool) -> None:
        """A broker's directory of a partition is removed, or has the name of a stray one."""
        log = next((path / name for path in self.paths[node] if (path / name).exists()), None)
        if log is None:
            return
        if stray:
            log.rename(log.with_name(f"{name}.{self.chance.getrandbits(128):032x}-stray"))
            what = "only a stray copy is left"
        else:
            shutil.rmtree(log)
            what = "log emptied: directory removed"
        self.story.append(f"broker {node}: {what}: {name}")
        self.met.add(what)

    def _empty(self, node: int) -> None:
        """One of a broker's logs loses all its records."""
        logs = [log for path in self.paths[node] for topic in TOPICS for log in sorted(path.glob(f"{topic}-?"))]
        if not logs:
            return
        log, what = self.chance.choice(logs), self.chance.choice(("zeros", "files removed", "directory removed"))
        if what == "directory removed":
            shutil.rmtree(log)
        else:
            for file in sorted(log.iterdir()):
                if what == "zeros":
                    file.write_bytes(bytes(file.stat().st_size))
                else:
                    file.unlink()
        self.story.append(f"broker {node}: {log.name} emptied: {what}")
        self.met.add(f"log emptied: {what}")

    def _damage(self, node: int) -> None:
        logs = [log for path in self.paths[node] for topic in TOPICS for log in sorted(path.glob(f"{topic}-?/*.log"))]
        logs = [each for each in logs if each.stat().st_size > 200]
        if not logs:
            return
        log = self.chance.choice(logs)
        data = bytearray(log.read_bytes())
        at, what = self.chance.randrange(61, len(data)), self.chance.choice(("a bit turned", "zeros", "cut", "away"))
        if what == "a bit turned":
            data[at] ^= 1
        elif what == "zeros":
            data[at : at + 512] = bytes(len(data[at : at + 512]))
        elif what == "cut":
            del data[at:]
        log.write_bytes(data)
        if what == "away":
            log.unlink()
        self.story.append(f"broker {node}: {log.parent.name}/{log.name}: {what} at {at}")
        self.met.add("log damaged")

    @property
    def directories(self) -> list[Path]:
        """All log directories that are left, and the controller's."""
        return [path for paths in self.paths.values() for path in paths] + [self.controller]

    def copied(self, place: Path) -> DyingCluster:
        """A copy to start."""
        made = object.__new__(DyingCluster)
        made.__dict__.update(self.__dict__)
        made.place, made.controller = place, place / "controller"
        made.paths = {node: [place / path.name for path in paths] for node, paths in self.paths.items()}
        for path in self.directories:
            shutil.copytree(path, place / path.name)
        return made


def leaders_of(admin: Any, alive: Iterable[int]) -> dict[tuple[str, int], int]:
    """The leader of each partition; -1 for one that does not run, which the controller notices later."""
    topics, running = admin.list_topics(timeout=30).topics, set(alive)
    return {
        (topic, number): seen.leader if seen.leader in running else -1
        for topic in TOPICS
        for number, seen in topics[topic].partitions.items()
    }


def elect(admin: Any, addresses: Mapping[int, str], story: list[str]) -> None:
    """Elects a leader for each partition without one, in sync or not. `addresses` are those of the brokers that run.

    librdkafka (2.16.0) would ask the broker that the metadata calls the controller; while that one is dead and not yet
    noticed, it tries to connect 16,000 times a second, and gives up after 30 s.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    partitions = [{"topic": topic, "partitions": tuple(range(count))} for topic, count in TOPICS.items()]
    asked = {"election_type": UNCLEAN, "topic_partitions": partitions, "timeout": timedelta(seconds=20)}
    while -1 in (leaders := leaders_of(admin, addresses)).values():
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions have no leader: {leaders}")
        host, _, port = next(iter(addresses.values())).rpartition(":")
        with RawClient(Address(host, int(port))) as client:
            client.ask(ELECT_LEADERS, 2, asked)
        time.sleep(0.5)
    story.append("leaders: " + ", ".join(f"{topic}-{number} {node}" for (topic, number), node in leaders.items()))
