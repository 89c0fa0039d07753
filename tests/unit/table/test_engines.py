"""Engines that take an open table as it is, or its reader: all rows, what they push into it, and whether they stream.

README's table of engines says the same. Versions are pinned in pyproject.toml: DuckDB, Polars, DataFusion, deltalake
and PyIceberg in the group `dev`, Daft and Lance in the group `engines` (`pip install --group engines`), without which
their tests are skipped. `python -m tests.benchmarks.engines` has times and memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402

import seglog  # noqa: E402
from seglog.errors import ConfigError, UnsupportedError  # noqa: E402
from seglog_ask.table.engines import dataset  # noqa: E402
from seglog_ask.table.values import columns  # noqa: E402
from tests.support.engines import ENGINES, NOT_INSTALLED, Engine, installed  # noqa: E402

README = Path(__file__).resolve().parents[3] / "README.md"
PARTITIONS, COUNT, ROWS_OF_A_BATCH = 3, 4000, 100


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12,000 records in three partitions, with null keys, null values, bytes that are no text, and headers."""
    directory = tmp_path_factory.mktemp("engines")
    for number in range(PARTITIONS):
        with seglog.open_log(directory / f"orders-{number}", create=True, config={"segment.bytes": 100_000}) as log:
            log.append(
                [
                    seglog.Record(
                        None if i % 7 == 0 else b"\xff%d" % i,
                        None if i % 5 == 4 else b"key-%d" % (i % 50),
                        1_700_000_000_000 + i,
                        (seglog.Header("h", b"\x00"),) if i % 6 == 0 else (),
                    )
                    for i in range(COUNT)
                ]
            )
    return directory


@dataclass
class Scans:
    """What scans were asked for: columns and filters; and the most bytes of one column that lived at once."""

    columns: list[Any]
    filters: list[str]
    alive: int = 0
    most_alive: int = 0


class _Counted:
    """Keeps a buffer, and counts it as long as somebody holds it."""

    def __init__(self, scans: Scans, buffer: Any) -> None:
        self._scans, self._buffer = scans, buffer
        scans.alive += 1
        scans.most_alive = max(scans.most_alive, scans.alive)

    def __del__(self) -> None:
        self._scans.alive -= 1


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Scans:
    """Batches are small, and each `offset` column of one counts as long as its memory is held by anyone."""
    asked = Scans([], [])
    begin, batch_of = dataset.TableScanner.__init__, dataset.batch_of

    def noted(scanner: Any, source: Any, outputs: Any, names: Any, condition: Any, batch_size: Any) -> None:
        asked.columns.append(None if names is None else list(names))
        asked.filters.append(str(condition))
        begin(scanner, source, outputs, names, condition, batch_size)

    def counted(arrays: Any, schema: Any, count: int) -> Any:
        made = []
        for array, field in zip(arrays, schema, strict=True):
            if field.name == "offset":
                data = array.buffers()[1]
                kept = pa.foreign_buffer(data.address, data.size, base=_Counted(asked, data))
                array = pa.Array.from_buffers(array.type, len(array), [None, kept], offset=array.offset)
            made.append(array)
        return batch_of(made, schema, count)

    monkeypatch.setattr(columns, "BATCH_ROWS", ROWS_OF_A_BATCH)
    monkeypatch.setattr(dataset.TableScanner, "__init__", noted)
    monkeypatch.setattr(dataset, "batch_of", counted)
    return asked


def each(wanted: Callable[[Engine], bool] = lambda _: True) -> Any:
    """The engines of a test; those that are not installed are skipped, with the name of the package."""
    marks = {
        engine.name: () if installed(engine) else (pytest.mark.skip(reason=NOT_INSTALLED.format(engine.package)),)
        for engine in ENGINES
    }
    chosen = [engine for engine in ENGINES if wanted(engine)]
    return pytest.mark.parametrize("engine", [pytest.param(one, id=one.name, marks=marks[one.name]) for one in chosen])


def sorted_rows(table: Any) -> list[dict[str, Any]]:
    """Rows by partition and offset, times as milliseconds."""
    unit = table.schema.field("timestamp").type.unit
    rows = table.to_pylist()
    milliseconds = {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    for row, number in zip(rows, table["timestamp"].cast(pa.int64()).to_pylist(), strict=True):
        row["timestamp"] = number // milliseconds
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


@each()
def test_an_engine_has_every_row_and_value(orders: Path, tmp_path: Path, engine: Engine) -> None:
    table = seglog.open_table(orders)
    found, right = sorted_rows(engine.rows(table, tmp_path).select(table.schema.names)), sorted_rows(table.to_table())
    for row in right if engine.name == "PyIceberg" else ():
        row["headers"] = row["headers"] or []  # findings/pyiceberg-makes-a-null-list-an-empty-one.sh
    assert found == right


@each(lambda engine: engine.pushes)
def test_columns_and_filters_are_pushed(orders: Path, tmp_path: Path, scans: Scans, engine: Engine) -> None:
    assert engine.offsets is not None
    assert engine.offsets(seglog.open_table(orders)) == list(range(3990, COUNT))
    assert {name for names in scans.columns for name in names} <= {"offset", "partition"}
    for pushed in scans.filters:
        assert re.search(r"offset >= 3990", pushed), pushed
        assert re.search(r"partition == 1", pushed), pushed


@each(lambda engine: engine.streams and not engine.holds)
def test_an_engine_lets_go_of_batches_while_it_reads(
    orders: Path, tmp_path: Path, scans: Scans, engine: Engine
) -> None:
    engine.all(seglog.open_table(orders), tmp_path)
    assert scans.alive <= 1
    assert 0 < scans.most_alive <= PARTITIONS * COUNT / ROWS_OF_A_BATCH / 2


def test_readmes_table_says_what_these_tests_hold() -> None:
    rows = re.findall(r"^\| ([\w./ -]+) (\d[\d.]*) \| `([^`]+)` \| (\w+) \| ([^|]+) \|", README.read_text(), re.M)
    told = {name: (line, streams == "yes", not pushes.startswith("nothing")) for name, _, line, streams, pushes in rows}
    assert told == {engine.name: (engine.line, engine.streams, engine.pushes) for engine in ENGINES}


def test_a_table_is_read_by_its_partitions(orders: Path) -> None:
    table = seglog.open_table(orders)
    fragments = list(table.get_fragments())
    assert len(fragments) == PARTITIONS
    assert sum(fragment.count_rows() for fragment in fragments) == table.count_rows()
    (second,) = table.get_fragments(pc.field("partition") == 1)
    assert list(table.get_fragments(pc.field("topic") == "others")) == []
    assert second.physical_schema == table.schema
    assert str(second.partition_expression) == '((topic == "orders") and (partition == 1))'
    assert second.to_table().equals(table.to_table(filter=pc.field("partition") == 1))
    assert second.to_table(table.schema, columns=["offset"], filter=pc.field("offset") < 2).to_pydict() == {
        "offset": [0, 1]
    }
    assert second.head(2, columns=["offset"]).to_pydict() == second.take([0, 1], columns=["offset"]).to_pydict()
    assert sum(len(batch) for batch in second.to_batches(batch_size=10)) == COUNT
    with pytest.raises(ConfigError, match="schema of its table"):
        second.scanner(pa.schema([("offset", pa.int32())]))
    (plain,) = seglog.open_table(orders / "orders-0", columns=["offset"]).get_fragments()
    assert plain.partition_expression.equals(pc.scalar(True))
    names = {name for name in dir(ds.Fragment) if not name.startswith("_")}
    assert names <= set(dir(second))


def test_a_filtered_tables_partitions_have_its_condition(orders: Path) -> None:
    late = seglog.open_table(orders).filter(pc.field("offset") >= 3990)
    assert [fragment.count_rows() for fragment in late.get_fragments()] == [10, 10, 10]


def test_a_reader_reads_as_it_is_consumed(orders: Path, scans: Scans) -> None:
    reader = seglog.open_table(orders).reader(["offset"], pc.field("partition") == 2, batch_size=50)
    assert next(reader).to_pydict() == {"offset": list(range(50))}
    assert scans.most_alive <= 2


def test_pyarrows_own_scanner_of_a_dataset_names_what_to_use(orders: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"\.reader\(\)"):
        ds.Scanner.from_dataset(seglog.open_table(orders))
