"""`latest` without Spark: its three steps, run one after the other, find what a plain dictionary finds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.cleaner.options import CleanerOptions
from seglog.errors import CorruptRecordError, IncompleteError
from seglog.kernels.hashing import SEED_WORDS
from seglog.spark.arrow import record_batches
from seglog.spark.cleaning_merge import MergeSpace
from seglog.spark.latest import LatestPlan, index_split, live_rows, merge_shares, plan_latest
from seglog.spark.options import ReadOptions, parse_read_options
from seglog.spark.splits import plan_splits
from seglog.storage.filesystem import LocalFileSystem
from tests.support import fixtures

FS = LocalFileSystem()
SEEDS = os.urandom(8 * SEED_WORDS)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.fixture_copy("4.3.0/clean", tmp_path_factory.mktemp("logs"))


def options_of(path: Path, **given: str) -> ReadOptions:
    return parse_read_options({"path": str(path), "isolationLevel": "read_committed", **given})


def planned(options: ReadOptions, cores: int = 3) -> LatestPlan:
    return plan_latest(plan_splits(FS, options), options, cores, SEEDS)


def found_by(plan: LatestPlan, space: MergeSpace) -> list[tuple[object, ...]]:
    """The rows of all splits, by way of the messages that Spark would carry."""
    to_reducers: dict[int, list[bytes]] = {}
    to_splits: dict[int, list[bytes]] = {}
    for split in range(len(plan.splits)):
        for target, blob in index_split(FS, plan, split):
            to_reducers.setdefault(target, []).append(blob)
    assert set(to_reducers) <= set(range(max(plan.reducers, 1)))
    for blobs in to_reducers.values():
        for target, blob in merge_shares(plan, reversed(blobs), space):
            to_splits.setdefault(target, []).append(blob)
    return [
        tuple(row.values())
        for split in range(len(plan.splits))
        for batch in live_rows(FS, plan, split, to_splits[split], space)
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
    plan = replace(planned(options), memory=small_map)
    found = found_by(plan, MergeSpace(FS, tmp_path, memory))
    assert sorted(map(repr, found)) == sorted(map(repr, newest_of(options, plan)))
    assert len(found) > 100
    assert list(tmp_path.iterdir()) == []


def test_partitions_of_one_split_take_no_part_in_the_exchange(logs: Path) -> None:
    whole = planned(options_of(logs))
    assert whole.reducers == 0
    assert {share.reducers for shares in whole.splits for share in shares} == {0}
    parted = planned(options_of(logs, maxPartitionBytes="20KiB"))
    by_partition: dict[str, set[tuple[int, int]]] = {}
    for share in (share for shares in parted.splits for share in shares):
        name = f"{share.pieces[0].topic}-{share.pieces[0].partition}"
        by_partition.setdefault(name, set()).add((share.first_reducer, share.reducers))
    assert all(len(reducers) == 1 for reducers in by_partition.values())
    used = sorted(next(iter(found)) for found in by_partition.values() if next(iter(found))[1])
    assert [first for first, _ in used] == [sum(count for _, count in used[:i]) for i in range(len(used))]
    assert parted.reducers == sum(count for _, count in used) > 0


def test_a_log_that_changes_between_the_two_reads_is_noticed(logs: Path, tmp_path: Path) -> None:
    options = options_of(logs / "customers-0", maxPartitionBytes="4KiB")
    plan = planned(options)
    split = next(i for i, shares in enumerate(plan.splits) if shares[0].reducers)
    blobs = [blob for _, blob in index_split(FS, plan, split)][-1:]
    pieces = tuple(replace(piece, behind_offset=piece.first_offset) for piece in plan.splits[split][0].pieces)
    changed = replace(plan.splits[split][0], pieces=pieces)
    splits = (*plan.splits[:split], (changed,), *plan.splits[split + 1 :])
    with pytest.raises(IncompleteError, match="changed while it was read"):
        list(live_rows(FS, replace(plan, splits=splits), split, blobs, MergeSpace(FS, tmp_path)))


def test_damage_is_named(logs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "customers-0"
    shutil.copytree(logs / "customers-0", copy)
    path = max(copy.glob("*.log"), key=lambda log: log.stat().st_size)
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    plan = planned(options_of(copy))
    with pytest.raises(CorruptRecordError, match=f"{path.name}: position"):
        list(live_rows(FS, plan, 0, [], MergeSpace(FS, tmp_path)))
