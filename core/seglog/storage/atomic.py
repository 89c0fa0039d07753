"""Replacing a small file as a whole: readers and crashes see the old contents or the new, never a mixture.

Kafka: CheckpointFile.write, ProducerStateManager.writeSnapshot, Utils.atomicMoveWithFallback.

1. Make `<name>.tmp` beside the file, with the owner and mode of the file it replaces. What has that name, left over
   or put there, goes first: nothing is ever written through it.
2. Write and fsync it.
3. Rename it over the file.
4. Fsync the directory, so that the rename itself survives.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from seglog.storage.ownership import Access

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from seglog.storage.filesystem import FileSystem

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(fs: FileSystem, path: Path, data: ReadableBuffer, access: Access | None = None) -> None:
    """Makes `data` the contents of `path`; durable on return. `access` is given whatever the old file had.

    An error or a signal leaves the old contents in place and no temporary file. A crash may leave `<name>.tmp`,
    which Kafka and seglog overwrite the next time.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with fs.open(temporary, "create") as file:
            old = fs.status(path, follow=False)
            if access is None and old is not None and not old.is_link:
                access = Access.of(old)
            if access is not None:
                file.give(access)
            file.write_at(0, data)
            file.sync()
        fs.rename(temporary, path)
    except BaseException:  # a signal, too
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    fs.sync_directory(path.parent)
