"""Repairs and undos, with the power cut at every change of the file system: done, or not begun, never between."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.format.filenames import QUARANTINE_WITHIN
from seglog.repairs.repair import RepairOutcome, examination, repair
from seglog.repairs.undo.apply import settle_pending, undo_run
from seglog.repairs.undo.journal import RunState
from seglog.repairs.undo.quarantine import PENDING_FILE
from tests.support.broken.damage import rewrite
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.cut_runs import settled_survivors
from tests.support.fixtures import KAFKA, fixture_now_ms

NAME, PARTITION = "4.3.0/generated", "mixed-0"
LOG_DIRECTORY = KAFKA / NAME
DIRECTORY = LOG_DIRECTORY / PARTITION
CLOCK = FixedClock(fixture_now_ms(NAME))
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")

Damage = Callable[[CrashFileSystem], None]


def in_the_middle(fs: CrashFileSystem) -> None:
    """A batch of an inner segment that holds transactions: log, indexes, snapshots and checkpoints change."""
    path = DIRECTORY / "00000000000000000258.log"
    data = bytearray(fs.read_bytes(path))
    data[len(data) // 2] ^= 4
    rewrite(fs, path, bytes(data))


def at_the_end(fs: CrashFileSystem) -> None:
    """The last batch is torn: the log is cut where it is."""
    path = DIRECTORY / "00000000000000001075.log"
    rewrite(fs, path, fs.read_bytes(path)[:-20])


def half_a_swap(fs: CrashFileSystem) -> None:
    """A swap that a broker would finish, of a log that was damaged since."""
    path = DIRECTORY / "00000000000000000528.log"
    data = bytearray(fs.read_bytes(path))
    data[700] ^= 4
    rewrite(fs, path.with_name(path.name + ".swap"), bytes(data))
    fs.remove(path)


def exchanged(fs: CrashFileSystem) -> None:
    """The contents of two segments: each is made of what lies in the other's file."""
    one, other = (DIRECTORY / f"{base:020d}.log" for base in (258, 528))
    first, second = fs.read_bytes(one), fs.read_bytes(other)
    rewrite(fs, one, second)
    rewrite(fs, other, first)


DAMAGE: tuple[Damage, ...] = (in_the_middle, at_the_end, half_a_swap, exchanged)


def damaged(damage: Damage, kind: type[CrashFileSystem] = CrashFileSystem) -> CrashFileSystem:
    fs = kind.of(DIRECTORY)
    for name in CHECKPOINTS:
        rewrite(fs, LOG_DIRECTORY / name, (LOG_DIRECTORY / name).read_bytes())
    damage(fs)
    fs.sync_all()
    return fs


def repaired(fs: CrashFileSystem) -> RepairOutcome:
    findings = examination(fs, CLOCK, LOG_DIRECTORY, [DIRECTORY]).findings
    return repair(fs, CLOCK, LOG_DIRECTORY, [DIRECTORY], findings)


class MountedCrashFileSystem(CrashFileSystem):
    """The log directory is a mount point: nothing moves across its border."""

    def rename(self, source: Path, target: Path) -> None:
        self._require_same(source, target)
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._require_same(source, target)
        super().link(source, target)

    def _require_same(self, source: Path, target: Path) -> None:
        if (LOG_DIRECTORY in source.parents) != (LOG_DIRECTORY in target.parents):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))


def logs(fs: CrashFileSystem) -> dict[str, bytes]:
    """Everything in the log directory; a half-written mark of a run is nothing, and is overwritten."""
    passed_over = (f"{PENDING_FILE}.tmp", f"{QUARANTINE_WITHIN}/")
    return {name: data for name, data in fs.contents(LOG_DIRECTORY).items() if not name.startswith(passed_over)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "kind"), [*((each, CrashFileSystem) for each in DAMAGE), (at_the_end, MountedCrashFileSystem)]
)
def test_a_repair_cut_anywhere_is_finished_or_was_never_begun(damage: Damage, kind: type[CrashFileSystem]) -> None:
    def repair_whole(fs: CrashFileSystem) -> None:
        assert repaired(fs).complete

    for _ in settled_survivors(LOG_DIRECTORY, lambda: damaged(damage, kind), repair_whole, logs):
        pass


def used_by_a_broker(fs: CrashFileSystem) -> None:
    """What a broker that starts and stops without a write leaves: new derived files, and others than there were."""
    for name in ("00000000000000000700.snapshot", "00000000000000001075.txnindex"):
        rewrite(fs, DIRECTORY / name, b"made later")
    rewrite(fs, DIRECTORY / "leader-epoch-checkpoint", b"0\n1\n9 0\n")


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "later"), [*((each, False) for each in DAMAGE), *((each, True) for each in DAMAGE)])
def test_an_undo_cut_anywhere_is_completed(damage: Damage, later: bool) -> None:
    """`later`: files that came after the repair go with the undo."""
    whole = damaged(damage)
    before = logs(whole)
    outcome = repaired(whole)
    assert outcome.run is not None
    if later:
        used_by_a_broker(whole)
    first = whole.mutations
    undo_run(whole, outcome.run)
    assert logs(whole) == before
    for cut in range(whole.mutations - first):
        fs = damaged(damage)
        again = repaired(fs).run
        assert again is not None
        if later:
            used_by_a_broker(fs)
        after = logs(fs)
        fs.sync_all()
        fs.cut_at(cut, fraction=0.5)
        with pytest.raises(PowerCut):
            undo_run(fs, again)
        survivor = fs.survivor(seed=cut)
        run = settle_pending(survivor, LOG_DIRECTORY)
        at = f"cut at {cut}: {fs.trace[-1]}"
        assert run is None or run.state in (RunState.UNDONE, RunState.FINISHED), at
        gone_back = logs(survivor) == before
        assert gone_back or logs(survivor) == after, at
        assert gone_back or run is None or run.state is RunState.FINISHED, at


def test_a_full_disk_while_staging_leaves_everything_as_it_was() -> None:
    for room in (0, 100, 5_000, 15_900):
        fs = damaged(in_the_middle)
        before = logs(fs)
        findings = examination(fs, CLOCK, LOG_DIRECTORY, [DIRECTORY]).findings
        fs.fill_disk_after(room)
        free, fs.free_bytes = fs.free_bytes, lambda path: 1 << 40  # type: ignore[method-assign]
        with pytest.raises(OSError, match="No space left"):
            repair(fs, CLOCK, LOG_DIRECTORY, [DIRECTORY], findings)
        assert logs(fs) == before, f"{room} bytes of room"
        assert free(LOG_DIRECTORY) <= room
        assert PENDING_FILE not in logs(fs)


def test_a_repair_that_fails_half_way_is_taken_back() -> None:
    """A rename fails once, at any of them: an error of the disk, not of the power."""
    chance = random.Random(1)
    for failing in sorted(chance.sample(range(6), 4)):
        fs = damaged(in_the_middle)
        before = logs(fs)
        findings = examination(fs, CLOCK, LOG_DIRECTORY, [DIRECTORY]).findings
        renames, rename = [0], fs.rename

        def once(
            source: Path,
            target: Path,
            renames: list[int] = renames,
            failing: int = failing,
            rename: Callable[[Path, Path], None] = rename,
        ) -> None:
            renames[0] += 1
            if renames[0] == failing + 2:  # the first one belongs to the mark of the run
                raise OSError(5, "Input/output error", str(source))
            rename(source, target)

        fs.rename = once  # type: ignore[method-assign]
        outcome = repair(fs, CLOCK, LOG_DIRECTORY, [DIRECTORY], findings)
        assert isinstance(outcome.failure, OSError)
        assert not outcome.complete
        assert logs(fs) == before, f"rename {failing}"
