"""Records that two segments' files hold in different batches: which of the two files is the segment.

A merged segment and one of its sources are both there after an interrupted merge, or in a copy of a running broker's
files. The file of the earlier segment reaches over the later one's name. A reader gets every record: it goes on to the
later file where the earlier one ends. A repair must not lose one:

1. If the later files hold everything that lies beyond their names, they stay, and the earlier file ends before them.
2. Else, if the earlier file holds every record of theirs that its batches overlap, their names are not segments: what
   they hold besides goes into the earlier segment.
3. Else either choice would lose records, and both files stay as they are.

Only files that agree are compared: every record that has the same offset in both is the same. What disagrees comes from
another log, which `strays` decides on. Memory is bounded by the batches of the files, and one batch's records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from seglog.repairs.strays import batches_of_file
from seglog.scan.listing import SegmentFiles
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.filesystem import FileSystem

_END = 1 << 63  # after every offset


@dataclass(slots=True)
class Repeated:
    """`names` are base offsets of files that are not segments. `copies` has, by the base offset of a file, the
    positions of its batches whose records another file has, too: what else it holds is of the same log. `contested`
    are pairs of base offsets of files of which neither holds everything.
    """

    names: set[int] = field(default_factory=set)
    copies: dict[int, set[int]] = field(default_factory=dict)
    contested: list[tuple[int, int]] = field(default_factory=list)

    def add_copies(self, base: int, positions: Set[int]) -> None:
        """Adds positions of a file's batches."""
        if positions:
            self.copies.setdefault(base, set()).update(positions)


@dataclass(frozen=True, slots=True)
class _Overlap:
    """What earlier batches, which reach over the base offset of a later file, have in common with it.

    `lost_there` counts the records that only the later file has and that the earlier batches overlap, `lost_here` the
    reverse. `copied` are the earlier batches that overlap the file's, `copies` those of the file, `rest` its others.
    """

    base: int
    lost_here: int
    lost_there: int
    copied: np.ndarray
    copies: np.ndarray
    rest: np.ndarray


def repeated_names(fs: FileSystem, segments: Sequence[SegmentFiles], strayed: Set[int]) -> Repeated:
    """Compares each file of `strayed` (base offsets) with those after it whose base offset its good batches reach."""
    repeated = Repeated()
    for i, segment in enumerate(segments):
        if segment.base_offset not in strayed or segment.base_offset in repeated.names:
            continue
        overlaps = _overlaps(fs, segments, i, repeated.names, joining=False)
        if not any(overlap.lost_here for overlap in overlaps):
            for overlap in overlaps:
                repeated.add_copies(segment.base_offset, set(overlap.copied["position"].tolist()))
            continue
        joined = _overlaps(fs, segments, i, repeated.names, joining=True)
        if any(overlap.lost_there for overlap in joined) or not {each.base for each in overlaps} <= {
            each.base for each in joined
        }:
            repeated.contested += [(segment.base_offset, each.base) for each in overlaps if len(each.copies)]
            continue
        for overlap in joined:
            repeated.names.add(overlap.base)
            repeated.copies[overlap.base] = set(overlap.copies["position"].tolist())
    return repeated


def _overlaps(
    fs: FileSystem, segments: Sequence[SegmentFiles], i: int, names: Set[int], *, joining: bool
) -> list[_Overlap]:
    """Compares segment `i` with those after it that its batches reach, up to one that disagrees. With `joining`, what
    a later file holds besides counts as segment `i`'s from there on.
    """
    batches = _ascending(fs, segments, i)
    overlaps: list[_Overlap] = []
    for number in range(i + 1, len(segments)):
        base = segments[number].base_offset
        reaching = batches[batches["last"] >= base]
        if not len(reaching):
            break
        if base in names:
            continue
        overlap = _overlap(fs, segments, reaching, number)
        if overlap is None:
            break
        overlaps.append(overlap)
        if joining:
            batches = np.sort(np.concatenate((batches, overlap.rest)), order="first", kind="stable")
    return overlaps


def _ascending(fs: FileSystem, segments: Sequence[SegmentFiles], number: int) -> np.ndarray:
    """Returns the good batches of a file from its base offset on; none if they do not ascend."""
    least = segments[number].base_offset
    batches = batches_of_file(fs, segments[number], PlausibleOffsets(least), number)
    batches = batches[batches["first"] >= least]
    return batches if bool((batches["first"][1:] > batches["last"][:-1]).all()) else batches[:0]


def _overlap(fs: FileSystem, segments: Sequence[SegmentFiles], reaching: np.ndarray, number: int) -> _Overlap | None:
    """Compares batches that reach over a later file's base offset with those of the file; None if they disagree."""
    own, base = _ascending(fs, segments, number), segments[number].base_offset
    touched, touching = _meets(own, reaching), _meets(reaching, own)
    straddles = reaching["first"] < base
    here = _records(fs, segments, reaching[touching | straddles])
    lost_here = lost_there = common = 0
    for mine, theirs in _merged(here, _records(fs, segments, own[touched])):
        if mine is None:
            lost_there += 1
        elif theirs is None:
            lost_here += 1
        elif mine != theirs:
            return None
        else:
            common += 1
    if not common and touched.any():
        return None  # nothing shows that they are of one log
    return _Overlap(base, lost_here, lost_there, reaching[touching], own[touched], own[~touched])


def _meets(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns which batches (a bool each) share an offset with one of the others; both ascend."""
    at = np.searchsorted(others["last"], some["first"])
    meets = np.zeros(len(some), dtype=bool)
    inside = at < len(others)
    meets[inside] = others["first"][at[inside]] <= some["last"][inside]
    return meets


def _records(fs: FileSystem, segments: Sequence[SegmentFiles], batches: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yields (offset, digest) of each record of some batches, which name their segment by number, in their order."""
    for row in batches:
        start = int(row["position"])
        for chunk in SegmentScan(fs, segments[int(row["file"])].log, start, start + int(row["size"])):
            for records in chunk.records():
                for offset, record in zip(records.rows["offset"].tolist(), records, strict=True):
                    yield offset, hash((record.timestamp, record.key, record.value, record.headers))


def _merged(
    here: Iterator[tuple[int, int]], there: Iterator[tuple[int, int]]
) -> Iterator[tuple[int | None, int | None]]:
    """Yields the digests of each offset that one of two ascending sequences has."""
    none = (_END, 0)
    mine, theirs = next(here, none), next(there, none)
    while mine[0] != _END or theirs[0] != _END:
        if mine[0] == theirs[0]:
            yield mine[1], theirs[1]
            mine, theirs = next(here, none), next(there, none)
        elif mine[0] < theirs[0]:
            yield mine[1], None
            mine = next(here, none)
        else:
            yield None, theirs[1]
            theirs = next(there, none)
