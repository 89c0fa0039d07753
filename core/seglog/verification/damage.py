"""Turns the damage that a walk meets into findings, with the offsets lost; checks the records of each batch.

The offsets lost in a gap lie between the good batches around it, so the finding waits for the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seglog import layout
from seglog.format.columns import STATUS_REASONS, TOO_LARGE, Records
from seglog.format.decoder import WRONG_CHECKSUM
from seglog.kernels.validate import judge_rows
from seglog.log.read_order import Disorder
from seglog.scan.log_walk import Gap, WalkedEntries
from seglog.scan.segment_scan import EndReason
from seglog.units import count_is, count_text
from seglog.verification.findings import Finding, finding, place_of

Preallocated = Literal["passed over", "reported", "damage"]

_UNKNOWN_OFFSET = -(2**63)  # as last offset of the batch before: any offset may follow


def with_damage(
    walk: Iterable[WalkedEntries | Gap],
    path: Path,
    base_offset: int,
    *,
    growing: bool = False,
    preallocated: Preallocated = "passed over",
) -> Iterator[WalkedEntries | Finding]:
    """Yields the pieces of a walk over `path`, each followed by the findings on its damaged batches and on gaps.

    `base_offset` is the segment's; offsets below it cannot be lost there. A `growing` file may end within a batch, or
    with zeros that a broker allocated for the next batches. `preallocated` is how the zeros of a preallocated file are
    taken that no broker writes any more: passed over, reported as such, or as damage.
    """
    last_offset = base_offset - 1
    waiting: Gap | None = None
    for step in walk:
        if isinstance(step, Gap):
            waiting = step
            continue
        good = step.batches[step.valid]
        if waiting is not None:
            following = int(good["base_offset"][0]) if len(good) else None
            yield gap_finding(waiting, path, last_offset, following)
            waiting = None
        yield step
        if not step.valid.all():
            yield from _checksum_findings(step, path, last_offset)
        if len(good):
            last_offset = max(last_offset, int(good["last_offset"].max()))
    if waiting is None or (growing and (waiting.zeros or waiting.reason is EndReason.TRAILING)):
        return
    if not waiting.preallocated or preallocated == "damage":
        yield gap_finding(waiting, path, last_offset, None)
    elif preallocated == "reported":
        message = f"{waiting.length} preallocated zero bytes follow the last batch; no record is in them"
        where: dict[str, Any] = {"position": waiting.position, "length": waiting.length}
        yield finding("LOG_PREALLOCATED", *place_of(path), message, **where)


def gap_finding(gap: Gap, path: Path, last_offset: int, next_offset: int | None) -> Finding:
    """Returns the finding on bytes that are not a batch, after a batch that ends with `last_offset`."""
    first = last = None
    lost = 0
    if next_offset is not None and next_offset > last_offset + 1:
        first, last, lost = last_offset + 1, next_offset - 1, next_offset - 1 - last_offset
    elif gap.at_end:
        first = last_offset + 1
    where: dict[str, Any] = {
        "position": gap.position,
        "length": gap.length,
        "first_offset": first,
        "last_offset": last,
    }
    place = place_of(path)
    follows = "no good batch follows" if gap.at_end else "a good batch follows"
    code = gap_code(gap)
    if code == "TORN_TAIL":
        size = f" of the {gap.size} that the batch declares" if gap.size > 0 else ""
        return finding(
            code, *place, f"the file ends within a batch, after {count_text(gap.length, 'byte')}{size}", **where
        )
    if code == "ZERO_BYTES":
        message = f"{gap.length} zero bytes lie where a batch should begin; {follows}"
    else:
        message = f"{count_is(gap.length, 'byte')} not a batch ({gap.reason.value}); {follows}"
    return finding(code, *place, message, offsets_lost=lost, **where)


def gap_code(gap: Gap) -> str:
    """Returns the code of the finding on bytes that are not a batch."""
    if gap.zeros:
        return "ZERO_BYTES"
    return "TORN_TAIL" if gap.at_end and gap.reason is EndReason.TRAILING else "UNREADABLE_BYTES"


def _checksum_findings(piece: WalkedEntries, path: Path, last_offset: int) -> Iterator[Finding]:
    for i in np.flatnonzero(~piece.valid).tolist():
        row = piece.batches[i]
        before, after = piece.batches[:i][piece.valid[:i]], piece.batches[i:][piece.valid[i:]]
        previous = int(before["last_offset"][-1]) if len(before) else last_offset
        following = int(after["base_offset"][0]) if len(after) else None
        first, last = int(row["base_offset"]), int(row["last_offset"])
        if not (previous < first <= last and (following is None or last < following)):
            first, last = previous + 1, previous if following is None else following - 1
        known = first <= last
        yield batch_finding(
            "CRC_MISMATCH",
            place_of(path),
            f"{WRONG_CHECKSUM} (stored {int(row['crc'])})",
            row,
            first_offset=first if known else None,
            last_offset=last if known else None,
            offsets_lost=last - first + 1 if known else 0,
        )


def batch_finding(code: str, place: tuple[str, str], message: str, row: np.void, **fields: Any) -> Finding:
    """Returns a finding on a batch (a `row` of headers), with its bytes and declared offsets unless `fields` override
    them. `place` is the partition and the file.
    """
    where = {"position": int(row["position"]), "length": int(row["size"])}
    offsets = {"first_offset": int(row["base_offset"]), "last_offset": int(row["last_offset"])}
    return finding(code, *place, message, **{**where, **offsets, **fields})


def record_findings(records: Records, valid: np.ndarray, path: Path) -> Iterator[Finding]:
    """Yields findings on batches whose checksum is right (`valid`, one per batch of `records`) but whose records are
    not. A batch that comes in parts is reported with its last part.
    """
    if records.rows_after:
        return
    for i in np.flatnonzero((records.status != 0) & valid).tolist():
        row, status = records.batches[i], int(records.status[i])
        readable = records.rows_before + int(np.count_nonzero(records.rows["batch"] == i))
        yield batch_finding(
            "BATCH_TOO_LARGE_TO_DECODE" if status in TOO_LARGE else "RECORDS_INVALID",
            place_of(path),
            f"{STATUS_REASONS[status]}; {count_text(readable, 'record')} of the batch can be read",
            row,
            offsets_lost=max(0, int(row["last_offset"]) - int(row["base_offset"]) + 1 - readable),
        )


def disorder_finding(disorder: Disorder) -> Finding:
    """Returns the finding on a segment whose offsets do not ascend."""
    return finding(
        "OFFSETS_NOT_ASCENDING",
        *place_of(disorder.path),
        disorder.fault,
        position=disorder.position,
        first_offset=disorder.offset,
    )


class RowRules:
    """Judges the records of each batch (`kernels.validate.judge_rows`), in the order in which a decoder yields them."""

    def __init__(self) -> None:
        self._next = 0  # the least offset at which the next part of a batch may begin
        self._bits = 0

    def judge(self, records: Records, last_offset: int = _UNKNOWN_OFFSET) -> np.ndarray:
        """Returns the rules (`kernels.validate`) that each batch breaks, int64; for one in parts, with its last part.

        `last_offset` is that of the batch before, which messages of magic 0 and 1 must exceed.
        """
        bits = np.zeros(len(records.batches), dtype=np.int64)
        if not records.rows_before and not records.rows_after:
            judge_rows(records.rows, records.batches, records.status, last_offset, bits)
            return bits
        row = records.batches.copy()
        row["count"] = len(records.rows)  # the decoder has checked the count of the whole batch
        if records.rows_before:
            row["base_offset"], last_offset = self._next, self._next - 1
        else:
            self._bits = 0
        judge_rows(records.rows, row, records.status, last_offset, bits)
        self._next = min(int(records.rows["offset"][-1]), layout.INT64_MAX - 1) + 1
        self._bits |= int(bits[0])
        bits[0] = 0 if records.rows_after else self._bits
        return bits
