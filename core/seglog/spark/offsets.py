"""Offsets as Spark's kafka source writes them: `{"topic":{"0":23,"1":-1}}`, end-exclusive.

Spark compares the offsets of a stream as JSON text, so they are always written in one order: topics by name,
partitions by number (Kafka: JsonUtils.partitionOffsets).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from seglog.errors import ConfigError
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition

EARLIEST = -2
LATEST = -1

Offsets = dict[TopicPartition, int]

_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'


def parse_offsets(text: str, option: str) -> Offsets:
    """The offsets (or timestamps) in JSON. ConfigError names the option and shows the form."""
    return offsets_of(_parsed(text, option, _EXAMPLE), option)


def offsets_of(value: Any, option: str = "offset") -> Offsets:
    """The same of JSON that was parsed already."""
    found: Offsets = {}
    for topic, partitions in _members(value, option, _EXAMPLE):
        for number, offset in _members(partitions, option, _EXAMPLE):
            if isinstance(offset, bool) or not isinstance(offset, int) or not -2 <= offset <= INT64_MAX:
                raise ConfigError(f"{option}: {offset!r} for {topic}-{number} is not an offset; expected {_EXAMPLE}")
            found[TopicPartition(topic, _partition(number, option, _EXAMPLE))] = offset
    return found


def format_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The JSON value, in the one order that keeps equal offsets equal as text."""
    value: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        value.setdefault(key.topic, {})[str(key.partition)] = int(offsets[key])
    return value


def parse_assign(text: str) -> frozenset[TopicPartition]:
    """The partitions of the option `assign`."""
    found = set()
    for topic, numbers in _members(_parsed(text, "assign", _ASSIGN_EXAMPLE), "assign", _ASSIGN_EXAMPLE):
        if not isinstance(numbers, list):
            raise ConfigError(f"assign: {numbers!r} is not a list of partitions; expected {_ASSIGN_EXAMPLE}")
        found |= {TopicPartition(topic, _partition(number, "assign", _ASSIGN_EXAMPLE)) for number in numbers}
    return frozenset(found)


def _parsed(text: str, option: str, example: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: {text[:200]!r} is not JSON ({error}); expected {example}") from error


def _members(value: Any, option: str, example: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: {str(value)[:200]} is not a JSON object; expected {example}")
    return value.items()


def _partition(number: Any, option: str, example: str) -> int:
    text = str(number)
    if isinstance(number, bool) or not text.isdecimal() or int(text) > INT32_MAX:
        raise ConfigError(f"{option}: {text[:200]!r} is not a partition number; expected {example}")
    return int(text)
