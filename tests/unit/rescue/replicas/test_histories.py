"""What each choice loses is, record by record, what the other copies held; over many histories of a partition.

SEGLOG_REPLICA_HISTORIES=20000 tries as many seeds; a run of all tests tries 24.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.replicas import ReplicasReport, ReplicasRequest, collect, compare, write_collected
from seglog_rescue.replicas.comparison import Acknowledged
from tests.support.manual_clock import ManualClock
from tests.support.replica_histories import history, lost_by, write_directories

FS, CLOCK = LocalFileSystem(), ManualClock()
SEEDS = int(os.environ.get("SEGLOG_REPLICA_HISTORIES", "24"))
PARTS = 2


def predicted(report: ReplicasReport, choice: int, logs: dict[int, list[object]]) -> dict[str, set[tuple[int, object]]]:
    """The records of the losses by whether they were acknowledged, from the logs of those that hold them."""
    (verdict,) = report.partitions
    losses = next(each.losses for each in verdict.choices if each.node == choice)
    found: dict[str, set[tuple[int, object]]] = {word.value: set() for word in Acknowledged}
    for loss in losses:
        records = {(offset, logs[loss.node][offset]) for offset in range(loss.first, loss.end)}
        assert (loss.records, loss.exact) == (len(records), True)
        assert not any(records & others for others in found.values())
        found[loss.acknowledged.value] |= records
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_what_a_choice_loses_is_what_the_others_hold_and_facts_say_the_same(tmp_path: Path, part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        made = history(seed)
        place = tmp_path / str(seed)
        directories = write_directories(made, place)
        report = compare(FS, CLOCK, ReplicasRequest(directories))
        logs = {node: list(replica.log) for node, replica in made.replicas.items()}
        for node in logs:
            words = predicted(report, node, logs)
            assert set().union(*words.values()) == lost_by(node, logs), f"seed {seed}, broker {node}"
            assert words["yes"] <= made.acknowledged, f"seed {seed}, broker {node}"
            assert not words["no"] & made.acknowledged, f"seed {seed}, broker {node}"
        in_sync = [replica.log for node, replica in made.replicas.items() if node in made.isr]
        (verdict,) = report.partitions
        if verdict.choice is not None and verdict.copies[0].in_sync:
            assert logs[verdict.choice] in in_sync, f"seed {seed}"
        facts = []
        for directory in directories:
            facts.append(place / f"{directory.name}.facts")
            write_collected(FS, collect(FS, CLOCK, ReplicasRequest([directory])), facts[-1])
        again = compare(FS, CLOCK, ReplicasRequest(facts))
        assert again.partitions == report.partitions, f"seed {seed}"
        assert again.start == report.start and again.steps == report.steps, f"seed {seed}"
