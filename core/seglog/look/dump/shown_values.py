"""Puts decoded keys and values into rendered lines.

The kernel of `dump` writes the lines without what is decoded (as null), and the texts are put in its place. In JSON
that place cannot be mistaken for text, because quotes within texts are escaped; in lines of text it is the first one,
as only numbers come before it.

    JSON: "value":{…},"value_schema":ID       or  "value_b64":"…","value_schema":ID,"value_error":"…"
    text:  value={…} value_schema=ID           or  value_b64="…" value_schema=ID value_error="…"

What is decoded in part has both a value and its bytes; bytes without a schema that are text have a value and an error.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING
from uuid import UUID

from seglog.escaping import json_value
from seglog.format.columns import SIDES, Records, Side
from seglog.kernels import render

if TYPE_CHECKING:
    from seglog_ask.values.forms import Column, TopicDecoder


def with_values(
    records: Records,
    decoder: TopicDecoder,
    *,
    as_json: bool,
    base64: bool = False,
    lines: Callable[[Records], Iterator[memoryview]],
) -> Iterator[memoryview]:
    """Yields the blocks that `lines` makes of records, with the keys and values as `decoder` shows them.

    `lines` must make a line for each of the records. `base64`: what is not decoded is in base64.
    """
    if not len(records):
        yield from lines(records)
        return
    sides = decoder.sides if as_json else SIDES  # what the kernel leaves out
    bare = records.rows.copy()
    for side in sides:
        bare[f"{side}_size"] = -1
    texts = _texts(records, decoder, sides, as_json, base64)
    data = b"".join(map(bytes, lines(replace(records, rows=bare))))
    pattern, end = _place(sides, as_json)
    pieces = data.split(pattern) if as_json else _cut_lines(data, pattern)
    words = (text + end for text in texts)
    yield memoryview(b"".join(chain((pieces[0],), *zip(words, pieces[1:], strict=True))))


def _place(sides: Sequence[Side], as_json: bool) -> tuple[bytes, bytes]:
    """Returns what the texts replace, and its end, which stays."""
    words = [word.encode() for word in (render.JSON_WORDS if as_json else render.TEXT_WORDS)]
    nulls = {"key": words[render.KEY + render.AS_NULL], "value": words[render.VALUE + render.AS_NULL]}
    end = words[render.HEADERS] if "value" in sides else b',"value'  # or value_b64
    return b"".join(nulls[side] for side in sides) + end, end


def _cut_lines(data: bytes, pattern: bytes) -> list[bytes]:
    """Cuts data at the first pattern of each line that has one."""
    pieces, rest = [], b""
    for line in data.splitlines(keepends=True):
        before, mark, after = line.partition(pattern)
        if mark:
            pieces.append(rest + before)
            rest = after
        else:
            rest += line
    return [*pieces, rest]


def _texts(
    records: Records, decoder: TopicDecoder, sides: Sequence[Side], as_json: bool, as_base64: bool
) -> Iterator[bytes]:
    """Yields what is written of the sides of each record."""
    words = [
        _words(side, column, decoder.form(side), as_json, as_base64)
        for side, column in zip(sides, decoder.shown(records, sides), strict=True)
    ]
    parts = words[0] if len(words) == 1 else map("".join, zip(*words, strict=True))
    return (text.encode("utf-8", "backslashreplace") for text in parts)


def _words(side: Side, column: Column, form: str, as_json: bool, as_base64: bool) -> Iterator[str]:
    separator, equals = (',"', '":') if as_json else (" ", "=")
    named = f"{separator}{side}{equals}"
    as_bytes, of_schema, of_error = (f"{separator}{side}_{what}{equals}" for what in ("b64", "schema", "error"))
    decoded = as_bytes if form == "base64" else named
    places, errors = range(len(column.data)), column.errors
    for place, data, text, schema in zip(places, column.data, column.texts, column.schemas, strict=True):
        if text is not None and schema.__class__ is int and not errors:  # nearly all, at best
            yield f"{decoded}{text}{of_schema}{schema}"
            continue
        if text is not None and place not in errors:
            words = f"{decoded}{text}"
        elif text is not None and (place in column.partial or not as_base64):
            words = f"{decoded}{text}"
            words += f'{as_bytes}"{_base64(data)}"' if data is not None and place in column.partial else ""
        elif data is None:
            words = f"{named}null"
        elif place in errors:
            words = f'{as_bytes}"{_base64(data)}"'
        else:
            plain = None if as_base64 else _text_of(data)
            words = f'{as_bytes}"{_base64(data)}"' if plain is None else f"{named}{plain}"
        if schema is not None:
            words += f'{of_schema}"{schema}"' if isinstance(schema, UUID) else f"{of_schema}{schema}"
        if place in errors:
            words += f"{of_error}{json_value(errors[place])}"
        yield words


def _text_of(data: bytes) -> str | None:
    try:
        return json_value(data.decode())
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
