"""The batch at the end of a round's range, by the rule of each Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.kafka_version import KafkaVersion
from seglog.log.log import Log
from tests.support.cleaning import append, clean, compacted_log, contents, keyed
from tests.support.open_logs import START_MS

DAY_MS = 86_400_000


@pytest.mark.parametrize(("version", "emptied"), [("4.3", [(2, 0)]), ("4.4", []), ("4.0", [(2, 0)])])
def test_the_last_batch_of_a_range_below_the_high_watermark_stays_emptied_up_to_4_3(
    tmp_path: Path, version: str, emptied: list[tuple[int, int]]
) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1"), ("b", "2")))
    append(log, keyed(("c", None)))
    log.roll()
    append(log, keyed(("d", "5")))
    for at in (START_MS, START_MS + 2 * DAY_MS):
        clean(log, at=at, first_dirty_offset=0, kafka=KafkaVersion.parse(version))
    assert last_offsets(log) == [(1, 2), *emptied]
    assert contents(log) == [(0, b"a", b"1"), (1, b"b", b"2"), (3, b"d", b"5")]


@pytest.mark.parametrize("version", ["4.3", "4.4"])
def test_no_version_loses_the_log_end_to_a_round(tmp_path: Path, version: str) -> None:
    log = compacted_log(tmp_path)
    append(log, keyed(("a", "1")))
    append(log, keyed(("c", None)))
    log.roll()
    for at in (START_MS, START_MS + 2 * DAY_MS):
        clean(log, at=at, first_dirty_offset=0, kafka=KafkaVersion.parse(version))
    assert last_offsets(log) == [(0, 1), (1, 0)]


def last_offsets(log: Log) -> list[tuple[int, int]]:
    """(last offset, records) of each batch of the first segment."""
    rows = [row for chunk in next(iter(log.segments)).scan() for row in chunk.batches]
    return [(int(row["last_offset"]), int(row["count"])) for row in rows]
