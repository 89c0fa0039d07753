"""How far a replay is: a small file that is replaced as a whole, from which the next run goes on.

Of each source partition it says which offset comes next, and up to where the target's log is known. Both only ever
stand behind what really happened: a record that arrived after the last save is found in the target's log again, between
`target_end` and the log's end (`replay.arrived`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seglog.errors import RefusedError
from seglog.model import TopicPartition
from seglog.storage.files import write_atomically
from seglog.storage.filesystem import FileSystem

FORMAT = 1
MOST_BYTES = 64 << 20


@dataclass(slots=True)
class PartitionState:
    """A source partition's progress. `directory` is where it is read from, `next_offset` the first one not replayed.

    `target_end` is the offset after the last record of this replay that is known to be in `target`, or at first the
    log's end. `records` counts what was replayed.
    """

    directory: str
    target: TopicPartition
    next_offset: int
    target_end: int
    records: int = 0


@dataclass(slots=True)
class ReplayState:
    """The progress of a whole replay into the cluster `cluster_id`.

    `in_order`: every record that was handed to the producer is counted here. `map_bytes` is how much of the offset map
    belongs to this state.
    """

    cluster_id: str
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    in_order: bool = True
    map_bytes: int = 0

    def save(self, fs: FileSystem, path: Path) -> None:
        """Replaces the file; durable on return."""
        rows = [
            {**asdict(one), "source": [key.topic, key.partition], "target": [one.target.topic, one.target.partition]}
            for key, one in self.partitions.items()
        ]
        content = {"format": FORMAT, "cluster_id": self.cluster_id, "in_order": self.in_order}
        text = json.dumps({**content, "map_bytes": self.map_bytes, "partitions": rows}, indent=1)
        write_atomically(fs, path, text.encode() + b"\n")

    @classmethod
    def load(cls, fs: FileSystem, path: Path) -> ReplayState | None:
        """The state in a file, or None without one. RefusedError for a file that is none."""
        status = fs.status(path)
        if status is None:
            return None
        try:
            return cls._parsed(json.loads(fs.read_bytes(path, MOST_BYTES)))
        except (ValueError, KeyError, TypeError) as error:
            raise RefusedError(f"{path} is not the state of a replay: {error}") from error

    @classmethod
    def _parsed(cls, content: dict[str, Any]) -> ReplayState:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']}, and this seglog writes {FORMAT}")
        state = cls(str(content["cluster_id"]), {}, bool(content["in_order"]), int(content["map_bytes"]))
        for row in content["partitions"]:
            state.partitions[TopicPartition(str(row["source"][0]), int(row["source"][1]))] = PartitionState(
                directory=str(row["directory"]),
                target=TopicPartition(str(row["target"][0]), int(row["target"][1])),
                next_offset=int(row["next_offset"]),
                target_end=int(row["target_end"]),
                records=int(row["records"]),
            )
        return state

    def require_cluster(self, cluster_id: str, path: Path) -> None:
        """RefusedError when the replay that this state is of went into another cluster."""
        if self.cluster_id != cluster_id:
            raise RefusedError(
                f"{path} is of a replay into cluster {self.cluster_id}, and this is {cluster_id}: name another file"
            )
