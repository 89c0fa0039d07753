"""Counts the modules that the read of a record and a cleaning round pass through: a reader of the code must open them.

A module counts if one of its functions runs; class bodies and imports do not. The bounds only go down: a walk that got
shorter by more than three must lower its bound.

A read should pass 25 at most, and a round 40. A round's own modules are 8. The others make it safe: 10 of `log` open
and close a log as a broker does, 7 of `storage` find and guard files, 4 of `format` and 3 of `configuration` read what
lies around. A read passes 9 of `log`, 6 of `storage`, 3 of `format` and 3 of `scan`, for the same reasons. The bounds
rose once: `log.segment_list` and `cleaner.dirtiness` hold rules that open logs and outlines of logs share, and
`storage.padding` what all readers of indexes do. That of a round rose by `storage.state`, the place that runs and the
history of rounds share, which `ls` and `verify` ask without loading what changes logs. Both rose by
`log.held_columns`, which bounds the memory that indexes take. That of a round rose by `log.places`: the cleaner asks
where its first offset lies where everybody asks, and not an index.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import seglog
from tests.tidy.sources import PACKAGES

WALKS = {"read": 28, "clean": 48}  # one more each since text becomes a path apart from the stores


def passed(walk: Callable[[], object]) -> set[str]:
    """The modules whose functions run in a walk."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.partition(".")[0] in PACKAGES and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            found.add(name)

    before = sys.getprofile()
    gc.collect()  # what other tests have left would be closed in the midst of the walk
    gc.disable()
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(before)
        gc.enable()
    return found


def read(path: Path) -> None:
    """One record by its offset."""
    with seglog.open_log(path) as log:
        assert next(log.records(5)).offset == 5


def clean(path: Path) -> None:
    """One round."""
    (done,) = seglog.clean(path, policy="compact", threads=1)
    assert isinstance(done, seglog.Cleaned) and done.changes


@pytest.mark.parametrize("walk", [read, clean], ids=lambda walk: walk.__name__)
def test_a_walk_passes_no_more_modules(
    walk: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("first", "second"):
        with seglog.open_log(tmp_path / f"{name}-0", create=True) as log:
            for _ in range(3):
                log.append([seglog.Record(b"value", key=b"k%d" % (i % 5), timestamp=1000) for i in range(20)])
                log.roll()
    walk(tmp_path / "first-0")  # what is imported at first use is imported
    found = passed(lambda: walk(tmp_path / "second-0"))
    assert WALKS[walk.__name__] - 3 <= len(found) <= WALKS[walk.__name__], sorted(found)


def test_a_class_body_and_other_packages_do_not_count() -> None:
    assert seglog.TopicPartition  # imported

    def walk() -> None:
        class Body:
            inside = len("x")

        assert Body.inside
        seglog.TopicPartition("t", 0)

    assert passed(walk) == {"seglog.model"}
