"""Walks a `.log` from start to end past any damage, in bounded memory; dump, verify and statistics share it.

`SegmentScan` stops where a broker would; this continues. Bytes that are not an entry become a `Gap`, and the next good
entry is found by its checksum (`resync`). Steps, a chunk at a time:

1. Read, walk the headers, compare the checksums.
2. An entry with a wrong checksum stays in the table, marked, if its size is credible; else the chunk ends before it and
   a gap begins.
3. An entry larger than `held_bytes` is checksummed in pieces and returned without its bytes: its records are read from
   the file when they are needed.
4. If no entry begins at a position, a gap reaches to the next good one or to the end of the file. The file's name and
   the last good entry before the damage decide which offsets that entry may have: the name may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.columns import Records
from seglog.format.decoder import BatchScan, checksums_match, decode_large, decode_records, scan_batches
from seglog.kernels.batches import WALK_BAD_HEADER, WALK_BAD_SIZE
from seglog.ordered_pool import Account
from seglog.scan.listing import SegmentFiles
from seglog.scan.resync import PlausibleOffsets, entry_end, first_of_run, next_entry
from seglog.scan.segment_scan import (
    CHUNK_BYTES,
    HELD_BYTES,
    Chunks,
    EndReason,
    checksum_valid,
    declared_size,
    entry_row,
)
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import File, FileSystem

_LEAST_ROWS = 1024
_ROUND_SIZES = 4096, 1000  # one of them divides every usual segment.bytes


@dataclass(frozen=True, slots=True)
class WalkedEntries:
    """Entries of one file, in order. `valid` (bool, one an entry) marks those with a right checksum.

    `data[0]` lies at `position` of the file. `complete` is false for an entry too large to be held: `batches` has its
    header, `data` is empty. `source` opens the file.
    """

    position: int
    data: np.ndarray
    batches: np.ndarray
    valid: np.ndarray
    source: Callable[[], AbstractContextManager[File]]
    complete: bool = True

    def records(self, batches: np.ndarray | None = None, account: Account | None = None) -> Iterator[Records]:
        """Decodes the records of some entries (rows of `batches`; None: of all), as `decoder.decode_records` does."""
        rows = self.batches if batches is None else batches
        if self.complete:
            yield from decode_records(self.data, rows, self.position, account=account)
        elif len(rows):
            with self.source() as file:
                yield from decode_large(file, rows, account=account)


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that are not an entry. `zeros`: all of them are 0; `size`: the size that an entry there would declare;
    `at_end`: no good entry follows in the file.
    """

    position: int
    length: int
    reason: EndReason
    size: int
    zeros: bool
    at_end: bool

    @property
    def preallocated(self) -> bool:
        """True for zeros up to the end of a file of a round size: a broker with `preallocate` gives a new `.log` the
        size of `segment.bytes`. A power cut leaves zeros up to the end of a write, at any size.
        """
        end = self.position + self.length
        return self.zeros and self.at_end and any(end % unit == 0 for unit in _ROUND_SIZES)

    @property
    def why(self) -> str:
        """Why they are not an entry, for messages."""
        return "zeros where a batch must begin" if self.zeros else self.reason.value


class LogWalk:
    """Iterates over the pieces and gaps of `path` from byte `start` (an entry's beginning) to `end`.

    With `fresh` each piece has a buffer of its own, for consumers in threads; otherwise a piece is valid until the next
    step. `check` false skips the checksums of record batches: all count as valid. A given `file` is read instead of
    opening `path`, and stays open. `expected` is where the consumer will probably stop: a hint for reading ahead.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        start: int = 0,
        end: int | None = None,
        *,
        offsets: PlausibleOffsets | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        held_bytes: int = HELD_BYTES,
        fresh: bool = False,
        check: bool = True,
        file: File | None = None,
        expected: int | None = None,
    ) -> None:
        self._expected = expected
        self._fs, self._path, self._start, self._end = fs, path, start, end
        self._offsets = self._likely = PlausibleOffsets() if offsets is None else offsets
        self._chunk_bytes, self._held_bytes = max(chunk_bytes, 64), held_bytes
        self._fresh, self._check, self._file = fresh, check, file

    def __iter__(self) -> Iterator[WalkedEntries | Gap]:
        if self._file is not None:
            yield from self._walk_file(self._file)
            return
        with self._fs.open(self._path, "r") as file:
            if self._expected is not None:
                file.advise_wanted(self._start, self._expected - self._start)
            yield from self._walk_file(file)

    def _walk_file(self, file: File) -> Iterator[WalkedEntries | Gap]:
        size = file.size()
        yield from self._walk(file, size if self._end is None else min(self._end, size))

    def _walk(self, file: File, stop: int) -> Iterator[WalkedEntries | Gap]:
        rows = np.empty(max(_LEAST_ROWS, self._chunk_bytes // 64), dtype=layout.BATCH)
        chunks = Chunks(file, stop, self._chunk_bytes, fresh=self._fresh)
        position, least, self._likely = self._start, 0, self._offsets
        while position < stop:
            data = chunks.at(position, least)
            filled, stop = len(data), chunks.stop
            if filled == 0:
                return  # the file was cut while it was read
            found = scan_batches(data, 0, filled, position, rows)
            if self._fresh:
                found = BatchScan(found.batches.copy(), found.consumed, found.status)
            piece, damaged_at = self._piece(file, data, found, position, stop)
            if len(piece.batches):
                yield piece
            least = 0
            if damaged_at is not None:
                position, gap = self._gap(file, damaged_at, stop, int(found.batches[len(piece.batches)]["size"]))
                yield gap
            elif found.consumed or found.consumed == filled:
                position += found.consumed
            else:
                position, least = yield from self._stuck(file, data, found.status, position, stop)

    def _piece(
        self, file: File, data: np.ndarray, found: BatchScan, position: int, stop: int
    ) -> tuple[WalkedEntries, int | None]:
        """Returns the credible entries, and the position of the first one without a credible size (None: all have)."""
        batches = found.batches
        if self._check:
            valid = checksums_match(data, batches, position)
        else:
            valid = np.ones(len(batches), dtype=bool)
        for i in np.flatnonzero(~valid).tolist():
            at, size = int(batches[i]["position"]), int(batches[i]["size"])
            self._pass(batches[:i], valid[:i])
            if entry_end(file, at, size, stop, self._likely) != at + size:
                return WalkedEntries(position, data[: at - position], batches[:i], valid[:i], self._source), at
        self._pass(batches, valid)
        return WalkedEntries(position, data[: found.consumed], batches, valid, self._source), None

    def _pass(self, batches: np.ndarray, valid: np.ndarray) -> None:
        """Learns from the last good entry which offsets may follow it."""
        if not valid.any():
            return
        row, named = batches[-1 if valid[-1] else np.flatnonzero(valid)[-1]], self._offsets
        here = PlausibleOffsets.of_segment(max(0, int(row["base_offset"])))
        if named.least <= row["base_offset"] and row["last_offset"] <= named.most:
            self._likely = named
        else:
            self._likely = PlausibleOffsets(min(named.least, here.least), max(named.most, here.most))

    def _source(self) -> AbstractContextManager[File]:
        return self._fs.open(self._path, "r") if self._file is None else nullcontext(self._file)

    def _stuck(
        self, file: File, data: np.ndarray, status: int, position: int, stop: int
    ) -> Generator[WalkedEntries | Gap, None, tuple[int, int]]:
        """Handles a chunk without a whole entry at its start; returns (next position, bytes that it must hold)."""
        size = declared_size(data, 0, len(data))
        framed = status not in (WALK_BAD_SIZE, WALK_BAD_HEADER) and size > 0 and size <= stop - position
        row = entry_row(file, position, stop) if framed else None
        following = None
        if row is not None:
            # Do not allocate a hostile size: the bytes read so far must look like the start of an entry.
            if size <= min(self._held_bytes, 8 * self._chunk_bytes):
                return position, size
            right = checksum_valid(file, row[0])
            if right and size <= self._held_bytes:
                return position, size
            following = position + size if right else entry_end(file, position, size, stop, self._likely)
            if following == position + size:
                yield WalkedEntries(position, data[:0], row, np.array([right]), self._source, complete=False)
                return following, 0
        reason = _REASONS.get(status, EndReason.TRAILING)
        following, gap = self._gap(file, position, stop, size, reason, following)
        yield gap
        return following, 0

    def _gap(
        self,
        file: File,
        position: int,
        stop: int,
        size: int,
        reason: EndReason = EndReason.TRAILING,
        following: int | None = None,
    ) -> tuple[int, Gap]:
        if following is None:
            following = next_entry(file, position + 1, stop, self._likely)
            if following < stop:
                following = first_of_run(file, position + 1, following, self._likely)
        zeros = _all_zeros(file, position, following)
        return following, Gap(position, following - position, reason, size, zeros, at_end=following == stop)


def is_whole(fs: FileSystem, path: Path) -> bool:
    """True if a log holds nothing but good batches, by their checksums. Raises OSError."""
    return all(isinstance(step, WalkedEntries) and bool(step.valid.all()) for step in LogWalk(fs, path))


def walk_view(view: PartitionView) -> Iterator[tuple[SegmentFiles, WalkedEntries | Gap]]:
    """Yields the pieces and gaps of a partition's logs in order, each offset once: the replacement of a segment that
    vanished before its turn continues at the offset reached. Raises OSError.
    """
    for span in view.segments():
        for step in LogWalk(view.fs, span.segment.log):
            if isinstance(step, Gap) or not len(step.batches):
                yield span.segment, step
                continue
            wanted = step.batches["last_offset"] >= span.least_offset
            if wanted.all():
                yield span.segment, step
            elif wanted.any():
                yield span.segment, replace(step, batches=step.batches[wanted], valid=step.valid[wanted])


_REASONS = {WALK_BAD_SIZE: EndReason.BAD_SIZE, WALK_BAD_HEADER: EndReason.BAD_HEADER}


def _all_zeros(file: File, position: int, end: int) -> bool:
    while position < end:
        piece = file.read_at(position, min(CHUNK_BYTES, end - position))
        if not piece or piece.count(0) != len(piece):
            return False
        position += len(piece)
    return True
