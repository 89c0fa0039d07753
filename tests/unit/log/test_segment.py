"""One segment: appending, searching, recovering, truncating."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.errors import SegmentOffsetOverflowError
from seglog.format.filenames import FileState
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment, OffsetNotAscendingError
from seglog.model import Compression
from seglog.storage.filesystem import File, OpenMode, PassingFile, PassingFileSystem
from tests.support.log_files import (
    FS,
    batch,
    files_of,
    marker,
    messages,
    rows_of,
    transactional,
    wrappers,
    write_segment,
)

BATCHES = [batch(i * 10, 10, timestamp=1000 + i * 100) for i in range(8)]


def made(path: Path, *batches: bytes, interval: int = 0) -> LogSegment:
    return write_segment(path, 0, *(batches or BATCHES), index_interval_bytes=interval)


def recovered(path: Path, interval: int = 0) -> LogSegment:
    segment = LogSegment(FS, path, 0, index_interval_bytes=interval)
    segment.recover(ProducerStateManager(FS, path), LeaderEpochCache(FS, path))
    return segment


class SyncedFile(PassingFile):
    """Notes in `calls` when the disk is asked to begin with a file, and when it is waited for."""

    def __init__(self, below: File, calls: list[tuple[str, str]]) -> None:
        super().__init__(below)
        self._calls = calls

    def start_writing(self, position: int, size: int) -> None:
        self._calls.append(("begin", self.path.suffix))
        super().start_writing(position, size)

    def sync(self) -> None:
        self._calls.append(("wait", self.path.suffix))
        super().sync()


class SyncedFileSystem(PassingFileSystem):
    def __init__(self) -> None:
        super().__init__(FS)
        self.calls: list[tuple[str, str]] = []

    def open(self, path: Path, mode: OpenMode) -> File:
        return SyncedFile(super().open(path, mode), self.calls)


def test_the_disk_begins_with_the_indexes_before_the_log_is_waited_for(tmp_path: Path) -> None:
    fs = SyncedFileSystem()
    segment = LogSegment(fs, tmp_path, 0, index_interval_bytes=0).create()
    for data in BATCHES:
        segment.append(rows_of(data)[1], data)
    segment.flush()
    assert set(fs.calls[:2]) == {("begin", ".index"), ("begin", ".timeindex")}
    assert fs.calls[2:] == [("wait", ".log"), ("wait", ".index"), ("wait", ".timeindex")]


def test_the_first_batch_gets_no_entry_and_every_other_one_does_with_interval_0(tmp_path: Path) -> None:
    segment = made(tmp_path)
    assert segment.offset_index.offsets.tolist() == [19, 29, 39, 49, 59, 69, 79]
    assert segment.time_index.last_entry == (1709, 79)


def test_recovery_rebuilds_the_files_that_appending_wrote(tmp_path: Path) -> None:
    segment = made(tmp_path, interval=300)
    before = files_of(tmp_path)
    segment.offset_index.path.write_bytes(b"\x07" * 64)
    segment.time_index.path.unlink()
    recovered(tmp_path, 300).close_files()
    after = files_of(tmp_path)
    after.pop("leader-epoch-checkpoint")
    assert after == before


@pytest.mark.parametrize("byte", [17, 30, 70])
def test_recovery_cuts_before_the_first_damaged_batch(tmp_path: Path, byte: int) -> None:
    segment = made(tmp_path)
    start = sum(len(data) for data in BATCHES[:5])
    data = bytearray(segment.path.read_bytes())
    data[start + byte] ^= 0xFF
    segment.path.write_bytes(data)
    result = LogSegment(FS, tmp_path, 0).recover(ProducerStateManager(FS, tmp_path))
    assert (result.valid_bytes, result.next_offset, result.truncated_bytes) == (start, 50, len(data) - start)
    assert "checksum" in result.reason
    assert segment.path.stat().st_size == start


@pytest.mark.parametrize("tail", [b"\x00" * 5, b"\x00" * 100, b"\xff" * 18, BATCHES[0][:-1]])
def test_recovery_cuts_what_is_no_batch(tmp_path: Path, tail: bytes) -> None:
    segment = made(tmp_path)
    size = segment.size
    with segment.path.open("ab") as file:
        file.write(tail)
    result = LogSegment(FS, tmp_path, 0).recover(ProducerStateManager(FS, tmp_path))
    assert (result.truncated_bytes, segment.path.stat().st_size) == (len(tail), size)


def test_a_broken_marker_stays_and_what_follows_it_goes(tmp_path: Path) -> None:
    broken = marker(1, 7, commit=True, key=b"\x00")
    first = transactional(0, 7, 0)
    made(tmp_path, first, broken, batch(2, 5))
    result = LogSegment(FS, tmp_path, 0).recover(ProducerStateManager(FS, tmp_path))
    assert (result.valid_bytes, result.next_offset) == (len(first) + len(broken), 2)


def test_recovery_lists_aborted_transactions_alone(tmp_path: Path) -> None:
    batches = [transactional(0, 1, 0), transactional(1, 2, 0), marker(2, 1, commit=False), marker(3, 2, commit=True)]
    segment = made(tmp_path, *batches)
    assert not segment.transaction_index.exists()
    found = recovered(tmp_path).transaction_index.entries
    assert [
        (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset) for entry in found
    ] == [(1, 0, 2, 1)]


def test_an_offset_too_far_from_the_base_is_an_overflow(tmp_path: Path) -> None:
    segment = LogSegment(FS, tmp_path, 0).create()
    data, rows = rows_of(batch(2**31))
    with pytest.raises(SegmentOffsetOverflowError):
        segment.append(rows, data)
    assert (segment.size, segment.path.stat().st_size) == (0, 0)


def test_an_index_that_would_go_back_is_an_error_of_its_own(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, *BATCHES, batch(5, 1), index_interval_bytes=10**6)
    with pytest.raises(OffsetNotAscendingError):
        recovered(tmp_path)


def test_searching_finds_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    segment = made(tmp_path, batch(0, 5), batch(20, 5), interval=0)
    found = segment.translate_offset(10)
    assert found is not None and (found.base_offset, found.last_offset) == (20, 24)
    assert segment.translate_offset(25) is None


def test_the_next_offset_does_not_believe_an_index_that_points_nowhere(tmp_path: Path) -> None:
    made(tmp_path)
    for entry in (bytes.fromhex("0000000500000007"), bytes.fromhex("0000ffff7fffffff")):
        (tmp_path / f"{0:020d}.index").write_bytes(entry)
        assert LogSegment(FS, tmp_path, 0).read_next_offset()[0] == 80


@pytest.mark.parametrize(
    "batches", [BATCHES, messages(1, 80), wrappers(1, Compression.GZIP, 20)], ids=["batches", "messages", "wrappers"]
)
def test_an_entry_for_a_run_of_batches_that_were_appended_at_once_is_believed(
    tmp_path: Path, batches: list[bytes]
) -> None:
    made(tmp_path, *batches)
    position = len(b"".join(batches[: len(batches) // 4]))
    (tmp_path / f"{0:020d}.index").write_bytes(struct.pack(">ii", 50, position))
    assert LogSegment(FS, tmp_path, 0).indexed_position(55) == position


@pytest.mark.parametrize(
    "batches", [BATCHES, messages(1, 80), wrappers(1, Compression.GZIP, 20)], ids=["batches", "messages", "wrappers"]
)
def test_an_entry_that_leads_beyond_its_offset_is_not_believed(tmp_path: Path, batches: list[bytes]) -> None:
    made(tmp_path, *batches)
    position = len(b"".join(batches[: len(batches) // 2]))
    (tmp_path / f"{0:020d}.index").write_bytes(struct.pack(">ii", 29, position))
    assert LogSegment(FS, tmp_path, 0).indexed_position(55) == 0


def test_an_index_of_offsets_beyond_all_that_there_are_does_not_stop_an_append(tmp_path: Path) -> None:
    base = (1 << 63) - 100
    write_segment(tmp_path, base, batch(base, 3), batch(base + 3, 3))
    (tmp_path / f"{base:020d}.index").write_bytes(struct.pack(">ii", 2**31 - 1, 0))
    (tmp_path / f"{base:020d}.timeindex").write_bytes(struct.pack(">qi", 1000, 2**31 - 1))
    again = LogSegment(FS, tmp_path, base)
    size = again.size
    data, rows = rows_of(batch(base + 6, 1), position=size)
    again.append(rows, data)
    assert again.path.stat().st_size == size + len(data)


def test_the_first_append_cuts_off_trailing_bytes(tmp_path: Path) -> None:
    segment = made(tmp_path)
    size = segment.size
    with segment.path.open("ab") as file:
        file.write(b"\xff" * 1000)
    again = LogSegment(FS, tmp_path, 0)
    again.size, again.trailing_bytes = size, 1000
    data, rows = rows_of(batch(80, 1), position=size)
    again.append(rows, data)
    assert again.path.stat().st_size == size + len(data) == again.size
    assert again.read_next_offset() == (81, again.size)


def test_truncation_removes_the_whole_batch_and_forgets_its_timestamps(tmp_path: Path) -> None:
    segment = made(tmp_path)
    segment.truncate_to(35)
    assert segment.size == sum(len(data) for data in BATCHES[:3])
    assert (segment.offset_index.last_offset, segment.max_timestamp) == (29, 1209)


def test_truncating_a_segment_that_was_opened_again_finds_the_largest_timestamp_that_is_left(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, timestamp=1500), batch(1, timestamp=1700))
    again = LogSegment(FS, tmp_path, 0)
    again.truncate_to(1)
    assert (again.max_timestamp, again.offset_of_max_timestamp, again.time_index.entries) == (1500, 0, 0)


def test_renaming_moves_every_file(tmp_path: Path) -> None:
    segment = made(tmp_path)
    segment.rename_to(FileState.SWAP)
    assert sorted(files_of(tmp_path)) == [f"{0:020d}.{kind}.swap" for kind in ("index", "log", "timeindex")]
    assert segment.read_next_offset()[0] == 80


def test_a_segment_without_timestamps_falls_back_to_its_modification_time(tmp_path: Path) -> None:
    segment = LogSegment(FS, tmp_path, 0).create()
    FS.set_modified(segment.path, 123_456)
    assert segment.largest_timestamp() == 123_456
