"""Cleans logs on request: named partitions whatever their dirty ratio, and what is eligible in log directories.

1. Before anything is opened for writing, every checkpoint is read (`checkpoints.check_checkpoints`), and the policy of
   every named partition must be known to include compact. Cleaning by mistake deletes records for good.
2. A named partition is first opened on trial, with every change in memory, and its round is planned there. It is
   refused if its recovery would cut off damage, or if the output has no room. If there is nothing to clean, it is left
   alone.
3. The plan is carried out on the same log if opening it changed nothing; otherwise the log is opened again for writing.
   In a log directory, rounds go on, the dirtiest log first, until no log is eligible.
4. The end of each round becomes the partition's checkpoint.

A dry run does all of this over an overlay and counts the output of each plan instead of carrying it out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from seglog.arguments import flag, instance
from seglog.cleaner.cleaner import (
    Begin,
    ForeseenRound,
    apply_plan,
    clean_log,
    foresee_round,
    has_ample_room,
    ignore_step,
)
from seglog.cleaner.dirtiness import LogToClean, policy_problem
from seglog.cleaner.hazards import first_too_large
from seglog.cleaner.manager import CleanerManager
from seglog.cleaner.output import CleaningResult
from seglog.cleaner.ranking import Ranking
from seglog.cleaner.round import CleanerOptions, RoundPlan, Strategy, plan_round
from seglog.clock import Clock
from seglog.configuration.keys import COMPACT
from seglog.configuration.precedence import Contradiction
from seglog.configuration.settings import DirectorySettings
from seglog.configuration.writers import release_for
from seglog.errors import IncompleteError, NotALogError, RefusedError, SeglogError, UnsupportedError
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, topic_partition_of
from seglog.kafka_version import SPOKEN_FOR, KafkaVersion
from seglog.log.checkpoints import check_checkpoints
from seglog.log.directory import LogDirectory, require_room_to_recover
from seglog.log.loader import refuse_losses
from seglog.log.log import Log
from seglog.log.opening import open_undamaged
from seglog.log.read_loader import ViewingFileSystem
from seglog.operations.workspace import (
    MOST_ROUNDS,
    CleaningHistory,
    CommonArguments,
    Location,
    NamedLogs,
    Sources,
    Workspace,
    by_log_directory,
    check_policy,
    optional_path,
    settings_of,
)
from seglog.scan.listing import PartitionDirectory, list_log_directory, list_partition, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.frozen import VanishedError
from seglog.storage.overlay import OverlayFileSystem
from seglog.storage.room import require_room_to_clean
from seglog.storage.state import state_directory


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A finished round, or in a dry run a planned one. `active_bytes` is the size of the untouched active segment.

    `contradictions` are the policies that overrode the cluster's, because the user insisted. `broker_fails` says in a
    dry run where a broker's cleaner would fail on data that is whole.
    """

    log_directory: Path
    result: CleaningResult
    active_bytes: int = 0
    contradictions: tuple[Contradiction, ...] = ()
    broker_fails: str = ""

    def __repr__(self) -> str:
        did, result = "planned" if self.result.dry_run else "done", self.result
        before = sum(size for _, size in result.segments_before)
        range_ = f"offsets {result.first_dirty_offset} to {result.end_offset}"
        return f"<Cleaned {result.topic_partition}: {did}, {range_}, {before} bytes become {result.bytes_written}>"

    @property
    def changes(self) -> bool:
        """True if the round changes segments or the checkpoint."""
        after = tuple((segment.base_offset, segment.size) for segment in self.result.segments_after)
        return self.result.end_offset > self.result.first_dirty_offset or after != self.result.segments_before


@dataclass(frozen=True, slots=True)
class Skipped:
    """A partition of a log directory that was left alone, and why."""

    directory: Path
    reason: str


@dataclass(frozen=True, slots=True)
class CleaningFailure:
    """A partition that could not be cleaned. It is unchanged."""

    directory: Path
    error: SeglogError


Outcome = Cleaned | Skipped | CleaningFailure
NO_FILE = "a partition or a log directory can be cleaned, not a file"
POLICIES = ("compact", "compact,delete", "delete,compact")


class CleaningKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.clean` and of Spark's: the fields of `CleaningRequest`."""

    policy: str | None
    strategy: str
    roll: bool
    expire: bool
    override_policy: bool
    metadata_directory: Location | None
    kafka_version: str


class CleaningArguments(CleaningKeywords, CommonArguments, total=False):
    """Those of `seglog.clean`, and those of every function."""


@dataclass(frozen=True, slots=True)
class CleaningRequest:
    """What to clean and how, as the user said it.

    `dedupe_buffer_size` and `load_factor` are log.cleaner.dedupe.buffer.size and log.cleaner.io.buffer.load.factor.
    """

    paths: tuple[Path, ...]
    policy: str | None = None
    strategy: str = "offset"
    roll: bool = False
    expire: bool = False
    override_policy: bool = False
    metadata_directory: Location | None = None
    kafka_version: str = str(SPOKEN_FOR)
    dedupe_buffer_size: int | None = None
    load_factor: str | None = None

    def options(self, work: Workspace, topics: DirectorySettings) -> CleanerOptions:
        """Returns the options of each round; `topics` has the configuration. Raises ConfigError for a bad value."""
        config = topics.resolve(None).cleaner
        return CleanerOptions(
            dedupe_buffer_bytes=config.dedupe_buffer_size,
            load_factor=config.io_buffer_load_factor,
            strategy=Strategy.parse(instance("strategy", self.strategy, str, "text")),
            roll=flag("roll", self.roll),
            expire=flag("expire", self.expire),
            jobs=work.threads,
            kafka=KafkaVersion.parse(instance("kafka_version", self.kafka_version, str, "text")),
        )

    def directories(self, work: Workspace) -> list[DirectoryCleaning]:
        """Returns the work in each log directory, checked; opens no log.

        Raises RefusedError for a named partition that is not known to be compacted, CorruptCheckpointError,
        NotALogError, and ConfigError for a bad value or configuration.
        """
        targets = resolve_paths(work.fs, self.paths)
        check_policy(self.policy, POLICIES, targets)
        chosen = {
            "cleanup.policy": self.policy,
            "log.cleaner.dedupe.buffer.size": self.dedupe_buffer_size,
            "log.cleaner.io.buffer.load.factor": self.load_factor,
        }
        metadata = optional_path("metadata_directory", self.metadata_directory)
        sources = Sources(chosen, flag("override_policy", self.override_policy), metadata)
        places = by_log_directory(targets, NO_FILE)
        topics = {place.log_directory: settings_of(work, place.log_directory, sources) for place in places}
        options = self.options(work, next(iter(topics.values())))  # a broker's cleaner has one buffer for all its logs
        return directories_of(work.fs, places, topics.__getitem__, options)


@dataclass(frozen=True, slots=True)
class DirectoryCleaning:
    """What to clean in one log directory, and how: the named partitions, and with `whole` also the eligible others."""

    log_directory: Path
    named: tuple[Path, ...]
    whole: bool
    topics: DirectorySettings
    options: CleanerOptions

    def cleaned(self, log: Log, result: CleaningResult) -> Cleaned:
        """Returns the outcome of a round over `log`, which is in its state after the round."""
        against = self.topics.resolve(log.topic_partition.topic).against(COMPACT)
        return Cleaned(self.log_directory, result, 0 if self.options.roll else log.segments.active.size, against)


@dataclass(frozen=True, slots=True)
class NamedRound:
    """The planned round of a named partition, over `log`, which is open for writing.

    `foreseen` is set if room is scarce and the output had to be counted.
    """

    log: Log
    plan: RoundPlan
    foreseen: ForeseenRound | None


# Raises RefusedError if the output of a plan for a log has no room.
SpaceCheck = Callable[[Log, RoundPlan], ForeseenRound | None]


def clean(
    work: Workspace, request: CleaningRequest, *, dry_run: bool = False, begin: Begin = ignore_step
) -> Generator[Outcome, None, None]:
    """Cleans what the request names, each partition once, and keeps the rounds' statistics for `seglog stats`.

    Calls `begin` at the start of each step of each round. Raises what `CleaningRequest.directories` raises, before
    anything is changed. Raises LockedError at a locked log directory; those before it have been cleaned.
    """
    directories = request.directories(work)
    outcomes = clean_directories(work.fs, work.clock, directories, dry_run=dry_run, begin=begin)
    for outcome in with_history(work, outcomes):
        if dry_run and isinstance(outcome, Cleaned):
            part = next(one for one in directories if one.log_directory == outcome.log_directory)
            outcome = replace(outcome, broker_fails=_broker_fails(work.fs, part, outcome.result))
        yield outcome


def _broker_fails(fs: FileSystem, part: DirectoryCleaning, result: CleaningResult) -> str:
    """Returns where a broker's cleaner would fail on a record that is too large for it, "" if it would not."""
    key, kafka = result.topic_partition, max(part.options.kafka, release_for(part.topics.writer))
    bases = {base for base, _ in result.segments_before}
    hazard = first_too_large(fs, part.log_directory / str(key), bases, kafka, part.topics(key.topic))
    fails = f"the cleaner of a Kafka {kafka} broker fails on it, and then leaves it alone"
    return f"{fails}: {hazard.place}" if hazard else ""


def clean_directories(
    fs: FileSystem,
    clock: Clock,
    directories: Iterable[DirectoryCleaning],
    *,
    dry_run: bool = False,
    begin: Begin = ignore_step,
) -> Iterator[Outcome]:
    """Cleans one log directory after the other: the named partitions, then the eligible ones.

    A dry run is the same function over an overlay: what a round leaves decides what the next one finds.
    """
    for work in directories:
        view = ViewingFileSystem(fs, work.log_directory) if dry_run else None
        # over a view each log is as it was when it was opened, whatever a broker does meanwhile
        files = fs if view is None else OverlayFileSystem(view)
        with open_for_cleaning(files, work, clock, take_lock=not dry_run) as directory:
            run = _DirectoryRun(directory, work, clock, view, begin, fs)
            for path in work.named:
                yield run.clean_named(path)
            if work.whole:
                yield from run.clean_eligible()


def directories_of(
    fs: FileSystem,
    places: Sequence[NamedLogs],
    topics_of: Callable[[Path], DirectorySettings],
    options: CleanerOptions,
) -> list[DirectoryCleaning]:
    """Returns the work in each of the places, checked. Opens no log.

    Raises RefusedError for a named partition that is not known to be compacted, CorruptCheckpointError, NotALogError.
    """
    directories = [
        DirectoryCleaning(place.log_directory, place.partitions, place.whole, topics_of(place.log_directory), options)
        for place in places
    ]
    for work in directories:
        check_checkpoints(fs, work.log_directory)
        for path in work.named:
            require_cleanable(fs, path, work.topics)
    return directories


def with_history(work: Workspace, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Yields the outcomes; saves the newest rounds' statistics for `seglog stats`, or warns that it cannot."""
    newest: dict[Path, deque[CleaningResult]] = {}
    try:
        for outcome in outcomes:
            if isinstance(outcome, Cleaned) and not outcome.result.dry_run and outcome.result.segments_before:
                newest.setdefault(outcome.log_directory, deque(maxlen=MOST_ROUNDS)).append(outcome.result)
            yield outcome
    finally:
        for log_directory, results in newest.items():
            history = CleaningHistory(work.fs, state_directory(work.environment), log_directory)
            try:
                history.add(results, work.clock.now_ms())
            except OSError as error:
                work.warn(f"{history.path}: the statistics could not be saved: {error.strerror}")


def open_for_cleaning(fs: FileSystem, work: DirectoryCleaning, clock: Clock, *, take_lock: bool = True) -> LogDirectory:
    """Opens a log directory for writing with each topic's configuration, and takes its lock."""
    place, config_of = work.log_directory, work.topics
    return LogDirectory.open(place, fs=fs, clock=clock, config_of=config_of, writable=True, take_lock=take_lock)


def require_cleanable(fs: FileSystem, path: Path, topics: DirectorySettings) -> None:
    """Raises RefusedError unless the partition is known to be compacted, UnsupportedError for a log of Kafka 0.7."""
    topic = topic_partition_of(path).topic
    if topic == CLUSTER_METADATA_TOPIC:
        raise RefusedError(f"{path}: the controller's own log is not written by seglog; nothing was changed")
    reason = policy_problem(topics.resolve(topic), topic)
    if reason:
        raise RefusedError(f"{path}: {reason}; nothing was changed")
    if list_partition(fs, path).format != "kafka":
        raise UnsupportedError(f"{path}: a log of Kafka 0.7 has no keys to clean by")


@dataclass(frozen=True, slots=True)
class _DirectoryRun:
    """The rounds in one open log directory: open for writing, or over an overlay in a dry run."""

    directory: LogDirectory
    work: DirectoryCleaning
    clock: Clock
    view: ViewingFileSystem | None  # of a dry run
    begin: Begin
    fs: FileSystem

    @property
    def dry_run(self) -> bool:
        return self.view is not None

    def clean_named(self, path: Path) -> Cleaned | CleaningFailure:
        try:
            if self.dry_run:
                log = open_lossless(self.directory, path)
                plan = plan_round(log, self.work.options, self.clock, first_dirty(self.directory, log))
                return self._outcome(log, foresee_round(log, plan, self.clock, self.begin).result)
            planned = plan_named(self.directory, self.work, path, self.clock, self._counted_where_room_is_scarce)
            if isinstance(planned, Cleaned):
                return planned
            log = planned.log
            return self._outcome(log, apply_plan(log, planned.plan, self.clock, self.begin, planned.foreseen))
        except (SeglogError, VanishedError) as error:
            return _failed(path, error)

    def _counted_where_room_is_scarce(self, log: Log, plan: RoundPlan) -> ForeseenRound | None:
        if has_ample_room(log.fs, plan):
            return None
        foreseen = foresee_round(log, plan, self.clock, self.begin)
        recovery = 0 if log.recovery.room is None else log.recovery.room.written
        require_room_to_clean(log.fs, plan.directory, recovery + foreseen.result.bytes_written)
        return foreseen

    def clean_eligible(self) -> Iterator[Outcome]:
        """Cleans the filthiest log, again and again; of ten thousand logs only one is open at a time."""
        options = self.work.options
        manager = CleanerManager(self.directory, (), self.clock, rolled=options.roll, dry_run=self.dry_run)
        ranking = Ranking(self.directory, manager, self.fs, self.clock, opens_all=options.roll)
        for partition in compacted_partitions(self.directory, self.work):
            if isinstance(partition, Skipped):
                yield partition
                continue
            with suppress(NotALogError):
                if not ranking.add(partition, self.work.topics.resolve(partition.topic_partition.topic).log):
                    yield from self._opened(manager, partition.path)
        while True:
            if (path := ranking.due()) is not None:
                yield from self._opened(manager, path)
            elif (taken := manager.take_filthiest()) is not None:
                yield self._clean_taken(manager, *taken)
                self._withdraw(manager, taken[0])
            else:
                break
        yield from left_alone(self.directory, manager)

    def _opened(self, manager: CleanerManager, path: Path) -> Iterator[CleaningFailure]:
        log = compacted_log(self.directory, path)
        if isinstance(log, Log):
            manager.add(log)
            self._withdraw(manager, log)
            return
        if self.view is not None:
            self.view.let_go(path)
        if log is not None:
            yield log

    def _withdraw(self, manager: CleanerManager, log: Log) -> None:
        """Closes a log that is not to be cleaned, or not again."""
        if manager.withdraw(log):
            self.directory.close_log(log, clean=self.view is None)
            if self.view is not None:
                self.view.let_go(log.directory)

    def _clean_taken(self, manager: CleanerManager, log: Log, taken: LogToClean) -> Cleaned | CleaningFailure:
        try:
            if self.dry_run:  # the log stays taken, or the unchanged log would be handed out again
                plan = plan_round(log, self.work.options, self.clock, taken.first_dirty_offset)
                return self._outcome(log, foresee_round(log, plan, self.clock, self.begin).result)
            result = clean_log(log, self.work.options, self.clock, taken.first_dirty_offset, self.begin)
            manager.done(taken, result.end_offset)  # writes the checkpoint
            return self.work.cleaned(log, result)
        except (SeglogError, VanishedError) as error:
            failure = _failed(log.directory, error)
            manager.failed(taken.topic_partition, failure.error)
            return failure

    def _outcome(self, log: Log, result: CleaningResult) -> Cleaned:
        if not result.dry_run:
            write_end(self.directory, log, result)
        return self.work.cleaned(log, result)


def _failed(directory: Path, error: SeglogError | VanishedError) -> CleaningFailure:
    if isinstance(error, VanishedError):
        error = IncompleteError(f"{error.filename}: a broker replaces files faster than they can be read; try again")
    return CleaningFailure(directory, error)


def plan_named(
    directory: LogDirectory, work: DirectoryCleaning, path: Path, clock: Clock, check_space: SpaceCheck
) -> NamedRound | Cleaned:
    """Plans the round of a named partition. Returns the finished round instead if there is nothing to clean.

    Tries everything in memory first, so a refusal leaves every file unchanged. Raises CorruptRecordError if opening the
    log would cut off damage, and whatever `check_space` raises. `directory` is locked, so nothing changes meanwhile.
    """
    with directory.try_log(path) as log:
        refuse_losses(log.recovery)
        require_room_to_recover(directory, log.recovery)
        plan = plan_round(log, work.options, clock, first_dirty(directory, log))
        if plan.groups:
            foreseen = check_space(log, plan)
            return NamedRound(directory.keep(log), plan, foreseen)
        return work.cleaned(log, apply_plan(log, plan, clock))


def open_lossless(directory: LogDirectory, path: Path) -> Log:
    """Opens a log in a directory over an overlay. Raises CorruptRecordError if opening it cut off anything there."""
    log = directory.log_in(path)
    refuse_losses(log.recovery)
    return log


def first_dirty(directory: LogDirectory, log: Log) -> int | None:
    """Returns the partition's checkpoint, or None for a directory of no live partition, such as a `-delete` one."""
    return directory.cleaner_offsets.get(log.topic_partition) if directory.is_known(log.directory) else None


def write_end(directory: LogDirectory, log: Log, result: CleaningResult) -> None:
    """Writes the end of a round as the partition's checkpoint, if the round cleaned anything."""
    if result.segments_before and directory.is_known(log.directory):
        directory.write_cleaner_offset(log.topic_partition, result.end_offset)


def compacted_partitions(directory: LogDirectory, work: DirectoryCleaning) -> Iterator[PartitionDirectory | Skipped]:
    """Yields the compacted partitions of a directory other than the named ones, and why the others are left alone."""
    for partition in list_log_directory(directory.fs, directory.path).live:
        if partition.path not in work.named:
            topic = partition.topic_partition.topic
            problem = policy_problem(work.topics.resolve(topic), topic)
            yield Skipped(partition.path, problem) if problem else partition


def compacted_log(directory: LogDirectory, partition: Path) -> Log | CleaningFailure | None:
    """Opens a compacted log. Returns why it cannot be opened, None if a broker has deleted it meanwhile."""
    try:
        return open_undamaged(directory, partition)
    except SeglogError as error:
        return None if directory.fs.status(partition) is None else CleaningFailure(partition, error)


def left_alone(directory: LogDirectory, manager: CleanerManager) -> Iterator[Skipped]:
    """Returns the logs that the manager will not hand out now."""
    return (Skipped(directory.path / str(left.topic_partition), left.why) for left in manager.candidates())
