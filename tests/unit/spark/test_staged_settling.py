"""Settling an append to two partitions from what its journal says, whatever of it is in the logs.

How such appends come about, and that none is lost at any moment: `test_staged_append`, here and in tests/crash.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark import staged_settling
from seglog_ask.spark.staged_journal import (
    AppendJournal,
    Placement,
    StreamBatch,
    last_batch,
    read_journal,
    record_batch,
    write_journal,
)
from seglog_ask.spark.staged_settling import discard_staged, settle_append
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.support.staged_rows import stage

FS = LocalFileSystem()
T, U = TopicPartition("t", 0), TopicPartition("u", 0)
BATCH = StreamBatch("q", 1)
ROWS = {T: [b"t%d" % n for n in range(6)], U: [b"u%d" % n for n in range(6)]}


class Unfinished:
    """An append of six rows in three batches to each of t-0 and u-0, which both had one record; none of it is there."""

    def __init__(self, home: Path) -> None:
        self.logs, self.staging = home / "logs", home / ".seglog-write-logs-x"
        self.logs.mkdir()
        (self.logs / "meta.properties").write_text("version=1\n")
        for name in (T, U):
            self.append(name, b"first")
        files = {name: stage(FS, self.staging, str(name), rows) for name, rows in ROWS.items()}
        self.placements = tuple(Placement(name, 1, 0, (file,)) for name, file in files.items())
        self.journal = AppendJournal(self.staging.name, self.placements)
        write_journal(FS, self.logs, self.journal)

    def opened(self) -> LogDirectory:
        return LogDirectory.open(
            self.logs, fs=FS, clock=ManualClock(START_MS), config_of=lambda _: LogConfig(), writable=True, settle=False
        )

    def append(self, name: TopicPartition, *values: bytes, epoch: int | None = None) -> None:
        """What somebody else writes."""
        with self.opened() as directory:
            records = [Record(value, b"k") for value in values]
            directory.log(name, create=True).append(records, leader_epoch=epoch)

    def arrive(self, name: TopicPartition, batches: int) -> None:
        """So many of the three batches of a partition reach its log."""
        (file,) = (file for one in self.placements for file in one.files if one.topic_partition == name)
        data = (self.staging / file.name).read_bytes()
        each = len(data) // 3
        with self.opened() as directory:
            log = directory.log(name)
            for at in range(0, batches * each, each):
                batch = data[at : at + each]
                log.append_as_follower(log.log_end_offset.to_bytes(8, "big") + batch[8:], 0)

    def settle(self) -> None:
        settle_append(FS, self.logs, self.opened)

    def journal_says(self, **what: object) -> None:
        self.journal = replace(self.journal, **what)  # type: ignore[arg-type]
        write_journal(FS, self.logs, self.journal)

    def values(self, name: TopicPartition) -> list[bytes | None]:
        with self.opened() as directory:
            return [record.value for record in directory.log(name).records()]

    @property
    def is_settled(self) -> bool:
        return read_journal(FS, self.logs) is None and not self.staging.exists()


@pytest.fixture
def unfinished(tmp_path: Path) -> Unfinished:
    return Unfinished(tmp_path)


@pytest.mark.parametrize("stream", [None, BATCH])
def test_what_arrived_anywhere_is_taken_back_where_nobody_followed(
    unfinished: Unfinished, stream: StreamBatch | None
) -> None:
    unfinished.journal_says(stream=stream)
    unfinished.arrive(T, 3)
    unfinished.arrive(U, 1)
    unfinished.settle()
    assert unfinished.values(T) == unfinished.values(U) == [b"first"]
    assert unfinished.is_settled


def test_others_records_in_place_of_the_appends_own_stay(unfinished: Unfinished) -> None:
    """Nothing of it reached u-0 before others wrote there: they followed nothing."""
    unfinished.arrive(T, 2)
    unfinished.append(U, b"a broker's")
    unfinished.settle()
    assert (unfinished.values(T), unfinished.values(U)) == ([b"first"], [b"first", b"a broker's"])
    assert unfinished.is_settled


def test_an_old_checkpoint_of_the_cleaner_keeps_nothing_from_being_taken_back(unfinished: Unfinished) -> None:
    """Where nobody followed there was nothing that a cleaner could have cleaned: the log ends with the append's own."""
    unfinished.arrive(T, 2)
    (unfinished.logs / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    unfinished.settle()
    assert unfinished.values(T) == [b"first"] and unfinished.is_settled


def test_one_partition_that_others_followed_in_completes_a_streams_batch_in_all(unfinished: Unfinished) -> None:
    unfinished.journal_says(stream=BATCH)
    unfinished.arrive(T, 1)
    unfinished.append(T, b"a broker's")
    unfinished.settle()
    assert unfinished.values(T) == [b"first", *ROWS[T][:2], b"a broker's", *ROWS[T][2:]]
    assert unfinished.values(U) == [b"first", *ROWS[U]]
    assert unfinished.is_settled and last_batch(FS, unfinished.logs, BATCH.query) == BATCH


def test_one_partition_that_others_followed_in_keeps_a_jobs_rows_everywhere(unfinished: Unfinished) -> None:
    unfinished.arrive(T, 1)
    unfinished.arrive(U, 3)
    unfinished.append(T, b"a broker's")
    with pytest.raises(
        RefusedError, match=r"another writer has written after it \(t-0 from offset 1 on\); nothing was changed"
    ):
        unfinished.settle()
    assert unfinished.values(U) == [b"first", *ROWS[U]] and read_journal(FS, unfinished.logs) == unfinished.journal


def test_what_is_completed_has_the_leader_epoch_that_the_log_is_in_by_now(unfinished: Unfinished) -> None:
    unfinished.journal_says(stream=BATCH)
    unfinished.arrive(T, 1)
    unfinished.append(T, b"a broker's", epoch=5)
    unfinished.settle()
    with unfinished.opened() as directory:
        log = directory.log(T)
        assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries] == [(0, 0), (5, 3)]
        assert log.leader_epoch == 5 and log.log_end_offset == 8


def test_a_completion_that_is_cut_short_is_gone_on_with_and_not_taken_back(
    unfinished: Unfinished, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished.journal_says(stream=BATCH)
    unfinished.arrive(T, 1)
    unfinished.append(T, b"a broker's")

    def gone(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(staged_settling, "append_placed", gone)
        unfinished.settle()
    assert unfinished.values(T) == [b"first", *ROWS[T][:2], b"a broker's"]
    unfinished.settle()
    assert unfinished.values(T) == [b"first", *ROWS[T][:2], b"a broker's", *ROWS[T][2:]]
    assert unfinished.values(U) == [b"first", *ROWS[U]]
    assert unfinished.is_settled


def test_an_append_that_can_only_be_completed_is_not_taken_back(unfinished: Unfinished) -> None:
    unfinished.journal_says(stream=BATCH, forward=True)
    unfinished.arrive(U, 2)
    unfinished.settle()
    assert (unfinished.values(T), unfinished.values(U)) == ([b"first", *ROWS[T]], [b"first", *ROWS[U]])


def test_of_a_batch_that_is_recorded_only_the_journal_and_the_staged_files_go(unfinished: Unfinished) -> None:
    unfinished.journal_says(stream=BATCH)
    for name in (T, U):
        unfinished.arrive(name, 3)
    record_batch(FS, unfinished.logs, BATCH)
    unfinished.settle()
    assert (unfinished.values(T), unfinished.values(U)) == ([b"first", *ROWS[T]], [b"first", *ROWS[U]])
    assert unfinished.is_settled


def test_a_partition_that_is_gone_needs_nothing_taken_back(unfinished: Unfinished) -> None:
    unfinished.arrive(T, 1)
    (unfinished.logs / "u-0").rename(unfinished.logs.parent / "u-0")
    unfinished.settle()
    assert unfinished.values(T) == [b"first"] and unfinished.is_settled


# --- staged files


def test_another_writes_staged_files_go_whatever_their_names(unfinished: Unfinished) -> None:
    other = unfinished.logs.parent / ".seglog-write-logs-y"
    other.mkdir()
    for path in unfinished.staging.iterdir():
        (other / path.name).touch()
    discard_staged(FS, unfinished.logs, other)
    assert not other.exists() and len(list(unfinished.staging.iterdir())) == 2
    discard_staged(FS, unfinished.logs, unfinished.staging)  # an unfinished append still needs these
    assert len(list(unfinished.staging.iterdir())) == 2


def test_what_else_is_in_the_staging_directory_stays_without_a_word(
    unfinished: Unfinished, caplog: pytest.LogCaptureFixture
) -> None:
    (unfinished.staging / "of a task that runs on").touch()
    unfinished.settle()
    assert [path.name for path in unfinished.staging.iterdir()] == ["of a task that runs on"]
    assert "cannot be removed" not in caplog.text
