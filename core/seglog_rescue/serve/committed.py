"""Committed offsets: those of the directories' own `__consumer_offsets`, then those that clients commit here.

`groups.coordinator_replay` reads the topic. Commits of clients are kept in memory, and on request also in a
file of JSON lines, one per commit; the last one of a partition counts. A commit is acknowledged once its line is on
stable storage. `group_type` and `protocol_type` say what the group is.

    {"type":"commit","group":"g","topic":"orders","partition":0,"offset":42,"leader_epoch":0,"metadata":"",
     "group_type":"consumer","protocol_type":"consumer"}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import InputError
from seglog.escaping import json_text
from seglog.format.wire import WireError
from seglog.log.segments import LogView
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.log_walk import LogWalk
from seglog.storage.filesystem import FileSystem, write_atomically
from seglog_rescue.groups.committed_offsets import offset_commits
from seglog_rescue.groups.coordinator_replay import CoordinatorReplay
from seglog_rescue.groups.states import CLASSIC, CONSUMER, SHARE, STREAMS, group_states

_FILE_LIMIT = 1 << 30
_GROUP_TYPES = (CLASSIC, CONSUMER, SHARE, STREAMS)

_logger = logging.getLogger("seglog.serve.committed")


@dataclass(frozen=True, slots=True)
class GroupKind:
    """What a group is while it has no members, as a broker tells it: the name of its protocol (GroupType), what members
    of the classic protocol call theirs (consumer, connect, …; none in a group that only has commits), its epoch, and
    that of its assignment."""

    group_type: str = CLASSIC
    protocol_type: str = ""
    epoch: int = 0
    assignment_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's position in a partition: it has read everything below `offset`."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


_ONLY_COMMITS = GroupKind()


Entry = tuple[str, TopicPartition, Commit]  # a group's


class CommittedOffsets:
    """Commits by group and partition: `count` of them, with groups' names and types and metadata of `size` bytes;
    and what each group is without members."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Commit]] = {}
        self._kinds: dict[str, GroupKind] = {}
        self.count = self.size = 0

    def of(self, group: str) -> Mapping[TopicPartition, Commit]:
        """Returns the commits of a group."""
        return self._groups.get(group, {})

    @property
    def groups(self) -> Set[str]:
        """The groups with a commit, and those of the directories."""
        return self._groups.keys() | self._kinds.keys()

    def knows(self, group: str) -> bool:
        """True for one of `groups`."""
        return group in self._groups or group in self._kinds

    def kind_of(self, group: str) -> GroupKind:
        """Returns what a group without members is."""
        return self._kinds.get(group, _ONLY_COMMITS)

    def set_kind(self, group: str, kind: GroupKind) -> None:
        """Takes note of what a group of the directories is, or one that has lost its members."""
        self.size += len(kind.protocol_type) - len(self.kind_of(group).protocol_type)
        self._kinds[group] = kind

    def put(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        """Sets the newest commit of a group for a partition."""
        self.size += self.growth(group, partition, commit)
        commits = self._groups.setdefault(group, {})
        self.count += partition not in commits
        commits[partition] = commit

    def growth(self, group: str, partition: TopicPartition, commit: Commit) -> int:
        """Returns by how many bytes `put` would change `size`."""
        known = self.of(group).get(partition)
        more = len(commit.metadata) - (0 if known is None else len(known.metadata))
        return more if group in self._groups else more + len(group)

    def __iter__(self) -> Iterator[Entry]:
        return ((group, each, commit) for group, commits in self._groups.items() for each, commit in commits.items())


def load_offsets_topic(views: Iterable[LogView], into: CommittedOffsets) -> None:
    """Adds the groups and commits in partitions of `__consumer_offsets`. Damage and undecodable records are logged and
    skipped."""
    for view in views:
        replay = CoordinatorReplay()
        for index, segment in enumerate(view.segments):
            for step in LogWalk(segment.fs, segment.path, 0, view.size_of(index)):
                replay.take(step, segment.path)
        directory = view.segments[0].path.parent
        for sentence in replay.damage:
            _logger.warning("committed offsets may be missing: %s", sentence)
        for found in offset_commits(replay.values.values()):
            if isinstance(found, WireError):
                _logger.warning("%s: a committed offset cannot be decoded: %s", directory, found)
            else:
                into.put(found.group, found.partition, Commit(found.offset, found.leader_epoch, found.metadata))
        problems: list[str] = []
        for name, state in group_states(replay.values.values(), lambda _id: None, problems).items():
            protocol_type = state.protocol_type if state.kind == CLASSIC else state.kind
            epochs = max(state.epoch, 0), max(state.assignment_epoch, 0)
            into.set_kind(name, GroupKind(state.kind, protocol_type or "", *epochs))
        for sentence in problems:
            _logger.warning("%s: what a group is cannot be told: %s", directory, sentence)


class OffsetsFile:
    """The file of commits: `open` reads it and rewrites it with one line per partition, `append` adds to it."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs, self.path = fs, path
        self._size = 0

    def open(self, commits: CommittedOffsets) -> None:
        """Adds the file's commits, which are newer, and rewrites it with one line for each. Ignores a torn last line.

        Raises InputError for another line that is not a commit, and OSError.
        """
        status = self._fs.status(self.path)
        kept = CommittedOffsets()
        if status is not None:
            for entry, kind in _read_lines(self.path, self._fs.read_bytes(self.path, _FILE_LIMIT)):
                for each in (commits, kept):
                    each.put(*entry)
                    if kind is not None:
                        each.set_kind(entry[0], kind)
        data = _lines(kept, kept.kind_of)
        write_atomically(self._fs, self.path, data)
        self._size = len(data)

    def append(self, commits: Iterable[Entry], kind_of: Callable[[str], GroupKind]) -> None:
        """Appends commits of groups of these kinds, durable on return. Raises OSError; the next append then overwrites
        the partial lines."""
        data = _lines(commits, kind_of)
        with self._fs.open(self.path, "r+") as file:
            file.truncate(self._size)
            file.write_at(self._size, data)
            file.sync()
        self._size += len(data)


def _lines(commits: Iterable[Entry], kind_of: Callable[[str], GroupKind]) -> bytes:
    lines = []
    for group, partition, commit in commits:
        kind = kind_of(group)
        record = {
            "type": "commit",
            "group": group,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": commit.offset,
            "leader_epoch": commit.leader_epoch,
            "metadata": commit.metadata,
            "group_type": kind.group_type,
            "protocol_type": kind.protocol_type,
        }
        lines.append(json_text(record) + "\n")
    return "".join(lines).encode()


def _read_lines(path: Path, data: bytes) -> Iterator[tuple[Entry, GroupKind | None]]:
    """Yields the commits, with what their groups are; None in lines of earlier releases, which do not say it."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # bytes after the last line feed are a torn line
        try:
            found = json.loads(line)
            partition = TopicPartition(str(found["topic"]), int(found["partition"]))
            commit = Commit(int(found["offset"]), int(found["leader_epoch"]), str(found["metadata"]))
            entry = str(found["group"]), partition, commit
            kind = _kind_in(found)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(str(path), number, "not a committed offset; is this the file of --offsets?") from error
        yield entry, kind


def _kind_in(found: Mapping[str, object]) -> GroupKind | None:
    if "group_type" not in found:
        return None
    group_type = str(found["group_type"])
    if group_type not in _GROUP_TYPES:
        raise ValueError(group_type)
    return GroupKind(group_type, str(found["protocol_type"]))
