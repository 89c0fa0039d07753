"""Twice the segments are twice the work: what is done for each of ten thousand segments never goes through all of them.

Counted are the calls of each function by the thread of the command: they are nearly the same in each run.
"""

from __future__ import annotations

import cProfile
import gc
import pstats
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import seglog
from tests.support.manual_clock import ManualClock

pytestmark = pytest.mark.slow

SEGMENTS = 40
NOW_MS = 1_800_000_000_000

COMMANDS: dict[str, Callable[[Path], object]] = {
    "verify": lambda path: list(seglog.verify(path)),
    "doctor": lambda path: list(seglog.doctor(path.parent)),
    "partitions": lambda path: list(seglog.partitions(path.parent)),
    "stats": lambda path: list(seglog.stats(path)),
    "explain": lambda path: seglog.explain(path),
    "diff": lambda path: list(seglog.diff(path, path)),
    "read": lambda path: list(_read(path)),
    "plan_recover": lambda path: seglog.plan_recover(path, recovery_point=0),
    "plan_repair": lambda path: seglog.plan_repair(path),
    "plan_clean": lambda path: seglog.plan_clean(path, policy="compact", roll=True),
    "plan_retain": lambda path: seglog.plan_retain(path, policy="delete", retention_ms=1),
    "plan_truncate": lambda path: seglog.plan_truncate(path, to_offset=5),
    "recover": lambda path: seglog.recover(path, recovery_point=0),
    "repair": lambda path: seglog.repair(path),
    "clean": lambda path: seglog.clean(path, policy="compact", roll=True),
    "retain": lambda path: seglog.retain(path, policy="delete", retention_ms=1),
    "truncate": lambda path: seglog.truncate(path, to_offset=5),
    "convert": lambda path: seglog.convert(path, path.parent / "u-0", codec="lz4"),
}


def _read(path: Path) -> list[seglog.ReadRecord]:
    with seglog.open_log(path) as log:
        return list(log.records())


def make_log(directory: Path, segments: int) -> Path:
    """A partition of that many segments, one batch in each, with a damaged index in the middle."""
    directory.mkdir()
    path = directory / "t-0"
    config = {"segment.bytes": "180"}
    with seglog.open_log(path, create=True, config=config, clock=ManualClock(NOW_MS)) as log:
        for number in range(segments):
            log.append([seglog.Record(bytes(60), key=b"%d" % (number % 7))])
    next(iter(sorted(path.glob("*.timeindex"))[segments // 2 :])).write_bytes(b"?" * 12)
    return path


def calls(work: Callable[[], object]) -> Counter[str]:
    """How often each function, of Python and of C, is called in this thread."""
    profile = cProfile.Profile()
    gc.collect()
    gc.disable()  # what it closes would be counted for whoever happens to run
    try:
        profile.runcall(work)
    finally:
        gc.enable()
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # typeshed leaves it out
    return Counter({f"{file}:{line} {name}": row[0] for (file, line, name), row in stats.items()})


@pytest.mark.parametrize("command", COMMANDS)
def test_no_function_is_called_for_each_pair_of_segments(command: str, tmp_path: Path) -> None:
    work = COMMANDS[command]
    work(make_log(tmp_path / "warm", SEGMENTS))  # what is imported and kept at the first use
    paths = [make_log(tmp_path / str(times), times * SEGMENTS) for times in (1, 2, 3)]
    first, second, third = (calls(partial(work, path)) for path in paths)
    assert any(second[each] - first[each] >= SEGMENTS for each in second)
    # a call for each pair is N² of them more for the third N segments than for the second N
    growth = {each: (third[each] - second[each]) - (second[each] - first[each]) for each in third}
    assert not {each: more for each, more in growth.items() if more >= 0.8 * SEGMENTS**2}  # sorting stays below
