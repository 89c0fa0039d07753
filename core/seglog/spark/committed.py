"""Logs in tiered storage, and those that a manifest has committed, as the plan of a read meets them.

The driver sees partition directories. A task is told of the object that a segment's log is stored in, which nobody
changes, and where that is not the log byte for byte, how it becomes one: no task lists a tier or reads a manifest. Of
keys, a task gets the one that opens its segment, and nothing prints it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from seglog.errors import IncompleteError
from seglog.format.tier_keys import DataKey
from seglog.format.tier_manifest import ChunkIndex
from seglog.remote.routing import RoutingFileSystem, parse_location
from seglog.spark.options import ReadOptions, TierNames
from seglog.storage.filesystem import FileSystem
from seglog.tiers.contents import CACHE_BYTES, ChunkCache, ChunkedLog, OneFile, PartOfObject, Stored, WholeObject
from seglog.tiers.metadata import read_remote_logs
from seglog.tiers.partition import TierOptions
from seglog.tiers.recognition import Recognised, recognise
from seglog.tiers.segments import GRAVE, Keys, Remark, read_private_key
from seglog.tiers.view import TierFileSystem, show_tiers

_CHUNKS = ChunkCache(CACHE_BYTES)  # decoded chunks, for all that this process reads


_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The object that holds a segment's log which is not it byte for byte: the log is `chunks` of it, decompressed and
    opened with `key`, or its first `front` bytes alone.
    """

    path: str
    size: int
    modified_ns: int
    version: str
    chunks: ChunkIndex | None = field(default=None, compare=False, repr=False)
    compressed: bool = False
    key: DataKey | None = field(default=None, compare=False, repr=False)
    front: int | None = None

    def shown(self, fs: FileSystem, path: Path) -> FileSystem:
        """`fs`, in which that log is the file at `path`; there is none where the object is gone."""
        own = parse_location(self.path)
        if isinstance(fs, RoutingFileSystem):
            fs.expect(own, self.size, self.modified_ns, self.version)
        status = fs.status(own)
        if status is None:
            return fs
        whole = WholeObject(fs, own, status)
        stored: Stored = whole
        if self.chunks is not None:
            stored = ChunkedLog(whole, self.chunks, self.compressed, self._opener(), _CHUNKS)
        if self.front is not None:
            stored = PartOfObject(stored, 0, replace(stored.status, size=self.front))
        return OneFile(fs, path, stored)

    def _opener(self) -> Callable[[], DataKey] | None:
        key = self.key
        return None if key is None else lambda: key


def _heard(fail_on_data_loss: bool) -> Callable[[Remark], None]:
    """Hears what must be known of a tier: what is missing is an IncompleteError, all else a line of the log."""

    def hear(remark: Remark) -> None:
        if remark.problem in GRAVE and fail_on_data_loss:
            raise IncompleteError(f"{remark} (failOnDataLoss=false goes on with what is there)")
        _logger.warning("%s", remark)

    return hear


class BrokersTiers:
    """The paths of a read that lie in a broker's tiered storage; what a path is, is found out once."""

    def __init__(self, fs: FileSystem, options: ReadOptions) -> None:
        self._fs, self._options = fs, options
        self._known: dict[Path, Recognised] = {}

    def shown(self, path: Path) -> tuple[FileSystem, Path] | None:
        """What shows such a path as it is now, and the path at which it does; None where it is none. Raises OSError."""
        if path not in self._known:
            (self._known[path],) = recognise(self._fs, [path])
        if not self._known[path].places:
            return None
        options = _tier_options(self._fs, self._options.tier)
        fs, (seen,) = show_tiers(self._fs, [self._known[path]], options, _heard(self._options.fail_on_data_loss))
        return fs, seen


def _tier_options(fs: FileSystem, names: TierNames) -> TierOptions:
    """What the options say, read from the files that they name."""
    pairs = {key_id: read_private_key(fs, parse_location(file)) for key_id, file in names.keys}
    metadata = read_remote_logs(fs, [parse_location(one) for one in names.metadata]) if names.metadata else None
    for sentence in () if metadata is None else metadata.problems:
        _logger.warning("%s", sentence)
    return TierOptions(parse_location(names.local) if names.local else None, Keys(pairs), metadata)


def committed_files(fs: FileSystem, path: Path, *, fail_on_data_loss: bool = True) -> TierFileSystem | None:
    """What shows the committed logs that `path` means or lies among; None where a manifest commits none there.

    What the manifest names and is missing, or has another size, is an IncompleteError when its partition is looked at.
    """
    recognised = recognise(fs, [path])
    if recognised[0].prefix is None:
        return None
    shown, _ = show_tiers(fs, recognised, on_remark=_heard(fail_on_data_loss))
    return shown if isinstance(shown, TierFileSystem) else None


def where_stored(fs: FileSystem, path: Path) -> tuple[Path, StoredLog | None]:
    """Where a task finds a file of a log, and what it must know to read it there: a file of a tier is an object under
    another name, or what is made of one.
    """
    stored = fs.stored(path) if isinstance(fs, TierFileSystem) else None
    if stored is None:
        return path, None
    if isinstance(stored, WholeObject):
        return stored.path, None
    front = None
    if isinstance(stored, PartOfObject):
        front, stored = stored.status.size, stored.whole
    chunked = stored if isinstance(stored, ChunkedLog) else None
    whole = stored if chunked is None else chunked.whole
    if not isinstance(whole, WholeObject):
        return path, None
    status = whole.status
    about = (str(whole.path), status.size, status.modified_ns, status.version)
    if chunked is None:
        return path, StoredLog(*about, front=front)
    key = None if chunked.opener is None else chunked.opener()
    return path, StoredLog(*about, chunked.chunks, chunked.compressed, key, front)
