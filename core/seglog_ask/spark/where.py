"""The option `where`: a condition on topic, partition, offset and timestamp that also prunes files.

    offset >= 100 AND timestamp BETWEEN '2026-11-01' AND '2026-11-02' AND partition IN (0, 1) AND topic = 'orders'

It is SQL comparisons joined by AND; use a DataFrame's own filter for `<>`, OR and NOT. A timestamp is epoch
milliseconds, or RFC 3339 in quotes. A condition is a filter, not a bound: it may mention offsets that the log does not
hold. It keeps the rows that the DataFrame's own filter would keep: a record without a timestamp has -1, a millisecond
before 1970. Only beyond the years that columns have (`columns.TIMESTAMPS`) they differ: a condition compares the log's
numbers.
"""

from __future__ import annotations

import re
from typing import NoReturn

from seglog.layout import INT32_MAX, INT64_MAX
from seglog.scan.selection import EVERYTHING, Selection
from seglog.units import parse_time

_TOKEN = re.compile(r"\s*(?:(<=|>=|<>|!=|[=<>(),])|'((?:[^']|'')*)'|(-?\d+)\b|([A-Za-z_]\w*))")
_BELOW_MILLISECONDS = re.compile(r"\.\d{3}\d*[1-9]")
_COLUMNS = ("topic", "partition", "offset", "timestamp")


def parse_where(text: str) -> Selection:
    """Parses a condition. ValueError gives the position of the error and what is legal there."""
    parser = _Parser(text)
    where = EVERYTHING
    while True:
        where = parser.comparison(where)
        if parser.ended:
            return where
        parser.take("AND")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0

    @property
    def ended(self) -> bool:
        return not self._text[self._place :].strip()

    def comparison(self, where: Selection) -> Selection:
        column = str(self._next("word")).lower()
        if column not in _COLUMNS:
            self._fail(f"there is no column {column!r}; columns are {', '.join(_COLUMNS)}")
        operator = str(self._next("operator", "word")).upper()
        if operator == "BETWEEN":
            first = self._literal(column)
            self.take("AND")
            return self._narrowed(where, column, ">=", first, self._literal(column))
        if operator == "IN":
            return self._chosen(where, column, self._list(column))
        if operator not in ("=", "<", "<=", ">", ">="):
            self._fail(f"{operator} is not one of =, <, <=, >, >=, BETWEEN and IN")
        return self._narrowed(where, column, operator, self._literal(column))

    def take(self, word: str) -> None:
        """Consumes this word. Raises ValueError if another one follows."""
        if str(self._next("operator", "word")).upper() != word:
            self._fail(f"{word} was expected")

    def _list(self, column: str) -> list[int | str]:
        self.take("(")
        found = [self._literal(column)]
        while (mark := self._next("operator")) == ",":
            found.append(self._literal(column))
        if mark != ")":
            self._fail(") was expected")
        return found

    def _narrowed(
        self, where: Selection, column: str, operator: str, first: int | str, last: int | str = ""
    ) -> Selection:
        if isinstance(first, str):
            return self._chosen(where, column, [first]) if operator == "=" else self._fail("a topic is compared with =")
        begin = {"<": None, "<=": None, ">": first + 1}.get(operator, first)
        end = {"=": first + 1, "<": first, "<=": first + 1}.get(operator)
        end = last + 1 if isinstance(last, int) else end
        if column == "partition":
            stop = INT32_MAX + 1 if end is None else end
            return where.within(Selection(partitions=range(max(begin or 0, 0), stop)))
        if column == "offset":
            return where.within(Selection(first_offset=begin, end_offset=end))
        return where.within(Selection(first_timestamp=begin, end_timestamp=end))

    def _chosen(self, where: Selection, column: str, values: list[int | str]) -> Selection:
        if column == "topic":
            return where.within(Selection(topics=frozenset(map(str, values))))
        if column != "partition":
            self._fail(f"IN is for topic and partition; {column} takes =, <, <=, >, >= and BETWEEN")
        return where.within(Selection(partitions=frozenset(value for value in values if isinstance(value, int))))

    def _literal(self, column: str) -> int | str:
        value = self._next("text", "number")
        if column == "topic":
            return value if isinstance(value, str) else self._fail("a topic is text, in single quotes")
        if column == "timestamp" and isinstance(value, str):
            if _BELOW_MILLISECONDS.search(value):
                self._fail("a record's timestamp has milliseconds, and nothing below")
            try:
                return parse_time(value)
            except ValueError as error:
                self._fail(str(error))
        return value if isinstance(value, int) else self._fail(f"{column} is a number")

    def _next(self, *kinds: str) -> int | str:
        found = _TOKEN.match(self._text, self._place)
        operator, text, number, word = found.groups() if found is not None else (None,) * 4
        for kind, value in (("operator", operator), ("text", text), ("number", number), ("word", word)):
            if found is not None and value is not None and kind in kinds:
                self._place = found.end()
                return self._number(value) if kind == "number" else value.replace("''", "'")
        return self._fail(f"{' or '.join(kinds)} was expected")

    def _number(self, text: str) -> int:
        if len(text) > 20 or not -INT64_MAX - 1 <= int(text) <= INT64_MAX:
            self._fail("that number does not fit 64 bits")
        return int(text)

    def _fail(self, why: str) -> NoReturn:
        raise ValueError(f"{self._text[:200]!r}, position {self._place}: {why}")
