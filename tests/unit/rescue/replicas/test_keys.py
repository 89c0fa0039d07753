"""Copies of a compacted log that were compacted apart are compared by the newest record of each key."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seglog.format.checkpoint import format_offset_checkpoint
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.replicas import ReplicasReport, ReplicasRequest, collect, compare, write_collected
from seglog_rescue.replicas import keys
from seglog_rescue.replicas.comparison import PartitionVerdict
from seglog_rescue.replicas.keys import KeyMark, compared, edges
from tests.support.log_files import TRANSACTIONAL, marker
from tests.support.lost_clusters import broker_directory
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2

FS, CLOCK = LocalFileSystem(), ManualClock(10**15)
ORDERS = TopicPartition("orders", 0)
ACTIVE = 60  # where the last segment begins
Rows = list[tuple[int, bytes, bytes | None]]


def history(seed: int, count: int = 100) -> Rows:
    chance = random.Random(seed)
    rows: Rows = [
        (i, b"key %d" % chance.randrange(9), None if chance.random() < 0.2 else b"value %d" % i) for i in range(count)
    ]
    rows[10] = (10, b"alone", b"value")  # a key that no later record has
    return rows


def compacted(rows: Rows, end: int, *, tombstones: bool = True) -> Rows:
    """What a cleaner leaves that has been below `end`, with or without tombstones."""
    newest = {key: offset for offset, key, _ in rows if offset < end}
    return [
        (offset, key, value)
        for offset, key, value in rows
        if offset >= end or (newest[key] == offset and (tombstones or value is not None))
    ]


def copy(place: Path, node: int, rows: Rows, cleaned: int = 1) -> Path:
    made = broker_directory(place / str(node), node, {"orders-0": [0]})
    for base, segment in ((0, [row for row in rows if row[0] < ACTIVE]), (ACTIVE, [r for r in rows if r[0] >= ACTIVE])):
        data = b"".join(batch_v2(offset, [NaiveRecord(0, 0, key, value)]) for offset, key, value in segment)
        (made / "orders-0" / f"{base:020}.log").write_bytes(data)
    (made / "cleaner-offset-checkpoint").write_bytes(format_offset_checkpoint({ORDERS: cleaned}))
    return made


def report_of(*directories: Path) -> ReplicasReport:
    return compare(FS, CLOCK, ReplicasRequest(directories))


def verdict_of(*directories: Path) -> PartitionVerdict:
    (verdict,) = report_of(*directories).partitions
    return verdict


@pytest.mark.parametrize("seed", range(6))
def test_copies_that_were_compacted_apart_agree_and_facts_prove_it(tmp_path: Path, seed: int) -> None:
    rows, chance = history(seed), random.Random(seed)
    ends = [0, *(chance.randrange(1, ACTIVE + 1) for _ in range(2))]
    made = [
        copy(tmp_path, node, compacted(rows, end, tombstones=chance.random() < 0.5)[: None if node == 1 else 1000], end)
        for node, end in enumerate(ends, 1)
    ]
    made[0] = copy(tmp_path / "again", 1, rows)
    verdict = verdict_of(*made)
    beside = [each.keys for each in verdict.copies[1:]]
    assert all(each is not None and each.agree and each.end == 100 for each in beside)
    assert verdict.agrees
    facts = []
    for directory in made:
        facts.append(tmp_path / f"{directory.name}.facts")
        write_collected(FS, collect(FS, CLOCK, ReplicasRequest([directory])), facts[-1])
    assert report_of(*facts).partitions == report_of(*made).partitions


def test_a_key_that_is_missing_or_older_is_proved_though_no_batch_can_be_compared(tmp_path: Path) -> None:
    rows = history(3)
    alive = compacted(rows, ACTIVE, tombstones=False)
    gone = next(row for row in alive if row[1] == b"alone")
    one, two = copy(tmp_path, 1, rows), copy(tmp_path, 2, [row for row in alive if row is not gone])
    verdict = verdict_of(one, two)
    (other,) = verdict.copies[1:]
    assert other.keys is not None and (other.keys.agree, other.differs) == (False, ())
    assert abs(other.keys.chosen - other.keys.other) == 1
    assert not verdict.agrees
    changed = [row if row is not gone else (row[0], row[1], b"another value") for row in alive]
    assert verdict_of(one, copy(tmp_path / "changed", 2, changed)).copies[1].lacks_keys


def test_copies_that_end_apart_are_compared_below_the_end_of_the_shorter_one(tmp_path: Path) -> None:
    rows = history(4)
    one, two = copy(tmp_path, 1, compacted(rows, 50)), copy(tmp_path, 2, rows[:90])
    keys_beside = verdict_of(one, two).copies[1].keys
    assert keys_beside is not None
    assert keys_beside.agree and ACTIVE <= keys_beside.end <= 90


def test_a_copy_that_ends_before_the_last_segment_of_the_other_cannot_be_compared(tmp_path: Path) -> None:
    rows = history(5)
    one, two = copy(tmp_path, 1, compacted(rows, ACTIVE)), copy(tmp_path, 2, rows[:50])
    assert verdict_of(one, two).copies[1].keys is None


def test_records_of_aborted_transactions_do_not_count(tmp_path: Path) -> None:

    rows = history(6)
    one, two = copy(tmp_path, 1, rows), copy(tmp_path, 2, rows)
    record = NaiveRecord(0, 0, b"key 1", b"aborted")
    aborted = batch_v2(100, [record], attributes=TRANSACTIONAL, producer=(5, 0, 0))
    end = marker(101, 5, commit=False)
    for directory, data in ((one, aborted + end), (two, end)):
        with (directory / "orders-0" / f"{ACTIVE:020}.log").open("ab") as log:
            log.write(data)
    beside = verdict_of(one, two).copies[1].keys
    assert beside is not None and (beside.end, beside.agree) == (102, True)


def test_more_keys_than_memory_allows_are_sampled_and_compared_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "_MOST_KEYS", 20)
    rows = [(i, b"key %d" % i, b"value") for i in range(100)]
    one, two = copy(tmp_path, 1, rows), copy(tmp_path, 2, rows)
    beside = verdict_of(one, two).copies[1].keys
    assert beside is not None and beside.agree and 0 < beside.chosen <= 20


def test_marks_lie_where_two_ends_share_one() -> None:
    assert edges(60, 100) == [64, 96, 100]
    assert edges(0, 0) == edges(200, 100) == []
    chance = random.Random(1)
    for _ in range(300):
        active = chance.randrange(1 << 40)
        one = active + chance.randrange(1, 1 << chance.randrange(1, 40))
        shared = set(edges(active, one)) & set(edges(active, one + chance.randrange(4)))
        assert all(active <= edge <= one for edge in edges(active, one))
        assert len(edges(active, one)) <= 5 and (shared or one - active < 16)


def test_marks_of_different_samples_are_not_compared() -> None:
    assert compared([KeyMark(64, 9, 1)], [KeyMark(64, 9, 1, 1)], 100) is None
    assert compared([KeyMark(64, 9, 1)], [KeyMark(64, 9, 1)], 63) is None
