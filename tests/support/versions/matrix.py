"""Which releases are tried, and which steps in which order."""

from __future__ import annotations

import os
from collections.abc import Callable

from seglog.kafka_version import KafkaVersion
from seglog_cli.kafka_releases import Ability
from tests.support.kafka.released_broker import FIRST_OF_KRAFT
from tests.support.versions import steps
from tests.support.versions.life import Life

Step = Callable[[Life], None]

DEFAULT_RELEASES = ("2.8.2", "4.4.0")
RELEASES = (
    *("0.11.0.3", "1.1.1", "2.3.1", "2.5.1", "2.8.2", "3.3.2"),
    *("3.6.2", "3.9.1", "4.0.0", "4.2.0", "4.3.0", "4.4.0"),
)
_CHOSEN = os.environ.get("KAFKA_RELEASES", "")
CHOSEN = RELEASES if _CHOSEN == "all" else tuple(_CHOSEN.split(",")) if _CHOSEN else DEFAULT_RELEASES
STEPS: tuple[Step, ...] = (
    steps.fill,
    steps.read_after_a_stop,
    steps.doctor_after_a_stop,
    steps.transplant_into_it,
    steps.serve_and_die,
    steps.read_after_a_kill,
    steps.doctor_after_a_kill,
    steps.recover,
    steps.append,
    steps.clean,
    steps.retain,
    steps.repair,
    steps.truncate,
    steps.doctor_after_changes,
    steps.rebuild,
    steps.go_on,
    steps.foresee_strays,
    steps.upgrade,
)
OF_KRAFT, OF_ZOOKEEPER = (steps.rebuild,), (steps.foresee_strays,)


def steps_of(version: KafkaVersion) -> list[Step]:
    """The steps of a release, in order."""
    others = OF_ZOOKEEPER if version >= FIRST_OF_KRAFT else OF_KRAFT
    return [step for step in STEPS if step not in others]


HELD_BY: dict[Ability, tuple[Step, ...]] = {
    Ability.READ: (steps.read_after_a_stop, steps.read_after_a_kill),
    Ability.DOCTOR: (steps.doctor_after_a_stop, steps.doctor_after_a_kill, steps.doctor_after_changes),
    Ability.APPEND: (steps.append, steps.repair, steps.go_on),
    Ability.RECOVER: (steps.recover, steps.truncate, steps.go_on),
    Ability.CLEAN: (steps.clean, steps.retain, steps.go_on),
    Ability.TRANSPLANT: (steps.transplant_into_it, steps.serve_and_die),
    Ability.REBUILD: (steps.rebuild, steps.go_on),
    Ability.UPGRADE: (steps.upgrade,),
}
