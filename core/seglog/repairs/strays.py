"""Good batches that lie in another segment's file than their offsets say: a repair puts them back where they belong.

Contents of two segments were exchanged, a stretch was written into the wrong file, a name that cannot be told is wrong.
The checksum of a batch does not cover its base offset, so where a batch belongs must be plain:

1. Batches of one file that follow each other and belong to one other segment are a stretch. Copies of batches that
   this segment holds stay out of account.
2. A stretch that contradicts the segment (other batches have some of its offsets, or leader epochs would fall) is of
   another log or of an older state of this one, and stays where the damage goes. So does one far after the log's end.
3. One batch alone may have a broken base offset: it stays there, too, if turning over one bit makes it fit exactly
   where it lies, unless its time, which the checksum covers, says that it was moved. Where it goes
   on from the batch before it, it has to fill what is missing where it lies.
4. Nor does a file's only own batch count, among strays, that one bit turned over makes go on from one beside it.

Memory is bounded by the batches of the files with strays and of their segments, 48 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from seglog.evidence.batch_order import ascending_chain
from seglog.evidence.segment_survey import (
    OUT_OF_SEGMENT,
    ByteRange,
    RemovedRange,
    Survey,
    judged_batches,
    without_parts,
)
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.scan.listing import SegmentFiles
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileSystem

_BATCH = np.dtype(
    [(name, np.int64) for name in ("first", "last", "size", "crc", "position", "time")]
    + [("file", np.int32), ("epoch", np.int32)],
)
_SPAN = np.dtype([("first", np.int64), ("last", np.int64)])
_FACTS = ["first", "last", "size", "crc"]
_OFFSET_BITS = 63
_FARTHEST = 1 << 20  # offsets that a cleaner leaves out between two batches, at most


SurveyOf = Callable[[SegmentFiles], Survey]


@dataclass(frozen=True, slots=True)
class Gathered:
    """`surveys` of the segments that change, by their base offsets; how many batches each of them gets (`came`)."""

    surveys: dict[int, Survey]
    came: dict[int, int]


def names_within_batches(
    fs: FileSystem, segments: Sequence[SegmentFiles], survey_of: SurveyOf, strayed: Set[int]
) -> set[int]:
    """The base offsets of files that are no segments: a good batch has the offset of the name and the one before it.

    A file of `strayed` (base offsets) that holds nothing of its own needs no more. Another one does where that batch
    is sound and the file contradicts none of those in the batch's. Sound is a batch that touches one beside it in its
    file, that begins where its file is named to, that both files have, or that is exactly what is missing between two
    segments. Where it lies in that very file, the segment before must not contradict any of the file's, either.
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
    """Whether batches of other segments may be in a file: such were found, or nothing of its own."""
    return any(each.code == OUT_OF_SEGMENT for each in survey.removed) or (survey.size > 0 and not survey.kept)


def gather(
    fs: FileSystem,
    segments: Sequence[SegmentFiles],
    survey_of: SurveyOf,
    strayed: Sequence[int],
    others: Sequence[SegmentFiles],
) -> Gathered:
    """Puts the strays in the files of `strayed` (base offsets) and in `others`, which are no segments, where they
    belong. Segments that get and give nothing are not surveyed.
    """
    return _Gathering(fs, segments, survey_of, others).gathered(strayed)


class _Gathering:
    def __init__(
        self,
        fs: FileSystem,
        segments: Sequence[SegmentFiles],
        survey_of: SurveyOf,
        others: Sequence[SegmentFiles],
    ) -> None:
        self._fs, self._files, self._survey_of = fs, [*segments, *others], survey_of
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
            waiting = left  # what came fills holes that others seemed to belong to
        return Gathered(self._changed(), self._came)

    def _bounds(self, number: int) -> tuple[int, int]:
        """The offsets that a segment can hold, both included; of another file none."""
        if number >= len(self._bases):
            return 0, -1
        following = self._bases[number + 1] - 1 if number + 1 < len(self._bases) else INT64_MAX
        return self._bases[number], min(following, self._bases[number] + INT32_MAX)

    def batches_in(self, number: int, offsets: PlausibleOffsets) -> np.ndarray:
        """The good batches in a file, whatever their offsets, in the order of their places."""
        parts = [np.zeros(0, dtype=_BATCH)]
        for rows, first in judged_batches(self._fs, self._files[number].log, offsets, anywhere=True):
            part = np.zeros(len(rows), dtype=_BATCH)
            part["first"], part["file"] = first, number
            for name in ("size", "crc", "position"):
                part[name] = rows[name]
            part["last"], part["epoch"], part["time"] = rows["last_offset"], rows["leader_epoch"], rows["max_timestamp"]
            parts.append(part)
        joined = np.concatenate(parts)
        return joined[np.argsort(joined["position"], kind="stable")]

    def has(self, number: int, batch: np.ndarray) -> bool:
        """Whether a copy of a batch is in a file."""
        found = self.batches_in(number, PlausibleOffsets(self._bases[0]))
        return bool(np.isin(batch[_FACTS], found[_FACTS]).all())

    def fills(self, before: int, after: int, batch: np.ndarray) -> bool:
        """Whether a batch is exactly what is missing between the batches of two segments."""
        begins = self._of(after)["first"]
        return before >= 0 and self.reaches(before, batch) and bool((begins == batch["last"] + 1).any())

    def reaches(self, number: int, batch: np.ndarray) -> bool:
        """Whether a batch of a file ends where another one begins."""
        return bool((self._of(number)["last"] == batch["first"] - 1).any())

    def goes_with(self, number: int, others: np.ndarray) -> bool:
        """Whether a file's own batches could stand beside `others`: copies aside, no offset is in both."""
        own = self._of(number)
        new = own[~np.isin(own[_FACTS], others[_FACTS])]
        ascending = others[np.argsort(others["first"], kind="stable")]
        return _fits(new, ascending) and int(new["size"].sum() + others["size"].sum()) <= INT32_MAX

    def _stretches(self, number: int) -> Iterator[tuple[int, np.ndarray]]:
        """(segment where it belongs, batches) of each stretch of strays in a file."""
        anywhere = PlausibleOffsets(self._bases[0], self._bounds(len(self._bases) - 1)[1])
        batches = self.batches_in(number, anywhere)
        # one with a broken offset must not part the others, nor bring them down with it
        chain = ascending_chain(batches["first"], batches["last"])
        for part in (batches[chain], batches[~chain]):
            yield from self._parted(number, part)

    def _parted(self, number: int, batches: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The stretches of some batches in a file, in the order of their places."""
        homes = np.searchsorted(self._bases, batches["first"], side="right") - 1
        ends = np.array([self._bounds(i)[1] for i in range(len(self._bases))], dtype=np.int64)
        homes[(homes >= 0) & (batches["last"] > ends[np.maximum(homes, 0)])] = -1
        gaps = batches["first"][1:] - batches["last"][:-1] - 1
        cuts = np.flatnonzero((np.diff(homes) != 0) | (gaps < 0) | (gaps > _FARTHEST)) + 1
        for stretch, of in zip(np.split(batches, cuts), np.split(homes, cuts), strict=True):
            if len(of) and of[0] not in (-1, number):
                yield int(of[0]), stretch

    def _new(self, home: int, stretch: np.ndarray) -> np.ndarray:
        """The batches of a stretch that a segment does not have; none where they contradict it (rules 1 and 2)."""
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

    def _is_sure(self, _number: int, home: int, stretch: np.ndarray) -> bool:
        """Whether these are several batches, or exactly what is missing."""
        new, held = self._new(home, stretch), self._of(home)
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
        return len(new) == 1 and not self._may_have_a_broken_offset(number, home, new[0])

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
        """The batches of a segment that stay, in the order of their offsets."""
        if number not in self._held:
            least, most = self._bounds(number)
            batches = self.batches_in(number, PlausibleOffsets(least, most))
            batches = batches[(batches["first"] >= least) & (batches["last"] <= most)]
            aside = self._accidental(number, batches)
            self._aside[number], batches = batches[aside], batches[~aside]
            found = self._survey_of(self._files[number]).kept if number < len(self._bases) else ()
            kept = sorted(found, key=lambda each: each.position)
            starts = np.array([part.position for part in kept], dtype=np.int64)
            ends = np.array([*(part.end for part in kept), 0], dtype=np.int64)
            at = np.searchsorted(starts, batches["position"], side="right") - 1
            batches = batches[(at >= 0) & (batches["position"] < ends[at])]
            self._held[number] = batches[np.argsort(batches["first"], kind="stable")]
        return self._held[number]

    def _accidental(self, number: int, own: np.ndarray) -> np.ndarray:
        """Which of a file's own batches its offset alone makes one (rule 4)."""
        every = self.batches_in(number, PlausibleOffsets(self._bases[0]))
        at = int(np.searchsorted(every["position"], int(own["position"][0]))) if len(own) == 1 else 0
        if not 0 < at < len(every) - 1:
            return np.zeros(len(own), dtype=bool)
        low, high = int(every["last"][at - 1]) + 1, int(every["first"][at + 1]) - 1
        first, span = int(own["first"][0]), int(own["last"][0] - own["first"][0])
        wrong = {first ^ low, first ^ (high - span)}
        return np.array([low + span <= high and any(each.bit_count() == 1 for each in wrong)])

    def _may_have_a_broken_offset(self, number: int, home: int, batch: np.void) -> bool:
        """Whether it lies where it belongs, but for one bit."""
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
        turned = (first ^ (1 << bit) for bit in range(_OFFSET_BITS))
        ends = {low, high - span} if at < len(own) or number + 1 < len(self._bases) else {low}
        if place > 0 and int(there["last"][place - 1]) + 1 == first:
            ends = {low} & {high - span}
        fitting = [each for each in turned if low <= each and each + span <= high and each in ends]
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
        """Where batches lie, in their order; what follows directly in one file becomes one range."""
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
    """Whether a batch's time is between those of the batches before and from index `at`."""
    before, after = others["time"][max(at - 1, 0) : at], others["time"][at : at + 1]
    return bool((before <= batch["time"]).all() and (batch["time"] <= after).all())


def _fits(new: np.ndarray, held: np.ndarray) -> bool:
    """Whether no batch of `held` has an offset of the new ones; both ascend."""
    following = np.searchsorted(held["last"], new["first"])
    firsts = np.append(held["first"], INT64_MAX)
    return bool((firsts[following] > new["last"]).all())
