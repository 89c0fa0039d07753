"""Tries `seglog replicas` on real clusters that died from seeds (`dying_clusters`).

    python -m tests.support.dead_replicas --first 1 --count 60

From the dead directories `replicas` predicts what each choice loses. Then the cluster is started

1. from each of its brokers alone, which is elected for every partition,
2. by the printed lines, pasted word for word into a shell, with the files that `--output` writes,

and each partition's log is compared, record by record, with what the copies had held.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seglog.clock import SystemClock
from seglog.errors import SeglogError
from seglog_rescue.operations.replicas import (
    ReplicasRequest,
    collect,
    compare,
    write_collected,
    write_steps,
)
from tests.support.dying_clusters import (
    FS,
    NODES,
    SITUATIONS,
    TOPICS,
    DyingCluster,
    Kind,
    Row,
    elect,
    rows_of,
)
from tests.support.kafka.archive import loading
from tests.support.kafka.broker import QUICK_COMPILER
from tests.support.kafka.cluster import CONTROLLER_ID
from tests.support.kafka.jvm import find_java
from tests.support.replica_trials import (
    FOUND,
    Outcome,
    Trial,
    found_in,
    judged_wrong,
    kept_elsewhere,
    not_followed,
    not_saved,
)
from tests.support.revived_clusters import Nodes, Revived, revived

CLOCK = SystemClock()
LINE_SECONDS = 240
TOOLS = {
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


def start_from(trial: Trial, node: int, nodes: Nodes, place: Path) -> set[tuple[str, Row]]:
    """Starts the cluster from one broker, which is elected for every partition; returns what was lost."""
    dying = trial.dying.copied(place)
    unloadable = {
        each.copy.facts.directory
        for verdict in trial.report.partitions
        for each in verdict.copies
        if each.copy.node == node and each.copy.facts.problem
    }
    if unloadable and len(dying.paths[node]) == 1:
        trial.outcome.wrong += started_anyway(dying, node, nodes)
    for directory in unloadable:  # as the steps do
        shutil.rmtree(place / Path(directory).relative_to(trial.dying.place))
    with revived(dying, nodes) as cluster:
        cluster.start(node)
        elect(cluster.admin(), cluster.brokers, [])
    return trial.judge(dict.fromkeys(trial.rows, node), rows_of({node: dying.paths[node]}), f"from broker {node}")


def started_anyway(dying: DyingCluster, node: int, nodes: Nodes) -> Iterator[str]:
    """A sentence if a broker starts with a log of which the report says that it cannot load it."""
    with revived(dying, nodes) as cluster:
        try:
            cluster.start(node)
        except RuntimeError:
            return
    yield f"broker {node} has loaded what the report says it cannot load"


# --- the printed lines --------------------------------------------------------------------------------------


def write_tools(kind: Kind, place: Path) -> Path:
    """A directory with Kafka's commands by their names, and seglog."""
    place.mkdir()
    java = [str(find_java()), "-Xmx192m", "-XX:+UseSerialGC", *QUICK_COMPILER, "-Dseglogkafka.echo=2"]
    for name, main in TOOLS.items():
        command = " ".join([*java, *loading(kind.release), main])
        (place / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    (place / "seglog").write_text(f'#!/bin/sh\nexec {sys.executable} -m seglog_cli "$@"\n')
    for file in place.iterdir():
        file.chmod(0o755)
    return place


def paste_steps(trial: Trial, nodes: Nodes, place: Path) -> set[tuple[str, Row]]:
    """Starts the cluster by the printed steps; returns what was lost."""
    report = compare(FS, CLOCK, ReplicasRequest((dying := trial.dying.copied(place / "ordered")).directories))
    files = place / "steps"
    write_steps(FS, report, files)
    tools = write_tools(dying.kind, place / "tools")
    expected = report.start.leaders
    with revived(dying, nodes) as cluster:
        environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "BOOTSTRAP": cluster.address(report.start.order[0]),
        }
        leaders: dict[str, int] = {}
        for step in report.steps:
            if step.why.startswith("start broker "):
                cluster.start(int(step.where.removeprefix("broker ")))
            again = int(step.where.removeprefix("broker ")) if step.why.startswith("stop broker ") else None
            if again is not None:
                cluster.settle()
                leaders = leaders or cluster.leaders()  # others lead in its place, with the same log
                cluster.stop(again)
            for line in step.lines:
                if line.startswith("seglog replay"):
                    make_saved_topics(cluster)
                paste(line, files, environment, trial.outcome)
            if again is not None:
                cluster.start(again)
        cluster.settle()
        leaders = leaders or cluster.leaders()
    for name, leader in expected.items():
        allowed = report.start.in_question.get(name, (leader,))
        if name in trial.rows and leaders[name] not in allowed:
            trial.outcome.wrong.append(f"by the steps broker {leaders[name]} leads {name}, and none of {allowed}")
        elif name in trial.rows and leaders[name] != leader:
            trial.outcome.excuse("another one leads of those that an election may take")
    trial.outcome.story.append(f"started in the order {report.start.order}, elected {report.start.elected}")
    after = rows_of(dying.paths)
    lost = trial.judge(leaders, after, "by the steps")
    trial.outcome.wrong += not_followed(trial, after, leaders)
    trial.outcome.wrong += not_saved(trial, leaders, lost, files, dying)
    return lost


def paste(line: str, files: Path, environment: Mapping[str, str], outcome: Outcome) -> None:
    """Runs a line in a shell."""
    command = ["bash", "-c", line]
    done = subprocess.run(
        command, cwd=files, env=environment, capture_output=True, text=True, timeout=LINE_SECONDS, check=False
    )
    if done.returncode:
        outcome.wrong.append(f"{line}\nended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    if line.startswith("kafka-topics") and done.stdout.strip():
        outcome.wrong.append(f"{line}\nprinted: {done.stdout[-1500:]}")


def make_saved_topics(cluster: Revived) -> None:
    """Makes the topics into which records are brought back."""
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    admin = cluster.admin()
    present = admin.list_topics(timeout=30).topics  # type: ignore[attr-defined]
    for topic, count in TOPICS.items():
        name = f"{topic}-saved"
        if name not in present:
            new = NewTopic(name, num_partitions=count, replication_factor=1)
            admin.create_topics([new])[name].result(60)  # type: ignore[attr-defined]


# --- a seed -------------------------------------------------------------------------------------------------


def try_seed(seed: int, place: Path, nodes: Nodes, choices: Sequence[int] = NODES) -> Outcome:
    """Makes the cluster of a seed, predicts, starts it from each of `choices` and by the steps, and compares."""
    dying = DyingCluster(seed, place / "cluster")
    outcome = Outcome(seed, dying.story)
    dying.place.mkdir(parents=True)
    dying.live()
    dying.wound()
    turned = set[tuple[str, int]]()
    rows = rows_of(dying.paths, instead=dying.served_instead, turned=turned)
    report = compare(FS, CLOCK, ReplicasRequest(dying.directories))
    trial = Trial(dying, rows, report, outcome)
    outcome.met = dying.met | set(found_in(trial))
    for name, node in turned:
        copy = next((each.copy for each in trial.verdict(name).copies if each.copy.node == node), None)
        if copy is None or not (copy.facts.falls or copy.facts.problem):
            outcome.wrong.append(f"{name}: nothing says that leader epochs fall in broker {node}'s copy")
        outcome.excuse("a turned leader epoch that the report names counts as the one after it")
    facts = []
    for owner, paths in {**dying.paths, CONTROLLER_ID: [dying.controller]}.items():
        if paths:
            facts.append(place / f"{owner}.facts")
            write_collected(FS, collect(FS, CLOCK, ReplicasRequest(paths)), facts[-1])
    of_facts = compare(FS, CLOCK, ReplicasRequest(facts))
    if (of_facts.partitions, of_facts.start, of_facts.steps) != (report.partitions, report.start, report.steps):
        outcome.wrong.append("facts and directories give other verdicts")
    for verdict in report.partitions:
        for row in judged_wrong(verdict, rows, dying.acknowledged):
            outcome.wrong.append(f"{verdict.partition}: acknowledged although said not to be: {row}")
    alone = {}
    for node in choices:
        if dying.paths[node]:
            alone[node] = start_from(trial, node, nodes, place / f"from{node}")
    if report.steps:
        outcome.wrong += kept_elsewhere(trial, paste_steps(trial, nodes, place), alone)
    return outcome


def say(line: str) -> None:
    """Writes a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Tries seeds, and says what each came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", help="these, instead of --count from --first on")
    parser.add_argument("--keep", type=Path, help="a directory for the clusters of seeds that went wrong")
    parser.add_argument(
        "--every-choice", type=int, default=1, help="start from all brokers in every Nth seed, else one"
    )
    asked = parser.parse_args()
    wrong, met, excused = 0, dict[str, list[int]](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="clusters-nodes-") as work:
        nodes = Nodes(Path(work))
        try:
            for seed in asked.seeds or range(asked.first, asked.first + asked.count):
                choices = NODES if seed % asked.every_choice == 0 else NODES[seed % 3 :][:1]
                wrong += _tried(seed, nodes, asked.keep, choices, met, excused)
        finally:
            nodes.close()
            for situation in (*SITUATIONS, *FOUND):
                seeds = met.get(situation, [])
                say(f"{situation}: {f'{len(seeds)} seeds ({seeds})' if seeds else 'NOT MET'}")
            for excuse, number in sorted(excused.items()):
                say(f"excused: {excuse}: {number} seeds")
    return 1 if wrong else 0


def _tried(
    seed: int,
    nodes: Nodes,
    keep: Path | None,
    choices: Sequence[int],
    met: dict[str, list[int]],
    excused: Counter[str],
) -> bool:
    from confluent_kafka import KafkaException

    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix=f"clusters-seed{seed}-"))
    try:
        outcome = try_seed(seed, place, nodes, choices)
    except (AssertionError, KafkaException, OSError, RuntimeError, SeglogError, subprocess.SubprocessError) as error:
        say(f"seed {seed}: NOT MADE: {type(error).__name__}: {error}")
        _put_away(place, keep, seed)
        return True
    word = "WRONG" if outcome.wrong else "right"
    took = f"{time.monotonic() - began:.0f} s"
    say(f"seed {seed}: {word} ({took}); lost {outcome.lost}; {'; '.join(outcome.story)}")
    for sentence in outcome.wrong:
        say(f"  {sentence}")
    say(f"  met: {', '.join(sorted(outcome.met))}")
    say(f"  excused: {'; '.join(f'{name} ({count})' for name, count in sorted(outcome.excused.items())) or 'nothing'}")
    excused.update(outcome.excused.keys())
    for situation in outcome.met:
        met.setdefault(situation, []).append(seed)
    _put_away(place, keep if outcome.wrong else None, seed)
    return bool(outcome.wrong)


def _put_away(place: Path, keep: Path | None, seed: int) -> None:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(keep / str(seed), ignore_errors=True)
        shutil.move(place, keep / str(seed))
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
