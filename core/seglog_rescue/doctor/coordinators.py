"""What the transaction coordinators of a broker know, by its `__transaction_state` logs, and whether any other could.

The id of a transaction's coordinator is not in its records: a producer that no log here knows may have its state on
another broker. It has none anywhere if every partition of `__transaction_state` is here, or has this broker as its only
replica. No coordinator then ends the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.format.coordinator import TRANSACTION_TOPIC
from seglog.scan.listing import list_log_directory
from seglog.storage.filesystem import FileSystem
from seglog.verification.transaction_coordinators import Coordinated, read_coordinators


@dataclass(slots=True)
class Coordinators:
    """Reads the coordinators' logs in the log directories of one broker: once, or with `live` on each call.

    `read` is false if they must not be read; then nothing is known.
    """

    fs: FileSystem
    paths: Sequence[Path]
    read: bool
    live: bool
    _known: tuple[Mapping[int, Coordinated] | None] | None = None
    _know_all: bool | None = None
    _readable: bool = True

    def __call__(self) -> Mapping[int, Coordinated] | None:
        """Returns what the coordinators know, by producer id. None if no partition of theirs is here, or this user may
        not read one.
        """
        if not self.read:
            return None
        if self._known is None or self.live:
            read = [read_coordinators(self.fs, path) for path in self.paths if self._partitions_in(path)]
            readable = [states for states in read if states is not None]
            self._readable = len(readable) == len(read)
            self._known = ({key: value for states in readable for key, value in states.items()} if readable else None,)
        return self._known[0]

    def know_all(self, metadata: ClusterMetadata | None, node_id: int | None) -> bool:
        """True if a producer that none of them knows has no coordinator on any broker."""
        if not self.read or self.live or metadata is None or node_id is None:
            return False
        if self._know_all is None:
            self()
            self._know_all = self._readable and self._are_all_here(metadata, node_id)
        return self._know_all

    def _are_all_here(self, metadata: ClusterMetadata, node_id: int) -> bool:
        here = {number for path in self.paths for number in self._partitions_in(path)}
        topic_id = metadata.topic_ids.get(TRANSACTION_TOPIC, "")
        assigned = metadata.partitions.get(topic_id, {})
        return all(number in here or found.replicas == (node_id,) for number, found in assigned.items())

    def _partitions_in(self, path: Path) -> list[int]:
        keys = (each.topic_partition for each in list_log_directory(self.fs, path).live)
        return [key.partition for key in keys if key.topic == TRANSACTION_TOPIC]
