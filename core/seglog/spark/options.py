"""The reader's options: the names, the precedence and the refusals of Spark's kafka source, and seglog's own.

1. Keys are case-insensitive; those that Spark adds by itself are passed over, any other unknown one is refused.
2. `startingTimestamp` beats `startingOffsetsByTimestamp` beats `startingOffsets`; the same for the ending.
3. What cannot hold in a batch (starting at latest, ending at earliest) or in a stream (any ending) is refused
   with the words of the kafka source (KafkaSourceProvider).
4. Options that speak of brokers and consumers are taken and do nothing, because none is asked; options that
   would change the result and cannot be honoured are refused.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from seglog.errors import ConfigError
from seglog.model import Isolation, TopicPartition
from seglog.remote.settings import KNOWN, StoreSettings
from seglog.spark.offsets import EARLIEST, LATEST, parse_assign, parse_offsets
from seglog.spark.schema import RECORDS, columns_of
from seglog.spark.where import EVERYTHING, Where, parse_where
from seglog.units import parse_integer, parse_size

_logger = logging.getLogger(__name__)

T = TypeVar("T")

OptionKind = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
OnCorrupt = Literal["fail", "skip"]

_SELECTIONS = ("assign", "subscribe", "subscribePattern")
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
OPTIONS = (
    "path",
    "paths",
    *_SELECTIONS,
    "where",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    *_ENDINGS,
    "failOnDataLoss",
    "includeHeaders",
    "isolationLevel",
    "minPartitions",
    "maxPartitionBytes",
    "maxOffsetsPerTrigger",
    "columns",
    "view",
    "verifyCrc",
    "onCorrupt",
    "local",
    "tierKey",
    "remoteMetadata",
)

# Of object stores, by the names of the variables in an environment; their values are never shown.
STORE_OPTIONS = tuple(sorted(KNOWN))
# Of brokers and consumers: nobody is asked, so they change nothing.
_WITHOUT_EFFECT = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_REFUSED = {
    "minOffsetsPerTrigger": "a Python source has one read limit; use maxOffsetsPerTrigger or the trigger's interval",
    "maxTriggerDelay": "a Python data source has one read limit; use the trigger's interval",
    "maxRecordsPerPartition": "splits are cut by bytes; use maxPartitionBytes or minPartitions",
}
# What CREATE TABLE, catalogs and readers of Spark add to the options of a source.
_OF_SPARK = frozenset(
    {
        "collation",
        "comment",
        "external",
        "is_managed_location",
        "location",
        "managed_location",
        "mergeschema",
        "owner",
        "provider",
        "serialization.format",
        "table_type",
    }
)

_MANY = 16  # listings of a part; beyond, one of the whole costs less
_ISOLATIONS = {level.label: level for level in Isolation}


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """Where reading begins or ends. `offsets` are offsets or timestamps by partition, sorted; `timestamp` is all's."""

    kind: OptionKind
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int = -1

    def of(self, key: TopicPartition) -> int | None:
        """The offset or timestamp of this partition; None where it is not named."""
        i = bisect_left(self.offsets, key, key=lambda each: each[0])
        return self.offsets[i][1] if i < len(self.offsets) and self.offsets[i][0] == key else None


@dataclass(frozen=True, slots=True)
class TierNames:
    """What is said of tiered storage: the log directory with the local parts, files of private keys by the ids of their
    pairs, and where the partitions of `__remote_log_metadata` lie.
    """

    local: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    metadata: tuple[str, ...] = ()


NO_TIER_NAMES = TierNames()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader was asked. At most one of `assign`, `subscribe` and `subscribe_pattern` is set.

    `max_partition_bytes` and `max_offsets_per_trigger` of 0 leave it to the planner; sizes are in bytes.
    """

    paths: tuple[str, ...]
    assign: frozenset[TopicPartition] | None
    subscribe: frozenset[str] | None
    subscribe_pattern: str | None
    starting: OffsetRule
    ending: OffsetRule
    missing_timestamp: Literal["error", "latest"]
    fail_on_data_loss: bool
    include_headers: bool
    isolation: Isolation
    min_partitions: int
    max_partition_bytes: int
    max_offsets_per_trigger: int
    columns: tuple[str, ...] | None
    view: str
    verify_crc: bool
    on_corrupt: OnCorrupt
    store: StoreSettings
    where: Where
    tier: TierNames

    def beginnings(self) -> tuple[str, ...] | None:
        """How the names of the partitions' directories begin that may be chosen; None where there are many ways."""
        found: set[str] | None = None
        if self.assign is not None:
            found = {f"{one}/" for one in self.assign}
            found = found if len(found) <= _MANY else {f"{one.topic}-" for one in self.assign}
        elif self.subscribe is not None or self.where.topics is not None:
            found = {f"{topic}-" for topic in self.subscribe or self.where.topics or ()}
        return tuple(sorted(found)) if found is not None and len(found) <= _MANY else None

    def chooses(self, topic_partition: TopicPartition) -> bool:
        """Whether the options select this partition."""
        if self.assign is not None:
            return topic_partition in self.assign
        if self.subscribe is not None:
            return topic_partition.topic in self.subscribe
        return self.subscribe_pattern is None or re.fullmatch(self.subscribe_pattern, topic_partition.topic) is not None


def parse_read_options(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """The options of a batch reader, or of a stream's. ConfigError says what is wrong and what is legal."""
    given = {key.lower(): value for key, value in options.items()}
    _check_names(given)
    assign, subscribe, pattern = _selection(given)
    starting = _rule(given, "starting", "latest" if streaming else "earliest")
    if not streaming:
        _check_starting(starting)
    view = _value(given, "view", _view, RECORDS)
    if streaming and view != RECORDS:
        # offsets count records: a batch that two triggers share would come twice
        raise ConfigError(f"view: a stream has records alone; read {view} with spark.read")
    return ReadOptions(
        paths=_paths(given),
        assign=assign,
        subscribe=subscribe,
        subscribe_pattern=pattern,
        starting=starting,
        ending=_no_ending(given) if streaming else _ending(given),
        missing_timestamp=_value(given, "startingOffsetsByTimestampStrategy", _strategy, "latest"),
        fail_on_data_loss=_value(given, "failOnDataLoss", _boolean, True),
        include_headers=_value(given, "includeHeaders", _boolean, False),
        isolation=_isolation(given),
        min_partitions=_value(given, "minPartitions", _positive, 0),
        max_partition_bytes=_value(given, "maxPartitionBytes", _positive_size, 0),
        max_offsets_per_trigger=_value(given, "maxOffsetsPerTrigger", _positive, 0),
        columns=_value(given, "columns", _names, None),
        view=view,
        verify_crc=_value(given, "verifyCrc", _boolean, True),
        on_corrupt=_value(given, "onCorrupt", _on_corrupt, "fail"),
        store=StoreSettings.of(given),
        where=_where(given, view),
        tier=_tier(given),
    )


def _tier(given: Mapping[str, str]) -> TierNames:
    """The options of tiered storage, which name files that the driver reads."""
    key, metadata = given.get("tierkey", ""), given.get("remotemetadata", "")
    pairs = _parsed("tierKey", key, dict) if key.startswith("{") else _one_key(key)
    several = _parsed("remoteMetadata", metadata, list) if metadata.startswith("[") else [metadata] if metadata else []
    named = [*pairs.items(), *((text, text) for text in several)]
    if not all(isinstance(text, str) for pair in named for text in pair):
        raise ConfigError("tierKey and remoteMetadata name files: their JSON holds strings alone")
    return TierNames(given.get("local", ""), tuple(pairs.items()), tuple(several))


def _one_key(text: str) -> dict[str, str]:
    key_id, _, file = text.rpartition("=")
    return {key_id: file} if text else {}


def _parsed(name: str, text: str, kind: type[T]) -> T:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {text[:200]!r}") from error
    if not isinstance(found, kind):
        raise ConfigError(f"{name} is JSON, but not {'an object' if kind is dict else 'a list'}: {text[:200]!r}")
    return found


def _where(given: Mapping[str, str], view: str) -> Where:
    found = _value(given, "where", parse_where, EVERYTHING)
    if found != EVERYTHING and view != RECORDS:
        raise ConfigError(f"where: it is for records; filter the view {view} with the DataFrame's own where")
    return found


# --- names ------------------------------------------------------------------------------------------------


def _check_names(given: Mapping[str, str]) -> None:
    legal = {name.lower(): name for name in (*OPTIONS, *_WITHOUT_EFFECT, *STORE_OPTIONS)}
    refused = {name.lower(): name for name in _REFUSED}
    idle = []
    for key in given:
        if key in refused:
            raise ConfigError(f"option {refused[key]} is not supported: {_REFUSED[refused[key]]}")
        if key.startswith("kafka.") or key in {name.lower() for name in _WITHOUT_EFFECT}:
            idle += [legal.get(key, key)] if key != "kafka.isolation.level" else []
        elif key not in legal and key not in _OF_SPARK and not key.startswith(("option.", "spark.")):
            near = difflib.get_close_matches(key, legal, 1)
            hint = f"; did you mean {legal[near[0]]}?" if near else ""
            raise ConfigError(f"unknown option '{key}' of format seglog{hint} (options: {', '.join(OPTIONS)})")
    if idle:
        _logger.warning("seglog reads files and asks no broker: %s without effect", ", ".join(sorted(idle)))


def _selection(
    given: Mapping[str, str],
) -> tuple[frozenset[TopicPartition] | None, frozenset[str] | None, str | None]:
    chosen = [name for name in _SELECTIONS if name.lower() in given]
    if len(chosen) > 1:
        raise ConfigError(f"only one of the options {', '.join(_SELECTIONS)} can be given, not {', '.join(chosen)}")
    pattern = given.get("subscribepattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"subscribePattern: {pattern!r} is not a regular expression: {error}") from error
    assign = parse_assign(given["assign"]) if "assign" in given else None
    topics = _value(given, "subscribe", lambda text: frozenset(_names(text)), None)
    if assign is not None and not assign:
        raise ConfigError("assign: no topic is named")
    return assign, topics, pattern


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    paths = [given["path"]] if given.get("path") else []
    if "paths" in given:
        try:
            several = json.loads(given["paths"])
        except ValueError as error:
            raise ConfigError(f"paths is not a JSON list of strings: {given['paths'][:200]!r}") from error
        if not isinstance(several, list) or not all(isinstance(path, str) for path in several):
            raise ConfigError(f"paths is not a JSON list of strings: {given['paths'][:200]!r}")
        paths += several
    if not paths:
        raise ConfigError(
            "no path is given: load(path), or option path, names a partition or log directory (Spark 4.3 hands a"
            " Python source none of the options of CREATE TABLE: use CREATE TEMP VIEW, or SELECT … WITH (path = '…'))"
        )
    return tuple(dict.fromkeys(paths))


# --- where to begin and end ---------------------------------------------------------------------------------


def _rule(given: Mapping[str, str], side: str, default: OptionKind) -> OffsetRule:
    one, many, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if one.lower() in given:
        return OffsetRule("timestamp", timestamp=_value(given, one, _not_negative, -1))
    if many.lower() in given:
        stamps = parse_offsets(given[many.lower()], many)
        for key, stamp in stamps.items():
            if stamp < 0:
                raise ConfigError(f"{many}: {stamp} for {key} is not a timestamp in epoch milliseconds")
        return OffsetRule("timestamps", tuple(sorted(stamps.items())))
    text = given.get(offsets.lower(), default).strip()
    if text.lower() == "earliest":
        return OffsetRule("earliest")
    if text.lower() == "latest":
        return OffsetRule("latest")
    return OffsetRule("offsets", tuple(sorted(parse_offsets(text, offsets).items())))


def _check_starting(rule: OffsetRule) -> None:
    if rule.kind == "latest":
        raise ConfigError("starting offset can't be latest for batch queries")
    for key, offset in rule.offsets if rule.kind == "offsets" else ():
        if offset == LATEST:
            raise ConfigError(f"startingOffsets for {key} can't be latest for batch queries")


def _ending(given: Mapping[str, str]) -> OffsetRule:
    rule = _rule(given, "ending", "latest")
    if rule.kind == "earliest":
        raise ConfigError("ending offset can't be earliest for batch queries")
    for key, offset in rule.offsets if rule.kind == "offsets" else ():
        if offset == EARLIEST:
            raise ConfigError(f"ending offset for {key} can't be earliest for batch queries")
    return rule


def _no_ending(given: Mapping[str, str]) -> OffsetRule:
    for name in _ENDINGS:
        if name.lower() in given:
            raise ConfigError(f"{name} is not valid in streaming queries")
    return OffsetRule("latest")


# --- values -------------------------------------------------------------------------------------------------


def _value(given: Mapping[str, str], name: str, read: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _isolation(given: Mapping[str, str]) -> Isolation:
    found = {name: given[name.lower()] for name in ("isolationLevel", "kafka.isolation.level") if name.lower() in given}
    for name, text in found.items():
        if text.lower() not in _ISOLATIONS:
            raise ConfigError(f"{name}: {text!r} is neither read_uncommitted nor read_committed")
    levels = {_ISOLATIONS[text.lower()] for text in found.values()}
    if len(levels) > 1:
        raise ConfigError("isolationLevel and kafka.isolation.level contradict each other")
    return levels.pop() if levels else Isolation.READ_UNCOMMITTED


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names are separated by commas, and there is none")
    return names


def _positive(text: str) -> int:
    number = parse_integer(text.strip())
    if number <= 0:
        raise ValueError(f"{number} is not positive")
    return number


def _not_negative(text: str) -> int:
    number = parse_integer(text.strip())
    if number < 0:
        raise ValueError(f"{number} is not a timestamp in epoch milliseconds")
    return number


def _positive_size(text: str) -> int:
    size = parse_size(text.strip())
    if size <= 0:
        raise ValueError(f"{text!r} is not positive")
    return size


def _view(text: str) -> str:
    columns_of(text.lower())
    return text.lower()


def _strategy(text: str) -> Literal["error", "latest"]:
    if text.lower() == "error":
        return "error"
    if text.lower() == "latest":
        return "latest"
    raise ValueError(f"{text!r} is neither error nor latest")


def _on_corrupt(text: str) -> OnCorrupt:
    if text.lower() == "fail":
        return "fail"
    if text.lower() == "skip":
        return "skip"
    raise ValueError(f"{text!r} is neither fail nor skip")
