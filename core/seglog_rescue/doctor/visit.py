"""What `doctor` knows and gathers while it goes through the partitions of one log directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath

from seglog.cleaner.hazards import largest_decompressed
from seglog.clock import Clock
from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.configuration.precedence import ResolvedConfig
from seglog.configuration.settings import DirectorySettings
from seglog.escaping import command_line
from seglog.format import filenames
from seglog.format.filenames import PartitionState
from seglog.kafka_version import KafkaVersion
from seglog.log.checkpoints import room_to_close
from seglog.log.loader import RecoveryReport
from seglog.model import TopicPartition
from seglog.remote_path import RemotePath
from seglog.scan.listing import PartitionDirectory
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.storage.room import with_spare
from seglog.verification.codes import Severity
from seglog.verification.soundness import sound_log
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.doctor.coordinators import Coordinators
from seglog_rescue.doctor.copies import Copy
from seglog_rescue.doctor.directory import DirectoryFacts, read_directory
from seglog_rescue.doctor.partition_facts import PartitionFacts
from seglog_rescue.doctor.sound_start import room_to_recover, starts_unchanged

_NO_ROOM_SOON = (
    "May start, and takes the log directory offline where it cannot write a checkpoint or to its metadata log."
)


class KnownMetadata:
    """The cluster's metadata, from the broker's directory that holds it; read on first use."""

    def __init__(self, directories: Sequence[DirectoryFacts]) -> None:
        self._directories = directories

    @cached_property
    def known(self) -> ClusterMetadata | None:
        """None if no metadata could be read completely."""
        found = (directory.around.metadata for directory in self._directories)
        return next((one for one in found if one is not None and one.knows_topics), None)

    def begins_in(self, path: Path | None) -> bool:
        """True if the metadata log of the directory `path` has been examined."""
        return any(directory.listing.path == path for directory in self._directories)

    def again(self, fs: FileSystem) -> KnownMetadata:
        """Returns the metadata read again."""
        return KnownMetadata([read_directory(fs, directory.listing.path) for directory in self._directories])


@dataclass(slots=True)
class Visit:
    """The examination of one log directory's partitions: the facts common to all, and what was found."""

    directory: DirectoryFacts
    settings: DirectorySettings
    metadata: KnownMetadata
    coordinators: Coordinators
    denied: frozenset[str]
    kafka: KafkaVersion
    extents: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    room: int = 0  # bytes on the disk that loading all partitions takes, the metadata log aside
    unplanned: dict[PartitionDirectory, int] = field(default_factory=dict)  # what others take at most
    configs: dict[str, ResolvedConfig] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    rows: list[Diagnosis] = field(default_factory=list)

    def note(self, partition: PartitionDirectory, facts: PartitionFacts, plan: RecoveryReport) -> None:
        """Notes which offsets a partition's directory will hold."""
        base = facts.listing.segments[0].base_offset
        self._noted(partition, facts.topic_id, base, (plan.log_start_offset, plan.log_end_offset))

    def _noted(
        self, partition: PartitionDirectory, topic_id: str | None, base_offset: int, ends: tuple[int, int]
    ) -> None:
        key, own = partition.topic_partition, self.directory.around.directory_id
        if partition.state is PartitionState.LIVE:
            self.extents[key] = base_offset, ends[1]
        self.copies.append(Copy(partition.path, key, partition.state, topic_id, own, *ends))

    def is_unchanged(self, fs: FileSystem, partition: PartitionDirectory) -> bool:
        """True, and notes the partition, if it is known without an examination that a broker loads it as it is."""
        key, around = partition.topic_partition, self.directory.around
        log = sound_log(fs, partition.path)
        if log is None or not starts_unchanged(log, key, around, self.config(key.topic), self.metadata.known):
            return False
        start = max(log.base_offset, self.directory.offset(filenames.LOG_START_OFFSET_CHECKPOINT, key))
        self._noted(partition, log.topic_id, log.base_offset, (start, log.end_offset))
        if not around.clean:
            self.unplanned[partition] = room_to_recover(log)
        return True

    def lacking_room(self, fs: FileSystem, planned: Callable[[PartitionDirectory], int]) -> Iterator[Diagnosis]:
        """Yields that the start has no room on the disk, or the broker none for what it writes soon after. `planned`
        plans the loading of a partition and returns what it takes."""
        path = self.directory.listing.path
        if self.directory.live or isinstance(path, RemotePath) or not (self.room or self.unplanned):
            return
        free, soon = fs.free_bytes(path), self.directory.metadata_room + room_to_close(fs, path)
        if free >= self.room + sum(self.unplanned.values()) + soon:
            return
        self.room += sum(map(planned, self.unplanned))
        if not self.room:
            return
        if free >= self.room + soon:
            return
        message = f"loading takes {self.room} bytes more for indexes and snapshots"
        fields: dict[str, object] = {}
        if free >= self.room:
            message += f", what a broker writes soon after {soon}"
            fields = {"gravity": Severity.DANGER, "broker": _NO_ROOM_SOON}
        command = command_line("seglog", "retain", "--free", str(with_spare(self.room + soon)), path)
        message += f", and {free} are free"
        yield self.directory.diagnosis("NO_ROOM", path, message, command=command, **fields)

    def unread(self, path: Path | str, partition: PartitionDirectory, error: OSError) -> Iterator[Diagnosis]:
        """Yields that this user cannot read a file or directory; nothing if the broker's user cannot either."""
        if partition.path.name not in self.denied:
            place = partition.path if str(path) == str(partition.path) else partition.path / PurePath(path).name
            row = self.directory.diagnosis("NOT_EXAMINED", place, error.strerror or str(error))
            yield replace(row, partition=partition.path.name)

    def config(self, topic: str) -> ResolvedConfig:
        """Returns a topic's configuration, resolved once."""
        resolved = self.configs.get(topic)
        if resolved is None:
            resolved = self.configs[topic] = self.settings.resolve(topic)
        return resolved

    def refresh(self, fs: FileSystem) -> None:
        """Reads again what a broker may have changed."""
        self.directory, self.metadata = read_directory(fs, self.directory.listing.path), self.metadata.again(fs)

    def facts(self, view: PartitionView, clock: Clock, partition: PartitionDirectory) -> PartitionFacts:
        """Returns the facts of a partition in the directory. A broker loads a deleted one without recovery."""
        directory, key = self.directory, partition.topic_partition
        resolved = self.config(key.topic)
        config = resolved.log
        clean = directory.around.clean and not directory.live
        return PartitionFacts(
            view=view,
            clock=clock,
            around=directory.around,
            config=config,
            clean=clean or partition.state is PartitionState.DELETED,
            recovery_point=directory.offset(filenames.RECOVERY_POINT_CHECKPOINT, key),
            log_start_offset=directory.offset(filenames.LOG_START_OFFSET_CHECKPOINT, key),
            compacted=config.compact or directory.around.offset(filenames.CLEANER_OFFSET_CHECKPOINT, key) is not None,
            metadata=self.metadata.known,
            coordinators=self.coordinators,
            largest_decompressed=largest_decompressed(self.kafka, config),
            policy_known=resolved.policy_known,
        )
