"""Which log is cleaned next, what becomes of checkpoints, and of logs that cannot be cleaned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.dirtiness import LogToClean, log_to_clean
from seglog.cleaner.manager import CleanerManager, Uncleanable
from seglog.cleaner.round import CleanerOptions
from seglog.configuration.keys import LONG_MAX
from seglog.errors import CorruptCheckpointError, CorruptRecordError, RefusedError
from seglog.log.checkpoints import check_checkpoints
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.model import Record, TopicPartition
from seglog.scan.listing import list_log_directory
from tests.support.compacted_directories import FS, broker_directory, fill, opened
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
HOUR_MS = 3_600_000


def manager_of(directory: LogDirectory, uncleanable: dict[TopicPartition, Uncleanable] | None = None) -> CleanerManager:
    logs = [directory.log(found.topic_partition) for found in list_log_directory(FS, directory.path).live]
    return CleanerManager(directory, logs, ManualClock(START_MS + HOUR_MS), uncleanable)


def a_log(directory: LogDirectory, segments: int = 3) -> Log:
    fill(directory, "a-0", segments, 5)
    return directory.log(A)


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return opened(broker_directory(tmp_path / "logs", {}))


def test_a_log_that_was_never_cleaned_is_all_dirty(directory: LogDirectory) -> None:
    log = a_log(directory)
    found = log_to_clean(log, None, START_MS)
    closed = sum(segment.size for segment in log.segments)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 120)
    assert (found.clean_bytes, found.cleanable_bytes, found.cleanable_ratio) == (0, closed, 1.0)
    assert found.eligible


def test_a_segment_that_is_clean_in_part_counts_twice_as_in_kafka(directory: LogDirectory) -> None:
    log = a_log(directory, segments=1)
    found = log_to_clean(log, 20, START_MS)
    assert (found.clean_bytes, found.cleanable_bytes) == (log.segments.first.size, log.segments.first.size)
    assert (found.cleanable_ratio, found.eligible) == (0.5, False)
    assert "not more than min.cleanable.dirty.ratio 0.5" in found.why


def test_nothing_before_the_checkpoint_is_dirty(directory: LogDirectory) -> None:
    found = log_to_clean(a_log(directory), 120, START_MS)
    assert (found.cleanable_bytes, found.eligible) == (0, False)
    assert "nothing is cleanable" in found.why


def test_an_empty_log_is_never_eligible(directory: LogDirectory) -> None:
    found = log_to_clean(directory.log(A, create=True), None, START_MS)
    assert (found.total_bytes, found.cleanable_ratio, found.eligible) == (0, 0.0, False)


@pytest.mark.parametrize(("lag", "delay"), [(HOUR_MS, 0), (HOUR_MS - 80, 76)])
def test_an_overdue_record_makes_a_log_eligible_whatever_its_ratio(tmp_path: Path, lag: int, delay: int) -> None:
    path = broker_directory(tmp_path / "logs", {"a-0": (3, 5)})
    directory = opened(path, max_compaction_lag_ms=lag, min_cleanable_dirty_ratio=1.0)
    found = log_to_clean(directory.log(A), 0, START_MS + HOUR_MS)
    assert found.delay_ms == delay  # the first batch's newest record is 4 ms younger than the log
    assert found.eligible == (delay > 0)


def test_the_filthiest_is_found_anew_at_each_ask(directory: LogDirectory) -> None:
    fill(directory, "a-0", 3, 5)
    fill(directory, "b-0", 3, 5)
    directory.write_cleaner_offset(B, 40)
    manager = manager_of(directory)
    log, found = manager.take_filthiest() or pytest.fail("nothing to clean")
    assert log.topic_partition == A
    result = clean_log(log, CleanerOptions(), ManualClock(START_MS), found.first_dirty_offset)
    manager.done(found, result.end_offset)
    assert directory.cleaner_offsets[A] == 120
    assert [taken[0].topic_partition for taken in [manager.take_filthiest()] if taken] == [B]
    assert manager.take_filthiest() is None


@pytest.mark.parametrize("lag", [0, HOUR_MS])
def test_logs_are_handed_out_in_the_order_that_a_broker_finds_anew_each_time(tmp_path: Path, lag: int) -> None:
    sizes = {f"{name}-0": (count, 5) for name, count in zip("abcdefgh", (2, 7, 3, 5, 9, 4, 8, 6), strict=True)}
    directory = opened(broker_directory(tmp_path / "logs", sizes), max_compaction_lag_ms=lag or LONG_MAX)
    manager = manager_of(directory)
    for _ in range(2):  # logs that are released are handed out once more
        taken = []
        while (filthiest := next((each for each in manager.candidates() if each.eligible), None)) is not None:
            log, state = manager.take_filthiest() or pytest.fail("nothing to clean")
            assert state == filthiest and log.topic_partition == state.topic_partition
            taken.append(log.topic_partition)
        assert manager.take_filthiest() is None
        assert len(taken) == len(sizes)
        for key in taken:
            manager.release(key)


def test_a_log_is_judged_once_however_many_others_are_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = opened(broker_directory(tmp_path / "logs", {f"{name}-0": (3, 5) for name in "abcdefgh"}))
    manager = manager_of(directory)
    judged: list[TopicPartition] = []

    def counted(log: Log, *rest: Any) -> LogToClean:
        judged.append(log.topic_partition)
        return log_to_clean(log, *rest)

    monkeypatch.setattr("seglog.cleaner.manager.log_to_clean", counted)
    while manager.take_filthiest() is not None:
        pass
    assert len(judged) == len(set(judged)) == 8


def test_a_log_in_progress_is_handed_to_nobody_else(directory: LogDirectory) -> None:
    a_log(directory)
    manager = manager_of(directory)
    assert manager.take_filthiest() is not None
    assert manager.take_filthiest() is None
    assert manager.take(A) is None
    manager.release(A)
    assert manager.take(A) is not None


@pytest.mark.parametrize("checkpoint", [1000, -5])
def test_a_checkpoint_outside_the_log_is_set_back_to_the_log_start(directory: LogDirectory, checkpoint: int) -> None:
    a_log(directory)
    directory.write_cleaner_offset(A, checkpoint)
    taken = manager_of(directory).take_filthiest()
    assert taken is not None
    assert taken[1].checkpoint_reset
    assert directory.cleaner_offsets[A] == 0


def test_a_failed_log_is_left_alone_until_its_files_change(directory: LogDirectory) -> None:
    log = a_log(directory)
    uncleanable: dict[TopicPartition, Uncleanable] = {}
    manager = manager_of(directory, uncleanable)
    manager.take_filthiest()
    manager.failed(A, CorruptRecordError(log.segments.first.path, "the checksum is wrong", 0))
    assert "the checksum is wrong" in uncleanable[A].reason
    assert uncleanable[A].bytes == log.segments.size
    assert manager.take_filthiest() is None
    assert manager.take(A) is None
    assert manager_of(directory, uncleanable).take_filthiest() is None
    log.append([Record(b"v", b"k", START_MS)])
    log.flush()
    assert manager_of(directory, uncleanable).take_filthiest() is not None
    assert not uncleanable


def test_want_of_room_is_tried_again_by_the_next_manager(directory: LogDirectory) -> None:
    a_log(directory)
    uncleanable: dict[TopicPartition, Uncleanable] = {}
    manager = manager_of(directory, uncleanable)
    manager.take_filthiest()
    manager.failed(A, RefusedError("no room"))
    assert manager.take_filthiest() is None
    assert manager_of(directory, uncleanable).take_filthiest() is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n2\na 0 5\na 0 7\n", "line 4: a-0 is listed twice"),
        ("0\n1\na 0 many\n", "line 3: 'many' is not a number"),
        ("0\n3\na 0 5\n", "3 entries are announced, 1 follow"),
        ("9\n0\n", "version 9"),
    ],
)
def test_damaged_checkpoints_are_refused_by_name_and_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text(text)
    with pytest.raises(CorruptCheckpointError, match=message):
        check_checkpoints(FS, tmp_path)


def test_good_and_missing_checkpoints_are_no_matter(tmp_path: Path) -> None:
    check_checkpoints(FS, tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n2\na 0 5\na 1 7\n")
    check_checkpoints(FS, tmp_path)


@pytest.mark.parametrize("entry", [" 0 5", "a\x85b 0 5", "\u2028 0 5", "a -3 -5", "a\t\v0 7"])
def test_an_entry_that_kafka_can_read_is_no_matter_however_odd(tmp_path: Path, entry: str) -> None:
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n2\n{entry}\nb 0 7\n")
    check_checkpoints(FS, tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n2\n{entry}\n{entry}\n")
    with pytest.raises(CorruptCheckpointError, match=r"line 4: .* listed twice \(first in line 3\)"):
        check_checkpoints(FS, tmp_path)
