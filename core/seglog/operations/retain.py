"""Retention on request: of named partitions or whole log directories, for real or only planned (`seglog retain`).

A broker knows its whole configuration; here some of it may be unknown, and what is deleted is gone. So:

- A value of retention.ms or retention.bytes counts only if it was stated somewhere; Kafka's default of seven days does
  not, because a broker's own server.properties may say otherwise.
- A topic that the cluster's metadata lists without a cleanup policy has the broker's. Where neither the topic nor a
  policy is known, a partition counts as deletable only if it was named together with a rule, and is none of Kafka's own
  topics (their names begin with two underscores).
- A rule that lets more go than the cluster says of the topic is refused, unless the user insists (`precedence`): before
  anything is touched for partitions that were named, by itself for those of a log directory.
- `FreeSpace` takes nothing from Kafka's own topics: offsets of groups and of tiered segments are not room to be had.
- A log whose recovery would cut off damage is refused (`opening`).
- Where the disk has no room to recover a log, what goes of it goes first (`retain_ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import DELETE, LogConfig
from seglog.configuration.precedence import DEFAULT, KAFKAS_OWN_TOPICS, Contradiction, ResolvedConfig
from seglog.configuration.settings import DirectorySettings
from seglog.errors import NotALogError, RefusedError, SeglogError, UnsupportedError
from seglog.format.filenames import (
    CLUSTER_METADATA_TOPIC,
    FileState,
    parse_partition_directory,
    topic_partition_of,
)
from seglog.log.checkpoints import check_checkpoints
from seglog.log.directory import LogDirectory
from seglog.log.log import Log
from seglog.log.opening import open_undamaged
from seglog.log.retention import (
    EMPTY_POLICY,
    RetentionPlan,
    apply_retention,
    plan_freeing,
    plan_retention,
    remove_deleted,
)
from seglog.operations.retain_ahead import retain_ahead
from seglog.scan.listing import Target, TargetKind, list_log_directory, list_partition, log_directory_of
from seglog.storage import links
from seglog.storage.filesystem import FileSystem

UNKNOWN_POLICY = "cleanup.policy is not known: only segments below the log start offset are deleted"
IN_TIER = (
    "its log start lies before its first segment, as where older ones are in tiered storage: only the broker knows what"
    " was copied (--set remote.storage.enable=false if it is not tiered)"
)
NOT_RECOVERED = "these segments went before the log was recovered, which then could not be done"
KAFKAS_OWN = "one of Kafka's own topics: nothing is taken from it to free space"
POLICIES = ("delete", "compact,delete", "delete,compact")
_INTERNAL_PREFIX = "__"


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """Free `size` bytes: until so many are free on each log directory's file system, or with `more` that many more."""

    size: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class RetentionRequest:
    """What to do. `ruled` says that the user gave a rule for the partitions named.

    `free` makes room instead of going by the rules. Files are removed at once when `delay_ms` is 0, else they stay as
    `.deleted`; None takes the topic's file.delete.delay.ms.
    """

    dry_run: bool = False
    ruled: bool = False
    free: FreeSpace | None = None
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Retained:
    """The plan for a partition, carried out unless the request was a dry run. `left_deleted` files are still there.

    `contradictions` are the rules that went against the cluster's, because the user insisted. `before_recovery` counts
    the segments that went before the log was recovered, because the disk had no room for that (`retain_ahead`).
    """

    log_directory: Path
    plan: RetentionPlan
    note: str = ""
    left_deleted: int = 0
    contradictions: tuple[Contradiction, ...] = ()
    before_recovery: int = 0

    def __repr__(self) -> str:
        plan = self.plan
        goes = f"{len(plan.removed)} of {len(plan.segments)} segments go, {plan.removed_bytes} bytes"
        return f"<Retained {plan.topic_partition}: {goes}; the log starts at offset {plan.new_log_start_offset}>"


@dataclass(frozen=True, slots=True)
class Freed:
    """What `FreeSpace` came to in one log directory: of `wanted` bytes, `freed` went; `free` bytes are free now.

    `missing` is what is still wanted. In a dry run all of it is what would be.
    """

    log_directory: Path
    wanted: int
    freed: int
    free: int
    missing: int

    @property
    def reached(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


@dataclass(frozen=True, slots=True)
class RetentionFailure:
    """A partition whose segments were left alone, because of `error`."""

    directory: Path
    error: SeglogError


def stated_retention(resolved: ResolvedConfig) -> LogConfig:
    """The topic's configuration without retention values that no source gives."""
    log, settings = resolved.log, resolved.settings
    return replace(
        log,
        retention_ms=-1 if settings["retention.ms"].origin == DEFAULT else log.retention_ms,
        retention_bytes=-1 if settings["retention.bytes"].origin == DEFAULT else log.retention_bytes,
    )


def retention_config(resolved: ResolvedConfig) -> LogConfig:
    """The same, and without a policy where nobody knows it: what an unnamed partition's retention goes by."""
    config = stated_retention(resolved)
    return config if resolved.policy_known else replace(config, cleanup_policy=frozenset())


def retain(
    fs: FileSystem,
    targets: Sequence[Target],
    topics_of: Callable[[Path], DirectorySettings],
    clock: Clock,
    request: RetentionRequest,
) -> Iterator[Retained | RetentionFailure | Freed]:
    """Deletes old segments of what `targets` name, one log directory after the other.

    Raises LockedError and CorruptCheckpointError for a log directory as a whole, and, before anything is changed,
    RefusedError for a partition that was named and must not lose segments by these rules.
    """
    work = _by_directory(fs, targets)
    topics = {log_directory: topics_of(log_directory) for log_directory, _, _ in work}
    for log_directory, paths, named in work:
        check_checkpoints(fs, log_directory)
        for path in paths:
            if path in named:
                _require_deletable(path, topics[log_directory])
    space = _Space(fs, request)
    for log_directory, paths, named in work:
        yield from _Directory(fs, log_directory, named, topics[log_directory], clock, request, space).retain(paths)


def _require_deletable(path: Path, topics: DirectorySettings) -> None:
    """RefusedError where what the user states goes against the cluster, and for the controller's own log."""
    topic = _topic_of(path)
    if topic == CLUSTER_METADATA_TOPIC:
        raise RefusedError(f"{path}: the controller's own log is not written by seglog; nothing was changed")
    refusal = topics.resolve(topic).refusal(DELETE)
    if refusal:
        raise RefusedError(f"{path}: {refusal}; nothing was changed")


class _Space:
    """How much is still to be freed, a file system at a time: log directories may share one."""

    def __init__(self, fs: FileSystem, request: RetentionRequest) -> None:
        self._fs, self._request = fs, request
        self._freed: dict[int, int] = {}
        self._promised: dict[int, int] = {}  # what a dry run would make free, which is not there yet

    def wanted(self, log_directory: Path, waiting: int) -> int:
        """Bytes to free in `log_directory`, where files of `waiting` bytes go in any case."""
        free = self._request.free
        if free is None:
            return 0
        device = self._device(log_directory)
        self._promise(device, waiting)
        if free.more:
            return max(0, free.size - self._freed.get(device, 0))
        return max(0, free.size - self._free(log_directory))

    def left(self, wanted: int, freed: int) -> int:
        """What is left of `wanted` when `freed` bytes went already; where so many are to be free, `wanted` knows."""
        free = self._request.free
        return max(0, wanted - freed) if free is not None and free.more else wanted

    def take(self, log_directory: Path, wanted: int, freed: int) -> Freed:
        """Notes what a log directory gave."""
        device = self._device(log_directory)
        self._freed[device] = self._freed.get(device, 0) + freed
        self._promise(device, freed)
        free, asked = self._free(log_directory), self._request.free
        missing = wanted - freed if asked is None or asked.more else asked.size - free
        return Freed(log_directory, wanted, freed, free, max(0, missing))

    def _promise(self, device: int, size: int) -> None:
        if self._request.dry_run:
            self._promised[device] = self._promised.get(device, 0) + size

    def _free(self, log_directory: Path) -> int:
        return self._fs.free_bytes(log_directory) + self._promised.get(self._device(log_directory), 0)

    def _device(self, log_directory: Path) -> int:
        status = self._fs.status(log_directory)
        return -1 if status is None else status.device


def _by_directory(fs: FileSystem, targets: Sequence[Target]) -> list[tuple[Path, list[Path], set[Path]]]:
    """(log directory, its partitions to work on, those of them that were named), each partition once. NotALogError for
    a file: more than what it names would go."""
    found: dict[Path, tuple[dict[Path, None], set[Path]]] = {}
    for target in targets:
        if target.kind is TargetKind.FILE:
            raise NotALogError(target.path, "a partition or a log directory can lose old segments, not a file")
        log_directory = log_directory_of(target)
        paths, named = found.setdefault(log_directory, ({}, set()))
        if target.kind is TargetKind.LOG_DIRECTORY:
            new = [partition.path for partition in list_log_directory(fs, log_directory).live]
        else:
            new = [log_directory / links.resolve(target.directory).name]
            named.update(new)
        paths.update(dict.fromkeys(new))
    return [(log_directory, list(paths), named) for log_directory, (paths, named) in found.items()]


class _Directory:
    """One log directory's part of the work."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        named: set[Path],
        topics: DirectorySettings,
        clock: Clock,
        request: RetentionRequest,
        space: _Space,
    ) -> None:
        self._fs, self._path, self._topics, self._clock = fs, path, topics, clock
        self._request, self._space = request, space
        ruled = request.ruled or request.free is not None
        self._ruled = {_topic_of(partition) for partition in named} if ruled else set()
        self._in_tier: set[str] = set()

    def retain(self, paths: list[Path]) -> list[Retained | RetentionFailure | Freed]:
        failures: list[RetentionFailure] = []
        retained: list[Retained] = []
        waiting = sum(_waiting_bytes(self._fs, path) for path in paths)
        writable = not self._request.dry_run
        with LogDirectory.open(
            self._path, fs=self._fs, clock=self._clock, config_of=self._config_of, writable=writable
        ) as directory:
            self._in_tier = {_topic_of(path) for path in paths if self._is_in_tier(directory, path)}
            went = self._retain_ahead(directory, paths, waiting) if writable else {}
            logs: list[Log] = []
            for path in paths:
                try:
                    self._require_retainable(path)
                    logs.append(open_undamaged(directory, path, self._way_out(path)))
                except SeglogError as error:
                    if self._fs.status(path) is not None or not self._request.dry_run:
                        failures.append(RetentionFailure(path, error))  # else a broker has deleted it meanwhile
                    if path in went:
                        retained.append(self._not_recovered(went[path]))
            freed = sum(plan.freed_bytes for plan in went.values())
            left = self._space.left(self._space.wanted(self._path, waiting), freed)
            for log, plan in zip(logs, self._plans(directory, logs, left), strict=True):
                retained.append(self._carry_out(log, plan, went.get(log.directory)))
        done: list[Retained | RetentionFailure | Freed] = [*failures, *retained]
        if self._request.free is not None:
            freed_in_all = sum(one.plan.freed_bytes for one in retained)
            done.append(self._space.take(self._path, freed + left, freed_in_all))
        return done

    def _retain_ahead(self, directory: LogDirectory, paths: list[Path], waiting: int) -> Mapping[Path, RetentionPlan]:
        """What went before its log could be recovered."""

        def planner(logs: Sequence[Log], missing: int, released: int) -> list[RetentionPlan]:
            return self._plans(directory, logs, max(self._space.wanted(self._path, waiting) - released, missing))

        return retain_ahead(directory, [path for path in paths if self._is_retainable(path)], planner)

    def _way_out(self, path: Path) -> str:
        """What to do where a log cannot be recovered for want of room, and --free has taken what it may."""
        if self._request.free is None:
            return ""
        why = self._why_kept(_topic_of(path)) or "no closed segment that may go is left"
        return (
            f"Nothing of it could go first ({why}): make room by other means, or in other log directories on this disk"
        )

    def _is_retainable(self, path: Path) -> bool:
        try:
            self._require_retainable(path)
        except SeglogError:
            return False  # reported when it is to be opened
        return True

    def _require_retainable(self, path: Path) -> None:
        refusal = self._topics.resolve(_topic_of(path)).refusal(DELETE)
        if refusal:
            raise RefusedError(f"{path}: {refusal}")
        if list_partition(self._fs, path).format != "kafka":
            raise UnsupportedError(f"{path}: a log of Kafka 0.7 is only read")

    def _config_of(self, topic: str) -> LogConfig:
        """Without any policy where nothing may go by the rules."""
        config = stated_retention(self._topics.resolve(topic))
        return replace(config, cleanup_policy=frozenset()) if self._why_kept(topic) else config

    def _why_kept(self, topic: str) -> str:
        """Why nothing of a topic goes, whatever its policy says; empty where the policy decides."""
        if self._request.free is not None and topic in KAFKAS_OWN_TOPICS:
            return KAFKAS_OWN
        if topic in self._in_tier:
            return IN_TIER
        is_ruled = topic in self._ruled and not topic.startswith(_INTERNAL_PREFIX)
        return "" if self._topics.resolve(topic).policy_known or is_ruled else UNKNOWN_POLICY

    def _is_in_tier(self, directory: LogDirectory, path: Path) -> bool:
        """Whether a partition looks tiered, and no source says whether it is: a broker deletes there what goes here."""
        stated = self._topics.resolve(_topic_of(path)).settings["remote.storage.enable"].origin != DEFAULT
        known = topic_partition_of(path) in directory.log_start_offsets
        if stated or not known or self._fs.status(path) is None:
            return False
        segments = list_partition(self._fs, path).segments
        return bool(segments) and directory.begins_before(path, segments[0].base_offset)

    def _plans(self, directory: LogDirectory, logs: Sequence[Log], wanted: int) -> list[RetentionPlan]:
        watermarks, now_ms = directory.high_watermarks, self._clock.now_ms()
        if self._request.free is not None:
            return plan_freeing(logs, wanted, now_ms, watermarks)
        return [plan_retention(log, now_ms, watermarks.get(log.topic_partition)) for log in logs]

    def _carry_out(self, log: Log, plan: RetentionPlan, went: RetentionPlan | None) -> Retained:
        """Carries out a plan; `went` is what it adds to."""
        topic = log.topic_partition.topic
        note, contradictions = self._why_kept(topic), self._topics.resolve(topic).against(DELETE)
        if note:
            plan = _of_unknown_policy(plan, note)
        whole, ahead = (plan, 0) if went is None else (_joined(went, plan), len(went.segments))
        if ahead:
            log.leader_epochs.truncate_from_start(log.log_start_offset)
        if self._request.dry_run or plan.empty:
            return Retained(self._path, whole, note, 0, contradictions, ahead)
        pending = apply_retention(log, plan)
        delay = log.config.file_delete_delay_ms if self._request.delay_ms is None else self._request.delay_ms
        if delay == 0:
            remove_deleted(log.fs, pending)
            pending = []
        return Retained(self._path, whole, note, len(pending), contradictions, ahead)

    def _not_recovered(self, went: RetentionPlan) -> Retained:
        """What went of a log that could not be recovered in spite of it."""
        contradictions = self._topics.resolve(went.topic_partition.topic).against(DELETE)
        return Retained(self._path, went, NOT_RECOVERED, 0, contradictions, len(went.segments))


def _joined(went: RetentionPlan, plan: RetentionPlan) -> RetentionPlan:
    """The plan for a log, with what went before it was recovered."""
    return replace(plan, log_start_offset=went.log_start_offset, segments=(*went.segments, *plan.segments))


def _waiting_bytes(fs: FileSystem, path: Path) -> int:
    """Bytes on the disk in `.deleted` files, which go when the log is opened for writing; 0 where they are unknown."""
    try:
        leftovers = list_partition(fs, path).leftovers
    except (NotALogError, OSError):
        return 0  # reported when it is to be opened
    waiting = [name for name in leftovers if name.name.endswith(FileState.DELETED.value)]
    return sum(status.allocated for status in map(fs.status, waiting) if status is not None)


def _of_unknown_policy(plan: RetentionPlan, note: str) -> RetentionPlan:
    """The plan, which was made with an empty policy, with the real reason for what stays."""
    verdicts = (replace(v, reason=note) if v.reason == EMPTY_POLICY else v for v in plan.segments)
    return replace(plan, segments=tuple(verdicts))


def _topic_of(path: Path) -> str:
    name = parse_partition_directory(path.name)
    return path.name if name is None else name.topic_partition.topic
