"""What the copy leaves unread, because the index knows that nothing of it survives: the same log comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.cleaner import chunks
from seglog.cleaner.cleaner import apply_plan, foresee_round
from seglog.cleaner.offset_map import DeadStretch, IndexedChunks
from seglog.cleaner.round import CleanerOptions, plan_round
from seglog.kernels import filter_slots
from seglog.layout import BATCH
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression
from seglog.scan.segment_scan import Chunk
from seglog.storage.local import LocalFile
from tests.support.cleaning import append, clean, compacted_log, keyed, many, transaction
from tests.support.log_files import files_of
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS


def few_keys(directory: Path, codec: Compression | None = None) -> Log:
    """Three segments of many records of ten keys, which the last segment has all again."""
    log = compacted_log(directory)
    for seed in range(3):
        append(log, many(900, 10, seed), 20, codec)
        log.roll()
    append(log, keyed(*((f"key-{i}", "last") for i in range(10))), 3, codec)
    log.roll()
    return log


def marked(log: Log) -> Log:
    """The same with what must be read in the middle of it: a transaction, and the last batch of a producer."""
    append(log, many(300, 10), 20)
    transaction(log, 5, many(30, 10), commit=False, timestamp=START_MS)
    append(log, many(300, 10), 20)
    log.append(many(30, 10), producer=ProducerIdentity(9))
    append(log, many(300, 10), 20)
    append(log, keyed(*((f"key-{i}", "end") for i in range(10))), 3)
    log.roll()
    return log


def files(log: Log) -> dict[str, bytes]:
    """A producer snapshot of the two has other timestamps."""
    return {name: data for name, data in files_of(log.directory).items() if not name.endswith(".snapshot")}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("codec", [None, Compression.ZSTD])
@pytest.mark.parametrize("with_marks", [False, True])
def test_a_round_writes_and_counts_the_same_as_one_that_reads_all_twice(
    tmp_path: Path, jobs: int, codec: Compression | None, with_marks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = []
    for name in ("passed over", "read"):
        log = few_keys(tmp_path / name, codec)
        if with_marks:
            marked(log)
        stats = clean(log, jobs=jobs, chunk_bytes=2000).stats
        outcomes.append((files(log), stats.counters.tolist(), stats.bytes_read, stats.bytes_written))
        if name == "read":
            assert stats.bytes_unread == 0
        else:
            assert stats.bytes_unread > stats.bytes_read // 2
        monkeypatch.setattr(IndexedChunks, "by_records_alone", lambda *_: False)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("buffer_bytes", [200, 1 << 20])
def test_bits_of_all_passes_count(tmp_path: Path, buffer_bytes: int) -> None:
    log = few_keys(tmp_path)
    result = clean(log, dedupe_buffer_bytes=buffer_bytes, chunk_bytes=2000)
    assert (result.stats.index_passes > 1) == (buffer_bytes == 200)
    assert result.stats.bytes_unread > result.stats.bytes_read // 2
    assert [record.value for record in log.records()] == [b"last"] * 10


def test_the_copy_reads_nothing_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = few_keys(tmp_path)
    clock = ManualClock(START_MS)
    foreseen = foresee_round(log, plan_round(log, CleanerOptions(chunk_bytes=2000), clock), clock)
    unread, read = foreseen.result.stats.bytes_unread, []
    read_into = LocalFile.read_into

    def counted(file: LocalFile, position: int, buffer: memoryview) -> int:
        if file.path.suffix == ".log":
            read.append(buffer.nbytes)
        return read_into(file, position, buffer)

    monkeypatch.setattr(LocalFile, "read_into", counted)
    apply_plan(log, foreseen.plan, clock, foreseen=foreseen)
    total = foreseen.result.stats.bytes_read
    assert unread > total // 2
    assert sum(read) < 2 * (total - unread) + 2000 * len(read)


def test_a_chunk_with_a_survivor_parts_two_stretches(tmp_path: Path) -> None:
    log = few_keys(tmp_path)
    plan = plan_round(log, CleanerOptions(chunk_bytes=2000), ManualClock(START_MS))
    indexed = IndexedChunks(plan)
    with log.fs.open(log.segments.first.path, "r") as file:
        for number in range(6):
            chunk = Chunk(file.path, 100 * number, np.zeros(100, dtype=np.uint8), np.zeros(0, dtype=BATCH), file)
            indexed.note(0, chunk, 2, 7 * number, 7)
    survivors = np.zeros(6, dtype=np.uint8)
    assert list(indexed.dead(0, survivors)) == [DeadStretch(0, 600, 12, 42)]
    survivors[20 // 8] = 1 << 20 % 8  # the last record of the third chunk
    assert list(indexed.dead(0, survivors)) == [DeadStretch(0, 200, 4, 14), DeadStretch(300, 600, 6, 21)]
    survivors[0] = 1
    assert list(indexed.dead(0, survivors)) == [DeadStretch(100, 200, 2, 7), DeadStretch(300, 600, 6, 21)]
    assert list(indexed.dead(700, survivors)) == []


def test_dead_batches_of_a_chunk_that_is_read_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IndexedChunks, "by_records_alone", lambda *_: False)
    opened: list[int] = []
    fill = chunks._Packed.fill

    def counted(self: chunks._Packed, first: int, arena: np.ndarray, bounds: np.ndarray) -> tuple[int, int]:
        after, used = fill(self, first, arena, bounds)
        opened.append(int((self.status[first:after] == 0).sum()))
        return after, used

    monkeypatch.setattr(chunks._Packed, "fill", counted)
    log = few_keys(tmp_path, Compression.LZ4)
    result = clean(log, dedupe_buffer_bytes=1 << 12, jobs=1)
    batches = int(result.stats.counters[filter_slots.BATCHES_READ])
    assert batches == 3 * 45 + 4
    assert batches < sum(opened) < batches + 10
