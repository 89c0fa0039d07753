"""The aborted-transaction index file."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import CorruptIndexError
from seglog.log.indexes import AbortedTransaction, TransactionIndex
from tests.support.log_files import FS

FIRST = AbortedTransaction(7, 100, 105, 106)
SECOND = AbortedTransaction(9, 102, 120, 121)


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    made = TransactionIndex(FS, tmp_path / "00000000000000000100.txnindex", 100)
    made.append(FIRST)
    made.append(SECOND)
    return made


def test_an_entry_is_34_bytes_as_kafka_writes_it(index: TransactionIndex) -> None:
    expected = "0000000000000000000700000000000000640000000000000069000000000000006a"
    assert index.path.read_bytes()[:34].hex() == expected
    assert TransactionIndex(FS, index.path, 100).entries == [FIRST, SECOND]


def test_collecting_stops_once_everything_below_the_bound_is_stable(index: TransactionIndex) -> None:
    assert index.collect(100, 106) == ([FIRST, SECOND][:1], True)
    assert index.collect(106, 125) == ([SECOND], False)
    assert index.collect(0, 101) == ([FIRST], True)
    assert index.collect(105, 106) == ([FIRST], True)


def test_a_transaction_that_begins_where_the_read_ends_is_not_its_business(tmp_path: Path) -> None:
    index = TransactionIndex(FS, tmp_path / "00000000000000000100.txnindex", 100)
    index.append(SECOND)
    assert index.collect(100, SECOND.first_offset) == ([], True)
    assert index.collect(100, SECOND.first_offset + 1) == ([SECOND], True)


def test_collecting_goes_on_where_a_follower_noted_what_began_after_the_marker(tmp_path: Path) -> None:
    index = TransactionIndex(FS, tmp_path / f"{0:020d}.txnindex", 0)
    listed = [AbortedTransaction(7, 0, 1, 4), AbortedTransaction(7, 2, 3, 4), AbortedTransaction(8, 4, 5, 6)]
    for entry in listed:
        index.append(entry)
    assert index.collect(2, 3) == ([listed[1]], True)
    assert index.collect(0, 2) == ([listed[0]], True)


@pytest.mark.parametrize("entry", [FIRST, AbortedTransaction(11, 110, 120, 121)], ids=["before", "the same"])
def test_a_marker_that_does_not_go_on_is_refused(index: TransactionIndex, entry: AbortedTransaction) -> None:
    with pytest.raises(CorruptIndexError, match="does not follow"):
        index.append(entry)


def test_a_marker_below_the_segment_is_corrupt(index: TransactionIndex) -> None:
    with pytest.raises(CorruptIndexError, match="below the segment's base 110"):
        TransactionIndex(FS, index.path, 110).sanity_check()
    TransactionIndex(FS, index.path, FIRST.last_offset).sanity_check()


def test_an_unknown_version_is_corrupt(index: TransactionIndex) -> None:
    index.path.write_bytes(b"\x01" + index.path.read_bytes()[1:])
    with pytest.raises(CorruptIndexError, match="version"):
        _ = TransactionIndex(FS, index.path, 100).entries


def test_a_broker_stops_at_an_unknown_version_unless_an_earlier_entry_has_the_index_rebuilt(
    index: TransactionIndex,
) -> None:
    assert index.broker_stops_at() is None
    data = index.path.read_bytes()
    index.path.write_bytes(data[:34] + b"\x01" + data[35:])
    stop = TransactionIndex(FS, index.path, 100).broker_stops_at()
    assert stop is not None and (stop.reason, stop.position) == ("unknown version 256", 34)
    assert TransactionIndex(FS, index.path, FIRST.last_offset + 1).broker_stops_at() is None


@pytest.mark.parametrize(("offset", "kept"), [(105, 0), (106, 1), (120, 1), (121, 2)])
def test_truncation_cuts_at_the_first_marker_at_it_or_after(index: TransactionIndex, offset: int, kept: int) -> None:
    index.truncate_to(offset)
    assert index.entries == [FIRST, SECOND][:kept] == TransactionIndex(FS, index.path, 100).entries


def test_truncation_of_an_index_that_is_not_there_makes_none(tmp_path: Path) -> None:
    index = TransactionIndex(FS, tmp_path / "00000000000000000000.txnindex", 0)
    index.truncate_to(0)
    assert not index.exists()


def test_a_reset_index_stays_as_an_empty_file_and_a_missing_one_is_not_made(tmp_path: Path) -> None:
    index = TransactionIndex(FS, tmp_path / "00000000000000000000.txnindex", 0)
    index.reset()
    assert not index.exists()
    index.append(FIRST)
    index.reset()
    assert (index.exists(), index.path.stat().st_size, index.entries) == (True, 0, [])
