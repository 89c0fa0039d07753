"""What Kafka 4.4 has added to 4.3, by both: records of its own topics, levels of features, keys of topics.

How its cleaner differs is in `test_cleaner.py`.
"""

from __future__ import annotations

import json
import re
import zipfile
from typing import Any

import pytest

from seglog.configuration.feature_levels import METADATA_VERSION, last_level, level_name
from seglog.configuration.keys import KEYS
from seglog.format import coordinator, message_tables
from seglog.format.message_tables import messages
from seglog.format.wire import NEVER, Field, Message
from seglog.kafka_version import KafkaVersion
from tests.support.kafka import KafkaHarness
from tests.support.kafka.jvm import KAFKA_VERSION, NEWER_KAFKA_VERSION, kafka_jars

pytestmark = pytest.mark.kafka

JARS = {  # the records that a jar defines, and our table of them
    "kafka-metadata": message_tables.METADATA,
    "kafka-group-coordinator": coordinator.OFFSETS,
    "kafka-transaction-coordinator": coordinator.TRANSACTIONS,
    "kafka-share-coordinator": coordinator.SHARE_STATE,
}
ADDED_RECORDS = {("kafka-metadata", 29, "record")}
ADDED_FIELDS = {
    ("kafka-group-coordinator", 17, "value"): {"storedDescriptionTopologyEpoch", "failedDescriptionTopologyEpoch"}
}
ADDED_KEYS = {
    "errors.deadletterqueue.group.enable": "false",
    "max.decompressed.message.bytes": "2147483639",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
}


def definitions(jar: str, version: str) -> dict[tuple[int, str], dict[str, Any]]:
    """(type, kind) → Kafka's definition of every record in a jar."""
    found = {}
    with zipfile.ZipFile(kafka_jars(version) / f"{jar}-{version}.jar") as archive:
        for name in archive.namelist():
            if name.startswith("common/") and name.endswith(".json"):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                read = json.loads(text)
                kind = {"metadata": "record", "coordinator-key": "key", "coordinator-value": "value"}.get(read["type"])
                if kind:
                    found[read["apiKey"], kind] = read
    return found


def fields_of(definition: dict[str, Any]) -> list[tuple[object, ...]]:
    """The fields of a definition as (name, versions, tag), those of structs after their field."""
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    last = int(definition["validVersions"].rpartition("-")[2])

    def walk(fields: list[dict[str, Any]]) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for each in fields:
            versions = each.get("versions") or each["taggedVersions"]
            first, _, end = versions.rstrip("+").partition("-")
            until = last if versions.endswith("+") else int(end or first)
            name = each["name"][:1].lower() + each["name"][1:]
            rows.append((name, int(first), until, each.get("tag")))
            rows += walk(each.get("fields") or structs.get(each["type"].removeprefix("[]"), []))
        return rows

    return walk(definition["fields"])


def our_fields(message: Message) -> list[tuple[object, ...]]:
    """The same of a message of the tables."""

    def walk(fields: tuple[Field, ...]) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for each in fields:
            last = message.last_version if each.last == NEVER else each.last
            first = each.first if each.tag is None else max(each.first, message.flexible_from)
            rows.append((each.name, first, last, each.tag))
            rows += walk(each.type) if isinstance(each.type, tuple) else []
        return rows

    return walk(message.fields)


def kind_of(name: str) -> str:
    return name if name in ("key", "value") else "record"


@pytest.mark.parametrize("jar", JARS)
def test_the_tables_of_records_are_those_of_4_4_and_4_3_has_the_same_without_what_is_new(jar: str) -> None:
    ours = {(number, kind_of(name)): our_fields(message) for (number, name), message in messages(JARS[jar]).items()}
    newer = {key: fields_of(read) for key, read in definitions(jar, NEWER_KAFKA_VERSION).items()}
    assert {key: sorted(rows, key=str) for key, rows in newer.items() if key in ours} == {
        key: sorted(rows, key=str) for key, rows in ours.items() if key in newer
    }
    assert newer.keys() <= ours.keys()
    older = {key: fields_of(read) for key, read in definitions(jar, KAFKA_VERSION).items()}
    assert {(jar, *key) for key in newer.keys() - older.keys()} == {each for each in ADDED_RECORDS if each[0] == jar}
    for key, rows in older.items():
        added = {row[0] for row in newer[key]} - {row[0] for row in rows}
        assert added == ADDED_FIELDS.get((jar, *key), set())


def test_feature_levels_and_topic_keys_are_known_with_what_4_4_has_added(
    kafka: KafkaHarness, newer_kafka: KafkaHarness
) -> None:
    for harness, version in ((kafka, KafkaVersion(4, 3)), (newer_kafka, KafkaVersion(4, 4))):
        known = harness.known()
        assert known["latest"] == last_level(version)
        for level, name in known["metadataVersions"].items():
            assert int(level) > known["latest"] or level_name(int(level)) == name
        for feature, level in known["features"].items():
            if feature != METADATA_VERSION:
                assert level == last_level(version, feature), feature
    before, after = kafka.known()["topicKeys"], newer_kafka.known()["topicKeys"]
    assert dict(after.items() - before.items()) == ADDED_KEYS
    ours = {key.name: key for key in KEYS if key.topic_level}
    for name, default in ADDED_KEYS.items():
        assert ours[name].parse(default) == ours[name].default
