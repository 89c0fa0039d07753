"""Renames segments whose file names contradict their batches, or removes them if they are copies.

No checksum covers a file's name or a batch's offset. A name therefore counts as wrong only if something confirms the
offsets: the previous segment ends where the first batch begins, the batches follow one another without gaps, an index
with the right name still exists, or several batches contradict the name and no single broken offset explains that.
Renaming keeps every batch. A repair that trusted the name would remove the batches below it as outside their segment
and, if the name is too low, the end of the previous segment too.

Memory is bounded by the batches of three segments, 40 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from seglog.format.filenames import FileState, segment_file_name
from seglog.log.segment import LogSegment
from seglog.repairs.plan import FileRepair
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.verification.batch_order import ascending_chain
from seglog.verification.segment_survey import batches_anywhere, judged_batches

_BATCH = np.dtype([("first", np.int64), ("last", np.int64), ("size", np.int64), ("crc", np.int64)])


@dataclass(frozen=True)
class _Held:
    """A segment and its good batches, whatever their offsets (_BATCH)."""

    files: SegmentFiles
    batches: np.ndarray

    @cached_property
    def sound(self) -> np.ndarray:
        """The batches without those whose offset is broken: the longest ascending sequence."""
        found: np.ndarray = self.batches[ascending_chain(self.batches["first"], self.batches["last"])]
        return found

    @property
    def first(self) -> int:
        """The first batch's base offset: the right name of the file, or an offset above that."""
        return int(self.sound["first"][0])

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return int(self.sound["last"][-1]) + 1

    @property
    def is_gapless(self) -> bool:
        """True if there are several batches, each beginning where the previous one ends."""
        first, last = self.sound["first"], self.sound["last"]
        return len(first) > 1 and bool((first[1:] == last[:-1] + 1).all())

    def is_in(self, other: _Held) -> bool:
        """True if the other segment holds all of these batches."""
        return len(self.batches) > 0 and bool(np.isin(self.batches, other.batches).all())


def settle_names(fs: OverlayFileSystem, directory: Path) -> list[FileRepair]:
    """Renames and removes misnamed segments on an overlay; returns the changes, in order.

    Does nothing if a replacement was interrupted in the directory: its segments may overlap until it is settled.
    """
    repairs: list[FileRepair] = []
    left: set[int] = set()
    taken: set[int] = set()
    while found := _settled(fs, directory, left, taken):  # a corrected or removed name can reveal another
        repairs += found
    return repairs


def _settled(fs: OverlayFileSystem, directory: Path, left: set[int], taken: set[int]) -> list[FileRepair]:
    """Makes one pass. `left` and `taken` are names that renames have freed and used: a run moves each file once, and
    none to a name that another file had.
    """
    repairs: list[FileRepair] = []
    listing = list_partition(fs, directory)
    orphans = {orphan.offset for orphan in listing.orphans}
    if listing.format != "kafka" or any(path.name.endswith(FileState.SWAP.value) for path in listing.leftovers):
        return repairs
    live = {files.base_offset: files for files in listing.segments}
    for base in _contradicting(fs, directory, listing.segments):
        if base in taken or base not in live:
            continue
        held = _held(fs, live[base])
        others = {offset: files for offset, files in live.items() if offset != base}
        place = max((offset for offset in others if offset <= held.first), default=None)
        following = min((offset for offset in others if offset > held.first), default=None)
        before, after = (None if each is None else _held(fs, others[each]) for each in (place, following))
        double = next((found for each in (before, after) if each is not None and (found := _double(each, held))), None)
        if double is not None:
            extra, rest = double
            if extra.files.base_offset in taken:
                continue
            repairs += _removed(fs, extra.files.files, f"{rest.files.log.name} holds all of its batches")
            del live[extra.files.base_offset]
            continue
        name = _right_name(before, held, after, orphans)
        if name is not None and name not in left and name not in live:
            target = directory / segment_file_name(name)
            repairs += _removed(fs, held.files.files[1:], "an index of a segment with a wrong name")
            fs.rename(held.files.log, target)
            left.add(base)
            taken.add(name)
            reason = f"the name is wrong: its batches begin at {held.first}"
            repairs.append(FileRepair(target.name, "move", reason, held.files.log.name))
            del live[base]
            live[name] = replace(held.files, base_offset=name, log=target)
    return repairs


def _contradicting(fs: FileSystem, directory: Path, segments: tuple[SegmentFiles, ...]) -> list[int]:
    """Returns the base offsets of segments that begin below their name, or whose name the previous segment passes."""
    found, end = [], 0
    for files in segments:
        judged = judged_batches(fs, files.log, PlausibleOffsets.of_segment(files.base_offset), anywhere=True)
        some = next(((first, rows["last_offset"]) for rows, first in judged if len(first)), None)
        first = None if some is None else int(some[0][np.argmax(ascending_chain(*some))])
        if first is None:
            continue
        if first < files.base_offset or end > files.base_offset:
            found.append(files.base_offset)
        end = LogSegment(fs, directory, files.base_offset).read_next_offset()[0]
    return found


def _held(fs: FileSystem, files: SegmentFiles) -> _Held:
    parts, positions = [np.zeros(0, dtype=_BATCH)], [np.zeros(0, dtype=np.int64)]
    for rows, first, _ in batches_anywhere(fs, files.log, PlausibleOffsets.of_segment(files.base_offset)):
        part = np.zeros(len(rows), dtype=_BATCH)
        part["first"], part["last"], part["size"], part["crc"] = first, rows["last_offset"], rows["size"], rows["crc"]
        parts.append(part)
        positions.append(rows["position"].copy())
    in_file_order = np.argsort(np.concatenate(positions), kind="stable")
    return _Held(files, np.concatenate(parts)[in_file_order])


def _double(other: _Held, held: _Held) -> tuple[_Held, _Held] | None:
    """Returns the segment that holds only batches of the other one, and the other one; None if neither does.

    If both hold the same batches, the first returned is the one with the wrong name.
    """
    if other.is_in(held) and held.first == held.files.base_offset:
        return other, held
    return (held, other) if held.is_in(other) else None


def _right_name(before: _Held | None, held: _Held, after: _Held | None, orphans: set[int]) -> int | None:
    """Returns the right base offset for a segment whose batches contradict its name; None if the batches do not fit
    there or nothing confirms their offsets.

    Ignores strays: batches that belong to the next segment, and batches in the next segment's file that belong before
    it.
    """
    if held.first == held.files.base_offset:
        return None
    own = held.sound
    if after is not None:
        beyond = after.sound["first"][after.sound["first"] > held.first]
        own = own[own["last"] < (int(beyond[0]) if len(beyond) else after.files.base_offset)]
    if not len(own) or (before is not None and before.files.base_offset == held.first):
        return None
    preceding = own[:0] if before is None else before.sound
    if after is not None:
        preceding = preceding[preceding["first"] < after.files.base_offset]
    end_before = int(preceding["last"][-1]) + 1 if len(preceding) else 0
    if end_before > held.first:
        return None
    name = max((each for each in orphans if end_before <= each <= held.first), default=None)
    is_named = name is not None and (name == held.first or int(own["first"][-1]) < held.files.base_offset)
    follows = len(preceding) > 0 and end_before == held.first
    leads = after is not None and after.files.base_offset == int(own["last"][-1]) + 1
    continues = len(own) == len(held.sound) and (follows or leads or held.is_gapless)
    if not is_named and not continues and not _is_confirmed(own, held.files.base_offset):
        return None
    return held.first if name is None else name


def _is_confirmed(own: np.ndarray, base: int) -> bool:
    """True if a batch contradicts the name and no single broken offset explains it: another batch follows it directly,
    all batches contradict the name, or the only batch differs from the name by more than one bit."""
    below = int(np.count_nonzero(own["first"] < base))
    touching = own["first"][1:] == own["last"][:-1] + 1
    far = len(own) == 1 and (int(own["first"][0]) ^ base).bit_count() > 1
    return bool(touching[:below].any()) or (below == len(own) and (below > 1 or far))


def _removed(fs: OverlayFileSystem, paths: tuple[Path, ...], reason: str) -> list[FileRepair]:
    for path in paths:
        fs.remove(path)
    return [FileRepair(path.name, "remove", reason) for path in paths]
