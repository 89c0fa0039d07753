"""`latest` without Spark: its three steps, run in order, find the same as a plain dictionary."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.cleaner.cleaner import clean_log
from seglog.cleaner.round import CleanerOptions
from seglog.errors import CorruptRecordError, IncompleteError
from seglog.kernels.hashing import SEED_WORDS
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.key_merge import MergeSpace
from seglog_ask.spark.keys import object_blob
from seglog_ask.spark.latest import LatestPlan, SplitShares, index_split, live_rows, merge_shares, plan_latest
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.options import ReadOptions
from seglog_ask.table.plan.splits import plan_splits
from tests.support import fixtures, log_files
from tests.support.compacted_directories import broker_directory, opened
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

pytestmark = pytest.mark.slow

FS = LocalFileSystem()
SEEDS = os.urandom(8 * SEED_WORDS)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.fixture_copy("4.3.0/clean", tmp_path_factory.mktemp("logs"))


def options_of(path: Path, **given: str) -> ReadOptions:
    return parse_read_options({"path": str(path), "isolationLevel": "read_committed", **given})


def planned(options: ReadOptions, cores: int = 3) -> tuple[LatestPlan, list[SplitShares]]:
    return plan_latest(plan_splits(FS, options), options, cores, SEEDS)


Between = Callable[[], None]


def found_by(
    plan: LatestPlan, work: list[SplitShares], space: MergeSpace, between: Between = lambda: None
) -> list[tuple[object, ...]]:
    """Returns the rows of all splits, passing messages as Spark would. `between` is called between the reads."""
    to_reducers: dict[int, list[bytes]] = {}
    to_splits: dict[int, list[bytes]] = {one.split: [object_blob(one)] for one in work}
    for one in work:
        for target, blob in index_split(FS, plan, one):
            to_reducers.setdefault(target, []).append(blob)
    assert set(to_reducers) <= set(range(max(plan.reducers, 1)))
    for blobs in to_reducers.values():
        for target, blob in merge_shares(plan, reversed(blobs), space):
            to_splits.setdefault(target, []).append(blob)
    between()
    return [
        tuple(row.values())
        for blobs in to_splits.values()
        for batch in live_rows(FS, plan, reversed(blobs), space)
        for row in batch.to_pylist()
    ]


def newest_of(options: ReadOptions, plan: LatestPlan) -> Iterator[tuple[object, ...]]:
    """The same by a dictionary."""
    newest: dict[tuple[object, ...], tuple[object, ...]] = {}
    for split in plan_splits(FS, options):
        for batch in record_batches(FS, split, plan.projection, options):
            for row in batch.to_pylist():
                if row["key"] is not None:
                    newest[row["topic"], row["partition"], row["key"]] = tuple(row.values())
    return (row for row in newest.values() if row[1] is not None)


@pytest.mark.parametrize("split_bytes", ["2KiB", "20KiB", "1GiB"])
@pytest.mark.parametrize("hash_mask", [-1, 0])
@pytest.mark.parametrize("memory", [1 << 20, 1])
def test_rows_are_the_newest_of_each_key_with_a_value(
    logs: Path, tmp_path: Path, split_bytes: str, hash_mask: int, memory: int
) -> None:
    options = options_of(logs, maxPartitionBytes=split_bytes)
    small_map = CleanerOptions(dedupe_buffer_bytes=2400, hash_mask=hash_mask)
    plan, work = planned(options)
    plan = replace(plan, memory=small_map)
    found = found_by(plan, work, MergeSpace(FS, tmp_path, memory))
    assert sorted(map(repr, found)) == sorted(map(repr, newest_of(options, plan)))
    assert len(found) > 100
    assert list(tmp_path.iterdir()) == []


def test_partitions_of_one_split_take_no_part_in_the_exchange(logs: Path) -> None:
    whole, work = planned(options_of(logs))
    assert whole.reducers == 0
    assert {share.reducers for one in work for share in one.shares} == {0}
    parted, work = planned(options_of(logs, maxPartitionBytes="20KiB"))
    for one in work:
        assert {parted.split_of(share.number) for share in one.shares} == {one.split}
    numbers = [share.number for one in work for share in one.shares]
    assert numbers == sorted(set(numbers))
    by_partition: dict[str, set[tuple[int, int]]] = {}
    for share in (share for one in work for share in one.shares):
        name = f"{share.pieces[0].topic}-{share.pieces[0].partition}"
        by_partition.setdefault(name, set()).add((share.first_reducer, share.reducers))
    assert all(len(reducers) == 1 for reducers in by_partition.values())
    used = sorted(next(iter(found)) for found in by_partition.values() if next(iter(found))[1])
    assert [first for first, _ in used] == [sum(count for _, count in used[:i]) for i in range(len(used))]
    assert parted.reducers == sum(count for _, count in used) > 0


def clean(path: Path) -> None:
    with opened(path) as directory:
        log = directory.log(TopicPartition("t", 0))
        before = sum(segment.size for segment in log.segments)
        clean_log(log, CleanerOptions(), ManualClock(START_MS + 10**9))
        assert sum(segment.size for segment in log.segments) < before


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """Four closed segments of 40 records over 9 keys, of which two end with a tombstone, and an active segment."""
    path = broker_directory(tmp_path / "logs", {"t-0": (4, 9)})
    with opened(path) as directory:
        log = directory.log(TopicPartition("t", 0))
        log.append([Record(None, b"k0", START_MS), Record(None, b"k1", START_MS)])
        log.roll()
        log.append([Record(b"newest", b"k2", START_MS)])
    return path


@pytest.mark.parametrize("split_bytes", ["600", "1GiB"])
def test_a_log_that_is_cleaned_between_the_two_reads_gives_the_same_rows(
    compacted: Path, tmp_path: Path, split_bytes: str
) -> None:
    options = options_of(compacted, maxPartitionBytes=split_bytes)
    plan, work = planned(options)
    expected = sorted(map(repr, newest_of(options, plan)))
    found = found_by(plan, work, MergeSpace(FS, tmp_path), lambda: clean(compacted))
    assert sorted(map(repr, found)) == expected
    assert len(found) == 7


def test_a_newest_record_that_is_gone_at_the_second_read_is_data_loss(
    compacted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def overtake() -> None:
        """Appends a newer record of a key, so that the cleaner removes the one that was found."""
        with opened(compacted) as directory:
            log = directory.log(TopicPartition("t", 0))
            log.append([Record(b"newer", b"k5", START_MS)])
            log.roll()
        clean(compacted)

    end = '{"t":{"0":163}}'
    strict, relaxed = (
        planned(options_of(compacted, failOnDataLoss=fail, maxPartitionBytes="600", endingOffsets=end))
        for fail in ("true", "false")
    )
    space = MergeSpace(FS, tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(compacted, copy)
    with pytest.raises(IncompleteError, match="t-0: 1 of the newest records are gone since they were found"):
        found_by(*strict, space, overtake)
    shutil.rmtree(compacted)
    copy.rename(compacted)
    assert len(found_by(*relaxed, space, overtake)) == 6
    assert "t-0: 1 of the newest records are gone since they were found" in caplog.text


def test_offsets_that_32_bits_do_not_hold_begin_another_share(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for first in (0, 2**31 - 100, 2**40, 2**40 + 2**31):
        (directory / f"{first:020}.log").write_bytes(log_files.batch(first, 3))
    (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {2**41}\n")
    options = options_of(directory)
    plan, work = planned(options)
    assert [len(one.shares) for one in work] == [2]
    assert sorted(map(repr, found_by(plan, work, MergeSpace(FS, tmp_path)))) == sorted(
        map(repr, newest_of(options, plan))
    )


def test_damage_is_named(logs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "customers-0"
    shutil.copytree(logs / "customers-0", copy)
    path = max(copy.glob("*.log"), key=lambda log: log.stat().st_size)
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    plan, work = planned(options_of(copy))
    with pytest.raises(CorruptRecordError, match=f"{path.name}: position"):
        list(live_rows(FS, plan, [object_blob(work[0])], MergeSpace(FS, tmp_path)))
