"""Typed columns of random schemas: those of fastavro and of Google's library, by the kernels and by the libraries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog_ask.table.values.typed import TypedColumn
from seglog_ask.values.forms import Tally
from seglog_ask.values.shapes import Leaf, Struct
from tests.support.hostile_values import laid_out
from tests.support.proto_maker import SCALARS, Files
from tests.support.schema_registry import avro, framed
from tests.support.typed_columns import columns_of, planned
from tests.unit.values.test_avro import LOGICAL, PRIMITIVES, Maker

UNSIGNED_64 = {SCALARS["uint64"], SCALARS["fixed64"]}  # Arrow and Spark have them as decimals


def expected(value: Any, shape: Any) -> Any:
    """A value of fastavro as a column has it."""
    if value is None:
        return None
    if isinstance(shape, Struct):
        return {name: expected(value[name], child) for name, child in shape.fields}
    if not isinstance(shape, Leaf):
        if isinstance(value, dict):
            return [(name, expected(one, shape.value)) for name, one in value.items()]
        return [expected(one, shape.item) for one in value]
    if shape.kind == "text":
        return value if isinstance(value, str) else ANY
    if shape.kind == "decimal":
        return Decimal(value)
    if isinstance(value, UUID):
        return str(value)
    return NAN if isinstance(value, float) and math.isnan(value) else value


class Anything:
    """Equal to everything of a type that fits: the JSON of a value is compared elsewhere (test_avro)."""

    def __init__(self, fits: Callable[[Any], bool]) -> None:
        self._fits = fits

    def __eq__(self, other: object) -> bool:
        return self._fits(other)

    __hash__ = None  # type: ignore[assignment]


ANY = Anything(lambda other: isinstance(other, str))
NAN = Anything(lambda other: isinstance(other, float) and math.isnan(other))


def compared_with_fastavro(maker: Maker, count: int, directory: Path) -> bool:
    """Compares a column with what fastavro reads; True if a kernel decoded it."""
    schema = maker.record(3)
    column = planned((1, schema, "AVRO"))
    parsed = fastavro.parse_schema(schema)
    payloads = []
    for _ in range(count):
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, maker.value(schema))
        payloads.append(out.getvalue())
    tally = Tally()
    shown = columns_of(column, tally, [framed(1, one) for one in payloads], directory)
    assert shown.errors.null_count == shown.undecoded.null_count == count
    assert set(shown.schemas.to_pylist()) == {"1"} and sum(tally.decoded.values()) == count
    theirs = [expected(fastavro.schemaless_reader(BytesIO(one), parsed, None), column.shape) for one in payloads]
    assert shown.values.to_pylist() == theirs, schema
    shown.values.validate(full=True)
    return column.written[0].described.program is not None


@pytest.mark.parametrize("effort", [(12, 20), pytest.param((100, 1500), marks=pytest.mark.slow)])
def test_columns_of_random_schemas_are_those_of_fastavro(effort: tuple[int, int], tmp_path: Path) -> None:
    schemas, values = effort
    by_kernel = [compared_with_fastavro(KernelMaker(seed), values, tmp_path / f"f{seed}") for seed in range(schemas)]
    assert all(by_kernel)
    by_kernel = [
        compared_with_fastavro(Maker(seed), min(values, 300), tmp_path / f"m{seed}") for seed in range(schemas)
    ]
    assert not all(by_kernel)


class KernelMaker(Maker):
    """Makes schemas inside what the kernel decodes."""

    within_itself = 0.0

    def schema(self, depth: int = 4) -> Any:
        found = super().schema(0)
        choice = self.random.randrange(10)
        if choice == 0 and depth > 0:
            return self.record(depth - 1)
        if choice == 1:
            self.names += 1
            return {"type": "enum", "name": f"E{self.names}", "symbols": ["A", "B", "C"]}
        if choice == 2:
            self.names += 1
            return {"type": "fixed", "name": f"F{self.names}", "size": self.random.randrange(1, 5)}
        if choice in (3, 4):
            inner = self.record(depth - 1) if depth > 0 and choice == 3 else found
            return inner if inner == "null" else self.random.choice((["null", inner], [inner, "null"]))
        if choice < 8 and depth > 0:
            item = self.schema(depth - 1)
            if choice == 6:
                return {"type": "map", "values": item}
            made = {"type": "array", "items": "int" if item == "null" else item}
            return ["null", made] if choice == 5 else made
        return found


def takes_bytes(schema: Any) -> bool:
    """True if each value of a schema takes bytes."""
    if isinstance(schema, dict) and schema["type"] == "record":
        return any(map(takes_bytes, schema["fields"]))
    return bool(schema != "null")


TYPES = st.recursive(
    st.sampled_from([*PRIMITIVES, *LOGICAL, {"type": "fixed", "size": 2}, {"type": "enum", "symbols": ["A", "B"]}]),
    lambda within: st.one_of(
        within.filter(lambda one: one != "null").map(lambda one: ["null", one]),
        within.filter(takes_bytes).map(lambda one: {"type": "array", "items": one}),
        within.map(lambda one: {"type": "map", "values": one}),
        st.lists(within, min_size=1, max_size=4).map(lambda fields: {"type": "record", "fields": fields}),
    ),
    max_leaves=12,
)


def spelled_out(schema: Any, names: Iterator[int]) -> Any:
    """A schema with names, and no union within a union."""
    if isinstance(schema, list):
        inner = schema[1]
        return spelled_out(inner, names) if isinstance(inner, list) else ["null", spelled_out(inner, names)]
    if isinstance(schema, dict) and schema["type"] in ("array", "map"):
        return {name: one if name == "type" else spelled_out(one, names) for name, one in schema.items()}
    if isinstance(schema, str) or schema["type"] not in ("record", "fixed", "enum"):
        return schema
    named = {**schema, "name": f"N{next(names)}"}
    if "fields" in schema:
        fields = enumerate(spelled_out(one, names) for one in schema["fields"])
        named["fields"] = [{"name": f"f{i}", "type": one} for i, one in fields]
    return named


@given(schemas=st.lists(TYPES, min_size=1, max_size=3), seed=st.integers(0, 1 << 30))
def test_columns_of_any_schema_of_the_subset_are_those_of_fastavro(schemas: list[Any], seed: int) -> None:
    schema = spelled_out({"type": "record", "fields": schemas}, itertools.count())
    column, maker, parsed = planned((1, schema, "AVRO")), Maker(seed), fastavro.parse_schema(schema)
    assert column.written[0].described.program is not None, schema
    data = [avro(schema, maker.value(schema)) for _ in range(5)]
    shown = TypedColumn(column, Tally()).of(laid_out([framed(1, one) for one in data]))
    assert shown.errors.null_count == 5
    theirs = [expected(fastavro.schemaless_reader(BytesIO(one), parsed, None), column.shape) for one in data]
    assert shown.values.to_pylist() == theirs


@pytest.mark.parametrize("effort", [(6, 20), pytest.param((100, 1500), marks=pytest.mark.slow)])
def test_columns_of_random_messages_are_those_of_googles_library(effort: tuple[int, int], tmp_path: Path) -> None:
    schemas, values = effort
    for seed in range(schemas):
        compared_with_google(seed, values, tmp_path / f"{seed}")


def compared_with_google(seed: int, count: int, directory: Path) -> None:
    """Compares a column that a kernel makes with what Google's library reads."""
    files = Files(seed, rows_only=True)
    text, kind = files.texts["main.proto"], files.message((0,))
    column = planned((1, text, "PROTOBUF"))
    assert column.written[0].described.program is not None, text
    made = [files.fill(kind()) for _ in range(count)]
    data = [one.SerializeToString() for one in made]
    shown = columns_of(column, Tally(), [framed(1, b"\0" + one) for one in data], directory)
    assert shown.errors.null_count == count
    assert shown.values.to_pylist() == [row_of(message) for message in made], text
    shown.values.validate(full=True)
    pairs = [one + other for one, other in itertools.pairwise(data)]  # two messages, which are merged
    both = TypedColumn(column, Tally()).of(laid_out([framed(1, b"\0" + one) for one in pairs]))
    assert both.values.to_pylist() == [row_of(kind.FromString(one)) for one in pairs], text


def row_of(message: Any) -> dict[str, Any]:
    """A message of Google's library as a column has it."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            row[field.name] = Entries({str(key): one_of(of_value, value[key]) for key in value})
        elif field.is_repeated:
            row[field.name] = [one_of(field, one) for one in value]
        else:
            is_absent = field.has_presence and not message.HasField(field.name)
            row[field.name] = None if is_absent else one_of(field, value)
    return row


def one_of(field: Any, value: Any) -> Any:
    """A field's value as a column has it."""
    if field.message_type is not None:
        return row_of(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return Decimal(value) if field.type in UNSIGNED_64 else value


class Entries:
    """Equal to a map's entries in any order, as Google's library has one of its own."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self._entries = {key.lower() if key in ("True", "False") else key: one for key, one in entries.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and len(other) == len(self._entries) and dict(other) == self._entries

    def __repr__(self) -> str:
        return repr(self._entries)

    __hash__ = None  # type: ignore[assignment]
