"""A Spark session with the configuration that seglog's jobs need, and the check for Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seglog import extras
from seglog.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_JAVA = 17
_JAVA_HINT = (
    f"Spark needs Java {LEAST_JAVA} or later: install a JDK or JRE (Debian and Ubuntu: apt install"
    " openjdk-17-jre-headless; macOS: brew install openjdk@17; or adoptium.net) and set JAVA_HOME if it is not on PATH"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of Spark's configuration, the value that seglog sets, and the reason."""

    key: str
    value: str
    reason: str


def configuration(cores: int = 1) -> tuple[Setting, ...]:
    """Returns what seglog sets for executors of `cores` cores. Static keys must be set before a session begins."""
    overhead_mib = 205 + cores * 819  # 0.8 GiB per core, and the JVM's own
    return (
        Setting(
            "spark.python.unix.domain.socket.enabled", "true", "saves 30 to 40 ms per task (delayed ACK on loopback)"
        ),
        Setting("spark.python.worker.reuse", "true", "each worker imports only once"),
        Setting(
            "spark.sql.python.filterPushdown.enabled", "false", "Spark 4.3 caches the pushed reader: wrong results"
        ),
        Setting("spark.executor.memoryOverhead", f"{overhead_mib}m", "Python's tables live outside the heap"),
        Setting("spark.speculation", "false", "a speculative rewrite of a segment is wasted work"),
        Setting(
            "spark.sql.execution.pyspark.udf.faulthandler.enabled", "true", "a native crash leaves a Python traceback"
        ),
    )


def session(
    application: str = "seglog", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Returns the running session, or a new one with `configuration()`, and registers the data source in it.

    A `master` of None leaves the choice to spark-submit; without spark-submit it means all local cores. `settings`
    override the defaults. Raises UnsupportedError without PySpark or Java 17, ConfigError if Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnsupportedError(f"PySpark is not installed ({error}): {extras.advice('spark')}") from error
    from seglog_ask.spark.source import SeglogDataSource

    if master is not None and master.startswith("sc://"):
        connected: SparkSession = SparkSession.builder.remote(master).getOrCreate()
        connected.dataSource.register(SeglogDataSource)
        return connected
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(application)
    if master is not None:
        builder = builder.master(master)
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:  # not started by spark-submit, which chooses a master
        builder = builder.master("local[*]")
    chosen = {setting.key: setting.value for setting in configuration()} | dict(settings or {})
    for key, value in chosen.items():
        builder = builder.config(key, value)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        reason = str(error).strip().splitlines()
        raise ConfigError(f"Spark does not start: {reason[0] if reason else type(error).__name__}") from error
    spark.dataSource.register(SeglogDataSource)
    return spark


def require_java() -> None:
    """Raises UnsupportedError, which says what to install, unless Java 17 or later can be started."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise UnsupportedError(f"no Java found; {_JAVA_HINT}")
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnsupportedError(f"{java} cannot be started ({error}); {_JAVA_HINT}") from error
    version = java_version(asked.stderr + asked.stdout)
    if version is None or version < LEAST_JAVA:
        what = "is not Java" if version is None else f"is Java {version}"
        raise UnsupportedError(f"{java} {what}; {_JAVA_HINT}")


def java_version(text: str) -> int | None:
    """Returns the feature release that `java -version` prints: 17 for "17.0.15", 8 for "1.8.0"."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])
