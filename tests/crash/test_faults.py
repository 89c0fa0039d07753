"""Commands that change logs in place while call after call fails: running them again ends as if nothing had failed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from seglog.cleaner.options import CleanerOptions
from seglog.clock import ManualClock
from seglog.configuration.keys import LogConfig
from seglog.errors import SeglogError
from seglog.log.directory import open_partition
from seglog.operations.clean import clean
from seglog.operations.retain import RetentionRequest, retain
from seglog.scan.listing import list_log_directory, list_partition, resolve_paths
from seglog.storage.filesystem import FileSystem, LocalFileSystem
from tests.support.compacted_directories import Topics, broker_directory
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of
from tests.support.log_files import files_of
from tests.support.open_logs import START_MS

FS = LocalFileSystem()
HOUR_MS = 3_600_000
STEP = int(os.environ.get("SEGLOG_FAULT_STEP", "3"))  # 1: every call fails as an error, a full disk and a kill
DELETE = frozenset({"delete"})

Work = Callable[[FileSystem, Path], object]


def later() -> ManualClock:
    return ManualClock(START_MS + 10 * HOUR_MS)


def retaining(fs: FileSystem, logs: Path) -> object:
    return retained(fs, logs, RetentionRequest(delay_ms=0))


def retaining_with_delay(fs: FileSystem, logs: Path) -> object:
    return retained(fs, logs, RetentionRequest())


def retained(fs: FileSystem, logs: Path, request: RetentionRequest) -> object:
    topics = Topics(cleanup_policy="delete", retention_bytes=2000)
    return list(retain(fs, resolve_paths(FS, [logs / "t-0"]), lambda _: topics, later(), request))


def cleaning(fs: FileSystem, logs: Path) -> object:
    topics, options = Topics(cleanup_policy="compact"), CleanerOptions()
    return list(clean(fs, resolve_paths(FS, [logs / "t-0"]), lambda _: topics, later(), options, dry_run=False))


def truncating(fs: FileSystem, logs: Path) -> object:
    config = LogConfig()
    owner, log = open_partition(logs / "t-0", fs=fs, clock=later(), config_of=lambda _: config, writable=True)
    with owner:
        return log.truncate_to(40)


WORK: dict[str, tuple[Work, frozenset[str]]] = {
    "retain": (retaining, DELETE),
    "retain, files wait": (retaining_with_delay, DELETE),
    "clean": (cleaning, frozenset({"compact"})),
    "truncate": (truncating, DELETE),
}


def state_of(logs: Path) -> dict[str, bytes]:
    """What is there, but for what every opening settles, and the clean-shutdown marker.

    An epoch that begins below the log start may stay so: a broker that dies between deleting segments and moving epochs
    does not move them later either.
    """
    found = {f"{each.name}": each.read_bytes() for each in logs.iterdir() if each.is_file()}
    found |= {f"t-0/{name}": data for name, data in files_of(logs / "t-0").items()}
    passing = (".lock", ".kafka_cleanshutdown", ".deleted", ".snapshot")
    state = {name: data for name, data in found.items() if not name.endswith(passing)}
    epochs = state["t-0/leader-epoch-checkpoint"].splitlines()
    if epochs[2:] and int(epochs[2].split()[1]) < list_partition(FS, logs / "t-0").segments[0].base_offset:
        epochs[2] = b"0 %d" % list_partition(FS, logs / "t-0").segments[0].base_offset
    return state | {"t-0/leader-epoch-checkpoint": b"\n".join(epochs)}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", WORK)
def test_a_command_that_fails_anywhere_ends_as_ever_when_it_runs_again(tmp_path: Path, name: str, kind: str) -> None:
    work, policy = WORK[name]
    origin = broker_directory(tmp_path / "origin", {"t-0": (5, 7)}, cleanup_policy=policy)
    copy = tmp_path / "copy"
    shutil.copytree(origin, copy)
    calls = calls_of(lambda fs: work(fs, copy))
    work(FS, copy)
    whole = state_of(copy)
    assert whole != state_of(origin)
    for at in range(FAULTS.index(kind) % STEP, calls, STEP):
        shutil.rmtree(copy)
        shutil.copytree(origin, copy)
        faults = Faults(at, kind)
        with suppress(OSError, Killed, SeglogError):
            work(FaultyFileSystem(faults), copy)
        where = f"{kind} at call {at} of {calls}: {faults.call}"
        assert list_log_directory(FS, copy).strangers == (), where
        work(FS, copy)
        assert state_of(copy) == whole, where
        listing = list_partition(FS, copy / "t-0")
        assert listing.orphans == () and listing.strangers == (), where
