"""What a repair will do, as data: `verify --repair --dry-run` prints it, `repair` carries it out.

RepairPlan
├── PartitionPlan          a partition directory
│   ├── SegmentRepair      a `.log` that is cut, or written anew without its damaged ranges
│   └── FileRepair         a file that is rebuilt from the data, removed, or renamed
└── CheckpointRepair       an entry of a log directory's checkpoint
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from seglog.evidence.segment_survey import ByteRange, RemovedRange
from seglog.format.filenames import REPAIR_NOTE_PREFIX
from seglog.format.repair_note import Gap
from seglog.log.segment import DEFAULT_INDEX_INTERVAL_BYTES
from seglog.model import TopicPartition
from seglog.repairs.epoch_mending import EpochPatch
from seglog.scan.resync import PlausibleOffsets

FileAction = Literal["rebuild", "remove", "move"]


class Policy(Enum):
    """How damage in a `.log` is mended.

    `smallest-loss`: what is damaged goes, every good batch stays, batches that were moved go back to their place.
    `excise`: the same, but what lies out of order goes. `truncate`: what a broker's recovery does, which cuts at
    the first damage and drops all that follows.
    """

    SMALLEST_LOSS = "smallest-loss"
    EXCISE = "excise"
    TRUNCATE = "truncate"


class RepairPart(Enum):
    """What of a log to repair (`--only`)."""

    LOG = "log"
    INDEX = "index"
    SNAPSHOT = "snapshot"
    EPOCHS = "epochs"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """How to repair. `quarantine` of None is the default place; `intervals` have each partition's
    `index.interval.bytes` by its directory's name, where it is not the default.
    """

    policy: Policy = Policy.SMALLEST_LOSS
    only: frozenset[RepairPart] = frozenset(RepairPart)
    quarantine: Path | None = None
    intervals: Mapping[str, int] = field(default_factory=dict)

    def interval_of(self, directory: Path) -> int:
        """`index.interval.bytes` of the partition in `directory`."""
        return self.intervals.get(directory.name, DEFAULT_INDEX_INTERVAL_BYTES)


@dataclass(frozen=True, slots=True)
class SegmentRepair:
    """A `.log` whose contents change. `source` is the file that holds it now (a `.swap` may be about to replace it).

    `kept` are the byte ranges of `source` that stay, in the new order; `moved` counts batches put back in place;
    `came` counts those that lie in the files of other segments; `offsets` bound what the segment may hold; `patches`
    set broken leader epochs right.
    """

    base_offset: int
    name: str
    source: str
    size_before: int
    kept: tuple[ByteRange, ...]
    removed: tuple[RemovedRange, ...]
    offsets: PlausibleOffsets
    moved: int
    patches: tuple[EpochPatch, ...]
    came: int

    @property
    def size_after(self) -> int:
        return sum(found.length for found in self.kept)

    @property
    def is_cut(self) -> bool:
        """Whether the file is cut where it is, rather than written anew."""
        prefix = not self.kept or (len(self.kept) == 1 and self.kept[0].position == 0)
        return prefix and self.source == self.name and not self.patches and not self.came

    @property
    def loses_its_end(self) -> bool:
        """Whether the damage that goes lies at the file's end."""
        return any(each.position + each.length == self.size_before for each in self.removed)


@dataclass(frozen=True, slots=True)
class FileRepair:
    """A file other than a damaged `.log`. `source` is the old name of one that moves."""

    name: str
    action: FileAction
    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition's repair.

    `replay_from` is the base offset from which producers are derived again (None: not at all), `log_end_offset`
    where the log ends afterwards. `gaps` (first and last offset) are what goes at the ends of segments that others
    follow; the partition keeps a note of them (`format.repair_note`). `unrepaired` says what stays wrong, `notes` what
    an operator should know.
    """

    directory: Path
    segments: tuple[SegmentRepair, ...] = ()
    files: tuple[FileRepair, ...] = ()
    replay_from: int | None = None
    epochs: bool = False
    log_end_offset: int = 0
    gaps: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    unrepaired: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the partition changes."""
        return not (self.segments or self.files or self.epochs or self.replay_from is not None)

    @property
    def removed_bytes(self) -> int:
        """Bytes of damage that leave `.log` files."""
        return sum(found.length for segment in self.segments for found in segment.removed)


@dataclass(frozen=True, slots=True)
class CheckpointRepair:
    """An entry of a checkpoint: `after` of None removes it. Without a partition the whole file begins anew."""

    name: str
    topic_partition: TopicPartition | None
    before: int | None
    after: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """All that one run changes below a log directory. `bytes_needed` is the disk space that it takes meanwhile."""

    log_directory: Path
    options: RepairOptions
    partitions: tuple[PartitionPlan, ...]
    checkpoints: tuple[CheckpointRepair, ...]
    bytes_needed: int

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.checkpoints and all(partition.is_empty for partition in self.partitions)

    @property
    def unrepaired(self) -> tuple[str, ...]:
        """What stays wrong."""
        return tuple(text for partition in self.partitions for text in partition.unrepaired)

    @property
    def notes(self) -> tuple[str, ...]:
        """What an operator should know."""
        return tuple(text for partition in self.partitions for text in partition.notes)

    def rows(self) -> Iterable[dict[str, Any]]:
        """The plan as JSON lines, `type` first."""
        for partition in self.partitions:
            yield from _partition_rows(partition)
        for each in self.checkpoints:
            subject = None if each.topic_partition is None else str(each.topic_partition)
            yield {
                **_row("set", subject or "", each.name, each.reason),
                "before": each.before,
                "after": each.after,
            }


def _partition_rows(plan: PartitionPlan) -> Iterable[dict[str, Any]]:
    name = plan.directory.name
    for segment in plan.segments:
        if segment.moved:
            reason = f"{segment.moved} batches lie out of order and go back to their place"
            yield {**_row("reorder", name, segment.name, reason), "count": segment.moved}
        if segment.came:
            reason = f"{segment.came} batches lie in files of other segments and come back"
            yield {**_row("gather", name, segment.name, reason), "count": segment.came}
        for each in segment.removed:
            at_end = segment.is_cut and each.position >= segment.size_after
            yield {
                **_row("cut" if at_end else "excise", name, segment.name, each.code),
                "position": each.position,
                "length": each.length,
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
            }
        for patch in segment.patches:
            reason = "the leader epoch is broken"
            values = {"position": patch.position, "before": patch.before, "after": patch.after}
            yield {**_row("mend", name, segment.name, reason), **values}
    for file in plan.files:
        yield {**_row(file.action, name, file.name, file.reason), "source": file.source or None}
    if plan.epochs:
        yield _row("rebuild", name, "leader-epoch-checkpoint", "it contradicts the batches")
    for first, last in plan.gaps:
        reason = f"no batch holds offsets {first} to {last} any more"
        yield {**_row("note", name, f"{REPAIR_NOTE_PREFIX}*", reason), "first_offset": first, "last_offset": last}
    if plan.replay_from is not None:
        yield _row("derive", name, "*.snapshot, *.txnindex", f"producers are replayed from {plan.replay_from} on")


def _row(action: str, partition: str, file: str, reason: str) -> dict[str, Any]:
    return {"type": "plan", "action": action, "partition": partition, "file": file, "reason": reason}
