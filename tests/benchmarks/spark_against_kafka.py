"""Spark's own kafka source against format("seglog"): one session, one topic, the same queries.

    python -m tests.benchmarks.spark_against_kafka FOLDER [--millions 3] [--codec none] [--runs 5] [--master local[2]]

Needs Java 17+ and Maven, and in FOLDER room for 140 MB a million records. A broker on the loopback interface creates a
topic of one partition and stops; seglog appends the records (16-byte keys, 100-byte values, batches of 16 KiB); the
broker starts again and serves them to the kafka source, while seglog reads the broker's log directory. Each side checks
the checksums, and the files are in the page cache for both. The sources take turns; of each, the best of `--runs`
after warm-ups counts.

    count    neither source prunes columns, so each builds all seven of every row
    noop     all seven columns of every row to a sink that drops them
    digest   bit_xor(xxhash64(…)) over the seven columns: must be the same on both sides, as must be the counts

seglog has its defaults. Two ratios a query: to the best of the kafka source as it comes and with minPartitions=2 and 4,
and to the best of these and of a consumer tuned for throughput (TUNED). The broker shares the machine's cores with
Spark.

The connector is CONNECTOR, printed with the result: Maven Central has none for Spark 4.3 (November 2026), and its
newest, 4.2.0, without its companion for authentication, of which 4.0.0 is the newest. No Spark release has this
combination; the equal digests say that it reads rightly, not that a connector of Spark 4.3 would be as fast.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglog.configuration.keys import LogConfig
from seglog.model import Compression, TopicPartition
from tests.benchmarks.keyed_logs import append_keyed, open_directory
from tests.support.kafka import Broker
from tests.support.kafka.jvm import maven_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET = 3.0
TRIED = """\
Against one task of the kafka source the target is reached (5.2 to 5.4, idle). Against one that splits the partition
over both cores it is not (2.3; 1.8 with the tuned consumer): the engine alone makes the same columns of 5 million
records in 0.5 s of one process (`spark_read`), a quarter of what a count takes of both cores; the rest is Spark's own,
from Arrow's columns to its rows, and both sources pay it. Spark 4.3 tells a Python source neither which columns a query
needs nor its aggregates, so a count makes all seven; `columns` and `view` of the source ask for fewer (`count, offset
alone` is half of the time, `view batches` a quarter) and are not what is compared here."""
WARM_UPS = 3  # the JVM compiles what it ran often
TOPIC = "measured"
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
KAFKA_OPTIONS: dict[str, dict[str, str]] = {
    "1 partition": {},
    "minPartitions=2": {"minPartitions": "2"},
    "minPartitions=4": {"minPartitions": "4"},
}
TUNED = {
    "minPartitions": "2",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "10000",
}

Source = Callable[[], "DataFrame"]
Query = Callable[["DataFrame"], Any]


@dataclass(frozen=True)
class Measured:
    """One query on one source: seconds of the best run, and what the query answered each time."""

    seconds: float
    answer: Any


def count(frame: DataFrame) -> int:
    return frame.count()


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def digest(frame: DataFrame) -> tuple[int, int]:
    from pyspark.sql.functions import bit_xor, xxhash64
    from pyspark.sql.functions import count as rows

    (row,) = frame.agg(rows("*"), bit_xor(xxhash64(*frame.columns))).collect()
    return row[0], row[1]


QUERIES: dict[str, Query] = {"count": count, "noop": noop, "digest": digest}


def fill(logs: Path, records: int, codec: Compression) -> None:
    """A broker's log directory with `records` in the topic's one partition; the broker is stopped."""
    shutil.rmtree(logs, ignore_errors=True)
    with Broker(logs) as broker:
        broker.create_topic(TOPIC)
    with open_directory(logs, LogConfig()) as directory:
        append_keyed(directory.log(TopicPartition(TOPIC, 0)), records, records // 5, codec)


def measure(sources: Mapping[str, Source], query: Query, runs: int) -> dict[str, Measured]:
    """The best of `runs` runs of each source, in turn; each on a new frame, so that planning counts."""
    times: dict[str, list[float]] = {name: [] for name in sources}
    answers: dict[str, set[Any]] = {name: set() for name in sources}
    for _ in range(WARM_UPS + runs):
        for name, source in sources.items():
            begun = time.perf_counter()
            answers[name].add(query(source()))
            times[name].append(time.perf_counter() - begun)
    assert all(len(found) == 1 for found in answers.values()), answers
    return {name: Measured(min(times[name][WARM_UPS:]), answers[name].pop()) for name in sources}


@dataclass(frozen=True)
class Ratios:
    """Seconds of the kafka source by those of seglog: with partitions alone chosen, and with the best of all."""

    query: str
    partitions_alone: float
    best_of_all: float


def compare(spark: SparkSession, broker: Broker, records: int, runs: int) -> Iterator[Ratios]:
    """A row a query. AssertionError unless all sources answer alike, for all records."""

    def kafka(options: Mapping[str, str]) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.option("subscribe", TOPIC).options(**options).load()

    def seglog() -> DataFrame:
        return spark.read.format("seglog").load(str(broker.log_directory / f"{TOPIC}-0"))

    sources: dict[str, Source] = {f"kafka, {name}": partial(kafka, options) for name, options in KAFKA_OPTIONS.items()}
    sources |= {"kafka, tuned": partial(kafka, TUNED), "seglog": seglog}
    for name, query in QUERIES.items():
        found = measure(sources, query, runs)
        for source, one in found.items():
            report(name, source, records, one)
        answers = {one.answer for one in found.values()}
        assert len(answers) == 1, (name, found)
        assert name != "count" or answers == {records}, (records, found)
        ours, tuned = found.pop("seglog").seconds, found.pop("kafka, tuned").seconds
        theirs = min(one.seconds for one in found.values())
        yield Ratios(name, theirs / ours, min(theirs, tuned) / ours)


def report(query: str, source: str, records: int, measured: Measured) -> None:
    rate = records / measured.seconds / 1e6
    sys.stdout.write(f"{query:8} {source:24} {measured.seconds:7.2f} s {rate:8.2f} M rows/s\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--millions", type=float, default=3)
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Compression], default="none")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    arguments = parser.parse_args()
    import pyspark

    from seglog_ask.spark.session import session

    records, logs = int(arguments.millions * 1e6), arguments.folder / "logs"
    jars = maven_jars("spark-connector-" + CONNECTOR[0][2], CONNECTOR, dependencies=False)
    fill(logs, records, Compression[arguments.codec.upper()])
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
    }
    versions = ", ".join(f"{artifact} {version}" for _, artifact, version in CONNECTOR)
    sys.stdout.write(f"Spark {pyspark.__version__}, {arguments.master}, {records:,} records, {arguments.codec}\n")
    sys.stdout.write(f"connector: {versions}\n")
    with Broker(logs, heap="1g") as broker:
        spark = session("seglog-benchmark", arguments.master, settings)
        spark.sparkContext.setLogLevel("ERROR")
        ratios = list(compare(spark, broker, records, arguments.runs))
        spark.stop()
    for row in ratios:
        verdict = "reached" if row.partitions_alone >= TARGET else "MISSED"
        sys.stdout.write(
            f"{row.query}: seglog {row.partitions_alone:.2f} x kafka's best of 1, 2, 4 partitions (target {TARGET:g} x"
            f" {verdict}), {row.best_of_all:.2f} x with the tuned consumer\n"
        )
    if any(row.partitions_alone < TARGET for row in ratios):
        sys.stdout.write(f"{TRIED}\n")
    shutil.rmtree(logs)


if __name__ == "__main__":
    main()
