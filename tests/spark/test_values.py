"""The options `valueAs` and `keyAs`: columns of decoded values in a batch and in a stream."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import seglog
from tests.support.schema_registry import avro, framed, registered, shop, write_log

pytestmark = pytest.mark.spark

PLAIN_TYPES = {"at": "long", "price": "bytes"}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "stadt", "type": "string"},
        {"name": "größe", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}


PLAIN = {  # the same without logical types, for numbers as they are written
    **SCHEMA,
    "fields": [{**one, "type": PLAIN_TYPES.get(one["name"], one["type"])} for one in SCHEMA["fields"]],
}


def order(number: int, city: str) -> bytes:
    value = {"id": number, "stadt": city, "größe": 1.5, "at": 1000, "tags": ["a"], "more": {"k": 1}, "price": b"\1\0"}
    return framed(1, avro(PLAIN, value))


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    write_log(tmp_path / "_schemas-0", [registered("t-value", 1, 1, SCHEMA), registered("t-key", 1, 2, '"int"')])
    values = [order(1, "Oslo"), order(2, "Bern"), order(3, "Oslo"), framed(9, b"?"), None]
    write_log(tmp_path / "t-0", [seglog.Record(one, key=framed(2, b"\2")) for one in values])
    return tmp_path / "t-0"


def test_values_are_columns_with_types(spark, read, orders):
    frame = read(orders, valueAs="registry", keyAs="registry")
    rows = frame.groupBy("value.stadt").count().orderBy("stadt").collect()
    assert [tuple(row) for row in rows] == [(None, 2), ("Bern", 1), ("Oslo", 2)]
    first = frame.orderBy("offset").first()
    assert first.key == 1 and first.keySchema == "2" and first.valueSchema == "1"
    assert first.value["größe"] == 1.5 and first.value.more == {"k": 1} and first.value.tags == ["a"]
    assert str(first.value.price) == "2.56"
    assert frame.selectExpr("value.at = timestamp '1970-01-01 00:00:01'").first()[0] is True
    (bad,) = frame.where("valueError IS NOT NULL").collect()
    assert bad.offset == 3 and bad.value is None and bytes(bad.valueBytes) == framed(9, b"?")
    assert read(orders, valueAs="registry", columns="value_schema,offset").columns == ["value_schema", "offset"]
    with_schema = spark.read.format("seglog").option("valueAs", "registry").schema("value_schema string, offset bigint")
    assert with_schema.load(str(orders)).where("value_schema = '9'").count() == 1


def test_several_topics_are_text_and_what_is_not_there_is_refused(read, orders, tmp_path):
    shop(tmp_path / "shop")
    frame = read(tmp_path / "shop", valueAs="registry")
    assert frame.where("get_json_object(value, '$.city') = 'Bern'").count() == 1
    with pytest.raises(Exception, match="has no form 'yaml'"):
        read(orders, valueAs="yaml").count()


def test_a_stream_decodes_as_a_batch_does(spark, orders, tmp_path):
    stream = spark.readStream.format("seglog").option("startingOffsets", "earliest").option("valueAs", "avro")
    decoded = stream.load(str(orders)).select("offset", "value.*", "valueError")
    written = decoded.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    written.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [row.stadt for row in rows] == ["Oslo", "Bern", "Oslo", None, None]
    assert rows[0].at.replace(tzinfo=None) == datetime.fromtimestamp(1, UTC).replace(tzinfo=None)
    assert "schema id 9" in rows[3].valueError
