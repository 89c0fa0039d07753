"""Kill, damage, predict, start: what doctor foretells of damaged log directories is what a real broker does with them.

Two rounds by default; `SEGLOG_EFFORT` makes them as many as wanted, `SEGLOG_SEED` others. The directories come
from a busy broker that was killed, or stopped in order, and get one to four wounds (`broken.wounds`); the first round
takes the second directory offline.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import effort
from tests.support.broken.wounds import WOUNDS, partitions
from tests.support.busy_broker import SETTINGS, BusyBroker
from tests.support.prognoses import differences, foretell, try_start

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROUNDS = effort.tries(2)
SEED = effort.first_seed(1)
LIVES = min(8, ROUNDS)  # of the broker whose directories are damaged; every third one ends in order
LIFE_S = 4.0


def left_by_a_broker(tmp_path: Path, chance: random.Random) -> list[Path]:
    """Copies of a broker's directories, each after another life of it."""
    busy, left = BusyBroker(tmp_path / "busy", SEED), []
    for life in range(LIVES):
        busy.start()
        busy.occupy()
        time.sleep(LIFE_S * chance.uniform(0.5, 2))
        (busy.stop if life % 3 == 1 else busy.kill)()
        left.append(tmp_path / f"left-{life}")
        for directory in busy.directories:
            shutil.copytree(directory, left[-1] / directory.name)
    return left


def wounded(chance: random.Random, directories: Sequence[Path]) -> list[str]:
    """Damages the directories; what was done."""
    wanted, done = chance.randrange(1, 5), []
    while len(done) < wanted:
        said = chance.choice(WOUNDS)(chance, directories)
        done += [said] if said else []
    return done


def failed(directory: Path) -> list[str]:
    """A file is damaged so that the broker goes on without the directory."""
    partition = next(path for path in partitions([directory]) if (path / "leader-epoch-checkpoint").exists())
    (partition / "leader-epoch-checkpoint").write_text("no checkpoint\n")
    return [f"no leader epochs: {partition.name}"]


def test_a_broker_does_with_damaged_directories_what_doctor_foretells(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    chance = random.Random(SEED)
    left = left_by_a_broker(tmp_path, chance)
    for number in range(ROUNDS):
        root = tmp_path / f"round-{number}"
        shutil.copytree(left[number % len(left)], root)
        directories = (root / "a", root / "b")
        wounds = wounded(chance, directories) if number else failed(directories[1])
        prognosis = foretell(directories)
        course = try_start(directories, root / "work", SETTINGS)
        if wrong := list(differences(prognosis, course, directories)):
            pytest.fail("\n".join([f"round {number}: {wounds}", *wrong, course.said[-20000:]]))
        shutil.rmtree(root)
