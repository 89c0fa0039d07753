"""What the operating system says about a file, whom it belongs to, what a new one gets, and whose word counts.

A broker runs as a user of its own (`kafka`), an operator often as root. What root makes in a broker's directory has to
be the broker's, or it does not start (`AccessDeniedException`); what root keeps for itself (quarantines) has to stay
root's, and only what root wrote is obeyed by root.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import RefusedError

ROOT = 0
_WRITABLE_BY_OTHERS = 0o022
# Others never get to write a file because they may write its directory (/tmp); programs are nobody's business here.
_INHERITED = 0o2775


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What the operating system says about a path.

    `size` and `allocated` (blocks really taken, less than `size` in a sparse file) are in bytes;
    `modified_ms` is the modification time rounded down to milliseconds, as Java's `File.lastModified` gives
    it. `names` counts hard links. A file is special when it is neither a regular file nor a directory nor a link.
    `version` is an object's ETag; a store's alone has one.
    """

    size: int
    modified_ms: int
    modified_ns: int
    inode: int
    device: int
    mode: int
    owner: int
    group: int
    allocated: int
    is_directory: bool
    is_link: bool = False
    is_special: bool = False
    names: int = 1
    version: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """What a new file or directory gets, whatever the umask: `mode` is that of a directory, of which a file takes the
    bits that read and write. An `owner` or `group` of -1 stays that of the process.
    """

    owner: int
    group: int
    mode: int

    @classmethod
    def of(cls, found: FileStatus) -> Access:
        """That of a file that is there, without the bits that make programs run as somebody else."""
        return cls(found.owner, found.group, found.mode & 0o777)

    @classmethod
    def within(cls, directory: FileStatus) -> Access:
        """That of a directory's contents: whoever may make a file there may also write those that are there."""
        return cls(directory.owner, directory.group, directory.mode & _INHERITED)


# For what only this user may see.
PRIVATE = Access(-1, -1, 0o700)


def reason_for_doubt(found: FileStatus) -> str:
    """Why somebody else than this user and root may have written this file, or made what is in this directory; "" when
    nobody else can have.
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
    """RefusedError for a file or directory that others can have written: its word is not obeyed."""
    reason = reason_for_doubt(found)
    if reason:
        me = described_user(os.geteuid())
        whose = me if os.geteuid() == ROOT else f"root or {me}"
        raise RefusedError(f"{path} {reason}: what it says is done only if nobody but {whose} can have written it")


def described_user(user: int) -> str:
    """A user for a sentence: name and number."""
    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except KeyError:
        return f"the user with uid {user}"
