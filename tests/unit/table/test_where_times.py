"""The option `where` keeps the rows that a filter of the DataFrame keeps, whatever a record's timestamp is."""

from __future__ import annotations

import gzip
import operator
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from seglog.layout import INT64_MAX
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_ask.table.values.columns import TIMESTAMPS
from tests.support.naive import NaiveRecord, batch_v2, message

COLUMNS = default_projection("records", ("partition", "offset", "timestamp", "timestampMs"), False)
MOST = TIMESTAMPS.stop - 1
# no timestamp, before 1970, ordinary ones, the last that columns have, and what they have not
STAMPS = [-1, -2, -5000, 0, 1, 999, 1000, 60_000, 86_400_000, MOST, MOST + 1, INT64_MAX - 1, INT64_MAX]
COMPARISONS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
GZIP, LOG_APPEND_TIME = 1, 8


def v2(base: int, stamps: list[int], attributes: int = 0) -> tuple[bytes, int]:
    """A batch, and its largest timestamp; log append time is that of the whole batch."""
    records = [NaiveRecord(i, stamp - stamps[0], b"k", b"v") for i, stamp in enumerate(stamps)]
    payload = gzip.compress(b"".join(record.encode() for record in records)) if attributes & GZIP else None
    most = stamps[-1] if attributes & LOG_APPEND_TIME else max(stamps)
    batch = batch_v2(
        base, records, base_timestamp=stamps[0], max_timestamp=most, attributes=attributes, payload=payload
    )
    return batch, most


def legacy(base: int, stamps: list[int], magic: int, compressed: bool) -> tuple[bytes, int]:
    """Messages, or a wrapper whose own timestamp says nothing, as some old clients sent it."""
    first = 0 if magic == 1 and compressed else base  # magic 1 counts inside a wrapper
    entries = [message(first + i, magic, b"k", b"v", timestamp=stamp) for i, stamp in enumerate(stamps)]
    data = b"".join(entries)
    if compressed:
        data = message(base + len(stamps) - 1, magic, None, gzip.compress(data), attributes=GZIP)
    return data, -1 if magic == 0 else max(stamps)


WRITERS = {
    "magic 0": lambda base, stamps: legacy(base, stamps, 0, False),
    "magic 0 wrappers": lambda base, stamps: legacy(base, stamps, 0, True),
    "magic 1": lambda base, stamps: legacy(base, stamps, 1, False),
    "magic 1 wrappers": lambda base, stamps: legacy(base, stamps, 1, True),
    "magic 2": v2,
    "magic 2 gzip": lambda base, stamps: v2(base, stamps, GZIP),
    "magic 2 append time": lambda base, stamps: v2(base, stamps, LOG_APPEND_TIME),
}


def write_log(directory: Path, kind: str, rng: random.Random) -> None:
    """Writes three segments of random timestamps, closed ones with the time index that a broker leaves."""
    directory.mkdir()
    base = 0
    for _ in range(3):
        stem, data, newest = directory / f"{base:020}", b"", (-1, 0)
        first = base
        for _ in range(rng.randrange(1, 4)):
            stamps = [rng.choice(STAMPS) for _ in range(rng.randrange(1, 5))]
            batch, most = WRITERS[kind](base, stamps)
            data, base = data + batch, base + len(stamps)
            newest = max(newest, (most, base - 1 - first))
        stem.with_suffix(".log").write_bytes(data)
        stem.with_suffix(".timeindex").write_bytes(struct.pack(">qi", *newest) if newest[0] >= 0 else b"")


def rows(logs: Path, **given: str) -> list[tuple[int, int, int, int]]:
    """Partition, offset, the timestamp in microseconds, and its milliseconds, as Spark gets them."""
    options = parse_read_options({"path": str(logs), **given})
    found: list[tuple[int, int, int, int]] = []
    for split in plan_splits(LocalFileSystem(), options):
        for batch in record_batches(LocalFileSystem(), split, COLUMNS, options):
            columns = [column.cast(pa.int64()).to_pylist() for column in batch.columns]
            found += zip(*columns, strict=True)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_conditions_on_timestamps_and_offsets_keep_what_a_filter_of_all_rows_keeps(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for number, kind in enumerate(WRITERS):
        write_log(tmp_path / f"t-{number}", kind, rng)
    everything = rows(tmp_path)
    assert len({number for number, *_ in everything}) == len(WRITERS)
    for _ in range(60):
        kept, parts = everything, []
        for _ in range(rng.randrange(1, 4)):
            sign = rng.choice(list(COMPARISONS))
            compare = COMPARISONS[sign]
            if rng.random() < 0.8:
                bound = rng.choice(STAMPS) + rng.choice((-1, 0, 0, 1)) * (rng.random() < 0.5)
                bound = min(bound, INT64_MAX)
                parts.append(f"timestamp {sign} {bound}")
                kept = [row for row in kept if compare(row[3], bound)]
            else:
                bound = rng.choice((0, 3, 7, INT64_MAX, -INT64_MAX - 1))
                parts.append(f"offset {sign} {bound}")
                kept = [row for row in kept if compare(row[1], bound)]
        assert rows(tmp_path, where=" AND ".join(parts)) == kept, parts


def test_records_without_a_timestamp_are_before_every_time(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(legacy(0, [5, 6, 7], 0, True)[0])
    assert len(rows(tmp_path, where="timestamp < '2026-11-02'")) == 3
    assert len(rows(tmp_path, where="timestamp = -1")) == 3
    assert not rows(tmp_path, where="timestamp >= 0")


def test_timestamps_that_spark_cannot_hold_meet_the_conditions_that_their_numbers_meet(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(v2(0, [INT64_MAX, 3, MOST, MOST + 1])[0])
    assert [row[1] for row in rows(tmp_path, where=f"timestamp <= {INT64_MAX}")] == [0, 1, 2, 3]
    assert [row[1] for row in rows(tmp_path, where="timestamp > '2026-01-01'")] == [0, 2, 3]
    assert [row[1] for row in rows(tmp_path, where=f"timestamp > {MOST}")] == [0, 3]
    assert [row[2] for row in rows(tmp_path)] == [MOST * 1000, 3000, MOST * 1000, MOST * 1000]
    assert [row[3] for row in rows(tmp_path)] == [INT64_MAX, 3, MOST, MOST + 1]
