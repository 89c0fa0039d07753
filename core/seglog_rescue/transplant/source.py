"""Reads a partition of a dead cluster once from end to end, for a transplant; never changes it.

1. Settle in memory what a crash left, as a starting broker would (`log.swap`): a replacement of segments counts if it
   was complete.
2. Leave out segments that lie wholly below the log start: they were deleted.
3. Check every batch. A torn end of the last segment is what a broker's crash leaves, and is cut off; other damage
   refuses the partition, as the good batches after it would be lost.
4. Follow transactions to the end of the log: those still open must be ended.

Indexes, snapshots and leader epochs are rebuilt from the batches, so their padding and gaps do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog.errors import CorruptRecordError, RefusedError
from seglog.format import filenames
from seglog.format.decoder import batch_error
from seglog.format.filenames import PartitionState
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.log.swap import settle_leftovers
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.listing import PartitionListing, SegmentFiles, list_partition, require_batches
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.verification.segment_survey import SegmentSurveyor, code_of
from seglog.verification.soundness import sound_log
from seglog.verification.transactions import Transaction, TransactionWalk
from seglog_rescue.transplant.rewriting import Rewritten, counted

MENDING = (
    "a transplant leaves its source as it is: copy the directory, mend the copy (seglog repair), and transplant that"
)
_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A `.log` to take over: its first `valid_bytes`, perhaps not all of it. `largest_timestamp` is -1 if no batch has
    one. It has only a `name`, as a plan of ten thousand partitions holds many."""

    base_offset: int
    name: str
    valid_bytes: int
    modified_ms: int
    largest_timestamp: int


@dataclass(slots=True)
class SourceLog:
    """The part of a partition to take over. `torn` says why `torn_bytes` at its end are left out, "" if there are none.
    `open` are the transactions without a marker.

    `fs` shows the source as a broker would see it after its start; `facts` are (size, modification time, inode) of its
    data files when they were read, by name.
    """

    directory: Path
    partition: TopicPartition
    fs: FileSystem
    log_start: int = 0
    log_end: int = 0
    segments: list[SourceSegment] = field(default_factory=list)
    batches: int = 0
    size: int = 0
    changes: Rewritten = field(default_factory=Rewritten)
    open: list[Transaction] = field(default_factory=list)
    coordinator_epochs: dict[int, int] = field(default_factory=dict)
    torn: str = ""
    torn_bytes: int = 0
    left_behind: list[str] = field(default_factory=list)
    committed_below: int = 0
    facts: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if it holds no batch."""
        return self.batches == 0


class SourceCheckpoints:
    """The log starts and high watermarks in the checkpoints of partitions' log directories; reads each file once."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._known: dict[Path, tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = {}

    def of(self, directory: Path) -> tuple[int, int]:
        """Returns the log start and high watermark of the partition in `directory`; 0 if they are unknown."""
        name = filenames.parse_partition_directory(directory.name)
        if name is None or name.state is not PartitionState.LIVE:
            return 0, 0
        around, key = directory.parent, name.topic_partition
        if around not in self._known:
            start = OffsetCheckpoint(self._fs, around / filenames.LOG_START_OFFSET_CHECKPOINT)
            watermark = OffsetCheckpoint(self._fs, around / filenames.HIGH_WATERMARK_CHECKPOINT, tolerant=True)
            self._known[around] = start.offsets, watermark.offsets
        starts, watermarks = self._known[around]
        return starts.get(key, 0), watermarks.get(key, 0)


def read_source(
    fs: FileSystem, directory: Path, partition: TopicPartition, checkpoints: SourceCheckpoints, progress: BytesRead
) -> SourceLog:
    """Reads the partition in `directory`; creates, locks and changes nothing. `partition` is its name there.

    Raises RefusedError for damage, and if it cannot be taken over.
    """
    sound = sound_log(fs, directory)
    if sound is not None:  # it has no leftovers
        found = SourceLog(directory, partition, fs, facts=_log_files(sound.entries))
        _SourceReading(found, sound.listing(), checkpoints, progress, sound.pieces).read()
        return found
    require_batches(fs, directory)
    overlay = OverlayFileSystem(fs)
    found = SourceLog(directory, partition, overlay, facts=log_files(fs, directory))
    settled = settle_leftovers(overlay, directory)
    for replaced in settled.replaced:
        raise RefusedError(f"{replaced.path}: a replacement of segments would lose data ({replaced}); {MENDING}")
    found.left_behind += [path.name for path in settled.removed]
    listing = list_partition(overlay, directory)
    if listing.orphans:
        raise RefusedError(
            f"{listing.orphans[0].path}: its .log is missing, so the directory was copied in part; {MENDING}"
        )
    _SourceReading(found, listing, checkpoints, progress).read()
    return found


def log_files(fs: FileSystem, directory: Path) -> dict[str, tuple[int, int, int]]:
    """Returns the facts of the partition's data files: if they are the same later, nothing wrote to them."""
    return _log_files(fs.entries(directory))


def _log_files(entries: Sequence[tuple[str, FileStatus]]) -> dict[str, tuple[int, int, int]]:
    data = ((name, status) for name, status in entries if ".log" in name and not status.is_directory)
    return {name: (status.size, status.modified_ns, status.inode) for name, status in data}


def require_unchanged(fs: FileSystem, source: SourceLog) -> None:
    """Raises RefusedError if the source's data changed since it was read."""
    now = log_files(fs, source.directory)
    for name in sorted({*now, *source.facts}):
        if source.facts.get(name) != now.get(name):
            raise RefusedError(
                f"{source.directory / name} changed while it was read: somebody writes to the source; stop it, or"
                " transplant a copy"
            )


class _SourceReading:
    """One pass over a source, which fills a SourceLog. `pieces` are those of a sound log, which is not read again."""

    def __init__(
        self,
        found: SourceLog,
        listing: PartitionListing,
        checkpoints: SourceCheckpoints,
        progress: BytesRead,
        pieces: Mapping[int, WalkedEntries] | None = None,
    ) -> None:
        self._found, self._listing, self._checkpoints, self._progress = found, listing, checkpoints, progress
        self._pieces = pieces
        self._surveyor = SegmentSurveyor(found.fs)
        self._last_offset = _NO_OFFSET
        marker = found.directory.parent / filenames.CLEAN_SHUTDOWN_FILE
        self._clean_shutdown = found.fs.status(marker) is not None

    def read(self) -> None:
        source, segments = self._found, list(self._listing.segments)
        source.log_start, source.committed_below = self._checkpoints.of(source.directory)
        if not segments:
            raise RefusedError(f"{source.directory} holds no segment: there is nothing to transplant")
        self._require_whole(segments)
        while len(segments) > 1 and segments[1].base_offset <= source.log_start:
            source.left_behind.append(segments.pop(0).log.name)
        source.log_start = max(source.log_start, segments[0].base_offset)
        if self._pieces is None:
            self._walk(segments)
        else:
            for segment in segments:
                self._take_whole(segment, self._pieces.get(segment.base_offset))
        source.log_end = max(self._last_offset + 1, segments[-1].base_offset)
        if source.log_start > source.log_end:
            raise RefusedError(
                f"{source.directory} ends at offset {source.log_end}, below its log start {source.log_start} in"
                f" {filenames.LOG_START_OFFSET_CHECKPOINT}: a broker would drop all of it; {MENDING}"
            )

    def _walk(self, segments: list[SegmentFiles]) -> None:
        source, walk = self._found, TransactionWalk(self._found.fs, self._listing)
        for ended in walk.ended(self._steps(segments)):
            epoch = source.coordinator_epochs.get(ended.producer_id, _NO_OFFSET)
            source.coordinator_epochs[ended.producer_id] = max(epoch, ended.coordinator_epoch)
        source.open = [transaction for transaction in walk.left_open() if transaction.source == "log"]

    def _take_whole(self, segment: SegmentFiles, piece: WalkedEntries | None) -> None:
        """Takes a segment of a sound log, which has no transactions; `piece` is None for an empty one."""
        largest = -1
        if piece is not None:
            self._take(piece)
            largest = max(largest, int(piece.batches["max_timestamp"].max()))
        self._add_segment(segment, segment.size, largest)

    def _add_segment(self, segment: SegmentFiles, valid_bytes: int, largest: int) -> None:
        taken = SourceSegment(segment.base_offset, segment.log.name, valid_bytes, segment.modified_ms, largest)
        self._found.size += valid_bytes
        self._found.segments.append(taken)

    def _require_whole(self, segments: list[SegmentFiles]) -> None:
        """Raises RefusedError for an empty `.log` with a filled index, unless it is the last one."""
        for segment in segments[:-1]:
            index = None if segment.offset_index is None else self._found.fs.status(segment.offset_index)
            if segment.size == 0 and index is not None and index.size:
                raise RefusedError(
                    f"{segment.log} is empty and its index is not, so the directory was copied in part; {MENDING}"
                )

    def _steps(self, segments: list[SegmentFiles]) -> Iterator[tuple[SegmentFiles, WalkedEntries | Gap]]:
        following = (one.base_offset for one in segments[1:])
        for segment in segments:
            yield from self._segment(segment, next(following, None))

    def _segment(
        self, segment: SegmentFiles, following: int | None
    ) -> Iterator[tuple[SegmentFiles, WalkedEntries | Gap]]:
        """Yields the good pieces of a segment. Its offsets must lie below `following`, the base offset of the next one;
        None for the last segment."""
        found, offsets, is_last = self._found, PlausibleOffsets.of_segment(segment.base_offset), following is None
        if following is not None:
            offsets = PlausibleOffsets(offsets.least, min(offsets.most, following - 1))
        largest, damage = -1, None
        for step in LogWalk(found.fs, segment.log, offsets=offsets):
            if isinstance(step, Gap):
                damage = damage or CorruptRecordError(segment.log, step.why, step.position)
                continue
            good, reason = self._good(segment, step, offsets)
            if good and damage is not None:
                raise _refused(damage)
            if reason is not None:
                damage = damage or reason
                if np.any(step.valid[good:]) or not is_last:
                    raise _refused(damage)
            if good:
                taken = _front(step, good)
                self._take(taken)
                largest = max(largest, int(taken.batches["max_timestamp"].max()))
                yield segment, taken
        valid = segment.size
        if damage is not None:
            valid = self._torn(segment, damage, is_last)
        self._add_segment(segment, valid, largest)

    def _torn(self, segment: SegmentFiles, damage: CorruptRecordError, is_last: bool) -> int:
        """Returns the valid bytes of a segment with a damaged end. Raises the damage if no crash explains it."""
        position = damage.position or 0
        if not is_last or (damage.first_offset is not None and self._clean_shutdown):
            raise _refused(damage)
        self._found.torn = f"{segment.log.name} from position {position} on: {damage.reason}"
        self._found.torn_bytes = segment.size - position
        return position

    def _good(
        self, segment: SegmentFiles, step: WalkedEntries, offsets: PlausibleOffsets
    ) -> tuple[int, CorruptRecordError | None]:
        """Returns the number of good batches before the first bad one of a piece, and what is wrong with that."""
        judged = self._surveyor.verdicts(segment.log, step, offsets)
        rows = step.batches
        before = np.concatenate(([self._last_offset], rows["last_offset"][:-1]))
        descends = (rows["base_offset"] <= before) & (judged.bits == 0)
        wrong = np.flatnonzero((judged.bits != 0) | descends)
        if not len(wrong):
            return len(rows), None
        at = int(wrong[0])
        row, bits = rows[at], int(judged.bits[at])
        reason = code_of(bits) if bits else "its offsets are not above those before it"
        return at, batch_error(CorruptRecordError, segment.log, reason, row)

    def _take(self, piece: WalkedEntries) -> None:
        rows = piece.batches
        self._last_offset = int(rows["last_offset"][-1])
        self._found.batches += len(rows)
        self._found.changes.add(counted(rows))
        self._progress(int(rows["size"].sum(dtype=np.int64)))


def _front(piece: WalkedEntries, count: int) -> WalkedEntries:
    """Returns the first batches of a piece."""
    if count == len(piece.batches):
        return piece
    rows = piece.batches[:count]
    end = int(rows["position"][-1]) + int(rows["size"][-1]) - piece.position
    return replace(piece, data=piece.data[:end], batches=rows, valid=piece.valid[:count])


def _refused(damage: CorruptRecordError) -> RefusedError:
    return RefusedError(f"{damage}; {MENDING}")
