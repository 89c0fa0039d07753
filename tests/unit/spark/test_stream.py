"""The pure parts of the stream: sharing a limit, and finding the followed log's end."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from seglog.errors import ConfigError, IncompleteError, UnsupportedError
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark import source, stream
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.spark.staged_journal import AppendJournal, Placement, StagedFile, remove_journal, write_journal
from seglog_ask.spark.stream import FollowedLog, limited
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.splits import plan_splits
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.watched_files import ChangingFileSystem, routed

KEYS = [TopicPartition("t", i) for i in range(5)]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5), st.integers(1, 500))
def test_a_limit_is_kept_and_always_moves_on(spans, most):
    start = {key: first for key, (first, _) in zip(KEYS, spans, strict=False)}
    ends = {key: first + more for key, (first, more) in zip(KEYS, spans, strict=False)}
    found = limited(start, ends, most)
    total = sum(ends.values()) - sum(start.values())
    assert sum(found.values()) - sum(start.values()) == min(most, total)
    assert all(start[key] <= found[key] <= ends[key] for key in ends)


def test_a_limit_of_nothing_waiting_changes_nothing():
    assert limited({}, {}, 5) == {}


def test_a_pyspark_without_limits_for_streams_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(source, "find_spec", lambda name: asked.append(name))
    reader = source.SeglogDataSource({"path": str(directory)})
    with pytest.raises(UnsupportedError, match=r"a stream needs a later PySpark than \d"):
        reader.streamReader(StructType())
    assert find_spec(*asked) is not None  # of the one that runs here it is true


def batch(first: int, count: int = 10, attributes: int = 0, producer: int = -1) -> bytes:
    records = [NaiveRecord(i, i, b"k", b"v") for i in range(count)]
    identity = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    return batch_v2(first, records, attributes=attributes, producer=identity)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    return tmp_path / "t-0"


def followed(directory: Path, **options: str) -> FollowedLog:
    return FollowedLog(parse_read_options({"path": str(directory), **options}, streaming=True))


def test_the_end_follows_appends_and_rolls(directory):
    path, log = directory / f"{0:020}.log", followed(directory)
    path.write_bytes(batch(0))
    assert log.ends() == {KEYS[0]: 10}
    with path.open("ab") as file:
        file.write(batch(10) + batch(20)[:-1])
    assert log.ends() == {KEYS[0]: 20}
    (directory / f"{20:020}.log").write_bytes(b"")
    assert log.ends() == {KEYS[0]: 20}
    (directory / f"{20:020}.log").write_bytes(batch(20))
    assert log.ends() == {KEYS[0]: 30}


def test_a_last_batch_with_a_wrong_checksum_is_not_the_end(directory):
    torn = bytearray(batch(10))
    torn[-1] ^= 1
    (directory / f"{0:020}.log").write_bytes(batch(0) + torn)
    assert followed(directory).ends() == {KEYS[0]: 10}


def test_read_committed_ends_at_the_first_open_transaction(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0) + batch(10, attributes=0x10, producer=7) + batch(20))
    assert followed(directory, isolationLevel="read_committed").ends() == {KEYS[0]: 10}
    assert followed(directory).ends() == {KEYS[0]: 30}


def test_a_start_beyond_the_high_watermark_is_not_data_loss(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0))
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    log = followed(directory, startingOffsets='{"t":{"0":8}}')
    start = log.starting_offsets()
    assert start == {KEYS[0]: 8}
    assert log.reached(start, log.ends()) == {KEYS[0]: 8}


def test_a_partition_that_is_gone_is_data_loss(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0))
    log = followed(directory)
    with pytest.raises(IncompleteError, match="t-1: the partition is gone"):
        log.reached({KEYS[1]: 5}, log.ends())
    relaxed = followed(directory, failOnDataLoss="false")
    assert relaxed.reached({KEYS[1]: 5}, relaxed.ends()) == {KEYS[0]: 10, KEYS[1]: 5}


@pytest.mark.parametrize("base", [0, 30])
def test_a_partition_that_is_new_is_read_from_its_log_start_which_is_said(directory, base, caplog):
    log = followed(directory.parent)
    (directory / f"{0:020}.log").write_bytes(batch(0))
    log.starting_offsets()
    start = log.ends()
    moved = directory.parent / "t-1"
    moved.mkdir()
    (moved / f"{base:020}.log").write_bytes(batch(base))
    ends = log.ends()
    (split,) = log.splits(start, ends)
    assert [(piece.partition, piece.base_offset) for piece in split.pieces] == [(1, base)]
    said = "t-1: the new partition begins at offset 30; nothing before it was read"
    assert [record.getMessage() for record in caplog.records] == ([said] if base else [])


def test_a_log_that_was_cut_and_grew_again_ends_where_its_last_batch_does(directory):
    path, log = directory / f"{0:020}.log", followed(directory)
    path.write_bytes(batch(0) + batch(10) + batch(20))
    assert log.ends() == {KEYS[0]: 30}
    # as long as before and longer, with no batch where the last one ended
    path.write_bytes(batch(0) + batch(10, 3) + batch(13, 40))
    assert log.ends() == {KEYS[0]: 53}
    path.write_bytes(batch(0) + batch(10, 9) + bytes(path.stat().st_size))
    assert log.ends() == {KEYS[0]: 19}


def test_offsets_that_were_cut_off_after_they_were_planned_are_data_loss(directory):
    """Spark keeps the offsets of a batch, and plans it again after a restart."""
    path = directory / f"{0:020}.log"
    path.write_bytes(batch(0) + batch(10))
    for log in (followed(directory), followed(directory)):
        with pytest.raises(IncompleteError, match="t-0: offsets 20 to 29 are gone, as the log now ends at 20"):
            log.splits({KEYS[0]: 5}, {KEYS[0]: 30})
    relaxed = followed(directory, failOnDataLoss="false")
    (split,) = relaxed.splits({KEYS[0]: 5}, {KEYS[0]: 30})
    assert [piece.share for piece in split.pieces] == [(5, 20)]
    assert relaxed.splits({KEYS[0]: 25}, {KEYS[0]: 30}) == []


def test_what_a_write_has_not_finished_is_waited_for(directory, caplog):
    """Records that may be taken back must not be read."""
    fs, name = LocalFileSystem(), KEYS[0]
    path, log = directory / f"{0:020}.log", followed(directory)
    path.write_bytes(batch(0) + batch(10))
    staged = StagedFile(name, "x", 10, 1, None, 9)
    write_journal(fs, directory.parent, AppendJournal("staging", (Placement(name, 10, 0, (staged,)),)))
    assert log.ends() == {name: 10}
    assert "t-0: offsets from 10 on wait for an unfinished write" in caplog.text
    assert log.reached({name: 10}, {name: 10}) == {name: 10}
    remove_journal(fs, directory.parent)
    assert log.ends() == {name: 20}


def test_a_journal_that_cannot_be_read_keeps_nobody_waiting(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0))
    (directory.parent / ".seglog-append").write_text("{")
    assert followed(directory).ends() == {KEYS[0]: 10}


def test_segments_that_are_merged_while_a_trigger_looks_are_looked_for_again(directory, monkeypatch):
    first, second, third = (directory / f"{base:020}.log" for base in (0, 10, 20))

    def merge() -> None:
        """A cleaner merges the full last segment into the one before it; a new one has begun."""
        third.write_bytes(batch(20))
        first.write_bytes(batch(0) + batch(10))
        second.unlink()

    for moment in range(30):
        first.write_bytes(batch(0))
        second.write_bytes(batch(10))
        third.unlink(missing_ok=True)
        fs = ChangingFileSystem(moment, merge)
        monkeypatch.setattr(stream, "files_of", lambda _, fs=fs: routed(fs))
        log = followed(directory)
        assert log.ends() in ({KEYS[0]: 20}, {KEYS[0]: 30}), moment
        assert len(log.splits({KEYS[0]: 0}, {KEYS[0]: 20})) == 1
        if not fs.changed:
            return
        assert log.ends() == {KEYS[0]: 30}
    pytest.fail("the trigger makes more calls than were tried")


class _RunThatBegins(LocalFileSystem):
    """A run begins as soon as a partition is listed."""

    def list(self, directory: Path) -> list[str]:
        names = super().list(directory)
        if directory.name == "t-0":
            (directory.parent / ".seglog-run").write_text("/somewhere\n")
        return names


def test_a_read_during_an_unfinished_run_is_refused_unless_fail_on_data_loss_is_false(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / f"{0:020}.log").write_bytes(batch(0))
    key, marker = TopicPartition("t", 0), tmp_path / ".seglog-run"

    def options(path: Path, loss: str = "true", *, streaming: bool = False) -> ReadOptions:
        given = {"path": str(path), "startingOffsets": "earliest", "failOnDataLoss": loss}
        return parse_read_options(given, streaming=streaming)

    followed = FollowedLog(options(tmp_path, streaming=True))
    assert followed.starting_offsets() == {key: 0}
    assert followed.ends() == {key: 10}
    assert [len(split.pieces) for split in followed.splits({key: 0}, {key: 10})] == [1]
    marker.write_text("/somewhere\n")
    for path in (tmp_path, directory, directory / f"{0:020}.log"):
        with pytest.raises(IncompleteError, match=rf"^{tmp_path}: a run of seglog was cut short here.*failOnDataLoss"):
            plan_splits(routed(LocalFileSystem()), options(path))
    with pytest.raises(IncompleteError, match="a run of seglog was cut short here"):
        followed.ends()  # a trigger after the first one
    assert not caplog.records
    assert plan_splits(routed(LocalFileSystem()), options(tmp_path, "false"))
    assert "a run of seglog was cut short here" in caplog.text
    marker.unlink()
    assert followed.ends() == {key: 10}
    with pytest.raises(IncompleteError, match="a run of seglog was cut short here"):
        plan_splits(routed(_RunThatBegins()), options(tmp_path))


def test_a_topic_that_was_made_anew_is_read_from_its_start(directory: Path) -> None:
    (directory / f"{0:020}.log").write_bytes(batch(0))
    start = {KEYS[0]: 700}
    with pytest.raises(IncompleteError, match="read up to offset 700, and now ends at 10"):
        log = followed(directory)
        log.reached(start, log.ends())
    log = followed(directory, failOnDataLoss="false")
    ends = log.reached(start, log.ends())
    assert ends == {KEYS[0]: 10}
    assert limited(log.begun(start, ends), ends, 4) == {KEYS[0]: 4}
    for first, stop, wanted in ((700, 10, (0, 10)), (700, 4, (0, 4)), (4, 10, (4, 10))):
        (split,) = log.splits({KEYS[0]: first}, {KEYS[0]: stop})
        assert (split.pieces[0].first_offset, split.pieces[0].stop_offset) == wanted


def test_a_log_that_ends_before_its_high_watermark_is_data_loss(directory: Path) -> None:
    (directory / f"{0:020}.log").write_bytes(batch(0) + batch(10)[:-5])
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    with pytest.raises(IncompleteError, match=r"0\.log: position \d+: offsets 10 to 19 are missing"):
        followed(directory).ends()
    assert followed(directory, failOnDataLoss="false").ends() == {KEYS[0]: 10}


def test_wrong_options_are_said_by_the_first_call(directory: Path) -> None:
    reader = source.SeglogDataSource({"path": str(directory), "view": "batches"}).streamReader(StructType())
    for call in (reader.initialOffset, reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow):
        with pytest.raises(ConfigError, match="view: a stream only has records"):
            call()
    reader.stop()
