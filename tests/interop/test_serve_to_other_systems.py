"""`seglog serve`: Spark's kafka source and Kafka Connect take from it what is read locally."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seglog.model import Isolation
from tests.benchmarks.spark_against_kafka import CONNECTOR
from tests.support.command_line import clean_logs
from tests.support.kafka.jvm import KAFKA_VERSION, find_java, kafka_classpath, maven_jars
from tests.support.serving import Serving, local_rows

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPICS = ("payments", "orders-lz4", "orders-zstd", "customers", "both")
VALUE = 5  # of a row
LIMIT_SECONDS = 600  # a busy machine starts a JVM slowly


def partitions_of(serving: Serving) -> list[tuple[str, int]]:
    return [(each.topic, each.number) for each in serving.catalog if each.topic in TOPICS]


def committed_rows(serving: Serving) -> list[tuple[object, ...]]:
    """Topic, partition and the row of every record that is read locally."""
    found = []
    for topic, number in partitions_of(serving):
        partition = serving.catalog.find(topic, number)
        assert partition is not None
        found += [(topic, number, *row) for row in local_rows(partition.log, Isolation.READ_COMMITTED)]
    return sorted(found, key=place)


def place(row: tuple[object, ...]) -> tuple[object, ...]:
    """Topic, partition and offset."""
    return row[:3]


READING = """
import pickle, sys
from pyspark.sql import SparkSession
jars, bootstrap, topics, out = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.memory", "1g").config("spark.sql.session.timeZone", "UTC")
session = builder.getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topics, "kafka.isolation.level": "read_committed"}
options |= {"startingOffsets": "earliest", "includeHeaders": "true"}
columns = ["topic", "partition", "offset", "unix_millis(timestamp) AS ms", "key", "value", "headers"]
taken = [session.read.format("kafka").options(**options).load().selectExpr(*columns)]
stream = session.readStream.format("kafka").options(**options).load().selectExpr(*columns).writeStream
stream = stream.format("parquet").option("checkpointLocation", out + ".checkpoint").trigger(availableNow=True)
stream.start(out + ".stream").awaitTermination()
taken.append(session.read.parquet(out + ".stream"))
as_bytes = lambda data: None if data is None else bytes(data)
rows = [
    [
        (r.topic, r.partition, r.offset, r.ms, as_bytes(r.key), as_bytes(r.value),
         tuple((h["key"], as_bytes(h["value"])) for h in r.headers or ()))
        for r in frame.collect()
    ]
    for frame in taken
]
with open(out, "wb") as file:
    pickle.dump(rows, file)
session.stop()
"""


def test_sparks_kafka_source_reads_what_is_read_locally_as_a_batch_and_as_a_stream(tmp_path: Path) -> None:
    jars = maven_jars("spark-connector-" + CONNECTOR[0][2], CONNECTOR, dependencies=False)
    with Serving(clean_logs(tmp_path)) as serving:
        names = ",".join(map(str, sorted(jars.glob("*.jar"))))
        command = [sys.executable, "-c", READING, names, serving.bootstrap, ",".join(TOPICS), str(tmp_path / "rows")]
        spark_conf = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            command,
            env={**os.environ, **spark_conf},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        wanted = committed_rows(serving)
    batch, stream = pickle.loads((tmp_path / "rows").read_bytes())
    assert sorted(batch, key=place) == wanted
    assert sorted(stream, key=place) == wanted
    assert {topic for topic, *_ in wanted} == set(TOPICS)


WORKER = """\
bootstrap.servers = {bootstrap}
listeners = HTTP://127.0.0.1:0
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
value.converter = org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename = {work}/connect.offsets
plugin.discovery = service_load
"""
SINK = """\
name = rescue
connector.class = org.apache.kafka.connect.file.FileStreamSinkConnector
tasks.max = 2
topics = {topics}
file = {work}/sink.txt
consumer.override.isolation.level = read_committed
consumer.override.auto.offset.reset = earliest
consumer.override.max.poll.interval.ms = 600000
"""


def test_a_sink_connector_takes_every_committed_record(tmp_path: Path) -> None:
    """A standalone worker: its consumers are a group of two, whose offsets the endpoint keeps."""
    wanted_jars = [("org.apache.kafka", name, KAFKA_VERSION) for name in ("connect-file", "connect-runtime")]
    jars = maven_jars(f"connect-file-{KAFKA_VERSION}", wanted_jars)
    with Serving(clean_logs(tmp_path)) as serving:
        said = {"bootstrap": serving.bootstrap, "work": tmp_path, "topics": ",".join(TOPICS)}
        for name, text in (("worker", WORKER), ("sink", SINK)):
            (tmp_path / f"{name}.properties").write_text(text.format(**said))
        lines = sorted("\n".join(map(shown, committed_rows(serving))).splitlines())
        classes = f"{kafka_classpath()}{os.pathsep}{jars}/*"
        command = [find_java(), "-Xmx512m", "-XX:+UseSerialGC", "-Dseglogkafka.echo=2", "-cp", classes]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone"]
        command += [str(tmp_path / f"{name}.properties") for name in ("worker", "sink")]
        with (tmp_path / "connect.log").open("wb") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            found = taken(tmp_path / "sink.txt", len(lines), worker)
        finally:
            worker.terminate()
            worker.wait(LIMIT_SECONDS)
        assert found == lines, (tmp_path / "connect.log").read_text()[-4000:]
        ends = {place.topic for place in serving.commits.of("connect-rescue")}
    assert ends == set(TOPICS)


def shown(row: tuple[object, ...]) -> str:
    """A record's value as the sink writes it."""
    value = row[VALUE]
    return value.decode(errors="replace") if isinstance(value, bytes) else "null"


def taken(file: Path, count: int, worker: subprocess.Popen[bytes]) -> list[str]:
    """The lines of the sink, as soon as there are so many."""
    deadline = time.monotonic() + LIMIT_SECONDS
    found: list[str] = []
    while len(found) < count and worker.poll() is None and time.monotonic() < deadline:
        time.sleep(0.5)
        found = file.read_text(errors="replace").splitlines() if file.exists() else []
    return sorted(found)
