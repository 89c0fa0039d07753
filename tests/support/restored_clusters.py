"""Backs up all hosts of a cluster that works, kills it, loses its disks, and starts it on what was restored.

    python -m tests.support.restored_clusters [--first 1] [--count 1] [--release 4.4.0] [--apart 60] [--leaders]

The cluster has a controller and three brokers; topics and clients are those of `busy_broker`, beside them Kafka's own
transactional producer and a member of a share group. Of each seed the brokers are backed up into one repository twice,
at the same time and one after the other, each time the controller after them. Then DEAD_CLUSTER.md is followed,
situation 2: the brokers start on what was restored at each of these times, by the lines of `seglog replicas`. What must
hold then:

- each log is a prefix of what consumers had seen, and has what was acknowledged before the first host's run began;
- no group is above its logs, and its member gets each record from the committed offset on, once;
- transactions come to an end, those that `doctor` says hang by the commands of `seglog txn`, and producers go on with
  their transactional ids;
- the share group's member goes on.

With --apart so many seconds pass between the hosts' runs that are one after the other, and clients write meanwhile.
With --leaders each partition is stored by its leader alone, and the other brokers are given copies before the start.
With --controller-first the controller is backed up first: then topics may be lost that were made since.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seglog import open_log
from seglog.clock import SystemClock
from seglog.format.checkpoint import parse_meta_properties
from seglog_rescue.operations.replicas import ReplicasRequest, compare, write_steps
from tests.support.applications import Files, Written, busy_sharing, shared_rest, until
from tests.support.busy_broker import SEGMENT_BYTES, TOPICS, Clients
from tests.support.command_line import COMMAND, ROOT, environment, json_lines, run
from tests.support.consumers import Place
from tests.support.dead_applications import INTERNAL, SESSIONS, DeadThree, DirectoriesOfThree, Three
from tests.support.dead_clusters import ISOLATIONS, read_all
from tests.support.dead_replicas import write_tools
from tests.support.dying_clusters import NODES
from tests.support.dying_clusters import SETTINGS as REPLICATED
from tests.support.kafka.cluster import CONTROLLER_ID
from tests.support.kafka.jvm import NEWER_KAFKA_VERSION
from tests.support.live_backups import javas_producer
from tests.support.noted_clients import COMPACTED, FS, PLACES, TRANSACTIONAL, Notes, Told
from tests.support.revived_clusters import Nodes

GROUPS = [f"group-{number}" for number in range(3)]
GROUP_TOPICS = ["plain", "keyed", "paid"]
LIMIT_S = 280
GIVE_COPIES = 'for p in b*/*-*[0-9]; do for b in b*; do [ -e "$b/${p##*/}" ] || cp -a "$p" "$b/"; done; done'
SETTINGS = {
    **REPLICATED,
    **SESSIONS,
    **{f"{topic}.replication.factor": "3" for topic in INTERNAL},
    "controlled.shutdown.enable": "false",
}


@dataclass(frozen=True)
class Hosts:
    """How hosts are backed up: with so many seconds between two that are not backed up at the same time."""

    apart_s: float = 0.0
    leaders: bool = False
    controller_first: bool = False


@dataclass
class LostCluster:
    """A cluster of which only a repository is left. `told` is what was acknowledged, by the time before which the
    snapshots of a round had ended."""

    seed: int
    place: Path
    dead: DeadThree
    nodes: Nodes
    way: Hosts = Hosts()
    notes: Notes = field(default_factory=Notes)
    told: dict[str, tuple[str, Told]] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)

    @property
    def repository(self) -> Path:
        """Where all hosts store."""
        return self.place / "repository"

    def live(self, seconds: float) -> None:
        """Lets the cluster work, backs it up, and kills it."""
        ending = threading.Event()
        with ExitStack() as stack:
            cluster = stack.enter_context(self.dead.node(self.dead.directory))
            for topic, config in TOPICS.items():
                cluster.create_topic(topic, internal_segment_bytes=SEGMENT_BYTES, **config)
            cluster.create_topic("queue", 2)
            for isolation in ISOLATIONS:
                watch = threading.Thread(target=self.notes.watch, args=(cluster.bootstrap, isolation, ending))
                watch.start()
                stack.callback(watch.join)
            stack.callback(ending.set)
            clients = Clients(cluster, self.seed, 1, 0.3, self.notes)
            stack.callback(clients.end, 60)
            feed(cluster.bootstrap)
            log = self.place / "java.log"
            stack.enter_context(javas_producer(cluster.bootstrap, log))
            begun = stack.enter_context(busy_sharing(cluster.bootstrap, self.seed, log))
            assert begun.readline() == "begun\n"
            for kind in ("together", "one after the other"):
                time.sleep(seconds)
                told = self.notes.told()
                self._back_up(together=kind == "together")
                self.told[kind] = datetime.now(UTC).isoformat(timespec="milliseconds"), told
                time.sleep(0.1)  # no run of the next round ends at that time
            time.sleep(seconds)
            clients.end(60)
            for place in PLACES:
                self.notes.has_caught_up(place, ISOLATIONS[0], self.notes.told().acknowledged.get(place, -1) + 1)
            cluster.kill()

    def _back_up(self, *, together: bool) -> None:
        """A run on each host, the controller's last, unless it is to be the first."""
        brokers = random.Random(len(self.told)).sample([self.hosts[node] for node in NODES], len(NODES))
        rounds, controller = [brokers] if together else [[broker] for broker in brokers], [self.hosts[CONTROLLER_ID]]
        rounds = [controller, *rounds] if self.way.controller_first else [*rounds, controller]
        line = [*COMMAND, "backup", "--to", str(self.repository), "--json", *["--leaders"] * self.way.leaders]
        for number, hosts in enumerate(rounds):
            time.sleep(self.way.apart_s if number and not together else 0)
            pipe, given = subprocess.PIPE, environment()
            running = [
                subprocess.Popen([*line, str(host)], stdout=pipe, stderr=pipe, env=given, cwd=ROOT, text=True)
                for host in hosts
            ]
            for process in running:
                self._require(process)

    def _require(self, process: subprocess.Popen[str]) -> None:
        said, complaint = process.communicate(timeout=LIMIT_S)
        if process.returncode:
            self.story.append(f"a run ended with {process.returncode}: {said[-800:]} {complaint[-800:]}")

    @property
    def hosts(self) -> dict[int, Path]:
        """The log directories of the nodes."""
        brokers = {node: self.dead.directory / f"b{node}" for node in NODES}
        return {**brokers, CONTROLLER_ID: self.dead.controller(self.dead.directory)}

    # --- situation 2 --------------------------------------------------------------------------------------

    def start_at(self, kind: str) -> Iterator[str]:
        """Restores what there was at a time, and starts the cluster on it; yields what is wrong."""
        moment, told = self.told[kind]
        restored = self.place / "restored"
        done = run("backup", "restore", self.repository, "--at", moment, "-o", restored)
        if done.exit_code:
            yield f"restore: {done.output}"
            return
        shutil.rmtree(self.dead.directory, ignore_errors=True)
        for directory in sorted(restored.iterdir()):
            meta = directory / "meta.properties"
            node = parse_meta_properties(meta.read_bytes(), meta).node_id
            assert node is not None
            self.hosts[node].parent.mkdir(parents=True, exist_ok=True)
            shutil.move(directory, self.hosts[node])
        if self.way.leaders:
            subprocess.run(["bash", "-c", GIVE_COPIES], cwd=self.dead.directory, check=True)
        hanging = [row for node in NODES for row in self._diagnosed(kind, node) if row["code"] == "TRANSACTION_HANGING"]
        report = compare(FS, SystemClock(), ReplicasRequest(tuple(self.hosts.values())))
        if report.cluster.unknown:
            self.story.append(f"{kind}: the controller lacks {sorted(report.cluster.unknown)}")
        steps = self.place / "steps"
        write_steps(FS, report, steps)
        self.story.append(f"{kind}: {len(report.in_question)} in question, started in the order {report.start.order}")
        homes = DirectoriesOfThree(self.dead.kind, self.dead.directory)
        stable = {place: min(self._stable_offsets(place)) for place in PLACES}
        with Three(homes, self.nodes, settings=SETTINGS, ports=self.dead.ports) as cluster:
            cluster.start_controller()
            yield from self._started(cluster, report, steps)
            self._end_hanging(kind, cluster, hanging)
            yield from self._as_told(cluster, told, stable)
            yield from self._goes_on(cluster)
        shutil.rmtree(restored, ignore_errors=True)
        shutil.rmtree(steps, ignore_errors=True)

    def _diagnosed(self, kind: str, node: int) -> list[dict[str, Any]]:
        rows = json_lines(run("doctor", "--json", self.hosts[node]))
        rows = [row for row in rows if row["type"] == "diagnosis"]
        grave = [row for row in rows if row["severity"] != "note" or row["code"] == "TRANSACTION_OPEN"]
        self.story += [
            f"{kind}: doctor says of {node}: {row['partition']} {row['code']} {row['message'][:150]}" for row in grave
        ]
        return grave

    def _end_hanging(self, kind: str, cluster: Three, hanging: Sequence[Mapping[str, Any]]) -> None:
        """Does what `doctor` names for transactions that hang. A command fails where another copy leads."""
        until(lambda: all_led(cluster), "leaders")
        asking = dict.fromkeys(row["command"] for row in hanging)
        said = [run(*shlex.split(each)[1:], "--bootstrap-server", cluster.bootstrap).stdout for each in asking]
        for line in dict.fromkeys("".join(said).splitlines()):
            done = subprocess.run(
                ["bash", "-c", line], env=self._with_tools(), capture_output=True, text=True, timeout=240, check=False
            )
            self.story.append(f"{kind}: {line.partition(' abort ')[2]}: {done.returncode}")

    def _with_tools(self) -> dict[str, str]:
        tools = self.place / "tools"
        if not tools.exists():
            write_tools(self.dead.kind, tools)
        return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def _stable_offsets(self, place: Place) -> Iterator[int]:
        for node in NODES:
            with open_log(self.hosts[node] / f"{place[0]}-{place[1]}") as log:
                yield log.last_stable_offset

    def _started(self, cluster: Three, report: Any, steps: Path) -> Iterator[str]:
        """Starts the brokers by the printed lines, or all of them if there are none."""
        order, given = report.start.order, self._with_tools()
        given["BOOTSTRAP"] = cluster.address(order[0] if order else NODES[0])
        for step in report.steps:
            node = int(step.where.removeprefix("broker ")) if step.where.startswith("broker ") else None
            if step.why.startswith("stop broker ") and node in cluster.brokers:
                cluster.stop(node)
            if step.why.startswith("start broker ") and node not in cluster.brokers:
                assert node is not None
                cluster.start(node)
            for line in step.lines:
                make_saved_topics(cluster, line)
                done = subprocess.run(
                    ["bash", "-c", line], cwd=steps, env=given, capture_output=True, text=True, timeout=240, check=False
                )
                if done.returncode:
                    yield f"{line}: {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        for node in NODES:
            if node not in cluster.brokers:
                cluster.start(node)

    def _as_told(self, cluster: Three, told: Told, stable: Mapping[Place, int]) -> Iterator[str]:
        """What logs must have. `stable` is where the first transaction begins that was open in a copy."""
        until(lambda: all_led(cluster), "leaders")
        for place, offset in told.acknowledged.items():
            if end_of(cluster.bootstrap, place, ISOLATIONS[0]) <= offset:
                yield f"{place} does not reach {offset}, which was acknowledged"
        for isolation, logs in read_all(cluster.bootstrap, PLACES).items():
            for place, rows in logs.items():
                read = {row[0]: row[2:4] for row in rows}
                bounds = (min(read, default=0), max(read, default=-1) + 1)
                is_plain = place[0] in COMPACTED and place[0] not in TRANSACTIONAL
                if isolation == ISOLATIONS[1] and not is_plain:  # a transaction that was open then has been aborted
                    bounds = (bounds[0], max(min(bounds[1], stable[place]), told.ended.get(place, -1) + 1))
                for each in self.notes.of_rows(place, isolation, read, *bounds):
                    yield f"{place}, {isolation}: {each}"

    def _goes_on(self, cluster: Three) -> Iterator[str]:
        """What groups, transactions and producers do."""
        try:
            until_settled(cluster.bootstrap)
        except TimeoutError as error:
            yield str(error)
            return
        for group in GROUPS:
            yield from self._group_goes_on(cluster.bootstrap, group)
        for topic in ("paid", "paid-keys"):
            try:
                commit_again(cluster.bootstrap, topic)
            except Exception as error:  # noqa: BLE001 - any failure of the client is what is looked for
                yield f"the producer {topic}-1 does not go on: {error}"
        try:
            self.story.append(f"{len(shared_rest(cluster.bootstrap, self.place / 'java.log'))} came to the share group")
        except (subprocess.SubprocessError, AssertionError) as error:
            yield f"the share group: {error}"

    def _group_goes_on(self, bootstrap: str, group: str) -> Iterator[str]:
        committed = committed_of(bootstrap, group)
        if not committed:
            return
        above = {place: at for place, at in committed.items() if at > end_of(bootstrap, place, ISOLATIONS[0])}
        if above and self.way.leaders:  # the logs were stored by other brokers, and may have been before the group
            self.story.append(f"{group} was above {above}")
            until(lambda: self._has_been_reset(bootstrap, group, above), f"the offsets of {group}")
            committed, above = committed_of(bootstrap, group), {}
        for place, offset in above.items():
            yield f"{group} is at {offset} in {place}, which ends below"
        places: list[Place] = [place for place in PLACES if place[0] in GROUP_TOPICS]
        before = read_all(bootstrap, places)[ISOLATIONS[1]]
        got = polled(bootstrap, group, places)
        after = read_all(bootstrap, places)[ISOLATIONS[1]]  # cleaners and retention may have been at work
        for place in places:
            offsets, first = [offset for offset, _, _ in got[place]], committed.get(place, 0)
            most, least = (
                {(row[0], row[2], row[3]) for row in rows[place] if row[0] >= first} for rows in (before, after)
            )
            if len(set(offsets)) < len(offsets):
                yield f"{group} got records of {place} twice"
            if strange := sorted(set(got[place]) - most, key=str):
                yield f"{group} at {first} in {place} got {len(strange)} others, such as {strange[0]}"
            if missing := sorted(least - set(got[place]), key=str):
                yield f"{group} at {first} in {place} did not get {len(missing)}, such as {missing[0]}"
        self.story.append(f"{group} got {sum(map(len, got.values()))} records from {dict(committed)} on")

    def _has_been_reset(self, bootstrap: str, group: str, places: Iterable[Place]) -> bool:
        """Whether Kafka's tool has set a group to the ends of logs, as DEAD_CLUSTER says; its old members must have
        expired."""
        topics = [word for topic, number in places for word in ("--topic", f"{topic}:{number}")]
        words = ["--bootstrap-server", bootstrap, "--group", group, "--reset-offsets", "--to-latest", "--execute"]
        done = subprocess.run(
            ["kafka-consumer-groups", *words, *topics],
            env=self._with_tools(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0 and "Error" not in done.stdout + done.stderr


def polled(bootstrap: str, group: str, places: Sequence[Place]) -> dict[Place, list[tuple[int, Any, Any]]]:
    """What comes to a member of a group until the ends of all partitions: offset, key and value."""
    from confluent_kafka import Consumer, KafkaError, KafkaException

    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.partition.eof": True, **settings})
    consumer.subscribe(GROUP_TOPICS)
    got: dict[Place, list[tuple[int, Any, Any]]] = {place: [] for place in places}
    left, deadline = set(places), time.monotonic() + LIMIT_S
    try:
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{group} did not come to the end of {sorted(left)}")
            for message in consumer.consume(500, timeout=1):
                place, error = (message.topic(), message.partition()), message.error()
                if error is None:
                    got[place].append((message.offset(), message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
                else:
                    raise KafkaException(error)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return got


def make_saved_topics(cluster: Three, line: str) -> None:
    """Makes the topics into which a line brings records back."""
    for topic, saved in re.findall(r"--topic (\S+)=(\S+)", line if line.startswith("seglog replay") else ""):
        admin: Any = cluster.admin()
        cluster.create_topic(saved, len(admin.list_topics(topic, timeout=30).topics[topic].partitions))


def feed(bootstrap: str) -> None:
    """Records for the share group."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200):
        producer.produce("queue", b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def all_led(cluster: Three) -> bool:
    """Whether each partition has a leader."""
    admin: Any = cluster.admin()
    topics = admin.list_topics(timeout=30).topics
    return all(each.leader >= 0 for topic in topics.values() for each in topic.partitions.values())


def end_of(bootstrap: str, place: Place, isolation: str) -> int:
    """The high watermark, or the last stable offset."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation})
    end = consumer.get_watermark_offsets(TopicPartition(*place), 60)[1]
    consumer.close()
    return int(end)


def committed_of(bootstrap: str, group: str) -> Mapping[Place, int]:
    """What a group has committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(*place) for place in PLACES], 120)
    consumer.close()
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def commit_again(bootstrap: str, topic: str) -> None:
    """A transaction under an old transactional id."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-1"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce(topic, b"again", b"k")
    producer.commit_transaction(120)


def until_settled(bootstrap: str) -> None:
    """Waits for all transactions to have ended. TimeoutError with the partitions where one hangs."""
    deadline, left = time.monotonic() + 150, list(PLACES)
    while left:
        left = [
            place for place in left if end_of(bootstrap, place, ISOLATIONS[1]) < end_of(bootstrap, place, ISOLATIONS[0])
        ]
        if left and time.monotonic() > deadline:
            raise TimeoutError(f"transactions hang in {left}")
        time.sleep(1)


def try_seed(seed: int, place: Path, release: str, nodes: Nodes, way: Hosts) -> tuple[list[str], list[str]]:
    """What happened and what is wrong, of a seed."""
    files = Files(place, replicas=3)
    dead = DeadThree(
        place / "logs",
        files,
        Written(),
        release,
        bool(seed & 1),
        "classic",
        True,
        nodes=nodes,
        eligible=False,
        into=NODES,
    )
    lost = LostCluster(seed, place, dead, nodes, way)
    lost.live(4)
    shutil.rmtree(dead.directory)
    wrong = [f"{kind}: {sentence}" for kind in lost.told for sentence in lost.start_at(kind)]
    return lost.story, wrong


def main(words: Sequence[str] | None = None) -> int:
    """Tries seeds, and says what each came to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="odd seeds have a dynamic quorum")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--release", default=NEWER_KAFKA_VERSION)
    parser.add_argument("--apart", type=float, default=0.0, help="seconds between the hosts' runs")
    parser.add_argument("--leaders", action="store_true")
    parser.add_argument("--controller-first", action="store_true")
    asked, differing = parser.parse_args(words), 0
    way = Hosts(asked.apart, asked.leaders, asked.controller_first)
    with tempfile.TemporaryDirectory(prefix="restored-nodes-") as work:
        nodes = Nodes(Path(work))
        try:
            for seed in range(asked.first, asked.first + asked.count):
                with tempfile.TemporaryDirectory(prefix=f"restored-{seed}-") as place:
                    story, wrong = try_seed(seed, Path(place), asked.release, nodes, way)
                differing += len(wrong)
                sys.stdout.write(f"seed {seed}, {asked.release}: {len(wrong)} wrong; {'; '.join(story)}\n")
                sys.stdout.writelines(f"  {sentence}\n" for sentence in wrong)
                sys.stdout.flush()
        finally:
            nodes.close()
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
