"""Markers and aborted data, as in the walk-through of the specification's appendix B."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.key_index import TransactionTracker
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from tests.support.cleaning import append, clean, compacted_log, many


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_aborted_data_goes_and_its_marker_stays_while_data_was_seen() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([aborted(1, 0, 2), aborted(1, 3, 5)])
    assert tracker.on_batch(1, 0, 0)
    assert not tracker.on_batch(2, 1, 1)
    assert not tracker.on_marker(1, 2, True)
    assert tracker.on_batch(1, 3, 3)
    assert not tracker.on_marker(2, 4, False)
    assert not tracker.on_marker(1, 5, True)
    assert [t.first_offset for t in tracker.take_kept_aborted()] == [0, 3]
    assert tracker.take_kept_aborted() == []


def test_a_marker_without_data_may_go() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([aborted(1, 0, 2)])
    assert tracker.on_marker(1, 2, True)
    assert tracker.on_marker(3, 6, False)
    assert tracker.take_kept_aborted() == []


def test_a_committed_transaction_counts_once() -> None:
    tracker = TransactionTracker()
    tracker.on_batch(1, 0, 0)
    assert not tracker.on_marker(1, 1, False)
    assert tracker.on_marker(1, 2, False)


def test_what_an_earlier_transaction_left_keeps_no_later_marker() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([aborted(1, 0, 2), aborted(1, 3, 5)])
    assert tracker.on_batch(1, 0, 1)
    assert not tracker.on_marker(1, 2, True)
    assert tracker.on_marker(1, 5, True), "no batch of the second transaction was seen"
    assert [t.first_offset for t in tracker.take_kept_aborted()] == [0]


def test_a_marker_of_an_aborted_transaction_that_nobody_announced_may_go() -> None:
    tracker = TransactionTracker()
    assert not tracker.on_batch(1, 0, 1)
    assert tracker.on_marker(1, 2, True)
    assert tracker.take_kept_aborted() == []


def test_a_transaction_announced_by_several_segments_ends_once() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([aborted(1, 0, 5)])
    assert tracker.on_batch(1, 0, 2)
    tracker.add_aborted([aborted(1, 0, 5)])
    assert not tracker.on_marker(1, 5, True)
    assert not tracker.on_batch(1, 6, 6)


def test_only_what_remains_counts_when_markers_expire() -> None:
    tracker = TransactionTracker(remains={7}.__contains__)
    tracker.on_batch(1, 0, 0)
    tracker.on_batch(2, 7, 7)
    assert tracker.on_marker(1, 8, False)
    assert not tracker.on_marker(2, 9, False)


def test_an_aborted_batch_that_does_not_remain_keeps_no_marker_when_markers_expire() -> None:
    tracker = TransactionTracker(remains={7}.__contains__)
    tracker.add_aborted([aborted(1, 0, 2), aborted(2, 7, 9)])
    assert tracker.on_batch(1, 0, 1) and tracker.on_batch(2, 7, 8)
    assert tracker.on_marker(1, 2, True) and not tracker.on_marker(2, 9, True)


def test_another_tracker_goes_on_where_one_has_come_to() -> None:
    first, second = TransactionTracker(), TransactionTracker()
    first.add_aborted([aborted(1, 0, 4), aborted(2, 5, 9)])
    first.on_batch(1, 0, 1)
    first.on_batch(3, 2, 3)
    second.take_state(first)
    assert not second.on_marker(1, 4, True) and not second.on_marker(3, 5, False)
    assert second.on_batch(2, 6, 7)


def test_transaction_indexes_are_asked_of_aborted_transactions_and_not_of_all_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = compacted_log(tmp_path, segment_bytes=400)
    append(log, many(300, 40), 5)
    asked: list[Path] = []
    collect = TransactionIndex.collect

    def counted(index: TransactionIndex, first_offset: int, upper_offset: int) -> Any:
        asked.append(index.path)
        return collect(index, first_offset, upper_offset)

    monkeypatch.setattr(TransactionIndex, "collect", counted)
    segments = len(log.segments)
    assert segments > 20
    clean(log, roll=True)
    assert len(asked) <= segments + 1  # by the index of offsets, once; copying asked all later ones for each segment
