"""Recovery on request: `recover`, `reindex` and `truncate --at-damage` (Kafka: LogManager.loadLogs).

Opening a log recovers it only if it was not closed properly. On request:

1. A partition, or each of a log directory, is recovered from its checkpointed recovery point, as by a broker that
   starts after a crash. Bytes below that point were flushed: a broker does not read them.
2. A plan runs the real recovery on an overlay and touches nothing.
3. Rebuilding indexes is a recovery that must not lose a byte: it is planned first.
4. With a keeper, a log that would lose data is recovered as a run that `undo` takes back (`undo.undoable`).

A command or function makes a `RecoveryRequest` and takes a `Recovery` of it; `recover` works on what that has found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from seglog.arguments import flag
from seglog.clock import Clock
from seglog.errors import IncompleteError, RefusedError
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, parse_topic_partition
from seglog.log.checkpoints import directory_obstacles, partition_obstacles
from seglog.log.directory import ConfigOf, LogDirectory, require_room_to_recover
from seglog.log.loader import RecoveryProgress, RecoveryReport
from seglog.log.opening import incomplete_without
from seglog.model import TopicPartition
from seglog.operations.keeping import Keeper
from seglog.operations.undo import Settled, settle_unfinished, unsettled
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Workspace,
    optional_integer,
    optional_path,
    settings_of,
    warn_of_runs,
)
from seglog.scan.listing import (
    Target,
    TargetKind,
    is_07,
    list_partition,
    log_directory_of,
    partition_directories,
    refuse_file,
    resolve_path,
)
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.units import count_text


class RecoveryKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.recover`: fields of `RecoveryRequest`."""

    recovery_point: int | None
    keep: bool
    quarantine: Location | None


class RecoveryArguments(RecoveryKeywords, CommonArguments, total=False):
    """Those of `seglog.recover`, and those of every function."""


@dataclass(frozen=True, slots=True)
class RecoveryRequest:
    """What to recover and how, as the user said it.

    `recovery_point` None: the checkpoint's. `lossless` as for `RecoveryOptions`. Unless `keep` is false, lost data goes
    to the `quarantine` (None: the default place) by a run of `command`.
    """

    path: Path
    recovery_point: int | None = None
    keep: bool = True
    quarantine: Location | None = None
    lossless: bool = False
    command: str = "recover"


@dataclass(frozen=True, slots=True)
class Recovery:
    """A request whose path was found and whose configuration was read. `run` carries it out, or plans it."""

    work: Workspace
    request: RecoveryRequest
    dry_run: bool
    target: Target
    config_of: ConfigOf

    @classmethod
    def of(cls, work: Workspace, request: RecoveryRequest, *, dry_run: bool = False) -> Recovery:
        """Resolves the path; for a dry run, warns of unfinished runs. Raises NotALogError, ConfigError."""
        if dry_run:
            warn_of_runs(work, [request.path])
        target = resolve_path(work.fs, request.path)
        return cls(work, request, dry_run, target, settings_of(work, log_directory_of(target)))

    @property
    def partitions(self) -> tuple[Path, ...]:
        """The partition directories."""
        return partition_directories(self.work.fs, self.target)

    def obstacles(self) -> list[str]:
        """Returns what else stops a broker at the log directory, which no recovery mends."""
        return list(directory_obstacles(self.work.fs, log_directory_of(self.target)))

    def run(self, progress: RecoveryProgress | None = None, settled: Settled = unsettled) -> Iterator[RecoveryReport]:
        """Recovers or plans each partition and yields its report (`recover`). Raises its errors, and ArgumentError for
        a bad value.
        """
        work, request = self.work, self.request
        keeper = None
        if flag("keep", request.keep):
            place = optional_path("quarantine", request.quarantine)
            keeper = Keeper(work.fs, work.clock, self.config_of, request.command, place)
        point = optional_integer("recovery_point", request.recovery_point, 0)
        options = RecoveryOptions(point, self.dry_run, request.lossless, progress, keeper, settled)
        return recover(work.fs, work.clock, self.target, self.config_of, options)


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """How to recover. `recovery_point` None: the checkpoint's.

    `dry_run` only reports what would happen. `lossless` reads from the first segment on, and refuses if a byte would be
    lost; leftovers (`.deleted`, `.tmp`, `.swap`) are settled as by any opening. `keeper` recovers a partition that
    would lose data; without it the data is lost. `settled` is called with an interrupted run in the log directory,
    which is finished or undone first.
    """

    recovery_point: int | None = None
    dry_run: bool = False
    lossless: bool = False
    progress: RecoveryProgress | None = None
    keeper: Keeper | None = None
    settled: Settled = unsettled


def recover(
    fs: FileSystem, clock: Clock, target: Target, config_of: ConfigOf, options: RecoveryOptions
) -> Iterator[RecoveryReport]:
    """Recovers the partitions of `target` and closes them cleanly; yields a report for each.

    Raises LockedError if a broker holds the directory; RefusedError with `lossless` if bytes would be lost, and if the
    disk lacks room for the recovery; IncompleteError if this user may not open a file; NotALogError for a file, because
    recovery takes whole partitions. Of a log directory, the partitions without an IncompleteError are recovered first,
    and then it is raised for all others.
    """
    refuse_file(target)
    whole = target.kind is TargetKind.LOG_DIRECTORY
    path = links.resolve(target.path) if whole else partition_path(target.directory)
    if not options.dry_run:
        settle_unfinished(fs, path if whole else path.parent, options.settled)
    owner = LogDirectory.open(
        path if whole else path.parent,
        fs=fs,
        clock=clock,
        config_of=config_of,
        writable=not options.dry_run,
    )
    unopened: list[IncompleteError] = []
    with owner:
        for topic_partition in _partitions(owner, path, whole):
            start = options.recovery_point
            if start is None:
                start = 0 if options.lossless else owner.recovery_points.get(topic_partition, 0)
            try:
                report = _recover_one(owner, topic_partition, start, options)
            except IncompleteError as error:
                unopened.append(error)
                continue
            yield report
    if unopened:
        raise IncompleteError("; ".join(map(str, unopened)))


def _partitions(owner: LogDirectory, path: Path, whole: bool) -> list[TopicPartition]:
    if whole:
        return [each for each in owner.topic_partitions if not _is_07(owner, each)]
    found = parse_topic_partition(path.name)
    if found is None or found.topic == CLUSTER_METADATA_TOPIC:
        raise RefusedError(f"{path}: only a directory named topic-partition can be recovered")
    return [found]


def _is_07(owner: LogDirectory, topic_partition: TopicPartition) -> bool:
    try:
        return is_07(owner.fs, owner.path / str(topic_partition))
    except PermissionError:
        return False  # its recovery reports it


def _recover_one(
    owner: LogDirectory, topic_partition: TopicPartition, start: int, options: RecoveryOptions
) -> RecoveryReport:
    """Recovers a partition, or plans it. Raises IncompleteError for a file that this user may not open."""
    partition = owner.path / str(topic_partition)
    unclean = "" if owner.clean_shutdown else f", and {owner.path} is not marked as closed properly"
    with incomplete_without(partition, f"; a broker could not open the log either{unclean}"):
        obstacles, gone = list(partition_obstacles(owner.fs, partition)), _gone(owner, topic_partition)
        work = _plan if options.dry_run else _carry_out
        report = work(owner, topic_partition, start, options)
    report.obstacles, report.gone = obstacles, gone
    return report


def _gone(owner: LogDirectory, topic_partition: TopicPartition) -> tuple[int, int] | None:
    """Returns the offsets that a partition without any `.log` file once had, as checkpoints and file names show."""
    directory = owner.path / str(topic_partition)
    if owner.fs.status(directory) is None or (listing := list_partition(owner.fs, directory)).segments:
        return None
    checkpoints = (owner.recovery_points, owner.high_watermarks)
    witnesses = [offsets.get(topic_partition, 0) for offsets in checkpoints]
    witnesses += [snapshot.offset for snapshot in listing.snapshots]
    start = owner.log_start_offsets.get(topic_partition, 0)
    return (start, max(witnesses) - 1) if max(witnesses) > start else None


def _plan(owner: LogDirectory, topic_partition: TopicPartition, start: int, options: RecoveryOptions) -> RecoveryReport:
    plan = owner.plan_recovery(topic_partition, options.progress, recover_from=start)
    if options.lossless:
        _refuse_losses(plan)
    return plan


def _refuse_losses(report: RecoveryReport) -> None:
    if report.truncated_bytes:
        raise RefusedError(
            f"{report.directory}: {count_text(report.truncated_bytes, 'byte')} cannot be indexed because of damage;"
            " see `seglog verify`, and `seglog repair`"
        )


def _carry_out(
    owner: LogDirectory, topic_partition: TopicPartition, start: int, options: RecoveryOptions
) -> RecoveryReport:
    partition = owner.path / str(topic_partition)
    with owner.try_log(partition, options.progress, recover_from=start) as tried:
        report = tried.recovery
        if options.lossless:
            _refuse_losses(report)
        if not report.truncated_bytes:
            work = "rebuilding its indexes" if options.lossless else "recovering it"
            require_room_to_recover(owner, report, work=work)
            return owner.keep(tried, recover_from=start).recovery
    if options.keeper is None:
        return owner.log_in(partition, recover_from=start).recovery
    report = options.keeper.recover(partition, start, not owner.clean_shutdown)
    owner.log_in(partition, recover_from=report.log_end_offset)  # to be closed with the others
    return report
