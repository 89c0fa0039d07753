"""The table of Kafka releases: what seglog does with the directories of each, as its tests do it with real brokers.

README and seglog(1) show it. `tests/versions` run each cell, and fail if a cell says something else.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import groupby

# The release lines that the tests have brokers of.
TRIED = ("0.11", "1.1", "2.3", "2.5", "2.8", "3.3", "3.6", "3.9", "4.0", "4.2", "4.3", "4.4")
YES = "yes"
_OF_ZOOKEEPER = ("0.11", "1.1", "2.3", "2.5", "2.8")


class Ability(StrEnum):
    """The rows, by the commands that they stand for."""

    READ = "`ls`, `read`, `verify`, `explain`"
    DOCTOR = "`doctor`"
    APPEND = "`append`, `repair`"
    RECOVER = "`recover`, `truncate`"
    CLEAN = "`clean`, `retain`"
    TRANSPLANT = "`transplant`"
    REBUILD = "`rebuild`"
    UPGRADE = "`doctor --kafka-version 4.4`"


def cell(ability: Ability, release: str) -> str:
    """Returns YES if seglog does it for the release's own brokers, or the only release for which it does it."""
    return TRIED[-1] if ability in (Ability.TRANSPLANT, Ability.REBUILD) and release in _OF_ZOOKEEPER else YES


def columns() -> list[tuple[str, ...]]:
    """Returns the releases, those side by side whose cells are equal."""
    cells = groupby(TRIED, lambda release: [cell(ability, release) for ability in Ability])
    return [tuple(releases) for _, releases in cells]


def table() -> str:
    """Returns the table as Markdown."""
    alike = columns()
    rows = [["", *(" ".join(releases) for releases in alike)], ["---"] * (len(alike) + 1)]
    rows += [[ability.value, *(cell(ability, releases[0]) for releases in alike)] for ability in Ability]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("|  |", "| |")
