"""The known facts about a partition that `doctor` examines, and its diagnoses of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.configuration.keys import LogConfig
from seglog.format.filenames import FileKind, FileName, FileState, parse_file_name
from seglog.log.loader import RecoveryReport
from seglog.remote_path import RemotePath
from seglog.scan.listing import PartitionListing
from seglog.scan.view import PartitionView
from seglog.storage import links
from seglog.storage.filesystem import FileSystem, leads_nowhere
from seglog.verification.surroundings import Surroundings
from seglog_rescue.doctor.cases import Diagnosis, diagnosis
from seglog_rescue.doctor.coordinators import Coordinators
from seglog_rescue.doctor.segment_end import KafkaEnd


def is_made_through(fs: FileSystem, link: Path) -> bool:
    """True if the directory is there in which a link to nothing names a file: who writes the link makes the file."""
    into = fs.status(links.resolve(link).parent)
    return into is not None and into.is_directory


@dataclass(frozen=True, slots=True)
class NoFile:
    """A name without a file: `what` is there instead. `is_there`: a broker that asks whether it exists is told so.

    `is_made`: it is a link into a directory that is there, so that a broker that writes the file makes it.
    """

    path: Path
    what: str
    is_there: bool
    name: FileName | None
    is_made: bool = False

    @property
    def live_kind(self) -> FileKind | None:
        """The kind of file that a broker takes the name for, None for those of leftovers and others."""
        return self.name.kind if self.name is not None and self.name.state is FileState.LIVE else None

    @property
    def base_offset(self) -> int:
        """The offset in the name, -1 without one."""
        return -1 if self.name is None else self.name.offset


@dataclass(slots=True)
class PartitionFacts:
    """One partition and what its log directory says about it.

    `clean`: the clean-shutdown marker is there. `recovery_point` and `log_start_offset` come from the checkpoints.
    `compacted`: its policy or the cleaner's checkpoint says so. `metadata` is the cluster's, None unless all of it is
    known. `coordinators` reads the transaction coordinators' logs. `largest_decompressed` are the bytes that a record
    in a compressed batch may have for the release's cleaner, None for any number. `policy_known`: the policy in
    `config` is the topic's.
    `topic_id`, `plan`, `ends` and `has_producers` are filled during the examination: the id in `partition.metadata`,
    the planned recovery, by base offset where a broker sees the end of a segment, and whether a good batch has a
    producer.
    """

    view: PartitionView
    clock: Clock
    around: Surroundings
    config: LogConfig
    clean: bool
    recovery_point: int
    log_start_offset: int
    compacted: bool
    metadata: ClusterMetadata | None
    coordinators: Coordinators
    largest_decompressed: int | None = None
    policy_known: bool = False
    topic_id: str | None = None
    plan: RecoveryReport | None = None
    ends: dict[int, KafkaEnd] = field(default_factory=dict)
    has_producers: bool = True
    _recovered: frozenset[int] | None = field(default=None, init=False)
    _no_files: list[NoFile] | None = field(default=None, init=False)

    @property
    def fs(self) -> FileSystem:
        """The partition's files as they were when the view was made."""
        return self.view.fs

    @property
    def listing(self) -> PartitionListing:
        """The contents of the partition directory."""
        return self.view.listing

    @property
    def live(self) -> bool:
        """True if a broker holds the log directory."""
        return self.view.live

    @property
    def log_directory(self) -> Path:
        """The log directory of the partition."""
        return self.around.path

    @property
    def no_files(self) -> list[NoFile]:
        """What is not a file in the partition directory."""
        if self._no_files is None:
            self._no_files = [*self._strange(), *self._dangling()]
        return self._no_files

    def _strange(self) -> Iterator[NoFile]:
        for path in self.listing.strangers:
            status = self.fs.status(path)
            if status is not None and status.no_file:
                yield NoFile(path, f"it is {status.no_file}", True, parse_file_name(path.name))

    def _dangling(self) -> Iterator[NoFile]:
        """Yields the links to nothing, which no listing has."""
        fs, directory = self.around.fs, self.listing.directory
        if isinstance(directory, RemotePath):
            return
        for name in sorted(set(fs.list(directory)).difference(self.fs.list(directory))):
            if leads_nowhere(fs, directory / name):
                what = "it is a link to a file that is not there"
                is_made = is_made_through(fs, directory / name)
                yield NoFile(directory / name, what, False, parse_file_name(name), is_made)

    def survives(self, base_offset: int, position: int) -> bool:
        """True if byte `position` of a segment is still there after the start."""
        if self.plan is None:
            return True
        cut = next((one for one in self.plan.recovered if one.base_offset == base_offset), None)
        return base_offset not in self.plan.deleted_segments and (cut is None or position < cut.valid_bytes)

    def recovered(self, base_offset: int) -> bool:
        """True if the start rebuilds that segment's indexes, or deletes the segment."""
        if self.plan is None:
            return False
        if self._recovered is None:  # looked up for each segment, of which there are thousands
            self._recovered = frozenset(
                (*self.plan.deleted_segments, *(one.base_offset for one in self.plan.recovered))
            )
        return base_offset in self._recovered

    def diagnosis(self, code: str, file: Path | str, message: str, **fields: Any) -> Diagnosis:
        """Returns a diagnosis of `file`, a name in the partition or a path; `fields` override the texts of its case."""
        directory = self.listing.directory
        path = file if isinstance(file, Path) else directory / file
        return diagnosis(code, self.log_directory, directory, path, message, **fields)


def facts_of_metadata(view: PartitionView, clock: Clock, around: Surroundings) -> PartitionFacts:
    """Returns the facts of the metadata log, which a node recovers from its start whenever it starts."""
    return PartitionFacts(
        view=view,
        clock=clock,
        around=around,
        config=LogConfig(),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        compacted=False,
        metadata=None,
        coordinators=Coordinators(view.fs, (), read=False, live=False),
    )
