"""Stores log directories in a backup repository as one snapshot (`seglog backup`).

1. The last snapshot of the same directories says what is stored already.
2. Groups' committed offsets are stored first, other partitions after them, the cluster's metadata last: so no restored
   group is above its log, and no restored partition is unknown to the metadata.
3. A log is cut at its high watermark. Beside a broker, each of the first two waits for a checkpoint of high watermarks
   that was written since the step before it: brokers write one every five seconds. Whatever was acknowledged before
   the run began lies below it.
4. The manifest is created last.

Kafka: ReplicaManager.checkpointHighWatermarks, replica.high.watermark.checkpoint.interval.ms.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptCheckpointError, NotALogError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import format_offset_checkpoint, parse_meta_properties, parse_offset_checkpoint
from seglog.format.filenames import PartitionState
from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.listing import (
    OFFSET_CHECKPOINTS,
    LogDirectoryListing,
    PartitionDirectory,
    TargetKind,
    list_log_directory,
    resolve_path,
)
from seglog.scan.view import is_held, require_no_run
from seglog.storage import links
from seglog.storage.filesystem import File, FileSystem
from seglog.storage.frozen import VanishedError
from seglog.storage.metered_files import Gate, GatedFileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_rescue.backup.erasures import require_no_erasure, require_no_erasure_since
from seglog_rescue.backup.leaders import led_elsewhere
from seglog_rescue.backup.pruning import GRACE_MS
from seglog_rescue.backup.repository import Repository, snapshot_id
from seglog_rescue.backup.sending import Sender, Sent
from seglog_rescue.backup.storing import (
    CHECKPOINT_BYTES,
    Cut,
    PartitionStore,
    is_compacted_beyond,
    seen_digest,
    status_of_made,
)
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC, SHARE_TOPIC
from seglog_stores.formats.snapshot_manifest import (
    Snapshot,
    StoredDirectory,
    StoredFile,
    StoredPartition,
    format_snapshot,
    packed_manifest,
)
from seglog_stores.tiers.contents import MadeFile
from seglog_stores.tiers.snapshots import ended_ms, source_of

_GROUP_TOPICS = (OFFSETS_TOPIC, SHARE_TOPIC)
_TRIES = 4  # of a partition whose files vanish while they are stored
_CHECKPOINT_WAIT_S = 15.0  # three times a broker's interval
_POLL_S = 0.2
_FILES = (
    filenames.META_PROPERTIES,
    filenames.BOOTSTRAP_CHECKPOINT,
    filenames.RECOVERY_POINT_CHECKPOINT,
    filenames.LOG_START_OFFSET_CHECKPOINT,
    filenames.CLEANER_OFFSET_CHECKPOINT,
)


@dataclass(frozen=True, slots=True)
class BackupRequest:
    """Log directories, and the repository. `uncommitted`: logs of stopped brokers are stored beyond their high
    watermarks. `dry_run`: nothing is written. `leaders`: partitions are left out that another broker leads.
    """

    log_directories: Sequence[Path]
    repository: Path
    uncommitted: bool = False
    dry_run: bool = False
    leaders: bool = False


@dataclass(slots=True)
class BackupOutcome:
    """What a run stored. `manifest_bytes` and `sent` are what it sent, or would; `unchanged` partitions cost nothing.
    `led_elsewhere` counts those that were left to other brokers. `left_out` are sentences on partitions that are not in
    the snapshot; `remarks` on what else an operator should know.
    """

    snapshot: Snapshot
    sent: Sent
    manifest_bytes: int = 0
    unchanged: int = 0
    led_elsewhere: int = 0
    left_out: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Source:
    """A log directory as the run goes on."""

    listing: LogDirectoryListing
    live: bool
    closed: bool
    stored: StoredDirectory
    old: Mapping[str, StoredPartition]
    old_files: Mapping[str, StoredFile]
    watermarks: Mapping[TopicPartition, int] | None = None
    cuts: dict[TopicPartition, int | None] = field(default_factory=dict)  # of what is in the snapshot
    files: list[StoredFile] = field(default_factory=list)
    partitions: list[StoredPartition] = field(default_factory=list)


def backup(
    fs: FileSystem,
    store: RoutingFileSystem,
    clock: Clock,
    request: BackupRequest,
    progress: BytesRead = lambda _size: None,
    gate: Gate | None = None,
) -> BackupOutcome:
    """Makes a snapshot. `progress` is called with bytes that were stored or found stored. The reads of the source pass
    the `gate`, which limits and stops those of a thread inside it.

    Raises NotALogError, RefusedError if a run that changes a log directory is not finished, if the repository lies in
    one, or if another run has written a snapshot of them meanwhile; CorruptTierError for a damaged repository; OSError.
    """
    return _Run(fs, store, clock, request, progress, gate).run()


class _Run:
    def __init__(
        self,
        fs: FileSystem,
        store: RoutingFileSystem,
        clock: Clock,
        request: BackupRequest,
        progress: BytesRead,
        gate: Gate | None,
    ) -> None:
        self._fs, self._gate = fs if gate is None else GatedFileSystem(fs, gate), gate
        self._clock, self._request, self._progress = clock, request, progress
        self._repository = Repository(store, request.repository)
        self._started = clock.now_ms()
        self._left_out: list[str] = []
        self._remarks: list[str] = []
        self._unchanged = 0
        self._led_elsewhere: set[TopicPartition] = set()
        self._others = 0  # partitions that were left to their leaders
        self._seen: set[tuple[object, str]] = set()  # brokers' partitions that were stored or left out

    def run(self) -> BackupOutcome:
        directories = [links.resolve(path) for path in self._request.log_directories]
        self._check(directories)
        self._erasures = require_no_erasure(self._repository)
        self._repository = self._repository.pinned()
        listings = [list_log_directory(self._fs, path) for path in directories]
        described = [self._described(listing) for listing in listings]
        tag = _tag(described)
        base = self._base(described, tag)
        self._sender = Sender(None if self._request.dry_run else self._repository, _objects(base))
        sources = [
            _Source(
                listing,
                live := is_held(listing.path),
                stored.clean and not live,
                stored,
                {} if old is None else {partition.name: partition for partition in old.partitions},
                {} if old is None else {file.name: file for file in old.files},
            )
            for listing, stored in zip(listings, described, strict=True)
            for old in [_same(stored, base)]
        ]
        if self._request.leaders:
            self._led_elsewhere = led_elsewhere(self._fs, described)
        self._store_partitions(sources)
        self._sender.flush()
        return self._committed(sources, tag, base)

    def _check(self, directories: Sequence[Path]) -> None:
        place = self._request.repository
        resolved = links.resolve(place)
        for path in directories:
            if resolve_path(self._fs, path).kind is not TargetKind.LOG_DIRECTORY:
                raise NotALogError(path, "not a log directory: a backup takes whole ones")
            require_no_run(self._fs, path)
            if resolved == path or path in resolved.parents:
                raise RefusedError(f"{place} lies in the log directory {path}: a backup belongs on another disk")
        if len(set(directories)) < len(directories):
            raise RefusedError("a log directory is named twice")
        if not self._request.dry_run:
            self._repository.make()

    def _described(self, listing: LogDirectoryListing) -> StoredDirectory:
        cluster_id, node_id, directory_id = None, None, None
        if listing.meta_properties is not None:
            try:
                meta = parse_meta_properties(self._fs.read_bytes(listing.meta_properties), listing.meta_properties)
                cluster_id, node_id = meta.cluster_id, meta.node_id
                directory_id = None if meta.directory_id is None else format_uuid(meta.directory_id)
            except CorruptCheckpointError as error:
                self._remarks.append(str(error))
        return StoredDirectory(str(listing.path), cluster_id, node_id, directory_id, listing.clean_shutdown, ())

    def _base(self, described: Sequence[StoredDirectory], tag: str) -> Snapshot | None:
        """Returns the newest snapshot of these directories, else the newest of any that has one of them."""
        if self._request.dry_run:  # a run has made the repository, or found it
            try:
                self._repository.require()
            except NotALogError:
                if not self._repository.is_new():
                    raise
                return None
        newest = {source_of(identity): identity for identity in self._repository.ids()}
        if tag in newest:
            return self._repository.read(newest[tag])
        for identity in sorted(newest.values(), reverse=True):
            snapshot = self._repository.read(identity)
            if any(_same(each, snapshot) is not None for each in described):
                return snapshot
        return None

    # --- partitions ---------------------------------------------------------------------------------------

    def _store_partitions(self, sources: Sequence[_Source]) -> None:
        has_groups = any(map(_of_groups, (each for source in sources for each in source.listing.live)))
        for source in sources:
            self._read_watermarks(source, wait=has_groups)
            self._store(source, [each for each in source.listing.live if _of_groups(each)])
        for source in sources:
            self._read_watermarks(source, wait=True)
            source.listing = list_log_directory(self._fs, source.listing.path)
            self._store(source, [each for each in source.listing.live if not _of_groups(each)])
        for source in sources:  # what was moved into a directory after that had been listed
            source.listing = list_log_directory(self._fs, source.listing.path)
            moved = [each for each in source.listing.live if _replica(source, each) not in self._seen]
            if moved:
                self._read_watermarks(source, wait=True)
                self._store(source, moved)
        for source in sources:
            logs = [each for each in source.listing.partitions if each.is_cluster_metadata]
            self._store(source, [each for each in logs if each.state is PartitionState.LIVE])
        for source in sources:
            self._store_files(source)

    def _read_watermarks(self, source: _Source, *, wait: bool) -> None:
        """Reads the high watermarks; beside a broker, waits for newer ones than were read, or than were there."""
        path = source.listing.path / filenames.HIGH_WATERMARK_CHECKPOINT
        if source.live and wait and source.listing.live:
            self._await_change(path)
        try:
            data = self._fs.read_bytes(path, CHECKPOINT_BYTES)
            source.watermarks = parse_offset_checkpoint(data, path)
        except FileNotFoundError:
            source.watermarks = {} if source.live else None
        except CorruptCheckpointError as error:
            source.watermarks = {} if source.live else None
            self._remarks.append(str(error))

    def _await_change(self, path: Path) -> None:
        before, deadline = self._version(path), self._clock.monotonic() + _CHECKPOINT_WAIT_S
        while self._version(path) == before:
            if self._clock.monotonic() >= deadline:
                self._remarks.append(
                    f"{path}: the broker has not written it for {_CHECKPOINT_WAIT_S:.0f} s, so records that it"
                    " acknowledged since are not in the snapshot"
                )
                return
            if self._gate is not None:
                self._gate.before()
            self._clock.sleep(_POLL_S)

    def _version(self, path: Path) -> tuple[int, int] | None:
        status = self._fs.status(path)
        return None if status is None else (status.inode, status.modified_ns)

    def _cut(self, source: _Source, directory: PartitionDirectory) -> Cut:
        if directory.is_cluster_metadata or source.watermarks is None:
            return Cut(None, source.live, source.closed)
        if source.live:
            return Cut(source.watermarks.get(directory.topic_partition, 0), True, False)
        cut = None if self._request.uncommitted else source.watermarks.get(directory.topic_partition)
        return Cut(cut, False, source.closed)

    def _store(self, source: _Source, directories: Sequence[PartitionDirectory]) -> None:
        for directory in directories:
            if _replica(source, directory) in self._seen:
                continue  # moved here from a directory where it was stored: no broker starts on two
            if directory.topic_partition in self._led_elsewhere:
                self._others += 1
                self._seen.add(_replica(source, directory))
                continue
            try:
                stored, cut = self._stored(source, directory)
            except (NotALogError, FileNotFoundError, RefusedError, PermissionError) as error:
                if self._fs.status(directory.path) is None:
                    continue  # deleted or moved to another disk meanwhile
                self._left_out.append(f"{directory.path} is not in the snapshot: {error}")
                self._seen.add(_replica(source, directory))
                continue
            self._seen.add(_replica(source, directory))
            source.partitions.append(stored)
            source.cuts[directory.topic_partition] = cut.offset

    def _stored(self, source: _Source, directory: PartitionDirectory) -> tuple[StoredPartition, Cut]:
        """Stores a partition, anew with a later cut if a compaction was already beyond the first one."""
        cut, old = self._cut(source, directory), source.old.get(directory.path.name)
        for attempt in range(_TRIES):
            entries = self._fs.entries(directory.path)
            seen = seen_digest(entries, cut)
            if old is not None and old.seen == seen:
                self._unchanged += 1
                self._progress(sum(status.size for name, status in entries if name.endswith(".log")))
                return old, cut
            try:
                stored = PartitionStore(self._sender, directory.path, cut, old).store(self._fs, seen, self._progress)
            except (VanishedError, RefusedError):
                if attempt == _TRIES - 1:
                    raise
                continue
            if not source.live or not is_compacted_beyond(self._fs, directory, stored.cut):
                return stored, cut
            if attempt < _TRIES - 1:
                self._read_watermarks(source, wait=True)
                cut, old = self._cut(source, directory), stored
        self._remarks.append(
            f"{directory.path} is compacted faster than its broker writes high watermarks: where a key was written"
            f" again at {stored.cut} or above, its record before that may be missing from the snapshot"
        )
        return stored, cut

    # --- the rest -----------------------------------------------------------------------------------------

    def _store_files(self, source: _Source) -> None:
        """Stores the files of a log directory. The mark of a clean shutdown is only true of whole logs."""
        is_part = bool(self._led_elsewhere)
        whole = source.closed and not is_part and all(partition.cut is None for partition in source.partitions)
        names = [*_FILES, filenames.HIGH_WATERMARK_CHECKPOINT, *([filenames.CLEAN_SHUTDOWN_FILE] if whole else ())]
        for name in names:
            path = source.listing.path / name
            try:
                with self._fs.open(path, "r") as file, self._as_stored(source, file) as stored:
                    status, old = stored.status(), source.old_files.get(name)
                    source.files.append(self._sender.extended(name, stored, status.size, status, old, ""))
            except FileNotFoundError:
                continue

    def _as_stored(self, source: _Source, file: File) -> File:
        """Returns a file of a log directory; a checkpoint without the partitions that are left to other brokers, and
        beside a broker with nothing beyond what is in the snapshot: it has written more since.
        """
        if file.path.name not in OFFSET_CHECKPOINTS or not (source.live or self._led_elsewhere):
            return file
        try:
            offsets = parse_offset_checkpoint(file.read_at(0, min(file.size(), CHECKPOINT_BYTES)), file.path)
        except CorruptCheckpointError:
            return file  # stored as it is
        offsets = {key: at for key, at in offsets.items() if key not in self._led_elsewhere}
        if source.live:
            offsets = {
                key: at if cut is None else min(at, cut)
                for key, at in offsets.items()
                if key in source.cuts
                for cut in [source.cuts[key]]
            }
        data = format_offset_checkpoint(offsets)
        return MadeFile(data, status_of_made(file.status(), data)).open(file.path)

    def _committed(self, sources: Sequence[_Source], tag: str, base: Snapshot | None) -> BackupOutcome:
        ended = self._clock.now_ms()
        directories = tuple(
            replace(
                source.stored,
                clean=source.closed,
                files=tuple(source.files),
                partitions=tuple(sorted(source.partitions, key=lambda each: each.name)),
            )
            for source in sources
        )
        identity, flags = snapshot_id(ended, tag), (self._request.uncommitted, self._request.leaders)
        snapshot = Snapshot(identity, self._started, ended, *flags, directories)
        unchanged, others = self._unchanged, self._others
        outcome = BackupOutcome(snapshot, self._sender.sent, 0, unchanged, others, self._left_out, self._remarks)
        if self._request.dry_run:
            outcome.manifest_bytes = len(packed_manifest(format_snapshot(snapshot)))
            return outcome
        require_no_erasure_since(self._repository, self._erasures)
        if base is not None and base.id not in self._repository.ids():
            raise RefusedError(
                f"{self._request.repository}: snapshot {base.id}, which this run builds on, was pruned meanwhile, so"
                " nothing was committed; run this again"
            )
        if ended - self._started > GRACE_MS // 2:
            self._require_objects(snapshot)
        outcome.manifest_bytes = self._repository.write(snapshot)
        try:
            require_no_erasure_since(self._repository, self._erasures)
        except RefusedError:
            self._repository.discard_manifest(snapshot.id)  # it does not count: another folder of manifests does
            raise
        return outcome

    def _require_objects(self, snapshot: Snapshot) -> None:
        """Raises RefusedError if a prune has removed what this run stored: it took longer than prunes wait."""
        gone = snapshot.objects() - {name for name, _ in self._repository.objects()}
        if gone:
            raise RefusedError(
                f"{self._request.repository}: a prune has removed {min(gone)} while this run was going on, so nothing"
                " was committed; run this again"
            )


def _replica(source: _Source, directory: PartitionDirectory) -> tuple[object, str]:
    """Returns a partition's name with its broker; with its log directory, if that does not say whose it is."""
    stored = source.stored
    broker = stored.path if stored.node_id is None else (stored.cluster_id, stored.node_id)
    return broker, directory.path.name


def _of_groups(directory: PartitionDirectory) -> bool:
    return directory.topic_partition.topic in _GROUP_TOPICS


def _identity(directory: StoredDirectory) -> tuple[str | None, ...]:
    has_id = directory.directory_id is not None
    node = None if directory.node_id is None else str(directory.node_id)
    return (directory.cluster_id, node, directory.directory_id, None if has_id else directory.path)


def _tag(directories: Sequence[StoredDirectory]) -> str:
    text = json.dumps(sorted(map(str, map(_identity, directories))))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _same(directory: StoredDirectory, snapshot: Snapshot | None) -> StoredDirectory | None:
    """Returns a log directory as a snapshot has it."""
    others: Iterator[StoredDirectory] = iter(() if snapshot is None else snapshot.directories)
    return next((other for other in others if _identity(other) == _identity(directory)), None)


def _objects(snapshot: Snapshot | None) -> set[str]:
    return set() if snapshot is None else snapshot.objects()


# --- what is in a repository ------------------------------------------------------------------------------


def opened(store: RoutingFileSystem, place: Path) -> Repository:
    """Returns the repository at a place. Raises NotALogError if there is none, CorruptTierError, OSError."""
    repository = Repository(store, place)
    repository.require()
    return repository.pinned()


def chosen_snapshots(repository: Repository, name: str | None, at_ms: int | None) -> list[Snapshot]:
    """Returns the snapshot that a name begins, or of each broker the newest one that had ended at a time; with neither,
    the newest of each. Brokers that no directory names count by their directories. The order is by broker.

    Raises RefusedError if there is none, CorruptTierError for a damaged manifest.
    """
    if name is not None:
        return [repository.read(repository.named(name))]
    ids = [identity for identity in repository.ids() if at_ms is None or ended_ms(identity) <= at_ms]
    if not ids:
        raise RefusedError(f"{repository.place} has no snapshot{'' if at_ms is None else ' that had ended by then'}")
    newest = {source_of(identity): identity for identity in ids}
    of_brokers: dict[tuple[str, ...], Snapshot] = {}
    for identity in sorted(newest.values()):  # a later one of the same broker takes the place of an earlier one
        snapshot = repository.read(identity)
        of_brokers[_brokers_of(snapshot)] = snapshot
    return [of_brokers[broker] for broker in sorted(of_brokers)]


def _brokers_of(snapshot: Snapshot) -> tuple[str, ...]:
    brokers = {(each.cluster_id, each.node_id) for each in snapshot.directories if each.node_id is not None}
    if len(brokers) != 1:
        return ("", source_of(snapshot.id))
    ((cluster_id, node_id),) = brokers
    return (str(cluster_id), f"{node_id:010d}")
