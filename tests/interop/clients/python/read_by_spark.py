"""Reads all records with Spark's kafka source, and prints each as a line of JSON.

read_by_spark.py JARS BOOTSTRAP TOPIC,TOPIC… ISOLATION GROUP COUNT
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

COLUMNS = (
    "topic", "partition", "offset", "unix_millis(timestamp)", "base64(key)", "base64(value)",
    "transform(coalesce(headers, array()), h -> struct(h.key, base64(h.value)))",
)  # fmt: skip


def main(jars: str, bootstrap: str, topics: str, isolation: str, _group: str, count: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "1g").config("spark.sql.chunkBase64String.enabled", "false")
    source = session.getOrCreate().read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topics).option("kafka.isolation.level", isolation)
    rows = source.option("includeHeaders", "true").load().selectExpr(*COLUMNS).collect()
    assert len(rows) == int(count), len(rows)
    for row in rows:
        sys.stdout.write(json.dumps([*row[:-1], [list(header) for header in row[-1]]]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
