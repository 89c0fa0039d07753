"""The steps that `rebuild` prints, followed word for word on 4.3 and 4.4, with static and dynamic quorums, with the old
controller and with a newly formatted one: each acknowledged record is there, and nothing is set aside. So it is by the
other situations of DEAD_CLUSTER.md with brokers: another cluster, a backup, reading, replaying, deleted topics."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import json_lines, run
from tests.support.consumers import librdkafka_rows
from tests.support.dead_clusters import produce, producer
from tests.support.kafka.released_broker import ReleasedBroker
from tests.support.serving import Serving

pytestmark = pytest.mark.kafka

PLACES = [("plain", 0), ("plain", 1)]
RECORDS = 400
GROUP, OFFSET = "resuming", 117


@dataclass(frozen=True)
class KilledCluster:
    """A combined node that was killed while records arrived: `acknowledged` are the (partition, offset, value) that
    its clients had been told of. The topic `gone`, with the values `gone`, had just been deleted; GROUP had committed
    OFFSET in PLACES[1]."""

    release: str
    dynamic: bool
    directory: Path
    acknowledged: set[tuple[int, int, bytes]]
    gone: list[bytes | None]


def started(cluster: KilledCluster, directory: Path, metadata: Path, prepare=lambda _broker: None) -> ReleasedBroker:  # type: ignore[no-untyped-def]
    settings = {} if metadata == directory else {"metadata.log.dir": str(metadata)}
    return ReleasedBroker(
        cluster.release,
        directory,
        directory.with_name(directory.name + ".work"),
        settings=settings,
        dynamic=cluster.dynamic,
        prepare=prepare,
    )


@pytest.fixture(scope="module", params=["4.3.0-static", "4.3.0-dynamic", "4.4.0-static", "4.4.0-dynamic"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledCluster]:
    release, _, kind = request.param.partition("-")
    cluster = KilledCluster(release, kind == "dynamic", tmp_path_factory.mktemp("killed") / "logs", set(), [])
    broker = started(cluster, cluster.directory, cluster.directory)
    make_topics(broker, "plain", "gone")
    produce(producer(broker.bootstrap), "gone", range(40))
    cluster.gone.extend(row[3] for row in librdkafka_rows(broker.bootstrap, [("gone", 0)], "read_committed")["gone", 0])
    admin = broker.admin()
    admin.delete_topics(["gone"])["gone"].result(60)
    commit(broker.bootstrap)
    writer = producer(broker.bootstrap)

    def note(error: object, message: object) -> None:
        assert error is None
        cluster.acknowledged.add((message.partition(), message.offset(), message.value()))  # type: ignore[attr-defined]

    for number in range(RECORDS):
        writer.produce("plain", b"%d" % number, partition=number % 2, on_delivery=note)
        writer.poll(0)
    assert writer.flush(60) == 0 and len(cluster.acknowledged) == RECORDS
    del writer
    broker.kill()
    assert len(cluster.gone) == 40 and len(list(cluster.directory.glob("gone-*-delete"))) == 2
    yield cluster


def make_topics(broker: ReleasedBroker, *names: str) -> None:
    for name in names:
        broker.create_topic(name, 2, retention_ms=-1)
    broker.create_topic("__consumer_offsets", 2, cleanup_policy="compact")


def commit(bootstrap: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(*PLACES[1], OFFSET)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition(topic, 1)], 60)
    consumer.close()
    return int(found.offset)


def printed_steps(*arguments: object) -> list[str]:
    done = run("rebuild", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return [str(step) for step in json_lines(done)[-1]["next"]]


def move_metadata_away(directory: Path) -> None:
    """The step "move __cluster_metadata-0 out of metadata.log.dir (or log.dirs)"."""
    away = directory.with_name(f"{directory.name}.moved")
    away.mkdir()
    shutil.move(directory / "__cluster_metadata-0", away / "__cluster_metadata-0")


def copy_snapshots(steps: list[str], metadata: Path) -> None:
    """The step "cp -R … METADATA_LOG_DIR/", as a shell would run it."""
    (line,) = re.findall(r"cp -R \S+ \S+ METADATA_LOG_DIR/", "\n".join(steps))
    subprocess.run(shlex.split(line.replace("METADATA_LOG_DIR", str(metadata))), check=True)


def read(bootstrap: str, topic: str = "plain") -> set[tuple[int, int, bytes]]:
    rows = librdkafka_rows(bootstrap, [(topic, 0), (topic, 1)], "read_uncommitted")
    return {(number, row[0], row[3]) for (_topic, number), got in rows.items() for row in got}


def require_acknowledged(cluster: KilledCluster, broker: ReleasedBroker, directory: Path) -> None:
    assert cluster.acknowledged <= read(broker.bootstrap)
    assert not list(directory.glob("*-stray"))


def test_the_old_controller_goes_on_with_every_acknowledged_record(killed: KilledCluster, tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    shutil.copytree(killed.directory, directory)
    steps = printed_steps(directory, "-o", tmp_path / "made")
    assert not any("kafka-storage format" in step for step in steps)
    move_metadata_away(directory)
    copy_snapshots(steps, directory)
    with started(killed, directory, directory) as broker:
        require_acknowledged(killed, broker, directory)
        broker.kill()


def test_a_newly_formatted_controller_goes_on_with_every_acknowledged_record(
    killed: KilledCluster, tmp_path: Path
) -> None:
    directory, metadata = tmp_path / "logs", tmp_path / "metadata"
    shutil.copytree(killed.directory, directory)
    shutil.rmtree(directory / "__cluster_metadata-0")
    (directory / "bootstrap.checkpoint").unlink(missing_ok=True)
    steps = printed_steps(directory, "-o", tmp_path / "made")
    line = format_line(steps)

    def prepare(broker: ReleasedBroker) -> None:
        metadata.mkdir()
        words = line.replace("FILE", str(broker.properties_file)).split()
        broker.storage_tool(*(word for word in words if killed.dynamic or word != "--standalone"))
        again = steps
        if killed.dynamic:
            again = printed_steps(directory, metadata, "-o", tmp_path / "again")
            assert not any("kafka-storage format" in step for step in again)
        copy_snapshots(again, metadata)

    with started(killed, directory, metadata, prepare) as broker:
        require_acknowledged(killed, broker, directory)
        broker.kill()


def test_another_cluster_and_readers_without_one_get_every_acknowledged_record(
    killed: KilledCluster, tmp_path: Path
) -> None:
    """Situations 1 (transplant), 2, 3, 4 and 5, with one new cluster."""
    lost, copies, into = killed.directory, tmp_path / "copies", tmp_path / "new"
    with Serving(lost) as endpoint:
        assert killed.acknowledged <= read(endpoint.bootstrap)
        assert committed(endpoint.bootstrap, "plain") == OFFSET
    for path in lost.glob("gone-*-delete"):
        shutil.copytree(path, copies / path.name)
    succeed("restore", copies, "-o", tmp_path / "restored")
    with started(killed, into, into) as broker:
        make_topics(broker, "plain", "plain-restored", "gone", "replayed")
        broker.stop()
    succeed("transplant", lost, "--into", into)
    succeed("transplant", lost / "plain-0", lost / "plain-1", "--into", into, "--topic", "plain=plain-restored")
    succeed("transplant", tmp_path / "restored", "--into", into)
    with started(killed, into, into) as broker:
        require_acknowledged(killed, broker, into)
        assert committed(broker.bootstrap, "plain") == OFFSET
        assert killed.acknowledged <= read(broker.bootstrap, "plain-restored")
        assert Counter(value for _, _, value in read(broker.bootstrap, "gone")) == Counter(killed.gone)
        words = ["--to", broker.bootstrap, "--state", tmp_path / "state", "--map", tmp_path / "map.csv", "--groups"]
        for _ in range(2):
            succeed("replay", lost, *words, "--topic", "plain=replayed")
        values = sorted((number, value) for number, _, value in read(broker.bootstrap, "replayed"))
        assert values == sorted((number, value) for number, _, value in read(broker.bootstrap))
        assert committed(broker.bootstrap, "replayed") == OFFSET
        broker.kill()


def test_what_a_newly_formatted_node_set_aside_starts_again_with_every_acknowledged_record(
    killed: KilledCluster, tmp_path: Path
) -> None:
    """The last step of situation 5."""
    directory, new, metadata, made = (tmp_path / name for name in ("logs", "new", "metadata", "made"))
    shutil.copytree(killed.directory, directory)
    shutil.rmtree(directory / "__cluster_metadata-0")
    for name in ("bootstrap.checkpoint", "meta.properties"):
        (directory / name).unlink(missing_ok=True)
    with started(killed, directory, directory) as broker:
        broker.stop()
    assert len(list(directory.glob("plain-*-stray"))) == 2
    succeed("restore", *directory.glob("*-stray"), "-o", new)
    # an id that the tool takes for an option if it is a word of its own; ZooKeeper's brokers made some
    steps = printed_steps(new, "--node", f"{new}=1", "--cluster-id=-hQfmsevTTerg-RtECl5hA", "-o", made)
    for step in steps:
        if step.startswith("cp "):
            subprocess.run(shlex.split(step), check=True)
    line = format_line(steps)

    def prepare(broker: ReleasedBroker) -> None:
        metadata.mkdir()
        words = line.replace("FILE", str(broker.properties_file)).split()
        broker.storage_tool(*(word for word in words if killed.dynamic or word != "--standalone"))
        again = printed_steps(new, metadata, "-o", tmp_path / "again") if killed.dynamic else steps
        copy_snapshots(again, metadata)

    with started(killed, new, metadata, prepare) as broker:
        require_acknowledged(killed, broker, new)
        assert committed(broker.bootstrap, "plain") == OFFSET
        broker.kill()


def format_line(steps: Sequence[str]) -> str:
    """The command among printed steps that formats the first controller's directory."""
    (line,) = re.findall(r"kafka-storage (format --standalone --ignore-formatted \S+ -c FILE)", "\n".join(steps))
    assert isinstance(line, str)
    return line


def succeed(*words: object) -> None:
    done = run(*words)
    assert done.exit_code == 0, done.output
