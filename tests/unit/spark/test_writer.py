"""Staging and committing rows, without Spark: all of a write is visible, or nothing is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from seglog.errors import (
    AppendError,
    ConfigError,
    CorruptRecordError,
    IncompleteError,
    LockedError,
    NotALogError,
    OffsetsOutOfOrderError,
    RefusedError,
    UnsupportedError,
)
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from seglog_ask.spark.sinks import LocalSink, checkpoint_entry, sink_of, staging_of
from seglog_ask.spark.staged_journal import StagedFile, StreamBatch
from seglog_ask.spark.write_options import WriteOptions, parse_write_options
from seglog_ask.spark.writer import stage_rows
from tests.support.compacted_directories import opened
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

FS = LocalFileSystem()
CLOCK = ManualClock(START_MS)


def options(path: Path, **given: str) -> WriteOptions:
    return parse_write_options({"path": str(path), **given})


def staged(home: Path, partition: int, first: int, count: int, owner: str = "job") -> list[StagedFile]:
    """Stages a task's rows with offsets of their own."""
    rows = {
        "value": pa.array([b"v%d" % (first + i) for i in range(count)], pa.binary()),
        "topic": pa.array(["t"] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
    }
    chosen = options(home / "logs")
    return stage_rows(FS, staging_of(chosen.path, owner), chosen, [pa.record_batch(rows)])


def numbered(home: Path, count: int, owner: str = "job") -> list[StagedFile]:
    """Stages a task's rows for t-0 without offsets."""
    rows = {"value": pa.array([b"v"] * count, pa.binary())}
    chosen = options(home / "logs", topic="t")
    return stage_rows(FS, staging_of(chosen.path, owner), chosen, [pa.record_batch(rows)])


def write(home: Path, *files: StagedFile, stream: StreamBatch | None = None, **given: str) -> int:
    chosen = options(home / "logs", lockWait="0", **given)
    return LocalSink(chosen, CLOCK).commit("job" if stream is None else stream.query, files, stream)


def offsets(home: Path, partition: int) -> list[int | None]:
    with opened(home / "logs", writable=False) as directory:
        name = TopicPartition("t", partition)
        if not (home / "logs" / str(name)).exists():
            return []
        return [record.offset for record in directory.log(name).records()]


def left_behind(home: Path) -> list[str]:
    """Returns what a write must not leave: staged files and journals."""
    return [path.name for path in [*home.iterdir(), *(home / "logs").iterdir()] if path.name.startswith(".seglog-")]


def test_what_fails_in_one_partition_is_taken_back_in_all(tmp_path: Path) -> None:
    assert write(tmp_path, *staged(tmp_path, 0, 0, 5), *staged(tmp_path, 1, 0, 5)) == 10
    more, after = staged(tmp_path, 0, 5, 5), staged(tmp_path, 1, 3, 5)
    with pytest.raises(OffsetsOutOfOrderError, match=r"t-1: rows begin at offset 3, and the log ends at 5"):
        write(tmp_path, *more, *after)
    assert (offsets(tmp_path, 0), offsets(tmp_path, 1)) == (list(range(5)), list(range(5)))
    assert left_behind(tmp_path) == []


def test_small_segments_are_rolled_as_they_fill(tmp_path: Path) -> None:
    files = [file for first in range(0, 400, 50) for file in staged(tmp_path, 0, first, 50)]
    assert write(tmp_path, *files, segmentBytes="2000") == 400
    sizes = [path.stat().st_size for path in (tmp_path / "logs" / "t-0").glob("*.log")]
    assert len(sizes) > 1 and max(sizes) <= 2000
    assert offsets(tmp_path, 0) == list(range(400))


def test_tasks_that_share_a_partition_must_not_overlap(tmp_path: Path) -> None:
    overlapping = [*staged(tmp_path, 0, 0, 5), *staged(tmp_path, 0, 3, 5)]
    with pytest.raises(OffsetsOutOfOrderError, match="two tasks with one partition must not overlap"):
        write(tmp_path, *overlapping)
    assert offsets(tmp_path, 0) == []


def test_rows_go_into_a_log_that_has_seen_elections(tmp_path: Path) -> None:
    write(tmp_path, *numbered(tmp_path, 5))
    with opened(tmp_path / "logs") as directory:
        directory.log(TopicPartition("t", 0)).append([Record(b"v", b"k", 1)], leader_epoch=5)
    assert write(tmp_path, *numbered(tmp_path, 5)) == 5
    assert offsets(tmp_path, 0) == list(range(11))
    with opened(tmp_path / "logs", writable=False) as directory:
        epochs = directory.log(TopicPartition("t", 0)).read(6, 1 << 20).batches["leader_epoch"]
    assert epochs.tolist() == [5]


def test_a_staged_file_that_is_gone_or_damaged_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    for spoil in (
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(bytes(8) + path.read_bytes()[8:]),
        lambda path: path.write_bytes(path.read_bytes()[:8] + bytes(4) + path.read_bytes()[12:]),
    ):
        (file,) = staged(tmp_path, 0, 7, 5)
        spoil(staging_of(tmp_path / "logs", "job") / file.name)
        with pytest.raises((IncompleteError, AppendError, CorruptRecordError), match=r".*"):
            write(tmp_path, file)
        assert offsets(tmp_path, 0) == []
        assert left_behind(tmp_path) == []


def test_a_directory_that_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, *staged(tmp_path, 0, 0, 5))
    more = staged(tmp_path, 0, 5, 5)
    with DirectoryLock(tmp_path / "logs"), pytest.raises(LockedError, match="logs is locked by process"):
        write(tmp_path, *more)
    assert offsets(tmp_path, 0) == list(range(5))


def test_another_writer_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path, *staged(tmp_path, 0, 0, 5))
    lock = DirectoryLock(tmp_path / "logs")

    class Releasing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            lock.release()

    files = staged(tmp_path, 0, 5, 5)
    with lock:
        assert LocalSink(options(tmp_path / "logs"), Releasing(START_MS)).commit("job", files) == 5
    assert offsets(tmp_path, 0) == list(range(10))


# --- streams --------------------------------------------------------------------------------------------------


def write_batch(home: Path, query: str, number: int, count: int, entry: str = "") -> int:
    return write(home, *numbered(home, count, query), stream=StreamBatch(query, number, entry))


def test_a_batch_of_a_stream_that_comes_twice_is_appended_once(tmp_path: Path) -> None:
    assert write_batch(tmp_path, "a", 0, 5) == 5
    assert write_batch(tmp_path, "a", 0, 5) == 0
    assert write_batch(tmp_path, "a", 1, 5) == 5
    assert offsets(tmp_path, 0) == list(range(10))
    assert left_behind(tmp_path) == [".seglog-streams"]


def test_batches_are_known_by_their_query_and_not_by_their_number_alone(tmp_path: Path) -> None:
    for number in range(2):
        assert write_batch(tmp_path, "old", number, 100) == 100
    assert write_batch(tmp_path, "new checkpoint", 0, 500) == 500
    assert write_batch(tmp_path, "old", 1, 100) == 0
    assert len(offsets(tmp_path, 0)) == 700


def test_a_stream_whose_checkpoint_was_set_back_is_refused(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", 0, 5, "first")
    write_batch(tmp_path, "a", 1, 5, "second")
    for number, entry in ((0, "first"), (0, "anew"), (1, "anew")):
        with pytest.raises(
            RefusedError, match=f"brings a different batch {number}: its checkpoint was set back or copied"
        ):
            write_batch(tmp_path, "a", number, 5, entry)
    assert write_batch(tmp_path, "a", 1, 5, "second") == 0
    assert len(offsets(tmp_path, 0)) == 10


def test_a_checkpoint_tells_one_batch_from_another_of_its_number(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "3").write_text('v1\n{"batchTimestampMs":1}\n{"t":{"0":5}}')
    seen = options(tmp_path / "logs", checkpointLocation=f"file://{tmp_path}/checkpoint")
    first = checkpoint_entry(FS, seen, 3)
    assert first and first == checkpoint_entry(FS, seen, 3)
    (tmp_path / "checkpoint" / "offsets" / "3").write_text('v1\n{"batchTimestampMs":2}\n{"t":{"0":5}}')
    assert checkpoint_entry(FS, seen, 3) not in ("", first)
    assert checkpoint_entry(FS, seen, 4) == ""
    for elsewhere in ("hdfs://n/c", "s3://bucket/c"):
        assert checkpoint_entry(FS, options(tmp_path / "logs", checkpointLocation=elsewhere), 3) == ""


@pytest.mark.parametrize("numbers", [[5, 5], [5, 4], [-1, 0], [None, 0]])
def test_offsets_must_ascend_and_the_row_is_named(tmp_path: Path, numbers: list[int | None]) -> None:
    rows = {"value": pa.array([b"v", b"v"], pa.binary()), "offset": pa.array(numbers, pa.int64())}
    batches = [pa.record_batch(rows)]
    with pytest.raises(AppendError, match=r"t-3: row [01] of the task: .*offset"):
        stage_rows(FS, tmp_path / "staging", options(tmp_path / "logs", topic="t", partition="3"), batches)


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(sink_of(FS, options(tmp_path / "new" / "logs")), LocalSink)
    for path in (tmp_path / "file", tmp_path / "file" / "below" / "logs"):
        with pytest.raises(NotALogError, match="file: not a directory"):
            sink_of(FS, options(path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a path is missing"),
        ({"path": "logs"}, "'logs' is relative"),
        ({"path": "/x", "colour": "red"}, "no such option: colour; options are path"),
        ({"path": "/x", "compression": "brotli"}, "there is no codec 'brotli'; codecs are none, gzip"),
        ({"path": "/x", "partition": "-1"}, "partition: '-1' is not a partition number"),
        ({"path": "/x", "partition": "²"}, "partition: '²' is not a partition number"),
        ({"path": "/x", "partition": "2147483648"}, "partition: '2147483648' is not a partition number"),
        ({"path": "/x", "sinkId": "mine"}, "no such option: sinkid"),
        ({"path": "/x", "lockWait": "soon"}, "lockWait: .* is not a duration"),
        ({"path": "/x", "segmentBytes": "0"}, "segmentBytes: it must be at least 1 byte"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_write_options(given)


def test_another_scheme_and_overwriting_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="mounted file systems"):
        parse_write_options({"path": "hdfs://name/logs"})
    with pytest.raises(UnsupportedError, match=r"use \.mode\('append'\)"):
        parse_write_options({"path": "/x"}, overwrite=True)
