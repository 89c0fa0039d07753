"""Copies of the files that recovery rebuilds, so that a recovery that stops before a loss leaves everything as it was.

Recovery rebuilds indexes and removes producer snapshots on its way to the damage at which it stops
(`loader.stop_at_loss`). Each of these files is copied beside itself before its first change. A crash leaves copies that
the next start removes, as it removes all `.deleted` files (Kafka: LogLoader.removeTempFilesAndCollectSwapFiles).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seglog.clock import Clock
from seglog.format.filenames import FileKind
from seglog.log.loader import LoadOptions, LossAhead, plan_recovery
from seglog.scan.listing import list_partition
from seglog.storage.adapters import ScratchFileSystem
from seglog.storage.files import copy_bytes
from seglog.storage.filesystem import FileSystem
from seglog.units import count_text

_SUFFIX = ".before.deleted"


class BeforeImages:
    """The files in `directory` as they were, from their first change on."""

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs, self._directory = fs, directory
        self._copies: dict[Path, Path | None] = {}  # None: the file is new

    def save(self, path: Path) -> None:
        """Copies a file of the directory, unless it was copied before. Call it before every change to `path`."""
        if path.parent != self._directory or path in self._copies or path.name.endswith(_SUFFIX):
            return
        status = self._fs.status(path)
        if status is None or status.is_directory:
            self._copies[path] = None
            return
        copy = path.with_name(path.name + _SUFFIX)
        if self._fs.status(copy, follow=False) is not None:
            self._fs.remove(copy)
        try:
            copy_bytes(ScratchFileSystem(self._fs), path, copy, 0, status.size)
            self._fs.copy_attributes(path, copy)
        except BaseException:
            if self._fs.status(copy, follow=False) is not None:
                self._fs.remove(copy)  # a full disk needs the room
            raise
        self._copies[path] = copy

    def restore(self) -> None:
        """Puts every file back, with its times, and removes the new ones.

        A copy that takes its file's place is as durable as that was: a later run may find the file as it shall be, and
        leave it out. New files go last, when nothing they were made of is missing any more.
        """
        for path, copy in list(self._copies.items()):
            if copy is not None:
                with self._fs.open(copy, "r") as file:
                    file.sync()
                self._fs.rename(copy, path)
                del self._copies[path]
        self._fs.sync_directory(self._directory)
        for path in self._copies:
            if self._fs.status(path, follow=False) is not None:
                self._fs.remove(path)
        self._fs.sync_directory(self._directory)
        self._copies.clear()

    def discard(self) -> None:
        """Removes the copies."""
        for copy in self._copies.values():
            if copy is not None:
                self._fs.remove(copy)
        self._copies.clear()


@contextmanager
def restored_at_loss(
    fs: FileSystem, directory: Path, clock: Clock, options: LoadOptions, images: dict[Path, BeforeImages]
) -> Iterator[None]:
    """Opens a log in the `with` block. If it stops before a loss (LossAhead), every file of the log is as it was.

    Until the end of the block, `images[directory]` is to be told of every change. Does nothing if the opening does not
    stop (`options.before_loss` is None).
    """
    if options.before_loss is None:
        yield
        return
    leftovers = list_partition(fs, directory).leftovers
    if any(path.suffixes[:1] == [FileKind.LOG.value] for path in leftovers):
        # Opening replaces or removes these logs before it finds damage. They are too large to copy, and a disk may be
        # full until they are gone; without a loss ahead nothing needs to be copied.
        report = plan_recovery(fs, directory, clock, options)
        if report.truncated_bytes:
            options.before_loss(directory, f"{count_text(report.truncated_bytes, 'byte')} would be cut off")
        yield
        return
    own = images[directory] = BeforeImages(fs, directory)
    try:
        yield
    except LossAhead:
        own.restore()
        raise
    finally:
        del images[directory]
        own.discard()
