"""Files that the broker's user could not open: what root (or somebody else) made among them.

A broker runs as a user of its own. A file that it cannot open keeps it from starting, whatever is in the file. Which
user that is, nobody wrote down; the owner of the log directory, or of most partitions where root owns it, is taken.

Kafka opens `.lock`, every `.log` and every index for writing; checkpoints, snapshots and properties are read, and
replaced by way of a `.tmp` file, which is written; names are changed in every directory.
"""

from __future__ import annotations

import grp
import pwd
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from seglog.format import filenames
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.scan.listing import OFFSET_CHECKPOINTS, LogDirectoryListing
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.links import has_access_list
from seglog.storage.trust import ROOT, described_user

_READ, _WRITE, _SEARCH = 4, 2, 1
_WRITTEN = {kind for kind in FileKind if kind not in (FileKind.PRODUCER_SNAPSHOT, FileKind.METADATA_SNAPSHOT)}
_REPLACED = (*OFFSET_CHECKPOINTS, filenames.META_PROPERTIES, filenames.LEADER_EPOCH_CHECKPOINT, filenames.QUORUM_STATE)
_READ_ONLY = (*_REPLACED, filenames.PARTITION_METADATA)
_TEMPORARY = FileState.TEMPORARY.value


@dataclass(frozen=True, slots=True)
class Denied:
    """What one directory holds that the broker's user cannot open: `path`, the first, and how many in all.

    `partition` is the directory's name, "" for the log directory itself. `command` gives it to the user.
    """

    partition: str
    path: Path
    message: str
    command: str
    count: int


@dataclass(frozen=True)
class _User:
    """The broker's user, with the groups that this machine knows it to be in, and that of the log directory."""

    number: int
    group: int

    @cached_property
    def groups(self) -> frozenset[int]:
        known = {self.group}
        try:
            entry = pwd.getpwuid(self.number)
        except KeyError:
            return frozenset(known)
        known |= {entry.pw_gid, *(group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem)}
        return frozenset(known)

    def may(self, found: FileStatus, wanted: int) -> bool:
        shift = 6 if found.owner == self.number else 3 if found.group in self.groups else 0
        return (found.mode >> shift) & wanted == wanted

    def given(self, *paths: Path) -> str:
        """The command that gives paths to the user."""
        names = " ".join(shlex.quote(str(path)) for path in paths)
        return f"chown -R {_user_name(self.number)}:{_group_name(self.group)} {names} && chmod -R u+rwX {names}"


@dataclass
class _Found:
    """What was found in one directory."""

    directory: Path
    paths: list[Path] = field(default_factory=list)
    first: FileStatus | None = None


def denied(fs: FileSystem, listing: LogDirectoryListing) -> Iterator[Denied]:
    """What the broker's user could not open, a directory at a time; nothing where no other user than root is seen."""
    user = _broker_user(fs, listing)
    if user is None:
        return
    for directory in (listing.path, *(partition.path for partition in listing.partitions)):
        found = _in_directory(fs, directory, user, is_partition=directory != listing.path)
        if found.first is None:
            continue
        message = (
            f"it belongs to {described_user(found.first.owner)} with mode {found.first.mode:04o};"
            f" {described_user(user.number)}, as whom the broker seems to run, cannot open it"
        )
        is_own = directory == listing.path
        command = user.given(*found.paths) if is_own else user.given(directory)
        yield Denied("" if is_own else directory.name, found.paths[0], message, command, len(found.paths))


def _broker_user(fs: FileSystem, listing: LogDirectoryListing) -> _User | None:
    own = fs.status(listing.path)
    if own is not None and own.owner != ROOT:
        return _User(own.owner, own.group)
    found = [status for each in listing.partitions if (status := fs.status(each.path)) is not None]
    counted = Counter((status.owner, status.group) for status in found if status.owner != ROOT)
    return _User(*counted.most_common(1)[0][0]) if counted else None


def _in_directory(fs: FileSystem, directory: Path, user: _User, *, is_partition: bool) -> _Found:
    found, own = _Found(directory), fs.status(directory)
    entries = [(directory, own, _READ | _WRITE | _SEARCH)] if own is not None else []
    try:
        inside = fs.entries(directory)
    except FileNotFoundError:  # a broker that runs deletes topics
        return found
    for name, status in inside:
        wanted = _wanted(name, status, is_partition)
        if wanted:
            entries.append((directory / name, status, wanted))
    for path, status, wanted in entries:
        if status is not None and not user.may(status, wanted) and not has_access_list(path):
            found.paths.append(path)
            found.first = found.first or status
    return found


def _wanted(name: str, status: FileStatus, is_partition: bool) -> int:
    """What a broker does with a file; 0 for a name that means nothing to it."""
    if status.is_directory or status.is_link:
        return 0
    if name.endswith(_TEMPORARY) and name.removesuffix(_TEMPORARY) in _REPLACED:
        return _WRITE
    if not is_partition:
        return _READ | _WRITE if name == filenames.LOCK_FILE else _READ if name in _READ_ONLY else 0
    parsed = parse_file_name(name)
    if parsed is None:
        return _READ if name in _READ_ONLY else 0
    if parsed.state not in (FileState.LIVE, FileState.SWAP):
        return 0
    return _READ | _WRITE if parsed.kind in _WRITTEN else _READ


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
