"""Searching by time: the first record at a time or later, in every kind of log."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError
from seglog.log.lookup import EARLIEST, LATEST, MAX_TIMESTAMP, TimestampOffset
from seglog.model import Compression, Record
from tests.support.log_files import batch, rewrite, write_segment
from tests.support.naive import batch_v2
from tests.support.open_logs import START_MS, opened_log


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("segment_bytes", [600, 1 << 20])
def test_the_first_record_at_a_time_or_later_is_found(tmp_path: Path, codec: Compression, segment_bytes: int) -> None:
    stamps = [START_MS + (i * 37) % 50 + i for i in range(120)]
    with opened_log(tmp_path / "t-0", segment_bytes=segment_bytes, index_interval_bytes=50) as log:
        log.append([Record(b"v", timestamp=stamp) for stamp in stamps], batch_records=4, codec=codec)
        for wanted in range(START_MS - 2, max(stamps) + 2):
            hits = [(stamp, offset) for offset, stamp in enumerate(stamps) if stamp >= wanted]
            found = log.offset_for_timestamp(wanted)
            assert (found and (found.timestamp, found.offset)) == (hits[0] if hits else None)
        largest = log.offset_for_timestamp(MAX_TIMESTAMP)
        assert largest == TimestampOffset(max(stamps), stamps.index(max(stamps)), 0)


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"v", timestamp=START_MS + i) for i in range(10)], batch_records=5)
        log.increment_log_start_offset(3)
        found = log.offset_for_timestamp(START_MS)
        assert found is not None
        assert found.offset == 3
        assert log.offset_for_timestamp(EARLIEST) == TimestampOffset(-1, 3, 0)
        assert log.offset_for_timestamp(LATEST) == TimestampOffset(-1, 10, 0)


def test_an_empty_log_has_start_and_end_only(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        assert log.offset_for_timestamp(0) is None
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
        assert log.offset_for_timestamp(LATEST) == TimestampOffset(-1, 0)
        with pytest.raises(ValueError, match="-7"):
            log.offset_for_timestamp(-7)


def test_an_empty_segment_before_others_has_the_time_of_its_file_and_ends_the_search(tmp_path: Path) -> None:
    """Kafka 4.3.0 finds nothing in this log either: UnifiedLog.fetchOffsetByTimestamp, LogSegment.largestTimestamp."""
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"v", timestamp=START_MS)] * 2, batch_records=2)
        log.truncate_to(1)  # the batch goes as a whole
        log.roll()
        log.append([Record(b"v", timestamp=START_MS)])
        assert [(segment.base_offset, segment.size > 0) for segment in log.segments] == [(0, False), (1, True)]
        assert log.offset_for_timestamp(START_MS) is None
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(START_MS, 1, 0)


def test_of_several_records_with_the_largest_timestamp_the_first_is_found(tmp_path: Path) -> None:
    for base in (0, 20, 40):
        write_segment(tmp_path / "t-0", base, batch(base, 5), batch(base + 5, 5), index_interval_bytes=0)
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(1004, 4, 0)


def test_times_after_the_last_index_entry_of_a_killed_brokers_log_are_found(tmp_path: Path) -> None:
    with opened_log(tmp_path / "live" / "t-0") as log:
        for i in range(300):
            log.append([Record(b"v" * 50, timestamp=1000 + i)])
        log.flush()
        shutil.copytree(log.directory, tmp_path / "killed" / "t-0")
    with opened_log(tmp_path / "killed" / "t-0", writable=False) as log:
        assert log.view.segments[-1].time_index.last_entry[0] < 1299
        found = [log.offset_for_timestamp(1000 + i) for i in range(301)]
        assert [each and each.offset for each in found] == [*range(300), None]
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(1299, 299, 0)


def test_the_largest_timestamp_is_found_below_the_log_start(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"v", timestamp=START_MS - i) for i in range(10)], batch_records=5)
        log.increment_log_start_offset(3)
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(START_MS, 0, 0), "as a broker does"


def test_the_largest_timestamp_is_the_one_that_the_index_knows(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 5, timestamp=2000), batch(5, 5, timestamp=1000))
    (tmp_path / "t-0" / f"{0:020d}.timeindex").write_bytes(struct.pack(">qi", 1004, 9))
    write_segment(tmp_path / "t-0", 10, batch(10, timestamp=500))
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(1004, 9, 0)


def test_records_without_a_timestamp_have_no_largest_one(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, timestamp=-1))
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
        assert log.offset_for_timestamp(0) is None
        assert [record.timestamp for record in log.records()] == [-1]


def test_the_largest_timestamp_is_found_after_a_batch_that_cleaning_emptied(tmp_path: Path) -> None:
    emptied = batch_v2(0, [], base_timestamp=1000, max_timestamp=1000, last_offset_delta=4)
    write_segment(tmp_path / "t-0", 0, emptied, batch(5))
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(1000, 5, 0)


def test_a_record_has_the_epoch_of_its_own_batch(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 5, epoch=3), batch(5, 5, epoch=4))
    with opened_log(tmp_path / "t-0") as log:
        log.increment_log_start_offset(5)
        assert log.offset_for_timestamp(1000) == TimestampOffset(1000, 5, 4)


def test_damage_that_may_hold_the_record_is_named_by_the_offsets_that_it_may_have_held(tmp_path: Path) -> None:
    segment = write_segment(tmp_path / "t-0", 0, batch(0, 5), batch(5, 5), batch(10, 5, timestamp=3000))
    write_segment(tmp_path / "t-0", 20, batch(20))
    data = bytearray(segment.path.read_bytes())
    position = len(data) // 3 * 2
    data[position + 8] = 0x7F  # its size
    rewrite(segment.path, bytes(data))
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.offset_for_timestamp(1003) == TimestampOffset(1003, 3, 0), "before the damage"
        with pytest.raises(CorruptRecordError, match="nothing good follows") as caught:
            log.offset_for_timestamp(3000)
    assert (caught.value.path, caught.value.position) == (segment.path, position)
    assert (caught.value.first_offset, caught.value.last_offset) == (10, None)
