"""DEAD_CLUSTER.md, followed on a cluster with a controller of its own, brokers with two log directories, RF 2 and 3.

Its brokers died one after the other: what was acknowledged at last is only on the last one.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import json_lines, run
from tests.support.consumers import Place, Row, librdkafka_rows
from tests.support.dead_clusters import produce, producer
from tests.support.kafka.broker import Broker
from tests.support.kafka.cluster import Cluster
from tests.support.rebuilt import copy_snapshots
from tests.support.serving import Serving

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("dead_clusters_page")]

REPLICAS = {"two": [[1, 2], [2, 3], [3, 1]], "three": [[1, 2, 3], [2, 3, 1]]}
PLACES = [(topic, number) for topic, assigned in REPLICAS.items() for number in range(len(assigned))]
GROUP, PLACE, OFFSET = "resuming", ("three", 1), 57
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "min.insync.replicas": "1",
}
Rows = dict[Place, list[Row]]


class DeadCluster:
    """The directories, and what clients had got acknowledged."""

    def __init__(self, root: Path) -> None:
        self.controller = root / "controller"
        self.directories = {node: [root / f"broker{node}a", root / f"broker{node}b"] for node in (1, 2, 3)}
        self.rows: Rows = {}
        with Cluster(self.controller, self.directories, settings=SETTINGS) as cluster:
            make_topics(cluster)
            write(cluster, PLACES, range(40))
            cluster.kill_broker(1)
            write(cluster, PLACES, range(40, 60))
            commit(cluster.bootstrap)
            self.rows |= read(cluster.bootstrap, [("two", 0)])
            cluster.kill_broker(2)
            last = [place for place in PLACES if 3 in REPLICAS[place[0]][place[1]]]
            write(cluster, last, range(60, 70))
            self.rows |= read(cluster.bootstrap, last)
            self.paths = cluster.every_directory
            cluster.kill()
        assert [len(self.rows[place]) for place in PLACES] == [60, 70, 70, 70, 70]

    def copied(self, root: Path) -> DeadCluster:
        """A copy to work on."""
        made = object.__new__(DeadCluster)
        made.controller, made.rows = root / self.controller.name, self.rows
        made.directories = {node: [root / path.name for path in paths] for node, paths in self.directories.items()}
        made.paths = [root / path.name for path in self.paths]
        for path, copy in zip(self.paths, made.paths, strict=True):
            shutil.copytree(path, copy)
        return made


def make_topics(cluster: Cluster) -> None:
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    admin = cluster.brokers[1].admin()
    topics = [
        NewTopic(name, len(assigned), replica_assignment=assigned, config={"retention.ms": "-1"})
        for name, assigned in REPLICAS.items()
    ]
    for made in admin.create_topics(topics).values():
        made.result(60)


def write(cluster: Cluster, places: list[Place], numbers: range) -> None:
    client = producer(cluster.bootstrap, topic_metadata_refresh_interval_ms=1000)
    for topic, number in places:
        produce(client, topic, numbers, number)


def read(bootstrap: str, places: list[Place]) -> Rows:
    return librdkafka_rows(bootstrap, places, "read_committed")


def commit(bootstrap: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(*PLACE, OFFSET)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, place: Place = PLACE) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition(*place)], 60)
    consumer.close()
    return int(found.offset)


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeadCluster]:
    yield DeadCluster(tmp_path_factory.mktemp("dead"))


def test_replicas_chooses_copies_with_every_acknowledged_record_and_facts_say_the_same(
    dead: DeadCluster, tmp_path: Path
) -> None:
    whole = run("replicas", "--json", *dead.paths)
    assert whole.exit_code == 1, whole.output
    facts = [tmp_path / f"{node}.facts" for node in (*dead.directories, 0)]
    for file, paths in zip(facts, [*dead.directories.values(), [dead.controller]], strict=True):
        assert run("replicas", "--collect", file, *paths).exit_code == 0
    assert run("replicas", "--json", *facts).stdout == whole.stdout
    rows = {row["partition"]: row for row in json_lines(whole) if row["type"] == "replicas"}
    for topic, number in PLACES:
        row, end = rows[f"{topic}-{number}"], len(dead.rows[topic, number])
        ends = {copy["broker"]: copy["end_offset"] for copy in row["copies"]}
        assert ends[row["broker"]] == end
        for choice in row["choices"]:
            lost = [(loss["first_offset"], loss["last_offset"] + 1, loss["acknowledged"]) for loss in choice["losses"]]
            offsets = {offset for first, stop, _ in lost for offset in range(first, stop)}
            assert offsets == set(range(ends[choice["broker"]], end))
            assert "no" not in {word for _, _, word in lost}
    above = {choice["broker"]: choice["groups_above"] for choice in rows["three-1"]["choices"]}
    assert above == {1: [{"group": GROUP, "offset": OFFSET}], 2: [], 3: []}


def test_brokers_that_died_one_after_the_other_start_again_with_every_acknowledged_record(
    dead: DeadCluster, tmp_path: Path
) -> None:
    for left_out in (dead.directories[3], dead.directories[3][1:], dead.directories[2][1:]):
        refused = run("rebuild", *(path for path in dead.paths if path not in left_out), "-o", tmp_path / "made")
        node = 3 if left_out[0] in dead.directories[3] else 2
        assert refused.exit_code == 12, refused.output
        assert f"broker {node} " in refused.stderr and f"--without {node}" in refused.stderr
    lost = dead.copied(tmp_path)
    done = run("rebuild", *lost.paths, "-o", tmp_path / "made", "--json")
    assert done.exit_code == 0, done.output
    (step,) = [step for step in json_lines(done)[-1]["next"] if "move __cluster_metadata-0" in step]
    assert step.startswith("on each controller and on each broker, move __cluster_metadata-0 out of metadata.log.dir")
    with_metadata = [path for path in lost.paths if (path / "__cluster_metadata-0").exists()]
    assert len(with_metadata) == 4
    for path in with_metadata:
        assert str(path / "__cluster_metadata-0") in step
        (path / "__cluster_metadata-0").rename(tmp_path / f"{path.name}-old-metadata")
    copy_snapshots(tmp_path / "made", lost.controller)
    with Cluster(lost.controller, lost.directories, settings=SETTINGS) as cluster:
        assert read(cluster.bootstrap, PLACES) == lost.rows
        assert committed(cluster.bootstrap) == OFFSET
        write(cluster, PLACES, range(70, 80))
        assert {len(rows) for rows in read(cluster.bootstrap, PLACES).values()} == {70, 80}
    assert not [found for path in lost.paths for found in path.glob("*-stray")]


def test_a_broker_whose_disks_are_lost_comes_back_on_new_ones_by_the_printed_step(
    dead: DeadCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = dead.copied(tmp_path)
    gone, kept = lost.directories[1], [path for path in lost.paths if path not in lost.directories[1]]
    for path in gone:
        shutil.rmtree(path)
    done = run("rebuild", *kept, "--without", "1", "-o", tmp_path / "made", "--json")
    assert done.exit_code == 0, done.output
    (step,) = [step for step in json_lines(done)[-1]["next"] if step.startswith("on broker 1, make new, empty dir")]
    (line,) = re.findall(r"kafka-storage (format .* -c FILE)", step)
    for path in kept:
        shutil.rmtree(path / "__cluster_metadata-0", ignore_errors=True)
    copy_snapshots(tmp_path / "made", lost.controller)
    formatted: list[str] = []

    def follow(broker: Broker) -> None:
        if not (broker.log_directory / "meta.properties").exists():
            formatted.append(line.replace("FILE", str(broker.properties_file)))
            broker.storage_tool(*shlex.split(formatted[-1]))

    monkeypatch.setattr(Broker, "_format", follow)
    with Cluster(lost.controller, lost.directories, settings=SETTINGS) as cluster:
        assert len(formatted) == 1
        assert read(cluster.bootstrap, PLACES) == lost.rows
        write(cluster, PLACES, range(70, 80))
    assert not [found for path in lost.paths for found in path.glob("*-stray")]


def test_clients_read_of_all_directories_what_was_acknowledged_last(dead: DeadCluster) -> None:
    with Serving(*dead.paths) as endpoint:
        assert read(endpoint.bootstrap, PLACES) == dead.rows


def test_a_new_cluster_takes_the_newest_replica_of_each_partition_and_goes_on(
    dead: DeadCluster, tmp_path: Path
) -> None:
    into, map_file = tmp_path / "new", tmp_path / "map.csv"
    with Broker(into) as broker:
        for topic, assigned in REPLICAS.items():
            broker.create_topic(topic, len(assigned), retention_ms="-1")
        broker.create_topic("two-restored", 3, retention_ms="-1")
        describe_nobody(broker)
        broker.stop()
    every = [path for paths in dead.directories.values() for path in paths] + [dead.controller]
    planned = run("transplant", "--dry-run", *every, "--into", into)
    assert planned.exit_code == 0, planned.output
    partial = run("transplant", "--dry-run", *dead.directories[1], "--into", into)
    assert "no log directory of broker 3 is given" in partial.stderr
    done = run("transplant", *every, every[0] / ".", "--into", into)
    assert done.exit_code == 0, done.output
    restore_by_the_page(dead, tmp_path, into)
    with Broker(into) as broker:
        assert read(broker.bootstrap, PLACES) == dead.rows
        restored = read(broker.bootstrap, [("two-restored", number) for number in range(3)])
        assert {place[1]: rows for place, rows in restored.items()} == {n: dead.rows["two", n] for n in range(3)}
        assert committed(broker.bootstrap) == OFFSET
        broker.create_topic("replayed", 2, retention_ms="-1")
        broker.create_topic("replayed-two", 3, retention_ms="-1")
        words = ["--to", broker.bootstrap, "--state", tmp_path / "state", "--map", map_file, "--groups"]
        words += ["--topic", "three=replayed", "--topic", "two=replayed-two"]
        for _ in range(2):
            replayed = run("replay", *every, *words)
            assert replayed.exit_code == 0, replayed.output
        found = read(broker.bootstrap, [("replayed", 0), ("replayed", 1)])
        assert [row[2:] for row in found["replayed", 1]] == [row[2:] for row in dead.rows["three", 1]]
        assert committed(broker.bootstrap, ("replayed", 1)) == OFFSET
        broker.kill()


def restore_by_the_page(dead: DeadCluster, root: Path, into: Path) -> None:
    """Backs the dead brokers up, and follows the lines of situation 2 until `two` is there as two-restored."""
    repository, restored = root / "repository", root / "restored"
    for directories in dead.directories.values():
        done = run("backup", *directories, "--to", repository, "--uncommitted")
        assert done.exit_code == 0, done.output
    page = (Path(__file__).parents[2] / "core" / "DEAD_CLUSTER.md").read_text()
    lines = re.findall(r"`seglog ([^`]+)`", page.partition("\n## 2. ")[2].partition("\n## 3. ")[0])
    ids = json_lines(run("backup", "list", "--json", repository))
    words = {"REPOSITORY": str(repository), "RESTORED": str(restored), "LOGDIR": str(into), "TIME": "2100-01-01"}
    words |= {"ID": f"{ids[0]['snapshot']}/broker1a", "orders": "two"}
    followed = []
    for line in lines:
        words["PARTITION"] = next(map(str, sorted(restored.glob("*/two-*"))), "")
        filled = re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[1]], line)
        arguments = [
            name
            for word in shlex.split(filled)
            for name in (sorted(map(str, restored.glob("*"))) if word == f"{restored}/*" else [word])
        ]
        if len(arguments) == 1:
            continue  # a command's name in a sentence
        done = run(*arguments)
        assert done.exit_code in ((0, 1) if arguments[0] == "replicas" else (0,)), (line, done.output)
        followed.append(arguments[0])
        if arguments[0] == "groups":
            assert done.stdout == f"{PLACE[0]},{PLACE[1]},{OFFSET}\n"
    assert followed == ["backup", "ls", "backup", "replicas", "txn", "transplant", "groups"]


def describe_nobody(broker: Broker) -> None:
    """What the page says makes `__consumer_offsets`."""
    words = ["--bootstrap-server", broker.bootstrap, "--describe", "--group", "nobody"]
    command = broker._java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *words)
    subprocess.run(command, capture_output=True, timeout=300, check=False)
