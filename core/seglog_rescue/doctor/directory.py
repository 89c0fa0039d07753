"""How a starting broker reacts to a log directory as a whole (Kafka: LogManager, MetaPropertiesEnsemble, FileLock).

Steps: the lock; file access; subdirectories that are not partitions; the checkpoints; partitions that are not served.
Then, over all directories given, `meta.properties` and what must not exist twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from seglog.configuration.metadata_log import read_voters
from seglog.configuration.writers import WITHOUT_ZOOKEEPER, is_of_zookeeper, recognise
from seglog.escaping import command_line, shell_path
from seglog.format import filenames
from seglog.format.checkpoint import (
    CheckpointEndsError,
    CheckpointNumberError,
    MetaProperties,
    NoClusterIdError,
)
from seglog.format.filenames import PartitionState
from seglog.kafka_version import KafkaVersion
from seglog.log.stateful_topics import state_in
from seglog.model import TopicPartition
from seglog.remote_path import is_url
from seglog.repairs.undo.quarantine import PENDING_FILE
from seglog.scan.listing import OFFSET_CHECKPOINTS, LogDirectoryListing, list_log_directory, refuse_partition
from seglog.storage.filesystem import FileSystem, leads_nowhere
from seglog.storage.lock import Holder, holder_of
from seglog.verification.absent_partitions import absent_partitions
from seglog.verification.codes import Severity
from seglog.verification.surroundings import Surroundings, read_surroundings
from seglog_rescue.doctor.access import denied
from seglog_rescue.doctor.cases import Diagnosis, diagnosis
from seglog_rescue.doctor.mends import format_command, restore_command
from seglog_rescue.doctor.no_files import OPENED_LATER
from seglog_rescue.doctor.partition_facts import is_made_through
from seglog_rescue.groups.coordinator_replay import SHARE_TOPIC
from seglog_rescue.groups.users import CHANGELOG

_LOST = {
    filenames.RECOVERY_POINT_CHECKPOINT: "Treats the file as empty, and recovers every log from its start.",
    filenames.LOG_START_OFFSET_CHECKPOINT: "Treats the file as empty: deleted records come back.",
    filenames.HIGH_WATERMARK_CHECKPOINT: "Fails when it makes the partitions' replicas leader or follower.",
    filenames.CLEANER_OFFSET_CHECKPOINT: "The cleaner fails.",
}
_EMPTY = {  # if the checkpoint ends too early (CheckpointEndsError)
    **_LOST,
    filenames.HIGH_WATERMARK_CHECKPOINT: "Treats the file as empty: high watermarks begin at the log starts.",
    filenames.CLEANER_OFFSET_CHECKPOINT: "Treats the file as empty: the cleaner begins again at the log starts.",
}
RESERVED_IDS = 100  # Kafka: DirectoryId.reserved
_READ_BEFORE_LOGS = (filenames.RECOVERY_POINT_CHECKPOINT, filenames.LOG_START_OFFSET_CHECKPOINT)
_WRITTEN_SOON = tuple(  # the high watermarks as soon as replicas are made leaders, the others after a minute
    f"{name}.tmp" for name in (*_READ_BEFORE_LOGS, filenames.HIGH_WATERMARK_CHECKPOINT)
)
_SHARE_STATE = {
    "broker": "Creates an empty log. Unless another replica has it, the share groups whose state was there stand still:"
    " they get no record any more, and no error. Each goes on, without members meanwhile, from where its offsets are"
    " set (--to-earliest delivers everything again).",
    "command": "kafka-share-groups.sh --bootstrap-server HOST:PORT --reset-offsets --group GROUP --topic TOPIC"
    " --to-earliest --execute",
}
_STATE_LOST = "Creates an empty log. Unless another replica has it, the broker has lost {}."
_STREAMS_STATE = (
    f"{_STATE_LOST} An application that has no local copy of it, or was killed with exactly-once semantics and so does"
    " not trust its copy, goes on at its committed offsets, with an empty state and without an error: its results are"
    " then wrong."
)
_STREAMS_RESET = (
    "kafka-streams-application-reset.sh --bootstrap-server HOST:PORT --application-id APP --input-topics TOPICS"
)
_TWO_METADATA_LOGS = "Refuses to start: only metadata.log.dir may hold the metadata log."
_UNIDENTIFIED = "Takes the log directory offline, and continues with the others."


@dataclass(slots=True)
class DirectoryFacts:
    """A log directory: its listing, its checkpoints and identity, and the process that holds it.

    `denied` are the partition directories' names in which the broker's user cannot open something. `metadata_room` are
    the bytes on the disk that loading the metadata log takes.
    """

    listing: LogDirectoryListing
    around: Surroundings
    holder: Holder | None
    denied: frozenset[str] = frozenset()
    metadata_room: int = 0

    @property
    def live(self) -> bool:
        """True if a process holds the directory."""
        return self.holder is not None

    @property
    def failed(self) -> bool:
        """True if a broker takes the directory offline before it loads the logs, because of a checkpoint."""
        damage = (self.around.damage.get(name) for name in _READ_BEFORE_LOGS)
        return any(error is not None and not isinstance(error, CheckpointNumberError) for error in damage)

    def diagnosis(self, code: str, file: Path | str, message: str, **fields: Any) -> Diagnosis:
        """Returns a diagnosis of the directory itself."""
        path = file if isinstance(file, Path) else self.listing.path / file
        return diagnosis(code, self.listing.path, None, path, message, **fields)

    def offset(self, checkpoint: str, key: TopicPartition) -> int:
        """Returns a partition's offset in a checkpoint, 0 if it has none."""
        return self.around.offset(checkpoint, key) or 0


def examine_directory(fs: FileSystem, path: Path) -> tuple[DirectoryFacts, list[Diagnosis]]:
    """Returns the directory and its own diagnoses. Raises NotALogError and OSError."""
    refuse_partition(fs, path)
    directory = read_directory(fs, path)
    rows = []
    if directory.holder is not None:
        who = f"process {directory.holder.pid}" if directory.holder.pid else "a process"
        message = f"{who} holds the lock: {directory.holder.describe()}"
        code = "BROKER_RUNS" if directory.holder.is_broker else "DIRECTORY_LOCKED"
        rows.append(directory.diagnosis(code, filenames.LOCK_FILE, message))
    for found in denied(fs, directory.listing, directory.around):
        later = {"gravity": Severity.DANGER, "broker": OPENED_LATER, "offline": False} if found.is_later else {}
        fields = {"command": found.command, "count": found.count, **later}
        row = directory.diagnosis("ACCESS_DENIED", found.path, found.message, **fields)
        rows.append(replace(row, partition=found.partition))
    rows += _not_files(directory)
    directory.denied = frozenset(row.partition for row in rows if row.partition)
    rows += [*_names(directory), *_checkpoints(directory), *_states(directory)]
    return directory, rows


def is_unread(error: Exception) -> TypeGuard[OSError]:
    """True if an error says nothing of what a broker meets: this user may not read, or a store does not answer."""
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and is_url(error.filename))


def read_directory(fs: FileSystem, path: Path) -> DirectoryFacts:
    """Reads a log directory as it is now; the checkpoints before the list of partitions."""
    list_log_directory(fs, path)  # raises for a path that is not a log directory
    around = read_surroundings(fs, path, goes_on=is_unread)
    return DirectoryFacts(list_log_directory(fs, path), around, holder_of(path))


def _not_files(directory: DirectoryFacts) -> Iterator[Diagnosis]:
    """Yields links without a target, pipes and sockets in place of files that a broker opens."""
    if is_url(str(directory.listing.path)):
        return  # a store has no links
    for name in (filenames.LOCK_FILE, *OFFSET_CHECKPOINTS, *_WRITTEN_SOON):
        path, fs = directory.listing.path / name, directory.around.fs
        status = fs.status(path)
        if status is None and leads_nowhere(fs, path):
            if name == filenames.LOCK_FILE and is_made_through(fs, path):
                continue
            yield directory.diagnosis("NOT_A_FILE", path, "it is a link to a file that is not there")
        elif status is not None and status.is_special:
            yield directory.diagnosis("NOT_A_FILE", path, f"it is {status.no_file}")


def _names(directory: DirectoryFacts) -> Iterator[Diagnosis]:
    for path in directory.listing.strangers:
        if path.name == filenames.SEGLOG_RUN_BARRIER:
            yield _unfinished(directory, path)
            continue
        if path.name == filenames.META_PROPERTIES:
            continue  # a broker goes on without this log directory, and does not look for partitions in it
        if path.name == filenames.CLEAN_SHUTDOWN_FILE and not directory.around.fs.list(path):
            continue  # the broker deletes it before it looks for partitions
        fields = {}
        if path.name == "lost+found":
            fields["command"] = f"move the partitions to a subdirectory of {directory.listing.path}, and adapt log.dirs"
        yield directory.diagnosis("STRANGE_DIRECTORY", path, "its name is not a partition's", **fields)
    for path in directory.listing.misnamed:
        yield directory.diagnosis("MISNAMED_PARTITION", path, "no topic can have this name")


def _unfinished(directory: DirectoryFacts, barrier: Path) -> Diagnosis:
    message = "a run of seglog is in progress here, or was cut short"
    if directory.around.fs.status(directory.listing.path / PENDING_FILE, follow=False) is not None:
        return directory.diagnosis("RUN_UNFINISHED", barrier, message)
    message += f"; {PENDING_FILE} is missing, so which run it was is unknown, and none can be finished"
    return directory.diagnosis("RUN_UNFINISHED", barrier, message, command=command_line("rmdir", barrier))


def _checkpoints(directory: DirectoryFacts) -> Iterator[Diagnosis]:
    for name, error in directory.around.damage.items():
        status = directory.around.fs.status(directory.listing.path / name)
        if status is not None and status.is_special:
            continue  # no file, and reported as that
        reason = str(error).removeprefix(f"{directory.listing.path / name}: ")
        if isinstance(error, CheckpointNumberError):
            lost = _EMPTY if isinstance(error, CheckpointEndsError) else _LOST
            yield directory.diagnosis("CHECKPOINT_IGNORED", name, reason, broker=lost[name])
        else:
            yield directory.diagnosis("CHECKPOINT_UNREADABLE", name, reason)
    for name, unread in directory.around.unread.items():
        message = f"{unread.strerror or unread}; what is said of the partitions takes it for empty"
        yield directory.diagnosis("NOT_EXAMINED", name, message)


def _states(directory: DirectoryFacts) -> Iterator[Diagnosis]:
    for partition in directory.listing.partitions:
        if partition.state is PartitionState.DELETED:
            yield directory.diagnosis("DELETED_PARTITION", partition.path, f"{partition.topic_partition} was deleted")
        elif partition.state is PartitionState.STRAY:
            yield directory.diagnosis(
                "SET_ASIDE_PARTITION",
                partition.path,
                f"{partition.topic_partition} was set aside as stray",
                command=restore_command(partition.path),
            )


def passed_over(directories: Sequence[DirectoryFacts]) -> list[DirectoryFacts]:
    """Returns the log directories that a broker goes on without before it looks for partitions in them.

    It has no readable `meta.properties`, or a checkpoint that cannot be read; the metadata log is in another one.
    """
    failed = [directory for directory in directories if directory.failed or _is_unidentified(directory, directories)]
    lasting = [directory for directory in directories if directory not in failed]
    home = metadata_home(directories)
    return failed if lasting and (home is None or home in lasting) else []


def metadata_home(directories: Sequence[DirectoryFacts]) -> DirectoryFacts | None:
    """Returns the directory whose metadata log a broker reads: metadata.log.dir is by default the first of log.dirs."""
    return next((directory for directory in directories if has_metadata_log(directory)), None)


def _is_unidentified(directory: DirectoryFacts, directories: Sequence[DirectoryFacts]) -> bool:
    """True if a broker goes on without a directory because its `meta.properties` cannot be read."""
    damage = directory.around.meta_damage
    readable = any(other.around.meta is not None for other in directories)
    is_home = directory is metadata_home(directories)
    return damage is not None and readable and not is_home and not isinstance(damage, NoClusterIdError)


def as_met(row: Diagnosis, directories: Sequence[DirectoryFacts], place: Path | None = None) -> Diagnosis:
    """Returns a blocker as a danger if it lies in a directory that is passed over, and a start does not come to it.

    `place` is that directory, None for the one of the row.
    """
    if row.gravity is not Severity.BLOCKER:
        return row
    path = row.log_directory if place is None else str(place)
    directory = next((each for each in passed_over(directories) if str(each.listing.path) == path), None)
    if directory is None:
        return row
    if _is_unidentified(directory, directories):
        return row if row.code == "META_PROPERTIES_INVALID" else _not_met(row)
    of_metadata = (row.partition or row.file).startswith(filenames.CLUSTER_METADATA_TOPIC)
    loaded = row.partition or row.code in ("STRANGE_DIRECTORY", "RUN_UNFINISHED", "DUPLICATE_PARTITION")
    return _not_met(row) if loaded and not of_metadata else row


def _not_met(row: Diagnosis) -> Diagnosis:
    text = f"Does not meet it while the log directory is offline. Once that is back: {row.broker}"
    return replace(row, gravity=Severity.DANGER, offline=False, broker=text)


def examine_together(directories: Sequence[DirectoryFacts], kafka: KafkaVersion | None = None) -> Iterator[Diagnosis]:
    """Yields contradictions among the directories of one broker."""
    partitions: dict[tuple[TopicPartition, bool], tuple[DirectoryFacts, Path]] = {}
    for directory in directories:
        for partition in directory.listing.partitions:
            if not partition.state.is_served:
                continue
            key = partition.topic_partition, partition.state is PartitionState.FUTURE
            other, path = partitions.setdefault(key, (directory, partition.path))
            if path != partition.path:
                fields = {"broker": _TWO_METADATA_LOGS} if partition.is_cluster_metadata else {}
                row = directory.diagnosis("DUPLICATE_PARTITION", partition.path, f"it is also at {path}", **fields)
                yield as_met(row, directories, other.listing.path)
    yield from _cleaner_twice(directories)
    yield from _identities(directories, kafka)
    yield from _absent(directories)


def examine_failures(directories: Sequence[DirectoryFacts], failing: Collection[str]) -> Iterator[Diagnosis]:
    """Yields a diagnosis for each directory that goes offline while the broker continues with others.

    ReplicaManager treats a partition that its failed directory took away as one that was never created: "Expected
    partition … to exist, but it was missing". Which partitions it affects depends on timing.
    """
    lasting = [directory for directory in directories if str(directory.listing.path) not in failing]
    if not lasting or any(has_metadata_log(directory) for directory in directories if directory not in lasting):
        return  # the broker does not continue
    for directory in directories:
        served = [one for one in directory.listing.partitions if one.state is PartitionState.LIVE]
        if directory not in lasting and served:
            message = "the log directory goes offline, and its partitions with it"
            if len(served) > 1:  # LogManager.loadLogs: "already offline due to a previous IO exception"
                message += "; a broker that loads another of its logs just then does not start"
            yield directory.diagnosis("PARTITIONS_MADE_ELSEWHERE", "", message, count=len(served))


def _absent(directories: Sequence[DirectoryFacts]) -> Iterator[Diagnosis]:
    """Yields the partitions that should be in one of the directories but are not."""
    by_path = {directory.listing.path: directory for directory in directories}
    for found in absent_partitions([(directory.listing, directory.around) for directory in directories]):
        gravity = Severity.NOTE if found.severity is Severity.INFO else Severity.DANGER
        where = {"first_offset": found.first_offset, "last_offset": found.last_offset}
        directory = by_path[found.path]
        path = found.path / str(found.topic_partition)
        fields = _state_lost(found.topic_partition.topic) if found.last_offset is not None else {}
        yield directory.diagnosis("PARTITION_MISSING", path, found.message, gravity=gravity, **where, **fields)


def _state_lost(topic: str) -> dict[str, str]:
    """Returns what is said of a lost partition in which other programs, or share groups, have kept their state."""
    if topic == SHARE_TOPIC:
        return _SHARE_STATE
    what = state_in(topic)
    if topic.endswith(CHANGELOG):
        return {"broker": _STREAMS_STATE.format(what), "command": _STREAMS_RESET}
    return {"broker": _STATE_LOST.format(what)} if what else {}


def _cleaner_twice(directories: Sequence[DirectoryFacts]) -> Iterator[Diagnosis]:
    seen: dict[TopicPartition, Path] = {}
    for directory in directories:
        offsets: Mapping[TopicPartition, int] = directory.around.offsets.get(filenames.CLEANER_OFFSET_CHECKPOINT, {})
        for key in sorted(offsets):
            other = seen.setdefault(key, directory.listing.path)
            if other != directory.listing.path:
                message = f"{key} is also in the checkpoint of {other}"
                yield directory.diagnosis("CLEANER_CHECKPOINT_DUPLICATE", filenames.CLEANER_OFFSET_CHECKPOINT, message)


def _identities(directories: Sequence[DirectoryFacts], kafka: KafkaVersion | None) -> Iterator[Diagnosis]:
    """Yields what is wrong with `meta.properties`: each directory must have one, and all must agree.

    A directory of a ZooKeeper broker is judged by its own release, unless `kafka` is another one.
    """
    readable = any(directory.around.meta is not None for directory in directories)
    with_controllers = any(has_metadata_log(directory) for directory in directories)
    formatted = readable or with_controllers
    known: list[tuple[DirectoryFacts, MetaProperties]] = []
    for directory in directories:
        path, meta = directory.listing.path / filenames.META_PROPERTIES, directory.around.meta
        if directory.around.meta_damage is not None:
            message = str(directory.around.meta_damage).removeprefix(f"{path}: ")
            unidentified = _is_unidentified(directory, directories)
            fields: dict[str, Any] = {"broker": _UNIDENTIFIED, "offline": True} if unidentified else {}
            yield directory.diagnosis("META_PROPERTIES_INVALID", path, message, **fields)
        elif meta is None:
            if formatted and filenames.META_PROPERTIES not in directory.around.unread:
                message = "this directory, or another one, is a broker's"
                yield directory.diagnosis("META_PROPERTIES_MISSING", path, message, **_identity(directory, directories))
        elif is_of_zookeeper(meta) and (not with_controllers if kafka is None else kafka < WITHOUT_ZOOKEEPER):
            message = f"broker {meta.node_id} of a cluster with ZooKeeper, Kafka {recognise(meta)}"
            yield directory.diagnosis("ZOOKEEPER_DIRECTORY", path, message)
            if meta.cluster_id is not None:  # before 2.4 there is none to compare
                for other, before in known:
                    yield from _differing(directory, meta, other, before)
                known.append((directory, meta))
        elif meta.cluster_id is None or meta.node_id is None:
            yield directory.diagnosis("META_PROPERTIES_INVALID", path, "cluster.id or node.id is missing")
        elif meta.directory_id is not None and meta.directory_id.int < RESERVED_IDS:
            yield directory.diagnosis("META_PROPERTIES_INVALID", path, "Kafka keeps this directory.id for itself")
        else:
            for other, before in known:
                yield from _differing(directory, meta, other, before)
            known.append((directory, meta))


def _identity(directory: DirectoryFacts, directories: Sequence[DirectoryFacts]) -> dict[str, str]:
    """Returns the command that gives a directory an identity, as far as the broker's other directories have it.

    The directory of a voter gets the voter's id back: a new one would have no vote.
    """
    metas = [one.around.meta for one in directories if one.around.meta is not None]
    meta = next((meta for meta in metas if meta.cluster_id is not None and meta.node_id is not None), None)
    if meta is None or meta.cluster_id is None:
        return {}
    logs = [log.path for one in directories for log in one.listing.partitions if log.is_cluster_metadata]
    voters = [voter for log in logs for voter in read_voters(directory.around.fs, log)]
    voter = next((voter for voter in voters if voter.node == meta.node_id), None)
    if voter is None or not has_metadata_log(directory):
        return {"command": format_command(meta.cluster_id, votes=voter is not None)}
    lines = ("version=1", f"cluster.id={meta.cluster_id}", f"node.id={voter.node}")
    written = command_line("printf", "%s\\n", *lines, f"directory.id={voter.directory_id}")
    return {"command": f"{written} > {shell_path(directory.listing.path / filenames.META_PROPERTIES)}"}


def examine_node(directory: DirectoryFacts, configured: int) -> Iterator[Diagnosis]:
    """Yields a diagnosis if `node.id` of the broker's configuration (-1: unknown) is not that of `meta.properties`."""
    stored, path = directory.around.node_id, directory.listing.path / filenames.META_PROPERTIES
    if configured >= 0 and stored is not None and stored != configured:
        message = (
            f"node.id is {stored} here, and {configured} in the configuration: one of them belongs to another node"
        )
        yield directory.diagnosis("NODE_ID_DIFFERS", path, message)


def _differing(
    directory: DirectoryFacts, meta: MetaProperties, other: DirectoryFacts, before: MetaProperties
) -> Iterator[Diagnosis]:
    """Yields the first contradiction between the identities of two directories."""
    pairs = (
        ("cluster.id", meta.cluster_id != before.cluster_id, meta.cluster_id),
        ("node.id", meta.node_id != before.node_id, meta.node_id),
        ("directory.id", meta.directory_id == before.directory_id is not None, meta.directory_id),
    )
    for name, wrong, value in pairs:
        if wrong:
            relation = "is also that" if name == "directory.id" else "differs from that"
            message = f"{name} {value} {relation} of {other.listing.path}"
            yield directory.diagnosis("META_PROPERTIES_DIFFER", filenames.META_PROPERTIES, message)
            return


def has_metadata_log(directory: DirectoryFacts) -> bool:
    """True if the metadata log lies in the directory."""
    return any(partition.is_cluster_metadata for partition in directory.listing.partitions)
