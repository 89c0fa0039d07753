"""Committed offsets: those of the directories' own `__consumer_offsets`, then those that clients commit here.

`consumer_groups.coordinator_replay` reads the topic. Commits of clients are kept in memory, and on request also in a
file of JSON lines, one per commit; the last one of a partition counts. A commit is acknowledged once its line is on
stable storage.

    {"type":"commit","group":"g","topic":"orders","partition":0,"offset":42,"leader_epoch":0,"metadata":""}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seglog.consumer_groups.committed_offsets import offset_commits
from seglog.consumer_groups.coordinator_replay import CoordinatorReplay
from seglog.errors import InputError
from seglog.escaping import json_text
from seglog.format.wire import WireError
from seglog.log.segments import LogView
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.log_walk import LogWalk
from seglog.storage.filesystem import FileSystem, write_atomically

_FILE_LIMIT = 1 << 30

_logger = logging.getLogger("seglog.serve.committed")


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's position in a partition: it has read everything below `offset`."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class CommittedOffsets:
    """Commits by group and partition: `count` of them, with group names and metadata of `size` bytes."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Commit]] = {}
        self.count = self.size = 0

    def of(self, group: str) -> Mapping[TopicPartition, Commit]:
        """Returns the commits of a group."""
        return self._groups.get(group, {})

    @property
    def groups(self) -> Iterable[str]:
        """The groups with a commit."""
        return self._groups

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

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, Commit]]:
        return ((group, each, commit) for group, commits in self._groups.items() for each, commit in commits.items())


def load_offsets_topic(views: Iterable[LogView], into: CommittedOffsets) -> None:
    """Adds the commits in partitions of `__consumer_offsets`. Damage and undecodable records are logged and skipped."""
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
            for entry in _read_lines(self.path, self._fs.read_bytes(self.path, _FILE_LIMIT)):
                commits.put(*entry)
                kept.put(*entry)
        data = _lines(kept)
        write_atomically(self._fs, self.path, data)
        self._size = len(data)

    def append(self, commits: Iterable[tuple[str, TopicPartition, Commit]]) -> None:
        """Appends commits, durable on return. Raises OSError; the next append then overwrites the partial lines."""
        data = _lines(commits)
        with self._fs.open(self.path, "r+") as file:
            file.truncate(self._size)
            file.write_at(self._size, data)
            file.sync()
        self._size += len(data)


def _lines(commits: Iterable[tuple[str, TopicPartition, Commit]]) -> bytes:
    lines = []
    for group, partition, commit in commits:
        record = {
            "type": "commit",
            "group": group,
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": commit.offset,
            "leader_epoch": commit.leader_epoch,
            "metadata": commit.metadata,
        }
        lines.append(json_text(record) + "\n")
    return "".join(lines).encode()


def _read_lines(path: Path, data: bytes) -> Iterator[tuple[str, TopicPartition, Commit]]:
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # bytes after the last line feed are a torn line
        try:
            found = json.loads(line)
            partition = TopicPartition(str(found["topic"]), int(found["partition"]))
            commit = Commit(int(found["offset"]), int(found["leader_epoch"]), str(found["metadata"]))
            entry = str(found["group"]), partition, commit
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(str(path), number, "not a committed offset; is this the file of --offsets?") from error
        yield entry
