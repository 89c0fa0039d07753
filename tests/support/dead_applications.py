"""Applications that keep their memory in a cluster, and that cluster killed: what each does afterwards.

    python -m tests.support.dead_applications [--first 1] [--count 20] [--release 4.3.0] [--dynamic]

Of each seed a node is filled and killed under load. Then copies of its directory go on: restarted plainly, after
`rebuild`, and after `transplant` into a new cluster. What every application has done in the end must be the same.

- A Streams application with exactly-once semantics counts words (topic `words`).
- A source connector copies a file to `lines`, and a sink connector `numbers` to a file. Both run in one distributed
  worker of Connect, with its three topics.
- MirrorMaker's connectors in the same worker copy `numbers` to `old.numbers`, and the offsets of the group `readers`
  to the copy. Source and target are the same cluster, so that all of its memory dies.
- A share group reads `shared`; see `test_applications_go_on`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support.command_line import json_lines, run
from tests.support.consumers import librdkafka_rows
from tests.support.kafka.broker import free_ports
from tests.support.kafka.jvm import KAFKA_VERSION, application_jars, compiled, find_java, maven_jars
from tests.support.kafka.released_broker import ReleasedBroker
from tests.support.rebuilt import copy_snapshots

SOURCES = Path(__file__).parent / "kafka" / "topics_java"
WORDS, PARTITIONS = ("one", "two", "three"), 2
READERS, COPY = "readers", "old.numbers"
WAYS = ("plain", "rebuild", "transplant")
LIMIT_SECONDS = 900  # a busy machine starts a JVM slowly
JAVA = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dseglogkafka.echo=2"]
NOT_MADE = {"__transaction_state", "__share_group_state"}  # a new cluster makes these itself

WORKER = {
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
    **{f"{each}.storage.replication.factor": "1" for each in ("config", "offset", "status")},
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "header.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
}
MIRROR = {
    "source.cluster.alias": "old",
    "target.cluster.alias": "new",
    "tasks.max": "1",
    "key.converter": WORKER["key.converter"],
    "value.converter": WORKER["key.converter"],
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "replication.factor": "1",
}


def application_classpath() -> str:
    """Class path of Streams, Connect with its file connectors, MirrorMaker, and of what is compiled against them."""
    jars = application_jars()
    of_files = maven_jars(
        f"connect-file-alone-{KAFKA_VERSION}", [("org.apache.kafka", "connect-file", KAFKA_VERSION)], dependencies=False
    )
    return f"{compiled(SOURCES, jars)}{os.pathsep}{jars}/*{os.pathsep}{of_files}/*"


@dataclass
class Files:
    """The files of an application's connectors, which stay where they are, and a place for the rest."""

    place: Path
    ports: list[int] = field(default_factory=lambda: free_ports(2))

    @property
    def source(self) -> Path:
        return self.place / "source.txt"

    @property
    def sink(self) -> Path:
        return self.place / "sink.txt"


@dataclass
class Written:
    """How many records each topic has been given, and lines the source file."""

    words: int = 0
    numbers: int = 0
    lines: int = 0

    def more(self, bootstrap: str, files: Files, count: int) -> None:
        """Writes as many of each."""
        from confluent_kafka import Producer

        client = Producer({"bootstrap.servers": bootstrap})
        for _ in range(count):
            word = WORDS[self.words % len(WORDS)].encode()
            client.produce("words", word, partition=self.words % PARTITIONS)
            client.produce("numbers", b"%d" % self.numbers, partition=self.numbers % PARTITIONS)
            self.words += 1
            self.numbers += 1
        with files.source.open("a") as file:
            for _ in range(count):
                file.write(f"line {self.lines}\n")
                self.lines += 1
        assert client.flush(60) == 0

    @property
    def counts(self) -> str:
        """What Streams counts of the words."""
        counts = {word: len(range(n, self.words, len(WORDS))) for n, word in enumerate(WORDS)}
        return "{" + ", ".join(f"{word}={counts[word]}" for word in sorted(counts)) + "}"


@dataclass(frozen=True)
class Outcome:
    """What the applications have done in the end. `synced` are the offsets of `readers` in the copy."""

    counts: str
    lines: tuple[str, ...]
    sunk: tuple[str, ...]
    copied: tuple[tuple[str, ...], ...]
    synced: tuple[int, ...]

    def repeated(self) -> dict[str, int]:
        """How many records came more than once, by application."""
        copied = [value for values in self.copied for value in values]
        kinds = {"source": self.lines, "sink": self.sunk, "mirror": copied}
        return {name: len(values) - len(set(values)) for name, values in kinds.items()}


@contextmanager
def counting(bootstrap: str, state: Path, protocol: str, total: int, said: Path) -> Iterator[IO[str]]:
    """A Streams application, which writes its counts when it has `total`; it is killed at the end."""
    command = [find_java(), *JAVA, f"-Dstate={state}", "-cp", application_classpath(), "seglogtopics.Counting"]
    with said.open("ab") as log:
        process = subprocess.Popen(
            [*command, bootstrap, "words", protocol, str(total)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


class Worker:
    """A distributed worker of Connect. Starts when made; a context manager kills it."""

    def __init__(self, bootstrap: str, files: Files) -> None:
        self._bootstrap, self._files = bootstrap, files
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/connectors"
        properties = files.place / "worker.properties"
        settings = WORKER | {"bootstrap.servers": bootstrap, "listeners": f"HTTP://127.0.0.1:{port}"}
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [
            find_java(),
            *JAVA,
            "-cp",
            application_classpath(),
            "org.apache.kafka.connect.cli.ConnectDistributed",
        ]
        self.log = files.place / "worker.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, properties], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def configure(self) -> None:
        """Makes the connectors."""
        file = "org.apache.kafka.connect.file.FileStream"
        mirror = "org.apache.kafka.connect.mirror.Mirror"
        both = {f"{end}.cluster.bootstrap.servers": self._bootstrap for end in ("source", "target")}
        connectors = {
            "lines": {
                "connector.class": f"{file}SourceConnector", "file": str(self._files.source), "topic": "lines",
            },
            "numbers": {
                "connector.class": f"{file}SinkConnector", "file": str(self._files.sink), "topics": "numbers",
                "consumer.override.auto.offset.reset": "earliest",
            },
            "mirror": MIRROR | both | {
                "connector.class": f"{mirror}SourceConnector", "topics": "numbers", "offset.lag.max": "0",
                "sync.topic.acls.enabled": "false", "refresh.topics.interval.seconds": "5",
            },
            "checkpoints": MIRROR | both | {
                "connector.class": f"{mirror}CheckpointConnector", "groups": READERS, "topics": "numbers",
                "emit.checkpoints.interval.seconds": "1", "refresh.groups.interval.seconds": "1",
                "sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "1",
            },
        }  # fmt: skip
        for name, config in connectors.items():
            until(lambda name=name, config=config: self._put(name, config), f"connector {name}")  # type: ignore[misc]

    def _put(self, name: str, config: Mapping[str, str]) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"Connect's worker has ended:\n{self.log.read_text()[-4000:]}")
        url, data = f"{self._url}/{name}/config", json.dumps(config).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="PUT")
        try:
            urllib.request.urlopen(request, timeout=60).close()
        except OSError:  # it starts, or its members meet
            return False
        return True


def until(is_so: Callable[[], bool], what: str) -> None:
    """Waits for something. TimeoutError with its name."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.5)


def values(bootstrap: str, topic: str, count: int) -> tuple[tuple[str, ...], ...]:
    """The committed values of a topic, by partition."""
    rows = librdkafka_rows(bootstrap, [(topic, number) for number in range(count)], "read_committed")
    return tuple(tuple((row[3] or b"").decode() for row in rows[topic, number]) for number in range(count))


def ends(bootstrap: str, topic: str, count: int) -> list[int]:
    """The high watermarks of a topic's partitions."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watching"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, number), 60)[1] for number in range(count)]
    consumer.close()
    return found


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """The offsets that a group has committed; below 0 where it has none."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 60)
    consumer.close()
    return [int(each.offset) for each in found]


def commit(bootstrap: str, group: str, topic: str, offsets: list[int]) -> None:
    """Commits offsets for a group without members."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def kept_offsets(bootstrap: str) -> dict[str, Any]:
    """The offsets of source connectors in Connect's topic, by their keys."""
    rows = librdkafka_rows(bootstrap, [("connect-offsets", number) for number in range(2)], "read_committed")
    return {(row[2] or b"").decode(): json.loads(row[3] or b"null") for each in rows.values() for row in each}


def is_settled(bootstrap: str, files: Files) -> bool:
    """Whether Connect and MirrorMaker have done all that there is to do, and have kept how far they are."""
    numbers = ends(bootstrap, "numbers", PARTITIONS)
    if committed(bootstrap, "connect-numbers", "numbers") != numbers:
        return False
    kept = kept_offsets(bootstrap)
    read = {key: offset["position"] for key, offset in kept.items() if key.startswith('["lines"')}
    if set(read.values()) != {files.source.stat().st_size}:
        return False
    copied = {
        json.loads(key)[1]["partition"]: offset["offset"]
        for key, offset in kept.items()
        if key.startswith('["mirror"') and '"offset"' in json.dumps(offset)
    }
    if [copied.get(number, -1) + 1 for number in range(PARTITIONS)] != numbers:
        return False
    return committed(bootstrap, READERS, COPY) == ends(bootstrap, COPY, PARTITIONS)


@dataclass
class Dead:
    """A killed node: its directory, the applications' files as they were then, and what they had been given."""

    directory: Path
    files: Files
    written: Written
    release: str
    dynamic: bool
    protocol: str

    def node(self, directory: Path) -> ReleasedBroker:
        """A node at the old address."""
        work = directory.with_name(directory.name + ".work")
        return ReleasedBroker(self.release, directory, work, dynamic=self.dynamic, ports=self.files.ports)

    def live(self, work: Callable[[ReleasedBroker, ExitStack], None]) -> None:
        """Makes the cluster and its applications, lets `work` wait for what it wants, and kills all of them."""
        with ExitStack() as stack:
            broker = stack.enter_context(self.node(self.directory))
            for topic in ("words", "numbers", "shared"):
                broker.create_topic(topic, PARTITIONS)
            broker.create_topic("lines")
            self.written.more(broker.bootstrap, self.files, 40)
            commit(broker.bootstrap, READERS, "numbers", [5, 7])
            worker = stack.enter_context(Worker(broker.bootstrap, self.files))
            worker.configure()
            work(broker, stack)
            broker.kill()
        for file in (self.files.source, self.files.sink):
            shutil.copy(file, file.with_suffix(".then"))

    def go_on(self, broker: ReleasedBroker) -> Outcome:
        """Starts the applications again, gives them more, and returns what they have done when nothing is left."""
        for file in (self.files.source, self.files.sink):
            shutil.copy(file.with_suffix(".then"), file)
        written = Written(self.written.words, self.written.numbers, self.written.lines)
        written.more(broker.bootstrap, self.files, 30)
        bootstrap = broker.bootstrap
        state = Path(tempfile.mkdtemp(dir=self.files.place))
        log = self.files.place / "streams.log"
        with (
            Worker(bootstrap, self.files),
            counting(bootstrap, state, self.protocol, written.words, log) as counts,
        ):
            commit(bootstrap, READERS, "numbers", ends(bootstrap, "numbers", PARTITIONS))
            until(lambda: is_settled(bootstrap, self.files), "Connect and MirrorMaker have not come to an end")
            said = counts.readline().strip()
        (lines,) = values(bootstrap, "lines", 1)
        sunk = tuple(sorted(self.files.sink.read_text().splitlines()))
        synced = tuple(committed(bootstrap, READERS, COPY))
        return Outcome(said, lines, sunk, values(bootstrap, COPY, PARTITIONS), synced)

    @contextmanager
    def by(self, way: str, place: Path) -> Iterator[ReleasedBroker]:
        """The node that goes on, in one of WAYS, on a copy of the directory."""
        directory = place / "logs"
        shutil.copytree(self.directory, directory)
        if way == "rebuild":
            done = run("rebuild", directory, "-o", place / "made")
            assert done.exit_code == 0, done.output
            shutil.move(directory / "__cluster_metadata-0", place / "moved")
            copy_snapshots(place / "made", directory)
        if way == "transplant":
            old, directory = directory, place / "new"
            self.make_topics(directory)
            done = run("transplant", old, "--into", directory)
            assert done.exit_code == 0, done.output
            (place / "said").write_text(done.stderr)
        with self.node(directory) as broker:
            yield broker
            broker.kill()

    def make_topics(self, directory: Path) -> None:
        """A new cluster with the old one's topics, as `seglog metadata` lists them."""
        topics = [row for row in json_lines(run("metadata", "--json", self.directory)) if row["type"] == "topic"]
        with self.node(directory) as broker:
            for row in topics:
                if row["topic"] not in NOT_MADE:
                    configs = {name.replace(".", "_"): value for name, value in row["configs"].items()}
                    broker.create_topic(row["topic"], row["partitions"], **configs)


def killed_under_load(seed: int, place: Path, release: str, dynamic: bool) -> Dead:
    """The cluster of a seed."""
    chance = random.Random(seed)
    files = Files(place)
    protocol = chance.choice(("classic", "streams"))
    dead = Dead(place / "dead" / "logs", files, Written(), release, dynamic, protocol)

    def work(broker: ReleasedBroker, stack: ExitStack) -> None:
        log = place / "streams.log"
        stack.enter_context(counting(broker.bootstrap, place / "state", protocol, 1 << 40, log))
        if chance.random() < 0.8:  # else it dies while they begin
            until(lambda: COPY in broker.admin().list_topics(timeout=60).topics, "MirrorMaker's topic")
        until(files.sink.exists, "the sink's file")
        end = time.monotonic() + chance.uniform(1, 12)
        while time.monotonic() < end:
            dead.written.more(broker.bootstrap, files, chance.randrange(1, 40))
            time.sleep(chance.uniform(0, 0.4))

    dead.live(work)
    return dead


def try_seed(seed: int, place: Path, release: str, dynamic: bool) -> dict[str, Outcome]:
    """What the applications of a seed's cluster have done in the end, by each way."""
    dead = killed_under_load(seed, place, release, dynamic)
    outcomes = {}
    for way in WAYS:
        with dead.by(way, place / way) as broker:
            outcomes[way] = dead.go_on(broker)
        shutil.rmtree(place / way)
    return outcomes


def main() -> int:
    """Tries seeds, and says what each came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--release", default=KAFKA_VERSION)
    parser.add_argument("--dynamic", action="store_true")
    asked = parser.parse_args()
    differing = 0
    for seed in range(asked.first, asked.first + asked.count):
        with tempfile.TemporaryDirectory() as place:
            outcomes = try_seed(seed, Path(place), asked.release, asked.dynamic)
        plain = outcomes["plain"]
        others = [way for way in WAYS if outcomes[way] != plain]
        differing += bool(others)
        verdict = f"DIFFERENT: {', '.join(others)}" if others else "the same"
        sys.stdout.write(f"seed {seed}: {verdict}; {plain.counts}; came twice: {plain.repeated()}\n")
        for way in others:
            for name, value in vars(plain).items():
                if (other := getattr(outcomes[way], name)) != value:
                    sys.stdout.write(f"  {way}: {name}: {difference(value, other)}\n")
        sys.stdout.flush()
    return 1 if differing else 0


def difference(plain: Any, other: Any) -> str:
    """What only one of two outcomes has."""
    if isinstance(plain, str) or not plain or not isinstance(plain[0], (str, tuple)):
        return f"{plain} | {other}"
    left, right = (Counter(map(str, each)) for each in (plain, other))
    return f"only plain {list((left - right).elements())[:5]}, only here {list((right - left).elements())[:5]}"


if __name__ == "__main__":
    sys.exit(main())
