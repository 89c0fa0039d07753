"""Records as users make and see them."""

from __future__ import annotations

import pytest

from seglog.model import Record


@pytest.mark.parametrize(
    ("record", "is_tombstone"),
    [
        (Record(None, key=b"k"), True),
        (Record(None, key=b""), True),
        (Record(b"", key=b"k"), False),  # an empty value is a value
        (Record(None), False),  # without a key it deletes nothing
        (Record(b"v"), False),
    ],
)
def test_a_tombstone_has_a_key_and_no_value(record: Record, is_tombstone: bool) -> None:
    assert record.is_tombstone is is_tombstone
