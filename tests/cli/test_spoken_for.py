"""Commands say for which Kafka they speak, and who wrote the directory, as far as it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from tests.support import log_files as logs
from tests.support.command_line import json_lines, run
from tests.support.fixtures import KAFKA, fixture_copy

CLEAN = KAFKA / "4.3.0" / "clean"
OF_ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=-8ajGzmKQSq70L5uem75mA\n"


@pytest.fixture
def zookeepers(tmp_path: Path) -> Path:
    """A partition of a cluster with ZooKeeper."""
    partition = logs.write_log(tmp_path / "logs", logs.plain_batches()).parent
    (tmp_path / "logs" / "meta.properties").write_text(OF_ZOOKEEPER)
    return partition


def test_explain_names_the_release_and_that_zookeeper_has_the_configuration(zookeepers: Path) -> None:
    said = run("explain", zookeepers).stdout
    assert "a broker of Kafka 4.3" in said and "Kafka 2.4 to 3.9 wrote the log directory" in said
    assert "topics have their configuration in ZooKeeper" in said
    (row,) = json_lines(run("explain", "--json", "--kafka-version", "3.9", zookeepers))
    assert row["codes"]["kafka"] == ["SPOKEN_FOR", "WRITTEN_BY", "TOPICS_IN_ZOOKEEPER"]
    assert "a broker of Kafka 3.9" in row["kafka"][0]
    assert "a broker of Kafka 3.9" in seglog.explain(zookeepers, kafka_version="3.9").kafka[0]


def test_explain_says_nothing_more_of_a_directory_of_4_3() -> None:
    partition = CLEAN / "orders-none-0"
    assert "wrote the log directory" not in run("explain", partition).stdout
    assert "Kafka 4.3 wrote the log directory" in run("explain", "--kafka-version", "4.4", partition).stdout


def test_config_shows_the_defaults_and_the_keys_of_a_release(zookeepers: Path) -> None:
    def values(version: str) -> dict[str, str]:
        rows = json_lines(run("config", "show", "--all", "--json", "--kafka-version", version, zookeepers))
        return {row["key"]: row["value"] for row in rows}

    assert values("2.3")["max.message.bytes"] == "1000012"
    assert values("2.5")["max.message.bytes"] == values("4.4")["max.message.bytes"] == "1048588"
    assert values("3.9")["message.timestamp.after.max.ms"] == str(2**63 - 1)
    assert values("4.0")["message.timestamp.after.max.ms"] == "3600000"
    assert "compression.zstd.level" not in values("3.6") and "compression.zstd.level" in values("3.9")
    done = run("config", zookeepers)
    assert "Kafka 2.4 to 3.9 wrote the log directory" in done.stderr
    assert "topics have their configuration in ZooKeeper" in done.stderr


def test_a_value_that_was_set_stays_whatever_the_release(zookeepers: Path) -> None:
    given = ("--set", "max.message.bytes=7", "--set", "remote.copy.lag.ms=5")
    rows = json_lines(run("config", "show", "--json", "--kafka-version", "2.3", *given, zookeepers))
    assert {row["key"]: row["value"] for row in rows} == {"max.message.bytes": "7", "remote.copy.lag.ms": "5"}


def test_metadata_names_the_level_and_the_brokers_releases(zookeepers: Path) -> None:
    assert "metadata.version 4.3-IV0, broker 1 is Kafka 4.3" in run("metadata", CLEAN).stdout
    first = json_lines(run("metadata", "--json", CLEAN))[0]
    assert (first["metadata_version"], first["releases"]) == ("4.3-IV0", {"1": "4.3"})
    refused = run("metadata", zookeepers.parent)
    assert refused.exit_code == 10
    assert "ZooKeeper has the metadata (Kafka 2.4 to 3.9 wrote the log directory" in refused.stderr


def test_transplant_says_who_wrote_the_source(zookeepers: Path, tmp_path: Path) -> None:
    (zookeepers.parent / ".kafka_cleanshutdown").touch()
    target = fixture_copy("4.3.0/clean", tmp_path / "target")
    for path in (target / "orders-none-0").glob("0*"):
        path.unlink()
    (target / "orders-none-0" / f"{0:020d}.log").touch()
    topic = zookeepers.name.rpartition("-")[0]
    done = run("transplant", "--dry-run", zookeepers, "--into", target, f"--topic={topic}=orders-none")
    assert done.exit_code == 0, done.output
    assert f"{zookeepers.parent}: Kafka 2.4 to 3.9 wrote the log directory" in done.stdout
    assert "Kafka 4.3 wrote" not in done.stdout


def test_an_unknown_release_is_wrong_usage(zookeepers: Path) -> None:
    for command in ("explain", "config"):
        assert run(command, "--kafka-version", "5.0", zookeepers).exit_code == 2
