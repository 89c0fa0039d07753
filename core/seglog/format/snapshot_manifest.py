"""The manifest of a snapshot in a backup repository: JSON lines that name every file, and where its bytes are.

    snapshots/<id>.jsonl      written last; the snapshot exists with it
    objects/<partition>/…     extents of large files
    packs/<digest>.pack       extents of small ones

A manifest is untrusted: every name, number and sum is checked, so that what it claims can neither lead out of a
repository nor make a file larger than the extents that it lists. FORMAT.md describes the fields.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from seglog.format.filenames import is_taken_for_partition, parse_partition_directory
from seglog.format.manifest_fields import JsonFields, json_fields
from seglog.format.uuids import parse_uuid
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.model import TopicPartition

SNAPSHOT_BYTES_LIMIT = 512 << 20
TAIL_BYTES = 4096
VERSION = 1
FORMAT = "seglog-backup"
MARKER = "seglog-backup.json"
SNAPSHOTS, OBJECTS, PACKS, REDACTIONS = "snapshots", "objects", "packs", "redactions"
SNAPSHOT_SUFFIX = ".jsonl"

_DIGEST = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHECKSUM = re.compile(r"[0-9a-f]{8}")
_SNAPSHOT_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}")
_SNAPSHOTS_FOLDER = re.compile(rf"{SNAPSHOTS}(?:-[0-9a-f]{{32}})?")
_COMMITTED = re.compile(r"[0-9]{8}\.committed")
_PACK = re.compile(rf"{PACKS}/[0-9a-f]{{32}}\.pack")
_OBJECT = re.compile(
    rf"{OBJECTS}/[a-zA-Z0-9._-]+-[0-9]{{1,10}}/(?:_|[a-zA-Z0-9_-]{{22}})/"
    r"[0-9]{20}(?:-[0-9]{10})?-[0-9]{1,19}-[0-9a-f]{32}\.[a-z]+(?:\.[a-z]+)?"
)
_FILE_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")
_SLASH_OR_NUL = re.compile(r"[/\0]")


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of a file: `size` of them from `position` on in an object, whose path is relative to the repository."""

    object: str
    position: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a snapshot. `inode` and `modified_ns` are the source's; `tail` is the CRC-32C of its last bytes."""

    name: str
    modified_ns: int
    inode: int
    tail: int
    extents: tuple[Extent, ...]

    @property
    def size(self) -> int:
        """The bytes stored."""
        return sum(extent.size for extent in self.extents)


@dataclass(frozen=True, slots=True)
class StoredDamage:
    """Bytes of a file that are not a sound batch, stored as they are."""

    file: str
    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition directory. `cut`: the offset before which its log was cut, None if all of it is stored."""

    name: str
    topic_id: str | None
    seen: str
    cut: int | None
    damage: tuple[StoredDamage, ...]
    files: tuple[StoredFile, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """What the directory's name says, which the reader of manifests has checked."""
        parsed = parse_partition_directory(self.name)
        if parsed is None:
            raise AssertionError("the manifest's reader checks names")
        return parsed.topic_partition


@dataclass(frozen=True, slots=True)
class StoredDirectory:
    """A log directory: its files, and its partitions. `clean`: its broker had closed it."""

    path: str
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    clean: bool
    files: tuple[StoredFile, ...]
    partitions: tuple[StoredPartition, ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path."""
        return Path(self.path).name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one run stored. `leaders`: partitions that other brokers led were left to them."""

    id: str
    started_ms: int
    ended_ms: int
    uncommitted: bool
    leaders: bool
    directories: tuple[StoredDirectory, ...] = field(repr=False)

    def all_files(self) -> Iterator[StoredFile]:
        """Yields the files of all directories and partitions."""
        for directory in self.directories:
            yield from directory.files
            for partition in directory.partitions:
                yield from partition.files

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.all_files())

    def objects(self) -> set[str]:
        """Returns the objects that it names, as paths relative to the repository."""
        return {extent.object for file in self.all_files() for extent in file.extents}


def directory_names(directories: Sequence[StoredDirectory]) -> list[str]:
    """Returns the names of log directories where they are restored or shown: "" for a single one, else the last part of
    each path; with the broker's id before it, or else a number, if two have the same.
    """
    if len(directories) == 1:
        return [""]
    names = [directory.name for directory in directories]
    of_brokers = [f"broker-{directory.node_id}-{directory.name}" for directory in directories]
    numbered = [f"{i}-{name}" for i, name in enumerate(names, 1)]
    return next(each for each in (names, of_brokers, numbered) if len(set(each)) == len(each))


def snapshot_id_of(name: str) -> str | None:
    """Returns the id in the name of a manifest, None for any other name."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    return stem if stem != name and _SNAPSHOT_ID.fullmatch(stem) is not None else None


def is_folder_of_manifests(name: str) -> bool:
    """True for the name of a folder that has manifests, or had them before an erasure made others."""
    return _SNAPSHOTS_FOLDER.fullmatch(name) is not None


def last_committed(names: Iterable[str]) -> str | None:
    """Returns the name of the last erasure's mark that says where the manifests are, None without one."""
    return max((name for name in names if _COMMITTED.fullmatch(name)), default=None)


def is_object_name(path: str) -> bool:
    """True for the path, relative to a repository, of an object or a pack."""
    return _PACK.fullmatch(path) is not None or _OBJECT.fullmatch(path) is not None


# --- writing ----------------------------------------------------------------------------------------------


def format_snapshot(snapshot: Snapshot) -> bytes:
    """Returns the manifest's bytes."""
    head = {
        "type": "snapshot",
        "format": FORMAT,
        "version": VERSION,
        "startedMs": snapshot.started_ms,
        "endedMs": snapshot.ended_ms,
        "uncommitted": snapshot.uncommitted,
        "leaders": snapshot.leaders,
    }
    lines = [_line(head)]
    for directory in snapshot.directories:
        lines.append(_line(_directory_fields(directory)))
        lines += [_line(_partition_fields(partition)) for partition in directory.partitions]
    body = b"".join(lines)
    return body + _line({"type": "end", "lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()})


def _line(fields: dict[str, Any]) -> bytes:
    return (json.dumps(fields, separators=(",", ":")) + "\n").encode()


def _directory_fields(directory: StoredDirectory) -> dict[str, Any]:
    return {
        "type": "directory",
        "path": directory.path,
        "clusterId": directory.cluster_id,
        "nodeId": directory.node_id,
        "directoryId": directory.directory_id,
        "clean": directory.clean,
        "files": [_file_fields(file) for file in directory.files],
    }


def _partition_fields(partition: StoredPartition) -> dict[str, Any]:
    return {
        "type": "partition",
        "name": partition.name,
        "topicId": partition.topic_id,
        "seen": partition.seen,
        "cut": partition.cut,
        "damage": [{"file": at.file, "position": at.position, "reason": at.reason} for at in partition.damage],
        "files": [_file_fields(file) for file in partition.files],
    }


def _file_fields(file: StoredFile) -> dict[str, Any]:
    extents = [[extent.object, extent.position, extent.size, extent.digest] for extent in file.extents]
    return {
        "name": file.name,
        "modifiedNs": file.modified_ns,
        "inode": file.inode,
        "tail": f"{file.tail:08x}",
        "extents": extents,
    }


# --- reading ----------------------------------------------------------------------------------------------


def parse_snapshot(data: bytes, path: Path | str, identity: str) -> Snapshot:
    """Parses the manifest of the snapshot `identity`; `path` is used only in messages. Raises `CorruptTierError`."""
    end, last = _body_and_end(data, path)
    is_whole = last.text("sha256") == hashlib.sha256(memoryview(data)[:end]).hexdigest()
    if not is_whole or last.integer("lines") != data.count(b"\n", 0, end):
        raise last.wrong("sha256", "the manifest's lines are not those that were written")
    head = _typed(next(_lines(data, end), b"{}"), path, 1)
    if head.text("type") != "snapshot" or head.text("format") != FORMAT:
        raise head.wrong("format", "the first line is not that of a snapshot")
    if head.integer("version") != VERSION:
        raise head.wrong("version", f"{head.integer('version')} is not {VERSION}: a newer seglog wrote it")
    lines = enumerate(islice(_lines(data, end), 1, None), 2)  # one at a time: a manifest is large
    directories = tuple(_directories(_typed(line, path, i) for i, line in lines))
    started, ended = head.integer("startedMs"), head.integer("endedMs")
    leaders = False if head.is_null("leaders") else head.boolean("leaders")
    return Snapshot(identity, started, ended, head.boolean("uncommitted"), leaders, directories)


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


def _directories(lines: Iterable[JsonFields]) -> Iterator[StoredDirectory]:
    directory: StoredDirectory | None = None
    partitions: list[StoredPartition] = []
    names: set[str] = set()
    for fields in lines:
        kind = fields.text("type")
        if kind == "directory":
            if directory is not None:
                yield replace(directory, partitions=tuple(partitions))
            directory, partitions, names = _directory(fields), [], set()
        elif kind == "partition":
            if directory is None:
                raise fields.wrong("type", "a partition comes before its directory")
            partition = _partition(fields)
            if partition.name in names or any(file.name == partition.name for file in directory.files):
                raise fields.wrong("name", f"{partition.name} is there twice")
            names.add(partition.name)
            partitions.append(partition)
    if directory is not None:
        yield replace(directory, partitions=tuple(partitions))


def _directory(fields: JsonFields) -> StoredDirectory:
    path = fields.text("path")
    name = Path(path).name
    if not name or name == ".." or "\0" in path:
        raise fields.wrong("path", f"{path[:60]!r} does not name a directory")
    return StoredDirectory(
        path,
        None if fields.is_null("clusterId") else fields.text("clusterId"),
        None if fields.is_null("nodeId") else fields.integer("nodeId", most=INT32_MAX),
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
    file = StoredFile(
        name, fields.integer("modifiedNs"), fields.integer("inode", most=2**64 - 1), int(tail, 16), extents
    )
    if file.size > INT64_MAX:
        raise fields.wrong("extents", "they have more bytes than a file can have")
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
            return Extent(name, position, size, digest)
    raise fields.wrong("extents", f"{json.dumps(item)[:120]} is not [object, position, bytes, digest]")
