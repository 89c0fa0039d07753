"""The steps that `rebuild` prints, followed word for word on 4.3 and 4.4, with static and dynamic quorums, with the old
controller and with a newly formatted one: each acknowledged record is there, and nothing is set aside."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import json_lines, run
from tests.support.consumers import librdkafka_rows
from tests.support.dead_clusters import producer
from tests.support.kafka.released_broker import ReleasedBroker

pytestmark = pytest.mark.kafka

PLACES = [("plain", 0), ("plain", 1)]
RECORDS = 400


@dataclass(frozen=True)
class KilledCluster:
    """A combined node that was killed while records arrived: `acknowledged` are the (partition, offset, value) that
    its clients had been told of."""

    release: str
    dynamic: bool
    directory: Path
    acknowledged: set[tuple[int, int, bytes]]


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
    cluster = KilledCluster(release, kind == "dynamic", tmp_path_factory.mktemp("killed") / "logs", set())
    broker = started(cluster, cluster.directory, cluster.directory)
    broker.create_topic("plain", 2, retention_ms=-1)
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
    yield cluster


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


def require_acknowledged(cluster: KilledCluster, broker: ReleasedBroker, directory: Path) -> None:
    rows = librdkafka_rows(broker.bootstrap, PLACES, "read_uncommitted")
    there = {(number, row[0], row[3]) for (_topic, number), got in rows.items() for row in got}
    assert cluster.acknowledged <= there
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
    (line,) = re.findall(r"kafka-storage (format --standalone --ignore-formatted -t \S+ -c FILE)", "\n".join(steps))

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
