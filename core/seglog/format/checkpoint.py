"""Kafka's small text files: checkpoints, partition.metadata, meta.properties, the clean-shutdown marker.

Kafka: CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile, MetaProperties,
CleanShutdownFileHandler. Parsers accept the same files as Kafka's, and raise `CorruptCheckpointError` with the line for
any other. `path` is used only in messages.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from seglog.errors import CorruptCheckpointError
from seglog.format.filenames import JAVA_NUMBER
from seglog.format.properties import NATURAL_LINES, format_properties, parse_properties
from seglog.format.uuids import ZERO_UUID, format_uuid, parse_uuid
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition

CHECKPOINT_VERSION = 0
NO_BROKER_EPOCH = -1

_BLANKS = re.compile(r"[ \t\n\x0b\f\r]+")
_UNFIT_FOR_A_LINE = re.compile("[ \t\n\x0b\f\r\\ud800-\\udfff]")  # surrogates stand for bytes that are not UTF-8
_METADATA_SEPARATOR = re.compile(r":[ \t\n\x0b\f\r]+")

T = TypeVar("T")


class UnforeseenByKafkaError(CorruptCheckpointError):
    """Damage for which Kafka's reader throws something other than an IOException.

    A broker that loads the partition fails to start; other damage takes the log directory offline.
    """


class CheckpointNumberError(UnforeseenByKafkaError):
    """An entry whose partition, offset or epoch is not a number, or a negative number of entries.

    Kafka treats such an offset checkpoint as empty (NumberFormatException); any other damage takes the log directory
    offline (IOException).
    """


class NoClusterIdError(CorruptCheckpointError):
    """A `meta.properties` that names no cluster.

    Kafka refuses to start; a file that it cannot read only takes that log directory offline.
    """


class CheckpointEndsError(CheckpointNumberError):
    """A file that ends after its version. No broker writes such a file; Kafka treats it as empty."""


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Contents of `partition.metadata`."""

    topic_id: UUID
    version: int = 0


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Contents of a log directory's `meta.properties`; in version 0 the node id is called `broker.id`."""

    version: int
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None


# --- checkpoints of offsets and epochs --------------------------------------------------------------------


def parse_offset_checkpoint(data: bytes, path: Path | str) -> dict[TopicPartition, int]:
    """Returns offsets by partition; none for an empty file. Of a partition listed twice, the last entry counts."""
    return dict(offset_entries(data, path))


def offset_entries(data: bytes, path: Path | str) -> list[tuple[TopicPartition, int]]:
    """Returns the entries in file order; the first is in line 3."""
    return _entries(data, path, _offset_entry)


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int], *, sort: bool = True) -> bytes:
    """Returns the file's bytes, ordered by topic and partition (Kafka's order is that of a hash map) or as given.

    Leaves out topics that do not fit a line because they are empty, contain a blank or are not UTF-8: a broker would
    not read the rest of the file.
    """
    return _checkpoint(filter(None, (_line(key, offsets[key]) for key in (sorted(offsets) if sort else offsets))))


def _line(key: TopicPartition, offset: int) -> str:
    """Returns an entry's line, "" for a topic that does not fit one."""
    return f"{key.topic} {key.partition} {offset}" if key.topic and not _UNFIT_FOR_A_LINE.search(key.topic) else ""


class OffsetLines:
    """The lines of an offset checkpoint, in which single entries change: a cleaning of ten thousand logs writes the
    file as often, and formatting all of it would take longer than a round.
    """

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._keys = sorted(key for key in offsets if _line(key, 0))
        self._lines = [_line(key, offsets[key]) for key in self._keys]

    def put(self, key: TopicPartition, offset: int | None) -> None:
        """Sets an entry, or removes it (None)."""
        place = bisect_left(self._keys, key)
        stop = place + (self._keys[place : place + 1] == [key])
        line = "" if offset is None else _line(key, offset)
        self._keys[place:stop], self._lines[place:stop] = ([key], [line]) if line else ([], [])

    def data(self) -> bytes:
        """Returns what `format_offset_checkpoint` returns for all entries."""
        return _checkpoint(self._lines)


def parse_leader_epochs(data: bytes, path: Path | str) -> tuple[EpochEntry, ...]:
    """Returns the entries of `leader-epoch-checkpoint` in file order; none if it is empty or ends after its version."""
    try:
        return tuple(_entries(data, path, _epoch_entry))
    except CheckpointEndsError:
        return ()


def format_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Returns the bytes of `leader-epoch-checkpoint`."""
    return _checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def _checkpoint(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join((str(CHECKPOINT_VERSION), str(len(body)), *body, "")).encode("utf-8")


def _entries(data: bytes, path: Path | str, parse: Callable[[list[str]], T | None]) -> list[T]:
    lines = _lines(data, path)
    if not lines:
        return []
    version = _header_number(lines, 0, "version", path)
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(path, f"line 1: version {version} is not {CHECKPOINT_VERSION}")
    if len(lines) == 1:
        raise CheckpointEndsError(path, "line 2: the number of entries is missing")
    count = _header_number(lines, 1, "number of entries", path)
    if count < 0:
        raise CheckpointNumberError(path, f"line 2: {count} entries are announced")
    entries = []
    for number, line in enumerate(lines[2:], start=3):
        try:
            entry = parse(_fields(line))
        except ValueError as error:
            raise CheckpointNumberError(path, f"line {number}: {error} in {line[:300]!r}") from error
        if entry is None:
            raise CorruptCheckpointError(path, f"line {number}: wrong number of fields in {line[:300]!r}")
        entries.append(entry)
    if len(entries) != count:
        raise CorruptCheckpointError(path, f"line 2: {count} entries are announced, {len(entries)} follow")
    return entries


def _offset_entry(fields: list[str]) -> tuple[TopicPartition, int] | None:
    if len(fields) != 3:
        return None
    partition, offset = _number(fields[1], INT32_MAX), _number(fields[2], INT64_MAX)
    return TopicPartition(fields[0], partition), offset


def _epoch_entry(fields: list[str]) -> EpochEntry | None:
    if len(fields) != 2:
        return None
    return EpochEntry(_number(fields[0], INT32_MAX), _number(fields[1], INT64_MAX))


def _lines(data: bytes, path: Path | str) -> list[str]:
    """Returns lines like Java's Files.newBufferedReader, which accepts only UTF-8 (MalformedInputException).

    An empty rest after the last terminator is not a line.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = len(NATURAL_LINES.split(data[: error.start].decode("utf-8")))
        reason = f"line {number}: the byte 0x{data[error.start]:02x} at position {error.start} is not UTF-8"
        raise CorruptCheckpointError(path, reason) from error
    lines = NATURAL_LINES.split(text)
    if lines[-1] == "":
        del lines[-1]
    return lines


def _fields(line: str) -> list[str]:
    """Splits like Java: a blank at the start makes an empty first field, blanks at the end make none."""
    fields = _BLANKS.split(line)
    if fields[-1] == "" and len(fields) > 1:
        del fields[-1]
    return fields


def _number(text: str, most: int) -> int:
    """Parses like Java's Integer.parseInt or Long.parseLong."""
    value = int(text) if JAVA_NUMBER.fullmatch(text) else None
    if value is None or not -most - 1 <= value <= most:
        raise ValueError(f"{text[:40]!r} is not a number of {32 if most == INT32_MAX else 64} bits")
    return value


def _header_number(lines: list[str], index: int, what: str, path: Path | str) -> int:
    try:
        return _number(lines[index], INT32_MAX)
    except ValueError as error:
        raise CorruptCheckpointError(path, f"line {index + 1}: the {what}: {error}") from error


# --- partition.metadata -----------------------------------------------------------------------------------


def parse_partition_metadata(data: bytes, path: Path | str) -> PartitionMetadata:
    """Returns version and topic id. Like Kafka, ignores the names of the fields."""
    lines = _lines(data, path)
    try:
        version = _number(_metadata_value(lines, 0, path), INT32_MAX)
    except ValueError as error:
        raise CorruptCheckpointError(path, f"line 1: {error}") from error
    if version < 0:
        raise CorruptCheckpointError(path, f"line 1: version {version} is negative")
    try:
        topic_id = parse_uuid(_metadata_value(lines, 1, path))
    except ValueError as error:
        raise UnforeseenByKafkaError(path, f"line 2: {error}") from error
    if topic_id == ZERO_UUID:
        raise CorruptCheckpointError(path, "line 2: the topic id is zero")
    return PartitionMetadata(topic_id, version)


def _metadata_value(lines: list[str], index: int, path: Path | str) -> str:
    if len(lines) <= index:
        raise UnforeseenByKafkaError(path, f"line {index + 1}: missing")
    fields = _METADATA_SEPARATOR.split(lines[index])
    while fields and not fields[-1]:
        fields.pop()  # like Java's split
    if len(fields) != 2:
        raise CorruptCheckpointError(path, f"line {index + 1}: not of the form 'name: value'")
    return fields[1]


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Returns the file's bytes; Kafka writes no newline at the end."""
    return f"version: {metadata.version}\ntopic_id: {format_uuid(metadata.topic_id)}".encode("ascii")


# --- meta.properties --------------------------------------------------------------------------------------


def parse_meta_properties(data: bytes, path: Path | str) -> MetaProperties:
    """Returns the identity of a log directory. No version means version 0, in which any field may be missing."""
    try:
        properties = parse_properties(data)
        version = _number(properties.get("version", "0"), INT32_MAX)
        if version not in (0, 1):
            raise ValueError(f"unknown version {version}")
        node, directory = properties.get("node.id" if version else "broker.id"), properties.get("directory.id")
        found = MetaProperties(
            version,
            properties.get("cluster.id"),
            None if node is None else _number(node, INT32_MAX),
            None if directory is None else parse_uuid(directory),
        )
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from error
    if version and found.node_id is None:
        raise CorruptCheckpointError(path, "node.id is missing")
    if version and found.cluster_id is None:
        raise NoClusterIdError(path, "cluster.id is missing")
    return found


def format_meta_properties(meta: MetaProperties, now_ms: int) -> bytes:
    """Returns the file's bytes, dated `now_ms` (epoch milliseconds) in UTC."""
    properties: dict[str, str] = {"version": str(meta.version)}
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    if meta.node_id is not None:
        properties["node.id" if meta.version else "broker.id"] = str(meta.node_id)
    if meta.directory_id is not None:
        properties["directory.id"] = format_uuid(meta.directory_id)
    date = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    return format_properties(properties, ("", date))


# --- .kafka_cleanshutdown ---------------------------------------------------------------------------------


def parse_clean_shutdown(data: bytes) -> int | None:
    """Returns the broker epoch in the marker, or None if it has none (older brokers write an empty file).

    Recovery depends only on the marker's existence, so no contents are an error.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and -1 <= epoch <= INT64_MAX else None


def format_clean_shutdown() -> bytes:
    """Returns the marker's bytes, as Kafka 4.x writes them."""
    return f'{{"version":0,"brokerEpoch":{NO_BROKER_EPOCH}}}'.encode("ascii")
