"""Other ways to the data source: discovery without registering, spark-submit, an installed-nowhere zip, Connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
QUIET = '.config("spark.ui.enabled", "false").config("spark.log.level", "OFF")'
COUNT = 'print("rows", spark.read.format("seglog").load(sys.argv[1]).count())'


def run(command: list[str], *, path: str, home: Path) -> str:
    conf = str(Path(__file__).parent / "spark-conf")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    environment |= {"SPARK_CONF_DIR": conf, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = path
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, cwd=home, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def script(home: Path, *lines: str) -> str:
    file = home / "job.py"
    file.write_text("\n".join(["import sys", "from pyspark.sql import SparkSession", *lines]) + "\n")
    return str(file)


def test_format_seglog_is_found_without_registering(logs, tmp_path):
    spark = f'spark = SparkSession.builder.master("local[1]"){QUIET}.getOrCreate()'
    command = [sys.executable, script(tmp_path, spark, COUNT), f"{logs}/clicks-0"]
    assert "rows 600" in run(command, path=str(ROOT / "core"), home=tmp_path)


def test_spark_submit_runs_from_a_zip_when_the_source_is_registered(logs, tmp_path):
    import pyspark

    shutil.make_archive(str(tmp_path / "seglog"), "zip", ROOT / "core", "seglog")
    job = script(
        tmp_path,
        "from seglog.spark.source import SeglogDataSource",
        f"spark = SparkSession.builder{QUIET}.getOrCreate()",
        "spark.dataSource.register(SeglogDataSource)",
        COUNT,
    )
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", "--py-files", str(tmp_path / "seglog.zip"), job, f"{logs}/clicks-0"]
    assert "rows 600" in run(command, path="", home=tmp_path)


def test_connect_reads_too(logs, tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio (pip install 'pyspark[connect]')")
    spark = 'spark = SparkSession.builder.remote("local[1]").getOrCreate()'
    register = ["from seglog.spark.source import SeglogDataSource", "spark.dataSource.register(SeglogDataSource)"]
    command = [sys.executable, script(tmp_path, spark, *register, COUNT), f"{logs}/clicks-0"]
    paths = os.pathsep.join([str(ROOT / "core"), *(entry for entry in sys.path if entry)])
    assert "rows 600" in run(command, path=paths, home=tmp_path)
