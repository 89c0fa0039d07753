"""Which directories are copies of which partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.operations.diff import copies_by_partition
from tests.support.log_files import FS, batch, write_segment


def test_a_topic_is_compared_partition_by_partition(tmp_path: Path) -> None:
    for name in ("a/t-0", "a/t-10", "b/t-0", "b/t-2", "b/tt-0"):
        write_segment(tmp_path / name, 0, batch(0))
    one, other = tmp_path / "a", tmp_path / "b"
    found = copies_by_partition(FS, [one / "t", other / "t"])
    assert found == [(name, [one / name, other / name]) for name in ("t-0", "t-10", "t-2")]
    with pytest.raises(NotALogError):
        copies_by_partition(FS, [one / "t", other / "t-3"])
