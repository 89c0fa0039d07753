"""Doctor's word on every wounded log directory is the fate that a real broker gave it (`tests/golden/fates.txt`)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.broken.wounded_herds import in_herds, partition_of
from tests.support.broken.wounded_pairs import AND
from tests.support.broken.wounded_starts import State
from tests.support.broken.wounded_states import states
from tests.support.fates import every_state, recorded, settled, word_of_doctor, words_of_doctor
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION

USUAL, NEWER = recorded(), recorded(NEWER_KAFKA_VERSION)
FATES = {KAFKA_VERSION: USUAL, NEWER_KAFKA_VERSION: {**USUAL, **NEWER}}
STATES = [state for state in every_state() if os.geteuid() == 0 or not state.needs_root]
HERDED = [state for state in STATES if AND in state.name and partition_of(state)]  # looked at together: it is quicker
ALONE = [(state, KAFKA_VERSION) for state in STATES if state not in HERDED]
ALONE += [(state, NEWER_KAFKA_VERSION) for state in STATES if state.name in NEWER]


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sounds")


def test_every_state_was_given_to_a_broker() -> None:
    assert [state.name for state in states()] == [name for name in FATES[KAFKA_VERSION] if AND not in name]


@pytest.mark.parametrize(("state", "release"), ALONE, ids=lambda value: getattr(value, "name", value))
def test_doctors_word_is_the_fate_that_a_broker_gave(state: State, release: str, tmp_path: Path, sounds: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    word = word_of_doctor(state, root, sounds, release)
    shutil.rmtree(root)
    assert settled(word) == settled(FATES[release][state.name])


@pytest.mark.parametrize("members", list(in_herds(HERDED)), ids=lambda members: members[0].base)
def test_doctors_word_on_partitions_with_two_wounds_is_the_fate_that_a_broker_gave(
    members: list[State], tmp_path: Path
) -> None:
    words = words_of_doctor(members, tmp_path / "herd")
    assert words == {state.name: FATES[KAFKA_VERSION][state.name] for state in members}
