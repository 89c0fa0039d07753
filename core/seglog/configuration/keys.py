"""Kafka's configuration keys, and the frozen configuration values of the engine.

Kafka: LogConfig, TopicConfig, ServerLogConfigs, CleanerConfig. `KEYS` has for each key its field, its parser, the
range of its values, the minimum that a broker requires, and its broker-level synonyms. Defaults are those of the
dataclass fields. `remote.price.*` are seglog's own.

Within one source the topic-level name wins over broker synonyms, and milliseconds over minutes over hours. A value that
a broker refuses but a log can have (`segment.bytes` under 1 MiB) is accepted, with a warning.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from seglog.arguments import described, flag, mapping, number, within
from seglog.configuration.prices import Prices
from seglog.errors import ConfigError
from seglog.model import Compression, Levels, TimestampType, member
from seglog.units import parse_duration, parse_integer, parse_share, parse_size

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_IN_UNITS: dict[str, Callable[[str], Any]] = {
    "minutes": lambda text: parse_duration(text, 60_000),
    "hours": lambda text: parse_duration(text, 3_600_000),
}

COMPACT = "compact"
DELETE = "delete"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Topic-level configuration of one log. Sizes in bytes, durations in milliseconds, named as Kafka's keys."""

    cleanup_policy: frozenset[str] = frozenset({DELETE})
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    remote_storage_enable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    remote_log_copy_disable: bool = False
    remote_copy_lag_ms: int = 0
    remote_copy_lag_bytes: int = -1
    max_decompressed_message_bytes: int = INT_MAX - 8
    errors_deadletterqueue_group_enable: bool = False
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1

    def __post_init__(self) -> None:
        """Converts the values. Those of a fixed set may be text, as Kafka writes them.

        Raises ConfigError for another text; TypeError and ValueError, with the field's name, for a value that has
        another type or does not fit 64 bits.
        """
        for each in fields(self):
            if each.name not in _CHOICES:
                object.__setattr__(self, each.name, _plain(each.name, getattr(self, each.name), each.default))
        for field, read in _CHOICES.items():
            try:
                object.__setattr__(self, field, read(getattr(self, field)))
            except ValueError as error:
                raise ConfigError(f"{field}: {error}") from error

    def __repr__(self) -> str:
        """Shows the values that differ from Kafka's defaults."""
        own = (f"{each.name}={value!r}" for each in fields(self) if (value := getattr(self, each.name)) != each.default)
        return f"LogConfig({', '.join(own)})"

    @property
    def compact(self) -> bool:
        """True if the log is compacted (alone or with deletion)."""
        return COMPACT in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """True if old segments are deleted by time and size (alone or with compaction)."""
        return DELETE in self.cleanup_policy

    @property
    def codec(self) -> Compression | None:
        """The codec of stored batches; None keeps the producer's."""
        return _CODECS[self.compression_type]

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Messages about values that a broker accepts one by one but not together."""
        if self.min_compaction_lag_ms <= self.max_compaction_lag_ms:
            return ()
        return (
            f"min.compaction.lag.ms: a broker refuses {self.min_compaction_lag_ms},"
            f" more than max.compaction.lag.ms ({self.max_compaction_lag_ms}); seglog accepts it",
        )

    def compression_level(self, codec: Compression) -> int | None:
        """Returns the configured level of a codec, None for codecs without levels."""
        level: int | None = getattr(self, f"compression_{codec.label}_level", None)
        return level

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], warnings: list[str] | None = None) -> Self:
        """Builds the configuration from Kafka's keys or their broker synonyms. Values are text, numbers, booleans or
        lists.

        Raises ConfigError for an unknown key or an impossible value. Values that a broker would refuse are reported in
        `warnings`.
        """
        given = mapping("values", values, "a mapping from Kafka's keys to values")
        config = cls(**_read_mapping(given, warnings))
        if warnings is not None:
            warnings.extend(config.contradictions)
        return config


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Broker-level configuration of the log cleaner (`log.cleaner.*`). Sizes are totals over all threads, in bytes."""

    enable: bool = True
    threads: int = 1
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = 1.7976931348623157e308
    backoff_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Other broker-level configuration of a log directory. Durations in milliseconds, sizes in bytes."""

    log_dirs: tuple[str, ...] = ()
    metadata_log_dir: str = ""
    retention_check_interval_ms: int = 300_000
    initial_task_delay_ms: int = 30_000
    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    recovery_threads_per_data_dir: int = 2
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_partition_verification_enable: bool = True
    node_id: int = -1
    process_roles: tuple[str, ...] = ()
    controller_quorum_voters: tuple[str, ...] = ()
    controller_quorum_bootstrap_servers: tuple[str, ...] = ()


_UNUSED = frozenset(
    {
        "preallocate",
        "local_retention_ms",
        "local_retention_bytes",
        "remote_log_copy_disable",
        "unclean_leader_election_enable",
        "min_insync_replicas",
        "io_buffer_size",
        "retention_check_interval_ms",
        "initial_task_delay_ms",
        "flush_offset_checkpoint_interval_ms",
        "flush_start_offset_checkpoint_interval_ms",
        "high_watermark_checkpoint_interval_ms",
        "recovery_threads_per_data_dir",
        "producer_id_expiration_check_interval_ms",
        "transactional_id_expiration_ms",
        "transaction_partition_verification_enable",
    }
)
_CODECS: dict[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    **{codec.label: codec for codec in Compression if codec is not Compression.NONE},
}
_TIMESTAMP_TYPES = {kind.label: kind for kind in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)}
_DEFAULTS = {
    owner: {item.name: item.default for item in fields(owner)}
    for owner in (LogConfig, CleanerConfig, BrokerConfig, Prices)
}


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. `parse` reads text; `names` are its own name and its synonyms, strongest first."""

    name: str
    owner: type[LogConfig] | type[CleanerConfig] | type[BrokerConfig] | type[Prices]
    field: str
    read: Callable[[str], Any]
    minimum: float = -math.inf
    maximum: float = math.inf
    broker_minimum: float = -math.inf
    synonyms: Mapping[str, Callable[[str], Any] | None] = dataclasses.field(default_factory=dict)

    @property
    def topic_level(self) -> bool:
        """True if a topic can have its own value."""
        return self.owner is LogConfig

    @property
    def is_used(self) -> bool:
        """False for a key that seglog reads and shows but that changes nothing that it does."""
        return self.field not in _UNUSED

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the key, strongest first."""
        return (self.name, *self.synonyms)

    def is_default(self, name: str) -> bool:
        """True if `name` is a broker's name for a topic-level key, so that it sets the default for every topic."""
        return self.topic_level and name in self.synonyms and not name.startswith("internal.")

    @property
    def default(self) -> Any:
        """Kafka's default; for a price, seglog's."""
        return _DEFAULTS[self.owner][self.field]

    def parse(self, text: str, name: str | None = None) -> Any:
        """Parses `text` as a value of `name` (hours for `log.retention.hours`). Raises ValueError."""
        read = (self.synonyms.get(name) if name else None) or self.read
        try:
            value = read(text.strip())
        except ValueError as error:
            raise ValueError(f"{name or self.name}: {error}") from error
        if isinstance(value, (int, float)) and not self.minimum <= value <= self.maximum:
            raise ValueError(f"{name or self.name}: {text.strip()} is not {self._range()}")
        return value

    def warning(self, value: Any) -> str | None:
        """Returns a message about a value that a broker refuses but a log can have."""
        if isinstance(value, (int, float)) and value < self.broker_minimum:
            return f"{self.name}: a broker refuses {value}, less than {self.broker_minimum:.0f}; seglog accepts it"
        return None

    def _range(self) -> str:
        if self.maximum == math.inf:
            return f"{self.minimum:.0f} or more" if self.minimum == round(self.minimum) else "more than 0"
        if self.maximum in (INT_MAX, LONG_MAX) and self.minimum > -math.inf:
            return f"from {self.minimum} to {self.maximum}"
        return f"between {self.minimum:g} and {self.maximum:g}"


def _plain(name: str, value: object, default: object) -> object:
    """Converts a field's value to the type of its default."""
    if isinstance(default, bool):
        return flag(name, value)
    return number(name, value) if isinstance(default, float) else within(name, value, -LONG_MAX - 1, LONG_MAX)


def _boolean(text: str) -> bool:
    values = {"true": True, "false": False}
    if text.lower() not in values:
        raise ValueError(f"{text[:64]!r} is neither true nor false")
    return values[text.lower()]


def _policies(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names <= {COMPACT, DELETE}:
        raise ValueError(f"{text[:64]!r} is not compact, delete or compact,delete")
    return names


def _policy_set(value: str | Iterable[str]) -> frozenset[str]:
    return _policies(value if isinstance(value, str) else ",".join(value))


def _codec_name(value: str | Compression) -> str:
    name = value
    if isinstance(value, Compression):
        name = next(name for name, codec in _CODECS.items() if codec is value)
    if name not in _CODECS:
        raise ValueError(f"{value!r} is not one of {', '.join(_CODECS)}")
    return str(name)


def _timestamp_type(value: str | TimestampType) -> TimestampType:
    found = member(TimestampType, value)
    if found is TimestampType.NONE:
        raise ValueError(f"{found.label} is not one of {', '.join(_TIMESTAMP_TYPES)}")
    return found


_CHOICES: dict[str, Callable[[Any], Any]] = {
    "cleanup_policy": _policy_set,
    "compression_type": _codec_name,
    "message_timestamp_type": _timestamp_type,
}


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _one_of(choices: Mapping[str, Any], *, values: bool = False) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"{text[:64]!r} is not one of {', '.join(choices)}")
        return choices[text] if values else text

    return read


def _rate(text: str) -> float:
    """Parses bytes per second: a size, or a double in Kafka's notation."""
    if re.fullmatch(r"[\d.]+(?:[eE][+-]?\d+)?", text, re.ASCII):
        return parse_share(text)
    return float(parse_size(text))


def _price(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(?:\.\d+)?(?:[eE]-?\d{1,2})?", text, re.ASCII):
        raise ValueError(f"{text[:64]!r} is not a price such as 0.0004")
    return float(text)


def _topic(
    name: str,
    read: Callable[[str], Any],
    minimum: float = -math.inf,
    maximum: float = math.inf,
    *synonyms: str,
    broker_minimum: float = -math.inf,
) -> Key:
    readers = {synonym: _IN_UNITS.get(synonym.rpartition(".")[2]) for synonym in synonyms}
    return Key(name, LogConfig, name.replace(".", "_"), read, minimum, maximum, broker_minimum, readers)


def _level_of(codec: Compression, levels: Levels) -> Key:
    def level(text: str) -> int:
        number = parse_integer(text)
        if levels.usual < number < levels.least:
            raise ValueError(f"a {codec.label} level is {levels.usual} or from {levels.least} to {levels.most}")
        return number

    return _topic(f"compression.{codec.label}.level", level, min(levels.least, levels.usual), levels.most)


def _cleaner(
    name: str, read: Callable[[str], Any], minimum: float, maximum: float, broker_minimum: float = -math.inf
) -> Key:
    full = f"log.cleaner.{name}"
    return Key(full, CleanerConfig, name.replace(".", "_"), read, minimum, maximum, broker_minimum)


def _broker(name: str, field_name: str, read: Callable[[str], Any], minimum: float, maximum: float) -> Key:
    return Key(name, BrokerConfig, field_name, read, minimum, maximum)


_TIMESTAMP_TYPE = _one_of(_TIMESTAMP_TYPES, values=True)
_MS = parse_duration

KEYS: tuple[Key, ...] = (
    _topic("cleanup.policy", _policies, -math.inf, math.inf, "log.cleanup.policy"),
    _topic(
        "segment.bytes", parse_size, 1, INT_MAX, "internal.segment.bytes", "log.segment.bytes", broker_minimum=1 << 20
    ),
    _topic("segment.ms", _MS, 1, LONG_MAX, "log.roll.ms", "log.roll.hours"),
    _topic("segment.jitter.ms", _MS, 0, LONG_MAX, "log.roll.jitter.ms", "log.roll.jitter.hours"),
    _topic("segment.index.bytes", parse_size, 4, INT_MAX, "log.index.size.max.bytes"),
    _topic("index.interval.bytes", parse_size, 0, INT_MAX, "log.index.interval.bytes"),
    _topic("preallocate", _boolean, -math.inf, math.inf, "log.preallocate"),
    _topic("flush.messages", parse_integer, 1, LONG_MAX, "log.flush.interval.messages"),
    _topic("flush.ms", _MS, 0, LONG_MAX, "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    _topic("retention.bytes", parse_size, -LONG_MAX - 1, LONG_MAX, "log.retention.bytes"),
    _topic("retention.ms", _MS, -1, LONG_MAX, "log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    _topic("file.delete.delay.ms", _MS, 0, LONG_MAX, "log.segment.delete.delay.ms"),
    _topic("delete.retention.ms", _MS, 0, LONG_MAX, "log.cleaner.delete.retention.ms"),
    _topic("min.compaction.lag.ms", _MS, 0, LONG_MAX, "log.cleaner.min.compaction.lag.ms"),
    _topic("max.compaction.lag.ms", _MS, 1, LONG_MAX, "log.cleaner.max.compaction.lag.ms"),
    _topic("min.cleanable.dirty.ratio", parse_share, 0, 1, "log.cleaner.min.cleanable.ratio"),
    _topic("max.message.bytes", parse_size, 0, INT_MAX, "message.max.bytes"),
    _topic("compression.type", _one_of(_CODECS)),
    *(_level_of(codec, codec.levels) for codec in Compression if codec.levels is not None),
    _topic("message.timestamp.type", _TIMESTAMP_TYPE, -math.inf, math.inf, "log.message.timestamp.type"),
    _topic("message.timestamp.before.max.ms", _MS, 0, LONG_MAX, "log.message.timestamp.before.max.ms"),
    _topic("message.timestamp.after.max.ms", _MS, 0, LONG_MAX, "log.message.timestamp.after.max.ms"),
    _topic("remote.storage.enable", _boolean),
    _topic("local.retention.ms", _MS, -2, LONG_MAX, "log.local.retention.ms"),
    _topic("local.retention.bytes", parse_size, -2, LONG_MAX, "log.local.retention.bytes"),
    _topic("remote.log.copy.disable", _boolean),
    _topic("remote.copy.lag.ms", _MS, -1, LONG_MAX, "log.remote.copy.lag.ms"),
    _topic("remote.copy.lag.bytes", parse_size, -1, LONG_MAX, "log.remote.copy.lag.bytes"),
    _topic("max.decompressed.message.bytes", parse_size, 1, INT_MAX - 8),
    _topic("errors.deadletterqueue.group.enable", _boolean),
    _topic("unclean.leader.election.enable", _boolean),
    _topic("min.insync.replicas", parse_integer, 1, INT_MAX),
    _cleaner("enable", _boolean, -math.inf, math.inf),
    _cleaner("threads", parse_integer, 0, INT_MAX),
    _cleaner("dedupe.buffer.size", parse_size, 1, LONG_MAX, broker_minimum=(1 << 20) + 1),
    _cleaner("io.buffer.size", parse_size, 1, INT_MAX),
    _cleaner("io.buffer.load.factor", parse_share, 0, 1),
    _cleaner("io.max.bytes.per.second", _rate, 1e-300, math.inf),
    _cleaner("backoff.ms", _MS, 0, LONG_MAX),
    Key("log.dirs", BrokerConfig, "log_dirs", _names, synonyms={"log.dir": None}),
    Key("metadata.log.dir", BrokerConfig, "metadata_log_dir", str),
    _broker("log.retention.check.interval.ms", "retention_check_interval_ms", _MS, 1, LONG_MAX),
    _broker("log.initial.task.delay.ms", "initial_task_delay_ms", _MS, 0, LONG_MAX),
    _broker("log.flush.offset.checkpoint.interval.ms", "flush_offset_checkpoint_interval_ms", _MS, 0, INT_MAX),
    _broker(
        "log.flush.start.offset.checkpoint.interval.ms", "flush_start_offset_checkpoint_interval_ms", _MS, 0, INT_MAX
    ),
    _broker("replica.high.watermark.checkpoint.interval.ms", "high_watermark_checkpoint_interval_ms", _MS, 0, LONG_MAX),
    _broker("num.recovery.threads.per.data.dir", "recovery_threads_per_data_dir", parse_integer, 1, INT_MAX),
    _broker("producer.id.expiration.ms", "producer_id_expiration_ms", _MS, 1, INT_MAX),
    _broker("producer.id.expiration.check.interval.ms", "producer_id_expiration_check_interval_ms", _MS, 1, INT_MAX),
    _broker("transactional.id.expiration.ms", "transactional_id_expiration_ms", _MS, 1, INT_MAX),
    Key("process.roles", BrokerConfig, "process_roles", _names),
    Key("controller.quorum.voters", BrokerConfig, "controller_quorum_voters", _names),
    Key("controller.quorum.bootstrap.servers", BrokerConfig, "controller_quorum_bootstrap_servers", _names),
    Key("node.id", BrokerConfig, "node_id", parse_integer, -1, INT_MAX, synonyms={"broker.id": None}),
    _broker("transaction.partition.verification.enable", "transaction_partition_verification_enable", _boolean, 0, 1),
    *(Key(f"remote.price.{item.name}", Prices, item.name, _price, 0, 1e9) for item in fields(Prices)),
)

BY_NAME = {name: key for key in KEYS for name in key.names}


def key_named(name: str) -> Key:
    """Returns the key with this name or synonym. Raises ConfigError if there is none, with one that is nearly it."""
    found = BY_NAME.get(name)
    if found is None:
        nearest = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.8)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ConfigError(f"seglog knows no configuration key {name[:64]!r}{hint}")
    return found


def text_of(value: object) -> str:
    """Returns a value as Kafka writes it: `true`, `compact,delete`, `1048576`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, TimestampType):
        return value.label
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(sorted(map(str, value)) if isinstance(value, (set, frozenset)) else map(str, value))
    return str(value)


def _read_mapping(values: Mapping[str, object], warnings: list[str] | None) -> dict[str, Any]:
    """Returns field → value for a topic's keys in `values`; of several names of a key the strongest counts."""
    for given in values:
        if not isinstance(given, str):
            raise TypeError(f"a configuration key must be text, not {described(given)}")
        if not key_named(given).topic_level:
            raise ConfigError(f"{given} is not a key of {LogConfig.__name__}")
    found: dict[str, Any] = {}
    for key in KEYS:
        name = next((name for name in key.names if name in values), None)
        if name is None:
            continue
        try:
            value = found[key.field] = key.parse(text_of(values[name]), name)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        warning = key.warning(value)
        if warning is not None and warnings is not None:
            warnings.append(warning)
    return found
