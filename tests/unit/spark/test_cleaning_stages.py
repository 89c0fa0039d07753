"""Cleaning by stages, without Spark: the files must be those of the single-node cleaner, byte for byte."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from pathlib import Path

import pytest

from seglog.cleaner.round import CleanerOptions, plan_round
from seglog.errors import CorruptRecordError, IncompleteError, RefusedError, SeglogError
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression, Record
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.cleaning_round import RoundSpec, TaskOutcome, finish_round, make_staging, remove_staging
from seglog_ask.spark.cleaning_stages import index_group, merge_keys, rewrite_group, rewrite_round
from seglog_ask.spark.key_merge import MergeSpace
from seglog_ask.spark.keys import object_blob
from tests.support.cleaning import append, clean, compacted_log, hold_no_batch
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

FS = LocalFileSystem()
SEEDS = bytes(range(32))
DAY_MS = 86_400_000


def copy_of(log: Log, target: Path, **options: object) -> Log:
    """Returns a second log with the same files."""
    log.flush()
    shutil.copytree(log.directory, target / "t-0")
    return compacted_log(target, **options)


def spec_of(log: Log, at: int, checkpoint: int | None, **options: object) -> RoundSpec:
    plan = plan_round(log, CleanerOptions(**options), ManualClock(at), checkpoint)  # type: ignore[arg-type]
    return RoundSpec.of(FS, plan, make_staging(FS, log.directory), SEEDS)


def by_stages(
    spec: RoundSpec, reducers: int = 3, attempts: int = 1, space: MergeSpace | None = None
) -> list[TaskOutcome | SeglogError]:
    """Runs in one process what Spark would run. Several attempts stand for retried tasks."""
    space = space or MergeSpace(FS, spec.plan.directory.parent)
    to_reducers: list[list[bytes]] = [[] for _ in range(reducers)]
    for number in range(spec.group_count):
        for target, blob in index_group(FS, pickle.loads(pickle.dumps(spec.of_group(number))), number, reducers):
            to_reducers[target].append(blob)
    to_groups: list[list[bytes]] = [[object_blob(spec.of_group(number))] for number in range(spec.group_count)]
    for reducer, blobs in enumerate(to_reducers):
        random.Random(reducer).shuffle(blobs)
        for target, blob in merge_keys(spec.without_groups(), reducer, blobs, space):
            to_groups[target].append(blob)
    outcomes = []
    for blobs in to_groups:
        tried = [rewrite_group(FS, blobs, attempt) for attempt in range(attempts)]
        outcomes += [outcome for outcome in tried[-1:] if outcome is not None]
    return outcomes


def clean_by_stages(
    log: Log, at: int = START_MS, checkpoint: int | None = None, reducers: int = 3, attempts: int = 1, **options: object
) -> int:
    if options.get("roll") and log.segments.active.size:
        log.roll()
    spec = spec_of(log, at, checkpoint, **options)
    result = finish_round(log, spec, by_stages(spec, reducers, attempts), ManualClock(at))
    return result.end_offset


def files(log: Log) -> dict[str, bytes]:
    log.flush()
    return {path.name: path.read_bytes() for path in sorted(log.directory.iterdir()) if path.is_file()}


def filled(path: Path, count: int, keys: int, codec: Compression | None = None, seed: int = 1) -> Log:
    log = compacted_log(path, segment_bytes=4000)
    chance = random.Random(seed)
    for i in range(count // 20):
        batch = []
        for n in range(20):
            value = None if chance.random() < 0.1 else b"value-%d" % (i * 20 + n)
            key = None if chance.random() < 0.02 else b"key-%d" % chance.randrange(keys)
            batch.append(Record(value, key, START_MS + i * 20 + n))
        append(log, [record for record in batch if record.key is not None], 7, codec)
    return log


@pytest.mark.parametrize("codec", [None, Compression.ZSTD])
@pytest.mark.parametrize("hash_mask", [-1, 0, 3])
def test_the_files_are_those_of_the_single_node_cleaner(
    tmp_path: Path, codec: Compression | None, hash_mask: int
) -> None:
    log = filled(tmp_path / "a", 2000, 150, codec)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    expected = clean(log, roll=True)
    assert clean_by_stages(twin, roll=True, hash_mask=hash_mask) == expected.end_offset
    assert files(twin) == files(log)
    assert len(log.segments) > 3


def test_a_later_round_over_clean_and_dirty_records_gives_the_same_files(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", 1200, 100)
    first = clean(log, roll=True)
    for record in range(300):
        append(log, [Record(None if record % 5 == 0 else b"new", b"key-%d" % (record % 70), START_MS + record)])
    later = START_MS + 3 * DAY_MS
    for checkpoint in (first.end_offset, first.end_offset // 2, first.end_offset // 2 + 3):
        twin = copy_of(log, tmp_path / f"b{checkpoint}", segment_bytes=4000)
        single = copy_of(log, tmp_path / f"c{checkpoint}", segment_bytes=4000)
        clean(single, at=later, roll=True, checkpoint=checkpoint)
        clean_by_stages(twin, at=later, roll=True, checkpoint=checkpoint, attempts=2)
        assert files(twin) == files(single)


def transactional(path: Path) -> Log:
    log = compacted_log(path, segment_bytes=900)
    chance = random.Random(7)
    producers = [ProducerIdentity(1000 + n, 0, transactional=True) for n in range(3)]
    for _ in range(60):
        producer = chance.choice(producers)
        batch = [Record(b"v%d" % n, b"key-%d" % chance.randrange(30), START_MS + n) for n in range(4)]
        log.append(batch, producer=producer)
        if chance.random() < 0.3:
            log.append_end_txn_marker(producer, chance.random() < 0.5)
    for producer in producers:
        log.append_end_txn_marker(producer, True)
    return log


def test_transactions_across_segments_give_the_same_files_and_indexes(tmp_path: Path) -> None:
    log = transactional(tmp_path / "a")
    assert len(log.segments) > 5
    checkpoint: int | None = None
    for number in range(3):  # markers go a round after their batches, once their horizon has passed
        at = START_MS + number * 2 * DAY_MS
        twin = copy_of(log, tmp_path / f"b{number}", segment_bytes=900)
        checkpoint_before = checkpoint
        checkpoint = clean(log, at=at, roll=True, checkpoint=checkpoint_before).end_offset
        clean_by_stages(twin, at=at, roll=True, checkpoint=checkpoint_before)
        assert files(twin) == files(log)


def test_a_full_map_and_one_reducer_change_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", 2000, 400)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    clean(log, roll=True)
    clean_by_stages(twin, roll=True, reducers=1, dedupe_buffer_bytes=400)
    assert files(twin) == files(log)


@pytest.mark.parametrize("codec", [None, *Compression])
def test_batches_that_no_task_holds_give_the_same_files(
    tmp_path: Path, codec: Compression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "a", 600, 150, codec)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    again = copy_of(log, tmp_path / "c", segment_bytes=4000)
    clean(log, roll=True, checkpoint=203)
    hold_no_batch(monkeypatch)
    clean_by_stages(twin, roll=True, checkpoint=203)
    assert files(twin) == files(log)
    again.roll()
    spec = spec_of(again, START_MS, 203)
    finish_round(again, spec, [rewrite_round(FS, spec, 1)], ManualClock(START_MS))
    assert files(again) == files(log)


def test_a_round_in_a_single_task_gives_the_same_files(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", 2000, 150)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    expected = clean(log, roll=True)
    twin.roll()
    spec = spec_of(twin, START_MS, None)
    result = finish_round(twin, spec, [rewrite_round(FS, spec, 1)], ManualClock(START_MS))
    assert files(twin) == files(log)
    assert result.stats.reasons() == expected.stats.reasons()


def test_counts_are_those_of_the_single_node_cleaner(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", 2000, 150)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    expected = clean(log, roll=True)
    twin.roll()
    spec = spec_of(twin, START_MS, None)
    result = finish_round(twin, spec, by_stages(spec), ManualClock(START_MS))
    assert result.stats.reasons() == expected.stats.reasons()
    assert result.segments_before == expected.segments_before
    assert result.segments_after == expected.segments_after
    assert result.stats.map_records_read == expected.stats.map_records_read


def test_a_damaged_batch_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000, 100)
    log.roll()
    spec = spec_of(log, START_MS, None)
    path = log.segments.snapshot()[2].path
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\xff\x00\xff")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    contents = files(log)
    outcomes = by_stages(spec)
    with pytest.raises(CorruptRecordError, match=f"{path.name}: position .* the checksum") as told:
        finish_round(log, spec, outcomes, ManualClock(START_MS))
    assert told.value.first_offset is not None
    remove_staging(FS, spec)
    assert files(log) == contents
    assert not [path for path in log.directory.iterdir() if path.is_dir()]


def test_a_file_that_changed_meanwhile_is_noticed_before_the_swap(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000, 100)
    log.roll()
    spec = spec_of(log, START_MS, None)
    outcomes = by_stages(spec)
    path = log.segments.snapshot()[1].path
    path.write_bytes(path.read_bytes() + b"\0" * 10)
    with pytest.raises(RefusedError, match="changed while it was cleaned"):
        finish_round(log, spec, outcomes, ManualClock(START_MS))


def test_a_group_without_an_outcome_is_never_swapped(tmp_path: Path) -> None:
    log = filled(tmp_path, 1000, 100)
    log.roll()
    spec = spec_of(log, START_MS, None)
    with pytest.raises(IncompleteError, match="1 of"):
        finish_round(log, spec, by_stages(spec)[:-1], ManualClock(START_MS))


class StragglingFileSystem(LocalFileSystem):
    """An abandoned attempt still writes while its directory is removed."""

    def __init__(self) -> None:
        self.written: list[Path] = []

    def remove_directory(self, path: Path) -> None:
        if not self.written:
            self.written.append(path / "late.log.cleaned")
            self.written[0].write_bytes(b"late")
        super().remove_directory(path)


def test_an_attempt_that_goes_on_after_the_swap_harms_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", 1000, 100)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    clean(log, roll=True)
    twin.roll()
    spec = spec_of(twin, START_MS, None)
    outcomes = by_stages(spec, attempts=2)
    fs = StragglingFileSystem()
    twin.fs = fs
    finish_round(twin, spec, outcomes, ManualClock(START_MS))
    assert files(twin) == files(log)
    assert fs.written[0].exists()
    # the sources are gone: it says so, and brings nothing
    (left,) = (path for path in twin.directory.iterdir() if path.is_dir())
    failure = rewrite_round(FS, spec, 9)
    assert isinstance(failure, RefusedError) and "changed while it was cleaned" in str(failure)
    # the next round removes what it has left
    assert make_staging(FS, twin.directory) != left
    assert not left.exists()
    assert files(twin) == files(log)
