"""A sound partition is known by one reading of its files, and doctor's word on it is that of an examination.

Searches longer with SEGLOG_EFFORT (`tests/support/effort.py`).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.errors import SeglogError
from seglog.format.producer_snapshot import encode_snapshot
from seglog.storage.local import LocalFileSystem
from seglog.verification.soundness import sound_log
from seglog_rescue.doctor import visit
from seglog_rescue.doctor.doctor import Diagnosis, Doctor, DoctorSummary
from seglog_rescue.doctor.partition_facts import PartitionFacts
from seglog_rescue.doctor.partition_start import examine_partition
from tests.support.broken.mutated_directories import mutate
from tests.support.broken.sound_directories import SOUND, copied, killed_copy, sound_directory
from tests.support.effort import first_seed, tries
from tests.support.open_logs import START_MS

FS = LocalFileSystem()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of sound partitions."""
    return sound_directory(tmp_path_factory.mktemp("sound") / "logs")


def word(
    path: Path, *, examined: bool, monkeypatch: pytest.MonkeyPatch, stated: Sequence[str] = ()
) -> tuple[list[Diagnosis], DoctorSummary]:
    """Doctor's rows and summary with the `stated` settings; with `examined` every partition is examined."""
    given = load_settings(FS, overrides=stated, environment={"HOME": "/nowhere"}, working_directory=Path("/nowhere"))
    with monkeypatch.context() as patch:
        if examined:
            patch.setattr(visit, "sound_log", lambda *_: None)
        doctor = Doctor(FS, [path], FixedClock(START_MS), lambda each: DirectorySettings(FS, each, given))
        return list(doctor), doctor.summary


def examined_in(path: Path, monkeypatch: pytest.MonkeyPatch, stated: Sequence[str] = ()) -> list[str]:
    """The names of the partitions that doctor examines."""
    names: list[str] = []

    def examine(facts: PartitionFacts, deep: bool) -> Iterator[Diagnosis]:
        names.append(facts.listing.directory.name)
        yield from examine_partition(facts, deep)

    with monkeypatch.context() as patch:
        patch.setattr("seglog_rescue.doctor.doctor.examine_partition", examine)
        word(path, examined=False, monkeypatch=monkeypatch, stated=stated)
    return names


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_log_is_known_by_one_reading_of_its_files(sound: Path, name: str) -> None:
    log = sound_log(FS, sound / name)
    assert log is not None
    assert (log.base_offset, log.end_offset) == (0, 0 if name == "empty-0" else 36)


def test_nothing_is_examined_of_partitions_that_a_start_leaves_as_they_are(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, summary = word(sound, examined=False, monkeypatch=monkeypatch)
    assert (rows, summary.partitions, examined_in(sound, monkeypatch)) == ([], len(SOUND), [])
    killed = killed_copy(sound, tmp_path / "killed")
    assert examined_in(killed, monkeypatch) == []
    (killed / ".kafka_cleanshutdown").touch()
    padded = {path.parent.name for path in killed.glob("[!r]*-0/*30.index")}
    assert len(padded) == 3
    assert set(examined_in(killed, monkeypatch)) == padded


def test_doctors_word_is_the_examinations_on_mutated_directories(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first_seed(0), first_seed(0) + tries(25)):
        path = (copied, killed_copy)[seed % 2](sound, tmp_path / str(seed))
        did = mutate(path, random.Random(seed))
        words: list[object] = []
        for examined in (False, True):
            try:
                words.append(word(path, examined=examined, monkeypatch=monkeypatch))
            except (OSError, SeglogError) as error:
                words.append(str(error))
        assert words[0] == words[1], (seed, did)
        shutil.rmtree(path)


def _cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def _later(path: Path) -> None:
    path.write_text("0\n1\nepochs 0 37\n")


def _padded(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(24))


def _new_epoch(path: Path) -> None:
    path.write_text(path.read_text().replace("0\n3\n", "0\n4\n") + "9 36\n")


def _empty_snapshot(path: Path) -> None:
    path.write_bytes(encode_snapshot(()))


CHANGES: dict[str, tuple[str, Callable[[Path], None], bool]] = {
    "a log without its last byte": ("epochs-0/00000000000000000030.log", _cut, False),
    "a checkpoint beyond the end": ("replication-offset-checkpoint", _later, False),
    "an index with zeros": ("epochs-0/00000000000000000015.timeindex", _padded, False),
    "no index": ("epochs-0/00000000000000000015.index", Path.unlink, False),
    "no snapshot at the end": ("epochs-0/00000000000000000036.snapshot", Path.unlink, False),
    "a strange file": ("epochs-0/strange", Path.touch, False),
    "an epoch that begins at the end": ("epochs-0/leader-epoch-checkpoint", _new_epoch, True),
    "a snapshot of an earlier stop": ("epochs-0/00000000000000000033.snapshot", _empty_snapshot, True),
    "a snapshot within a batch": ("epochs-0/00000000000000000032.snapshot", _empty_snapshot, False),
    "no epochs": ("epochs-0/leader-epoch-checkpoint", Path.unlink, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_partition_with_anything_unusual_is_examined(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, change, unexamined = CHANGES[name]
    path = copied(sound, tmp_path / "logs")
    change(path / file)
    assert examined_in(path, monkeypatch) == ([] if unexamined else ["epochs-0"])


def test_room_for_a_recovery_is_planned_only_where_it_may_be_short(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = copied(sound, tmp_path / "killed")
    (killed / ".kafka_cleanshutdown").unlink()
    for index in killed.glob("*-0/*.index"):
        index.write_bytes(b"")
    for snapshot in killed.glob("*-0/*.snapshot"):
        snapshot.unlink()  # a recovery writes them again
    codes = {}
    for free in (1 << 40, 20_000, 0):
        monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda *_, free=free: free)
        quick = word(killed, examined=False, monkeypatch=monkeypatch)
        assert quick == word(killed, examined=True, monkeypatch=monkeypatch)
        codes[free] = [row.code for row in quick[0]]
    assert (codes[1 << 40], codes[0]) == ([], ["NO_ROOM"])


@pytest.mark.parametrize(
    "stated", ["cleanup.policy=compact", "remote.storage.enable=true", "segment.index.bytes=8"], ids=lambda text: text
)
def test_what_the_configuration_says_may_make_a_sound_log_unusual(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str
) -> None:
    path = copied(sound, tmp_path / "logs")
    (path / ".kafka_cleanshutdown").unlink()
    assert examined_in(path, monkeypatch, [stated])
