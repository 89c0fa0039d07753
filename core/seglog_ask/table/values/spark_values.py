"""Columns of decoded keys and values as Spark has them: planned on the driver, made in the tasks.

They are those of a table (`valued`) under names of Spark's kind: `valueSchema`, `valueError`, `valueBytes`. Spark has
no time of a day and no nanoseconds: such fields are text. The driver reads the schemas and sends them along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pyarrow as pa

from seglog.errors import ConfigError
from seglog.format.columns import SIDES, Side
from seglog.locations import parse_location
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.options import AS_THEY_ARE, OffsetRule, ReadOptions
from seglog_ask.table.values.columns import Output, Part, outputs_of
from seglog_ask.table.values.planned_types import in_microseconds, planned_types
from seglog_ask.table.values.typed import TypedColumn
from seglog_ask.table.values.valued import valued_outputs
from seglog_ask.values.column_types import ColumnType
from seglog_ask.values.forms import BY_SCHEMA, Forms, Values
from seglog_ask.values.shapes import TEXT, Leaf, ListOf, MapOf, Shape, Struct
from seglog_ask.values.sources import forms_of

_LACKING = ("time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos")


@dataclass(frozen=True)
class SparkValues:
    """What tasks must know to decode: the forms, and the types of the sides that have one. It is pickled."""

    forms: Forms
    types: Mapping[Side, ColumnType]

    @cached_property
    def outputs(self) -> tuple[Output, ...]:
        """The columns, in Spark's types."""
        values = Values(self.forms)
        sides = [side for side in SIDES if self.forms.of(side) != "auto"]
        typed = {side: TypedColumn(one, values.tally) for side, one in self.types.items()}
        return tuple(_as_spark_has_it(one) for one in valued_outputs(outputs_of(sides), values, typed))

    def __getstate__(self) -> dict[str, object]:
        return {"forms": self.forms, "types": self.types}


def spark_values(options: ReadOptions) -> SparkValues | None:
    """Returns how the options want keys and values decoded; None if as they are. Reads schemas and first records.

    Raises ConfigError for forms or schemas that are not there, and the errors of `find_partitions`.
    """
    asked = options.shown_as
    if asked == AS_THEY_ARE:
        return None
    fs = files_of(options.store)
    places = [parse_location(path) for path in options.paths]
    try:
        forms = forms_of(fs, asked.key, asked.value, schemas=asked.schemas, schema=asked.schema, beside=places)
    except ConfigError as error:
        raise ConfigError(f"keyAs, valueAs: {error}") from error
    if forms.are_plain:
        return None
    everything = replace(options, starting=OffsetRule("earliest"), ending=OffsetRule("latest"))
    types = planned_types(forms, fs, find_partitions(fs, everything), everything)
    fitted = {side: one.of_shape(_for_spark(one.shape)) for side, one in types.items()}
    if all(side in fitted for side in SIDES if forms.of(side) in BY_SCHEMA):
        forms = replace(forms, source=None, given=None)  # the types have their schemas
    return SparkValues(forms, fitted)


def _for_spark(shape: Shape) -> Shape:
    if isinstance(shape, Leaf):
        return TEXT if shape.kind in _LACKING else in_microseconds(shape)
    if isinstance(shape, Struct):
        return Struct(tuple((name, _for_spark(child)) for name, child in shape.fields))
    return ListOf(_for_spark(shape.item)) if isinstance(shape, ListOf) else MapOf(_for_spark(shape.value))


def _as_spark_has_it(output: Output) -> Output:
    side, _, what = output.field.name.partition("_")
    kind = _spark_type(output.field.type)
    return Output(pa.field(f"{side}{what.capitalize()}", kind), partial(_cast, output, kind))


def _cast(output: Output, kind: pa.DataType, part: Part) -> pa.Array:
    array = output.make(part)
    return array if array.type == kind else array.cast(kind, safe=False)


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type that Spark has for one of Arrow's, with the names that it gives to parts."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _spark_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, pa.field("value", _spark_type(kind.item_type)))
    return kind
