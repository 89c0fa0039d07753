"""One Spark session for all tests marked `spark`: local[2], silent, and quick to start."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import fixtures
from tests.support.requirements import require_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the whole run, with seglog's own configuration and its data source."""
    require_java()
    os.environ["SPARK_CONF_DIR"] = str(HERE / "spark-conf")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # the daemon that Spark starts its workers from knows nothing of pytest's import paths
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "core"), str(ROOT)])
    from seglog_ask.spark.session import session

    home = tmp_path_factory.mktemp("spark")
    created = session(
        "seglog-tests",
        "local[2]",
        {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.local.dir": str(home / "local"),
            "spark.sql.session.timeZone": "UTC",
        },
    )
    yield created
    created.stop()


@pytest.fixture
def read(spark: SparkSession) -> Callable[..., DataFrame]:
    """`read(path, option=value)` → the DataFrame of the data source."""

    def load(path: Path | str, **options: object) -> DataFrame:
        reader = spark.read.format("seglog")
        for name, value in options.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            reader = reader.option(name.replace("__", "."), text)
        return reader.load(str(path))

    return load


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of the fixture 4.3.0/clean; tests that change files take a copy of a partition."""
    return fixtures.fixture_copy("4.3.0/clean", tmp_path_factory.mktemp("logs"))


@pytest.fixture
def partition_copy(logs: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one partition of `logs` that a test may damage."""

    def copy(name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(logs / name, target)
        return target

    return copy
