"""A dry run says what the run then does: records, batches, bytes, segments and their files, reasons, offsets."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.cleaner.round import CleanerOptions, Strategy
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression, Record
from seglog.operations.clean import Cleaned, Outcome
from tests.support.compacted_directories import FS, Topics, clean, opened
from tests.support.log_files import write_segment
from tests.support.manual_clock import ManualClock
from tests.support.naive import message
from tests.support.open_logs import START_MS

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
PARTITION = "t-0"


def write_legacy(directory: Path, chance: random.Random) -> None:
    """Segments of magic 0 and 1 in front of everything else."""
    offset = 0
    for magic in (0, 1):
        entries = []
        for _ in range(chance.randrange(1, 30)):
            value = None if chance.random() < 0.2 else b"x" * chance.randrange(40)
            timestamp = START_MS + offset if magic else -1
            entries.append(message(offset, magic, b"k%d" % chance.randrange(9), value, timestamp=timestamp))
            offset += 1
        write_segment(directory, offset - len(entries), *entries, index_interval_bytes=0)
    write_segment(directory, offset)


def fill(log: Log, chance: random.Random) -> None:
    """Batches of all codecs, with tombstones, and transactions committed, aborted and open, over rolled segments."""
    for n in range(chance.randrange(3, 25)):
        start = log.log_end_offset
        records = [
            Record(
                None if chance.random() < 0.2 else b"v" * chance.randrange(60),
                b"k%d" % chance.randrange(12),
                START_MS + start + i - chance.choice([0, 0, 3 * DAY_MS]),
            )
            for i in range(chance.randrange(1, 12))
        ]
        if chance.random() < 0.7:
            log.append(records, codec=chance.choice(list(Compression)), batch_records=chance.randrange(1, 6))
        else:
            producer = ProducerIdentity(100 + n, transactional=True)
            log.append(records, producer=producer)
            if chance.random() < 0.9:
                log.append_end_txn_marker(producer, chance.random() < 0.5, timestamp=START_MS + start)
        if chance.random() < 0.3:
            log.roll()


def damaged_but_whole(path: Path, how: str) -> None:
    """Things that opening for writing mends: it must not make the plan wrong."""
    if how == "unclean":
        (path / ".kafka_cleanshutdown").unlink()
        (path / "recovery-point-offset-checkpoint").unlink()
    elif how == "no snapshots":
        for snapshot in (path / PARTITION).glob("*.snapshot"):
            snapshot.unlink()
    elif how == "no index":
        next(iter(sorted((path / PARTITION).glob("*.index")))).unlink()
    elif how == "no time index":
        sorted((path / PARTITION).glob("*.timeindex"))[-1].unlink()


def outcome_of(path: Path, options: CleanerOptions, topics: Topics, *, dry_run: bool) -> Outcome:
    clock = ManualClock(START_MS + DAY_MS)
    (outcome,) = clean(FS, [path / PARTITION], topics, clock, options, dry_run=dry_run)
    return outcome


def facts(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Cleaned), outcome
    found = outcome.result.to_json()
    timed = ("dry_run", "index_seconds", "clean_seconds", "phase_seconds")
    return {
        **{name: value for name, value in found.items() if name not in timed},
        "files": outcome.result.segments_after,
        "changes": outcome.changes,
        "limit": outcome.result.limit_reason,
    }


def file_sizes(path: Path, base_offset: int) -> list[int]:
    names = (f"{base_offset:020d}.{kind}" for kind in ("log", "index", "timeindex", "txnindex"))
    files = [path / PARTITION / name for name in names]
    return [file.stat().st_size if file.exists() else 0 for file in files]


@given(
    seed=st.integers(0, 1 << 30),
    legacy=st.booleans(),
    segment_bytes=st.sampled_from([400, 2000, 1 << 20]),
    index_bytes=st.sampled_from([36, 96, 10 << 20]),
    interval_bytes=st.sampled_from([0, 200, 4096]),
    buffer_bytes=st.sampled_from([24 * 3, 24 * 8, 1 << 20]),
    strategy=st.sampled_from(["offset", "offset", "timestamp", "header:v"]),
    roll=st.booleans(),
    expire=st.booleans(),
    most_log_bytes=st.sampled_from([300, 1 << 31]),
    how=st.sampled_from(["closed", "unclean", "no snapshots", "no index", "no time index"]),
)
@settings(max_examples=40, deadline=None)
def test_the_run_does_what_the_dry_run_said(
    seed: int,
    legacy: bool,
    segment_bytes: int,
    index_bytes: int,
    interval_bytes: int,
    buffer_bytes: int,
    strategy: str,
    roll: bool,
    expire: bool,
    most_log_bytes: int,
    how: str,
) -> None:
    chance = random.Random(seed)
    config: dict[str, Any] = {
        "segment_bytes": segment_bytes,
        "segment_index_bytes": index_bytes,
        "index_interval_bytes": interval_bytes,
        "message_timestamp_after_max_ms": 1 << 62,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "meta.properties").write_text("version=1\ncluster.id=test\nnode.id=1\n")
        if legacy:
            write_legacy(path / PARTITION, chance)
        (path / PARTITION).mkdir(exist_ok=True)
        with opened(path, **config) as directory:
            fill(directory.log_in(path / PARTITION), chance)
        damaged_but_whole(path, how)
        topics = Topics(cleanup_policy="compact", **config)
        for _ in range(2):
            options = CleanerOptions(
                dedupe_buffer_bytes=buffer_bytes,
                strategy=Strategy.parse(strategy),
                roll=roll,
                expire=expire,
                most_log_bytes=most_log_bytes,
                first_dirty_offset=chance.choice([None, None, 0]),
            )
            predicted = outcome_of(path, options, topics, dry_run=True)
            done = outcome_of(path, options, topics, dry_run=False)
            assert facts(predicted) == facts(done)
            assert isinstance(done, Cleaned)
            for segment in done.result.segments_after:
                assert file_sizes(path, segment.base_offset) == [
                    segment.size,
                    segment.offset_index_bytes,
                    segment.time_index_bytes,
                    segment.transaction_index_bytes,
                ]
