"""The manifest of a snapshot in a backup repository: JSON lines that name every file, and where its bytes are.

    snapshots/<id>.jsonl      written last; the snapshot exists with it
    objects/<partition>/…     extents of large files
    packs/<digest>.pack       extents of small ones

A store has it as one zstd frame: a run sends a manifest of all that is there, however little is new. `snapshot_reading`
reads it. FORMAT.md describes the fields.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

from seglog.format.compression import compress
from seglog.format.filenames import parse_partition_directory
from seglog.model import Compression, TopicPartition

SNAPSHOT_BYTES_LIMIT = 512 << 20
FILE_BYTES_LIMIT = 1 << 40  # Kafka's positions in a segment have 31 bits; readers walk a file in pieces of its size
TAIL_BYTES = 4096
VERSION = 1
FORMAT = "seglog-backup"
MARKER = "seglog-backup.json"
SNAPSHOTS, OBJECTS, PACKS, REDACTIONS = "snapshots", "objects", "packs", "redactions"
SNAPSHOT_SUFFIX = ".jsonl"

_SNAPSHOT_ID = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}")
_SNAPSHOTS_FOLDER = re.compile(rf"{SNAPSHOTS}(?:-[0-9a-f]{{32}})?")
_COMMITTED = re.compile(r"[0-9]{8}\.committed")
_PACK = re.compile(rf"{PACKS}/[0-9a-f]{{32}}\.pack")
_OBJECT = re.compile(
    rf"{OBJECTS}/[a-zA-Z0-9._-]+-[0-9]{{1,10}}/(?:_|[a-zA-Z0-9_-]{{22}})/"
    r"[0-9]{20}(?:-[0-9]{10})?-[0-9]{1,19}-[0-9a-f]{32}\.[a-z]+(?:\.[a-z]+)?"
)


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


Part = StoredDirectory | StoredPartition  # a directory is without its partitions then: they come after it


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
    parts: Iterator[Part] = chain.from_iterable((each, *each.partitions) for each in snapshot.directories)
    return manifest_of(chain((_line(head),), map(part_line, parts)))


def packed_manifest(text: bytes) -> bytes:
    """Returns the bytes under which a manifest is stored. Digests are random: a higher level gains nothing."""
    return compress(Compression.ZSTD, text, level=1)


def manifest_of(lines: Iterable[bytes]) -> bytes:
    """Returns the bytes of a manifest with these lines and a last one."""
    data, digest, count = BytesIO(), hashlib.sha256(), 0
    for line in lines:
        data.write(line)
        digest.update(line)
        count += 1
    data.write(_line({"type": "end", "lines": count, "sha256": digest.hexdigest()}))
    return data.getvalue()


def part_line(part: Part) -> bytes:
    """Returns the line of a part."""
    return _line(_directory_fields(part) if isinstance(part, StoredDirectory) else _partition_fields(part))


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
