"""Values of every logical type of Avro, in range and beyond it, are the same through each door: read, export, tables,
sql and Spark.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("fastavro")

import pyarrow.parquet as pq

import seglog
from seglog_ask.table.engines.answers import forms
from seglog_ask.values.java_times import iso_date, iso_moment
from tests.support import effort
from tests.support.command_line import json_lines, run
from tests.support.schema_registry import avro, framed, registered, write_log
from tests.unit.table.test_spark_values import batches_of

A_SECOND = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
COUNT = effort.tries(250)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


NULLABLE = logical("long", "timestamp-micros")
WITHIN = {
    "type": "record",
    "name": "Within",
    "fields": [
        {"name": "day", "type": logical("int", "date")},
        {"name": "amount", "type": logical("bytes", "decimal", precision=30, scale=2)},
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "x", "type": "double"},
    ],
}
TYPES: dict[str, Any] = {
    "day": logical("int", "date"),
    "clock_millis": logical("int", "time-millis"),
    "clock_micros": logical("long", "time-micros"),
    **{f"at_{unit}": logical("long", f"timestamp-{unit}") for unit in A_SECOND},
    **{f"local_{unit}": logical("long", f"local-timestamp-{unit}") for unit in A_SECOND},
    "amount": logical("bytes", "decimal", precision=38, scale=9),
    "whole": logical("bytes", "decimal", precision=20, scale=0),
    "fixed": {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
    "id": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
    "span": {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
    "double": "double",
    "float": "float",
    "long": "long",
    "flag": "boolean",
    "text": "string",
    "data": "bytes",
    "colour": {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]},
    "maybe": ["null", NULLABLE],
    "days": {"type": "array", "items": logical("int", "date")},
    "sums": {"type": "map", "values": logical("bytes", "decimal", precision=12, scale=3)},
    "many": {"type": "array", "items": WITHIN},
}
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()]}
PLAIN = json.loads(json.dumps(SCHEMA).replace('"logicalType"', '"was"'))


def integer(draw: random.Random, bits: int) -> int:
    most = (1 << (bits - 1)) - 1
    edges = (0, -1, 1, most, -most, -most - 1, 999, 10**6)
    return draw.choice(edges) if draw.random() < 0.3 else draw.randint(-most - 1, most) >> draw.randrange(bits)


def two_s_complement(number: int, size: int = 0) -> bytes:
    return number.to_bytes(size or number.bit_length() // 8 + 1, "big", signed=True)


def drawn(draw: random.Random, kind: Any) -> Any:
    """Returns a value as Avro writes it, without its logical type."""
    name = (
        kind if isinstance(kind, str) else kind[1] if isinstance(kind, list) else kind.get("logicalType", kind["type"])
    )
    if isinstance(kind, list):
        return None if draw.random() < 0.3 else drawn(draw, kind[1])
    if name == "decimal":
        number = integer(draw, 1 + int(kind["precision"] * 3.32))
        return two_s_complement(number % 10 ** kind["precision"] * draw.choice((1, -1)), kind.get("size", 0))
    if name in ("time-millis", "time-micros"):
        return draw.randrange(86400 * A_SECOND[name[5:]]) // draw.choice((1, 1000)) * draw.choice((1, 1))
    if name == "record":
        return {field["name"]: drawn(draw, field["type"]) for field in kind["fields"]}
    if name == "array":
        return [drawn(draw, kind["items"]) for _ in range(draw.randrange(3))]
    if name == "map":
        return {f"k{i}": drawn(draw, kind["values"]) for i in range(draw.randrange(3))}
    if name in ("uuid", "duration"):
        return draw.randbytes(kind["size"])
    if name in ("double", "float"):
        return draw.choice(
            (0.5, -0.0, 1e300 if name == "double" else 1e30, float("nan"), float("inf"), float("-inf"), 0.1)
        )
    simple = {
        "boolean": draw.random() < 0.5,
        "string": draw.choice(("", 'a"b\n', "\u00e9")),
        "bytes": b"abc",
        "enum": "RED",
    }
    return simple[name] if name in simple else integer(draw, 32 if name in ("date", "int") else 64)


def infinite(value: Any, kind: Any) -> Any:
    """What an engine that has infinite dates and times shows of a value."""
    edges = {most: "infinity", -most: "-infinity"} if (most := _most(kind)) else {}
    for number, name in edges.items():
        unit = "" if isinstance(kind, str) else kind["logicalType"].rpartition("-")[2]
        zone = "" if isinstance(kind, str) or kind["logicalType"].startswith("local") else "Z"
        if value == (iso_date(number) if unit == "date" else iso_moment(number, A_SECOND[unit]) + zone):
            return name
    if isinstance(kind, list):
        return infinite(value, kind[1])
    if isinstance(kind, dict) and value is not None:
        if kind["type"] == "record":
            return {field["name"]: infinite(value[field["name"]], field["type"]) for field in kind["fields"]}
        if kind["type"] == "array":
            return [infinite(one, kind["items"]) for one in value]
    return value


def _most(kind: Any) -> int:
    name = kind.get("logicalType", "") if isinstance(kind, dict) else ""
    return (1 << 31) - 1 if name == "date" else (1 << 63) - 1 if "timestamp" in name else 0


@pytest.mark.parametrize("seed", range(effort.first_seed(1), effort.first_seed(1) + 2))
def test_values_are_the_same_through_each_door(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    values = [drawn(draw, SCHEMA) for _ in range(COUNT)]
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, SCHEMA)])
    log = write_log(tmp_path / "t-0", [seglog.Record(framed(1, avro(PLAIN, one)), timestamp=5) for one in values])

    shown = [row["value"] for row in json_lines(run("read", log, "--json", "--value-as", "registry"))]
    assert len(shown) == COUNT and all(isinstance(one, dict) for one in shown)
    run("export", log, "-o", tmp_path / "o.jsonl", "--value-as", "registry")
    assert [json.loads(line)["value"] for line in (tmp_path / "o.jsonl").read_text().splitlines()] == shown
    run("export", log, "-o", tmp_path / "o.parquet", "--value-as", "registry")
    of_engines = [infinite(one, SCHEMA) for one in shown]
    exported = pq.read_table(tmp_path / "o.parquet").combine_chunks()
    rows = zip(*(forms(exported[name].chunk(0)) for name in ("value", "value_error")), strict=True)
    _compare_with_errors([{"value": value, "value_error": error} for value, error in rows], of_engines)
    table = seglog.open_table(log, value_as="registry").to_table()
    assert [one for chunk in table["value"].chunks for one in forms(chunk)] == of_engines
    _compare_with_errors(
        json_lines(run("sql", "select value, value_error from t", log, "--json", "--value-as", "registry")), of_engines
    )
    batches = batches_of(log, valueAs="registry")
    in_spark = [
        {"value": a, "value_error": b}
        for one in batches
        for a, b in zip(forms(one["value"]), forms(one["valueError"]), strict=True)
    ]
    nanoseconds = [
        {name: one[name] for name in ("at_nanos", "local_nanos")} for one in shown
    ]  # which are text in Spark
    _compare_with_errors(in_spark, [one | other for one, other in zip(of_engines, nanoseconds, strict=True)])


def _compare_with_errors(rows: list[dict[str, Any]], expected: list[Any]) -> None:
    """Compares rows of an engine in which a field of milliseconds may not fit: it is null, and the row says so."""
    assert len(rows) == len(expected)
    for row, value in zip(rows, expected, strict=True):
        for name in ("at_millis", "local_millis"):
            if row["value"][name] is None:
                year = re.match(r"[+-]\d{6,}", value[name])
                assert row["value_error"] and (year or value[name].lstrip("-") == "infinity")
                value = value | {name: None}
        assert row["value"] == value
