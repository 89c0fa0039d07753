"""`seglog sql`: answers a query over logs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.escaping import json_text
from seglog.units import count_text
from seglog_cli.failures import UsageError
from seglog_cli.options import Replace, argument, command, flag, one_of, option, size_option
from seglog_cli.selecting import Isolation
from seglog_cli.session import Session
from seglog_cli.sourcing import OnCorrupt, source_of, tell_left_out
from seglog_cli.tables import Layout, table
from seglog_cli.tiering import Tiers
from seglog_cli.valuing import ShownAs, tell_values

if TYPE_CHECKING:
    from seglog_ask.operations.log_tables import LogTables
    from seglog_ask.table.engines.answers import Answer
    from seglog_ask.values.forms import Values

EXTENSIONS = (".parquet", ".csv", ".jsonl")
_ROWS = 1000  # at once; a terminal shows no more
_NULL = "NULL"


@command(urls=["paths"])
def run(
    session: Session,
    query: Annotated[str, argument("QUERY", "A query in DuckDB's SQL; - reads it from standard input.")],
    paths: Annotated[
        list[Path],
        argument("PATH", "Partition directories, LOGDIR/TOPIC, .log files, or log directories; URLs too."),
    ],
    as_csv: Annotated[bool, flag("--csv", "Write CSV.")] = False,
    output: Annotated[
        Path | None, option("--output -o", "FILE", "Write to this new file: .parquet, .csv or .jsonl.")
    ] = None,
    replace: Replace = False,
    isolation: Isolation = None,
    on_corrupt: OnCorrupt = "fail",
    memory: Annotated[
        int | None,
        size_option("--memory", "The memory for rows; more go to a temporary directory (default: 100 MB).", least=1),
    ] = None,
    *,
    shown_as: ShownAs,
    tiers: Tiers,
) -> int:
    """Answers a query over logs in SQL.

    Each topic is a table of its name, and `records` has the records of all. Their columns are topic, partition, offset,
    timestamp, key, value, headers, timestamp_type, producer_id, producer_epoch, sequence, leader_epoch, segment,
    position and timestamp_ms. Keys and values are text, with \\xNN for bytes that are not UTF-8; key_bytes and
    value_bytes have the bytes. In JSON values, value->>'name' takes a field. A name that is not a plain word of SQL is
    written "my-topic", and so is "offset", which is a reserved word.

    With --value-as (and --key-as), value is what the schema of each value makes of it. A topic's Avro or Protobuf has
    columns with types: value.city takes a field, and fields that a version of the schema lacks are null. JSON, and
    values in the table records of several topics, are text. value_schema has the schema's id, and value_error says why
    a value is not decoded, or not wholly: value, or a field of it, is then null, and value_bytes has its bytes. In text
    columns of registry, what has neither frame nor schema and is text stays text, with value_error. A column with types
    is null there, which is counted: decode(value_bytes) is that text.

    The other tables are batches, segments, findings (damage), partitions, groups (committed offsets), transactions,
    configs and tables, which SHOW TABLES shows. They hide topics of their names, and say so: records has those.

    A query reads only what the indexes leave of its conditions on topic, partition, offset, and lower bounds of
    timestamp. It changes no log, fetches nothing from a network and reads no other file. It needs the extra sql (pip
    install '.[sql]' in seglog's clone).

    The answer is a table, CSV (--csv: an unquoted empty field is null), or JSON lines (--json). On a terminal, cells
    that do not fit end with …, and columns that only * names may be left out, with a note. In all forms, decimal
    numbers have every digit (in JSON they are text), dates and times are those of ISO 8601, and NaN and infinity have
    their names. A timestamp beyond the years -260000 to 260000, which types of time do not hold, is the nearest one
    within, so that conditions find it, with a warning; timestamp_ms has the number itself. Damage ends a query with an
    error that names file, position and offsets.

    Examples:
      seglog sql 'select count(*), min(timestamp), max(timestamp) from clicks' clicks-0
      seglog sql "select key, max(\\"offset\\") from customers group by key order by 1 limit 5" customers-0
      seglog sql "select topic, partition, \\"offset\\" from records where key = 'customer-124'" --csv .
      seglog sql "select topic, sum(size) from segments group by topic order by 2 desc" .
      seglog sql "select key, value_error from customers where value is null" customers-0 --value-as json
      seglog sql "select * from payments where timestamp >= '2026-11-21'" payments-0 -o payments.parquet
    """
    from seglog_ask.operations.query import MEMORY_BYTES, answered

    form = _form(session, as_csv, output, replace)
    text, values = sys.stdin.read() if query == "-" else query, shown_as.values(session, paths)
    tables = _opened(session, paths, tiers, isolation, on_corrupt, values)
    limit = MEMORY_BYTES if memory is None else memory
    work = {"threads": session.begin_threads(), "memory_bytes": limit}
    with answered(text, tables, **work, to_store=form == "parquet") as answer:
        _show(session, answer, text, form, output, replace)
    for topic in sorted(tables.hidden):
        where = f"use records with topic = '{topic}'"
        session.console.warning(f"the topic {topic} is hidden by seglog's table of that name: {where}")
    tell_values(session, values)
    return tiers.code(tell_left_out(session, tables.source))


def _form(session: Session, as_csv: bool, output: Path | None, replace: bool) -> str:
    """Returns the form of the answer: table, csv, json or parquet."""
    if output is not None:
        if as_csv or session.as_json:
            raise UsageError("-o FILE: its extension says what is written; leave out --csv and --json")
        extension = one_of("-o, the extension of FILE", output.suffix, EXTENSIONS)
        return {".parquet": "parquet", ".csv": "csv", ".jsonl": "json"}[extension]
    if replace:
        raise UsageError("--replace is for a FILE (-o)")
    if as_csv and session.as_json:
        raise UsageError("--csv and --json are two forms of the answer: give one of them")
    return "csv" if as_csv else "json" if session.as_json else "table"


def _opened(
    session: Session, paths: list[Path], tiers: Tiers, isolation: str | None, on_corrupt: str, values: Values | None
) -> LogTables:
    """Returns the tables of the paths. What tells of more than records sees tiers as partition directories."""
    from seglog.scan.listing import resolve_paths
    from seglog_ask.operations.log_tables import LogTables

    source = source_of(session, paths, tiers, isolation or "read_uncommitted", on_corrupt)
    looking, shown = tiers.seen(session, paths)
    return LogTables(source, looking.workspace(), resolve_paths(looking.fs, shown), values)


# --- answers --------------------------------------------------------------------------------------------------


def _show(session: Session, answer: Answer, query: str, form: str, output: Path | None, replace: bool) -> None:
    """Writes an answer to standard output or to a file."""
    if output is None:
        if form == "table":
            _show_table(session, answer, query)
        else:
            for block in _FORMS[form](answer):
                session.console.write_exactly(block)
        return
    from seglog_ask.table.engines.export import FileSink

    with FileSink(session.fs, output, replace) as sink:
        if form == "parquet":
            from seglog_ask.table.engines.parquet import write_batches

            write_batches(answer.batches(), answer.schema, sink)
        else:
            for block in _FORMS[form](answer):
                sink.write(block)
    session.console.message(f"{count_text(answer.count, 'row')} written to {output}")


def _show_table(session: Session, answer: Answer, query: str) -> None:
    """Writes a table: of the first rows to a terminal, of all rows elsewhere (as wide as each thousand needs). The plan
    of a query is text.
    """
    console, rows = session.console, answer.rows()
    if answer.is_plan:
        for row in rows:
            console.lines(str(row[-1]).splitlines())
        return
    some = [[_cell(value) for value in row] for row in islice(rows, _ROWS)]
    layout = Layout(right=answer.right, yielding=_unnamed(answer.names, some, query), cut=True)
    shown = console.table(answer.names, some, layout)
    if console.screen is not None:
        if shown < len(answer.names):
            console.message(f"{shown} of {len(answer.names)} columns shown; --csv, --json and -o write all of them")
        if next(rows, None) is not None:
            console.message(f"the answer has more than {_ROWS} rows; --csv, --json and -o write all of them")
        return
    while some := [[_cell(value) for value in row] for row in islice(rows, _ROWS)]:
        console.lines(table(answer.names, some, layout)[1:])


def _unnamed(names: Sequence[str], rows: Sequence[Sequence[str]], query: str) -> list[int]:
    """Returns the columns that `*` has brought, as the query does not name them: the first to be left out comes first,
    those without a value before others.
    """
    words = set(re.findall(r"\w+", query.lower()))
    own = [re.sub(r"_\d+$", "", name) if name.lower() not in words else name for name in names]  # a_1: the second a
    unnamed = [i for i, name in enumerate(own) if re.fullmatch(r"\w+", name) and name.lower() not in words]
    return sorted(unnamed, key=lambda i: (any(row[i] != _NULL for row in rows), -i))


def _cell(value: Any) -> str:
    if value is None:
        return _NULL
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv(answer: Answer) -> Iterator[bytes]:
    from seglog_ask.table.engines.export import csv_cell

    def line(values: Iterable[Any]) -> str:
        return ",".join("" if value is None else csv_cell(_cell(value)) for value in values) + "\r\n"

    yield line(answer.names).encode()
    rows = answer.rows()
    while some := list(islice(rows, _ROWS)):
        yield "".join(map(line, some)).encode()


def _json(answer: Answer) -> Iterator[bytes]:
    rows = answer.rows()
    while some := list(islice(rows, _ROWS)):
        lines = (json_text(dict(zip(answer.names, row, strict=True))) for row in some)
        yield "".join(f"{line}\n" for line in lines).encode()


_FORMS: dict[str, Callable[[Answer], Iterator[bytes]]] = {"csv": _csv, "json": _json}
