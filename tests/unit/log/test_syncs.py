"""What is waited for: each file once, after its last change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from seglog.configuration.keys import LogConfig
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.model import Record
from seglog.storage.filesystem import File, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.log_files import batch, write_segment
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS


class CountedFile(PassingFile):
    def __init__(self, below: File, syncs: Counter[str]) -> None:
        super().__init__(below)
        self._syncs = syncs

    def sync(self) -> None:
        self._syncs[self.path.name] += 1
        super().sync()


class CountingFileSystem(PassingFileSystem):
    """Local files; `syncs` counts by the files' names."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())
        self.syncs: Counter[str] = Counter()

    def open(self, path: Path, mode: OpenMode) -> File:
        return CountedFile(super().open(path, mode), self.syncs)


def recovered(fs: CountingFileSystem, directory: Path) -> Log:
    options = LoadOptions(clean_shutdown=False)
    return Log.open(directory, LogConfig(), fs=fs, clock=ManualClock(START_MS), options=options)


def test_recovery_and_closing_wait_for_each_file_once(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 3), batch(3, 3))
    write_segment(tmp_path / "t-0", 6, batch(6, 3))
    fs = CountingFileSystem()
    recovered(fs, tmp_path / "t-0").close()
    kinds = (".log", ".index", ".timeindex")
    assert {name: count for name, count in fs.syncs.items() if name.endswith(kinds)} == {
        f"{base:020d}{kind}": 1 for base in (0, 6) for kind in kinds
    }


def test_what_is_appended_after_a_recovery_is_waited_for_again(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 3, timestamp=START_MS))
    fs = CountingFileSystem()
    with recovered(fs, tmp_path / "t-0") as log:
        fs.syncs.clear()
        for turn in (1, 2):
            log.append([Record(b"v", timestamp=START_MS)])
            log.flush()
            assert fs.syncs[f"{0:020d}.log"] == turn
        log.flush()
        assert fs.syncs[f"{0:020d}.log"] == 2
