"""After the commands that doctor names, a real broker starts: a sample of the codes that name one.

`SEGLOG_EFFORT` takes more of them, `SEGLOG_SEED` others.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import effort
from tests.support.broken.doctored_states import DOCTORED
from tests.support.kafka.starts import Starts
from tests.support.named_commands import follow_rebuild, run_named
from tests.support.other_users import OTHER, given_to, open_directory
from tests.support.prognoses import QUIET
from tests.unit.rescue.doctor.test_doctor import diagnose

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CODES = effort.tries(8)
SEED = effort.first_seed(1)
USER = OTHER if os.geteuid() == 0 else None


def mended(code: str, root: Path) -> list[Path]:
    """The log directories of a state with that code, after every command that doctor names for it."""
    aside, directories = root / "aside", DOCTORED[code].made(root)
    aside.mkdir()
    rows = diagnose(*directories, settings=DOCTORED[code].settings)
    commands = dict.fromkeys(row.command for row in rows if row.code == code)
    assert commands, f"{code} is not there"
    for command in commands:
        run_named(command, aside)
        if command.startswith("seglog rebuild "):
            follow_rebuild(directories, aside)
    if USER is not None:
        for directory in directories:
            given_to(directory, USER)
    return directories


def test_a_broker_starts_after_the_commands_that_doctor_names() -> None:
    codes = sorted(DOCTORED.keys() - {"ACCESS_DENIED"})  # the whole directory belongs to the broker's user here
    sample = random.Random(SEED).sample(codes, min(CODES, len(codes)))
    refused = {}
    with ExitStack() as stack:
        work = stack.enter_context(open_directory())
        starts = stack.enter_context(Starts(work / "brokers", user=USER))
        for code in sample:
            root = work / code
            root.mkdir()
            refused[code] = starts.start(mended(code, root), QUIET) or starts.end()
    assert refused == dict.fromkeys(sample, "")
