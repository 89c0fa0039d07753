"""Adjusts a log directory's checkpoints to its repaired partitions.

- No entry may be beyond the new log end offset. Where that end is not known, because damage stays or no segment is
  left, entries stay as they are.
- A recovery point or cleaner offset in or after a rewritten segment moves back to that segment's base offset.
- A log start offset beyond the log end offset would make a broker drop the whole log, and one at its end would have
  retention delete it. So the entry goes, and the log begins at its first segment again.
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
from seglog.repairs.undo.partition_state import Settings
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
    if not plan.end_is_known:
        return []
    after, reason = before, ""
    if before > plan.log_end_offset:
        if name == filenames.LOG_START_OFFSET_CHECKPOINT:
            reason = f"the log ends below it, at {plan.log_end_offset}, so it begins at its first segment again"
            return [CheckpointRepair(name, key, before, None, reason)]
        after, reason = plan.log_end_offset, "it is beyond the log end offset"
    rewritten = [segment.base_offset for segment in plan.segments]
    if name in _BEFORE_REWRITTEN and rewritten and after > min(rewritten):
        after, reason = min(rewritten), "data below it was rewritten"
    return [CheckpointRepair(name, key, before, after, reason)] if after != before else []


def checkpoint_settings(plan: RepairPlan) -> Settings:
    """Returns the plan's changes to the checkpoints as a run takes them."""
    settings: dict[str, dict[TopicPartition, int | None] | bytes] = {}
    for name in dict.fromkeys(each.name for each in plan.checkpoints):
        repairs = [each for each in plan.checkpoints if each.name == name]
        entries = {each.topic_partition: each.after for each in repairs if each.topic_partition is not None}
        is_whole = any(each.topic_partition is None for each in repairs)
        settings[name] = format_offset_checkpoint({}) if is_whole else entries
    return settings
