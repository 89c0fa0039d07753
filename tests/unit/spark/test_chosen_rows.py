"""A selection chooses rows of the view `records`, as `spark export` writes them."""

from __future__ import annotations

from typing import Any

import pytest

from seglog.scan.key_set import KeySet
from seglog.scan.selection import Selection

pa = pytest.importorskip("pyarrow")

CASES: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [5, 6, 7, 8]),
    ({"first_offset": 6, "end_offset": 8}, [6, 7]),
    ({"first_timestamp": 1000}, [5, 7]),
    ({"end_timestamp": 3000}, [5, 6, 8]),
    ({"keys": KeySet([b"k"])}, [5, 7]),
    ({"keys": KeySet([b"k"]), "first_offset": 6}, [7]),
]


@pytest.mark.parametrize(
    ("conditions", "offsets"), CASES, ids=lambda one: ", ".join(one) if isinstance(one, dict) else None
)
def test_rows_are_chosen_by_offset_time_and_key(conditions: dict[str, Any], offsets: list[int]) -> None:
    from seglog_ask.spark.exporting import chosen_rows

    batch = pa.record_batch(
        {
            "key": pa.array([b"k", None, b"k", b"other"], pa.binary()),
            "offset": pa.array([5, 6, 7, 8], pa.int64()),
            "timestamp": pa.array([1_000_000, None, 3_000_000, 999_000], pa.timestamp("us", "UTC")),
        }
    )
    assert chosen_rows(batch, Selection(**conditions)).column("offset").to_pylist() == offsets
