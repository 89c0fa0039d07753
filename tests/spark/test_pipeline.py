"""The declarative pipeline runs as its README says: twice, with the log growing in between."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seglog.model import Record, TopicPartition
from tests.support.compacted_directories import broker_directory, opened
from tests.support.open_logs import START_MS
from tests.support.requirements import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).resolve().parents[2]


def command_of_the_readme() -> str:
    """The `spark-pipelines run` of pipelines/README.md, its lines joined."""
    text = (ROOT / "pipelines" / "README.md").read_text().replace("\\\n", " ")
    (found,) = re.findall(r"^ {4}(spark-pipelines run .*)$", text, re.MULTILINE)
    return str(found)


def run(project: Path, logs: Path) -> None:
    """Runs the README's command in the project's directory."""
    command = shlex.split(command_of_the_readme().replace("/var/lib/kafka/data", str(logs)))
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "core"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(Path(__file__).parent / "spark-conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=project, env=environment
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def append(logs: Path, name: str, *pairs: tuple[str, str | None]) -> None:
    topic, _, partition = name.rpartition("-")
    with opened(logs) as directory:
        log = directory.log(TopicPartition(topic, int(partition)), create=True)
        start = START_MS + log.log_end_offset
        log.append([Record(v and v.encode(), k.encode(), start + i) for i, (k, v) in enumerate(pairs)])  # type: ignore[arg-type]


def test_the_pipeline_takes_what_is_new_and_keeps_its_tables_right(spark: SparkSession, tmp_path: Path) -> None:
    try:
        import grpc  # noqa: F401
    except ImportError as error:
        missing(f"pipelines need the extra `pipelines` ({error})")
    project, logs = tmp_path / "pipelines", tmp_path / "logs"
    shutil.copytree(ROOT / "pipelines", project)
    subprocess.run([sys.executable, str(project / "configure.py")], check=True, capture_output=True)
    assert f"storage: file://{project}/storage\n" in (project / "spark-pipeline.yml").read_text()
    broker_directory(logs, {})

    def rows(table: str, *columns: str) -> list[tuple[object, ...]]:
        found = spark.read.parquet(str(project / "spark-warehouse" / table)).selectExpr(*columns)
        return sorted(tuple(row) for row in found.collect())

    def bronze_files() -> dict[Path, bytes]:
        files = (project / "spark-warehouse" / "bronze_records").rglob("*.parquet")
        return {path: path.read_bytes() for path in files}

    append(logs, "orders-0", ("a", "1"), ("b", "1"), ("a", "2"))
    append(logs, "orders-1", ("c", "1"))
    run(project, logs)
    assert rows("bronze_records", "partition", "offset") == [(0, 0), (0, 1), (0, 2), (1, 0)]
    first = bronze_files()

    append(logs, "orders-0", ("b", None), ("d", "1"))
    append(logs, "new-0", ("e", "1"))  # a partition that was not there before
    run(project, logs)
    second = bronze_files()
    assert {path: second.get(path) for path in first} == first
    added = spark.read.parquet(*(str(path) for path in second.keys() - first.keys()))
    assert sorted(tuple(row) for row in added.select("topic", "offset").collect()) == [
        ("new", 0), ("orders", 3), ("orders", 4),
    ]  # fmt: skip
    columns = ("topic", "partition", "records", "first_offset", "last_offset", "duplicates")
    assert rows("verified_partitions", *columns) == [
        ("new", 0, 1, 0, 0, 0), ("orders", 0, 5, 0, 4, 0), ("orders", 1, 1, 0, 0, 0),
    ]  # fmt: skip
    latest = rows("latest_values", "topic", "cast(key as string)", "cast(value as string)", "offset")
    assert latest == [("new", "e", "1", 0), ("orders", "a", "2", 2), ("orders", "c", "1", 0), ("orders", "d", "1", 4)]
    assert rows("findings", "topic") == []
    assert list((project / "storage").iterdir())
