"""A sample of the wounded log directories, given to a real broker again: its fate is the recorded one.

`SEGLOG_EFFORT` takes more of them, `SEGLOG_SEED` others; doctor's word on all of them is compared without Java.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.support import effort
from tests.support.fates import fates, recorded, settled
from tests.support.other_users import open_directory
from tests.support.wounded_states import states

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

STATES = effort.tries(8)
SEED = effort.first_seed(1)


def test_a_broker_gives_wounded_directories_the_recorded_fates() -> None:
    known = recorded()
    given = [state for state in states() if state.name in known and (os.geteuid() == 0 or not state.needs_root)]
    sample = random.Random(SEED).sample(given, min(STATES, len(given)))
    with open_directory() as work:
        found = {state.name: settled(fate) for state, fate, _ in fates(sample, work)}
    assert found == {state.name: settled(known[state.name]) for state in sample}
