"""Splits segments whose offsets do not fit 31 bits above their name (KAFKA-6264).

Cleaners of old brokers merged segments too far. The batches are good, and a broker splits such a segment when it starts
(Kafka: LocalLog.splitOverflowedSegment): where a batch does not fit, a new segment begins at that batch's base offset.

A batch may also seem to overflow because a bit of its base offset is broken, which the checksum does not cover. So one
overflowing batch at least must show that it does not: it continues another overflowing batch; or the next batch in the
file overflows, too, and flipping one bit of its offset would not make it continue the batch before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seglog.format.filenames import FileKind, segment_file_name
from seglog.layout import INT32_MAX, INT64_MAX
from seglog.scan.listing import SegmentFiles
from seglog.scan.resync import PlausibleOffsets
from seglog.storage.filesystem import FileSystem
from seglog.verification.segment_survey import ByteRange, Judged, SegmentSurveyor, Survey, in_ranges


@dataclass(slots=True)
class Splits:
    """Surveys of the segments that split ones become, and the number of batches that move into each, by log name.

    A segment keeps its survey under its own name, which may hold none of its batches. The ranges of the new segments
    name its file; `last` has, by the split segment's name, the name of the last segment that it becomes.
    """

    surveys: dict[str, Survey] = field(default_factory=dict)
    came: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)


def split_segments(
    fs: FileSystem, surveyor: SegmentSurveyor, segments: Sequence[SegmentFiles], suspects: Callable[[str], bool]
) -> Splits:
    """Surveys the suspect segments whose offsets overflow, and makes the empty logs of the new ones on `fs`."""
    splits = Splits()
    for i, segment in enumerate(segments):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else INT64_MAX
        parts = split_at_overflows(surveyor, segment, following - 1) if suspects(segment.log.name) else None
        for base, survey in parts or ():
            log = segment.log.with_name(segment_file_name(base, FileKind.LOG))
            splits.surveys[log.name] = survey
            splits.last[segment.log.name] = log.name
            if log != segment.log:
                splits.came[log.name] = survey.batches
                fs.open(log, "create").close()
    return splits


def split_at_overflows(surveyor: SegmentSurveyor, segment: SegmentFiles, most: int) -> list[tuple[int, Survey]] | None:
    """Returns the base offsets and surveys of the segments that a segment becomes, whose offsets reach `most`.

    The ranges of all but the segment's own survey name its file. None if no offset overflows.
    """
    base = segment.base_offset
    if most - base <= INT32_MAX:
        return None
    wide = PlausibleOffsets(base, most)
    survey = surveyor.survey(segment.log, wide)
    if survey.last_offset is None or survey.last_offset - base <= INT32_MAX:
        return None
    steps = [_columns(step) for step in surveyor.judged(segment.log, wide) if isinstance(step, Judged)]
    good = np.concatenate(steps, axis=1)
    rows = good[:, in_ranges(good[0], survey.kept)]
    rows = rows[:, np.argsort(rows[2], kind="stable")]
    if not _overflows(good, rows, base):
        return None
    parts: list[tuple[int, Survey]] = [(base, replace(survey, kept=[], batches=0, last_offset=None))]
    for at, length, low, high in rows.T.tolist():
        if high - parts[-1][0] > INT32_MAX:
            parts.append((low, Survey(0)))
        part = parts[-1][1]
        file = "" if len(parts) == 1 else segment.log.name
        if part.kept and part.kept[-1].end == at:
            part.kept[-1] = replace(part.kept[-1], length=part.kept[-1].length + length)
        else:
            part.kept.append(ByteRange(at, length, file))
        part.batches, part.last_offset = part.batches + 1, high
    return parts


def _columns(step: Judged) -> np.ndarray:
    """Returns position, size, first and last offset of the good batches, a row each."""
    good = step.bits == 0
    names = ("position", "size", "last_offset")
    position, size, last = (step.piece.batches[name][good].astype(np.int64) for name in names)
    return np.stack((position, size, step.first[good], last))


def _overflows(good: np.ndarray, kept: np.ndarray, base: int) -> bool:
    """True if one of the `kept` batches shows that offsets overflow; `good` are all good batches of the file."""
    good, kept = (rows[:, np.argsort(rows[0], kind="stable")] for rows in (good, kept))
    overflows = np.append(good[3] - base > INT32_MAX, True)
    position, _, first, last = kept
    for i in np.flatnonzero(last - base > INT32_MAX).tolist():
        if i > 0 and first[i] == last[i - 1] + 1 and last[i - 1] - base > INT32_MAX:
            return True
        following = overflows[np.searchsorted(good[0], position[i]) + 1]
        if following and not _is_one_bit_off(first, last, i):
            return True
    return False


def _is_one_bit_off(first: np.ndarray, last: np.ndarray, i: int) -> bool:
    """True if batch `i` would continue its predecessor if one bit of its offset were flipped."""
    if i == 0:
        return False
    expected, span = int(last[i - 1]) + 1, int(last[i] - first[i])
    return 1 in ((expected ^ int(first[i])).bit_count(), ((expected + span) ^ int(last[i])).bit_count())
