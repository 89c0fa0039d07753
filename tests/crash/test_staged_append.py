"""A power cut at every change of the file system while a job or a stream appends to two partitions at once.

Whoever writes next, and however often the stream brings its batch again: what was acknowledged is there once, and
what was not is there whole or not at all. With SEGLOG_EFFORT=10 every scenario meets every cut; else each meets some.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError, SeglogError
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.storage.filesystem import FileSystem
from seglog_ask.spark.staged_append import StagedAppend
from seglog_ask.spark.staged_journal import StreamBatch
from seglog_ask.spark.staged_settling import discard_staged
from tests.support import effort
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.manual_clock import ManualClock
from tests.support.staged_rows import stage

pytestmark = pytest.mark.slow  # the power is cut at every change

LOGS = Path("/disk/logs")
STAGING = Path("/disk/.seglog-write-logs-q")
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=50)
PARTITIONS = ("t-0", "t-1", "t-2")  # the last one is made by the append
BEFORE = [b"before %d" % i for i in range(3)]
ROWS = [b"row %d" % i for i in range(7)]
BATCH = StreamBatch("q", 3, "offsets")
EVERY_CUT = effort.EVERY


def opened(fs: FileSystem, *, settle: bool = True) -> LogDirectory:
    return LogDirectory.open(
        LOGS, fs=fs, clock=ManualClock(1), config_of=lambda _: CONFIG, writable=True, take_lock=False, settle=settle
    )


def append(fs: FileSystem, values: list[bytes], *, settle: bool = True) -> None:
    """What `seglog append` does to t-0 (without `settle`: what a broker does, which knows of no journal)."""
    with opened(fs, settle=settle) as directory:
        directory.log(TopicPartition("t", 0)).append([Record(value, b"k", timestamp=5) for value in values])


def write(fs: FileSystem, values: list[bytes], stream: StreamBatch | None = None, staging: Path = STAGING) -> int:
    """Stages and appends these values to every partition: a job, or a stream's batch. Staged files go in the end."""
    files = [stage(fs, staging, name, values) for name in PARTITIONS]
    fs.sync_directory(staging)
    fs.sync_directory(staging.parent)
    return committed(fs, files, stream, staging)


def committed(fs: FileSystem, files: list, stream: StreamBatch | None, staging: Path = STAGING) -> int:
    done = StagedAppend(fs, LOGS, ManualClock(1), lambda _: CONFIG, take_lock=False).run(staging, files, stream)
    discard_staged(fs, LOGS, staging)
    return done


def values(fs: FileSystem, name: str) -> list[bytes | None]:
    with opened(fs) as directory:
        if fs.status(LOGS / name) is None:
            return []
        return [record.value for record in directory.log(TopicPartition("t", int(name[-1]))).records()]


def new_disk() -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.make_directory(LOGS, parents=True)
    with opened(fs) as directory:
        for number in range(2):
            log = directory.log(TopicPartition("t", number), create=True)
            log.append([Record(value, b"k", timestamp=1) for value in BEFORE])
    fs.sync_all()
    return fs


def crashes(stream: StreamBatch | None, phase: int, of: int = 5) -> Iterator[tuple[CrashFileSystem, bool]]:
    """A disk cut at some changes in turn, and whether the write was acknowledged; the last one is."""
    disk = new_disk()
    files = [stage(disk, STAGING, name, ROWS) for name in PARTITIONS]
    disk.sync_all()
    for mutation in itertools.count(0 if EVERY_CUT else phase, 1 if EVERY_CUT else of):
        fs = disk.survivor(0)
        fs.cut_at(mutation, fraction=(mutation % 3) / 2)
        try:
            committed(fs, files, stream)
        except PowerCut:
            yield fs, False
        else:
            assert mutation > 60
            yield fs, True
            return


def nothing(_: CrashFileSystem) -> list[bytes]:
    return []


def another_job(fs: CrashFileSystem) -> list[bytes]:
    write(fs, [b"other 0", b"other 1"], staging=Path("/disk/.seglog-write-logs-other"))
    return [b"other 0", b"other 1"]


def another_stream(fs: CrashFileSystem) -> list[bytes]:
    write(fs, [b"other 0", b"other 1"], StreamBatch("other", 3), staging=Path("/disk/.seglog-write-logs-other"))
    return [b"other 0", b"other 1"]


def seglog_append(fs: CrashFileSystem) -> list[bytes]:
    append(fs, [b"other 0", b"other 1"])
    return [b"other 0", b"other 1"]


def a_broker(fs: CrashFileSystem) -> list[bytes]:
    append(fs, [b"other 0", b"other 1"], settle=False)
    return [b"other 0", b"other 1"]


Meanwhile = Callable[[CrashFileSystem], list[bytes]]


SCENARIOS = (nothing, another_job, another_stream, seglog_append, a_broker)


@pytest.mark.parametrize("meanwhile", SCENARIOS)
def test_a_stream_brings_its_batch_again_and_every_record_is_there_once(meanwhile: Meanwhile) -> None:
    for seed, (disk, acknowledged) in enumerate(crashes(BATCH, SCENARIOS.index(meanwhile))):
        fs = disk.survivor(seed)
        others = meanwhile(fs)
        again = write(fs, ROWS, BATCH)
        assert not (acknowledged and again), "the batch was appended twice"
        for name in PARTITIONS:
            found = values(fs, name)
            here = others if name == "t-0" or meanwhile in (another_job, another_stream) else []
            wanted = [*(BEFORE if name != "t-2" else []), *ROWS, *here]
            assert sorted(found) == sorted(wanted), (seed, name, disk.trace[-1])
        assert [path for path in fs.list(LOGS.parent) if path != "logs"] == []


@pytest.mark.parametrize("meanwhile", [nothing, another_job, seglog_append])
def test_a_job_that_was_cut_short_left_nothing_or_everything(meanwhile: Meanwhile) -> None:
    outcomes = set()
    for seed, (disk, acknowledged) in enumerate(crashes(None, SCENARIOS.index(meanwhile))):
        fs = disk.survivor(seed)
        others = meanwhile(fs)
        whole = []
        for name in PARTITIONS:
            found = values(fs, name)
            here = others if name == "t-0" or meanwhile is another_job else []
            before = BEFORE if name != "t-2" else []
            assert found in ([*before, *here], [*before, *ROWS, *here]), (seed, name, disk.trace[-1])
            whole.append(ROWS[0] in found)
        assert len(set(whole)) == 1, "in one partition and not in another"
        assert whole[0] or not acknowledged
        outcomes.add((whole[0], acknowledged))
    assert {(False, False), (True, True)} <= outcomes


def test_a_jobs_rows_that_others_follow_are_reported_and_nothing_is_removed() -> None:
    refused = 0
    for seed, (disk, acknowledged) in enumerate(crashes(None, 0, of=3)):
        fs = disk.survivor(seed)
        others = a_broker(fs)
        before = {name: values(fs, name) for name in PARTITIONS}
        try:
            another_job(fs)
        except RefusedError as error:
            refused += 1
            assert not acknowledged
            assert "another writer has written after it (t-0 from offset 3 on" in str(error)
            assert "Remove /disk/logs/.seglog-append" in str(error)
            assert {name: values(fs, name) for name in PARTITIONS} == before
            fs.remove(LOGS / ".seglog-append")
            another_job(fs)
        assert set(others) <= set(values(fs, "t-0"))
    assert refused > 5


@pytest.mark.parametrize("meanwhile", [nothing, a_broker])
def test_settling_may_be_cut_short_as_well(meanwhile: Meanwhile) -> None:
    for seed, (disk, _) in enumerate(crashes(BATCH, 30, of=25)):
        after_crash = disk.survivor(seed)
        others = meanwhile(after_crash)
        after_crash.sync_all()
        for mutation in itertools.count(seed % 3, 1 if EVERY_CUT else 4):
            fs = after_crash.survivor(0)
            fs.cut_at(mutation, fraction=0.5)
            try:
                write(fs, ROWS, BATCH)
                finished = True
            except PowerCut:
                finished = False
            fs = fs.survivor(mutation)
            write(fs, ROWS, BATCH)
            for name in PARTITIONS:
                before = BEFORE if name != "t-2" else []
                wanted = [*before, *ROWS, *(others if name == "t-0" else [])]
                assert sorted(values(fs, name)) == sorted(wanted), (seed, mutation, name)
            if finished:
                break


class FailingFileSystem(CrashFileSystem):
    """One change fails with an input/output error; the file system goes on."""

    fails_at: int | None = None

    def mutate(self, what: str, size: int = 0) -> int:
        number = self.mutations
        done = super().mutate(what, size)
        if number == self.fails_at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), what)
        return done


def test_an_error_at_any_change_is_taken_back_or_settled_by_the_next_write() -> None:
    disk = new_disk()
    files = [stage(disk, STAGING, name, ROWS) for name in PARTITIONS]
    disk.sync_all()
    acknowledged = False
    for mutation in itertools.count(0, 1 if EVERY_CUT else 2):
        fs = disk.survivor(0)
        fs.__class__, fs.fails_at = FailingFileSystem, mutation  # type: ignore[attr-defined]
        try:
            committed(fs, files, None)
            acknowledged = True
        except (OSError, SeglogError):
            discard_staged(fs, LOGS, STAGING)
        if fs.mutations <= mutation:
            break
        found = [ROWS[0] in values(fs, name) for name in PARTITIONS]
        assert found == [acknowledged] * len(PARTITIONS), (mutation, fs.trace[mutation])
        another_job(fs)
        assert values(fs, "t-0") == [*BEFORE, *(ROWS if acknowledged else []), b"other 0", b"other 1"]
        acknowledged = False
    assert mutation > 60
