"""Random filters over a table, in the languages of pyarrow, DuckDB, Polars and DataFusion (if it is installed), and
whether their answers are right.

The right answer is what the same engine finds in the whole table, read into memory without any filter.
`python -m tests.support.random_filters 2000` tries that many filters for each engine over all shapes of log.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import seglog
from seglog_ask.table.engines import pruning
from seglog_stores.remote.filesystem import RemoteFileSystem
from tests.support import fixtures
from tests.support.object_server import object_server
from tests.support.tiers import (
    KEY_ID,
    SEALED,
    TOPIC_ID,
    private_pem,
    tier_segments,
    write_aiven,
    write_local_tiered,
)

SMALL_PIECE = 2048  # instead of PIECE_BYTES, so that small logs have many pieces
ENGINES = ("pyarrow", "duckdb", "polars", *(["datafusion"] if find_spec("datafusion") else []))
COLUMNS = ["topic", "partition", "offset", "timestamp", "key"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = pa.timestamp("ms", "UTC")
_TYPES = {"offset": pa.int64(), "partition": pa.int32(), "timestamp": _MS, "topic": pa.string(), "key": pa.binary()}
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Condition:
    """One filter in three languages."""

    arrow: pc.Expression
    sql: str
    polars: pl.Expr


class Filters:
    """Makes filters whose constants are values of the table, or their neighbours."""

    def __init__(self, table: pa.Table, seed: int) -> None:
        self._random = random.Random(seed)
        self._values = {name: table[name].unique().to_pylist() or [None] for name in ("topic", "partition", "key")}
        self._values["offset"] = table["offset"].to_pylist() or [0]
        self._values["timestamp"] = table["timestamp"].cast(pa.int64()).to_pylist() or [0]

    def condition(self, depth: int = 3) -> Condition:
        """Returns a filter of at most that many levels."""
        kind = self._random.random()
        if depth == 0 or kind < 0.45:
            return self._leaf()
        if kind < 0.6:
            inner = self.condition(depth - 1)
            return Condition(~inner.arrow, f"(not {inner.sql})", ~inner.polars)
        left, right = self.condition(depth - 1), self.condition(depth - 1)
        if kind < 0.8:
            return Condition(left.arrow & right.arrow, f"({left.sql} and {right.sql})", left.polars & right.polars)
        return Condition(left.arrow | right.arrow, f"({left.sql} or {right.sql})", left.polars | right.polars)

    def _leaf(self) -> Condition:
        name = self._random.choice((*COLUMNS, "offset", "timestamp"))
        field, column, sql = pc.field(name), pl.col(name), f'"{name}"'
        if name == "topic":
            column = column.cast(pl.String)
        kind = self._random.random()
        if kind < 0.12 and name in ("timestamp", "key"):
            return Condition(field.is_null(), f"({sql} is null)", column.is_null())
        if kind < 0.3:
            values = [self._value(name) for _ in range(self._random.randint(1, 4))]
            listed = ", ".join(_sql(name, value) for value in values)
            arrow = field.isin(pa.array([_arrow(name, value).as_py() for value in values], _TYPES[name]))
            return Condition(arrow, f"({sql} in ({listed}))", column.is_in([_polars(name, value) for value in values]))
        if kind < 0.45 and name in ("offset", "timestamp"):
            low, high = sorted((self._value(name), self._value(name)))
            arrow = (field >= _arrow(name, low)) & (field <= _arrow(name, high))
            text = f"({sql} between {_sql(name, low)} and {_sql(name, high)})"
            return Condition(arrow, text, column.is_between(_polars(name, low), _polars(name, high)))
        sign, value = self._random.choice(_COMPARISONS), self._value(name)
        arrow = _compared(field, sign, _arrow(name, value))
        return Condition(arrow, f"({sql} {sign} {_sql(name, value)})", _compared(column, sign, _polars(name, value)))

    def _value(self, name: str) -> Any:
        value = self._random.choice(self._values[name])
        if name == "topic":
            return value if self._random.random() < 0.8 else "no-such-topic"
        if name == "key":
            return b"absent" if value is None else value
        near = self._random.choice((0, 0, 0, 1, -1, self._random.randint(-500, 500)))
        return max(0, (0 if value is None else value) + near)


def _compared(left: Any, sign: str, right: Any) -> Any:
    compared = {
        "=": lambda: left == right,
        "<>": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }
    return compared[sign]()


def _arrow_type(name: str) -> pa.DataType:
    return {"offset": pa.int64(), "partition": pa.int32(), "timestamp": _MS, "topic": pa.string(), "key": pa.binary()}[
        name
    ]


def _arrow(name: str, value: Any) -> pa.Scalar:
    return pa.scalar(value, _TYPES[name])


def _sql(name: str, value: Any) -> str:
    if name == "topic":
        return f"'{value}'"
    if name == "key":
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::blob"
    return f"make_timestamptz({value * 1000})" if name == "timestamp" else str(value)


def _polars(name: str, value: Any) -> Any:
    return _EPOCH + timedelta(milliseconds=value) if name == "timestamp" else value


# --- answers --------------------------------------------------------------------------------------------------


def answer(engine: str, table: Any, condition: Condition) -> list[tuple[Any, ...]]:
    """Returns the rows (partition, offset, key) that an engine finds in a table of seglog's or of Arrow's."""
    names = ["topic", "partition", "offset", "key"]
    if engine == "pyarrow":
        found = (
            table.to_table(columns=names, filter=condition.arrow)
            if hasattr(table, "to_table")
            else table.filter(condition.arrow).select(names)
        )
        rows = [tuple(row.values()) for row in found.to_pylist()]
    elif engine == "duckdb":
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("t", table)
            rows = connection.execute(f'select topic, partition, "offset", key from t where {condition.sql}').fetchall()
    elif engine == "datafusion":
        rows = [tuple(row.values()) for row in _rows_of_datafusion(table, names, condition.sql)]
    else:
        frame = table.to_polars() if hasattr(table, "to_polars") else pl.from_arrow(table).lazy()
        rows = (
            frame.filter(condition.polars)
            .select(pl.col("topic").cast(pl.String), "partition", "offset", "key")
            .collect()
            .rows()
        )
    return sorted(rows, key=lambda row: (row[0], row[1], row[2], row[3] or b""))


def _rows_of_datafusion(table: Any, names: list[str], condition: str) -> list[dict[str, Any]]:
    import datafusion

    context = datafusion.SessionContext()
    if hasattr(table, "get_fragments"):
        context.register_dataset("t", table)
    else:
        context.from_arrow(table, "t")
    condition = re.sub(r"'([^']*)'::blob", lambda text: "x'" + text[1].replace("\\x", "") + "'", condition)
    condition = re.sub(
        r"make_timestamptz\((-?\d+)\)",
        lambda text: f"arrow_cast({int(text[1]) // 1000}, 'Timestamp(Millisecond, Some(\"UTC\"))')",
        condition,
    )
    columns = ", ".join(f'"{name}"' for name in names)
    return context.sql(f"select {columns} from t where {condition}").to_arrow_table().to_pylist()


def wrong_answers(
    path: Path | str, seed: int, count: int, engines: tuple[str, ...] = ENGINES, **how: Any
) -> Iterator[str]:
    """Yields the filters for which an engine finds other rows in the open table than in the table in memory."""
    table = seglog.open_table(path, columns=COLUMNS, **how)
    try:
        whole = table.to_table()
    except seglog.SeglogError:
        table = seglog.open_table(path, columns=COLUMNS, on_corrupt="skip", **how)
        whole = table.to_table()
    filters = Filters(whole, seed)
    for _ in range(count):
        condition = filters.condition()
        for engine in engines:
            found, right = answer(engine, table, condition), answer(engine, whole, condition)
            if found != right:
                yield f"{engine}: {path}: {condition.sql}: {len(found)} rows instead of {len(right)}"


# --- shapes ---------------------------------------------------------------------------------------------------


def shapes(home: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields logs of every shape below `home`, and how to open them: magics, codecs, transactions, gaps, compaction,
    damage that is skipped, whole log directories.
    """
    for name in ("4.3.0/clean", "4.3.0/killed", "4.3.0/generated", "0.10.2", "0.8.2"):
        directory = fixtures.fixture_copy(name, home / name.replace("/", "-"))
        for partition in fixtures.expected_partitions(name, "list"):
            yield directory / partition, {}
            if "payments" in partition or "txn" in partition:
                yield directory / partition, {"isolation": "read_committed"}
    clean = fixtures.fixture_copy("4.3.0/clean", home / "whole")
    yield clean, {}
    damaged = fixtures.fixture_copy("4.3.0/clean", home / "damaged")
    chance = random.Random(5)
    for log in sorted(damaged.glob("*-0/*.log")):
        data = bytearray(log.read_bytes())
        for _ in range(3 if len(data) > 200 else 0):
            data[chance.randrange(len(data))] ^= 0xFF
        if len(data) > 8000:
            data[4000:4000] = data[1000:5000]  # a block that was written twice
        log.write_bytes(data)
    for partition in sorted(path for path in damaged.iterdir() if path.is_dir()):
        if any(partition.glob("*.log")):
            yield partition, {}


@contextmanager
def far_shapes(home: Path) -> Iterator[list[tuple[Path | str, dict[str, Any]]]]:
    """Partitions in tiered storage, whole and joined with what a broker's disk still has, in three layouts, and log
    directories in an object store, which lasts as long as the `with`.
    """
    key = home / "key.pem"
    key.write_bytes(private_pem())
    found: list[tuple[Path | str, dict[str, Any]]] = []
    clean = fixtures.fixture_copy("4.3.0/clean", home / "near")
    for partition in sorted(path for path in clean.iterdir() if len(list(path.glob("*.log"))) > 1):
        topic, _, number = partition.name.rpartition("-")
        if topic.startswith("__"):
            continue
        whole, closed = tier_segments(partition, active=True), tier_segments(partition)
        keys = {"tier_keys": {KEY_ID: key}}
        found.append((write_aiven(home / "sealed", topic, int(number), whole, SEALED), keys))
        found.append((write_aiven(home / "plain", topic, int(number), whole), {}))
        found.append((write_local_tiered(home / "joined", topic, int(number), closed), {"local": clean}))
        if "payments" in topic:
            found.append((home / "plain" / f"{topic}-{TOPIC_ID}" / number, {"isolation": "read_committed"}))
    with object_server() as server, environment(server.environment):
        for path in sorted(path for path in clean.rglob("*") if path.is_file()):
            server.objects[f"bkt/{path.relative_to(home)}"] = path.read_bytes()
        logs = sorted({key.rsplit("/", 1)[0] for key in server.objects if key.endswith(".log")})
        stores = {"fs": RemoteFileSystem()}  # the process's own may know an earlier server
        found += [(f"s3://{directory}", stores) for directory in logs if "__cluster_metadata" not in directory]
        yield found


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The process has these variables while the `with` lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main() -> None:
    wanted = int(sys.argv[1])
    pruning.PIECE_BYTES = SMALL_PIECE
    with tempfile.TemporaryDirectory() as name, far_shapes(Path(name)) as far:
        (Path(name) / "logs").mkdir()
        all_shapes = [*shapes(Path(name) / "logs"), *far]
        each = -(-wanted // len(all_shapes))
        wrong = 0
        for seed, (path, how) in enumerate(all_shapes):
            for text in wrong_answers(path, seed, each, **how):
                wrong += 1
                sys.stdout.write(text + "\n")
        sys.stdout.write(
            f"{each * len(all_shapes)} filters for each engine over {len(all_shapes)} logs,"
            f" {len(far)} of them in tiers and object stores: {wrong} wrong\n"
        )


if __name__ == "__main__":
    main()
