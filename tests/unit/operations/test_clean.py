"""What a command asks to be cleaned: how often logs are opened, and a dry run beside a broker that deletes a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.cleaner.round import CleanerOptions
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.settings import load_settings
from seglog.format.filenames import CLEAN_SHUTDOWN_FILE
from seglog.locations import parse_location
from seglog.log.loader import LoadedLog, LoadOptions, load_log
from seglog.operations.clean import Cleaned
from seglog.storage.filesystem import FileSystem, OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog_stores.remote.filesystem import RemoteFileSystem
from seglog_stores.remote.limits import Limits
from tests.support.compacted_directories import broker_directory, clean, keys_of
from tests.support.log_files import files_of
from tests.support.manual_clock import ManualClock
from tests.support.object_server import object_server
from tests.support.open_logs import START_MS

FS = LocalFileSystem()


class Topics:
    """Every topic is compacted."""

    def resolve(self, topic: str) -> ResolvedConfig:
        settings = load_settings(FS, environment={}, working_directory=Path("/"))
        return settings.resolve(topic, chosen={"cleanup.policy": "compact"})

    def __call__(self, topic: str) -> LogConfig:
        return self.resolve(topic).log


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
    outcomes = clean(fs, [logs / "t-0"], Topics(), ManualClock(START_MS), CleanerOptions(), dry_run=True)
    assert fs.vanished == 1
    assert isinstance(outcomes[0], Cleaned) and outcomes[0].result.stats.records_read == 120
    assert files_of(logs) == before


@pytest.mark.parametrize(("cache_bytes", "times"), [(1 << 20, 1), (1024, 2)])
def test_a_dry_run_of_objects_sends_full_requests_and_fetches_cached_data_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_bytes: int, times: int
) -> None:
    logs = broker_directory(tmp_path / "logs", {"t-0": (3, 60)})
    limits = Limits(cache_bytes=cache_bytes, block_bytes=64, request_bytes=256)
    with object_server() as server:
        for path in (each for each in logs.rglob("*") if each.is_file()):
            server.objects[f"bkt/{path.relative_to(tmp_path)}"] = path.read_bytes()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        fs = RemoteFileSystem(limits=limits)
        path, options = parse_location("s3://bkt/logs/t-0"), CleanerOptions(jobs=1)
        (outcome,) = clean(fs, [path], Topics(), ManualClock(START_MS), options, dry_run=True)
        asked = sum(each.startswith("GET /bkt/logs/t-0/") and ".log" in each for each in server.asked)
    assert isinstance(outcome, Cleaned) and outcome.result.stats.records_read > 0
    sizes = [path.stat().st_size for path in (logs / "t-0").glob("*.log")]
    least = sum(-(-size // limits.run_bytes) for size in sizes)
    assert least <= asked <= times * least + len(sizes), (asked, least)


def cleaned(logs: Path, fs: LocalFileSystem) -> Cleaned:
    (outcome,) = clean(fs, [logs / "t-0"], Topics(), ManualClock(START_MS), CleanerOptions())
    assert isinstance(outcome, Cleaned)
    return outcome


class Listings(LocalFileSystem):
    """Counts how often the directory `t-0` is listed to load the log in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loads: list[Path] = []
        monkeypatch.setattr("seglog.log.log.load_log", self._load)

    def _load(self, fs: FileSystem, directory: Path, clock: Clock, options: LoadOptions) -> LoadedLog:
        self.loads.append(directory)
        return load_log(fs, directory, clock, options)


@pytest.mark.parametrize("closed", ["properly", "by a crash"])
def test_a_named_partition_is_opened_once(closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    if closed != "properly":
        (logs / CLEAN_SHUTDOWN_FILE).unlink()
        next((logs / "t-0").glob("*.index")).unlink()
    fs = Listings(monkeypatch)
    outcome = cleaned(logs, fs)
    assert outcome.changes and outcome.result.stats.records_read == 120
    assert fs.loads == [logs / "t-0"]
    assert keys_of(logs, "t-0")[:5] == [b"k%d" % i for i in range(5)]
    again = cleaned(logs, fs)
    assert (again.result.first_dirty_offset, again.changes) == (outcome.result.end_offset, False)
    assert (logs / CLEAN_SHUTDOWN_FILE).exists()


def test_a_partition_with_nothing_to_clean_is_left_as_it_is(tmp_path: Path) -> None:
    logs = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    cleaned(logs, FS)
    next((logs / "t-0").glob("*.snapshot")).unlink()  # opening the log would make it again
    before = files_of(logs)
    assert not cleaned(logs, FS).changes
    assert files_of(logs) == before
