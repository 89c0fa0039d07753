"""The copy of a round waits for the disk beside its work, not in between."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest

from seglog.layout import INT32_MAX
from seglog.storage.filesystem import File, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.cleaning import append, clean, compacted_log, contents, many
from tests.support.crash_filesystem import CrashFileSystem

_LONG_SECONDS = 20.0  # what never takes so long, unless it never comes


class SlowDisk(PassingFileSystem):
    """The first `.cleaned` log reaches the disk when another one has been begun, or after a long time."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())
        self.begun: list[Path] = []
        self.waited: list[bool] = []
        self._second = threading.Event()

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode in ("create", "create_new") and path.name.endswith(".log.cleaned"):
            self.begun.append(path)
            if len(self.begun) == 2:
                self._second.set()
        file = super().open(path, mode)
        return cast("File", _SlowFile(file, self)) if path.name.endswith(".log.cleaned") else file

    def flushed(self, path: Path) -> None:
        if path == self.begun[0]:
            self.waited.append(self._second.wait(_LONG_SECONDS))


class _SlowFile(PassingFile):
    def __init__(self, below: File, disk: SlowDisk) -> None:
        super().__init__(below)
        self._disk = disk

    def sync(self) -> None:
        self._disk.flushed(self.path)
        super().sync()


def test_a_single_thread_copies_the_next_group_while_the_one_before_waits_for_the_disk(tmp_path: Path) -> None:
    disk = SlowDisk()
    log = compacted_log(tmp_path, fs=disk, segment_bytes=2000)
    append(log, many(200, 60))
    log.roll()
    expected = {key: value for _, key, value in contents(log)}
    clean(log)
    assert len(disk.begun) > 1
    assert disk.waited == [True]
    assert {key: value for _, key, value in contents(log)} == expected


@pytest.mark.parametrize("most_log_bytes", [INT32_MAX, 300], ids=["a segment a group", "several"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_names_are_durable_before_the_swap_which_waits_for_the_directory_thrice(
    tmp_path: Path, jobs: int, most_log_bytes: int
) -> None:
    with compacted_log(tmp_path, segment_bytes=2000) as made:
        append(made, many(200, 60))
        made.roll()
    fs = CrashFileSystem.of(tmp_path)
    log = compacted_log(tmp_path, fs=fs, segment_bytes=2000)
    fs.trace.clear()
    clean(log, jobs=jobs, most_log_bytes=most_log_bytes)
    created = [at for at, step in enumerate(fs.trace) if step.startswith("create ") and step.endswith(".log.cleaned")]
    swap = next(at for at, step in enumerate(fs.trace) if step.startswith("rename ") and step.endswith(".swap"))
    synced = [at for at, step in enumerate(fs.trace) if step.startswith("sync directory")]
    assert len(created) > 1
    assert any(created[-1] < at < swap for at in synced)
    if most_log_bytes == INT32_MAX:
        assert len(synced) == 4 and len([at for at in synced if at > swap]) == 3
