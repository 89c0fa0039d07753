"""Mutated values and mutated schemas, decoded in a process with limits.

`python -m tests.support.hostile_values VALUES SCHEMAS SEED` decodes so many of each, Avro and Protobuf, with 2 GiB of
memory and 10 seconds for each. It ends with an error if one takes longer or raises anything but NotDecodedError, and
prints how many were decoded, and how many were not, by the beginning of the reason. A crash is the process's own end.
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
from typing import Any

from seglog.values import avro, protobuf
from seglog.values.schemas import NotDecodedError, Schema
from tests.support.schema_registry import ITEM, ORDER, text_of
from tests.support.schema_registry import avro as written

SECONDS, BYTES = 10, 2 << 30
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
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        work()
        counts[f"{name}: decoded"] += 1
    except NotDecodedError as error:
        reason = re.sub(r"[\d:]+", "N", str(error))
        counts[f"{name}: {' '.join(reason.split()[:4])}"] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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
            counted(counts, "Protobuf value", lambda broken=broken: text_of(*decode([broken], None)))  # type: ignore[misc]


def schemas(count: int, draw: random.Random, counts: Counter[str]) -> None:
    """Makes readers of mutated schemas, and decodes mutated values by those that are read."""
    texts = [json.dumps(schema) for schema, _ in SAMPLES]
    others = [word for text in texts for word in tokens_of(text)]
    good = [written(schema, value) for schema, values in SAMPLES for value in values]
    for number in range(count):
        if number % PROTOC_SHARE == 0:
            text = mutated_text(draw.choice((PROTO, ITEM)), draw, tokens_of(PROTO))
            schema, data = Schema("PROTOBUF", text), mutated(b"\0" + PAYLOADS[0], draw)
            counted(counts, "Protobuf schema", lambda s=schema, d=data: text_of(*protobuf.reader_of(s, {})([d], None)))  # type: ignore[misc]
            continue
        if number % 5:
            text = json.dumps(mutated_tree(draw.choice(SAMPLES)[0], draw))
        else:
            text = mutated_text(draw.choice(texts), draw, others)
        schema, data = Schema("AVRO", text), draw.choice(good)
        counted(counts, "Avro schema", lambda s=schema, d=data: text_of(avro.reader_of(s, {}).text(d)))  # type: ignore[misc]


def main() -> None:
    """Runs with the numbers of the command line."""
    count, of_schemas, seed = map(int, sys.argv[1:])
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))

    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, too_long)
    counts: Counter[str] = Counter()
    values(count, random.Random(seed), counts)
    schemas(of_schemas, random.Random(seed + 1), counts)
    for reason, number in counts.most_common():
        sys.stdout.write(f"{number:9} {reason}\n")
    sys.stdout.write(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB\n")


if __name__ == "__main__":
    main()
