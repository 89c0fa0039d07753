"""Opening a partition directory for reading: its segments, its start and its end (Kafka: LogLoader, without recovery).

1. List the directory. The names give the segments; leftovers of a crash are ignored.
2. Find the end: walk the last segment from its last index entry on, to its last whole batch.
3. The start is the log start in the checkpoint, or the first segment's base, whichever is higher.

Producers, leader epochs, and the leftovers that a starting broker would settle are computed when they are first used:
`loader` then runs in memory. It runs at once if a broker would serve other segments than the files show: a swap is
unfinished, there is no segment, or the log ends below its start. `test_read_loader` compares the results of both.

The directory is frozen meanwhile (`ViewingFileSystem`), so reading and planning do not see a broker's changes. Beside a
running broker the log ends with its last whole batch: the next one is being written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from seglog.clock import Clock
from seglog.errors import NotALogError
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.segment import LogSegment
from seglog.log.segments import LogSegments
from seglog.log.unreadable import unreadable_at
from seglog.scan.listing import PartitionListing, require_batches, require_directory
from seglog.scan.view import PartitionView, reread
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode
from seglog.storage.frozen import VanishedError, ViewFileSystem
from seglog.storage.overlay import OverlayFileSystem

if TYPE_CHECKING:
    from seglog.log.loader import LoadedLog, LoadOptions, RecoveryReport
    from seglog.log.producer_state import ProducerStateManager


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A partition to open: its directory, the checkpointed log start, and `options_of`, which finds the options for
    opening it for writing when they are needed.
    """

    fs: FileSystem
    directory: Path
    clock: Clock
    log_start_offset: int
    options_of: Callable[[], LoadOptions]

    def settled(self) -> LoadedLog:
        """Returns the log as a starting broker would have it before it recovers, computed in memory."""
        from seglog.log.loader import load_log  # plain reading never needs it

        return load_log(self.fs, self.directory, self.clock, replace(self.options_of(), writable=False))


class ReadableLog:
    """The result of `load_for_reading`, for `Log`; it changes nothing on disk.

    `settled`: a starting broker would serve other segments than the files show, and these are the broker's.
    """

    settled = False

    def __init__(self, place: LogPlace, segments: LogSegments, log_start_offset: int, log_end_offset: int) -> None:
        self.fs, self.segments, self._place = place.fs, segments, place
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset

    @cached_property
    def leader_epochs(self) -> LeaderEpochCache:
        """The epochs of the checkpoint, cut to the log; none if it cannot be read."""
        epochs = LeaderEpochCache(OverlayFileSystem(self.fs), self._place.directory, tolerant=True)
        epochs.truncate_from_end(self.log_end_offset)
        epochs.truncate_from_start(self._place.log_start_offset)
        return epochs

    @property
    def producers(self) -> ProducerStateManager:
        """The producers at the log end."""
        return self._loaded.producers

    @property
    def report(self) -> RecoveryReport:
        """The leftovers that a starting broker would settle before it recovers."""
        return self._loaded.report

    @property
    def recovery_point(self) -> int:
        """First offset that is not known to be on stable storage."""
        return self._loaded.recovery_point

    @cached_property
    def _loaded(self) -> LoadedLog:
        return self._place.settled()


class SettledLog(ReadableLog):
    """A log of which a starting broker would serve other segments than the files show."""

    settled = True

    def __init__(self, place: LogPlace) -> None:
        self._loaded = place.settled()
        super().__init__(
            replace(place, fs=self._loaded.fs),
            self._loaded.segments,
            self._loaded.log_start_offset,
            self._loaded.log_end_offset,
        )
        self.leader_epochs = self._loaded.leader_epochs


def load_for_reading(place: LogPlace) -> ReadableLog:
    """Opens the partition (steps above). `place.fs` should show the directory frozen (`ViewingFileSystem`).

    Raises NotALogError for a missing directory, UnsupportedError for a log of Kafka 0.7.
    """
    return reread(place.fs, place.directory, lambda: _load(place))


def _load(place: LogPlace) -> ReadableLog:
    require_directory(place.fs, place.directory)
    require_batches(place.fs, place.directory)
    names = [name for name, found in place.fs.entries(place.directory) if not found.is_directory]
    logs = [found for name in names if name.endswith(FileKind.LOG.value) and (found := parse_file_name(name))]
    if not logs or any(name.endswith(FileState.SWAP.value) for name in names):
        return SettledLog(place)
    last = max(found.offset for found in logs)
    active = _UnclosedSegment(place.fs, place.directory, last)
    closed = (LogSegment(place.fs, place.directory, found.offset) for found in logs if found.offset != last)
    segments = LogSegments([*closed, active])
    end, valid_bytes = active.read_next_offset()
    if end < place.log_start_offset:
        return SettledLog(place)
    active.trailing_bytes, active.size = active.size - valid_bytes, valid_bytes
    return ReadableLog(place, segments, max(place.log_start_offset, segments.first.base_offset), end)


class _UnclosedSegment(LogSegment):
    """The last segment. A time index gets its newest entry only when its segment rolls or is closed or recovered.

    Until then the batches after the last entry of the offset index may have larger timestamps.
    """

    def __init__(self, fs: FileSystem, directory: Path, base_offset: int) -> None:
        super().__init__(fs, directory, base_offset)
        self._guard = threading.RLock()

    def index_state(self) -> np.ndarray:
        with self._guard:
            if self._state is None:
                super().index_state()
                self._read_largest_timestamp(self.offset_index.last_offset)
            return super().index_state()


T = TypeVar("T")


class ViewingFileSystem(ViewFileSystem):
    """`below`, with every sub-directory of `log_directory` as it was at the first look, and read-only.

    The first look takes a view of each partition (`scan.view`). Files of the log directory itself are read as they are,
    before the partitions. After a VanishedError (of a file that could not be held) the partition's view is taken anew.
    """

    def __init__(self, below: FileSystem, log_directory: Path) -> None:
        super().__init__(below)
        self._log_directory = log_directory
        self._views: dict[str, PartitionView] = {}  # by text: making and hashing paths would be half of a question
        self._guard = threading.Lock()

    def is_only_read(self, path: Path) -> bool:
        return path == self._log_directory or self._log_directory in path.parents

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r":
            return super().open(path, mode)
        return self._through(path, lambda fs: fs.open(path, mode))

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._shown(path).status(path, follow)

    def list(self, directory: Path) -> list[str]:
        return self._shown_in(directory).list(directory)

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._shown_in(directory).entries(directory)

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._through(path, lambda fs: fs.read_bytes(path, limit))

    def close(self) -> None:
        """Closes all held files; the next look takes new views."""
        with self._guard:
            for view in self._views.values():
                view.close()
            self._views.clear()

    def let_go(self, directory: Path) -> None:
        """Closes what is held of a partition; the next look takes a new view."""
        with self._guard:
            view = self._views.pop(str(directory), None)
        if view is not None:
            view.close()

    def _shown(self, path: Path) -> FileSystem:
        """Returns the view of the directory that `path` lies in: a partition's files are asked for fifty times."""
        view = self._views.get(str(path).rpartition("/")[0])
        return self._taken(path.parent) if view is None else view.fs

    def _shown_in(self, directory: Path) -> FileSystem:
        view = self._views.get(str(directory))
        return self._taken(directory) if view is None else view.fs

    def _through(self, path: Path, ask: Callable[[FileSystem], T]) -> T:
        """Reads from the view of the directory that `path` lies in, which ends if the file could not be held."""
        try:
            return ask(self._shown(path))
        except VanishedError:
            self.let_go(path.parent)
            raise

    def _taken(self, directory: Path) -> FileSystem:
        """Returns the view of a partition, taken now unless it is there; the files below for any other directory."""
        if directory.parent != self._log_directory or directory == self._log_directory:
            return self._below  # the parent of `.` is `.`
        text = str(directory)
        with self._guard:
            if text not in self._views:
                try:
                    self._views[text] = whole_view(self._below, directory)
                except NotALogError:
                    return self._below  # missing, or no directory
            return self._views[text].fs


@contextmanager
def viewed_copies(fs: FileSystem, directories: Sequence[Path]) -> Iterator[tuple[FileSystem, list[PartitionListing]]]:
    """Takes views of the copies of a partition; yields the file system that shows them and their listings. A missing
    copy has an empty listing. Raises OSError.
    """
    listings = []
    with ExitStack() as stack:
        for directory in directories:
            try:
                view = stack.enter_context(whole_view(fs, directory))
            except NotALogError:
                listings.append(PartitionListing(directory, None, "kafka"))
                continue
            fs = view.fs
            listings.append(view.listing)
        yield fs, listings


def whole_view(fs: FileSystem, directory: Path) -> PartitionView:
    """Takes the view of a partition. Beside a running broker it ends with the last whole batch, without the one being
    written or preallocated space.
    """
    view = PartitionView(fs, directory)
    if not view.live or not view.listing.segments:
        return view
    last = view.listing.segments[-1]
    segment = LogSegment(view.fs, view.directory, last.base_offset)
    following, position = segment.read_next_offset()
    found = unreadable_at(segment, position, last.size, following)
    if found is not None and found.is_torn_end:
        view.end_at(last.log, position)
    return view
