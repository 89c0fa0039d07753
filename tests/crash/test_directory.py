"""A log directory whose power is cut at every change: a marker never vouches for a log that is not whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.log.directory import LogDirectory
from seglog.log.loader import LoadOptions, plan_recovery
from seglog.model import Record, TopicPartition
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.log_files import batch, write_segment

CLOCK = FixedClock(5000)
FIRST = TopicPartition("t", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("t-0", "t-1"):
        write_segment(tmp_path / name, 0, batch(0, 10), batch(10, 10))
        write_segment(tmp_path / name, 20, batch(20, 10), batch(30, 10))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 20\nt 1 20\n")
    return tmp_path


def opened(fs: CrashFileSystem, root: Path) -> LogDirectory:
    return LogDirectory.open(root, fs=fs, clock=CLOCK, config_of=lambda _: LogConfig(), writable=True, take_lock=False)


def test_logs_with_a_clean_marker_are_complete_and_flushed_records_survive(root: Path) -> None:
    (root / ".kafka_cleanshutdown").write_text("{}")
    marked, mutation, finished = set(), 0, False
    while not finished:
        fs, flushed = CrashFileSystem.of(root), 40
        fs.cut_at(fs.mutations + mutation)
        try:
            with opened(fs, root) as directory:
                log = directory.log(FIRST)
                log.append([Record(b"v" * 300)])
                log.flush()
                flushed = log.log_end_offset
                log.append([Record(b"w" * 300)])
            flushed, finished = 42, True
        except PowerCut:
            pass
        for seed in range(4):
            survivor = fs.survivor(seed)
            marker = survivor.status(root / ".kafka_cleanshutdown") is not None
            plan = plan_recovery(survivor, root / "t-0", CLOCK, LoadOptions(clean_shutdown=False))
            assert not (marker and plan.truncated_bytes), f"after {mutation} changes, seed {seed}"
            assert plan.log_end_offset >= flushed, f"after {mutation} changes, seed {seed}"
            marked.add((marker, plan.log_end_offset))
        mutation += 1
    assert (True, 40) in marked and (True, 42) in marked
    assert any(not marker for marker, _ in marked)


def test_a_recovery_that_is_cut_comes_to_the_same_end_the_next_time(root: Path) -> None:
    path = root / "t-0" / f"{20:020d}.log"
    path.write_bytes(path.read_bytes()[:-7])
    mutation, finished = 0, False
    while not finished:
        fs = CrashFileSystem.of(root)
        fs.cut_at(fs.mutations + mutation)
        try:
            with opened(fs, root) as directory:
                directory.load_all()
            finished = True
        except PowerCut:
            pass
        survivor = fs.survivor(mutation)
        with opened(survivor, root) as directory:
            assert [log.log_end_offset for log in directory.load_all()] == [30, 40]
        assert survivor.status(root / ".kafka_cleanshutdown") is not None
        mutation += 1
    assert mutation > 10
