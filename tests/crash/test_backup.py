"""Backups, prunes and erasures that are killed at any moment: every snapshot that is listed restores to what it was.

SEGLOG_EFFORT multiplies how many processes are killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import effort
from tests.support.killed_backups import killed_backups


@pytest.mark.slow
@pytest.mark.parametrize("bucket", [False, True], ids=["directory", "bucket"])
def test_every_listed_snapshot_restores_whatever_was_killed(tmp_path: Path, bucket: bool) -> None:
    kills = effort.tries(4)
    counts = killed_backups(tmp_path, effort.first_seed(7), kills, bucket=bucket)
    assert sum(count for name, count in counts.items() if name.startswith("killed: ")) == kills
    assert counts["snapshots"] and counts["restored"] >= counts["snapshots"]
