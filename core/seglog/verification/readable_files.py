"""The files that a dump or an export reads, partition by partition, each through a stable view.

What cannot be read becomes a finding, and reading continues with the rest. A partition that a broker deletes meanwhile
is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from seglog.errors import NotALogError, UnsupportedError
from seglog.scan.announcing import announced, logs, small_files
from seglog.scan.listing import Target, TargetKind, list_log_directory
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.selection import EVERYTHING, Selection
from seglog.scan.view import PartitionView, SingleFile
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.findings import Finding, finding
from seglog.verification.stretches import Reading, Stretch, stretch_of
from seglog.verification.unsettled import Unsettled, unsettled


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read through `fs`. For a `.log`, `least_offset` is the first requested offset, and a `growing` file may
    end within a batch. `unsettled` is set if only committed records were requested, `stretch` if only a part of the
    file is read.
    """

    fs: FileSystem
    path: Path
    least_offset: int = 0
    growing: bool = False
    unsettled: Unsettled | None = None
    stretch: Stretch | None = None

    def walk(self, *, fresh: bool = False) -> Iterable[WalkedEntries | Gap]:
        """Walks the requested part of a `.log`."""
        return (
            LogWalk(self.fs, self.path, fresh=fresh)
            if self.stretch is None
            else self.stretch.walk(self.fs, self.path, fresh=fresh)
        )

    def first_offset(self, base_offset: int) -> int:
        """Returns the first offset that the walk meets, at the start of the file `base_offset`."""
        found = None if self.stretch is None else self.stretch.first_offset
        return base_offset if found is None else found

    def committed(self, batches: np.ndarray) -> np.ndarray | bool:
        """Returns which of its batches were requested: all, or those of no aborted or open transaction."""
        return True if self.unsettled is None else self.unsettled.committed(batches)


def sources(
    fs: FileSystem,
    target: Target,
    every_file: bool = False,
    *,
    selection: Selection = EVERYTHING,
    limited: bool = False,
    known_unsettled: dict[Path, Unsettled] | None = None,
) -> Iterator[Source | Finding]:
    """Yields the logs that a target names, in order; with `every_file` also all other Kafka files. A source is valid
    until the next step. Raises NotALogError and OSError for a partition that is the target itself.

    If the selection is of committed records, each source knows which batches a read_committed consumer gets. For a
    single file, the neighbouring segments show how its transactions ended. `known_unsettled` caches that by log, for
    callers with several targets. Logs are read only where their indexes say that the selection lies; `limited`: only
    its first records are wanted.
    """
    if target.kind is TargetKind.FILE:
        single = SingleFile(fs, target.path)
        known = {} if known_unsettled is None else known_unsettled
        left_out = _unsettled_in(fs, single, known) if selection.is_committed else None
        yield Source(fs, target.path, 0, single.grows, left_out, _stretch_of_file(single, Reading(selection, limited)))
    elif target.kind is TargetKind.PARTITION:
        yield from _of_partition(PartitionView(fs, target.path), every_file, Reading(selection, limited))
    else:
        listing = list_log_directory(fs, target.path)
        for partition in announced(fs, listing.partitions, attrgetter("path"), small_files if every_file else logs):
            try:
                view = PartitionView(fs, partition.path)
            except (NotALogError, OSError) as error:
                if fs.status(partition.path, follow=False) is not None:
                    yield unreadable(partition.path, error)
                continue
            yield from _of_partition(view, every_file, Reading(selection, limited))
        if every_file:
            files = (*listing.checkpoints.values(), listing.meta_properties)
            yield from (Source(fs, path) for path in files if path is not None)


def _unsettled_in(fs: FileSystem, single: SingleFile, known: dict[Path, Unsettled]) -> Unsettled:
    """Returns the unsettled transactions of a single file, by all segments of its partition."""
    if single.path in known and not single.live:  # under a running broker transactions end meanwhile
        return known[single.path]
    logs = {segment.log for segment in single.listing.segments}
    try:
        view = PartitionView(fs, single.listing.directory)
    except NotALogError:  # a file outside a partition directory
        _require_neighbours(single)
        return unsettled(fs, single.listing)
    with view:
        _require_neighbours(single)
        partition = {segment.log for segment in view.listing.segments}
        if not logs <= partition:
            return unsettled(fs, single.listing)
        found = unsettled(view.fs, view.listing)
    known.update(dict.fromkeys(partition, found))
    return found


def _require_neighbours(single: SingleFile) -> None:
    if single.is_alone:
        raise UnsupportedError(
            f"{single.path}: its directory cannot be listed, so it is unknown how its transactions ended;"
            " drop --isolation to show all batches"
        )


def _stretch_of_file(single: SingleFile, reading: Reading) -> Stretch | None:
    """Returns the requested part of a segment; None for a file that is none."""
    if reading.takes_all:
        return None
    segments = single.listing.segments if single.listing.format == "kafka" else ()
    bases = [segment.base_offset for segment in segments]
    for segment, following in zip(segments, [*bases[1:], None], strict=False):
        if segment.log == single.path:
            return stretch_of(single.fs, segment, following, reading)
    return None


def _of_partition(view: PartitionView, every_file: bool, reading: Reading) -> Iterator[Source]:
    with view:
        is_kafka = view.listing.format == "kafka"
        left_out = unsettled(view.fs, view.listing) if reading.selection.is_committed and is_kafka else None
        for span in view.segments():
            segment = span.segment
            least = span.least_offset if span.least_offset > segment.base_offset else 0
            stretch = None
            if is_kafka and not reading.takes_all:
                stretch = stretch_of(view.fs, segment, view.following(segment), reading)
            yield Source(view.fs, segment.log, least, view.is_written(segment), left_out, stretch)
            if every_file:
                indexes = (segment.offset_index, segment.time_index, segment.transaction_index)
                yield from (Source(view.fs, path) for path in indexes if path is not None)
        if every_file:
            listing = view.listing
            others = (listing.leader_epoch_checkpoint, listing.partition_metadata)
            named = (*(file.path for file in (*listing.snapshots, *listing.orphans)), *listing.leftovers, *others)
            yield from (Source(view.fs, path) for path in named if path is not None)


def unreadable(directory: Path, error: OSError | NotALogError) -> Finding:
    """Returns the finding that the operating system cannot read a partition, or a file in it."""
    named = error.filename if isinstance(error, OSError) else None
    name = Path(named).name if isinstance(named, str) and named != str(directory) else ""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return finding("UNREADABLE_FILE", name_of(directory), name, reason)
