"""Engines that read an open table: how each is given one, for tests and the benchmark (README has the same table)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NOT_INSTALLED = "{} is not installed: pip install --group dev --group engines"
LATE = '"offset" >= 3990 and partition = 1'  # what `Engine.offsets` asks for
_LATE_OFFSETS = f'select "offset" from orders where {LATE} order by 1'
_KEYS = 'select count(*), count(distinct key), sum("offset") from orders'


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine and one way to give it a table.

    `line` is that way, `rows` returns all rows through the engine as a pyarrow Table, `all` makes it go through all of
    them (a question to keys and offsets, or a copy below the directory), `offsets` returns those of the rows of LATE,
    asked without any other column. `streams`: it lets go of what it has read, `holds` rows later (0: at once).
    `pushes`: columns and filters reach the table.
    """

    name: str
    package: str
    line: str
    rows: Callable[[Any, Path], Any]
    all: Callable[[Any, Path], Any]
    streams: bool
    holds: int = 0
    pushes: bool = False
    offsets: Callable[[Any], list[int]] | None = None


def installed(engine: Engine) -> bool:
    """True if the engine's package is there."""
    return find_spec(engine.package) is not None


# --- those that ask -----------------------------------------------------------------------------------------------


def _duckdb(table: Any, query: str) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("orders", table)
        return connection.sql(query).to_arrow_table()


def _datafusion(table: Any, query: str) -> Any:
    import datafusion

    context = datafusion.SessionContext()
    context.register_dataset("orders", table)
    return context.sql(query).to_arrow_table()


def _polars(table: Any) -> Any:
    import polars

    frame = table.to_polars()
    return frame.select(polars.len(), polars.col("key").n_unique().alias("keys"), polars.col("offset").sum())


def _late_of_polars(table: Any) -> list[int]:
    import polars

    late = (polars.col("offset") >= 3990) & (polars.col("partition") == 1)
    found: list[int] = table.to_polars().filter(late).select("offset").collect()["offset"].to_list()
    return found


def _late(answer: Any) -> list[int]:
    found: list[int] = answer["offset"].to_pylist()
    return found


def _late_of_pyarrow(table: Any) -> list[int]:
    import pyarrow.compute as pc

    late = (pc.field("offset") >= 3990) & (pc.field("partition") == 1)
    return _late(table.to_table(columns=["offset"], filter=late))


def _last_of_pyarrow(table: Any, _home: Path) -> None:
    for _batch in table.to_batches(columns=["offset", "key"]):
        pass


def _of_pandas(table: Any) -> Any:
    import pyarrow as pa

    return pa.Table.from_pandas(table.to_pandas(), schema=table.schema, preserve_index=False)


def _late_of_pandas(table: Any) -> list[int]:
    import pyarrow.compute as pc

    late = (pc.field("offset") >= 3990) & (pc.field("partition") == 1)
    found: list[int] = table.to_pandas(columns=["offset"], filter=late)["offset"].tolist()
    return found


def _daft(table: Any) -> Any:
    import daft

    return daft.from_arrow(table)


# --- those that copy ----------------------------------------------------------------------------------------------


def _written_dataset(table: Any, home: Path) -> Path:
    import pyarrow.dataset as ds

    ds.write_dataset(table, home / "parquet", format="parquet")
    return home / "parquet"


def _read_dataset(table: Any, home: Path) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(_written_dataset(table, home)).to_table()


def _delta(table: Any, home: Path) -> Any:
    import deltalake

    deltalake.write_deltalake(home / "delta", table)
    return deltalake.DeltaTable(home / "delta")


def _iceberg(table: Any, home: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/iceberg")
    catalog.create_namespace("logs")
    copy = catalog.create_table("logs.orders", schema=table.schema)
    copy.append(table.reader())
    return copy


def _lance(table: Any, home: Path) -> Any:
    import lance

    return lance.write_dataset(table.reader(), str(home / "lance"))


ENGINES = (
    Engine(
        "DuckDB",
        "duckdb",
        'duckdb.sql("from orders")',
        lambda table, _home: _duckdb(table, "from orders"),
        lambda table, _home: _duckdb(table, _KEYS),
        streams=True,
        pushes=True,
        offsets=lambda table: _late(_duckdb(table, _LATE_OFFSETS)),
    ),
    Engine(
        "Polars",
        "polars",
        "orders.to_polars()",
        lambda table, _home: table.to_polars().collect().to_arrow(),
        lambda table, _home: _polars(table).collect(engine="streaming"),
        streams=True,
        pushes=True,
        offsets=_late_of_polars,
    ),
    Engine(
        "DataFusion",
        "datafusion",
        'context.register_dataset("orders", orders)',
        lambda table, _home: _datafusion(table, "select * from orders"),
        lambda table, _home: _datafusion(table, _KEYS),
        streams=True,
        pushes=True,
        offsets=lambda table: _late(_datafusion(table, _LATE_OFFSETS)),
    ),
    Engine(
        "pyarrow",
        "pyarrow",
        "orders.to_batches()",
        lambda table, _home: table.to_table(),
        _last_of_pyarrow,
        streams=True,
        pushes=True,
        offsets=_late_of_pyarrow,
    ),
    Engine(
        "pyarrow.dataset",
        "pyarrow",
        'write_dataset(orders, "copy", format="parquet")',
        _read_dataset,
        _written_dataset,
        streams=False,  # rows wait for its writer
    ),
    Engine(
        "deltalake",
        "deltalake",
        'write_deltalake("copy", orders)',
        lambda table, home: _delta(table, home).to_pyarrow_table(),
        _delta,
        streams=True,
        holds=1 << 20,  # a row group of Parquet
    ),
    Engine(
        "PyIceberg",
        "pyiceberg",
        "copy.append(orders.reader())",
        lambda table, home: _iceberg(table, home).scan().to_arrow(),
        _iceberg,
        streams=False,
    ),
    Engine(
        "Lance",
        "lance",
        'lance.write_dataset(orders.reader(), "copy")',
        lambda table, home: _lance(table, home).to_table(),
        _lance,
        streams=True,
    ),
    Engine(
        "Daft",
        "daft",
        "daft.from_arrow(orders)",
        lambda table, _home: _daft(table).to_arrow(),
        lambda table, _home: _daft(table).count_rows(),
        streams=False,
    ),
    Engine(
        "pandas",
        "pandas",
        "orders.to_pandas()",
        lambda table, _home: _of_pandas(table),
        lambda table, _home: table.to_pandas(),
        streams=False,
        pushes=True,
        offsets=_late_of_pandas,
    ),
)
