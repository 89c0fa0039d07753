"""Staging and committing rows, without Spark: all of a write is visible, or nothing is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from seglog.clock import ManualClock
from seglog.errors import AppendError, ConfigError, LockedError, NotALogError, OffsetsOutOfOrderError, UnsupportedError
from seglog.model import Record, TopicPartition
from seglog.spark.write_options import WriteOptions, parse_write_options
from seglog.spark.writer import Commit, StagedFile, check_place, stage_rows
from seglog.storage.filesystem import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from tests.support.compacted_directories import opened
from tests.support.open_logs import START_MS

FS = LocalFileSystem()
CLOCK = ManualClock(START_MS)


def options(path: Path, **given: str) -> WriteOptions:
    return parse_write_options({"path": str(path), **given})


def staged(home: Path, partition: int, first: int, count: int, attempt: int = 0) -> list[StagedFile]:
    """A task's rows with offsets of their own."""
    rows = {
        "value": pa.array([b"v%d" % (first + i) for i in range(count)], pa.binary()),
        "topic": pa.array(["t"] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
    }
    return stage_rows(FS, home / "staging", options(home / "logs"), [pa.record_batch(rows)], attempt)


def commit(home: Path, *files: StagedFile, batch: int | None = None, identity: str | None = None) -> int:
    return Commit(FS, options(home / "logs"), CLOCK, identity).run(files, batch)


def offsets(home: Path, partition: int) -> list[int | None]:
    with opened(home / "logs", writable=False) as directory:
        name = TopicPartition("t", partition)
        if not (home / "logs" / str(name)).exists():
            return []
        return [record.offset for record in directory.log(name).records()]


def test_what_fails_in_one_partition_is_taken_back_in_all(tmp_path: Path) -> None:
    assert commit(tmp_path, *staged(tmp_path, 0, 0, 5), *staged(tmp_path, 1, 0, 5)) == 10
    more = staged(tmp_path, 0, 5, 5, attempt=1)
    behind = staged(tmp_path, 1, 3, 5, attempt=1)
    with pytest.raises(OffsetsOutOfOrderError, match=r"t-1: rows begin at offset 3, and the log ends at 5"):
        commit(tmp_path, *more, *behind)
    assert (offsets(tmp_path, 0), offsets(tmp_path, 1)) == (list(range(5)), list(range(5)))


def test_rows_continue_the_leader_epoch_of_a_log_and_none_is_left_out(tmp_path: Path) -> None:
    commit(tmp_path, *staged(tmp_path, 0, 0, 5))
    with opened(tmp_path / "logs", writable=True) as directory:
        directory.log(TopicPartition("t", 0)).append([Record(b"v", b"k", START_MS)], leader_epoch=7)
    assert commit(tmp_path, *staged(tmp_path, 0, 6, 5, attempt=1)) == 5
    assert offsets(tmp_path, 0) == list(range(11))
    with opened(tmp_path / "logs", writable=False) as directory:
        assert directory.log(TopicPartition("t", 0)).leader_epoch == 7


def test_small_segments_are_rolled_as_they_fill(tmp_path: Path) -> None:
    files = [file for first in range(0, 400, 50) for file in staged(tmp_path, 0, first, 50, attempt=first)]
    small = options(tmp_path / "logs", segmentBytes="2000")
    assert Commit(FS, small, CLOCK).run(files) == 400
    sizes = [path.stat().st_size for path in (tmp_path / "logs" / "t-0").glob("*.log")]
    assert len(sizes) > 1 and max(sizes) <= 2000
    assert offsets(tmp_path, 0) == list(range(400))


def test_tasks_that_share_a_partition_must_not_overlap(tmp_path: Path) -> None:
    overlapping = [*staged(tmp_path, 0, 0, 5), *staged(tmp_path, 0, 3, 5, attempt=1)]
    with pytest.raises(OffsetsOutOfOrderError, match="two tasks with one partition must not overlap"):
        commit(tmp_path, *overlapping)
    assert offsets(tmp_path, 0) == []


def test_what_a_killed_driver_left_half_done_is_cut_off_by_the_next_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(tmp_path, *staged(tmp_path, 0, 0, 5))

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    more = [*staged(tmp_path, 0, 5, 5, attempt=1), *staged(tmp_path, 1, 0, 5, attempt=1)]
    (tmp_path / "staging" / "t-1.1.batches").unlink()  # the driver comes as far as here
    with monkeypatch.context() as patch:
        patch.setattr(Commit, "_take_back", killed)
        with pytest.raises(Killed):
            commit(tmp_path, *more)
    assert offsets(tmp_path, 0) == list(range(10))  # without this the rest would show nothing
    assert commit(tmp_path, *staged(tmp_path, 1, 0, 2, attempt=2)) == 2
    assert (offsets(tmp_path, 0), offsets(tmp_path, 1)) == (list(range(5)), [0, 1])


def test_a_batch_of_a_stream_that_comes_twice_is_appended_once(tmp_path: Path) -> None:
    assert commit(tmp_path, *staged(tmp_path, 0, 0, 5), batch=0, identity="sink") == 5
    assert commit(tmp_path, *staged(tmp_path, 0, 0, 5, attempt=1), batch=0, identity="sink") == 0
    assert commit(tmp_path, *staged(tmp_path, 0, 5, 5, attempt=2), batch=1, identity="sink") == 5
    assert offsets(tmp_path, 0) == list(range(10))


def test_a_directory_that_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    commit(tmp_path, *staged(tmp_path, 0, 0, 5))
    more = staged(tmp_path, 0, 5, 5, attempt=1)
    with DirectoryLock(tmp_path / "logs"), pytest.raises(LockedError, match="logs is locked by process"):
        commit(tmp_path, *more)
    assert offsets(tmp_path, 0) == list(range(5))


def test_a_broken_journal_is_named(tmp_path: Path) -> None:
    commit(tmp_path, *staged(tmp_path, 0, 0, 5))
    (tmp_path / "logs" / ".seglog-write.json").write_text("{")
    with pytest.raises(ConfigError, match=r"\.seglog-write\.json"):
        commit(tmp_path, *staged(tmp_path, 0, 5, 5, attempt=1))
    assert offsets(tmp_path, 0) == list(range(5))


@pytest.mark.parametrize("numbers", [[5, 5], [5, 4], [-1, 0], [None, 0]])
def test_offsets_must_ascend_and_the_row_is_named(tmp_path: Path, numbers: list[int | None]) -> None:
    rows = {"value": pa.array([b"v", b"v"], pa.binary()), "offset": pa.array(numbers, pa.int64())}
    batches = [pa.record_batch(rows)]
    with pytest.raises(AppendError, match=r"t-3: row [01] of the task: .*offset"):
        stage_rows(FS, tmp_path / "staging", options(tmp_path / "logs", topic="t", partition="3"), batches, 0)


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_place(FS, options(tmp_path / "new" / "logs"))
    for path in (tmp_path / "file", tmp_path / "file" / "below" / "logs"):
        with pytest.raises(NotALogError, match="file: not a directory"):
            check_place(FS, options(path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a path is missing"),
        ({"path": "logs"}, "'logs' is relative"),
        ({"path": "/x", "colour": "red"}, "no such option: colour; options are path"),
        ({"path": "/x", "compression": "brotli"}, "there is no codec 'brotli'; codecs are none, gzip"),
        ({"path": "/x", "partition": "-1"}, "partition: '-1' is not a number"),
        ({"path": "/x", "segmentBytes": "0"}, "segmentBytes: it must be at least 1 byte"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_write_options(given)


def test_another_scheme_and_overwriting_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="mounted file systems"):
        parse_write_options({"path": "s3a://bucket/logs"})
    with pytest.raises(UnsupportedError, match=r"say \.mode\('append'\)"):
        parse_write_options({"path": "/x"}, overwrite=True)
