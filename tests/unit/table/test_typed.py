"""Typed columns of decoded values: what does not decode, several schemas, tables."""

from __future__ import annotations

import json
import math
import pickle
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf import message_factory

import seglog
from seglog.storage.local import LocalFileSystem
from seglog_ask.table.engines.dataset import Table
from seglog_ask.table.engines.opening import open_source
from seglog_ask.table.values.columns import Part, outputs_of
from seglog_ask.table.values.planned_types import planned_types, typed_columns
from seglog_ask.table.values.typed import TypedColumn
from seglog_ask.table.values.valued import valued_outputs
from seglog_ask.values.column_types import column_type
from seglog_ask.values.forms import Forms, Tally, Values
from seglog_ask.values.frames import PATH_BEFORE, message_named, path_bytes
from seglog_ask.values.protobuf import messages_of
from seglog_ask.values.schemas import Schema
from seglog_ask.values.shapes import Leaf, Struct, merged
from seglog_ask.values.sources import forms_of
from tests.support.hostile_values import BySlowWay, laid_out
from tests.support.schema_registry import avro, framed, registered, write_log
from tests.support.typed_columns import known, part_of, planned
from tests.unit.values.test_avro import record

# --- what does not decode ---------------------------------------------------------------------------------------

SCHEMA = record("int", "string", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1})
GOOD = avro(SCHEMA, {"f0": 5, "f1": "ö", "f2": Decimal("-9.9")})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (framed(1, GOOD + b"x"), "1 bytes follow"),
        (framed(1, GOOD[:-1]), "ends early"),
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


@pytest.mark.parametrize(
    ("payload", "fields", "said"),
    [
        (b"\x0a\x02\xff\x02\x01", {"f0": 5, "f1": "\ufffd", "f2": Decimal("0.1")}, "not UTF-8"),
        (b"\x0a\x02a\x06\x10\x00\x00", {"f0": 5, "f1": "a", "f2": None}, "f2: 104857.6 does not fit decimal(3, 1)"),
        (
            b"\x80\x80\x80\x80\x80\x01\x02a\x02\x01",
            {"f0": None, "f1": "a", "f2": Decimal("0.1")},
            "f0: 17179869184 does not fit int",
        ),
    ],
)
def test_a_field_that_the_column_cannot_hold_does_not_take_its_record_with_it(
    payload: bytes, fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    tally, value = Tally(), framed(1, payload)
    shown = TypedColumn(planned((1, SCHEMA, "AVRO")), tally).of(part_of([framed(1, GOOD), value], tmp_path))
    assert shown.values.to_pylist()[1] == fields
    assert shown.undecoded.to_pylist() == [None, value] and said in shown.errors.to_pylist()[1]
    assert (sum(tally.failed.values()), sum(tally.partial.values()), sum(tally.decoded.values())) == (0, 1, 2)


TIMES = record(
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-nanos"},
    {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
    ["null", {"type": "fixed", "name": "T", "size": 12, "logicalType": "duration"}],
    {"type": "bytes", "logicalType": "big-decimal"},
)


def test_dates_and_times_of_every_year_are_in_columns_by_both_ways() -> None:
    """And what a column has in no form of its own is the text that JSON has."""
    column = planned((1, TIMES, "AVRO"))
    assert column.written[0].described.program is not None
    tail = b"\xab" * 16 + b"\2\1\0\0\0\2\0\0\0\3\0\0\0" + b"\6\2\x85\4"
    largest, least = b"\xfe" + b"\xff" * 8 + b"\1", b"\xff" * 9 + b"\1"
    values = [
        framed(1, b"\xfe\xff\xff\xff\x0f\2" + largest + largest + tail),
        framed(1, b"\xff\xff\xff\xff\x0f\2" + least + least + tail[:16] + b"\0\4\0\0"),
        framed(1, b"\2\1\2\2" + tail),  # no time of a day
    ]
    shown = TypedColumn(column, Tally()).of(laid_out(values))
    assert shown == BySlowWay(column, Tally()).of(laid_out(values))
    fields = [shown.values.field(i) for i in range(7)]
    assert fields[0].cast(pa.int32()).to_pylist() == [2**31 - 1, -(2**31), 1]
    assert fields[1].cast(pa.int32()).to_pylist() == [1, 1, None]
    assert fields[2].cast(pa.int64()).to_pylist() == fields[3].cast(pa.int64()).to_pylist() == [2**63 - 1, -(2**63), 1]
    assert fields[4].to_pylist() == ["abababab-abab-abab-abab-abababababab"] * 3
    assert fields[5].to_pylist() == ["P1M2DT0.003S", None, "P1M2DT0.003S"]
    assert fields[6].to_pylist() == ["-1.23", "0", "-1.23"]
    assert shown.errors.to_pylist() == [None, None, "f1: -1 is not a time of day"]


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


OWN_TYPES = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message M { google.protobuf.Timestamp at = 1; google.protobuf.Duration took = 2;
  google.protobuf.Int64Value n = 3; google.protobuf.UInt64Value u = 4; google.protobuf.BoolValue b = 5;
  google.protobuf.DoubleValue d = 6; google.protobuf.StringValue s = 7; google.protobuf.BytesValue bytes = 8;
  repeated google.protobuf.Timestamp many = 9; map<string, google.protobuf.Int32Value> by = 10; In in = 11;
  oneof o { google.protobuf.Duration one = 12; google.protobuf.FloatValue other = 13; } }
message In { google.protobuf.Timestamp at = 1; }"""
SECOND = pa.scalar(10**9, pa.timestamp("ns", "UTC")).as_py()


def own_types() -> tuple[list[bytes], list[dict[str, Any]]]:
    """Values of OWN_TYPES, and what a column has of each."""
    column = planned((1, OWN_TYPES, "PROTOBUF"))
    kind = message_factory.GetMessageClass(messages_of(column.written[0].schema, {}).named("M")[0])
    names = ("at", "took", "n", "u", "b", "d", "s", "bytes", "in", "one", "other")
    empty: dict[str, Any] = {**dict.fromkeys(names), "many": [], "by": []}
    full = kind(n={"value": -7}, u={"value": 2**64 - 1}, b={"value": True}, d={"value": 1.5}, s={"value": "ö"})
    full.at.seconds, full.took.seconds, full.took.nanos, full.bytes.value = 1, -1, -5, b"\xff"
    full.many.add().seconds, full.by["k"].value, full.other.value = 1, 3, 0.5
    getattr(full, "in").at.seconds = 1
    shown = {"at": SECOND, "took": Decimal("-1.000000005"), "n": -7, "u": Decimal(2**64 - 1), "b": True, "d": 1.5}
    shown |= {"s": "ö", "bytes": b"\xff", "many": [SECOND], "by": [("k", 3)], "in": {"at": SECOND}, "other": 0.5}
    there = kind()
    for name in ("at", "took", "n", "b", "s", "in"):
        getattr(there, name).SetInParent()
    there.by["k"].SetInParent()
    start = pa.scalar(0, pa.timestamp("ns", "UTC")).as_py()
    defaults = {"at": start, "took": Decimal("0E-9"), "n": 0, "b": False, "s": "", "in": {"at": None}, "by": [("k", 0)]}
    data = [one.SerializeToString() for one in (kind(), full, there)]
    return [framed(1, b"\0" + one) for one in data], [empty, {**empty, **shown}, {**empty, **defaults}]


def test_googles_own_types_have_columns_by_both_ways() -> None:
    column = planned((1, OWN_TYPES, "PROTOBUF"))
    values, wanted = own_types()
    (typed := Slowly(column, Tally())).of(laid_out(values))
    assert typed.left == 0
    shown = TypedColumn(column, Tally()).of(laid_out(values * 2))
    assert shown == BySlowWay(column, Tally()).of(laid_out(values * 2))
    assert shown.values.to_pylist() == wanted * 2 and shown.errors.null_count == 6
    assert shown.values.type.field("at").type == pa.timestamp("ns", "UTC")


def test_moments_and_durations_of_every_size_are_in_columns_or_said() -> None:
    column = planned((1, OWN_TYPES, "PROTOBUF"))
    kind = message_factory.GetMessageClass(messages_of(column.written[0].schema, {}).named("M")[0])
    largest = 9_223_372_036, 854_775_807
    pairs = [
        (0, 0),
        largest,
        (9_223_372_036, 854_775_808),
        (-9_223_372_037, 145_224_192),
        (-9_223_372_037, 145_224_191),
    ]
    pairs += [(2**63 - 1, 999_999_999), (-(2**63), 0), (1, -1), (-1, 10**9), (-5, 5), (-62_135_596_800, 0)]
    values = []
    for seconds, nanos in pairs:
        one = kind()
        one.at.seconds, one.at.nanos, one.n.value = seconds, nanos, 7
        one.took.seconds, one.took.nanos = seconds, nanos if seconds >= 0 else -nanos
        values.append(framed(1, b"\0" + one.SerializeToString()))
    shown = TypedColumn(column, Tally()).of(laid_out(values))
    assert shown == BySlowWay(column, Tally()).of(laid_out(values))
    assert shown.values.field("n").to_pylist() == [7] * len(pairs)
    at, errors = shown.values.field("at").cast(pa.int64()).to_pylist(), shown.errors.to_pylist()
    for (seconds, nanos), moment, took, error in zip(pairs, at, shown.values.field("took"), errors, strict=True):
        total = seconds * 10**9 + nanos
        fits = -(2**63) <= total < 2**63 and 0 <= nanos < 10**9
        assert moment == (total if fits else None) and (error is None or not fits or "Duration" in error)
        if nanos >= 0 and nanos < 10**9:
            assert took.as_py() == (total if seconds >= 0 else seconds * 10**9 - nanos) * Decimal("1e-9")
    assert errors[2] == "2262-04-11T23:47:16.854775808Z does not fit timestamp-nanos"
    assert errors[-1] == "0001-01-01T00:00:00.000Z does not fit timestamp-nanos"


EXTENDED = """syntax = "proto2"; package e;
message M { optional int32 n = 1; extensions 100 to 200; optional In in = 2; }
message In { extensions 5 to max; } extend M { repeated int32 more = 101; optional string ext = 100; }
extend In { optional M m = 7; }"""


def test_extensions_are_in_columns_by_both_ways() -> None:
    column = planned((1, EXTENDED.replace("optional M m", "optional bool m"), "PROTOBUF"))
    values = [framed(1, b"\0" + one) for one in (b"", b"\x08\5\xa2\6\1x\xa8\6\1\xa8\6\2\x12\2\x38\1", b"\x12\0")]
    shown = TypedColumn(column, Tally()).of(laid_out(values))
    assert shown == BySlowWay(column, Tally()).of(laid_out(values)) and shown.errors.null_count == 3
    (typed := Slowly(column, Tally())).of(laid_out(values))
    assert typed.left == 0
    empty = {"n": None, "in": None, "[e.ext]": None, "[e.more]": []}
    full = {"n": 5, "in": {"[e.m]": True}, "[e.ext]": "x", "[e.more]": [1, 2]}
    assert shown.values.to_pylist() == [empty, full, {**empty, "in": {"[e.m]": None}}]


def test_unknown_fields_leave_the_known_ones(tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message M { int32 a = 1; }'
    tally, value = Tally(), framed(1, b"\0\x08\5\x12\1x")
    shown = TypedColumn(planned((1, text, "PROTOBUF")), tally).of(part_of([value, framed(1, b"\0\x08\6")], tmp_path))
    assert shown.values.to_pylist() == [{"a": 5}, {"a": 6}] and shown.undecoded.to_pylist() == [value, None]
    assert shown.errors[0].as_py() == "3 bytes are fields that M does not have"
    assert sum(tally.partial.values()) == 1 and sum(tally.decoded.values()) == 2


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


def test_a_column_has_no_fields_of_a_message_that_no_value_is() -> None:
    old, new = (
        f'syntax = "proto3"; message A {{ int32 x = 1; }} message B {{ string y = 1; {more} }}'
        for more in ("", "int32 z = 2;")
    )
    source = known((1, old, "PROTOBUF"), (2, new, "PROTOBUF"))
    values = [framed(1, b"\2\2\x0a\1y"), framed(2, b"\2\2\x10\5"), framed(1, b"\2\2")]
    column = column_type(Forms("auto", "registry", source), "value", "t", [(values[0], ())])
    assert column is not None
    shown = (typed := Slowly(column, Tally())).of(laid_out(values))
    assert shown.values.to_pylist() == [{"y": "y", "z": None}, {"y": "", "z": 5}, {"y": "", "z": None}]
    assert typed.left == 0 and shown == BySlowWay(column, Tally()).of(laid_out(values))
    assert planned((1, old, "PROTOBUF")).shape == Struct((("x", Leaf("int")),))  # without samples it is the first


def test_paths_are_written_as_they_are_read() -> None:
    for path in ((0,), (1,), (0, 0), (63, 64, 5000), (1,) * 64):
        assert message_named(path_bytes(path) + b"x", PATH_BEFORE) == (path, len(path_bytes(path)))


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
        ("int", "float", "double"),
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
    assert planned((1, record("int"), "AVRO"), (2, {**schema, "fields": schema["fields"][:1]}, "AVRO")).shape == Struct(
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


def test_the_guid_of_a_schema_travels_too(tmp_path: Path) -> None:
    guid, source = UUID(int=7 << 64), known((1, SCHEMA, "AVRO"))
    source.ids[guid] = source.ids[1]
    column = column_type(Forms("auto", "registry", source), "value", "t", [])
    there = pickle.loads(pickle.dumps(column))
    part = part_of([b"\1" + guid.bytes + GOOD, framed(1, GOOD)], tmp_path)
    assert [value["f1"] for value in TypedColumn(there, Tally()).of(part).values.to_pylist()] == ["ö", "ö"]


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


class Slowly(TypedColumn):
    """A column that keeps how many values no kernel decoded."""

    left = 0

    def _slowly(self, part: Part, rows: Any) -> Any:
        self.left += len(rows)
        return super()._slowly(part, rows)


def test_values_with_longer_frames_are_decoded_by_the_kernel() -> None:
    guid, source = UUID(int=7 << 64), known((1, SCHEMA, "AVRO"))
    source.ids[guid] = source.ids[1]
    column = column_type(Forms("auto", "registry", source), "value", "t", [])
    assert column is not None
    heads = [b"\1" + guid.bytes, b"\3\0" + guid.bytes, bytes(8) + b"\1", framed(1, b"")]
    shown = (typed := Slowly(column, Tally())).of(laid_out([head + GOOD for head in heads * 2]))
    assert typed.left == 0 and shown.errors.null_count == 8
    assert [one and one["f1"] for one in shown.values.to_pylist()] == ["ö"] * 8
    assert shown.schemas.to_pylist() == [str(guid), str(guid), "1", "1"] * 2
    odd = [
        heads[0][:9],
        heads[1],
        heads[2],
        b"\1" + bytes(16) + GOOD,
        b"\3\5" + guid.bytes + zlib.compress(GOOD),
        b"\3",
    ]
    values = laid_out([*odd, *(head + GOOD[:-1] for head in heads), heads[0] + GOOD])
    assert Slowly(column, tally := Tally()).of(values) == BySlowWay(column, other := Tally()).of(values)
    assert (tally.decoded, tally.failed) == (other.decoded, other.failed) and sum(tally.decoded.values()) == 2


def test_messages_with_longer_frames_are_decoded_by_the_kernel() -> None:
    guid, text = UUID(int=7 << 64), 'syntax = "proto3"; message M { int32 x = 1; } message O { int32 y = 1; }'
    source = known((1, text, "PROTOBUF"))
    source.ids[guid] = source.ids[1]
    column = column_type(Forms("auto", "registry", source), "value", "t", [])
    assert column is not None
    confluent, glue, apicurio = b"\1" + guid.bytes, b"\3\0" + guid.bytes, bytes(8) + b"\1"
    values = [head + path + b"\x08\5" for head in (confluent, glue, apicurio) for path in (b"\0", b"\2\2", b"\1")]
    values = laid_out([*values, apicurio + b"\3\x0a\1M\x08\5", confluent])
    assert Slowly(column, tally := Tally()).of(values) == BySlowWay(column, other := Tally()).of(values)
    assert (tally.decoded, tally.failed) == (other.decoded, other.failed) and sum(tally.decoded.values()) == 2
    (typed := Slowly(column, Tally())).of(laid_out([confluent + b"\0\x08\5", apicurio + b"\0\x08\5"]))
    assert typed.left == 0


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
