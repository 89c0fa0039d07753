"""Answers SQL over logs with DuckDB (extra `sql`): nothing is fetched from a network, no file but the logs is read, and
nothing is written but rows that DuckDB spills, to a temporary directory.

A name in a query becomes a table when DuckDB misses it, so ten thousand topics cost as much as one.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import duckdb

from seglog.errors import ConfigError, RefusedError
from seglog_ask.operations.answer_types import TO_SHOW, TO_STORE, projection
from seglog_ask.operations.catalog import Word, with_tables, words_of
from seglog_ask.operations.log_tables import LogTables
from seglog_ask.operations.named_fields import named_fields
from seglog_ask.table.engines.answers import Answer

MEMORY_BYTES = 100_000_000

_MISSING = re.compile(r"Table with name (.*?) does not exist!", re.DOTALL)
_NO_SCHEMA = re.compile(r'Table with name "(.*?)" does not exist because', re.DOTALL)
_NEAR = re.compile(r'syntax error at or near "')
_BEFORE_TABLES = ("from", "join", ",")
_BARE_OFFSET = re.compile(r'(?<![\w".])offset(?![\w"])', re.IGNORECASE)
_READING = ("SELECT", "EXPLAIN")
_BEGINNINGS = ("pivot", "pivot_wider", "select", "from", "with", "(")
_PIVOTS = ("pivot", "pivot_wider")
_ROWS_AT_ONCE = 8192
# What DuckDB raises while a stream of its rows is read comes as an OSError of pyarrow's, with its text alone.
_OF_STREAM = re.compile(r"[A-Z][\w ]* Error: ")
_INTERRUPTED, _NO_MEMORY = "INTERRUPT Error: ", "Out of Memory Error: "
_FIXED = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
}


@contextmanager
def answered(
    query: str, tables: LogTables, *, threads: int, memory_bytes: int = MEMORY_BYTES, to_store: bool = False
) -> Iterator[Answer]:
    """Yields the answer to a query, which reads the logs while its rows are taken; `to_store`: in types of Parquet.

    DuckDB holds at most about `memory_bytes` of rows and spills the others. Raises ConfigError for a query that DuckDB
    does not accept, RefusedError if the memory does not suffice, and what reading the logs raises.
    """
    with tempfile.TemporaryDirectory(prefix="seglog-sql-") as spill, _explained(query, tables):
        limits = {
            "arrow_lossless_conversion": not to_store,
            "temp_directory": spill,
            "memory_limit": f"{memory_bytes}B",
            "threads": threads,
        }
        with closing(duckdb.connect(":memory:", config={**_FIXED, **limits})) as connection:
            connection.execute("set TimeZone = 'UTC'; set lock_configuration = true")
            words = words_of(query, [(start, kind.name) for start, kind in duckdb.tokenize(query)])
            is_plan = _statement(connection, query, words) == "EXPLAIN"
            asked = with_tables(query, words, tables.topics)
            fields = {} if tables.values is None else named_fields(connection, asked)
            named = partial(tables.named, fields=fields)
            _hide_own(connection, words, tables.topics, named)
            relation = _executed(connection, asked, named)
            other = projection(relation.columns, relation.types, TO_STORE if to_store else TO_SHOW)
            answered = relation if other is None else relation.project(other)
            yield Answer(answered.to_arrow_reader(_ROWS_AT_ONCE), is_plan=is_plan)


def _statement(connection: duckdb.DuckDBPyConnection, query: str, words: Sequence[Word]) -> str:
    """Returns what the query is, of _READING. Raises ConfigError for anything else.

    A pivot whose columns are values of the data is several statements for DuckDB: a type of them, a query, and its end.
    """
    statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise ConfigError(f"give one query, not {len(statements) or 'an empty text'}")
    kind = str(statements[0].type.name)
    if kind == "MULTI" and words[0].text in _BEGINNINGS and any(word.text in _PIVOTS for word in words):
        return "SELECT"
    if kind not in _READING:
        raise ConfigError(f"{kind} is not a query: logs are only read here")
    return kind


def _hide_own(
    connection: duckdb.DuckDBPyConnection, words: Sequence[Word], topics: Set[str], named: Callable[[str], Any]
) -> None:
    """Makes topics known whose names DuckDB's own views have: it would not miss them."""
    named_topics = {word.text for word in words if word.kind == "identifier"} & topics
    if named_topics:
        views = connection.execute("select distinct view_name from duckdb_views() where internal").fetchall()
        for topic in sorted(named_topics.intersection(name for (name,) in views)):
            connection.register(topic, named(topic))


def _executed(
    connection: duckdb.DuckDBPyConnection, query: str, named: Callable[[str], Any]
) -> duckdb.DuckDBPyConnection:
    """Executes a query; each table that DuckDB misses is looked up and made known to it."""
    known: set[str] = set()
    while True:
        try:
            return connection.sql(query)
        except duckdb.CatalogException as error:
            missing = _MISSING.search(str(error))
            if missing is None or missing[1] in known:
                raise
            connection.register(missing[1], named(missing[1]))
            known.add(missing[1])


@contextmanager
def _explained(query: str, tables: LogTables) -> Iterator[None]:
    """Turns DuckDB's errors into seglog's: what reading a log raised, or a sentence about the query."""
    try:
        yield
    except UnicodeDecodeError as error:  # DuckDB's sentence quotes bytes, which its Python package takes for text
        sentence = error.object.decode("utf-8", "backslashreplace")
        if not _OF_STREAM.match(sentence):
            raise
        raise ConfigError(_sentence(sentence, query, tables)) from error
    except (duckdb.Error, OSError) as error:
        if isinstance(error, OSError) and not _OF_STREAM.match(str(error)):
            raise
        if isinstance(error, duckdb.InterruptException) or str(error).startswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        if tables.source.failures:
            raise tables.source.failures[-1] from error
        if isinstance(error, duckdb.OutOfMemoryException) or str(error).startswith(_NO_MEMORY):
            raise RefusedError(f"the query needs more memory than it may take; {_first_line(error)}") from error
        raise ConfigError(_sentence(str(error), query, tables)) from error


def _sentence(text: str, query: str, tables: LogTables) -> str:
    shown = " ".join(text.partition("\n\nLINE ")[0].split()).partition(": ")[2] or text
    place = text.partition("\n\nLINE ")[2].partition("\n")[0]
    where = f" (line {place})" if place else ""
    if "syntax error" in text and _BARE_OFFSET.search(query):
        return f'offset is a reserved word of SQL: write "offset", or t.offset after FROM … t{where}'
    near = _NEAR.search(text)
    reserved = [topic for topic in tables.topics if near and topic.lower() in _after_from(query)]
    if reserved:
        return f'{reserved[0]} is a reserved word of SQL: write the topic as "{reserved[0]}"{where}'
    unquoted = _NO_SCHEMA.search(text)
    within = unquoted[1] if unquoted else query if "syntax error" in text else ""
    named = [topic for topic in tables.topics_within(within) if not topic.isidentifier()]
    if named and f'"{named[0]}"' not in query:
        return f'the topic {named[0]} is not a plain name of SQL: write it as "{named[0]}"{where}'
    if "Malformed JSON" in text:
        shown += "; try(value->>'name') is null where a value is not JSON"
    if "Cannot extract field" in text and tables.values is None:
        shown += (
            "; --value-as registry (or avro, protobuf) gives values the fields of their schemas, and value->>'name'"
        )
        shown += " takes a field of JSON"
    return shown + where


def _after_from(query: str) -> set[str]:
    """Returns the reserved words that stand where a table does."""
    words = words_of(query, [(start, kind.name) for start, kind in duckdb.tokenize(query)])
    pairs = pairwise(words)
    return {word.text for before, word in pairs if before.text in _BEFORE_TABLES and word.kind == "keyword"}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
