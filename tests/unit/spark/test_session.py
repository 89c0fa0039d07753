"""The session's configuration, its message without Java, and the imports of the discovery shim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seglog.errors import UnsupportedError
from seglog_ask.spark.session import configuration, java_version, require_java

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2026-04-21', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_the_version_of_java_is_its_feature_release(text, version):
    assert java_version(text) == version


def test_without_java_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="Spark needs Java 17 or later: install a JDK"):
        require_java()


def test_an_old_java_is_refused_by_its_version(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match="is Java 11; Spark needs Java 17"):
        require_java()


def test_every_setting_has_a_reason():
    settings = {setting.key: setting for setting in configuration(cores=4)}
    assert settings["spark.python.unix.domain.socket.enabled"].value == "true"
    assert settings["spark.executor.memoryOverhead"].value == "3481m"
    assert all(setting.reason for setting in settings.values())


def test_the_discovery_shim_is_light():
    pytest.importorskip("pyspark")
    code = (
        "import sys, pyspark_seglog; assert pyspark_seglog.DefaultSource.name() == 'seglog';"
        "heavy = {'numba', 'pyarrow', 'pandas', 'yaml', 'seglog.kernels', 'seglog_stores.tiers'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT / "core")}
    )
    assert found.stdout.strip() == "[]"
