"""Writes new objects below a prefix, and the manifest that makes logs of them, which `tiers.manifests` reads.

1. Every attempt puts its objects into a place of its own, so nothing is ever overwritten.
2. The manifest that names them is created last, under the next number, only if no object has that name. Of two writers
   that began with the same manifest, one succeeds and the other gets an error. A writer that dies earlier leaves only
   objects that no reader sees.

This needs neither rename nor lock, but a store that creates an object only if none exists. A store that would overwrite
it is detected before anything is committed.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptTierError, RefusedError, UnsupportedError
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.checksum import crc32c
from seglog.format.filenames import FileKind, parse_topic_partition
from seglog.model import TopicPartition
from seglog.remote_path import RemotePath
from seglog.scan.listing import list_partition
from seglog.storage.files import pieces
from seglog.storage.filesystem import File, FileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_stores.formats.log_manifest import (
    LOG_MANIFEST_BYTES_LIMIT,
    LogManifest,
    ManifestPartition,
    ManifestSegment,
    StoredObject,
    StreamEntry,
    format_log_manifest,
    latest_number,
    manifest_name,
    parse_log_manifest,
    place_name,
)
from seglog_stores.formats.tier_names import COMMITTED, is_place_name
from seglog_stores.tiers.contents import WholeObject
from seglog_stores.tiers.manifests import CommittedLogs, object_of, read_committed
from seglog_stores.tiers.segments import last_offset

_KEPT_MANIFESTS = 10
_KEPT_MS = 24 * 60 * 60 * 1000  # a writer that began with an older manifest has long given up

_logger = logging.getLogger("seglog.tiers.publishing")


@dataclass(frozen=True, slots=True)
class SegmentToPut:
    """A segment's files, and its last offset (below `base_offset` if it is empty)."""

    base_offset: int
    end_offset: int
    files: Mapping[FileKind, Path]


def new_place(prefix: Path, key: TopicPartition) -> Path:
    """Returns a new, unique directory for the objects of one attempt."""
    return prefix / str(key) / place_name(uuid.uuid4())


def put_segment(fs: FileSystem, store: RoutingFileSystem, place: Path, segment: SegmentToPut) -> ManifestSegment:
    """Copies a segment's files from `fs` into a place. Raises RefusedError if a file changes meanwhile; OSError."""
    found: dict[FileKind, StoredObject] = {}
    described = ManifestSegment(segment.base_offset, segment.end_offset, place.name, found)
    for kind, path in segment.files.items():
        with fs.open(path, "r") as file:
            found[kind] = put_object(store, place / described.name_of(kind), file)
    return described


def put_object(store: RoutingFileSystem, path: Path, file: File) -> StoredObject:
    """Copies an open file to the new object `path`. Raises RefusedError if the file ends before its size; OSError."""
    size, checksum, came = file.size(), 0, 0

    def counted() -> Iterator[bytes]:
        nonlocal checksum, came
        for piece in pieces(file, 0, size):
            checksum, came = crc32c(piece, checksum), came + len(piece)
            yield piece

    store.put(path, counted(), size)
    if came != size:
        raise RefusedError(f"{file.path} ends after {came} of {size} bytes: it was changed while it was copied")
    return StoredObject(size, checksum)


def segments_to_put(fs: FileSystem, directory: Path) -> list[SegmentToPut]:
    """Returns the segments of a partition directory, with their files and the snapshot after each."""
    listing = list_partition(fs, directory)
    snapshots = {one.offset: one.path for one in listing.snapshots}
    found = list[SegmentToPut]()
    for i, segment in enumerate(listing.segments):
        if i + 1 < len(listing.segments):
            end = listing.segments[i + 1].base_offset - 1
        else:
            status = fs.status(segment.log)
            last = None if status is None else last_offset(fs, WholeObject(fs, segment.log, status), None, segment.log)
            end = segment.base_offset - 1 if last is None else last
        files = {
            FileKind.LOG: segment.log,
            FileKind.OFFSET_INDEX: segment.offset_index,
            FileKind.TIME_INDEX: segment.time_index,
            FileKind.TRANSACTION_INDEX: segment.transaction_index,
            FileKind.PRODUCER_SNAPSHOT: snapshots.get(end + 1),
        }
        existing = {kind: path for kind, path in files.items() if path is not None}
        found.append(SegmentToPut(segment.base_offset, end, existing))
    return found


def epochs_in(fs: FileSystem, directory: Path) -> tuple[EpochEntry, ...]:
    """Reads the leader epochs of a partition directory. Raises OSError, CorruptCheckpointError."""
    path = list_partition(fs, directory).leader_epoch_checkpoint
    return () if path is None else parse_leader_epochs(fs.read_bytes(path), path)


# --- the manifest -----------------------------------------------------------------------------------------


def require_new(fs: FileSystem, prefix: Path) -> None:
    """Raises RefusedError if a prefix is not new. Objects that failed attempts left do not count."""
    if fs.status(prefix) is None:
        return
    if read_committed(fs, prefix) is not None:
        raise RefusedError(f"{prefix}: logs were already committed there; name a new prefix")
    for name in fs.list(prefix):
        if name == COMMITTED:
            continue
        inside = fs.list(prefix / name) if parse_topic_partition(name) is not None else [name]
        stranger = next((each for each in inside if not is_place_name(each)), None)
        if stranger is not None:
            raise RefusedError(f"{prefix}: it already holds something else ({stranger}); name a new prefix")


def commit(
    store: RoutingFileSystem,
    prefix: Path,
    before: CommittedLogs | None,
    partitions: Iterable[ManifestPartition],
    clock: Clock,
    streams: Mapping[str, StreamEntry] | None = None,
) -> LogManifest:
    """Commits these partitions below a prefix, in place of those in `before`.

    Raises RefusedError if another writer has committed since, UnsupportedError for a store that overwrites; OSError.
    Then nothing was committed, or everything if the connection was lost at the very end; reading again tells which.
    """
    if before is None:  # later commits rely on the check of the first one
        _require_creation(store, prefix)
    number = 1 if before is None else before.manifest.number + 1
    manifest = LogManifest(number, uuid.uuid4().hex, clock.now_ms(), tuple(partitions), dict(streams or {}))
    path, data = prefix / COMMITTED / manifest_name(number), format_log_manifest(manifest)
    # a request whose answer was lost is sent again, and then finds its own object
    if not store.create(path, data) and store.read_bytes(path, len(data) + (1 << 28)) != data:
        raise RefusedError(
            f"{path}: another writer has committed meanwhile, so nothing was committed; run this again when no other"
            " writer is running"
        )
    _remove_old(store, prefix, number, clock)
    return manifest


def _require_creation(store: RoutingFileSystem, prefix: Path) -> None:
    """Raises UnsupportedError for a store that overwrites existing objects, where two writers would not notice."""
    if not isinstance(prefix, RemotePath):
        return
    path = prefix / COMMITTED / f"probe-{uuid.uuid4().hex}"
    try:
        if store.create(path, b"1") and store.create(path, b"2"):
            raise UnsupportedError(
                f"{prefix}: this store ignores If-None-Match and overwrites existing objects, so the commit of one of"
                " two writers could be lost; nothing was committed"
            )
    finally:
        try:
            store.discard(path)
        except OSError as error:  # writers need no permission to remove
            _logger.warning("%s was not removed: %s", path, error.strerror)


def _remove_old(store: RoutingFileSystem, prefix: Path, number: int, clock: Clock) -> None:
    """Removes manifests that no writer can still use, and the objects that only they name. A later commit removes what
    remains.
    """
    directory, limit_ms = prefix / COMMITTED, clock.now_ms() - _KEPT_MS
    try:
        for name, status in sorted(store.entries(directory)):
            found = latest_number([name])
            if found is not None and found <= number - _KEPT_MANIFESTS and status.modified_ms < limit_ms:
                # no later manifest names what the next one does not, as places are never reused
                for path in sorted(_objects(store, prefix, found) - _objects(store, prefix, found + 1)):
                    store.discard(path)
                store.discard(directory / name)
    except (OSError, CorruptTierError) as error:
        _logger.warning("%s: old manifests and their objects were not removed: %s", directory, error)


def _objects(store: FileSystem, prefix: Path, number: int) -> set[Path]:
    """Returns the objects that a manifest names."""
    path = prefix / COMMITTED / manifest_name(number)
    manifest = parse_log_manifest(store.read_bytes(path, LOG_MANIFEST_BYTES_LIMIT), path)
    return {
        object_of(prefix, partition.topic_partition, segment, kind)
        for partition in manifest.partitions
        for segment in partition.segments
        for kind in segment.objects
    }
