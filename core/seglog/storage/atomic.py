"""Replacing a small file as a whole: readers and crashes see the old contents or the new, never a mixture.

Kafka: CheckpointFile.write, ProducerStateManager.writeSnapshot, Utils.atomicMoveWithFallback.

1. Create `<name>.tmp` beside the file, with the owner and mode of the file it replaces.
2. Write and fsync it.
3. Rename it over the file.
4. Fsync the directory, so that the rename itself survives.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import ReadableBuffer

    from seglog.storage.filesystem import FileSystem

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(fs: FileSystem, path: Path, data: ReadableBuffer) -> None:
    """Makes `data` the contents of `path`; durable on return.

    OSError leaves the old contents in place and no temporary file behind. A crash may leave `<name>.tmp`,
    which Kafka and seglog overwrite the next time.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with fs.open(temporary, "create") as file:
            if fs.status(path) is not None:
                # Before the contents, because it copies the modification time too, which writing then renews.
                fs.copy_attributes(path, temporary)
            file.write_at(0, data)
            file.sync()
        fs.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            fs.remove(temporary)
        raise
    fs.sync_directory(path.parent)
