"""The facts about a sound replica that one reading of its files gives are those of the usual reading.

Searches longer with SEGLOG_EFFORT (`tests/support/effort.py`).
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.errors import SeglogError
from seglog.format import filenames
from seglog.storage.local import LocalFileSystem
from seglog_rescue.replicas import collecting
from seglog_rescue.replicas.collecting import read_directory
from seglog_rescue.replicas.facts import DirectoryFacts
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.sound_directories import SOUND, copied, killed_copy, sound_directory
from tests.support.effort import first_seed, tries
from tests.support.open_logs import START_MS

FS = LocalFileSystem()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_directory(tmp_path_factory.mktemp("sound") / "logs")


def facts_of(path: Path, monkeypatch: pytest.MonkeyPatch, *, usual: bool = False) -> DirectoryFacts | str:
    """The facts, or why there are none; `usual`: every replica is read as one of which nothing is known."""
    with monkeypatch.context() as patch:
        if usual:
            patch.setattr(collecting, "sound_log", lambda *_: None)
        try:
            return read_directory(FS, path, 1, FixedClock(START_MS))
        except (OSError, SeglogError) as error:
            return str(error)


def read_as_usual(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the replicas that are loaded on an overlay."""
    loaded: set[str] = set()
    started = collecting._started
    with monkeypatch.context() as patch:
        patch.setattr(collecting, "_started", lambda *given: (loaded.add(given[1].path.name), started(*given))[1])
        read_directory(FS, path, 1, FixedClock(START_MS))
    return loaded


@pytest.mark.parametrize("closed", [True, False])
def test_sound_replicas_are_not_loaded_and_have_the_facts_of_loaded_ones(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    path = copied(sound, tmp_path / "logs") if closed else killed_copy(sound, tmp_path / "logs")
    (path / "replication-offset-checkpoint").write_text("0\n2\nepochs 0 31\nrolled 0 36\n")
    assert read_as_usual(path, monkeypatch) == set()
    quick = facts_of(path, monkeypatch)
    assert quick == facts_of(path, monkeypatch, usual=True)
    assert isinstance(quick, DirectoryFacts)
    assert [each.name for each in quick.replicas if each.marks] == [name for name in SOUND if name != "empty-0"]


def test_facts_of_mutated_directories_are_the_same_in_both_ways(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first_seed(0), first_seed(0) + tries(25)):
        path = (copied, killed_copy)[seed % 2](sound, tmp_path / str(seed))
        did = mutate(path, random.Random(seed))
        assert facts_of(path, monkeypatch) == facts_of(path, monkeypatch, usual=True), (seed, did)
        shutil.rmtree(path)


@pytest.mark.parametrize("base", [0, 15])
@pytest.mark.parametrize("checkpoint", [None, 15, 20])
def test_a_log_that_begins_later_is_one_whose_start_was_lost_unless_it_was_deleted(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: int, checkpoint: int | None
) -> None:
    path = copied(sound, tmp_path / "logs")
    for file in (path / "rolled-0").glob("0*"):
        if int(file.stem) < base:
            file.unlink()
    if checkpoint is not None:
        (path / filenames.LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\nrolled 0 {checkpoint}\n")
    assert facts_of(path, monkeypatch) == facts_of(path, monkeypatch, usual=True)


def test_a_cleaned_or_compacted_replica_is_read_as_usual(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(sound, tmp_path / "logs")
    (path / "cleaner-offset-checkpoint").write_text("0\n1\nepochs 0 15\n")
    offsets = path / "__consumer_offsets-0"
    (path / "rolled-0").rename(offsets)
    assert read_as_usual(path, monkeypatch) == {"epochs-0", offsets.name}
    facts = facts_of(path, monkeypatch)
    assert isinstance(facts, DirectoryFacts)
    assert {each.name for each in facts.replicas if replace(each, keys=()) != each} == {"epochs-0", offsets.name}
