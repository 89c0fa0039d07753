"""Decodes a batch that is too large to be held, in windows of whole records.

1. The payload is expanded piece by piece into a window; the whole records in it are one part. A record larger than a
   window gets a window of its own, as large as its length says.
2. A first pass keeps nothing. It finds out how the batch ends, and where the relative offsets of a wrapper begin.
3. A second pass yields the records. Every part says how many records come before and after it, and has the batch's
   final status.

The parts together are what `decoder.decode_records` returns for a small batch: the same rows, the same status. Each
window has memory of its own, which the caller may keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from seglog import layout
from seglog.errors import UnsupportedError
from seglog.format.checksum import byte_view
from seglog.format.columns import Records
from seglog.format.compression import expanded, is_known_codec
from seglog.format.payloads import DecompressionError, Expansion, Payload
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

# Large enough that the cost per window does not matter; few enough records that a table of rows stays small.
WINDOW_BYTES = 4 << 20
WINDOW_ROWS = 1 << 16
# The largest record that is read: its bytes, and a copy of them, must fit a process of 400 MiB.
RECORD_LIMIT = 128 << 20
# The largest batch that is held whole, in order to write it anew.
WHOLE_LIMIT = 128 << 20
# The most bytes that a batch may expand to: Kafka's writers count them in 31 bits before compressing.
EXPANDED_LIMIT = layout.INT32_MAX

_ENDLESS = layout.INT32_MAX


def too_large_to_rewrite(path: Path, row: np.void) -> UnsupportedError:
    """Returns the error for a batch (layout.BATCH) beyond WHOLE_LIMIT that would have to be held whole."""
    return UnsupportedError(
        f"{path}: position {row['position']}: the batch of {row['size']} bytes with offsets {row['base_offset']} to"
        f" {row['last_offset']} is, or expands to, more than {WHOLE_LIMIT >> 20} MiB, too large to be rewritten"
    )


class BadRecords(Exception):
    """A batch's records are not valid; `status` is that of `kernels.records`."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class _Survey:
    """The result of the first pass. `base_offset` is added to the offsets of a wrapper's messages."""

    status: int = RECORDS_VALID
    records: int = 0
    base_offset: int = 0


class LargeBatch:
    """One batch or wrapper. `row` is its table of one row (layout.BATCH).

    `payload` opens its payload from the start; for a payload already expanded in memory, `in_memory` is (data, start,
    end) instead. `number` is the batch's index in the table that is being decoded, and `limit` bounds its expansion.
    The memory held is charged to `account`.
    """

    def __init__(
        self,
        row: np.ndarray,
        payload: Callable[[], Payload] | None = None,
        *,
        in_memory: tuple[np.ndarray, int, int] | None = None,
        number: int = 0,
        limit: int = EXPANDED_LIMIT,
        account: Account | None,
    ) -> None:
        self._row, self._open, self._in_memory, self._number, self._limit = row, payload, in_memory, number, limit
        self._account = account or unlimited()
        self._codec = int(row[0]["attributes"]) & layout.CODEC_MASK
        self._magic = int(row[0]["magic"])
        self._is_legacy = self._magic < 2

    def parts(self) -> Iterator[Records]:
        """Yields the records in parts; if there are none, one part without rows."""
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
        """Yields the payload of a batch of magic 2 in windows of whole records, in a single pass.

        Raises BadRecords where a window would hold an invalid record, or if the batch does not end as it should, and
        DecompressionError.
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

    # --- first pass -------------------------------------------------------------------------------------------

    def _survey(self) -> _Survey:
        if not is_known_codec(self._codec, self._magic):
            return _Survey(CODEC_UNKNOWN)
        try:
            with self._windows() as windows:
                return self._wrapped(windows) if self._is_legacy else self._counted(windows)
        except DecompressionError as error:
            return _Survey(DECOMPRESSION_TOO_LARGE if error.too_large else DECOMPRESSION_FAILED)

    def _counted(self, windows: _Windows) -> _Survey:
        """Surveys a batch of magic 2, whose header states the number of records."""
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
        """Surveys a wrapper of magic 0 or 1, whose messages fill the whole expansion."""
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
                return _Survey(survey.status)  # without the last message, the offsets of the others are unknown
            own = int(self._row[0]["last_offset"])
            if own != 0 and own < last:
                return _Survey(OFFSET_INVALID)
            if own != 0:  # old versions of librdkafka left it at 0
                survey.base_offset = int((self._row["last_offset"] - last)[0])  # wraps, as in Kafka
        return survey

    # --- decoding ---------------------------------------------------------------------------------------------

    def _windows(self) -> _Windows:
        count = _ENDLESS if self._is_legacy else int(self._row[0]["count"])
        cut = legacy.whole_entries if self._is_legacy else whole_records
        if self._in_memory is not None:
            return _Windows(None, count, cut, self._limit, self._account, self._in_memory)
        assert self._open is not None
        return _Windows(expanded(self._codec, self._open(), self._magic), count, cut, self._limit, self._account)

    def _decoded(self, window: Window) -> tuple[np.ndarray, int]:
        """Returns the rows of a window, up to a bad one, and the status; a wrapper's rows keep their inner offsets."""
        row = self._row.copy()
        row["count"] = window.records
        if self._is_legacy:
            row["magic"] = 0  # whose inner offsets are absolute
        rows = np.empty(window.records, dtype=layout.RECORD)
        status = np.zeros(1, dtype=np.int8)
        spans = np.array([window.start], dtype=np.int64), np.array([window.end], dtype=np.int64)
        filled = kernels.decode_batches(window.arena, *spans, row, rows, status)
        return rows[:filled], int(status[0])

    def _finish_wrapped(self, arena: np.ndarray, rows: np.ndarray, base_offset: int) -> None:
        """Sets the absolute offsets of a wrapper's messages, and its append time on those of magic 1."""
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
    """Iterates over the windows of an expansion, until it has `count` records or no whole record follows.

    If the payload lies expanded in memory (`in_memory`), there is no expansion. At the end of the `with` block, the
    account gets back everything taken from it.
    """

    def __init__(
        self,
        expansion: Expansion | None,
        count: int,
        cut: Callable[[np.ndarray, int, int, int], tuple[int, int, int]],
        limit: int,
        account: Account,
        in_memory: tuple[np.ndarray, int, int] | None = None,
    ) -> None:
        self._account, self._taken, self._window_bytes = account, 0, 0
        self._expansion, self._left, self._cut, self._limit = expansion, count, cut, limit
        self._arena, self._start, self._end = in_memory or (np.zeros(0, dtype=np.uint8), 0, 0)
        self._read = self._end - self._start
        self._large_end = 0  # where a record beyond RECORD_LIMIT would end
        self.is_broken = False  # a record has an impossible length

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
        """True if bytes follow the last record."""
        if self._start == self._end and self._expansion is not None:
            self._fill(WINDOW_BYTES)
        return self._start < self._end

    def drained(self) -> int:
        """Reads to the end; returns the total of expanded bytes. Raises `DecompressionError` for damage on the way."""
        while self._expansion is not None:
            self._start = self._end
            self._fill(WINDOW_BYTES)
        return self._read

    @property
    def too_large(self) -> bool:
        """True, once drained, if a record beyond RECORD_LIMIT ended the iteration and all its bytes are there."""
        return 0 < self._large_end <= self._read

    def _fill(self, size: int) -> None:
        """Begins a window of `size` bytes with the rest of the current one."""
        assert self._expansion is not None
        rest = self._end - self._start
        # this window, which the caller may still use, the next one, rows, and the bytes held by the expansion
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
            self._expansion = None  # the end
