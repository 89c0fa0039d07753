"""Opening a partition: leftovers, missing files, damage, splits; and that planning and reading touch
nothing.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.errors import CorruptionError, CorruptRecordError, NotALogError
from seglog.log.loader import LoadedLog, LoadOptions, load_log, plan_recovery, refuse_losses
from seglog.log.segment import LogSegment
from seglog.model import Compression, Record
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.filesystem import PassingFileSystem
from tests.support.log_files import (
    FS,
    batch,
    encode_message_set,
    files_of,
    marker,
    replayed,
    transactional,
    write_segment,
    write_three_segments,
)

CLOCK = FixedClock(5000)
UNCLEAN, CLEAN = LoadOptions(clean_shutdown=False), LoadOptions(clean_shutdown=True)
READ = LoadOptions(clean_shutdown=False, writable=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_three_segments(tmp_path / "t-0")
    return tmp_path / "t-0"


def load(directory: Path, options: LoadOptions = UNCLEAN) -> LoadedLog:
    loaded = load_log(FS, directory, CLOCK, options)
    loaded.segments.close(options.writable)
    return loaded


def hold_at_most(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Batches of more than `size` bytes count as too large to be held."""

    def scan(self: LogSegment, start: int = 0, end: int | None = None, chunk_bytes: int = 64) -> SegmentScan:
        stop = self.size if end is None else end
        return SegmentScan(self.fs, self.path, start, stop, chunk_bytes=chunk_bytes, held_bytes=size)

    monkeypatch.setattr(LogSegment, "scan", scan)


def damage(directory: Path, base: int, position: int, value: int = 0xFF) -> None:
    path = directory / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= value
    path.write_bytes(data)


def test_damage_ends_the_log_and_later_segments_go(log: Path) -> None:
    damage(log, 20, 300)
    loaded = load(log)
    report = loaded.report
    assert (loaded.log_end_offset, loaded.segments.base_offsets) == (30, [0, 20])
    assert report.deleted_segments == [40]
    assert report.truncated_bytes == report.deleted_bytes + report.truncated_segments[0].truncated_bytes
    assert not [name for name in files_of(log) if name.startswith(f"{40:020d}") and not name.endswith(".snapshot")]


def test_planning_tells_what_loading_does_and_changes_nothing(log: Path) -> None:
    damage(log, 20, 300)
    (log / f"{0:020d}.log.deleted").write_bytes(b"old")
    before = files_of(log)
    plan = plan_recovery(FS, log, CLOCK, UNCLEAN)
    assert files_of(log) == before
    assert plan == load(log).report


def test_recovery_lists_the_directory_as_often_for_many_segments_as_for_few(log: Path, tmp_path: Path) -> None:
    class Listed(PassingFileSystem):
        calls = 0

        def list(self, directory: Path) -> list[str]:
            self.calls += 1
            return super().list(directory)

    longer = tmp_path / "t-1"
    for base in range(0, 400, 20):
        write_segment(longer, base, batch(base, 20))
    few, many = Listed(FS), Listed(FS)
    for fs, directory, segments in ((few, log, 3), (many, longer, 20)):
        loaded = load_log(fs, directory, CLOCK, UNCLEAN)
        loaded.segments.close()
        assert len(loaded.report.recovered) == segments
        assert len(list(directory.glob("*.snapshot"))) == segments
    assert few.calls == many.calls > 0


def test_segments_below_the_recovery_point_are_trusted(log: Path) -> None:
    damage(log, 0, 100)
    loaded = load(log, LoadOptions(clean_shutdown=False, recovery_point=40))
    assert (loaded.log_end_offset, loaded.report.truncated_bytes) == (60, 0)


def test_after_a_clean_stop_damage_stays(log: Path) -> None:
    damage(log, 20, 100)
    before = files_of(log)
    assert load(log, CLEAN).log_end_offset == 60
    assert {name: data for name, data in files_of(log).items() if name in before} == before


def test_a_missing_offset_index_is_rebuilt_and_a_missing_time_index_made_empty(log: Path) -> None:
    before = files_of(log)
    (log / f"{20:020d}.index").unlink()
    (log / f"{0:020d}.timeindex").unlink()
    load(log, LoadOptions(clean_shutdown=True, index_interval_bytes=0))
    after = files_of(log)
    assert after[f"{20:020d}.index"] == before[f"{20:020d}.index"]
    assert after[f"{0:020d}.timeindex"] == b""


@pytest.mark.parametrize("tail", [b"\x00" * 40, b"torn"])
def test_a_torn_tail_after_a_clean_stop_ends_the_log_until_an_append_cuts_it(log: Path, tail: bytes) -> None:
    path = log / f"{40:020d}.log"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    loaded = load(log, CLEAN)
    assert (loaded.log_end_offset, loaded.segments.active.size) == (60, size)
    assert loaded.segments.active.trailing_bytes == len(tail)
    assert loaded.report.events == [f"{path}: position {size}: {len(tail)} bytes are not a whole batch"]
    assert path.stat().st_size == size + len(tail)


def test_offsets_out_of_order_empty_the_segment(log: Path) -> None:
    path = log / f"{20:020d}.log"
    path.write_bytes(batch(20, 10) + batch(35, 5) + batch(22, 1))
    size = path.stat().st_size
    loaded = load(log, LoadOptions(clean_shutdown=False, index_interval_bytes=0))
    assert (loaded.log_end_offset, path.stat().st_size, loaded.segments.base_offsets) == (20, 0, [0, 20])
    emptied = loaded.report.recovered[-1]
    assert (emptied.valid_bytes, emptied.truncated_bytes, emptied.next_offset) == (0, size, 20)


def test_a_log_below_its_start_is_dropped_with_its_producers(log: Path) -> None:
    producers = replayed(log, transactional(0, 7, 0), marker(1, 7, commit=True))
    producers.end_offset = 55
    producers.take_snapshot()
    options = LoadOptions(clean_shutdown=False, log_start_offset=100)
    with pytest.raises(CorruptRecordError, match="the log ends below its start 100 in log-start-offset-checkpoint"):
        refuse_losses(plan_recovery(FS, log, CLOCK, options))
    loaded = load(log, options)
    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.segments.base_offsets) == (100, 100, [100])
    assert not loaded.producers.producers and not list(log.glob("*.snapshot"))


def test_an_empty_directory_becomes_a_log(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert sorted(files_of(tmp_path)) == [f"{0:020d}.{kind}" for kind in ("index", "log", "timeindex")]
    assert loaded.log_end_offset == 0


def test_a_missing_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(NotALogError):
        load(tmp_path / "missing")


def test_a_log_file_without_an_offset_stops_writers_but_not_readers(log: Path) -> None:
    (log / "x.log").write_bytes(b"")
    with pytest.raises(CorruptionError, match="name is not an offset"):
        load(log)
    assert load(log, READ).log_end_offset == 60


def test_an_index_without_its_log_goes(log: Path) -> None:
    (log / f"{99:020d}.index").write_bytes(b"")
    assert [path.name for path in load(log, CLEAN).report.removed_files] == [f"{99:020d}.index"]


def test_a_finished_swap_replaces_what_its_contents_cover(log: Path) -> None:
    merged = b"".join((log / f"{base:020d}.log").read_bytes() for base in (0, 20))
    (log / f"{0:020d}.log.swap").write_bytes(merged)
    loaded = load(log, CLEAN)
    assert loaded.segments.base_offsets == [0, 40]
    assert (log / f"{0:020d}.log").read_bytes() == merged
    assert loaded.log_end_offset == 60


def test_a_finished_swap_may_have_batches_that_are_too_large_to_be_held(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_at_most(monkeypatch, 100)
    merged = b"".join((log / f"{base:020d}.log").read_bytes() for base in (0, 20))
    (log / f"{0:020d}.log.swap").write_bytes(merged)
    assert load(log, CLEAN).report.replaced == []


CLEANED = batch(20, 3) + batch(25, 3)
REPLACED = batch(20, 3) + batch(23, 2) + batch(25, 3) + batch(28, 2)


@pytest.mark.parametrize(
    ("swap", "less"),
    [
        (CLEANED, False),
        (batch(23, 2, value=b"fewer"), False),
        (batch(20, 3), True),
        (batch(20, 3) + batch(24), True),
        (batch(20, 3) + batch(25, 3, epoch=1), True),
        (b"", True),
    ],
    ids=["batches gone", "records gone", "a front", "another batch", "another epoch", "empty"],
)
def test_a_swap_that_ends_sooner_holds_less_unless_a_cleaning_has_made_it(log: Path, swap: bytes, less: bool) -> None:
    """A cleaning drops the last batches of a segment where their records have newer ones."""
    write_segment(log, 20, REPLACED)
    (log / f"{20:020d}.log.swap").write_bytes(swap)
    report = load(log).report
    assert bool(report.replaced) == bool(report.truncated_bytes) == less
    assert (log / f"{20:020d}.log").read_bytes() == swap


def test_an_unfinished_swap_is_undone(log: Path) -> None:
    before = files_of(log)
    (log / f"{0:020d}.log.cleaned").write_bytes(b"half")
    (log / f"{20:020d}.log.swap").write_bytes(batch(20, 5))
    loaded = load(log, CLEAN)
    after = files_of(log)
    assert {name: after[name] for name in before} == before
    assert loaded.segments.base_offsets == [0, 20, 40]


@pytest.mark.parametrize("held_bytes", [1 << 20, 100])
def test_an_overflowed_segment_is_split(tmp_path: Path, held_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its batches are too large to be held."""

    hold_at_most(monkeypatch, held_bytes)
    directory = tmp_path / "t-0"
    write_segment(directory, 0, batch(0, 10))
    path = directory / f"{0:020d}.log"
    first, second, third = batch(0, 10), batch(2**31 - 5, 10), batch(2**31 + 10, 10)
    path.write_bytes(first + second + third)
    plan = plan_recovery(FS, directory, CLOCK, UNCLEAN)
    loaded = load(directory)
    assert loaded.segments.base_offsets == [0, 2**31 - 5]
    assert path.read_bytes() == first
    assert (directory / f"{2**31 - 5:020d}.log").read_bytes() == second + third
    assert loaded.log_end_offset == 2**31 + 20 == plan.log_end_offset


@pytest.mark.parametrize(("last", "bases"), [(2**31 - 1, [0]), (2**31, [0, 2**31])])
def test_the_first_offset_that_does_not_fit_overflows_a_segment(tmp_path: Path, last: int, bases: list[int]) -> None:
    """Each batch holds one record."""
    directory = tmp_path / "t-0"
    write_segment(directory, 0, batch(0, 1))
    first, second = batch(0, 1), batch(last, 1)
    (directory / f"{0:020d}.log").write_bytes(first + second)
    loaded = load(directory)
    assert (loaded.segments.base_offsets, loaded.log_end_offset) == (bases, last + 1)
    assert b"".join((directory / f"{base:020d}.log").read_bytes() for base in bases) == first + second


@pytest.mark.parametrize("magic", [0, 1])
def test_a_segment_split_at_a_wrapper_is_named_after_its_first_record(tmp_path: Path, magic: int) -> None:
    """The header of a wrapper has the offset of its last record."""
    directory = tmp_path / "t-0"
    write_segment(directory, 0, batch(0, 1))
    records = [Record(b"v", timestamp=1000 if magic else -1) for _ in range(3)]
    first, second = (encode_message_set(records, base, magic, Compression.GZIP) for base in (0, 2**31 + 7))
    (directory / f"{0:020d}.log").write_bytes(first + second)
    loaded = load(directory)
    assert (loaded.segments.base_offsets, loaded.log_end_offset) == ([0, 2**31 + 7], 2**31 + 10)


def test_reading_touches_nothing_of_a_killed_brokers_log(log: Path) -> None:
    path = log / f"{40:020d}.log"
    path.write_bytes(path.read_bytes() + transactional(60, 7, 0) + b"\x00\x01torn")
    for name in (f"{40:020d}.index", f"{40:020d}.timeindex"):
        (log / name).write_bytes((log / name).read_bytes() + bytes(24 * 100))
    (log / f"{0:020d}.log.cleaned").write_bytes(b"half")
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in log.iterdir()}
    loaded = load(log, READ)
    assert {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in log.iterdir()} == before
    assert loaded.log_end_offset == 61
    assert loaded.producers.open_transactions == {60: 7}


def test_every_flipped_bit_leaves_a_log_that_loads_again_unchanged(tmp_path: Path) -> None:
    data = batch(0, 2) + batch(2, 2) + batch(4, 2)
    for position in range(0, len(data), 3):
        directory = tmp_path / f"t-{position}"
        write_segment(directory, 0, batch(0, 2), batch(2, 2), batch(4, 2), index_interval_bytes=0)
        damage(directory, 0, position, 0x40)
        try:
            first = load(directory)
        except CorruptionError as error:
            assert error.position is not None
            continue
        except Exception as error:  # noqa: BLE001 (any class but our own is the failure)
            assert type(error).__module__ == "seglog.errors", error
            continue
        again = load(directory)
        assert again.report.truncated_bytes == 0
        assert again.log_end_offset == first.log_end_offset


def test_hostile_sizes_end_the_log_quietly(log: Path) -> None:
    path = log / f"{40:020d}.log"
    for size in (-1, 0, 13, 2**31 - 1):
        data = bytearray((batch(40, 10)) + batch(50, 10))
        struct.pack_into(">i", data, len(batch(40, 10)) + 8, size)
        path.write_bytes(data)
        assert load(log).log_end_offset == 50


@pytest.mark.parametrize(
    ("swap", "reason"), [(b"", "it is empty"), (batch(20, 10), "its offsets end at 29"), (b"x" * 90, "position 0")]
)
def test_a_swap_that_holds_less_is_refused_with_its_file_and_what_to_do(
    tmp_path: Path, swap: bytes, reason: str
) -> None:
    """A cleaning that was cut short leaves one, too, where the last records of a segment have newer ones."""
    log = tmp_path / "t-0"
    for base in (0, 20, 40):
        write_segment(log, base, batch(base, 10), batch(base + 10, 10))
    path = log / f"{20:020d}.log"
    path.with_name(path.name + ".swap").write_bytes(swap)
    before = files_of(log)
    with pytest.raises(CorruptRecordError, match="`seglog recover` finishes the swap") as refused:
        refuse_losses(plan_recovery(FS, log, FixedClock(5000), UNCLEAN))
    assert str(path) in str(refused.value) and reason in str(refused.value)
    assert f"{path.name}.swap" in str(refused.value) and f"{path.stat().st_size} bytes" in str(refused.value)
    assert files_of(log) == before
