"""The files that a dump or an export goes through, partition by partition, each through a view that holds still.

What cannot be read becomes a finding, and the rest goes on; a partition that a broker deleted meanwhile is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seglog.errors import NotALogError, UnsupportedError
from seglog.evidence.findings import Finding, finding
from seglog.evidence.unsettled import Unsettled, unsettled
from seglog.scan.listing import Target, TargetKind, list_log_directory
from seglog.scan.view import PartitionView, SingleFile
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read through `fs`. Of a `.log`, `least_offset` is the first one that is wanted, and a `growing` one may
    end within a batch. `unsettled` is there where committed records alone were asked for.
    """

    fs: FileSystem
    path: Path
    least_offset: int = 0
    growing: bool = False
    unsettled: Unsettled | None = None

    def committed(self, batches: np.ndarray) -> np.ndarray | bool:
        """Which of its batches were asked for: all, or those of no aborted or open transaction."""
        return True if self.unsettled is None else self.unsettled.committed(batches)


def sources(
    fs: FileSystem,
    target: Target,
    every_file: bool = False,
    *,
    committed: bool = False,
    beside: dict[Path, Unsettled] | None = None,
) -> Iterator[Source | Finding]:
    """The logs that a target names, in order, with `every_file` all other files of Kafka's too; a source is good until
    the next step. NotALogError and OSError for a partition that was named itself.

    With `committed` each source tells which batches a consumer of committed records gets; of a file that was named, the
    segments beside it tell how its transactions ended. `beside` keeps what they told of each log, for whoever names
    several.
    """
    if target.kind is TargetKind.FILE:
        single = SingleFile(fs, target.path)
        left_out = _beside(fs, single, {} if beside is None else beside) if committed else None
        yield Source(fs, target.path, growing=single.grows, unsettled=left_out)
    elif target.kind is TargetKind.PARTITION:
        yield from _of_partition(PartitionView(fs, target.path), every_file, committed)
    else:
        listing = list_log_directory(fs, target.path)
        for partition in listing.partitions:
            try:
                view = PartitionView(fs, partition.path)
            except (NotALogError, OSError) as error:
                if fs.status(partition.path, follow=False) is not None:
                    yield unreadable(partition.path, error)
                continue
            yield from _of_partition(view, every_file, committed)
        if every_file:
            files = (*listing.checkpoints.values(), listing.meta_properties)
            yield from (Source(fs, path) for path in files if path is not None)


def _beside(fs: FileSystem, single: SingleFile, known: dict[Path, Unsettled]) -> Unsettled:
    if single.path in known and not single.live:  # beside a broker transactions go on
        return known[single.path]
    logs = {segment.log for segment in single.listing.segments}
    try:
        view = PartitionView(fs, single.listing.directory)
    except NotALogError:  # a file that lies by itself: what it holds is all there is
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
            f"{single.path}: what lies beside it is not listed, and so nobody knows how its transactions ended;"
            " without --isolation all of its batches are shown"
        )


def _of_partition(view: PartitionView, every_file: bool, committed: bool) -> Iterator[Source]:
    with view:
        is_kafka = view.listing.format == "kafka"
        left_out = unsettled(view.fs, view.listing) if committed and is_kafka else None
        for span in view.segments():
            segment = span.segment
            least = span.least_offset if span.least_offset > segment.base_offset else 0
            yield Source(view.fs, segment.log, least, view.is_written(segment), left_out)
            if every_file:
                indexes = (segment.offset_index, segment.time_index, segment.transaction_index)
                yield from (Source(view.fs, path) for path in indexes if path is not None)
        if every_file:
            listing = view.listing
            others = (listing.leader_epoch_checkpoint, listing.partition_metadata)
            named = (*(file.path for file in (*listing.snapshots, *listing.orphans)), *listing.leftovers, *others)
            yield from (Source(view.fs, path) for path in named if path is not None)


def unreadable(directory: Path, error: OSError | NotALogError) -> Finding:
    """That the operating system would not let a partition, or a file in it, be read."""
    named = error.filename if isinstance(error, OSError) else None
    name = Path(named).name if isinstance(named, str) and named != str(directory) else ""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return finding("UNREADABLE_FILE", name_of(directory), name, reason)
