"""A broker that starts where a run was killed: it refuses, or finds every log as before the run or as after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.repairs.undo.apply import undo_run
from seglog.repairs.undo.journal import RunRecord
from seglog.repairs.undo.quarantine import pending_run
from seglog.repairs.undo.undoable import undoable
from seglog.scan.listing import list_log_directory
from seglog.storage.filesystem import FileSystem
from tests.crash import test_repair, test_transplant
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.target_directories import CONFIG, request, transplanted

pytestmark = pytest.mark.slow

Cut = Callable[[CrashFileSystem], RunRecord]


def transplant(fs: CrashFileSystem) -> RunRecord:
    run = transplanted(fs, test_transplant.NOW, request(fs, test_transplant.TARGET, *test_transplant.SOURCES)).run
    assert run is not None
    return run


def repair(fs: CrashFileSystem) -> RunRecord:
    run = test_repair.repaired(fs).run
    assert run is not None
    return run


def truncate(fs: CrashFileSystem) -> RunRecord:
    def work(files: FileSystem) -> None:
        options = LoadOptions(clean_shutdown=True)
        with Log.open(test_repair.DIRECTORY, CONFIG, fs=files, clock=test_repair.CLOCK, options=options) as log:
            log.truncate_to(300)

    _, run = undoable(fs, FixedClock(0), test_repair.DIRECTORY, "truncate", work)
    assert run is not None
    return run


def wounded() -> CrashFileSystem:
    return test_repair.damaged(test_repair.in_the_middle)


RUNS: dict[str, tuple[Callable[[], CrashFileSystem], Cut]] = {
    "transplant": (test_transplant.made, transplant),
    "repair": (wounded, repair),
    "truncate": (lambda: test_repair.damaged(lambda _fs: None), truncate),
}


def undone(cut: Cut) -> Cut:
    def work(fs: CrashFileSystem) -> RunRecord:
        run = cut(fs)
        undo_run(fs, run)
        return run

    return work


@pytest.mark.parametrize("name", RUNS)
def test_a_broker_refuses_what_a_killed_run_has_half_made(name: str) -> None:
    """From the first change of a log to the last one: whole runs, and their undos."""
    made, work = RUNS[name]
    whole, directory = made(), test_transplant.TARGET if name == "transplant" else test_repair.LOG_DIRECTORY
    first, before = whole.mutations, logs_in(whole, directory)
    run = work(whole)
    changes, after = whole.mutations - first, logs_in(whole, directory)
    assert before != after and starts(whole, directory)
    undo_run(whole, run)
    barred = 0
    for cut in range(0, whole.mutations - first, 3):
        fs = made()
        fs.cut_at(cut, fraction=0.5)
        with pytest.raises(PowerCut):
            undone(work)(fs)
        survivor = fs.survivor(seed=cut)
        found = logs_in(survivor, directory)
        at = f"cut at {cut} of {changes}: {fs.trace[-1]}"
        assert found in (before, after) or not starts(survivor, directory), at
        assert starts(survivor, directory) or pending_run(survivor, directory) is not None, at
        barred += not starts(survivor, directory)
    assert barred > 10


def starts(fs: CrashFileSystem, directory: Path) -> bool:
    """Whether a broker starts: LogManager refuses a directory that is no partition's."""
    return not list_log_directory(fs, directory).strangers


def logs_in(fs: CrashFileSystem, directory: Path) -> dict[str, bytes]:
    """All files of partitions, but what runs keep within."""
    live = [one.path for one in list_log_directory(fs, directory).live]
    return {f"{path.name}/{name}": data for path in live for name, data in fs.contents(path).items()}


class Interrupted(CrashFileSystem):
    """A signal comes at one of the changes."""

    at = -1

    def mutate(self, what: str, size: int = 0) -> int:
        if self.mutations == self.at:
            self.at = -1
            raise KeyboardInterrupt(what)
        return super().mutate(what, size)


@pytest.mark.parametrize("name", ["repair", "truncate"])
def test_a_signal_leaves_no_run_half_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is taken back, an undo goes to its end: a broker starts afterwards, without another command."""
    monkeypatch.setattr(test_repair, "CrashFileSystem", Interrupted)
    monkeypatch.setattr(test_repair.damaged, "__defaults__", (Interrupted,))
    made, work = RUNS[name]
    whole, directory = made(), test_repair.LOG_DIRECTORY
    first, before = whole.mutations, logs_in(whole, directory)
    run = work(whole)
    changes, after = whole.mutations - first, logs_in(whole, directory)
    undo_run(whole, run)
    for step in range(0, whole.mutations - first, 2):
        fs = made()
        assert isinstance(fs, Interrupted)
        fs.at = fs.mutations + step
        with pytest.raises(KeyboardInterrupt):
            undone(work)(fs)
        at = f"signal at {step} of {changes}"
        assert starts(fs, directory) and pending_run(fs, directory) is None, at
        found = logs_in(fs, directory)
        assert found == (before if found == before else after), at
