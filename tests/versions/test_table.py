"""README's table of versions, and the manual's, say what the matrix runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.kafka_version import KafkaVersion
from seglog_cli.kafka_releases import TRIED, YES, Ability, cell, table
from tests.support.command_line import ROOT
from tests.support.versions.life import NEWEST, Life
from tests.support.versions.matrix import HELD_BY, RELEASES, steps_of


def test_readme_has_the_table() -> None:
    assert table() in (ROOT / "README.md").read_text()


def test_each_release_of_the_table_is_in_the_matrix() -> None:
    assert tuple(str(KafkaVersion.parse(release)) for release in RELEASES) == TRIED
    assert str(KafkaVersion.parse(NEWEST)) == TRIED[-1]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ability", Ability)
def test_a_cell_says_which_steps_the_matrix_takes_with_the_release(ability: Ability, release: str) -> None:
    life = Life(release, Path("/nowhere"))
    own = set(HELD_BY[ability]) <= set(steps_of(life.version))
    if ability is Ability.TRANSPLANT:  # the step asserts a refusal if the topics have no ids
        own = life.has_topic_ids
    assert cell(ability, str(life.version)) == (YES if own else TRIED[-1])
