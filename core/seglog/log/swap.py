"""Replacing segments by others so that a crash at any point leaves the old ones or the new ones, never a mixture.

Kafka: LocalLog.replaceSegments, and the first three passes of LogLoader.load (specification §12.7, §10.2).

Replacing:

1. The new segments are complete and fsynced as `.cleaned`; if there are several, their names are made durable.
2. From the highest base to the lowest, rename each to `.swap`. Until the last rename a `.cleaned` file with a lower or
   equal base exists, so a crash discards all of them. (A single segment needs no such order: its `.log` is renamed
   first and is the whole replacement; an index whose new name is lost is rebuilt.)
3. Rename the old segments to `.deleted`, from the highest base to the lowest: a live one that reaches beyond the new
   ones goes before those that show the new ones to be a cleaning of it.
4. From the lowest base to the highest, give the new ones their final names.
5. Rename snapshots at bases without a segment to `.deleted`.

Neighbouring replacements, at most AT_ONCE, take these steps together, so all of them wait for the disk as often as one.
A crash leaves all of them old, or all of them new.

Finishing after a crash (`settle_leftovers`):

1. Delete `.deleted` files, and half-written `.tmp` files (which Kafka keeps until it overwrites them). Delete the
   `.swap` files at or above the lowest `.cleaned`, then all `.cleaned`.
2. Each remaining `.swap` belongs to a completed replacement: delete the live files in the offsets that it covers.
3. Give the `.swap` files their final names.

The directory is fsynced after each of these steps: no rename may reach the disk before those of the previous step. If a
replacement has several segments, it is fsynced after each of their renames in step 2, too.

Splitting (Kafka: LocalLog.splitOverflowedSegment): old brokers' cleaners could merge segments too far, so that offsets
do not fit 31 bits relative to the base. Whole batches are copied into new segments; when a batch does not fit, a new
one begins at that batch's base offset. Then these replace the old segment. Bytes that are not a batch stay after the
last one, for recovery to judge.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from seglog import layout
from seglog.errors import SegmentOffsetOverflowError
from seglog.format.decoder import WRONG_CHECKSUM
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, FileState, parse_file_name
from seglog.log.producer_state import ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.scan.segment_scan import Chunk, EndReason
from seglog.storage.files import copy_range
from seglog.storage.filesystem import TEMPORARY_SUFFIX, FileSystem
from seglog.units import count_text

AT_ONCE = 16  # replacements that take the steps together: the work that a crash can cost

_logger = logging.getLogger(__name__)

_HALF_WRITTEN = f"{LEADER_EPOCH_CHECKPOINT}{TEMPORARY_SUFFIX}"
_IDENTITY = ["base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "magic"]
_CONTENTS = ["base_offset", "last_offset", "size", "crc"]
_DELETED, _CLEANED, _SWAP = FileState.DELETED.value, FileState.CLEANED.value, FileState.SWAP.value


@dataclass(frozen=True, slots=True)
class ReplacedLog:
    """A live `.log` of `size` bytes that is replaced by `.swap` files without all of its data.

    Its offsets end at `end_offset` (exclusive), theirs at `swap_end_offset`; `reason` is the fault in them.
    """

    path: Path
    size: int
    end_offset: int
    swap_end_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {count_text(self.size, 'byte')} up to offset {self.end_offset - 1} are replaced by"
            f" {self.path.name}{_SWAP}: {self.reason}"
        )


@dataclass(slots=True)
class Settled:
    """What `settle_leftovers` did: files removed and renamed, in order; `replaced` are the logs that lost data."""

    removed: list[Path] = field(default_factory=list)
    renamed: list[tuple[Path, Path]] = field(default_factory=list)
    replaced: list[ReplacedLog] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Neighbouring `old` segments and the `new` ones for them, in state CLEANED, complete and fsynced."""

    new: Sequence[LogSegment]
    old: Sequence[LogSegment]


def runs_of_neighbours(segments: LogSegments, replacements: Sequence[Replacement]) -> Iterator[list[Replacement]]:
    """Yields ascending replacements in runs for `replace_segments`: at most AT_ONCE, without a segment in between.

    After a crash, a segment between two of them would count as replaced.
    """
    numbers = {segment.base_offset: number for number, segment in enumerate(segments)}
    run: list[Replacement] = []
    following = -1
    for replacement in replacements:
        if run and (len(run) == AT_ONCE or numbers[replacement.old[0].base_offset] != following):
            yield run
            run = []
        run.append(replacement)
        following = numbers[replacement.old[-1].base_offset] + 1
    if run:
        yield run


def replace_segments(
    segments: LogSegments,
    run: Sequence[Replacement],
    producers: ProducerStateManager | None = None,
    *,
    named: bool = False,
    over: bool = False,
) -> list[Path]:
    """Swaps segments on disk and in `segments`; returns the `.deleted` files, for the caller to remove.

    `run` is one of `runs_of_neighbours`; `named`: the names of the new ones are already on stable storage. With `over`
    each new segment has the base of the one old segment that it replaces, and step 3 is left out: step 4 renames it
    over the old one, so that no file keeps the old bytes.
    """
    ascending = sorted((new for each in run for new in each.new), key=lambda segment: segment.base_offset)
    old = [segment for each in run for segment in each.old]
    tied = {segment.base_offset for each in run if len(each.new) > 1 for segment in each.new}
    fs, directory = ascending[0].fs, ascending[0].directory
    if len(ascending) > 1 and not named:
        fs.sync_directory(directory)
    for segment in reversed(ascending):
        segment.rename_to(FileState.SWAP)
        if segment.base_offset in tied:
            fs.sync_directory(directory)
    if ascending[0].base_offset not in tied:
        fs.sync_directory(directory)
    for segment in old:
        segment.close_files()
    deleted = [] if over else retire_segments(old, None)
    for segment in ascending:
        segment.rename_to(FileState.LIVE)
    fs.sync_directory(directory)
    segments.replace(ascending, old)
    bases = {segment.base_offset for segment in ascending}
    gone = [segment.base_offset for segment in old if segment.base_offset not in bases]
    return deleted if producers is None else deleted + retire_snapshots(fs, producers, gone)


def retire_segments(old: Sequence[LogSegment], first: Literal["newest", "oldest"] | None) -> list[Path]:
    """Renames segments to `.deleted`, durably; returns the files' new names.

    At the end of a log the newest goes `first`, at its start the oldest, each durably before the next: a crash leaves a
    shorter log, never a hole. With None, for a swap, all are renamed newest first and made durable together.
    """
    deleted: list[Path] = []
    for segment in sorted(old, key=lambda found: found.base_offset, reverse=first != "oldest"):
        segment.rename_to(FileState.DELETED)
        deleted.extend(segment.files)
        if first is not None:
            segment.fs.sync_directory(segment.directory)
    if old and first is None:
        old[0].fs.sync_directory(old[0].directory)
    return deleted


def retire_oldest(
    segments: LogSegments, old: Sequence[LogSegment], producers: ProducerStateManager, reasons: Sequence[str]
) -> list[Path]:
    """Removes the oldest segments from the list, logs each one's reason, and renames their files and snapshots to
    `.deleted`; returns the new names.
    """
    for segment, reason in zip(old, reasons, strict=True):
        _logger.info("%s: deleted, %s", segment.path, reason)
        segments.remove(segment.base_offset)
    return retire_segments(old, "oldest") + retire_snapshots(old[0].fs, producers, [s.base_offset for s in old])


def retire_snapshots(fs: FileSystem, producers: ProducerStateManager, offsets: Sequence[int]) -> list[Path]:
    """Renames existing snapshots at `offsets` to `.deleted`; returns the new names."""
    deleted: list[Path] = []
    for offset in offsets:
        path = producers.snapshot_path(offset)
        producers.forget_snapshot(offset)
        if fs.status(path) is not None:
            deleted.append(path.with_name(path.name + _DELETED))
            fs.rename(path, deleted[-1])
    return deleted


def settle_leftovers(fs: FileSystem, directory: Path) -> Settled:
    """Finishes or undoes interrupted replacements, as a starting broker does. A live `.log` may be replaced by `.swap`
    files without all of its data (`Settled.replaced`): who must not lose any tries it on an overlay first.
    """
    settled = Settled()
    swaps = _drop_unfinished(fs, directory, settled)
    if not swaps:
        return settled
    covered = _covered_offsets(fs, directory, swaps)
    settled.replaced += replaced_logs(fs, directory, swaps, covered)
    before = len(settled.removed)
    for name in fs.list(directory):
        offset = _offset_of(name)
        if not name.endswith(_SWAP) and offset is not None and covered[0] <= offset < covered[1]:
            _remove(fs, directory / name, settled)
    if len(settled.removed) > before:
        fs.sync_directory(directory)
    for name in swaps:
        source, target = directory / name, directory / name.removesuffix(_SWAP)
        fs.rename(source, target)
        settled.renamed.append((source, target))
    fs.sync_directory(directory)
    return settled


def replaced_logs(
    fs: FileSystem, directory: Path, swaps: Sequence[str], covered: tuple[int, int]
) -> Iterator[ReplacedLog]:
    """Yields the live logs that lose data if the `.swap` files replace them.

    A complete replacement reaches at least as far as the replaced logs, or is a cleaning of them. An empty, cut or
    damaged one is not complete.
    """
    parsed_swaps = filter(None, map(parse_file_name, swaps))
    bases = {parsed.offset for parsed in parsed_swaps if parsed.kind is FileKind.LOG}
    new = [LogSegment(fs, directory, base, state=FileState.SWAP) for base in sorted(bases)]
    damage = next(filter(None, map(_damage, new)), "")
    old = []
    for parsed in filter(None, map(parse_file_name, fs.list(directory))):
        goes = covered[0] <= parsed.offset < covered[1] or parsed.offset in bases
        if goes and (parsed.kind, parsed.state) == (FileKind.LOG, FileState.LIVE):
            old.append(LogSegment(fs, directory, parsed.offset))
    reason = damage or (f"its offsets end at {covered[1] - 1}" if covered[1] > covered[0] else "it is empty")
    ends = [live.read_next_offset()[0] if live.size else live.base_offset for live in old]
    less = [(live, end) for live, end in zip(old, ends, strict=True) if live.size and (damage or end > covered[1])]
    if less and (damage or not _is_cleaned(new, old)):
        for live, end in less:
            yield ReplacedLog(live.path, live.size, end, covered[1], reason)


def _is_cleaned(new: Sequence[LogSegment], old: Sequence[LogSegment]) -> bool:
    """True if `.swap` logs are a cleaning of live ones: the same batches, some with fewer records, some gone.

    It may end before they do, if their last records have newer versions. Exactly their first batches, or nothing at
    all, does not count: that may be a copy that was cut off. Cleaned batches of magic 0 and 1 are not recognised.
    """
    ours, theirs = _batches(new), _batches(old)
    if not set(ours[_IDENTITY].tolist()) <= set(theirs[_IDENTITY].tolist()):
        return False
    front = theirs[: len(ours)]
    is_front = ours[_CONTENTS].tolist() == front[_CONTENTS].tolist()
    return not is_front and bool((ours["magic"] >= 2).all())


def _batches(segments: Sequence[LogSegment]) -> np.ndarray:
    """Returns the BATCH rows of segments."""
    rows = [chunk.batches.copy() for segment in segments for chunk in segment.scan()]
    return np.concatenate([np.empty(0, dtype=layout.BATCH), *rows])


def _damage(segment: LogSegment) -> str:
    """Returns the fault in the batches of a `.swap` log, or ""."""
    scan = segment.scan()
    for chunk in scan:
        valid = chunk.checksums_valid()
        if not valid.all():
            return f"{WRONG_CHECKSUM} (position {int(chunk.batches['position'][int(np.argmin(valid))])})"
    if scan.end is not None and scan.end.reason is not EndReason.COMPLETE:
        return f"{scan.end.reason.value} (position {scan.end.position})"
    return ""


def _drop_unfinished(fs: FileSystem, directory: Path, settled: Settled) -> list[str]:
    """Step 1; returns the names of the `.swap` files that stay."""
    names = [name for name, found in fs.entries(directory) if not found.is_directory]
    cleaned = [name for name in names if name.endswith(_CLEANED)]
    swaps = [name for name in names if name.endswith(_SWAP)]
    offsets = [offset for offset in map(_offset_of, cleaned) if offset is not None]
    least = min(offsets, default=None)
    for name in names:
        if (name.endswith(_DELETED) and not name.endswith(".checkpoint.deleted")) or _is_half_written(name):
            _remove(fs, directory / name, settled)
    undone = [n for n in swaps if least is not None and (offset := _offset_of(n)) is not None and offset >= least]
    # Only the `.cleaned` files show that these are incomplete: they go last, in a step of their own.
    for name in undone:
        _remove(fs, directory / name, settled)
    if undone:
        fs.sync_directory(directory)
    for name in cleaned:
        _remove(fs, directory / name, settled)
    if settled.removed:
        fs.sync_directory(directory)
    return [name for name in swaps if name not in undone]


def _covered_offsets(fs: FileSystem, directory: Path, swaps: Sequence[str]) -> tuple[int, int]:
    """Returns [least base, greatest next offset) of the `.swap` segments' contents."""
    bounds: list[tuple[int, int]] = []
    for name in swaps:
        parsed = parse_file_name(name)
        if parsed is not None and parsed.kind is FileKind.LOG:
            segment = LogSegment(fs, directory, parsed.offset, state=FileState.SWAP)
            bounds.append((parsed.offset, segment.read_next_offset()[0]))
    return min((b[0] for b in bounds), default=0), max((b[1] for b in bounds), default=0)


def _is_half_written(name: str) -> bool:
    """True for what a crash left of a file that is replaced as a whole (`write_atomically`)."""
    if not name.endswith(TEMPORARY_SUFFIX):
        return False
    parsed = parse_file_name(name)
    return name == _HALF_WRITTEN or (parsed is not None and parsed.kind is FileKind.PRODUCER_SNAPSHOT)


def _offset_of(name: str) -> int | None:
    """Returns the number before the first `.` of a file name, as Kafka reads it, or None."""
    prefix = name.partition(".")[0]
    return int(prefix) if prefix.isascii() and prefix.isdigit() else None


def _remove(fs: FileSystem, path: Path, settled: Settled) -> None:
    status = fs.status(path, follow=False)
    if status is None or not status.is_directory:
        fs.remove(path)
        settled.removed.append(path)


# --- splitting ---------------------------------------------------------------------------------------------


def is_overflowed(segment: LogSegment) -> bool:
    """True if the segment's last offset does not fit it, so that splitting helps."""
    last = segment.read_next_offset()[0] - 1
    return last >= segment.base_offset and not segment.fits(last)


def split_overflowed(segments: LogSegments, segment: LogSegment) -> tuple[list[LogSegment], list[Path]]:
    """Replaces an overflowed segment by several; returns them and the `.deleted` files to remove."""
    modified_ms = segment.modified_ms
    new = _copied(segment)
    tail = segment.size - sum(part.size for part in new)
    if tail:
        with segment.fs.open(segment.path, "r") as source, segment.fs.open(new[-1].path, "r+") as target:
            copy_range(source, segment.size - tail, segment.size, target, new[-1].size)
            target.sync()
    for part in new:
        part.on_become_inactive()
        part.flush()
        for path in part.files[:3]:
            segment.fs.set_modified(path, modified_ms)
        part.close_files()
    return new, replace_segments(segments, [Replacement(new, [segment])])


def _copied(segment: LogSegment) -> list[LogSegment]:
    new: list[LogSegment] = []
    for chunk in segment.scan():
        first = 0
        while first < len(chunk.batches):
            if not new or not new[-1].fits(int(chunk.batches["last_offset"][first])):
                new.append(_part(segment, _first_offset(chunk, first)))
            relative = chunk.batches["last_offset"][first:] - new[-1].base_offset
            outside = np.flatnonzero((relative < 0) | (relative > layout.INT32_MAX))
            last = first + (int(outside[0]) if len(outside) else len(relative))
            if last == first:
                row = chunk.batches[first]
                raise SegmentOffsetOverflowError(
                    segment.path, new[-1].base_offset, int(row["last_offset"]), int(row["position"])
                )
            rows = chunk.batches[first:last]
            begin = int(rows["position"][0]) - chunk.position
            bytes_ = chunk.data[begin : begin + int(rows["size"].sum())] if chunk.complete else chunk.pieces()
            new[-1].append(rows, bytes_)
            first = last
    return new


def _part(segment: LogSegment, base_offset: int) -> LogSegment:
    return LogSegment(
        segment.fs,
        segment.directory,
        base_offset,
        index_interval_bytes=segment.index_interval_bytes,
        state=FileState.CLEANED,
        created_ms=segment.created_ms,
    ).create()


def _first_offset(chunk: Chunk, i: int) -> int:
    """Returns the offset of batch `i`'s first record; a wrapper of magic 0 or 1 must be decoded for it."""
    row = chunk.batches[i]
    if row["magic"] < 2:
        for records in chunk.records(chunk.batches[i : i + 1]):
            if len(records):
                return int(records.rows["offset"][0])
    return int(row["base_offset"])
