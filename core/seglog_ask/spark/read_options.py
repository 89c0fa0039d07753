"""The reader's options: names, precedence and refusals of Spark's kafka source, plus seglog's own options.

1. Keys are case-insensitive. Keys that Spark adds by itself are ignored; any other unknown key is refused.
2. `startingTimestamp` beats `startingOffsetsByTimestamp` beats `startingOffsets`; the same for the ending.
3. What is impossible in a batch (starting at latest, ending at earliest) or in a stream (any ending) is refused
   with the words of the kafka source (KafkaSourceProvider).
4. Options about brokers and consumers are accepted and have no effect, because seglog contacts no broker. Options that
   would change the result and cannot be honoured are refused.

Offsets are written as in the kafka source: `{"topic":{"0":23,"1":-1}}`, end-exclusive. Spark compares a stream's
offsets as JSON text, so they are always written in one order: topics by name, partitions by number (Kafka:
JsonUtils.partitionOffsets).
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from seglog.errors import ConfigError
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.locations import parse_location
from seglog.model import Isolation, TopicPartition
from seglog.scan.selection import EVERYTHING
from seglog.units import parse_integer, parse_size
from seglog_ask.spark.where import parse_where
from seglog_ask.table.plan.options import (
    AS_THEY_ARE,
    EARLIEST,
    LATEST,
    MissingTimestamp,
    OffsetRule,
    Offsets,
    OnCorrupt,
    OptionKind,
    ReadOptions,
    ShownAs,
    TierNames,
)
from seglog_ask.table.plan.schema import RECORDS, columns_of
from seglog_stores.remote.settings import KNOWN, StoreSettings

_logger = logging.getLogger("seglog.spark.read_options")

T = TypeVar("T")

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
    "keyAs",
    "valueAs",
    "schemas",
    "schema",
)

# Settings of object stores, named like their environment variables; the values are never shown.
STORE_OPTIONS = tuple(sorted(KNOWN))
# About brokers and consumers: seglog contacts none, so these change nothing.
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
# Spark's CREATE TABLE, catalogs and readers add these to the options of a source.
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

_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'
_ISOLATIONS = {level.label: level for level in Isolation}
_BOOLEANS = {"true": True, "false": False}
_ON_CORRUPT: Mapping[str, OnCorrupt] = {"fail": "fail", "skip": "skip"}
_STRATEGIES: Mapping[str, MissingTimestamp] = {"error": "error", "latest": "latest"}


def parse_read_options(options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
    """Parses the options of a batch reader or of a stream's. ConfigError says what is wrong and what is legal."""
    given = {key.lower(): value for key, value in options.items()}
    _check_names(given)
    assign, subscribe, pattern = _selection(given)
    starting, ending = _bounds(given, streaming)
    view = _value(given, "view", _view, RECORDS)
    if streaming and view != RECORDS:
        # offsets count records: a batch that spans two triggers would come twice
        raise ConfigError(f"view: a stream only has records; read {view} with spark.read")
    where = _value(given, "where", parse_where, EVERYTHING)
    if where != EVERYTHING and view != RECORDS:
        raise ConfigError(f"where: it is for records; filter the view {view} with the DataFrame's own where")
    shown_as = _shown_as(given)
    if shown_as != AS_THEY_ARE and view != RECORDS:
        raise ConfigError(f"keyAs, valueAs: they are for records; the view {view} has no keys and values")
    return ReadOptions(
        paths=_paths(given),
        assign=assign,
        subscribe=subscribe,
        subscribe_pattern=pattern,
        starting=starting,
        ending=ending,
        missing_timestamp=_value(given, "startingOffsetsByTimestampStrategy", _one_of(_STRATEGIES), "latest"),
        fail_on_data_loss=_value(given, "failOnDataLoss", _one_of(_BOOLEANS), True),
        include_headers=_value(given, "includeHeaders", _one_of(_BOOLEANS), False),
        isolation=_isolation(given),
        min_partitions=_value(given, "minPartitions", _positive, 0),
        max_partition_bytes=_value(given, "maxPartitionBytes", _positive_size, 0),
        max_offsets_per_trigger=_value(given, "maxOffsetsPerTrigger", _positive, 0),
        columns=_value(given, "columns", _names, None),
        view=view,
        verify_crc=_value(given, "verifyCrc", _one_of(_BOOLEANS), True),
        on_corrupt=_value(given, "onCorrupt", _one_of(_ON_CORRUPT), "fail"),
        store=StoreSettings.of(given),
        where=where,
        tier=_tier(given),
        shown_as=shown_as,
        to_skip="onCorrupt=skip",
        to_lose="failOnDataLoss=false",
    )


# --- offsets as JSON ------------------------------------------------------------------------------------------


def parse_offsets(text: str, option: str) -> Offsets:
    """Parses offsets (or timestamps) from JSON. ConfigError names the option and shows the form."""
    return offsets_of(_from_json(text, option, _OFFSETS_EXAMPLE), option)


def offsets_of(value: Any, option: str = "offset") -> Offsets:
    """The same for JSON that is already parsed."""
    found: Offsets = {}
    for topic, partitions in _members(value, option, _OFFSETS_EXAMPLE):
        for number, offset in _members(partitions, option, _OFFSETS_EXAMPLE):
            if isinstance(offset, bool) or not isinstance(offset, int) or not -2 <= offset <= INT64_MAX:
                raise ConfigError(
                    f"{option}: {offset!r} for {topic}-{number} is not an offset; expected {_OFFSETS_EXAMPLE}"
                )
            found[TopicPartition(topic, _partition(number, option, _OFFSETS_EXAMPLE))] = offset
    return found


def format_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Returns the JSON value, in the one order in which equal offsets are equal as text."""
    value: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        value.setdefault(key.topic, {})[str(key.partition)] = int(offsets[key])
    return value


def parse_assign(text: str) -> frozenset[TopicPartition]:
    """Parses the partitions of the option `assign`."""
    found = set()
    for topic, numbers in _members(_from_json(text, "assign", _ASSIGN_EXAMPLE), "assign", _ASSIGN_EXAMPLE):
        if not isinstance(numbers, list):
            raise ConfigError(f"assign: {numbers!r} is not a list of partitions; expected {_ASSIGN_EXAMPLE}")
        found |= {TopicPartition(topic, _partition(number, "assign", _ASSIGN_EXAMPLE)) for number in numbers}
    return frozenset(found)


def _from_json(text: str, option: str, example: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: {text[:200]!r} is not JSON ({error}); expected {example}") from error


def _members(value: Any, option: str, example: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: {str(value)[:200]} is not a JSON object; expected {example}")
    return value.items()


def _strings(text: str, option: str, example: str) -> list[str]:
    """Parses a JSON list of strings."""
    value = _from_json(text, option, example)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{option}: {text[:200]!r} is not a JSON list of strings; expected {example}")
    return value


def _partition(number: Any, option: str, example: str) -> int:
    text = str(number)
    if isinstance(number, bool) or not text.isdecimal() or int(text) > INT32_MAX:
        raise ConfigError(f"{option}: {text[:200]!r} is not a partition number; expected {example}")
    return int(text)


# --- groups of options ----------------------------------------------------------------------------------------


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
        _logger.warning(
            "seglog reads files and contacts no broker, so these options have no effect: %s", ", ".join(sorted(idle))
        )


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    paths = [given["path"]] if given.get("path") else []
    if "paths" in given:
        paths += _strings(given["paths"], "paths", '["/data/a","/data/b"]')
    if not paths:
        raise ConfigError(
            "no path is given: load(path), or option path, names a partition or log directory (Spark 4.3 hands a"
            " Python source none of the options of CREATE TABLE: use CREATE TEMP VIEW, or SELECT … WITH (path = '…'))"
        )
    return tuple(dict.fromkeys(paths))


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


def _bounds(given: Mapping[str, str], streaming: bool) -> tuple[OffsetRule, OffsetRule]:
    """Returns the starting and the ending rule."""
    starting = _rule(given, "starting", "latest" if streaming else "earliest")
    if streaming:
        for name in _ENDINGS:
            if name.lower() in given:
                raise ConfigError(f"{name} is not valid in streaming queries")
        return starting, OffsetRule("latest")
    if starting.kind == "latest":
        raise ConfigError("starting offset can't be latest for batch queries")
    for key, offset in starting.offsets if starting.kind == "offsets" else ():
        if offset == LATEST:
            raise ConfigError(f"startingOffsets for {key} can't be latest for batch queries")
    ending = _rule(given, "ending", "latest")
    if ending.kind == "earliest":
        raise ConfigError("ending offset can't be earliest for batch queries")
    for key, offset in ending.offsets if ending.kind == "offsets" else ():
        if offset == EARLIEST:
            raise ConfigError(f"ending offset for {key} can't be earliest for batch queries")
    return starting, ending


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


def _isolation(given: Mapping[str, str]) -> Isolation:
    names = [name for name in ("isolationLevel", "kafka.isolation.level") if name.lower() in given]
    levels = {_value(given, name, _one_of(_ISOLATIONS), Isolation.READ_UNCOMMITTED) for name in names}
    if len(levels) > 1:
        raise ConfigError("isolationLevel and kafka.isolation.level contradict each other")
    return levels.pop() if levels else Isolation.READ_UNCOMMITTED


def _tier(given: Mapping[str, str]) -> TierNames:
    local, key, metadata = (given.get(name, "") for name in ("local", "tierkey", "remotemetadata"))
    key_id, _, file = key.rpartition("=")
    pairs = {key_id: file} if key else {}
    if key.startswith("{"):
        example = '{"id":"/keys/private.pem"}'
        pairs = dict(_members(_from_json(key, "tierKey", example), "tierKey", example))
        if not all(isinstance(name, str) for name in pairs.values()):
            raise ConfigError(f"tierKey: not every value is a file name; expected {example}")
    several = [metadata] if metadata else []
    if metadata.startswith("["):
        several = _strings(metadata, "remoteMetadata", '["/metadata/__remote_log_metadata-0"]')
    return TierNames(
        parse_location(local) if local else None,
        tuple((name, parse_location(each)) for name, each in pairs.items()),
        tuple(map(parse_location, several)),
    )


def _shown_as(given: Mapping[str, str]) -> ShownAs:
    key, value = (given.get(name, "auto").lower() for name in ("keyas", "valueas"))
    return ShownAs(key, value, given.get("schemas"), given.get("schema"))


# --- values ---------------------------------------------------------------------------------------------------


def _value(given: Mapping[str, str], name: str, read: Callable[[str], T], default: T) -> T:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _one_of(values: Mapping[str, T]) -> Callable[[str], T]:
    """Returns a reader of one of two words, in any case."""

    def read(text: str) -> T:
        if text.lower() not in values:
            raise ValueError(f"{text!r} is neither {' nor '.join(values)}")
        return values[text.lower()]

    return read


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("no name is given; names are separated by commas")
    return names


def _positive(text: str, parse: Callable[[str], int] = parse_integer) -> int:
    number = parse(text.strip())
    if number <= 0:
        raise ValueError(f"{text.strip()!r} is not positive")
    return number


def _positive_size(text: str) -> int:
    return _positive(text, parse_size)


def _not_negative(text: str) -> int:
    number = parse_integer(text.strip())
    if number < 0:
        raise ValueError(f"{number} is not a timestamp in epoch milliseconds")
    return number


def _view(text: str) -> str:
    columns_of(text.lower())
    return text.lower()
