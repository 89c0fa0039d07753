"""Retention on request: of named partitions or whole log directories, for real or only planned (`seglog retain`).

A broker knows its whole configuration; here some of it may be unknown, and what is deleted is gone. So:

- A value of retention.ms or retention.bytes counts only if it was stated somewhere; Kafka's default of seven days does
  not, because a broker's own server.properties may say otherwise.
- A partition whose cleanup policy nobody stated counts as deletable only if it was named together with a rule, and is
  none of Kafka's own topics (their names begin with two underscores).
- A log whose recovery would cut off damage is refused (`opening`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from seglog.clock import Clock
from seglog.config import LogConfig
from seglog.errors import SeglogError, UnsupportedError
from seglog.format.filenames import parse_partition_directory
from seglog.log.directory import LogDirectory
from seglog.log.listing import Target, TargetKind, list_log_directory, list_partition, log_directory_of
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
from seglog.settings import POLICY, ResolvedConfig
from seglog.storage.filesystem import FileSystem

UNKNOWN_POLICY = "cleanup.policy is not known: only segments below the log start offset go"
_INTERNAL_PREFIX = "__"


class TopicConfigs(Protocol):
    """Configuration by topic (`seglog.log.topic_settings.DirectorySettings`)."""

    def resolve(self, topic: str | None) -> ResolvedConfig: ...


@dataclass(frozen=True, slots=True)
class RetentionRequest:
    """What to do. `ruled` says that the user gave a rule for the partitions named.

    `free_bytes` frees that much instead of going by the rules. Files are removed at once when `delay_ms` is 0, else
    they stay as `.deleted`; None takes the topic's file.delete.delay.ms.
    """

    dry_run: bool = False
    ruled: bool = False
    free_bytes: int | None = None
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Retained:
    """The plan for a partition, carried out unless the request was a dry run. `left_deleted` files are still there."""

    plan: RetentionPlan
    note: str = ""
    left_deleted: int = 0


@dataclass(frozen=True, slots=True)
class RetentionFailure:
    """A partition whose segments were left alone, because of `error`."""

    directory: Path
    error: SeglogError


def stated_retention(resolved: ResolvedConfig) -> LogConfig:
    """The topic's configuration without retention values that nobody stated."""
    log, settings = resolved.log, resolved.settings
    return replace(
        log,
        retention_ms=-1 if settings["retention.ms"].origin == "default" else log.retention_ms,
        retention_bytes=-1 if settings["retention.bytes"].origin == "default" else log.retention_bytes,
    )


def retain(
    fs: FileSystem,
    targets: Sequence[Target],
    topics_of: Callable[[Path], TopicConfigs],
    clock: Clock,
    request: RetentionRequest,
) -> Iterator[Retained | RetentionFailure]:
    """Deletes old segments of what `targets` name, one log directory after the other.

    Raises LockedError and CorruptCheckpointError for a log directory as a whole. With `free_bytes` all targets lie in
    one log directory at a time: each frees what the ones before it did not.
    """
    wanted = request.free_bytes
    for log_directory, paths, named in _by_directory(fs, targets):
        outcomes = _retain_directory(fs, log_directory, paths, named, topics_of(log_directory), clock, request, wanted)
        for outcome in outcomes:
            if wanted is not None and isinstance(outcome, Retained):
                wanted = max(0, wanted - outcome.plan.removed_bytes)
            yield outcome


def _by_directory(fs: FileSystem, targets: Sequence[Target]) -> list[tuple[Path, list[Path], set[Path]]]:
    """(log directory, its partitions to work on, those of them that were named), each partition once."""
    found: dict[Path, tuple[list[Path], set[Path]]] = {}
    for target in targets:
        log_directory = log_directory_of(target)
        paths, named = found.setdefault(log_directory, ([], set()))
        if target.kind is TargetKind.LOG_DIRECTORY:
            new = [partition.path for partition in list_log_directory(fs, log_directory).live]
        else:
            new = [log_directory / target.directory.resolve().name]
            named.update(new)
        paths += [path for path in new if path not in paths]
    return [(log_directory, *entry) for log_directory, entry in found.items()]


def _retain_directory(
    fs: FileSystem,
    log_directory: Path,
    paths: list[Path],
    named: set[Path],
    topics: TopicConfigs,
    clock: Clock,
    request: RetentionRequest,
    wanted: int | None,
) -> list[Retained | RetentionFailure]:
    ruled = {_topic_of(path) for path in named} if request.ruled or request.free_bytes is not None else set()

    def config_of(topic: str) -> LogConfig:
        resolved = topics.resolve(topic)
        config = stated_retention(resolved)
        return config if _is_known(resolved, topic, ruled) else replace(config, cleanup_policy=frozenset())

    done: list[Retained | RetentionFailure] = []
    with LogDirectory.open(
        log_directory, fs=fs, clock=clock, config_of=config_of, writable=not request.dry_run
    ) as directory:
        logs: list[Log] = []
        for path in paths:
            try:
                _require_kafka(fs, path)
                logs.append(open_undamaged(directory, path))
            except SeglogError as error:
                done.append(RetentionFailure(path, error))
        for log, plan in zip(logs, _plans(directory, logs, clock, wanted), strict=True):
            if _is_known(topics.resolve(log.topic_partition.topic), log.topic_partition.topic, ruled):
                done.append(_carry_out(log, plan, "", request))
            else:
                done.append(_carry_out(log, _of_unknown_policy(plan), UNKNOWN_POLICY, request))
    return done


def _plans(directory: LogDirectory, logs: list[Log], clock: Clock, wanted: int | None) -> list[RetentionPlan]:
    watermarks, now_ms = directory.high_watermarks, clock.now_ms()
    if wanted is not None:
        return plan_freeing(logs, wanted, now_ms, watermarks)
    return [plan_retention(log, now_ms, watermarks.get(log.topic_partition)) for log in logs]


def _of_unknown_policy(plan: RetentionPlan) -> RetentionPlan:
    """The plan, which was made with an empty policy, with the real reason for what stays."""
    verdicts = (replace(v, reason=UNKNOWN_POLICY) if v.reason == EMPTY_POLICY else v for v in plan.segments)
    return replace(plan, segments=tuple(verdicts))


def _carry_out(log: Log, plan: RetentionPlan, note: str, request: RetentionRequest) -> Retained:
    if request.dry_run or plan.empty:
        return Retained(plan, note)
    pending = apply_retention(log, plan)
    delay = log.config.file_delete_delay_ms if request.delay_ms is None else request.delay_ms
    if delay == 0:
        remove_deleted(log.fs, pending)
        pending = []
    return Retained(plan, note, len(pending))


def _require_kafka(fs: FileSystem, path: Path) -> None:
    if list_partition(fs, path).format != "kafka":
        raise UnsupportedError(f"{path}: a log of Kafka 0.7 is only read")


def _is_known(resolved: ResolvedConfig, topic: str, ruled: set[str]) -> bool:
    stated = resolved.settings[POLICY].origin != "default"
    return stated or (topic in ruled and not topic.startswith(_INTERNAL_PREFIX))


def _topic_of(path: Path) -> str:
    name = parse_partition_directory(path.name)
    return path.name if name is None else name.topic_partition.topic
