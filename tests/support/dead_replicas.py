"""Tries `seglog replicas` on real clusters that died from seeds (`dying_clusters`).

    python -m tests.support.dead_replicas --first 1 --count 60

From the dead directories `replicas` predicts what each choice loses. Then the cluster is started

1. from each of its brokers alone, which is elected for every partition,
2. by the printed lines, pasted word for word into a shell, with the files that `--output` writes,

and each partition's log is compared, record by record, with what the copies had held.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seglog.clock import SystemClock
from seglog.errors import SeglogError
from seglog_rescue.operations.replicas import (
    ReplicasReport,
    ReplicasRequest,
    collect,
    compare,
    write_collected,
    write_steps,
)
from seglog_rescue.replicas.comparison import Cause, Choice, PartitionVerdict
from seglog_rescue.replicas.lineage import common_end
from tests.support.dying_clusters import (
    FS,
    NODES,
    SITUATIONS,
    TOPICS,
    DyingCluster,
    Kind,
    Row,
    Rows,
    elect,
    rows_of,
)
from tests.support.kafka.archive import loading
from tests.support.kafka.broker import QUICK_COMPILER
from tests.support.kafka.cluster import CONTROLLER_ID
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION, find_java
from tests.support.revived_clusters import Nodes, Revived, revived

CLOCK = SystemClock()
LINE_SECONDS = 240
TOOLS = {
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}


FOUND = (
    *("static quorum", "dynamic quorum", "without ELR", "with ELR", KAFKA_VERSION, NEWER_KAFKA_VERSION),
    *(
        "a replica is eligible",
        "compacted apart",
        "a copy that cannot be loaded",
        "acknowledged records given up by an election",
    ),
    *("elected by hand", "copied anew", "salvaged", "written to files", "no order fits every partition"),
)


@dataclass
class Outcome:
    """What a seed came to. `wrong` are sentences about promises that were not kept."""

    seed: int
    story: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: dict[str, dict[str, int]] = field(default_factory=dict)  # by how it was started, and by partition
    met: set[str] = field(default_factory=set)  # of `SITUATIONS` and `FOUND`
    excused: Counter[str] = field(default_factory=Counter)  # by the name of the excuse

    def excuse(self, name: str, number: int = 1) -> None:
        """Counts what is not wrong although it is not what was predicted, or is lost, by the name of the reason."""
        if number:
            self.excused[name] += number


def lost_rows(choice: Choice, rows: Mapping[int, set[Row]]) -> set[Row]:
    """The records that a choice loses, by the report's ranges and the holders' records."""
    return {row for loss in choice.losses for row in rows.get(loss.node, set()) if loss.first <= row[0] < loss.end}


def compacted_rows(choice: Choice, rows: Mapping[int, set[Row]]) -> set[Row]:
    """Of these records, those of which nobody can say without the keys whether a cleaner had dropped them."""
    return lost_rows(replace(choice, losses=tuple(x for x in choice.losses if x.cause is Cause.COMPACTED)), rows)


def judged_wrong(verdict: PartitionVerdict, rows: Rows, acknowledged: set[tuple[str, int, bytes | None]]) -> set[Row]:
    """Records that producers were told are safe, and that the report calls not acknowledged."""
    name = str(verdict.partition)
    return {
        row
        for choice in verdict.choices
        for loss in choice.losses
        if loss.acknowledged.value == "no"
        for row in rows.get(name, {}).get(loss.node, set())
        if loss.first <= row[0] < loss.end and (name, row[0], row[3]) in acknowledged
    }


@dataclass
class Trial:
    """A dead cluster, what its copies hold, and what `replicas` says."""

    dying: DyingCluster
    rows: Rows
    report: ReplicasReport
    outcome: Outcome

    def verdict(self, name: str) -> PartitionVerdict:
        """The verdict of a partition."""
        return next(each for each in self.report.partitions if str(each.partition) == name)

    def judge(self, leaders: Mapping[str, int], after: Rows, how: str) -> set[tuple[str, Row]]:
        """Compares the logs of the leaders with what the copies held; returns what was lost."""
        every = set[tuple[str, Row]]()
        for name, copies in self.rows.items():
            verdict, leader = self.verdict(name), leaders[name]
            choice = next((each for each in verdict.choices if each.node == leader), None)
            held = set().union(*copies.values())
            lost = held - after.get(name, {}).get(leader, set())
            predicted = held if choice is None else lost_rows(choice, copies)
            if verdict.partition.topic == "keyed":
                shared, every_lost = shared_rows(verdict, leader, copies), lost
                lost = without_superseded(lost, predicted, after[name].get(leader, set()), shared)
                self.outcome.excuse("compacted away for a newer record of its key", len(every_lost - lost))
            every |= {(name, row) for row in lost}
            perhaps = set() if choice is None else compacted_rows(choice, copies)
            self.outcome.excuse("said to be compacted for what is lost, and still there", len(perhaps - lost))
            if choice is not None and predicted != lost:
                for word, more in (("predicted only", predicted - lost - perhaps), ("lost only", lost - predicted)):
                    rows = sorted(more, key=lambda row: row[:2])
                    if rows:
                        self.outcome.wrong.append(f"{how}: {name} by broker {leader}: {word}: {rows[:6]} ({len(rows)})")
        self.outcome.lost[how] = dict(Counter(name for name, _ in sorted(every, key=str)))
        return every

    def acknowledged(self, lost: set[tuple[str, Row]], partition: str) -> int:
        """How many of these records of a partition producers had been told are safe."""
        return sum(name == partition and (name, row[0], row[3]) in self.dying.acknowledged for name, row in lost)


def shared_rows(verdict: PartitionVerdict, leader: int, copies: Mapping[int, set[Row]]) -> set[Row]:
    """The records that other copies hold below the offset where they part from the leader's."""
    facts = {each.copy.node: each.copy.facts for each in verdict.copies}
    if leader not in facts:
        return set()
    ends = {node: common_end(facts[leader].started, each.on_disk) for node, each in facts.items()}
    return {row for node, rows in copies.items() for row in rows if row[0] < ends.get(node, 0)}


def without_superseded(lost: set[Row], predicted: set[Row], kept: set[Row], shared: set[Row]) -> set[Row]:
    """Leaves out what compaction had removed: a newer record of that key is in the same log. That is the leader's log
    for `shared` records, and else what is predicted to be lost."""
    newest: dict[tuple[bytes | None, bool], int] = {}
    for rows, is_kept in ((kept, True), (predicted, False)):
        for offset, _, key, _ in rows:
            newest[key, is_kept] = max(offset, newest.get((key, is_kept), -1))
    return {row for row in lost if row in predicted or newest.get((row[2], row in shared), -1) <= row[0]}


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


def not_followed(trial: Trial, after: Rows, leaders: Mapping[str, int]) -> Iterator[str]:
    """Sentences about followers that do not hold what their leader holds; of a compacted topic, its newest records. At
    offsets at which the report says that one of the two differs from the chosen copy, and that no broker mends that,
    they may differ."""
    for name, copies in after.items():
        ranges = {each.copy.node: each.differs for each in trial.verdict(name).copies}
        if name.startswith("keyed"):
            copies = {node: newest_of(rows) for node, rows in copies.items()}
        if name not in leaders:
            continue
        for node, rows in copies.items():
            said = (*ranges.get(node, ()), *ranges.get(leaders[name], ()))
            different = rows ^ copies.get(leaders[name], set())
            unsaid = {row for row in different if not any(first <= row[0] < end for first, end in said)}
            trial.outcome.excuse("a follower differs at offsets that the report says", bool(different - unsaid))
            if unsaid:
                yield (
                    f"by the steps: broker {node} differs from the leader {leaders[name]} of {name} at offsets"
                    f" {sorted({row[0] for row in unsaid})[:6]}"
                )


def newest_of(rows: set[Row]) -> set[Row]:
    """The newest record of each key."""
    return set({row[2]: row for row in sorted(rows, key=lambda row: row[0])}.values())


def not_saved(
    trial: Trial, leaders: Mapping[str, int], lost: set[tuple[str, Row]], files: Path, dying: DyingCluster
) -> Iterator[str]:
    """Sentences about lost records that the steps did not save: all of them as lines of a file, and those that may have
    been acknowledged as records of a new topic, too. So nothing that another start would keep is lost unsaid."""
    lines: dict[str, set[tuple[int, str | None]]] = {}
    for file in files.glob("*.jsonl"):
        name = file.name.partition(".broker-")[0]
        for line in file.read_text().splitlines():
            values = json.loads(line)
            lines.setdefault(name, set()).add((values["offset"], values["value"]))
    produced = rows_of(dying.paths, [f"{topic}-saved" for topic in TOPICS])
    for name, row in lost:
        verdict = trial.verdict(name)
        choice = next((each for each in verdict.choices if each.node == leaders[name]), None)
        whole = set[Row]()
        if choice is None:  # a leader without a copy: all of the chosen one is to be saved, and what that one lacks
            choice, whole = (
                verdict.chosen(),
                trial.rows[name].get(-1 if verdict.choice is None else verdict.choice, whole),
            )
        if choice is None:
            trial.outcome.excuse("no copy can be read")
            continue
        if row not in whole and row not in lost_rows(choice, trial.rows[name]):
            continue  # `judge` has counted or blamed it
        losses = [each for each in choice.lost if each.first <= row[0] < each.end]
        if not losses and row not in whole:
            trial.outcome.excuse("deleted from the leader's log start on purpose")
            continue
        value = None if row[3] is None else row[3].decode()
        if (row[0], value) not in lines.get(name, set()):
            yield f"{name} offset {row[0]} was lost, and is not in the saved lines"
        if row not in whole and all(
            each.acknowledged.value == "no" and each.cause.value != "damaged" for each in losses
        ):
            trial.outcome.excuse("not acknowledged, so saved as a line alone")  # producers may have sent it again
            continue
        topic, _, number = name.rpartition("-")
        again = {each[2:] for each in set().union(*produced.get(f"{topic}-saved-{number}", {}).values(), set())}
        if row[2:] not in again:
            yield f"{name} offset {row[0]} was lost, and is not in the topic {topic}-saved"


def kept_elsewhere(
    trial: Trial, lost: set[tuple[str, Row]], alone: Mapping[int, set[tuple[str, Row]]]
) -> Iterator[str]:
    """Sentences about acknowledged records that the order loses and another start keeps, unless an election had given
    them up (the leader's epoch is newer), or the steps say that no order fits every partition: they name the loss and
    save it (`not_saved`), and in all it is to be no more than any other start loses."""
    start = trial.report.start
    named = named_in_steps(trial)
    total = Counter[int]()
    for name in trial.rows:
        epochs = {each.copy.node: each.copy.facts.started.newest_epoch for each in trial.verdict(name).copies}
        leader, mine = start.leaders.get(name), trial.acknowledged(lost, name)
        for node, others in alone.items():
            theirs = trial.acknowledged(others, name)
            if epochs.get(node, -2) >= epochs.get(-1 if leader is None else leader, -2):
                total[node] += mine
                if name not in named and mine > theirs:
                    yield f"{name}: the order loses {mine} acknowledged records, broker {node} alone {theirs}"
                elif mine > theirs:
                    trial.outcome.excuse(f"no order fits: broker {node} alone loses less of {name}")
            elif mine > theirs:
                trial.outcome.excuse(f"given up by an election: broker {node} alone loses less of {name}")
            total[node] -= theirs
    for node, more in total.items():
        if more > 0:
            yield f"the order loses {more} acknowledged records more in all than broker {node} alone"


def named_in_steps(trial: Trial) -> set[str]:
    """The partitions of which a step tells the user that the order does not give them their best copy."""
    told = [step.why for step in trial.report.steps]
    return {
        name
        for name in trial.rows
        if any(
            why.startswith(f"{name}: this order ") and "no order gives every partition its best copy" in why
            for why in told
        )
    }


def found_in(trial: Trial) -> Iterator[str]:
    """The situations that the report shows."""
    kind, report = trial.dying.kind, trial.report
    yield from ("dynamic quorum" if kind.dynamic else "static quorum", "with ELR" if kind.eligible else "without ELR")
    yield kind.release
    entries = [verdict.entry for verdict in report.partitions if verdict.entry is not None]
    if any(entry.eligible for entry in entries):
        yield "a replica is eligible"
    if any(each.copy.facts.problem for verdict in report.partitions for each in verdict.copies):
        yield "a copy that cannot be loaded"
    if any(len({each.copy.facts.cleaned for each in verdict.copies}) > 1 for verdict in report.partitions):
        yield "compacted apart"
    if any(
        loss.was_given_up for verdict in report.partitions for choice in verdict.choices[:1] for loss in choice.lost
    ):
        yield "acknowledged records given up by an election"
    steps = [(step.why, line) for step in report.steps for line in (*step.lines, "")]
    loadable = [
        each.copy.facts.directory
        for verdict in report.partitions
        for each in verdict.copies
        if not each.copy.facts.problem
    ]
    words = {
        "elected by hand": lambda why, line: line.startswith("kafka-leader-election"),
        "copied anew": lambda why, line: line.startswith("mv ") and any(f" {each} " in line for each in loadable),
        "salvaged": lambda why, line: line.startswith("seglog salvage"),
        "written to files": lambda why, line: why.startswith("write to files"),
        "no order fits every partition": lambda why, line: "no order gives every partition" in why,
    }
    yield from (word for word, holds in words.items() if any(holds(*step) for step in steps))


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
