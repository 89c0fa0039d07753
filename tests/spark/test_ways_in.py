"""Other ways to run: discovery without registering, spark-submit with a zip and with the command, Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.requirements import missing
from tests.tidy.sources import PACKAGES

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
QUIET = '.config("spark.ui.enabled", "false").config("spark.log.level", "OFF")'
COUNT = 'print("rows", spark.read.format("seglog").load(sys.argv[1]).count())'


def finished(
    command: list[str], *, path: str, home: Path, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Runs a command with nothing of ours in its environment but `path`; workers are started by `python`."""
    conf = str(Path(__file__).parent / "spark-conf")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    environment |= {"SPARK_CONF_DIR": conf, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}
    environment["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=home, env=environment)


def run(command: list[str], *, path: str, home: Path) -> str:
    """What the command prints; it must succeed."""
    done = finished(command, path=path, home=home)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def spark_submit() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def script(home: Path, *lines: str) -> str:
    file = home / "job.py"
    file.write_text("\n".join(["import sys", "from pyspark.sql import SparkSession", *lines]) + "\n")
    return str(file)


def test_format_seglog_is_found_without_registering(logs, tmp_path):
    spark = f'spark = SparkSession.builder.master("local[1]"){QUIET}.getOrCreate()'
    command = [sys.executable, script(tmp_path, spark, COUNT), f"{logs}/clicks-0"]
    assert "rows 600" in run(command, path=str(ROOT / "core"), home=tmp_path)


def test_spark_submit_runs_from_a_zip_when_the_source_is_registered(logs, tmp_path):
    with zipfile.ZipFile(tmp_path / "seglog.zip", "w") as archive:
        for path in (path for package in PACKAGES for path in (ROOT / "core" / package).rglob("*.py*")):
            archive.write(path, path.relative_to(ROOT / "core"))
    job = script(
        tmp_path,
        "from seglog.spark import SeglogDataSource",
        f"spark = SparkSession.builder{QUIET}.getOrCreate()",
        "spark.dataSource.register(SeglogDataSource)",
        COUNT,
    )
    zipped = str(tmp_path / "seglog.zip")
    command = [spark_submit(), "--master", "local[1]", "--py-files", zipped, job, f"{logs}/clicks-0"]
    assert "rows 600" in run(command, path="", home=tmp_path)


def test_spark_submit_runs_the_command(logs, tmp_path):
    command = [spark_submit(), "--master", "local[2]", str(ROOT / "seglog_cli" / "__main__.py"), "spark", "verify"]
    told = run([*command, "--json", f"{logs}/clicks-0"], path=f"{ROOT}/core{os.pathsep}{ROOT}", home=tmp_path)
    summary = json.loads(told.splitlines()[-1])
    assert (summary["type"], summary["records"], summary["errors"]) == ("summary", 600, 0)


def test_connect_reads_writes_and_runs_jobs(logs, tmp_path):
    try:
        import grpc  # noqa: F401
    except ImportError as error:
        missing(f"Spark Connect needs the extra `pipelines`, or pyspark[connect] ({error})")
    job = script(
        tmp_path,
        "from pathlib import Path",
        "from seglog.verification.verify import Level, VerifyOptions",
        "from seglog.scan.listing import resolve_paths",
        "from seglog_ask.spark import jobs",
        "from seglog_ask.spark.source import SeglogDataSource",
        "from seglog.storage.local import LocalFileSystem",
        'spark = SparkSession.builder.remote("local[1]").getOrCreate()',
        "spark.dataSource.register(SeglogDataSource)",
        COUNT,
        'rows = spark.read.format("seglog").option("columns", "key,value,offset").load(sys.argv[1])',
        'rows.coalesce(1).write.format("seglog").mode("append").option("topic", "copy").save(sys.argv[2])',
        "targets = resolve_paths(LocalFileSystem(), [Path(sys.argv[2])])",
        'print("verified", jobs.verify(spark, targets, VerifyOptions(level=Level.SEMANTIC, jobs=1)).summary)',
    )
    paths = os.pathsep.join([str(ROOT / "core"), *(entry for entry in sys.path if entry)])
    told = run([sys.executable, job, f"{logs}/clicks-0", f"{tmp_path}/copied"], path=paths, home=tmp_path)
    assert "rows 600" in told
    (verified,) = (line for line in told.splitlines() if line.startswith("verified"))
    assert "records=600" in verified and "errors=0" in verified


def python_without_seglog(home: Path) -> str:
    """A program that starts this Python with all that is installed but seglog."""
    installed = home / "installed"
    installed.mkdir()
    for name in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(name)).iterdir():
            target = installed / entry.name
            if "seglog" not in entry.name and entry.suffix != ".pth" and not target.exists():
                target.symlink_to(entry)
    program = home / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{installed}" exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_an_executor_without_the_package_is_said_in_one_sentence(logs, tmp_path):
    job = script(
        tmp_path,
        f"sys.path[:0] = [{str(ROOT / 'core')!r}, {str(ROOT)!r}]",
        "from seglog_ask.spark.session import session",
        'spark = session("bare", "local[1]", {"spark.ui.enabled": "false"})',
        "from seglog_cli.app import run",
        'code = run(["spark", "verify", sys.argv[1]])',
        "try:",
        '    spark.read.format("seglog").load(sys.argv[1]).count()',
        "except Exception as error:",
        "    print(error)",
        "sys.exit(code)",
    )
    done = finished(
        [sys.executable, job, f"{logs}/clicks-0"], path="", home=tmp_path, python=python_without_seglog(tmp_path)
    )
    assert done.returncode == 13, done.stderr[-3000:]
    (told,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "an executor has no seglog: install seglog[spark] there" in told
    assert "No module named 'seglog_ask'" in done.stdout
