"""Columns of decoded keys and values: what they are, the schema of each, and why one is not decoded (`values`).

`value` has the type of its schemas (`typed`) where there is one; else it is JSON, or the characters of a string. It is
null where a value does not decode: then `value_error` says why, and `value_bytes` has its bytes. The same for keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from seglog.escaping import plain_text
from seglog.format.columns import SIDES, Side
from seglog_ask.table.values.columns import Output, Part, readable_text
from seglog_ask.table.values.typed import Shown, TypedColumn
from seglog_ask.values.forms import Column, Values


def valued_outputs(
    outputs: Sequence[Output], values: Values, typed: Mapping[Side, TypedColumn] | None = None
) -> tuple[Output, ...]:
    """Returns columns with decoded keys and values in place of `key` and `value`, and those that tell of them.

    A side in `typed` has a column of types, others have text.
    """
    texts = _Texts(values)
    columns: list[Output] = []
    names = {output.field.name for output in outputs}
    for output in outputs:
        side = next((side for side in SIDES if side == output.field.name), None)
        if side is None or values.forms.of(side) == "auto":
            columns.append(output)
            continue
        column = None if typed is None else typed.get(side)
        once = _Once(partial(texts.of, side) if column is None else column.of)
        kinds: dict[str, pa.DataType] = {side: pa.string() if column is None else column.type}
        kinds |= {f"{side}_schema": pa.string(), f"{side}_error": pa.string(), f"{side}_bytes": pa.binary()}
        for i, (name, kind) in enumerate(kinds.items()):
            if name == side or name not in names:
                columns.append(Output(pa.field(name, kind), partial(once.column, i)))
    return tuple(columns)


class _Once:
    """The columns that `make` gives for a part, made once; those of rows chosen from it are taken from them."""

    def __init__(self, make: Callable[[Part], Shown]) -> None:
        self._make = make
        self._last: tuple[Part, Shown] | None = None  # scans in several threads replace it as a whole

    def column(self, number: int, part: Part) -> pa.Array:
        """Returns one of the columns of a part."""
        last = self._last
        if last is None or last[0] is not part:
            if last is not None and last[0] is part.whole:
                rows = pa.array(part.taken)
                shown = Shown(*(array.take(rows) for array in last[1]))
            else:
                shown = self._make(part)
            last = self._last = part, shown
        return last[1][number]


class _Texts:
    """Decodes keys and values to texts."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._last: tuple[Part, dict[Side, Column]] | None = None  # of both sides; as that of `_Once`

    def of(self, side: Side, part: Part) -> Shown:
        """Returns the columns of a side."""
        column = self._of(part).get(side)
        if column is None:  # of a topic that is shown as it is
            nothing = pa.nulls(len(part), pa.string())
            return Shown(readable_text(part.spans(side)), nothing, nothing, pa.nulls(len(part), pa.binary()))
        texts = [None if text is None else plain_text(text) for text in column.texts]
        for place, data in enumerate(column.data):
            if texts[place] is None and data is not None and place not in column.errors:
                texts[place] = data.decode("utf-8", "backslashreplace")
        schemas = [None if schema is None else str(schema) for schema in column.schemas]
        errors = [column.errors.get(place) for place in range(len(part))]
        undecoded = [data if place in column.errors else None for place, data in enumerate(column.data)]
        return Shown(
            pa.array(texts, pa.string()),
            pa.array(schemas, pa.string()),
            pa.array(errors, pa.string()),
            pa.array(undecoded, pa.binary()),
        )

    def _of(self, part: Part) -> dict[Side, Column]:
        last = self._last
        if last is None or last[0] is not part:
            decoder = self._values.of_topic(part.place.topic)
            last = self._last = part, {} if decoder is None else decoder.columns(part.records)
        return last[1]
