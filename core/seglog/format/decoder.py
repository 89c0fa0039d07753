"""From bytes to columns: the one decoder that dump, verify, clean, read, search, statistics and Spark share.

1. `scan_batches` turns a buffer into a table of batch headers.
2. `checksums` computes every batch's checksum, `checksums_valid` compares.
3. `decode_records` turns batches into records. Uncompressed batches are decoded where they lie; as soon as one
   is compressed, all payloads go into one arena, so that what follows is the same for every codec and magic.
   Decompression runs under threads (the codecs release the GIL) and is bounded: a hostile batch that expands
   without end costs `limit` bytes and gets a status.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from seglog import layout
from seglog.format import checksum
from seglog.format.buffers import byte_view
from seglog.format.columns import Records
from seglog.format.compression import DecompressionError, decompress_into
from seglog.format.zstd_library import zstd_slots
from seglog.kernels import crc32c, legacy
from seglog.kernels import decode as kernels
from seglog.kernels.batches import walk_batches
from seglog.kernels.records import CODEC_UNKNOWN, DECOMPRESSION_FAILED, DECOMPRESSION_TOO_LARGE, RECORDS_VALID
from seglog.kernels.runs import decompress_run

# One batch may expand to this much before it is refused; a run of batches decodes in parts of about ARENA_BYTES.
DECOMPRESSED_BATCH_LIMIT = 128 << 20
ARENA_BYTES = 16 << 20

# A task for a thread: enough that handing it over costs nothing beside it.
_GROUP_BYTES = 128 << 10
_GROUPS_AHEAD = 6


@dataclass(frozen=True, slots=True)
class BatchScan:
    """`batches` (layout.BATCH) of a buffer, the index behind the last whole one, and why the walk stopped (WALK_*)."""

    batches: np.ndarray
    consumed: int
    status: int


def scan_batches(
    data: np.ndarray, start: int, end: int, file_position: int, rows: np.ndarray | None = None
) -> BatchScan:
    """The entries of `data[start:end]`, whose first byte lies at `file_position` of the file.

    `rows`, when given, is the table to fill (and the most entries to find); it is reused, not copied.
    """
    table = np.empty(max(1, (end - start) // legacy.LEAST_ENTRY + 1), layout.BATCH) if rows is None else rows
    found, consumed, status = walk_batches(data, start, end, file_position, table)
    return BatchScan(table[:found], consumed, status)


def checksums(data: np.ndarray, batches: np.ndarray, file_position: int) -> np.ndarray:
    """The checksum that each batch's bytes have (int64; -1 where they are not all in `data`)."""
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


def checksums_valid(data: np.ndarray, batches: np.ndarray, file_position: int) -> np.ndarray:
    """Which batches' stored checksum equals the computed one (bool, one a batch)."""
    valid: np.ndarray = checksums(data, batches, file_position) == batches["crc"]
    return valid


def decode_records(
    data: np.ndarray,
    batches: np.ndarray,
    file_position: int,
    *,
    pool: Executor | None = None,
    limit: int = DECOMPRESSED_BATCH_LIMIT,
    arena_bytes: int = ARENA_BYTES,
) -> Iterator[Records]:
    """Decodes `batches`, whose bytes are in `data` (first byte at `file_position`), in order.

    Yields one `Records` where nothing is compressed, else one for every run of batches that expands to about
    `arena_bytes`. `limit` bounds a single batch. With a `pool`, runs are decompressed and decoded ahead under
    its threads; `data` and `batches` must stay as they are until the iteration ends.
    """
    run = _Run(data, batches, file_position, limit, arena_bytes)
    if len(batches) == 0:
        return
    if not run.codecs.any():
        yield run.in_place()
    elif pool is None:
        yield from run.between(0, len(batches))
    else:
        yield from _ahead(pool, run)


def _ahead(pool: Executor, run: _Run) -> Iterator[Records]:
    """The parts of `run` in order, with a few groups of batches decoded ahead of the reader."""
    groups = iter(run.groups())
    waiting: deque[tuple[Future[tuple[Records, int]], int]] = deque()
    for first, last in islice(groups, _GROUPS_AHEAD):
        waiting.append((pool.submit(run.part, first, last), last))
    while waiting:
        future, last = waiting.popleft()
        records, behind = future.result()
        for first, end in islice(groups, 1):
            waiting.append((pool.submit(run.part, first, end), end))
        yield records
        yield from run.between(behind, last)


class _Run:
    """Batches to decode: where their payloads lie, and how a part of them becomes `Records`."""

    def __init__(
        self, data: np.ndarray, batches: np.ndarray, file_position: int, limit: int, arena_bytes: int
    ) -> None:
        count = len(batches)
        self.data, self.batches = data, batches
        self.limit, self.arena_bytes = limit, arena_bytes
        self.starts, self.ends = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        self.status = np.empty(count, dtype=np.int8)
        kernels.payload_spans(data, batches, file_position, self.starts, self.ends, self.status)
        self.codecs = batches["attributes"] & layout.CODEC_MASK

    def in_place(self) -> Records:
        """All records, decoded where they lie."""
        return self._decoded(self.data, self.starts, self.ends, 0, len(self.batches))

    def groups(self) -> Iterator[tuple[int, int]]:
        """Runs of batches worth a task each: (first, behind the last)."""
        number = np.cumsum(self.ends - self.starts) // _GROUP_BYTES
        cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
        return pairwise(cuts)

    def between(self, first: int, last: int) -> Iterator[Records]:
        """Batches `first` to `last` (exclusive) in parts of about `arena_bytes`."""
        while first < last:
            records, first = self.part(first, last)
            yield records

    def part(self, first: int, last: int) -> tuple[Records, int]:
        """Decompresses batches from `first` on into one arena until it is full; returns them and where to go on."""
        arena = np.empty(self._expected_bytes(first, last), dtype=np.uint8)
        bounds = np.zeros(len(self.batches), dtype=np.int64)  # behind each batch's payload in the arena
        behind, end = first, 0
        while behind < last and (behind == first or end < self.arena_bytes):
            reached, end = self._expand_run(behind, last, arena, end, bounds)
            if reached == behind:  # another codec, or no room: one batch by itself
                arena, end = self._expand(behind, arena, end)
                bounds[behind] = end
                reached += 1
            behind = reached
        ends = bounds[first:behind]
        starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1]))
        return self._decoded(arena[:end], starts, ends, first, behind), behind

    def _expand_run(
        self, first: int, last: int, arena: np.ndarray, position: int, bounds: np.ndarray
    ) -> tuple[int, int]:
        """The run of lz4 or zstd batches from `first` on, in one call: (first batch not done, position behind it)."""
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
            self.limit,
            self.arena_bytes,
            bounds,
        )

    def _expected_bytes(self, first: int, last: int) -> int:
        compressed = int((self.ends[first:last] - self.starts[first:last]).sum())
        return max(4096, min(4 * compressed, self.arena_bytes + 4 * (compressed // (last - first))))

    def _expand(self, i: int, arena: np.ndarray, position: int) -> tuple[np.ndarray, int]:
        """Puts the payload of batch `i` at `position` of the arena, which grows as needed; sets its status."""
        piece = self.data[self.starts[i] : self.ends[i]]
        codec, magic = int(self.codecs[i]), int(self.batches[i]["magic"])
        if self.batches[i]["count"] == 0 or self.status[i] != RECORDS_VALID:
            return arena, position
        if codec > 4 or (codec == 4 and magic < 2):
            self.status[i] = CODEC_UNKNOWN
            return arena, position
        while True:
            try:
                room = arena[: position + self.limit]
                return arena, position + decompress_into(codec, piece, room, position, magic=magic)
            except DecompressionError as error:
                if not error.too_large:
                    self.status[i] = DECOMPRESSION_FAILED
                    return arena, position
            if len(arena) - position >= self.limit:
                self.status[i] = DECOMPRESSION_TOO_LARGE
                return arena, position
            larger = np.empty(min(2 * len(arena) + 4 * len(piece), position + self.limit), dtype=np.uint8)
            larger[:position] = arena[:position]
            arena = larger

    def _decoded(
        self, arena: np.ndarray, starts: np.ndarray, ends: np.ndarray, first: int, behind: int
    ) -> Records:
        batches, status = self.batches[first:behind], self.status[first:behind]
        rows = np.empty(kernels.rows_needed(batches, starts, ends), dtype=layout.RECORD)
        filled = kernels.decode_batches(arena, starts, ends, batches, rows, status)
        return Records(arena, rows[:filled], batches, status, first)
