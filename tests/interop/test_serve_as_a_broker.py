"""A real broker and `seglog serve` on its directory afterwards: clients cannot tell them apart."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seglog.model import Isolation
from seglog_rescue.serve.endpoint import Address
from tests.support.command_line import ROOT, clean_logs
from tests.support.consumers import Row, librdkafka_rows
from tests.support.dead_clusters import finish
from tests.support.kafka.broker import Broker
from tests.support.kafka.jvm import KAFKA_VERSION, find_java, kafka_classpath, maven_jars
from tests.support.raw_client import RawClient
from tests.support.raw_groups import KINDS, RawGroups, make_groups
from tests.support.serving import Serving, local_rows
from tests.support.wire_answers import UNLIKE, differences, group_answers, topic_id, wire_answers

PLACES = [("plain", 0), ("plain", 1), ("paid", 0)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STAMPS = (-2, -1, 0, 1_700_000_000_005, 1_700_000_000_040, 1_800_000_000_000)


def fill(bootstrap: str) -> None:
    """Records of all codecs; transactions that commit and abort, and one that stays open; two groups' commits."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    for i, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for n in range(20):
            stamp = 1_700_000_000_000 + 10 * i + n
            value = None if n == 7 else b"value %d " % n * 20
            headers = [("codec", codec.encode()), ("null", None)]
            producer.produce("plain", value, b"key %d" % n, partition=n % 2, timestamp=stamp, headers=headers)
        assert producer.flush(60) == 0
    for name, end in (("a", "commit"), ("b", "abort"), ("c", "commit"), ("d", "none")):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        for n in range(5):
            producer.produce("paid", b"%s %d" % (name.encode(), n), partition=0)
        assert producer.flush(60) == 0
        if end != "none":
            finish(producer, bootstrap, name, commit=end == "commit")
    for group, offset in (("one", 3), ("two", 11)):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("plain", 1, offset, metadata=group)], asynchronous=False)
        consumer.close()


def seen(bootstrap: str) -> dict[str, Any]:
    """Everything that a client can see: records, ends, offsets by time, committed offsets."""
    from confluent_kafka import Consumer, TopicPartition

    found: dict[str, Any] = {}
    for isolation in Isolation:
        rows: dict[tuple[str, int], list[Row]] = librdkafka_rows(bootstrap, PLACES, isolation.label)
        found[isolation.label] = rows
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "one", "isolation.level": isolation.label})
        places = [TopicPartition(*place) for place in PLACES]
        found[f"{isolation.label} ends"] = [consumer.get_watermark_offsets(place, timeout=30) for place in places]
        for stamp in STAMPS:
            asked = [TopicPartition(*place, stamp) for place in PLACES]
            answered = consumer.offsets_for_times(asked, timeout=30)
            found[f"{isolation.label} {stamp}"] = [each.offset for each in answered]
        consumer.close()
    for group in ("one", "two", "nobody"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        committed = consumer.committed([TopicPartition("plain", 1), TopicPartition("plain", 0)], timeout=30)
        found[f"committed by {group}"] = [(each.offset, each.metadata) for each in committed]
        consumer.close()
    return found


@dataclass(frozen=True)
class Past:
    """A broker that is no more: its directory, what clients saw of it, its answers, and those about groups."""

    directory: Path
    seen: dict[str, Any]
    answers: dict[str, Any]
    groups: dict[str, Any]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    directory = tmp_path_factory.mktemp("past") / "logs"
    with Broker(directory) as broker:
        broker.create_topic("plain", partitions=2)
        broker.create_topic("paid")
        fill(broker.bootstrap)
        living = seen(broker.bootstrap)
        answers = wire_answers(broker.bootstrap)
        host, _, port = broker.bootstrap.rpartition(":")
        with RawClient(Address(host, int(port))) as client:
            make_groups(RawGroups(client, "plain", topic_id(client)))
        groups = group_answers(broker.bootstrap, KINDS)
        broker.stop()
    return Past(directory, living, answers, groups)


@pytest.mark.kafka
def test_clients_see_of_a_dead_broker_what_they_saw_of_the_living_one(past: Past) -> None:
    living = past.seen
    assert len(living["read_committed"]["paid", 0]) == 10 < len(living["read_uncommitted"]["paid", 0])
    assert living["committed by two"][0] == (11, "two")
    with Serving(past.directory) as serving:
        assert seen(serving.bootstrap) == living


@pytest.mark.kafka
def test_each_field_of_each_answer_is_a_brokers_in_every_version(past: Past) -> None:
    """Null where a broker's is null, and nowhere else: clients of one language or another do not look."""
    with Serving(past.directory) as serving:
        served = wire_answers(serving.bootstrap)
    found = list(differences(past.answers, served))
    meant = [pattern for patterns in UNLIKE.values() for pattern in patterns]
    assert [each for each in found if not any(re.search(pattern, each[0]) for pattern in meant)] == []
    assert [pattern for pattern in meant if not any(re.search(pattern, each[0]) for each in found)] == []
    assert len(served) > 1000


@pytest.mark.kafka
def test_groups_of_each_protocol_that_have_no_members_are_what_they_were(past: Past) -> None:
    with Serving(past.directory) as serving:
        assert list(differences(past.groups, group_answers(serving.bootstrap, KINDS))) == []
    assert past.groups["consumer"] == sorted(name for name, kind in KINDS.items() if kind == "consumer")


MIRRORED = [("orders-lz4", 0), ("payments", 0)]
ON_ONE_BROKER = "".join(
    f"{name}replication.factor = 1\n"
    for name in ("", *(f"{each}.topic." for each in ("offset-syncs", "checkpoints", "heartbeats")),
                 *(f"{each}.storage." for each in ("offset", "status", "config")))
)  # fmt: skip
MIRROR_SECONDS = 900  # it starts slowly


def rescue_properties(old: str, new: str) -> str:
    """The lines that DEAD_CLUSTER.md shows, with these addresses and topics."""
    page = (ROOT / "core" / "DEAD_CLUSTER.md").read_text()
    _, _, rest = page.partition("```properties\n")
    lines, _, _ = rest.partition("```")
    for shown, meant in (("127.0.0.1:9092", old), ("new.example:9092", new)):
        assert shown in lines
        lines = lines.replace(shown, meant)
    topics = ",".join(topic for topic, _ in MIRRORED)
    assert ".topics = orders\n" in lines
    return lines.replace(".topics = orders\n", f".topics = {topics}\n") + ON_ONE_BROKER


@pytest.mark.kafka
@pytest.mark.slow
def test_mirrormaker_copies_topics_into_a_new_cluster_with_the_pages_lines(tmp_path: Path) -> None:
    jars = maven_jars(f"connect-mirror-{KAFKA_VERSION}", [("org.apache.kafka", "connect-mirror", KAFKA_VERSION)])
    properties, said = tmp_path / "rescue.properties", tmp_path / "mirrormaker.log"
    with Serving(clean_logs(tmp_path)) as serving, Broker(tmp_path / "new") as new:
        properties.write_text(rescue_properties(serving.bootstrap, new.bootstrap))
        partitions = {place: serving.catalog.find(*place) for place in MIRRORED}
        wanted = {
            place: [row[1:] for row in local_rows(found.log, Isolation.READ_COMMITTED)]
            for place, found in partitions.items()
            if found is not None
        }
        classes = f"{kafka_classpath()}{os.pathsep}{jars}/*"
        command = [find_java(), "-Xmx512m", "-Dseglogkafka.echo=2", "-cp", classes]
        with said.open("wb") as log:
            mirror = subprocess.Popen(
                [*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)], stdout=log, stderr=log
            )
        try:
            assert copied(new, wanted, mirror) == wanted, said.read_text()[-4000:]
        finally:
            mirror.kill()
            mirror.wait()
    assert len(wanted) == len(MIRRORED) and all(wanted.values())


Copied = dict[tuple[str, int], list[Any]]


def copied(new: Broker, wanted: Copied, mirror: subprocess.Popen[bytes]) -> Copied:
    """What the new cluster has of the topics, as soon as nothing is missing."""
    deadline, admin, found = time.monotonic() + MIRROR_SECONDS, new.admin(), Copied()
    while mirror.poll() is None and time.monotonic() < deadline:
        if {topic for topic, _ in wanted} <= set(admin.list_topics(timeout=60).topics):
            rows = librdkafka_rows(new.bootstrap, wanted, "read_committed")
            found = {place: [row[1:] for row in each] for place, each in rows.items()}
            if all(len(found[place]) >= len(wanted[place]) for place in wanted):
                break
        time.sleep(1)
    return found
