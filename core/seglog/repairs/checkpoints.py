"""Adjusts a log directory's checkpoints to its repaired partitions.

- No entry may be beyond the new log end offset.
- A recovery point or cleaner offset in or after a rewritten segment moves back to that segment's base offset.
- A log start offset beyond the log end offset would make a broker drop the whole log, so it is lowered too.
- An unreadable file starts afresh, empty: a broker then recovers and cleans everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seglog.errors import CorruptCheckpointError
from seglog.format import filenames
from seglog.format.checkpoint import format_offset_checkpoint, parse_offset_checkpoint
from seglog.model import TopicPartition
from seglog.repairs.plan import CheckpointRepair, PartitionPlan, RepairOptions, RepairPart, RepairPlan
from seglog.repairs.undo.journal import NEW, Change
from seglog.repairs.undo.quarantine import facts_of
from seglog.scan.listing import OFFSET_CHECKPOINTS
from seglog.storage.filesystem import FileSystem
from seglog.verification.findings import Finding

_BEFORE_REWRITTEN = (filenames.RECOVERY_POINT_CHECKPOINT, filenames.CLEANER_OFFSET_CHECKPOINT)


def plan_checkpoints(
    fs: FileSystem,
    log_directory: Path,
    plans: Sequence[PartitionPlan],
    findings: Sequence[Finding] | None,
    options: RepairOptions,
) -> list[CheckpointRepair]:
    """Returns the entries to change. `findings` are those on the log directory's own files; None suspects them all.

    The entries of repaired partitions are always corrected; `--only` limits the others.
    """
    repairs: list[CheckpointRepair] = []
    for name in OFFSET_CHECKPOINTS:
        path = log_directory / name
        if fs.status(path) is None:
            continue
        try:
            offsets = parse_offset_checkpoint(fs.read_bytes(path), path)
        except CorruptCheckpointError as error:
            if RepairPart.CHECKPOINT in options.only:
                repairs.append(CheckpointRepair(name, None, None, None, f"cannot be read: {error.reason}"))
            continue
        suspect = findings is None or any(each.file == name for each in findings)
        for plan in plans:
            if not plan.is_empty or (suspect and RepairPart.CHECKPOINT in options.only):
                repairs += _entry(name, plan, offsets)
    return repairs


def _entry(name: str, plan: PartitionPlan, offsets: dict[TopicPartition, int]) -> list[CheckpointRepair]:
    parsed = filenames.parse_partition_directory(plan.directory.name)
    if parsed is None or parsed.state is not filenames.PartitionState.LIVE or parsed.topic_partition not in offsets:
        return []
    key, before = parsed.topic_partition, offsets[parsed.topic_partition]
    after, reason = before, ""
    if before > plan.log_end_offset:
        after, reason = plan.log_end_offset, "it is beyond the log end offset"
    rewritten = [segment.base_offset for segment in plan.segments]
    if name in _BEFORE_REWRITTEN and rewritten and after > min(rewritten):
        after, reason = min(rewritten), "data below it was rewritten"
    return [CheckpointRepair(name, key, before, after, reason)] if after != before else []


def stage_checkpoints(fs: FileSystem, plan: RepairPlan, run: Path) -> list[Change]:
    """Writes the new checkpoint files into the run's folder, durably; returns the changes."""
    changes = []
    staging = run / NEW
    fs.make_directory(staging, parents=True)
    for name in sorted({each.name for each in plan.checkpoints}):
        path, staged = plan.log_directory / name, staging / name
        repairs = [each for each in plan.checkpoints if each.name == name]
        with fs.open(staged, "create_new") as file:
            file.write_at(0, _contents(fs, path, repairs))
            file.sync()
        fs.copy_attributes(path, staged)
        before, after = facts_of(fs, path), facts_of(fs, staged)
        changes.append(Change.of("replace", name, before, after, reason=repairs[0].reason))
    fs.sync_directory(staging)
    fs.sync_directory(run)
    return changes


def _contents(fs: FileSystem, path: Path, repairs: list[CheckpointRepair]) -> bytes:
    if any(each.topic_partition is None for each in repairs):
        return format_offset_checkpoint({})
    offsets = parse_offset_checkpoint(fs.read_bytes(path), path)
    for each in repairs:
        assert each.topic_partition is not None and each.after is not None
        offsets[each.topic_partition] = each.after
    return format_offset_checkpoint(offsets)
