"""A killed broker's log directory on a full disk: doctor names the room that is missing, and with that it starts."""

from __future__ import annotations

import pytest

from seglog_rescue.doctor.doctor import Diagnosis
from tests.support.broken.wounded_starts import State, made
from tests.support.broken.wounded_states import indexes_without_blocks
from tests.support.fates import disk_of, filled
from tests.support.kafka.starts import Starts
from tests.support.named_commands import run_named
from tests.support.other_users import OTHER, needs_root, open_directory
from tests.support.prognoses import QUIET
from tests.unit.rescue.doctor.test_doctor import diagnose

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FULL = State("unclean", "disk", "full", indexes_without_blocks, needs_root=True, free=0)


@needs_root
def test_a_broker_starts_on_a_full_disk_after_the_command_that_doctor_names() -> None:
    with open_directory() as work, Starts(work / "brokers", user=OTHER) as starts:
        (work / "disk").mkdir()
        with disk_of(FULL, work / "disk"):
            directories = made(FULL, work / "disk", given=True)
            filled(work / "disk", 0)

            def lacking() -> list[Diagnosis]:
                return [row for row in diagnose(*directories) if row.code == "NO_ROOM"]

            (row,) = lacking()
            assert run_named(row.command, work) == [0]
            assert not lacking()
            assert starts.start(directories, QUIET) == ""
            assert starts.end() == ""
