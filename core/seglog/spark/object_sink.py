"""The sink of a prefix in an object store: no rename, no lock, no file system that driver and executors share.

1. A task encodes its rows on its executor's own disk, and puts them below `_seglog/staged/<owner>` under names that no
   other attempt has; what is large, as the segment that it will be if no other task has rows of the partition.
2. The driver appends them through the engine and commits by a manifest (`log.object_append`); then what was staged
   goes, as far as this user may remove objects.

What tasks and drivers leave that die is named by no manifest: `seglog tiers` shows it.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import SystemClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptTierError, UnsupportedError
from seglog.format.log_manifest import STAGED
from seglog.format.tier_names import COMMITTED
from seglog.layout import INT64_MAX
from seglog.log.append_journal import StagedFile, StreamBatch
from seglog.log.object_append import JOINED_BYTES, GrowingPrefix, Growth, ObjectAppend, after_made, beside, made
from seglog.model import TopicPartition
from seglog.remote_path import OBJECT_STORES, RemotePath
from seglog.spark.files import files_of
from seglog.spark.write_options import WriteOptions
from seglog.spark.writer import stage_rows
from seglog.storage.adapters import ScratchFileSystem
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from seglog.tiers.manifests import object_of, read_committed
from seglog.tiers.publishing import ObjectFiles, put_object
from seglog.tiers.recognition import committed_prefix

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)


def is_prefix(fs: FileSystem, path: Path) -> bool:
    """Whether rows for `path` go below a prefix: it leads to an object store, or logs were committed there.

    UnsupportedError for a URL that nothing can be put to.
    """
    if not isinstance(path, RemotePath):
        return committed_prefix(fs, path) == path
    if path.scheme not in OBJECT_STORES:
        raise UnsupportedError(f"{path}: rows go to {', '.join(f'{each}://' for each in OBJECT_STORES)} or a directory")
    return True


@dataclass(frozen=True, slots=True)
class ObjectSink:
    """The sink. `home` is the directory that tasks and driver make their scratch directories in; None: the system's.

    A file of `made_bytes` is made a segment by its task, as it would not be joined to others anyway.
    """

    options: WriteOptions
    home: Path | None = None
    made_bytes: int = JOINED_BYTES

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        with self._growing() as prefix:
            own = replace(self.options, path=prefix.scratch)
            return tuple(self._put(prefix, owner, stage_rows(prefix.scratch_fs, prefix.scratch, own, batches)))

    def _put(self, prefix: GrowingPrefix, owner: str, files: Sequence[StagedFile]) -> Iterator[StagedFile]:
        """Puts staged files; gives each with its name below the prefix."""
        least = min(self.made_bytes, self.options.segment_bytes // 2)  # the files of a full segment have that at least
        growths = _growths(prefix, files) if any(file.size >= least for file in files) else {}
        for file in files:
            name = file.topic_partition
            staged = made(prefix, growths[name], file) if name in growths and file.size >= least else None
            if staged is None or staged.made is None:
                staged = replace(file, name=f"{COMMITTED}/{STAGED}/{owner}/{file.name}")
                growths.pop(name, None)  # what follows in this partition does not come next
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

    def _unused(self, store: ObjectFiles, files: Sequence[StagedFile]) -> list[Path]:
        """The objects of segments that tasks have made and no commit took. Only after a commit that has
        succeeded: of one whose answer was lost nobody knows yet whether its manifest will name them.
        """
        ours = [(file.topic_partition, file.made.segment) for file in files if file.made is not None]
        logs = read_committed(store, self.options.path) if ours else None
        known = () if logs is None else logs.manifest.partitions
        named = {(one.topic_partition, each.place) for one in known for each in one.segments}
        return [
            object_of(self.options.path, name, segment, kind)
            for name, segment in ours
            if (name, segment.place) not in named
            for kind in segment.objects
        ]

    @contextmanager
    def _growing(self) -> Iterator[GrowingPrefix]:
        """The prefix, with a scratch directory that goes at the end."""
        # by size alone: segments that are joined must not be cut again by the time of their records
        config = LogConfig(segment_bytes=self.options.segment_bytes, segment_ms=INT64_MAX)
        store, fs = files_of(self.options.store), ScratchFileSystem(LocalFileSystem())
        with tempfile.TemporaryDirectory(prefix="seglog-write-", dir=self.home) as scratch:
            yield GrowingPrefix(store, self.options.path, fs, Path(scratch), SystemClock(), config)


def _growths(prefix: GrowingPrefix, files: Iterable[StagedFile]) -> dict[TopicPartition, Growth]:
    """How the partitions of some files grow, by what is committed now."""
    before = read_committed(prefix.store, prefix.path)
    known = {} if before is None else {one.topic_partition: one for one in before.manifest.partitions}
    return {name: beside(name, known.get(name)) for name in {file.topic_partition for file in files}}


def _discard(store: ObjectFiles, chosen: Callable[[], Iterable[Path]]) -> None:
    """Removes what nobody reads; what this user may not remove is logged, once."""
    try:
        for path in chosen():
            store.discard(path)
    except FileNotFoundError:
        return  # nothing was staged
    except (OSError, CorruptTierError) as error:
        _logger.warning("what was staged remains there: %s", error)
