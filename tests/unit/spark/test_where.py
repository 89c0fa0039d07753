"""The option `where`: its meaning, the data it prunes before reading, and its error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from seglog.errors import ConfigError
from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog.scan.selection import Selection
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.spark.where import parse_where
from seglog_ask.table.engines.arrow import record_batches
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import plan_splits
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.watched_files import CountingFileSystem

DAY = 86_400_000
COLUMNS = default_projection("records", ("topic", "partition", "offset", "timestamp"), False)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("offset = 7", Selection(7, 8)),
        ("offset>7 and offset<=9", Selection(8, 10)),
        ("OFFSET BETWEEN 7 AND 9 AND partition < 3", Selection(7, 10, partitions=range(3))),
        ("partition > 1 AND partition >= 0 AND partition IN (1, 2, 3)", Selection(partitions=frozenset({2, 3}))),
        ("partition IN (1, 2) AND partition IN (2,3)", Selection(partitions=frozenset({2}))),
        ("topic = 'o''brien' AND topic IN ('o''brien', 'x')", Selection(topics=frozenset({"o'brien"}))),
        ("timestamp >= '1970-01-02' AND timestamp < 172800000", Selection(first_timestamp=DAY, end_timestamp=2 * DAY)),
        ("offset > 9223372036854775807", Selection(INT64_MAX + 1)),
        ("offset >= -5", Selection(-5)),
    ],
)
def test_conditions_are_ranges_and_sets(text: str, meant: Selection) -> None:
    assert parse_where(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "word was expected"),
        ("key = 'a'", "there is no column 'key'; columns are topic, partition, offset, timestamp"),
        ("offset <> 3", "<> is not one of =, <, <=, >, >=, BETWEEN and IN"),
        ("offset = 3 OR offset = 4", "AND was expected"),
        ("offset = 'a'", "offset is a number"),
        ("topic > 'a'", "a topic is compared with ="),
        ("topic = 3", "a topic is text, in single quotes"),
        ("offset IN (1, 2)", "IN is for topic and partition"),
        ("partition IN (1", "operator was expected"),
        ("partition IN (1 = ", ") was expected"),
        ("timestamp > 'yesterday'", "yesterday"),
        ("timestamp < '2026-11-21T01:53:49.0005Z'", "has milliseconds, and nothing below"),
        ("offset = 1; drop", "was expected"),
        ("offset = 99999999999999999999999", "does not fit 64 bits"),
        ("offset BETWEEN 1", "was expected"),
    ],
)
def test_nonsense_is_one_sentence_that_names_the_option(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="where: ") as caught:
        parse_read_options({"path": "-", "where": text})
    assert said in str(caught.value)


def test_it_is_for_records() -> None:
    with pytest.raises(ConfigError, match="where: it is for records; filter the view batches"):
        parse_read_options({"path": "-", "where": "offset = 1", "view": "batches"})


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, two partitions, five segments of a day each, with time indexes; some records have no timestamp."""
    path = tmp_path_factory.mktemp("where")
    for name in ("a-0", "a-1", "b-0", "b-1"):
        (path / name).mkdir()
        for day in range(5):
            stem, base = path / name / f"{day * 10:020}", day * 10
            records = [NaiveRecord(i, i * 1000, b"k", b"v") for i in range(10)]
            stem.with_suffix(".log").write_bytes(
                batch_v2(base, records, base_timestamp=day * DAY, max_timestamp=day * DAY + 9000)
            )
            last = np.array([day * DAY + 9000], dtype=">i8").tobytes() + np.array([9], dtype=">i4").tobytes()
            stem.with_suffix(".timeindex").write_bytes(last)
    return path


def rows(logs: Path, **given: str) -> tuple[list[tuple[Any, ...]], CountingFileSystem]:
    fs, chosen = CountingFileSystem(), parse_read_options({"path": str(logs), **given})
    found: list[tuple[Any, ...]] = []
    for split in plan_splits(fs, chosen):
        for batch in record_batches(fs, split, COLUMNS, chosen):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found, fs


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("offset >= 10 AND offset < 25", 8),
        ("timestamp >= '1970-01-04T00:00:05Z'", 8),
        ("timestamp < '1970-01-02T00:00:05Z' AND partition = 1", 10),
        ("topic = 'a' AND partition IN (1, 7) AND offset = 33", 1),
        ("offset > 1000", 4),  # where the last segments end is not known
        ("partition = 9", 0),
    ],
)
def test_it_gives_what_a_filter_of_all_rows_gives_and_opens_less(logs: Path, text: str, opened: int) -> None:
    meant = parse_where(text)
    everything, _ = rows(logs)
    wanted = [
        row
        for row in everything
        if meant.chooses(TopicPartition(row[0], row[1]))
        and (meant.first_offset or 0) <= row[2] < (meant.end_offset or INT64_MAX)
        and (meant.first_timestamp or 0) <= int(row[3].timestamp() * 1000) < (meant.end_timestamp or INT64_MAX)
    ]
    found, fs = rows(logs, where=text)
    assert found == wanted
    assert sum(count for name, count in fs.opened.items() if name.endswith(".log")) <= opened


def test_a_topic_that_it_leaves_out_is_not_missing(logs: Path) -> None:
    assert (
        rows(logs, subscribe="a,b", where="topic = 'a' AND offset = 3")[0]
        == rows(logs, where="topic = 'a' AND offset = 3")[0]
    )


def test_offsets_of_a_partition_that_it_leaves_out_are_no_error(logs: Path) -> None:
    given = {"startingOffsets": '{"a": {"0": 2, "1": 3}}', "endingOffsets": '{"a": {"0": 7, "1": 8}, "b": {"0": 1}}'}
    found, _ = rows(logs, where="topic = 'a' AND partition = 1", **given)
    assert [row[:3] for row in found] == [("a", 1, offset) for offset in range(3, 8)]
    with pytest.raises(ConfigError, match="endingOffsets names partitions that do not exist: b-0, b-7"):
        rows(logs / "a-1", where="offset > 1", endingOffsets='{"b": {"0": 1, "7": 1}}')
