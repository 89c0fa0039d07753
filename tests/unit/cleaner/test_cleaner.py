"""A cleaning round as a whole: what stays, what is refused, and that a plan keeps its word."""

from __future__ import annotations

import pickle
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.cleaner import ForeseenRound, apply_plan, clean_log, foresee_round
from seglog.cleaner.output import CleaningResult
from seglog.cleaner.round import CleanerOptions, Strategy, plan_round
from seglog.errors import ConfigError, CorruptRecordError, InvalidRecordError, RefusedError
from seglog.log.log import Log
from seglog.model import Compression, Header, Record
from seglog.storage.filesystem import File, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.cleaning import append, clean, compacted_log, contents, digest, keyed, many, transaction
from tests.support.crash_filesystem import CrashFileSystem
from tests.support.log_files import batch, files_of
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.support.reference_cleaner import survivors

DAY_MS = 86_400_000


def test_the_last_record_of_each_key_survives_with_its_offset(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("b", "2"), ("a", "3"), ("c", "4"), ("b", "5")))
    log.roll()
    result = clean(log)
    assert contents(log) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert (result.first_dirty_offset, result.end_offset) == (0, 5)
    assert result.stats.records_read == 5
    assert result.stats.records_written == 3


def test_the_active_segment_is_left_alone_unless_it_is_rolled(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("a", "2")))
    before = contents(log)
    assert clean(log).end_offset == 0
    assert contents(log) == before
    assert clean(log, roll=True).end_offset == 2
    assert contents(log) == [(1, b"a", b"2")]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_segment_that_reaches_beyond_the_log_end_is_not_rolled(tmp_path: Path, dry_run: bool) -> None:
    with compacted_log(tmp_path) as log:
        append(log, keyed(("a", "1"), ("b", "2")))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + batch(20, 2) + batch(10, 2))
    log = compacted_log(tmp_path)
    before = digest(tmp_path / "t-0")
    with pytest.raises(RefusedError, match=rf"{path.name}: position \d+: the batch reaches offset 21, .*ends at 11"):
        if dry_run:
            plan_round(log, CleanerOptions(roll=True), ManualClock(START_MS))
        else:
            clean(log, roll=True)
    assert digest(tmp_path / "t-0") == before


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_segment_that_is_named_after_a_higher_offset_than_it_holds_is_not_rolled(
    tmp_path: Path, dry_run: bool
) -> None:
    with compacted_log(tmp_path) as log:
        append(log, keyed(("a", "1"), ("b", "2")))
    for path in (tmp_path / "t-0").glob(f"{0:020d}.*"):
        path.rename(path.with_name(f"{21:020d}{path.suffix}"))
    log = compacted_log(tmp_path)
    before = digest(tmp_path / "t-0")
    with pytest.raises(RefusedError, match=rf"{21:020d}.log: its last batch ends at offset 1, .* cannot be rolled"):
        if dry_run:
            plan_round(log, CleanerOptions(roll=True), ManualClock(START_MS))
        else:
            clean(log, roll=True)
    assert digest(tmp_path / "t-0") == before


def test_a_second_round_begins_where_the_first_ended_and_still_beats_the_clean_section(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("b", "2")))
    first = clean(log, roll=True)
    append(log, keyed(("a", "3")))
    second = clean(log, roll=True, checkpoint=first.end_offset)
    assert (second.first_dirty_offset, second.stats.map_records_read) == (2, 1)
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"3")]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("jobs", [1, 2])
def test_every_codec_comes_out_with_the_same_records_and_codec(tmp_path: Path, codec: Compression, jobs: int) -> None:
    log = compacted_log(tmp_path, segment_bytes=3000)
    records = many(400, 40)
    append(log, records, 10, codec)
    expected = survivors(list(log.records()))
    clean(log, roll=True, jobs=jobs, chunk_bytes=700)
    assert contents(log) == expected
    codecs = {int(row["attributes"]) & 7 for segment in log.segments for rows in segment.rows() for row in rows}
    assert codecs <= {int(codec), 0}


@pytest.mark.parametrize("mask", [0, 1, 0xFF])
@pytest.mark.parametrize("buffer_bytes", [120, 1 << 20])
def test_keys_with_equal_hashes_lose_no_record(tmp_path: Path, mask: int, buffer_bytes: int) -> None:
    log = compacted_log(tmp_path)
    append(log, many(300, 60), 7)
    expected = survivors(list(log.records()))
    clean(log, roll=True, hash_mask=mask, dedupe_buffer_bytes=buffer_bytes)
    assert contents(log) == expected


def test_a_buffer_for_one_percent_of_the_keys_gives_the_files_of_a_large_one(tmp_path: Path) -> None:
    found = []
    for name, buffer_bytes in (("large", 1 << 20), ("small", 24 * 12)):
        log = compacted_log(tmp_path / name, segment_bytes=20_000)
        append(log, many(3000, 1000), 20)
        result = clean(log, roll=True)
        append(log, many(3000, 1000, seed=2), 20)
        result = clean(log, roll=True, checkpoint=result.end_offset, dedupe_buffer_bytes=buffer_bytes)
        found.append({k: v for k, v in files_of(log.directory).items() if not k.endswith(".snapshot")})
        passes = result.stats.index_passes
        assert (passes > 50) == (name == "small")
        assert result.stats.map_entries == len({record.key for record in many(3000, 1000, seed=2)})
    assert found[0] == found[1]


@pytest.mark.parametrize("buffer_bytes", [24 * 12, 1 << 20])
@pytest.mark.parametrize("transactions", [(), (0,), (0, 1), (0, 1, 2)])
def test_many_threads_leave_the_files_of_one(tmp_path: Path, buffer_bytes: int, transactions: tuple[int, ...]) -> None:
    """Also where transactions in the clean section, not the dirty one, tie groups that are copied side by side."""
    found = []
    for jobs in (1, 3):
        log = compacted_log(tmp_path / str(jobs), segment_bytes=2000)
        for section in range(3):
            checkpoint = log.log_end_offset
            for part in range(6):
                records = many(60, 40, seed=6 * section + part)
                if section in transactions:
                    transaction(log, 1 + part % 2, records, commit=part % 3 > 0, timestamp=START_MS)
                else:
                    append(log, records, 5)
            log.roll()
        clean(log, checkpoint=checkpoint, jobs=jobs, dedupe_buffer_bytes=buffer_bytes)
        assert len(log.segments) > 3
        found.append(files_of(log.directory))
    assert found[0] == found[1]


class CountingFileSystem(PassingFileSystem):
    """Knows how many files are open, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())
        self.open_now = self.most = 0

    def open(self, path: Path, mode: OpenMode) -> File:
        file = super().open(path, mode)
        self.open_now += 1
        self.most = max(self.most, self.open_now)
        return CountedFile(file, self)


class CountedFile(PassingFile):
    def __init__(self, below: File, counter: CountingFileSystem) -> None:
        super().__init__(below)
        self._counter = counter

    def close(self) -> None:
        super().close()
        self._counter.open_now -= 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_log_may_have_more_segments_than_a_process_may_open_files(tmp_path: Path, jobs: int) -> None:
    fs = CountingFileSystem()
    log = compacted_log(tmp_path, segment_bytes=400, fs=fs)
    append(log, many(400, 300), 3)
    assert len(log.segments) > 40
    assert clean(log, roll=True, jobs=jobs).stats.records_written == len({record.key for record in many(400, 300)})
    log.fail(RuntimeError("the machine stops here"))
    recovered = compacted_log(tmp_path, segment_bytes=400, fs=fs, clean=False)
    assert len(recovered.segments) == len(log.segments)
    assert fs.most <= 60, "three files a segment would be 120 and more"


def test_a_buffer_that_holds_no_two_keys_is_an_error() -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        CleanerOptions(dedupe_buffer_bytes=24)


def test_a_key_larger_than_anything_else_is_compared_in_full(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, max_message_bytes=1 << 22)
    long = "k" * 1_000_000
    append(log, keyed((long + "a", "1"), (long + "b", "2"), (long + "a", "3")), 1)
    clean(log, roll=True, hash_mask=0)
    assert [offset for offset, _, _ in contents(log)] == [1, 2]


def test_a_wrong_checksum_is_refused_by_name_and_nothing_changes(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=1000)
    append(log, many(100, 10))
    log.roll()
    target = log.segments.snapshot()[1]
    row = next(target.rows())[2]
    data = bytearray(target.path.read_bytes())
    data[int(row["position"]) + 70] ^= 1
    target.path.write_bytes(data)
    before = digest(log.directory)
    with pytest.raises(CorruptRecordError) as caught:
        clean(log)
    assert digest(log.directory) == before
    assert (caught.value.path, caught.value.position) == (target.path, int(row["position"]))
    assert (caught.value.first_offset, caught.value.last_offset) == (int(row["base_offset"]), int(row["last_offset"]))
    assert "seglog repair" in str(caught.value)


def test_a_wrong_checksum_in_the_clean_section_is_refused_too(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=1000)
    append(log, many(100, 10))
    log.roll()
    data = bytearray(log.segments.first.path.read_bytes())
    data[70] ^= 1
    log.segments.first.path.write_bytes(data)
    before = digest(log.directory)
    with pytest.raises(CorruptRecordError, match="checksum"):
        clean(log, checkpoint=log.segments.snapshot()[2].base_offset)
    assert digest(log.directory) == before


def test_trailing_bytes_are_refused(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, many(9, 3))
    log.roll()
    log.close()
    first = log.segments.first.path
    first.write_bytes(first.read_bytes() + b"torn")
    log = compacted_log(tmp_path)
    before = digest(log.directory)
    with pytest.raises(CorruptRecordError, match="not a whole batch"):
        clean(log)
    assert digest(log.directory) == before


def test_records_that_cannot_be_read_are_refused_though_the_checksum_is_right(tmp_path: Path) -> None:
    from seglog.format.checksum import crc32c

    log = compacted_log(tmp_path)
    append(log, many(9, 3), 9)
    log.roll()
    data = bytearray(log.segments.first.path.read_bytes())
    data[61] ^= 2  # length of the first record
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    log.segments.first.path.write_bytes(data)
    with pytest.raises(InvalidRecordError):
        clean(log)


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("number", [0, 3])
def test_what_cannot_be_decompressed_is_refused_as_such(tmp_path: Path, codec: Compression, number: int) -> None:
    """Also after others of its codec, with which it is decompressed in one run."""
    from seglog.format.checksum import crc32c

    log = compacted_log(tmp_path)
    append(log, many(30, 3), 5, codec)
    log.roll()
    row = next(log.segments.first.rows())[number]
    begin, end = int(row["position"]), int(row["position"] + row["size"])
    data = bytearray(log.segments.first.path.read_bytes())
    data[begin + 61] ^= 0xFF  # the frame's magic number
    data[begin + 17 : begin + 21] = crc32c(bytes(data[begin + 21 : end])).to_bytes(4, "big")
    log.segments.first.path.write_bytes(data)
    before = digest(log.directory)
    for options in ({}, {"checkpoint": log.log_end_offset}):
        with pytest.raises(InvalidRecordError, match="cannot be decompressed") as caught:
            clean(log, **options)
        assert caught.value.position == begin
    assert digest(log.directory) == before


def foreseen_round(log: Log, **options: Any) -> ForeseenRound:
    clock = ManualClock(START_MS)
    return foresee_round(log, plan_round(log, CleanerOptions(**options), clock), clock)


def carried_out(log: Log, foreseen: ForeseenRound, **config: Any) -> CleaningResult:
    """The round with plan and map; on a copy of the log the plan alone comes to the same, sent as bytes."""
    clock = ManualClock(START_MS)
    log.flush()
    shutil.copytree(log.directory, log.directory.parent / "copy" / "t-0")
    result = apply_plan(log, foreseen.plan, clock, foreseen=foreseen)
    with compacted_log(log.directory.parent / "copy", **config) as copy:
        plan = replace(pickle.loads(pickle.dumps(foreseen.plan)), directory=copy.directory)
        assert apply_plan(copy, plan, clock).segments_after == result.segments_after
        assert [s.path.read_bytes() for s in copy.segments] == [s.path.read_bytes() for s in log.segments]
    return result


def test_a_plan_touches_nothing_and_the_run_does_what_it_said(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_bytes=2000)
    append(log, many(500, 50), 10, Compression.ZSTD)
    log.roll()
    before = digest(log.directory)
    foreseen = foreseen_round(log)
    assert digest(log.directory) == before
    result = carried_out(log, foreseen, segment_bytes=2000)
    assert result.segments_after == foreseen.result.segments_after
    assert result.stats.reasons() == foreseen.result.stats.reasons()
    assert (result.stats.map_records_read, result.buffer_utilization) == (500, foreseen.result.buffer_utilization)
    assert [s.path.stat().st_size for s in log.segments][:-1] == [s.size for s in foreseen.result.segments_after]
    assert foreseen.result.to_json()["dry_run"] is True


def test_a_plan_with_roll_foresees_the_rolled_segment(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, many(60, 6))
    foreseen = foreseen_round(log, roll=True)
    assert len(log.segments) == 1
    assert carried_out(log, foreseen).segments_after == foreseen.result.segments_after
    assert foreseen.plan.end_offset == 60


def test_a_plan_with_roll_counts_the_time_entry_that_rolling_adds(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, segment_index_bytes=23)
    append(log, keyed(("a", "1")))
    log.roll()
    append(log, keyed(("b", "2")))
    foreseen = foreseen_round(log, roll=True)
    assert [segment.base_offset for segment in foreseen.result.segments_after] == [0, 1]
    assert carried_out(log, foreseen, segment_index_bytes=23).segments_after == foreseen.result.segments_after


@pytest.mark.parametrize(("roll", "rolled_since"), [(False, True), (True, False), (True, True)])
def test_a_plan_is_refused_when_the_log_went_on(tmp_path: Path, roll: bool, rolled_since: bool) -> None:
    log = compacted_log(tmp_path)
    append(log, many(60, 6))
    log.roll()
    append(log, many(6, 6))
    plan = plan_round(log, CleanerOptions(roll=roll), ManualClock(START_MS))
    append(log, many(5, 5))
    if rolled_since:
        log.roll()
    before = digest(log.directory)
    with pytest.raises(RefusedError, match="changed since"):
        apply_plan(log, plan, ManualClock(START_MS))
    assert digest(log.directory) == before


def test_no_room_for_the_output_is_refused_before_writing(tmp_path: Path) -> None:
    compacted = compacted_log(tmp_path)
    append(compacted, many(60, 60))
    compacted.roll()
    compacted.close()
    fs = CrashFileSystem.of(tmp_path)
    log = compacted_log(tmp_path, fs=fs)
    fs.fill_disk_after(100)
    before = fs.contents(log.directory)
    with pytest.raises(RefusedError, match="nothing was changed"):
        clean(log)
    assert fs.contents(log.directory) == before


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    compacted = compacted_log(tmp_path)
    append(compacted, many(600, 600))
    compacted.roll()
    compacted.close()
    fs = CrashFileSystem.of(tmp_path)
    log = compacted_log(tmp_path, fs=fs)
    before = fs.contents(log.directory)
    fs.fill_disk_after(1000)
    fs.free_bytes = lambda path: 1 << 40  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        clean(log)
    assert fs.contents(log.directory) == before


def with_version(key: str, value: str, version: int | None, timestamp: int = START_MS) -> Record:
    headers = () if version is None else (Header("v", version.to_bytes(8, "big", signed=True)),)
    return Record(value.encode(), key.encode(), timestamp, headers)


def test_strategy_timestamp_keeps_the_latest_timestamp_and_the_last_record(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, [with_version("a", "new", None, START_MS + 9), with_version("a", "old", None, START_MS)])
    append(log, [with_version("b", "x", None, START_MS + 5), with_version("b", "y", None, START_MS + 5)])
    append(log, [with_version("a", "older", None, START_MS - 1)])
    clean(log, roll=True, strategy=Strategy.parse("timestamp"))
    assert contents(log) == [(0, b"a", b"new"), (3, b"b", b"y"), (4, b"a", b"older")]


def test_strategy_header_keeps_the_highest_value_and_prefers_records_that_have_one(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    versions = [("a", 5), ("a", 3), ("b", -1), ("b", None), ("c", None), ("c", None), ("d", 7), ("d", 7), ("z", 0)]
    append(log, [with_version(key, str(i), version) for i, (key, version) in enumerate(versions)])
    clean(log, roll=True, strategy=Strategy.parse("header:v"))
    assert [offset for offset, _, _ in contents(log)] == [0, 2, 5, 7, 8]


def test_a_clean_record_wins_under_a_strategy_that_prefers_it(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, [with_version("a", "best", 9)])
    end = clean(log, roll=True, strategy=Strategy.parse("header:v")).end_offset
    append(log, [with_version("a", "late", 1), with_version("b", "x", 1)])
    clean(log, roll=True, strategy=Strategy.parse("header:v"), checkpoint=end)
    assert contents(log) == [(0, b"a", b"best"), (2, b"b", b"x")]


def test_tombstones_go_one_round_after_they_were_stamped(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("a", None), ("b", "2")))
    clean(log, roll=True)
    assert contents(log) == [(1, b"a", None), (2, b"b", b"2")]
    later = clean(log, at=START_MS + DAY_MS, first_dirty_offset=0)
    assert contents(log) == [(2, b"b", b"2")]
    assert later.stats.reasons()["tombstones_expired"] == 1


def test_expire_removes_old_tombstones_of_an_idle_log_at_once_and_stamps_the_others(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("a", None), ("b", "2")))
    append(log, keyed(("c", None), timestamp=START_MS + 2 * DAY_MS))
    log.roll()
    result = clean(log, at=START_MS + 2 * DAY_MS, expire=True, checkpoint=log.log_end_offset)
    assert result.stats.index_passes == 1
    assert contents(log)[-1] == (3, b"c", None)
    assert (1, b"a", None) not in contents(log)
    assert result.stats.reasons()["delete_horizons_set"] == 1


def markers(log: Log) -> list[tuple[int, int]]:
    """(producer id, records) of every control batch."""
    return [
        (int(row["producer_id"]), int(row["count"]))
        for segment in log.segments
        for rows in segment.rows()
        for row in rows
        if int(row["attributes"]) & 0x20
    ]


def test_expire_removes_markers_whose_transactions_are_gone_in_one_command(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    transaction(log, 1, keyed(("a", "1")), commit=False, timestamp=START_MS)
    transaction(log, 2, keyed(("b", "1")), commit=True, timestamp=START_MS)
    transaction(log, 3, keyed(("c", "kept")), commit=True, timestamp=START_MS)
    append(log, keyed(("b", "2"), timestamp=START_MS + 2 * DAY_MS))
    log.producers.producers.clear()  # a broker forgets those that are silent for a day
    clean(log, at=START_MS + 2 * DAY_MS, expire=True, roll=True)
    assert markers(log) == [(3, 1)]
    assert [key for _, key, _ in contents(log)] == [b"c", b"b"]


def test_a_transaction_aborted_in_front_of_the_first_dirty_offset_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    """Its marker is not read, so it must not be thought to go on."""
    log = compacted_log(tmp_path, index_interval_bytes=0)  # so that reading begins in the middle of the segment
    transaction(log, 1, keyed(("a", "aborted")), commit=False, timestamp=START_MS)
    dirty = log.log_end_offset
    transaction(log, 1, keyed(("b", "superseded")), commit=True, timestamp=START_MS)
    append(log, keyed(("b", "2")))
    result = clean(log, checkpoint=dirty, roll=True)
    assert result.first_dirty_offset == dirty
    assert [(key, value) for _, key, value in contents(log) if value in (b"superseded", b"2")] == [(b"b", b"2")]


def test_an_aborted_transaction_leaves_an_index_entry_as_long_as_its_marker(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    transaction(log, 1, keyed(("a", "aborted")), commit=False, timestamp=START_MS)
    append(log, keyed(("b", "2")))
    clean(log, roll=True)
    assert [t.producer_id for t in log.segments.first.transaction_index.entries] == [1]
    assert b"aborted" not in log.segments.first.path.read_bytes()


def test_the_broker_text_has_its_lines(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, many(300, 3))
    text = clean(log, roll=True).text()
    assert text.startswith("\n\tLog cleaner thread 0 cleaned log t-0 (dirty section = [0, 300])\n")
    assert re.search(r"\n\tBuffer utilization: 0\.0%\n", text)
    assert re.search(r"\n\tStart size: 0\.0 MB \(300 messages\)\n\tEnd size: 0\.0 MB \(3 messages\)\n", text)
    assert text.endswith("% size reduction (99.0% fewer messages)\n")


def test_an_empty_log_and_one_without_dirty_records_are_no_error(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    result = clean_log(log, CleanerOptions(roll=True), ManualClock(START_MS))
    assert (result.end_offset, result.segments_after) == (0, ())
