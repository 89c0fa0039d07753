"""Puts decoded keys and values into rendered lines.

The kernel of `dump` writes the lines without what is decoded (as null), and the texts are put in its place. In JSON
that place cannot be mistaken for text, because quotes within texts are escaped; in lines of text it is the first one,
as only numbers come before it.

    JSON: "value":{…},"value_schema":ID       or  "value_b64":"…","value_schema":ID,"value_error":"…"
    text:  value={…} value_schema=ID           or  value_b64="…" value_schema=ID value_error="…"
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from uuid import UUID

from seglog.escaping import json_value
from seglog.format.columns import Records
from seglog.kernels import render
from seglog.values.forms import Decoded, TopicDecoder
from seglog.values.frames import SIDES, Side


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
    rows = decoder.of_records(records)
    columns = []
    for side in sides:
        place, ending = SIDES.index(side), "_b64" if decoder.form(side) == "base64" else ""
        number = decoder.sides.index(side) if side in decoder.sides else None
        columns.append(
            [
                _words(side, wanted[place], None if number is None else results[number], ending, as_json, as_base64)  # type: ignore[arg-type]
                for wanted, results in rows
            ]
        )
    return ("".join(parts).encode("utf-8", "backslashreplace") for parts in zip(*columns, strict=True))


def _words(side: Side, data: bytes | None, shown: Decoded | None, ending: str, as_json: bool, as_base64: bool) -> str:
    separator, equals = (',"', '":') if as_json else (" ", "=")
    if shown is not None and shown.json is not None and shown.schema.__class__ is int:  # nearly all, at best
        return f"{separator}{side}{equals}{shown.json}{separator}{side}_schema{equals}{shown.schema}"
    if data is None:
        return f"{separator}{side}{equals}null"
    if shown is None:
        text = None if as_base64 else _text_of(data)
        if text is not None:
            return f"{separator}{side}{equals}{text}"
        return f'{separator}{side}_b64{equals}"{_base64(data)}"'
    if shown.json is not None:
        words = f"{separator}{side}{ending}{equals}{shown.json}"
    else:
        words = f'{separator}{side}_b64{equals}"{_base64(data)}"'
    if shown.schema is not None:
        number = f'"{shown.schema}"' if isinstance(shown.schema, UUID) else str(shown.schema)
        words += f"{separator}{side}_schema{equals}{number}"
    if shown.error:
        words += f"{separator}{side}_error{equals}{json_value(shown.error)}"
    return words


def _text_of(data: bytes) -> str | None:
    try:
        return json_value(data.decode())
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
