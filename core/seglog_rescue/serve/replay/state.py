"""The progress of a replay: a small file, always replaced as a whole, from which the next run continues.

For each source partition it holds the next offset, and the offset up to which the target's log is known. Both may lag,
but never lead: the next run finds a record that arrived after the last save in the target's log, between `target_end`
and the log's end (`serve.replay.replay`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem, write_atomically

FORMAT = 1
_MAX_BYTES = 64 << 20


@dataclass(slots=True)
class PartitionProgress:
    """The progress of a source partition in `directory`: `next_offset` is the first offset not replayed.

    `target_end` is the offset after the last record of this replay known to be in `target`; at first it is the log's
    end. `records` counts the replayed records.
    """

    directory: str
    target: TopicPartition
    next_offset: int
    target_end: int
    records: int = 0


@dataclass(slots=True)
class GroupOffset:
    """An offset that a replay sets for a group in a partition of the target; noted before it is set.

    `before` is what the group had committed there, None if nothing.
    """

    before: int | None
    offset: int


@dataclass(slots=True)
class ReplayState:
    """The progress of a whole replay into the cluster `cluster_id`.

    `groups` are the offsets set by it, by group and target partition.

    `in_order` is true if the state counts every record that was handed to the producer. `map_bytes` is the size of the
    offset map that belongs to this state.
    """

    cluster_id: str
    partitions: dict[TopicPartition, PartitionProgress] = field(default_factory=dict)
    in_order: bool = True
    map_bytes: int = 0
    groups: dict[tuple[str, TopicPartition], GroupOffset] = field(default_factory=dict)

    def save(self, fs: FileSystem, path: Path) -> None:
        """Replaces the file; durable on return."""
        rows = [
            {**asdict(one), "source": [key.topic, key.partition], "target": [one.target.topic, one.target.partition]}
            for key, one in self.partitions.items()
        ]
        content: dict[str, Any] = {"format": FORMAT, "cluster_id": self.cluster_id, "in_order": self.in_order}
        groups = [
            {"group": group, "target": [key.topic, key.partition], "before": one.before, "offset": one.offset}
            for (group, key), one in self.groups.items()
        ]
        content |= {"map_bytes": self.map_bytes, "partitions": rows, "groups": groups}
        text = json.dumps(content, indent=1)
        write_atomically(fs, path, text.encode() + b"\n")

    @classmethod
    def load(cls, fs: FileSystem, path: Path) -> ReplayState | None:
        """Loads a state; None if the file is missing. Raises RefusedError if it is not a state."""
        status = fs.status(path)
        if status is None:
            return None
        try:
            return cls._parsed(json.loads(fs.read_bytes(path, _MAX_BYTES)))
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(f"{path} is not the state of a replay: {error}") from error

    @classmethod
    def _parsed(cls, content: dict[str, Any]) -> ReplayState:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, and this seglog writes {FORMAT}")
        state = cls(str(content["cluster_id"]), {}, bool(content["in_order"]), int(content["map_bytes"]))
        for row in content["partitions"]:
            state.partitions[TopicPartition(str(row["source"][0]), int(row["source"][1]))] = PartitionProgress(
                directory=str(row["directory"]),
                target=TopicPartition(str(row["target"][0]), int(row["target"][1])),
                next_offset=int(row["next_offset"]),
                target_end=int(row["target_end"]),
                records=int(row["records"]),
            )
        for row in content.get("groups", ()):
            target = TopicPartition(str(row["target"][0]), int(row["target"][1]))
            before = None if row["before"] is None else int(row["before"])
            state.groups[str(row["group"]), target] = GroupOffset(before, int(row["offset"]))
        return state

    def require_cluster(self, cluster_id: str, path: Path) -> None:
        """Raises RefusedError if the replay of this state went into another cluster."""
        if self.cluster_id != cluster_id:
            raise RefusedError(
                f"{path} belongs to a replay into cluster {self.cluster_id}, but this is {cluster_id}: name another"
                " file"
            )
