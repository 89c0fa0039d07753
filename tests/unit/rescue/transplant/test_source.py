"""Sources: what a killed broker leaves is taken, damage is refused, and nothing there is ever touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import RefusedError, SeglogError
from seglog.model import Isolation, Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.transplant.source import SourceCheckpoints, SourceLog, log_files, read_source, require_unchanged
from tests.support.fixtures import fixture_copy
from tests.support.log_files import batch, write_segment
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.open_logs import opened_log
from tests.support.target_directories import everything

FS = LocalFileSystem()


def source_of(directory: Path) -> SourceLog:
    return read_source(FS, directory, TopicPartition("t", 0), SourceCheckpoints(FS), lambda _size: None)


def segments(root: Path, *, count: int = 3) -> Path:
    """A log of some segments, stopped in order, without a log directory around it."""
    directory = root / "t-0"
    with opened_log(directory, segment_bytes=300) as log:
        for n in range(3 * count):
            log.append([Record(b"value %d" % n * 8, b"key", timestamp=1000 + n)])
    assert len(list(directory.glob("*.log"))) >= count
    return directory


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def zeros(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(100))


def flip_last(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("damage", "lost"), [(cut, 1), (zeros, 0), (flip_last, 1)])
def test_a_torn_end_of_the_last_segment_is_left_out(tmp_path: Path, damage: Callable[[Path], None], lost: int) -> None:
    directory = segments(tmp_path)
    whole = source_of(directory)
    last = max(directory.glob("*.log"))
    damage(last)
    found = source_of(directory)
    assert (found.log_end, found.batches) == (whole.log_end - lost, whole.batches - lost)
    assert found.torn_bytes == last.stat().st_size - found.segments[-1].valid_bytes > 0
    assert last.name in found.torn


@pytest.mark.parametrize("damage", [cut, flip_last])
def test_damage_before_the_last_segment_is_refused_with_what_mends_it(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    directory = segments(tmp_path)
    damage(sorted(directory.glob("*.log"))[-2])
    with pytest.raises(RefusedError, match=r"copy the directory, mend the copy \(seglog repair\)"):
        source_of(directory)


def test_a_damaged_batch_with_good_ones_after_it_is_refused(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        for n in range(3):
            log.append([Record(b"value %d" % n * 8)])
    (path,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(RefusedError, match=r"position \d+: CRC_MISMATCH.*\(offset 1\)"):
        source_of(tmp_path / "t-0")


def test_records_that_nobody_can_read_are_refused_under_a_right_checksum_too(tmp_path: Path) -> None:
    broken = batch_v2(4, [NaiveRecord(0, 0, b"k", b"v")], payload=b"\xff\xff\xff")
    write_segment(tmp_path / "t-0", 0, batch(0, 4), broken)
    with pytest.raises(RefusedError, match=r"RECORDS_INVALID.*\(offset 4\)"):  # no crash tears a record so
        source_of(tmp_path / "t-0")


def test_a_wrong_checksum_at_the_end_is_no_crash_where_the_broker_was_stopped_in_order(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    flip_last(max(directory.glob("*.log")))
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"{}")
    with pytest.raises(RefusedError, match="CRC_MISMATCH"):
        source_of(directory)


def test_offsets_that_go_back_are_refused(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    first = min(directory.glob("*.log"))
    first.write_bytes(first.read_bytes() * 2)
    with pytest.raises(RefusedError, match="not above those before it"):
        source_of(directory)


def test_a_segment_named_within_anothers_offsets_is_refused(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    second = sorted(directory.glob("*.log"))[1]
    for path in directory.glob(f"{second.stem}.*"):  # a broker would look for the first segment's offsets in it
        path.rename(directory / f"{1:020d}{path.suffix}")
    with pytest.raises(RefusedError, match="OFFSET_OUT_OF_SEGMENT"):
        source_of(directory)


def test_a_directory_that_was_copied_in_part_is_refused(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    sorted(directory.glob("*.log"))[1].unlink()
    with pytest.raises(RefusedError, match="copied in part"):
        source_of(directory)


def test_a_segment_that_lost_all_its_bytes_is_refused(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    second = sorted(directory.glob("*.log"))[1]
    second.write_bytes(b"")
    source_of(directory)  # as cleaning leaves a segment of which nothing stayed
    second.with_suffix(".index").write_bytes(bytes(8))
    with pytest.raises(RefusedError, match="is empty and its index is not"):
        source_of(directory)


def test_segments_below_the_log_start_are_left_out(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    start = bases[1] + 1
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    found = source_of(directory)
    assert (found.log_start, [one.base_offset for one in found.segments]) == (start, bases[1:])
    assert found.left_behind == [f"{bases[0]:020}.log"]


def test_a_log_that_ends_below_its_start_is_refused(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 500\n")
    with pytest.raises(RefusedError, match="below its log start 500"):
        source_of(directory)


def test_a_replacement_that_a_crash_interrupted_counts_as_a_broker_counts_it(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    whole = source_of(directory)
    first = min(directory.glob("*.log"))
    first.rename(first.with_name(first.name + ".swap"))  # complete: it takes its place
    second = sorted(directory.glob("*.log"))[0]
    second.with_name(second.name + ".cleaned").write_bytes(b"half")
    before = everything(tmp_path)
    found = source_of(directory)
    assert (found.log_end, found.batches) == (whole.log_end, whole.batches)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["4.3.0/clean", "4.3.0/killed", "4.3.0/generated", "0.10.2", "0.8.2"])
def test_reading_a_source_creates_locks_and_changes_nothing(tmp_path: Path, name: str) -> None:
    root = fixture_copy(name, tmp_path)
    before = everything(root)
    for directory in sorted(path for path in root.iterdir() if path.is_dir() and "metadata" not in path.name):
        try:
            found = source_of(directory)
        except SeglogError as error:
            raise AssertionError(directory) from error
        with opened_log(directory, writable=False) as log:
            assert (found.log_start, found.log_end) == (log.log_start_offset, log.log_end_offset)
            assert len(found.open) == len(log.producers.open_transactions)
            assert found.is_empty == (not list(log.records(isolation=Isolation.READ_UNCOMMITTED)))
    assert everything(root) == before


def test_a_source_that_grows_meanwhile_is_noticed(tmp_path: Path) -> None:
    directory = segments(tmp_path)
    found = source_of(directory)
    require_unchanged(FS, found)
    assert set(log_files(FS, directory)) == {path.name for path in directory.glob("*.log")}
    last = max(directory.glob("*.log"))
    last.write_bytes(last.read_bytes() + last.read_bytes())
    with pytest.raises(RefusedError, match="changed while it was read"):
        require_unchanged(FS, found)
