"""What an upgrade would do, and who wrote a directory, by what is in it. Brokers judge it in tests/versions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog.configuration.key_history import removed_from_brokers, removed_from_topics
from seglog.configuration.writers import recognise
from seglog.format.checkpoint import MetaProperties
from seglog.kafka_version import KafkaVersion
from tests.support import log_files as logs
from tests.support.command_line import json_lines, run
from tests.support.fixtures import KAFKA, fixture_copy
from tests.support.metadata_records import metadata_record, topic_id, write_metadata_log
from tests.support.rebuilt import copy_snapshots

OF_ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=-8ajGzmKQSq70L5uem75mA\n"
OF_KRAFT = "version=1\nnode.id=1\ncluster.id=-8ajGzmKQSq70L5uem75mA\n"


def registration(node: int, level: int) -> bytes:
    return metadata_record(
        "REGISTER_BROKER_RECORD",
        version=0,
        brokerId=node,
        incarnationId=topic_id(99),
        brokerEpoch=5,
        endPoints=[],
        features=[{"name": "metadata.version", "minSupportedVersion": 1, "maxSupportedVersion": level}],
        rack=None,
        fenced=True,
    )


def config(topic: str, key: str, value: str) -> bytes:
    return metadata_record("CONFIG_RECORD", resourceType=2, resourceName=topic, name=key, value=value)


def directory(path: Path, *records: bytes, level: int = 14, meta: str = OF_KRAFT) -> Path:
    """The log directory of a combined node of 3.6."""
    version = metadata_record("FEATURE_LEVEL_RECORD", name="metadata.version", featureLevel=level)
    topic = metadata_record("TOPIC_RECORD", name="orders", topicId=topic_id(1))
    write_metadata_log(path, [version, registration(1, 14), topic, *records])
    (path / "meta.properties").write_text(meta)
    (path / ".kafka_cleanshutdown").touch()
    return path


def said(path: Path, version: str | None = None, **options: object) -> dict[str, seglog.Diagnosis]:
    return {row.code: row for row in seglog.doctor(path, kafka_version=version, **options)}  # type: ignore[arg-type]


def test_a_directory_is_judged_by_the_release_that_its_broker_registered(tmp_path: Path) -> None:
    summary = seglog.doctor(directory(tmp_path / "logs")).summary
    assert (summary.kafka, str(summary.writer)) == ("3.6", "3.6")
    assert summary.writer is not None and "3.6-IV2" in summary.writer.evidence
    assert "a Kafka 3.6 broker would start" in run("doctor", tmp_path / "logs").stdout
    last = json_lines(run("doctor", "--json", "--kafka-version", "4.4", tmp_path / "logs"))[-1]
    assert (last["kafka"], last["writer"]) == ("4.4", "3.6")


def test_metadata_of_another_release_are_refused_by_levels(tmp_path: Path) -> None:
    newer = directory(tmp_path / "newer", level=15)
    assert "not 15" in said(newer, "3.6")["METADATA_RECORD_REFUSED"].message
    assert "METADATA_RECORD_REFUSED" not in said(newer, "3.7")
    older = directory(tmp_path / "older", level=6)
    assert "from 7 to 33, not 6" in said(older, "4.4")["METADATA_RECORD_REFUSED"].message
    assert "METADATA_RECORD_REFUSED" not in said(older, "3.6")


def test_metadata_keep_their_level_and_the_command_that_raises_it_is_named(tmp_path: Path) -> None:
    row = said(directory(tmp_path / "logs"), "4.4")["METADATA_VERSION_STAYS"]
    assert "3.6-IV2" in row.message and "4.4-IV2" in row.message
    assert "--release-version 4.4" in row.command
    assert "METADATA_VERSION_STAYS" not in said(tmp_path / "logs", "3.6")
    assert "METADATA_VERSION_STAYS" not in said(tmp_path / "logs")


def test_removed_keys_lock_a_topic_up_to_4_2_and_are_ignored_later(tmp_path: Path) -> None:
    path = directory(tmp_path / "logs", config("orders", "message.format.version", "2.8"))
    gravities = {version: said(path, version)["TOPIC_KEYS_REMOVED"].gravity for version in ("4.0", "4.2", "4.3", "4.4")}
    assert [gravity.value for gravity in gravities.values()] == ["danger", "danger", "note", "note"]
    assert "--delete-config message.format.version" in said(path, "4.4")["TOPIC_KEYS_REMOVED"].command
    assert "TOPIC_KEYS_REMOVED" not in said(path, "3.9")


SMALL_SEGMENTS = [("12000", "4.4", True), ("12000", "4.0", False), ("1048576", "4.4", False)]


@pytest.mark.parametrize(("value", "version", "refused"), SMALL_SEGMENTS)
def test_a_small_segment_keeps_a_newer_broker_from_starting(
    tmp_path: Path, value: str, version: str, refused: bool
) -> None:
    path = directory(tmp_path / "logs", config("orders", "segment.bytes", value))
    assert ("TOPIC_VALUE_REFUSED" in said(path, version)) is refused
    assert seglog.doctor(path, kafka_version=version).summary.loads is not refused


def test_removed_keys_of_a_server_properties_are_named(tmp_path: Path) -> None:
    path, file = directory(tmp_path / "logs"), tmp_path / "server.properties"
    file.write_text("node.id=1\nzookeeper.connect=localhost:2181\nlog.retention.hours=1\nnum.io.threads=8\n")
    found = said(path, "4.4", config_file=file)["BROKER_KEYS_REMOVED"]
    assert "zookeeper.connect" in found.message and "num.io.threads" not in found.message
    assert found.file == "server.properties"
    assert "BROKER_KEYS_REMOVED" not in said(path, "3.9", config_file=file)


def test_kafka_4_serves_nothing_of_a_directory_whose_topics_zookeeper_knows(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    logs.write_log(path, logs.plain_batches())
    (path / "meta.properties").write_text(OF_ZOOKEEPER)
    (path / ".kafka_cleanshutdown").touch()
    row = said(path, "4.4")["ZOOKEEPER_UPGRADE"]
    assert row.command.startswith("seglog rebuild ")
    assert "ZOOKEEPER_UPGRADE" not in said(path, "3.9")
    assert "ZOOKEEPER_UPGRADE" not in said(path)


def test_old_message_formats_are_named_with_their_partitions(tmp_path: Path) -> None:
    path = directory(tmp_path / "logs")
    shutil.copytree(KAFKA / "0.8.2" / "v0-gzip-0", path / "v0-gzip-0")
    shutil.copytree(KAFKA / "0.10.2" / "v1-lz4-createtime-0", path / "v1-lz4-createtime-0")
    message = said(path, "4.4")["OLD_MESSAGE_FORMAT"].message
    assert "format 0: v0-gzip-0; format 1: v1-lz4-createtime-0" in message
    assert "OLD_MESSAGE_FORMAT" not in said(path, "3.9")


def test_a_rebuilt_directory_is_known_by_its_bootstrap_checkpoint(tmp_path: Path) -> None:
    """Its topics are those with which the metadata log will begin: nothing is missing."""
    path = fixture_copy("4.3.0/clean", tmp_path)
    done = run("rebuild", path, "-o", tmp_path / "rebuilt")
    assert done.exit_code == 0, done.output
    shutil.rmtree(path / "__cluster_metadata-0")
    (path / "bootstrap.checkpoint").unlink()
    assert "METADATA_MISSING" in said(path)
    copy_snapshots(tmp_path / "rebuilt", path)
    assert "METADATA_MISSING" not in said(path)


def test_a_release_and_its_levels_are_found_in_what_each_release_writes() -> None:
    meta = MetaProperties(0, "c", 1)
    assert str(recognise(meta)) == "2.4 to 3.9"
    assert str(recognise(meta, topic_ids=True)) == "2.8 to 3.9"
    assert str(recognise(MetaProperties(1, "c", 1))) == "2.8 to 4.4"
    assert recognise(None) is None
    assert recognise(MetaProperties(0)) is None


def test_keys_are_removed_from_the_first_release_without_them_on() -> None:
    keys = ["zookeeper.connect", "port", "num.io.threads"]
    assert removed_from_brokers(keys, KafkaVersion(2, 8)) == []
    assert removed_from_brokers(keys, KafkaVersion(3, 9)) == ["port"]
    assert removed_from_brokers(keys, KafkaVersion(4, 0)) == ["zookeeper.connect", "port"]
    assert removed_from_topics(["message.format.version"], KafkaVersion(3, 9)) == []
