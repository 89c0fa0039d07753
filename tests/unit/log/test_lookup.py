"""Searching by time: the first record at a time or later, in every kind of log."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.log.lookup import EARLIEST, LATEST, MAX_TIMESTAMP, TimestampOffset
from seglog.model import Compression, Record
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
