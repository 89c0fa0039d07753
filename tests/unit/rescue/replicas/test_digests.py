"""Marks of two logs tell where they hold other batches, and how much lies between two offsets."""

from __future__ import annotations

import random

import numpy as np
import pytest

from seglog.layout import BATCH, CONTROL_MASK
from seglog_rescue.replicas.digests import LogDigest, different, extent


def rows(count: int, seed: int = 1, *, first: int = 0) -> np.ndarray:
    chance, offset = random.Random(seed), first
    table = np.zeros(count, dtype=BATCH)
    for row in table:
        size = chance.randint(1, 9)
        row["base_offset"], row["last_offset"], row["count"] = offset, offset + size - 1, size
        row["crc"], row["size"], row["magic"] = chance.getrandbits(32), 61 + 10 * size, 2
        row["base_timestamp"] = row["max_timestamp"] = 1000 + offset
        offset += size
    return table


def digest(table: np.ndarray, chunks: int = 7) -> LogDigest:
    made = LogDigest()
    for part in np.array_split(table, chunks):
        made.add(part)
    return made


def test_the_marks_do_not_depend_on_how_the_log_was_read_and_are_few() -> None:
    for count in (1, 3, 100, 5000):
        table = rows(count)
        marks = digest(table, 1).marks()
        assert marks == digest(table, 13).marks()
        assert len(marks) <= 30
        end = int(table["last_offset"][-1]) + 1
        assert (marks[0].offset, marks[-1].offset, marks[-1].records) == (0, end, end)


def test_equal_logs_do_not_differ_wherever_they_begin_and_end() -> None:
    table = rows(4000)
    whole = digest(table).marks()
    for part in (table[:3000], table[500:], table[500:3990]):
        end = int(part["last_offset"][-1]) + 1
        assert list(different(whole, digest(part).marks(), int(part["base_offset"][0]), end)) == []


def test_one_other_batch_is_found_between_two_marks() -> None:
    table, changed = rows(4000), rows(4000)
    changed["crc"][2345] ^= 1
    end, at = int(table["last_offset"][-1]) + 1, int(table["base_offset"][2345])
    ((first, stop),) = different(digest(table).marks(), digest(changed).marks(), 0, end)
    assert first <= at < stop
    assert stop - first <= end // 4


def test_records_between_two_offsets_are_exact_where_no_offset_is_missing() -> None:
    table = rows(4000)
    end = int(table["last_offset"][-1]) + 1
    marks = digest(table).marks()
    for first in (0, 17, end // 2, end - 3):
        held = extent(marks, first, end)
        assert (held.records, held.exact) == (end - first, True)
        assert 1000 <= held.first_timestamp <= 1000 + first
    table["attributes"][3999] |= CONTROL_MASK
    sparse = digest(table).marks()
    first = sparse[-2].offset + 1
    held = extent(sparse, first, end)
    assert (held.exact, held.records) == (False, min(end - first, sparse[-1].records - sparse[-2].records))
    assert extent(sparse, 0, end).exact


def test_a_log_with_thousands_of_epochs_has_few_marks_and_all_its_epochs() -> None:
    table = rows(5000)
    table["leader_epoch"] = np.arange(5000) // 2
    made = digest(table)
    assert len(made.marks()) <= 30
    assert len(made.epochs) == 2500


@pytest.mark.parametrize("chunks", [1, 3, 60])
def test_an_epoch_that_a_later_batch_falls_below_is_not_believed(chunks: int) -> None:
    table = rows(60)
    table["leader_epoch"] = [*[0] * 20, *[2] * 20, *[7] * 20]
    right = digest(table, chunks).epochs
    assert digest(table, chunks).fall is None
    table["leader_epoch"][[5, 30, 50]] = 1, 1 << 30, -1
    assert digest(table, chunks).epochs == right
    fall = digest(table, chunks).fall
    assert fall is not None and (fall.offset, fall.epoch, fall.before) == (int(table["base_offset"][6]), 0, 1)
    table["leader_epoch"][59] = 1
    assert digest(table, chunks).epochs == [(0, 0), (1, int(table["base_offset"][59]))]
