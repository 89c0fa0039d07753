"""Finds offsets that a log once had but that no file holds any more, from everything that still mentions them.

A damaged file shows its damage; a missing one shows nothing. The evidence for it is called a witness:

- the checkpoints: high watermark, recovery point, log start, the cleaner's first dirty offset;
- names: producer snapshots, and indexes whose log is gone;
- leader epochs that begin after the log's end, or in a hole;
- offsets that groups have committed (weaker, because a client may commit any offset; no witness at all of a longer log
  where the broker's own checkpoints agree with the end).

What compaction, retention and tiered storage remove is not a loss: a hole counts only where nothing was compacted, a
later beginning only if the log start did not move. A replica also has its leader's holes, and the batch after a hole
may begin a segment, so a hole without a witness is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np

from seglog.errors import CorruptCheckpointError, CorruptionError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.filenames import FileKind, parse_file_name
from seglog.format.producer_snapshot import decode_snapshot
from seglog.format.repair_note import NOTE_BYTES_LIMIT, Gap, parse_note
from seglog.model import TopicPartition
from seglog.scan.index_files import MOST_INDEX_BYTES, read_index
from seglog.scan.listing import NamedFile, PartitionListing, SegmentFiles
from seglog.scan.log_walk import WalkedEntries
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.codes import Severity
from seglog.verification.findings import Finding, finding
from seglog.verification.surroundings import Surroundings

LOG_MISSING = "LOG_MISSING"
SEGMENT_MISSING = "SEGMENT_MISSING"
LOG_END_MISSING = "LOG_END_MISSING"
COMMITTED_BEYOND_END = "COMMITTED_BEYOND_END"

_MOST_NAMED = 4  # witnesses that a message names


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """The extent of a segment's batches. `cut_short`: bytes at the file's end are not a good batch."""

    file: str
    base_offset: int
    next_offset: int
    size: int
    cut_short: bool


@dataclass(slots=True)
class LogExtent:
    """The segments of a log, in order.

    `thinned_at` is the last offset within a segment that no batch covers or that has no record, which is the trace of
    compaction, a repair or damage (-1: none, None: unknown).
    """

    segments: list[SegmentExtent] = field(default_factory=list)
    thinned_at: int | None = -1
    first_timestamp: int = -1

    @property
    def end_offset(self) -> int | None:
        """The offset after the last batch, None without segments."""
        return self.segments[-1].next_offset if self.segments else None


class ExtentObserver:
    """Collects the extent of a log during a walk over its batches."""

    def __init__(self) -> None:
        self.extent = LogExtent()
        self._segment: SegmentFiles | None = None
        self._next_offset = self._end = 0

    def begin(self, segment: SegmentFiles) -> None:
        """Starts a segment."""
        self._segment, self._next_offset, self._end = segment, segment.base_offset, 0

    def take(self, piece: WalkedEntries) -> Iterator[Finding]:
        """Notes the good batches of `piece`."""
        good = piece.batches[piece.valid]
        if len(good):
            self._note(good)
        return iter(())

    def finish(self) -> Iterator[Finding]:
        """Ends a segment."""
        if self._segment is not None:
            cut_short = self._end < self._segment.size
            name, base = self._segment.log.name, self._segment.base_offset
            extent = SegmentExtent(name, base, max(self._next_offset, base), self._segment.size, cut_short)
            self.extent.segments.append(extent)
        return iter(())

    def _note(self, good: np.ndarray) -> None:
        last = good["last_offset"]
        if self.extent.first_timestamp < 0:
            self.extent.first_timestamp = int(good["max_timestamp"][0])
        # a legacy wrapper's first offset is unknown before decoding
        begins = np.where(good["magic"] >= 2, good["base_offset"], last)
        expected = np.concatenate(([self._next_offset], last[:-1] + 1))
        ends = good["position"].astype(np.int64) + good["size"]
        adjacent = good["position"] == np.concatenate(([self._end], ends[:-1]))  # otherwise damage lies between
        thin = (adjacent & (begins > expected)) | (good["count"] < last - begins + 1)
        missing = (good["magic"] >= 2) & thin
        if missing.any() and self.extent.thinned_at is not None:
            at = int(np.flatnonzero(missing)[-1])
            self.extent.thinned_at = max(self.extent.thinned_at, int(last[at]))
        self._next_offset = max(self._next_offset, int(last.max()) + 1)
        self._end = int(ends[-1])


class _Trust(IntEnum):
    """How far a witness is trusted."""

    SUPPORTING = 0  # only beside other witnesses: it may mean a partition of the same name that was deleted long ago
    WEAK = 1
    STRONG = 2


_CHECKPOINTS = {
    filenames.HIGH_WATERMARK_CHECKPOINT: ("high watermark", _Trust.STRONG),
    filenames.RECOVERY_POINT_CHECKPOINT: ("recovery point", _Trust.STRONG),
    filenames.LOG_START_OFFSET_CHECKPOINT: ("log start", _Trust.STRONG),
    filenames.CLEANER_OFFSET_CHECKPOINT: ("cleaner's first dirty offset", _Trust.SUPPORTING),
}


@dataclass(frozen=True, slots=True)
class _Witness:
    """Evidence that the log reached `reached` (exclusive), and perhaps that a segment began at `base`."""

    text: str
    reached: int
    trust: _Trust = _Trust.STRONG
    base: int | None = None


def losses_of(fs: FileSystem, listing: PartitionListing, extent: LogExtent, around: Surroundings) -> Iterator[Finding]:
    """Yields the offsets that a partition with the files `listing` and the batches `extent` has lost. The severity is
    INFO if nothing proves that they ever held records, WARNING if committed offsets or the hole itself are the only
    evidence.

    For a directory that is not served under its name (future, deleted, stray) only its own files count. Raises OSError.
    """
    yield from _Losses(fs, listing, extent, around).found()


def lost_before(fs: FileSystem, listing: PartitionListing, around: Surroundings) -> Finding | None:
    """Returns what is lost below the first segment, None if nothing shows that it was more than deleted. Opens no log.
    Raises OSError."""
    if not listing.segments:
        return None
    first = listing.segments[0]
    extent = LogExtent([SegmentExtent(first.log.name, first.base_offset, first.base_offset, first.size, False)])
    return next(_Losses(fs, listing, extent, around).before(), None)


class _Losses:
    def __init__(self, fs: FileSystem, listing: PartitionListing, extent: LogExtent, around: Surroundings) -> None:
        self._fs, self._listing, self._extent, self._around = fs, listing, extent, around
        key = listing.topic_partition
        self._key: TopicPartition | None = key if key is not None and listing.directory.name == str(key) else None
        self._topic = listing.directory.name if key is None else key.topic
        self._epochs = self._read_epochs()
        self._start = self._checkpoint(filenames.LOG_START_OFFSET_CHECKPOINT)

    def found(self) -> Iterator[Finding]:
        if not self._extent.segments:
            yield self._all()
            return
        yield from self.before()
        # a broker will finish an interrupted swap; until then the log seems to have a hole
        if not any(path.name.endswith(".log.swap") for path in self._listing.leftovers):
            yield from self._holes()
        yield from self._tail()

    # --- the three places ---------------------------------------------------------------------------------

    def _all(self) -> Finding:
        first = self._start or min((entry.start_offset for entry in self._epochs), default=0)
        witnesses = self._beyond(first)
        if not witnesses:
            message = "there is no .log file; nothing shows that the partition ever held records"
            return self._lost(LOG_MISSING, Severity.INFO, "", message)
        message = f"there is no .log file, but the partition held records: {_texts(witnesses)}"
        last = max(witness.reached for witness in witnesses) - 1
        return self._lost(LOG_MISSING, _severity(witnesses), "", message, first, last)

    def before(self) -> Iterator[Finding]:
        """Yields what is lost below the first segment."""
        base = self._extent.segments[0].base_offset
        witnesses = [witness for witness in self._orphans() if witness.base is not None and witness.base < base]
        witnesses = [witness for witness in witnesses if witness.reached > (self._start or 0)]
        known_start = self._start is not None and 0 <= self._start < base
        if known_start and self._around.clean:
            witnesses.append(_Witness(f"the checkpointed log start is {self._start}", base, base=self._start))
        began = max(self._epochs[0].start_offset, 0) if self._epochs else base
        moved = self._start is not None and self._start > began
        only_compacted = self._around.compacted(self._topic) is True and self._around.deletes(self._topic) is False
        if began < base and not moved and only_compacted:
            text = f"{filenames.LEADER_EPOCH_CHECKPOINT} begins at {began}, and the topic's policy never deletes"
            witnesses.append(_Witness(text, base, base=began))
        tiered = self._around.tiered(self._topic)
        if not witnesses or tiered:
            return
        first = max(min(witness.base for witness in witnesses if witness.base is not None), self._start or 0)
        # a log start before the first segment may also mean that older segments are in tiered storage
        only_start = tiered is None and len(witnesses) == 1 and witnesses[0].base == self._start
        loss = self._missing(first, base, witnesses, Severity.WARNING if only_start else Severity.ERROR)
        yield replace(loss, message=f"{loss.message}; they may be in tiered storage") if only_start else loss

    def _holes(self) -> Iterator[Finding]:
        segments = self._extent.segments
        reached, end = 0, segments[-1].next_offset
        for before, after in pairwise(segments):
            if before.next_offset <= end:  # else it has a broken offset
                reached = max(reached, before.next_offset)  # a segment may hold what later names say, too
            first, stop = max(before.next_offset, reached), after.base_offset
            if first >= stop or before.cut_short:
                continue  # offsets lost to damage at a segment's end are reported with the damage
            if self._start is not None and stop <= self._start:
                continue
            first = max(first, self._start or 0)
            names = [
                witness for witness in self._orphans() if witness.base is not None and first <= witness.base < stop
            ]
            dense = self._dense_from
            if dense is not None and dense < stop:
                first = max(first, dense)
                yield self._hole(first, stop, names + self._in_hole(first, stop))
            elif names:
                first = min(witness.base for witness in names if witness.base is not None)
                yield self._missing(first, stop, names, Severity.ERROR)

    def _tail(self) -> Iterator[Finding]:
        last = self._extent.segments[-1]
        end = last.next_offset
        witnesses = self._beyond(end)
        if not witnesses:
            return
        if self._ended_at(end) and not any(witness.trust is _Trust.STRONG for witness in witnesses):
            message = f"{_texts(witnesses)}; the log ends at {end}, as its checkpoints say, and no file shows more"
            yield self._lost(COMMITTED_BEYOND_END, Severity.INFO, last.file, message)
            return
        message = f"the log ends at {end}, but {_texts(witnesses)}"
        reached = max(witness.reached for witness in witnesses)
        yield self._lost(LOG_END_MISSING, _severity(witnesses), last.file, message, end, reached - 1)

    def _missing(self, first: int, stop: int, witnesses: list[_Witness], severity: Severity) -> Finding:
        bases = sorted(witness.base for witness in witnesses if witness.base is not None)
        file = filenames.segment_file_name(max(bases[0] if bases else first, 0))  # damaged files may name any offset
        clues = f": {_texts(witnesses)}" if witnesses else ""
        message = f"no segment holds these offsets; the next one begins at {stop}{clues}"
        deleted = (p.name for p in self._listing.leftovers if p.name.endswith(".log.deleted"))
        here = [name for name in deleted if first <= int(name.partition(".")[0]) < stop]
        message += f"; {here[0]} still exists" if here else ""
        return self._lost(SEGMENT_MISSING, severity, file, message, first, stop - 1)

    def _lost(
        self, code: str, severity: Severity, file: str, message: str, first: int | None = None, last: int | None = None
    ) -> Finding:
        where = {"first_offset": first, "last_offset": last}
        lost = 0 if first is None or last is None else max(0, last + 1 - first)
        return finding(
            code, name_of(self._listing.directory), file, message, severity=severity, offsets_lost=lost, **where
        )

    # --- lawful gaps --------------------------------------------------------------------------------------

    @cached_property
    def _dense_from(self) -> int | None:
        """The offset from which nothing was compacted, so that no record may be missing. None if unknown."""
        thinned = self._extent.thinned_at
        compacted = self._around.compacted(self._topic)
        dirty = self._checkpoint(filenames.CLEANER_OFFSET_CHECKPOINT)
        if thinned is None or (compacted is not False and dirty is None and not self._around.broker_files):
            return None  # for a directory by itself, nothing shows how far it was cleaned
        # if records are missing all the same, the log was repaired, or copied from a leader that had compacted it
        least = dirty or 0
        return least if thinned < least else None

    def _hole(self, first: int, stop: int, witnesses: list[_Witness]) -> Finding:
        """Returns the loss for a hole in a log that was never compacted; INFO if repair notes explain all of it."""
        gaps, unreadable = self._noted_gaps
        reached = first
        for gap in gaps:
            if gap[0] <= reached:
                reached = max(reached, gap[1] + 1)
        if reached >= stop:
            loss = self._missing(first, stop, witnesses, Severity.INFO)
            return replace(loss, message=f"{loss.message}; a repair removed them together with damage")
        if witnesses:
            return self._missing(first, stop, witnesses, Severity.ERROR)
        loss = self._missing(first, stop, witnesses, Severity.WARNING)
        cause = "the files of a segment are gone, or this is a copy of a log that never had them"
        return replace(loss, message="; ".join((loss.message, cause, *unreadable)))

    @cached_property
    def _noted_gaps(self) -> tuple[list[Gap], list[str]]:
        """The gaps in repair notes, ascending, and the errors of unreadable notes."""
        gaps: list[Gap] = []
        unreadable: list[str] = []
        for path in self._listing.repair_notes:
            try:
                gaps += parse_note(self._fs.read_bytes(path, NOTE_BYTES_LIMIT), path)
            except (CorruptionError, RefusedError) as error:
                unreadable.append(str(error))
        return sorted(gaps), unreadable

    # --- witnesses ----------------------------------------------------------------------------------------

    def _witnesses(self) -> list[_Witness]:
        """Returns all evidence on how far the log reached."""
        witnesses = [
            _Witness(f"the {what} is {offset}", offset, trust)
            for name, (what, trust) in _CHECKPOINTS.items()
            if (offset := self._checkpoint(name)) is not None
        ]
        snapshots = self._listing.snapshots[-1:]
        witnesses += [_Witness(f"{snapshot.path.name} exists", snapshot.offset) for snapshot in snapshots]
        # an epoch without records begins at the log's end
        witnesses += [
            _Witness(f"leader epoch {entry.epoch} begins at {entry.start_offset}", entry.start_offset)
            for entry in self._epochs[-1:]
        ]
        witnesses += self._orphans()
        committed = None if self._key is None else self._around.committed.get(self._key)
        if committed is not None:
            kind = "share group" if committed.share else "group"
            text = f"{kind} {committed.group} has read up to {committed.offset}"
            witnesses.append(_Witness(text, committed.offset, _Trust.WEAK))
        return witnesses

    def _beyond(self, offset: int) -> list[_Witness]:
        """Returns the witnesses that the log reached beyond `offset`; none if all of them are only supporting."""
        beyond = [witness for witness in self._witnesses() if witness.reached > offset]
        return beyond if any(witness.trust > _Trust.SUPPORTING for witness in beyond) else []

    def _ended_at(self, end: int) -> bool:
        """True if a broker wrote this end into a checkpoint: then a committed offset above it is its client's own."""
        names = (filenames.HIGH_WATERMARK_CHECKPOINT, filenames.RECOVERY_POINT_CHECKPOINT)
        return any(self._checkpoint(name) == end for name in names)

    def _in_hole(self, first: int, stop: int) -> list[_Witness]:
        """Returns the snapshots, epochs and producers' batches in a hole of a log that was never compacted.

        An epoch that begins exactly at the hole does not count: its leader may have written nothing.
        """
        witnesses = [
            _Witness(f"{snapshot.path.name} exists", snapshot.offset, base=snapshot.offset)
            for snapshot in self._listing.snapshots
            if first <= snapshot.offset < stop
        ]
        witnesses += [
            _Witness(f"leader epoch {entry.epoch} begins at {entry.start_offset}", entry.start_offset)
            for entry in self._epochs
            if first < entry.start_offset < stop
        ]
        return witnesses + self._producers_in(first, stop)

    def _producers_in(self, first: int, stop: int) -> list[_Witness]:
        """Returns the producer whose last batch lay furthest in a hole, by the first snapshot after the hole."""
        snapshot = next((entry for entry in self._listing.snapshots if entry.offset >= stop), None)
        if snapshot is None:
            return []
        try:
            entries = decode_snapshot(self._fs.read_bytes(snapshot.path), snapshot.path)
        except (CorruptionError, RefusedError):
            return []  # has its own finding
        inside = [entry for entry in entries if first <= entry.last_offset < stop]
        if not inside:
            return []
        last = max(inside, key=lambda entry: entry.last_offset)
        text = f"{snapshot.path.name} has a batch of producer {last.producer_id} that ended at {last.last_offset}"
        return [_Witness(text, last.last_offset + 1)]

    def _orphans(self) -> list[_Witness]:
        """Returns the live indexes whose log is gone, except those that a broker was deleting."""
        leaving = (path.name for path in self._listing.leftovers if path.name.endswith(".log.deleted"))
        deleted = {name.partition(".")[0] for name in leaving}
        witnesses: dict[int, _Witness] = {}
        for index in self._listing.orphans:
            if index.path.name.partition(".")[0] in deleted:
                continue
            reached = max(_reached(self._fs, index), index.offset)
            witness = witnesses.get(index.offset)
            if witness is None or witness.reached < reached:
                witnesses[index.offset] = _Witness(f"{index.path.name} exists", reached, base=index.offset)
        return [witnesses[base] for base in sorted(witnesses)]

    def _checkpoint(self, name: str) -> int | None:
        """Returns the offset in a checkpoint, None if it belongs to a deleted partition of the same name."""
        if self._key is None:
            return None
        offset = self._around.offset(name, self._key)
        return None if offset is None or self._is_of_predecessor(name) else offset

    def _is_of_predecessor(self, name: str) -> bool:
        """True if the checkpoint is older than `partition.metadata`, and the first record is not."""
        metadata = self._listing.partition_metadata
        status = None if metadata is None else self._fs.status(metadata)
        if status is None or self._around.written_ms.get(name, status.modified_ms) >= status.modified_ms:
            return False
        return self._extent.first_timestamp < 0 or self._extent.first_timestamp >= status.modified_ms

    def _read_epochs(self) -> tuple[EpochEntry, ...]:
        path = self._listing.leader_epoch_checkpoint
        if path is None:
            return ()
        try:
            return parse_leader_epochs(self._fs.read_bytes(path), path)
        except (CorruptCheckpointError, RefusedError):
            return ()  # has its own finding


def _reached(fs: FileSystem, index: NamedFile) -> int:
    """Returns the offset after the last one in an index whose log is gone; its base offset if it has no entries."""
    name = parse_file_name(index.path.name)
    if name is None or index.size > MOST_INDEX_BYTES or name.kind is FileKind.TRANSACTION_INDEX:
        return index.offset
    rows = read_index(fs, index.path, index.offset, past_zeros=True).rows
    return int(rows["offset"].max()) + 1 if len(rows) else index.offset


def _severity(witnesses: list[_Witness]) -> Severity:
    return Severity.ERROR if any(witness.trust is _Trust.STRONG for witness in witnesses) else Severity.WARNING


def _texts(witnesses: list[_Witness]) -> str:
    ordered = sorted(witnesses, key=lambda witness: (-witness.trust, -witness.reached))
    named = ", ".join(witness.text for witness in ordered[:_MOST_NAMED])
    more = len(ordered) - _MOST_NAMED
    return named if more <= 0 else f"{named} and {more} more"
