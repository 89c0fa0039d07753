"""Sources that are wrong in some way: transplanted whole or refused by name, never touched, never a defect.

A few here; `SEGLOG_TRANSPLANTS=5000` tries that many.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from seglog.storage.local import LocalFileSystem
from tests.support import effort
from tests.support.broken.mutated_directories import mutate
from tests.support.command_line import Ended, ended
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.target_directories import everything, target_directory

pytestmark = pytest.mark.slow

NAMES = ("4.3.0/generated", "4.3.0/killed")
TRIALS = effort.tries(10)
FIRST = effort.first_seed(0)
REFUSALS = {1, 3, 10, 12, 13, 74}
PARTITIONS = ("mixed-0", "ledger-0", "upgraded-0", "payments-0", "customers-0", "__consumer_offsets-0")
FS = LocalFileSystem()


def test_a_source_that_is_wrong_in_some_way_is_taken_whole_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    codes = set()
    for seed in range(FIRST, FIRST + TRIALS):
        name = NAMES[seed % len(NAMES)]
        work = tmp_path / str(seed)
        codes.add(tried(seed, fixture_copy(name, work / "old"), work / "new", str(fixture_now_ms(name))))
        shutil.rmtree(work)
    assert 0 in codes and codes & REFUSALS


def tried(seed: int, source: Path, place: Path, now: str) -> int:
    """One transplant of a mutated directory; its exit code."""
    made = [name for name in PARTITIONS if (source / name).is_dir()]
    wrong = mutate(source, random.Random(seed))
    target = target_directory(FS, place / "logs", made)
    before = [everything(path) for path in (source, target)]
    named = [path for name in made if (path := source / name).exists()]
    done = ended("transplant", *named, "--into", target, "--now", now)
    at = f"seed {seed}, {wrong}: {done.code} {done.stderr.decode()[-600:]}"
    assert done.code in {0, *REFUSALS}, at
    assert everything(source) == before[0], at
    if done.code:
        assert {**everything(target), ".lock": None} == {**before[1], ".lock": None}, at
        return done.code
    checked = ended("verify", target, "--level", "index", "--now", now)
    if checked.code:  # what is odd and no damage comes along as it lies, and nothing else
        shown = ended("verify", *named, "--level", "index", "--now", now)
        assert not (found := oddities(checked) - oddities(shown)), f"{at}\n{found}"
        assert checked.code == 1 and b"error " not in checked.stdout, f"{at}\n{checked.stdout.decode()[-600:]}"
    return 0


def oddities(checked: Ended) -> set[tuple[bytes, bytes]]:
    """Code and file of each finding that is printed: `warning CODE PARTITION/FILE …`."""
    lines = [line.split() for line in checked.stdout.splitlines() if line.startswith((b"warning ", b"error "))]
    return {(line[1], b"/".join(line[2].split(b"/")[-2:])) for line in lines}
