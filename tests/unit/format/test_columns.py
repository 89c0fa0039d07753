"""Single records out of a table of spans."""

from __future__ import annotations

import numpy as np
import pytest

from seglog.format import columns
from seglog.format.builder import columns_of
from seglog.model import Header, Record

RECORDS = [
    Record(b"value", b"key", 5, (), 0, 0),
    Record(None, b"key", 6, (), 1, 1),
    Record(b"", None, 7, (Header("a", b"1"), Header("b" * 200, None), Header("", b"x" * 70_000)), 3, -1),
    Record(b"x" * 3000, b"", 8, (Header("\udcff", b""),), 4, 2),
    Record(None, None, 9, (), 5, 2),
]


@pytest.mark.parametrize(("at_once", "copied"), [(1024, 1 << 20), (2, 1 << 20), (3, 10), (1, 0)])
def test_iterating_gives_what_each_record_is(monkeypatch: pytest.MonkeyPatch, at_once: int, copied: int) -> None:
    monkeypatch.setattr(columns, "_OBJECTS_AT_ONCE", at_once)
    monkeypatch.setattr(columns, "_COPIED_AT_ONCE", copied)
    table = columns_of(RECORDS)
    assert list(table) == RECORDS
    assert [table.record(i) for i in range(len(table))] == RECORDS
    assert table.record(-1) == RECORDS[-1]
    assert [table.key(i) for i in range(5)] == [record.key for record in RECORDS]
    assert [table.value(i) for i in range(5)] == [record.value for record in RECORDS]


def test_records_are_made_as_they_are_asked_for() -> None:
    table = columns_of(RECORDS * 1000)
    found = iter(table)
    assert next(found) == RECORDS[0]
    table.rows["timestamp"] = 77  # those after the first run are not made yet
    assert [record.timestamp for record in found][-1] == 77


def test_no_records_are_none() -> None:
    assert list(columns_of([])) == []
    with pytest.raises(IndexError):
        columns_of([]).record(0)


def test_records_that_lie_far_apart_are_as_they_are() -> None:
    table = columns_of([Record(bytes([i]) * 500_000) for i in range(8)])
    rows = table.rows[np.array([0, 7])]
    picked = columns.Records(table.arena, rows, table.batches, table.status)
    assert [record.value[:1] for record in picked if record.value is not None] == [b"\x00", b"\x07"]
