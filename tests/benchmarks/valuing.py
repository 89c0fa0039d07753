"""What decoding values costs: `python -m tests.benchmarks.valuing [--records 200000]`.

Makes a log of framed Avro values (seven fields, about 45 bytes) and one of Protobuf, and prints, in values a CPU second
of this process (user and system; best of three) and as ratios within one run:

- fastavro and Google's library alone, to Python's values; with `json.dumps` after them;
- JSON lines and a table's columns, decoded; JSON lines that are not decoded, for comparison;
- columns of values with lists of numbers, lists of records, and maps.

It also decodes values of a hundred random schemas of each, and compares them with fastavro's and with Google's library
(`--compared` of each schema; 0: of none), as JSON and as columns. `--records 0` does only this.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

import seglog
from seglog.look.dump.render_records import render_records
from seglog.storage.local import LocalFileSystem
from seglog_ask.values.forms import Values
from seglog_ask.values.protoc import compiled
from seglog_ask.values.sources import forms_of
from tests.support.schema_registry import avro, framed, registered, write_log
from tests.unit.table.test_typed_random import KernelMaker, compared_with_fastavro, compared_with_google
from tests.unit.values import test_avro, test_protobuf

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in (
            ("id", "long"),
            ("name", "string"),
            ("price", "double"),
            ("paid", "boolean"),
            ("note", ["null", "string"]),
            ("count", "int"),
            ("city", "string"),
        )
    ],
}


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields]}


LINE = record(("sku", "string"), ("count", "int"), ("price", "double"), name="Line")
# Of each: its name, the Avro schema, the same in Protobuf, and how a value is made of a number.
NESTED: tuple[tuple[str, Any, str, Callable[[int], Any]], ...] = (
    (
        "list of ints",
        record(("id", "long"), ("list", {"type": "array", "items": "int"})),
        "message Order { int64 id = 1; repeated int32 list = 2; }",
        lambda i: {"id": i, "list": [(i + k) % 300 for k in range(i % 8)]},
    ),
    (
        "list of records",
        record(("id", "long"), ("list", {"type": "array", "items": LINE})),
        "message Order { int64 id = 1; repeated Line list = 2; } "
        "message Line { string sku = 1; int32 count = 2; double price = 3; }",
        lambda i: {"id": i, "list": [{"sku": f"sku-{i % 100}", "count": k, "price": i / 8} for k in range(i % 4)]},
    ),
    (
        "map of strings",
        record(("id", "long"), ("map", {"type": "map", "values": "string"})),
        "message Order { int64 id = 1; map<string, string> map = 2; }",
        lambda i: {"id": i, "map": {f"key{k}": f"value-{i % 100}" for k in range(i % 4)}},
    ),
)
MESSAGE = """syntax = "proto3"; message Order { int64 id = 1; string name = 2; double price = 3; bool paid = 4;
  string note = 5; int32 count = 6; string city = 7; }
"""


def rate(count: int, work: Callable[[], Any]) -> float:
    """Values a CPU second, best of three."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return count / best


def tell(name: str, found: float, against: float = 0.0, goal: float = 0.0) -> None:
    """Prints a rate, its share of another, and the goal."""
    share = f"  {found / against:5.2f} of the library alone" if against else ""
    aim = f"  (goal {goal / 1e6:.2f} M)" if goal else ""
    sys.stdout.write(f"{name:44} {found / 1e6:7.3f} M/CPU s{share}{aim}\n")


def measured(directory: Path, topic: str, alone: float, count: int) -> None:
    """Tells the rates of one topic."""
    path = directory / f"{topic}-0"
    for form in ("auto", "registry"):
        values = Values(forms_of(LocalFileSystem(), "auto", form, beside=[directory]))
        with seglog.open_log(path) as log:
            parts = list(log.columns())

        def lines(parts: list[Any] = parts, values: Values = values) -> None:
            decoder = values.of_topic(topic)
            for part in parts:
                for _ in render_records(part, f"{topic}-0", as_json=True, decoder=decoder):
                    pass

        is_decoded = form == "registry"
        goal = 150_000 if is_decoded and topic == "avro" else 0
        tell(f"{topic}, JSON lines, {form}", rate(count, lines), alone if is_decoded else 0, goal)
    table = seglog.open_table(path, columns=["value"], value_as="registry")
    tell(f"{topic}, a table's columns", rate(count, table.to_table), alone, 3_000_000)


def main() -> None:
    """Runs with the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--compared", type=int, default=10_000)
    options = parser.parse_args()
    if options.records:
        measure(options.records)
    if not options.compared:
        return
    for seed in range(100):
        test_avro.compared(test_avro.Maker(seed), options.compared)
    sys.stdout.write(f"100 schemas, {options.compared} values each: all equal to fastavro's\n")
    for seed in range(100):
        test_protobuf.compared(seed, options.compared)
    sys.stdout.write(f"100 schemas, {options.compared} values each: all equal to Google's library\n")
    for seed in range(100):
        with tempfile.TemporaryDirectory() as name:
            compared_with_fastavro(KernelMaker(seed), options.compared, Path(name))
            compared_with_google(seed, options.compared, Path(name) / "proto")
    sys.stdout.write("columns of 100 schemas that a kernel decodes, and of 100 messages: equal to both libraries'\n")


def measure(count: int) -> None:
    """Tells the rates of logs with so many records."""
    draw = random.Random(1)
    rows = [
        {
            "id": i * 1000,
            "name": f"customer-{i % 1000}",
            "price": draw.random() * 100,
            "paid": i % 2 == 0,
            "note": None if i % 3 else "a note",
            "count": i % 100,
            "city": draw.choice(("Oslo", "Bern", "Amsterdam")),
        }
        for i in range(count)
    ]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_log(
            directory / "_schemas-0",
            [registered("avro-value", 1, 1, ORDER), registered("proto-value", 1, 2, MESSAGE, "PROTOBUF")],
        )
        payloads = [avro(ORDER, row) for row in rows]
        write_log(directory / "avro-0", [seglog.Record(framed(1, one), timestamp=1) for one in payloads])
        parsed = fastavro.parse_schema(ORDER)
        alone = rate(count, lambda: [fastavro.schemaless_reader(BytesIO(one), parsed, None) for one in payloads])
        tell("fastavro alone", alone)
        both = rate(
            count, lambda: [json.dumps(fastavro.schemaless_reader(BytesIO(one), parsed, None)) for one in payloads]
        )
        tell("fastavro and json.dumps", both, alone)
        measured(directory, "avro", alone, count)

        kind = message_class(MESSAGE)
        messages = [json_format.ParseDict(row, kind()).SerializeToString() for row in rows]
        write_log(directory / "proto-0", [seglog.Record(framed(2, b"\0" + one), timestamp=1) for one in messages])
        alone = rate(count, lambda: [kind.FromString(one) for one in messages])
        tell("Google's library alone", alone)
        dicts = rate(count, lambda: [json_format.MessageToDict(kind.FromString(one)) for one in messages])
        tell("Google's library and MessageToDict", dicts, alone)
        measured(directory, "proto", alone, count)
    for number, nested in enumerate(NESTED):
        with tempfile.TemporaryDirectory() as name:
            measure_nested(Path(name), f"nested{number}", *nested, count)


def message_class(text: str) -> Any:
    """The class of the message Order."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled("o.proto", {"o.proto": text})).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


def measure_nested(
    directory: Path, topic: str, name: str, schema: Any, message: str, value: Callable[[int], Any], count: int
) -> None:
    """Tells the rates of columns whose values have lists or maps."""
    text, parsed = f'syntax = "proto3"; {message}', fastavro.parse_schema(schema)
    rows = [value(i) for i in range(count)]
    registered_both = (("a", 1, schema, "AVRO"), ("p", 2, text, "PROTOBUF"))
    known = [registered(f"{topic}{one}-value", 1, number, kind, of) for one, number, kind, of in registered_both]
    write_log(directory / "_schemas-0", known)
    payloads, kind = [avro(schema, row) for row in rows], message_class(text)
    messages = [json_format.ParseDict(row, kind()).SerializeToString() for row in rows]
    write_log(directory / f"{topic}a-0", [seglog.Record(framed(1, one), timestamp=1) for one in payloads])
    write_log(directory / f"{topic}p-0", [seglog.Record(framed(2, b"\0" + one), timestamp=1) for one in messages])
    by_fastavro = rate(count, lambda: [fastavro.schemaless_reader(BytesIO(one), parsed, None) for one in payloads])
    by_google = rate(count, lambda: [kind.FromString(one) for one in messages])
    for of, alone in (("a", by_fastavro), ("p", by_google)):
        table = seglog.open_table(directory / f"{topic}{of}-0", columns=["value"], value_as="registry")
        label = "avro" if of == "a" else "proto"
        tell(f"{label}, {name}, a table's columns", rate(count, table.to_table), alone, 3_000_000)


if __name__ == "__main__":
    main()
