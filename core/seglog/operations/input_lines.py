"""Reads records from text: lines, or the JSON lines that `dump` and `read` write.

1. Chunks of bytes arrive (None: nothing arrived for a while). Whole lines are parsed, the rest waits.
2. `LineFormat` cuts a block of lines into columns as a whole, also at a key separator.
3. `JsonLineFormat` reads one object a line. It skips lines of another type (`batch`, `summary`, …), and the records of
   a control batch: markers belong to transactions and are never appended as records.
4. An invalid line is an InputError with its number, raised after the records before it.

Kafka: LineMessageReader of kafka-console-producer.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from seglog import layout
from seglog.errors import InputError
from seglog.format.builder import columns_of, columns_of_arrays
from seglog.format.columns import Records
from seglog.model import Header, Record

LONGEST_LINE_BYTES = 128 << 20

_NEWLINE = 10
_CARRIAGE_RETURN = 13
_INT64 = (-layout.INT64_MAX - 1, layout.INT64_MAX)


class Format(Protocol):
    """Turns a block of whole lines into columns."""

    def records(self, block: bytes, first_line: int) -> Records:
        """Parses a block that ends with a newline; its first line is number `first_line` of the input.

        Raises BadLineError with the records before the bad line.
        """
        ...


class BadLineError(Exception):
    """Line `line` of the input is invalid; `before` are the records before it in its block."""

    def __init__(self, line: int, reason: str, before: Records) -> None:
        super().__init__(reason)
        self.line, self.reason, self.before = line, reason, before


def read_records(chunks: Iterable[bytes | None], form: Format, source: str) -> Iterator[Records | None]:
    """Yields the records in `chunks`, and None for a chunk of None. `source` names the input in errors.

    Raises InputError for an invalid line, or one longer than LONGEST_LINE_BYTES.
    """
    waiting, line = bytearray(), 1
    for chunk in chunks:
        if chunk is None:
            yield None
            continue
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            waiting += chunk
            if len(waiting) > LONGEST_LINE_BYTES:
                raise InputError(source, line, f"the line is longer than {LONGEST_LINE_BYTES} bytes")
            continue
        block = bytes(waiting) + chunk[:end]
        waiting = bytearray(chunk[end:])
        yield from _parsed(form, block, line, source)
        line += block.count(b"\n")
    if waiting:
        yield from _parsed(form, bytes(waiting) + b"\n", line, source)


def _parsed(form: Format, block: bytes, line: int, source: str) -> Iterator[Records]:
    try:
        yield form.records(block, line)
    except BadLineError as error:
        yield error.before
        raise InputError(source, error.line, error.reason) from error


class LineFormat:
    """One record a line: the value, or key, separator and value. A line ends with a newline, or CR and newline."""

    def __init__(self, key_separator: str | None = None) -> None:
        """Splits keys from values at `key_separator`: at least one character, without a newline."""
        if key_separator is not None and (not key_separator or "\n" in key_separator):
            raise ValueError("a key separator has at least one character and no newline")
        self._separator = None if key_separator is None else key_separator.encode("utf-8", "surrogateescape")

    def records(self, block: bytes, first_line: int) -> Records:
        data = np.frombuffer(block, dtype=np.uint8)
        newlines = np.flatnonzero(data == _NEWLINE)
        starts = np.concatenate([[0], newlines[:-1] + 1])
        ends = newlines - ((newlines > starts) & (data[newlines - 1] == _CARRIAGE_RETURN))
        if self._separator is None:
            return _of_spans(data, starts, ends, None)
        found = np.append(self._separators(block, data), len(block))
        key_ends = found[np.searchsorted(found, starts)]
        missing = key_ends + len(self._separator) > ends
        if missing.any():
            bad = int(np.argmax(missing))
            before = _of_spans(data, starts[:bad], ends[:bad], key_ends[:bad], len(self._separator))
            separator = self._separator.decode("utf-8", "surrogateescape")
            raise BadLineError(first_line + bad, f"no key separator {separator!r}", before)
        return _of_spans(data, starts, ends, key_ends, len(self._separator))

    def _separators(self, block: bytes, data: np.ndarray) -> np.ndarray:
        assert self._separator is not None
        if len(self._separator) == 1:
            return np.flatnonzero(data == self._separator[0])
        places = [match.start() for match in re.finditer(re.escape(self._separator), block)]
        return np.array(places, dtype=np.int64)


def _of_spans(
    data: np.ndarray, starts: np.ndarray, ends: np.ndarray, key_ends: np.ndarray | None, separator_size: int = 0
) -> Records:
    """Returns records with keys and values in `data`; without `key_ends` keys are null."""
    count = len(starts)
    records = columns_of_arrays(data, np.zeros(count + 1, np.int64), np.full(count, -1, np.int64))
    rows = records.rows
    values = starts if key_ends is None else key_ends + separator_size
    rows["value_position"], rows["value_size"] = values, ends - values
    if key_ends is not None:
        rows["key_position"], rows["key_size"] = starts, key_ends - starts
    rows["position"], rows["size"] = starts, ends - starts
    return records


class JsonLineFormat:
    """One JSON object a line, as `dump --records --json` and `read --json` write records."""

    def __init__(self) -> None:
        self._in_control_batch = False

    def records(self, block: bytes, first_line: int) -> Records:
        found: list[Record] = []
        for number, line in enumerate(block.split(b"\n")[:-1], first_line):
            if not line or line.isspace():
                continue
            try:
                record = self._record(line)
            except (ValueError, RecursionError) as error:
                raise BadLineError(number, _reason(error), columns_of(found)) from error
            if record is not None:
                found.append(record)
        return columns_of(found)

    def _record(self, line: bytes) -> Record | None:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError("the line is not a JSON object")
        kind = entry.get("type", "record")
        if kind == "batch":
            self._in_control_batch = bool(entry.get("control"))
        if kind != "record" or self._in_control_batch:
            return None
        return Record(
            value=_bytes(entry, "value"),
            key=_bytes(entry, "key", absent_is_null=True),
            timestamp=_timestamp(entry.get("timestamp")),
            headers=_headers(entry.get("headers")),
        )


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"the line is not JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeError):
        return "the line holds text that is not Unicode"
    return "the line is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _bytes(entry: dict[str, Any], name: str, absent_is_null: bool = False) -> bytes | None:
    """Returns field `name` as text, or `name_b64` as base64; null is None."""
    encoded = entry.get(f"{name}_b64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_b64 is not text")
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{name}_b64 is not base64: {error}") from error
    if name not in entry and f"{name}_b64" not in entry and not absent_is_null:
        raise ValueError(f"the record has neither {name} nor {name}_b64")
    text = entry.get(name)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{name} is neither text nor null")
    return None if text is None else text.encode()


def _timestamp(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not _INT64[0] <= value <= _INT64[1]:
        raise ValueError("timestamp is not a number of milliseconds")
    return value if value != -1 else None


def _headers(value: object) -> tuple[Header, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("headers is not a list of objects")
    return tuple(_header(item) for item in value)


def _header(item: dict[str, Any]) -> Header:
    key = _bytes(item, "key")
    if key is None:
        raise ValueError("a header's key is null")
    return Header(key.decode("utf-8", "surrogateescape"), _bytes(item, "value"))
