"""Which source decides a key, in every combination, by Kafka's own rule; and what goes against a cluster."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from seglog.configuration.keys import COMPACT, DELETE, KEYS, key_named
from seglog.configuration.precedence import DEFAULT, KAFKAS_OWN_TOPICS, ResolvedConfig
from seglog.configuration.settings import load_settings
from seglog.storage.local import LocalFileSystem

# A key that decides what is deleted or cleaned, a broker's name for it, and a value for each of nine sources.
CASES = {
    "cleanup.policy": ("log.cleanup.policy", ["compact", "delete", "compact,delete"] * 3),
    "retention.ms": ("log.retention.hours", [str(n) for n in range(1, 10)]),
    "retention.bytes": ("log.retention.bytes", [str(n) for n in range(1, 10)]),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms", [str(n) for n in range(1, 10)]),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms", [str(n) for n in range(1, 10)]),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms", [str(n) for n in range(11, 20)]),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio", [f"0.{n}" for n in range(1, 10)]),
    "segment.bytes": ("log.segment.bytes", [str(n) for n in range(1, 10)]),
    "segment.ms": ("log.roll.hours", [str(n) for n in range(1, 10)]),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms", [str(n) for n in range(1, 10)]),
}
ORIGINS = {
    "option": "option",
    "set": "--set",
    "environment": "SEGLOG_",
    "topic": "topic",
    "node": "node",
    "cluster": "cluster",
    "set_broker": "--set",
}
SOURCES = ("option", "set", "environment", "entry", "topic", "node", "cluster", "set_broker", "file")


def resolved(tmp_path: Path, key: str, broker_name: str, said: Mapping[str, str], topic: str = "t") -> ResolvedConfig:
    """seglog's answer, every source written as its user would write it."""
    file = "".join(
        [
            f"{broker_name}: '{said['file']}'\n" if "file" in said else "",
            f"topics: {{{topic}: {{{key}: '{said['entry']}'}}}}\n" if "entry" in said else "",
        ]
    )
    (tmp_path / "seglog.yaml").write_text(file)
    overrides = [f"{key}={said['set']}"] if "set" in said else []
    overrides += [f"{broker_name}={said['set_broker']}"] if "set_broker" in said else []
    environment = {"HOME": "/nowhere"}
    if "environment" in said:
        environment["SEGLOG_" + key.upper().replace(".", "_")] = said["environment"]
    settings = load_settings(
        LocalFileSystem(), overrides=overrides, environment=environment, working_directory=tmp_path
    )
    return settings.resolve(
        topic,
        chosen={key: said["option"]} if "option" in said else {},
        stored={key: (said["topic"], "topic")} if "topic" in said else {},
        stored_node={broker_name: (said["node"], "node")} if "node" in said else {},
        stored_brokers={broker_name: (said["cluster"], "cluster")} if "cluster" in said else {},
    )


def kafkas_answer(key: str, broker_name: str, said: Mapping[str, str]) -> tuple[str, str] | None:
    """(name, source) that a broker would go by; None for its default. What the user says is server.properties under a
    broker's name, and an altered topic configuration under a topic's.

    Kafka: DynamicBrokerConfig.updateCurrentConfig (static, then all brokers', then this broker's values, each replacing
    the synonyms before it), then LogConfig.fromProps (the topic's properties over those).
    """
    broker: dict[str, str] = {}
    for source in ("file", "set_broker", "cluster", "node"):
        if source in said:
            broker[broker_name] = source
    topic: dict[str, str] = {}
    for source in ("topic", "entry", "environment", "set", "option"):
        if source in said:
            topic[key] = source
    return next(iter((topic or broker).items()), None)


@pytest.mark.parametrize("key", CASES)
def test_of_any_sources_together_the_one_decides_that_decides_in_a_broker(tmp_path: Path, key: str) -> None:
    broker_name, texts = CASES[key]
    values = dict(zip(SOURCES, texts, strict=True))
    for count in (0, 1, 2, len(SOURCES)):
        for sources in itertools.combinations(SOURCES, count):
            said = {source: values[source] for source in sources}
            found = resolved(tmp_path, key, broker_name, said).settings[key]
            answer = kafkas_answer(key, broker_name, said)
            if answer is None:
                assert (found.value, found.origin) == (key_named(key).default, DEFAULT)
                continue
            name, source = answer
            origin = ORIGINS.get(source, str(tmp_path))
            assert found.value == key_named(key).parse(values[source], name), said
            assert found.origin.startswith(origin), said


def test_every_key_that_a_topic_can_have_loses_its_broker_name_to_the_topics_own_value() -> None:
    settings = load_settings(
        LocalFileSystem(),
        overrides=[f"{name}={_valid(key.name)[0]}" for key in KEYS for name in key.names if key.is_default(name)],
        environment={},
        working_directory=Path("/nowhere"),
    )
    names = {key.name for key in KEYS if key.topic_level and any(map(key.is_default, key.names))}
    found = settings.resolve("t", stored={name: (_valid(name)[1], "topic") for name in names})
    assert len(names) > 15
    assert {found.settings[name].origin for name in names} == {"topic"}
    assert {settings.resolve("t").settings[name].origin for name in names} == {"--set"}


def _valid(name: str) -> tuple[str, str]:
    """Two values that the key takes."""
    special = {
        "cleanup.policy": ("delete", "compact"),
        "preallocate": ("true", "false"),
        "min.cleanable.dirty.ratio": ("0.1", "0.2"),
        "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    }
    return special.get(name, ("10", "20"))


def test_a_key_that_only_brokers_have_is_the_users_before_the_metadatas() -> None:
    settings = load_settings(
        LocalFileSystem(), overrides=["log.cleaner.threads=3"], environment={}, working_directory=Path("/nowhere")
    )
    assert settings.resolve(None, stored_brokers={"log.cleaner.threads": ("7", "m")}).cleaner.threads == 3


# --- what goes against a cluster


@pytest.mark.parametrize(
    ("chosen", "stored", "policies"),
    [
        ({"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, {DELETE}),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}, {COMPACT}),
        ({"cleanup.policy": "compact,delete"}, {"cleanup.policy": "compact"}, {DELETE}),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": ""}, {COMPACT}),
        ({"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete"}, set()),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact"}, set()),
        ({"cleanup.policy": "delete"}, {"log.cleanup.policy": "compact"}, set()),  # no topic has such a key
        ({"retention.ms": 5}, {"retention.ms": "6"}, {DELETE}),
        ({"retention.ms": 5}, {"retention.ms": "-1"}, {DELETE}),
        ({"retention.ms": -1}, {"retention.ms": "6"}, set()),
        ({"retention.ms": 7}, {"retention.ms": "6"}, set()),
        ({"retention.bytes": 5}, {"retention.bytes": "-1"}, {DELETE}),
        ({"retention.ms": 5}, {"retention.ms": "6", "cleanup.policy": "compact"}, set()),
        ({"delete.retention.ms": 5}, {"delete.retention.ms": "6", "cleanup.policy": "compact"}, {COMPACT}),
        ({"delete.retention.ms": 5}, {"delete.retention.ms": "6"}, set()),
        ({"min.compaction.lag.ms": 0}, {"min.compaction.lag.ms": "6", "cleanup.policy": "compact"}, {COMPACT}),
        ({"remote.storage.enable": False}, {"remote.storage.enable": "true"}, {DELETE}),
    ],
)
def test_a_statement_that_lets_more_go_than_the_metadata_is_shown_and_what_costs_records_refused(
    chosen: dict[str, object], stored: dict[str, str], policies: set[str]
) -> None:
    settings = load_settings(LocalFileSystem(), environment={}, working_directory=Path("/nowhere"))
    metadata = {key: (value, "metadata") for key, value in stored.items() if not key.startswith("log.")}
    found = settings.resolve("t", chosen=chosen, stored=metadata)
    assert {policy for policy in (COMPACT, DELETE) if found.against(policy)} == policies
    refused = policies if next(iter(chosen)) not in ("delete.retention.ms", "min.compaction.lag.ms") else set()
    assert {policy for policy in (COMPACT, DELETE) if found.refusal(policy)} == refused
    insisting = settings.resolve("t", chosen=chosen, stored=metadata, override_policy=True)
    assert insisting.contradictions == found.contradictions
    assert not insisting.refusal(COMPACT) and not insisting.refusal(DELETE)
    key = next(iter(chosen))
    assert insisting.settings[key].origin == "option"


def test_the_brokers_values_in_the_metadata_are_gone_against_as_the_topics_are() -> None:
    settings = load_settings(LocalFileSystem(), environment={}, working_directory=Path("/nowhere"))
    brokers = {"log.cleanup.policy": ("compact", "metadata:3")}
    found = settings.resolve("t", chosen={"cleanup.policy": "delete"}, stored_brokers=brokers)
    assert str(found.against(DELETE)[0]) == "cleanup.policy delete (option) instead of compact (metadata:3)"


def test_kafkas_own_topics_are_what_kafka_makes_them_whatever_the_default_is() -> None:
    settings = load_settings(
        LocalFileSystem(), overrides=["log.cleanup.policy=delete"], environment={}, working_directory=Path("/nowhere")
    )
    for topic, policy in {name: values["cleanup.policy"] for name, values in KAFKAS_OWN_TOPICS.items()}.items():
        found = settings.resolve(topic, listed="metadata")
        assert found.policy_known and found.log.cleanup_policy == {policy}
        other = "delete" if policy == "compact" else "compact"
        assert settings.resolve(topic, chosen={"cleanup.policy": other}).contradictions
    assert settings.resolve("__consumer_offsets", stored={"cleanup.policy": ("compact,delete", "m")}).log.delete
    assert settings.resolve("t").log.delete


# --- what nobody knows


def test_a_topic_that_the_metadata_lists_without_a_policy_has_the_brokers() -> None:
    settings = load_settings(LocalFileSystem(), environment={}, working_directory=Path("/nowhere"))
    assert not settings.resolve("t").policy_known
    found = settings.resolve("t", listed="__cluster_metadata-0")
    assert found.policy_known and found.log.cleanup_policy == {"delete"}
    assert "__cluster_metadata-0" in found.settings["cleanup.policy"].origin
    assert found.settings["retention.ms"].origin == DEFAULT
    compacting = settings.resolve("t", listed="__cluster_metadata-0", chosen={"cleanup.policy": "compact"})
    assert compacting.refusal(COMPACT) and not compacting.refusal(DELETE)
    found = settings.resolve("t", listed="x", stored_brokers={"log.cleanup.policy": ("compact", "m")})
    assert found.log.compact and found.settings["cleanup.policy"].origin == "m"
    server_properties = load_settings(
        LocalFileSystem(), overrides=["log.cleanup.policy=compact"], environment={}, working_directory=Path("/nowhere")
    )
    for chosen in ({}, {"cleanup.policy": "compact"}):
        found = server_properties.resolve("t", listed="x", chosen=chosen)
        assert found.log.compact and not found.contradictions


def test_an_impossible_value_in_the_metadata_leaves_its_key_unknown_and_is_reported() -> None:
    settings = load_settings(
        LocalFileSystem(),
        overrides=["log.cleanup.policy=delete", "log.retention.ms=5"],
        environment={},
        working_directory=Path("/nowhere"),
    )
    stored = {"cleanup.policy": ("shrink", "m:1"), "retention.ms": ("soon", "m:2")}
    found = settings.resolve("t", stored=stored, listed="metadata")
    assert not found.policy_known and found.settings["retention.ms"].origin == DEFAULT
    assert [text for text in found.warnings if "m:1" in text] and [text for text in found.warnings if "m:2" in text]
    assert settings.resolve("t", stored=stored, chosen={"cleanup.policy": "delete"}).log.delete
