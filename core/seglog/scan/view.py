"""One consistent view of a partition directory, beside a broker that keeps changing it.

A broker rolls, cleans, deletes and truncates while seglog reads. All read-only work goes through a view:

1. Look: first the indexes, then the logs, then the leader epochs, so that no index points beyond its log, and no batch
   has an epoch missing in the file. Hold everything open (`storage.frozen`).
2. If a file vanished or was replaced meanwhile, or a swap of segments was under way, look again, with a growing pause.
3. If the directory never holds still, keep the last look; `settled` is false then.

`segments` iterates over the log. If files could not be held and vanished before their turn, it lists again and
continues at the offset it has reached, in the segments that replaced them.

While a run of seglog changes logs, only a part of them may be there. Work that needs all of it refuses
(`require_no_run`); work that only reads warns (`unfinished_runs`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self, TypeVar

from seglog.clock import Clock, SystemClock
from seglog.errors import NotALogError, RefusedError
from seglog.format.filenames import SEGLOG_RUN_FILE, FileKind, FileState, parse_file_name, parse_partition_directory
from seglog.remote_path import WEB_SERVERS, RemotePath
from seglog.scan.listing import PartitionListing, SegmentFiles, list_partition, readable_entries, require_directory
from seglog.storage import links
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.frozen import SHARED_BUDGET, DescriptorBudget, FrozenFileSystem, Order, VanishedError
from seglog.storage.lock import holder_of, partition_path

_PAUSES_S = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3)
_REPETITIONS = 4
_LOADS = 4
_RELISTINGS = 100  # a log that is deleted faster than it is read ends eventually
_FIRST = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX, FileKind.PRODUCER_SNAPSHOT)
_IN_PLACE = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
# files being deleted, cleaned or written, on which no other file depends
_PASSING = (FileState.DELETED.value, FileState.CLEANED.value, FileState.TEMPORARY.value, FileState.PARTIAL.value)
_CLOCK = SystemClock()

_logger = logging.getLogger(__name__)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """A segment and its first wanted offset (its base, unless it replaced a segment that was partly read)."""

    segment: SegmentFiles
    least_offset: int


class PartitionView:
    """A partition as it was. Read the files of `listing` through `fs`; close it, or leave its `with`, when done.

    `live`: a process holds the log directory's lock; `settled`: the directory held still for the look. Raises
    NotALogError if there is no such directory, OSError if it cannot be read.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        *,
        live: bool | None = None,
        clock: Clock = _CLOCK,
        budget: DescriptorBudget = SHARED_BUDGET,
    ) -> None:
        self.directory = directory
        self.live = is_live(directory) if live is None else live
        self._below, self._clock = fs, clock
        self._frozen = FrozenFileSystem(fs, directory, budget)
        self.fs: FileSystem = self._frozen
        self.look()

    def look(self) -> None:
        """Takes the view again."""
        there: Sequence[tuple[str, FileStatus]] | None = readable_entries(self._below, self.directory)
        for pause in _PAUSES_S:
            if pause:
                self._clock.sleep(pause)
            try:
                self.settled = self._frozen.take(partial(_order, live=self.live), there)
            except FileNotFoundError as error:  # of the directory: files may go
                raise NotALogError(self.directory, "no such directory any more") from error
            there = None
            self.listing: PartitionListing = list_partition(self._frozen, self.directory)
            leftovers = (path.name for path in self.listing.leftovers)
            swapping = any(name.endswith(FileState.SWAP.value) for name in leftovers)
            if self.settled and not (self.live and swapping):
                return
        self.settled = False

    def is_written(self, segment: SegmentFiles) -> bool:
        """True if a broker may be appending to that segment now, so that its end may be an incomplete batch."""
        return self.live and segment.base_offset == self.listing.segments[-1].base_offset

    def following(self, segment: SegmentFiles) -> int | None:
        """Returns the base offset of the segment after this one, None if it is the last."""
        segments = self.listing.segments
        i = bisect_right(segments, segment.base_offset, key=lambda each: each.base_offset)
        return segments[i].base_offset if i < len(segments) else None

    def end_at(self, log: Path, size: int) -> None:
        """Shows only the first `size` bytes of a log from now on."""
        self._frozen.cut(log, size)
        self.listing = list_partition(self._frozen, self.directory)

    def segments(self) -> Iterator[Span]:
        """Yields the segments in order, each held open until the next step. Raises VanishedError if the log is deleted
        faster than it can be read.
        """
        reached = -1
        for _ in range(_RELISTINGS):
            segments = self.listing.segments
            bases: list[int | None] = [segment.base_offset for segment in segments[1:]]
            for segment, following in zip(segments, [*bases, None], strict=False):
                if following is not None and following <= reached:
                    continue
                with ExitStack() as stack:
                    try:
                        stack.enter_context(self._frozen.hold(segment.files))
                    except VanishedError:
                        break  # list again, and continue at `reached`
                    yield Span(segment, max(segment.base_offset, reached))
                if following is None:
                    return
                reached = following
            else:
                return
            self.look()
        raise VanishedError(self.directory)

    def close(self) -> None:
        """Closes the held files."""
        self._frozen.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SingleFile:
    """A `.log` that the user named: its open file neither vanishes nor shrinks, so it needs no view."""

    def __init__(self, fs: FileSystem, path: Path, *, live: bool | None = None) -> None:
        self.fs, self.path = fs, path
        self.live = is_live(path.parent) if live is None else live

    @cached_property
    def listing(self) -> PartitionListing:
        """The file's partition, listed only when needed: a listing for each of many files would be too many."""
        path, listing = self.path, self._around
        if listing is not None and any(segment.log.name == path.name for segment in listing.segments):
            return listing
        name, status = parse_file_name(path.name), self.fs.status(path)
        base = 0 if name is None or name.kind is FileKind.METADATA_SNAPSHOT else name.offset
        size, modified = (0, 0) if status is None else (status.size, status.modified_ms)
        if listing is not None:
            return replace(listing, segments=(SegmentFiles(base, path, size, modified),), format="kafka")
        offset_index, time_index = self._indexes_by_name()
        segments = (SegmentFiles(base, path, size, modified, offset_index, time_index),)
        found = parse_partition_directory(links.name_of(path.parent))
        is_07 = name is not None and name.kind is FileKind.LOG_07
        return PartitionListing(
            path.parent, None if found is None else found.topic_partition, "0.7" if is_07 else "kafka", segments
        )

    @property
    def is_alone(self) -> bool:
        """True if its directory cannot be listed: an object may be readable without that right, and web servers have no
        listings. Then indexes are looked up by name, and `listing` has the existing ones."""
        return self._around is None

    def _indexes_by_name(self) -> Iterator[Path | None]:
        for kind in _IN_PLACE:
            index = self.path.with_suffix(kind.value)
            try:
                is_there = self.fs.status(index) is not None
            except PermissionError:  # a store's answer for a missing object, too
                is_there = False
            yield index if is_there else None

    @cached_property
    def _around(self) -> PartitionListing | None:
        if isinstance(self.path, RemotePath) and self.path.scheme in WEB_SERVERS:
            return None  # its directories hold only the files asked for so far
        try:
            return list_partition(self.fs, self.path.parent)
        except PermissionError:
            if not isinstance(self.path, RemotePath):
                raise
            return None

    @property
    def grows(self) -> bool:
        """True if a broker may be appending to the file now."""
        return self.live and self.path == self.listing.segments[-1].log

    def is_written(self, segment: SegmentFiles) -> bool:
        """True if a broker may be appending to that segment now."""
        return self.live and segment.base_offset == self.listing.segments[-1].base_offset

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: nothing is held."""


def steadily(view: PartitionView, work: Callable[[PartitionView], T]) -> T:
    """Returns the result of `work`, repeated with a new look if files that could not be held vanished under it."""
    for _ in range(_REPETITIONS - 1):
        try:
            return work(view)
        except VanishedError:
            view.look()
    return work(view)


def reread(fs: FileSystem, directory: Path, load: Callable[[], T]) -> T:
    """Returns the result of `load`, repeated if files are gone: a live broker deletes and renames listed files.

    Raises NotALogError once the directory itself is gone, FileNotFoundError if the last attempt fails, too.
    """
    for left in reversed(range(_LOADS)):
        try:
            return load()
        except FileNotFoundError as error:
            require_directory(fs, directory)
            if not left:
                raise
            _logger.info("%s: changed while it was opened, trying again (%s)", directory, error)
    raise AssertionError("every attempt returns or raises")


def is_held(log_directory: Path) -> bool:
    """True if another process holds the lock of a log directory, as far as this user may look."""
    try:
        holder = holder_of(log_directory)
    except OSError:
        return False
    return holder is not None and holder.pid != os.getpid()


def is_live(partition: Path) -> bool:
    """True if another process holds the lock of the log directory that a partition lies in."""
    try:
        return is_held(partition_path(partition).parent)
    except OSError:
        return False  # a link that is not followed: opening the partition raises that


def _order(names: Sequence[str], *, live: bool) -> Order:
    """Orders indexes and snapshots, then logs, then the rest; the indexes of the last segment are read at once."""
    parsed = {name: parse_file_name(name) for name in names}
    files = {n: p for n, p in parsed.items() if p is not None and p.state is FileState.LIVE}
    last = max((p.offset for p in files.values() if p.kind is FileKind.LOG), default=0)

    def rank(name: str) -> int:
        found = files.get(name)
        if found is None or found.kind not in (FileKind.LOG, *_FIRST):
            return 2
        return 1 if found.kind is FileKind.LOG else 0

    return Order(
        sorted(names, key=rank),
        frozenset(n for n, p in files.items() if p.kind in _IN_PLACE and p.offset >= last),
        live,
        frozenset(name for name in names if name.endswith(_PASSING)),
    )


# --- runs that are not over ---------------------------------------------------------------------------------


def unfinished_run(fs: FileSystem, log_directory: Path) -> str:
    """Returns a sentence for an operator if a run that changes logs is under way or was interrupted here, so that a
    part of them may be missing; else "".
    """
    if fs.status(log_directory / SEGLOG_RUN_FILE, follow=False) is None:
        return ""
    return (
        f"{log_directory}: a run of seglog was cut short here, or is under way; seglog repair finishes one"
        " that was cut short, and seglog undo takes it back"
    )


def unfinished_runs(fs: FileSystem, paths: Iterable[Path]) -> list[str]:
    """Returns the warnings of `unfinished_run`, for read-only work, each once: for the log directories that the paths
    are or lie in. Skips URLs, because runs are only on disks, and paths that this user may not read."""
    places: dict[Path, None] = {}
    found = []
    for path in (path for path in paths if not isinstance(path, RemotePath)):
        with contextlib.suppress(OSError):  # reading the path raises it again
            resolved = partition_path(path)
            status = fs.status(resolved)
            inner = resolved if status is None or status.is_directory else resolved.parent
            places.update(dict.fromkeys((inner, inner.parent)))
    for place in places:
        with contextlib.suppress(OSError):
            problem = unfinished_run(fs, place)
            found += [f"{problem}. Until then only a part of the logs may be there"] if problem else []
    return found


def require_no_run(fs: FileSystem, log_directory: Path) -> None:
    """Raises RefusedError if a run that changes logs is under way or was interrupted."""
    problem = unfinished_run(fs, log_directory)
    if problem:
        raise RefusedError(problem)
