"""Where written rows go: into a log directory, or as new objects below a prefix.

In a log directory, which driver and executors share:

1. A task stages its rows (`seglog_ask.spark.writer`) next to the log directory, because a broker does not start with a
   strange directory inside.
2. The driver appends everything that the tasks have staged, all or nothing (`spark.staged_append`). Batches without
   offsets of their own are numbered from the log's end.

Below a prefix, with no rename, no lock, and no file system that driver and executors share:

1. A task encodes its rows on its executor's own disk, and puts the files below `_seglog/staged/<owner>` under names
   that no other attempt has. It puts a large file as the segment that it will be if no other task has rows of the
   partition.
2. The driver appends them through the engine and commits by a manifest (`spark.staged_objects`). Then it removes what
   was staged, as far as this user may remove objects.

Objects of tasks and drivers that die are named by no manifest; `seglog tiers` shows them.

A stream's batch is identified by its query's id and its number: a batch that comes twice is appended once.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptTierError, NotALogError, UnsupportedError
from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog.remote_path import OBJECT_STORES, RemotePath
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_ask.spark.scratch import ScratchFileSystem
from seglog_ask.spark.staged_append import StagedAppend
from seglog_ask.spark.staged_journal import StagedFile, StreamBatch
from seglog_ask.spark.staged_objects import (
    JOINED_BYTES,
    GrowingPartition,
    GrowingPrefix,
    ObjectAppend,
    after_made,
    beside,
    made,
)
from seglog_ask.spark.staged_settling import discard_staged
from seglog_ask.spark.write_options import WriteOptions
from seglog_ask.spark.writer import stage_rows
from seglog_ask.table.plan.files import files_of, sent_along
from seglog_stores.formats.log_manifest import STAGED
from seglog_stores.formats.tier_names import COMMITTED
from seglog_stores.tiers.manifests import object_of, read_committed
from seglog_stores.tiers.publishing import put_object
from seglog_stores.tiers.recognition import committed_prefix

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("seglog.spark.sinks")

STAGING_PREFIX = ".seglog-write-"
_SHOWN_NAME = 64  # characters of the log directory's name in that of a staging directory


class Sink(Protocol):
    """Where rows go: a log directory (`LocalSink`), or below a prefix (`ObjectSink`)."""

    @property
    def options(self) -> WriteOptions: ...

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        """In a task: puts its rows where `commit` finds them."""
        ...

    def commit(self, owner: str, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        """On the driver: makes staged rows part of the logs, all or nothing. Removes what was staged.

        Returns the number of records, 0 for a batch that was committed before.
        """
        ...

    def discard(self, owner: str) -> None:
        """On the driver: removes what was staged for a write that has ended."""
        ...


def sink_of(fs: FileSystem, options: WriteOptions) -> Sink:
    """Returns the sink for the path that the options name.

    Raises UnsupportedError for a URL that takes no objects, NotALogError if the path cannot be a log directory.
    """
    path = options.path
    if isinstance(path, RemotePath) and path.scheme not in OBJECT_STORES:
        raise UnsupportedError(f"{path}: rows go to {', '.join(f'{each}://' for each in OBJECT_STORES)} or a directory")
    if isinstance(path, RemotePath) or committed_prefix(fs, path) == path:
        return ObjectSink(replace(options, store=sent_along(options.store, [path])))
    for one in (path, *path.parents):
        status = fs.status(one)
        if status is not None and not status.is_directory:
            raise NotALogError(one, "not a directory")
        if status is not None:
            break
    return LocalSink(options)


# --- a log directory ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalSink:
    """The sink of a log directory, which driver and executors share. Errors of `commit` are `StagedAppend.run`'s."""

    options: WriteOptions
    clock: Clock = field(default_factory=SystemClock)

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        staging = staging_of(self.options.path, owner)
        return tuple(stage_rows(LocalFileSystem(), staging, self.options, batches))

    def commit(self, owner: str, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        fs, path = LocalFileSystem(), self.options.path
        fs.make_directory(path, parents=True)
        config = LogConfig(segment_bytes=self.options.segment_bytes)
        append = StagedAppend(fs, path, self.clock, lambda _: config, lock_wait_ms=self.options.lock_wait_ms)
        try:
            return append.run(staging_of(path, owner), files, stream)
        finally:
            self.discard(owner)

    def discard(self, owner: str) -> None:
        discard_staged(LocalFileSystem(), self.options.path, staging_of(self.options.path, owner))


def staging_of(log_directory: Path, owner: str) -> Path:
    """Returns a staging directory next to the log directory. `owner` is the id of the job or the stream's query."""
    return log_directory.parent / f"{STAGING_PREFIX}{log_directory.name[:_SHOWN_NAME]}-{owner}"


# --- a prefix -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObjectSink:
    """The sink of a prefix.

    Tasks and driver make their scratch directories in `home`; None means the system's default. A file of `made_bytes`
    is made a segment by its task, because it would not be joined to others anyway.
    """

    options: WriteOptions
    home: Path | None = None
    made_bytes: int = JOINED_BYTES

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        with self._growing() as prefix:
            own = replace(self.options, path=prefix.scratch)
            return tuple(self._put(prefix, owner, stage_rows(prefix.scratch_fs, prefix.scratch, own, batches)))

    def _put(self, prefix: GrowingPrefix, owner: str, files: Sequence[StagedFile]) -> Iterator[StagedFile]:
        """Puts staged files; yields each with its name below the prefix."""
        least = min(self.made_bytes, self.options.segment_bytes // 2)  # the files of a full segment are at least this
        growths: dict[TopicPartition, GrowingPartition] = {}
        if any(file.size >= least for file in files):
            before = read_committed(prefix.store, prefix.path)
            known = {} if before is None else {one.topic_partition: one for one in before.manifest.partitions}
            growths = {name: beside(name, known.get(name)) for name in {file.topic_partition for file in files}}
        for file in files:
            name = file.topic_partition
            staged = made(prefix, growths[name], file) if name in growths and file.size >= least else None
            if staged is None or staged.made is None:
                staged = replace(file, name=f"{COMMITTED}/{STAGED}/{owner}/{file.name}")
                growths.pop(name, None)  # later files of this partition do not come next
                with prefix.scratch_fs.open(prefix.scratch / file.name, "r") as local:
                    put_object(prefix.store, prefix.path / staged.name, local)
            else:
                growths[name] = after_made(growths[name], staged.made)
            prefix.scratch_fs.remove(prefix.scratch / file.name)
            yield staged

    def commit(self, owner: str, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        try:
            with self._growing() as prefix:
                appended = ObjectAppend(prefix).run(files, stream)
                _discard(prefix.store, lambda: self._unused(prefix.store, files))
            return appended
        finally:
            self.discard(owner)

    def discard(self, owner: str) -> None:
        store, staging = files_of(self.options.store), self.options.path / COMMITTED / STAGED / owner
        _discard(store, lambda: [staging / name for name in store.list(staging)])

    def _unused(self, store: RoutingFileSystem, files: Sequence[StagedFile]) -> list[Path]:
        """Returns the objects of segments that tasks have made and no commit uses.

        Call it only after a commit that has succeeded: if the answer to a commit was lost, it is unknown whether its
        manifest names them.
        """
        ours = [(file.topic_partition, file.made.segment) for file in files if file.made is not None]
        logs = read_committed(store, self.options.path) if ours else None
        committed = () if logs is None else logs.manifest.partitions
        named = {
            (partition.topic_partition, segment.place) for partition in committed for segment in partition.segments
        }
        return [
            object_of(self.options.path, name, segment, kind)
            for name, segment in ours
            if (name, segment.place) not in named
            for kind in segment.objects
        ]

    @contextmanager
    def _growing(self) -> Iterator[GrowingPrefix]:
        """Yields the prefix with a scratch directory, which is removed at the end."""
        # roll by size alone: segments that are joined must not be cut again by the time of their records
        config = LogConfig(segment_bytes=self.options.segment_bytes, segment_ms=INT64_MAX)
        store, fs = files_of(self.options.store), ScratchFileSystem(LocalFileSystem())
        with tempfile.TemporaryDirectory(prefix="seglog-write-", dir=self.home) as scratch:
            yield GrowingPrefix(store, self.options.path, fs, Path(scratch), SystemClock(), config)


def _discard(store: RoutingFileSystem, chosen: Callable[[], Iterable[Path]]) -> None:
    """Removes unused objects; logs, once, that this user may not remove them."""
    try:
        for path in chosen():
            store.discard(path)
    except FileNotFoundError:
        return  # nothing was staged
    except (OSError, CorruptTierError) as error:
        _logger.warning("staged objects remain: %s", error)


def checkpoint_entry(fs: FileSystem, options: WriteOptions, batch: int) -> str:
    """Returns a digest of a batch's entry in the stream's checkpoint: its offsets, and when they were fixed.

    Spark writes that entry before the batch runs, and reruns the batch by it. Returns "" if this process cannot see the
    checkpoint.
    """
    if options.checkpoint is None:
        return ""
    path = options.checkpoint / "offsets" / str(batch)
    if fs.status(path) is None:
        return ""
    return hashlib.sha256(fs.read_bytes(path)).hexdigest()
