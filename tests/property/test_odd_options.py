"""Every command with options, files, environments and input that nobody means: wrong usage at most, never a failure.

A few dozen command lines here; `SEGLOG_EFFORT=300` runs 18,000.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import effort
from tests.support.trials import Bench

TRIALS = effort.tries(60)
FIRST_SEED = effort.first_seed(0)


def test_no_command_fails_on_any_option_file_environment_or_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # no power goes off here, and disks take their time
    bench = Bench(tmp_path)
    seeds = range(FIRST_SEED, FIRST_SEED + TRIALS)
    failed = [trial for seed in seeds for trial in bench.odd_trials(seed, 1) if trial.problems]
    assert not failed, "\n".join(map(str, failed[:20]))
