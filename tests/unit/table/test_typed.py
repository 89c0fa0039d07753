"""Typed columns of decoded values: those of fastavro and of Google's library, whatever decodes them."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglog
from seglog.storage.local import LocalFileSystem
from seglog.table.columns import Part, Place, outputs_of
from seglog.table.dataset import Table
from seglog.table.opening import open_source
from seglog.table.planned_types import planned_types, typed_columns
from seglog.table.typed import Shown, TypedColumn
from seglog.table.valued import valued_outputs
from seglog.values.column_types import ColumnType, column_type
from seglog.values.forms import Forms, Tally, Values
from seglog.values.schemas import KnownSchemas, Schema
from seglog.values.shapes import Leaf, Row, merged
from seglog.values.sources import forms_of
from tests.support.hostile_values import laid_out
from tests.support.proto_maker import SCALARS, Files
from tests.support.schema_registry import avro, framed, registered, write_log
from tests.unit.values.test_avro import LOGICAL, PRIMITIVES, Maker, record

UNSIGNED_64 = {SCALARS["uint64"], SCALARS["fixed64"]}  # Arrow and Spark have them as decimals


def known(*schemas: tuple[int, Any, str]) -> KnownSchemas:
    """Versions of the subject t-value, by id."""
    source = KnownSchemas("the test")
    for version, (number, schema, kind) in enumerate(schemas, 1):
        text = schema if isinstance(schema, str) else json.dumps(schema)
        source.add(Schema(kind, text, number, "t-value", version))
    return source


def planned(*schemas: tuple[int, Any, str]) -> ColumnType:
    found = column_type(Forms("auto", "registry", known(*schemas)), "value", "t", [])
    assert found is not None
    return found


def part_of(values: Sequence[bytes | None], directory: Path) -> Part:
    """The records with these values."""
    (part,) = parts_of(values, directory)
    return part


def parts_of(values: Sequence[bytes | None], directory: Path) -> list[Part]:
    """The same for many values, which may have several buffers."""
    write_log(directory / "t-0", [seglog.Record(one) for one in values])
    with seglog.open_log(directory / "t-0") as log:
        return [Part(Place("t", 0, ""), records) for records in log.columns()]


def columns_of(column: ColumnType, tally: Tally, values: Sequence[bytes], directory: Path) -> Shown:
    """The columns of values, all together."""
    shown = [TypedColumn(column, tally).of(part) for part in parts_of(values, directory)]
    return Shown(*(pa.concat_arrays(arrays) for arrays in zip(*shown, strict=True)))


def expected(value: Any, shape: Any) -> Any:
    """A value of fastavro as a column has it."""
    if value is None:
        return None
    if isinstance(shape, Row):
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
    by_kernel = [compared_with_fastavro(FlatMaker(seed), values, tmp_path / f"f{seed}") for seed in range(schemas)]
    assert all(by_kernel)
    by_kernel = [
        compared_with_fastavro(Maker(seed), min(values, 300), tmp_path / f"m{seed}") for seed in range(schemas)
    ]
    assert not all(by_kernel)


class FlatMaker(Maker):
    """Makes schemas inside what the kernel decodes."""

    within_itself = 0.0

    def schema(self, depth: int = 4) -> Any:
        found = super().schema(0)
        choice = self.random.randrange(8)
        if choice == 0 and depth > 0:
            return self.record(depth - 1)
        if choice == 1:
            self.names += 1
            return {"type": "enum", "name": f"E{self.names}", "symbols": ["A", "B", "C"]}
        if choice == 2:
            self.names += 1
            return {"type": "fixed", "name": f"F{self.names}", "size": self.random.randrange(1, 5)}
        if choice < 5:
            inner = self.record(depth - 1) if depth > 0 and choice == 3 else found
            return inner if inner == "null" else self.random.choice((["null", inner], [inner, "null"]))
        return found


TYPES = st.recursive(
    st.sampled_from([*PRIMITIVES, *LOGICAL, {"type": "fixed", "size": 2}, {"type": "enum", "symbols": ["A", "B"]}]),
    lambda within: st.one_of(
        within.filter(lambda one: one != "null").map(lambda one: ["null", one]),
        st.lists(within, min_size=1, max_size=4).map(lambda fields: {"type": "record", "fields": fields}),
    ),
    max_leaves=12,
)


def spelled_out(schema: Any, names: Iterator[int]) -> Any:
    """A schema with names, and no union within a union."""
    if isinstance(schema, list):
        inner = schema[1]
        return spelled_out(inner, names) if isinstance(inner, list) else ["null", spelled_out(inner, names)]
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
    assert column.written[0].described.program is not None
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
    text = files.texts["main.proto"]
    column = planned((1, text, "PROTOBUF"))
    assert column.written[0].described.program is not None, text
    made = [files.fill(files.message((0,))()) for _ in range(count)]
    data = [framed(1, b"\0" + one.SerializeToString()) for one in made]
    shown = columns_of(column, Tally(), data, directory)
    assert shown.errors.null_count == count
    assert shown.values.to_pylist() == [row_of(message) for message in made], text


def row_of(message: Any) -> dict[str, Any]:
    """A message of Google's library as a column has it."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        elif field.message_type is not None:
            row[field.name] = row_of(value)
        elif field.enum_type is not None:
            row[field.name] = field.enum_type.values_by_number[value].name
        else:
            row[field.name] = Decimal(value) if field.type in UNSIGNED_64 else value
    return row


# --- what does not decode ---------------------------------------------------------------------------------------

SCHEMA = record("int", "string", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1})
GOOD = avro(SCHEMA, {"f0": 5, "f1": "ö", "f2": Decimal("-9.9")})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (framed(1, GOOD + b"x"), "1 bytes follow"),
        (framed(1, GOOD[:-1]), "ends early"),
        (framed(1, b"\x0a\x02\xff\x02\x01"), "Unicode"),
        (framed(1, b"\x0a\x02a\x06\x10\x00\x00"), "does not fit the type of the column"),
        (framed(1, b"\xfe\xff\xff\xff\xff\x01\x02a\x02\x01"), "does not fit the type of the column"),
        (framed(7, GOOD), "schema id 7 is not in the test"),
        (b"\x01", "early"),
    ],
)
def test_a_bad_value_is_null_with_its_reason_and_bytes(value: bytes, said: str, tmp_path: Path) -> None:
    tally = Tally()
    good = framed(1, GOOD)
    shown = TypedColumn(planned((1, SCHEMA, "AVRO")), tally).of(part_of([good, value, None, good], tmp_path))
    decoded = {"f0": 5, "f1": "ö", "f2": Decimal("-9.9")}
    assert shown.values.to_pylist() == [decoded, None, None, decoded]
    assert shown.undecoded.to_pylist() == [None, value, None, None]
    reasons = shown.errors.to_pylist()
    assert said in reasons[1] and [reasons[0], *reasons[2:]] == [None] * 3
    assert sum(tally.failed.values()) == 1 and sum(tally.decoded.values()) == 2


def test_what_other_schemas_wrote_is_not_in_the_column(tmp_path: Path) -> None:
    source = known((1, SCHEMA, "AVRO"))
    source.ids[2] = Schema("AVRO", '"int"', 2, "other-value", 1)
    column = column_type(Forms("auto", "registry", source), "value", "t", [])
    assert column is not None
    shown = TypedColumn(column, Tally()).of(part_of([framed(2, b"\2")], tmp_path))
    assert "the column was made without it" in shown.errors[0].as_py() and shown.schemas.to_pylist() == ["2"]
    samples = [(framed(2, b"\2"), ()), (framed(3, b""), ()), (b"\0", ()), (framed(2, b"\2"), ())]
    seen = column_type(Forms("auto", "registry", source), "value", "t", samples)
    assert seen is not None and [one.schema.id for one in seen.written] == [1, 2]


def test_messages_that_first_values_name_are_in_the_column(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message A { int32 x = 1; } message B { string y = 1; message C { bool z = 3; } }'
    source = known((1, text, "PROTOBUF"))
    values = [b"\0\x08\5", b"\4\2\0\x18\1", b"\2\2\x0a\1y"]  # A, B.C, and B, which is not among the first
    samples = [(framed(1, one), ()) for one in values[:2]]
    column = column_type(Forms("auto", "protobuf", source), "value", "t", samples)
    assert column is not None
    shown = TypedColumn(column, Tally()).of(part_of([framed(1, one) for one in values], tmp_path))
    assert shown.values.to_pylist() == [{"x": 5, "z": None}, {"x": None, "z": True}, None]
    assert "was made without its message (1,)" in shown.errors[2].as_py()


# --- several schemas --------------------------------------------------------------------------------------------


def test_versions_make_the_union_of_their_fields_and_a_changed_type_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "f0", "type": "long"}, {"name": "f1", "type": "int"}, {"name": "new", "type": "string"}],
    }
    first = record("int", "string")
    column = planned((1, first, "AVRO"), (2, second, "AVRO"))
    assert caplog.messages == [
        "t: value.f0 is long, as schemas have it as int and as long",
        "t: value.f1 is text, as schemas have it as string and as int",
    ]
    values = [
        framed(1, avro(first, {"f0": 1, "f1": "a"})),
        framed(2, avro(second, {"f0": 2, "f1": 3, "new": "n"})),
    ]
    shown = TypedColumn(column, Tally()).of(part_of([*values, *values], tmp_path))
    rows = [{"f0": 1, "f1": "a", "new": None}, {"f0": 2, "f1": "3", "new": "n"}]
    assert shown.values.to_pylist() == rows * 2 and shown.schemas.to_pylist() == ["1", "2"] * 2
    assert pa.types.is_int64(shown.values.type.field("f0").type)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int", "double", "double"),
        ("float", "double", "double"),
        ("long", "double", "text"),
        ("string", "bytes", "text"),
        ("timestamp-millis", "long", "text"),
    ],
)
def test_types_widen_where_no_digit_is_lost(one: str, other: str, both: str) -> None:
    said: list[str] = []
    assert merged(Leaf(one), Leaf(other), said.append, "v") == merged(Leaf(other), Leaf(one), said.append, "v")
    assert merged(Leaf(one), Leaf(other), said.append, "v").kind == both and len(said) == 3  # type: ignore[union-attr]


def test_names_that_an_engine_does_not_tell_apart_make_text() -> None:
    schema = {**record("int"), "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}]}
    assert planned((1, schema, "AVRO")).shape == Leaf("text")
    assert planned((1, record("int"), "AVRO"), (2, {**schema, "fields": schema["fields"][:1]}, "AVRO")).shape == Row(
        (("f0", Leaf("int")), ("a", Leaf("int")))
    )


def test_what_no_type_expresses_is_text_and_numbers_that_json_lacks_stay(tmp_path: Path) -> None:
    node = {
        "type": "record",
        "name": "N",
        "fields": [
            {"name": "x", "type": "double"},
            {"name": "next", "type": ["null", "N"]},
            {"name": "u", "type": ["int", "string"]},
        ],
    }
    value = {"x": math.nan, "next": {"x": 1.0, "next": None, "u": 2}, "u": "s"}
    shown = TypedColumn(planned((1, node, "AVRO")), Tally()).of(part_of([framed(1, avro(node, value))], tmp_path))
    (found,) = shown.values.to_pylist()
    assert math.isnan(found["x"]) and found["u"] == "s"
    assert json.loads(found["next"]) == {"x": 1.0, "next": None, "u": 2}


def test_json_schema_gives_no_types() -> None:
    source = known((1, SCHEMA, "AVRO"), (2, "{}", "JSON"))
    assert column_type(Forms("auto", "registry", source), "value", "t", []) is None
    assert column_type(Forms("auto", "avro", source), "value", "t", []) is not None
    assert column_type(Forms("auto", "json", source), "value", "t", []) is None


def test_a_type_travels_without_its_source(tmp_path: Path) -> None:
    column = planned((1, SCHEMA, "AVRO"), (2, record({"type": "array", "items": "int"}), "AVRO"))
    there = pickle.loads(pickle.dumps(column))
    data = [framed(1, GOOD), framed(2, b"\2\2\0"), framed(1, b"")]
    part = part_of(data, tmp_path)
    here, shown = TypedColumn(column, Tally()).of(part), TypedColumn(there, Tally()).of(part)
    assert shown == here and shown.errors.null_count == 2


# --- tables ---------------------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, SCHEMA), registered("t-key", 1, 2, '"string"')])
    write_log(tmp_path / "t-0", [seglog.Record(framed(1, GOOD), key=framed(2, b"\2k")), seglog.Record(None)])
    return tmp_path


def test_a_table_of_one_topic_has_types_for_keys_and_values(logs: Path) -> None:
    table = seglog.open_table(logs / "t-0", columns=["key", "value"], key_as="registry", value_as="registry")
    assert table.schema.field("key").type == pa.string()
    assert [field.name for field in table.schema.field("value").type] == ["f0", "f1", "f2"]
    assert table.to_table()["key"].to_pylist() == ["k", None]
    assert table.to_table()["value"][0].as_py()["f0"] == 5
    assert table.to_table()["value_schema"].to_pylist() == ["1", None]


@pytest.mark.parametrize("has_types", [True, False])
def test_a_filter_on_a_column_of_values_decodes_each_value_once(logs: Path, has_types: bool) -> None:
    write_log(logs / "u-0", [seglog.Record(framed(1, GOOD)), seglog.Record(b"\xff"), seglog.Record(framed(1, GOOD))])
    source = open_source(LocalFileSystem(), [logs / "u-0"])
    values = Values(forms_of(LocalFileSystem(), "auto", "registry", beside=[logs]))
    typed = typed_columns(values.forms, values.tally, source.fs, source.logs, source.options) if has_types else {}
    table = Table(source, valued_outputs(outputs_of(("offset", "value")), values, typed))
    found = table.to_table(filter=pc.field("value_error").is_null()).to_pylist()
    assert [row["offset"] for row in found] == [0, 2]
    assert ["ö" in str(row["value"]) for row in found] == [True, True] and found[0]["value_schema"] == "1"
    assert sum(values.tally.decoded.values()) == 2 and sum(values.tally.failed.values()) == 1


def test_a_table_of_several_topics_has_text(logs: Path) -> None:
    write_log(logs / "u-0", [seglog.Record(framed(1, GOOD))])
    table = seglog.open_table(logs, columns=["value"], value_as="registry")
    assert table.schema.field("value").type == pa.string()


def test_the_schemas_of_first_values_count_too(tmp_path: Path) -> None:
    write_log(tmp_path / "_schemas-0", [registered("shop.Order", 1, 1, SCHEMA)])
    write_log(tmp_path / "t-0", [seglog.Record(framed(1, GOOD))])
    table = seglog.open_table(tmp_path / "t-0", columns=["value"], value_as="registry")
    assert table.to_table()["value"][0].as_py()["f1"] == "ö"


def test_a_frame_in_a_header_counts_before_one_in_the_value(tmp_path: Path) -> None:
    """The value begins as a frame does, and none of it is one."""
    schema = record("long", "long", "long", "long", "long", "long")
    bare = avro(schema, dict.fromkeys((f"f{i}" for i in range(6)), 0))
    named = seglog.Header("__value_schema_id", b"\0\0\0\0\1")
    other = seglog.Header("trace", b"x")
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, schema)])
    rows = [seglog.Record(bare, headers=(named,)), seglog.Record(framed(1, bare), headers=(other,))]
    write_log(tmp_path / "t-0", [*rows, seglog.Record(framed(1, bare))])
    table = seglog.open_table(tmp_path / "t-0", columns=["value"], value_as="registry").to_table()
    assert (
        table["value_error"].to_pylist() == [None] * 3 and table["value"].to_pylist() == [table["value"][0].as_py()] * 3
    )
    assert table["value"][0].as_py() == dict.fromkeys((f"f{i}" for i in range(6)), 0)


def test_damage_at_the_beginning_is_told_by_reading_and_not_by_opening(logs: Path) -> None:
    (segment,) = (logs / "t-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:40] + b"\xff" * 40)
    source = open_source(LocalFileSystem(), [logs / "t-0"])
    forms = Forms("auto", "avro", None, Schema("AVRO", json.dumps(SCHEMA)))
    assert set(planned_types(forms, source.fs, source.logs, source.options)) == {"value"}
    with pytest.raises(seglog.CorruptRecordError):
        seglog.open_table(logs / "t-0", value_as="registry").to_table()


@pytest.mark.parametrize("open_given", [lambda name: name, str])
def test_values_without_frames_are_read_by_the_given_schema(tmp_path: Path, open_given: Callable[[Path], Any]) -> None:
    (tmp_path / "r.avsc").write_text(json.dumps(SCHEMA))
    write_log(tmp_path / "t-0", [seglog.Record(GOOD), seglog.Record(b"\xff"), seglog.Record(framed(9, GOOD))])
    table = seglog.open_table(tmp_path / "t-0", value_as="avro", schema=open_given(tmp_path / "r.avsc"))
    values = table.to_table()["value"].to_pylist()
    assert [value and value["f0"] for value in values] == [5, None, 5]
