"""Columns of decoded keys and values: what they are, the schema of each, and why one is not decoded (`seglog.values`).

`value` has the type of its schemas (`typed`) where there is one; else it is JSON, or the characters of a string. It is
null where a value does not decode: then `value_error` says why, and `value_bytes` has its bytes. The same for keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from seglog.table.columns import Output, Part, readable_text
from seglog.table.typed import Shown, TypedColumn
from seglog.values.forms import Column, Values, plain_text
from seglog.values.frames import SIDES, Side


def valued_outputs(
    outputs: Sequence[Output], values: Values, typed: Mapping[Side, TypedColumn] | None = None
) -> tuple[Output, ...]:
    """Returns columns with decoded keys and values in place of `key` and `value`, and those that tell of them.

    A side in `typed` has a column of types, others have text.
    """
    texts = _Decoding(values)
    columns: list[Output] = []
    names = {output.field.name for output in outputs}
    for output in outputs:
        side = next((side for side in SIDES if side == output.field.name), None)
        if side is None or values.forms.of(side) == "auto":
            columns.append(output)
            continue
        column = None if typed is None else typed.get(side)
        decoding = texts if column is None else _TypedDecoding(column)
        kind = pa.string() if column is None else column.type
        columns.append(replace(output, field=pa.field(side, kind), make=partial(decoding.shown, side)))
        for what, make in (("schema", decoding.schemas), ("error", decoding.errors)):
            columns.append(Output(pa.field(f"{side}_{what}", pa.string()), partial(make, side)))
        if f"{side}_bytes" not in names:
            columns.append(Output(pa.field(f"{side}_bytes", pa.binary()), partial(decoding.undecoded, side)))
    return tuple(columns)


class _Decoding:
    """Decodes a part once for all of its columns."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._last: tuple[Part, dict[Side, Column]] | None = None  # scans in several threads replace it as a whole

    def shown(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of texts."""
        column = self._of(part).get(side)
        if column is None:  # of a topic that is shown as it is
            return readable_text(part.spans(side))
        texts = [None if text is None else plain_text(text) for text in column.texts]
        for place, data in enumerate(column.data):
            if texts[place] is None and data is not None and place not in column.errors:
                texts[place] = data.decode("utf-8", "backslashreplace")
        return pa.array(texts, pa.string())

    def schemas(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of schemas' ids."""
        column = self._of(part).get(side)
        if column is None:
            return pa.nulls(len(part), pa.string())
        return pa.array([None if schema is None else str(schema) for schema in column.schemas], pa.string())

    def errors(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of reasons."""
        column = self._of(part).get(side)
        if column is None or not column.errors:
            return pa.nulls(len(part), pa.string())
        return pa.array([column.errors.get(place) for place in range(len(part))], pa.string())

    def undecoded(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of the bytes of what is not decoded."""
        column = self._of(part).get(side)
        if column is None or not column.errors:
            return pa.nulls(len(part), pa.binary())
        return pa.array([data if i in column.errors else None for i, data in enumerate(column.data)], pa.binary())

    def _of(self, part: Part) -> dict[Side, Column]:
        last = self._last
        if last is not None and last[0] is part:
            return last[1]
        decoder = self._values.of_topic(part.place.topic)
        columns = {} if decoder is None else decoder.columns(part.records)
        self._last = part, columns
        return columns


class _TypedDecoding:
    """Decodes a part once for all columns of a side."""

    def __init__(self, column: TypedColumn) -> None:
        self._column = column
        self._last: tuple[Part, Shown] | None = None  # scans in several threads replace it as a whole

    def shown(self, _side: Side, part: Part) -> pa.Array:
        """Makes the column of values."""
        return self._of(part).values

    def schemas(self, _side: Side, part: Part) -> pa.Array:
        """Makes the column of schemas' ids."""
        return self._of(part).schemas

    def errors(self, _side: Side, part: Part) -> pa.Array:
        """Makes the column of reasons."""
        return self._of(part).errors

    def undecoded(self, _side: Side, part: Part) -> pa.Array:
        """Makes the column of the bytes of what is not decoded."""
        return self._of(part).undecoded

    def _of(self, part: Part) -> Shown:
        last = self._last
        if last is None or last[0] is not part:
            last = self._last = part, self._column.of(part)
        return last[1]
