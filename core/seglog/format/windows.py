"""The records of one batch that is too large to be held: windows of whole records, each decoded by itself.

1. Expand the payload piece by piece into a window; what of it is whole records is one part. A record that is larger
   than a window gets one of its own, as large as its length says.
2. Go through all of it once without keeping anything: only then is known how the batch ends, and where the relative
   offsets of a wrapper begin.
3. Go through it again and give the records. Every part tells how many come before and after it, and the status that
   the batch has in the end.

The parts of a batch are what `decoder.decode_records` gives where the batch is small: the same rows, the same status. A
window is given away; what follows it has memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from seglog import layout
from seglog.errors import UnsupportedError
from seglog.format.buffers import byte_view
from seglog.format.columns import Records
from seglog.format.compression import DecompressionError, is_known_codec
from seglog.format.expanding import Expansion, Payload, expanded
from seglog.kernels import decode as kernels
from seglog.kernels import legacy
from seglog.kernels.records import (
    CODEC_UNKNOWN,
    COUNT_INVALID,
    DECOMPRESSION_FAILED,
    DECOMPRESSION_TOO_LARGE,
    ENTRY_INVALID,
    LEAST_RECORD_SIZE,
    LENGTH_INVALID,
    OFFSET_INVALID,
    RECORD_TOO_LARGE,
    RECORDS_VALID,
    TRAILING_BYTES,
    whole_records,
)
from seglog.ordered_pool import Account, unlimited

# Enough that what is done once a window costs nothing beside it, and records enough that a table stays small.
WINDOW_BYTES = 4 << 20
WINDOW_ROWS = 1 << 16
# The largest record that is read: its bytes, and a copy where somebody makes one, must fit a process of 400 MiB.
RECORD_LIMIT = 128 << 20
# The most of a batch that is held by those who must have it whole, to write it anew.
WHOLE_LIMIT = 128 << 20
# The most that a batch may expand to: Kafka's writers count a batch's bytes in 31 bits before they compress it.
EXPANDED_LIMIT = layout.INT32_MAX

_ENDLESS = layout.INT32_MAX


def too_large_to_rewrite(path: Path, row: np.void) -> UnsupportedError:
    """The refusal of a batch (layout.BATCH) beyond WHOLE_LIMIT by those who must have it whole."""
    return UnsupportedError(
        f"{path}: position {row['position']}: the batch of {row['size']} bytes with offsets {row['base_offset']} to"
        f" {row['last_offset']} is, or expands to, more than {WHOLE_LIMIT >> 20} MiB: too large to be written anew"
    )


class BadRecords(Exception):
    """A batch's records end with a `status` of `kernels.records`."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class _Survey:
    """What going through a batch once has shown. `base_offset` is added to the offsets of a wrapper's messages."""

    status: int = RECORDS_VALID
    records: int = 0
    base_offset: int = 0


class LargeBatch:
    """One batch or wrapper. `row` is its table of one row (layout.BATCH); `payload` opens its payload from the start.

    `lying` is (data, start, end) instead, where the payload lies expanded in memory. `number` is the batch's place in
    the table that is being decoded; `limit` bounds what it expands to. What is held counts in `account`.
    """

    def __init__(
        self,
        row: np.ndarray,
        payload: Callable[[], Payload] | None = None,
        *,
        lying: tuple[np.ndarray, int, int] | None = None,
        number: int = 0,
        limit: int = EXPANDED_LIMIT,
        account: Account | None,
    ) -> None:
        self._row, self._open, self._lying, self._number, self._limit = row, payload, lying, number, limit
        self._account = account or unlimited()
        self._codec = int(row[0]["attributes"]) & layout.CODEC_MASK
        self._magic = int(row[0]["magic"])
        self._is_legacy = self._magic < 2

    def parts(self) -> Iterator[Records]:
        """The records in parts; one without rows where there are none."""
        survey = self._survey()
        status = np.array([survey.status], dtype=np.int8)
        given = 0
        if survey.records:
            with self._windows() as windows:
                for window in windows:
                    rows, _ = self._decoded(window)
                    rows = rows[: survey.records - given]
                    if self._is_legacy:
                        self._finish_wrapped(window.arena, rows, survey.base_offset)
                    left = survey.records - given - len(rows)
                    yield Records(window.arena, rows, self._row, status, self._number, given, left)
                    given += len(rows)
                    if not left:
                        return
        if not given:
            yield Records.without_rows(self._row, survey.status, self._number)

    def payloads(self) -> Iterator[Window]:
        """The payload of a batch of magic 2 in windows of whole records, in one go: how it ends shows only then.

        Raises BadRecords in place of the window that would hold a record that cannot be, DecompressionError.
        """
        count, given = int(self._row[0]["count"]), 0
        with self._windows() as windows:
            for window in windows:
                given += window.records
                yield window
            trailing = count > 0 and windows.rest()
            windows.drained()
        if count < 0:
            raise BadRecords(COUNT_INVALID)
        if given < count:
            raise BadRecords(LENGTH_INVALID)
        if trailing:
            raise BadRecords(TRAILING_BYTES)

    # --- what it holds, and how it ends -----------------------------------------------------------------------

    def _survey(self) -> _Survey:
        if not is_known_codec(self._codec, self._magic):
            return _Survey(CODEC_UNKNOWN)
        try:
            with self._windows() as windows:
                return self._wrapped(windows) if self._is_legacy else self._counted(windows)
        except DecompressionError as error:
            return _Survey(DECOMPRESSION_TOO_LARGE if error.too_large else DECOMPRESSION_FAILED)

    def _counted(self, windows: _Windows) -> _Survey:
        """Of a batch of magic 2, whose header tells how many records there are."""
        count = int(self._row[0]["count"])
        if count == 0:
            return _Survey()
        survey = _Survey()
        for window in windows:
            rows, survey.status = self._decoded(window)
            survey.records += len(rows)
            if survey.status != RECORDS_VALID:
                break
        trailing = windows.rest()
        if count < 0 or count * LEAST_RECORD_SIZE > windows.drained():
            return _Survey(COUNT_INVALID)
        if survey.status == RECORDS_VALID and survey.records < count:
            survey.status = RECORD_TOO_LARGE if windows.too_large else LENGTH_INVALID
        elif survey.status == RECORDS_VALID and trailing:
            survey.status = TRAILING_BYTES
        return survey

    def _wrapped(self, windows: _Windows) -> _Survey:
        """Of a wrapper of magic 0 or 1, whose messages go on to the end of what it expands to."""
        survey, last = _Survey(), 0
        for window in windows:
            rows, survey.status = self._decoded(window)
            survey.records += len(rows)
            if len(rows):
                last = int(rows["offset"][-1])
            if survey.status != RECORDS_VALID:
                break
        windows.drained()
        if self._magic < 0:
            return _Survey(ENTRY_INVALID)
        if survey.status == RECORDS_VALID and windows.too_large:
            survey.status = RECORD_TOO_LARGE
        elif survey.status == RECORDS_VALID and (windows.is_broken or not survey.records):
            survey.status = ENTRY_INVALID
        if self._magic == 1:
            if survey.status != RECORDS_VALID:
                return _Survey(survey.status)  # without the last message nobody knows the offsets of the others
            own = int(self._row[0]["last_offset"])
            if own != 0 and own < last:
                return _Survey(OFFSET_INVALID)
            if own != 0:  # an old librdkafka left it at 0
                survey.base_offset = int((self._row["last_offset"] - last)[0])  # wraps, as Kafka's
        return survey

    # --- decoding ---------------------------------------------------------------------------------------------

    def _windows(self) -> _Windows:
        count = _ENDLESS if self._is_legacy else int(self._row[0]["count"])
        cut = legacy.whole_entries if self._is_legacy else whole_records
        if self._lying is not None:
            return _Windows(None, count, cut, self._limit, self._account, self._lying)
        assert self._open is not None
        return _Windows(expanded(self._codec, self._open(), self._magic), count, cut, self._limit, self._account)

    def _decoded(self, window: Window) -> tuple[np.ndarray, int]:
        """The rows of a window, up to a bad one, and the status; those of a wrapper as they lie in it."""
        row = self._row.copy()
        row["count"] = window.records
        if self._is_legacy:
            row["magic"] = 0  # whose offsets stand for themselves
        rows = np.empty(window.records, dtype=layout.RECORD)
        status = np.zeros(1, dtype=np.int8)
        spans = np.array([window.start], dtype=np.int64), np.array([window.end], dtype=np.int64)
        filled = kernels.decode_batches(window.arena, *spans, row, rows, status)
        return rows[:filled], int(status[0])

    def _finish_wrapped(self, arena: np.ndarray, rows: np.ndarray, base_offset: int) -> None:
        """Gives the messages of a wrapper their offsets, and its append time to those of magic 1."""
        rows["offset"] += base_offset
        if self._magic == 1 and int(self._row[0]["attributes"]) & layout.TIMESTAMP_TYPE_MASK:
            stamp = int(self._row[0]["max_timestamp"])
            if stamp > -1:
                rows["timestamp"][arena[rows["position"] + layout.MAGIC_OFFSET] == 1] = stamp


@dataclass(frozen=True, slots=True)
class Window:
    """`records` whole records in `arena[start:end]`."""

    arena: np.ndarray
    start: int
    end: int
    records: int


class _Windows:
    """Iterates over the windows of an expansion, until `count` records have come or no whole one follows.

    `lying` is where everything lies already; then there is no expansion. What was taken from the account is given back
    at the end of the `with`.
    """

    def __init__(
        self,
        expansion: Expansion | None,
        count: int,
        cut: Callable[[np.ndarray, int, int, int], tuple[int, int, int]],
        limit: int,
        account: Account,
        lying: tuple[np.ndarray, int, int] | None = None,
    ) -> None:
        self._account, self._taken, self._window_bytes = account, 0, 0
        self._expansion, self._left, self._cut, self._limit = expansion, count, cut, limit
        self._arena, self._start, self._end = lying or (np.zeros(0, dtype=np.uint8), 0, 0)
        self._read = self._end - self._start
        self._large_end = 0  # where a record would end that is larger than any that is read
        self.is_broken = False  # a length that no record can have

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._account.give(self._taken)
        self._taken = 0

    def __iter__(self) -> Iterator[Window]:
        while self._left > 0:
            most = min(self._left, WINDOW_ROWS)
            cut, records, wanted = self._cut(self._arena, self._start, self._end, most)
            if records:
                window = Window(self._arena, self._start, int(cut), int(records))
                self._start, self._left = window.end, self._left - window.records
                yield window
            elif wanted < 0:
                self.is_broken = True
                return
            elif self._expansion is None:
                return
            elif wanted > RECORD_LIMIT:
                self._large_end = self._read - (self._end - self._start) + int(wanted)
                return
            else:
                self._fill(max(WINDOW_BYTES, int(wanted)))

    def rest(self) -> bool:
        """Whether bytes follow the last record."""
        if self._start == self._end and self._expansion is not None:
            self._fill(WINDOW_BYTES)
        return self._start < self._end

    def drained(self) -> int:
        """How many bytes the payload expands to in all; damage at its end raises `DecompressionError`."""
        while self._expansion is not None:
            self._start = self._end
            self._fill(WINDOW_BYTES)
        return self._read

    @property
    def too_large(self) -> bool:
        """Once drained: whether a record ended it that is larger than any that is read, and is there."""
        return 0 < self._large_end <= self._read

    def _fill(self, size: int) -> None:
        """A window of `size` bytes that begins with what is left of this one."""
        assert self._expansion is not None
        rest = self._end - self._start
        # this window, which somebody may still look at, the next one, rows, and what the expansion holds
        wanted = self._window_bytes + size + WINDOW_ROWS * layout.RECORD.itemsize + self._expansion.held_bytes
        if wanted > self._taken:
            self._account.take(wanted - self._taken)
            self._taken = wanted
        self._window_bytes = size
        arena = np.empty(size, dtype=np.uint8)
        arena[:rest] = self._arena[self._start : self._end]
        got = self._expansion.read_into(byte_view(arena)[rest:])
        self._arena, self._start, self._end = arena, 0, rest + got
        self._read += got
        if self._read > self._limit:
            raise DecompressionError(f"the records expand to more than {self._limit} bytes", too_large=True)
        if self._end < size:
            self._expansion = None  # that was all
