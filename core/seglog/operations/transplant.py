"""Transplants partitions of a dead cluster into the log directory of a stopped broker (`seglog transplant`).

1. Choose the sources' partitions, and note those left out (`transplant.planner`).
2. Plan each (`transplant.planner`); collect all obstacles, not only the first.
3. Carry the plan out as one run (`transplant.apply`), all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.precedence import Settings
from seglog.configuration.settings import DirectorySettings
from seglog.consumer_groups.coordinator_replay import OFFSETS_TOPIC
from seglog.errors import LockedError, NotALogError, Obstacles, SeglogError
from seglog.progress import BytesRead
from seglog.rescue.rebuild.completeness import missing_of
from seglog.rescue.transplant.counts import SourceCounts
from seglog.rescue.transplant.plan import PartitionPlan, TransplantPlan
from seglog.rescue.transplant.planner import Circumstances, TransplantPlanner, choose
from seglog.rescue.transplant.target import TargetDirectory
from seglog.scan.listing import Target, TargetKind
from seglog.scan.view import require_no_run
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import holder_of
from seglog.verification.transactions import Coordinated, read_coordinators

_NO_OFFSETS_TOPIC = (
    "the new cluster has no __consumer_offsets yet, so groups would not resume: make it with the same number of"
    " partitions (kafka-consumer-groups --describe --group nobody), and transplant again"
)


@dataclass(frozen=True, slots=True)
class TransplantRequest:
    """The sources and their target. `into` is a resolved log directory; `topics` maps old names to new ones, and if it
    is not empty, no other topic is taken. `transactions_of` are further log directories whose `__transaction_state`
    tells how open transactions ended. `every_replica` is the user's word that all replicas of the partitions get the
    same data before any starts.
    """

    sources: Sequence[Target]
    into: Path
    topics: Mapping[str, str] = field(default_factory=dict)
    transactions_of: Sequence[Path] = ()
    every_replica: bool = False
    quarantine: Path | None = None


def plan_transplant(
    fs: FileSystem,
    clock: Clock,
    request: TransplantRequest,
    config_of: Callable[[str], LogConfig],
    progress: BytesRead = lambda _size: None,
) -> TransplantPlan:
    """Reads sources and target; changes nothing. Raises RefusedError or LockedError if a transplant is impossible; if
    single partitions stand against it, the error of the one, or Obstacles."""
    target = TargetDirectory(fs, request.into)
    wanted, left_out = choose(fs, request.sources, request.topics, request.into)
    log_directories = list(dict.fromkeys(one.directory.parent for one in wanted))
    for path in log_directories:
        holder = holder_of(path)
        if holder is not None:
            raise LockedError(path, holder.pid, holder.describe())
    log_directories += request.transactions_of
    for path in log_directories:
        require_no_run(fs, path)
    if not target.has_topic(OFFSETS_TOPIC):
        lost = [one for one in wanted if one.partition.topic == OFFSETS_TOPIC]
        wanted = [one for one in wanted if one not in lost]
        left_out += [(str(one.directory), _NO_OFFSETS_TOPIC) for one in lost]
    if not wanted:
        reason = f"; {left_out[0][0]}: {left_out[0][1]}" if left_out else ""
        raise NotALogError(request.sources[0].path, f"it holds no partition to transplant{reason}")
    coordinators = _read_coordinators(fs, log_directories)
    given = [links.resolve(one.path) for one in request.sources if one.kind is TargetKind.LOG_DIRECTORY]
    counts = SourceCounts(fs, [*log_directories, *given])
    common = Circumstances(target, coordinators, counts, clock.now_ms(), request.every_replica)
    planner = TransplantPlanner(fs, common, progress)
    plans: list[PartitionPlan] = []
    errors: list[SeglogError] = [*target.absences(one.target for one in wanted)]
    for one in wanted:
        if target.has_place(one.target):
            try:
                plans.append(planner.plan(one, config_of(one.target.topic)))
            except SeglogError as error:
                errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else Obstacles(errors)
    notes = (*target.notes(), *_missing(fs, request.sources), *(note for plan in plans for note in plan.notes))
    releases = tuple(_releases(fs, [*log_directories, request.into]))
    return TransplantPlan(request.into, tuple(plans), tuple(left_out), notes, request.quarantine, releases)


def _releases(fs: FileSystem, log_directories: Sequence[Path]) -> Iterator[str]:
    """Yields who wrote each of the log directories, unless nothing shows it."""
    for path in dict.fromkeys(log_directories):
        writer = DirectorySettings(fs, path, Settings()).writer
        if writer is not None and writer.is_unusual:
            yield f"{path}: {writer.sentence}"


def _missing(fs: FileSystem, sources: Sequence[Target]) -> Iterator[str]:
    """Yields a note for each broker, or part of one, that the sources' own metadata names and that is not given.

    Only whole log directories are meant to be everything that a broker had.
    """
    paths = [links.resolve(one.path) for one in sources if one.kind is TargetKind.LOG_DIRECTORY]
    for known, one in missing_of(fs, paths):
        yield f"{one.described(known)}. Acknowledged records that only they have are not transplanted"


def _read_coordinators(fs: FileSystem, directories: Sequence[Path]) -> dict[int, Coordinated] | None:
    """Reads the coordinators' last word on each producer, the newest of several replicas; None without their logs."""
    found: dict[int, Coordinated] | None = None
    for directory in directories:
        with suppress(NotALogError):
            read = read_coordinators(fs, directory)
            if read is not None:
                known = found or {}
                newer = {key: one for key, one in read.items() if key not in known or _rank(known[key]) < _rank(one)}
                found = {**known, **newer}
    return found


def _rank(one: Coordinated) -> tuple[int, int, int]:
    return one.producer_epoch, one.changed_ms, one.state
