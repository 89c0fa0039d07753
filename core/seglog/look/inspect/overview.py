"""Lists partitions, their segments and leftovers, with sizes, offsets and times (`seglog ls`).

Uses file names, `stat` and indexes. For a log's last offset and newest timestamp it reads only the end of the last
segment, from the newest index entry that points to a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from seglog.errors import CorruptCheckpointError, NotALogError, RefusedError
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.format.decoder import scan_batches
from seglog.format.filenames import LOG_START_OFFSET_CHECKPOINT, PartitionState, parse_partition_directory
from seglog.model import TopicPartition
from seglog.scan.announcing import announced, ends
from seglog.scan.index_files import index_rows, small_indexes
from seglog.scan.listing import (
    PartitionListing,
    SegmentFiles,
    Target,
    TargetKind,
    list_log_directory,
    list_partition,
    log_directory_of,
    require_segment,
)
from seglog.scan.segment_scan import entry_row
from seglog.storage.filesystem import FileSystem
from seglog.storage.frozen import VanishedError
from seglog.storage.links import name_of

_NO_ENTRIES = np.zeros(0, dtype=[("timestamp", np.int64), ("position", np.int64)])
_PIECE_BYTES = 1 << 14
_ATTEMPTS = 20  # a broker may remove files between listing and reading


@dataclass(frozen=True, slots=True)
class SegmentOverview:
    """One segment. `size` is that of the `.log`, `index_size` that of its indexes, in bytes. `end_offset` (exclusive)
    is the next segment's base offset; for the last segment it is read from the `.log`. `max_timestamp` is in epoch
    milliseconds, None if no time index shows it.
    """

    file: str
    base_offset: int
    end_offset: int | None
    size: int
    index_size: int
    modified_ms: int
    max_timestamp: int | None
    active: bool


@dataclass(frozen=True, slots=True)
class PartitionOverview:
    """One partition directory. `format` is "kafka" or "0.7", whose offsets are byte positions. `state` is "live",
    "delete", "stray" or "future".
    """

    directory: Path
    partition: str
    state: str
    format: str
    size: int
    start_offset: int | None
    end_offset: int | None
    modified_ms: int | None
    segments: tuple[SegmentOverview, ...]
    leftovers: tuple[str, ...]
    strangers: tuple[str, ...]

    def __repr__(self) -> str:
        offsets = f"offsets {self.start_offset} to {self.end_offset}"
        what = f"{self.state}, {len(self.segments)} segments, {self.size} bytes, {offsets}"
        return f"<PartitionOverview {self.partition}: {what}>"


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A partition that could not be read, and the error."""

    directory: Path
    error: OSError | NotALogError


def overview(
    fs: FileSystem, targets: Sequence[Target], *, log_starts: bool = True
) -> Iterator[PartitionOverview | Unlisted]:
    """Yields each partition of `targets`, in order, or the error if it cannot be read. Changes nothing.

    A live partition begins at its log start, which may lie within its first segments, after DeleteRecords. Without
    `log_starts` it begins where its first segment does, and no checkpoint is read.

    While a broker runs, each partition is listed at a different moment; one deleted in the meantime is left out. A
    segment stands for its partition. Raises NotALogError for any other file.
    """
    starts: dict[Path, Mapping[TopicPartition, int]] = {}
    for target in targets:
        require_segment(target)
        log_directory = log_directory_of(target)
        if log_directory not in starts:
            starts[log_directory] = _log_starts(fs, log_directory) if log_starts else {}
        starts_here = starts[log_directory]
        if target.kind is not TargetKind.LOG_DIRECTORY:
            yield _from_log_start(_overview_of(fs, target.directory, PartitionState.LIVE), starts_here)
            continue
        partitions = list_log_directory(fs, target.path).partitions
        for partition in announced(fs, partitions, attrgetter("path"), ends):
            row = _from_log_start(_overview_of(fs, partition.path, partition.state), starts_here)
            if isinstance(row, PartitionOverview) or fs.status(partition.path, follow=False) is not None:
                yield row


def _log_starts(fs: FileSystem, log_directory: Path) -> Mapping[TopicPartition, int]:
    """Returns the log start offsets that the broker has noted; none if they cannot be read: `verify` says why.

    A broker that cannot read the file begins each log at its first segment, as one does that was killed before it
    wrote it (a minute after DeleteRecords, and at a stop in order).
    """
    path = log_directory / LOG_START_OFFSET_CHECKPOINT
    try:
        return parse_offset_checkpoint(fs.read_bytes(path), path)
    except (OSError, CorruptCheckpointError, RefusedError):
        return {}


def _from_log_start(
    one: PartitionOverview | Unlisted, starts: Mapping[TopicPartition, int]
) -> PartitionOverview | Unlisted:
    """Returns a live partition with its log start, if that lies in the log."""
    if isinstance(one, Unlisted) or one.state != "live" or one.start_offset is None or not starts:
        return one
    name = parse_partition_directory(one.partition)
    start = None if name is None else starts.get(name.topic_partition)
    if start is None or not one.start_offset < start <= (one.end_offset or 0):
        return one
    return replace(one, start_offset=start)


def _overview_of(fs: FileSystem, directory: Path, state: PartitionState) -> PartitionOverview | Unlisted:
    problem: OSError | NotALogError = VanishedError(directory)
    for _ in range(_ATTEMPTS):
        try:
            return partition_overview(fs, list_partition(fs, directory), state)
        except FileNotFoundError as error:
            problem = error
        except (OSError, NotALogError) as error:
            return Unlisted(directory, error)
    return Unlisted(directory, problem)


def partition_overview(fs: FileSystem, listing: PartitionListing, state: PartitionState) -> PartitionOverview:
    """Describes a listed partition. Raises OSError."""
    segments, is_07 = [], listing.format == "0.7"
    held = {} if is_07 else small_indexes(fs, listing, log_bytes=_PIECE_BYTES)
    for i, segment in enumerate(listing.segments):
        following = listing.segments[i + 1].base_offset if i + 1 < len(listing.segments) else None
        segments.append(_segment(fs, segment, following, None if is_07 else held))
    return PartitionOverview(
        directory=listing.directory,
        partition=name_of(listing.directory),
        state=state.value.removeprefix("-") or "live",
        format=listing.format,
        size=listing.size,
        start_offset=segments[0].base_offset if segments else None,
        end_offset=segments[-1].end_offset if segments else None,
        modified_ms=max((segment.modified_ms for segment in segments), default=None),
        segments=tuple(segments),
        leftovers=tuple(path.name for path in listing.leftovers),
        strangers=tuple(path.name for path in listing.strangers),
    )


def _segment(
    fs: FileSystem, segment: SegmentFiles, following: int | None, held: Mapping[str, bytes] | None
) -> SegmentOverview:
    """Describes a segment with the small files that are `held`; None is one of Kafka 0.7."""
    end, newest = following, None
    if held is None:
        end = segment.base_offset + segment.size
    else:
        rows = _index(fs, segment.time_index, segment.base_offset, held)
        newest = int(rows["timestamp"].max()) if len(rows) else None
        if following is None:
            end, seen = _end_of(fs, segment, held)
            newest = max((t for t in (newest, seen) if t is not None and t >= 0), default=None)
    return SegmentOverview(
        file=segment.log.name,
        base_offset=segment.base_offset,
        end_offset=end,
        size=segment.size,
        index_size=segment.index_size,
        modified_ms=segment.modified_ms,
        max_timestamp=newest,
        active=following is None,
    )


def _end_of(fs: FileSystem, segment: SegmentFiles, held: Mapping[str, bytes]) -> tuple[int, int | None]:
    """Returns (end offset, largest timestamp seen) of the last segment, from the headers after its last index entry."""
    rows = _index(fs, segment.offset_index, segment.base_offset, held)
    position = int(rows["position"][-1]) if len(rows) else 0
    data = held.get(segment.log.name)
    if data is not None:
        return _walked(
            segment.base_offset, position, len(data), lambda at, size: data[at : at + size], lambda _at: None
        )
    with fs.open(segment.log, "r") as file:
        size = file.size()
        return _walked(segment.base_offset, position, size, file.read_at, lambda at: entry_row(file, at, size))


def _walked(
    base_offset: int,
    position: int,
    size: int,
    read_at: Callable[[int, int], bytes],
    large_at: Callable[[int], np.ndarray | None],
) -> tuple[int, int | None]:
    """Returns `_end_of` a log of `size` bytes from `position` on. `large_at` finds a batch larger than a piece."""
    end, newest = base_offset, None
    position = position if 0 <= position < size else 0
    while position < size:
        data = np.frombuffer(read_at(position, min(_PIECE_BYTES, size - position)), dtype=np.uint8)
        scanned = scan_batches(data, 0, len(data), position).batches
        batches = scanned if len(scanned) else large_at(position)
        if batches is None and position and newest is None:
            position = 0  # the index led to no batch
            continue
        if batches is None:
            break
        end = max(end, int(batches["last_offset"].max()) + 1)
        newest = max(int(batches["max_timestamp"].max()), -1 if newest is None else newest)
        position = int(batches["position"][-1]) + int(batches["size"][-1])
    return end, newest


def _index(fs: FileSystem, path: Path | None, base_offset: int, held: Mapping[str, bytes]) -> np.ndarray:
    if path is not None:
        with suppress(FileNotFoundError, RefusedError):  # a broker removes files; one is too large for an index
            return index_rows(fs, path, base_offset, held)
    return _NO_ENTRIES
