"""Stores a partition directory as it is, or as far as its log is committed.

A partition whose names, sizes, times and inodes are those of the last snapshot costs its listing and nothing else.
Otherwise a view (`scan.view`) holds its files, batches are checked as they are read, and what earlier runs have stored
of each file stays. A log is cut before the first batch that a high watermark does not cover; what lies beyond the cut
in other files goes with it: later segments, index entries, producer snapshots.

Damage is stored as it is, and told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptCheckpointError
from seglog.format import filenames
from seglog.format.checkpoint import format_leader_epochs, parse_leader_epochs, parse_offset_checkpoint
from seglog.format.checksum import crc32c
from seglog.format.filenames import FileKind, FileName, FileState
from seglog.progress import BytesRead
from seglog.scan.listing import PartitionDirectory, SegmentFiles
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.topic_ids import topic_id_in
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import File, FileStatus, FileSystem
from seglog.storage.padding import written_bytes
from seglog_rescue.backup.sending import Sender, kept_bytes
from seglog_stores.formats.snapshot_manifest import StoredDamage, StoredFile, StoredPartition
from seglog_stores.tiers.contents import MadeFile

CHECKPOINT_BYTES = 64 << 20
_MADE = 1 << 62  # no file system has so many inodes
_DAMAGE_TOLD = 100  # places of one partition
_INDEXES = {
    FileKind.OFFSET_INDEX: layout.OFFSET_INDEX_ENTRY,
    FileKind.TIME_INDEX: layout.TIME_INDEX_ENTRY,
    FileKind.TRANSACTION_INDEX: layout.TRANSACTION_INDEX_ENTRY,
}
_STORED_STATES = (FileState.LIVE, FileState.SWAP, FileState.CLEANED)  # a start after a crash looks at the last two
_OTHER_FILES = (filenames.LEADER_EPOCH_CHECKPOINT, filenames.PARTITION_METADATA, filenames.QUORUM_STATE)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a log is cut: before the first batch at or above `offset`; with None only an incomplete end is cut off, and
    only of a log that a broker is writing. `live`: a broker is at work; `closed`: it has closed the log.
    """

    offset: int | None
    live: bool
    closed: bool


class PartitionStore:
    """Stores one partition directory; `old` is it in the last snapshot."""

    def __init__(self, sender: Sender, directory: Path, cut: Cut, old: StoredPartition | None) -> None:
        self._sender, self._directory, self._cut = sender, directory, cut
        self._old = {} if old is None else {file.name: file for file in old.files}
        self._old_damage = () if old is None else old.damage
        self._damage: list[StoredDamage] = []
        self._end: int | None = None  # the offset before which the log was cut

    def store(self, fs: FileSystem, seen: str, progress: BytesRead) -> StoredPartition:
        """Stores the partition. Raises NotALogError if it is gone, VanishedError, RefusedError, OSError."""
        with PartitionView(fs, self._directory, live=self._cut.live) as view:
            statuses = dict(view.fs.entries(self._directory))
            topic_id = _topic_id(view)
            folder = f"{self._directory.name}/{topic_id or '_'}"
            files = list(self._segments(view, statuses, folder, progress))
            named = {file.name for file in files}
            for name in sorted(statuses):
                if name not in named and self._is_wanted(name, statuses[name]):
                    with view.fs.open(self._directory / name, "r") as file:
                        store = self._epochs if name == filenames.LEADER_EPOCH_CHECKPOINT else self._whole
                        files.append(store(name, file, statuses[name], folder))
        damage = tuple(self._damage[:_DAMAGE_TOLD])
        return StoredPartition(self._directory.name, topic_id, seen, self._end, damage, tuple(files))

    def _is_wanted(self, name: str, status: FileStatus) -> bool:
        parsed = filenames.parse_file_name(name)
        if status.is_directory or status.is_special or parsed is None:
            return not status.is_directory and name in _OTHER_FILES
        states = _STORED_STATES[:1] if self._cut.live else _STORED_STATES
        if parsed.kind in (FileKind.LOG, *_INDEXES) and parsed.state is FileState.LIVE:
            return self._end is None  # an index without a log; those of segments are stored with them
        beyond = self._end is not None and parsed.kind is FileKind.PRODUCER_SNAPSHOT and parsed.offset > self._end
        return parsed.state in states and not beyond

    # --- segments -----------------------------------------------------------------------------------------

    def _segments(
        self, view: PartitionView, statuses: Mapping[str, FileStatus], folder: str, progress: BytesRead
    ) -> Iterator[StoredFile]:
        segments = view.listing.segments if view.listing.format == "kafka" else ()
        for i, segment in enumerate(segments):
            if self._end is not None or (
                i and self._cut.offset is not None and segment.base_offset >= self._cut.offset
            ):
                self._end = self._cut.offset
                return
            is_last = i + 1 == len(segments)
            status = statuses[segment.log.name]
            old = self._old.get(segment.log.name)
            with (
                view.fs.open(segment.log, "r") as file,
                self._sender.copying(file, status, old, folder) as log,
            ):
                size = self._committed(view, segment, log, status, is_last=is_last)
                if size < status.size and self._cut.offset is not None:
                    self._end = self._cut.offset
                stored = self._sender.extended(segment.log.name, log, size, status, old, folder)
            progress(status.size)
            yield stored
            is_open = is_last and not self._cut.closed
            for path in segment.files[1:]:
                yield self._index(view, segment, path, statuses[path.name], folder, size, is_open=is_open)

    def _committed(
        self, view: PartitionView, segment: SegmentFiles, log: File, status: FileStatus, *, is_last: bool
    ) -> int:
        """Checks what is new in a segment; returns the size of what is committed."""
        name, size = segment.log.name, status.size
        following = view.following(segment)
        cut = self._cut.offset
        if cut is not None and following is not None and following <= cut:
            cut = None  # all of it is committed
        old = self._old.get(name)
        prefix = kept_bytes(log, size, status, old)
        self._damage += [at for at in self._old_damage if at.file == name and at.position < prefix]
        offsets = PlausibleOffsets.of_segment(segment.base_offset)
        for step in LogWalk(view.fs, segment.log, prefix, size, file=log, offsets=offsets):
            if isinstance(step, Gap):
                if step.at_end and is_last and self._cut.live:
                    return step.position  # being written
                self._tell(name, step.position, step.why)
                continue
            rows = step.batches
            beyond = len(rows) if cut is None else int((rows["last_offset"] < cut).cumprod().sum())
            for i in (~step.valid[:beyond]).nonzero()[0].tolist():
                self._tell(name, int(rows["position"][i]), "the checksum is wrong")
            if beyond < len(rows):
                return int(rows["position"][beyond])
        return size

    def _tell(self, name: str, position: int, reason: str) -> None:
        self._damage.append(StoredDamage(name, position, reason))

    # --- other files --------------------------------------------------------------------------------------

    def _index(
        self,
        view: PartitionView,
        segment: SegmentFiles,
        path: Path,
        status: FileStatus,
        folder: str,
        log_size: int,
        *,
        is_open: bool,
    ) -> StoredFile:
        kind = next(kind for kind in _INDEXES if path.name.endswith(kind.value))
        with view.fs.open(path, "r") as file:
            if self._end is None and not is_open:
                return self._whole(path.name, file, status, folder)
            data = written_bytes(file, _INDEXES[kind].itemsize)
        prefix = _entries_before(data, kind, self._end, segment.base_offset, log_size)
        with MadeFile(prefix, status._replace(size=len(prefix))).open(path) as made:
            return self._sender.extended(path.name, made, len(prefix), status, self._old.get(path.name), folder)

    def _epochs(self, name: str, file: File, status: FileStatus, folder: str) -> StoredFile:
        """Stores the leader epochs, without those that begin beyond the cut: their records would be taken for lost."""
        end = self._cut.offset if self._cut.live else self._end
        try:
            entries = parse_leader_epochs(file.read_at(0, min(file.size(), CHECKPOINT_BYTES)), file.path)
        except CorruptCheckpointError:
            return self._whole(name, file, status, folder)  # as it is
        within = [entry for entry in entries if end is None or entry.start_offset <= end]
        if len(within) == len(entries):
            return self._whole(name, file, status, folder)
        data = format_leader_epochs(within)
        made_status = status_of_made(status, data)
        with MadeFile(data, made_status).open(file.path) as made:
            return self._whole(name, made, made_status, folder)

    def _whole(self, name: str, file: File, status: FileStatus, folder: str) -> StoredFile:
        return self._sender.extended(name, file, file.size(), status, self._old.get(name), folder)


def _entries_before(data: bytes, kind: FileKind, end: int | None, base: int, log_size: int) -> bytes:
    """Returns an index's entries up to the first that points beyond the log."""
    width = _INDEXES[kind].itemsize
    entries = np.frombuffer(data, _INDEXES[kind], len(data) // width)
    if kind is FileKind.OFFSET_INDEX:
        beyond = entries["position"].view(">u4") >= np.int64(log_size)
    elif end is None:
        beyond = np.zeros(len(entries), dtype=bool)
    elif kind is FileKind.TIME_INDEX:
        beyond = entries["relative_offset"].view(">u4") >= np.int64(end - base)
    else:
        beyond = entries["last_offset"] >= end
    return data[: (int(beyond.argmax()) if beyond.any() else len(entries)) * width]


def status_of_made(status: FileStatus, data: bytes) -> FileStatus:
    """Returns the status under which `data` is stored in place of a file's own bytes. Its inode is that of no file and
    goes with the content: else a later run would take the file, which may be as it was, for stored.
    """
    return status._replace(size=len(data), inode=_MADE | crc32c(data))


def _topic_id(view: PartitionView) -> str | None:
    path = view.listing.partition_metadata
    try:
        return None if path is None else topic_id_in(view.fs, path)
    except CorruptCheckpointError:
        return None  # stored as it is


def is_compacted_beyond(fs: FileSystem, directory: PartitionDirectory, cut: int | None) -> bool:
    """Whether a broker's cleaner may have removed records below `cut` because of others at or above it: then a log that
    is cut there lacks their keys.

    It cleans below the active segment. While it works, and for a minute after that (file.delete.delay.ms), there are
    files that it writes or has replaced; when it has ended, its checkpoint says how far it came. What it replaced has a
    segment of the same base offset in its place: what retention or a client deleted has none.

    Kafka: Cleaner.doClean, LogCleanerManager.doneCleaning, LocalLog.replaceSegments.
    """
    if cut is None:
        return False
    names = [filenames.parse_file_name(name) for name, _ in fs.entries(directory.path)]
    logs = [name for name in names if name is not None and name.kind is FileKind.LOG]
    active = max((log.offset for log in logs if log.state is FileState.LIVE), default=0)
    if active <= cut:
        return False
    if any(_is_of_a_compaction(fs, directory.path, log) for log in logs if log.state is not FileState.LIVE):
        return True
    path = directory.path.parent / filenames.CLEANER_OFFSET_CHECKPOINT
    try:
        cleaned = parse_offset_checkpoint(fs.read_bytes(path, CHECKPOINT_BYTES), path)
    except (FileNotFoundError, CorruptCheckpointError):
        return False
    return cleaned.get(directory.topic_partition, 0) > cut


def _is_of_a_compaction(fs: FileSystem, directory: Path, log: FileName) -> bool:
    if log.state is not FileState.DELETED:
        return True
    names = (filenames.segment_file_name(log.offset, state=state) for state in (FileState.SWAP, FileState.LIVE))
    # asked for by name, and in the order of their renaming: a listing may lack what is renamed meanwhile
    return any(fs.status(directory / name) is not None for name in names)


def seen_digest(entries: Sequence[tuple[str, FileStatus]], cut: Cut) -> str:
    """Returns a digest of what a listing says of a partition's files, and of where its log is cut."""
    lines = [f"{cut.offset} {cut.live} {cut.closed}"]
    lines += [f"{name} {status.size} {status.modified_ns} {status.inode}" for name, status in entries]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]
