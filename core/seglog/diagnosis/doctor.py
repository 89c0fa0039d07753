"""Would a Kafka 4.3 broker start on these log directories, and what would it do to the data (`seglog doctor`)?

Nothing is changed, locked or created: what a start would do is tried on an overlay in memory. Steps:

1. Each log directory: lock, identity, strange sub-directories, checkpoints (`doctor_directory`).
2. Each partition that a broker would load: names, recovery, indexes, end, data (`doctor_partition`, `doctor_data`).
3. Checkpoints against the logs' extents, and the directories against each other.

Kafka: LogManager.loadLogs, LogLoader, LogCleaner; the behaviour matrix of the specification (10.5) is its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.clock import Clock
from seglog.diagnosis.doctor_cases import CASES, Case, Diagnosis, Gravity
from seglog.diagnosis.doctor_directory import Ward, examine_directory, examine_together
from seglog.diagnosis.doctor_partition import examine_partition
from seglog.diagnosis.doctor_patient import Patient
from seglog.diagnosis.transactions import Coordinated, read_coordinators
from seglog.diagnosis.verify_files import verify_log_directory
from seglog.errors import CorruptIndexError, CorruptRecordError
from seglog.format import filenames
from seglog.format.filenames import PartitionState
from seglog.log.listing import PartitionDirectory, list_partition
from seglog.log.topic_settings import DirectorySettings
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem

__all__ = ["CASES", "Case", "Diagnosis", "Doctor", "DoctorSummary", "Gravity"]

SettingsOf = Callable[[Path], DirectorySettings]
Progress = Callable[[int, int], None]


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
    """Iterates over the diagnoses of `log_directories` (one broker's); `summary` is whole at the end.

    `deep` reads all data; without it names, indexes, ends and what an unclean start would recover are looked at.
    `settings_of` gives a log directory's configuration. `progress` is called with (bytes done, bytes in all). A
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
        progress: Progress | None = None,
    ) -> None:
        self._fs, self._paths, self._clock, self._settings_of = fs, log_directories, clock, settings_of
        self._deep, self._progress = deep, progress
        self.summary = DoctorSummary()

    def __iter__(self) -> Iterator[Diagnosis]:
        for row in self._rows():
            name = {Gravity.BLOCKER: "blockers", Gravity.DANGER: "dangers", Gravity.NOTE: "notes"}[row.gravity]
            self.summary = replace(self.summary, **{name: getattr(self.summary, name) + 1})
            yield row

    def _rows(self) -> Iterator[Diagnosis]:
        wards = []
        for path in self._paths:
            ward, rows = examine_directory(self._fs, path)
            wards.append(ward)
            yield from rows
            yield from self._partitions(ward)
        yield from examine_together(wards)

    def _partitions(self, ward: Ward) -> Iterator[Diagnosis]:
        path = ward.listing.path
        settings = self._settings_of(path)
        for problem in settings.problems:
            yield ward.say("METADATA_UNREADABLE", f"{filenames.CLUSTER_METADATA_TOPIC}-0", problem)
        coordinators = read_coordinators(self._fs, path) if self._deep else None
        extents: dict[TopicPartition, tuple[int, int]] = {}
        loaded = [p for p in ward.listing.partitions if _is_loaded(p)]
        for number, partition in enumerate(loaded):
            patient = self._patient(ward, partition, settings, coordinators)
            try:
                yield from examine_partition(patient, self._deep)
            except FileNotFoundError:
                if not patient.live:
                    raise
                # a running broker has deleted what was just listed
            except OSError as error:
                name = Path(error.filename).name if isinstance(error.filename, str) else ""
                yield patient.say("DIRECTORY_UNREADABLE", name, error.strerror or str(error))
            except (CorruptRecordError, CorruptIndexError) as error:
                yield patient.say("LOAD_FAILS", "", str(error))
            if patient.plan is not None and patient.listing.segments and partition.state is PartitionState.LIVE:
                base = patient.listing.segments[0].base_offset
                extents[partition.topic_partition] = base, patient.plan.log_end_offset
            self.summary = replace(self.summary, partitions=self.summary.partitions + 1)
            if self._progress is not None:
                self._progress(number + 1, len(loaded))
        for found in verify_log_directory(self._fs, ward.listing, extents):
            if found.code == "CHECKPOINT_BEYOND_LOG":
                yield ward.say("CHECKPOINT_BEYOND", found.file, found.message)

    def _patient(
        self,
        ward: Ward,
        partition: PartitionDirectory,
        settings: DirectorySettings,
        coordinators: Mapping[int, Coordinated] | None,
    ) -> Patient:
        key = partition.topic_partition
        config = settings(key.topic)
        metadata = settings.metadata
        known = metadata is not None and bool(metadata.topic_ids) and not metadata.problems
        return Patient(
            fs=self._fs,
            clock=self._clock,
            log_directory=ward.listing.path,
            listing=list_partition(self._fs, partition.path),
            config=config,
            clean=ward.listing.clean_shutdown and ward.holder is None,
            recovery_point=ward.offset(filenames.RECOVERY_POINT_CHECKPOINT, key),
            log_start_offset=ward.offset(filenames.LOG_START_OFFSET_CHECKPOINT, key),
            compacted=config.compact or key in ward.offsets.get(filenames.CLEANER_OFFSET_CHECKPOINT, {}),
            live=ward.holder is not None,
            metadata_known=known,
            topic_id=metadata.topic_ids.get(key.topic) if metadata is not None and known else None,
            coordinators=coordinators,
        )


def _is_loaded(partition: PartitionDirectory) -> bool:
    """Whether a broker recovers and serves it: live ones and those that are being moved."""
    loaded = partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
    return loaded and not partition.is_cluster_metadata
