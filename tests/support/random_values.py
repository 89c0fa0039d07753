"""Random values of every logical type of Avro and of Protobuf's well-known types, in and out of their ranges."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from seglog_ask.values.protoc import compiled
from tests.support.schema_registry import avro

INT, LONG = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
DAY_MS = 86_400_000
UUID_TEXT = "123e4567-e89b-12d3-a456-426614174000"


class Kind(NamedTuple):
    """A type of Avro: its schema, what lies beneath, and what makes a value of that."""

    name: str
    schema: Any
    plain: Any
    make: Callable[[random.Random], Any]


def whole(low: int, high: int, *usual: int) -> Callable[[random.Random], int]:
    """Makes whole numbers: those at the ends, usual ones and their neighbours, and random ones of every size."""

    def make(draw: random.Random) -> int:
        kind = draw.randrange(4)
        if kind == 0:
            return draw.choice((low, high, 0, -1, 1))
        if kind == 1 and usual:
            return min(high, max(low, draw.choice(usual) + draw.randrange(-2, 3)))
        size = draw.randrange(1, high.bit_length() + 1)
        return draw.randrange(max(low, -(1 << size)), min(high, 1 << size))

    return make


def some_bytes(*sizes: int) -> Callable[[random.Random], bytes]:
    """Makes bytes of one of some sizes."""
    return lambda draw: draw.randbytes(draw.choice(sizes))


def big_decimal(draw: random.Random) -> bytes:
    """A decimal number with its scale, now and then broken."""
    number, scale = draw.randbytes(draw.randrange(1, 20)), draw.choice((0, 2, 30, -3, 4096, draw.randrange(-50, 50)))
    fields = [{"name": "number", "type": "bytes"}, {"name": "scale", "type": "int"}]
    data = avro({"type": "record", "name": "B", "fields": fields}, {"number": number, "scale": scale})
    return data if draw.random() < 0.95 else data[:-1]


def floating(size: int) -> Callable[[random.Random], float]:
    """Makes floating-point numbers of so many bytes, with those that JSON lacks."""

    def make(draw: random.Random) -> float:
        (anything,) = struct.unpack("<d" if size == 8 else "<f", draw.randbytes(size))
        return draw.choice((anything, math.nan, math.inf, -math.inf, -0.0, 0.1, 1e16, 5e-324 if size == 8 else 1e-45))

    return make


def avro_kinds() -> Iterator[Kind]:
    """The types: each with its own schema, and those that a schema names but that are not valid."""

    def of(name: str, plain: Any, make: Callable[[random.Random], Any], **more: Any) -> Kind:
        named = name.replace("-", "_")
        beneath = {"type": "fixed", "name": "F", **plain} if isinstance(plain, dict) else {"type": plain}
        return Kind(named, {**beneath, **more}, beneath, make)

    years = (-62_135_596_800, 253_402_300_800, 0)
    yield of("date", "int", whole(*INT, -719_162, 2_932_897), logicalType="date")
    yield of("time-millis", "int", whole(-5, DAY_MS + 5, 0, DAY_MS), logicalType="time-millis")
    yield of("time-micros", "long", whole(-5, DAY_MS * 1000 + 5, 0, DAY_MS * 1000), logicalType="time-micros")
    for local in ("", "local-"):
        for unit, size in (("millis", 10**3), ("micros", 10**6), ("nanos", 10**9)):
            name = f"{local}timestamp-{unit}"
            yield of(name, "long", whole(*LONG, *(year * size for year in years)), logicalType=name)
    for precision, scale, sizes in ((9, 2, (0, 1, 3, 4)), (38, 10, (1, 8, 15, 16)), (60, 0, (1, 20)), (5, 5, (1, 2))):
        digits = {"logicalType": "decimal", "precision": precision, "scale": scale}
        yield of(f"decimal_{precision}", "bytes", some_bytes(*sizes), **digits)
    yield of("decimal_fixed", {"size": 8}, some_bytes(8), logicalType="decimal", precision=18, scale=4)
    yield of("decimal_scale", "bytes", some_bytes(1, 3), logicalType="decimal", precision=2, scale=3)
    yield of("decimal_bare", "bytes", some_bytes(1, 3), logicalType="decimal", scale=1)
    yield of("decimal_small", {"size": 2}, some_bytes(2), logicalType="decimal", precision=5)
    yield of("uuid", {"size": 16}, some_bytes(16), logicalType="uuid")
    yield of("uuid_text", "string", lambda _: UUID_TEXT, logicalType="uuid")
    yield of("uuid_15", {"size": 15}, some_bytes(15), logicalType="uuid")
    yield of("duration", {"size": 12}, some_bytes(12), logicalType="duration")
    yield of("big-decimal", "bytes", big_decimal, logicalType="big-decimal")
    yield of("double", "double", floating(8))
    yield of("float", "float", floating(4))


def avro_values(kind: Kind, count: int, draw: random.Random) -> tuple[Any, list[bytes]]:
    """The schema of records with a type as a field, as what may be null, in a list, and in a map; and values."""

    def record(type_: Any) -> Any:
        again = type_.get("name", type_)
        kinds = ("int", type_, ["null", again], {"type": "array", "items": again}, {"type": "map", "values": again})
        return {
            "type": "record",
            "name": "R",
            "fields": [{"name": f"f{i}", "type": one} for i, one in enumerate(kinds)],
        }

    def value() -> dict[str, Any]:
        few = draw.randrange(3) if draw.random() < 0.3 else 0
        optional = kind.make(draw) if draw.random() < 0.3 else None
        items = [kind.make(draw) for _ in range(few)]
        entries = {str(i): one for i, one in enumerate(items)}
        return {"f0": 7, "f1": kind.make(draw), "f2": optional, "f3": items, "f4": entries}

    return record(kind.schema), [avro(record(kind.plain), value()) for _ in range(count)]


IMPORTS = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
OWN = (
    "Timestamp",
    "Duration",
    "FieldMask",
    "Any",
    "Struct",
    "Value",
    "ListValue",
    "Empty",
    *(f"{one}Value" for one in WRAPPED),
)


def proto_text() -> str:
    """A message with a field of each well-known type, its double in a list, and plain ones."""
    imports = "".join(f'import "google/protobuf/{one}.proto"; ' for one in IMPORTS)
    fields = [f"google.protobuf.{name} f{i} = {i};" for i, name in enumerate(OWN, 2)]
    fields += [f"repeated google.protobuf.{name} l{i} = {i + 50};" for i, name in enumerate(OWN, 2)]
    fields += [
        "double d = 101;",
        "float f = 102;",
        "bytes b = 103;",
        "uint64 u = 104;",
        "map<string, google.protobuf.Timestamp> m = 105;",
    ]
    messages = f"message M {{ int32 n = 1; {' '.join(fields)} }} message In {{ string s = 1; }}"
    return f'syntax = "proto3"; package w; {imports} {messages}'


class ProtoValues:
    """Values of `proto_text`, and its descriptors in base64 for Java."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        files = compiled("w.proto", {"w.proto": proto_text()})
        self.descriptors = base64.b64encode(files).decode()
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
            pool.Add(file)
        self._message = message_factory.GetMessageClass(pool.FindMessageTypeByName("w.M"))

    def value(self) -> bytes:
        """A value with some fields, sometimes with one that its type does not know."""
        draw, message = self._draw, self._message(n=7)
        for _ in range(draw.randrange(1, 4)):
            number = draw.randrange(2, len(OWN) + 2)
            if draw.random() < 0.7:
                self._fill(getattr(message, f"f{number}"), OWN[number - 2])
            else:
                self._fill(getattr(message, f"l{number}").add(), OWN[number - 2])
        if draw.random() < 0.3:
            message.d, message.f, message.b = floating(8)(draw), floating(4)(draw), draw.randbytes(3)
            message.u = draw.choice((0, 2**64 - 1))
            self._fill(message.m["k"], "Timestamp")
        return bytes(message.SerializeToString())

    def _fill(self, message: Any, name: str) -> None:
        draw = self._draw
        message.SetInParent()
        if name in ("Timestamp", "Duration"):
            limits = (
                -62_135_596_800,
                253_402_300_799,
                9_223_372_036,
                -9_223_372_037,
                315_576_000_000,
                -315_576_000_000,
            )
            near = draw.choice((0, 1_700_000_000, *limits))
            message.seconds = near + draw.randrange(-2, 3) if draw.random() < 0.9 else whole(*LONG)(draw)
            nanos = draw.choice((0, 5, 10**6, 123_456_000, 999_999_999, draw.randrange(10**9)))
            sign = -1 if name == "Duration" and message.seconds < 0 else 1
            message.nanos = sign * nanos if draw.random() < 0.95 else draw.choice((-1, 10**9, -(10**9)))
        elif name == "FieldMask":
            message.paths.extend(
                draw.sample(["a", "b.c_d", "long_name", "address_1", "fooBar", "x_"], draw.randrange(3))
            )
        elif name == "Any":
            known = draw.choice(("w.In", "google.protobuf.Int64Value", "google.protobuf.Timestamp", "x.Unknown"))
            message.type_url = f"type.googleapis.com/{known}"
            message.value = draw.choice((b"", b"\x0a\1x" if known in ("w.In", "x.Unknown") else b"\x08\5"))
        elif name in ("Struct", "Value", "ListValue"):
            self._fill_free(message, name, 3)
        elif name.endswith("Value"):
            self._fill_wrapper(message, name.removesuffix("Value"))

    def _fill_wrapper(self, message: Any, name: str) -> None:
        draw = self._draw
        bits = 64 if name.endswith("64") else 32
        low, high = (0, 2**bits - 1) if name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if name in ("Double", "Float"):
            message.value = floating(8 if name == "Double" else 4)(draw)
        elif name in ("String", "Bytes"):
            message.value = draw.choice(("", "x", "ö\0")) if name == "String" else draw.randbytes(draw.randrange(4))
        else:
            message.value = (
                draw.random() < 0.5 if name == "Bool" else draw.choice((low, high, 0, draw.randint(low, high)))
            )

    def _fill_free(self, message: Any, name: str, depth: int) -> None:
        draw = self._draw
        if name == "Struct":
            for _ in range(draw.randrange(3)):
                self._fill_free(message.fields[draw.choice("abc")], "Value", depth - 1)
        elif name == "ListValue":
            for _ in range(draw.randrange(3)):
                self._fill_free(message.values.add(), "Value", depth - 1)
        else:
            kind = draw.randrange(6 if depth > 0 else 4)
            if kind == 0:
                message.null_value = 0
            elif kind == 1:
                message.number_value = draw.choice((0.0, 1.5, -1e300, 1e16, math.nan if draw.random() < 0.1 else 0.1))
            elif kind == 2:
                message.string_value = draw.choice(("", "ö"))
            elif kind == 3:
                message.bool_value = draw.random() < 0.5
            else:
                within = "struct_value" if kind == 4 else "list_value"
                getattr(message, within).SetInParent()
                self._fill_free(getattr(message, within), "Struct" if kind == 4 else "ListValue", depth - 1)


def as_line(*words: str | bytes) -> str:
    """A line for Java: each word after the first in base64, unless it is a descriptor or a name."""
    return " ".join(base64.b64encode(one).decode() if isinstance(one, bytes) else one for one in words)


def schema_word(schema: Any) -> bytes:
    """A schema's text for `as_line`."""
    return json.dumps(schema).encode()
