"""Predicts whether a Kafka 4.3 broker starts on log directories, and what it does to their data (`seglog doctor`).

Nothing is changed, locked or created: the start is tried on an overlay in memory. Steps:

1. Each log directory: lock, identity, strange subdirectories, checkpoints (`directory`).
2. Each partition that a broker would load: names, recovery, indexes, end, data (`partition`, `data`).
3. Checkpoints against the extents of the logs, and the directories against each other.

Kafka: LogManager.loadLogs, LogLoader, LogCleaner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path, PurePath

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.configuration.settings import DirectorySettings
from seglog.configuration.writers import Releases, release_for
from seglog.errors import CorruptIndexError, CorruptRecordError, NotALogError
from seglog.format import filenames
from seglog.format.filenames import PartitionState
from seglog.kafka_version import SPOKEN_FOR, KafkaVersion
from seglog.progress import DoneOfAll
from seglog.remote_path import RemotePath, is_url
from seglog.scan.announcing import announced, small_files
from seglog.scan.listing import PartitionDirectory
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.verification.codes import Severity
from seglog.verification.losses import LOG_END_MISSING
from seglog.verification.second_look import look_until_settled
from seglog.verification.small_files import contradicted_offsets
from seglog_rescue.doctor.cases import CASES, Diagnosis
from seglog_rescue.doctor.coordinators import Coordinators
from seglog_rescue.doctor.copies import Copy, examine_copies, unserved_strays
from seglog_rescue.doctor.directory import (
    DirectoryFacts,
    as_met,
    examine_directory,
    examine_failures,
    examine_node,
    examine_together,
    has_metadata_log,
    is_unread,
    read_directory,
)
from seglog_rescue.doctor.partition_facts import facts_of_metadata
from seglog_rescue.doctor.partition_start import examine_partition
from seglog_rescue.doctor.placement import directories_not_given
from seglog_rescue.doctor.quorum import examine_first, examine_metadata, read_bootstrap, rebuild_command
from seglog_rescue.doctor.upgrade import Upgrade, examine_upgrade
from seglog_rescue.doctor.visit import KnownMetadata, Visit

__all__ = ["CASES", "Diagnosis", "Doctor", "DoctorSummary", "Severity"]

SettingsOf = Callable[[Path], DirectorySettings]


@dataclass(frozen=True, slots=True)
class DoctorSummary:
    """Diagnoses by gravity, the number of partitions examined, and of those that this user could not read.

    `kafka` is the release that was asked about, or releases ("2.4 to 3.9"); `writer` who wrote the directories, None if
    nothing shows it. `broker` is the process of a broker that runs on the directories, None if none does, 0 if the
    system does not tell.
    """

    kafka: str = str(SPOKEN_FOR)
    writer: Releases | None = None
    partitions: int = 0
    blockers: int = 0
    dangers: int = 0
    notes: int = 0
    not_examined: int = 0
    broker: int | None = None

    @property
    def loads(self) -> bool:
        """True if nothing keeps a broker from starting."""
        return self.blockers == 0


def diagnoses(
    fs: FileSystem, log_directories: Sequence[Path], clock: Clock, settings_of: SettingsOf, *, deep: bool
) -> Iterator[Diagnosis]:
    """Yields the diagnoses of one broker's log directories; without `deep` those of names, checkpoints and identities,
    for which no log is opened."""
    if deep:
        yield from Doctor(fs, log_directories, clock, settings_of)
        return
    directories: list[DirectoryFacts] = []
    for path in log_directories:
        directory, rows = examine_directory(fs, path)
        directories.append(directory)
        yield from rows
        yield from examine_node(directory, settings_of(path).resolve(None).broker.node_id)
    yield from examine_together(directories)


class Doctor:
    """Iterates over the diagnoses of `log_directories`, which belong to one broker. Each iteration examines them again.

    With `deep` all data is read; without it only names, indexes, log ends and what an unclean start would recover.
    `kafka` is the release that shall start; None means the one that wrote the directories, or 4.3 if nothing shows it.
    `settings_of` returns a log directory's configuration. `progress` is called with (partitions done, in all).
    A file that cannot be read becomes a diagnosis. Raises NotALogError for a path that is not a directory.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directories: Sequence[Path],
        clock: Clock,
        settings_of: SettingsOf,
        *,
        deep: bool = True,
        kafka: KafkaVersion | None = None,
        progress: DoneOfAll | None = None,
    ) -> None:
        self._fs, self._paths, self._clock, self._configuration_of = fs, log_directories, clock, settings_of
        self._deep, self._kafka, self._progress = deep, kafka, progress
        self._summary = DoctorSummary()
        self._begun = False

    @property
    def summary(self) -> DoctorSummary:
        """The counts of the last iteration, complete at its end. Iterates first if there was no iteration yet."""
        if not self._begun:
            for _ in self:
                pass
        return self._summary

    def __repr__(self) -> str:
        if not self._begun:
            paths = ", ".join(map(str, self._paths))
            return f"<Doctor of {paths}: nothing is examined yet; iterate over it, or ask for its summary>"
        found = f"{self._summary.blockers} blockers, {self._summary.dangers} dangers"
        return f"<Doctor of {', '.join(map(str, self._paths))}, so far: {found}>"

    def __iter__(self) -> Iterator[Diagnosis]:
        self._begun, self._summary = True, DoctorSummary()
        self._settings_of = cache(self._configuration_of)  # it replays the cluster's metadata
        directories: list[DirectoryFacts] = []
        failing: set[str] = set()
        for diagnosis in self._examined(directories):
            row = as_met(diagnosis, directories)
            if row.offline:
                failing.add(row.log_directory)
            yield self._counted(row)
        for row in examine_failures(directories, failing):
            yield self._counted(row)

    def _counted(self, row: Diagnosis) -> Diagnosis:
        name = f"{row.gravity.value}s"
        self._summary = replace(self._summary, **{name: getattr(self._summary, name) + 1})
        if row.code == "NOT_EXAMINED":
            self._summary = replace(self._summary, not_examined=self._summary.not_examined + 1)
        return row

    def _examined(self, directories: list[DirectoryFacts]) -> Iterator[Diagnosis]:
        """Yields the diagnoses of the directories, each alone and then all together. Fills `directories`."""
        examined = [examine_directory(self._fs, path) for path in self._paths]
        directories += [directory for directory, _ in examined]  # all, before a row of one is judged
        for directory, rows in examined:
            if directory.holder is not None and directory.holder.is_broker:
                self._summary = replace(self._summary, broker=directory.holder.pid)
            yield from rows
        upgrade = self._recognised(directories)
        for directory in directories:
            yield from examine_node(directory, self._settings_of(directory.listing.path).resolve(None).broker.node_id)
        yield from self._starts_of_metadata(directories, upgrade.to)
        metadata, copies = KnownMetadata(directories), list[Copy]()
        for directory in directories:
            yield from self._partitions(directory, metadata, copies, upgrade.to)
        yield from self._together(directories)
        if self._kafka is not None:
            settings = self._settings_of(directories[0].listing.path)
            yield from examine_upgrade(self._fs, directories, settings, upgrade)
        node_id = next((one.around.node_id for one in directories if one.around.node_id is not None), None)
        if any(one.live for one in directories):
            return
        if metadata.known is not None and node_id is not None:
            yield from examine_copies(copies, metadata.known, node_id)
            yield from directories_not_given(directories, metadata.known, node_id)
        yield from unserved_strays(copies, metadata.known)
        if metadata.known is None:
            yield from self._absent_metadata(directories, copies)

    def _recognised(self, directories: Sequence[DirectoryFacts]) -> Upgrade:
        """Returns the release that shall start, and what the directories show of the one that wrote them."""
        writers = (self._settings_of(directory.listing.path).writer for directory in directories)
        writer = next(filter(None, writers), None)
        kafka = release_for(writer, self._kafka)
        spoken_for = str(writer) if self._kafka is None and writer is not None and writer.zookeeper else str(kafka)
        self._summary = replace(self._summary, kafka=spoken_for, writer=writer)
        return Upgrade(kafka, writer)

    def _starts_of_metadata(self, directories: Sequence[DirectoryFacts], kafka: KafkaVersion) -> Iterator[Diagnosis]:
        """Yields the diagnoses of the metadata log, and gives the directories the metadata that a broker then knows."""
        logs = [
            (directory, partition)
            for directory in directories
            for partition in directory.listing.partitions
            if partition.is_cluster_metadata
        ]
        for directory, partition in logs:
            if directory.live or partition.state is not PartitionState.LIVE:
                continue
            try:
                with PartitionView(self._fs, partition.path, live=False, clock=self._clock) as view:
                    facts = facts_of_metadata(view, self._clock, directory.around)
                    broker = self._settings_of(directory.listing.path).resolve(None).broker
                    paths = [one.listing.path for one in directories]
                    start = examine_metadata(facts, paths, kafka, broker)
            except OSError as error:
                is_refused = is_url(error.filename)
                code = "NOT_EXAMINED" if is_refused else "DIRECTORY_UNREADABLE"
                place = PurePath(error.filename).name if is_refused else partition.path
                yield directory.diagnosis(code, place, error.strerror or str(error))
                continue
            directory.around.foreseen, directory.metadata_room = start.known, start.room
            stated = directory.around.node_id
            for one in directories if start.owner is not None else ():
                if one.around.node_id == stated:
                    one.around.owner = start.owner
            yield from start.rows
        homes = [directory for directory, _ in logs] or list(directories[:1])
        for directory in homes:
            yield from self._bootstrap(directory, kafka)

    def _bootstrap(self, directory: DirectoryFacts, kafka: KafkaVersion) -> Iterator[Diagnosis]:
        """Yields the diagnosis of `bootstrap.checkpoint`, whose records an empty metadata log begins with."""
        path = directory.listing.path / filenames.BOOTSTRAP_CHECKPOINT
        status = self._fs.status(path)
        if directory.live or (status is not None and status.is_directory):
            return
        if status is None:
            yield from examine_first(directory, ClusterMetadata(path), kafka)
            return
        try:
            if isinstance(path, RemotePath):
                self._fs.read_bytes(path)  # a refusal is a problem of this look, not of the file
        except OSError as error:
            yield directory.diagnosis("NOT_EXAMINED", path, error.strerror or str(error))
            return
        known, problem = read_bootstrap(self._fs, path, kafka)
        if problem:
            yield directory.diagnosis("BOOTSTRAP_UNREADABLE", path, problem)
            return
        if known.knows_topics and not (directory.around.metadata or known).end_offset:
            directory.around.foreseen = known
        yield from examine_first(directory, known, kafka)

    def _absent_metadata(self, directories: Sequence[DirectoryFacts], copies: Sequence[Copy]) -> Iterator[Diagnosis]:
        """Yields a diagnosis if partitions of a KRaft broker are there, and no metadata that names any topic."""
        served = [copy for copy in copies if copy.state is PartitionState.LIVE and copy.topic_id and copy.holds]
        kraft = any(one.around.meta is not None and one.around.meta.version > 0 for one in directories)
        paths = [one.listing.path for one in directories]
        elsewhere = {self._settings_of(path).metadata_directory for path in paths} - {None, *paths}
        unread = any(one.around.metadata is not None and one.around.metadata.problems for one in directories)
        if not served or not kraft or elsewhere or unread:
            return
        name = f"{filenames.CLUSTER_METADATA_TOPIC}-0"
        what = "names no topic" if any(map(has_metadata_log, directories)) else "is in none of the directories given"
        message = f"{name} {what}; a broker keeps it in metadata.log.dir, by default the first of its log.dirs"
        fields = {"command": rebuild_command(paths), "count": len(served)}
        yield directories[0].diagnosis("METADATA_MISSING", name, message, **fields)

    def _partitions(
        self, directory: DirectoryFacts, metadata: KnownMetadata, copies: list[Copy], kafka: KafkaVersion
    ) -> Iterator[Diagnosis]:
        path = directory.listing.path
        settings = self._settings_of(path)
        foreseen = settings.metadata_directory is not None and not directory.live
        for problem in () if foreseen and metadata.begins_in(settings.metadata_directory) else settings.problems:
            yield directory.diagnosis("METADATA_UNREADABLE", f"{filenames.CLUSTER_METADATA_TOPIC}-0", problem)
        coordinators = Coordinators(self._fs, self._paths, self._deep, directory.live)
        visit = Visit(directory, settings, metadata, coordinators, directory.denied, kafka)
        loaded = [p for p in directory.listing.partitions if not p.is_cluster_metadata]
        for number, partition in enumerate(announced(self._fs, loaded, attrgetter("path"), small_files)):
            yield from self._partition(visit, partition)
            self._summary = replace(self._summary, partitions=self._summary.partitions + partition.state.is_served)
            if self._progress is not None:
                self._progress(number + 1, len(loaded))
        copies += visit.copies
        yield from visit.lacking_room(self._fs, partial(self._room_for, visit))
        if directory.failed or any(row.offline for row in visit.rows):
            for row in visit.rows:
                if row.code == "STRAY_PARTITION":
                    yield directory.diagnosis("STRAY_IN_FAILED_DIRECTORY", path / row.partition, row.message)
        short = {row.partition for row in visit.rows if row.code == LOG_END_MISSING}
        for found in contradicted_offsets(directory.around, visit.extents, live=directory.live):
            if str(found.topic_partition) not in short:
                yield directory.diagnosis("CHECKPOINT_BEYOND", found.file, f"{found.topic_partition}: {found.message}")

    def _partition(self, visit: Visit, partition: PartitionDirectory) -> Iterator[Diagnosis]:
        """Yields the diagnoses of one partition. Beside a running broker only grave ones that last are reported."""
        if not visit.directory.live:
            if self._deep and partition.state is PartitionState.LIVE and visit.is_unchanged(self._fs, partition):
                return
            for row in self._look(visit, partition):
                visit.rows.append(row)
                yield row
            return

        def look(grave: Sequence[Diagnosis] | None) -> list[Diagnosis]:
            if grave is not None:
                visit.refresh(self._fs)
            return list(self._look(visit, partition))

        settled = look_until_settled(look, _key, _is_grave, self._clock)
        visit.rows += settled.rows
        yield from settled.rows
        if settled.restless:
            codes = ", ".join(sorted({row.code for row in settled.restless}))
            message = f"what looked like {codes} was gone a moment later"
            yield visit.directory.diagnosis("CHANGED_WHILE_READ", partition.path, message)

    def _look(self, visit: Visit, partition: PartitionDirectory) -> Iterator[Diagnosis]:
        try:
            view = PartitionView(self._fs, partition.path, live=visit.directory.live, clock=self._clock)
        except (OSError, NotALogError) as error:
            if is_unread(error):
                yield from visit.unread(partition.path, partition, error)
                return
            yield from self._unreadable(visit, partition, error)
            return
        with view:
            facts = visit.facts(view, self._clock, partition)
            try:
                rows = examine_partition(facts, self._deep and partition.state.is_served)
                yield from rows if partition.state.is_served else (r for r in rows if r.gravity is Severity.BLOCKER)
            except OSError as error:
                if is_unread(error):
                    yield from visit.unread(error.filename or partition.path, partition, error)
                    return
                name = Path(error.filename).name if isinstance(error.filename, str) else ""
                yield facts.diagnosis("DIRECTORY_UNREADABLE", name, error.strerror or str(error))
            except (CorruptRecordError, CorruptIndexError) as error:
                yield facts.diagnosis("LOAD_FAILS", "", str(error))
            except NotALogError as error:
                yield from self._unreadable(visit, partition, error)
            if facts.plan is not None:
                visit.room += 0 if facts.plan.room is None else facts.plan.room.growth
            if facts.plan is not None and view.listing.segments:
                visit.note(partition, facts, facts.plan)

    def _room_for(self, visit: Visit, partition: PartitionDirectory) -> int:
        """Returns the bytes that loading a partition with a sound log takes."""
        with PartitionView(self._fs, partition.path, live=False, clock=self._clock) as view:
            facts = visit.facts(view, self._clock, partition)
            for _ in examine_partition(facts, deep=False):
                pass  # the plan is what is asked for
        return 0 if facts.plan is None or facts.plan.room is None else facts.plan.room.growth

    def _unreadable(self, visit: Visit, partition: PartitionDirectory, error: Exception) -> Iterator[Diagnosis]:
        """Yields that a partition cannot be read; nothing if a running broker has just deleted it."""
        if not visit.directory.live or self._fs.status(partition.path) is not None:
            yield visit.directory.diagnosis("DIRECTORY_UNREADABLE", partition.path, str(error))

    def _together(self, directories: list[DirectoryFacts]) -> Iterator[Diagnosis]:
        def look(grave: Sequence[Diagnosis] | None) -> list[Diagnosis]:
            if grave is not None:
                directories[:] = [read_directory(self._fs, directory.listing.path) for directory in directories]
            return list(examine_together(directories, self._kafka))

        if any(directory.live for directory in directories):
            yield from look_until_settled(look, _key, _is_grave, self._clock).rows
        else:
            yield from look(None)


def _key(row: Diagnosis) -> tuple[str, str, str, str, int | None]:
    return row.code, row.log_directory, row.partition, row.file, row.position


def _is_grave(row: Diagnosis) -> bool:
    return row.gravity is not Severity.NOTE
