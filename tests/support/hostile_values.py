"""Mutated values and mutated schemas, decoded in a process with limits.

`python -m tests.support.hostile_values VALUES SCHEMAS SEED` decodes so many of each, Avro and Protobuf, with 2 GiB of
memory and 10 CPU seconds for each. It ends with an error if one takes longer or raises anything but NotDecodedError,
and prints how many were decoded, and how many were not, by the beginning of the reason. A crash is the process's own
end.
With `typed` after the numbers it makes columns with types of them: blocks of values, which have 10 seconds together,
and for each schema its column with a few values. Then every value has a reason or is what the decoder of JSON accepts.
"""

from __future__ import annotations

import faulthandler
import json
import random
import re
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog_ask.table.values.columns import Part, Place
from seglog_ask.table.values.typed import Shown, TypedColumn
from seglog_ask.values import avro, protobuf
from seglog_ask.values.column_types import column_type
from seglog_ask.values.forms import Forms, Tally
from seglog_ask.values.frames import PATH_BEFORE
from seglog_ask.values.schemas import KnownSchemas, NotDecodedError, RemarkedText, Schema, Text
from tests.support.arrow_numbers import by_numbers
from tests.support.schema_registry import ITEM, ORDER, text_of
from tests.support.schema_registry import avro as written

SECONDS, BYTES = 10, 2 << 30
FRAME = b"\0\0\0\0\1"
BLOCK = 1000  # values of a column at once
COMPARED = 50  # of a block
PROTOC_SHARE = 200  # one schema of so many is Protobuf's, as each takes a process

TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "v", "type": "int"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}],
}
WIDE = {
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": ["null", "long", "string"]}}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "x", "type": ["null", "E", {"type": "map", "values": "double"}]},
    ],
}
PROTO = """syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";
message Node { string name = 1; repeated Node children = 2; map<string, Node> named = 3; sint64 n = 4;
  repeated double d = 5; google.protobuf.Struct free = 6; google.protobuf.Any any = 7;
  oneof o { bytes b = 8; bool c = 9; } }
"""
SAMPLES: list[tuple[Any, list[Any]]] = [
    (ORDER, [{"id": 5, "city": "Köln", "note": "x" * 20}, {"id": -1, "city": "", "note": None}]),
    (TREE, [{"v": 1, "children": [{"v": 2, "children": [{"v": 3, "children": []}] * 3}] * 3}]),
    (
        WIDE,
        [{"e": "B", "m": {"a": [None, 7, "s"], "b": []}, "d": b"\1\2", "t": 10**15, "f": b"abc", "x": {"k": 1.5}}],
    ),
]
ODD: tuple[Any, ...] = (None, "null", -1, 10**11, 1e99, "", [], {}, "Tree", True, "x" * 5000, ["int"], {"type": "Tree"})
WITHIN = {"type": "record", "name": "Within", "fields": [{"name": "s", "type": "string"}]}
FLAT: tuple[Any, list[Any]] = (
    {
        "type": "record",
        "name": "Flat",
        "fields": [
            {
                "name": "n",
                "type": ["null", {"type": "record", "name": "In", "fields": [{"name": "s", "type": "string"}]}],
            },
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
            {"name": "x", "type": ["double", "null"]},
        ],
    },
    [{"n": {"s": "Köln"}, "e": "B", "d": b"\1\2", "t": 10**15, "f": b"abc", "x": None}],
)
FLAT_PROTO = (
    """syntax = "proto3"; message Flat { string s = 1; Within w = 2; sint64 n = 4; E e = 5; uint64 u = 6;
    oneof o { bytes b = 8; bool c = 9; } optional float f = 10; } message Within { Deep deep = 1; string t = 2; }
    message Deep { fixed32 x = 3; } enum E { A = 0; B = 1; }""",
    [b"\x0a\1x\x12\x0a\x0a\5\x1d\1\0\0\0\x12\1y\x20\7\x28\1\x30\5\x42\1b", b"\x48\1\x55\0\0\0\x40"],
)
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "tags", "type": ["null", {"type": "array", "items": {"type": "array", "items": "double"}}]},
        {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
    ],
}
NESTED: tuple[Any, list[Any]] = (
    {
        "type": "record",
        "name": "Nested",
        "fields": [
            {"name": "n", "type": {"type": "array", "items": "int"}},
            {"name": "lines", "type": {"type": "array", "items": LINE}},
            {"name": "by", "type": {"type": "map", "values": "Line"}},
        ],
    },
    [
        {
            "n": [1, -2, 70_000],
            "lines": [{"sku": "a", "tags": [[1.5], []], "m": {"k": 7, "l": None}}, {"sku": "ö", "tags": None, "m": {}}],
            "by": {"x": {"sku": "", "tags": [], "m": {str(i): i for i in range(12)}}},
        }
    ],
)
NESTED_PROTO = (
    """syntax = "proto3"; message Nested { repeated sint32 n = 1; repeated Line lines = 2; map<string, Line> by = 3;
    map<int32, E> e = 4; repeated fixed64 f = 5; Line one = 6; } enum E { A = 0; B = 1; }
    message Line { string sku = 1; repeated string tags = 2; map<bool, Deep> m = 3; repeated Deep deep = 4; }
    message Deep { repeated bool b = 1; optional float x = 2; }""",
    [
        b"\x0a\3\1\2\3\x08\5\x12\x11\x0a\1a\x12\1b\x12\0\x1a\7\x08\1\x12\3\x0a\1\1\x1a\x08\x0a\1k\x12\3\x12\1t"
        b"\x22\4\x08\7\x10\1\x2a\x10" + bytes(16) + b"\x32\7\x22\5\x15\0\0\0\x40",
        b"\x32\4\x22\2\x08\1\x32\2\x22\0\x29" + bytes(8),
    ],
)
PAYLOADS = [b"\x0a\1x\x12\4\x0a\2yy\x20\7\x2a\x10" + bytes(16), b"\x1a\7\x0a\1k\x12\2\x20\1\x32\0\x42\3abc"]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """The data with some bytes changed, cut, repeated or put in; sometimes very many of one byte."""
    out = bytearray(data)
    for _ in range(draw.randrange(1, 5)):
        at, kind = draw.randrange(len(out) + 1), draw.randrange(7)
        if kind == 0:
            out[at : at + 1] = draw.randbytes(1)
        elif kind == 1:
            out[at:at] = draw.choice((b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x10", b"\x01", b"\x00", b"\xff" * 40))
        elif kind == 2:
            del out[at : at + draw.randrange(1, 9)]
        elif kind == 3:
            out[at:at] = out[at : at + draw.randrange(1, 30)]
        elif kind == 4 and out:
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
        elif kind == 5:
            del out[at:]
        elif draw.randrange(400) == 0:
            out[at:at] = bytes([draw.choice((0, 1, 2, 4, 0x12, 0x80, 0xFF))]) * draw.choice((300, 20_000, 300_000))
    return bytes(out)


def tokens_of(text: str) -> list[str]:
    """A schema's text in words and marks."""
    return re.findall(r'"[^"]*"|\w+|\S|\s+', text)


def mutated_text(text: str, draw: random.Random, others: Sequence[str]) -> str:
    """A schema with words changed for those of others, taken away, doubled, or nested."""
    words = tokens_of(text)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at, kind = draw.randrange(len(words) + 1), draw.choice((0, 0, 0, 0, 1, 2, 3, 3, 4, 5))
        if kind == 0:
            words[at : at + 1] = [draw.choice(others)]
        elif kind == 1:
            del words[at : at + draw.randrange(1, 6)]
        elif kind == 2:
            words[at:at] = words[at : at + draw.randrange(1, 40)]
        elif kind == 3:
            words[at : at + 1] = [json.dumps(draw.choice(ODD))]
        elif kind == 4 and draw.randrange(20) == 0:
            words[at:at] = words[at : at + 8] * draw.choice((10, 70, 1000))
        else:
            words.insert(at, draw.choice(("{", "}", "[", "]", ",", ":")))
    return "".join(words)


def mutated_tree(schema: Any, draw: random.Random) -> Any:
    """A schema, some of whose parts are those of another place, or odd; sometimes nested many times."""
    tree = json.loads(json.dumps(schema))
    for _ in range(draw.choice((1, 1, 2, 4))):
        places = [(holder, name) for holder in _holders(tree) for name in _names(holder)]
        if not places:
            break
        holder, name = draw.choice(places)
        kind = draw.randrange(6)
        if kind < 2:
            other, other_name = draw.choice(places)
            holder[name] = json.loads(json.dumps(other[other_name]))
        elif kind == 2:
            holder[name] = json.loads(json.dumps(draw.choice(ODD)))
        elif kind == 3:
            del holder[name]
        elif kind == 4:
            holder[name] = draw.choice(("int", "Tree", "bytes", {"type": "array", "items": holder[name]}))
        elif draw.randrange(10) == 0:
            for _ in range(draw.choice((10, 63, 90, 300))):
                holder[name] = {"type": "array", "items": holder[name]}
    return tree


def _holders(tree: Any) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            yield one
            waiting += one.values() if isinstance(one, dict) else one


def _names(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))


def counted(counts: Counter[str], name: str, work: Callable[[], object]) -> None:
    """Does the work within its time, and counts how it ended."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        work()
        counts[f"{name}: decoded"] += 1
    except NotDecodedError as error:
        reason = re.sub(r"[\d:]+", "N", str(error))
        counts[f"{name}: {' '.join(reason.split()[:4])}"] += 1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def values(count: int, draw: random.Random, counts: Counter[str]) -> None:
    """Decodes mutated values of good schemas."""
    readers = []
    for schema, good in SAMPLES:
        read = avro.reader_of(Schema("AVRO", json.dumps(schema)), {})
        readers += [(read, written(schema, one)) for one in good]
    decode = protobuf.reader_of(Schema("PROTOBUF", PROTO), {})
    for number in range(count):
        if number % 3:
            read, data = draw.choice(readers)
            broken = mutated(data, draw)
            counted(counts, "Avro value", lambda read=read, broken=broken: text_of(read.text(broken)))  # type: ignore[misc]
        else:
            broken = mutated(b"\0" + draw.choice(PAYLOADS), draw)
            counted(counts, "Protobuf value", lambda broken=broken: text_of(*decode([broken], PATH_BEFORE)))  # type: ignore[misc]


def schemas(count: int, draw: random.Random, counts: Counter[str]) -> None:
    """Makes readers of mutated schemas, and decodes mutated values by those that are read."""
    texts = [json.dumps(schema) for schema, _ in SAMPLES]
    others = [word for text in texts for word in tokens_of(text)]
    good = [written(schema, value) for schema, values in SAMPLES for value in values]
    for number in range(count):
        if number % PROTOC_SHARE == 0:
            text = mutated_text(draw.choice((PROTO, ITEM)), draw, tokens_of(PROTO))
            schema, data = Schema("PROTOBUF", text), mutated(b"\0" + PAYLOADS[0], draw)
            counted(
                counts,
                "Protobuf schema",
                lambda s=schema, d=data: text_of(*protobuf.reader_of(s, {})([d], PATH_BEFORE)),
            )  # type: ignore[misc]
            continue
        if number % 5:
            text = json.dumps(mutated_tree(draw.choice(SAMPLES)[0], draw))
        else:
            text = mutated_text(draw.choice(texts), draw, others)
        schema, data = Schema("AVRO", text), draw.choice(good)
        counted(counts, "Avro schema", lambda s=schema, d=data: text_of(avro.reader_of(s, {}).text(d)))  # type: ignore[misc]


def laid_out(values: Sequence[bytes]) -> Part:
    """Records with these values, in memory."""
    rows = np.zeros(len(values), dtype=layout.RECORD)
    sizes = np.array([len(one) for one in values], dtype=np.int64)
    rows["value_size"], rows["value_position"], rows["key_size"] = sizes, np.cumsum(sizes) - sizes, -1
    batches = np.zeros(1, dtype=layout.BATCH)
    arena = np.frombuffer(b"".join(values), dtype=np.uint8)
    return Part(Place("t", 0, ""), Records(arena, rows, batches, np.zeros(1, dtype=np.int8)))


def column_of(schema: Schema) -> tuple[TypedColumn, Tally]:
    """The column of a schema, which has the id 1. Raises NotDecodedError if it gives none."""
    known = KnownSchemas("the test")
    known.add(replace(schema, id=1, subject="t-value", version=1))
    column = column_type(Forms("auto", "registry", known), "value", "t", [])
    if column is None:
        raise NotDecodedError("no column")
    tally = Tally()
    return TypedColumn(column, tally), tally


def typed_block(column: TypedColumn, tally: Tally, values: Sequence[bytes], counts: Counter[str], name: str) -> Shown:
    """Makes the column of a block of values, and counts what became of them."""
    before, before_in_part = sum(tally.decoded.values()), sum(tally.partial.values())
    shown = column.of(laid_out([FRAME + one for one in values]))
    shown.values.validate(full=True)
    good = sum(tally.decoded.values()) - before
    in_part = sum(tally.partial.values()) - before_in_part
    whole = good - in_part
    if shown.errors.null_count != whole or shown.undecoded.null_count != whole or len(shown.values) != len(values):
        raise AssertionError(f"{whole} of {len(values)} are decoded, and {shown.errors.null_count} have no reason")
    counts[f"{name}: decoded"] += good
    counts[f"{name}: decoded in part"] += in_part
    counts[f"{name}: not decoded"] += len(values) - good
    return shown


def alike(shown: Shown, values: Sequence[bytes], read: Callable[[bytes], Text]) -> None:
    """Compares with the decoder of JSON: a column has what this accepts, unless it is outside of the column's type."""
    for value, error in zip(values[:COMPARED], shown.errors.to_pylist(), strict=False):
        text = read(value)
        said = "" if isinstance(text, str) else text.why if isinstance(text, RemarkedText) else str(text)
        is_own = error is not None and ("does not fit" in error or "was made without" in error)
        if said != (error or "") and not is_own:
            raise AssertionError(f"{value.hex()}: {said!r} in JSON, {error!r} in a column")


def same_values(shown: Shown, slow: TypedColumn, values: Sequence[bytes]) -> None:
    """Compares what a kernel decoded with what a library gives."""
    by_library = by_numbers(slow.of(laid_out(values)).values)
    for one, other, value in zip(by_numbers(shown.values), by_library, values, strict=False):
        if repr(_in_order(one)) != repr(_in_order(other)):
            raise AssertionError(f"{value.hex()}: {one} by the kernel, {other} by the library")


def _in_order(value: Any) -> Any:
    """A value of a column with the entries of maps sorted: libraries have them in an order of their own."""
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], tuple):
        return sorted((key, repr(_in_order(one))) for key, one in value)
    return [_in_order(one) for one in value]


class BySlowWay(TypedColumn):
    """A column that no kernel decodes."""

    def _programs_of(self, number: Any) -> list[Any]:
        return []


def typed_values(count: int, draw: random.Random, counts: Counter[str]) -> None:
    """Columns of mutated values of good schemas, of which a kernel decodes some and the libraries others."""
    ways: list[tuple[str, Schema, list[bytes], Callable[[bytes], Text]]] = []
    for schema, good in (*SAMPLES, FLAT, NESTED):
        name = f"Avro values, {'the kernel' if schema in (FLAT[0], NESTED[0]) else 'a library'}"
        one = Schema("AVRO", json.dumps(schema))
        ways.append((name, one, [written(schema, value) for value in good], avro.reader_of(one, {}).text))
    for text, good in ((PROTO, PAYLOADS), FLAT_PROTO, NESTED_PROTO):
        name = f"Protobuf values, {'a library' if text is PROTO else 'the kernel'}"
        one = Schema("PROTOBUF", text)
        read = protobuf.reader_of(one, {})
        payloads = [b"\0" + value for value in good]
        ways.append((name, one, payloads, lambda data, read=read: read((data,), PATH_BEFORE)[0]))  # type: ignore[misc]
    columns = [column_of(one) for _, one, _, _ in ways]
    slow = [BySlowWay(column.column, Tally()) for column, _ in columns]
    for number in range(max(len(ways), count // BLOCK)):
        name, _, good, read = ways[number % len(ways)]
        block = [mutated(draw.choice(good), draw) for _ in range(BLOCK)]

        def work(name: str = name, at: int = number % len(ways), block: Sequence[bytes] = block) -> None:
            shown = typed_block(*columns[at], block, counts, name)
            alike(shown, block, ways[at][3])
            same_values(shown, slow[at], [FRAME + one for one in block[:COMPARED]])

        counted(counts, "block", work)


def typed_schemas(count: int, draw: random.Random, counts: Counter[str]) -> None:
    """Columns of mutated schemas."""
    samples = [*SAMPLES, FLAT, NESTED]
    texts = [json.dumps(schema) for schema, _ in samples]
    others = [word for text in texts for word in tokens_of(text)]
    good = [written(schema, value) for schema, values in samples for value in values]
    for number in range(count):
        data = [b"", *(mutated(draw.choice(good), draw) for _ in range(2)), draw.choice(good)]
        if number % PROTOC_SHARE == 0:
            text = mutated_text(draw.choice((PROTO, FLAT_PROTO[0], NESTED_PROTO[0])), draw, tokens_of(PROTO))
            schema = Schema("PROTOBUF", text)
        elif number % 5:
            schema = Schema("AVRO", json.dumps(mutated_tree(draw.choice(samples)[0], draw)))
        else:
            schema = Schema("AVRO", mutated_text(draw.choice(texts), draw, others))

        def work(schema: Schema = schema, data: Sequence[bytes] = data) -> None:
            typed_block(*column_of(schema), data, counts, f"{schema.type} column")

        counted(counts, f"{schema.type} schema", work)


def main() -> None:
    """Runs with the numbers of the command line."""
    count, of_schemas, seed = map(int, sys.argv[1:4])
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))

    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} CPU seconds")

    signal.signal(signal.SIGPROF, too_long)
    counts: Counter[str] = Counter()
    decode, make = (typed_values, typed_schemas) if sys.argv[4:] == ["typed"] else (values, schemas)
    decode(count, random.Random(seed), counts)
    make(of_schemas, random.Random(seed + 1), counts)
    for reason, number in counts.most_common():
        sys.stdout.write(f"{number:9} {reason}\n")
    sys.stdout.write(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB\n")


if __name__ == "__main__":
    main()
