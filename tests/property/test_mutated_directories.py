"""Every command on log directories that are wrong in some way: a contract's end, bounds, and nothing outside touched.

A few dozen pairs of a directory and a command here; `SEGLOG_EFFORT=300` runs 18,000.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import effort
from tests.support.trials import Bench

pytestmark = pytest.mark.slow

TRIALS = effort.tries(60)
FIRST_SEED = effort.first_seed(0)
_EACH = 4


def test_no_command_fails_on_any_mutated_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # no power goes off here, and disks take their time
    bench = Bench(tmp_path)
    failed = [
        trial
        for seed in range(FIRST_SEED, FIRST_SEED + TRIALS // _EACH)
        for trial in bench.trials(seed, _EACH)
        if trial.problems
    ]
    assert not failed, "\n".join(map(str, failed[:20]))
