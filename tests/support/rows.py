"""Rows of the data source beside what Kafka lists (`fixtures.expected(…, "list")`), in one comparable form."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

Row = tuple[Any, ...]


def expected_rows(listed: Iterable[dict[str, Any]], topic: str, partition: int) -> list[Row]:
    """The rows of Spark's kafka source (with headers) for what Kafka lists, control records left out."""
    rows: list[Row] = []
    batch: dict[str, Any] = {}
    for line in listed:
        if line["t"] == "batch":
            batch = line
        elif line["t"] == "record" and not batch["isControl"]:
            stamp = TIMESTAMP_TYPES[batch["timestampType"]]
            headers = tuple((name, _bytes(value)) for name, value in line["headers"]) or None
            key, value = _bytes(line["key"]), _bytes(line["value"])
            rows.append((key, value, topic, partition, line["offset"], line["timestamp"], stamp, headers))
    return rows


def rows_of(dicts: Iterable[dict[str, Any]]) -> list[Row]:
    """Rows as `RecordBatch.to_pylist()` gives them, in the same form."""
    return [
        (
            row["key"],
            row["value"],
            row["topic"],
            row["partition"],
            row["offset"],
            (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
            row["timestampType"],
            None if row["headers"] is None else tuple((h["key"], h["value"]) for h in row["headers"]),
        )
        for row in dicts
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
