"""The pure parts of the stream: how a limit is shared, and how the followed log's end is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from seglog.errors import IncompleteError
from seglog.model import TopicPartition
from seglog.spark.options import parse_read_options
from seglog.spark.stream import FollowedLog, limited
from tests.support.naive import NaiveRecord, batch_v2

KEYS = [TopicPartition("t", i) for i in range(5)]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5), st.integers(1, 500))
def test_a_limit_is_kept_and_always_moves_on(spans, most):
    start = {key: first for key, (first, _) in zip(KEYS, spans, strict=False)}
    ends = {key: first + more for key, (first, more) in zip(KEYS, spans, strict=False)}
    found = limited(start, ends, most)
    total = sum(ends.values()) - sum(start.values())
    assert sum(found.values()) - sum(start.values()) == min(most, total)
    assert all(start[key] <= found[key] <= ends[key] for key in ends)


def test_a_limit_of_nothing_waiting_changes_nothing():
    assert limited({}, {}, 5) == {}


def batch(first: int, count: int = 10, attributes: int = 0, producer: int = -1) -> bytes:
    records = [NaiveRecord(i, i, b"k", b"v") for i in range(count)]
    identity = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    return batch_v2(first, records, attributes=attributes, producer=identity)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "t-0").mkdir()
    return tmp_path / "t-0"


def followed(directory: Path, **options: str) -> FollowedLog:
    return FollowedLog(parse_read_options({"path": str(directory), **options}, streaming=True))


def test_the_end_follows_appends_and_rolls(directory):
    path, log = directory / f"{0:020}.log", followed(directory)
    path.write_bytes(batch(0))
    assert log.ends() == {KEYS[0]: 10}
    with path.open("ab") as file:
        file.write(batch(10) + batch(20)[:-1])
    assert log.ends() == {KEYS[0]: 20}
    (directory / f"{20:020}.log").write_bytes(b"")
    assert log.ends() == {KEYS[0]: 20}
    (directory / f"{20:020}.log").write_bytes(batch(20))
    assert log.ends() == {KEYS[0]: 30}


def test_a_last_batch_with_a_wrong_checksum_is_not_the_end(directory):
    torn = bytearray(batch(10))
    torn[-1] ^= 1
    (directory / f"{0:020}.log").write_bytes(batch(0) + torn)
    assert followed(directory).ends() == {KEYS[0]: 10}


def test_read_committed_ends_at_the_first_open_transaction(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0) + batch(10, attributes=0x10, producer=7) + batch(20))
    assert followed(directory, isolationLevel="read_committed").ends() == {KEYS[0]: 10}
    assert followed(directory).ends() == {KEYS[0]: 30}


def test_a_start_beyond_the_high_watermark_is_not_data_loss(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0))
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    log = followed(directory, startingOffsets='{"t":{"0":8}}')
    start = log.starting_offsets()
    assert start == {KEYS[0]: 8}
    assert log.reached(start, log.ends()) == {KEYS[0]: 8}


def test_a_partition_that_is_gone_is_data_loss(directory):
    (directory / f"{0:020}.log").write_bytes(batch(0))
    log = followed(directory)
    with pytest.raises(IncompleteError, match="t-1: the partition is gone"):
        log.reached({KEYS[1]: 5}, log.ends())
    relaxed = followed(directory, failOnDataLoss="false")
    assert relaxed.reached({KEYS[1]: 5}, relaxed.ends()) == {KEYS[0]: 10, KEYS[1]: 5}
