"""What a starting broker makes of a log directory as a whole (Kafka: LogManager, MetaPropertiesEnsemble, FileLock).

Steps: the lock; sub-directories that are no partitions; the checkpoints; partitions that are not served; then, over
all directories given, `meta.properties` and what may not be there twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seglog.evidence.absent_partitions import absent_partitions
from seglog.evidence.findings import Severity
from seglog.evidence.surroundings import Surroundings, read_surroundings
from seglog.format import filenames
from seglog.format.checkpoint import (
    CheckpointEndsError,
    CheckpointNumberError,
    MetaProperties,
    NoClusterIdError,
)
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.prognosis.access import denied
from seglog.prognosis.cases import Diagnosis, Gravity, diagnosis
from seglog.scan.listing import LogDirectoryListing, list_log_directory, refuse_partition
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import Holder, holder_of

_LOST = {
    filenames.RECOVERY_POINT_CHECKPOINT: "Takes the file for empty and recovers every log from its start.",
    filenames.LOG_START_OFFSET_CHECKPOINT: "Takes the file for empty: records that were deleted come back.",
    filenames.HIGH_WATERMARK_CHECKPOINT: "Fails when it makes the partitions' replicas leader or follower.",
    filenames.CLEANER_OFFSET_CHECKPOINT: "The cleaner fails.",
}
_EMPTY = {  # where the reader itself comes to that end
    **_LOST,
    filenames.HIGH_WATERMARK_CHECKPOINT: "Takes the file for empty: the high watermarks begin at the logs' starts.",
    filenames.CLEANER_OFFSET_CHECKPOINT: "Takes the file for empty: the cleaner begins anew at the logs' starts.",
}
_READ_BEFORE_LOGS = (filenames.RECOVERY_POINT_CHECKPOINT, filenames.LOG_START_OFFSET_CHECKPOINT)
_TWO_METADATA_LOGS = "Refuses to start: the metadata log may be in metadata.log.dir alone."
_UNIDENTIFIED = "Takes the log directory offline, and goes on with the others."


@dataclass(slots=True)
class Ward:
    """A log directory as far as it could be read: what lies around its partitions, and who holds it."""

    listing: LogDirectoryListing
    around: Surroundings
    holder: Holder | None

    @property
    def live(self) -> bool:
        """Whether a process holds the directory."""
        return self.holder is not None

    @property
    def failed(self) -> bool:
        """Whether a broker takes the directory offline before it loads the logs: over a checkpoint that it needs."""
        damage = (self.around.damage.get(name) for name in _READ_BEFORE_LOGS)
        return any(error is not None and not isinstance(error, CheckpointNumberError) for error in damage)

    def say(self, code: str, file: Path | str, message: str, **fields: Any) -> Diagnosis:
        """A diagnosis of the directory itself."""
        return diagnosis(code, self.listing.path, None, self.listing.path / file, message, **fields)

    def offset(self, checkpoint: str, key: TopicPartition) -> int:
        """What a checkpoint says of a partition; 0 where it says nothing."""
        return self.around.offset(checkpoint, key) or 0


def examine_directory(fs: FileSystem, path: Path) -> tuple[Ward, list[Diagnosis]]:
    """The directory's own rows. Raises NotALogError and OSError."""
    refuse_partition(fs, path)
    ward = admitted(fs, path)
    rows = [*_lock(ward), *_access(fs, ward), *_strangers(ward), *_checkpoints(ward)]
    rows += _states(ward)
    return ward, rows


def admitted(fs: FileSystem, path: Path) -> Ward:
    """A log directory as it is now; the checkpoints are read before the partitions are listed."""
    list_log_directory(fs, path)  # says what is wrong with a directory that is none
    around = read_surroundings(fs, path)
    return Ward(list_log_directory(fs, path), around, holder_of(path))


def _lock(ward: Ward) -> Iterator[Diagnosis]:
    if ward.holder is not None:
        who = f"process {ward.holder.pid}" if ward.holder.pid else "a process"
        yield ward.say("DIRECTORY_LOCKED", filenames.LOCK_FILE, f"{who} holds the lock: {ward.holder.describe()}")


def _access(fs: FileSystem, ward: Ward) -> Iterator[Diagnosis]:
    for found in denied(fs, ward.listing):
        row = ward.say("ACCESS_DENIED", found.path, found.message, command=found.command, count=found.count)
        yield replace(row, partition=found.partition)


def _strangers(ward: Ward) -> Iterator[Diagnosis]:
    for path in ward.listing.strangers:
        fields = {}
        if path.name == filenames.SEGLOG_RUN_BARRIER:
            yield ward.say("RUN_UNFINISHED", path, "a run of seglog is under way or was cut short here")
            continue
        if path.name == "lost+found":
            fields["command"] = f"move the partitions to a sub-directory of {ward.listing.path}, and log.dirs with them"
        yield ward.say("STRANGE_DIRECTORY", path, "its name is not that of a partition", **fields)
    for path in ward.listing.misnamed:
        yield ward.say("MISNAMED_PARTITION", path, "no topic can have this name")


def _checkpoints(ward: Ward) -> Iterator[Diagnosis]:
    for name, error in ward.around.damage.items():
        reason = str(error).removeprefix(f"{ward.listing.path / name}: ")
        if isinstance(error, CheckpointNumberError):
            lost = _EMPTY if isinstance(error, CheckpointEndsError) else _LOST
            yield ward.say("CHECKPOINT_IGNORED", name, reason, broker=lost[name])
        else:
            yield ward.say("CHECKPOINT_UNREADABLE", name, reason)


def _states(ward: Ward) -> Iterator[Diagnosis]:
    for partition in ward.listing.partitions:
        if partition.state is PartitionState.DELETED:
            yield ward.say("DELETED_PARTITION", partition.path, f"{partition.topic_partition} was deleted")
        elif partition.state is PartitionState.STRAY:
            yield ward.say("SET_ASIDE_PARTITION", partition.path, f"{partition.topic_partition} was set aside as stray")


def examine_together(wards: Sequence[Ward]) -> Iterator[Diagnosis]:
    """What the directories of one broker must not contradict each other in."""
    partitions: dict[tuple[TopicPartition, bool], Path] = {}
    for ward in wards:
        for partition in ward.listing.partitions:
            if not partition.state.is_served:
                continue
            key = partition.topic_partition, partition.state is PartitionState.FUTURE
            other = partitions.setdefault(key, partition.path)
            if other != partition.path:
                fields = {"broker": _TWO_METADATA_LOGS} if partition.is_cluster_metadata else {}
                yield ward.say("DUPLICATE_PARTITION", partition.path, f"it is also at {other}", **fields)
    yield from _cleaner_twice(wards)
    yield from _identities(wards)
    yield from _absent(wards)


def examine_failures(wards: Sequence[Ward], failing: Collection[str]) -> Iterator[Diagnosis]:
    """What becomes of the partitions of directories that go offline, while the broker goes on with others.

    ReplicaManager takes a partition that it had, and that its failed directory took away, for one that was never made:
    "Expected partition … to exist, but it was missing". Which of them it still had is a matter of time.
    """
    lasting = [ward for ward in wards if str(ward.listing.path) not in failing]
    if not lasting or any(_has_metadata_log(ward) for ward in wards if ward not in lasting):
        return  # it does not go on
    for ward in wards:
        served = [one for one in ward.listing.partitions if one.state is PartitionState.LIVE]
        if ward not in lasting and served:
            message = "the log directory goes offline, and its partitions with it"
            yield ward.say("PARTITIONS_MADE_ELSEWHERE", "", message, count=len(served))


def _absent(wards: Sequence[Ward]) -> Iterator[Diagnosis]:
    """Partitions that ought to be in one of the directories."""
    by_path = {ward.listing.path: ward for ward in wards}
    for found in absent_partitions([(ward.listing, ward.around) for ward in wards]):
        gravity = Gravity.NOTE if found.severity is Severity.INFO else Gravity.DANGER
        where = {"first_offset": found.first_offset, "last_offset": found.last_offset}
        ward = by_path[found.path]
        path = found.path / str(found.topic_partition)
        yield ward.say("PARTITION_MISSING", path, found.message, gravity=gravity, **where)


def _cleaner_twice(wards: Sequence[Ward]) -> Iterator[Diagnosis]:
    seen: dict[TopicPartition, Path] = {}
    for ward in wards:
        offsets: Mapping[TopicPartition, int] = ward.around.offsets.get(filenames.CLEANER_OFFSET_CHECKPOINT, {})
        for key in sorted(offsets):
            other = seen.setdefault(key, ward.listing.path)
            if other != ward.listing.path:
                message = f"{key} is in the checkpoint of {other} too"
                yield ward.say("CLEANER_CHECKPOINT_DUPLICATE", filenames.CLEANER_OFFSET_CHECKPOINT, message)


def _identities(wards: Sequence[Ward]) -> Iterator[Diagnosis]:
    """Whether each directory says whose it is, and all say the same."""
    readable = any(ward.around.meta is not None for ward in wards)
    formatted = readable or any(_has_metadata_log(ward) for ward in wards)
    known: list[tuple[Ward, MetaProperties]] = []
    for ward in wards:
        path, meta = ward.listing.path / filenames.META_PROPERTIES, ward.around.meta
        if ward.around.meta_damage is not None:
            message = str(ward.around.meta_damage).removeprefix(f"{path}: ")
            refused = not readable or _has_metadata_log(ward) or isinstance(ward.around.meta_damage, NoClusterIdError)
            fields: dict[str, Any] = {} if refused else {"broker": _UNIDENTIFIED, "offline": True}
            yield ward.say("META_PROPERTIES_INVALID", path, message, **fields)
        elif meta is None:
            if formatted:
                yield ward.say("META_PROPERTIES_MISSING", path, "this directory, or another one, is a broker's")
        elif meta.cluster_id is None or meta.node_id is None:
            yield ward.say("META_PROPERTIES_INVALID", path, "cluster.id or node.id is missing")
        else:
            for other, before in known:
                yield from _differing(ward, meta, other, before)
            known.append((ward, meta))


def _differing(ward: Ward, meta: MetaProperties, other: Ward, before: MetaProperties) -> Iterator[Diagnosis]:
    """What one directory's identity and another's contradict each other in."""
    pairs = (
        ("cluster.id", meta.cluster_id != before.cluster_id, meta.cluster_id),
        ("node.id", meta.node_id != before.node_id, meta.node_id),
        ("directory.id", meta.directory_id == before.directory_id is not None, meta.directory_id),
    )
    for name, wrong, value in pairs:
        if wrong:
            relation = "is also that" if name == "directory.id" else "is not that"
            message = f"{name} {value} {relation} of {other.listing.path}"
            yield ward.say("META_PROPERTIES_DIFFER", filenames.META_PROPERTIES, message)
            return


def _has_metadata_log(ward: Ward) -> bool:
    return any(partition.is_cluster_metadata for partition in ward.listing.partitions)
