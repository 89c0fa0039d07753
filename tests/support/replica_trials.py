"""What a dead cluster's copies held, what `replicas` says of them, and whether a start of the cluster lost just that.

`Outcome.excused` counts, by name, what is not wrong although it was not predicted so, or was lost.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from seglog_rescue.operations.replicas import ReplicasReport
from seglog_rescue.replicas.comparison import Cause, Choice, PartitionVerdict
from seglog_rescue.replicas.lineage import common_end
from tests.support.dying_clusters import TOPICS, DyingCluster, Row, Rows, rows_of
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION

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
                    trial.outcome.excuse("no order fits, and another broker alone loses less of a partition")
            elif mine > theirs:
                trial.outcome.excuse("given up by an election, and an older leader alone loses less of a partition")
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
