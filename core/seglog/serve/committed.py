"""Committed offsets: first those of the directories' own `__consumer_offsets`, then what clients commit here.

What is read: the last value of each key in the order of the log; offsets committed by a transaction count from its
COMMIT marker on (Kafka: GroupMetadataManager.loadGroupsAndOffsets). What clients commit is kept in memory, or also in
a file of JSON lines, one a commit, the last one of a partition counts. A commit is acknowledged when its line is on
stable storage.

    {"type":"commit","group":"g","topic":"orders","partition":0,"offset":42,"leader_epoch":0,"metadata":""}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seglog import layout
from seglog.errors import InputError
from seglog.escaping import json_text
from seglog.format.coordinator import OFFSETS, decode_coordinator_record
from seglog.format.decoder import decode_records
from seglog.format.wire import WireError
from seglog.log.markers import Marker, read_markers
from seglog.log.reader import LogView
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.log_walk import LogWalk, Piece
from seglog.storage.atomic import write_atomically
from seglog.storage.filesystem import FileSystem

OFFSETS_TOPIC = "__consumer_offsets"

_COMMIT_KEYS = (b"\x00\x00", b"\x00\x01")
_FILE_LIMIT = 1 << 30

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """How far a group has read a partition: everything below `offset`."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class CommittedOffsets:
    """Commits by group and partition; `count` of all."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, Commit]] = {}
        self.count = 0

    def of(self, group: str) -> Mapping[TopicPartition, Commit]:
        """The commits of a group."""
        return self._groups.get(group, {})

    @property
    def groups(self) -> Iterable[str]:
        """The groups that have committed anything."""
        return self._groups

    def put(self, group: str, partition: TopicPartition, commit: Commit) -> None:
        """The newest commit of a group for a partition."""
        commits = self._groups.setdefault(group, {})
        self.count += partition not in commits
        commits[partition] = commit

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, Commit]]:
        return ((group, each, commit) for group, commits in self._groups.items() for each, commit in commits.items())


def load_offsets_topic(views: Iterable[LogView], into: CommittedOffsets) -> None:
    """Adds what the partitions of `__consumer_offsets` say. Damage, and what cannot be decoded, is passed over."""
    for view in views:
        replay = _Replay()
        for index, segment in enumerate(view.segments):
            for step in LogWalk(segment.fs, segment.path, 0, view.size_of(index)):
                if isinstance(step, Piece) and step.complete:
                    replay.take(step, segment.path)
        for key, value in replay.values.items():
            try:
                record = decode_coordinator_record(OFFSETS, key, value)
            except WireError as error:
                _logger.warning("%s: a committed offset cannot be decoded: %s", view.segments[0].path.parent, error)
                continue
            if record.value is not None:
                partition = TopicPartition(str(record.key["topic"]), int(record.key["partition"]))
                into.put(str(record.key["group"]), partition, _commit(record.value))


def _commit(value: Mapping[str, Any]) -> Commit:
    epoch = int(value.get("leaderEpoch", NO_LEADER_EPOCH))
    return Commit(int(value["offset"]), epoch, str(value.get("metadata") or ""))


class _Replay:
    """The last value of each key; what a transaction wrote waits for its marker."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._open: dict[int, list[tuple[bytes, bytes | None]]] = {}

    def take(self, piece: Piece, path: Path) -> None:
        """The batches of a piece, in order: runs of data between control batches."""
        batches = piece.batches[piece.valid]
        control = (batches["magic"] >= 2) & ((batches["attributes"] & layout.CONTROL_MASK) != 0)
        begin = 0
        for at in np.flatnonzero(control).tolist():
            self._data(piece, batches[begin:at])
            for marker in read_markers(piece.data, batches[at : at + 1], piece.position, path):
                if isinstance(marker, Marker):
                    self._end(int(batches[at]["producer_id"]), marker.aborted)
            begin = at + 1
        self._data(piece, batches[begin:])

    def _data(self, piece: Piece, batches: np.ndarray) -> None:
        if not len(batches):
            return
        for records in decode_records(piece.data, batches, piece.position):
            for i in range(len(records)):
                key, value = records.key(i), records.value(i)
                if key is None or key[:2] not in _COMMIT_KEYS:
                    continue
                batch = records.batches[records.rows[i]["batch"]]
                if int(batch["magic"]) >= 2 and int(batch["attributes"]) & layout.TRANSACTIONAL_MASK:
                    self._open.setdefault(int(batch["producer_id"]), []).append((key, value))
                else:
                    self._set(key, value)

    def _end(self, producer_id: int, aborted: bool) -> None:
        for key, value in self._open.pop(producer_id, []):
            if not aborted:
                self._set(key, value)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


class OffsetsFile:
    """The file that commits are kept in: `open` reads it into the commits and writes it anew, `append` adds to it."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs, self.path = fs, path
        self._size = 0

    def open(self, commits: CommittedOffsets) -> None:
        """Adds the file's commits, which are newer, and leaves one line for each. Its last line may be torn.

        Raises InputError for another line that is no commit, OSError.
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
        """Durable on return. Raises OSError; the next append then takes the place of what is half written."""
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
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last line feed was being written
        try:
            found = json.loads(line)
            partition = TopicPartition(str(found["topic"]), int(found["partition"]))
            commit = Commit(int(found["offset"]), int(found["leader_epoch"]), str(found["metadata"]))
            entry = str(found["group"]), partition, commit
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(str(path), number, "no committed offset; is this the file of --offsets?") from error
        yield entry
