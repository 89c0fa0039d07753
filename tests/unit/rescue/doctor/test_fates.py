"""Doctor's word on every wounded log directory is the fate that a real broker gave it (`tests/golden/fates.txt`)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.fates import recorded, settled, word_of_doctor
from tests.support.wounded_starts import State
from tests.support.wounded_states import states

FATES = recorded()
STATES = [state for state in states() if os.geteuid() == 0 or not state.needs_root]


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sounds")


def test_every_state_was_given_to_a_broker() -> None:
    assert [state.name for state in states()] == list(FATES)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_doctors_word_is_the_fate_that_a_broker_gave(state: State, tmp_path: Path, sounds: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    word = word_of_doctor(state, root, sounds)
    shutil.rmtree(root)
    assert settled(word) == settled(FATES[state.name])
