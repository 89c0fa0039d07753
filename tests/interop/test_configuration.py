"""What a topic's configuration is, by a real broker and by seglog out of the files which that broker leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.configuration.keys import KEYS
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.storage.local import LocalFileSystem
from tests.support.kafka import Broker

pytestmark = pytest.mark.kafka

STATIC = {
    "log.retention.hours": "100",
    "log.retention.bytes": "5000000",
    "log.roll.hours": "7",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.delete.retention.ms": "7000",
    "log.segment.delete.delay.ms": "1234",
}
ALL_BROKERS = {"log.retention.ms": "1111111", "log.cleanup.policy": "compact", "log.segment.bytes": "2000000"}
THIS_BROKER = {"log.segment.bytes": "3000000", "log.cleaner.min.compaction.lag.ms": "77"}
TOPICS = {
    "plain": {},
    "own": {
        "cleanup.policy": "delete",
        "retention.ms": "2222222",
        "segment.bytes": "4000000",
        "delete.retention.ms": "9000",
        "min.compaction.lag.ms": "88",
    },
    "mixed": {"retention.bytes": "-1", "max.compaction.lag.ms": "99999"},
}


def described(broker: Broker, topic: str) -> dict[str, str]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin = broker.admin()
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(30).items()}


def test_a_topic_has_the_configuration_that_its_broker_says_it_has(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    with Broker(directory, settings=STATIC) as broker:
        for topic, values in TOPICS.items():
            broker.create_topic(topic, **{key.replace(".", "_"): value for key, value in values.items()})
        broker.configure_brokers(ALL_BROKERS)
        broker.configure_brokers(THIS_BROKER, node="1")
        told = {topic: described(broker, topic) for topic in TOPICS}
    (tmp_path / "seglog.yaml").write_text("".join(f"{key}: '{value}'\n" for key, value in STATIC.items()))
    given = load_settings(LocalFileSystem(), environment={}, working_directory=tmp_path)
    settings = DirectorySettings(LocalFileSystem(), directory, given)
    assert settings.problems == ()
    compared = 0
    for topic, values in told.items():
        resolved = settings.resolve(topic)
        assert resolved.policy_known and not resolved.contradictions
        for key in KEYS:
            if key.topic_level and values.get(key.name) is not None:
                assert resolved.settings[key.name].value == key.parse(values[key.name]), (topic, key.name)
                compared += 1
    assert compared > 60
    assert resolved.log.compact and settings.resolve("own").log.delete
