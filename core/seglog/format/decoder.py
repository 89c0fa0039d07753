"""Decodes bytes into columns, for dump, verify, clean, read, search, statistics and Spark alike.

1. `scan_batches` turns a buffer into a table of batch headers.
2. `checksums` computes every batch's checksum, `checksums_match` compares them with the stored ones.
3. `decode_records` turns batches into records. Uncompressed batches are decoded in place. If one is compressed, all
   payloads go into one arena, so that the rest is the same for every codec and magic.

Memory is bounded, whatever a batch claims or expands to: a batch that exceeds the arena or the table of rows comes in
parts (`windows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from seglog import layout
from seglog.errors import CorruptionError, CorruptRecordError
from seglog.format import checksum
from seglog.format.checksum import byte_view
from seglog.format.columns import Records
from seglog.format.compression import decompress_into, is_known_codec
from seglog.format.payloads import DecompressionError, FilePayload, MemoryPayload, ReadInto
from seglog.format.windows import EXPANDED_LIMIT, RECORD_LIMIT, LargeBatch
from seglog.format.zstd_library import zstd_slots
from seglog.kernels import crc32c, legacy
from seglog.kernels import decode as kernels
from seglog.kernels.batches import walk_batches
from seglog.kernels.records import (
    CODEC_UNKNOWN,
    DECOMPRESSION_FAILED,
    ENTRY_INVALID,
    RECORD_TOO_LARGE,
    RECORDS_VALID,
)
from seglog.kernels.runs import decompress_run
from seglog.ordered_pool import Account, unlimited

# The most records held at once: the expanded bytes of a run of batches, and a table of rows (56 bytes each).
ARENA_BYTES = 16 << 20
ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True, slots=True)
class BatchScan:
    """The `batches` (layout.BATCH) of a buffer, the index after the last whole one, and the walk's status (WALK_*)."""

    batches: np.ndarray
    consumed: int
    status: int


def scan_batches(
    data: np.ndarray, start: int, end: int, file_position: int, rows: np.ndarray | None = None
) -> BatchScan:
    """Returns the entries of `data[start:end]`, whose first byte lies at `file_position` of the file.

    If given, `rows` is the table to fill, which limits the number of entries; it is reused, not copied.
    """
    table = np.empty(max(1, (end - start) // legacy.LEAST_ENTRY + 1), layout.BATCH) if rows is None else rows
    found, consumed, status = walk_batches(data, start, end, file_position, table)
    return BatchScan(table[:found], consumed, status)


def checksums(data: np.ndarray, batches: np.ndarray, file_position: int) -> np.ndarray:
    """Computes the checksum of each batch's bytes (int64; -1 if they are not all in `data`)."""
    computed = np.empty(len(batches), dtype=np.int64)
    if crc32c.HARDWARE:
        crc32c.batch_checksums(data, batches, file_position, computed)
    else:
        _library_checksums(data, batches, file_position, computed)
    if len(batches) and batches["magic"].min() < 2:
        legacy.message_checksums(data, batches, file_position, computed)
    return computed


def _library_checksums(data: np.ndarray, batches: np.ndarray, file_position: int, out: np.ndarray) -> None:
    starts = batches["position"] - file_position
    ends = starts + batches["size"]
    view = byte_view(data)
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        inside = start >= 0 and end <= len(data) and end - start >= layout.ATTRIBUTES_OFFSET
        out[i] = checksum.crc32c(view[start + layout.ATTRIBUTES_OFFSET : end]) if inside else -1


def control_batches(batches: np.ndarray) -> np.ndarray:
    """Returns which batches (rows of layout.BATCH) are control batches, which no consumer gets (bool)."""
    control: np.ndarray = (batches["magic"] >= 2) & ((batches["attributes"] & layout.CONTROL_MASK) != 0)
    return control


def checksums_match(data: np.ndarray, batches: np.ndarray, file_position: int) -> np.ndarray:
    """Returns True for each batch whose stored checksum equals the computed one."""
    matching: np.ndarray = checksums(data, batches, file_position) == batches["crc"]
    return matching


WRONG_CHECKSUM = "the checksum of the batch is wrong"


ErrorT = TypeVar("ErrorT", bound=CorruptionError)


def wrong_checksum(path: Path | str, row: np.void, advice: str = "") -> CorruptRecordError:
    """Returns the error of a batch (layout.BATCH) whose checksum does not match."""
    return batch_error(CorruptRecordError, path, WRONG_CHECKSUM + advice, row)


def batch_error(kind: type[ErrorT], path: Path | str, reason: str, row: np.void) -> ErrorT:
    """Returns the error of a batch (layout.BATCH), with its place and offsets."""
    return kind(path, reason, int(row["position"]), int(row["base_offset"]), int(row["last_offset"]))


def decode_records(
    data: np.ndarray,
    batches: np.ndarray,
    file_position: int,
    *,
    limit: int = EXPANDED_LIMIT,
    arena_bytes: int = ARENA_BYTES,
    account: Account | None = None,
) -> Iterator[Records]:
    """Decodes `batches`, whose bytes are in `data` (first byte at `file_position`), in order.

    Yields `Records` of runs of batches that have at most ROWS_AT_ONCE records and, if compressed, expand to at most
    about `arena_bytes`. A single batch that exceeds either comes in parts (`windows`). A batch that expands to more
    than `limit` gets a status. The memory held until the next step is charged to `account`.
    """
    if len(batches) == 0:
        return
    run = _BatchRun(data, batches, file_position, limit, arena_bytes, account)
    yield from run.expanded() if run.compressed else run.in_place()


def decode_large(
    file: ReadInto, row: np.ndarray, *, limit: int = EXPANDED_LIMIT, account: Account | None = None
) -> Iterator[Records]:
    """Decodes the batch or message in a table of one row, reading it from its file piece by piece."""
    account = account or unlimited()
    position, size, magic = (int(row[0][name]) for name in ("position", "size", "magic"))
    if magic >= 2:
        position, size = position + layout.RECORD_BATCH_OVERHEAD, size - layout.RECORD_BATCH_OVERHEAD
    elif not int(row[0]["attributes"]) & layout.CODEC_MASK:
        yield from _plain_message(file, row, account)
        return
    else:
        span = _wrapped_span(file, row[0])
        if span is None:
            yield Records.without_rows(row, ENTRY_INVALID)
            return
        position, size = span
    yield from LargeBatch(row, lambda: FilePayload(file, position, size), limit=limit, account=account).parts()


def _plain_message(file: ReadInto, row: np.ndarray, account: Account) -> Iterator[Records]:
    """Decodes a message of magic 0 or 1, a single record, unless it is too large."""
    size = int(row[0]["size"])
    if size > RECORD_LIMIT:
        yield Records.without_rows(row, RECORD_TOO_LARGE)
        return
    account.take(size)
    data = np.empty(size, dtype=np.uint8)
    filled = file.read_into(int(row[0]["position"]), byte_view(data))
    yield from decode_records(data[:filled], row, int(row[0]["position"]))
    account.give(size)


def _wrapped_span(file: ReadInto, row: np.void) -> tuple[int, int] | None:
    """Returns (position, size) of a wrapper's value in the file, or None if its fields leave it."""
    position, end = int(row["position"]), int(row["position"]) + int(row["size"])
    at = position + (layout.MESSAGE_V0_KEY_SIZE_OFFSET if row["magic"] == 0 else layout.MESSAGE_V1_KEY_SIZE_OFFSET)
    field = memoryview(bytearray(layout.MESSAGE_SIZE_BYTES))
    for is_value in (False, True):
        if end - at < len(field) or file.read_into(at, field) < len(field):
            return None
        size = int.from_bytes(field, "big", signed=True)
        at += len(field)
        if size > end - at or (is_value and size < 0):
            return None
        if is_value:
            return at, size
        at += max(size, 0)
    return None


class _BatchRun:
    """Batches to decode: the spans of their payloads, and the steps from runs of them to `Records`."""

    def __init__(
        self,
        data: np.ndarray,
        batches: np.ndarray,
        file_position: int,
        limit: int,
        arena_bytes: int,
        account: Account | None,
    ) -> None:
        count = len(batches)
        self.data, self.batches, self.account = data, batches, account
        self.limit, self.arena_bytes = limit, arena_bytes
        self.starts, self.ends = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        self.status = np.empty(count, dtype=np.int8)
        self.compressed = kernels.payload_spans(data, batches, file_position, self.starts, self.ends, self.status)
        self._held = 0  # bytes of the arena

    def _take(self, size: int) -> None:
        if self.account is not None:
            self.account.take(size)

    def _give(self, size: int) -> None:
        if self.account is not None:
            self.account.give(size)

    def _codec(self, i: int) -> int:
        return int(self.batches[i]["attributes"]) & layout.CODEC_MASK

    def in_place(self) -> Iterator[Records]:
        """Yields all records, decoded in place."""
        return self._decoded(self.data, self.starts, self.ends, 0, len(self.batches))

    def expanded(self) -> Iterator[Records]:
        """Yields all records; expands the payloads into one arena after another."""
        first = 0
        while first < len(self.batches):
            arena, ends = self._arena(first)
            until = first + len(ends)
            if until == first:
                yield from self._large(first)
                until += 1
            else:
                starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
                yield from self._decoded(arena, starts, ends, first, until)
            self._give(self._held)
            first = until

    def _arena(self, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Expands batches from `first` on, until the arena is full or one does not fit: (arena, payload ends)."""
        last = len(self.batches)
        compressed = int((self.ends[first:last] - self.starts[first:last]).sum())
        arena = self._empty(min(max(4096, 4 * compressed), self.arena_bytes))
        bounds = np.zeros(last, dtype=np.int64)  # where each batch's payload ends in the arena
        until, end = first, 0
        while until < last and (until == first or end < self.arena_bytes):
            reached, end = self._expand_run(until, last, arena, end, bounds)
            if reached == until:  # another codec, or no room: try this batch by itself
                fits, arena, end = self._expand(until, arena, end)
                if not fits:
                    break
                bounds[until] = end
                reached += 1
            until = reached
        return arena[:end], bounds[first:until]

    def _empty(self, size: int) -> np.ndarray:
        self._take(size)
        self._held = size
        return np.empty(size, dtype=np.uint8)

    def _expand_run(
        self, first: int, last: int, arena: np.ndarray, position: int, bounds: np.ndarray
    ) -> tuple[int, int]:
        """Expands a run of lz4 or zstd batches in one call; returns (first batch not done, end in the arena)."""
        return decompress_run(
            self.data,
            self.starts,
            self.ends,
            self.batches,
            first,
            last,
            self.status,
            DECOMPRESSION_FAILED,
            zstd_slots(),
            arena,
            position,
            self.arena_bytes,
            self.arena_bytes,
            bounds,
        )

    def _expand(self, i: int, arena: np.ndarray, position: int) -> tuple[bool, np.ndarray, int]:
        """Expands the payload of batch `i` at `position` of the arena and sets its status.

        For the first payload the arena grows as far as allowed. Returns (False, …), without setting a status, if the
        payload does not fit.
        """
        piece = self.data[self.starts[i] : self.ends[i]]
        codec, magic = self._codec(i), int(self.batches[i]["magic"])
        if self.batches[i]["count"] == 0 or self.status[i] != RECORDS_VALID:
            return True, arena, position
        if not is_known_codec(codec, magic):
            self.status[i] = CODEC_UNKNOWN
            return True, arena, position
        while True:
            try:
                return True, arena, position + decompress_into(codec, piece, arena, position, magic=magic)
            except DecompressionError as error:
                if not error.too_large:
                    self.status[i] = DECOMPRESSION_FAILED
                    return True, arena, position
            if position > 0 or len(arena) >= self.arena_bytes:
                return False, arena, position
            self._give(self._held)
            arena = self._empty(min(2 * len(arena) + 4 * len(piece), self.arena_bytes))

    def _large(self, i: int) -> Iterator[Records]:
        """Yields a batch that is larger than an arena, in parts."""
        start, end = int(self.starts[i]), int(self.ends[i])
        if not self._codec(i):
            yield from self._decoded(self.data, self.starts[i : i + 1], self.ends[i : i + 1], i, i + 1)
            return
        row = self.batches[i : i + 1]
        payload = self.data[start:end]
        batch = LargeBatch(row, lambda: MemoryPayload(payload), number=i, limit=self.limit, account=self.account)
        yield from batch.parts()

    def _decoded(
        self, arena: np.ndarray, starts: np.ndarray, ends: np.ndarray, first: int, until: int
    ) -> Iterator[Records]:
        """Yields batches `first` to `until`, whose payloads lie in `arena`, at most ROWS_AT_ONCE records per part."""
        for begin, stop, needed in self._cuts(starts, ends, first, until):
            batches, status = self.batches[begin:stop], self.status[begin:stop]
            own = starts[begin - first : stop - first], ends[begin - first : stop - first]
            if needed > ROWS_AT_ONCE and batches[0]["magic"] >= 2:
                in_memory = arena, int(own[0][0]), int(own[1][0])
                yield from LargeBatch(batches, in_memory=in_memory, number=begin, account=self.account).parts()
                continue
            self._take(needed * layout.RECORD.itemsize)
            rows = np.empty(needed, dtype=layout.RECORD)
            filled = kernels.decode_batches(arena, *own, batches, rows, status)
            yield Records(arena, rows[:filled], batches, status, begin)
            self._give(needed * layout.RECORD.itemsize)

    def _cuts(self, starts: np.ndarray, ends: np.ndarray, first: int, until: int) -> Iterator[tuple[int, int, int]]:
        """Cuts into runs with few enough records, judged by what their bytes can hold; a larger batch is its own run.

        Yields (first batch, batch after the last, rows that the run may need).
        """
        needed = kernels.rows_needed(self.batches[first:until], starts, ends)
        if needed <= ROWS_AT_ONCE:
            yield first, until, needed
            return
        begin, total = first, 0
        for i in range(first, until):
            at = i - first
            rows = kernels.rows_needed(self.batches[i : i + 1], starts[at : at + 1], ends[at : at + 1])
            if i > begin and total + rows > ROWS_AT_ONCE:
                yield begin, i, total
                begin, total = i, 0
            total += rows
        yield begin, until, total
