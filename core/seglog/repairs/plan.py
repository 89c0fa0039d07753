"""The repair plan: `repair --dry-run` prints it, `repair` carries it out.

RepairPlan
├── PartitionPlan          a partition directory
│   ├── SegmentRepair      cuts a `.log`, or rewrites it without its damaged ranges
│   └── FileRepair         rebuilds a file from the data, removes it, or renames it
└── CheckpointRepair       changes one entry of a log directory's checkpoint
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from seglog.format.filenames import REPAIR_NOTE_PREFIX
from seglog.format.repair_note import Gap
from seglog.log.segment import DEFAULT_INDEX_INTERVAL_BYTES
from seglog.model import TopicPartition
from seglog.repairs.epoch_mending import EpochPatch
from seglog.scan.resync import PlausibleOffsets
from seglog.units import count_is, count_text
from seglog.verification.segment_survey import ByteRange, RemovedRange

FileAction = Literal["rebuild", "remove", "move"]


class Policy(Enum):
    """How a repair treats damage in a `.log`.

    `smallest-loss`: removes damaged ranges, keeps every good batch, and moves misplaced batches back.
    `excise`: the same, but removes batches that are out of order. `truncate`: cuts at the first damage and drops
    everything after it, as a broker's recovery does.
    """

    SMALLEST_LOSS = "smallest-loss"
    EXCISE = "excise"
    TRUNCATE = "truncate"


class RepairPart(Enum):
    """A part of a log that can be repaired alone (`--only`)."""

    LOG = "log"
    INDEX = "index"
    SNAPSHOT = "snapshot"
    EPOCHS = "epochs"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """How to repair.

    `quarantine` of None means the default place. `intervals` maps a partition directory's name to its
    `index.interval.bytes`, where that is not the default.
    """

    policy: Policy = Policy.SMALLEST_LOSS
    only: frozenset[RepairPart] = frozenset(RepairPart)
    quarantine: Path | None = None
    intervals: Mapping[str, int] = field(default_factory=dict)

    def interval_of(self, directory: Path) -> int:
        """Returns `index.interval.bytes` of the partition in `directory`."""
        return self.intervals.get(directory.name, DEFAULT_INDEX_INTERVAL_BYTES)


@dataclass(frozen=True, slots=True)
class SegmentRepair:
    """A `.log` whose contents change.

    `source` is the file that holds the data now; it differs from `name` if the plan also finishes a rename, such as
    that of a `.swap`. `kept` lists the byte ranges that stay, in their new order. `moved` counts batches that return
    to their place within the segment, `came` those that come from other segments' files. `offsets` bounds the offsets
    that the segment may hold. `patches` corrects broken leader epochs.
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
        """True if the file is truncated in place rather than rewritten."""
        prefix = not self.kept or (len(self.kept) == 1 and self.kept[0].position == 0)
        return prefix and self.source == self.name and not self.patches and not self.came

    @property
    def is_split_off(self) -> bool:
        """True if the segment is new: its batches come from one whose name cannot hold their offsets."""
        return self.came > 0 and self.size_before == 0

    @property
    def loses_its_end(self) -> bool:
        """True if a removed range reaches the end of the file."""
        return any(each.position + each.length == self.size_before for each in self.removed)


@dataclass(frozen=True, slots=True)
class FileRepair:
    """A change to any other file. `source` is the old name of a file that moves."""

    name: str
    action: FileAction
    reason: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition's repair.

    `replay_from` is the base offset from which producer state is replayed (None: no replay). `epochs` is true if the
    leader epoch checkpoint is rebuilt. `log_end_offset` is where the log ends afterwards; `end_is_known` is false if
    bytes after it that no step removes may hold more, or if there is no segment. `gaps` lists the offsets (first and
    last) that are lost at the ends of segments other than the last; the partition keeps a note of them
    (`format.repair_note`). `unrepaired` lists damage that stays, `notes` other facts for the operator.
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
    end_is_known: bool = True

    @property
    def is_empty(self) -> bool:
        """True if nothing in the partition changes."""
        return not (self.segments or self.files or self.epochs or self.replay_from is not None)

    @property
    def removed_bytes(self) -> int:
        """Returns the number of damaged bytes removed from `.log` files."""
        return sum(found.length for segment in self.segments for found in segment.removed)


@dataclass(frozen=True, slots=True)
class CheckpointRepair:
    """A change to a checkpoint's entry, which goes if `after` is None; without a partition the file starts afresh."""

    name: str
    topic_partition: TopicPartition | None
    before: int | None
    after: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """Everything that one run changes in a log directory.

    `bytes_needed` is the disk space needed while it runs. `unopened` says which partitions are left out, because this
    user may not open one of their files.
    """

    log_directory: Path
    options: RepairOptions
    partitions: tuple[PartitionPlan, ...]
    checkpoints: tuple[CheckpointRepair, ...]
    bytes_needed: int
    unopened: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.checkpoints and all(partition.is_empty for partition in self.partitions)

    @property
    def unrepaired(self) -> tuple[str, ...]:
        """The damage that stays."""
        return tuple(text for partition in self.partitions for text in partition.unrepaired)

    @property
    def notes(self) -> tuple[str, ...]:
        """Other facts for the operator."""
        return tuple(text for partition in self.partitions for text in partition.notes)

    def rows(self) -> Iterable[dict[str, Any]]:
        """Yields the plan as JSON objects, `type` first."""
        for partition in self.partitions:
            yield from _partition_rows(partition)
        for each in self.checkpoints:
            subject = "" if each.topic_partition is None else str(each.topic_partition)
            yield {**_row("set", subject, each.name, each.reason), "before": each.before, "after": each.after}


def _partition_rows(plan: PartitionPlan) -> Iterable[dict[str, Any]]:
    name = plan.directory.name
    for segment in plan.segments:
        if segment.moved:
            reason = f"{count_is(segment.moved, 'batch')} out of order: moved to their place"
            yield {**_row("reorder", name, segment.name, reason), "count": segment.moved}
        if segment.is_split_off:
            files = " and ".join(dict.fromkeys(part.file for part in segment.kept))
            reason = f"{count_text(segment.came, 'batch')} moved here: {files} cannot hold such offsets by name"
            yield {**_row("split", name, segment.name, reason), "count": segment.came}
        elif segment.came:
            reason = f"{count_text(segment.came, 'batch')} moved back from other segments' files"
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
        reason = f"no batch holds offsets {first} to {last} any longer"
        yield {**_row("note", name, f"{REPAIR_NOTE_PREFIX}*", reason), "first_offset": first, "last_offset": last}
    if plan.replay_from is not None:
        yield _row("derive", name, "*.snapshot, *.txnindex", f"producers are replayed from offset {plan.replay_from}")


def _row(action: str, partition: str, file: str, reason: str) -> dict[str, Any]:
    return {"type": "plan", "action": action, "partition": partition, "file": file, "reason": reason}
