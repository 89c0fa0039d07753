"""Transplants and undos, with the power cut at changes of the file system: done, or not begun, never between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.repairs.undo.apply import settle_pending, undo_run
from seglog.repairs.undo.journal import RunState
from seglog.repairs.undo.quarantine import PENDING_FILE
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.cut_runs import settled_survivors
from tests.support.fixtures import KAFKA, fixture_now_ms
from tests.support.target_directories import planned, request, target_directory, transplanted

pytestmark = pytest.mark.slow  # the power is cut at every change

NAME = "4.3.0/generated"
SOURCES = [KAFKA / NAME / "mixed-0"]
NOW = fixture_now_ms(NAME)
TARGET = Path("/new/logs")
KILLS, LAST = 60, 20  # so many of them among the last changes, where the logs change hands


def made() -> CrashFileSystem:
    fs = CrashFileSystem.of(*SOURCES)
    target_directory(fs, TARGET, [path.name for path in SOURCES])
    fs.sync_directory(TARGET.parent)
    fs.sync_all()
    return fs


def put(fs: CrashFileSystem) -> None:
    assert not transplanted(fs, NOW, request(fs, TARGET, *SOURCES)).failure


def logs(fs: CrashFileSystem) -> dict[str, bytes]:
    """Everything in the target; a half-written mark of a run is nothing, and is overwritten."""
    return {name: data for name, data in fs.contents(TARGET).items() if name != f"{PENDING_FILE}.tmp"}


def test_a_transplant_cut_anywhere_is_finished_or_was_never_begun() -> None:
    def cuts(changes: int) -> list[int]:
        spread = {number * changes // (KILLS - LAST) for number in range(KILLS - LAST)}
        return sorted(spread | set(range(changes - LAST, changes)))

    whole = made()
    assert ".kafka_cleanshutdown" in logs(whole)
    sources = [whole.contents(path) for path in SOURCES]
    for cut, survivor, after in settled_survivors(TARGET, made, put, logs, cuts):
        assert [survivor.contents(path) for path in SOURCES] == sources
        if cut % 7 == 0:  # whatever came of it, doing it again ends with the same
            put(survivor)
            assert logs(survivor) == after, f"cut at {cut}"
            assert not planned(survivor, NOW, request(survivor, TARGET, *SOURCES)).pending


def test_an_undo_cut_anywhere_is_completed() -> None:
    whole = made()
    before = logs(whole)
    run = transplanted(whole, NOW, request(whole, TARGET, *SOURCES)).run
    assert run is not None
    first = whole.mutations
    undo_run(whole, run)
    assert logs(whole) == before
    changes = whole.mutations - first
    for cut in range(0, changes, 3):
        fs = made()
        again = transplanted(fs, NOW, request(fs, TARGET, *SOURCES)).run
        assert again is not None
        after = logs(fs)
        fs.sync_all()
        fs.cut_at(cut, fraction=0.5)
        with pytest.raises(PowerCut):
            undo_run(fs, again)
        survivor = fs.survivor(seed=cut)
        settled = settle_pending(survivor, TARGET)
        at = f"cut at {cut}: {fs.trace[-1]}"
        gone_back = logs(survivor) == before
        assert gone_back or logs(survivor) == after, at
        assert gone_back or settled is None or settled.state is RunState.FINISHED, at


def test_a_full_disk_while_staging_leaves_everything_as_it_was() -> None:
    for room in (0, 100, 5_000, 60_000):
        fs = made()
        before = logs(fs)
        fs.fill_disk_after(room)
        fs.free_bytes = lambda path: 1 << 40  # type: ignore[method-assign]
        with pytest.raises(OSError, match="No space left"):
            put(fs)
        assert logs(fs) == before, f"{room} bytes of room"


class FailsOnce:
    """A rename that fails at one of its calls within the target."""

    def __init__(self, rename: Callable[[Path, Path], None], failing: int) -> None:
        self._rename, self._left = rename, failing

    def __call__(self, source: Path, target: Path) -> None:
        self._left -= TARGET in target.parents
        if self._left == 0:
            self._left = -1
            raise OSError(5, "Input/output error", str(source))
        self._rename(source, target)


def test_an_error_of_the_disk_half_way_takes_everything_back() -> None:
    for failing in (5, 11, 22):
        fs = made()
        before = logs(fs)
        fs.rename = FailsOnce(fs.rename, failing)  # type: ignore[method-assign]
        outcome = transplanted(fs, NOW, request(fs, TARGET, *SOURCES))
        assert isinstance(outcome.failure, OSError)
        assert logs(fs) == before, f"rename {failing}"
