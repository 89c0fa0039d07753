"""Logs as a cluster with a schema registry leaves them: `_schemas-0`, and topics with framed values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

import seglog
from seglog_ask.values.schemas import NotDecodedError, Text

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ITEM = 'syntax = "proto3"; package shop; message Item { int32 number = 1; message Part { string name = 1; } }'


def text_of(text: Text) -> str:
    """The text of a value that is decoded, maybe in part. Raises NotDecodedError if it has none."""
    if isinstance(text, NotDecodedError):
        raise text
    return text if isinstance(text, str) else text.text


def framed(number: int, payload: bytes) -> bytes:
    """A payload in Confluent's frame."""
    return b"\0" + number.to_bytes(4, "big") + payload


def avro(schema: Any, value: Any) -> bytes:
    """A value as Avro writes it."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def registered(
    subject: str,
    version: int,
    number: int,
    schema: Any,
    kind: str = "AVRO",
    references: Sequence[tuple[str, str, int]] = (),
    **more: Any,
) -> seglog.Record:
    """The record by which a registry keeps a version of a subject."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    value = {"subject": subject, "version": version, "id": number, "schema": text, "deleted": False, **more}
    if kind != "AVRO":
        value["schemaType"] = kind
    if references:
        names = ("name", "subject", "version")
        value["references"] = [dict(zip(names, one, strict=True)) for one in references]
    return entry({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}, value)


def entry(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> seglog.Record:
    """A record of `_schemas`."""
    data = None if value is None else json.dumps(value).encode()
    return seglog.Record(data, key=json.dumps(key).encode(), timestamp=1000)


def write_log(directory: Path, records: Sequence[seglog.Record]) -> Path:
    """A partition with these records."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with seglog.open_log(directory, create=True) as log:
        log.append(list(records))
    return directory


def shop(directory: Path) -> Path:
    """A log directory: orders in Avro (id 1), Protobuf (2) and JSON (3), and values that do not decode."""
    write_log(
        directory / "_schemas-0",
        [
            entry({"keytype": "NOOP", "magic": 0}, None),
            registered("orders-value", 1, 1, ORDER),
            registered("items-value", 1, 2, ITEM, "PROTOBUF"),
            registered("notes-value", 1, 3, "{}", "JSON"),
        ],
    )
    values = [
        framed(1, avro(ORDER, {"id": 7, "city": "Köln", "note": None})),
        framed(2, b"\0\x08\x05"),
        framed(3, b'{"amount":\n1.10}'),
        framed(20, b"x"),
        framed(1, b"x"),
        None,
        avro(ORDER, {"id": 8, "city": "Bern", "note": "bare"}),
    ]
    headers = [seglog.Header('","value":null,"headers":[', b" key=null value=null headers=[")]
    records = [seglog.Record(value, key=b"k%d" % i, timestamp=1000, headers=headers) for i, value in enumerate(values)]
    write_log(directory / "orders-0", records)
    return directory
