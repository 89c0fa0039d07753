#!/usr/bin/env bash
# PySpark 4.3.0: with filters pushed to a Python data source, a filter of one query is applied to the next one, too.
# Needs Java 17 or later.
#
# Expected: `pushFilters` is called for the reader of one scan; a DataFrame with no filter has all rows, and the two
# sides of a union have each their own.
# Seen: the reader that took the filter is kept with the relation and planned again for every later scan of the same
# DataFrame. Its rows are missing in a later `count`, and on the other side of a union. No error, no warning. The
# setting is `spark.sql.python.filterPushdown.enabled`.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1
cd "$work"
PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 venv/bin/python - 2> log <<'END' || { cat log >&2; exit 1; }
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, GreaterThanOrEqual, InputPartition


class Numbers(DataSource):
    """The numbers 0 to 19."""

    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "number int"

    def reader(self, schema):
        return NumbersReader()


class NumbersReader(DataSourceReader):
    first = 0

    def pushFilters(self, filters):
        for each in filters:
            if isinstance(each, GreaterThanOrEqual):
                self.first = each.value
            else:
                yield each  # for Spark to apply

    def partitions(self):
        return [InputPartition(self.first)]

    def read(self, partition):
        yield from ((number,) for number in range(partition.value, 20))


spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.dataSource.register(Numbers)
numbers = spark.read.format("numbers").load()
counts = [numbers.count(), numbers.where("number >= 12").count(), numbers.count()]
others = spark.read.format("numbers").load()
union = others.where("number >= 15").unionAll(others).count()
print(f"pyspark {pyspark.__version__}: all rows, those from 12 on, and all again: {counts}, not [20, 8, 20]")
print(f"5 of 20 rows together with all 20: {union}, not 25")
raise SystemExit((counts, union) != ([20, 8, 8], 10))
END
