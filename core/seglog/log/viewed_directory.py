"""A log directory whose partitions hold still: what opens logs for reading, or plans, does not meet a broker's changes.

Each partition is taken as a view (`scan.view`) when it is first looked at, and stays as it was then. Beside a broker
the log ends with its last whole batch: the one after it is being written. Files of the log directory itself are read
as they are, before the partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from seglog.errors import NotALogError
from seglog.log.segment import LogSegment
from seglog.log.unreadable import unreadable_at
from seglog.scan.listing import PartitionListing
from seglog.scan.view import PartitionView
from seglog.storage.bases import ViewFileSystem
from seglog.storage.filesystem import READ_BYTES_LIMIT, File, FileStatus, FileSystem, OpenMode
from seglog.storage.frozen import VanishedError

T = TypeVar("T")


class ViewingFileSystem(ViewFileSystem):
    """`below`, with every sub-directory of `log_directory` as it was at the first look; nothing in it can be changed.

    A partition of which a file vanished that could not be held is looked at anew after the VanishedError.
    """

    def __init__(self, below: FileSystem, log_directory: Path) -> None:
        super().__init__(below)
        self._log_directory = log_directory
        self._views: dict[Path, PartitionView] = {}
        self._guard = threading.Lock()

    def is_only_read(self, path: Path) -> bool:
        return path == self._log_directory or self._log_directory in path.parents

    def open(self, path: Path, mode: OpenMode) -> File:
        if mode != "r":
            return super().open(path, mode)
        return self._through(path.parent, lambda fs: fs.open(path, mode))

    def status(self, path: Path, follow: bool = True) -> FileStatus | None:
        return self._through(path.parent, lambda fs: fs.status(path, follow))

    def list(self, directory: Path) -> list[str]:
        return self._through(directory, lambda fs: fs.list(directory))

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        return self._through(directory, lambda fs: fs.entries(directory))

    def read_bytes(self, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes:
        return self._through(path.parent, lambda fs: fs.read_bytes(path, limit))

    def close(self) -> None:
        """Gives all held files back; the next look is a new one."""
        with self._guard:
            for view in self._views.values():
                view.close()
            self._views.clear()

    def _through(self, directory: Path, ask: Callable[[FileSystem], T]) -> T:
        try:
            return ask(self._door(directory))
        except VanishedError:
            with self._guard:
                view = self._views.pop(directory, None)
            if view is not None:
                view.close()
            raise

    def _door(self, directory: Path) -> FileSystem:
        if directory.parent != self._log_directory:
            return self._below
        with self._guard:
            if directory not in self._views:
                try:
                    self._views[directory] = whole_view(self._below, directory)
                except NotALogError:
                    return self._below  # nothing there, or no directory
            return self._views[directory].fs


@contextmanager
def viewed_copies(fs: FileSystem, directories: Sequence[Path]) -> Iterator[tuple[FileSystem, list[PartitionListing]]]:
    """Copies of a partition as they are now, and the file system to read all of them through; a copy that is not there
    has an empty listing. Raises OSError.
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
    """The view of a partition; of one that is being written without the batch that is not whole yet, and without room
    that was allocated for the next ones.
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
