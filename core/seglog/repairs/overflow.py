"""Splits segments whose offsets do not fit 31 bits above their name (KAFKA-6264).

Cleaners of old brokers merged segments too far. The batches are good, and a broker splits such a segment when it starts
(Kafka: LocalLog.splitOverflowedSegment): where a batch does not fit, a new segment begins at that batch's base offset.
A single last batch whose base offset is one bit away from its predecessor's end is damaged instead: the checksum does
not cover that field.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seglog.layout import INT32_MAX
from seglog.scan.listing import SegmentFiles
from seglog.scan.resync import PlausibleOffsets
from seglog.verification.segment_survey import ByteRange, Judged, SegmentSurveyor, Survey


def split_at_overflows(surveyor: SegmentSurveyor, segment: SegmentFiles, most: int) -> list[tuple[int, Survey]] | None:
    """Returns the base offsets and surveys of the segments that a segment becomes, whose offsets reach `most`.

    The ranges of all but the segment's own survey name its file. None if no offset overflows, or if the batches do not
    ascend, so that it takes a repair to say where they belong.
    """
    base = segment.base_offset
    if most - base <= INT32_MAX:
        return None
    wide = PlausibleOffsets(base, most)
    survey = surveyor.survey(segment.log, wide)
    if survey.moved or survey.last_offset is None or survey.last_offset - base <= INT32_MAX:
        return None
    rows = [_columns(step) for step in surveyor.judged(segment.log, wide) if isinstance(step, Judged)]
    position, size, first, last = (np.concatenate(column) for column in zip(*rows, strict=True))
    if not (first[1:] > last[:-1]).all() or _is_broken_offset(first, last, base):
        return None
    parts: list[tuple[int, Survey]] = [(base, replace(survey, kept=[], batches=0, last_offset=None))]
    for at, length, low, high in zip(position.tolist(), size.tolist(), first.tolist(), last.tolist(), strict=True):
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


def _columns(step: Judged) -> tuple[np.ndarray, ...]:
    good = step.piece.batches[step.bits == 0]
    return (
        good["position"].astype(np.int64),
        good["size"].astype(np.int64),
        step.first[step.bits == 0].copy(),
        good["last_offset"].astype(np.int64),
    )


def _is_broken_offset(first: np.ndarray, last: np.ndarray, base: int) -> bool:
    """True if only the last batch overflows, and one flipped bit of its offset explains it."""
    if len(first) < 2 or int(last[-2]) - base > INT32_MAX:
        return False
    expected, span = int(last[-2]) + 1, int(last[-1] - first[-1])
    return 1 in ((expected ^ int(first[-1])).bit_count(), ((expected + span) ^ int(last[-1])).bit_count())
