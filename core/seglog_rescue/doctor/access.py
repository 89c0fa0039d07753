"""Files that the broker's user cannot open, such as files that root created.

A broker runs as its own user. A file that it cannot open keeps it from starting, whatever the file holds. No file
records which user that is; the owner of the log directory is taken, or the owner of most partitions if root owns it.

Kafka opens `.lock`, every `.log` and every index for writing. It reads checkpoints, snapshots and properties, and
replaces them through a `.tmp` file, which it writes. It renames files in every directory. Whatever lies in a partition
directory must be readable, a stranger's file too (LogLoader.removeTempFilesAndCollectSwapFiles: "Could not read file").
An index that a start does not open (LazyIndex) only has to be readable until a fetch opens it.
"""

from __future__ import annotations

import grp
import pwd
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seglog.escaping import shell_path
from seglog.format import filenames
from seglog.format.filenames import FileKind, FileState, PartitionState, parse_file_name
from seglog.remote_path import RemotePath
from seglog.scan.listing import OFFSET_CHECKPOINTS, LogDirectoryListing, PartitionDirectory
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.links import has_access_list
from seglog.storage.trust import ROOT, described_user
from seglog.verification.surroundings import Surroundings
from seglog_rescue.doctor.no_files import LAZY_INDEXES, closed_segments

_READ, _WRITE, _SEARCH = 4, 2, 1
_WRITTEN = {kind for kind in FileKind if kind not in (FileKind.PRODUCER_SNAPSHOT, FileKind.METADATA_SNAPSHOT)}
_REPLACED = (*OFFSET_CHECKPOINTS, filenames.META_PROPERTIES, filenames.LEADER_EPOCH_CHECKPOINT, filenames.QUORUM_STATE)
_READ_ONLY = (*_REPLACED, filenames.PARTITION_METADATA, filenames.BOOTSTRAP_CHECKPOINT)
_MANY = 4  # directories, from which on one command for all is kinder than one for each
_TEMPORARY = FileState.TEMPORARY.value


@dataclass(frozen=True, slots=True)
class Denied:
    """Files in one directory that the broker's user cannot open: `path` is the first of `count`.

    `partition` is the directory's name, "" for the log directory itself. `command` gives the files to the user.
    `is_later`: a start opens none of them, a fetch does.
    """

    partition: str
    path: Path
    message: str
    command: str
    count: int
    is_later: bool = False


@dataclass(frozen=True)
class _User:
    """The broker's user, and the group of the log directory."""

    number: int
    group: int

    @cached_property
    def groups(self) -> frozenset[int]:
        """The log directory's group, and the groups that this machine lists the user in."""
        try:
            entry = pwd.getpwuid(self.number)
        except KeyError:
            return frozenset({self.group})
        listed = (group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem)
        return frozenset({self.group, entry.pw_gid, *listed})

    def may(self, status: FileStatus, needed: int) -> bool:
        """True if the mode of a file grants the user the access `needed`."""
        shift = 6 if status.owner == self.number else 3 if status.group in self.groups else 0
        return (status.mode >> shift) & needed == needed

    def chown_command(self, paths: Sequence[Path]) -> str:
        """Returns the command that gives paths to the user."""
        try:
            user = pwd.getpwuid(self.number).pw_name
        except KeyError:
            user = str(self.number)
        try:
            group = grp.getgrgid(self.group).gr_name
        except KeyError:
            group = str(self.group)
        names = " ".join(map(shell_path, paths))
        return f"chown -R {user}:{group} {names} && chmod -R u+rwX {names}"


def denied(fs: FileSystem, listing: LogDirectoryListing, around: Surroundings) -> Iterator[Denied]:
    """Yields for each directory what the broker's user cannot open; nothing if root owns everything, or at a URL."""
    user = None if isinstance(listing.path, RemotePath) else _broker_user(fs, listing)  # objects have no owner or mode
    if user is None:
        return
    places: dict[Path, PartitionDirectory | None] = {listing.path: None}
    places |= {partition.path: partition for partition in listing.partitions}
    denials = {place: files for place in places if (files := _denied_in(fs, place, user, places[place] is not None))}
    inside = [place for place in denials if (own := fs.status(place, follow=False)) is not None and not own.is_link]
    for directory, files in denials.items():
        partition = places[directory]
        is_own = partition is None
        is_later = partition is not None and _is_opened_later(fs, partition, around, user, files)
        path, status = files[0]
        message = (
            f"it belongs to {described_user(status.owner)} with mode {status.mode:04o};"
            f" the broker, which seems to run as {described_user(user.number)}, cannot open it"
        )
        if len(inside) >= _MANY and directory in inside:
            command = user.chown_command([listing.path])  # one line for all, to be pasted once
        else:
            command = user.chown_command([path for path, _ in files] if is_own else [directory])
        yield Denied("" if is_own else directory.name, path, message, command, len(files), is_later)


def _is_opened_later(
    fs: FileSystem,
    partition: PartitionDirectory,
    around: Surroundings,
    user: _User,
    files: Sequence[tuple[Path, FileStatus]],
) -> bool:
    """True if the files are indexes that a start does not open, and the user may read them."""
    named = [parse_file_name(path.name) for path, _ in files]
    indexes = [name for name in named if name and name.state is FileState.LIVE and name.kind in LAZY_INDEXES]
    if len(indexes) < len(files) or partition.is_cluster_metadata or not all(user.may(one, _READ) for _, one in files):
        return False
    present = filter(None, map(parse_file_name, fs.list(partition.path)))
    bases = sorted(name.offset for name in present if name.state is FileState.LIVE and name.kind is FileKind.LOG)
    recovery_point = around.offset(filenames.RECOVERY_POINT_CHECKPOINT, partition.topic_partition) or 0
    clean = around.clean or partition.state is PartitionState.DELETED
    return {name.offset for name in indexes} <= closed_segments(bases, recovery_point, clean=clean)


def _broker_user(fs: FileSystem, listing: LogDirectoryListing) -> _User | None:
    own = fs.status(listing.path)
    if own is not None and own.owner != ROOT:
        return _User(own.owner, own.group)
    found = [status for each in listing.partitions if (status := fs.status(each.path)) is not None]
    counted = Counter((status.owner, status.group) for status in found if status.owner != ROOT)
    return _User(*counted.most_common(1)[0][0]) if counted else None


def _denied_in(fs: FileSystem, directory: Path, user: _User, is_partition: bool) -> list[tuple[Path, FileStatus]]:
    """Returns the directory and the files in it that the user cannot open as a broker does."""
    own = fs.status(directory)
    entries = [(directory, own, _READ | _WRITE | _SEARCH)] if own is not None else []
    try:
        entries += [
            (directory / name, status, _needed_access(name, status, is_partition))
            for name, status in fs.entries(directory)
        ]
    except FileNotFoundError:  # a running broker deletes topics
        return []
    except PermissionError:  # of this user; what the directory itself grants the broker's user is known
        return _not_granted(entries, user)
    return _not_granted(entries, user)


def _not_granted(entries: Sequence[tuple[Path, FileStatus, int]], user: _User) -> list[tuple[Path, FileStatus]]:
    return [
        (path, status) for path, status, needed in entries if not user.may(status, needed) and not has_access_list(path)
    ]


def _needed_access(name: str, status: FileStatus, is_partition: bool) -> int:
    """Returns the access that a broker needs to a file; 0 if it does not care."""
    if status.no_file or status.is_link:
        return 0
    if name.endswith(_TEMPORARY) and name.removesuffix(_TEMPORARY) in _REPLACED:
        return _READ | _WRITE if is_partition else _WRITE
    if not is_partition:
        return _READ | _WRITE if name == filenames.LOCK_FILE else _READ if name in _READ_ONLY else 0
    parsed = parse_file_name(name)
    if parsed is None or parsed.state not in (FileState.LIVE, FileState.SWAP):
        return _READ
    return _READ | _WRITE if parsed.kind in _WRITTEN else _READ
