"""Would a Kafka 4.3 broker start on these log directories, and what would it do to the data (`seglog doctor`)?

Nothing is changed, locked or created: what a start would do is tried on an overlay in memory. Steps:

1. Each log directory: lock, identity, strange sub-directories, checkpoints (`directory`).
2. Each partition that a broker would load: names, recovery, indexes, end, data (`partition`, `data`).
3. Checkpoints against the logs' extents, and the directories against each other.

Kafka: LogManager.loadLogs, LogLoader, LogCleaner; the behaviour matrix of the specification (§10.5) is its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.configuration.settings import DirectorySettings
from seglog.errors import CorruptIndexError, CorruptRecordError, NotALogError
from seglog.evidence.losses import LOG_END_MISSING
from seglog.evidence.second_look import look_until_settled
from seglog.evidence.transactions import Coordinated, read_coordinators
from seglog.format import filenames
from seglog.format.filenames import PartitionState
from seglog.model import TopicPartition
from seglog.prognosis.cases import CASES, Case, Diagnosis, Gravity
from seglog.prognosis.directory import Ward, admitted, examine_directory, examine_failures, examine_together
from seglog.prognosis.partition import examine_partition
from seglog.prognosis.partition_facts import Patient
from seglog.progress import DoneOfAll
from seglog.scan.listing import PartitionDirectory
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.verification.files import contradicted_offsets

__all__ = ["CASES", "Case", "Diagnosis", "Doctor", "DoctorSummary", "Gravity"]

SettingsOf = Callable[[Path], DirectorySettings]


@dataclass(frozen=True, slots=True)
class DoctorSummary:
    """Rows by gravity, partitions looked at, and whether a broker would start (`loads`)."""

    partitions: int = 0
    blockers: int = 0
    dangers: int = 0
    notes: int = 0

    @property
    def loads(self) -> bool:
        """Whether nothing keeps a broker from starting."""
        return self.blockers == 0


class Doctor:
    """Iterates over the diagnoses of `log_directories` (one broker's), anew each time; `summary` is that of the last
    iteration, whole at its end. Where there was none yet, asking for it makes one.

    `deep` reads all data; without it names, indexes, ends and what an unclean start would recover are looked at.
    `settings_of` gives a log directory's configuration. `progress` is called with (partitions done, in all). A
    file that cannot be read becomes a row. Raises NotALogError for a path that is no directory.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directories: Sequence[Path],
        clock: Clock,
        settings_of: SettingsOf,
        *,
        deep: bool = True,
        progress: DoneOfAll | None = None,
    ) -> None:
        self._fs, self._paths, self._clock, self._settings_of = fs, log_directories, clock, settings_of
        self._deep, self._progress = deep, progress
        self._summary = DoctorSummary()
        self._begun = False

    @property
    def summary(self) -> DoctorSummary:
        """Rows by gravity, and whether a broker would start."""
        if not self._begun:
            for _ in self:
                pass
        return self._summary

    def __repr__(self) -> str:
        found = f"{self._summary.blockers} blockers, {self._summary.dangers} dangers"
        return f"<Doctor of {', '.join(map(str, self._paths))}, so far: {found}>"

    def __iter__(self) -> Iterator[Diagnosis]:
        self._begun, self._summary = True, DoctorSummary()
        for row in self._rows():
            name = {Gravity.BLOCKER: "blockers", Gravity.DANGER: "dangers", Gravity.NOTE: "notes"}[row.gravity]
            self._summary = replace(self._summary, **{name: getattr(self._summary, name) + 1})
            yield row

    def _rows(self) -> Iterator[Diagnosis]:
        wards: list[Ward] = []
        failing: set[str] = set()
        for row in self._found(wards):
            if row.offline:
                failing.add(row.log_directory)
            yield row
        yield from examine_failures(wards, failing)

    def _found(self, wards: list[Ward]) -> Iterator[Diagnosis]:
        """The rows on the directories, one by one and together. Fills `wards`."""
        for path in self._paths:
            ward, rows = examine_directory(self._fs, path)
            wards.append(ward)
            yield from rows
        for ward in wards:
            yield from self._partitions(ward, _Metadata(wards))
        yield from self._together(wards)

    def _partitions(self, ward: Ward, metadata: _Metadata) -> Iterator[Diagnosis]:
        path = ward.listing.path
        settings = self._settings_of(path)
        for problem in settings.problems:
            yield ward.say("METADATA_UNREADABLE", f"{filenames.CLUSTER_METADATA_TOPIC}-0", problem)
        visit = _Visit(ward, settings, metadata, _Coordinators(self._fs, path, self._deep, ward.live))
        loaded = [p for p in ward.listing.partitions if not p.is_cluster_metadata]
        for number, partition in enumerate(loaded):
            yield from self._partition(visit, partition)
            counted = partition.state.is_served
            self._summary = replace(self._summary, partitions=self._summary.partitions + counted)
            if self._progress is not None:
                self._progress(number + 1, len(loaded))
        if ward.failed or any(row.offline for row in visit.rows):
            for row in visit.rows:
                if row.code == "STRAY_PARTITION":
                    yield ward.say("STRAY_IN_FAILED_DIRECTORY", path / row.partition, row.message)
        short = {row.partition for row in visit.rows if row.code == LOG_END_MISSING}
        for found in contradicted_offsets(ward.around, visit.extents, live=ward.live):
            if str(found.topic_partition) not in short:
                yield ward.say("CHECKPOINT_BEYOND", found.file, f"{found.topic_partition}: {found.message}")

    def _partition(self, visit: _Visit, partition: PartitionDirectory) -> Iterator[Diagnosis]:
        """One partition; beside a broker it is looked at until what is grave has stayed."""
        if not visit.ward.live:
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
            yield visit.ward.say("CHANGED_WHILE_READ", partition.path, message)

    def _look(self, visit: _Visit, partition: PartitionDirectory) -> Iterator[Diagnosis]:
        try:
            view = PartitionView(self._fs, partition.path, live=visit.ward.live, clock=self._clock)
        except (OSError, NotALogError) as error:
            if not visit.ward.live or self._fs.status(partition.path) is not None:
                yield visit.ward.say("DIRECTORY_UNREADABLE", partition.path, str(error))
            return  # a running broker has deleted what was just listed
        with view:
            patient = visit.patient(view, self._clock, partition)
            try:
                rows = examine_partition(patient, self._deep and partition.state.is_served)
                yield from rows if partition.state.is_served else (row for row in rows if row.gravity is _BLOCKER)
            except OSError as error:
                name = Path(error.filename).name if isinstance(error.filename, str) else ""
                yield patient.say("DIRECTORY_UNREADABLE", name, error.strerror or str(error))
            except (CorruptRecordError, CorruptIndexError) as error:
                yield patient.say("LOAD_FAILS", "", str(error))
            if patient.plan is not None and view.listing.segments and partition.state is PartitionState.LIVE:
                base = view.listing.segments[0].base_offset
                visit.extents[partition.topic_partition] = base, patient.plan.log_end_offset

    def _together(self, wards: list[Ward]) -> Iterator[Diagnosis]:
        def look(grave: Sequence[Diagnosis] | None) -> list[Diagnosis]:
            if grave is not None:
                wards[:] = [admitted(self._fs, ward.listing.path) for ward in wards]
            return list(examine_together(wards))

        if any(ward.live for ward in wards):
            yield from look_until_settled(look, _key, _is_grave, self._clock).rows
        else:
            yield from look(None)


class _Metadata:
    """The cluster's metadata out of whichever of the broker's directories holds it; read when first asked for."""

    def __init__(self, wards: Sequence[Ward]) -> None:
        self._wards = wards

    @cached_property
    def known(self) -> ClusterMetadata | None:
        """None where there is none that could be read whole."""
        found = (ward.around.metadata for ward in self._wards)
        return next((one for one in found if one is not None and one.knows_topics), None)

    def again(self, fs: FileSystem) -> _Metadata:
        """As the controller has it now."""
        return _Metadata([admitted(fs, ward.listing.path) for ward in self._wards])


class _Coordinators:
    """What the transaction coordinators' logs say: asked once, or beside a broker anew each time."""

    def __init__(self, fs: FileSystem, path: Path, deep: bool, live: bool) -> None:
        self._fs, self._path, self._deep, self._live = fs, path, deep, live
        self._known: tuple[Mapping[int, Coordinated] | None] | None = None

    def __call__(self) -> Mapping[int, Coordinated] | None:
        if not self._deep:
            return None
        if self._known is None or self._live:
            self._known = (read_coordinators(self._fs, self._path),)
        return self._known[0]


@dataclass(slots=True)
class _Visit:
    """The partitions of one log directory while they are looked at: what is known of all, and what was found."""

    ward: Ward
    settings: DirectorySettings
    metadata: _Metadata
    coordinators: _Coordinators
    extents: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    rows: list[Diagnosis] = field(default_factory=list)

    def refresh(self, fs: FileSystem) -> None:
        """Reads anew what a broker may have changed."""
        self.ward, self.metadata = admitted(fs, self.ward.listing.path), self.metadata.again(fs)

    def patient(self, view: PartitionView, clock: Clock, partition: PartitionDirectory) -> Patient:
        """A partition of the directory. A deleted one is loaded without recovery."""
        ward, key = self.ward, partition.topic_partition
        config = self.settings(key.topic)
        clean = ward.around.clean and not ward.live
        return Patient(
            view=view,
            clock=clock,
            around=ward.around,
            config=config,
            clean=clean or partition.state is PartitionState.DELETED,
            recovery_point=ward.offset(filenames.RECOVERY_POINT_CHECKPOINT, key),
            log_start_offset=ward.offset(filenames.LOG_START_OFFSET_CHECKPOINT, key),
            compacted=config.compact or ward.around.offset(filenames.CLEANER_OFFSET_CHECKPOINT, key) is not None,
            metadata=self.metadata.known,
            coordinators=self.coordinators,
        )


_BLOCKER = Gravity.BLOCKER


def _key(row: Diagnosis) -> tuple[str, str, str, str, int | None]:
    return row.code, row.log_directory, row.partition, row.file, row.position


def _is_grave(row: Diagnosis) -> bool:
    return row.gravity is not Gravity.NOTE
