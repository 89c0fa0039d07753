"""Settles an interrupted replacement of segments with the smallest loss.

A starting broker finishes a swap whose files look complete, whatever they contain (`log.swap`). A repair undoes the
swap instead if a `.swap` log is damaged, empty or too short while the segments that it replaces are whole (live or
already renamed to `.deleted`): the old segments stay, and nothing in them is lost. Orphaned indexes are removed. The
run's folder keeps every file that leaves the log.
"""

from __future__ import annotations

from pathlib import Path

from seglog.format.filenames import FileKind, FileName, FileState, parse_file_name, segment_file_name
from seglog.log.swap import settle_leftovers
from seglog.repairs.plan import FileRepair
from seglog.scan.listing import list_partition
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import TEMPORARY_SUFFIX
from seglog.storage.overlay import OverlayFileSystem
from seglog.verification.segment_survey import SegmentSurveyor


def settle_on(fs: OverlayFileSystem, directory: Path, surveyor: SegmentSurveyor) -> list[FileRepair]:
    """Settles the leftovers in `directory` on an overlay; returns the removals and renames, in order."""
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
    rest = [(path, "half written") for path in listing.leftovers if path.name.endswith(TEMPORARY_SUFFIX)]
    rest += [(orphan.path, "an index whose segment is gone") for orphan in listing.orphans]
    for path, reason in rest:
        fs.remove(path)
        repairs.append(FileRepair(path.name, "remove", reason))
    return repairs


def _undo_losing_swap(fs: OverlayFileSystem, directory: Path, surveyor: SegmentSurveyor) -> list[FileRepair]:
    names = [(name, parsed) for name in fs.list(directory) if (parsed := parse_file_name(name)) is not None]
    if any(parsed.state is FileState.CLEANED for _, parsed in names):
        return []  # the replacement is incomplete: settling drops it
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
            repairs.append(FileRepair(target, "move", "the replaced segment returns", name))
    return repairs


def _why_undone(fs: OverlayFileSystem, directory: Path, swaps: list[int], surveyor: SegmentSurveyor) -> str:
    """Returns why the replacement by the `.swap` logs at these offsets must not be finished, or ""."""
    if not all(_is_whole(fs, directory, base, FileState.SWAP, surveyor) for base in swaps):
        return "the replacement is damaged, and the segments that it replaces are whole"
    if settle_leftovers(OverlayFileSystem(fs), directory).replaced:
        return "the replacement is empty or ends before the segments that it replaces, which are whole"
    return ""


def _old_segments(names: list[tuple[str, FileName]], least: int) -> dict[int, FileState]:
    """Returns the segments at or after `least` that are live or, failing that, renamed for deletion."""
    old: dict[int, FileState] = {}
    for state in (FileState.DELETED, FileState.LIVE):
        logs = (parsed for _, parsed in names if parsed.kind is FileKind.LOG and parsed.state is state)
        old.update({parsed.offset: state for parsed in logs if parsed.offset >= least})
    return old


def _is_whole(fs: OverlayFileSystem, directory: Path, base: int, state: FileState, surveyor: SegmentSurveyor) -> bool:
    path = directory / segment_file_name(base, FileKind.LOG, state)
    return fs.status(path) is not None and surveyor.survey(path, PlausibleOffsets.of_segment(base)).is_whole
