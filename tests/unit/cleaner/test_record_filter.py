"""The copy's half of a round by itself: flags of batches, where chunks begin, what is left, whose memory it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog import layout
from seglog.cleaner.cleaner import index_round
from seglog.cleaner.key_index import OffsetIndexing
from seglog.cleaner.output import CleanerStats
from seglog.cleaner.record_filter import ChunkTask, FilteredChunk, RecordFilter
from seglog.cleaner.round import CleanerOptions, CleaningRound, plan_round
from seglog.errors import CorruptRecordError, InvalidRecordError
from seglog.format.decoder import decode_records
from seglog.kernels import filter_slots
from seglog.kernels.filter_slots import DELETE, DIRTY, DISCARD, EXPIRED, KEEP_ALL, RETAIN_EMPTY, STAMP_MARKER
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression
from seglog.ordered_pool import unlimited
from tests.support.cleaning import append, compacted_log, keyed, transaction
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

DAY_MS = 86_400_000


@dataclass
class Filtering:
    """A round over a log with its filter, before its first chunk."""

    round: CleaningRound
    indexing: OffsetIndexing
    filter: RecordFilter

    def tasks(self) -> Iterator[ChunkTask]:
        """Each is valid until the next step, or for as many as there are threads, and a few."""
        return (task for group in self.round.groups for task in self.filter.tasks(group))

    def filtered(self) -> list[FilteredChunk]:
        return [self.filter.filter_chunk(task, unlimited()) for task in self.tasks()]

    def flags(self) -> list[int]:
        return [int(flag) for task in self.tasks() for flag in task.flags]


def filtering(log: Log, *, at: int = START_MS, checkpoint: int | None = None, **options: Any) -> Filtering:
    """What a round at the time `at` begins its copy with; the active segment is not part of it."""
    clock, stats = ManualClock(at), CleanerStats(ManualClock(at))
    plan = plan_round(log, CleanerOptions(**options), clock, checkpoint)
    round_ = CleaningRound(plan, log.fs, log.segments.snapshot(), clock)
    indexing = index_round(round_, stats, None)
    return Filtering(round_, indexing, RecordFilter(round_, indexing, stats))


def left(chunks: list[FilteredChunk]) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record that is left, in order."""
    found = []
    for chunk in chunks:
        for batches, data in chunk.pieces:
            for records in decode_records(data, batches, 0):
                found += [
                    (int(records.rows[i]["offset"]), records.key(i), records.value(i)) for i in range(len(records))
                ]
    return found


def counted(chunks: list[FilteredChunk], slot: int) -> int:
    return sum(int(chunk.counters[slot]) for chunk in chunks)


# --- flags -------------------------------------------------------------------------------------------------------


def test_a_batch_is_dirty_from_the_checkpoint_on_and_the_last_one_stays_as_a_header(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("b", "2"), ("c", "3")), 1)
    log.roll()
    append(log, keyed(("a", "4")), 1)
    log.roll()
    assert filtering(log, checkpoint=3).flags() == [0, 0, 0, DIRTY | RETAIN_EMPTY]
    assert filtering(log).flags() == [DIRTY, DIRTY, DIRTY, DIRTY | RETAIN_EMPTY]


def test_the_last_batch_of_each_producer_stays_as_a_header(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for number in (5, 6, 5):
        log.append(
            keyed(("a", "1")), producer=ProducerIdentity(number, 0, log.log_end_offset // 2 if number == 5 else 0)
        )
    log.roll()
    append(log, keyed(("a", "2")))
    log.roll()
    assert filtering(log).flags() == [DIRTY, DIRTY | RETAIN_EMPTY, DIRTY | RETAIN_EMPTY, DIRTY | RETAIN_EMPTY]


def test_an_aborted_batch_is_not_read_and_the_marker_that_ends_it_stays(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    transaction(log, 1, keyed(("a", "1")), commit=False, timestamp=START_MS)
    transaction(log, 2, keyed(("b", "1")), commit=True, timestamp=START_MS)
    for number in (1, 2):
        log.append(keyed(("z", "0")), producer=ProducerIdentity(number))  # the last ones of these producers
    log.roll()
    append(log, keyed(("z", "1")))
    log.roll()
    data, aborted, committed_data, committed, *_ = filtering(log).flags()
    assert data == DIRTY | DISCARD | DELETE | KEEP_ALL
    assert (aborted, committed_data, committed) == (DIRTY, DIRTY, DIRTY)
    first = next(filtering(log).tasks())
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in first.aborted] == [(1, 0, 1)]


def test_a_marker_whose_batches_are_gone_gets_a_horizon(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    identity = ProducerIdentity(7, transactional=True)
    log.append_end_txn_marker(identity, True, timestamp=START_MS)
    log.append(keyed(("z", "0")), producer=ProducerIdentity(7))
    log.roll()
    append(log, keyed(("z", "1")))
    log.roll()
    assert filtering(log).flags()[0] & ~RETAIN_EMPTY == DIRTY | STAMP_MARKER


@pytest.mark.parametrize(
    ("expire", "after_ms", "expected"),
    [(False, DAY_MS, 0), (True, DAY_MS // 2, EXPIRED), (True, DAY_MS // 2 - 1, 0), (True, 0, 0)],
)
def test_without_a_horizon_tombstones_go_when_they_are_asked_to(
    expire: bool, after_ms: int, expected: int, tmp_path: Path
) -> None:
    log = compacted_log(tmp_path, delete_retention_ms=DAY_MS // 2)
    append(log, keyed(("a", None)))
    log.roll()
    assert filtering(log, at=START_MS + after_ms, expire=expire).flags() == [DIRTY | RETAIN_EMPTY | expected]


# --- chunks ------------------------------------------------------------------------------------------------------


def test_a_chunk_begins_at_the_ordinals_that_those_before_it_have_used(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(*((f"k{i}", "v" * 50) for i in range(12))), 3)
    log.roll()
    tasks = list(filtering(log, checkpoint=6, chunk_bytes=300).tasks())
    assert len(tasks) == 4
    assert [task.ordinals.tolist() for task in tasks] == [[0, 0], [0, 3], [0, 6], [3, 6]]


def test_chunks_may_be_filtered_in_any_order(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(*((f"k{i % 5}", f"{i}" * 50) for i in range(40))), 3)
    log.roll()
    forth, back = filtering(log, chunk_bytes=400), filtering(log, chunk_bytes=400, jobs=20)
    expected = left(forth.filtered())
    assert [key for _, key, _ in expected] == [b"k%d" % i for i in range(5)]
    tasks = list(back.tasks())
    assert 3 < len(tasks) <= 20
    found = {i: back.filter.filter_chunk(tasks[i], unlimited()) for i in reversed(range(len(tasks)))}
    assert left([found[i] for i in range(len(tasks))]) == expected


# --- what is left ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, Compression.LZ4, Compression.GZIP])
def test_of_each_key_the_last_record_is_left_and_the_rest_is_counted(codec: Compression | None, tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("b", "2"), ("a", "3"), ("c", None), ("b", "4")), 5, codec)
    append(log, keyed(("c", "5")), 5, codec)
    log.roll()
    done = filtering(log).filtered()
    assert left(done) == [(2, b"a", b"3"), (4, b"b", b"4"), (5, b"c", b"5")]
    assert counted(done, filter_slots.RECORDS_READ) == 6
    assert counted(done, filter_slots.RECORDS_WRITTEN) == 3
    assert counted(done, filter_slots.RECORDS_SUPERSEDED) == 3
    assert counted(done, filter_slots.BATCHES_REBUILT) == counted(done, filter_slots.BATCHES_VERBATIM) == 1
    (batches, _), *_ = done[0].pieces
    assert {int(each) & layout.CODEC_MASK for each in batches["attributes"]} == {0 if codec is None else codec.value}


def test_where_a_spark_task_packs_later_rebuilt_batches_come_uncompressed(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("a", "2")), 2, Compression.LZ4)
    log.roll()
    made = filtering(log)
    plain = RecordFilter(made.round, made.indexing, CleanerStats(ManualClock(START_MS)), recompress=False)
    (task,) = plain.tasks(made.round.groups[0])
    done = plain.filter_chunk(task, unlimited())
    assert left([done]) == [(1, b"a", b"2")]
    assert int(done.pieces[0][0]["attributes"][0]) & layout.CODEC_MASK == 0


@pytest.mark.parametrize(
    ("checkpoint", "error"), [(1, CorruptRecordError), (0, InvalidRecordError)], ids=["clean", "dirty"]
)
def test_what_went_bad_since_it_was_indexed_is_an_error_with_its_place(
    checkpoint: int, error: type[Exception], tmp_path: Path
) -> None:
    """The copy alone sees a clean batch, and checks it; of a dirty one the index has seen the checksum."""
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("b", "2")), 1)
    log.roll()
    ready = filtering(log, checkpoint=checkpoint)
    path = log.segments.first.path
    data = bytearray(path.read_bytes())
    data[layout.RECORD_BATCH_OVERHEAD] = 0x7F  # the length of the first record
    path.write_bytes(data)
    with pytest.raises(error, match="position 0"):
        ready.filtered()


# --- memory ------------------------------------------------------------------------------------------------------


def test_memory_that_was_written_is_filled_again(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(*((f"k{i}", "v" * 100) for i in range(20))), 2)
    log.roll()
    ready = filtering(log, chunk_bytes=600)
    tasks = ready.tasks()
    first = ready.filter.filter_chunk(next(tasks), unlimited())
    (memory,) = first.memory
    ready.filter.give_back(first)
    assert (first.pieces, first.memory) == ([], [])
    second = ready.filter.filter_chunk(next(tasks), unlimited())
    assert np.shares_memory(second.pieces[0][1], memory)
    third = ready.filter.filter_chunk(next(tasks), unlimited())
    assert not np.shares_memory(third.pieces[0][1], memory)
