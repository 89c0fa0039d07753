"""Copies a partition from tiered storage (or any other place) into a log directory (`seglog fetch`).

1. The plan lists the files of the source with what identifies them (size, time, inode or version). It is written into a
   staging directory beside the target before the first byte is copied.
2. Each file is copied under a temporary name, checked and synced, and only then gets its own name. A log is checked
   batch by batch (checksums, offsets without a gap up to the next segment), the other files by their size.
3. Transaction indexes that differ from the records, or are missing, are made anew (`transaction_indexes`).
4. Finally the directory is renamed to the target, and the staging directory is removed.

A fetch that was cut short can continue: complete files whose source has not changed are kept. A finished partition is
also kept, if it has the source's files and nothing else, because an earlier run may have fetched some of several. A
file counts as the source's by the manifest's checksum, or else by its size and both ends, its batches must be sound,
and its transaction indexes right. The staging directory's name is derived from the target's. It is locked while a fetch
runs, and a starting broker ignores it (`filenames.QUARANTINE_WITHIN`). A source that changes or vanishes meanwhile is
an error that names the file.

Kafka: RemoteLogManager and ReplicaFetcherTierStateMachine, when they build a follower from a tier.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.errors import CorruptRecordError, LockedError, NotALogError, RefusedError
from seglog.format import filenames
from seglog.format.checksum import crc32c
from seglog.format.decoder import batch_error, wrong_checksum
from seglog.format.filenames import FileKind
from seglog.operations.undo import Settled, settle_unfinished, unsettled
from seglog.progress import DoneOfAll
from seglog.remote_path import RemotePath
from seglog.repairs.undo.beside import (
    access_for,
    discard_staging,
    lock_open_file,
    log_directory_lock,
    require_free,
    require_outside_partitions,
)
from seglog.scan.listing import PartitionListing, TargetKind, list_partition, partition_directories, resolve_paths
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.view import require_no_run
from seglog.storage import links
from seglog.storage.files import pieces, remove_tree
from seglog.storage.filesystem import PRIVATE, Access, File, FileStatus, FileSystem, write_atomically
from seglog.storage.lock import partition_path
from seglog.storage.trust import require_trust
from seglog.units import count_is, count_text
from seglog_stores.operations.transaction_indexes import WrongIndex, has_transactions, make_anew, wrong_indexes
from seglog_stores.tiers.contents import WholeObject
from seglog_stores.tiers.view import TierFileSystem

_PREFIX, _SUFFIX = filenames.FETCH_PREFIX, filenames.UNFINISHED_SUFFIX
_PLAN = "plan.json"
_IN_USE = ".in-use"
_COPY = "file.part"
_VERSION = 1
_ENDS = 1 << 16  # bytes at either end of a file
_NAMED_EACH = 16 << 20  # bytes of files whose names are synced together, because there may be thousands of small ones


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to fetch: its name, and what identifies the source's file. After a log comes a segment at `next_offset`.

    `crc32c` is the checksum in a manifest. Then the file is compared with it, and gaps in the offsets are allowed,
    because a cleaner left them.
    """

    name: str
    size: int
    modified_ns: int
    inode: int
    device: int
    base_offset: int | None = None
    next_offset: int | None = None
    crc32c: int | None = None

    @classmethod
    def of(cls, name: str, status: FileStatus, crc32c: int | None = None) -> PlannedFile:
        """Plans a file by its present status."""
        return cls(name, status.size, status.modified_ns, status.inode, status.device, crc32c=crc32c)

    def is_same(self, status: FileStatus | None) -> bool:
        """True if the source still has the same file."""
        if status is None:
            return False
        identity = (status.size, status.modified_ns, status.inode, status.device)
        return identity == (self.size, self.modified_ns, self.inode, self.device)


@dataclass(slots=True)
class Fetched:
    """The result: `files` and `bytes` fetched by this run, files `kept` from earlier runs, and the log's offsets.

    `made_anew` are sentences on the transaction indexes that were wrong or missing at the source.
    """

    target: Path
    files: int = 0
    bytes: int = 0
    kept: int = 0
    segments: int = 0
    first_offset: int | None = None
    gaps: tuple[str, ...] = ()
    made_anew: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """With `allow_gaps`, missing offsets of the source are reported in `Fetched.gaps` and are not an error."""

    allow_gaps: bool = False


def fetch_targets(fs: FileSystem, paths: Sequence[Path], output: Path) -> list[tuple[Path, Path]]:
    """Returns each partition to fetch and its target directory: `output`, or one in the log directory `output`.

    Raises ValueError for a file, for several partitions into one, and for two sources of one name.
    """
    targets = resolve_paths(fs, paths)
    for target in targets:
        if target.kind is TargetKind.FILE:
            raise ValueError(f"{target.path} is a file; name the partition that it is in")
    partitions = [directory for target in targets for directory in partition_directories(fs, target)]
    if filenames.parse_topic_partition(output.name) is not None:
        if len(partitions) != 1:
            raise ValueError(f"{output} is one partition, and the sources are {len(partitions)}: name a log directory")
        return [(partitions[0], output)]
    names = [directory.name for directory in partitions]
    if len(set(names)) < len(names):
        raise ValueError("two sources have one name; fetch one at a time, each to a place of its own")
    return [(directory, output / directory.name) for directory in partitions]


def fetch(
    source_fs: FileSystem,
    source: Path,
    fs: FileSystem,
    target: Path,
    options: FetchOptions | None = None,
    progress: DoneOfAll | None = None,
    settled: Settled = unsettled,
) -> Fetched:
    """Makes `target` a partition directory with the files of the partition `source`.

    `progress` is called with (bytes done, bytes in all). Raises RefusedError if the target lies in a partition or has
    contents that are not a fetch of the source, if the source lacks offsets, or if a run that changes it is not
    finished; LockedError if a broker or another fetch is running; CorruptRecordError for damage; OSError.
    """
    target = links.resolve(target)
    if filenames.parse_topic_partition(target.name) is None:
        raise RefusedError(f"{target}: only a directory named TOPIC-NUMBER (orders-0) can be made a partition")
    if not isinstance(source, RemotePath):  # runs are only on disks, also in the log directory of a tier's local part
        require_no_run(source_fs, partition_path(source).parent)
    require_outside_partitions(fs, target)
    fs.make_directory(target.parent, parents=True)
    settle_unfinished(fs, target.parent, settled)
    with log_directory_lock(fs, target):
        plan = _plan(source_fs, source)
        return _Fetch(source_fs, source, fs, target, plan, options or FetchOptions(), progress).run()


def _plan(fs: FileSystem, source: Path) -> list[PlannedFile]:
    listing = list_partition(fs, source)
    if listing.format != "kafka" or not listing.segments:
        raise NotALogError(source, "it has no segment of a partition")
    statuses = dict(fs.entries(source))
    bases = [segment.base_offset for segment in listing.segments]
    following = dict(zip(bases, [*bases[1:], None], strict=True))
    planned = []
    for path in _files_of(listing):
        stored = fs.stored(path) if isinstance(fs, TierFileSystem) else None
        checksum = stored.crc32c if isinstance(stored, WholeObject) else None
        file = PlannedFile.of(path.name, statuses[path.name], checksum)
        parsed = filenames.parse_file_name(path.name)
        if parsed is not None and parsed.kind is FileKind.LOG:
            file = replace(file, base_offset=parsed.offset, next_offset=following[parsed.offset])
        planned.append(file)
    return planned


def _files_of(listing: PartitionListing) -> Iterator[Path]:
    for segment in listing.segments:
        yield from segment.files
    yield from (snapshot.path for snapshot in listing.snapshots)
    if listing.leader_epoch_checkpoint is not None:
        yield listing.leader_epoch_checkpoint


class _Fetch:
    """One run of a fetch."""

    def __init__(
        self,
        source_fs: FileSystem,
        source: Path,
        fs: FileSystem,
        target: Path,
        plan: list[PlannedFile],
        options: FetchOptions,
        progress: DoneOfAll | None,
    ) -> None:
        self._source_fs, self._source, self._fs, self._target = source_fs, source, fs, target
        self._options, self._progress = options, progress
        self._plan = {file.name: file for file in plan}
        self._bytes = sum(file.size for file in plan)
        self._gaps: list[str] = []
        self._unnamed = 0  # bytes of files whose names are not synced yet
        self._has_transactions = False  # in a log that was checked
        digest = hashlib.sha256(target.name.encode()).hexdigest()[:16]
        self._staging = target.parent / f"{_PREFIX}{digest}{_SUFFIX}"
        self._place = self._staging / "files"

    def run(self) -> Fetched:
        if self._has_all():
            is_ended = self._is_ended()
            if is_ended or self._is_sound():
                if is_ended:
                    remove_tree(self._fs, self._staging)
                return self._result(Fetched(self._target, kept=len(self._plan)))
        require_free(self._fs, self._target)
        with self._held():
            before = self._old_plan()
            kept = self._keep(before)
            if before != self._plan:
                write_atomically(self._fs, self._staging / _PLAN, _plan_text(self._plan))
            done, kept_bytes = Fetched(self._target, kept=len(kept)), sum(self._plan[name].size for name in kept)
            self._has_transactions = any(self._plan[name].base_offset is not None for name in kept)  # not checked again
            self._report(kept_bytes)
            for name, planned in self._plan.items():
                if name not in kept:
                    self._bring(planned, done, kept_bytes)
            self._require_unchanged()
            done.made_anew = tuple(self._made_anew())
            self._sync_names()
            self._fs.rename(self._place, self._target)
            self._fs.sync_directory(self._target.parent)
        discard_staging(self._fs, self._staging)
        return self._result(done)

    def _result(self, done: Fetched) -> Fetched:
        logs = [file for file in self._plan.values() if file.base_offset is not None]
        done.segments, done.gaps = len(logs), tuple(self._gaps)
        done.first_offset = min(file.base_offset for file in logs if file.base_offset is not None)
        return done

    def _made_anew(self) -> Iterator[str]:
        """Makes the transaction indexes anew that differ from the records; yields a sentence on each."""
        for wrong in self._wrong_indexes(self._place):
            make_anew(self._fs, self._place, wrong)
            yield f"{self._source / wrong.name} was made anew from the records: {wrong.problem}"

    def _wrong_indexes(self, directory: Path) -> list[WrongIndex]:
        """Returns the transaction indexes that differ from the records, which only transactions need."""
        is_listed = any(_is_transaction_index(name) for name in self._plan)
        return list(wrong_indexes(self._fs, directory)) if is_listed or self._has_transactions else []

    def _is_ended(self) -> bool:
        """True if an earlier run was killed after the final rename and left only the staging directory."""
        staging = self._fs.status(self._staging, follow=False)
        return staging is not None and self._fs.status(self._place) is None

    def _has_all(self) -> bool:
        """True if the target has all planned files, with their sizes."""
        status = self._fs.status(self._target)
        if status is None or not status.is_directory:
            return False
        sizes = {name: status.size for name, status in self._fs.entries(self._target)}
        return all(sizes.get(name) == file.size for name, file in self._copied_files())

    def _is_sound(self) -> bool:
        """True if the target has only the files of a fetch, none made by a broker, and its logs are sound."""
        names = {name for name, _ in self._fs.entries(self._target) if not _is_transaction_index(name)}
        if names - self._plan.keys() - {filenames.PARTITION_METADATA}:
            return False
        if not all(self._is_the_sources(planned) for _, planned in self._copied_files()):
            return False
        try:
            for name, planned in self._plan.items():
                if planned.base_offset is not None:
                    self._check(self._target / name, self._target / name, planned)
        except (CorruptRecordError, RefusedError):
            self._gaps.clear()
            return False
        return not self._wrong_indexes(self._target)

    def _copied_files(self) -> Iterator[tuple[str, PlannedFile]]:
        """Yields the files that stay as the source has them."""
        return ((name, file) for name, file in self._plan.items() if not _is_transaction_index(name))

    def _is_the_sources(self, planned: PlannedFile) -> bool:
        """True if a file of the target is the source's; another log may have the same size.

        Both ends of a log contain the checksums and offsets of its first and last batches.
        """
        size = planned.size
        with self._fs.open(self._target / planned.name, "r") as ours:
            if planned.crc32c is not None:
                checksum = 0
                for piece in pieces(ours, 0, size):
                    checksum = crc32c(piece, checksum)
                return checksum == planned.crc32c
            with self._source_fs.open(self._source / planned.name, "r") as theirs:
                ends = {(0, min(size, _ENDS)), (max(0, size - _ENDS), min(size, _ENDS))}
                return all(ours.read_at(*end) == theirs.read_at(*end) for end in ends)

    # --- the staging directory ----------------------------------------------------------------------------

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Makes and locks the staging directory."""
        status = self._fs.status(self._staging, follow=False)
        if status is None:
            self._fs.make_directory(self._staging, access=PRIVATE)
            self._fs.sync_directory(self._target.parent)
        elif status.is_link or not status.is_directory:
            raise RefusedError(f"{self._staging} is not a directory of seglog; remove it")
        else:
            require_trust(self._staging, status)
        path = self._staging / _IN_USE
        with self._fs.open(path, "r+" if self._fs.status(path, follow=False) else "create_new") as lock:
            if not lock_open_file(lock) or self._fs.status(path, follow=False) is None:
                raise LockedError(self._target, 0, "another fetch to the same place")
            if self._fs.status(self._place) is None:
                self._fs.make_directory(self._place, access=access_for(self._fs, self._target))
                self._fs.sync_directory(self._staging)
            yield

    def _old_plan(self) -> dict[str, PlannedFile]:
        """Reads the plan of the previous run; {} if there is none, or it cannot be read."""
        path = self._staging / _PLAN
        if self._fs.status(path, follow=False) is None:
            return {}
        try:
            document = json.loads(self._fs.read_bytes(path))
            if document["version"] != _VERSION:
                return {}
            return {entry["name"]: PlannedFile(**entry) for entry in document["files"]}
        except (ValueError, KeyError, TypeError):
            return {}

    def _keep(self, before: dict[str, PlannedFile]) -> set[str]:
        """Returns the names of the files that are complete and still the source's; removes all others."""
        kept = set()
        for name, status in self._fs.entries(self._place):
            planned = self._plan.get(name)
            if planned is not None and planned == before.get(name) and status.size == planned.size:
                kept.add(name)
            else:
                self._fs.remove(self._place / name)
        self._fs.sync_directory(self._place)
        return kept

    # --- files --------------------------------------------------------------------------------------------

    def _bring(self, planned: PlannedFile, done: Fetched, bytes_before: int) -> None:
        path, copy = self._source / planned.name, self._place / _COPY
        directory = self._fs.status(self._place)
        try:
            with self._source_fs.open(path, "r") as source, self._fs.open(copy, "create") as file:
                if directory is not None:
                    file.give(Access.within(directory))
                position, checksum = self._copied(source, file, bytes_before + done.bytes, planned.crc32c is not None)
                if position != planned.size:
                    raise RefusedError(
                        f"{path} has {count_text(position, 'byte')} instead of {planned.size}; it was changed meanwhile"
                    )
                if planned.crc32c not in (None, checksum):
                    raise CorruptRecordError(
                        path, f"its CRC-32C is {checksum:08x}, but {planned.crc32c:08x} in the manifest"
                    )
                file.sync()
        except FileNotFoundError as error:
            raise RefusedError(
                f"{path} has vanished meanwhile; run the fetch again when the source is complete"
            ) from error
        if not planned.is_same(self._source_fs.status(path)):
            raise RefusedError(f"{path} was changed meanwhile; run the fetch again, which keeps the finished files")
        if planned.base_offset is not None:
            self._check(copy, path, planned)
        self._fs.rename(copy, self._place / planned.name)
        done.files, done.bytes = done.files + 1, done.bytes + planned.size
        self._unnamed += planned.size
        if self._unnamed >= _NAMED_EACH:
            self._sync_names()

    def _sync_names(self) -> None:
        """Syncs the names of the fetched files, whose contents are synced already. If a power cut takes a name away,
        the file is fetched again.
        """
        self._fs.sync_directory(self._place)
        self._unnamed = 0

    def _copied(self, source: File, file: File, before: int, is_summed: bool) -> tuple[int, int]:
        """Copies a file. Returns the number of bytes, and their CRC-32C if requested, else 0."""
        position = checksum = 0
        for piece in pieces(source, 0, source.size()):
            file.write_at(position, piece)
            position += len(piece)
            checksum = crc32c(piece, checksum) if is_summed else 0
            self._report(before + position)
        return position, checksum

    def _check(self, copy: Path, path: Path, planned: PlannedFile) -> None:
        """Raises CorruptRecordError for a bad batch, RefusedError for a missing offset up to the next segment."""
        following = planned.base_offset or 0
        for step in LogWalk(self._fs, copy):
            if isinstance(step, Gap):
                reason = (
                    f"{count_is(step.length, 'byte')} not a batch; fetch copies no damaged log, use"
                    " seglog salvage for the rest"
                )
                raise CorruptRecordError(path, reason, step.position)
            self._has_transactions = self._has_transactions or has_transactions(step)
            for row, is_valid in zip(step.batches, step.valid, strict=True):
                first, last = int(row["base_offset"]), int(row["last_offset"])
                if not is_valid:
                    raise wrong_checksum(path, row)
                if first < following:
                    raise batch_error(CorruptRecordError, path, "offsets do not ascend", row)
                self._require_no_gap(planned, path, following, first)
                following = last + 1
        if planned.next_offset is not None:
            if following > planned.next_offset:
                reason = f"it continues beyond offset {planned.next_offset}, where the next segment begins"
                raise CorruptRecordError(path, reason, None, planned.next_offset, following - 1)
            self._require_no_gap(planned, path, following, planned.next_offset)

    def _require_no_gap(self, planned: PlannedFile, path: Path, following: int, found: int) -> None:
        if found <= following or planned.crc32c is not None:
            return
        message = f"{path}: offsets {following} to {found - 1} are missing"
        if not self._options.allow_gaps:
            raise RefusedError(f"{message}; with --allow-gaps the rest is fetched, and readers skip them")
        self._gaps.append(message)

    def _require_unchanged(self) -> None:
        """Raises RefusedError if the source's files have changed, so that the result never mixes two states."""
        now = dict(self._source_fs.entries(self._source))
        for name, planned in self._plan.items():
            if not planned.is_same(now.get(name)):
                raise RefusedError(
                    f"{self._source / name} was changed or removed meanwhile; run the fetch again, which keeps the"
                    " finished files"
                )

    def _report(self, position: int) -> None:
        if self._progress is not None:
            self._progress(position, self._bytes)


def _is_transaction_index(name: str) -> bool:
    return name.endswith(FileKind.TRANSACTION_INDEX.value)


def _plan_text(plan: dict[str, PlannedFile]) -> bytes:
    files = [{name: getattr(file, name) for name in file.__slots__} for file in plan.values()]
    return (json.dumps({"version": _VERSION, "files": files}) + "\n").encode()
