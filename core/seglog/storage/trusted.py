"""Reading files that seglog obeys: whether one can be trusted is judged when it is open.

Who owns the directory can put another file in its place between a look at the name and the reading.
"""

from __future__ import annotations

from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import READ_BYTES_LIMIT, FileSystem, read_whole
from seglog.storage.ownership import require_trust


def read_trusted(fs: FileSystem, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes | None:
    """A whole small file that nobody but this user and root can have written; None when there is none.

    RefusedError when somebody else can have, for a link, and when it is larger than `limit` bytes.
    """
    found = fs.status(path, follow=False)
    if found is None:
        return None
    require_trust(path, found)
    with fs.open(path, "r") as file:
        opened = file.status()
        require_trust(path, opened)
        if (opened.device, opened.inode) != (found.device, found.inode):
            raise RefusedError(f"{path} was replaced while it was looked at; try again")
        return read_whole(file, limit)
