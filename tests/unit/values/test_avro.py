"""Avro: equal to fastavro's own values, and contained where schema or value is hostile."""

from __future__ import annotations

import datetime
import json
import math
import random
import string
import uuid
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from fastavro import _read, _read_py

from seglog_ask.values import avro
from seglog_ask.values.schemas import NotDecodedError, Reference, RemarkedText, Schema
from tests.support.schema_registry import avro as written
from tests.support.schema_registry import text_of


def decoded(schema: Any, data: bytes, references: dict[str, Schema] | None = None) -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return json.loads(text_of(avro.reader_of(Schema("AVRO", text), references or {}).text(data)))


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(fields)],
    }


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("-2.56"), "-2.56"),
        (
            {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 3},
            Decimal("0.005"),
            "0.005",
        ),
        ({"type": "int", "logicalType": "date"}, datetime.date(1969, 12, 31), "1969-12-31"),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(23, 59, 59, 7000), "23:59:59.007"),
        ({"type": "long", "logicalType": "time-micros"}, datetime.time(0, 0, 1, 7), "00:00:01.000007"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, datetime.UTC),
            "1969-12-31T23:59:59.999Z",
        ),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_000_000_001, "1970-01-01T00:00:01.000000001Z"),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            datetime.datetime(2026, 11, 26, 1, 2, 3, 4),
            "2026-11-26T01:02:03.000004",
        ),
        ("bytes", b"\0\xff", "\0ÿ"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x80a", "\x80a"),
        ({"type": "string", "logicalType": "uuid"}, "0", "0"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "map", "values": ["null", "double"]}, {"a": None, "b": math.inf}, {"a": None, "b": "Infinity"}),
    ],
)
def test_values_have_a_form_in_json(schema: Any, value: Any, shown: Any) -> None:
    plain = schema if value != "0" else "string"
    assert decoded(schema, written(plain, value)) == shown


def test_types_of_other_schemas_are_found_by_reference() -> None:
    address = Schema(
        "AVRO", '{"type":"record","name":"Address","namespace":"a","fields":[{"name":"zip","type":"int"}]}'
    )
    person = {**record("a.Address", {"type": "array", "items": "a.Address"}), "namespace": "b"}
    assert decoded(person, b"\x0a\x04\x02\x04\x00", {"a.Address": address}) == {
        "f0": {"zip": 5},
        "f1": [{"zip": 1}, {"zip": 2}],
    }
    assert Reference("a.Address", "address", 1).name == "a.Address"
    with pytest.raises(NotDecodedError, match=r"a\.Address is not defined"):
        decoded(person, b"")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "array", "items": "null"}, "take no bytes"),
        ({"type": "array", "items": record()}, "take no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take no bytes"),
        ({"type": "array", "items": record("null", record("null", name="S"))}, "take no bytes"),
        ("{", "not JSON"),
        ("[" * 100_000, "JSON|deep"),
        ('{"type":' * 70 + '"int"' + "}" * 70, "deep"),
        (json.dumps("x" * (1 << 20)), "more than"),
        ({"type": "nonsense"}, "not defined"),
        ({"type": "record", "name": "R"}, "no fields"),
        (["int", ["string"]], "union"),
        ({"type": "enum", "name": "E", "symbols": []}, "no symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "no size"),
        ({"type": "array"}, "not a type"),
    ],
)
def test_what_is_wrong_or_not_safe_is_refused(schema: Any, said: str) -> None:
    with pytest.raises(NotDecodedError, match=said):
        decoded(schema, b"")


def test_a_schema_that_doubles_at_each_level_is_refused() -> None:
    schema: Any = record(name="R0")
    for level in range(1, 40):
        schema = record(schema, f"R{level - 1}", name=f"R{level}")
    with pytest.raises(NotDecodedError, match="parts"):
        decoded(schema, b"")


def test_long_names_that_each_value_repeats_count() -> None:
    item = {"type": "record", "name": "I", "fields": [{"name": "n" * 100_000, "type": "int"}]}
    with pytest.raises(NotDecodedError, match="may expand"):
        decoded({"type": "array", "items": item}, b"\x02" * 2000)


RECURSIVE = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "next", "type": ["null", "N"]}, {"name": "v", "type": "int"}],
}


def test_recursion_in_a_value_ends_with_a_reason() -> None:
    assert decoded(RECURSIVE, b"\x02\x00\x04\x06") == {"next": {"next": None, "v": 2}, "v": 3}
    with pytest.raises(NotDecodedError, match="too deeply"):
        decoded(RECURSIVE, b"\x02" * 200_000)
    with pytest.raises(NotDecodedError, match="too deeply"):
        decoded(record("R"), b"")


@pytest.mark.parametrize(
    ("schema", "data", "said"),
    [
        ("int", b"\x02\x02", "1 bytes follow"),
        ("string", b"\x06ab", "early"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "symbol is number -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x04", "symbol is number 2"),
        (["null", "int"], b"\x08", "IndexError"),
        ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x10\x02", "early"),
    ],
)
def test_a_value_that_does_not_fit_says_why(schema: Any, data: bytes, said: str) -> None:
    with pytest.raises(NotDecodedError, match=said):
        decoded(schema, data)


FIXED_UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
DURATION = {"type": "fixed", "name": "T", "size": 12, "logicalType": "duration"}
BIG_DECIMAL = {"type": "bytes", "logicalType": "big-decimal"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("schema", "data", "shown"),
    [
        (MILLIS, b"\x80\xf0\xfe\xa1\xfa\x9d\x73", "+10000-01-01T00:00:00.000Z"),
        (MILLIS, b"\xfe" + b"\xff" * 8 + b"\x01", "+292278994-08-17T07:12:55.807Z"),
        ({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\xff\x0f", "-5877641-06-23"),
        (FIXED_UUID, bytes.fromhex("123e4567e89b12d3a456426614174000"), "123e4567-e89b-12d3-a456-426614174000"),
        (DURATION, b"\1\0\0\0\xff\xff\xff\xff\xa1\x0f\0\0", "P1M4294967295DT4.001S"),
        (BIG_DECIMAL, b"\6\2\x85\4", "-1.23"),
        (BIG_DECIMAL, b"\6\2\x07\5", "7E+3"),
        (BIG_DECIMAL, b"\x0a\2\x07\x80\x80\4", "7E-32768"),
    ],
)
def test_values_of_every_range_have_a_form(schema: Any, data: bytes, shown: str) -> None:
    read = avro.reader_of(Schema("AVRO", json.dumps(schema)), {})
    assert read.text(data) == json.dumps(shown)


@pytest.mark.parametrize(
    "properties",
    [
        {"precision": 2, "scale": 3},
        {"scale": 1},
        {"precision": 0},
        {"precision": -1},
        {"precision": 4, "scale": -1},
        {"precision": "4"},
        {"precision": 4.0},
        {"precision": True},
        {"precision": 5},  # two bytes have 4 digits
    ],
)
def test_a_decimal_that_is_not_valid_is_ignored_as_java_does(properties: dict[str, Any]) -> None:
    fixed = {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", **properties}
    assert decoded(fixed, b"ab") == "ab"
    if properties != {"precision": 5}:
        assert decoded({**fixed, "type": "bytes"}, b"\4ab") == "ab"
    assert decoded({**fixed, "precision": 4, "scale": None}, b"ab") == "24930"


@pytest.mark.parametrize("logical", [("uuid", 15), ("duration", 16), ("big-decimal", 3), ("date", 4)])
def test_a_logical_type_of_another_size_or_type_is_ignored(logical: tuple[str, int]) -> None:
    name, size = logical
    assert decoded({"type": "fixed", "name": "L", "size": size, "logicalType": name}, b"a" * size) == "a" * size


@pytest.mark.parametrize(
    ("kind", "data", "shown", "why"),
    [
        ("string", b"\4a\xff", "a\ufffd", "a text in it is not UTF-8"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", -1, "f1: -1 is not a time of day"),
        (
            {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}},
            b"\4\2\1\0",
            ["00:00:00.000001", -1],
            "f1[]: -1",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            b"\xd0\x0f" + b"a" * 1000,
            "a" * 1000,
            "f1: it is a decimal number of 1000 bytes",
        ),
        (BIG_DECIMAL, b"\4\4a", "\4a", "f1: it is not a decimal number with a scale"),
        (BIG_DECIMAL, b"\x08\2a\0a", "\2a\0a", "f1: it is not a decimal number with a scale"),
        (BIG_DECIMAL, b"\0", "", "f1: it is not a decimal number with a scale"),
    ],
)
def test_a_field_that_cannot_be_shown_does_not_take_its_record_with_it(
    kind: Any, data: bytes, shown: Any, why: str
) -> None:
    text = avro.reader_of(Schema("AVRO", json.dumps(record("int", kind, "int"))), {}).text(b"\2" + data + b"\4")
    assert isinstance(text, RemarkedText) and text.is_decoded and text.why.startswith(why)
    assert json.loads(text.text) == {"f0": 1, "f1": shown, "f2": 2}


def test_of_two_fields_with_one_name_the_last_is_shown_and_the_first_may_define_its_type() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "bytes"}]}
    twice = {"type": "record", "name": "R", "fields": [{"name": "f", "type": inner}, {"name": "f", "type": "I"}]}
    assert decoded(twice, b"\2\xfe\2\xff") == {"f": {"b": "ÿ"}}


def test_many_remarks_are_counted() -> None:
    schema = {"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}
    text = avro.reader_of(Schema("AVRO", json.dumps(schema)), {}).text(b"\xd0\x0f" + b"\1" * 1000 + b"\0")
    assert isinstance(text, RemarkedText) and text.why == "[]: -1 is not a time of day (and 999 more)"


def test_branches_of_a_union_are_told_apart() -> None:
    branches = [
        "null",
        "long",
        MILLIS,
        "bytes",
        "string",
        FIXED_UUID,
        record("bytes", name="A"),
        record("long", name="B"),
    ]
    schema = {"type": "array", "items": [one for one in branches if one != MILLIS]}
    data = b"\x0e\0\2\2\4\2\xff\6\2x\x08" + bytes(16) + b"\x0a\2\xfe\x0c\4\0"
    shown = [None, 1, "ÿ", "x", str(uuid.UUID(int=0)), {"f0": "þ"}, {"f0": 2}]
    assert decoded(schema, data) == shown
    assert decoded(["null", MILLIS, "string"], b"\2\2") == "1970-01-01T00:00:00.001Z"
    tree = record(["null", "bytes", {"type": "array", "items": "R"}])
    assert decoded(tree, b"\4\4\2\2\xff\0\0") == {"f0": [{"f0": "ÿ"}, {"f0": None}]}


def test_fingerprints_are_those_of_the_specification() -> None:
    assert avro.fingerprint(Schema("AVRO", '"int"'))[::-1].hex() == "7275d51a3f395c8f"
    assert avro.fingerprint(Schema("AVRO", " int ")) == avro.fingerprint(Schema("AVRO", '{"type": "int", "doc": "d"}'))
    for text in ("{", '"a.Other"', "[" * 1000):
        with pytest.raises(NotDecodedError):
            avro.fingerprint(Schema("AVRO", text))


def test_fastavros_own_tables_stay_as_they_are() -> None:
    assert not [name for name in (*_read.LOGICAL_READERS, *_read_py.LOGICAL_READERS) if "seglog" in name]
    schema = fastavro.parse_schema({"type": "long", "logicalType": "timestamp-millis"})
    assert fastavro.schemaless_reader(BytesIO(b"\2"), schema, None) == datetime.datetime(
        1970, 1, 1, 0, 0, 0, 1000, datetime.UTC
    )


# --- compared with fastavro ---------------------------------------------------------------------------------

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 4},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "int", "logicalType": "nobody-knows-it"},
)


class Maker:
    """Makes schemas and values of them. `within_itself`: how many of its records are."""

    within_itself = 0.1

    def __init__(self, seed: int) -> None:
        self.random, self.names = random.Random(seed), 0
        self.known: dict[str, Any] = {}  # types that were defined before, by name

    def schema(self, depth: int = 4) -> Any:
        choice = self.random.randrange(11 if depth else 3)
        if choice < 2:
            return self.random.choice(PRIMITIVES)
        if choice == 2:
            return self.random.choice(LOGICAL)
        if choice == 3:
            return {"type": "array", "items": "string" if self.random.random() < 0.5 else self.record(depth - 1)}
        if choice == 4:
            return {"type": "map", "values": self.schema(depth - 1)}
        if choice == 5:
            return ["null", *{json.dumps(kind): kind for kind in [self.record(depth - 1), "string"]}.values()]
        if choice == 6:
            return self.named("E", {"type": "enum", "symbols": ["A", "B", "C"]})
        if choice == 7:
            return self.named("F", {"type": "fixed", "size": self.random.randrange(1, 5)})
        if choice == 8 and self.known:
            small = [name for name in self.known if name[0] in "EF"]
            return self.random.choice(small if small and self.random.random() < 0.8 else list(self.known))
        if choice == 9:
            kinds = ["null", "boolean", "long", "string", {"type": "array", "items": "double"}, "a record"]
            chosen = self.random.sample(kinds, self.random.randrange(2, 6))
            return [self.record(depth - 1) if kind == "a record" else kind for kind in chosen]
        return self.record(depth - 1)

    def named(self, start: str, schema: dict[str, Any]) -> dict[str, Any]:
        self.names += 1
        name = f"{start}{self.names}"
        self.known[name] = {**schema, "name": name}
        return self.known[name]

    def record(self, depth: int) -> Any:
        self.names += 1
        name = f"R{self.names}"
        fields = [{"name": f"f{i}", "type": self.schema(depth)} for i in range(self.random.randrange(1, 6))]
        if self.random.random() < self.within_itself:
            fields.append({"name": "again", "type": ["null", name]})
        made = {"type": "record", "name": name, "fields": [*fields, {"name": "last", "type": "int"}]}
        self.known[name] = made
        return made

    def value(self, schema: Any) -> Any:
        draw = self.random
        if isinstance(schema, list):
            return self.value(draw.choice(schema))
        if isinstance(schema, str) and schema in self.known:
            return self.value(self.known[schema])
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(schema, str) and "logicalType" in schema:
            return self.logical(schema["logicalType"])
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(draw.randrange(4))]
        if kind == "map":
            return {self.text(): self.value(schema["values"]) for _ in range(draw.randrange(4))}
        if kind == "enum":
            return draw.choice(schema["symbols"])
        if kind == "fixed":
            return draw.randbytes(schema["size"])
        return {
            "null": None,
            "boolean": draw.random() < 0.5,
            "int": draw.randrange(-(1 << 31), 1 << 31),
            "long": draw.randrange(-(1 << 63), 1 << 63),
            "float": draw.randrange(1000) / 8,
            "double": draw.choice((draw.uniform(-1e300, 1e300), draw.random() * 1e-4, 0.1, 1e16, math.inf, math.nan)),
            "bytes": draw.randbytes(draw.randrange(9)),
            "string": self.text(),
        }[kind]

    def text(self) -> str:
        return "".join(self.random.choices(string.printable + "äλ\u2028😀", k=self.random.randrange(9)))

    def logical(self, name: str) -> Any:
        draw = self.random
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
            milliseconds=draw.randrange(-(10**13), 10**14)
        )
        return {
            "date": moment.date(),
            "timestamp-millis": moment,
            "timestamp-micros": moment,
            "time-millis": moment.time(),
            "time-micros": moment.time(),
            "local-timestamp-millis": moment.replace(tzinfo=None),
            "local-timestamp-micros": moment.replace(tzinfo=None),
            "uuid": uuid.UUID(bytes=draw.randbytes(16)),
            "nobody-knows-it": 7,
            "decimal": Decimal(draw.randrange(-(10**11), 10**11)).scaleb(-4),
        }[name]


def plain(value: Any, shown: Any) -> Any:
    """What fastavro gives, in the form that is shown; `shown` is only asked for its kind."""
    if isinstance(value, dict):
        return {name: plain(each, shown[name]) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each, other) for each, other in zip(value, shown, strict=True)]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, Decimal):
        assert Decimal(shown) == value
        return shown
    if isinstance(value, datetime.datetime):
        assert datetime.datetime.fromisoformat(shown) == value
        return shown
    if isinstance(value, datetime.time):
        assert datetime.time.fromisoformat(shown) == value
        return shown
    return value.isoformat() if isinstance(value, datetime.date) else value


def compared(maker: Maker, count: int) -> None:
    """Compares values of a random schema with those that fastavro reads."""
    schema = maker.record(3)
    parsed = fastavro.parse_schema(schema)
    read = avro.reader_of(Schema("AVRO", json.dumps(schema)), {})
    for _ in range(count):
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, maker.value(schema))
        theirs = fastavro.schemaless_reader(BytesIO(out.getvalue()), parsed, None)
        ours = json.loads(text_of(read.text(out.getvalue())))
        assert ours == plain(theirs, ours), schema


@pytest.mark.parametrize("effort", [(40, 30), pytest.param((100, 300), marks=pytest.mark.slow)])
def test_values_of_random_schemas_are_those_of_fastavro(effort: tuple[int, int]) -> None:
    schemas, values = effort
    for seed in range(schemas):
        compared(Maker(seed), values)
