"""Runs that change a log directory, with the power cut at one change after the other: finished, or never begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from seglog.repairs.undo.apply import settle_pending
from seglog.repairs.undo.journal import RunState
from seglog.repairs.undo.quarantine import pending_run
from tests.support.crash_filesystem import CrashFileSystem, PowerCut

Contents = dict[str, bytes]


def settled_survivors(
    directory: Path,
    made: Callable[[], CrashFileSystem],
    work: Callable[[CrashFileSystem], object],
    contents: Callable[[CrashFileSystem], Contents],
    cuts: Callable[[int], Iterable[int]] = range,
) -> Iterator[tuple[int, CrashFileSystem, Contents]]:
    """(cut, what survives it once the run is settled, the contents that whole work leaves), for each of `cuts` (given
    the number of changes).

    Each survivor has the contents from before, and no run, or those of whole work; both happen.
    """
    whole = made()
    before, first = contents(whole), whole.mutations
    work(whole)
    after, changes = contents(whole), whole.mutations - first
    assert after != before
    outcomes = set()
    for cut in cuts(changes):
        fs = made()
        fs.cut_at(cut, fraction=0.5)
        with pytest.raises(PowerCut):
            work(fs)
        survivor = fs.survivor(seed=cut)
        run = settle_pending(survivor, directory)
        outcomes.add(None if run is None else run.state)
        found = contents(survivor)
        assert found == (before if found == before and run is None else after), f"cut at {cut}: {fs.trace[-1]}"
        assert pending_run(survivor, directory) is None
        yield cut, survivor, after
    assert outcomes == {None, RunState.FINISHED}
