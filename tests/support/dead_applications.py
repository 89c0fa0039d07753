"""Applications that keep their memory in a cluster, and that cluster killed: what each does afterwards.

    python -m tests.support.dead_applications [--first 1] [--count 20] [--release 4.3.0] [--dynamic] [--brokers 3]

Of each seed a node is filled and killed under load. Then copies of its directory go on: restarted plainly, after
`rebuild`, and after `transplant` into a new cluster. What every application has done in the end must be the same.
With `--brokers 3` it is a cluster of three and a controller, static or dynamic by the seed; all topics have three
replicas, and one broker may die earlier than the others.

- A Streams application with exactly-once semantics counts words (topic `words`).
- A source connector copies a file to `lines`, and a sink connector `numbers` to a file. Both run in one distributed
  worker of Connect, with its three topics.
- MirrorMaker's connectors in the same worker copy `numbers` to `old.numbers`, and the offsets of the group `readers`
  to the copy. Source and target are the same cluster, so that all of its memory dies.
- A member of a share group accepts and releases records of `queue`.
"""

from __future__ import annotations

import argparse
import fcntl
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seglog.errors import SeglogError
from seglog.model import TopicPartition
from tests.support.applications import (
    COPY,
    PARTITIONS,
    READERS,
    SESSION_MS,
    Files,
    Line,
    Worker,
    Written,
    busy_sharing,
    commit,
    committed,
    counting,
    ends,
    is_settled,
    lines_of,
    shared_rest,
    unacknowledged,
    until,
    values,
)
from tests.support.command_line import json_lines, run
from tests.support.dying_clusters import NODES, Kind, format_broker, format_controller
from tests.support.dying_clusters import SETTINGS as REPLICATED
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION
from tests.support.kafka.released_broker import ReleasedBroker
from tests.support.kafka.tools import CONFIGS, SHARE_GROUPS, tool
from tests.support.rebuilt import copy_snapshots
from tests.support.revived_clusters import Nodes, Revived, node_ports

WAYS = ("plain", "rebuild", "transplant")
LINES = TopicPartition("lines", 0)
NOT_MADE = {"__transaction_state", "__share_group_state"}  # a new cluster makes these itself
INTERNAL = ("transaction.state.log", "share.coordinator.state.topic")
# What died keeps what goes on waiting: a member until its session ends, a transaction until it is aborted.
BOUNDS = [f"group.{kind}.{least}" for kind in ("share", "streams") for least in ("", "min.")]
SESSIONS = {
    **{f"{bound}session.timeout.ms": SESSION_MS for bound in BOUNDS},
    **{f"{bound}heartbeat.interval.ms": "1000" for bound in BOUNDS},
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@dataclass(frozen=True)
class Outcome:
    """What the applications have done in the end. `synced` are the offsets of `readers` in the copy, `shared` what came
    to the share group afterwards."""

    counts: str
    lines: tuple[str, ...]
    sunk: tuple[str, ...]
    copied: tuple[tuple[str, ...], ...]
    synced: tuple[int, ...]
    shared: tuple[str, ...] = ()

    def repeated(self) -> dict[str, int]:
        """How many records came more than once, by application."""
        copied = [value for values in self.copied for value in values]
        kinds = {"source": self.lines, "sink": self.sunk, "mirror": copied}
        return {name: len(values) - len(set(values)) for name, values in kinds.items()}


class Three(Revived):
    """A cluster of a controller and three brokers. A context manager, which ends what still runs."""

    killed = False

    @property
    def directories(self) -> list[Path]:
        """The log directories of the nodes that run."""
        return [*(path for node in self.brokers for path in self._homes.paths[node]), self._homes.controller]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, also of those that do not run."""
        return ",".join(map(self.address, NODES))

    def create_topic(self, topic: str, partitions: int = 1, **config: object) -> None:
        """Creates a topic with a replica on each broker that runs; as `Broker.create_topic`."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=len(self.brokers), config=settings)
        admin: Any = self.admin()
        admin.create_topics([new])[topic].result(60)

    def kill(self) -> None:
        self.killed = True
        super().kill()

    def __enter__(self) -> Three:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.killed:
            self.end()
            until(lambda: not any(map(is_locked, self.directories)), "the nodes have not come to an end")


def is_locked(directory: Path) -> bool:
    """Whether a node still has a log directory: it ends after it has said so, and 4.4 removes the file then."""
    try:
        with (directory / ".lock").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@dataclass
class Dead:
    """A killed node: its directory, the applications' files as they were then, and what they had been given."""

    directory: Path
    files: Files
    written: Written
    release: str
    dynamic: bool
    protocol: str
    sharing: bool = False  # whether a share group works, too

    def node(self, directory: Path) -> Any:
        """The cluster, running at the old address."""
        work = directory.with_name(directory.name + ".work")
        dynamic, ports = self.dynamic, self.files.ports
        return ReleasedBroker(self.release, directory, work, settings=SESSIONS, dynamic=dynamic, ports=ports)

    def live(self, work: Callable[[Any, ExitStack], None]) -> None:
        """Makes the cluster and its applications, lets `work` wait for what it wants, and kills all of them."""
        with ExitStack() as stack:
            broker = stack.enter_context(self.node(self.directory))
            for topic in ("words", "numbers", "shared", "queue"):
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

    def go_on(self, broker: Any) -> Outcome:
        """Starts the applications again, gives them more, and returns what they have done when nothing is left."""
        for file in (self.files.source, self.files.sink):
            shutil.copy(file.with_suffix(".then"), file)
        written = Written(**vars(self.written))
        written.more(broker.bootstrap, self.files, 30)
        bootstrap = broker.bootstrap
        state = Path(tempfile.mkdtemp(dir=self.files.place))
        log = self.files.place / "streams.log"
        with (
            Worker(bootstrap, self.files),
            counting(bootstrap, state, self.protocol, written.words, log) as counts,
        ):
            shared = shared_rest(bootstrap, log) if self.sharing else ()
            commit(bootstrap, READERS, "numbers", ends(bootstrap, "numbers", PARTITIONS))
            until(lambda: is_settled(bootstrap, self.files), "Connect and MirrorMaker have not come to an end")
            said = counts.readline().strip()
        (lines,) = values(bootstrap, "lines", 1)
        sunk = tuple(sorted(self.files.sink.read_text().splitlines()))
        synced = tuple(committed(bootstrap, READERS, COPY))
        return Outcome(said, lines, sunk, values(bootstrap, COPY, PARTITIONS), synced, shared)

    @contextmanager
    def by(self, way: str, place: Path) -> Iterator[Any]:
        """The cluster that goes on, in one of WAYS, on a copy of the directory."""
        directory = place / "logs"
        shutil.copytree(self.directory, directory)
        if way == "rebuild":
            done = run("rebuild", *self.log_directories(directory), "-o", place / "made")
            assert done.exit_code == 0, done.output
            for each in self.log_directories(directory):
                shutil.move(each / "__cluster_metadata-0", each.with_name(each.name + ".moved"))
            copy_snapshots(place / "made", self.controller(directory))
        if way == "transplant":
            old, directory = directory, place / "new"
            with self.beginning(directory) as broker:
                self.make_topics(broker)
            for into in self.targets(directory):
                done = run("transplant", *self.log_directories(old), *into)
                assert done.exit_code == 0, done.output
                (place / "said").write_text(done.stderr)
        with self.beginning(directory) if way == "transplant" else self.node(directory) as broker:
            yield broker
            self.leave(broker)

    def log_directories(self, directory: Path) -> list[Path]:
        """All log directories of the cluster in a directory."""
        return [directory]

    def controller(self, directory: Path) -> Path:
        """The controller's log directory."""
        return directory

    def beginning(self, directory: Path) -> Any:
        """The cluster into which a transplant goes, running."""
        return self.node(directory)

    def targets(self, directory: Path) -> Iterator[tuple[str | Path, ...]]:
        """The arguments of each transplant into it."""
        yield "--into", directory

    def leave(self, broker: Any) -> None:
        """Ends a cluster whose directories are not needed any more."""
        broker.kill()

    def make_topics(self, broker: Any) -> list[str]:
        """Makes the old cluster's topics in a new one, as `seglog metadata` lists them; returns their partitions."""
        made: list[str] = []
        listed = json_lines(run("metadata", "--json", self.controller(self.directory)))
        for row in (each for each in listed if each["type"] == "topic"):
            if row["topic"] not in NOT_MADE:
                configs = {name.replace(".", "_"): value for name, value in row["configs"].items()}
                broker.create_topic(row["topic"], row["partitions"], **configs)
                made += [f"{row['topic']}-{number}" for number in range(row["partitions"])]
        return made


@dataclass
class DeadThree(Dead):
    """A killed cluster of a controller and three brokers. `into` are the brokers of the new cluster that get the data;
    several of them get every replica."""

    nodes: Nodes = field(kw_only=True)
    eligible: bool = field(kw_only=True)
    into: Sequence[int] = field(kw_only=True)
    ports: dict[int, int] = field(default_factory=node_ports)

    def __post_init__(self) -> None:
        self.kind = Kind(self.release, self.dynamic, self.eligible)

    def node(self, directory: Path, brokers: Sequence[int] = NODES) -> Three:
        if not directory.exists():
            format_controller(self.kind, directory / "controller")
            for node in NODES:
                format_broker(directory / f"b{node}", node, random.getrandbits(60))
        homes = DirectoriesOfThree(self.kind, directory)
        factors = {f"{topic}.replication.factor": str(len(brokers)) for topic in ("offsets.topic", *INTERNAL)}
        quorums = {f"{topic}.min.isr": str(min(2, len(brokers))) for topic in INTERNAL}
        default = {"default.replication.factor": str(len(brokers))}
        settings = REPLICATED | SESSIONS | factors | quorums | default | {"controlled.shutdown.enable": "false"}
        cluster = Three(homes, self.nodes, settings=settings, ports=self.ports)
        with ThreadPoolExecutor() as pool:  # a start waits more than it works
            for started in [pool.submit(cluster.start_controller), *(pool.submit(cluster.start, n) for n in brokers)]:
                started.result()
        return cluster

    def log_directories(self, directory: Path) -> list[Path]:
        return [*(directory / f"b{node}" for node in NODES), self.controller(directory)]

    def controller(self, directory: Path) -> Path:
        return directory / "controller"

    def beginning(self, directory: Path) -> Three:
        return self.node(directory, self.into)

    def make_topics(self, broker: Three) -> list[str]:
        made = super().make_topics(broker)
        places = [directory / name for directory in broker.directories[:-1] for name in made]
        until(lambda: all(place.is_dir() for place in places), "the new cluster's partitions")
        return made

    def targets(self, directory: Path) -> Iterator[tuple[str | Path, ...]]:
        for node in self.into:
            yield "--into", directory / f"b{node}", *(["--every-replica"] if len(self.into) > 1 else [])

    def leave(self, broker: Three) -> None:
        """Leaves it to the cluster's exit: its processes go on."""


@dataclass
class DirectoriesOfThree:
    """Where the nodes have their logs, below one directory."""

    kind: Kind
    directory: Path

    @property
    def controller(self) -> Path:
        return self.directory / "controller"

    @property
    def paths(self) -> dict[int, list[Path]]:
        return {node: [self.directory / f"b{node}"] for node in NODES}


def killed_under_load(seed: int, place: Path, release: str, dynamic: bool, nodes: Nodes | None) -> Dead:
    """The cluster of a seed; with `nodes` one of three brokers."""
    chance = random.Random(seed)
    protocol = chance.choice(("classic", "streams"))
    directory = place / "dead" / "logs"
    if nodes is None:
        dead = Dead(directory, Files(place), Written(), release, dynamic, protocol, True)
    else:
        into = chance.choice((NODES[:1], NODES))
        files, eligible = Files(place, replicas=3), chance.random() < 0.5
        dead = DeadThree(
            directory, files, Written(), release, dynamic, protocol, True, nodes=nodes, eligible=eligible, into=into
        )

    def work(broker: Any, stack: ExitStack) -> None:
        log, bootstrap = place / "streams.log", broker.bootstrap
        stack.enter_context(counting(bootstrap, place / "state", protocol, 1 << 40, log))
        begun = stack.enter_context(busy_sharing(bootstrap, seed, log))
        assert begun.readline() == "begun\n"
        if chance.random() < 0.8:  # else it dies while they begin
            until(lambda: COPY in broker.admin().list_topics(timeout=60).topics, "MirrorMaker's topic")
        until(dead.files.sink.exists, "the sink's file")
        if nodes is not None and chance.random() < 0.7:
            load(chance, dead, bootstrap, chance.uniform(1, 8))
            broker.kill_broker(chance.choice(NODES))
        load(chance, dead, bootstrap, chance.uniform(1, 12))

    dead.live(work)
    return dead


def load(chance: random.Random, dead: Dead, bootstrap: str, seconds: float) -> None:
    """Gives the applications more for some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        dead.written.more(bootstrap, dead.files, chance.randrange(1, 40))
        time.sleep(chance.uniform(0, 0.4))


def try_seed(seed: int, place: Path, release: str, dynamic: bool, nodes: Nodes | None) -> dict[str, Outcome]:
    """What the applications of a seed's cluster have done in the end, by each way."""
    dead = killed_under_load(seed, place, release, dynamic, nodes)
    outcomes = {}
    for way in WAYS:
        with dead.by(way, place / way) as broker:
            if way == "transplant":
                bring_on(broker, dead, (place / way / "said").read_text())
            outcomes[way] = dead.go_on(broker)
            if way == "transplant" and set(outcomes[way].shared) >= set(outcomes["plain"].shared):
                # what was acknowledged beyond the start comes again, as it says
                outcomes[way] = replace(outcomes[way], shared=outcomes["plain"].shared)
        plain = outcomes["plain"]
        if outcomes[way].lines != plain.lines:
            outcomes[way] = without_kept(outcomes[way], plain, lost_lines(dead, place / "plain" / "logs"))
        if way != "plain":
            shutil.rmtree(place / way)
    return outcomes


def lost_lines(dead: Dead, plain: Path) -> list[Line]:
    """The lines that nobody had been told are safe, and that a plain restart in a directory has not kept."""
    places = [directory / str(LINES) for directory in dead.log_directories(plain)]
    kept = {line for place in places if place.is_dir() for line in lines_of(place)}
    return [line for line in unacknowledged(dead.log_directories(dead.directory), LINES) if line not in kept]


def without_kept(outcome: Outcome, plain: Outcome, lost: Sequence[Line]) -> Outcome:
    """Leaves out the lines that were kept where a plain restart has lost them: the connector, which had not been told
    that they are safe, sends them again. Nothing else may differ, nor the order."""
    if not lost:
        return outcome
    first, end = lost[0].offset, lost[-1].offset + 1
    kept, others = outcome.lines[first:end], outcome.lines[:first] + outcome.lines[end:]
    if kept != tuple(line.value for line in lost) or others != plain.lines:
        return outcome
    return replace(outcome, lines=plain.lines)


def bring_on(broker: Any, dead: Dead, said: str) -> None:
    """Runs the printed lines: for groups' own settings, and for share groups, which Kafka's tool of 4.4 lets go on
    where they were."""
    for printed in re.finditer(r"kafka-configs --bootstrap-server HOST:PORT (--entity-type groups .+)$", said, re.M):
        tool(CONFIGS, broker, *shlex.split(printed[1]))
    for printed in re.finditer(r"kafka-share-groups --bootstrap-server HOST:PORT (--reset-offsets .+?) \(or", said):
        anew = shlex.split(printed[1])
        group, csv = anew[2], dead.files.place / "share.csv"
        listed = run("groups", "--group", group, "--format", "reset-csv", *dead.log_directories(dead.directory))
        csv.write_text(listed.stdout)
        goes_on = dead.release >= NEWER_KAFKA_VERSION and listed.stdout
        order = [*anew[:3], "--from-file", str(csv), "--execute"] if goes_on else anew
        until(lambda order=order: is_reset(broker, dead.release, order), group)  # type: ignore[misc]


def is_reset(broker: Any, release: str, order: Sequence[str]) -> bool:
    """Resets a share group's offsets; False while the old cluster's members count."""
    try:
        tool(SHARE_GROUPS, broker, *order, release=release)
    except AssertionError as error:
        if "is not empty" not in str(error):
            raise
        return False
    return True


def main() -> int:
    """Tries seeds, and says what each came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--release", default=KAFKA_VERSION)
    parser.add_argument("--dynamic", action="store_true", help="with three brokers: odd seeds are dynamic")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--keep", type=Path, help="a directory for the clusters of seeds that went wrong")
    asked = parser.parse_args()
    differing = 0
    with ExitStack() as stack:
        nodes = None
        if asked.brokers == 3:
            nodes = Nodes(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="applications-nodes-"))))
            stack.callback(nodes.close)
        for seed in range(asked.first, asked.first + asked.count):
            differing += tried(seed, asked, nodes)
    return 1 if differing else 0


def tried(seed: int, asked: argparse.Namespace, nodes: Nodes | None) -> bool:
    """Tries a seed, and says what it came to; True if that is not right."""
    from confluent_kafka import KafkaException

    began, place = time.monotonic(), Path(tempfile.mkdtemp(prefix=f"applications-seed{seed}-"))
    dynamic = seed % 2 == 1 if nodes is not None else asked.dynamic
    try:
        outcomes = try_seed(seed, place, asked.release, dynamic, nodes)
    except (AssertionError, KafkaException, OSError, RuntimeError, SeglogError, subprocess.SubprocessError) as error:
        sys.stdout.write(f"seed {seed}: NOT MADE: {type(error).__name__}: {error}\n")
        sys.stdout.flush()
        put_away(place, asked.keep, seed)
        return True
    plain = outcomes["plain"]
    others = [way for way in WAYS if outcomes[way] != plain]
    verdict = f"DIFFERENT: {', '.join(others)}" if others else "the same"
    took = f"{time.monotonic() - began:.0f} s"
    sys.stdout.write(f"seed {seed} ({took}): {verdict}; {plain.counts}; came twice: {plain.repeated()}\n")
    for way in others:
        for name, value in vars(plain).items():
            if (other := getattr(outcomes[way], name)) != value:
                sys.stdout.write(f"  {way}: {name}: {difference(value, other)}\n")
    sys.stdout.flush()
    put_away(place, asked.keep if others else None, seed)
    return bool(others)


def put_away(place: Path, keep: Path | None, seed: int) -> None:
    """Removes the directories of a seed, or keeps them."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(keep / str(seed), ignore_errors=True)
        shutil.move(place, keep / str(seed))
    shutil.rmtree(place, ignore_errors=True)


def difference(plain: Any, other: Any) -> str:
    """What only one of two outcomes has."""
    if isinstance(plain, str) or not plain or not isinstance(plain[0], (str, tuple)):
        return f"{plain} | {other}"
    left, right = (Counter(map(str, each)) for each in (plain, other))
    return f"only plain {list((left - right).elements())[:5]}, only here {list((right - left).elements())[:5]}"


if __name__ == "__main__":
    sys.exit(main())
