"""Random queries over decoded tables, none of which may end as an internal error.

`python -m tests.support.random_queries [--count 5000] [--seed 1]` tries more than the tests do. A query applies
functions and operators, of all that DuckDB has, to columns of every type of Avro and Protobuf, and groups, sorts,
unnests, joins and nests the results; its answer is made in each form that `seglog sql` writes.
"""

from __future__ import annotations

import argparse
import io
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

import seglog
from seglog.errors import ConfigError, RefusedError, SeglogError
from seglog.operations.workspace import workspace_of
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog_ask.operations.log_tables import TABLES, LogTables
from seglog_ask.operations.query import answered
from seglog_ask.table.engines.opening import open_source
from seglog_ask.table.engines.parquet import write_batches
from seglog_ask.values.forms import Values
from seglog_ask.values.sources import forms_of
from seglog_cli.commands.sql import _csv, _json
from tests.support.random_values import ProtoValues, avro_kinds, avro_values, proto_text
from tests.support.schema_registry import framed, registered, write_log

FORMS = {"csv": _csv, "json": _json}
_RECORDS = 12
_SECONDS = 20  # of one query
_OF_A_SEED = 250  # queries over the same tables
# What waits, is made to fail, or makes rows without end.
_LEFT_OUT = ("sleep", "error", "range", "series", "repeat", "pad", "bitstring", "read_", "write_", "glob")
_WAYS = ("summarize {}", "describe {}", "explain {}", "from ({})", "explain analyze {}")
_OPERATORS = ("+", "-", "*", "/", "//", "%", "||", "=", "<", "is distinct from", "and", "&", "<<", "**")
_TYPES = (
    *("varchar", "blob", "bit", "hugeint", "uhugeint", "utinyint", "double", "float", "decimal(38,20)", "decimal(4,1)"),
    *("date", "time", "timetz", "timestamp", "timestamptz", "timestamp_s", "timestamp_ms", "timestamp_ns", "interval"),
    *("json", "uuid", "varchar[]", "int[2]", "map(varchar, varchar)", "struct(a int)", "union(n int, t varchar)"),
    *("variant", "bignum", "boolean", "enum('a', 'b')"),
)
_LITERALS = (
    *("null", "1", "-1", "0", "''", "'a'", "'1'", "1e308", "'nan'::double", "interval 1 month", "interval '1 s'"),
    *("170141183460469231731687303715884105727", "'infinity'::timestamp", "'-infinity'::date", "time '24:00:00'"),
    *("[1, null]", "{'a': 1, 'b': [interval 1 day]}", "map {'a': 1}", "map {[1]: interval 1 day}", "'\\x00'::blob"),
    *("'101'::bit", "timestamptz '12000-01-01'", "'294247-01-01'::timestamp", "timetz '10:00:00+15:59'", "x -> x"),
    *("'year'", "'epoch'", "union_value(n := 1)", "row(1, 'a')", "'{\"a\": [1]}'", "'{\"a\": [1]}'::json", "[]", "{}"),
    *("(select count(*) from {table})", "(values (1))", "columns(*)", "*", "array[1, 2]::int[2]", "uuid()", "x'ff'"),
)


def written(directory: Path, draw: random.Random) -> list[str]:
    """Writes topics of every type; returns their names."""
    schemas, topics = [], []
    for number, kind in enumerate(avro_kinds(), 1):
        schema, payloads = avro_values(kind, _RECORDS, draw)
        topic = kind.name.replace("-", "_") + "_t"
        schemas.append(registered(f"{topic}-value", 1, number, schema))
        write_log(directory / f"{topic}-0", [seglog.Record(framed(number, one), key=b"k") for one in payloads])
        topics.append(topic)
    maker = ProtoValues(draw)
    schemas.append(registered("proto_t-value", 1, 999, proto_text(), "PROTOBUF"))
    values = [framed(999, b"\0" + maker.value()) for _ in range(_RECORDS)]
    write_log(directory / "proto_t-0", [seglog.Record(one) for one in (*values, b"plain", b"\xff")])
    write_log(directory / "_schemas-0", schemas)
    return [*topics, "proto_t"]


class Queries:
    """Makes queries over some tables."""

    def __init__(self, directory: Path, topics: Sequence[str], draw: random.Random) -> None:
        self._draw, self._tables = draw, (*topics, *topics, *topics, *TABLES)
        with duckdb.connect() as connection:
            functions = connection.execute("select distinct function_name, function_type from duckdb_functions()")
            rows = [row for row in functions.fetchall() if not any(text in row[0] for text in _LEFT_OUT)]
        self._functions = [name for name, kind in rows if kind in ("scalar", "macro") and name[0].isalpha()]
        self._aggregates = [name for name, kind in rows if kind == "aggregate" and name[0].isalpha()]
        self._columns, self._empty = _columns(directory, self._tables), duckdb.connect()
        tables = opened(directory)
        for name in self._columns:
            self._empty.register(name, tables.named(name).schema.empty_table())

    def query(self) -> str:
        """Returns a query."""
        draw, table = self._draw, self._draw.choice(self._tables)
        source = table if draw.random() < 0.9 else f"(select * from {table} limit 3) natural join {table}"
        expressions = [self._expression(table, 3) for _ in range(draw.randrange(1, 4))]
        shape = draw.randrange(10)
        if shape < 4:
            return f"select {', '.join(expressions)} from {source} limit 20"
        if shape == 4:
            return f"select unnest({expressions[0]}), {expressions[-1]} from {source} limit 20"
        if shape == 5:
            of_group = self._aggregate(table)
            return f"select {expressions[0]} as g, {of_group} from {source} group by all order by all limit 20"
        if shape == 6:
            return f"select {self._aggregate(table)}, {self._aggregate(table)} from {source}"
        if shape == 7:
            window = f"over (partition by {expressions[0]} order by {expressions[-1]})"
            return f"select {self._aggregate(table)} {window} from {source} qualify true limit 20"
        if shape == 8:
            asked = f"select {', '.join(expressions)} from {source}"
            return draw.choice(_WAYS).format(asked)
        other = self._expression(table, 2)
        how = draw.choice(("union all", "union by name", "except", "intersect", "union"))
        return f"select {expressions[0]} as c from {source} {how} select {other} as c from {source} limit 20"

    def _expression(self, table: str, depth: int) -> str:
        """Returns an expression, most often one whose types fit."""
        for _ in range(12):
            text = self._any_expression(table, depth)
            if self._fits(f"select {text} from {table}"):
                return text
        return text

    def _fits(self, query: str) -> bool:
        try:
            self._empty.sql(query)
        except duckdb.Error:
            return False
        return True

    def _any_expression(self, table: str, depth: int) -> str:
        draw = self._draw
        kind = draw.randrange(12 if depth else 4)
        if kind < 3:
            return draw.choice(self._columns[table])
        if kind == 3:
            return draw.choice(_LITERALS).replace("{table}", table)
        within = [self._expression(table, depth - 1) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
        if kind < 7:
            return f"{draw.choice(self._functions)}({', '.join(within)})"
        if kind == 7:
            return f"({within[0]} {draw.choice(_OPERATORS)} {within[-1]})"
        if kind == 8:
            return f"try_cast({within[0]} as {draw.choice(_TYPES)})"
        if kind == 9:
            return f"{within[0]}::{draw.choice(_TYPES)}"
        pairs = ", ".join(f"'{chr(97 + i)}': {one}" for i, one in enumerate(within))
        return draw.choice((f"[{within[0]}]", f"{{{pairs}}}", f"map {{{within[0]}: {within[-1]}}}", f"{within[0]}[1]"))

    def _aggregate(self, table: str) -> str:
        draw = self._draw
        for _ in range(12):
            name = draw.choice((*self._aggregates, "list", "max", "min", "histogram", "first", "mode"))
            text = f"{name}({', '.join(self._expression(table, 1) for _ in range(draw.choice((1, 1, 1, 2))))})"
            if self._fits(f"select {text} from {table}"):
                break
        return text


def opened(directory: Path) -> LogTables:
    files = LocalFileSystem()
    values = Values(forms_of(files, "auto", "registry", beside=[directory]))
    return LogTables(open_source(files, [directory]), workspace_of({}), resolve_paths(files, [directory]), values)


def _columns(directory: Path, tables: Sequence[str]) -> dict[str, list[str]]:
    """Returns the columns of each table, and what is within them, as SQL writes it."""
    logs = opened(directory)

    def paths(name: str, kind: Any) -> Iterator[str]:
        yield name
        if hasattr(kind, "fields"):
            for field in kind.fields if kind.num_fields and str(kind).startswith("struct") else ():
                yield from paths(f'{name}."{field.name}"', field.type)

    return {
        table: [path for field in logs.named(table).schema for path in paths(f'"{field.name}"', field.type)]
        for table in dict.fromkeys(tables)
    }


def outcome(tables: LogTables, query: str, form: str) -> str:
    """Returns "answered" or "refused". Raises what `seglog sql` would call an internal error."""
    tables.source.failures.clear()
    try:
        with answered(query, tables, threads=1, to_store=form == "parquet") as answer:
            if form == "parquet":
                write_batches(answer.batches(), answer.schema, io.BytesIO())
            elif form in FORMS:
                for _ in FORMS[form](answer):
                    pass
            else:
                list(answer.rows())
    except (ConfigError, RefusedError, SeglogError):
        return "refused"
    return "answered"


def tried(count: int, seed: int, directory: Path) -> tuple[Counter[str], list[tuple[str, str, str]]]:
    """Tries so many queries; returns how many had which outcome, and of those with an error query, form and error."""
    draw = random.Random(seed)
    queries, counts, failures = Queries(directory, written(directory, draw), draw), Counter[str](), list[Any]()
    tables = opened(directory)
    for _ in range(count):
        query, form = queries.query(), draw.choice(("csv", "json", "table", "parquet", "parquet"))
        signal.alarm(_SECONDS)
        try:
            counts[outcome(tables, query, form)] += 1
        except KeyboardInterrupt:
            counts["too slow"] += 1
        except Exception as error:  # noqa: BLE001, what is looked for
            counts["failed"] += 1
            failures.append((query, form, f"{type(error).__name__}: {error}"))
        finally:
            signal.alarm(0)
    return counts, failures


def main() -> None:
    """Runs with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    total, has_failed = Counter[str](), False
    for seed in range(options.seed, options.seed + -(-options.count // _OF_A_SEED)):
        with tempfile.TemporaryDirectory(prefix="seglog-queries-") as name:
            counts, failures = tried(min(_OF_A_SEED, options.count - total.total()), seed, Path(name))
        for query, form, error in failures:
            sys.stdout.write(f"{form}: {query}\n    {error}\n")
        total, has_failed = total + counts, has_failed or bool(failures)
        sys.stdout.write(f"seed {seed}: {dict(counts)}; together {dict(total)}\n")
        sys.stdout.flush()
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
