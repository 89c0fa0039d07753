"""Bronze: every record of the logs, unchanged. The first run reads everything, later runs only new records."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Records of the logs, unchanged; grows with them.")
def bronze_records() -> DataFrame:
    return (
        spark.readStream.format("seglog")
        .option("path", spark.conf.get("spark.seglog.path"))
        .option("subscribePattern", spark.conf.get("spark.seglog.topics", ".*"))
        .option("startingOffsets", "earliest")
        .option("isolationLevel", "read_committed")
        .load()
    )


@dp.materialized_view(comment="Damage in the logs, as of this run.")
def findings() -> DataFrame:
    return (
        spark.read.format("seglog")
        .option("path", spark.conf.get("spark.seglog.path"))
        .option("subscribePattern", spark.conf.get("spark.seglog.topics", ".*"))
        .option("view", "findings")
        .load()
    )
