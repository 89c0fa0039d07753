"""The manifest of logs in an object store: a single object, written last, that commits the contents of a prefix.

    <prefix>/_seglog/manifest-<number>.json                     the one with the highest number counts
    <prefix>/<topic>-<partition>/seglog-<id>/<base>.log | …     the objects, under Kafka's own names
    <prefix>/_seglog/staged/…                                   written by a sink's tasks, not yet committed

An object that the manifest does not name is not part of a log. Each attempt to write has a new `<id>`, so that it
overwrites nothing of another attempt. The manifest names directories and sizes, never paths, so no entry can lead out
of its prefix. Unknown fields are ignored; a missing or wrong one raises a `CorruptTierError`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from seglog.format.checkpoint import EpochEntry
from seglog.format.filenames import FileKind, segment_file_name, topic_name_problem
from seglog.format.uuids import format_uuid
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition
from seglog_stores.formats.manifest_fields import JsonFields, json_fields
from seglog_stores.formats.tier_names import is_place_name

STAGED = "staged"
LOG_MANIFEST_BYTES_LIMIT = 256 << 20
_VERSION = 1
_NAME = re.compile(r"manifest-([0-9]{20})\.json")
_CHECKSUM = re.compile(r"[0-9a-f]{8}")
_FIELDS = {
    FileKind.LOG: "log",
    FileKind.OFFSET_INDEX: "index",
    FileKind.TIME_INDEX: "timeindex",
    FileKind.TRANSACTION_INDEX: "txnindex",
    FileKind.PRODUCER_SNAPSHOT: "snapshot",
}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The size of an object, and the CRC-32C of its bytes."""

    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class ManifestSegment:
    """A segment: its offsets, the directory of its objects (`place`), and the objects.

    `end_offset` is inclusive, and below `base_offset` in an empty segment. The producer snapshot is that of the offset
    after the segment's end.
    """

    base_offset: int
    end_offset: int
    place: str
    objects: Mapping[FileKind, StoredObject]

    def name_of(self, kind: FileKind) -> str:
        """Returns the name of a file of the segment, in its place as in a partition directory."""
        offset = self.end_offset + 1 if kind is FileKind.PRODUCER_SNAPSHOT else self.base_offset
        return segment_file_name(offset, kind)


@dataclass(frozen=True, slots=True)
class ManifestPartition:
    """A partition: offsets from `log_start_offset` on, leader epochs, and segments without gaps between them.

    `cleaned_offset` is the cleaner's checkpoint, or None if the log was never cleaned.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    log_start_offset: int
    cleaned_offset: int | None
    epochs: tuple[EpochEntry, ...]
    segments: tuple[ManifestSegment, ...]

    @property
    def log_end_offset(self) -> int:
        """The next offset."""
        return self.segments[-1].end_offset + 1


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """The last batch that a stream has written, and a digest of its entry in the stream's checkpoint ("": unknown)."""

    batch: int
    entry: str = ""


@dataclass(frozen=True, slots=True)
class LogManifest:
    """The contents of a prefix after commit `number`.

    `commit` is the id of the run that wrote the manifest. `streams` are keyed by the id of their query; the one that
    wrote last comes last.
    """

    number: int
    commit: str
    written_ms: int
    partitions: tuple[ManifestPartition, ...]
    streams: Mapping[str, StreamEntry]

    def partition(self, key: TopicPartition) -> ManifestPartition | None:
        """Returns the partition of that name, or None."""
        return next((partition for partition in self.partitions if partition.topic_partition == key), None)


def manifest_name(number: int) -> str:
    """Returns the name of the manifest with that number."""
    return f"manifest-{number:020d}.json"


def latest_number(names: Iterable[str]) -> int | None:
    """Returns the highest number of the manifests among some names, or None if there is no manifest."""
    numbers = (int(match[1]) for name in names if (match := _NAME.fullmatch(name)) is not None)
    return max((number for number in numbers if number <= INT64_MAX), default=None)


def place_name(identity: UUID) -> str:
    """Returns the name of the directory for the objects of one attempt."""
    return f"seglog-{format_uuid(identity)}"


def format_log_manifest(manifest: LogManifest) -> bytes:
    """Returns the manifest's bytes."""
    document = {
        "version": _VERSION,
        "number": manifest.number,
        "commit": manifest.commit,
        "writtenMs": manifest.written_ms,
        "streams": {
            name: {"batch": position.batch, "entry": position.entry} for name, position in manifest.streams.items()
        },
        "partitions": [_partition_fields(partition) for partition in manifest.partitions],
    }
    return (json.dumps(document, separators=(",", ":")) + "\n").encode()


def _partition_fields(partition: ManifestPartition) -> dict[str, Any]:
    return {
        "topic": partition.topic_partition.topic,
        "partition": partition.topic_partition.partition,
        "topicId": partition.topic_id,
        "logStartOffset": partition.log_start_offset,
        "cleanedOffset": partition.cleaned_offset,
        "leaderEpochs": [{"epoch": entry.epoch, "startOffset": entry.start_offset} for entry in partition.epochs],
        "segments": [_segment_fields(segment) for segment in partition.segments],
    }


def _segment_fields(segment: ManifestSegment) -> dict[str, Any]:
    objects = {
        _FIELDS[kind]: {"size": object_.size, "crc32c": f"{object_.crc32c:08x}"}
        for kind, object_ in segment.objects.items()
    }
    return {
        "baseOffset": segment.base_offset,
        "endOffset": segment.end_offset,
        "place": segment.place,
        "objects": objects,
    }


# --- reading ----------------------------------------------------------------------------------------------


def parse_log_manifest(data: bytes, path: Path | str) -> LogManifest:
    """Parses a manifest; `path` is used only in messages. Raises `CorruptTierError`."""
    root = json_fields(data, path)
    version = root.integer("version")
    if version != _VERSION:
        raise root.wrong("version", f"{version} is not {_VERSION}: a newer seglog wrote it")
    partitions = tuple(_partition(item) for item in root.items("partitions"))
    if not partitions:
        raise root.wrong("partitions", "there is none")
    named = [partition.topic_partition for partition in partitions]
    twice = next((key for key in named if named.count(key) > 1), None) if len(set(named)) < len(named) else None
    if twice is not None:
        raise root.wrong("partitions", f"{twice} is there twice")
    streams = root.fields("streams")
    return LogManifest(
        root.integer("number", least=1),
        root.text("commit"),
        root.integer("writtenMs"),
        partitions,
        {name: _stream(streams.fields(name)) for name in streams.names()},
    )


def _stream(fields: JsonFields) -> StreamEntry:
    return StreamEntry(fields.integer("batch"), fields.text("entry"))


def _partition(fields: JsonFields) -> ManifestPartition:
    topic = fields.text("topic")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise fields.wrong("topic", problem)
    segments = tuple(_segment(item) for item in fields.items("segments"))
    if not segments:
        raise fields.wrong("segments", "there is none")
    for segment, following in itertools.pairwise(segments):
        if following.base_offset != segment.end_offset + 1 or segment.end_offset < segment.base_offset:
            reason = (
                f"the one at offset {segment.base_offset} ends at {segment.end_offset}, and the next one begins at "
            )
            raise fields.wrong("segments", f"{reason}{following.base_offset}")
    end = segments[-1].end_offset + 1
    return ManifestPartition(
        TopicPartition(topic, fields.integer("partition", most=INT32_MAX)),
        None if fields.is_null("topicId") else fields.uuid("topicId"),
        fields.integer("logStartOffset", least=segments[0].base_offset, most=end),
        None if fields.is_null("cleanedOffset") else fields.integer("cleanedOffset", most=end),
        _epochs(fields),
        segments,
    )


def _epochs(fields: JsonFields) -> tuple[EpochEntry, ...]:
    entries = tuple(
        EpochEntry(entry.integer("epoch", most=INT32_MAX), entry.integer("startOffset"))
        for entry in fields.items("leaderEpochs")
    )
    for entry, following in itertools.pairwise(entries):
        if entry.epoch >= following.epoch or entry.start_offset >= following.start_offset:
            raise fields.wrong("leaderEpochs", f"epoch {following.epoch} does not ascend, or its offset")
    return entries


def _segment(fields: JsonFields) -> ManifestSegment:
    base = fields.integer("baseOffset", most=INT64_MAX - 1)
    place = fields.text("place")
    if not is_place_name(place):
        raise fields.wrong("place", f"{place[:60]!r} is not a directory of seglog's (seglog-<id>)")
    objects = fields.fields("objects")
    objects_of = {kind: _object(objects.fields(name)) for kind, name in _FIELDS.items() if not objects.is_null(name)}
    if FileKind.LOG not in objects_of:
        raise objects.wrong("log", "it is missing")
    return ManifestSegment(base, fields.integer("endOffset", least=base - 1, most=INT64_MAX - 1), place, objects_of)


def _object(fields: JsonFields) -> StoredObject:
    checksum = fields.text("crc32c")
    if _CHECKSUM.fullmatch(checksum) is None:
        raise fields.wrong("crc32c", f"{checksum[:20]!r} is not 8 hexadecimal digits")
    return StoredObject(fields.integer("size", most=INT32_MAX), int(checksum, 16))
