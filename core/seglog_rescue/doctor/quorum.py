"""What a starting broker or controller does with the metadata log, `__cluster_metadata-0`.

1. `quorum-state`: the node's vote and leader epoch. It must be readable; without the file the node begins anew.
2. The log is always recovered from its start, whether the broker was stopped or killed: it is cut at the first damage.
3. Snapshots: one must cover the start of the log. A log that ends before the newest snapshot is dropped.
4. The newest snapshot is read, then the log. A snapshot that lost its end is not noticed. A record that the node does
   not know, or that contradicts those before it, ends the process.
5. Who has a vote, if records name the voters (`voters`).

A broker with other controllers fetches from them what it has lost; a node that is the only controller does not.

Kafka: KafkaRaftLog, FileQuorumStateStore, KRaftControlRecordStateMachine, MetadataLoader, FeatureControlManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seglog.configuration.cluster_metadata import (
    CONFIG_RECORD,
    FEATURE_LEVEL_RECORD,
    METADATA_PARTITION,
    PARTITION_CHANGE_RECORD,
    PARTITION_RECORD,
    REGISTER_BROKER_RECORD,
    REMOVE_TOPIC_RECORD,
    TOPIC_RECORD,
    ClusterMetadata,
    MetadataChanges,
)
from seglog.configuration.feature_levels import METADATA_VERSION, supported_levels
from seglog.configuration.keys import BrokerConfig
from seglog.configuration.metadata_log import MetadataRecord, MetadataReplay, is_torn_end
from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.escaping import command_line
from seglog.format import filenames
from seglog.format.checkpoint import parse_leader_epochs
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.format.quorum_state import parse_quorum_state
from seglog.format.wire import FramedRecord
from seglog.kafka_version import KafkaVersion
from seglog.log.loader import LoadOptions, RecoveryReport, load_log
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text
from seglog.verification.codes import Severity
from seglog_rescue.doctor.cases import Diagnosis
from seglog_rescue.doctor.directory import DirectoryFacts
from seglog_rescue.doctor.mends import beside
from seglog_rescue.doctor.partition_facts import PartitionFacts
from seglog_rescue.doctor.partition_start import examine_small_files, without_refused
from seglog_rescue.doctor.voters import examine_voters, only_voter_here

REFUSES = "Refuses to start."
_BY_NEWER = "start it with the Kafka release that wrote it, or a later one"
_BY_OLDER = "start it with Kafka 3.9, raise metadata.version there (kafka-features.sh upgrade), and stop it"
_TORN = "Cuts it off. Nothing is lost: a controller acknowledges only batches that are whole on disk."
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_READS_FIRST_SNAPSHOT = KafkaVersion(4, 4)
_UNREGISTER_BROKER, _BROKER_CHANGE, _FENCE, _UNFENCE = 1, 17, 7, 8


@dataclass(slots=True)
class MetadataStart:
    """What a start makes of the metadata log: its diagnoses, and the metadata that the broker then knows.

    `known` is None if the broker would not get that far. `room` are the bytes on the disk that loading the log takes.
    `owner` is the node that votes from here, if `meta.properties` names another one, which then has no vote.
    """

    rows: list[Diagnosis] = field(default_factory=list)
    known: ClusterMetadata | None = None
    room: int = 0
    owner: int | None = None


def examine_metadata(
    facts: PartitionFacts, log_directories: Sequence[Path], kafka: KafkaVersion, broker: BrokerConfig
) -> MetadataStart:
    """Foresees the start of a release on the metadata log in `facts`. `log_directories` are all that were given,
    `broker` is what is known of the node's configuration. Raises OSError.
    """
    return _Start(facts, log_directories, kafka, broker).run()


def rebuild_command(log_directories: Sequence[Path]) -> str:
    """Returns the command that makes the metadata anew from the brokers' directories."""
    return command_line("seglog", "rebuild", *log_directories, "-o", beside(log_directories[0], "rebuilt"))


def aside_command(path: Path) -> str:
    """Returns the command that takes a file out of a broker's way; it stays beside its place."""
    return command_line("mv", path, path.with_name(f"{path.name}.damaged"))


class _Start:
    """The start of one metadata log, step by step."""

    def __init__(
        self, facts: PartitionFacts, log_directories: Sequence[Path], kafka: KafkaVersion, broker: BrokerConfig
    ) -> None:
        self._facts, self._log_directories, self._kafka, self._broker = facts, log_directories, kafka, broker
        self._directory = facts.listing.directory
        self._rebuild = rebuild_command(log_directories)

    def run(self) -> MetadataStart:
        found = MetadataStart([*self._small_files(), *self._quorum_state()])
        if any(row.code == "NOT_A_FILE" for row in found.rows):
            return found
        loaded = self._loaded(found)
        if loaded is None:
            return found
        files, report = loaded
        found.room = files.room.growth
        found.rows += self._cuts(report)
        if not self._snapshots_fit(found, files, report):
            return found
        replay, checks = self._replayed(files)
        first = self._first_snapshot()
        voters = replay.voters or first.voters
        found.rows += examine_voters(self._facts, voters, self._broker)
        found.owner = only_voter_here(self._facts, voters)
        problems = [*(first.corrupt if replay.snapshot is None else ()), *checks.problems, *replay.problems]
        mends = {**dict.fromkeys(replay.of_newer, _BY_NEWER), **checks.mends}
        for problem in problems[:1]:
            found.rows.append(self._refused(problem, mends.get(problem, self._rebuild)))
        for problem in replay.unnoticed[:1]:
            path, message = self._place(problem)
            found.rows.append(self._facts.diagnosis("METADATA_SNAPSHOT_DAMAGED", path, message, command=self._rebuild))
        if not problems:
            found.known = checks.metadata
            found.known.end_offset = replay.end_offset
        return found

    # --- small files

    def _small_files(self) -> Iterator[Diagnosis]:
        for row in examine_small_files(self._facts):
            if row.gravity is Severity.BLOCKER:
                command = aside_command(self._directory / row.file)
                yield replace(row, broker=REFUSES, command=command, offline=False)
        topic_id, path = self._facts.topic_id, self._facts.listing.partition_metadata
        if path is not None and topic_id is not None and topic_id != METADATA_TOPIC_ID:
            message = f"the topic id {topic_id} is not that of the metadata log, {METADATA_TOPIC_ID}"
            fields = {"broker": REFUSES, "command": aside_command(path), "offline": False}
            yield self._facts.diagnosis("PARTITION_METADATA_UNREADABLE", path, message, **fields)

    def _quorum_state(self) -> Iterator[Diagnosis]:
        path = self._directory / filenames.QUORUM_STATE
        status = self._facts.fs.status(path)
        if status is None:
            return
        if status.no_file:
            what = f"it is {status.no_file}"
            yield self._facts.diagnosis("QUORUM_STATE_UNREADABLE", path, what, command=aside_command(path))
            return
        try:
            parse_quorum_state(self._facts.fs.read_bytes(path), path)
        except (CorruptCheckpointError, RefusedError) as error:
            message = f"{str(error).removeprefix(f'{path}: ')}; without the file the node votes as if it never had"
            yield self._facts.diagnosis("QUORUM_STATE_UNREADABLE", path, message, command=aside_command(path))

    # --- loading

    def _loaded(self, found: MetadataStart) -> tuple[OverlayFileSystem, RecoveryReport] | None:
        files = OverlayFileSystem(without_refused(self._facts))
        options = LoadOptions(
            clean_shutdown=False,
            index_interval_bytes=self._facts.config.index_interval_bytes,
            keeps_holes=True,
        )
        try:
            loaded = load_log(files, self._directory, self._facts.clock, options)
        except SeglogError as error:
            message = str(error).replace(f"{self._directory}/", "")
            found.rows.append(self._facts.diagnosis("LOAD_FAILS", "", message, command=self._rebuild))
            return None
        loaded.segments.close()
        return files, loaded.report

    def _cuts(self, report: RecoveryReport) -> Iterator[Diagnosis]:
        cut = next((one for one in report.recovered if one.truncated_bytes), None)
        if cut is None:
            return
        message = f"{cut.reason}; the log then ends at offset {cut.next_offset}"
        if report.deleted_segments:
            message += f", and {count_text(len(report.deleted_segments), 'segment')} after that are deleted"
        segment = next(one for one in self._facts.listing.segments if one.base_offset == cut.base_offset)
        torn = not report.deleted_segments and is_torn_end(self._facts.fs, segment, cut.valid_bytes)
        fields: dict[str, object] = {"gravity": Severity.NOTE, "broker": _TORN} if torn else {"command": self._rebuild}
        where = {"position": cut.valid_bytes, "length": cut.truncated_bytes, "first_offset": cut.next_offset}
        yield self._facts.diagnosis("METADATA_CUT", f"{cut.base_offset:020d}.log", message, **where, **fields)

    def _snapshots_fit(self, start: MetadataStart, files: OverlayFileSystem, report: RecoveryReport) -> bool:
        """Removes from `files` what the start removes; False if it refuses."""
        names = [parse_file_name(name) for name in files.list(self._directory)]
        snapshots = sorted(
            (name.offset, name.epoch or 0)
            for name in names
            if name is not None and name.kind is FileKind.METADATA_SNAPSHOT and name.state is FileState.LIVE
        )
        staying = [snapshot for snapshot in snapshots if snapshot[0] >= report.log_start_offset and snapshot != (0, 0)]
        if report.log_start_offset > 0 and not staying:
            message = f"the log begins at offset {report.log_start_offset}, and no snapshot covers what came before"
            start.rows.append(self._facts.diagnosis("METADATA_SNAPSHOT_MISSING", "", message, command=self._rebuild))
            return False
        for offset, epoch in snapshots:
            if (offset, epoch) not in staying:
                files.remove(self._directory / _snapshot_name(offset, epoch))
        if staying:
            staying.sort(key=lambda snapshot: (snapshot[1], snapshot[0]))
            for older in staying[:-1]:
                files.remove(self._directory / _snapshot_name(*older))
            offset, epoch = staying[-1]
            latest = self._latest_epoch(files)
            if epoch > latest or (epoch == latest and offset > report.log_end_offset):
                self._drop_log(start, files, report, _snapshot_name(offset, epoch))
        return True

    def _latest_epoch(self, files: FileSystem) -> int:
        path = self._directory / filenames.LEADER_EPOCH_CHECKPOINT
        if files.status(path) is None:
            return 0
        entries = parse_leader_epochs(files.read_bytes(path), path)
        return entries[-1].epoch if entries else 0

    def _drop_log(self, found: MetadataStart, files: OverlayFileSystem, report: RecoveryReport, snapshot: str) -> None:
        """The log is older than a snapshot: the broker begins again after that."""
        segments = [name for name in files.list(self._directory) if name.endswith(".log")]
        for name in segments:
            if files.status(self._directory / name) is not None:
                files.remove(self._directory / name)
        if report.log_end_offset > report.log_start_offset and segments:
            message = f"the snapshot {snapshot} is newer than the log, which ends at {report.log_end_offset}"
            fields = {"position": 0, "first_offset": report.log_start_offset, "last_offset": report.log_end_offset - 1}
            found.rows.append(self._facts.diagnosis("METADATA_REPLACED", segments[0], message, **fields))

    # --- records

    def _replayed(self, files: FileSystem) -> tuple[MetadataReplay, _Checks]:
        checks = _Checks(self._directory, self._kafka)
        replay = MetadataReplay(checks.apply, trusting=True)
        replay.read(files, self._directory)
        return replay, checks

    def _first_snapshot(self) -> MetadataReplay:
        """Reads the voters that `kafka-storage format` wrote, before the log names any. A start reads that file, and
        compares checksums there, as long as there is no newer snapshot (Kafka: KRaftControlRecordStateMachine)."""
        path = self._directory / filenames.FIRST_SNAPSHOT
        replay = MetadataReplay(lambda *_: None, (), trusting=True)
        if self._facts.fs.status(path) is not None:
            replay.read_snapshot(self._facts.fs, path)
        return replay

    def _refused(self, problem: str, mend: str) -> Diagnosis:
        path, message = self._place(problem)
        if path.name.endswith(".checkpoint"):
            code = "METADATA_SNAPSHOT_DAMAGED"
            return self._facts.diagnosis(code, path, message, gravity=Severity.BLOCKER, broker=REFUSES, command=mend)
        return self._facts.diagnosis("METADATA_RECORD_REFUSED", path, message, command=mend)

    def _place(self, problem: str) -> tuple[Path, str]:
        path, _, message = problem.partition(": ")
        return Path(path), message.removesuffix("; the rest was not read")


def _snapshot_name(offset: int, epoch: int) -> str:
    return str(filenames.FileName(offset, FileKind.METADATA_SNAPSHOT, FileState.LIVE, epoch))


def read_bootstrap(fs: FileSystem, path: Path, kafka: KafkaVersion) -> tuple[ClusterMetadata, str]:
    """Reads `bootstrap.checkpoint`: the records with which an empty metadata log begins, and why a release refuses it.

    Kafka: BootstrapDirectory, BootstrapMetadata.
    """
    checks = _Checks(path.parent, kafka, features=(METADATA_VERSION,))  # the others count when the records are applied
    replay = MetadataReplay(checks.apply, trusting=True)
    replay.read_snapshot(fs, path)
    problems = [*replay.problems, *checks.problems]
    if not problems and not checks.has_version:
        problems = [*replay.unnoticed, f"{path}: it sets no {METADATA_VERSION}"]
    return checks.metadata, problems[0].removeprefix(f"{path}: ") if problems else ""


def examine_first(directory: DirectoryFacts, bootstrap: ClusterMetadata, kafka: KafkaVersion) -> Iterator[Diagnosis]:
    """Yields a diagnosis if an empty metadata log begins with other records than those that know the topics, and gives
    the directory what a broker then knows.

    `bootstrap` is what `bootstrap.checkpoint` says. From 4.4 on, the first snapshot's records come before it, if it has
    any; an older release takes nothing but voters from there.
    """
    path, fs = directory.listing.path / METADATA_PARTITION / filenames.FIRST_SNAPSHOT, directory.around.fs
    has_log = any(partition.is_cluster_metadata for partition in directory.listing.partitions)
    if not has_log or fs.status(path) is None or _has_begun(fs, path.parent):
        return
    checks = _Checks(path.parent, kafka)
    MetadataReplay(checks.apply, trusting=True).read_snapshot(fs, path)
    is_read = kafka >= _READS_FIRST_SNAPSHOT and (checks.has_version or checks.metadata.knows_topics)
    begins, other = (checks.metadata, bootstrap) if is_read else (bootstrap, checks.metadata)
    if other.knows_topics and not begins.knows_topics:
        first, place = f"{METADATA_PARTITION}/{path.name}", directory.listing.path / filenames.BOOTSTRAP_CHECKPOINT
        which = f"{first}, without topics, not" if is_read else f"{place.name} alone, not"
        message = f"Kafka {kafka} begins with {which} with {place.name if is_read else first}, which names topics"
        command = rebuild_command([directory.listing.path])
        yield directory.diagnosis("BOOTSTRAP_PASSED_OVER", place, message, command=command)
    elif begins.knows_topics:
        directory.around.foreseen = begins


def _has_begun(fs: FileSystem, metadata_log: Path) -> bool:
    """True if a segment of the log holds anything."""
    statuses = (fs.status(metadata_log / name) for name in fs.list(metadata_log) if name.endswith(FileKind.LOG.value))
    return any(status is not None and status.size for status in statuses)


class _Checks:
    """Applies the records, and finds those that end the process of a release's controller or broker.

    `mends` says of those of the `problems` that another Kafka release does not have which one that is.
    """

    def __init__(self, directory: Path, kafka: KafkaVersion, features: Collection[str] | None = None) -> None:
        self._features, self._kafka, self._supported = features, kafka, supported_levels(kafka)
        self.metadata = ClusterMetadata(directory)
        self.problems: list[str] = []
        self.mends: dict[str, str] = {}
        self._changes = MetadataChanges(self.metadata)
        self._brokers: dict[int, int] = {}  # their epochs by id
        self._version = 0

    @property
    def has_version(self) -> bool:
        """True if a record has set metadata.version."""
        return self._version > 0

    def apply(self, record: FramedRecord, source: MetadataRecord) -> None:
        is_level = record.type == FEATURE_LEVEL_RECORD
        problem, mend = self._level_problem(record) if is_level else (self._problem(record), "")
        if problem:
            self.problems.append(f"{source.path}: offset {source.offset}: {problem}")
        if mend:
            self.mends[self.problems[-1]] = mend
        if record.type in _APPLIED:
            self._changes.apply(record, source)

    def _problem(self, record: FramedRecord) -> str:
        data = record.data
        if record.type == PARTITION_CHANGE_RECORD:
            known = self.metadata.assignment(data["topicId"], int(data["partitionId"]))
            return "" if known is not None else f"it changes a partition of the unknown topic {data['topicId']}"
        if record.type == REGISTER_BROKER_RECORD:
            self._brokers[data["brokerId"]] = data["brokerEpoch"]
        elif record.type == _UNREGISTER_BROKER:
            problem = self._broker_problem(data["brokerId"], data["brokerEpoch"])
            self._brokers.pop(data["brokerId"], None)
            return problem
        elif record.type == _BROKER_CHANGE:
            return self._broker_problem(data["brokerId"], data["brokerEpoch"])
        elif record.type in (_FENCE, _UNFENCE):
            return self._broker_problem(data["id"], data["epoch"])
        elif record.type == REMOVE_TOPIC_RECORD and data["topicId"] not in self.metadata.topic_ids.values():
            return f"it removes the unknown topic {data['topicId']}"
        return ""

    def _broker_problem(self, broker: int, epoch: int) -> str:
        known = self._brokers.get(broker)
        if known is None:
            return f"it changes the broker {broker}, which has not registered"
        return "" if known == epoch else f"it changes the broker {broker} of epoch {epoch}, but its epoch is {known}"

    def _level_problem(self, record: FramedRecord) -> tuple[str, str]:
        """Returns why a feature's level is refused, and which release takes it; "" twice if it is not refused."""
        name, level = record.data["name"], record.data["featureLevel"]
        if self._features is not None and name not in self._features:
            return "", ""
        least, most = self._supported.get(name, (0, 0))
        if name == METADATA_VERSION:
            before, self._version = self._version, max(level, self._version)
            if least <= level < before:
                return f"{name} goes down from {before} to {level}", ""
        if least <= level <= most:
            return "", ""
        if name not in self._supported:
            return f"Kafka {self._kafka} does not know the feature {name}; a newer version wrote it", _BY_NEWER
        problem = f"Kafka {self._kafka} supports {name} from {least} to {most}, not {level}; another version wrote it"
        return problem, _BY_OLDER if level < least else _BY_NEWER


_APPLIED = {
    *(TOPIC_RECORD, PARTITION_RECORD, PARTITION_CHANGE_RECORD, REMOVE_TOPIC_RECORD),
    *(CONFIG_RECORD, FEATURE_LEVEL_RECORD, REGISTER_BROKER_RECORD),
}
