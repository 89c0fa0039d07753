"""The files that the driver and the tasks read: this machine's, object stores', tiers' and committed logs'.

A task knows nothing of the driver's machine but what it is sent. For an object store that is the URL and
`StoreSettings`: the options of the query, then the driver's environment where the options leave something open (as
Spark sends the driver's AWS_* variables to executors for s3a). Where neither says anything, the executor's environment
counts.

For a log in tiered storage, one that a manifest has committed, or one in a snapshot of a backup, the driver finds out
what a path means and sees partition directories. No task lists a tier or reads a manifest:

- A task of a read is sent the immutable object that stores a segment's log and, unless that is the log byte for byte,
  how to make the log from it (`StoredLog`). Of the keys, it gets only the one that opens its segment.
- A task of a job is sent its partition's place and what its reader must know (`Shown`): the manifest's entry for a
  committed log or a snapshot's; the key pairs and the partition's records of `__remote_log_metadata` for a broker's
  tier.

Private keys travel as credentials do: nothing prints them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

from seglog.locations import parse_location
from seglog.remote_path import RemotePath
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_ask.table.plan.options import ReadOptions
from seglog_stores.formats.tier_keys import DataKey
from seglog_stores.formats.tier_manifest import ChunkIndex
from seglog_stores.remote.routing import files_with
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.asked import tier_options
from seglog_stores.tiers.contents import (
    CACHE_BYTES,
    ChunkCache,
    ChunkedLog,
    Extents,
    OneFile,
    Part,
    PartOfObject,
    Stored,
    WholeObject,
)
from seglog_stores.tiers.manifests import checkpoints_of
from seglog_stores.tiers.metadata import RemoteLogs
from seglog_stores.tiers.recognition import Recognised, TierPlace, recognise
from seglog_stores.tiers.segments import KeyPairs, Remark, read_private_key
from seglog_stores.tiers.snapshots import as_directory, checkpoints_for
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import TierFileSystem, show_tiers

_logger = logging.getLogger("seglog.table.files")

_KEPT = 2  # file systems; each holds up to SEGLOG_REMOTE_CACHE bytes
_CHUNKS = ChunkCache(CACHE_BYTES)  # decoded chunks, for all reads of this process

_kept = lru_cache(maxsize=_KEPT)(files_with)


def files_of(settings: StoreSettings) -> RoutingFileSystem:
    """Returns the file system of a plan or a task. It is reused within the process; earlier listings are forgotten."""
    fs = _kept(settings)
    fs.forget_listings()
    return fs


def sent_along(settings: StoreSettings, locations: Iterable[str | Path]) -> StoreSettings:
    """Returns what tasks are told of the stores of `locations`: `settings`, then this process's environment."""
    paths = [parse_location(one) for one in locations]
    return settings.beside(os.environ, sorted({path.scheme for path in paths if isinstance(path, RemotePath)}))


def sendable(options: ReadOptions) -> ReadOptions:
    """Returns the options with everything that tasks must know of object stores."""
    return replace(options, store=sent_along(options.store, options.paths))


# --- tiers in a read ------------------------------------------------------------------------------------------


class BrokersTiers:
    """The paths of a read that lie in a broker's tiered storage or in a backup. Recognises each path once."""

    def __init__(self, fs: FileSystem, options: ReadOptions) -> None:
        self._fs, self._options = fs, options
        self._known: dict[Path, Recognised] = {}

    def shown(self, path: Path) -> tuple[FileSystem, Path] | None:
        """Returns a file system that shows the tier or snapshot as it is now, and the path in it; None for other paths.

        Raises OSError.
        """
        if path not in self._known:
            (self._known[path],) = recognise(self._fs, [path])
        if not self._known[path].places and self._known[path].snapshot is None:
            return None
        names = self._options.tier
        pairs = {key_id: read_private_key(self._fs, file) for key_id, file in names.keys}
        metadata = list(names.metadata) or None
        options = tier_options(self._fs, names.local, pairs, metadata, partial(_logger.warning, "%s"))
        fs, (seen,) = show_tiers(self._fs, [self._known[path]], options, _remark_handler(self._options))
        return fs, seen


def committed_files(fs: FileSystem, path: Path, options: ReadOptions) -> TierFileSystem | None:
    """Returns a file system that shows the committed logs at or around `path`; None if no manifest commits any there.

    An object that the manifest names but is missing or has another size raises IncompleteError when its partition is
    looked at.
    """
    recognised = recognise(fs, [path])
    if recognised[0].prefix is None:
        return None
    shown, _ = show_tiers(fs, recognised, on_remark=_remark_handler(options))
    return shown if isinstance(shown, TierFileSystem) else None


def _remark_handler(options: ReadOptions) -> Callable[[Remark], None]:
    """Returns a handler that raises IncompleteError for missing data, unless the options go on; it logs all others."""

    def handle(remark: Remark) -> None:
        if remark.is_grave:
            options.report_loss(str(remark))
        else:
            _logger.warning("%s", remark)

    return handle


@dataclass(frozen=True, slots=True)
class StoredLog:
    """An object that stores a segment's log in another form.

    The log is its `chunks`, decompressed and decrypted with `key`, or only its first `front` bytes; or it consists of
    `parts` of several objects, of which this is the first.
    """

    path: str
    size: int
    modified_ns: int
    version: str
    chunks: ChunkIndex | None = field(default=None, compare=False, repr=False)
    compressed: bool = False
    key: DataKey | None = field(default=None, compare=False, repr=False)
    front: int | None = None
    parts: tuple[Part, ...] = ()

    def shown(self, fs: FileSystem, path: Path) -> FileSystem:
        """Returns `fs` with the log as the file `path`; without that file if the object is gone."""
        own = parse_location(self.path)
        if self.parts:  # as the manifest has it: where an object is missing, its reading says so
            ms, regular = self.modified_ns // 1_000_000, 0o100644
            file = FileStatus(self.size, ms, self.modified_ns, 0, 0, regular, 0, 0, self.size, False)
            return OneFile(fs, path, Extents(fs, self.parts, file))
        if isinstance(fs, RoutingFileSystem):
            fs.expect(own, self.size, self.modified_ns, self.version)
        status = fs.status(own)
        if status is None:
            return fs
        whole = WholeObject(fs, own, status)
        stored: Stored = whole
        if self.chunks is not None:
            key = self.key
            stored = ChunkedLog(whole, self.chunks, self.compressed, None if key is None else lambda: key, _CHUNKS)
        if self.front is not None:
            stored = PartOfObject(stored, 0, stored.status._replace(size=self.front))
        return OneFile(fs, path, stored)


def where_stored(fs: FileSystem, path: Path) -> tuple[Path, StoredLog | None]:
    """Returns the path at which a task finds a log file, and how to decode it if it is stored in another form.

    A file that a tier shows is an object under another name, or is made from one.
    """
    stored = fs.stored(path) if isinstance(fs, TierFileSystem) else None
    if stored is None:
        return path, None
    if isinstance(stored, WholeObject):
        return stored.path, None
    if isinstance(stored, Extents) and stored.parts:
        status = stored.status
        return path, StoredLog(str(stored.parts[0].path), status.size, status.modified_ns, "", parts=stored.parts)
    front = None
    if isinstance(stored, PartOfObject):
        front, stored = stored.status.size, stored.whole
    chunked = stored if isinstance(stored, ChunkedLog) else None
    whole = stored if chunked is None else chunked.whole
    if not isinstance(whole, WholeObject):
        return path, None
    status = whole.status
    about = (str(whole.path), status.size, status.modified_ns, status.version)
    if chunked is None:
        return path, StoredLog(*about, front=front)
    key = None if chunked.opener is None else chunked.opener()
    return path, StoredLog(*about, chunked.chunks, chunked.compressed, key, front)


# --- tiers in a job -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """A tier's partition, shown at `path`. `made` are files of its log directory that are not stored as objects."""

    path: Path
    place: TierPlace
    local: Path | None
    keys: KeyPairs = field(repr=False)
    metadata: RemoteLogs | None = field(repr=False)
    made: Mapping[Path, Stored] = field(repr=False)


def shown_at(fs: FileSystem, paths: Iterable[Path]) -> tuple[Shown, ...]:
    """Returns the partitions that `fs` shows out of a tier, among these partition directories or files in them."""
    if not isinstance(fs, TierFileSystem):
        return ()
    found = {}
    for path in paths:
        directory = path if fs.shows(path) else path.parent
        place = fs.place_at(directory)
        if place is None:
            continue
        above = [stored for file, stored in fs.made.items() if file.parent == directory.parent]
        made: Mapping[Path, Stored] = {}
        if place.described is not None and above:  # the log directory's checkpoints, for this partition alone
            made = checkpoints_of(directory.parent, [place.described], above[0].status)
        elif place.kept is not None:
            made = checkpoints_for(fs, directory.parent, place.topic_partition)
        found[directory] = Shown(
            directory,
            place,
            fs.options.local,
            KeyPairs(fs.options.keys.pairs),  # without the data keys that the driver has opened
            None if fs.options.metadata is None else fs.options.metadata.only(place),
            made,
        )
    return tuple(found.values())


def size_of(fs: FileSystem, directory: Path) -> int:
    """Returns the bytes of a file or a directory's files, by the manifest for a committed log.

    Returns 0 for one that cannot be read: its task reports that.
    """
    place = fs.place_at(directory) if isinstance(fs, TierFileSystem) else None
    if place is not None and place.described is not None:
        return sum(one.size for segment in place.described.segments for one in segment.objects.values())
    if place is not None and place.kept is not None:
        return sum(file.size for file in place.kept.partition.files)
    try:
        return sum(status.size for _, status in fs.entries(directory))
    except NotADirectoryError:
        status = fs.status(directory)
        return 0 if status is None else status.size
    except OSError:
        return 0


def task_files(store: StoreSettings, shown: Sequence[Shown], on_remark: Callable[[Remark], None]) -> FileSystem:
    """Returns the file system of a task, which shows the tiers' partitions in `shown` if there are any."""
    fs = files_of(store)
    if not shown:
        return fs
    joined: RemoteLogs | None = None
    if shown[0].metadata is not None:
        joined = RemoteLogs()
        for one in shown:
            if one.metadata is not None:
                joined.copies.update(one.metadata.copies)
                joined.deleted.update(one.metadata.deleted)
    options = TierOptions(shown[0].local, shown[0].keys, joined)
    mounts = {one.path: one.place for one in shown}
    made = {path: stored for one in shown for path, stored in one.made.items()}
    kept = {path: place.kept for path, place in mounts.items() if place.kept is not None}
    directories = {
        each: as_directory(partition.status) for path, partition in kept.items() for each in (path.parent, path)
    }
    return TierFileSystem(fs, mounts, {path.parent for path in mounts}, options, on_remark, made, directories)
