"""Which directories are copies of which partition."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from seglog.errors import NotALogError
from seglog.look.inspect.diff_view import ViewOptions
from seglog.operations.diff import LEVELS, copies_by_partition, differences
from tests.support.log_files import FS, batch, write_segment


def test_a_topic_is_compared_partition_by_partition(tmp_path: Path) -> None:
    for name in ("a/t-0", "a/t-10", "b/t-0", "b/t-2", "b/tt-0"):
        write_segment(tmp_path / name, 0, batch(0))
    one, other = tmp_path / "a", tmp_path / "b"
    found = copies_by_partition(FS, [one / "t", other / "t"])
    assert found == [(name, [one / name, other / name]) for name in ("t-0", "t-10", "t-2")]
    with pytest.raises(NotALogError):
        copies_by_partition(FS, [one / "t", other / "t-3"])


@pytest.mark.parametrize("level", LEVELS)
def test_copies_that_are_all_gone_do_not_differ(level: str, tmp_path: Path) -> None:
    write_segment(tmp_path / "a" / "t-0", 0, batch(0))
    one, other, options = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0", ViewOptions(1 << 20)
    assert [found.kind for found in differences(FS, [one, other], level, options)] == ["missing"]
    shutil.rmtree(one)
    with pytest.raises(NotALogError, match="a/t-0: no such directory any more"):
        list(differences(FS, [one, other], level, options))
