"""The Kafka versions that people run: what each broker writes is read, changed and given back to that broker.

1. A broker of the release writes a varied log: every codec it has, headers, transactions, tombstones, leader epochs,
   DeleteRecords, a group. Its own clients' records are what seglog must read.
2. It is stopped in order, started once more, and killed: seglog reads, verifies and explains what either leaves.
3. seglog recovers, appends, cleans twice, retains, repairs and truncates what the killed broker left.
4. The broker starts on that, serves what seglog reads there, goes on writing, cleaning and deleting, and stops.

`DEFAULT_RELEASES` run in the second tier (`--whole`). The others run there with `KAFKA_RELEASES=all`, or those that it
names.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import seglog
from seglog.kafka_version import KafkaVersion
from tests.support.command_line import json_lines, run
from tests.support.kafka.released_broker import ReleasedBroker

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DEFAULT_RELEASES = ("2.8.2", "4.4.0")
RELEASES = (
    *("1.1.1", "2.3.1", "2.5.1", "2.8.2", "3.3.2", "3.6.2"),
    *("3.9.1", "4.0.0", "4.2.0", "4.3.0", "4.4.0"),
)
_CHOSEN = os.environ.get("KAFKA_RELEASES", "")
CHOSEN = RELEASES if _CHOSEN == "all" else tuple(_CHOSEN.split(",")) if _CHOSEN else DEFAULT_RELEASES
SETTINGS = {
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.message.timestamp.difference.max.ms": str(2**63 - 1),
}
SEGMENT_BYTES = 12_000
FIRST_WITH_ZSTD = KafkaVersion(2, 1)
FIRST_WITH_INTERNAL_KEY = KafkaVersion(4, 1)  # segment.bytes of less than 1 MiB is refused from here on
TRIMMED_TO = 150
LIMIT_SECONDS = 60


class Served(NamedTuple):
    """A record as a client gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Cluster:
    """One broker's directories, and what is done with it."""

    def __init__(self, release: str, directory: Path) -> None:
        self.release, self.directory = release, directory
        self.version = KafkaVersion.parse(release)
        self.logs = directory / "logs"

    def started(self) -> ReleasedBroker:
        settings = dict(SETTINGS)
        if self.version >= KafkaVersion(4, 0):
            settings.pop("log.message.timestamp.difference.max.ms")
        return ReleasedBroker(self.release, self.logs, self.directory / "work", settings=settings)

    def create_topics(self, broker: ReleasedBroker) -> None:
        key = "internal_segment_bytes" if self.version >= FIRST_WITH_INTERNAL_KEY else "segment_bytes"
        small = {key: SEGMENT_BYTES}
        for codec in self.codecs:
            broker.create_topic(f"plain-{codec}", compression_type="producer", **small)
        broker.create_topic("payments", **small)
        broker.create_topic("compacted", cleanup_policy="compact", delete_retention_ms=1000, **small)
        broker.create_topic("trimmed", **small)
        broker.create_topic("aging", retention_bytes=3 * SEGMENT_BYTES, **small)

    @property
    def codecs(self) -> tuple[str, ...]:
        return ("none", "gzip", "snappy", "lz4", *(("zstd",) if self.version >= FIRST_WITH_ZSTD else ()))


def produce(
    broker: ReleasedBroker, topic: str, count: int, *, first: int = 0, codec: str = "none", keys: int = 40
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 100})
    for i in range(first, first + count):
        value = None if topic == "compacted" and i % 7 == 0 else b"%d " % i + b"value " * 12
        producer.produce(topic, value, b"k%d" % (i % keys), headers=[("n", b"%d" % i), ("empty", None)])
        if i % 20 == 19:
            producer.flush(30)
    assert producer.flush(30) == 0


def produce_transactions(broker: ReleasedBroker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payer"})
    producer.init_transactions(60)
    for number in range(8):
        producer.begin_transaction()
        for i in range(10):
            producer.produce("payments", b"%d-%d " % (number, i) + b"x" * 80, b"p%d" % i)
        if number % 3 == 1:
            producer.flush(30)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def delete_records(broker: ReleasedBroker, topic: str, offset: int) -> None:
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, 0): offset})
    finally:
        admin.close()


def served(broker: ReleasedBroker, topic: str) -> tuple[int, list[Served]]:
    """(first offset, committed records) as a consumer gets them."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    rows: list[Served] = []
    try:
        place = TopicPartition(topic, 0)
        low, high = watermarks(consumer, place)
        consumer.assign([TopicPartition(topic, 0, low)])
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return low, rows
            headers = tuple((name, value) for name, value in message.headers() or ())
            rows.append(Served(message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
    finally:
        consumer.close()
    raise TimeoutError(f"{topic}: {len(rows)} records up to {high}")


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """First and end offset, as soon as the partition has a leader after its broker's start."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            low, high = consumer.get_watermark_offsets(place, timeout=10)
            return int(low), int(high)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def commit(broker: ReleasedBroker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("plain-none", 0, 17)], asynchronous=False)
    consumer.close()


def read(directory: Path) -> list[Served]:
    """The committed records from the log start on, as seglog reads them."""
    with seglog.open_log(directory) as log:
        return [
            Served(
                record.offset or 0,
                record.timestamp or 0,
                record.key,
                record.value,
                tuple((header.key, header.value) for header in record.headers),
            )
            for record in log.records(isolation="read_committed")
        ]


def wait(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.3)


def cleaned_up_to(logs: Path) -> int:
    lines = (logs / "cleaner-offset-checkpoint").read_text().splitlines()
    return next((int(line.split()[2]) for line in lines if line.startswith("compacted 0 ")), -1)


def bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def require_same(cluster: Cluster, told: dict[str, tuple[int, list[Served]]], logs: Path, *, stopped: bool) -> None:
    """seglog reads what the clients got; verify finds nothing, and explain and ls answer."""
    for topic, (low, rows) in told.items():
        found = read(logs / f"{topic}-0")
        if not stopped:  # a kill forgets a log start that was not yet noted
            found = [row for row in found if row.offset >= low]
        if topic == "compacted":  # its broker went on cleaning after the client had read
            assert {row.offset for row in found} <= {row.offset for row in rows}
            assert {row.key: row for row in found if row.value} == {row.key: row for row in rows if row.value}
        elif topic != "aging":
            assert found == rows, (cluster.release, topic)
    verified = run("verify", "--level", "semantic", logs)
    assert verified.exit_code == 0, verified.output
    assert run("explain", logs / "compacted-0").exit_code == 0
    rows = json_lines(run("ls", "--json", logs))
    starts = {row["partition"]: row["start_offset"] for row in rows if row["type"] == "partition"}
    if stopped:
        assert starts["trimmed-0"] == told["trimmed"][0] == TRIMMED_TO


def change(cluster: Cluster) -> dict[str, list[Served]]:
    """What seglog does on the directory of the killed broker; returns what must be served afterwards."""
    logs = cluster.logs
    recovered = run("recover", logs)
    assert recovered.exit_code == 0, recovered.output
    before = read(logs / "plain-gzip-0")
    text = "\n".join(f"key{i}:appended {i}" for i in range(50))
    for codec in cluster.codecs:
        done = run("append", "--key-separator", ":", "--codec", codec, logs / f"plain-{codec}-0", input_text=text)
        assert done.exit_code == 0, done.output
    for _ in range(2):
        done = run("clean", "--policy", "compact", "--roll", "--override-policy", logs / "compacted-0")
        assert done.exit_code == 0, done.output
    done = run("retain", "--retention-bytes", str(2 * SEGMENT_BYTES), "--override-policy", logs / "aging-0")
    assert done.exit_code == 0, done.output
    damaged = logs / "plain-gzip-0" / f"{bases(logs / 'plain-gzip-0')[0]:020d}.log"
    with damaged.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\x00\xff")
    done = run("verify", "--repair", logs / "plain-gzip-0")
    assert done.exit_code == 4, done.output
    assert len(read(logs / "plain-gzip-0")) < len(before) + 50
    end = read(logs / "plain-snappy-0")[-1].offset
    done = run("truncate", logs / "plain-snappy-0", "--to-offset", str(end - 20))
    assert done.exit_code == 0, done.output
    kept = ("payments", "compacted", *(f"plain-{codec}" for codec in cluster.codecs))
    return {topic: read(logs / f"{topic}-0") for topic in kept}


def go_on(cluster: Cluster, broker: ReleasedBroker, wanted: dict[str, list[Served]]) -> None:
    """The broker serves what seglog left, and writes, cleans and deletes on."""
    for topic, rows in wanted.items():
        _, found = served(broker, topic)
        if topic == "compacted":  # it goes on cleaning meanwhile
            assert {row.key: row for row in found if row.value} == {row.key: row for row in rows if row.value}
        else:
            assert found == rows, (cluster.release, topic)
    done, first = cleaned_up_to(cluster.logs), bases(cluster.logs / "aging-0")[0]
    for topic in ("compacted", "aging", "plain-none"):
        produce(broker, topic, 400, first=5000)
    wait("the broker's cleaner", lambda: cleaned_up_to(cluster.logs) > done)
    wait("the broker's retention", lambda: bases(cluster.logs / "aging-0")[0] > first)


@pytest.mark.parametrize("release", CHOSEN)
def test_a_broker_goes_on_with_what_seglog_made_of_its_log(release: str, tmp_path: Path) -> None:
    cluster = Cluster(release, tmp_path)
    broker = cluster.started()
    try:
        cluster.create_topics(broker)
        for codec in cluster.codecs:
            produce(broker, f"plain-{codec}", 200, codec=codec)
        produce(broker, "compacted", 600)
        produce(broker, "trimmed", 400)
        produce(broker, "aging", 600)
        produce_transactions(broker)
        delete_records(broker, "trimmed", TRIMMED_TO)
        commit(broker)
        topics = ("payments", "compacted", "trimmed", "aging", *(f"plain-{codec}" for codec in cluster.codecs))
        told = {topic: served(broker, topic) for topic in topics}
    except BaseException:
        broker.kill()
        raise
    broker.stop()
    require_same(cluster, told, cluster.logs, stopped=True)
    broker = cluster.started()
    try:
        produce(broker, "plain-none", 60, first=1000)
        told = {topic: served(broker, topic) for topic in topics}
    finally:
        broker.kill()
    shutil.rmtree(tmp_path / "killed", ignore_errors=True)
    require_same(cluster, told, cluster.logs, stopped=False)
    wanted = change(cluster)
    broker = cluster.started()
    try:
        go_on(cluster, broker, wanted)
    finally:
        broker.stop()
    assert run("verify", cluster.logs).exit_code == 0
