"""Reads the manifest of a snapshot: whole, or one part at a time; `snapshot_manifest` has what it says.

A manifest is untrusted: every name, number and sum is checked, so that what it claims can neither lead out of a
repository nor make a file larger than the extents that it lists.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

from seglog.errors import CorruptTierError
from seglog.format.compression import expanded
from seglog.format.filenames import is_taken_for_partition, parse_partition_directory
from seglog.format.payloads import PIECE_BYTES, DecompressionError, MemoryPayload
from seglog.format.uuids import parse_uuid
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import Compression
from seglog_stores.formats.manifest_fields import JsonFields, json_fields
from seglog_stores.formats.snapshot_manifest import (
    FILE_BYTES_LIMIT,
    FORMAT,
    OBJECTS,
    PACKS,
    SNAPSHOT_BYTES_LIMIT,
    VERSION,
    Extent,
    Part,
    Snapshot,
    StoredDamage,
    StoredDirectory,
    StoredFile,
    StoredPartition,
    is_object_name,
    manifest_of,
    part_line,
)

_DIGEST = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHECKSUM = re.compile(r"[0-9a-f]{8}")
_FILE_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_ZSTD = b"\x28\xb5\x2f\xfd"
_TIME_NS = 10**9 << 63  # seconds of 64 bits: what a clock that was never set has written is a time, too
_SLASH_OR_NUL = re.compile(r"[/\0]")

Made = TypeVar("Made")


def parse_snapshot(data: bytes, path: Path | str, identity: str) -> Snapshot:
    """Parses the manifest of the snapshot `identity`; `path` is used only in messages. Raises `CorruptTierError`."""
    return read_manifest(data, path, identity).snapshot()


def unpacked_manifest(stored: bytes, path: Path | str) -> bytes:
    """Returns the lines of a manifest as it is stored: a zstd frame, or these lines. Raises `CorruptTierError`."""
    if not stored.startswith(_ZSTD):
        return stored
    text, piece = BytesIO(), memoryview(bytearray(PIECE_BYTES))
    try:
        frame = expanded(Compression.ZSTD, MemoryPayload(stored), 2)
        while size := frame.read_into(piece):
            text.write(piece[:size])
            if text.tell() > SNAPSHOT_BYTES_LIMIT:
                raise CorruptTierError(path, f"the manifest expands to more than {SNAPSHOT_BYTES_LIMIT} bytes")
    except DecompressionError as error:
        raise CorruptTierError(path, f"the manifest cannot be expanded: {error}") from error
    return text.getvalue()


def read_manifest(data: bytes, path: Path | str, identity: str) -> Manifest:
    """Compares a manifest with its digest, and parses its first and last lines; `path` is used only in messages.

    Raises `CorruptTierError`.
    """
    end, last = _body_and_end(data, path)
    is_whole = last.text("sha256") == hashlib.sha256(memoryview(data)[:end]).hexdigest()
    if not is_whole or last.integer("lines") != data.count(b"\n", 0, end):
        raise last.wrong("sha256", "the manifest's lines are not those that were written")
    head = _typed(next(_lines(data, end), b"{}"), path, 1)
    if head.text("type") != "snapshot" or head.text("format") != FORMAT:
        raise head.wrong("format", "the first line is not that of a snapshot")
    if head.integer("version") != VERSION:
        raise head.wrong("version", f"{head.integer('version')} is not {VERSION}: a newer seglog wrote it")
    times = head.integer("startedMs"), head.integer("endedMs")
    flags = head.boolean("uncommitted"), False if head.is_null("leaders") else head.boolean("leaders")
    return Manifest(identity, *times, *flags, data, path, last.text("sha256"), end)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot whose directories and partitions are parsed one at a time, whenever they are asked for: a manifest of
    many partitions takes three times its bytes when all are in memory. The other fields are those of `Snapshot`; the
    lines that have not been asked for are those that were written, and may be wrong.
    """

    id: str
    started_ms: int
    ended_ms: int
    uncommitted: bool
    leaders: bool
    data: bytes = field(repr=False)
    path: Path | str
    digest: str
    _end: int

    def snapshot(self, memory: KnownLines[Part] | None = None) -> Snapshot:
        """Parses all of it; what is in `memory` is shared. Raises `CorruptTierError`."""
        directories: list[StoredDirectory] = []
        partitions: list[list[StoredPartition]] = []
        parts = self.parts() if memory is None else (part for _, part in self.lines(memory))
        for part in parts:
            if isinstance(part, StoredDirectory):
                directories.append(part)
                partitions.append([])
            else:
                partitions[-1].append(part)
        whole = tuple(replace(each, partitions=tuple(of)) for each, of in zip(directories, partitions, strict=True))
        return self._snapshot(whole)

    def with_part(self, directory: StoredDirectory, part: Part) -> Snapshot:
        """Returns a snapshot of nothing but one part: a directory without its partitions, or a partition of it."""
        alone = part if isinstance(part, StoredDirectory) else replace(directory, files=(), partitions=(part,))
        return self._snapshot((alone,))

    def _snapshot(self, directories: tuple[StoredDirectory, ...]) -> Snapshot:
        return Snapshot(self.id, self.started_ms, self.ended_ms, self.uncommitted, self.leaders, directories)

    def parts(self) -> Iterator[Part]:
        """Yields each directory without its partitions, and then these. Raises `CorruptTierError`."""
        return (line.made for _, line in self._in_order(lambda data, path: _parsed(data, path, _itself)))

    def lines(self, memory: KnownLines[Made]) -> Iterator[tuple[bytes, Made]]:
        """Yields what `memory` has made of each part, with the part's line. Raises `CorruptTierError`."""
        return ((data, line.made) for data, line in self._in_order(memory.line))

    def directories(self, memory: KnownLines[Any]) -> list[StoredDirectory]:
        """Returns the directories without their partitions; `memory` has all lines. Raises `CorruptTierError`."""
        parts = (_part_of(data) for data, line in self._in_order(memory.line) if line.is_directory)
        return [part for part in parts if isinstance(part, StoredDirectory)]

    def changed(self, memory: KnownLines[bool], change: Callable[[Part], Part]) -> Manifest:
        """Returns a manifest in which those parts are others of which `memory` says so; itself without any. Raises
        `CorruptTierError`.
        """
        if not any(is_other for _, is_other in self.lines(memory)):
            return self
        head, lines = islice(_lines(self.data, self._end), 1), self._changed_lines(memory, change)
        return read_manifest(manifest_of(chain(head, lines)), self.path, self.id)

    def _changed_lines(self, memory: KnownLines[bool], change: Callable[[Part], Part]) -> Iterator[bytes]:
        for data, is_other in self.lines(memory):
            part = _part_of(data) if is_other else None
            yield data if part is None else part_line(change(part))

    def joined(self, other: Manifest) -> Manifest:
        """Returns a manifest that also has the directories of another one."""
        more = islice(_lines(other.data, other._end), 1, None)
        return read_manifest(manifest_of(chain(_lines(self.data, self._end), more)), self.path, self.id)

    def _in_order(self, read: Callable[[bytes, str], _Line[Made] | None]) -> Iterator[tuple[bytes, _Line[Made]]]:
        """Yields lines; raises if one may not follow those before it."""
        names: set[str] | None = None
        for number, data in enumerate(islice(_lines(self.data, self._end), 1, None), 2):
            path = f"{self.path}, line {number}"
            line = read(data, path)
            if line is None:
                continue
            if line.is_directory:
                names = set(line.names)
            elif names is None:
                raise JsonFields({}, path).wrong("type", "a partition comes before its directory")
            elif not names.isdisjoint(line.names):
                raise JsonFields({}, path).wrong("name", f"{line.names[0]} is there twice")
            else:
                names.update(line.names)
            yield data, line


class KnownLines(Generic[Made]):
    """What `make` has made of parts of manifests. A snapshot shares most lines with the one before it, and a line is
    parsed once.
    """

    def __init__(self, make: Callable[[Part], Made]) -> None:
        self._make = make
        self._known: dict[bytes, _Line[Made] | None] = {}  # by digest

    def line(self, data: bytes, path: str) -> _Line[Made] | None:
        """Returns what was made of a line, None if it is not a part. Raises `CorruptTierError`, which names `path`."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._known:
            self._known[digest] = _parsed(data, path, self._make)
        return self._known[digest]

    def take(self, manifest: Manifest) -> None:
        """Knows all lines of a manifest from now on. Raises `CorruptTierError`."""
        for _ in manifest.lines(self):
            pass

    def made(self) -> Iterator[Made]:
        """Yields what was made of each line, once."""
        return (line.made for line in self._known.values() if line is not None)


class _Line(NamedTuple, Generic[Made]):
    """What was made of a line; `names` are those that it takes in its directory."""

    is_directory: bool
    names: tuple[str, ...]
    made: Made


def _itself(part: Part) -> Part:
    return part


def _part_of(data: bytes) -> Part | None:
    line = _parsed(data, "", _itself)
    return None if line is None else line.made


def _parsed(data: bytes, path: str, make: Callable[[Part], Made]) -> _Line[Made] | None:
    fields = json_fields(data, path)
    kind = fields.text("type")
    if kind == "directory":
        directory = _directory(fields)
        return _Line(True, tuple(file.name for file in directory.files), make(directory))
    if kind == "partition":
        partition = _partition(fields)
        return _Line(False, (partition.name,), make(partition))
    return None  # of a newer seglog


def _body_and_end(data: bytes, path: Path | str) -> tuple[int, JsonFields]:
    """Returns where the last line begins, and its fields."""
    start = data.rfind(b"\n", 0, -1) + 1
    end = _typed(data[start:], path, data.count(b"\n"))
    if not data.endswith(b"\n") or end.is_null("type") or end.text("type") != "end":
        raise end.wrong("type", "the last line is missing: the manifest was cut")
    if _SHA256.fullmatch(end.text("sha256")) is None:
        raise end.wrong("sha256", "it is not a digest")
    return start, end


def _lines(data: bytes, end: int) -> Iterator[bytes]:
    """Yields the lines before a position."""
    start = 0
    while start < end:
        until = data.index(b"\n", start) + 1
        yield data[start:until]
        start = until


def _typed(line: bytes, path: Path | str, number: int) -> JsonFields:
    return json_fields(line, f"{path}, line {number}")


def _directory(fields: JsonFields) -> StoredDirectory:
    path = fields.text("path")
    name = Path(path).name
    if not name or name == ".." or "\0" in path:
        raise fields.wrong("path", f"{path[:60]!r} does not name a directory")
    return StoredDirectory(
        path,
        None if fields.is_null("clusterId") else fields.text("clusterId"),
        None if fields.is_null("nodeId") else fields.integer("nodeId", -INT32_MAX - 1, INT32_MAX),
        None if fields.is_null("directoryId") else fields.text("directoryId"),
        fields.boolean("clean"),
        _files(fields),
    )


def _partition(fields: JsonFields) -> StoredPartition:
    name = fields.text("name")
    if parse_partition_directory(name) is None or not is_taken_for_partition(name) or _SLASH_OR_NUL.search(name):
        raise fields.wrong("name", f"{name[:60]!r} is not a partition's directory")
    topic_id = None if fields.is_null("topicId") else fields.uuid("topicId")
    if topic_id is not None:
        parse_uuid(topic_id)
    seen = fields.text("seen")
    if _DIGEST.fullmatch(seen) is None:
        raise fields.wrong("seen", f"{seen[:40]!r} is not a digest")
    damage = tuple(
        StoredDamage(item.text("file"), item.integer("position"), item.text("reason"))
        for item in fields.items("damage")
    )
    cut = None if fields.is_null("cut") else fields.integer("cut")
    return StoredPartition(name, topic_id, seen, cut, damage, _files(fields, name))


def _files(fields: JsonFields, partition: str | None = None) -> tuple[StoredFile, ...]:
    files = tuple(_file(item, partition) for item in fields.items("files"))
    if len({file.name for file in files}) < len(files):
        raise fields.wrong("files", "a name is there twice")
    return files


def _file(fields: JsonFields, partition: str | None) -> StoredFile:
    name, tail = fields.text("name"), fields.text("tail")
    if _FILE_NAME.fullmatch(name) is None or name in (".", ".."):
        raise fields.wrong("name", f"{name[:60]!r} is not the name of a file")
    if _CHECKSUM.fullmatch(tail) is None:
        raise fields.wrong("tail", f"{tail[:20]!r} is not 8 hexadecimal digits")
    extents = tuple(_extent(fields, item) for item in fields.lists("extents"))
    for extent in extents:
        if not _is_of(extent.object, partition, name):
            raise fields.wrong("extents", f"{extent.object} belongs to another file")
    modified_ns, inode = fields.integer("modifiedNs", -_TIME_NS, _TIME_NS - 1), fields.integer("inode", most=2**64 - 1)
    file = StoredFile(intern(name), modified_ns, inode, int(tail, 16), extents)
    if file.size > FILE_BYTES_LIMIT:
        raise fields.wrong("extents", f"they have {file.size} bytes, more than a file of a log can have")
    return file


def _is_of(path: str, partition: str | None, file: str) -> bool:
    """True for a pack, and for an object that a partition's file may have: its name begins and ends as the file's."""
    if path.startswith(f"{PACKS}/"):
        return True
    stem, _, kind = file.partition(".")
    base = path.rpartition("/")[2]
    return path.startswith(f"{OBJECTS}/{partition}/") and base.startswith(f"{stem}-") and base.endswith(f".{kind}")


def _extent(fields: JsonFields, item: list[object]) -> Extent:
    match item:
        case [str(name), int(position), int(size), str(digest)] if (
            not isinstance(position, bool)
            and not isinstance(size, bool)
            and is_object_name(name)
            and 0 <= position <= INT64_MAX
            and 0 < size <= INT64_MAX - position
            and _DIGEST.fullmatch(digest) is not None
        ):
            return Extent(intern(name), position, size, digest)  # a pack has many of them
    raise fields.wrong("extents", f"{json.dumps(item)[:120]} is not [object, position, bytes, digest]")
