"""Cutting a log back."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptRecordError
from seglog.log.loader import LoadedLog, LoadOptions, load_log
from seglog.log.log import Log
from seglog.log.writer import SegmentWriter
from seglog.model import Record
from tests.support.log_files import FS, batch, files_of, rows_of, transactional, write_segment
from tests.support.open_logs import opened_log

CLOCK = FixedClock(5000)


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedLog:
    write_segment(tmp_path, 0, batch(0, 10, epoch=1), transactional(10, 7, 0), index_interval_bytes=0)
    write_segment(tmp_path, 11, batch(11, 9, epoch=2), batch(20, 10, epoch=2), index_interval_bytes=0)
    write_segment(tmp_path, 30, batch(30, 10, epoch=2), index_interval_bytes=0)
    return load_log(FS, tmp_path, CLOCK, LoadOptions(clean_shutdown=False))


def end_of(loaded: LoadedLog) -> SegmentWriter:
    return SegmentWriter(Log(loaded.report.directory, LogConfig(), loaded, CLOCK))


def test_the_batch_that_holds_the_offset_goes_with_all_after_it(loaded: LoadedLog) -> None:
    done = end_of(loaded).truncate_to(25)
    assert loaded.segments.base_offsets == [0, 11]
    assert loaded.segments.active.size == done_size(loaded, batch(11, 9, epoch=2))
    assert all(path.name.endswith(".deleted") and path.exists() for path in done.pending_removal)
    assert loaded.producers.end_offset == 25


def done_size(loaded: LoadedLog, *batches: bytes) -> int:
    assert loaded.segments.active.path.stat().st_size == loaded.segments.active.size
    return sum(map(len, batches))


def test_epochs_and_producers_go_back_too(loaded: LoadedLog) -> None:
    end_of(loaded).truncate_to(10)
    assert [entry.epoch for entry in loaded.leader_epochs.entries] == [1]
    assert loaded.producers.producers == {}


def test_at_the_first_segment_it_stays_and_is_emptied(loaded: LoadedLog) -> None:
    first = loaded.segments.first
    end_of(loaded).truncate_to(0)
    assert [*loaded.segments] == [first]
    assert first.path.stat().st_size == 0


def test_below_the_first_segment_the_log_starts_anew(tmp_path: Path) -> None:
    write_segment(tmp_path, 50, batch(50, 10))
    loaded = load_log(FS, tmp_path, CLOCK, LoadOptions(clean_shutdown=False))
    done = end_of(loaded).truncate_to(20)
    assert (done.log_start_offset, loaded.segments.base_offsets, loaded.producers.end_offset) == (20, [20], 20)


def test_a_full_truncation_leaves_one_empty_segment_and_no_producers(loaded: LoadedLog) -> None:
    assert loaded.producers.producers
    done = end_of(loaded).truncate_fully(100)
    assert (done.offset, done.log_start_offset, loaded.segments.base_offsets) == (100, 100, [100])
    assert (loaded.producers.producers, loaded.producers.end_offset) == ({}, 100)
    for path in done.pending_removal:
        path.unlink()
    names = sorted(files_of(loaded.report.directory))
    assert [name for name in names if not name.startswith("leader")] == [
        *(f"{100:020d}.{kind}" for kind in ("index", "log", "timeindex")),
    ]
    assert loaded.leader_epochs.entries == ()


def test_damage_that_hides_where_to_cut_is_refused_before_anything_goes(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 10), batch(10, 10), index_interval_bytes=0)
    write_segment(tmp_path, 20, batch(20, 10))
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[: len(batch(0, 10))] + bytes(40))
    before = files_of(tmp_path)
    loaded = load_log(FS, tmp_path, CLOCK, LoadOptions(clean_shutdown=True))
    with pytest.raises(CorruptRecordError, match=f"position {len(batch(0, 10))}: the size field"):
        end_of(loaded).truncate_to(15)
    assert {name: data for name, data in files_of(tmp_path).items() if name in before} == before
    assert loaded.segments.base_offsets == [0, 20]


def test_a_torn_end_of_the_segment_that_becomes_the_last_is_cut_by_the_next_append(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 10))
    write_segment(tmp_path, 20, batch(20, 10))
    with (tmp_path / "00000000000000000000.log").open("ab") as file:
        file.write(batch(10, 10)[:50])
    loaded = load_log(FS, tmp_path, CLOCK, LoadOptions(clean_shutdown=True))
    end_of(loaded).truncate_to(15)
    active = loaded.segments.active
    assert (active.size, active.trailing_bytes) == (len(batch(0, 10)), 50)
    active.append(*reversed(rows_of(batch(15, 1))))
    assert [int(row["base_offset"]) for rows in active.rows() for row in rows] == [0, 15]


def test_the_age_of_a_segment_that_was_emptied_counts_anew(loaded: LoadedLog) -> None:
    loaded.segments.first.created_ms = 1
    end_of(loaded).truncate_to(0)
    assert loaded.segments.active.created_ms == CLOCK.now_ms()


@pytest.mark.parametrize("offset", [-1, 2**63, 2**70])
def test_a_log_that_cannot_begin_at_an_offset_keeps_everything(tmp_path: Path, offset: int) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"v", timestamp=1)])
        with pytest.raises(ValueError, match=f"offset: {offset} is not from 0 to"):
            log.truncate_fully(offset)
        assert [record.value for record in log.records()] == [b"v"]
