"""Retention on request: of named partitions or whole log directories, for real or only planned (`seglog retain`).

A broker knows its whole configuration; here some of it may be unknown, and deletion is final. So:

- A value of retention.ms or retention.bytes counts only if it is set somewhere; Kafka's default of seven days does not
  count, because a broker's own server.properties may differ.
- A topic that the cluster's metadata lists without a cleanup policy has the broker's. If neither the topic nor a policy
  is known, a partition is deletable only if it was named together with a rule, and is not one of Kafka's own topics
  (their names begin with two underscores).
- A rule that deletes more than the cluster's configuration of the topic is refused, unless the user insists
  (`precedence`): for named partitions before anything is touched, for those of a log directory one by one.
- `FreeSpace` deletes nothing from Kafka's own topics: offsets of groups and of tiered segments are not spare space.
- A log whose recovery would cut off damage is refused (`opening`). `FreeSpace` takes closed segments of one that is
  damaged only in its active segment, as by a full disk, and leaves it unrecovered.
- If the disk has no room to recover a log, its deletable segments are deleted first (`retain_ahead`), and directories
  that can give some come before others on that disk (`by_room`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

from seglog.arguments import flag
from seglog.clock import Clock
from seglog.configuration.keys import DELETE, LogConfig
from seglog.configuration.precedence import DEFAULT, KAFKAS_OWN_TOPICS, Contradiction, ResolvedConfig
from seglog.configuration.settings import DirectorySettings
from seglog.errors import ArgumentError, CorruptRecordError, NotALogError, RefusedError, SeglogError, UnsupportedError
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, topic_partition_of
from seglog.layout import INT64_MAX
from seglog.log.checkpoints import check_checkpoints, room_to_close
from seglog.log.directory import LogDirectory
from seglog.log.loader import refuse_losses
from seglog.log.log import Log
from seglog.log.opening import incomplete_without, open_undamaged
from seglog.log.retention import (
    EMPTY_POLICY,
    RetentionPlan,
    apply_retention,
    plan_freeing,
    plan_retention,
    remove_deleted,
)
from seglog.log.stateful_topics import state_lost
from seglog.operations.free_space import (
    NO_LEFTOVERS,
    Freed,
    FreeSpace,
    Leftovers,
    Offer,
    SpaceToFree,
    by_room,
    leftovers_of,
)
from seglog.operations.retain_ahead import is_torn, joined, lacks_room, let_go, retain_ahead, take_closed, try_torn
from seglog.operations.workspace import (
    CommonArguments,
    Location,
    NamedLogs,
    Sources,
    Workspace,
    by_log_directory,
    check_policy,
    optional_duration,
    optional_path,
    optional_size,
    settings_of,
    warn_of_runs,
)
from seglog.scan.listing import Target, first_base_offset, is_07, list_log_directory, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import RoomTaken
from seglog.units import count_text

UNKNOWN_POLICY = "cleanup.policy is not known: only segments below the log start offset are deleted"
IN_TIER = (
    "its log start lies before its first segment, as where older ones are in tiered storage: only the broker knows what"
    " was copied (--set remote.storage.enable=false if it is not tiered)"
)
TORN = (
    "only closed segments are taken, because a recovery would cut the active segment ({}): it stays as it is, for the"
    " broker's own recovery or for `seglog verify`"
)
MADE_BY_RECOVERY = "only a recovery makes it, from other files"
NOT_RECOVERED = "these segments were deleted before recovering the log, which then failed"
KAFKAS_OWN = "one of Kafka's own topics: nothing is taken from it to free space"
POLICIES = ("delete", "compact,delete", "delete,compact")
_INTERNAL_PREFIX = "__"


class RetentionKeywords(TypedDict, total=False):
    """The keyword arguments of `seglog.retain`: the fields of `RetentionRequest`."""

    retention_ms: int | str | None
    retention_bytes: int | str | None
    free: int | str | None
    policy: str | None
    delay_ms: int | str | None
    override_policy: bool
    metadata_directory: Location | None


class RetentionArguments(RetentionKeywords, CommonArguments, total=False):
    """Those of `seglog.retain`, and those of every function."""


@dataclass(frozen=True, slots=True)
class RetentionRequest:
    """What to delete and how, as the user said it."""

    paths: tuple[Path, ...]
    retention_ms: int | str | None = None
    retention_bytes: int | str | None = None
    free: int | str | None = None
    policy: str | None = None
    delay_ms: int | str | None = None
    override_policy: bool = False
    metadata_directory: Location | None = None

    def sources(self) -> Sources:
        """Returns the configuration that the user gave. Raises ArgumentError or TypeError for a bad value."""
        chosen = {
            "retention.ms": optional_duration("retention_ms", self.retention_ms),
            "retention.bytes": optional_size("retention_bytes", self.retention_bytes),
            "cleanup.policy": self.policy,
        }
        metadata = optional_path("metadata_directory", self.metadata_directory)
        return Sources(chosen, flag("override_policy", self.override_policy), metadata)

    def rules(self, *, dry_run: bool) -> RetentionRules:
        """Returns how to delete. Raises ArgumentError for values that contradict each other."""
        free, delay = FreeSpace.of(self.free), optional_duration("delay_ms", self.delay_ms, 0)
        ruled = self.retention_ms is not None or self.retention_bytes is not None
        if free is not None and (ruled or delay):
            raise ArgumentError("free", "it removes files at once: do not give retention rules or a delay with it")
        return RetentionRules(dry_run, ruled, free, delay if free is None else 0)


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """How to delete. `ruled`: the user gave a rule for the named partitions.

    `free` makes room instead of applying the rules. Files are removed at once if `delay_ms` is 0, else they stay as
    `.deleted`; None takes the topic's file.delete.delay.ms.
    """

    dry_run: bool = False
    ruled: bool = False
    free: FreeSpace | None = None
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Retained:
    """The plan for a partition, applied unless the request was a dry run. `left_deleted` counts remaining `.deleted`
    files.

    `contradictions` are the rules that overrode the cluster's, because the user insisted. `before_recovery` counts the
    segments deleted before the log was recovered, because the disk had no room for that (`retain_ahead`).
    `leftovers` are the files of an unfinished deletion that opening the log for writing removes (a dry run: would).
    """

    log_directory: Path
    plan: RetentionPlan
    note: str = ""
    left_deleted: int = 0
    contradictions: tuple[Contradiction, ...] = ()
    before_recovery: int = 0
    leftovers: Leftovers = NO_LEFTOVERS

    def __repr__(self) -> str:
        plan = self.plan
        removed = (
            f"{len(plan.removed)} of {count_text(len(plan.segments), 'segment')} removed,"
            f" {count_text(plan.removed_bytes, 'byte')}"
        )
        return f"<Retained {plan.topic_partition}: {removed}; the log starts at offset {plan.new_log_start_offset}>"


@dataclass(frozen=True, slots=True)
class RetentionFailure:
    """A partition that kept all its segments because of `error`."""

    directory: Path
    error: SeglogError


Outcome = Retained | RetentionFailure | Freed


def stated_retention(resolved: ResolvedConfig) -> LogConfig:
    """Returns the topic's configuration without default retention values."""
    log, settings = resolved.log, resolved.settings
    return replace(
        log,
        retention_ms=-1 if settings["retention.ms"].origin == DEFAULT else log.retention_ms,
        retention_bytes=-1 if settings["retention.bytes"].origin == DEFAULT else log.retention_bytes,
    )


def retention_config(resolved: ResolvedConfig) -> LogConfig:
    """Returns the configuration to retain a partition by that was not named: an unknown policy is none."""
    config = stated_retention(resolved)
    return config if resolved.policy_known else replace(config, cleanup_policy=frozenset())


def retain(work: Workspace, request: RetentionRequest, *, dry_run: bool = False) -> Iterator[Outcome]:
    """Deletes old segments of the partitions that the request names; a dry run warns of unfinished runs.

    Raises the errors of `retain_targets`, NotALogError, and ConfigError for a bad value or configuration.
    """
    if dry_run:
        warn_of_runs(work, request.paths)
    targets = resolve_paths(work.fs, request.paths)
    rules, sources = request.rules(dry_run=dry_run), request.sources()
    check_policy(request.policy, POLICIES, targets)
    yield from retain_targets(work.fs, targets, lambda path: settings_of(work, path, sources), work.clock, rules)


def retain_targets(
    fs: FileSystem,
    targets: Sequence[Target],
    topics_of: Callable[[Path], DirectorySettings],
    clock: Clock,
    rules: RetentionRules,
) -> Iterator[Outcome]:
    """Deletes old segments of the targets' partitions, one log directory after the other: in their order, but to free
    space `_by_room`.

    Raises LockedError and CorruptCheckpointError for a log directory as a whole, and, before any change, RefusedError
    for a named partition that must not lose segments by these rules.
    """
    places = by_log_directory(targets, "a partition or a log directory can lose old segments, not a file")
    topics = {place.log_directory: topics_of(place.log_directory) for place in places}
    space = SpaceToFree(fs, rules.free, rules.dry_run)
    works = [_DirectoryRetention(fs, place, topics[place.log_directory], clock, rules, space) for place in places]
    for place in places:
        check_checkpoints(fs, place.log_directory)
        for path in place.partitions:
            _require_deletable(path, topics[place.log_directory])
    for work in works if rules.free is None else _by_room(works, space):
        yield from work.retain()


def _by_room(works: list[_DirectoryRetention], space: SpaceToFree) -> list[_DirectoryRetention]:
    """Returns the works on each disk in the order of `by_room`, where a log there may lack the room to be recovered."""
    on_disk: dict[int, list[_DirectoryRetention]] = {}
    for work in works:
        on_disk.setdefault(space.device(work.path), []).append(work)
    order = {}
    for device, sharing in on_disk.items():
        order[device] = iter(sharing)
        if len(sharing) > 1 and any(work.lacks_room() for work in sharing):
            offers = [work.offer() for work in sharing]
            order[device] = iter(by_room(sharing, offers, space.free(sharing[0].path)))
            for work, offer in zip(sharing, offers, strict=True):
                space.reserve(work.path, offer.keeps)
    return [next(order[space.device(work.path)]) for work in works]


def _require_deletable(path: Path, topics: DirectorySettings) -> None:
    """Raises RefusedError if the user's rules contradict the cluster's, and for the controller's own log."""
    topic = topic_partition_of(path).topic
    if topic == CLUSTER_METADATA_TOPIC:
        raise RefusedError(f"{path}: the controller's own log is not written by seglog; nothing was changed")
    refusal = topics.resolve(topic).refusal(DELETE)
    if refusal:
        raise RefusedError(f"{path}: {refusal}; nothing was changed")


class _DirectoryRetention:
    """One log directory's part of the work."""

    def __init__(
        self,
        fs: FileSystem,
        place: NamedLogs,
        topics: DirectorySettings,
        clock: Clock,
        rules: RetentionRules,
        space: SpaceToFree,
    ) -> None:
        self._fs, self.path, self._topics, self._clock = fs, place.log_directory, topics, clock
        live = list_log_directory(fs, self.path).live if place.whole else ()
        self._place, named = place, (*place.partitions, *(partition.path for partition in live))
        self._partitions = list(dict.fromkeys(named))  # each once
        self._rules, self._space = rules, space
        ruled = rules.ruled or rules.free is not None
        self._ruled = {topic_partition_of(partition).topic for partition in place.partitions} if ruled else set()
        self._in_tier: set[str] = set()
        self._leftovers = {path: leftovers_of(fs, path) for path in self._partitions}
        self._recoveries: list[RoomTaken] = []  # of a dry run
        self._early: Mapping[Path, RetentionPlan] = {}  # what was deleted before recovery
        self._stay_torn: set[Path] = set()

    def lacks_room(self) -> bool:
        """True if the disk may lack the room to recover the logs."""
        with self._opened_directory(writing=False) as directory:
            return lacks_room(directory, self._partitions)

    def offer(self) -> Offer:
        """Returns what the directory can give to its disk at most, by a dry run, and what its recovery takes."""
        everything = FreeSpace(INT64_MAX)
        rules, space = replace(self._rules, dry_run=True, free=everything), SpaceToFree(self._fs, everything, True)
        work = _DirectoryRetention(self._fs, self._place, self._topics, self._clock, rules, space)
        (freed,) = (outcome for outcome in work.retain() if isinstance(outcome, Freed))
        taken = sum(room.written for room in work._recoveries), sum(room.growth for room in work._recoveries)
        return Offer(freed.freed + freed.left_over, *taken)

    def _opened_directory(self, *, writing: bool) -> LogDirectory:
        return LogDirectory.open(self.path, fs=self._fs, clock=self._clock, config_of=self._config_of, writable=writing)

    def retain(self) -> list[Outcome]:
        failures: list[RetentionFailure] = []
        retained: list[Retained] = []
        waiting = sum(left.size for left in self._leftovers.values())
        writable = not self._rules.dry_run
        self._space.reserve(self.path, 0)  # the recovery is now
        with self._opened_directory(writing=writable) as directory, ExitStack() as torn:
            self._in_tier = {
                topic_partition_of(path).topic for path in self._partitions if self._is_in_tier(directory, path)
            }
            self._early = self._retain_ahead(directory, waiting) if writable else {}
            logs: list[Log] = []
            alone = self._rules.dry_run and self._rules.free is None  # what a log loses depends on no other
            for path in self._partitions:
                if alone:  # of ten thousand logs only one is held
                    retained += self._retained(directory, logs, 0)
                    logs.clear()
                    torn.close()
                try:
                    self._require_retainable(path)
                    log = self._opened(directory, path, torn)
                    if is_torn(log.recovery):  # loads the log: here, as it may have vanished
                        self._stay_torn.add(log.directory)
                    logs.append(log)
                except SeglogError as error:
                    gone = isinstance(error, NotALogError) or self._fs.status(path) is None
                    if not (gone and self._rules.dry_run):  # a broker deletes it meanwhile, or makes it anew
                        failures.append(RetentionFailure(path, error))
                    if path in self._early:
                        against, plan = self._resolved(path).against(DELETE), self._early[path]
                        retained.append(Retained(self.path, plan, NOT_RECOVERED, 0, against, len(plan.segments)))
            freed = sum(plan.freed_bytes for plan in self._early.values())
            needed = 0 if writable or self._rules.free is None else self._needed(directory, waiting)
            left = max(needed, self._space.left(self._space.wanted(self.path, waiting), freed))
            retained += self._retained(directory, logs, left)
        done: list[Outcome] = [*failures, *retained]
        if self._rules.free is not None:
            freed_in_all = sum(one.plan.freed_bytes for one in retained)
            done.append(self._space.take(self.path, freed + left, freed_in_all, waiting))
        return done

    def _retained(self, directory: LogDirectory, logs: Sequence[Log], wanted: int) -> Iterator[Retained]:
        """Plans for logs, and applies the plans."""
        for log, plan in zip(logs, self._plans(directory, logs, wanted), strict=True):
            carry_out = partial(self._take_closed, directory) if log.directory in self._stay_torn else self._carry_out
            outcome = carry_out(log, plan, self._early.get(log.directory))
            yield replace(outcome, leftovers=self._leftovers[log.directory])

    def _needed(self, directory: LogDirectory, waiting: int) -> int:
        """Returns the bytes that a run must free to recover the logs of a dry run, and counts what that takes."""
        room = sum(taken.written for taken in self._recoveries) + room_to_close(self._fs, self.path)
        needed = room - waiting - self._space.now(self.path) if lacks_room(directory, self._partitions) else 0
        self._space.spend(self.path, sum(taken.growth for taken in self._recoveries))
        return needed

    def _retain_ahead(self, directory: LogDirectory, waiting: int) -> Mapping[Path, RetentionPlan]:
        """Deletes segments of logs that cannot be recovered otherwise; returns those parts of their plans."""

        def planner(logs: Sequence[Log], missing: int, released: int) -> list[RetentionPlan]:
            return self._plans(directory, logs, max(self._space.wanted(self.path, waiting) - released, missing))

        retainable = [path for path in self._partitions if self._is_retainable(path)]
        return retain_ahead(directory, retainable, planner, torn=self._rules.free is not None)

    def _opened(self, directory: LogDirectory, path: Path, torn: ExitStack) -> Log:
        """Opens a log, in memory until the end of `torn` if it `is_torn`, or for a dry run: by the times in the indexes
        that the run would rebuild first. Raises SeglogError if that loses data.
        """
        if self._rules.dry_run:
            with incomplete_without(path):
                tried = torn.enter_context(directory.try_log(path))
            if self._rules.free is None or not is_torn(tried.recovery):
                refuse_losses(tried.recovery)
                self._recoveries += [tried.recovery.room] if tried.recovery.room is not None else []
            let_go(tried)
            return tried
        try:
            return open_undamaged(directory, path, self._way_out(path))
        except CorruptRecordError:
            held = torn.enter_context(try_torn(directory, path)) if self._rules.free is not None else None
            if held is None:
                raise
            return held

    def _way_out(self, path: Path) -> str:
        """Advises what to do if a log still cannot be recovered for lack of room although --free deleted all it may."""
        if self._rules.free is None:
            return ""
        why = self._why_kept(topic_partition_of(path).topic) or "no deletable closed segment is left"
        return (
            f"None of its segments could be deleted first ({why}): make room by other means, or in other log"
            " directories on this disk"
        )

    def _is_retainable(self, path: Path) -> bool:
        try:
            self._require_retainable(path)
        except SeglogError:
            return False  # reported when the log is opened
        return True

    def _require_retainable(self, path: Path) -> None:
        refusal = self._resolved(path).refusal(DELETE)
        if refusal:
            raise RefusedError(f"{path}: {refusal}")
        with incomplete_without(path):
            is_refused = is_07(self._fs, path)
        if is_refused:
            raise UnsupportedError(f"{path}: a log of Kafka 0.7 can only be read")

    def _config_of(self, topic: str) -> LogConfig:
        """Returns a topic's configuration, without a policy if nothing may be deleted by the rules."""
        config = stated_retention(self._topics.resolve(topic))
        return replace(config, cleanup_policy=frozenset()) if self._why_kept(topic) else config

    def _why_kept(self, topic: str) -> str:
        """Returns why nothing of a topic is deleted, whatever its policy; "" if the policy decides."""
        if self._rules.free is not None and topic in KAFKAS_OWN_TOPICS:
            return KAFKAS_OWN
        if topic in self._in_tier:
            return IN_TIER
        is_ruled = topic in self._ruled and not topic.startswith(_INTERNAL_PREFIX)
        return "" if self._topics.resolve(topic).policy_known or is_ruled else UNKNOWN_POLICY

    def _resolved(self, partition: Path) -> ResolvedConfig:
        return self._topics.resolve(topic_partition_of(partition).topic)

    def _is_in_tier(self, directory: LogDirectory, path: Path) -> bool:
        """True if a partition looks tiered and no source tells: a broker would delete in the tier, too."""
        stated = self._resolved(path).settings["remote.storage.enable"].origin != DEFAULT
        known = topic_partition_of(path) in directory.log_start_offsets
        if stated or not known or self._fs.status(path) is None:
            return False
        try:
            first = first_base_offset(self._fs, path)
        except (FileNotFoundError, PermissionError):
            return False  # gone meanwhile, or closed to this user: seen when the log is opened
        return first is not None and directory.begins_before(path, first)

    def _plans(self, directory: LogDirectory, logs: Sequence[Log], wanted: int) -> list[RetentionPlan]:
        watermarks, now_ms = directory.high_watermarks, self._clock.now_ms()
        if self._rules.free is not None:
            return plan_freeing(logs, wanted, now_ms, watermarks)
        return [plan_retention(log, now_ms, watermarks.get(log.topic_partition)) for log in logs]

    def _explained(self, topic: str, plan: RetentionPlan) -> tuple[RetentionPlan, str, tuple[Contradiction, ...]]:
        """Returns a plan with the reason why nothing of the topic is deleted, that reason, and overridden rules."""
        note = self._why_kept(topic)
        if note:  # the plan was made without a policy; this is the real reason
            verdicts = (replace(v, reason=note) if v.reason == EMPTY_POLICY else v for v in plan.segments)
            plan = replace(plan, segments=tuple(verdicts))
        note = note or state_lost(plan, self._topics.resolve(topic).log.cleanup_policy)
        return plan, note, self._topics.resolve(topic).against(DELETE)

    def _take_closed(
        self, directory: LogDirectory, log: Log, plan: RetentionPlan, early: RetentionPlan | None
    ) -> Retained:
        """Applies a plan to the closed segments of a log that `is_torn`, which stays unrecovered."""
        plan, note, contradictions = self._explained(log.topic_partition.topic, plan)
        cut = log.recovery.truncated_segments[0]
        note = "; ".join(filter(None, (note, TORN.format(f"position {cut.valid_bytes}: {cut.reason}"))))
        if not self._rules.dry_run:
            taken = len(take_closed(directory, log, plan).segments)
            kept = (replace(v, rule=None, reason=MADE_BY_RECOVERY) if v.removed else v for v in plan.segments[taken:])
            plan = replace(plan, segments=(*plan.segments[:taken], *kept))
        whole, ahead = joined(plan, early)
        return Retained(self.path, whole, note, 0, contradictions, ahead)

    def _carry_out(self, log: Log, plan: RetentionPlan, early: RetentionPlan | None) -> Retained:
        """Applies a plan; `early` is the part of the whole plan that was applied before recovery."""
        plan, note, contradictions = self._explained(log.topic_partition.topic, plan)
        whole, ahead = joined(plan, early)
        if early is not None:
            log.leader_epochs.truncate_from_start(log.log_start_offset)
        if self._rules.dry_run or plan.empty:
            return Retained(self.path, whole, note, 0, contradictions, ahead)
        pending = apply_retention(log, plan)
        delay = log.config.file_delete_delay_ms if self._rules.delay_ms is None else self._rules.delay_ms
        if delay == 0:
            remove_deleted(log.fs, pending)
            pending = []
        return Retained(self.path, whole, note, len(pending), contradictions, ahead)
