"""Checks the target log directory: it belongs to a cleanly stopped broker of another cluster that knows the topics.

The new cluster's knowledge is in its `__cluster_metadata-0` (`configuration.cluster_metadata`) and in each partition's
`partition.metadata`, which stays. A partition is refused if a starting broker would set it aside as a stray, or if
another replica could make the broker truncate it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from seglog.configuration.cluster_metadata import (
    Assignment,
    ClusterMetadata,
    read_cluster_metadata,
)
from seglog.configuration.settings import differing_owner, identity_of, metadata_directories
from seglog.errors import RefusedError, SeglogError
from seglog.format import filenames
from seglog.model import TopicPartition
from seglog.repairs.undo.quarantine import PENDING_FILE
from seglog.scan.listing import LogDirectoryListing, PartitionListing, list_log_directory, list_partition
from seglog.scan.topic_ids import topic_id_in
from seglog.storage.filesystem import FileSystem
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A partition directory of the new cluster. `count` is the number of its topic's partitions, None if unknown.

    `is_empty`: it holds no data, not even in leftovers.
    """

    directory: Path
    partition: TopicPartition
    topic_id: str
    count: int | None
    is_empty: bool


def _is_empty(listing: PartitionListing) -> bool:
    deleted = filenames.FileState.DELETED.value
    kept = any(".log." in path.name and not path.name.endswith(deleted) for path in listing.leftovers)
    return listing.size == 0 and not kept and listing.format == "kafka"


def require_brokers_own(fs: FileSystem, path: Path) -> None:
    """Raises RefusedError if a directory is not a broker's. To be asked before its lock, which makes a file in it."""
    if fs.status(path / filenames.META_PROPERTIES) is None:
        raise RefusedError(
            f"{path} has no {filenames.META_PROPERTIES}: it is not a broker's log directory. Let the new cluster's"
            " broker start on it, make the topics, and stop it"
        )


class TargetDirectory:
    """The log directory. Raises RefusedError unless its broker was stopped cleanly, or if one of `beside`, the broker's
    other log directories that take their own partitions, is another broker's. `sources` are the log directories that
    are transplanted: copies, whose metadata is not the broker's."""

    def __init__(self, fs: FileSystem, path: Path, beside: Sequence[Path] = (), sources: Collection[Path] = ()) -> None:
        self.fs, self.path, self._sources = fs, path, sources
        self.listing: LogDirectoryListing = list_log_directory(fs, path)
        require_brokers_own(fs, path)
        if fs.status(path / PENDING_FILE, follow=False) is not None:
            raise RefusedError(
                f"{path}: a run was cut short here; transplanting without --dry-run finishes it first, and seglog undo"
                " takes it back"
            )
        if not self.listing.clean_shutdown:
            raise RefusedError(
                f"{path} has no {filenames.CLEAN_SHUTDOWN_FILE}: its broker runs, or was not stopped cleanly. Start"
                " it, stop it with SIGTERM, and wait for its end"
            )
        self._identity = identity_of(fs, path)
        self.beside = [TargetDirectory(fs, other) for other in beside]
        for other in self.beside:
            key = differing_owner(self._identity, other._identity)
            if key:
                raise RefusedError(
                    f"{path} and {other.path} belong to two brokers ({key} {self._identity.get(key)} and"
                    f" {other._identity.get(key)}): transplant into one at a time"
                )

    @cached_property
    def metadata(self) -> ClusterMetadata | None:
        """The cluster's metadata; None if it cannot be found."""
        answering = metadata_directories(self.fs, self.path, None, [other.path for other in self.beside])
        found = next((path for path in answering if path not in self._sources), None)
        return None if found is None else read_cluster_metadata(self.fs, found, assignments=True)

    @cached_property
    def _served(self) -> frozenset[Path]:
        """The partition directories that the broker serves."""
        return frozenset(one.path for one in self.listing.live)

    def has_topic(self, topic: str) -> bool:
        """True if any partition of the topic lies here or beside."""
        return topic in self.listing.largest_numbers or any(other.has_topic(topic) for other in self.beside)

    def leaves_to_others(self, key: TopicPartition) -> bool:
        """True if one of the directories beside has the partition's place."""
        return any(other.has_place(key) for other in self.beside)

    def has_place(self, key: TopicPartition) -> bool:
        """True if the broker serves the partition from here."""
        return self.path / str(key) in self._served

    def partition(self, key: TopicPartition, *, every_replica: bool = False) -> TargetPartition:
        """Returns the partition's place. Raises RefusedError if the broker would not serve what is put there.

        `every_replica` is the user's word that all replicas get the same data before any of them starts.
        """
        directory = self.path / str(key)
        if not self.has_place(key):
            raise RefusedError(self._missing([key]))
        topic_id = self._topic_id(directory)
        count = self._require_assigned(directory, key, topic_id, every_replica)
        return TargetPartition(directory, key, topic_id, count, _is_empty(list_partition(self.fs, directory)))

    def notes(self) -> Iterator[str]:
        """Yields notes about metadata that is missing or could not be read."""
        if self.metadata is None:
            yield f"{self.path} has no {filenames.CLUSTER_METADATA_TOPIC}-0: replicas were not compared"
        else:
            yield from self.metadata.problems

    def absences(self, keys: Iterable[TopicPartition]) -> list[RefusedError]:
        """Returns errors for the partitions without a place here or beside: one for those that the broker has in a
        directory that was not named, one for committed offsets, and one for all others."""
        missing = [key for key in keys if not self.has_place(key) and not self.leaves_to_others(key)]
        elsewhere = {key: place for key in missing if (place := self._place_elsewhere(key)) is not None}
        errors = [RefusedError(self._unnamed(elsewhere))] if elsewhere else []
        rest = [key for key in missing if key not in elsewhere]
        groups = ([key for key in rest if (key.topic == OFFSETS_TOPIC) is internal] for internal in (True, False))
        return errors + [RefusedError(self._missing(group)) for group in groups if group]

    def _place_elsewhere(self, key: TopicPartition) -> str | None:
        """Returns the id of the log directory in which the broker has a partition that the cluster gave it; "" if the
        broker had not told the controller yet, None if it has it in a directory that was named, or not at all."""
        node, metadata = self._identity.get("node.id", ""), self.metadata
        if metadata is None or not (node.isascii() and node.isdigit()):
            return None
        assigned = metadata.assignment(metadata.topic_ids.get(key.topic, ""), key.partition)
        if assigned is None or int(node) not in assigned.replicas:
            return None
        identity = assigned.directory_of(int(node)) or ""
        return None if identity in {place._identity.get("directory.id") for place in (self, *self.beside)} else identity

    def _unnamed(self, elsewhere: Mapping[TopicPartition, str]) -> str:
        names, ids = ", ".join(map(str, elsewhere)), ", ".join(dict.fromkeys(filter(None, elsewhere.values())))
        does, where = "is" if len(elsewhere) == 1 else "are", f" (directory.id {ids})" if ids else ""
        return (
            f"{names} {does} in another log directory of this broker{where}, not in {self._named}: name that directory,"
            " too, with one more --into"
        )

    def _missing(self, keys: Sequence[TopicPartition]) -> str:
        if keys[0].topic == OFFSETS_TOPIC:
            how = (
                "start the broker with the old offsets.topic.num.partitions, make it (kafka-consumer-groups --describe"
                " --group nobody, since a group that joins writes to it), and stop it"
            )
        elif len({key.topic for key in keys}) == 1:
            how = "start the broker, make the topic with the same number of partitions and one replica, and stop it"
        else:
            how = "start the broker, make the topics with the same numbers of partitions and one replica, and stop it"
        aside = "set it aside as a stray" if len(keys) == 1 else "set them aside as strays"
        has = "has" if not self.beside else "have"
        return f"{self._named} {has} no {', '.join(map(str, keys))}, so a broker would {aside}: {how}"

    @property
    def _named(self) -> str:
        return " and ".join(sorted(str(place.path) for place in (self, *self.beside)))

    def _topic_id(self, directory: Path) -> str:
        path = directory / filenames.PARTITION_METADATA
        try:
            return topic_id_in(self.fs, path)
        except FileNotFoundError as error:
            if self._identity.get("version") == "0":
                raise RefusedError(
                    f"{path} is missing, and the broker is one with ZooKeeper: transplant keeps topic ids, which its"
                    " topics do not have. It works into brokers whose topics have ids in their directories, with"
                    " ZooKeeper from Kafka 3.0 on; for this one,"
                    " send the records with seglog replay, or let clients copy them from seglog serve"
                ) from error
            raise RefusedError(
                f"{path} is missing, so a broker takes the partition for a stray; let it start and stop once"
            ) from error
        except SeglogError as error:
            raise RefusedError(f"{error}; a broker would not start with it") from error

    def _require_assigned(self, directory: Path, key: TopicPartition, topic_id: str, every_replica: bool) -> int | None:
        metadata = self.metadata
        if metadata is None or not metadata.knows_topics:
            numbers = (place.listing.largest_numbers.get(key.topic, 0) for place in (self, *self.beside))
            return None if metadata is not None else max(numbers) + 1
        assigned_id = metadata.topic_ids.get(key.topic)
        assigned = None if assigned_id is None else metadata.assignment(assigned_id, key.partition)
        if assigned_id is None or assigned_id != topic_id or assigned is None:
            what = "no such partition" if assigned is None else "another topic id"
            raise RefusedError(
                f"{directory}: the cluster's metadata has {what}, so a broker would set it aside as a stray"
            )
        self._require_only_replica(directory, assigned, every_replica)
        return len(metadata.partitions[assigned_id])

    def _require_only_replica(self, directory: Path, assigned: Assignment, every_replica: bool) -> None:
        node = self._identity.get("node.id", "")
        if node.isdigit() and int(node) not in assigned.replicas:
            raise RefusedError(f"{directory}: the cluster has moved this partition to the brokers {assigned.replicas}")
        if len(assigned.replicas) > 1 and not every_replica:
            raise RefusedError(
                f"{directory}: the partition has replicas on the brokers {list(assigned.replicas)}. If an empty one"
                " leads first, the others truncate the transplanted log. Reassign the partition to this broker alone,"
                " or transplant the same source to every one of them before any starts, with --every-replica"
            )
