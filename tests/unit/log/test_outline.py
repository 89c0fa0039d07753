"""An outline leads to the same decisions as the open log, and opens no log file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import seglog
from seglog.cleaner.dirtiness import log_to_clean
from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.log.indexes import TimeIndex
from seglog.log.log import Log
from seglog.log.opening import open_partition
from seglog.log.outline import OutlinedLog, outline
from seglog.log.retention import plan_retention
from seglog.model import Record, TopicPartition
from seglog.scan.listing import list_partition
from seglog.storage.filesystem import File, OpenMode
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import clean_logs
from tests.support.fixtures import fixture_now_ms

DAY_MS = 86_400_000


class ClosedLogs(LocalFileSystem):
    """Refuses to open a log file."""

    def open(self, path: Path, mode: OpenMode) -> File:
        assert not path.name.endswith(".log"), path
        assert mode == "r"
        return super().open(path, mode)


def begun(directory: Path) -> Log:
    return seglog.open_log(directory, create=True)


def producer(number: int) -> seglog.ProducerIdentity:
    return seglog.ProducerIdentity(number, 0, 0, transactional=True)


def outlined(directory: Path, config: LogConfig) -> OutlinedLog:
    fs = ClosedLogs()
    topic, _, number = directory.name.rpartition("-")
    found = outline(fs, list_partition(fs, directory), TopicPartition(topic, int(number)), config, {})
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["customers-0", "orders-none-0", "payments-0", "__consumer_offsets-0"])
@pytest.mark.parametrize("lag_ms", [0, 20_000, 10 * DAY_MS])
def test_the_cleaner_and_retention_decide_as_on_the_open_log(tmp_path: Path, name: str, lag_ms: int) -> None:
    directory, now_ms = clean_logs(tmp_path) / name, fixture_now_ms("4.3.0/clean")
    config = LogConfig(
        cleanup_policy=frozenset({"compact", "delete"}),
        min_compaction_lag_ms=lag_ms,
        retention_ms=5_000,
        retention_bytes=30_000,
    )
    owner, log = open_partition(
        directory, fs=LocalFileSystem(), clock=FixedClock(now_ms), config_of=lambda _topic: config, writable=False
    )
    with owner:
        seen = outlined(directory, config)
        assert (seen.log_start_offset, seen.log_end_offset) == (log.segments.first.base_offset, log.log_end_offset)
        for checkpoint in (None, 0, log.segments.active.base_offset, log.log_end_offset + 7):
            assert log_to_clean(seen, checkpoint, now_ms) == log_to_clean(log, checkpoint, now_ms)
        plan = plan_retention(log, now_ms)
        assert plan_retention(seen, now_ms) == plan
        assert plan.segments


def test_a_transaction_is_seen_open_until_the_index_says_that_it_was_aborted(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with begun(directory) as log:
        first = log.append([Record(b"a", timestamp=1000)], producer=producer(7)).first_offset
        log.roll()
        log.append([Record(b"b", timestamp=2000)])
        log.roll()
    found = outlined(directory, LogConfig())
    assert [(one.producer_id, one.first_offset) for one in found.transactions] == [(7, first)]
    assert found.last_stable_offset == first < found.log_end_offset
    with begun(directory) as log:
        log.append_end_txn_marker(producer(7), False, timestamp=3000)
    newest = max(directory.glob("*.snapshot"))
    newest.unlink()  # the snapshot of the close; that of the roll still shows the transaction
    assert outlined(directory, LogConfig()).transactions == ()


def test_damaged_small_files_show_nothing_and_raise_nothing(tmp_path: Path) -> None:
    directory = clean_logs(tmp_path) / "payments-0"
    whole = outlined(directory, LogConfig())
    for path in directory.iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.write_bytes(b"\x7f" * 37)
    found = outlined(directory, LogConfig())
    assert found.transactions == ()
    assert found.segments.base_offsets == whole.segments.base_offsets
    for path in directory.glob("*.*index"):
        path.unlink()
    assert outlined(directory, LogConfig()).segments.active.largest_timestamp() > 0


def test_of_a_large_time_index_a_few_entries_are_held(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with begun(directory) as log:
        for number in range(3):
            log.append([Record(b"v", timestamp=1000 + number)])
    segment = outlined(directory, LogConfig()).segments.active
    index = TimeIndex(LocalFileSystem(), segment.files.log.with_suffix(".timeindex"), 0)
    index.create()
    numbers = np.arange(1, 5001, dtype=np.int64)
    index.append(np.stack([1000 + 7 * numbers, 2 * numbers], axis=1))
    index.close_file()
    few = outlined(directory, LogConfig()).segments.active
    assert len(few.times) == 256
    assert few.first_batch_timestamp() == 1007
    assert (few.max_timestamp, few.offset_of_max_timestamp) == index.last_entry == (36_000, 10_000)
    assert ((few.times["timestamp"] - 1000) * 2 == few.times["offset"] * 7).all()
    assert (np.diff(few.times["offset"]) > 0).all()
