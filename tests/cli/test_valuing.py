"""`--key-as`, `--value-as`, `--schemas` and `--schema`: in every command that shows records."""

from __future__ import annotations

import csv
import io
import json
import os
import uuid
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seglog
from seglog_ask.values.avro import fingerprint
from seglog_ask.values.forms import FORMS
from seglog_ask.values.schemas import Schema
from seglog_cli.valuing import _FORMS
from tests.support.command_line import ended, json_lines, run
from tests.support.schema_registry import ITEM, ORDER, avro, framed, registered, shop, write_log

SHOWN: list[dict[str, Any]] = [
    {"value": {"id": 7, "city": "Köln", "note": None}, "value_schema": 1},
    {"value": {"number": 5}, "value_schema": 2},
    {"value": {"amount": 1.1}, "value_schema": 3},
    {"value_b64": "AAAAABR4", "value_schema": 20, "value_error": "schema id 20 is not in "},
    {"value_b64": "AAAAAAF4", "value_schema": 1, "value_error": "it is not a value of its schema: it ends early"},
    {"value": None},
    {"value": {"id": 8, "city": "Bern", "note": "bare"}, "value_schema": 1},
]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return shop(tmp_path / "logs")


def told(line: dict[str, Any], logs: Path) -> dict[str, Any]:
    """What a line tells of its value."""
    found = {name: value for name, value in line.items() if name.startswith("value")}
    if "value_error" in found:
        found["value_error"] = found["value_error"].replace(str(logs / "_schemas-0"), "")
    return found


def test_the_options_name_the_forms() -> None:
    assert tuple(_FORMS.split("|")) == FORMS


@pytest.mark.parametrize(
    "words",
    [("read", "--json"), ("dump", "--json", "-r"), ("export", "-o", "-", "--format", "jsonl"), ("latest", "--json")],
)
def test_values_are_decoded_by_the_schemas_beside_the_log(logs: Path, words: tuple[str, ...]) -> None:
    done = run(*words, logs / "orders-0", "--value-as", "registry")
    assert done.exit_code == 0
    lines = [line for line in json_lines(done) if line.get("type", "record") == "record"]
    wanted = [one for one in SHOWN if words[0] != "latest" or one != {"value": None}]
    assert [told(line, logs) for line in lines] == wanted
    assert [line["key"] for line in lines][:5] == [f"k{i}" for i in range(5)]
    assert {line["headers"][0]["value"] for line in lines} == {" key=null value=null headers=["}
    assert "schema 1 (orders-value version 1): 2 values" in done.stderr
    assert "1 value not decoded: it is not a value of its schema" in done.stderr


def test_lines_of_text_have_the_same(logs: Path) -> None:
    lines = run("read", logs / "orders-0", "--value-as", "registry").stdout.splitlines()
    assert ' key="k0" value={"id":7,"city":"Köln","note":null} value_schema=1 headers=[{key=' in lines[0]
    assert ' value_b64="AAAAABR4" value_schema=20 value_error="schema id 20 is not in ' in lines[3]
    assert " value=null headers=[{" in lines[5]
    plain = run("read", logs / "orders-0").stdout.splitlines()
    as_text = run("read", logs / "orders-0", "--key-as", "string").stdout.splitlines()
    assert [line.lower() for line in as_text] == [line.lower() for line in plain]  # the kernel writes \u000E


def test_csv_has_columns_for_schema_and_reason(logs: Path) -> None:
    done = run("export", logs / "orders-0", "-o", "-", "--format", "csv", "--value-as", "registry", "--key-as", "hex")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["key"] for row in rows[:2]] == ["6b30", "6b31"]
    assert [row["value_schema"] for row in rows] == ["1", "2", "3", "20", "1", "", "1"]
    assert json.loads(rows[6]["value"])["city"] == "Bern" and rows[6]["value_error"] == ""
    assert rows[4]["value"] == "AAAAAAF4" and "ends early" in rows[4]["value_error"]


def test_parquet_and_sql_have_texts_schemas_reasons_and_bytes(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "orders.parquet"
    assert run("export", logs / "orders-0", "-o", out, "--value-as", "registry").exit_code == 0
    table = pq.read_table(out)
    assert json.loads(table["value"][0].as_py())["city"] == "Köln"
    assert table["value_schema"].to_pylist() == ["1", "2", "3", "20", "1", None, "1"]
    assert table["value_bytes"].to_pylist() == [None, None, None, b"\0\0\0\0\x14x", b"\0\0\0\0\1x", None, None]
    query = "select value->>'city' as city, value_schema, value_error, octet_length(value_bytes) as size from orders"
    decoded = logs, "--value-as", "registry"  # one of them is JSON, so that no type says them all
    done = run("sql", "--json", query, *decoded)
    assert "schema 1 (orders-value version 1): 2 values" in done.stderr
    assert "1 value not decoded: it is not a value of its schema: it ends early" in done.stderr
    rows = json_lines(done)
    assert [row["city"] for row in rows] == ["Köln", None, None, None, None, None, "Bern"]
    assert "schema id 20" in rows[3]["value_error"] and rows[3]["size"] == 6
    filtered = run("sql", "--json", f"{query} where value->>'city' = 'Bern' and value_error is null", *decoded)
    assert len(json_lines(filtered)) == 1


def test_sql_has_columns_with_types(logs: Path, tmp_path: Path) -> None:
    query = "select value.city as city, value.id + 1 as id, value_schema, value_error is null as good from orders"
    rows = json_lines(run("sql", "--json", query, logs, "--value-as", "avro"))
    assert [row["city"] for row in rows] == ["Köln", None, None, None, None, None, "Bern"]
    assert [row["id"] for row in rows if row["city"]] == [8, 9]
    assert [row["good"] for row in rows] == [True, False, False, False, False, True, True]
    out = tmp_path / "cities.parquet"
    query = "select value from orders where value.city = 'Bern'"
    assert run("sql", query, logs, "--value-as", "avro", "-o", out).exit_code == 0
    assert pq.read_table(out)["value"].to_pylist() == [{"id": 8, "city": "Bern", "note": "bare"}]


EVERY_KIND = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "place", "type": {"type": "record", "name": "P", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "named", "type": {"type": "map", "values": "int"}},
        {"name": "any", "type": ["null", "int", "string"]},
    ],
}


def every_kind(number: int) -> dict[str, Any]:
    kinds = {"sum": Decimal(number) / 100, "at": datetime.fromtimestamp(number, UTC), "tags": ["a", "b"][:number]}
    return {"id": number, "place": {"city": "Bern"}, **kinds, "named": {"x": number}, "any": str(number)}


def test_export_to_parquet_has_the_types_and_values_of_sql(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_log(
        logs / "_schemas-0",
        [
            registered("every-value", 1, 1, EVERY_KIND),
            registered("items-value", 1, 2, ITEM, "PROTOBUF"),
            registered("every-key", 1, 3, "long"),
        ],
    )
    for part in range(2):
        records = [(framed(3, avro("long", i)), framed(1, avro(EVERY_KIND, every_kind(i)))) for i in range(part, 40, 2)]
        write_log(logs / f"every-{part}", [seglog.Record(value, key=key, timestamp=5) for key, value in records])
    write_log(logs / "items-0", [seglog.Record(framed(2, b"\0\x08\x05"))])
    decoded = "--key-as", "registry", "--value-as", "registry"
    columns = [f"{side}{of}" for side in ("key", "value") for of in ("", "_schema", "_error")]
    for topic in ("every", "items"):
        out, asked = tmp_path / f"{topic}.parquet", tmp_path / f"{topic}-asked.parquet"
        done = run("export", logs / topic, "-o", out, *decoded)
        assert done.exit_code == 0
        query = f'select {", ".join(columns)} from {topic} order by "partition", "offset"'
        assert run("sql", query, logs, "-o", asked, *decoded).exit_code == 0
        mine, theirs = pq.read_table(out, columns=columns), pq.read_table(asked)
        if topic == "every":
            assert "schema 1 (every-value version 1): 40 values" in done.stderr
            assert mine["value"].to_pylist()[20] == every_kind(1) | {"named": [("x", 1)]}
            assert mine.schema.field("key").type == pa.int64()
        assert mine.schema.field("value").type == theirs.schema.field("value").type
        assert mine.to_pylist() == theirs.to_pylist()
        again = tmp_path / f"{topic}-again.parquet"
        assert seglog.export(logs / topic, again, key_as="registry", value_as="registry") == len(mine)
        assert pq.read_table(again).equals(pq.read_table(out))
    group = pq.ParquetFile(tmp_path / "every.parquet").metadata.row_group(0)
    of_columns = {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
    assert of_columns["value.place.city"].max == "Bern" and of_columns["value.id"].max == 39
    one = tmp_path / "one.parquet"
    assert run("export", logs / "every-1" / f"{0:020}.log", "-o", one, *decoded).exit_code == 0
    assert pq.read_table(one)["value"].to_pylist()[0]["id"] == 1


def test_export_has_types_past_damage_that_hides_the_first_records(tmp_path: Path) -> None:
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, ORDER)])
    value = framed(1, avro(ORDER, {"id": 7, "city": "Bern", "note": None}))
    with seglog.open_log(tmp_path / "t-0", create=True) as log:
        for _ in range(2):
            log.append([seglog.Record(value)])
    segment = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    done = run("export", tmp_path / "t-0", "-o", tmp_path / "t.parquet", "--value-as", "registry")
    assert done.exit_code == 1 and "goes on" not in done.stderr and "going on" not in done.stderr
    assert pq.read_table(tmp_path / "t.parquet")["value"].to_pylist() == [{"id": 7, "city": "Bern", "note": None}]


# --- text without a schema ---------------------------------------------------------------------------------------


def mixed(directory: Path) -> Path:
    """A log directory of topics in Avro, JSON, text and bytes, and one that moved from JSON to Avro."""
    order = framed(1, avro(ORDER, {"id": 7, "city": "cust-42", "note": None}))
    write_log(directory / "_schemas-0", [registered(f"{one}-value", 1, 1, ORDER) for one in ("av", "moved")])
    topics = {
        "av": [order],
        "js": [b'{"cust":"cust-42"}'],
        "tx": [b"plain cust-42"],
        "moved": [b'{"cust":"cust-42"}', order],
        "raw": [b"\xffcust-42", b"\0\0\0\0\x09cust-42"],
    }
    for topic, values in topics.items():
        write_log(directory / f"{topic}-0", [seglog.Record(one, key=b"k") for one in values])
    return directory


ALL = [("av", 0), ("js", 0), ("moved", 0), ("moved", 1), ("tx", 0)]
SEARCH = "select topic, \"offset\" from records where value::varchar like '%cust-42%' order by all"


def test_a_search_over_all_topics_finds_what_never_had_a_schema(tmp_path: Path) -> None:
    logs = mixed(tmp_path / "logs")
    rows = json_lines(run("sql", "--json", SEARCH, logs, "--value-as", "registry"))
    assert [(row["topic"], row["offset"]) for row in rows] == ALL
    query = SEARCH.replace("topic,", 'topic, "partition",')
    chosen = run("sql", "--csv", query, logs, "--value-as", "registry").stdout
    one_copy = ("--replicas", "1", "--yes")
    assert run("redact", logs, "--offsets-from", "-", *one_copy, input_text=chosen).exit_code == 0
    left = {path.parent.name for path in logs.glob("*/*.log") if b"cust-42" in path.read_bytes()}
    assert left == {"raw-0"}
    table = seglog.open_table(mixed(tmp_path / "again"), value_as="registry").to_table()
    found = {(row["topic"], row["offset"]) for row in table.to_pylist() if "cust-42" in (row["value"] or "")}
    assert sorted(found) == ALL


def test_text_without_a_frame_is_shown_beside_the_reason_in_every_door(tmp_path: Path) -> None:
    logs = mixed(tmp_path / "logs")
    as_registry = ("--value-as", "registry")
    for topic, text in (("tx", "plain cust-42"), ("js", '{"cust":"cust-42"}'), ("moved", '{"cust":"cust-42"}')):
        lines = json_lines(run("read", logs / f"{topic}-0", "--json", *as_registry))
        assert lines[0]["value"] == text and lines[0]["value_error"] and "value_b64" not in lines[0]
        assert (
            lines[:1]
            == json_lines(run("export", logs / f"{topic}-0", "-o", "-", "--format", "jsonl", *as_registry))[:1]
        )
        rows = list(
            csv.DictReader(
                io.StringIO(run("export", logs / f"{topic}-0", "-o", "-", "--format", "csv", *as_registry).stdout)
            )
        )
        assert rows[0]["value"] == text and rows[0]["value_error"] == lines[0]["value_error"]
        assert run("export", logs / f"{topic}-0", "-o", tmp_path / f"{topic}.parquet", *as_registry).exit_code == 0
        (row, *_) = pq.read_table(tmp_path / f"{topic}.parquet").to_pylist()
        has_types = topic == "moved"  # then only the bytes have text
        assert row["value_error"] == lines[0]["value_error"]
        assert row["value"] == (None if has_types else text) and row["value_bytes"] == text.encode()
    done = run("read", logs / "tx-0", *as_registry)
    assert ' value="plain cust-42" value_error="it has no frame of a registry, and subject' in done.stdout
    assert "1 value not decoded" in done.stderr and "the schema" not in done.stderr
    shown = json_lines(run("read", logs / "raw-0", "--json", *as_registry))  # no text, and a frame
    assert [("value" in line, "value_b64" in line) for line in shown] == [(False, True)] * 2


def test_text_that_a_column_with_types_does_not_hold_is_counted(tmp_path: Path) -> None:
    logs = mixed(tmp_path / "logs")
    said = "1 value is plain text: the column value has types and is null there; value_bytes has the text"
    for arguments in (
        ("sql", "select count(value) from moved", logs),
        ("export", logs / "moved-0", "-o", tmp_path / "moved.parquet"),
    ):
        assert said in run(*arguments, "--value-as", "registry").stderr
    for arguments in (
        ("sql", "select count(value) from tx", logs),
        ("sql", "select count(value) from raw", logs),
        ("sql", "select count(value) from av", logs),
        ("export", logs / "moved-0", "-o", tmp_path / "moved.jsonl"),
    ):
        assert "plain text" not in run(*arguments, "--value-as", "registry").stderr


def test_a_value_that_is_decoded_in_part_has_its_bytes_beside_it(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "int"}, {"name": "at", "type": TIME}]}
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, schema)])
    write_log(tmp_path / "t-0", [seglog.Record(framed(1, b"\2\1")), seglog.Record(framed(1, b"\4\2"))])
    done = run("read", tmp_path / "t-0", "--json", "--value-as", "registry")
    odd, good = json_lines(done)
    assert odd["value"] == {"id": 1, "at": -1} and odd["value_b64"] == "AAAAAAECAQ=="
    assert odd["value_error"] == "at: -1 is not a time of day" and odd["value_schema"] == 1
    assert good["value"] == {"id": 2, "at": "00:00:00.001"} and "value_b64" not in good and "value_error" not in good
    assert "schema 1 (t-value version 1): 2 values" in done.stderr
    assert "1 value decoded in part: at: -1 is not a time of day" in done.stderr
    query = "select value.id, value.at, value_error from t"
    rows = json_lines(run("sql", "--json", query, tmp_path, "--value-as", "registry"))
    assert (
        [row["id"] for row in rows] == [1, 2] and rows[0]["at"] is None and rows[0]["value_error"] == odd["value_error"]
    )


def test_ids_begin_with_0_where_a_registry_has_it(tmp_path: Path) -> None:
    value, apicurio = b"\0\0\0\0\0\x0ahello", b"\0\0\0\0\0\0\0\0\1\x0ahello"
    for zero in (True, False):
        logs = tmp_path / f"{zero}"
        schemas = [registered("t-value", 1, 1, '"string"'), *[registered("t-value", 2, 0, '"string"')] * zero]
        write_log(logs / "_schemas-0", schemas)
        write_log(logs / "t-0", [seglog.Record(value), seglog.Record(apicurio)])
        lines = json_lines(run("read", logs / "t-0", "--json", "--value-as", "registry"))
        table = seglog.open_table(logs / "t-0", value_as="registry").to_table().to_pylist()
        good, bad = (lines[0], lines[1]) if zero else (lines[1], lines[0])
        assert (good["value"], good["value_schema"]) == ("hello", 0 if zero else 1)
        assert "value_error" in bad and [row["value"] for row in table] == ["hello", None][:: 1 if zero else -1]
        assert [row["value_error"] for row in table] == [line.get("value_error") for line in lines]


def test_single_object_encoding_names_its_schema(tmp_path: Path) -> None:
    """Also with a given schema, whose values may begin as such an object does."""
    long = {"type": "record", "name": "L", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}
    known = [registered("t-value", 1, 1, ORDER), registered("other", 1, 2, long)]
    write_log(tmp_path / "all" / "logs" / "_schemas-0", known)
    order, other = {"id": 7, "city": "Ulm", "note": None}, {"n": 5, "s": "x"}
    heads = [b"\xc3\1" + fingerprint(Schema("AVRO", json.dumps(one))) for one in (ORDER, long)]
    bare = avro(long, {"n": -98, "s": "single-object"})
    assert bare.startswith(b"\xc3\1")
    values = [heads[0] + avro(ORDER, order), heads[1] + avro(long, other), b"\xc3\1" + bytes(8) + b"x", heads[0], bare]
    (tmp_path / "long.avsc").write_text(json.dumps(long))
    shown = [order, other, None, None, None], [None, other, None, None, {"n": -98, "s": "single-object"}]
    for wanted, place, schema in zip(shown, ("all", "alone"), (None, str(tmp_path / "long.avsc")), strict=True):
        log = write_log(tmp_path / place / "logs" / "t-0", [seglog.Record(one) for one in values])
        given = () if schema is None else ("--schema", schema)
        lines = json_lines(run("read", log, "--json", "--value-as", "avro", *given))
        assert [line.get("value") for line in lines] == wanted
        assert [line.get("value_schema") for line in lines][:2] == ([1, 2] if schema is None else [None, None])
        table = seglog.open_table(log, value_as="avro", schema=schema).to_table().to_pylist()
        for row, line, one in zip(table, lines, wanted, strict=True):
            assert row["value_error"] == line.get("value_error") and (row["value"] is None) == (one is None)
            assert one is None or {name: row["value"][name] for name in one} == one


def test_two_schemas_with_one_id_are_those_of_their_topics_and_said(tmp_path: Path) -> None:
    schemas = [registered("a-value", 1, 5, '"int"'), registered("b-value", 1, 5, '"string"')]
    write_log(tmp_path / "_schemas-0", schemas)
    for topic in "abc":
        write_log(tmp_path / f"{topic}-0", [seglog.Record(framed(5, b"\2x" if topic != "a" else b"\2"))])
    shown = {}
    for topic in "abc":
        done = run("read", tmp_path / f"{topic}-0", "--json", "--value-as", "registry")
        (line,) = json_lines(done)
        (row,) = seglog.open_table(tmp_path / f"{topic}-0", value_as="registry").to_table().to_pylist()
        assert row["value_error"] == line.get("value_error")
        shown[topic] = line.get("value"), row["value"]
        assert "b-value version 1 has this id, too" in done.stderr or topic != "a"
    assert shown == {"a": (1, 1), "b": ("x", "x"), "c": (None, None)}
    assert "schema id 5 is of a-value version 1 and b-value version 1" in line["value_error"]
    assert "which differ" in run("schemas", tmp_path).stderr


TIME = {"type": "int", "logicalType": "time-millis"}
CART = """syntax = "proto3"; package shop;
message Cart { map<string, int32> counts = 1; message In { int32 n = 1; } }"""
GUIDS = [uuid.UUID("75d0869f-0c74-49e9-b5ce-6a9c28cf0d0a"), uuid.UUID("23e10ddf-b8a1-4e31-a177-c5bacd084d75")]
TOWN = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}
ULM, COUNTS, IN = {"id": 6, "city": "Ulm"}, {"counts": {"a": 3}}, {"n": 9}
# Of confluent-kafka 2.16.1's own serializers if `real`; the others as Glue's and Apicurio's write them.
FRAMED: list[tuple[str, bytes, list[tuple[str, bytes]], Any]] = [
    ("real", b"\0\0\0\0\1\x0c\6Ulm", [], ULM),
    ("real", b"\x0c\6Ulm", [("__value_schema_id", b"\1" + GUIDS[0].bytes)], ULM),
    ("real", b"\0\0\0\0\2\0\x0a\5\x0a\1a\x10\3", [], COUNTS),
    ("real", b"\0\0\0\0\2\4\0\2\x08\x09", [], IN),
    ("real", b"\x0a\5\x0a\1a\x10\3", [("__value_schema_id", b"\1" + GUIDS[1].bytes + b"\0")], COUNTS),
    ("a GUID", b"\1" + GUIDS[0].bytes + b"\x0c\6Ulm", [], ULM),
    ("Java's path", b"\0\0\0\0\2\4\0\0\x08\x09", [], IN),
    ("Glue", b"\3\0" + GUIDS[0].bytes + b"\x0c\6Ulm", [], ULM),
    ("Glue", b"\3\5" + GUIDS[0].bytes + zlib.compress(b"\x0c\6Ulm"), [], ULM),
    ("Glue", b"\3\5" + GUIDS[1].bytes + zlib.compress(b"\2\x08\x09"), [], IN),
    ("Apicurio", b"\0\0\0\0\0\0\0\0\1\x0c\6Ulm", [], ULM),
    ("Apicurio", b"\0\0\0\0\2\4\x0a\2In\x08\x09", [], IN),
    ("Apicurio", b"\x0c\6Ulm", [("apicurio.value.globalId", bytes(7) + b"\1")], ULM),
    ("Apicurio", b"\x08\x09", [("apicurio.value.contentId", b"\0\0\0\2"), ("apicurio.protobuf.type", b"In")], IN),
]


def test_every_frame_is_read_in_lines_and_in_columns(tmp_path: Path) -> None:
    schemas = [
        registered("t-value", 1, 1, TOWN, guid=str(GUIDS[0])),
        registered("carts", 1, 2, CART, "PROTOBUF", guid=str(GUIDS[1])),
    ]
    write_log(tmp_path / "_schemas-0", schemas)
    records = [
        seglog.Record(data, timestamp=1, headers=[seglog.Header(*header) for header in headers])
        for _, data, headers, _ in FRAMED
    ]
    log = write_log(tmp_path / "t-0", records)
    done = run("read", "--json", log, "--value-as", "registry")
    assert [line.get("value") for line in json_lines(done)] == [value for *_, value in FRAMED]
    assert "schema 1 (t-value version 1): 7 values" in done.stderr  # by its id, and by its GUID
    rows = json_lines(run("sql", "--json", "select value from t", tmp_path, "--value-as", "registry"))
    shown = [{name: one for name, one in row["value"].items() if one is not None} for row in rows]
    assert shown == [value for *_, value in FRAMED]


@pytest.mark.parametrize(
    ("form", "values", "shown"),
    [
        ("int", [b"\0\0\1\2", b"\xff\xff\xff\xff"], [258, -1]),
        ("long", [b"\xff" * 8], [-1]),
        ("hex", [b"\0\xff"], ["00ff"]),
        ("string", ["ä\n".encode()], ["ä\n"]),
        ("json", [b'{"a": 12345678901234567890.10}', b"[1]"], [{"a": 12345678901234567890.10}, [1]]),
    ],
)
def test_plain_forms_need_no_schemas(tmp_path: Path, form: str, values: list[bytes], shown: list[object]) -> None:
    log = write_log(tmp_path / "t-0", [seglog.Record(value, key=value) for value in [*values, b"\xff"]])
    lines = json_lines(run("read", "--json", log, "--key-as", form, "--value-as", form))
    assert [line["value"] for line in lines[: len(shown)]] == [line["key"] for line in lines[: len(shown)]] == shown
    if form != "hex":
        assert lines[-1]["value_b64"] == lines[-1]["key_b64"] == "/w==" and lines[-1]["key_error"]
    only = json_lines(run("read", "--json", log, "--key-as", "base64"))
    assert all("key_b64" in line and "key_error" not in line for line in only)
    assert [line.get("value", line.get("value_b64")) for line in only] == [
        line.get("value", line.get("value_b64")) for line in json_lines(run("read", "--json", log))
    ]


def test_what_is_not_safe_to_show_or_no_text_is_escaped_everywhere(tmp_path: Path) -> None:
    log = write_log(tmp_path / "t-0", [seglog.Record(text) for text in (b'"\xc2\x9b\xe2\x80\xae"', b'"\\ud800x"')])
    done = run("read", log, "--value-as", "json")
    assert '"\\u009b\\u202e"' in done.stdout and '"\\ud800x"' in done.stdout
    cells = csv.DictReader(io.StringIO(run("export", log, "-o", "-", "--format", "csv", "--value-as", "json").stdout))
    assert [row["value"] for row in cells][1] == "\\ud800x"
    rows = json_lines(run("sql", "--json", "select value from t", log, "--value-as", "json"))
    assert rows[1]["value"] == "\\ud800x"
    strange = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    shop(strange)
    for words in (
        ("read", "--json", strange / "orders-0"),
        ("sql", "--json", "select value_error from orders", strange),
    ):
        lines = json_lines(run(*words, "--value-as", "registry"))
        assert "is not in" in lines[3]["value_error"]


def test_a_schema_in_a_file_is_for_values_without_a_frame(tmp_path: Path) -> None:
    bare = avro(ORDER, {"id": 0, "city": "Ulm", "note": None})  # begins as a frame does
    log = write_log(tmp_path / "t-0", [seglog.Record(bare), seglog.Record(b"\0\0\0\0\1" + bare)])
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "item.proto").write_text('syntax = "proto3"; message A { int32 a = 1; } message B { int32 b = 1; }')
    lines = json_lines(run("read", "--json", log, "--value-as", "avro", "--schema", tmp_path / "order.avsc"))
    assert [line["value"]["city"] for line in lines] == ["Ulm", "Ulm"]
    log = write_log(tmp_path / "p-0", [seglog.Record(b"\x08\1")])
    for name, value in (("item.proto:B", {"b": 1}), ("item.proto", {"a": 1})):
        (line,) = json_lines(run("read", "--json", log, "--value-as", "protobuf", "--schema", tmp_path / name))
        assert line["value"] == value
    (line,) = json_lines(run("read", "--json", log, "--value-as", "avro", "--schema", tmp_path / "item.proto"))
    assert "is of the type PROTOBUF, not AVRO" in line["value_error"]


def test_wrong_usage_says_what_is_missing(logs: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "alone" / "t-0", [seglog.Record(b"x")])
    for words, said in (
        (("read", log, "--value-as", "avro"), "there is no _schemas-0 beside the logs"),
        (("read", log, "--value-as", "yaml"), "has no form 'yaml'"),
        (("read", log, "--schemas", logs), "schemas are for the forms"),
        (("read", log, "--value-as", "avro", "--schema", tmp_path / "x.txt"), "a schema's file ends in"),
        (("read", log, "--value-as", "hex", "--bytes", "base64"), "give one of them"),
        (("read", log, "--value-as", "hex", "--decode"), "give one of them"),
        (("dump", log, "--value-as", "hex"), "--records"),
    ):
        done = ended(*words)
        assert done.code == 2 and said in done.stderr.decode(), (words, done)
