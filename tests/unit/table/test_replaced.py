"""Segments are cleaned, merged, split, cut or deleted between planning and reading a query, or during either.

Records that still exist are read exactly once; only offsets that no segment holds any more are data loss.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.round import CleanerOptions
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptRecordError, IncompleteError, RefusedError
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan import partition_log
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import SegmentPiece, plan_splits
from seglog_ask.table.read import reading
from seglog_ask.table.read.damage import Damage, handle
from seglog_ask.table.read.reading import Batches, walk_piece
from seglog_ask.table.read.records import decoded
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.support.watched_files import ChangingFileSystem

pytestmark = pytest.mark.slow

FS = LocalFileSystem()
NAME = TopicPartition("t", 0)
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), index_interval_bytes=64)
CLOCK = ManualClock(START_MS + 10**9)
SEGMENTS, RECORDS, KEYS = 6, 20, 7
END = SEGMENTS * RECORDS + 10  # the active segment holds ten


def opened(logs: Path, *, writable: bool = True) -> LogDirectory:
    return LogDirectory.open(logs, fs=FS, clock=CLOCK, config_of=lambda _: CONFIG, writable=writable)


def append(log: Log, count: int) -> None:
    start = log.log_end_offset
    records = [Record(b"v%d" % n, b"k%d" % (n % KEYS), START_MS + n) for n in range(start, start + count)]
    log.append(records, batch_records=4)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Six closed segments and an active one."""
    path = tmp_path / "logs"
    path.mkdir()
    (path / "meta.properties").write_text("version=1\n")
    with opened(path) as directory:
        log = directory.log(NAME, create=True)
        for _ in range(SEGMENTS):
            append(log, RECORDS)
            log.roll()
        append(log, 10)
    return path


def held(logs: Path) -> dict[int, bytes | None]:
    """Returns the records by offset, as any reader finds them."""
    with opened(logs, writable=False) as directory:
        return {int(record.offset or 0): record.value for record in directory.log(NAME).records()}


def options(logs: Path, **given: str) -> ReadOptions:
    return parse_read_options({"path": str(logs), **given})


def planned(chosen: ReadOptions) -> list[SegmentPiece]:
    return [piece for split in plan_splits(FS, chosen) for piece in split.pieces]


def read(pieces: list[SegmentPiece], chosen: ReadOptions) -> dict[int, bytes | None]:
    """Returns the records by offset, after checking that none came twice."""
    found: dict[int, bytes | None] = {}
    for piece in pieces:
        for offset, value in rows(walk_piece(FS, piece, chosen), chosen):
            assert offset not in found, f"offset {offset} came twice"
            found[offset] = value
    return found


def rows(steps: Iterator[Batches | Damage], chosen: ReadOptions) -> Iterator[tuple[int, bytes | None]]:
    for step in steps:
        if isinstance(step, Damage):
            handle(step, chosen)
            continue
        for part in decoded(step):
            assert not isinstance(part, Damage)
            yield from ((int(part.rows["offset"][i]), part.value(i)) for i in range(len(part)))


# --- what a broker or an operator does --------------------------------------------------------------------------


def clean(logs: Path) -> None:
    """Merges the closed segments, as the key space is small."""
    with opened(logs) as directory:
        log = directory.log(NAME)
        before = len(log.segments)
        clean_log(log, CleanerOptions(), CLOCK, None)
        assert len(log.segments) < before


def clean_twice(logs: Path) -> None:
    clean(logs)
    with opened(logs) as directory:
        log = directory.log(NAME)
        append(log, 30)
        log.roll()
    clean(logs)


def clean_in_place(logs: Path) -> None:
    """Cleans so that the new files reuse the old ones' inodes, as file systems may."""
    cleaned = logs.parent / "cleaned"
    shutil.copytree(logs, cleaned)
    clean(cleaned)
    for path in (logs / "t-0").iterdir():
        new = cleaned / "t-0" / path.name
        if not new.exists():
            path.unlink()
        elif path.read_bytes() != new.read_bytes():
            path.write_bytes(new.read_bytes())
            shutil.copystat(new, path)


def merge(logs: Path) -> None:
    """Merges segments and keeps every record, as a cleaner does if nothing is superseded."""
    paths = sorted((logs / "t-0").glob("*.log"))[1:4]
    data = b"".join(path.read_bytes() for path in paths)
    swap = paths[0].with_suffix(".swap")
    swap.write_bytes(data)
    for path in paths:
        for other in path.parent.glob(f"{path.stem}.*"):
            if other != swap:
                other.unlink()
    swap.rename(paths[0])


def split(logs: Path) -> None:
    """Splits a segment in two, as a broker does if offsets do not fit."""
    path = sorted((logs / "t-0").glob("*.log"))[2]
    with opened(logs, writable=False) as directory:
        batches = directory.log(NAME).read(2 * RECORDS, 1 << 20).batches
    middle = batches[2]
    data, at = path.read_bytes(), int(middle["position"])
    for other in path.parent.glob(f"{path.stem}.*"):
        other.unlink()
    (path.parent / f"{int(middle['base_offset']):020}.log").write_bytes(data[at:])
    path.write_bytes(data[:at])


def grow(logs: Path) -> None:
    with opened(logs) as directory:
        append(directory.log(NAME), 10)


def roll_and_clean(logs: Path) -> None:
    with opened(logs) as directory:
        log = directory.log(NAME)
        append(log, 10)
        log.roll()
    clean(logs)


def delete_records(logs: Path) -> None:
    """Moves the log start within a segment, whose records still exist."""
    with opened(logs) as directory:
        directory.log(NAME).increment_log_start_offset(RECORDS // 2)


def delete_oldest(logs: Path) -> None:
    with opened(logs) as directory:
        log = directory.log(NAME)
        log.retire_oldest(log.segments.snapshot()[:2], ["retention"] * 2)


def truncate(logs: Path) -> None:
    with opened(logs) as directory:
        directory.log(NAME).truncate_to(3 * RECORDS + 4)


def truncate_and_grow(logs: Path) -> None:
    truncate(logs)
    with opened(logs) as directory:
        append(directory.log(NAME), 10)


def recover(logs: Path) -> None:
    path = max((logs / "t-0").glob("*.log"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 3)
    with opened(logs) as directory:
        directory.log_in(logs / "t-0", recover_from=0)


def remove_one(logs: Path) -> None:
    """Removes a segment in the middle."""
    sorted((logs / "t-0").glob("*.log"))[2].unlink()


def cut_one(logs: Path) -> None:
    """Cuts a segment in the middle."""
    with opened(logs, writable=False) as directory:
        at = int(directory.log(NAME).read(2 * RECORDS, 1 << 20).batches["position"][2])
    with sorted((logs / "t-0").glob("*.log"))[2].open("r+b") as file:
        file.truncate(at)


def remove_partition(logs: Path) -> None:
    for path in (logs / "t-0").iterdir():
        path.unlink()
    (logs / "t-0").rmdir()


NOTHING_LOST = (clean, clean_twice, clean_in_place, merge, split, grow, roll_and_clean, delete_records)
LOST = {
    delete_oldest: "they were deleted",
    truncate: "the log ends at 64: it was truncated",
    recover: "the log ends at 128: it was truncated",
    remove_one: "00000000000000000040.log was removed",
    cut_one: "00000000000000000040.log was cut",
    remove_partition: "the partition is gone",
}

Change = Callable[[Path], None]
SPLITS = ("100", "1GiB")  # bytes: cut within segments, or not


@pytest.mark.parametrize("size", SPLITS)
@pytest.mark.parametrize("change", NOTHING_LOST)
def test_what_replaced_a_planned_segment_is_read(logs: Path, change: Change, size: str) -> None:
    before = held(logs)
    chosen = options(logs, maxPartitionBytes=size, endingOffsets=f'{{"t":{{"0":{END}}}}}')
    pieces = planned(chosen)
    assert len(pieces) > 2 * SEGMENTS or size == "1GiB"
    change(logs)
    now = {offset: value for offset, value in held(logs).items() if offset < END}
    found = read(pieces, chosen)
    assert found == (before if change is delete_records else now)


@pytest.mark.parametrize("size", SPLITS)
@pytest.mark.parametrize("change", NOTHING_LOST)
def test_a_query_without_an_end_reads_what_it_planned_once(logs: Path, change: Change, size: str) -> None:
    chosen = options(logs, maxPartitionBytes=size)
    before, pieces = held(logs), planned(chosen)
    change(logs)
    now = held(logs)
    found = read(pieces, chosen)
    wanted = before if change is delete_records else {offset: now[offset] for offset in now if offset < END}
    assert wanted.items() <= found.items() <= (before | now).items()


@pytest.mark.parametrize("size", SPLITS)
@pytest.mark.parametrize("change", LOST)
def test_offsets_that_no_segment_holds_any_more_are_data_loss(
    logs: Path, change: Change, size: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"maxPartitionBytes": size, "endingOffsets": f'{{"t":{{"0":{END}}}}}'}
    pieces = planned(options(logs, **given))
    change(logs)
    with pytest.raises(IncompleteError, match=r"t-0: offsets .* are gone since the query was planned"):
        read(pieces, options(logs, **given))
    kept = {} if change is remove_partition else held(logs)
    assert read(pieces, options(logs, failOnDataLoss="false", **given)) == kept
    assert LOST[change] in caplog.text
    # what is said to be lost is what is not there, to the offset
    told = [map(int, found) for found in re.findall(r"offsets (\d+) to (\d+) are gone", caplog.text)]
    lost = [offset for first, last in told for offset in range(first, last + 1)]
    assert sorted(lost) == [offset for offset in range(END) if offset not in kept]


def test_other_records_at_the_same_offsets_are_read_as_they_are(logs: Path) -> None:
    chosen = options(logs, endingOffsets=f'{{"t":{{"0":{4 * RECORDS}}}}}', failOnDataLoss="false")
    pieces = planned(chosen)
    truncate_and_grow(logs)
    assert read(pieces, chosen) == held(logs)


@pytest.mark.parametrize("change", [*NOTHING_LOST, delete_oldest])
def test_a_change_under_the_reader_at_any_moment_loses_and_doubles_nothing(
    logs: Path, change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change happens after each step of the reader in turn; a step is a batch or two."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", 256)
    before = held(logs)
    for moment in range(1, 100):
        work = tmp_path / f"work-{moment}" / "logs"
        shutil.copytree(logs, work)
        chosen = options(work, maxPartitionBytes="300", endingOffsets=f'{{"t":{{"0":{END}}}}}', failOnDataLoss="false")
        steps = (step for piece in planned(chosen) for step in walk_piece(FS, piece, chosen))
        found: dict[int, bytes | None] = {}
        met = 0
        for met, step in enumerate(steps, start=1):
            for offset, value in rows(iter([step]), chosen):
                assert offset not in found
                found[offset] = value
            if met == moment:
                change(work)
        now = held(work) if met >= moment else before
        assert {offset: now[offset] for offset in now if offset < END}.items() <= found.items() <= before.items()
        if met < moment:
            return
        shutil.rmtree(work.parent)
    pytest.fail("the reader takes more steps than were tried")


@pytest.mark.parametrize("change", [clean, merge, clean_twice])
def test_a_plan_made_while_a_cleaner_runs_reads_every_remaining_record(logs: Path, change: Change) -> None:
    """The change happens at each call of the planner in turn."""
    for moment in range(200):
        work = logs.parent / f"work-{moment}" / "logs"
        shutil.copytree(logs, work)
        chosen = options(work, maxPartitionBytes="300", startingTimestamp=str(START_MS + 30))
        fs = ChangingFileSystem(moment, partial(change, work))
        splits = plan_splits(fs, chosen)
        found = read([piece for one in splits for piece in one.pieces], chosen)
        now = {offset: value for offset, value in held(work).items() if offset >= 30}
        if not fs.changed:
            return
        assert now.items() <= found.items(), moment
        shutil.rmtree(work.parent)
    pytest.fail("the planner makes more calls than were tried")


@pytest.mark.parametrize("view", ["batches", "segments", "findings"])
@pytest.mark.parametrize("change", [*NOTHING_LOST, delete_oldest])
def test_the_other_views_follow_as_well(logs: Path, change: Change, view: str) -> None:
    chosen = options(logs, view=view, failOnDataLoss="false")
    splits = plan_splits(FS, chosen)
    change(logs)
    found = [
        row for one in splits for batch in split_batches(FS, one, default_projection(view, None, False), chosen)
        for row in batch.to_pylist()
    ]  # fmt: skip
    now = list(find_partitions(FS, chosen)[0].names)
    paths = {str(name.log) for name in now}
    if view == "findings":
        assert found == []
    elif view == "batches":
        assert {row["segment"] for row in found} <= paths
        ends = [row["lastOffset"] for row in found]
        assert ends == sorted(set(ends))
    else:
        assert {row["segment"] for row in found} <= paths
        assert all(row["size"] == Path(row["segment"]).stat().st_size for row in found if not row["isActive"])


def test_damage_in_what_replaced_a_segment_is_damage(logs: Path) -> None:
    chosen = options(logs)
    pieces = planned(chosen)
    merge(logs)
    path = sorted((logs / "t-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=f"{path.name}: position .*the checksum of the batch is wrong"):
        read(pieces, chosen)


def test_a_partition_that_never_rests_is_given_up(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(logs)
    pieces = planned(chosen)
    merge(logs)
    monkeypatch.setattr(reading, "_is_planned", lambda *_, **__: False)
    with pytest.raises(RefusedError, match="were replaced 8 times during the search for offset 20"):
        read(pieces[1:], chosen)


def swap_slowly(logs: Path) -> Iterator[None]:
    """Swaps one step at a time: the old segments lose their names before the new one gets its own."""
    directory = logs / "t-0"
    paths = sorted(directory.glob("*.log"))[:3]
    target = paths[0]
    swap = target.with_name(f"{target.name}.swap")
    swap.write_bytes(b"".join(path.read_bytes() for path in paths))
    yield
    for path in paths:
        for other in directory.glob(f"{path.stem}.*"):
            if other != swap and not other.name.endswith(".deleted"):
                other.rename(other.with_name(f"{other.name}.deleted"))
                yield
    swap.rename(target)
    yield


def test_the_middle_of_a_swap_is_not_data_loss(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = held(logs)
    chosen = options(logs, maxPartitionBytes="300")
    pieces = planned(chosen)
    steps = swap_slowly(logs)
    next(steps)
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        next(steps, None)

    monkeypatch.setattr(partition_log.time, "sleep", sleep)
    while any((logs / "t-0" / f"{base:020}.log").exists() for base in (0, 20, 40)):
        next(steps)
    assert read(planned(chosen), chosen) == before
    assert slept
    assert read(pieces, chosen) == before


def test_what_a_crashed_swap_left_is_not_waited_for(logs: Path) -> None:
    before = held(logs)
    path = logs / "t-0" / f"{20:020}.log.swap"
    path.write_bytes(b"")
    chosen = options(logs)
    assert read(planned(chosen), chosen) == before


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_machine_that_does_not_see_the_planned_files_says_so(logs: Path, loss: str) -> None:
    chosen = options(logs, failOnDataLoss=loss)
    pieces = planned(chosen)
    shutil.move(logs, logs.parent / "elsewhere")
    with pytest.raises(RefusedError, match=r"t-0: .* sees no such directory, .* the same files under the same paths"):
        read(pieces, chosen)
    logs.mkdir()  # an empty mount point
    with pytest.raises(RefusedError, match="sees no such directory"):
        read(pieces, chosen)
    (logs / "meta.properties").touch()
    if loss == "true":
        with pytest.raises(IncompleteError, match="the partition is gone"):
            read(pieces, chosen)
    else:
        assert read(pieces, chosen) == {}
