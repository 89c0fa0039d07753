"""Recovery on request: `recover`, `reindex` and `truncate --at-damage` (Kafka: LogManager.loadLogs).

Opening a log recovers it when it was not closed properly. Here it is asked for:

1. Of a log directory every live partition is recovered from its checkpointed recovery point, as by a broker
   that starts after a crash. A partition that is named is recovered from its first segment.
2. A plan runs the very recovery on an overlay and touches nothing.
3. Rebuilding indexes is a recovery that must not lose a byte: its plan is looked at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import RefusedError
from seglog.format.filenames import CLUSTER_METADATA_TOPIC, parse_topic_partition
from seglog.log.directory import ConfigOf, LogDirectory
from seglog.log.listing import Target, TargetKind
from seglog.log.loader import Progress, RecoveryReport
from seglog.log.obstacles import partition_obstacles
from seglog.model import TopicPartition
from seglog.storage import links
from seglog.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """How to recover. `recovery_point` None: as the checkpoint says for a log directory, 0 for a named partition.

    `dry_run` tells what would happen. `lossless` refuses when anything but indexes and snapshots would
    change.
    """

    recovery_point: int | None = None
    dry_run: bool = False
    lossless: bool = False
    progress: Progress | None = None


def recover(
    fs: FileSystem, clock: Clock, target: Target, config_of: ConfigOf, options: RecoveryOptions
) -> Iterator[RecoveryReport]:
    """Recovers what `target` names and closes it cleanly; one report a partition.

    LockedError when a broker holds the directory, RefusedError with `lossless` when bytes would be lost.
    """
    whole = target.kind is TargetKind.LOG_DIRECTORY
    path = links.resolve(target.directory)
    owner = LogDirectory.open(
        path if whole else path.parent, fs=fs, clock=clock, config_of=config_of, writable=not options.dry_run
    )
    with owner:
        for topic_partition in _partitions(owner, path, whole):
            start = options.recovery_point
            if start is None:
                start = owner.recovery_points.get(topic_partition, 0) if whole and not options.lossless else 0
            yield _recover_one(owner, topic_partition, start, options)


def _partitions(owner: LogDirectory, path: Path, whole: bool) -> list[TopicPartition]:
    if whole:
        return list(owner.topic_partitions)
    found = parse_topic_partition(path.name)
    if found is None or found.topic == CLUSTER_METADATA_TOPIC:
        raise RefusedError(f"{path}: only a directory named topic-partition can be recovered")
    return [found]


def _recover_one(
    owner: LogDirectory, topic_partition: TopicPartition, start: int, options: RecoveryOptions
) -> RecoveryReport:
    obstacles = list(partition_obstacles(owner.fs, owner.path / str(topic_partition)))
    if options.dry_run or options.lossless:
        plan = owner.plan_recovery(topic_partition, options.progress, recover_from=start)
        if options.lossless and plan.changes:
            raise RefusedError(
                f"{plan.directory}: {plan.truncated_bytes} bytes cannot be indexed because of damage;"
                " see `seglog verify`, and `seglog verify --repair`"
            )
        if options.dry_run:
            plan.obstacles = obstacles
            return plan
    log = owner.log_in(owner.path / str(topic_partition), options.progress, recover_from=start)
    if log.recovery is None:
        raise RefusedError(f"{log.directory}: the log is open already")
    log.recovery.obstacles = obstacles
    return log.recovery
