"""What a command asks to be cleaned: a dry run beside a broker that deletes a file while it is opened."""

from __future__ import annotations

from pathlib import Path

from seglog.cleaner.options import CleanerOptions
from seglog.clock import ManualClock
from seglog.configuration.sources import ResolvedConfig, load_settings
from seglog.operations.clean import Cleaned, clean
from seglog.scan.listing import resolve_paths
from seglog.storage.filesystem import LocalFile, LocalFileSystem, OpenMode
from tests.support.compacted_directories import broker_directory
from tests.support.log_files import files_of
from tests.support.open_logs import START_MS

FS = LocalFileSystem()


class Topics:
    """Every topic is compacted."""

    def resolve(self, topic: str) -> ResolvedConfig:
        settings = load_settings(FS, environment={}, working_directory=Path("/"))
        return settings.resolve(topic, chosen={"cleanup.policy": "compact"})


class BusyBroker(LocalFileSystem):
    """An index is gone when it is opened for the first time, though it was listed."""

    def __init__(self) -> None:
        self.vanished = 0

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        if path.suffix == ".index" and not self.vanished:
            self.vanished += 1
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return super().open(path, mode)


def test_a_dry_run_beside_a_broker_opens_again_what_vanished(tmp_path: Path) -> None:
    logs = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    before = files_of(logs)
    fs = BusyBroker()
    targets = resolve_paths(fs, [logs / "t-0"])
    outcomes = list(clean(fs, targets, lambda _: Topics(), ManualClock(START_MS), CleanerOptions(), dry_run=True))
    assert fs.vanished == 1
    assert isinstance(outcomes[0], Cleaned) and outcomes[0].result.stats.records_read == 120
    assert files_of(logs) == before
