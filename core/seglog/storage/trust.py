"""Which files seglog obeys: those that nobody but this user and root can have written.

A broker runs as a user of its own (`kafka`), an operator often as root. Files that root keeps for itself (quarantines)
must stay root's, and root obeys only what root wrote.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from seglog.errors import RefusedError
from seglog.storage.filesystem import READ_BYTES_LIMIT, FileStatus, FileSystem, read_whole

ROOT = 0
_WRITABLE_BY_OTHERS = 0o022


def reason_for_doubt(found: FileStatus) -> str:
    """Returns why somebody other than this user and root may have written this file, or made the contents of this
    directory; "" if nobody else can have.
    """
    if found.is_link:
        return "is a symbolic link"
    if found.owner not in (ROOT, os.geteuid()):
        return f"belongs to {described_user(found.owner)}"
    if found.mode & _WRITABLE_BY_OTHERS:
        return "may be written by other users"
    if found.names > 1 and not found.is_directory:
        return "has another name (a hard link)"
    return ""


def require_trust(path: Path, found: FileStatus) -> None:
    """Raises RefusedError for a file or directory that others can have written: it is not obeyed."""
    reason = reason_for_doubt(found)
    if reason:
        me = described_user(os.geteuid())
        whose = me if os.geteuid() == ROOT else f"root or {me}"
        raise RefusedError(f"{path} {reason}: what it says is done only if nobody but {whose} can have written it")


def described_user(user: int) -> str:
    """Returns a user's name and number, for a sentence."""
    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except KeyError:
        return f"the user with uid {user}"


def read_trusted(fs: FileSystem, path: Path, limit: int = READ_BYTES_LIMIT) -> bytes | None:
    """Returns a whole small file that nobody but this user and root can have written; None if there is none.

    Raises RefusedError if somebody else can have written it, for a link, and if it is larger than `limit` bytes. The
    open file is checked, too: the directory's owner may put another file in its place after the look at the name.
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
