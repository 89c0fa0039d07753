"""A reducer's memory is bounded: further keys go to files, and the answers equal those of one table."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import IncompleteError
from seglog.log.log import Log
from seglog.storage.filesystem import File, FileSystem, OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog_ask.spark.cleaning import Placement
from seglog_ask.spark.cleaning_round import RoundSpec, finish_round
from seglog_ask.spark.key_merge import ENTRY_BYTES, KeyMerge, MergeSpace
from seglog_ask.spark.keys import CLEAN, ENTRIES, Blob, Keys, by_reducer, opened
from tests.support.cleaning import clean
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.unit.spark.test_cleaning_stages import by_stages, copy_of, files, filled, spec_of, transactional

DAY_MS = 86_400_000
GROUPS = 4
SEED = np.arange(1, 5, dtype=np.int64)


class RecordingFileSystem(LocalFileSystem):
    """Records the names of the files that it makes."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        if mode == "create":
            self.made.append(path.name)
        return super().open(path, mode)


def levels(fs: RecordingFileSystem) -> set[str]:
    return {name.partition("-")[0] for name in fs.made}


def cleaned_in_little_memory(log: Log, twin: Log, memory: int, home: Path, at: int, checkpoint: int | None) -> set[str]:
    """Cleans both logs, the twin with little memory per reducer, and compares. Returns the levels of spilled files."""
    log.roll()
    twin.roll()
    clean(log, at=at, checkpoint=checkpoint)
    fs = RecordingFileSystem()
    home.mkdir()
    spec = spec_of(twin, at, checkpoint)
    finish_round(twin, spec, by_stages(spec, space=MergeSpace(fs, home, memory)), ManualClock(at))
    assert files(twin) == files(log)
    assert list(home.iterdir()) == []
    return levels(fs)


@pytest.mark.parametrize(("memory", "spilled"), [(1 << 20, set()), (20_000, {"0"}), (1, {"0", "1", "2"})])
@pytest.mark.parametrize("hash_mask", [-1, 0])
def test_a_reducer_that_spills_gives_the_files_of_the_single_node_cleaner(
    tmp_path: Path, memory: int, spilled: set[str], hash_mask: int
) -> None:
    log = filled(tmp_path / "a", 2000, 150)
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    log.roll()
    twin.roll()
    clean(log)
    fs = RecordingFileSystem()
    spec = spec_of(twin, START_MS, None, hash_mask=hash_mask)
    space = MergeSpace(fs, tmp_path, memory)
    before = sorted(tmp_path.iterdir())
    finish_round(twin, spec, by_stages(spec, space=space), ManualClock(START_MS))
    assert files(twin) == files(log)
    assert levels(fs) == spilled
    assert sorted(tmp_path.iterdir()) == before


def test_clean_records_and_transactions_survive_spilling(tmp_path: Path) -> None:
    log = filled(tmp_path / "a", 1200, 100)
    end = clean(log, roll=True).end_offset
    twin = copy_of(log, tmp_path / "b", segment_bytes=4000)
    at = START_MS + 3 * DAY_MS
    assert cleaned_in_little_memory(log, twin, 1, tmp_path / "c", at, end // 2) == {"0", "1", "2"}
    moved = transactional(tmp_path / "d")
    twin = copy_of(moved, tmp_path / "e", segment_bytes=900)
    assert cleaned_in_little_memory(moved, twin, 1, tmp_path / "f", START_MS, None) == {"0", "1", "2"}


def test_reducers_are_as_many_as_hold_the_keys(spec: RoundSpec) -> None:
    gib = 1 << 30
    sized = replace(spec.plan, sizes=(8 * gib,), first_dirty_offset=0, first_uncleanable_offset=1000)
    of_size = replace(spec, plan=sized)
    assert Placement().reducers_for(of_size, 2) == 8
    assert Placement(reducers=3).reducers_for(of_size, 2) == 3
    packed = replace(spec, plan=replace(sized, first_uncleanable_offset=400_000_000))  # many records a byte: compressed
    assert Placement().reducers_for(packed, 2) > 80
    gaps = replace(spec, plan=replace(sized, first_uncleanable_offset=1 << 50))  # offsets are no records
    assert Placement().reducers_for(gaps, 2) == 8 * gib // (16 << 20)


# --- many keys, without a log ---------------------------------------------------------------------------------


def blobs_of(kind: int, group: int, numbers: np.ndarray) -> Iterator[Blob]:
    """Yields keys of 16 bytes, with their places as ordinals."""
    keys = np.zeros((len(numbers), 2), dtype=np.int64)
    keys[:, 0] = numbers
    sizes = np.full(len(numbers), 16, dtype=np.int64)
    spans = Keys(keys.view(np.uint8).reshape(-1), np.cumsum(sizes) - sizes, sizes, np.arange(len(numbers)))
    for _, data in by_reducer(kind, group, spans, SEED, -1, 1):
        yield opened(data)


@pytest.mark.parametrize("lengths", [[3, 3, 3], [1, 4, 2]], ids=["one size", "several sizes"])
def test_a_blob_cut_anywhere_is_incomplete(lengths: list[int]) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    spans = Keys(np.arange(sizes.sum(), dtype=np.uint8), np.cumsum(sizes) - sizes, sizes, np.arange(len(sizes)))
    ((_, data),) = by_reducer(ENTRIES, 7, spans, SEED, -1, 1)
    assert opened(data).ordinals.tolist() == [0, 1, 2]
    for length in range(len(data)):
        with pytest.raises(IncompleteError, match="a message between tasks"):
            opened(data[:length])


@pytest.fixture
def spec(tmp_path: Path) -> RoundSpec:
    log = filled(tmp_path / "log", 200, 10)
    log.roll()
    found = spec_of(log, START_MS, None)
    return replace(found, plan=replace(found.plan, groups=((0, 1),) * GROUPS), group_count=GROUPS)


def peak_and_answers(spec: RoundSpec, space: MergeSpace, count: int) -> tuple[int, dict[tuple[int, int], set[int]]]:
    """Returns peak memory (bytes) and the ordinals by (kind, group), for groups with the same keys in other orders."""
    chance = np.random.default_rng(3)
    answers: dict[tuple[int, int], set[int]] = {}
    tracemalloc.start()
    try:
        with closing(KeyMerge(spec, space)) as merge:
            for group in range(GROUPS):
                for part in np.array_split(chance.permutation(count), 8):
                    for blob in blobs_of(ENTRIES if group else CLEAN, group, part):
                        merge.add(blob)
            for group, data in merge.answers():
                found = opened(data)
                answers.setdefault((found.kind, group), set()).update(found.ordinals.tolist())
        return tracemalloc.get_traced_memory()[1], answers
    finally:
        tracemalloc.stop()


def test_the_memory_of_a_reducer_stays_bounded_whatever_comes(spec: RoundSpec, tmp_path: Path) -> None:
    count = 120_000
    kept = MergeSpace(LocalFileSystem(), tmp_path, 1 << 30)
    bound = 4 << 20
    spilling = replace(kept, memory_bytes=bound)
    peak_and_answers(spec, kept, 100)  # kernels are compiled, and their caches filled
    high, expected = peak_and_answers(spec, kept, count)
    low, answers = peak_and_answers(spec, spilling, count)
    assert answers == expected
    assert high > (GROUPS - 1) * count * ENTRY_BYTES // 2  # what is told below would show
    assert low < 3 * bound < high // 2


class FullFileSystem(LocalFileSystem):
    """Has no room for spilled keys."""

    def open(self, path: Path, mode: OpenMode) -> File:  # type: ignore[override]
        if path.suffix in (".entries", ".clean"):
            raise OSError(28, "No space left on device", str(path))
        return super().open(path, mode)


def test_a_full_disk_is_reported_and_leaves_no_files(spec: RoundSpec, tmp_path: Path) -> None:
    fs: FileSystem = FullFileSystem()
    home = tmp_path / "local"
    home.mkdir()
    with closing(KeyMerge(spec, MergeSpace(fs, home, 1))) as merge, pytest.raises(OSError, match="No space left"):
        for blob in blobs_of(ENTRIES, 0, np.arange(100)):
            merge.add(blob)
    assert list(home.iterdir()) == []
