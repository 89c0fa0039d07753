"""Random sequences of operations, with good and hostile bytes, done by seglog's `Log` and Kafka's `UnifiedLog` at once.

Offsets, epochs, producers, segments and refusals are compared after each step, every file after each orderly close
(`tests/support/twin_logs`). The default is a sample; `SEGLOG_EFFORT` makes it larger, from
`SEGLOG_SEED` on, and says the seed of one that parts: `SEGLOG_SEED=n SEGLOG_EFFORT=0.01` runs it again.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import SeglogError
from tests.support import effort
from tests.support.kafka import KafkaHarness
from tests.support.twin_logs import LostTwin, Parted, TwinLogs
from tests.support.twin_steps import Chance, Step

pytestmark = pytest.mark.kafka

SEQUENCES = effort.tries(60)
FAILURES = (Parted, SeglogError, AssertionError, ValueError, ArithmeticError, LookupError, TypeError)
FIRST_SEED = effort.first_seed(1)


def run(kafka: KafkaHarness, root: Path, seed: int) -> str:
    """One sequence; how it ended. A failure names as few of its steps as lead there."""
    chance = Chance(random.Random(seed))
    config = chance.config()
    twins = TwinLogs(kafka, root / "0", **config)
    steps: list[Step] = []
    try:
        for _ in range(chance.steps()):
            steps.append(chance.step(twins))
            steps[-1].do(twins)
        twins.reopen()
    except LostTwin as lost:
        return f"lost: {lost}"
    except FAILURES as error:
        twins.abandon()
        failure: Exception = error
    else:
        twins.abandon()
        return "same"
    failure, fewest = fewer(kafka, root, config, steps, failure)
    told = "\n  ".join(step.told for step in fewest)
    raise AssertionError(f"seed {seed}, {config}: {type(failure).__name__}: {failure}\n  {told}") from failure


def fewer(
    kafka: KafkaHarness, root: Path, config: dict[str, Any], steps: list[Step], failure: Exception
) -> tuple[Exception, list[Step]]:
    """The steps without those that a failure does not need, and that failure."""
    attempt, at = 1, len(steps) - 1
    while at >= 0:
        without = steps[:at] + steps[at + 1 :]
        found = failure_of(kafka, root / str(attempt), config, without)
        if found is not None:
            failure, steps = found, without
        attempt, at = attempt + 1, at - 1
    return failure, steps


def failure_of(kafka: KafkaHarness, root: Path, config: dict[str, Any], steps: list[Step]) -> Exception | None:
    twins = TwinLogs(kafka, root, **config)
    try:
        for step in steps:
            step.do(twins)
        twins.reopen()
    except LostTwin:
        return None
    except FAILURES as error:
        return error
    finally:
        twins.abandon()
    return None


@pytest.mark.parametrize("piece", range(4))
def test_both_engines_end_every_sequence_alike(kafka: KafkaHarness, tmp_path: Path, piece: int) -> None:
    ends = []
    for seed in range(FIRST_SEED + piece, FIRST_SEED + SEQUENCES, 4):
        ends.append(run(kafka, tmp_path / str(seed), seed))
        shutil.rmtree(tmp_path / str(seed))
    assert len(ends) < 10 or ends.count("same") > len(ends) // 2, ends
