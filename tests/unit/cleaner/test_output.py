"""What a round writes never outgrows a segment: then it becomes several, where Kafka's round fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog import layout
from seglog.cleaner.cleaner import apply_plan, foresee_round
from seglog.cleaner.output import GroupOutput, NullOutput
from seglog.cleaner.round import CleanerOptions, SegmentBounds, plan_round
from seglog.log.append import ProducerIdentity
from seglog.log.indexes import AbortedTransaction
from seglog.log.log import Log
from seglog.model import Isolation, Record
from tests.support.cleaning import append, clean, compacted_log, contents, keyed
from tests.support.log_files import FS, batch, files_of, write_segment
from tests.support.manual_clock import ManualClock
from tests.support.naive import message
from tests.support.open_logs import START_MS


def old_log(directory: Path, messages: int, **config: int) -> Log:
    """Messages of magic 0 with a key each, which grow when they become batches."""
    write_segment(directory / "t-0", 0, *(message(i, 0, b"k%d" % i, b"v") for i in range(messages)))
    write_segment(directory / "t-0", messages)
    return compacted_log(directory, **config)


def test_messages_that_outgrow_a_segment_become_several(tmp_path: Path) -> None:
    log = old_log(tmp_path, 40)
    before, source_bytes = contents(log), log.segments.first.size
    clean(log, most_log_bytes=source_bytes)
    sizes = [segment.size for segment in log.segments][:-1]
    assert len(sizes) > 1
    assert max(sizes) <= source_bytes < sum(sizes)
    assert contents(log) == before
    for segment in log.segments:
        assert all(int(row["base_offset"]) >= segment.base_offset for rows in segment.rows() for row in rows)
    log.close()
    with compacted_log(tmp_path, clean=False) as reopened:
        assert contents(reopened) == before
        clean(reopened, checkpoint=0)
        assert contents(reopened) == before


def test_output_as_large_as_a_segment_may_be_stays_in_one(tmp_path: Path) -> None:
    whole = old_log(tmp_path / "whole", 40)
    clean(whole)
    size = whole.segments.first.size
    for name, bound, count in (("exact", size, 1), ("less", size - 1, 2)):
        log = old_log(tmp_path / name, 40)
        clean(log, most_log_bytes=bound)
        assert len(log.segments) == count + 1
        assert (files_of(log.directory) == files_of(whole.directory)) == (count == 1)


def test_a_plan_foresees_every_part(tmp_path: Path) -> None:
    log = old_log(tmp_path, 60)
    plan = plan_round(log, CleanerOptions(most_log_bytes=900), ManualClock(START_MS))
    foreseen = foresee_round(log, plan, ManualClock(START_MS)).result
    result = apply_plan(log, plan, ManualClock(START_MS))
    assert len(result.segments_after) > 3
    assert result.segments_after == foreseen.segments_after
    assert [(s.base_offset, s.size) for s in log.segments][:-1] == [
        (s.base_offset, s.size) for s in result.segments_after
    ]


@pytest.mark.parametrize(("index_bytes", "parts"), [(12 * 40, 1), (12 * 20, 2), (12 * 8, 5), (12 * 2, 20)])
def test_an_index_that_would_be_full_ends_the_segment(index_bytes: int, parts: int) -> None:
    """Entries after every batch but the first; the last one of a time index is kept for the closing entry."""
    rows = np.zeros(40, dtype=layout.BATCH)
    rows["base_offset"] = rows["last_offset"] = rows["max_timestamp"] = np.arange(40)
    rows["size"] = 100
    output = GroupOutput(lambda base: NullOutput(base, 0), 0, SegmentBounds(1 << 31, index_bytes, 0))
    for i in range(0, 40, 7):
        output.append(rows[i : i + 7], np.zeros(100 * len(rows[i : i + 7]), dtype=np.uint8))
    output.finish(0, None)
    summaries = output.summaries
    assert len(summaries) == parts
    assert all(s.time_index_bytes <= index_bytes and s.offset_index_bytes <= index_bytes for s in summaries)
    assert sum(s.batches for s in summaries) == 40


def test_offsets_too_far_from_the_base_begin_another_segment(tmp_path: Path) -> None:
    """Old brokers' cleaners merged segments too far; Kafka splits the source and gives the round up."""
    far = 2**31 + 5
    source = write_segment(tmp_path / "t-0", 0, batch(0, 3))
    with FS.open(source.path, "r+") as file:
        file.write_at(source.size, batch(far, 3))
    write_segment(tmp_path / "t-0", far + 3)
    log = compacted_log(tmp_path)
    before = contents(log)
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, far, far + 3]
    assert contents(log) == survivors_of(before)


def survivors_of(found: list[tuple[int | None, bytes | None, bytes | None]]) -> list[object]:
    last = {key: offset for offset, key, _ in found}
    return [entry for entry in found if last[entry[1]] == entry[0]]


def test_an_aborted_transaction_goes_where_its_marker_is() -> None:
    rows = np.zeros(4, dtype=layout.BATCH)
    rows["base_offset"] = rows["last_offset"] = np.arange(4)
    rows["size"] = 100
    output = GroupOutput(lambda base: NullOutput(base, 4096), 0, SegmentBounds(200, 1 << 20, 4096))
    output.append(rows, np.zeros(400, dtype=np.uint8))
    ended = [AbortedTransaction(producer, 0, marker, marker + 1) for producer, marker in ((7, 1), (8, 2), (9, 3))]
    output.append_aborted(ended)
    output.finish(0, None)
    summaries = output.summaries
    assert [s.base_offset for s in summaries] == [0, 2]
    assert [s.transaction_index_bytes // layout.TRANSACTION_INDEX_ENTRY.itemsize for s in summaries] == [1, 2]


def test_read_committed_leaves_aborted_records_out_of_every_part(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for n in range(12):
        identity = ProducerIdentity(n + 1, transactional=True)
        log.append([Record(b"v", b"k%d" % n, START_MS + n)], producer=identity)
        log.append_end_txn_marker(identity, n % 3 != 0, timestamp=START_MS + n)
    append(log, keyed(("z", "1")))
    log.roll()
    visible = [record.offset for record in log.records(isolation=Isolation.READ_COMMITTED)]
    clean(log, most_log_bytes=400)
    assert len(log.segments) > 4
    assert [record.offset for record in log.records(isolation=Isolation.READ_COMMITTED)] == visible
