"""Applications that keep their memory in a cluster: Streams, Connect's worker with MirrorMaker in it, a share group.

Also what they were given, and how far they are. `dead_applications` says what each of them does.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from seglog.clock import SystemClock
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.replicas import ReplicasRequest, compare
from seglog_rescue.replicas.comparison import Acknowledged
from tests.support.command_line import json_lines, run
from tests.support.consumers import librdkafka_rows
from tests.support.kafka.broker import free_ports
from tests.support.kafka.jvm import KAFKA_VERSION, application_jars, compiled, find_java, maven_jars

T = TypeVar("T")
SOURCES = Path(__file__).parent / "kafka" / "topics_java"
WORDS, PARTITIONS = ("one", "two", "three"), 2
READERS, COPY, PICKERS = "readers", "old.numbers", "pickers"
LIMIT_SECONDS = 900  # a busy machine starts a JVM slowly
SESSION_MS = "6000"  # so long the members that died keep those that go on waiting; brokers allow no less
JAVA = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dseglogkafka.echo=2"]

WORKER = {
    "group.id": "workers",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "header.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": "1000",
    "consumer.session.timeout.ms": SESSION_MS,
    "consumer.heartbeat.interval.ms": "1000",
}
MIRROR = {
    "source.cluster.alias": "old",
    "target.cluster.alias": "new",
    "tasks.max": "1",
    "key.converter": WORKER["key.converter"],
    "value.converter": WORKER["key.converter"],
}
WORKER_REPLICAS = [f"{topic}.storage.replication.factor" for topic in ("config", "offset", "status")]
MIRROR_REPLICAS = [
    "replication.factor",
    *(f"{topic}.topic.replication.factor" for topic in ("offset-syncs", "checkpoints")),
]


def application_classpath() -> str:
    """Class path of Streams, Connect with its file connectors, MirrorMaker, and of what is compiled against them."""
    jars = application_jars()
    of_files = maven_jars(
        f"connect-file-alone-{KAFKA_VERSION}", [("org.apache.kafka", "connect-file", KAFKA_VERSION)], dependencies=False
    )
    return f"{compiled(SOURCES, jars)}{os.pathsep}{jars}/*{os.pathsep}{of_files}/*"


@dataclass
class Files:
    """The files of an application's connectors, which stay where they are, and a place for the rest. `replicas` is how
    many the topics have that the applications make."""

    place: Path
    ports: list[int] = field(default_factory=lambda: free_ports(2))
    replicas: int = 1

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
    queue: int = 0

    def more(self, bootstrap: str, files: Files, count: int) -> None:
        """Writes as many of each."""
        from confluent_kafka import Producer

        client = Producer({"bootstrap.servers": bootstrap})
        for _ in range(count):
            word = WORDS[self.words % len(WORDS)].encode()
            client.produce("words", word, partition=self.words % PARTITIONS)
            client.produce("numbers", b"%d" % self.numbers, partition=self.numbers % PARTITIONS)
            client.produce("queue", b"%d" % self.queue, partition=self.queue % PARTITIONS)
            self.words += 1
            self.numbers += 1
            self.queue += 1
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


@contextmanager
def counting(bootstrap: str, state: Path, protocol: str, total: int, said: Path) -> Iterator[IO[str]]:
    """A Streams application, which writes its counts when it has `total`; it is killed at the end."""
    options = ["-cp", application_classpath(), f"-Dstate={state}", f"-Dsession={SESSION_MS}"]
    command = [find_java(), *JAVA, *options, "seglogtopics.Counting"]
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


def sharing(bootstrap: str, group: str, *order: str) -> list[str | Path]:
    """The command line of a member of a share group that reads `queue`; see `Sharing`."""
    return [
        find_java(),
        *JAVA,
        "-cp",
        application_classpath(),
        "seglogtopics.Sharing",
        bootstrap,
        "queue",
        group,
        *order,
    ]


@contextmanager
def busy_sharing(bootstrap: str, seed: int, said: Path) -> Iterator[IO[str]]:
    """A member of the share group `pickers` that accepts or releases what comes, by a seed; it writes a line when it
    has begun, and is killed at the end."""
    command = sharing(bootstrap, PICKERS, "busy", str(seed))
    with said.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


def shared_rest(bootstrap: str, said: Path) -> tuple[str, ...]:
    """The values that still come to a member of `pickers`, in the order of their numbers."""
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": bootstrap})
    for number in range(PARTITIONS):
        client.produce("queue", b"end", partition=number)
    assert client.flush(60) == 0
    with said.open("ab") as log:
        command = sharing(bootstrap, PICKERS, "rest", str(PARTITIONS))
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, timeout=LIMIT_SECONDS, check=True)
    return tuple(sorted(done.stdout.split(), key=int))


class Worker:
    """A distributed worker of Connect. Starts when made; a context manager kills it."""

    def __init__(self, bootstrap: str, files: Files) -> None:
        self._bootstrap, self._files = bootstrap, files
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/connectors"
        properties = files.place / "worker.properties"
        settings = WORKER | dict.fromkeys(WORKER_REPLICAS, str(files.replicas))
        settings |= {"bootstrap.servers": bootstrap, "listeners": f"HTTP://127.0.0.1:{port}"}
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
        both |= dict.fromkeys(MIRROR_REPLICAS, str(self._files.replicas))
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


@dataclass(frozen=True)
class Line:
    """A record of a topic: what tells it from the same value sent again."""

    offset: int
    timestamp: int
    value: str


def lines_of(partition: Path, *bounds: str) -> list[Line]:
    """The records of a partition's directory."""
    rows = json_lines(run("read", "--json", *bounds, partition))
    return [Line(row["offset"], row["timestamp"], row["value"]) for row in rows]


def unacknowledged(logs: Sequence[Path], partition: TopicPartition) -> list[Line]:
    """The records that a partition's replicas in sync had not all got when their brokers died: Kafka had told nobody
    that they are safe, and may elect a replica without them."""
    for verdict in compare(LocalFileSystem(), SystemClock(), ReplicasRequest(logs)).partitions:
        losses = [each for choice in verdict.choices for each in choice.losses]
        open_ends = [each for each in losses if each.acknowledged is Acknowledged.NO]
        if verdict.partition == partition and open_ends:
            longest = max(open_ends, key=lambda loss: loss.end)
            first = min(each.first for each in open_ends if each.node == longest.node)
            (place,) = (each.copy.facts.directory for each in verdict.copies if each.copy.node == longest.node)
            return lines_of(Path(place), "--from-offset", str(first), "--to-offset", str(longest.end))
    return []


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
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = of_coordinator(lambda: consumer.committed(places, 60), group)
    consumer.close()
    return [int(each.offset) for each in found]


def commit(bootstrap: str, group: str, topic: str, offsets: list[int]) -> None:
    """Commits offsets for a group without members."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    of_coordinator(lambda: consumer.commit(offsets=places, asynchronous=False), group)
    consumer.close()


def of_coordinator(ask: Callable[[], T], group: str) -> T:
    """What a group's coordinator answers, which may be about to move, or not have read its log yet."""
    from confluent_kafka import KafkaError, KafkaException

    passing = KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    answers: list[T] = []

    def asked() -> bool:
        try:
            answers.append(ask())
        except KafkaException as error:
            if error.args[0].code() not in passing:
                raise
        return bool(answers)

    until(asked, f"the coordinator of {group}")
    return answers[0]


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
