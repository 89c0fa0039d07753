"""Payloads that the index laid open are kept for the copy, as far as the dedupe buffer has room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog import layout
from seglog.cleaner import chunks
from seglog.cleaner.cleaner import foresee_round
from seglog.cleaner.offset_map import IndexedChunks
from seglog.cleaner.opened_payloads import OpenedBatches, OpenedPayloads
from seglog.cleaner.record_filter import FilteredPiece, RecordFilter, _ChosenPiece
from seglog.cleaner.round import CleanerOptions, plan_round
from seglog.kernels import filtering
from seglog.model import Compression, Record
from seglog.scan.segment_scan import Chunk
from seglog.storage.local import LocalFileSystem
from tests.support.cleaning import append, clean, compacted_log, many, transaction
from tests.support.log_files import files_of
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

PATH = Path("00000000000000000000.log")
SIZE = 100  # of a batch in the file; its payload has 10 bytes


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_round_opens_each_batch_once_where_the_buffer_has_room_and_writes_the_same_files(
    tmp_path: Path, jobs: int, transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_ARENA_BYTES", 1000)
    # what is dead is not opened by the copy, wherever it lies
    monkeypatch.setattr(IndexedChunks, "by_records_alone", lambda *_: False)
    monkeypatch.setattr(filtering, "flag_dead_batches", lambda *_: None)
    opened: list[int] = []
    fill = chunks._Packed.fill

    def counted(self: Any, first: int, arena: np.ndarray, bounds: np.ndarray) -> tuple[int, int]:
        after, used = fill(self, first, arena, bounds)
        opened.append(int((self.status[first:after] == 0).sum()))
        return after, used

    monkeypatch.setattr(chunks._Packed, "fill", counted)
    found, counts = [], {}
    for name, buffer_bytes in (("none", 1500), ("some", 16_000), ("all", 1 << 20)):
        log = compacted_log(tmp_path / name, segment_bytes=20_000)
        for number, codec in enumerate(Compression):
            append(log, many(200, 50, number), 5, codec)
            if transactional:
                transaction(log, 7, many(20, 50, number), commit=number != 2, timestamp=START_MS)
        log.roll()
        opened.clear()
        result = clean(log, jobs=jobs, dedupe_buffer_bytes=buffer_bytes, chunk_bytes=3000)
        counts[name] = sum(opened)
        found.append({k: v for k, v in files_of(log.directory).items() if not k.endswith(".snapshot")})
        assert result.stats.index_passes == 1
    assert found[0] == found[1] == found[2]
    assert counts["all"] < counts["some"] <= counts["none"]
    # the map takes its room from the last slab, a whole one; which slabs there are depends on how the threads ran
    assert counts["some"] < counts["none"] or jobs > 1
    assert transactional or counts["none"] == 2 * counts["all"]


def rows(count: int) -> np.ndarray:
    """Neighbouring batches of one file; their checksums are their numbers."""
    found = np.zeros(count, dtype=layout.BATCH)
    found["position"], found["size"], found["crc"] = np.arange(count) * SIZE, SIZE, np.arange(count)
    return found


def keep(opened: OpenedPayloads, batches: np.ndarray, *, missing: tuple[int, ...] = ()) -> bool:
    """Keeps payloads of ten bytes, each its batch's number over and over; says whether there was room."""
    space = opened.space(1000)
    if space is None:
        return False
    is_open = np.ones(len(batches), dtype=bool)
    is_open[list(missing)] = False
    bounds = np.concatenate(([0], np.cumsum(10 * is_open)))
    space.arena[: bounds[-1]] = np.repeat(batches["crc"][is_open], 10)
    opened.keep(space, PATH, batches, is_open, bounds)
    return True


def chunk_of(path: Path, batches: np.ndarray) -> Chunk:
    """A chunk of a file; its bytes are not there."""
    with LocalFileSystem().open(Path(__file__), "r") as file:
        return Chunk(path, 0, np.zeros(0, dtype=np.uint8), batches, file)


def stretches(opened: OpenedPayloads, batches: np.ndarray) -> list[tuple[int, int, bool]]:
    """(first, last, whether their payloads are there) of a chunk; those that are must be theirs."""
    found: list[OpenedBatches] = list(opened.stretches(chunk_of(PATH, batches), 0, len(batches)))
    for stretch in found:
        if stretch.arena is None or stretch.bounds is None:
            continue
        for i, number in enumerate(batches["crc"][stretch.first : stretch.last]):
            payload = stretch.arena[stretch.bounds[i] : stretch.bounds[i + 1]]
            assert payload.tolist() == [number] * 10
    return [(stretch.first, stretch.last, stretch.arena is not None) for stretch in found]


def test_chunks_with_other_borders_find_what_is_kept() -> None:
    opened, batches = OpenedPayloads(1 << 20), rows(20)
    keep(opened, batches[12:16])
    keep(opened, batches[3:8])
    keep(opened, batches[8:10])
    assert stretches(opened, batches) == [
        (0, 3, False), (3, 8, True), (8, 10, True), (10, 12, False), (12, 16, True), (16, 20, False),
    ]  # fmt: skip
    assert stretches(opened, batches[5:14]) == [(0, 3, True), (3, 5, True), (5, 7, False), (7, 9, True)]
    assert stretches(opened, batches[10:12]) == [(0, 2, False)]


def test_what_was_passed_over_or_has_changed_since_is_not_found() -> None:
    opened, batches = OpenedPayloads(1 << 20), rows(10)
    keep(opened, batches, missing=(4,))
    changed = batches.copy()
    changed["crc"][7] = 99
    assert stretches(opened, changed) == [(0, 4, True), (4, 5, False), (5, 7, True), (7, 8, False), (8, 10, True)]
    changed["position"] += 1
    assert stretches(opened, changed) == [(0, 10, False)]


def test_nothing_is_kept_beyond_the_limit_or_after_the_end() -> None:
    opened, batches = OpenedPayloads(2500), rows(40)
    kept = [keep(opened, batches[i : i + 2]) for i in range(0, 40, 2)]
    room = (2500 - 1000) // (2 * (10 + 40)) + 1
    assert kept == [True] * room + [False] * (20 - room)
    opened.shrink(1 << 20)
    assert keep(opened, batches[38:])
    opened.end()
    assert not keep(opened, batches[36:38])


def test_where_the_limit_shrinks_the_last_ones_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.cleaner.opened_payloads._SLAB_BYTES", 1000)
    opened, batches = OpenedPayloads(1 << 20), rows(30)
    for first in (0, 10, 20):
        keep(opened, batches[first : first + 10])
    busy = opened.space(1000)
    assert busy is not None
    opened.shrink(2 * 10 * (10 + 40))
    assert stretches(opened, batches) == [(0, 10, True), (10, 20, True), (20, 30, False)]
    opened.keep(busy, PATH, batches[20:], np.ones(10, dtype=bool), np.arange(11) * 10)
    assert stretches(opened, batches) == [(0, 10, True), (10, 20, True), (20, 30, False)]
    opened.shrink(0)
    assert stretches(opened, batches) == [(0, 30, False)]


def test_a_batch_that_is_worked_on_by_itself_gets_the_memory_of_all_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_ARENA_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(chunks, limit, 1000)
    log = compacted_log(tmp_path)
    append(log, many(40, 20), 5, Compression.ZSTD)
    append(log, [Record(b"v" * 5000, b"large", START_MS)], 1, Compression.ZSTD)
    append(log, many(40, 20), 5, Compression.ZSTD)
    log.roll()
    plan = plan_round(log, CleanerOptions(), ManualClock(START_MS))
    opened = foresee_round(log, plan, ManualClock(START_MS)).indexing.opened
    assert opened is not None and opened.space(1) is None
    (batches,) = (batches for segment in log.segments.between(0, 1) for batches in segment.rows())
    assert len(batches) == 17
    assert not any(
        stretch.arena is not None for stretch in opened.stretches(chunk_of(log.segments.first.path, batches), 0, 17)
    )


def test_the_rest_of_a_large_payload_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_ARENA_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(chunks, limit, 1000)
    log = compacted_log(tmp_path)
    append(log, many(400, 40), 400, Compression.ZSTD)
    log.roll()
    arenas: list[np.ndarray] = []
    alone, packed = chunks._alone, RecordFilter._packed

    def noted(*arguments: Any) -> tuple[np.ndarray, int, int]:
        opened = alone(*arguments)
        arenas.append(opened[0])
        return opened

    def checked(self: RecordFilter, chunk: Chunk, batches: np.ndarray, piece: _ChosenPiece) -> FilteredPiece:
        assert piece.out is arenas[-1]
        return packed(self, chunk, batches, piece)

    monkeypatch.setattr(chunks, "_alone", noted)
    monkeypatch.setattr(RecordFilter, "_packed", checked)
    assert clean(log).stats.records_written == 40
    assert len(arenas) == 1
