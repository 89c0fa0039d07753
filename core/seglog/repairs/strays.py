"""Moves strays, good batches in the wrong segment's file, to the segment that their offsets name.

Strays appear if two segments' contents were exchanged, if a range was written into the wrong file, or if a file has a
wrong name that `misnamed` cannot prove. A batch's checksum does not cover its base offset, so the evidence for where a
batch belongs must be clear:

1. Consecutive batches in one file that belong to one other segment form a stretch. Copies of batches that this segment
   already holds do not count.
2. A stretch that contradicts the segment (other batches have some of its offsets, or leader epochs would fall) comes
   from another log or from an older state of this one. It is removed with the damage, as is one far beyond the log end.
3. A single batch may have a broken base offset. It is removed too if flipping one bit makes it fit exactly where it is,
   unless its timestamp, which the checksum covers, shows that it was moved, or the two files hold each other's batches
   and none of their own. If its offset continues the last batch before it in its supposed segment, the flipped offset
   must fill the hole at its present place exactly.
4. A file's only own batch, among strays, does not count as its own if flipping one bit makes it continue a neighbour.

Memory is bounded by the batches of the files with strays and of their segments, 48 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from seglog.layout import INT32_MAX, INT64_MAX
from seglog.scan.listing import SegmentFiles
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileSystem
from seglog.verification.batch_order import ascending_chain
from seglog.verification.segment_survey import (
    OUT_OF_SEGMENT,
    ByteRange,
    RemovedRange,
    Survey,
    in_ranges,
    judged_batches,
    without_parts,
)

_BATCH = np.dtype(
    [(name, np.int64) for name in ("first", "last", "size", "crc", "position", "time")]
    + [("file", np.int32), ("epoch", np.int32)],
)
_SPAN = np.dtype([("first", np.int64), ("last", np.int64)])
_FACTS = ["first", "last", "size", "crc"]
_OFFSET_BITS = 63
_FARTHEST = 1 << 20  # the most offsets that a cleaner is assumed to remove between two batches


SurveyOf = Callable[[SegmentFiles], Survey]


def batches_of_file(fs: FileSystem, segment: SegmentFiles, offsets: PlausibleOffsets, number: int = 0) -> np.ndarray:
    """Returns the good batches in a file, whatever their offsets, by position: columns `first`, `last`, `size`, `crc`,
    `position`, `time`, `file` (the `number`) and `epoch`. `offsets` only help to find the way past damage.
    """
    parts = [np.zeros(0, dtype=_BATCH)]
    for rows, first in judged_batches(fs, segment.log, offsets, anywhere=True):
        part = np.zeros(len(rows), dtype=_BATCH)
        part["first"], part["file"] = first, number
        for name in ("size", "crc", "position"):
            part[name] = rows[name]
        part["last"], part["epoch"], part["time"] = rows["last_offset"], rows["leader_epoch"], rows["max_timestamp"]
        parts.append(part)
    joined = np.concatenate(parts)
    return joined[np.argsort(joined["position"], kind="stable")]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The `surveys` of the segments that change, and the number of batches that each gains (`came`), by base offset."""

    surveys: dict[int, Survey]
    came: dict[int, int]


def names_within_batches(
    fs: FileSystem, segments: Sequence[SegmentFiles], survey_of: SurveyOf, strayed: Set[int]
) -> set[int]:
    """Returns the base offsets of files that are not segments: the file's name lies within a good batch.

    For a file of `strayed` (base offsets) with no batch of its own, that is proof enough. Any other file needs two
    things more: the batch is sound, and the file's batches contradict none in the batch's file. A batch is sound if it
    is contiguous with a neighbour in its file, begins at its file's base offset, is in both files, or fills exactly the
    hole between two segments. If the batch is in that very file, the previous segment must not contradict any of the
    file's batches.
    """
    empty = {s.base_offset for s in segments if s.base_offset in strayed and not survey_of(s).kept}
    bases = np.array([segment.base_offset for segment in segments], dtype=np.int64)
    gathering = _Gathering(fs, segments, survey_of, ())
    found: set[int] = set()
    whole = PlausibleOffsets(segments[0].base_offset)
    for number, segment in enumerate(segments):
        if segment.base_offset not in strayed:
            continue
        batches = gathering.batches_in(number, whole)
        touching = np.append(batches["first"][1:] == batches["last"][:-1] + 1, False)
        touching[1:] |= touching[:-1].copy()
        low, high = (np.searchsorted(bases, batches[end], side="right") for end in ("first", "last"))
        for i in np.flatnonzero(high > low).tolist():
            batch, home = batches[i : i + 1], int(low[i]) - 1
            for other in range(int(low[i]), int(high[i])):
                if other == number:
                    is_sound = home >= 0 and (bool(touching[i]) or gathering.reaches(home, batch))
                    is_sound = is_sound and gathering.goes_with(home, batches)
                else:
                    is_sound = bool(touching[i]) or int(batch["first"][0]) == segment.base_offset
                    is_sound = is_sound or gathering.has(other, batch) or gathering.fills(home, other, batch)
                    is_sound = is_sound and gathering.goes_with(other, batches)
                if bases[other] in empty or is_sound:
                    found.add(int(bases[other]))
    return found


def may_have_strays(survey: Survey) -> bool:
    """True if a file may hold batches of other segments: some were found, or none of its own."""
    return any(each.code == OUT_OF_SEGMENT for each in survey.removed) or (survey.size > 0 and not survey.kept)


def gather(
    fs: FileSystem,
    segments: Sequence[SegmentFiles],
    survey_of: SurveyOf,
    strayed: Sequence[int],
    others: Sequence[SegmentFiles],
    copies: Mapping[int, Set[int]],
) -> Gathered:
    """Moves the strays in the files of `strayed` (base offsets) and in `others`, which are not segments, to their
    segments. Does not survey segments that neither gain nor lose a batch.

    `copies` has, by base offset, positions of batches whose records another file has, too (`repeated`): they stay
    where they are or go, and what else such a file holds is known to be of this log.
    """
    return _Gathering(fs, segments, survey_of, others, copies).gathered(strayed)


class _Gathering:
    def __init__(
        self,
        fs: FileSystem,
        segments: Sequence[SegmentFiles],
        survey_of: SurveyOf,
        others: Sequence[SegmentFiles],
        copies: Mapping[int, Set[int]] = {},
    ) -> None:
        self._fs, self._files, self._survey_of = fs, [*segments, *others], survey_of
        self._copies = copies
        self._bases = [segment.base_offset for segment in segments]
        self._held: dict[int, np.ndarray] = {}
        self._aside: dict[int, np.ndarray] = {}
        self._came: dict[int, int] = {}
        self._given: dict[int, list[ByteRange]] = {}

    def gathered(self, strayed: Sequence[int]) -> Gathered:
        numbers = [self._bases.index(base) for base in strayed] + list(range(len(self._bases), len(self._files)))
        waiting = [(number, home, part) for number in numbers for home, part in self._stretches(number)]
        while waiting:
            left = [each for each in waiting if not (self._is_sure(*each) and self._place(*each))]
            if len(left) == len(waiting):
                likely = (i for i, each in enumerate(left) if self._is_likely(*each) and self._place(*each))
                at = next(likely, None)
                if at is None:
                    break
                del left[at]
            waiting = left  # placed batches may have filled holes into which others seemed to fit
        return Gathered(self._changed(), self._came)

    def _bounds(self, number: int) -> tuple[int, int]:
        """Returns the first and last offset that a segment can hold; an empty range for another file."""
        if number >= len(self._bases):
            return 0, -1
        following = self._bases[number + 1] - 1 if number + 1 < len(self._bases) else INT64_MAX
        return self._bases[number], min(following, self._bases[number] + INT32_MAX)

    def batches_in(self, number: int, offsets: PlausibleOffsets) -> np.ndarray:
        """Returns the good batches in a file, whatever their offsets, by position."""
        return batches_of_file(self._fs, self._files[number], offsets, number)

    def has(self, number: int, batch: np.ndarray) -> bool:
        """True if the file holds a copy of the batch."""
        found = self.batches_in(number, PlausibleOffsets(self._bases[0]))
        return bool(np.isin(batch[_FACTS], found[_FACTS]).all())

    def fills(self, before: int, after: int, batch: np.ndarray) -> bool:
        """True if the batch fills exactly a hole between the batches of two segments."""
        begins = self._of(after)["first"]
        return before >= 0 and self.reaches(before, batch) and bool((begins == batch["last"] + 1).any())

    def reaches(self, number: int, batch: np.ndarray) -> bool:
        """True if a batch in the file ends where the given one begins."""
        return bool((self._of(number)["last"] == batch["first"] - 1).any())

    def goes_with(self, number: int, others: np.ndarray) -> bool:
        """True if the file's own batches and `others` fit one segment: copies aside, they share no offset."""
        own = self._of(number)
        new = own[~np.isin(own[_FACTS], others[_FACTS])]
        ascending = others[np.argsort(others["first"], kind="stable")]
        return _fits(new, ascending) and int(new["size"].sum() + others["size"].sum()) <= INT32_MAX

    def _stretches(self, number: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (home segment's number, batches) for each stretch of strays in a file."""
        anywhere = PlausibleOffsets(self._bases[0], self._bounds(len(self._bases) - 1)[1])
        batches = self.batches_in(number, anywhere)
        batches = batches[~np.isin(batches["position"], list(self._copies.get(self._files[number].base_offset, ())))]
        # a batch with a broken offset must neither split a stretch nor discredit it
        chain = ascending_chain(batches["first"], batches["last"])
        for part in (batches[chain], batches[~chain]):
            yield from self._parted(number, part)

    def _parted(self, number: int, batches: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Splits some batches of a file into stretches, by position."""
        homes = np.searchsorted(self._bases, batches["first"], side="right") - 1
        ends = np.array([self._bounds(i)[1] for i in range(len(self._bases))], dtype=np.int64)
        homes[(homes >= 0) & (batches["last"] > ends[np.maximum(homes, 0)])] = -1
        gaps = batches["first"][1:] - batches["last"][:-1] - 1
        cuts = np.flatnonzero((np.diff(homes) != 0) | (gaps < 0) | (gaps > _FARTHEST)) + 1
        for stretch, of in zip(np.split(batches, cuts), np.split(homes, cuts), strict=True):
            if len(of) and of[0] not in (-1, number):
                yield int(of[0]), stretch

    def _new(self, home: int, stretch: np.ndarray) -> np.ndarray:
        """Returns the batches of a stretch that a segment lacks; none if they contradict it (rules 1 and 2)."""
        held = self._of(home)
        new = stretch[~np.isin(stretch[_FACTS], held[_FACTS])]
        if not len(new) or not _fits(new, held):
            return new[:0]
        before = held[held["last"] < new["first"][0]]["epoch"]
        after = held[held["first"] > new["last"][-1]]["epoch"]
        low, high = before[before >= 0][-1:], after[after >= 0][:1]
        epochs = new["epoch"][new["epoch"] >= 0]
        falls = bool((np.diff(np.concatenate((low, epochs[:1]))) < 0).any())
        falls |= bool((np.diff(np.concatenate((epochs[-1:], high))) < 0).any())
        end = int(held["last"][-1]) if len(held) else self._bases[home]
        is_far = home + 1 == len(self._bases) and int(new["last"][-1]) - end > _FARTHEST + int(new["size"].sum())
        return new[:0] if falls or is_far else new

    def _is_sure(self, number: int, home: int, stretch: np.ndarray) -> bool:
        """True if the segment lacks several of the batches, or if the one that it lacks fills a hole exactly."""
        new, held = self._new(home, stretch), self._of(home)
        if self._files[number].base_offset in self._copies:
            return len(new) > 0
        if len(new) != 1:
            return len(new) > 1
        least, most = self._bounds(home)
        at = int(np.searchsorted(held["first"], new["first"][0]))
        low = int(held["last"][at - 1]) + 1 if at else least
        high = int(held["first"][at]) - 1 if at < len(held) else most
        return (low, high) == (int(new["first"][0]), int(new["last"][0]))

    def _is_likely(self, number: int, home: int, stretch: np.ndarray) -> bool:
        """Rule 3."""
        new = self._new(home, stretch)
        if len(new) != 1:
            return False
        return self._is_exchanged(number, home) or not self._may_have_a_broken_offset(number, home, new[0])

    def _is_exchanged(self, number: int, home: int) -> bool:
        """True if all batches that a file's segment has now came from the file of `home`."""
        held = self._of(number)
        return len(held) > 0 and bool((held["file"] == home).all())

    def _place(self, number: int, home: int, stretch: np.ndarray) -> bool:
        held, new = self._of(home), self._new(home, stretch)
        if not len(new) or int(held["size"].sum() + new["size"].sum()) > INT32_MAX:
            return False
        joined = np.concatenate((held, new))
        self._held[home] = joined[np.argsort(joined["first"], kind="stable")]
        self._came[self._bases[home]] = self._came.get(self._bases[home], 0) + len(new)
        self._given.setdefault(number, []).extend(self._ranges(new, number))
        return True

    def _of(self, number: int) -> np.ndarray:
        """Returns a segment's batches that stay, by offset."""
        if number not in self._held:
            least, most = self._bounds(number)
            own = self.batches_in(number, PlausibleOffsets(least, most))
            own = own[(own["first"] >= least) & (own["last"] <= most)]
            aside = self._accidental(number, own)
            self._aside[number] = own[aside]
            kept = self._survey_of(self._files[number]).kept if number < len(self._bases) else []
            parts = [self._in_ranges(own[~aside], kept, "")]
            for name in dict.fromkeys(part.file for part in kept if part.file):
                other = next(i for i, files in enumerate(self._files) if files.log.name == name)
                parts.append(self._in_ranges(self.batches_in(other, PlausibleOffsets(least, most)), kept, name))
            batches = np.concatenate(parts)
            self._held[number] = batches[np.argsort(batches["first"], kind="stable")]
        return self._held[number]

    @staticmethod
    def _in_ranges(batches: np.ndarray, kept: Sequence[ByteRange], file: str) -> np.ndarray:
        """Returns the batches of `file` that lie in the ranges of it."""
        own: np.ndarray = batches[in_ranges(batches["position"], [part for part in kept if part.file == file])]
        return own

    def _accidental(self, number: int, own: np.ndarray) -> np.ndarray:
        """Returns which of a file's own batches (a bool each) only seem to be its own by a broken offset (rule 4)."""
        every = self.batches_in(number, PlausibleOffsets(self._bases[0]))
        at = int(np.searchsorted(every["position"], int(own["position"][0]))) if len(own) == 1 else 0
        if not 0 < at < len(every) - 1:
            return np.zeros(len(own), dtype=bool)
        low, high = int(every["last"][at - 1]) + 1, int(every["first"][at + 1]) - 1
        first, span = int(own["first"][0]), int(own["last"][0] - own["first"][0])
        wrong = {first ^ low, first ^ (high - span)}
        return np.array([low + span <= high and any(each.bit_count() == 1 for each in wrong)])

    def _may_have_a_broken_offset(self, number: int, home: int, batch: np.void) -> bool:
        """True if the batch is in its place and one flipped bit in its offset explains the contradiction."""
        held = self._of(number)
        own = held[held["file"] == number]
        own = own[np.argsort(own["position"], kind="stable")]
        at = int(np.searchsorted(own["position"], int(batch["position"])))
        there = self._of(home)
        place = int(np.searchsorted(there["first"], int(batch["first"])))
        if not _is_between(batch, own, at) and _is_between(batch, there, place):
            return False
        least, most = self._bounds(number)
        low = int(own["last"][at - 1]) + 1 if 0 < at <= len(own) else least
        high = int(own["first"][at]) - 1 if at < len(own) else most
        first, span = int(batch["first"]), int(batch["last"] - batch["first"])
        flipped = (first ^ (1 << bit) for bit in range(_OFFSET_BITS))
        ends = {low, high - span} if at < len(own) or number + 1 < len(self._bases) else {low}
        if place > 0 and int(there["last"][place - 1]) + 1 == first:
            ends = {low} & {high - span}
        fitting = [each for each in flipped if low <= each and each + span <= high and each in ends]
        return any(_fits(np.array([(each, each + span)], dtype=_SPAN), held) for each in fitting)

    def _changed(self) -> dict[int, Survey]:
        changed: dict[int, Survey] = {}
        for number, base in enumerate(self._bases):
            if base not in self._came and number not in self._given:
                continue
            survey = self._survey_of(self._files[number])
            if number in self._given:
                given = sorted(self._given[number], key=lambda each: each.position)
                removed = [part for each in survey.removed for part in without_parts(each, given)]
                survey = replace(survey, removed=removed)
            if base in self._came:
                held = self._held[number]
                last = int(held["last"].max())
                survey = replace(survey, kept=self._ranges(held, number), batches=len(held), last_offset=last)
                facts = (self._aside[number][name].tolist() for name in ("position", "size", "first", "last"))
                aside = [RemovedRange(at, size, OUT_OF_SEGMENT, *ends) for at, size, *ends in zip(*facts, strict=True)]
                survey = replace(survey, removed=[*survey.removed, *aside])
            changed[base] = survey
        return changed

    def _ranges(self, batches: np.ndarray, number: int) -> list[ByteRange]:
        """Returns the byte ranges of batches, in their order; contiguous batches of one file form one range."""
        ends = batches["position"] + batches["size"]
        cuts = np.flatnonzero((batches["position"][1:] != ends[:-1]) | (np.diff(batches["file"]) != 0)) + 1
        return [
            ByteRange(
                int(part["position"][0]),
                int(part["size"].sum()),
                "" if part["file"][0] == number else self._files[int(part["file"][0])].log.name,
            )
            for part in np.split(batches, cuts)
        ]


def _is_between(batch: np.void, others: np.ndarray, at: int) -> bool:
    """True if a batch's timestamp lies between those of the batches before and at index `at`."""
    before, after = others["time"][max(at - 1, 0) : at], others["time"][at : at + 1]
    return bool((before <= batch["time"]).all() and (batch["time"] <= after).all())


def _fits(new: np.ndarray, held: np.ndarray) -> bool:
    """True if no batch of `held` shares an offset with a new one. `held` is sorted by first offset; one with a broken
    offset may reach over those that follow it."""
    reached = np.append(np.maximum.accumulate(held["last"])[::-1], -1)[::-1]
    preceding = np.searchsorted(held["first"], new["last"], side="right")
    return bool((reached[preceding] < new["first"]).all())
