"""File systems that count calls, or let something happen at one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.storage.filesystem import FileStatus, FileSystem, OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.storage.routing import RoutingFileSystem


def routed(fs: FileSystem) -> RoutingFileSystem:
    """`fs` where `table.plan.files.files_of` would give the machine's files; URLs are an error."""
    return RoutingFileSystem(fs, lambda: pytest.fail("a URL was met"))


class CountingFileSystem(LocalFileSystem):
    """Counts what looks at files: `status`, `list`, `open`; also by the names of directories and files."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        self.note("open", path)
        self.opened[path.name] += 1
        return super().open(path, mode)

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        self.note("status", path)
        return super().status(path, follow)

    def list(self, directory: Path) -> list[str]:
        self.note("list", directory)
        self.listed[directory.name] += 1
        return super().list(directory)

    def note(self, call: str, path: Path) -> None:
        """Counts a call."""
        self.calls[call] += 1


class ChangingFileSystem(CountingFileSystem):
    """Calls `change` once, before the `moment`-th call (from 0)."""

    def __init__(self, moment: int, change: Callable[[], None]) -> None:
        super().__init__()
        self._moment, self._change = moment, change
        self.changed = False

    def note(self, call: str, path: Path) -> None:
        if self.calls.total() == self._moment and not self.changed:
            self.changed = True
            self._change()
        super().note(call, path)
