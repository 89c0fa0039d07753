"""Values by the schemas of a real registry, over its REST API: Apicurio's, which is Confluent's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from tests.support.apicurio import Apicurio
from tests.support.command_line import json_lines, run
from tests.support.schema_registry import ITEM, ORDER, avro, framed, write_log

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("registry")]

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "zip", "type": "int"}]}
PERSON = {"type": "record", "name": "Person", "fields": [{"name": "at", "type": "shop.Address"}]}
CART = """syntax = "proto3"; import "item.proto";
message Cart { map<string, shop.Item> items = 1; message In { int32 n = 1; } }"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as started:
        yield started


def test_values_are_decoded_by_the_ids_and_references_of_a_real_registry(registry: Apicurio, tmp_path: Path) -> None:
    order = registry.register("orders-value", ORDER)
    registry.register("address", ADDRESS)
    person = registry.register("people-value", PERSON, "AVRO", ("shop.Address", "address", 1))
    registry.register("item.proto", ITEM, "PROTOBUF")
    cart = registry.register("carts-value", CART, "PROTOBUF", ("item.proto", "item.proto", 1))
    note = registry.register(
        "notes-value", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "JSON"
    )
    gone = registry.register("gone-value", '"string"')
    registry.asked("DELETE", "/subjects/gone-value/versions/1")
    values = [
        framed(order, avro(ORDER, {"id": 7, "city": "Köln", "note": None})),
        framed(person, b"\x0a"),
        framed(cart, b"\0\x0a\x07\x0a\1a\x12\2\x08\5"),
        framed(cart, b"\4\0\0\x08\3"),
        framed(note, b'{"a": 1}'),
        framed(gone, b"\2x"),
        framed(99, b"x"),
        avro(ORDER, {"id": 8, "city": "Bern", "note": "bare"}),
    ]
    log = write_log(tmp_path / "orders-0", [seglog.Record(value, timestamp=1) for value in values])
    done = run("read", "--json", log, "--value-as", "registry", "--schemas", registry.url)
    lines = json_lines(done)
    assert [line.get("value") for line in lines] == [
        {"id": 7, "city": "Köln", "note": None},
        {"at": {"zip": 5}},
        {"items": {"a": {"number": 5}}},
        {"n": 3},
        {"a": 1},
        "x",
        None,
        {"id": 8, "city": "Bern", "note": "bare"},
    ]
    assert [line.get("value_schema") for line in lines[:6]] == [order, person, cart, cart, note, gone]
    assert f"schema id 99 is not in {registry.url}" in lines[6]["value_error"]
    assert f"schema {cart}: 2 values" in done.stderr
    rows = json_lines(run("sql", "--json", "select value_schema from orders", log, "--value-as", "avro",
                          "--schemas", registry.url))  # fmt: skip
    assert [row["value_schema"] for row in rows][:2] == [str(order), str(person)]


def test_a_registry_that_is_gone_is_named(registry: Apicurio, tmp_path: Path) -> None:
    log = write_log(tmp_path / "orders-0", [seglog.Record(framed(1, b"x"), timestamp=1)])
    done = run("read", log, "--value-as", "registry", "--schemas", "http://127.0.0.1:9/apis/ccompat/v7")
    assert done.exit_code != 0 and "the schema registry at http://127.0.0.1:9" in done.stderr
