"""Commands that change logs in place while call after call fails: running them again ends as if nothing had failed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from seglog.cleaner.round import CleanerOptions
from seglog.configuration.keys import LogConfig
from seglog.errors import SeglogError
from seglog.log.opening import open_partition
from seglog.model import Record, TopicPartition
from seglog.operations.recover import RecoveryOptions, recover
from seglog.operations.retain import RetentionRules, retain_targets
from seglog.scan.listing import list_log_directory, list_partition, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.compacted_directories import Topics, broker_directory, clean, opened
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
from tests.support.log_files import files_of
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS

pytestmark = pytest.mark.slow

FS = LocalFileSystem()
HOUR_MS = 3_600_000
DELETE = frozenset({"delete"})

Work = Callable[[FileSystem, Path], object]


def later() -> ManualClock:
    return ManualClock(START_MS + 10 * HOUR_MS)


def retaining(fs: FileSystem, logs: Path) -> object:
    return retained(fs, logs, RetentionRules(delay_ms=0))


def retaining_with_delay(fs: FileSystem, logs: Path) -> object:
    return retained(fs, logs, RetentionRules())


def retained(fs: FileSystem, logs: Path, request: RetentionRules) -> object:
    topics = Topics(cleanup_policy="delete", retention_bytes=2000)
    return list(retain_targets(fs, resolve_paths(FS, [logs / "t-0"]), lambda _: topics, later(), request))


def cleaning(fs: FileSystem, logs: Path) -> object:
    topics, options = Topics(cleanup_policy="compact"), CleanerOptions()
    return clean(fs, [logs / "t-0"], topics, later(), options)


def cleaning_each_by_itself(fs: FileSystem, logs: Path) -> object:
    """Each segment is replaced by one of its own, which ends sooner: no two of them fit one, however small they are."""
    topics = Topics(cleanup_policy="compact", segment_bytes=1)
    return clean(fs, [logs / "t-0"], topics, later(), CleanerOptions())


def truncating(fs: FileSystem, logs: Path) -> object:
    config = LogConfig()
    owner, log = open_partition(logs / "t-0", fs=fs, clock=later(), config_of=lambda _: config, writable=True)
    with owner:
        return log.truncate_to(40)


def recovering(fs: FileSystem, logs: Path) -> object:
    (target,) = resolve_paths(FS, [logs])
    return list(recover(fs, later(), target, lambda _: LogConfig(), RecoveryOptions()))


def reindexing(fs: FileSystem, logs: Path) -> object:
    (target,) = resolve_paths(FS, [logs / "t-0"])
    return list(recover(fs, later(), target, lambda _: LogConfig(), RecoveryOptions(lossless=True)))


def crashed(logs: Path) -> None:
    """The broker was killed in the middle of a batch."""
    for path in (logs / "t-0").glob(f"{max((logs / 't-0').glob('*.log')).stem}.*"):
        path.unlink()  # the empty active segment
    last = max((logs / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-30])
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "recovery-point-offset-checkpoint").unlink()


def with_ends_that_go(logs: Path) -> None:
    """Other contents: the last batch of each segment has keys only that come again."""
    shutil.rmtree(logs / "t-0")
    with opened(logs) as directory:
        log = directory.log(TopicPartition("t", 0), create=True)
        for _ in range(4):
            start = log.log_end_offset
            keys = (b"%d" % (start + n) if n in (0, 5) else b"again %d" % (n % 5) for n in range(15))
            log.append([Record(b"v", key, START_MS + start + n) for n, key in enumerate(keys)], batch_records=5)
            log.roll()


def without_indexes(logs: Path) -> None:
    for path in (logs / "t-0").glob("*index"):
        path.unlink()


@dataclass(frozen=True)
class Case:
    """What `work` does with a log directory; `spoil` is what happened to it before."""

    work: Work
    policy: frozenset[str] = DELETE
    spoil: Callable[[Path], None] = lambda _: None


CASES = {
    "retain": Case(retaining),
    "retain, files wait": Case(retaining_with_delay),
    "clean": Case(cleaning, frozenset({"compact"})),
    "clean, ends go": Case(cleaning_each_by_itself, frozenset({"compact"}), with_ends_that_go),
    "truncate": Case(truncating),
    "recover": Case(recovering, spoil=crashed),
    "reindex": Case(reindexing, spoil=without_indexes),
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
@pytest.mark.parametrize("name", CASES)
def test_a_command_that_fails_anywhere_ends_as_ever_when_it_runs_again(tmp_path: Path, name: str, kind: str) -> None:
    case = CASES[name]
    work = case.work
    origin = broker_directory(tmp_path / "origin", {"t-0": (5, 7)}, cleanup_policy=case.policy)
    case.spoil(origin)
    copy = tmp_path / "copy"
    shutil.copytree(origin, copy)
    calls = calls_of(lambda fs: work(fs, copy))
    work(FS, copy)
    whole = state_of(copy)
    assert whole != state_of(origin)
    for at in moments(calls, kind):
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


@pytest.mark.parametrize("kind", FAULTS)
def test_an_append_that_fails_anywhere_loses_nothing_that_was_flushed(tmp_path: Path, kind: str) -> None:
    origin = broker_directory(tmp_path / "origin", {"t-0": (2, 7)}, cleanup_policy=DELETE)
    copy, config = tmp_path / "copy", LogConfig(segment_bytes=700)
    flushed: list[int] = []

    def appending(fs: FileSystem, logs: Path) -> object:
        flushed.clear()
        owner, log = open_partition(logs / "t-0", fs=fs, clock=later(), config_of=lambda _: config, writable=True)
        with owner:
            for turn in range(4):
                log.append([Record(b"%d %d" % (turn, n)) for n in range(6)], batch_records=3)
                log.flush()
                flushed.append(log.log_end_offset)
        return log.log_end_offset

    shutil.copytree(origin, copy)
    calls = calls_of(lambda fs: appending(fs, copy))
    whole = values_of(copy)
    before = len(values_of(origin))
    assert len(whole) == before + 24
    for at in moments(calls, kind):
        shutil.rmtree(copy)
        shutil.copytree(origin, copy)
        faults = Faults(at, kind)
        with suppress(OSError, Killed, SeglogError):
            appending(FaultyFileSystem(faults), copy)
        where = f"{kind} at call {at} of {calls}: {faults.call}"
        acknowledged, found = flushed[-1] if flushed else before, values_of(copy)
        assert found == whole[: len(found)] and len(found) >= acknowledged, where
        appending(FS, copy)
        assert values_of(copy) == found + whole[before:], where


def values_of(logs: Path) -> list[bytes | None]:
    """What is in the log after an opening for writing, as a broker's start."""
    config = LogConfig()
    owner, log = open_partition(logs / "t-0", fs=FS, clock=later(), config_of=lambda _: config, writable=True)
    with owner:
        return [record.value for record in log.records()]
