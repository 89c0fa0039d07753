"""What recovery and truncation cut off is kept, said beforehand, and given back by undo."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptRecordError, IncompleteError, OffsetOutOfRangeError, RefusedError
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.format.filenames import QUARANTINE
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.operations.keeping import Keeper
from seglog.operations.recover import RecoveryOptions, recover
from seglog.operations.truncate import cut_log
from seglog.repairs.undo.apply import undo_run
from seglog.repairs.undo.journal import RunState, read_journal
from seglog.scan.listing import Target, TargetKind, resolve_paths
from seglog.scan.segment_scan import HELD_BYTES
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import FS, batch, facts, files_of
from tests.support.open_logs import START_MS

CLOCK = FixedClock(START_MS)
NAME = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100)


def keeper(fs: LocalFileSystem = FS) -> Keeper:
    return Keeper(fs, CLOCK, lambda _: CONFIG, "test")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory, closed in order: `t-0` has batches of 3 offsets in several segments and two epochs."""
    directory = tmp_path / "logs"
    directory.mkdir()
    (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (directory / ".kafka_cleanshutdown").write_text("")
    with LogDirectory.open(directory, fs=FS, clock=CLOCK, config_of=lambda _: CONFIG, writable=True) as owner:
        log = owner.log(NAME, create=True)
        records = [Record(b"v" * 60, b"k%d" % i, START_MS + i) for i in range(60)]
        log.append(records[:30], batch_records=3, leader_epoch=1)
        log.append(records[30:], batch_records=3, leader_epoch=4)
        assert len(log.segments) > 4
    return directory


def contents_of(logs: Path) -> dict[str, bytes]:
    return {name: contents for name, (contents, *_) in facts(logs / "t-0").items()}


def offsets(logs: Path) -> list[int | None]:
    with LogDirectory.open(logs, fs=FS, clock=CLOCK, config_of=lambda _: CONFIG, writable=False) as owner:
        return [record.offset for record in owner.log(NAME).records()]


def damage(logs: Path, segment: int, byte: int = 90) -> Path:
    path = sorted((logs / "t-0").glob("*.log"))[segment]
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    return path


# --- truncation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 10, 17, 29, 30, 31, 44, 45, 58, 59])
def test_a_truncation_says_what_it_cuts_keeps_it_and_gives_it_back(logs: Path, offset: int) -> None:
    before = facts(logs / "t-0")
    plan = cut_log(keeper(), logs / "t-0", offset, None, dry_run=True)
    assert facts(logs / "t-0") == before and plan.run is None
    done = cut_log(keeper(), logs / "t-0", offset, None)
    assert done.cut == plan.cut
    kept = offset // 3 * 3
    assert (done.cut.first_offset, done.cut.end_offset, done.cut.end_before) == (kept, kept, 60)
    assert offsets(logs) == list(range(kept))
    assert (logs / ".kafka_cleanshutdown").exists()
    assert f"t 0 {kept}\n" in (logs / "recovery-point-offset-checkpoint").read_text()
    assert done.run is not None and done.run.start["command"] == "test"
    undo_run(FS, done.run)
    assert facts(logs / "t-0") == before
    assert (logs / ".kafka_cleanshutdown").exists()
    assert offsets(logs) == list(range(60))


def test_a_truncation_to_the_end_changes_and_keeps_nothing(logs: Path) -> None:
    before = facts(logs)
    for offset in (60, 99):
        done = cut_log(keeper(), logs / "t-0", offset, None)
        assert done.cut.empty and done.run is None
    assert facts(logs) == before
    with pytest.raises(OffsetOutOfRangeError):
        cut_log(keeper(), logs / "t-0", -1, None)


@pytest.mark.parametrize("start", [1, 4, 13, 32, 59])
def test_a_truncation_to_a_log_start_within_a_batch_leaves_an_empty_log_there(logs: Path, start: int) -> None:
    with LogDirectory.open(logs, fs=FS, clock=CLOCK, config_of=lambda _: CONFIG, writable=True) as owner:
        owner.log(NAME).increment_log_start_offset(start)
    before, size = facts(logs / "t-0"), sum(path.stat().st_size for path in (logs / "t-0").glob("*.log"))
    plan = cut_log(keeper(), logs / "t-0", start, None, dry_run=True)
    done = cut_log(keeper(), logs / "t-0", start, None)
    assert done.cut == plan.cut
    assert (done.cut.first_offset, done.cut.end_offset, done.cut.bytes) == (start // 3 * 3, start, size)
    assert [path.name for path in (logs / "t-0").glob("*.log")] == [f"{start:020d}.log"]
    found = list(Verification(FS, resolve_paths(FS, [logs]), VerifyOptions(level=Level.SEMANTIC), CLOCK))
    assert found == []
    assert done.run is not None
    undo_run(FS, done.run)
    assert facts(logs / "t-0") == before
    assert offsets(logs) == list(range(start, 60))


@pytest.mark.parametrize("share", [0.2, 0.35, 0.5, 0.65, 0.8, 0.95])
def test_a_truncation_long_after_the_last_write_opens_transactions_whose_markers_go(
    tmp_path: Path, share: float
) -> None:
    data = fixture_copy("4.3.0/clean", tmp_path / "kafka")
    later = FixedClock(fixture_now_ms("4.3.0/clean") + 1000 * 86_400_000)  # all producers have expired
    with LogDirectory.open(data, fs=FS, clock=later, writable=False) as owner:
        end = owner.log(TopicPartition("payments", 0)).log_end_offset
    done = cut_log(Keeper(FS, later, lambda _: LogConfig(), "test"), data / "payments-0", int(end * share), None)
    assert not done.cut.empty
    found = Verification(FS, resolve_paths(FS, [data / "payments-0"]), VerifyOptions(level=Level.SEMANTIC), later)
    assert [each.message for each in found if each.code != "TRANSACTION_OPEN"] == []


def test_bytes_that_would_go_are_those_that_go(logs: Path) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in (logs / "t-0").glob("*.log"))

    before = size()
    done = cut_log(keeper(), logs / "t-0", 31, None)
    assert done.cut.bytes == before - size()


def test_without_keeping_it_is_gone(logs: Path) -> None:
    done = cut_log(keeper(), logs / "t-0", 31, None, keep=False)
    assert done.run is None and offsets(logs) == list(range(30))
    assert not (logs.parent / QUARANTINE).exists()


def test_damage_below_the_place_is_refused_and_nothing_changes(logs: Path) -> None:
    path = sorted((logs / "t-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[8:12] = bytes(4)
    path.write_bytes(data)
    before = facts(logs)
    for dry_run in (True, False):
        with pytest.raises(CorruptRecordError, match="position 0"):
            cut_log(keeper(), logs / "t-0", 4, None, dry_run=dry_run)
    assert facts(logs) == before


# --- recovery -------------------------------------------------------------------------------------------


def recovered(logs: Path, *, dry_run: bool = False, keep: bool = True, point: int | None = None):
    target = Target(logs / "t-0", TargetKind.PARTITION)
    options = RecoveryOptions(dry_run=dry_run, recovery_point=point, keeper=keeper() if keep else None)
    (report,) = recover(FS, CLOCK, target, lambda _: CONFIG, options)
    return report


@pytest.mark.parametrize("segment", [0, 1, 3, -1])
def test_a_recovery_keeps_what_it_cuts_and_gives_it_back(logs: Path, segment: int) -> None:
    (logs / ".kafka_cleanshutdown").unlink()
    path = damage(logs, segment)
    data = {name: contents for name, (contents, *_) in facts(logs / "t-0").items()}
    plan = recovered(logs, dry_run=True, point=0)
    assert plan.truncated_bytes and plan.run is None
    report = recovered(logs, point=0)
    assert report.truncated_bytes == plan.truncated_bytes
    assert (report.log_end_offset, report.deleted_segments) == (plan.log_end_offset, plan.deleted_segments)
    assert offsets(logs) == list(range(int(path.stem)))
    assert report.run is not None
    run = read_journal(FS, report.run)
    assert run.state is RunState.FINISHED
    undo_run(FS, run)
    given_back = {name: contents for name, (contents, *_) in facts(logs / "t-0").items()}
    kinds = (".log", "-checkpoint")
    after = {n: c for n, c in given_back.items() if n.endswith(kinds) and n in data}
    assert after == {n: c for n, c in data.items() if n.endswith(kinds)}
    assert not (logs / ".kafka_cleanshutdown").exists(), "what comes back is not closed in order"


def test_a_recovery_without_loss_makes_no_run(logs: Path) -> None:
    (logs / ".kafka_cleanshutdown").unlink()
    assert recovered(logs).run is None
    assert not (logs.parent / QUARANTINE).exists()
    assert (logs / ".kafka_cleanshutdown").exists(), "every partition was recovered"


def test_a_recovery_that_keeps_nothing_does_what_a_broker_does(logs: Path) -> None:
    damage(logs, 1)
    assert recovered(logs, keep=False, point=0).run is None
    assert offsets(logs) == list(range(9))


def test_opening_for_writing_keeps_what_its_recovery_cuts(logs: Path) -> None:
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    damage(logs, 2)
    owner, log, report = keeper().open(logs / "t-0")
    with owner:
        assert log.append([Record(b"v", timestamp=START_MS)]).first_offset == 18
    assert report.truncated_bytes and report.run is not None
    assert (report.run / "old" / "t-0").exists()


class FullDisk(LocalFileSystem):
    def free_bytes(self, path: Path) -> int:
        return 10


def test_where_there_is_no_room_nothing_is_cut(logs: Path) -> None:
    before = facts(logs)
    with pytest.raises(RefusedError, match="bytes of disk space are needed, and 10 are free"):
        cut_log(keeper(FullDisk()), logs / "t-0", 10, None)
    assert facts(logs) == before
    assert not list((logs.parent).glob(f"{QUARANTINE}/*"))


class Failing(LocalFileSystem):
    """The n-th call that changes something has no room."""

    def __init__(self, n: int) -> None:
        self.left = n

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def link(self, source: Path, target: Path) -> None:
        self._count()
        super().link(source, target)

    def sync_directory(self, path: Path) -> None:
        self._count()


def test_an_error_on_the_way_leaves_the_log_as_it_was_or_is_done(logs: Path, tmp_path: Path) -> None:
    before, failures = contents_of(logs), 0
    for n in range(1, 400, 3):
        copy = tmp_path / str(n) / "logs"
        shutil.copytree(logs, copy)
        fs = Failing(n)
        try:
            cut_log(keeper(fs), copy / "t-0", 10, None)
        except (OSError, RefusedError):
            failures += 1
            assert contents_of(copy) == before, n
        else:
            assert offsets(copy) == list(range(9)), n
            if fs.left > 0:
                break  # there are no more calls
    assert failures > 15


# --- swaps ----------------------------------------------------------------------------------------------


def swapped(tmp_path: Path, swap: bytes) -> Path:
    logs = tmp_path / "logs"
    (logs / "t-0").mkdir(parents=True)
    base = logs / "t-0" / f"{0:020d}"
    base.with_suffix(".log").write_bytes(batch(0, 5) + batch(5, 5) + batch(10, 5))
    for kind in (".index", ".timeindex"):
        base.with_suffix(kind).write_bytes(b"")
    Path(f"{base}.log.swap").write_bytes(swap)
    (logs / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 15\n")
    return logs


@pytest.mark.parametrize(
    ("swap", "reason"),
    [
        (b"", "it is empty"),
        (batch(0, 5), "its offsets end at 4"),
        (batch(0, 5) + batch(5, 5)[:40], "are not a whole batch"),
        (batch(0, 5) + batch(5, 5) + batch(10, 5)[:-1] + b"\xff", "the checksum of the batch is wrong (position 262)"),
    ],
)
def test_a_swap_that_holds_less_than_the_log_is_said_and_the_log_is_kept(
    tmp_path: Path, swap: bytes, reason: str
) -> None:
    logs = swapped(tmp_path, swap)
    before = files_of(logs / "t-0")
    plan = recovered(logs, dry_run=True)
    assert files_of(logs / "t-0") == before
    (lost,) = plan.replaced
    assert reason in str(lost) and lost.size == len(before[f"{0:020d}.log"]) and lost.end_offset == 15
    assert plan.truncated_bytes >= lost.size and plan.changes
    report = recovered(logs)
    assert report.truncated_bytes == plan.truncated_bytes
    assert report.log_end_offset == plan.log_end_offset
    assert report.run is not None
    assert (report.run / "old" / "t-0" / f"{0:020d}.log").read_bytes() == before[f"{0:020d}.log"]
    undo_run(FS, read_journal(FS, report.run))
    assert {n: c for n, c in files_of(logs / "t-0").items() if n in before} == before


@pytest.mark.parametrize("size", [5, HELD_BYTES])
def test_a_complete_swap_takes_its_place_without_a_word(tmp_path: Path, size: int) -> None:
    swap = batch(0, 5) + encode_all(columns_of([Record(bytes(size), b"k", START_MS)]), 14, BatchOptions())
    logs = swapped(tmp_path, swap)
    assert recovered(logs, dry_run=True).replaced == []
    report = recovered(logs)
    assert (report.run, report.truncated_bytes) == (None, 0)
    assert (logs / "t-0" / f"{0:020d}.log").read_bytes() == swap


class OfAnotherUser(LocalFileSystem):
    """Where one file may not be opened."""

    def __init__(self, forbidden: Path) -> None:
        self._forbidden = forbidden

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        if path == self._forbidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return super().open(path, mode)


@pytest.mark.parametrize("segment", [0, 2, -1], ids=["closed", "closed too", "active"])
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_log_that_may_not_be_read_is_not_marked_as_closed(
    logs: Path, segment: int, dry_run: bool, whole: bool
) -> None:
    (logs / ".kafka_cleanshutdown").unlink()
    before = facts(logs)
    forbidden = sorted((logs / "t-0").glob("*.log"))[segment]
    kind, path = (TargetKind.LOG_DIRECTORY, logs) if whole else (TargetKind.PARTITION, logs / "t-0")
    with pytest.raises(IncompleteError, match=f"{forbidden}: Permission denied"):
        list(
            recover(
                OfAnotherUser(forbidden),
                CLOCK,
                Target(path, kind),
                lambda _: CONFIG,
                RecoveryOptions(dry_run=dry_run),
            )
        )
    assert facts(logs) == before and not (logs / ".kafka_cleanshutdown").exists()


# --- what stops before a loss -----------------------------------------------------------------------------


def test_a_split_before_a_loss_is_taken_back_whole(tmp_path: Path) -> None:
    """An old cleaner merged the segment too far, and a crash tore its end: opening splits it before it finds that."""
    partition = tmp_path / "logs" / "t-0"
    partition.mkdir(parents=True)
    whole = [batch(0, 10), batch(2**31 - 5, 10), batch(2**31 + 5, 10)]
    torn = batch(2**31 + 15, 10)[:-5]
    (partition / f"{0:020d}.log").write_bytes(b"".join(whole) + torn)
    before = facts(partition)
    owner, _, report = keeper().open(partition)
    owner.close()
    assert b"".join(path.read_bytes() for path in sorted(partition.glob("*.log"))) == b"".join(whole)
    assert report.run is not None
    undo_run(FS, read_journal(FS, report.run))
    assert facts(partition)[f"{0:020d}.log"] == before[f"{0:020d}.log"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_removed_segment_that_waits_for_its_deletion_is_not_copied(
    logs: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    """It may be large, and its deletion what a full disk waits for."""
    if not clean:
        (logs / ".kafka_cleanshutdown").unlink()
    first = min((logs / "t-0").glob("*.log"))
    first.rename(first.with_name(first.name + ".deleted"))
    owner, log, report = keeper().open(logs / "t-0")
    owner.close()
    assert not report.truncated_bytes
    assert not list((logs / "t-0").glob("*.deleted"))
    assert log.log_start_offset > 0
