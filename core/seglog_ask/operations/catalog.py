"""What a query asks about tables themselves: which there are, and names that an engine's own catalog would take.

The engine knows a table only once a query has missed it, so its catalog would say that there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from seglog.errors import ConfigError

TABLES, STANDARD = "tables", "information_schema_tables"  # those of LogTables that tell of tables
_LISTS = {  # of an engine's tables and columns, which are not those of logs
    *("duckdb_tables", "duckdb_views", "duckdb_columns", "duckdb_schemas", "sqlite_master", "sqlite_schema"),
    *("sqlite_temp_master", "sqlite_temp_schema", "pg_tables", "pg_views", "pg_class", "pg_attribute"),
}
_ALONE = ("show", "describe", "desc")


class Word(NamedTuple):
    """A word of a query: where it is in its UTF-8 bytes; its text, in lower case unless it is quoted; its kind, as
    DuckDB names it.
    """

    start: int
    end: int
    text: str
    kind: str


def words_of(query: str, tokens: Sequence[tuple[int, str]]) -> list[Word]:
    """Returns the words of a query without its comments. `tokens` has where each begins, and its kind."""
    data = query.encode()
    ends = [start for start, _ in tokens[1:]] + [len(data)]
    found = []
    for (start, kind), end in zip(tokens, ends, strict=False):
        text = data[start:end].decode(errors="replace").strip()
        if text.startswith('"'):
            text = text[1:-1].replace('""', '"')
        elif kind in ("identifier", "keyword"):
            text = text.lower()
        if kind != "comment":
            found.append(Word(start, start + len(data[start:end].rstrip()), text, kind))
    return found


def with_tables(query: str, words: Sequence[Word], topics: Collection[str]) -> str:
    """Returns a query in which tables of `LogTables` stand for SHOW TABLES and information_schema.tables.

    Raises ConfigError for other lists of an engine's tables, unless a topic has the name.
    """
    data, at, parts = query.encode(), 0, []
    for begin, last, text in _replaced(words):
        parts += [data[at : words[begin].start], text.encode()]
        at = words[last].end
    for before, word in zip([None, *words], words, strict=False):
        of_standard = before is not None and before.text == "." and word.kind in ("identifier", "keyword")
        if word.kind == "identifier" and word.text in _LISTS and word.text not in topics and not of_standard:
            raise ConfigError(_nothing(word.text))
    for first, second, third in zip(words, words[1:], words[2:], strict=False):
        if first.text in ("information_schema", "pg_catalog") and second.text == "." and third.text != "tables":
            raise ConfigError(_nothing(f"{first.text}.{third.text}"))
    return b"".join([*parts, data[at:]]).decode()


def _nothing(name: str) -> str:
    return f"{name} says nothing about logs: SHOW TABLES lists their tables, DESCRIBE a table's columns"


def _replaced(words: Sequence[Word]) -> Iterator[tuple[int, int, str]]:
    """Yields runs of words, by their first and last one, and the text that stands for them."""
    texts = [word.text for word in words]
    rest = [text for text in texts if text != ";"]
    if len(rest) == 1 and rest[0] in _ALONE:
        yield 0, 0, f"select * from {TABLES}"
        return
    for i in range(len(texts)):
        for pattern, text in _PATTERNS:
            end = i + len(pattern)
            of_schema = pattern[0] == "show" and texts[end : end + 1] in (["from"], ["in"])
            if tuple(texts[i:end]) == pattern and not of_schema:
                yield i, end - 1, text


_PATTERNS = (
    (("show", "tables"), f"select name from {TABLES}"),
    (("show", "all", "tables"), f"select * from {TABLES}"),
    (("information_schema", ".", "tables"), STANDARD),
)
