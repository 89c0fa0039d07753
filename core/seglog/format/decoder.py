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

import numpy as np

from seglog import layout
from seglog.format import checksum
from seglog.format.columns import Records
from seglog.format.compression import DecompressionError, decompress
from seglog.kernels import crc32c, legacy
from seglog.kernels import decode as kernels
from seglog.kernels.batches import walk_batches
from seglog.kernels.records import CODEC_UNKNOWN, DECOMPRESSION_FAILED, DECOMPRESSION_TOO_LARGE, RECORDS_VALID

# One batch may expand to this much before it is refused; a run of batches decodes in parts of about ARENA_BYTES.
DECOMPRESSED_BATCH_LIMIT = 128 << 20
ARENA_BYTES = 16 << 20

_NOTHING = np.zeros(0, dtype=np.uint8)


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
    view = memoryview(data)
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
    `arena_bytes`. `limit` bounds a single batch; `pool` decompresses ahead under threads.
    """
    count = len(batches)
    starts, ends = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    status = np.empty(count, dtype=np.int8)
    kernels.payload_spans(data, batches, file_position, starts, ends, status)
    codecs = batches["attributes"] & layout.CODEC_MASK
    if not codecs.any():
        if count:
            yield _decoded(data, starts, ends, batches, status, 0)
        return
    first, pieces, total = 0, [], 0
    for i, piece in enumerate(_payloads(data, batches, codecs, starts, ends, status, pool, limit)):
        pieces.append(piece)
        total += len(piece)
        if total >= arena_bytes or i == count - 1:
            yield _joined(pieces, batches[first : i + 1], status[first : i + 1], first)
            first, pieces, total = i + 1, [], 0


def _joined(pieces: list[np.ndarray], batches: np.ndarray, status: np.ndarray, first: int) -> Records:
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    ends = np.cumsum(lengths)
    arena = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return _decoded(arena, ends - lengths, ends, batches, status, first)


def _decoded(
    arena: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    batches: np.ndarray,
    status: np.ndarray,
    first: int,
) -> Records:
    rows = np.empty(kernels.rows_needed(batches, starts, ends), dtype=layout.RECORD)
    filled = kernels.decode_batches(arena, starts, ends, batches, rows, status)
    return Records(arena, rows[:filled], batches, status, first)


def _payloads(
    data: np.ndarray,
    batches: np.ndarray,
    codecs: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    status: np.ndarray,
    pool: Executor | None,
    limit: int,
) -> Iterator[np.ndarray]:
    """Each batch's uncompressed payload (uint8), in order; sets `status` where there is none."""

    def payload(i: int) -> tuple[np.ndarray, int]:
        piece = data[starts[i] : ends[i]]
        if codecs[i] == 0 or batches[i]["count"] == 0 or status[i] != RECORDS_VALID:
            return piece, int(status[i])
        return _decompressed(piece, int(codecs[i]), int(batches[i]["magic"]), limit)

    if pool is None:
        results: Iterator[tuple[np.ndarray, int]] = map(payload, range(len(batches)))
    else:
        results = _ahead(pool, payload, len(batches))
    for i, (piece, outcome) in enumerate(results):
        status[i] = outcome
        yield piece


def _ahead(pool: Executor, payload: object, count: int, window: int = 16) -> Iterator[tuple[np.ndarray, int]]:
    """The results of `payload(0…count-1)` in order, at most `window` of them computed ahead of the reader."""
    waiting: deque[Future[tuple[np.ndarray, int]]] = deque()
    for i in range(count):
        waiting.append(pool.submit(payload, i))  # type: ignore[arg-type]
        if len(waiting) == window:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _decompressed(piece: np.ndarray, codec: int, magic: int, limit: int) -> tuple[np.ndarray, int]:
    if codec > 4 or (codec == 4 and magic < 2):
        return _NOTHING, CODEC_UNKNOWN
    try:
        raw = decompress(codec, memoryview(piece), magic=magic, limit=limit)
    except DecompressionError as error:
        return _NOTHING, DECOMPRESSION_TOO_LARGE if error.too_large else DECOMPRESSION_FAILED
    return np.frombuffer(raw, dtype=np.uint8), RECORDS_VALID
