"""What an interrupted replacement of segments left, settled so that the least is lost.

A starting broker finishes a swap that its files say is complete, whatever they hold (`log.swap`). Here, when a
`.swap` log is damaged, empty or too short while the segments it was to replace are whole (live or already renamed to
`.deleted`), the swap is undone instead: the old segments stay, and nothing they hold is lost. Orphaned indexes go. All
of it ends up in the run's folder, not in nothing.
"""

from __future__ import annotations

from pathlib import Path

from seglog.evidence.segment_survey import SegmentSurveyor
from seglog.format.filenames import FileKind, FileName, FileState, parse_file_name, segment_file_name
from seglog.log.swap import settle_leftovers
from seglog.repairs.plan import FileRepair
from seglog.scan.listing import list_partition
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.atomic import TEMPORARY_SUFFIX
from seglog.storage.overlay import OverlayFileSystem


def settle_on(fs: OverlayFileSystem, directory: Path, surveyor: SegmentSurveyor) -> list[FileRepair]:
    """Settles the leftovers in `directory` on an overlay; returns what that removes and renames, in order."""
    repairs = _undo_losing_swap(fs, directory, surveyor)
    settled = settle_leftovers(fs, directory)
    targets = {target for _, target in settled.renamed}
    repairs += [
        FileRepair(path.name, "remove", "left over from an interrupted deletion or replacement")
        for path in settled.removed
        if path not in targets
    ]
    repairs += [
        FileRepair(target.name, "move", "finishes an interrupted replacement", source.name)
        for source, target in settled.renamed
    ]
    listing = list_partition(fs, directory)
    for path in listing.leftovers:
        if path.name.endswith(TEMPORARY_SUFFIX):
            fs.remove(path)
            repairs.append(FileRepair(path.name, "remove", "half written"))
    for orphan in listing.orphans:
        fs.remove(orphan.path)
        repairs.append(FileRepair(orphan.path.name, "remove", "an index whose segment is gone"))
    return repairs


def _undo_losing_swap(fs: OverlayFileSystem, directory: Path, surveyor: SegmentSurveyor) -> list[FileRepair]:
    names = [(name, parsed) for name in fs.list(directory) if (parsed := parse_file_name(name)) is not None]
    if any(parsed.state is FileState.CLEANED for _, parsed in names):
        return []  # incomplete: settling drops it
    swaps = [(name, parsed) for name, parsed in names if parsed.state is FileState.SWAP]
    logs = [parsed.offset for _, parsed in swaps if parsed.kind is FileKind.LOG]
    if not logs:
        return []
    reason = _why_undone(fs, directory, logs, surveyor)
    if not reason:
        return []
    old = _old_segments(names, min(logs))
    if min(logs) not in old or not all(_is_whole(fs, directory, base, state, surveyor) for base, state in old.items()):
        return []
    repairs = []
    for name, _ in swaps:
        fs.remove(directory / name)
        repairs.append(FileRepair(name, "remove", reason))
    live = {name for name, parsed in names if parsed.state is FileState.LIVE}
    for name, parsed in names:
        target = name.removesuffix(FileState.DELETED.value)
        if parsed.state is FileState.DELETED and parsed.offset >= min(logs) and target not in live:
            fs.rename(directory / name, directory / target)
            repairs.append(FileRepair(target, "move", "the segment that was to be replaced comes back", name))
    return repairs


def _why_undone(fs: OverlayFileSystem, directory: Path, swaps: list[int], surveyor: SegmentSurveyor) -> str:
    """What is wrong with the replacement by the `.swap` logs at these offsets, or ""."""
    if not all(_is_whole(fs, directory, base, FileState.SWAP, surveyor) for base in swaps):
        return "the replacement is damaged, and what it was to replace is whole"
    if settle_leftovers(OverlayFileSystem(fs), directory).replaced:
        return "the replacement is empty or ends sooner than what it was to replace, which is whole"
    return ""


def _old_segments(names: list[tuple[str, FileName]], least: int) -> dict[int, FileState]:
    """Segments at or after `least` that are live, or were already renamed to be deleted."""
    old = {
        parsed.offset: parsed.state
        for _, parsed in names
        if parsed.kind is FileKind.LOG and parsed.state is FileState.DELETED and parsed.offset >= least
    }
    live = {
        parsed.offset: parsed.state
        for _, parsed in names
        if parsed.kind is FileKind.LOG and parsed.state is FileState.LIVE and parsed.offset >= least
    }
    return {**old, **live}


def _is_whole(fs: OverlayFileSystem, directory: Path, base: int, state: FileState, surveyor: SegmentSurveyor) -> bool:
    path = directory / segment_file_name(base, FileKind.LOG, state)
    return fs.status(path) is not None and surveyor.survey(path, PlausibleOffsets.of_segment(base)).is_whole
