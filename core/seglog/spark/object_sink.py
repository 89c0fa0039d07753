"""The sink of a prefix in an object store: no rename, no lock, no file system that driver and executors share.

1. A task encodes its rows on its executor's own disk, and puts them below `_seglog/staged/<owner>` under names that no
   other attempt has.
2. The driver appends them through the engine and commits by a manifest (`log.object_append`); then what was staged
   goes, as far as this user may remove objects.

What tasks and drivers leave that die is named by no manifest: `seglog tiers` shows it.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.clock import SystemClock
from seglog.configuration.keys import LogConfig
from seglog.errors import UnsupportedError
from seglog.format.log_manifest import STAGED
from seglog.format.tier_names import COMMITTED
from seglog.layout import INT64_MAX
from seglog.log.append_journal import StagedFile, StreamBatch
from seglog.log.object_append import ObjectAppend
from seglog.remote_path import OBJECT_STORES, RemotePath
from seglog.spark.files import files_of
from seglog.spark.write_options import WriteOptions
from seglog.spark.writer import stage_rows
from seglog.storage.filesystem import FileSystem, LocalFileSystem
from seglog.storage.scratch import ScratchFileSystem
from seglog.tiers.publishing import put_object
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
    """The sink. `home` is the directory that tasks and driver make their scratch directories in; None: the system's."""

    options: WriteOptions
    home: Path | None = None

    def stage(self, owner: str, batches: Iterable[pa.RecordBatch]) -> tuple[StagedFile, ...]:
        store, staging = files_of(self.options.store), self._staging(owner)
        with self._scratch() as name:
            scratch = Path(name)
            fs, own = ScratchFileSystem(LocalFileSystem()), replace(self.options, path=scratch)
            files = stage_rows(fs, scratch, own, batches)
            for file in files:
                with fs.open(scratch / file.name, "r") as made:
                    put_object(store, staging / file.name, made)
        return tuple(files)

    def commit(self, owner: str, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        # by size alone: segments that are joined must not be cut again by the time of their records
        config = LogConfig(segment_bytes=self.options.segment_bytes, segment_ms=INT64_MAX)
        store = files_of(self.options.store)
        try:
            with self._scratch() as scratch:
                fs = ScratchFileSystem(LocalFileSystem())
                append = ObjectAppend(store, self.options.path, fs, Path(scratch), SystemClock(), config)
                return append.run(self._staging(owner), files, stream)
        finally:
            self.discard(owner)

    def discard(self, owner: str) -> None:
        """Nothing reads what remains: what this user may not remove is logged, once."""
        store, staging = files_of(self.options.store), self._staging(owner)
        try:
            for name in store.list(staging):
                store.discard(staging / name)
        except FileNotFoundError:
            return
        except OSError as error:
            _logger.warning("%s: what was staged remains there: %s", staging, error.strerror)

    def _staging(self, owner: str) -> Path:
        return self.options.path / COMMITTED / STAGED / owner

    def _scratch(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="seglog-write-", dir=self.home)
