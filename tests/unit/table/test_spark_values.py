"""The source's options `keyAs`, `valueAs`, `schemas` and `schema`, without Spark: planned, pickled, and decoded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seglog
from seglog.errors import ConfigError
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan.options import AS_THEY_ARE, ShownAs
from seglog_ask.table.plan.schema import Column, default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_ask.table.values.spark_values import SparkValues, spark_values
from tests.support.schema_registry import ORDER, avro, framed, registered, shop, write_log

SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "ö", "type": ["null", {"type": "record", "name": "S", "fields": [{"name": "x", "type": "float"}]}]},
    ],
}
GOOD = {"id": 1, "at": 5, "time": 1000, "tags": ["a"], "more": {"k": 1.5}, "ö": {"x": 2.0}}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, SCHEMA), registered("t-key", 1, 2, '"long"')])
    plain = json.loads(json.dumps(SCHEMA).replace('"logicalType"', '"was"'))
    values = [framed(1, avro(plain, GOOD)), framed(9, b"x"), None]
    write_log(tmp_path / "t-0", [seglog.Record(one, key=framed(2, b"\6")) for one in values])
    return tmp_path


def rows(path: Path, **options: str) -> tuple[pa.Schema, list[dict[str, Any]]]:
    """What a task yields, as rows."""
    batches = batches_of(path, **options)
    return batches[0].schema, pa.Table.from_batches(batches).to_pylist()


def batches_of(path: Path, **options: str) -> list[pa.RecordBatch]:
    """What a task yields, with what the driver has sent to it."""
    chosen = parse_read_options({"path": str(path), **options})
    values = spark_values(chosen)
    sent: SparkValues = pickle.loads(pickle.dumps(values))
    decoded = [Column(output.field.name, "any") for output in sent.outputs]
    projection = default_projection("records", chosen.columns, False, decoded)
    fs = LocalFileSystem()
    return [
        one for split in plan_splits(fs, chosen) for one in split_batches(fs, split, projection, chosen, sent.outputs)
    ]


def test_the_options_are_parsed_and_refused_in_words() -> None:
    parsed = parse_read_options({"path": "/l", "valueAs": "Registry", "schemas": "S", "schema": "a.avsc"})
    assert parsed.shown_as == ShownAs("auto", "registry", "S", "a.avsc")
    assert parse_read_options({"path": "/l"}).shown_as is AS_THEY_ARE or not parse_read_options({"path": "/l"}).columns
    with pytest.raises(ConfigError, match="the view batches has no keys and values"):
        parse_read_options({"path": "/l", "keyAs": "hex", "view": "batches"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"valueAs": "yaml"}, "has no form 'yaml'"),
        ({"schemas": "/s"}, "ask for one of them"),
        ({"valueAs": "avro"}, "there is no _schemas-0 beside the logs"),
    ],
)
def test_what_cannot_be_decoded_by_is_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    write_log(tmp_path / "t-0", [seglog.Record(b"x")])
    with pytest.raises(ConfigError, match=said):
        spark_values(parse_read_options({"path": str(tmp_path / "t-0"), **options}))


def test_without_the_options_nothing_is_read() -> None:
    assert spark_values(parse_read_options({"path": "/nowhere"})) is None


def test_columns_have_the_types_that_spark_has(logs: Path) -> None:
    schema, found = rows(logs / "t-0", valueAs="registry", keyAs="avro")
    value = schema.field("value").type
    assert schema.field("key").type == pa.int64()
    assert value.field("at").type == pa.timestamp("us", "UTC") and value.field("time").type == pa.string()
    assert value.field("tags").type.value_field.name == "element"
    assert [one["key"] for one in found] == [3] * 3 and [one["valueSchema"] for one in found] == ["1", "9", None]
    shown = found[0]["value"]
    assert shown["time"] == "00:00:01.000" and shown["ö"] == {"x": 2.0} and shown["more"] == [("k", 1.5)]
    assert "schema id 9" in found[1]["valueError"] and found[1]["valueBytes"] == framed(9, b"x")
    assert found[1]["value"] is None and found[2]["valueError"] is None
    names = [name for name in schema.names if name.startswith(("key", "value"))]
    assert names == [side + what for side in ("key", "value") for what in ("",)] + [
        side + what for side in ("key", "value") for what in ("Schema", "Error", "Bytes")
    ]


def test_milliseconds_beyond_sparks_microseconds_are_null_and_said(tmp_path: Path) -> None:
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": kind}, {"name": "n", "type": "int"}]}
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, schema)])
    payloads = [b"\x0a\2", b"\xfe" + b"\xff" * 8 + b"\1\4"]
    write_log(tmp_path / "t-0", [seglog.Record(framed(1, one)) for one in payloads])
    _, (good, beyond) = rows(tmp_path / "t-0", valueAs="registry")
    assert good["value"]["at"].microsecond == 5000 and good["valueError"] is None
    assert beyond["value"] == {"at": None, "n": 2}
    assert beyond["valueError"] == "at: +292278994-08-17T07:12:55.807Z does not fit timestamp-micros"


def test_columns_are_chosen_by_name(logs: Path) -> None:
    schema, _ = rows(logs / "t-0", valueAs="registry", columns="offset,value_error,value")
    assert schema.names == ["offset", "value_error", "value"]
    with pytest.raises(ConfigError, match="no column 'valueError'"):
        default_projection("records", ("valueError",), False)


def test_the_tasks_need_no_schemas_of_the_driver(logs: Path) -> None:
    values = spark_values(parse_read_options({"path": str(logs / "t-0"), "valueAs": "registry"}))
    assert values is not None and values.forms.source is None and set(values.types) == {"value"}


def test_several_topics_and_json_are_text(tmp_path: Path) -> None:
    logs = shop(tmp_path / "shop")
    write_log(logs / "u-0", [seglog.Record(framed(1, avro(ORDER, {"id": 1, "city": "Bern", "note": None})))])
    for path in (logs, logs / "orders-0"):
        schema, found = rows(path, valueAs="registry")
        assert schema.field("value").type == pa.string()
        assert {"id": 7, "city": "Köln", "note": None} in [
            json.loads(one["value"]) for one in found if one["value"] and one["topic"] == "orders"
        ]
    schema, found = rows(logs / "u-0", valueAs="hex")
    assert schema.field("value").type == pa.string() and found[0]["value"].startswith("0000000001")
