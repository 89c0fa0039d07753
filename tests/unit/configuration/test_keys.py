"""Kafka's keys: defaults, synonyms, limits, and what is taken with a warning."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from seglog.configuration.keys import (
    INT_MAX,
    KEYS,
    LONG_MAX,
    BrokerConfig,
    CleanerConfig,
    LogConfig,
    key_named,
    text_of,
)
from seglog.configuration.prices import Prices
from seglog.errors import ConfigError
from seglog.model import Compression, TimestampType
from seglog_stores.remote.traffic import Traffic

# Topic-level defaults of Kafka 4.4.0, as the broker prints them; 4.3.0 has the same without the keys below.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
} | {
    "errors.deadletterqueue.group.enable": "false",
    "max.decompressed.message.bytes": "2147483639",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
}


def test_topic_keys_have_kafkas_names_and_defaults() -> None:
    assert {key.name: text_of(key.default) for key in KEYS if key.topic_level} == KAFKA_DEFAULTS


@pytest.mark.parametrize("owner", [LogConfig, CleanerConfig, BrokerConfig, Prices])
def test_every_field_has_one_key(owner: type[Any]) -> None:
    assert sorted(key.field for key in KEYS if key.owner is owner) == sorted(item.name for item in fields(owner))


def test_no_two_keys_share_a_name() -> None:
    names = [name for key in KEYS for name in key.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_default_reads_back_without_a_warning(key: Any) -> None:
    assert key.parse(text_of(key.default)) == key.default
    assert key.warning(key.default) is None


def test_values_come_as_text_numbers_booleans_or_lists() -> None:
    config = LogConfig.from_mapping(
        {
            "segment.bytes": "64MiB",
            "retention.ms": 3_600_000,
            "preallocate": True,
            "cleanup.policy": ["compact", "delete"],
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "zstd",
            "min.cleanable.dirty.ratio": "10%",
        }
    )
    assert (config.segment_bytes, config.retention_ms, config.preallocate) == (64 << 20, 3_600_000, True)
    assert config.compact and config.delete
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.codec is Compression.ZSTD
    assert config.min_cleanable_dirty_ratio == 0.1


def test_no_policy_at_all_keeps_a_log_for_ever() -> None:
    config = LogConfig.from_mapping({"cleanup.policy": ""})
    assert not config.compact and not config.delete


def test_codecs_have_their_levels() -> None:
    config = LogConfig.from_mapping({"compression.zstd.level": -5, "compression.type": "uncompressed"})
    assert LogConfig().codec is None
    assert config.codec is Compression.NONE
    assert config.compression_level(Compression.ZSTD) == -5
    assert config.compression_level(Compression.SNAPPY) is None


@pytest.mark.parametrize(
    ("values", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "4", "retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "90m"}, 5_400_000),
    ],
)
def test_milliseconds_win_over_minutes_over_hours(values: dict[str, str], retention_ms: int) -> None:
    assert LogConfig.from_mapping(values).retention_ms == retention_ms


def test_broker_synonyms_mean_the_topic_key() -> None:
    config = LogConfig.from_mapping(
        {
            "log.roll.hours": "1",
            "message.max.bytes": "2000",
            "log.cleaner.min.cleanable.ratio": "0.2",
            "log.segment.delete.delay.ms": "7",
        }
    )
    assert (config.segment_ms, config.max_message_bytes) == (3_600_000, 2000)
    assert (config.min_cleanable_dirty_ratio, config.file_delete_delay_ms) == (0.2, 7)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "0"),
        ("segment.bytes", "2147483648"),
        ("segment.ms", "0"),
        ("segment.index.bytes", "3"),
        ("retention.ms", "-2"),
        ("retention.ms", "9223372036854775808"),
        ("log.retention.hours", "9223372036854775807"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("cleanup.policy", "compress"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "NoTimestampType"),
        ("flush.messages", "1.5"),
        ("delete.retention.ms", ""),
    ],
)
def test_what_cannot_be_is_an_error_that_names_the_key(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: "):
        LogConfig.from_mapping({name: text})


def test_limits_are_reported_exactly() -> None:
    with pytest.raises(ConfigError, match=f"from 0 to {LONG_MAX}$"):
        LogConfig.from_mapping({"flush.ms": "-1"})
    with pytest.raises(ConfigError, match=f"from 1 to {INT_MAX}$"):
        LogConfig.from_mapping({"segment.bytes": "4GiB"})


def test_unknown_keys_are_errors_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"'segment\.byte'; did you mean segment\.bytes\?"):
        LogConfig.from_mapping({"segment.byte": "1"})
    with pytest.raises(ConfigError, match="is not a key of LogConfig"):
        LogConfig.from_mapping({"log.cleaner.threads": "1"})
    assert key_named("log.roll.ms").name == "segment.ms"


@pytest.mark.parametrize("name", ["num.network.threads", "group.initial.rebalance.delay.ms", "delete.topic.enable"])
def test_a_key_of_kafka_that_concerns_no_log_gets_no_other_keys_name(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^seglog knows no configuration key '{re.escape(name)}'$"):
        key_named(name)


def test_the_time_that_transactional_ids_live_is_known_and_changes_nothing_here() -> None:
    key = key_named("transactional.id.expiration.ms")
    assert (key.parse("1h"), key.default, key.is_used, key.topic_level) == (3_600_000, 604_800_000, False, False)


def test_values_that_a_broker_refuses_are_accepted_with_a_warning() -> None:
    warnings: list[str] = []
    config = LogConfig.from_mapping({"segment.bytes": "4096", "retention.ms": "1"}, warnings)
    assert config.segment_bytes == 4096
    assert [warning.split(":")[0] for warning in warnings] == ["segment.bytes"]
    warnings.clear()
    LogConfig.from_mapping({"min.compaction.lag.ms": "2h", "max.compaction.lag.ms": "1h"}, warnings)
    assert [warning.split(":")[0] for warning in warnings] == ["min.compaction.lag.ms"]


def parsed(name: str, text: str) -> Any:
    """A value as the key with this name reads it."""
    return key_named(name).parse(text, name)


def test_the_cleaners_keys_take_sizes_and_durations_with_units() -> None:
    assert parsed("log.cleaner.threads", "2") == 2
    assert parsed("log.cleaner.backoff.ms", "1s") == 1000
    assert parsed("log.cleaner.io.max.bytes.per.second", "10MB") == 1e7
    size = parsed("log.cleaner.dedupe.buffer.size", "1MiB")
    assert size == 1 << 20
    assert (key_named("log.cleaner.dedupe.buffer.size").warning(size) or "").startswith(
        "log.cleaner.dedupe.buffer.size:"
    )


@pytest.mark.parametrize(("text", "rate"), [("1.7976931348623157E308", 1.7976931348623157e308), ("1.5", 1.5)])
def test_a_rate_may_be_written_as_kafka_writes_doubles(text: str, rate: float) -> None:
    assert parsed("log.cleaner.io.max.bytes.per.second", text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "50%", "fast"])
def test_a_rate_is_positive_bytes(text: str) -> None:
    with pytest.raises(ValueError, match=r"io\.max\.bytes\.per\.second"):
        parsed("log.cleaner.io.max.bytes.per.second", text)


def test_log_directories_are_a_list() -> None:
    assert parsed("log.dirs", "/a, /b") == ("/a", "/b")
    assert parsed("log.dir", "/a") == ("/a",)


def test_a_price_list_is_decimal_numbers() -> None:
    given = {"remote.price.reads": "0.0005", "remote.price.gigabyte": "9e-2", "remote.price.listings": 0}
    prices = Prices(**{key_named(name).field: key_named(name).parse(str(text)) for name, text in given.items()})
    assert prices == Prices(listings=0.0, reads=0.0005, gigabyte=0.09)
    for wrong in ("", "-1", "nan", "inf", "1e99", "0,5", "$1"):
        with pytest.raises(ValueError, match=r"remote\.price\.reads: "):
            key_named("remote.price.reads").parse(wrong)


def test_what_was_asked_of_a_store_costs_what_the_list_says() -> None:
    traffic = Traffic()
    traffic.count(listings=3)
    traffic.count(heads=1, gets=4, bytes_read=2_500_000_000)
    assert traffic.cost(Prices(listings=5.0, reads=0.4, gigabyte=0.1)) == pytest.approx(0.015 + 0.002 + 0.25)
