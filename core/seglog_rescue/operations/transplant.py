"""Transplants partitions of a dead cluster into the log directory of a stopped broker (`seglog transplant`).

1. Choose the sources' partitions, and note those left out (`transplant.planner`).
2. Plan each (`transplant.planner`); collect all obstacles, not only the first.
3. Carry the plan out as one run (`transplant.apply`), all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from seglog.arguments import flag, mapping, several
from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.configuration.precedence import Settings
from seglog.configuration.settings import DirectorySettings
from seglog.errors import NotALogError, Obstacles, SeglogError, raise_errors
from seglog.operations.undo import Settled, settle, unsettled
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    Workspace,
    local_path,
    optional_path,
    path_of,
    settings_of,
)
from seglog.progress import BytesRead
from seglog.repairs.undo.apply import undo_run
from seglog.scan.listing import Target, TargetKind, list_log_directory, resolve_paths
from seglog.scan.patterns import snapshot_around
from seglog.scan.view import require_no_run
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import DirectoryLock, require_unlocked
from seglog.verification.transaction_coordinators import Coordinated, read_coordinators
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC, SHARE_TOPIC
from seglog_rescue.operations.groups import read_groups
from seglog_rescue.operations.groups_left import groups_left, streams_states_left
from seglog_rescue.rebuild.completeness import missing_of
from seglog_rescue.transplant.apply import TransplantOutcome
from seglog_rescue.transplant.counts import SourceCounts
from seglog_rescue.transplant.plan import PartitionPlan, TransplantPlan
from seglog_rescue.transplant.planner import Circumstances, PartitionToTake, TransplantPlanner, choose
from seglog_rescue.transplant.target import TargetDirectory, require_brokers_own

_NO_OFFSETS_TOPIC = (
    "the new cluster has no __consumer_offsets yet, so groups would not resume: make it with the same number of"
    " partitions (kafka-consumer-groups --describe --group nobody), and transplant again"
)


class TransplantKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.transplant` but for `into`: fields of `TransplantRequest`."""

    topics: Sequence[str] | Mapping[str, str] | None
    transactions_of: Sequence[Location]
    every_replica: bool
    quarantine: Location | None
    beside: Sequence[Location]


class TransplantArguments(TransplantKeywords, CommonArguments, total=False):
    """Those of `seglog.transplant`, and those of every function."""


def seeing_snapshots(fs: FileSystem, sources: Sequence[Path]) -> tuple[FileSystem, list[Path]]:
    """Returns a file system that shows the snapshots of backups in which sources lie, and the sources there.

    Raises RefusedError if a repository has no such snapshot, CorruptTierError, OSError.
    """
    paths: list[Path] = []
    for path in sources:
        fs, there = snapshot_around(fs, path)
        paths.append(there)
    return fs, paths


@dataclass(frozen=True, slots=True)
class TransplantRequest:
    """The sources and their target. `into` is a resolved log directory; `topics` maps old names to new ones, and if it
    is not empty, no other topic is taken. `transactions_of` are further log directories whose `__transaction_state`
    tells how open transactions ended. `every_replica` is the user's word that all replicas of the partitions get the
    same data before any starts. `beside` are the broker's other log directories that were named: they take the
    partitions that have their place there, each by a request of its own.
    """

    sources: Sequence[Target]
    into: Path
    topics: Mapping[str, str] = field(default_factory=dict)
    transactions_of: Sequence[Path] = ()
    every_replica: bool = False
    quarantine: Path | None = None
    beside: tuple[Path, ...] = ()

    def each(self) -> list[TransplantRequest]:
        """Returns a request for every directory that takes partitions."""
        places = (self.into, *self.beside)
        return [replace(self, into=place, beside=tuple(p for p in places if p != place)) for place in places]

    def settings(self, work: Workspace) -> DirectorySettings:
        """Returns the configuration of the target's topics. The sources are named too, but are not directories of its
        broker."""
        return settings_of(replace(work, named=(self.into, *self.beside)), self.into)

    @classmethod
    def seeing_snapshots(
        cls, fs: FileSystem, sources: Sequence[Path], into: Location, keywords: TransplantKeywords
    ) -> tuple[FileSystem, TransplantRequest]:
        """Returns what `of` does, and a file system that shows the snapshots of backups in which sources, and other
        directories with transactions, lie.

        Raises what `of` raises; RefusedError if a repository has no such snapshot, CorruptTierError, OSError.
        """
        others = several("transactions_of", keywords.get("transactions_of", ()), "a list of log directories")
        fs, seen = seeing_snapshots(fs, sources)
        fs, others = seeing_snapshots(fs, [path_of("transactions_of", path) for path in others])
        return fs, cls.of(fs, seen, into, {**keywords, "transactions_of": others})

    @classmethod
    def of(
        cls, fs: FileSystem, sources: Sequence[Path], into: Location, keywords: TransplantKeywords
    ) -> TransplantRequest:
        """Finds what the user named. Raises TypeError for a bad value, NotALogError, and ConfigError for a URL."""
        topics = keywords.get("topics") or ()
        if not isinstance(topics, Mapping):
            topics = {topic: topic for topic in several("topics", topics, "names")}
        place = links.resolve(local_path("into", into))
        beside = several("beside", keywords.get("beside", ()), "a list of log directories")
        further = dict.fromkeys(links.resolve(local_path("beside", path)) for path in beside)
        others = several("transactions_of", keywords.get("transactions_of", ()), "a list of log directories")
        return cls(
            resolve_paths(fs, sources),
            place,
            dict(mapping("topics", topics, "names, or a mapping from old to new ones")),
            [links.resolve(path_of("transactions_of", path)) for path in others],
            flag("every_replica", keywords.get("every_replica", False)),
            optional_path("quarantine", keywords.get("quarantine")),
            tuple(path for path in further if path != place),
        )


def plan_each(request: TransplantRequest, plan: Callable[[TransplantRequest], TransplantPlan]) -> list[TransplantPlan]:
    """Returns the plans for all directories that take partitions, those with none left out; what they all say stands in
    the first. Raises what `plan` raises, each obstacle once, so that nothing is done unless everything can be."""
    plans: list[TransplantPlan] = []
    errors: dict[str, SeglogError] = {}
    for part in request.each():
        try:
            made = plan(part)
        except Obstacles as obstacles:
            errors |= {str(error): error for error in obstacles.errors}
            continue
        except SeglogError as error:
            errors[str(error)] = error
            continue
        told = {note for earlier in plans for note in (*earlier.notes, *earlier.releases)}
        notes = tuple(note for note in made.notes if note not in told)
        releases = tuple(sentence for sentence in made.releases if sentence not in told)
        plans.append(replace(made, left_out=() if plans else made.left_out, notes=notes, releases=releases))
    raise_errors(errors.values())
    return [plan for plan in plans if plan.partitions] or plans[:1]


def carry_out_each(
    fs: FileSystem, plans: Sequence[TransplantPlan], carry_out: Callable[[TransplantPlan], TransplantOutcome]
) -> list[TransplantOutcome]:
    """Carries the plans out, each as a run of its own; a failure takes back those before it. The caller holds the locks
    of all directories."""
    outcomes: list[TransplantOutcome] = []
    try:
        for plan in plans:
            outcomes.append(carry_out(plan))
            if outcomes[-1].failure is not None:
                break
    except BaseException:
        _take_back(fs, outcomes)
        raise
    if outcomes[-1].failure is not None:
        _take_back(fs, outcomes[:-1])
        return outcomes[-1:]
    return outcomes


def _take_back(fs: FileSystem, outcomes: Sequence[TransplantOutcome]) -> None:
    for outcome in reversed(outcomes):
        if outcome.run is not None:
            undo_run(fs, outcome.run)


@contextmanager
def locked_targets(fs: FileSystem, request: TransplantRequest, settled: Settled = unsettled) -> Iterator[None]:
    """Holds the locks of all targets, in which a transplant is planned and carried out, and settles unfinished runs
    there.

    Raises LockedError, and RefusedError for what is not a directory of a stopped broker. Does nothing to a directory
    that is missing: the plan says so.
    """
    places = [path for path in sorted((request.into, *request.beside)) if fs.status(path) is not None]
    for path in places:
        require_brokers_own(fs, path)
    with ExitStack() as locks:
        for path in places:
            locks.enter_context(DirectoryLock(path))
        for path in places:
            settle(fs, path, settled)
        yield


def plan_transplant(
    fs: FileSystem,
    clock: Clock,
    request: TransplantRequest,
    config_of: Callable[[str], LogConfig],
    progress: BytesRead = lambda _size: None,
) -> TransplantPlan:
    """Reads sources and target; changes nothing. Raises RefusedError or LockedError if a transplant is impossible; if
    single partitions stand against it, the error of the one, or Obstacles. The plan is without the partitions that
    have their place `beside`."""
    chosen, left_out = choose(fs, clock, request.sources, request.topics, (request.into, *request.beside))
    log_directories = list(dict.fromkeys(source.directory.parent for source in chosen))
    target = TargetDirectory(fs, request.into, request.beside, log_directories)
    for path in log_directories:
        require_unlocked(path)
    log_directories += request.transactions_of
    for path in log_directories:
        require_no_run(fs, path)
    if not target.has_topic(OFFSETS_TOPIC):
        lost = [source for source in chosen if source.partition.topic == OFFSETS_TOPIC]
        chosen = [source for source in chosen if source not in lost]
        left_out += [(str(source.directory), _NO_OFFSETS_TOPIC) for source in lost]
    if not chosen:
        reason = f"; {left_out[0][0]}: {left_out[0][1]}" if left_out else ""
        raise NotALogError(request.sources[0].path, f"it holds no partition to transplant{reason}")
    coordinators = _read_coordinators(fs, log_directories)
    counts = SourceCounts(fs, [*log_directories, *_whole_directories(request.sources)])
    common = Circumstances(target, coordinators, counts, clock.now_ms(), request.every_replica)
    planner = TransplantPlanner(fs, common, progress)
    plans: list[PartitionPlan] = []
    errors: list[SeglogError] = [*target.absences(source.target for source in chosen)]
    for source in chosen:
        if target.has_place(source.target):
            try:
                plans.append(planner.plan(source, config_of(source.target.topic)))
            except SeglogError as error:
                errors.append(error)
    raise_errors(errors)
    notes = (
        *target.notes(),
        *_missing(fs, request.sources),
        *_groups_left(fs, request.sources, chosen, target),
        *(note for plan in plans for note in plan.notes),
    )
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
    for metadata, broker in missing_of(fs, _whole_directories(sources)):
        yield f"{broker.described(metadata)}. Acknowledged records that only they have are not transplanted"


def _groups_left(
    fs: FileSystem, sources: Sequence[Target], chosen: Sequence[PartitionToTake], target: TargetDirectory
) -> Iterator[str]:
    """Yields a note for each group that had read chosen partitions and of which something stays behind: a share group's
    progress, settings, the state of a Streams application."""
    directories = [Target(path, TargetKind.LOG_DIRECTORY) for path in _whole_directories(sources)]
    topics = {
        partition.topic_partition.topic
        for directory in directories
        for partition in list_log_directory(fs, directory.path).live
    }
    if topics & {OFFSETS_TOPIC, SHARE_TOPIC}:
        targets = {source.partition: source.target.topic for source in chosen}
        groups = read_groups(fs, directories).groups
        known = {} if target.metadata is None else target.metadata.groups
        present = {name: {key: stored.value for key, stored in values.items()} for name, values in known.items()}
        yield from groups_left(groups, targets.get, lambda name: present.get(name, {}))
        yield from streams_states_left(groups, targets.get, topics)


def _whole_directories(sources: Sequence[Target]) -> list[Path]:
    return [links.resolve(source.path) for source in sources if source.kind is TargetKind.LOG_DIRECTORY]


def _read_coordinators(fs: FileSystem, directories: Sequence[Path]) -> dict[int, Coordinated] | None:
    """Reads the coordinators' last word on each producer, the newest of several replicas; None without their logs."""
    newest: dict[int, Coordinated] | None = None
    for directory in directories:
        with suppress(NotALogError):
            replica = read_coordinators(fs, directory)
            if replica is not None:
                newest = newest or {}
                for producer_id, state in replica.items():
                    newest[producer_id] = max(newest.get(producer_id, state), state, key=_rank)
    return newest


def _rank(state: Coordinated) -> tuple[int, int, int]:
    return state.producer_epoch, state.changed_ms, state.state
