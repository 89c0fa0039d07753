"""A sample of the wounded log directories, given to real brokers again: their fates are the recorded ones.

`SEGLOG_EFFORT` takes more of them, `SEGLOG_SEED` others; doctor's word on all of them is compared without Java. Pairs
that have no line yet, of a seed of their own: `python -m tests.support.fates --pairs SEED --most 100 --look`.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support import effort
from tests.support.broken.wounded_herds import HERDED, partition_of
from tests.support.broken.wounded_pairs import AND
from tests.support.broken.wounded_starts import State
from tests.support.fates import every_state, fates, fates_in_herds, recorded, settled
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION
from tests.support.other_users import open_directory

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

STATES = effort.tries(8)
SEED = effort.first_seed(1)


def given() -> list[State]:
    return [state for state in every_state() if os.geteuid() == 0 or not state.needs_root]


def test_a_broker_gives_wounded_directories_the_recorded_fates() -> None:
    known, every = recorded(), given()
    sample = random.Random(SEED).sample(every, min(STATES, len(every)))
    with open_directory() as work:
        found = {state.name: settled(fate) for state, fate, _ in fates(sample, work)}
    assert found == {state.name: settled(known[state.name]) for state in sample}


@pytest.mark.parametrize("release", [KAFKA_VERSION, NEWER_KAFKA_VERSION])
def test_one_start_gives_partitions_with_two_wounds_the_recorded_fates(release: str) -> None:
    """A base of the table by the seed, without what stops a start."""
    known = {**recorded(), **(recorded(release) if release != KAFKA_VERSION else {})}
    base = HERDED[(SEED + (release == KAFKA_VERSION)) % len(HERDED)]
    members = [state for state in given() if AND in state.name and partition_of(state) and state.base == base]
    members = [state for state in members if known[state.name].startswith("starts")]
    with open_directory() as work:
        found = {state.name: fate for state, fate, _ in fates_in_herds(members, work, release)}
    assert found == {state.name: known[state.name] for state in members}
