"""A power cut at every change of the file system during append, roll, flush and close.

Afterwards the log opens, everything a flush had acknowledged is there, and no torn batch is visible.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.log.append import ProducerIdentity
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.model import Compression, Isolation, Record
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.manual_clock import ManualClock

DIRECTORY = Path("/disk/t-0")
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=50)


def opened(fs: CrashFileSystem, *, clean: bool) -> Log:
    clock = ManualClock(1_700_000_000_000)
    return Log.open(DIRECTORY, CONFIG, fs=fs, clock=clock, options=LoadOptions(clean_shutdown=clean))


def new_disk() -> CrashFileSystem:
    """An empty log, safely on the disk."""
    fs = CrashFileSystem()
    fs.make_directory(DIRECTORY, parents=True)
    opened(fs, clean=True).close()
    fs.sync_all()
    return fs


def value(offset: int) -> bytes:
    return b"value %d" % offset


ABORTED = 27  # the offset of a record in an aborted transaction


def work(log: Log, flushed: list[int]) -> None:
    """Appends of every kind over several segments; the log end goes into `flushed` after each flush."""
    producer = ProducerIdentity(4, 0, transactional=True)
    for turn in range(6):
        end = log.log_end_offset
        records = [Record(value(end + i), b"k", timestamp=1000 + end + i) for i in range(9)]
        codec = Compression.GZIP if turn % 2 else Compression.NONE
        log.append(records, batch_records=2, codec=codec, leader_epoch=turn // 2)
        if turn == 2:
            log.append([Record(value(log.log_end_offset), b"k", timestamp=1)], producer=producer, leader_epoch=1)
            log.append_end_txn_marker(producer, commit=False, leader_epoch=1)
        if turn % 2:
            log.flush()
            flushed.append(log.log_end_offset)
    log.close()
    flushed.append(log.log_end_offset)


def cut_at(mutation: int) -> tuple[CrashFileSystem, bool, int]:
    """(the disk, whether the work was finished before the cut, what had been flushed) on a new log."""
    fs = new_disk()
    fs.cut_at(fs.mutations + mutation, fraction=(mutation % 3) / 2)
    flushed: list[int] = []
    try:
        work(opened(fs, clean=True), flushed)
    except PowerCut:
        return fs, False, max(flushed, default=0)
    return fs, True, max(flushed)


def check_survivor(disk: CrashFileSystem, flushed: int) -> int:
    """Opens the log as after a crash; returns its end."""
    with opened(disk, clean=False) as log:
        end = log.log_end_offset
        assert end >= flushed
        batches = batches_of(log)
        assert [first for first, _ in batches] == [0, *(last + 1 for _, last in batches)][: len(batches)]
        assert batches[-1:] == [] or batches[-1][1] == end - 1
        for record in log.records():
            assert record.value == value(record.offset or 0)
        if flushed > ABORTED:
            assert ABORTED not in [r.offset for r in log.records(isolation=Isolation.READ_COMMITTED)]
        assert log.append([Record(b"next", timestamp=5)]).first_offset == end
    return end


def batches_of(log: Log) -> list[tuple[int, int]]:
    """(base, last offset) of the batches, as readers see them."""
    found, offset = [], 0
    while offset < log.log_end_offset:
        rows = log.read(offset, 1 << 20).batches
        assert len(rows), f"nothing at offset {offset}, but the log ends at {log.log_end_offset}"
        found += list(zip(rows["base_offset"].tolist(), rows["last_offset"].tolist(), strict=True))
        offset = found[-1][1] + 1
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_flushed_records_survive_a_power_cut_at_every_change(seed: int) -> None:
    for mutation in itertools.count(1):
        disk, finished, flushed = cut_at(mutation)
        end = check_survivor(disk.survivor(seed), flushed)
        if finished:
            assert flushed == end == 56
            assert mutation > 60
            return
