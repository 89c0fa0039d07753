"""Random logs with wrong indexes: whoever looks for a time finds the first record that has it, and reads all of them.

A closed time index that was cut between two entries is believed, as Kafka does: that wound is not among these.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import seglog
from seglog.scan.listing import list_partition
from seglog.scan.log_walk import WalkedEntries
from seglog.scan.selection import Selection
from seglog.verification.stretches import Reading, stretch_of
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.splits import offset_for_timestamp
from tests.support.effort import first_seed, tries
from tests.support.log_files import FS

SEEDS = range(first_seed(0), first_seed(0) + tries(8))


def log_of(random: Random, path: Path) -> list[int]:
    """Makes a log of several segments whose times go back now and then; returns the records' timestamps."""
    timestamps, now = [], 10_000
    config = {"segment.bytes": "3000", "index.interval.bytes": random.choice(["0", "100", "600"])}
    with seglog.open_log(path, create=True, config=config) as log:
        for _ in range(random.randrange(3, 40)):
            records = []
            for _ in range(random.randrange(1, 6)):
                now += random.randrange(50)
                timestamp = now - random.randrange(400) if random.random() < 0.3 else now
                records.append(seglog.Record(bytes(random.randrange(5, 200)), timestamp=timestamp))
                timestamps.append(timestamp)
            log.append(records)
    return timestamps


def wound(random: Random, index: Path) -> None:
    """Makes an index wrong: noise, rotated entries, wrong bits, zeros or a part of an entry after the entries."""
    data, entry = bytearray(index.read_bytes()), 12 if index.suffix == ".timeindex" else 8
    if not data:
        return
    turn = random.randrange(len(data) // entry) * entry
    flipped = bytearray(data)
    for _ in range(3):
        flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
    wrong = [random.randbytes(len(data)), data[turn:] + data[:turn], flipped]
    wrong += [data + bytes(entry * random.randrange(1, 30)), data[: turn + random.randrange(1, entry)]]
    index.write_bytes(random.choice(wrong))


def read_from(path: Path, timestamp: int) -> set[int]:
    """The offsets that `dump --since` reads."""
    reading, offsets = Reading(Selection(first_timestamp=timestamp)), set[int]()
    segments = list_partition(FS, path).segments
    bases = [segment.base_offset for segment in segments[1:]]
    for segment, following in zip(segments, [*bases, None], strict=True):
        for step in stretch_of(FS, segment, following, reading).walk(FS, segment.log, fresh=True):
            assert isinstance(step, WalkedEntries)
            for first, last in zip(step.batches["base_offset"], step.batches["last_offset"], strict=True):
                offsets |= set(range(first, last + 1))
    return offsets


@pytest.mark.parametrize("wrong", [(), (".timeindex",), (".index",), (".timeindex", ".index")], ids="+".join)
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_indexes_hide_no_time(seed: int, wrong: tuple[str, ...], tmp_path: Path) -> None:
    random, path = Random(seed), tmp_path / "t-0"
    timestamps = log_of(random, path)
    for index in sorted(path.iterdir()):
        if index.suffix in wrong:
            wound(random, index)
    for timestamp in (random.choice(timestamps) + random.randrange(-20, 21) for _ in range(5)):
        at = [offset for offset, its in enumerate(timestamps) if its >= timestamp]
        first = at[0] if at else None
        assert set(at) <= read_from(path, timestamp)
        (log,) = find_partitions(FS, parse_read_options({"path": str(path)}))
        assert offset_for_timestamp(log, timestamp) == first
        if ".timeindex" not in wrong:  # which segment to search, the log takes from there, as Kafka does
            with seglog.open_log(path, writable=False) as opened:
                record = opened.offset_for_timestamp(timestamp)
                assert (None if record is None else record.offset) == first
