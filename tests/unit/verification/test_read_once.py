"""What one reading of a sound partition tells is what the usual one tells: differences, sources.

Searches longer with SEGLOG_EFFORT (`tests/support/effort.py`).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from seglog.errors import SeglogError
from seglog.format.filenames import parse_partition_directory
from seglog.look.inspect import diff
from seglog.look.inspect.diff_view import ViewOptions
from seglog.model import TopicPartition
from seglog.operations.diff import differences
from seglog.storage.local import LocalFileSystem
from seglog.verification import soundness
from seglog_rescue.transplant import source
from seglog_rescue.transplant.source import SourceCheckpoints, read_source
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.sound_directories import SOUND, copied, killed_copy, sound_directory
from tests.support.effort import first_seed, tries

FS = LocalFileSystem()
CALLERS = ((diff, "sound_log_at_rest"), (source, "sound_log"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_directory(tmp_path_factory.mktemp("sound") / "logs")


def source_of(directory: Path) -> dict[str, object]:
    name = parse_partition_directory(directory.name)
    key = TopicPartition("unnamed", 0) if name is None else name.topic_partition
    taken = read_source(FS, directory, key, SourceCheckpoints(FS), lambda _size: None)
    return {each.name: getattr(taken, each.name) for each in fields(taken) if each.name != "fs"}


def outcome(work: Callable[[], object]) -> object:
    try:
        return work()
    except (OSError, SeglogError) as error:
        return type(error), str(error)


def told(path: Path, other: Path) -> dict[str, object]:
    """What a comparison with the same partition of `other`, and a transplant's source tell of each partition in
    `path`.
    """
    rows: dict[str, object] = {}
    for directory in sorted(each for each in path.iterdir() if each.is_dir() and not each.is_symlink()):
        pair = [other / directory.name, directory]
        rows[f"{directory.name}: source"] = outcome(lambda at=directory: source_of(at))  # type: ignore[misc]
        rows[f"{directory.name}: differences"] = outcome(
            lambda at=pair: list(differences(FS, at, "batches", ViewOptions()))  # type: ignore[misc]
        )
    return rows


def told_as_usual(path: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    with monkeypatch.context() as patch:
        for module, name in CALLERS:
            patch.setattr(module, name, lambda *_: None)
        return told(path, other)


@pytest.mark.parametrize("closed", [True, False])
def test_a_sound_partition_is_compared_and_taken_without_a_view(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    path = copied(sound, tmp_path / "logs") if closed else killed_copy(sound, tmp_path / "logs")
    usual = told_as_usual(path, sound, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("seglog.scan.view.PartitionView.__init__", None)
        quick = told(path, sound)
    assert quick == usual
    assert len(quick) == 2 * len(SOUND)
    assert all(quick[f"{name}: differences"] == [] for name in SOUND)


def test_mutated_partitions_are_told_the_same_in_both_ways(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first_seed(0), first_seed(0) + tries(20)):
        path = (copied, killed_copy)[seed % 2](sound, tmp_path / str(seed))
        did = mutate(path, random.Random(seed))
        assert told(path, sound) == told_as_usual(path, sound, monkeypatch), (seed, did)
        shutil.rmtree(path)


def test_copies_that_are_rolled_elsewhere_have_the_same_batches(sound: Path) -> None:
    rolled = [name for name in SOUND if len(list((sound / name).glob("*.log"))) > 1]
    assert rolled
    assert diff.have_same_batches(FS, [sound / rolled[0], sound / rolled[0]])
    assert not diff.have_same_batches(FS, [sound / rolled[0], sound / "empty-0"])


def test_beside_a_running_broker_nothing_is_known_to_be_sound(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(sound, tmp_path / "logs")
    assert soundness.sound_log_at_rest(FS, path / SOUND[0]) is not None
    monkeypatch.setattr(soundness, "is_live", lambda directory: directory == path / SOUND[0])
    assert soundness.sound_log_at_rest(FS, path / SOUND[0]) is None
