"""Verifies logs, from headers to meaning, without changing or locking anything.

Levels (each includes those before): *header* framing, offsets, flags; *crc* checksums; *record* the structure of
every record; *index* offset and time indexes, names, losses; *semantic* control records, transactions, producers,
epochs.

Steps:

1. Read the checkpoints of a log directory, then the list of its partitions.
2. Verify each partition through a stable view (`verification.partition_look`). Under a running broker, look again until
   grave findings have lasted some seconds (`second_look`).
3. Compare the checkpoints with the extents of the logs, and report missing partitions.

Damage never ends a verification: it continues with the next good batch. Kafka has no such tool; `kafka-dump-log`
reports part of the damage, and exits 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path

from seglog.arguments import flag, number
from seglog.clock import Clock
from seglog.errors import ArgumentError, NotALogError
from seglog.format.filenames import PartitionState, parse_file_name
from seglog.model import TopicPartition, member
from seglog.progress import DoneOfAll
from seglog.scan.announcing import announced, small_files
from seglog.scan.listing import (
    LogDirectoryListing,
    Target,
    TargetKind,
    list_log_directory,
    list_partition,
    log_directory_of,
    require_log_file,
)
from seglog.scan.view import PartitionView, SingleFile, is_held
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.frozen import VanishedError
from seglog.storage.lock import partition_path
from seglog.units import count_text
from seglog.verification.batches import Level, Totals
from seglog.verification.codes import UNREADABLE, Severity, Trait
from seglog.verification.findings import Finding
from seglog.verification.findings import finding as new_finding
from seglog.verification.partition_look import Known, LookOptions, PartitionLook
from seglog.verification.readable_files import unreadable
from seglog.verification.second_look import look_until_settled
from seglog.verification.small_files import verify_log_directory
from seglog.verification.surroundings import Surroundings, read_surroundings

__all__ = ["Level", "Verification", "VerifyOptions", "VerifySummary"]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """The options of a `Verification`.

    `live`: a broker may be writing, so a torn tail of the last segment is not damage, and a grave finding must last.
    Without it, the same holds if a process has the log directory's lock. `sample` (0 to 1) verifies that share of the
    bytes, chosen by `seed`, up to level *record*. `max_duration_s` ends it early, complete up to that point.
    """

    level: Level = Level.SEMANTIC
    live: bool = False
    jobs: int = 2
    sample: float | None = None
    seed: int = 0
    max_duration_s: float | None = None

    @classmethod
    def of(
        cls,
        level: str,
        *,
        live: bool = False,
        jobs: int = 1,
        sample: float | None = None,
        max_duration_s: float | None = None,
    ) -> VerifyOptions:
        """Returns the options that a user gives. Raises ArgumentError or TypeError for a bad value."""
        share = None if sample is None else number("sample", sample)
        if share is not None and not 0 < share <= 1:
            raise ArgumentError("sample", f"{sample} is not above 0 and at most 1")
        seconds = None if max_duration_s is None else number("max_duration_s", max_duration_s)
        if seconds is not None and not seconds >= 0:
            raise ArgumentError("max_duration_s", f"{max_duration_s} is less than 0")
        return cls(member(Level, level, "level"), flag("live", live), jobs, share, max_duration_s=seconds)


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """Counts of what was read and found.

    `complete` is False if time ran out, if a file was unreadable, or for a sample. `live` is True if a broker or
    another process was running on the log directory.
    """

    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    damaged_bytes: int = 0
    lost_offsets: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    unreadable: int = 0
    complete: bool = True
    live: bool = False

    @property
    def damaged(self) -> bool:
        """True if there is an error or warning in what could be read."""
        return self.errors > self.unreadable or self.warnings > 0


@dataclass(slots=True)
class _Job:
    """A partition directory or a file to verify, and its log directory's surroundings."""

    path: Path
    size: int
    target: Target
    around: Surroundings | None


@dataclass(slots=True)
class _VerifiedDirectory:
    """A log directory as it was before its partitions were verified, and the extents found for their logs."""

    listing: LogDirectoryListing
    around: Surroundings
    extents: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class Verification:
    """Iterates over the findings on `targets`, in order. Each iteration verifies again.

    After an iteration, `extents` gives by directory the first and end offsets of each partition that was read whole.
    `progress` is called with (bytes done, bytes in all). `known` tells what was verified elsewhere at the same level
    (`LookOptions`). An OSError on a file becomes a finding.
    """

    def __init__(
        self,
        fs: FileSystem,
        targets: Sequence[Target],
        options: VerifyOptions,
        clock: Clock,
        progress: DoneOfAll | None = None,
        known: Known = lambda _fs, _log: None,
    ) -> None:
        self._fs, self._targets, self._options, self._clock = fs, targets, options, clock
        self._known, self._progress = known, progress
        sampled = options.sample is not None and options.sample < 1
        self._sample = options.sample if sampled else None
        self._begun = False
        self._begin()

    def _begin(self) -> None:
        limit = self._options.max_duration_s
        self._ends_at = None if limit is None else self._clock.monotonic() + limit
        self._around: dict[Path, Surroundings | None] = {}
        self._totals = Totals()
        self._done = self._total = 0
        self._summary = VerifySummary(complete=self._sample is None)
        self.extents: dict[Path, tuple[int, int]] = {}

    @property
    def summary(self) -> VerifySummary:
        """The counts of the last iteration, complete at its end. Iterates first if there was no iteration yet."""
        if not self._begun:
            for _ in self:
                pass
        return self._summary

    def __repr__(self) -> str:
        paths = ", ".join(str(target.path) for target in self._targets)
        if not self._begun:
            return f"<Verification of {paths}: nothing is read yet; iterate over it, or ask for its summary>"
        counts = (
            f"{count_text(self._summary.batches, 'batch')}, {count_text(self._summary.errors, 'error')},"
            f" {count_text(self._summary.warnings, 'warning')}"
        )
        return f"<Verification of {paths}, so far: {counts}>"

    def __iter__(self) -> Iterator[Finding]:
        self._begun = True
        self._begin()
        directories: dict[Path, _VerifiedDirectory] = {}
        jobs: list[_Job] = []
        for target in self._targets:
            jobs += self._jobs(target, directories)
        self._total = sum(job.size for job in jobs)
        for job in announced(self._fs, jobs, attrgetter("path"), small_files):
            for finding in self._job(job, directories.get(job.target.path)):
                self._count(finding)
                yield finding
        for directory in directories.values() if self._options.level >= Level.INDEX else ():
            for finding in self._own_files(directory):
                self._count(finding)
                yield finding
        totals = {field.name: getattr(self._totals, field.name) for field in fields(Totals)}
        self._summary = replace(self._summary, **totals)

    # --- jobs ---------------------------------------------------------------------------------------------

    def _jobs(self, target: Target, directories: dict[Path, _VerifiedDirectory]) -> Iterator[_Job]:
        if target.kind is TargetKind.FILE:
            require_log_file(target.path)
            status = self._fs.status(target.path)
            yield _Job(target.path, 0 if status is None else status.size, target, None)
            return
        if target.kind is TargetKind.PARTITION:
            yield _Job(target.path, self._size(target.path), target, self._surroundings(target.path))
            return
        around = read_surroundings(self._fs, target.path)  # before the logs
        listing = list_log_directory(self._fs, target.path)
        directories[target.path] = _VerifiedDirectory(listing, around)
        for partition in listing.partitions:
            if partition.state is not PartitionState.DELETED:
                yield _Job(partition.path, self._size(partition.path), target, around)

    def _surroundings(self, partition: Path) -> Surroundings | None:
        """Returns the surroundings of a partition that is a target itself; read once per log directory."""
        directory = partition_path(partition).parent
        if directory not in self._around:
            try:
                self._around[directory] = read_surroundings(self._fs, directory, ask_readers=False)
            except OSError:
                self._around[directory] = None  # the parent need not be readable
        return self._around[directory]

    def _size(self, directory: Path) -> int:
        """Returns the bytes of a partition's logs, for the progress display; its errors are reported later."""
        if self._progress is None:
            return 0
        try:
            return list_partition(self._fs, directory).size
        except (OSError, NotALogError):
            return 0

    # --- work ---------------------------------------------------------------------------------------------

    def _job(self, job: _Job, directory: _VerifiedDirectory | None) -> Iterator[Finding]:
        looks = _Looks(self._fs, self._clock, job, self._options.live, self._look_options)
        try:
            yield from looks.findings()
        except (OSError, NotALogError) as error:
            if looks.is_gone(error):
                message = "the partition was deleted or moved away before it was verified"
                yield new_finding("CHANGED_WHILE_READ", job.path.name, "", message)
                return
            self._summary = replace(self._summary, complete=False)
            yield unreadable(job.path if job.target.kind is not TargetKind.FILE else job.path.parent, error)
        finally:
            self._totals.add(looks.totals)
            self._summary = replace(self._summary, live=self._summary.live or looks.live)
        if looks.extent is not None:
            self.extents[job.path] = looks.extent[1]
            if directory is not None:
                directory.extents[looks.extent[0]] = looks.extent[1]

    def _own_files(self, directory: _VerifiedDirectory) -> Iterator[Finding]:
        """Yields the findings on the log directory's own files; under a broker, only grave ones that last."""

        def look(grave: Sequence[Finding] | None) -> list[Finding]:
            if grave is not None:
                path = directory.listing.path
                directory.around = read_surroundings(self._fs, path)
                directory.listing = list_log_directory(self._fs, path)
            findings = verify_log_directory(self._fs, directory.listing, directory.around, directory.extents, live=live)
            return list(findings)

        live = self._options.live or is_held(directory.listing.path)
        if not live:
            yield from look(None)
            return
        settled = look_until_settled(look, _key, _is_grave, self._clock)
        yield from settled.rows
        yield from _passing(settled.restless, "")

    # --- counts -------------------------------------------------------------------------------------------

    def _is_late(self) -> bool:
        """True if time is up; the summary is incomplete then."""
        if self._ends_at is None or self._clock.monotonic() < self._ends_at:
            return False
        self._summary = replace(self._summary, complete=False)
        return True

    def _advance(self, size: int, files: int) -> None:
        self._done = min(self._total, self._done + size)
        self._summary = replace(self._summary, files=self._summary.files + files)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _look_options(self, file: str | None, counted: bool) -> LookOptions:
        """Returns the options of a look; only the first look at a partition is `counted`."""
        options = self._options
        look = LookOptions(
            options.level, options.jobs, self._is_late, sample=self._sample, seed=options.seed, file=file
        )
        return replace(look, advance=self._advance, known=self._known) if counted else look

    def _count(self, finding: Finding) -> None:
        name = f"{finding.severity.value}s"
        unreadable = self._summary.unreadable + (finding.code == UNREADABLE)
        self._summary = replace(self._summary, **{name: getattr(self._summary, name) + 1}, unreadable=unreadable)


class _Looks:
    """The looks at one partition or file: one, or under a broker as many as it takes to settle."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        job: _Job,
        live: bool,
        options_of: Callable[[str | None, bool], LookOptions],
    ) -> None:
        self._fs, self._clock, self._job, self._options_of = fs, clock, job, options_of
        kind = TargetKind.FILE if job.target.kind is TargetKind.FILE else TargetKind.PARTITION
        self._file = job.path.name if kind is TargetKind.FILE else None
        self.live = live or is_held(log_directory_of(Target(job.path, kind)))
        self.totals = Totals()
        self.extent: tuple[TopicPartition, tuple[int, int]] | None = None

    def findings(self) -> Iterator[Finding]:
        """Yields the findings of one look as they come; under a broker, of as many looks as it takes to settle."""
        reported: set[tuple[str, str, str, int | None]] = set()
        if not self.live:
            try:
                for finding in self._once():
                    reported.add(_key(finding))
                    yield finding
                return
            except VanishedError:
                self.live = True  # a process whose lock is not visible is changing the files
        settled = look_until_settled(self._again, _key, _is_grave, self._clock)
        found_now = [*settled.rows, *_passing(settled.restless, links.name_of(self._job.path))]
        yield from (finding for finding in found_now if _key(finding) not in reported)

    def _once(self) -> Iterator[Finding]:
        with self._view() as view:
            look = self._look(view, counted=True)
            try:
                yield from look
            finally:
                self._note(look)

    def is_gone(self, error: OSError | NotALogError) -> bool:
        """True if the broker has meanwhile removed the partition."""
        missing = isinstance(error, FileNotFoundError | NotALogError)
        return missing and self.live and self._fs.status(self._job.path) is None

    def _again(self, grave: Sequence[Finding] | None) -> list[Finding]:
        if grave is not None and self._job.around is not None:
            around = self._job.around
            self._job.around = read_surroundings(self._fs, around.path, ask_readers=around.ask_readers)
        with self._view() as view:
            look = self._look(view, counted=grave is None, only=_segments_of(grave))
            findings = list(look)
            if grave is None:
                self._note(look)
            return findings

    def _view(self) -> PartitionView | SingleFile:
        if self._file is None:
            return PartitionView(self._fs, self._job.path, live=self.live, clock=self._clock)
        return SingleFile(self._fs, self._job.path, live=self.live)

    def _look(
        self, view: PartitionView | SingleFile, *, counted: bool, only: frozenset[int] | None = None
    ) -> PartitionLook:
        return PartitionLook(view, self._job.around, self._options_of(self._file, counted), only)

    def _note(self, look: PartitionLook) -> None:
        self.totals = look.totals
        key, segments = look.listing.topic_partition, look.listing.segments
        if key is not None and segments and look.end_offset is not None and look.listing.directory.name == str(key):
            self.extent = key, (segments[0].base_offset, look.end_offset)


def _segments_of(grave: Sequence[Finding] | None) -> frozenset[int] | None:
    """Returns the segments with grave findings if another look at those is enough, else None."""
    if not grave or not all(Trait.LOCAL in finding.kind.traits for finding in grave):
        return None
    names = [parse_file_name(finding.file) for finding in grave]
    return None if None in names else frozenset(name.offset for name in names if name is not None)


def _key(finding: Finding) -> tuple[str, str, str, int | None]:
    return finding.code, finding.partition, finding.file, finding.position


def _is_grave(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO


def _passing(findings: Sequence[Finding], partition: str) -> Iterator[Finding]:
    """Yields one finding for all that did not last."""
    if findings:
        codes = ", ".join(sorted({finding.code for finding in findings}))
        message = f"what looked like {codes} was gone a moment later: a broker is changing the files"
        yield new_finding("CHANGED_WHILE_READ", partition, "", message)
