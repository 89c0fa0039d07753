"""Reading a `.log` file as a stream of chunks of whole batches, in bounded memory (Kafka: FileLogInputStream).

A chunk is one fill of a reused buffer, cut behind its last whole batch. A batch larger than the buffer makes it
grow to that batch, up to `max_batch_bytes`; the next chunk shrinks back. Reading is by `pread`, never by a
mapping: a broker that truncates under us must not kill the process. The scan itself never judges: it stops
where Kafka's iterator would, and `end` says where and why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.buffers import byte_view
from seglog.format.decoder import scan_batches
from seglog.kernels.batches import WALK_BAD_HEADER, WALK_BAD_SIZE, WALK_COMPLETE, WALK_FULL
from seglog.storage.filesystem import File, FileSystem

CHUNK_BYTES = 1 << 20
MAX_BATCH_BYTES = 128 << 20

_LEAST_ROWS = 1024


class EndReason(Enum):
    """Why a scan stopped."""

    COMPLETE = "the last batch ends where the range ends"
    TRAILING = "the bytes that remain are no whole batch"
    BAD_SIZE = "the size field is smaller than any batch"
    BAD_HEADER = "the batch is smaller than its header, or its offsets are too large"
    TOO_LARGE = "the batch is larger than the limit"


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan stopped: `position` is behind the last whole batch, `remaining` the bytes left in the range.

    `size` is what the entry at `position` declares (with overhead), where it has a size field, else 0.
    """

    position: int
    reason: EndReason
    remaining: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one file. `data[0]` lies at `position`; `data` and `batches` are valid until the next step."""

    path: Path
    position: int
    data: np.ndarray
    batches: np.ndarray


class SegmentScan:
    """Iterates over the chunks of `path` from byte `start` (a batch boundary) to `end` (default: end of file).

    After the iteration `end` tells how it stopped. `file`, when given, is read instead of opening `path` and
    stays open. Memory goes round in `buffers` buffers: a chunk is valid for as many steps, less one.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        start: int = 0,
        end: int | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        file: File | None = None,
        buffers: int = 1,
    ) -> None:
        self._buffers = max(buffers, 1)
        self._fs, self._path, self._start, self._stop = fs, path, start, end
        self._chunk_bytes, self._max_batch_bytes = max(chunk_bytes, layout.HEADER_UP_TO_MAGIC + 1), max_batch_bytes
        self._file = file
        self.end: ScanEnd | None = None

    def __iter__(self) -> Iterator[Chunk]:
        if self._file is not None:
            yield from self._chunks(self._file)
            return
        with self._fs.open(self._path, "r") as file:
            yield from self._chunks(file)

    def _chunks(self, file: File) -> Iterator[Chunk]:
        stop = file.size() if self._stop is None else min(self._stop, file.size())
        ring = deque(
            (
                np.empty(max(_LEAST_ROWS, self._chunk_bytes // 64), dtype=layout.BATCH),
                np.empty(min(self._chunk_bytes, max(stop - self._start, 0)), dtype=np.uint8),
            )
            for _ in range(self._buffers)
        )
        rows, buffer = ring[0]
        position, wanted = self._start, len(buffer)
        while position < stop:
            target = buffer if wanted <= len(buffer) else np.empty(wanted, dtype=np.uint8)
            filled = file.read_into(position, byte_view(target[: min(len(target), stop - position)]))
            if filled == 0:
                stop = position  # the file was cut while it was read
                break
            found = scan_batches(target, 0, filled, position, rows)
            if len(found.batches):
                yield Chunk(self._path, position, target[: found.consumed], found.batches)
                ring.rotate(-1)
                rows, buffer = ring[0]
            position += found.consumed
            wanted = len(buffer)
            if found.status not in (WALK_COMPLETE, WALK_FULL) and found.consumed < filled:
                size = _declared_size(target, found.consumed, filled)
                reason = self._stopped(found.status, size, stop - position, position - found.consumed + filled == stop)
                if reason is not None:
                    self.end = ScanEnd(position, reason, stop - position, size)
                    return
                wanted = max(size, wanted)
        self.end = ScanEnd(position, EndReason.COMPLETE, 0)

    def _stopped(self, status: int, size: int, remaining: int, at_stop: bool) -> EndReason | None:
        """Why the entry at the front ends the scan, or None when a larger or further read will hold it."""
        if status == WALK_BAD_SIZE:
            return EndReason.BAD_SIZE
        if status == WALK_BAD_HEADER:
            return EndReason.BAD_HEADER
        if remaining <= layout.HEADER_UP_TO_MAGIC or size > remaining or (at_stop and size == 0):
            return EndReason.TRAILING
        return EndReason.TOO_LARGE if size > self._max_batch_bytes else None


def _declared_size(data: np.ndarray, position: int, end: int) -> int:
    """The size with overhead that the entry at `position` declares, or 0 when its size field is not all there."""
    if end - position < layout.LOG_OVERHEAD:
        return 0
    at = position + layout.SIZE_OFFSET
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True) + layout.LOG_OVERHEAD
