"""Of the logs of a directory one is open at a time, and yet they are cleaned in the order of a broker."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.cleaner.ranking import Ranking
from seglog.cleaner.round import CleanerOptions
from seglog.log.append import ProducerIdentity
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.operations.clean import Cleaned, Outcome, Skipped
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from tests.support.compacted_directories import FS, Topics, broker_directory, clean, fill, opened
from tests.support.log_files import contents_below
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

NAMES = [f"{name}-0" for name in "abcdefghijkl"]
DRY = pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "run"])


class Watching(LocalFileSystem):
    """Notes in how many partitions files of logs were open at once, and in which partitions any was opened."""

    def __init__(self) -> None:
        self._files: list[LocalFile] = []
        self.at_once, self.opened = 0, set[str]()

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        file = super().open(path, mode)
        if path.suffix in (".log", ".index", ".timeindex"):
            self._files = [*(one for one in self._files if one.fileno() >= 0), file]
            self.at_once = max(self.at_once, len({one.path.parent for one in self._files}))
            self.opened.add(path.parent.name)
        return file


def directory_of_many(path: Path) -> Path:
    """A directory of logs of several sizes and dirty ratios, some of them not dirty enough, or empty."""
    chance = random.Random(5)
    segments = {name: chance.randrange(5) for name in NAMES}
    logs = broker_directory(path, {name: (count, 5) for name, count in segments.items()})
    with opened(logs) as directory:
        for name in NAMES[::2]:
            directory.write_cleaner_offset(TopicPartition(name[0], 0), 40 * chance.randrange(segments[name] + 1))
    return logs


def cleaned(logs: Path, fs: LocalFileSystem, *, dry_run: bool, **config: object) -> list[Outcome]:
    topics = Topics(cleanup_policy="compact", **config)
    return clean(fs, [logs], topics, ManualClock(START_MS), CleanerOptions(), dry_run=dry_run)


def told(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """What each outcome says, without times and paths."""
    return [
        (one.result.topic_partition, one.result.end_offset, one.result.segments_after, one.active_bytes)
        if isinstance(one, Cleaned)
        else (one.directory.name, one.reason if isinstance(one, Skipped) else one.error)
        for one in outcomes
    ]


@DRY
def test_the_order_is_that_of_open_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool) -> None:
    logs = directory_of_many(tmp_path / "logs")
    shutil.copytree(logs, tmp_path / "again" / "logs")
    fs = Watching()
    one_by_one = cleaned(logs, fs, dry_run=dry_run)
    assert fs.at_once == 1
    assert sum(isinstance(one, Cleaned) for one in one_by_one) == len(fs.opened) >= 4
    assert sum(isinstance(one, Skipped) for one in one_by_one) >= 4
    monkeypatch.setattr(Ranking, "add", lambda *_: False)
    monkeypatch.setattr("seglog.cleaner.manager.CleanerManager.withdraw", lambda *_: False)
    assert told(one_by_one) == told(cleaned(tmp_path / "again" / "logs", FS, dry_run=dry_run))
    assert contents_below(logs) == contents_below(tmp_path / "again" / "logs")


def with_leftover(partition: Path) -> None:
    (partition / "00000000000000000000.log.cleaned").touch()


def without_index(partition: Path) -> None:
    min(partition.glob("*.index")).unlink()


def without_snapshots(partition: Path) -> None:
    for path in partition.glob("*.snapshot"):
        path.unlink()


def with_a_checkpoint_above_the_active_segment(partition: Path) -> None:
    (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\na 0 121\n")


def not_stopped(partition: Path) -> None:
    (partition.parent / ".kafka_cleanshutdown").unlink()


@pytest.mark.parametrize(
    "change",
    [with_leftover, without_index, without_snapshots, with_a_checkpoint_above_the_active_segment, not_stopped],
)
@DRY
def test_what_names_do_not_tell_is_asked_of_the_log(
    tmp_path: Path, change: Callable[[Path], None], *, dry_run: bool
) -> None:
    logs = broker_directory(tmp_path / "logs", {"a-0": (3, 5)})
    change(logs / "a-0")
    fs = Watching()
    outcomes = cleaned(logs, fs, dry_run=dry_run, min_cleanable_dirty_ratio=1)  # nothing is due, so nothing is opened
    assert [type(one) for one in outcomes] == [Skipped]
    assert fs.opened == {"a-0"}


@pytest.mark.parametrize("ends", [True, False])
def test_an_open_transaction_is_asked_of_the_log(tmp_path: Path, *, ends: bool) -> None:
    logs, producer = broker_directory(tmp_path / "logs", {}), ProducerIdentity(7, 0, 0, transactional=True)
    with opened(logs) as directory:
        log = directory.log(TopicPartition("a", 0), create=True)
        log.append([Record(b"v", b"k", START_MS)], producer=producer)
        if ends:
            log.append_end_txn_marker(producer, commit=True)
        log.roll()
    with opened(logs) as directory:
        fill(directory, "a-0", 2, 5)
    fs = Watching()
    outcomes = cleaned(logs, fs, dry_run=True, min_cleanable_dirty_ratio=1)
    assert [type(one) for one in outcomes] == [Skipped]
    assert ("a transaction is open" in str(outcomes[0])) != ends
    assert bool(fs.opened) != ends


def test_a_closed_log_has_its_entries_in_the_checkpoints_at_the_end(tmp_path: Path) -> None:
    logs = broker_directory(tmp_path / "logs", {"a-0": (3, 5), "b-0": (2, 5)})
    points = (logs / "recovery-point-offset-checkpoint").read_text()
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "recovery-point-offset-checkpoint").unlink()
    with LogDirectory.open(logs, fs=FS, clock=ManualClock(START_MS), writable=True) as directory:
        for log in directory.load_all():
            directory.close_log(log)
        assert not (logs / ".kafka_cleanshutdown").exists()
    assert (logs / "recovery-point-offset-checkpoint").read_text() == points
    assert (logs / ".kafka_cleanshutdown").exists()
