"""The log directory of a broker with ZooKeeper is judged by the release that wrote it, unless another is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.errors import ConfigError
from tests.support import log_files as logs
from tests.support.command_line import run

BEFORE_2_4 = "#\n#Thu Nov 26 12:27:38 UTC 2026\nversion=0\nbroker.id=1\n"
SINCE_2_4 = BEFORE_2_4 + "cluster.id=-8ajGzmKQSq70L5uem75mA\n"


def directory(path: Path, meta: str) -> Path:
    logs.write_log(path, logs.plain_batches())
    (path / "meta.properties").write_text(meta)
    (path / ".kafka_cleanshutdown").touch()
    return path


@pytest.mark.parametrize(("meta", "releases"), [(BEFORE_2_4, "0.8 to 2.3"), (SINCE_2_4, "2.4 to 3.9")])
def test_the_broker_that_wrote_a_zookeeper_directory_starts_on_it(tmp_path: Path, meta: str, releases: str) -> None:
    found = {row.code: row for row in seglog.doctor(directory(tmp_path / "logs", meta))}
    assert f"with ZooKeeper, Kafka {releases}" in found["ZOOKEEPER_DIRECTORY"].message
    assert "Kafka 3.9" in found["ZOOKEEPER_DIRECTORY"].command
    assert "META_PROPERTIES_INVALID" not in found


@pytest.mark.parametrize("version", ["4.0", "4.3.0", "4.4"])
def test_kafka_4_does_not_start_on_a_directory_without_a_cluster_id(tmp_path: Path, version: str) -> None:
    doctor = seglog.doctor(directory(tmp_path / "logs", BEFORE_2_4), kafka_version=version)
    assert "META_PROPERTIES_INVALID" in [row.code for row in doctor]
    assert not doctor.summary.loads
    assert run("doctor", "--kafka-version", version, tmp_path / "logs").exit_code == 1


def test_an_identity_of_version_0_without_a_broker_is_no_zookeeper_directory(tmp_path: Path) -> None:
    codes = [row.code for row in seglog.doctor(directory(tmp_path / "logs", "version=0\n"))]
    assert "META_PROPERTIES_INVALID" in codes and "ZOOKEEPER_DIRECTORY" not in codes


def test_two_directories_of_different_brokers_differ_with_zookeeper_too(tmp_path: Path) -> None:
    one = directory(tmp_path / "one", SINCE_2_4)
    other = directory(tmp_path / "other", SINCE_2_4.replace("broker.id=1", "broker.id=2"))
    assert "META_PROPERTIES_DIFFER" in [row.code for row in seglog.doctor(one, other)]


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown Kafka version"):
        seglog.doctor(directory(tmp_path / "logs", SINCE_2_4), kafka_version="5.0")
