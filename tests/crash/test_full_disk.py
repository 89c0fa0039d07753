"""A disk without room, after a broker died because of that: what goes anyway goes before recovery, and nothing else."""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import IncompleteError, RefusedError, SeglogError
from seglog.format.producer_snapshot import decode_snapshot
from seglog.log.append import ProducerIdentity
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.operations.keeping import Keeper
from seglog.operations.recover import RecoveryOptions, recover
from seglog.operations.retain import Freed, FreeSpace, Retained, RetentionFailure, RetentionRules, retain_targets
from seglog.scan.listing import list_partition, resolve_paths
from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.compacted_directories import Topics
from tests.support.faulty_filesystem import FAULTS, Faults, FaultyFileSystem, Killed, calls_of, moments
from tests.support.log_files import files_of
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.support.small_disk import SmallDisk

pytestmark = pytest.mark.slow  # the power is cut at every change

FS = LocalFileSystem()
LATER_MS = START_MS + 36_000_000
BLOCK = 4096
SEGMENTS = 6


def clock() -> ManualClock:
    return ManualClock(LATER_MS)


def crashed_broker(path: Path, *names: str, snapshots: bool = True) -> Path:
    """Partitions whose broker was killed: closed segments of two blocks, each by a producer of its own."""
    path.mkdir()
    (path / "meta.properties").write_text("version=1\ncluster.id=test\nnode.id=1\n")
    config = LogConfig(cleanup_policy=frozenset({"delete"}))
    with LogDirectory.open(path, fs=FS, clock=ManualClock(START_MS), config_of=lambda _: config, writable=True) as logs:
        for name in names:
            topic, _, number = name.rpartition("-")
            log = logs.log(TopicPartition(topic, int(number)), create=True)
            for segment in range(SEGMENTS):
                records = [Record(b"v" * 900, b"%d" % n, START_MS + log.log_end_offset + n) for n in range(6)]
                log.append(records, producer=ProducerIdentity(100 + segment, 0, 0), leader_epoch=segment)
                if segment < SEGMENTS - 1:
                    log.roll()
    (path / ".kafka_cleanshutdown").unlink()
    for snapshot in path.glob("*/*.snapshot"):
        if not snapshots or int(snapshot.stem) > (SEGMENTS - 1) * 6:
            snapshot.unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    return path


def retained(
    fs: FileSystem, logs: Path, topics: Topics, request: RetentionRules | None = None
) -> list[Retained | RetentionFailure | Freed]:
    rules, targets = request or RetentionRules(delay_ms=0), resolve_paths(FS, [logs])
    return list(retain_targets(fs, targets, lambda _: topics, clock(), rules))


def two_segments_left() -> Topics:
    return Topics(cleanup_policy="delete", retention_bytes=11_000)


def state_of(logs: Path) -> dict[str, bytes]:
    """All files, but for the lock, and a snapshot at the log start: whoever opens the log the next time drops it."""
    found = {each.name: each.read_bytes() for each in logs.iterdir() if each.is_file() and each.name != ".lock"}
    for partition in sorted(each for each in logs.iterdir() if each.is_dir()):
        start = f"{list_partition(FS, partition).segments[0].base_offset:020d}.snapshot"
        found |= {f"{partition.name}/{name}": data for name, data in files_of(partition).items() if name != start}
    return found


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return crashed_broker(tmp_path / "origin", "t-0", "u-0")


@pytest.fixture(params=[0, 1, 3], ids=["0 blocks", "1 block", "3 blocks"])
def free(request: pytest.FixtureRequest) -> int:
    return int(request.param) * BLOCK


@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshot"])
def test_retention_without_room_ends_as_recovery_and_then_retention(tmp_path: Path, snapshots: bool, free: int) -> None:
    origin = crashed_broker(tmp_path / "origin", "t-0", "u-0", snapshots=snapshots)
    wide, full = (shutil.copytree(origin, tmp_path / name) for name in ("wide", "full"))
    expected = retained(FS, wide, two_segments_left())
    disk = SmallDisk(full, free)
    found = retained(disk, full, two_segments_left())
    assert [one.before_recovery for one in found if isinstance(one, Retained)] == [4, 4]
    assert [one.plan for one in found if isinstance(one, Retained)] == [
        one.plan for one in expected if isinstance(one, Retained)
    ]
    assert state_of(full) == state_of(wide) and disk.least_free >= 0


def test_where_there_is_room_the_log_is_recovered_first(origin: Path) -> None:
    found = retained(SmallDisk(origin, 1 << 20), origin, two_segments_left())
    assert [one.before_recovery for one in found if isinstance(one, Retained)] == [0, 0]


def test_freeing_without_room_takes_the_oldest_and_no_more_than_was_asked_for(origin: Path, free: int) -> None:
    disk = SmallDisk(origin, free)
    wanted = free + 12 * BLOCK
    topics = Topics(cleanup_policy="delete")
    found = retained(disk, origin, topics, RetentionRules(free=FreeSpace(wanted), delay_ms=0))
    freed = next(one for one in found if isinstance(one, Freed))
    gone = [one for one in found if isinstance(one, Retained)]
    assert freed.reached and disk.free_bytes(origin) >= wanted
    assert sum(one.before_recovery for one in gone) > 0
    last = max(verdict.disk_bytes for one in gone for verdict in one.plan.removed)
    assert disk.free_bytes(origin) - wanted < last + 12 * BLOCK  # what recovery was thought to need at most
    assert abs(len(gone[0].plan.removed) - len(gone[1].plan.removed)) <= 1


def test_a_log_that_a_full_disk_tore_gives_room_and_keeps_its_end(origin: Path, free: int) -> None:
    torn = origin / "t-0" / f"{(SEGMENTS - 1) * 6:020d}.log"
    torn.write_bytes(torn.read_bytes()[:-9])
    before = torn.read_bytes()
    disk = SmallDisk(origin, free)
    wanted = free + 12 * BLOCK
    found = retained(disk, origin, Topics(cleanup_policy="delete"), RetentionRules(free=FreeSpace(wanted)))
    freed = next(one for one in found if isinstance(one, Freed))
    gone = [one for one in found if isinstance(one, Retained)]
    assert freed.reached and not [one for one in found if isinstance(one, RetentionFailure)]
    assert all(one.plan.removed for one in gone) and "position" in gone[0].note
    assert torn.read_bytes() == before and disk.least_free >= 0


def test_a_log_with_damage_loses_nothing_and_others_do(origin: Path) -> None:
    damaged = origin / "t-0" / f"{12:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[200] ^= 1
    damaged.write_bytes(data)
    before = {name: data for name, data in state_of(origin).items() if name.startswith("t-0/")}
    found = retained(SmallDisk(origin, 0), origin, two_segments_left())
    (failure,) = (one for one in found if isinstance(one, RetentionFailure))
    assert failure.directory.name == "t-0" and "would cut" in str(failure.error)
    assert {name: data for name, data in state_of(origin).items() if name.startswith("t-0/")} == before
    assert [one.before_recovery for one in found if isinstance(one, Retained)] == [4]


def test_a_log_that_may_lose_nothing_is_left_as_it_is_and_the_error_says_how_much_is_needed(origin: Path) -> None:
    before = state_of(origin)
    found = retained(SmallDisk(origin, 0), origin, Topics(cleanup_policy="compact"))
    failures = [one for one in found if isinstance(one, RetentionFailure)]
    assert len(failures) == len(found) == 2
    assert all("bytes of disk space, and 0 are free; nothing was changed" in str(one.error) for one in failures)
    assert all("retain --free" in str(one.error) for one in failures)
    assert state_of(origin) == before


def test_recovery_without_room_changes_nothing_and_says_how_much_it_takes(origin: Path, free: int) -> None:
    before = state_of(origin)
    disk = SmallDisk(origin, free)
    (target,) = resolve_paths(FS, [origin / "t-0"])
    with pytest.raises(RefusedError, match=rf"up to (\d+) bytes of disk space, and {free} are free") as refused:
        list(recover(disk, clock(), target, lambda _: LogConfig(), RecoveryOptions()))
    assert state_of(origin) == before
    needed = int(str(refused.value).split("up to ")[1].split()[0])
    disk = SmallDisk(origin, needed)
    list(recover(disk, clock(), target, lambda _: LogConfig(), RecoveryOptions()))
    assert disk.least_free >= 0


def test_recovery_that_cannot_keep_what_it_cuts_changes_nothing(origin: Path) -> None:
    last = origin / "t-0" / f"{30:020d}.log"
    last.write_bytes(last.read_bytes()[:-100])
    before, disk = state_of(origin), SmallDisk(origin, 0)
    keeper = Keeper(disk, clock(), lambda _: LogConfig(), "recover")
    (target,) = resolve_paths(FS, [origin / "t-0"])
    with pytest.raises(
        RefusedError, match="bytes of disk space are needed, and 0 are free; nothing was changed"
    ) as refused:
        list(recover(disk, clock(), target, lambda _: LogConfig(), RecoveryOptions(keeper=keeper)))
    assert state_of(origin) == before
    assert not (origin.parent / ".seglog-quarantine").exists()
    salvaged, unkept = f"`seglog salvage {origin}/t-0 --output DIR`", f"`seglog recover --no-keep {origin}/t-0`"
    (said,) = re.findall(r"up to (\d+) bytes of the log are lost", str(refused.value))
    assert salvaged in str(refused.value) and unkept in str(refused.value)
    (report,) = recover(disk, clock(), target, lambda _: LogConfig(), RecoveryOptions())
    assert report.truncated_bytes == int(said) and disk.least_free >= 0


class OneFileOfOthers(PassingFileSystem):
    """A file that may be read and not written."""

    def __init__(self, path: Path) -> None:
        super().__init__(LocalFileSystem())
        self._path = path

    def open(self, path: Path, mode: OpenMode) -> File:
        if path == self._path and mode != "r":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return super().open(path, mode)


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
def test_a_file_that_may_not_be_written_is_an_error_before_recovery_changes_any(origin: Path, kind: str) -> None:
    for padded in ("index", "timeindex"):  # as a broker leaves them, so that recovery changes them
        with (origin / "t-0" / f"{30:020d}.{padded}").open("ab") as index:
            index.write(bytes(240))
    before, theirs = state_of(origin), origin / "t-0" / f"{30:020d}.{kind}"
    (target,) = resolve_paths(FS, [origin / "t-0"])
    with pytest.raises(IncompleteError, match=f"{theirs}: Permission denied"):
        list(recover(OneFileOfOthers(theirs), clock(), target, lambda _: LogConfig(), RecoveryOptions()))
    assert state_of(origin) == before


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "full"])
@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshots", "no snapshot"])
def test_what_fails_on_a_full_disk_ends_as_ever_when_it_runs_again(tmp_path: Path, kind: str, snapshots: bool) -> None:
    origin = crashed_broker(tmp_path / "origin", "t-0", snapshots=snapshots)
    copy = tmp_path / "copy"
    expected = shutil.copytree(origin, tmp_path / "expected")
    retained(FS, expected, two_segments_left())
    whole = state_of(expected)

    shutil.copytree(origin, copy)
    calls = calls_of(lambda faulty: retained(SmallDisk(copy, 0, faulty), copy, two_segments_left()))
    assert state_of(copy) == whole and producers_at_end(copy) == set(range(100, 100 + SEGMENTS))
    for at in moments(calls, kind):
        shutil.rmtree(copy)
        shutil.copytree(origin, copy)
        faults = Faults(at, kind)
        disk = SmallDisk(copy, 0, FaultyFileSystem(faults))
        with suppress(OSError, Killed, SeglogError):
            retained(disk, copy, two_segments_left())
        where = f"{kind} at call {at} of {calls}: {faults.call}"
        bases = [segment.base_offset for segment in list_partition(FS, copy / "t-0").segments]
        assert bases == list(range(bases[0], SEGMENTS * 6, 6)), where  # no hole
        assert bases[0] <= 4 * 6, where  # nothing that is to stay has gone
        retained(SmallDisk(copy, disk.free_bytes(copy)), copy, two_segments_left())
        assert without_passing(state_of(copy)) == without_passing(whole), where
        assert producers_at_end(copy) >= {104, 105}, where


def without_passing(state: dict[str, bytes]) -> dict[str, bytes]:
    """Without what a run that was cut short may leave otherwise, as a broker's does: epochs that begin below the log
    start, and snapshots, which may lack producers that have no record left."""
    return {name: data for name, data in state.items() if not name.endswith((".snapshot", "leader-epoch-checkpoint"))}


def producers_at_end(logs: Path) -> set[int]:
    path = logs / "t-0" / f"{SEGMENTS * 6:020d}.snapshot"
    return {entry.producer_id for entry in decode_snapshot(path.read_bytes(), path)}
