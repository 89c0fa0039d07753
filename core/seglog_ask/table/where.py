"""The option `where`: a condition on topic, partition, offset and timestamp that also prunes files.

    offset >= 100 AND timestamp BETWEEN '2026-11-01' AND '2026-11-02' AND partition IN (0, 1) AND topic = 'orders'

It is SQL comparisons joined by AND; use a DataFrame's own filter for `<>`, OR and NOT. A timestamp is epoch
milliseconds, or RFC 3339 in quotes. A condition is a filter, not a bound: it may mention offsets that the log does not
hold. It keeps the rows that the DataFrame's own filter would keep: a record without a timestamp has -1, a millisecond
before 1970. Only beyond the years that columns have (TIMESTAMPS) they differ: a condition compares the log's numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NoReturn

from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog.units import parse_time

_TOKEN = re.compile(r"\s*(?:(<=|>=|<>|!=|[=<>(),])|'((?:[^']|'')*)'|(-?\d+)\b|([A-Za-z_]\w*))")
_BELOW_MILLISECONDS = re.compile(r"\.\d{3}\d*[1-9]")
_COLUMNS = ("topic", "partition", "offset", "timestamp")
_LEAST, _STOP = -INT64_MAX - 1, INT64_MAX + 1


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from `first` to `stop` (exclusive)."""

    first: int = _LEAST
    stop: int = _STOP

    def within(self, other: Range) -> Range:
        """Returns the intersection."""
        return Range(max(self.first, other.first), min(self.stop, other.stop))

    def __contains__(self, number: int) -> bool:
        return self.first <= number < self.stop


ALL = Range()
# The epoch milliseconds that columns of time have: from -260000-01-01 to +260000-01-01. Kafka's have 64 bits, and
# producers that send nanoseconds or Long.MAX_VALUE use them; engines have 64 bits of microseconds, to the year 294247,
# and fail near the ends of these (DuckDB's date_trunc from -290308 on), or sooner (Polars has the years to 262142).
TIMESTAMPS = Range(-8_266_974_739_200_000, 8_142_640_300_800_000 + 1)


@dataclass(frozen=True, slots=True)
class Where:
    """A condition. `topics` and `partitions` are sets, None for any; the others are ranges (timestamps in ms)."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition: Range = ALL
    offset: Range = ALL
    timestamp: Range = ALL

    def chooses(self, key: TopicPartition) -> bool:
        """True if records of this partition can meet it."""
        chosen = self.partitions is None or key.partition in self.partitions
        return chosen and key.partition in self.partition and (self.topics is None or key.topic in self.topics)


EVERYTHING = Where()


def parse_where(text: str) -> Where:
    """Parses a condition. ValueError gives the position of the error and what is legal there."""
    parser = _Parser(text)
    found = EVERYTHING
    while True:
        found = parser.comparison(found)
        if parser.ended:
            return found
        parser.take("AND")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0

    @property
    def ended(self) -> bool:
        return not self._text[self._place :].strip()

    def comparison(self, where: Where) -> Where:
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

    def _narrowed(self, where: Where, column: str, operator: str, first: int | str, last: int | str = "") -> Where:
        if isinstance(first, str):
            return self._chosen(where, column, [first]) if operator == "=" else self._fail("a topic is compared with =")
        wanted = {
            "=": Range(first, first + 1),
            "<": Range(stop=first),
            "<=": Range(stop=first + 1),
            ">": Range(first + 1),
            ">=": Range(first, last + 1 if isinstance(last, int) else _STOP),
        }[operator]
        if column == "partition":
            return replace(where, partition=where.partition.within(wanted))
        if column == "offset":
            return replace(where, offset=where.offset.within(wanted))
        return replace(where, timestamp=where.timestamp.within(wanted))

    def _chosen(self, where: Where, column: str, values: list[int | str]) -> Where:
        if column == "topic":
            topics = frozenset(map(str, values))
            return replace(where, topics=topics if where.topics is None else where.topics & topics)
        if column != "partition":
            self._fail(f"IN is for topic and partition; {column} takes =, <, <=, >, >= and BETWEEN")
        numbers = frozenset(value for value in values if isinstance(value, int))
        return replace(where, partitions=numbers if where.partitions is None else where.partitions & numbers)

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
        if len(text) > 20 or not _LEAST <= int(text) <= INT64_MAX:
            self._fail("that number does not fit 64 bits")
        return int(text)

    def _fail(self, why: str) -> NoReturn:
        raise ValueError(f"{self._text[:200]!r}, position {self._place}: {why}")
