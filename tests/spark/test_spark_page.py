"""The Python in core/SPARK.md runs as it is, except for its two directories."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.library import verify
from seglog_stores.operations.fetch import fetch
from seglog_stores.tiers.view import see_tiers
from tests.support.schema_registry import ORDER, avro, framed, registered, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PAGE = Path(__file__).resolve().parents[2] / "core" / "SPARK.md"
LOGS, LAKE = "/var/lib/kafka/data", "/lake"


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def logs_in(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.glob("*.log")}


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table, in the order of the log."""
    chosen = table.select(["topic", "partition", "offset", "timestamp", "key", "value"])
    return list(chosen.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist())


def fetch_committed(prefix: Path, target: Path) -> dict[str, bytes]:
    """The logs of the partition that `fetch` makes of a committed one."""
    fs, (seen,) = see_tiers(LocalFileSystem(), [prefix / target.name])
    fetch(fs, seen, LocalFileSystem(), target)
    return logs_in(target)


def test_every_block_of_the_page_runs(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(logs / "payments-0", tmp_path / "logs" / "payments-0")
    write_log(tmp_path / "lake" / "shop" / "_schemas-0", [registered("orders-value", 1, 1, ORDER)])
    values = [framed(1, avro(ORDER, {"id": 1, "city": "Köln", "note": None})), framed(9, b"")]
    write_log(tmp_path / "lake" / "shop" / "orders-0", [Record(one) for one in values])
    names: dict[str, Any] = {}
    found = blocks(PAGE.read_text())
    assert len(found) == 12
    timestamps = "spark.sql.parquet.outputTimestampType"
    usual = spark.conf.get(timestamps)
    for block in found:
        exec(block.replace(LOGS, str(tmp_path / "logs")).replace(LAKE, str(tmp_path / "lake")), names)
    spark.conf.set(timestamps, usual)
    said = capsys.readouterr().out
    assert re.search(r"Köln\|\s+1\|", said) and "schema id 9 is not in" in said
    assert "<Cleaned squares-0: done" in said and "\n10\n" in said
    assert names["spark"] is spark
    assert spark.read.parquet(str(tmp_path / "lake" / "payments")).count() == names["payments"].count() > 0
    assert spark.read.parquet(str(tmp_path / "lake" / "payments-by-date")).count() == names["payments"].count()
    expected = rows_of(names["payments"].toArrow())
    assert rows_of(names["DeltaTable"](str(tmp_path / "lake" / "payments-by-date")).to_pyarrow_table()) == expected
    assert rows_of(names["iceberg"].scan().to_arrow()) == expected
    names["append"](names["payments"], 0)  # a batch that comes twice
    assert rows_of(names["DeltaTable"](str(tmp_path / "lake" / "payments-delta")).to_pyarrow_table()) == expected
    assert spark.read.format("seglog").load(str(tmp_path / "lake" / "logs")).count() == 10
    fetched = fetch_committed(tmp_path / "lake" / "cleaned", tmp_path / "restored" / "squares-0")
    assert fetched == logs_in(tmp_path / "lake" / "logs" / "squares-0")
    assert verify(spark, str(tmp_path / "lake" / "logs"), level="crc").summary.records == 10
