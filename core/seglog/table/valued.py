"""Columns of decoded keys and values: text, the schema of each, and why one is not decoded (`seglog.values`).

`value` is JSON, or the characters of a string; null where a value does not decode. Then `value_error` says why, and
`value_bytes` has its bytes. The same for keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from seglog.table.columns import Output, Part, readable_text
from seglog.values.forms import Decoded, Values
from seglog.values.frames import SIDES, Side

_Shown = tuple[list[bytes | None], list[Decoded | None]]


def valued_outputs(outputs: Sequence[Output], values: Values) -> tuple[Output, ...]:
    """Returns columns with decoded keys and values in place of `key` and `value`, and those that tell of them."""
    decoding = _Decoding(values)
    columns: list[Output] = []
    names = {output.field.name for output in outputs}
    for output in outputs:
        side = next((side for side in SIDES if side == output.field.name), None)
        if side is None or values.forms.of(side) == "auto":
            columns.append(output)
            continue
        columns.append(replace(output, field=pa.field(side, pa.string()), make=partial(decoding.texts, side)))
        for what, make in (("schema", decoding.schemas), ("error", decoding.errors)):
            columns.append(Output(pa.field(f"{side}_{what}", pa.string()), partial(make, side)))
        if f"{side}_bytes" not in names:
            columns.append(Output(pa.field(f"{side}_bytes", pa.binary()), partial(decoding.undecoded, side)))
    return tuple(columns)


class _Decoding:
    """Decodes a part once for all of its columns."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._last: tuple[Part, dict[Side, _Shown]] | None = None  # scans in several threads replace it as a whole

    def texts(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of texts."""
        shown = self._of(part).get(side)
        if shown is None:  # of a topic that is shown as it is
            return readable_text(part.spans(side))
        texts = [
            None if data is None else data.decode("utf-8", "backslashreplace") if one is None else _text(one)
            for data, one in zip(*shown, strict=True)
        ]
        return pa.array(texts, pa.string())

    def schemas(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of schemas' ids."""
        return self._told(side, part, lambda one: None if one.schema is None else str(one.schema))

    def errors(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of reasons."""
        return self._told(side, part, lambda one: one.error or None)

    def undecoded(self, side: Side, part: Part) -> pa.Array:
        """Makes the column of the bytes of what is not decoded."""
        shown = self._of(part).get(side)
        if shown is None:
            return pa.nulls(len(part), pa.binary())
        pairs = zip(*shown, strict=True)
        return pa.array([data if one is not None and one.error else None for data, one in pairs], pa.binary())

    def _told(self, side: Side, part: Part, tell: Callable[[Decoded], str | None]) -> pa.Array:
        shown = self._of(part).get(side)
        if shown is None:
            return pa.nulls(len(part), pa.string())
        return pa.array([None if one is None else tell(one) for one in shown[1]], pa.string())

    def _of(self, part: Part) -> dict[Side, _Shown]:
        last = self._last
        if last is not None and last[0] is part:
            return last[1]
        decoder, shown = self._values.of_topic(part.place.topic), dict[Side, _Shown]()
        if decoder is not None:
            rows = decoder.of_records(part.records)
            for i, side in enumerate(decoder.sides):
                data = [wanted[0] if side == "key" else wanted[1] for wanted, _ in rows]
                shown[side] = data, [results[i] for _, results in rows]
        self._last = part, shown
        return shown


def _text(shown: Decoded) -> str | None:
    return None if shown.json is None else shown.text
