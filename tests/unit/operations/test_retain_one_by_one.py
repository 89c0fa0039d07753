"""A dry run of retention by rules holds one log at a time: a broker has ten thousand."""

from __future__ import annotations

from pathlib import Path

from seglog.clock import SystemClock
from seglog.operations.retain import Retained, RetentionRequest, retain
from seglog.operations.workspace import Workspace
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from tests.support.fixtures import fixture_copy


class Watching(LocalFileSystem):
    """Notes in how many partitions logs were open at once."""

    def __init__(self) -> None:
        self._files: list[LocalFile] = []
        self.partitions_at_once = 0

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        file = super().open(path, mode)
        if path.name.endswith(".log"):
            self._files = [*(one for one in self._files if one.fileno() >= 0), file]
            self.partitions_at_once = max(self.partitions_at_once, len({one.path.parent for one in self._files}))
        return file


def test_one_log_is_open_at_a_time(tmp_path: Path) -> None:
    directory, fs = fixture_copy("4.3.0/clean", tmp_path), Watching()
    work = Workspace(fs, SystemClock(), ("cleanup.policy=delete",), None, None, ())
    rows = list(retain(work, RetentionRequest((directory,), retention_ms=1), dry_run=True))
    assert len([row for row in rows if isinstance(row, Retained)]) > 3
    assert fs.partitions_at_once == 1
