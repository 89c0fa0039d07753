"""Reading a `.log` file as a stream of chunks of whole batches, in bounded memory (Kafka: FileLogInputStream).

A chunk is one fill of a reused buffer, cut after its last whole batch. For a larger batch the buffer grows, up to
`held_bytes`, and shrinks again for the next chunk. A batch above that limit is a chunk by itself, without its bytes:
checksum and records are read from the file piece by piece. Reading is by `pread`, never by a mapping: a broker that
truncates the file must not kill the process. A mapping is no quicker either: reading and checksumming 126 MB takes 25
ms of CPU time through one and 20 ms by `pread`. Bytes that are in memory anyway (`File.lend`: downloaded parts of an
object) are used in place; only if lent bytes end within a batch, a few bytes of both sides are copied together. The
scan itself never judges: it stops where Kafka's iterator would, and `end` says where and why.

`find_batch` and `indexed_batch` decide which batch holds an offset even if offsets do not ascend (a block of batches
written twice, a batch from elsewhere): readers, truncation and the replay of producers then begin at the same batch as
a broker's (Kafka: FileRecords).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError
from seglog.format import checksum
from seglog.format.columns import Records
from seglog.format.decoder import checksums_match, decode_large, decode_records, scan_batches
from seglog.kernels.batches import WALK_BAD_HEADER, WALK_BAD_SIZE, WALK_COMPLETE, WALK_FULL
from seglog.ordered_pool import Account
from seglog.storage.filesystem import File, FileSystem

CHUNK_BYTES = 1 << 20
# The largest batch whose bytes are held, because several threads may hold several at once; and the limit for control
# batches, which are read as a whole.
HELD_BYTES = 4 << 20
HELD_CONTROL_BYTES = 128 << 20

_LEAST_LENT = 64 << 10
_LEAST_ROWS = 1024
_PIECE_BYTES = 1 << 20
_FRONT_BYTES = 32 << 10  # read at once to see whether a batch lies there
_NOTHING = np.zeros(0, dtype=np.uint8)


class ScanMemory:
    """Recycled memory of chunks, for several threads: a reader gives back a finished chunk, and the next one, of any
    scan with this memory, reuses it. The most recently used comes first, while a core's cache still holds it.
    """

    def __init__(self) -> None:
        self._buffers: deque[np.ndarray] = deque()
        self._tables: deque[np.ndarray] = deque()

    def buffer(self, size: int) -> np.ndarray:
        """Returns `size` bytes (uint8)."""
        return self._spare(self._buffers, size, np.dtype(np.uint8))

    def table(self, count: int) -> np.ndarray:
        """Returns `count` rows (layout.BATCH)."""
        return self._spare(self._tables, count, layout.BATCH)

    @staticmethod
    def _spare(spare: deque[np.ndarray], count: int, dtype: np.dtype) -> np.ndarray:
        while True:
            try:
                memory = spare.pop()
            except IndexError:  # none left
                return np.empty(count, dtype=dtype)
            if len(memory) == count:
                return memory

    def give_back(self, chunk: Chunk) -> None:
        """Takes back the memory of a chunk that is no longer used; only once."""
        if chunk.memory is not None:
            buffer, table = chunk.memory
            self._buffers.append(buffer)
            self._tables.append(table)


class Chunks:
    """Chunks of `file` up to `stop`: at most `size` bytes, lent ones at most `most_lent` (0: `size`).

    A copied chunk is valid until the next one, unless buffers are `fresh`. `stop` becomes lower if the file turns out
    to be cut.
    """

    def __init__(self, file: File, stop: int, size: int, *, most_lent: int = 0, fresh: bool = False) -> None:
        self.stop, self._file, self._size, self._fresh = stop, file, size, fresh
        self._most_lent = max(most_lent, size)
        self.buffer = np.empty(0, dtype=np.uint8)

    def at(self, position: int, least: int = 0) -> np.ndarray:
        """Returns the chunk from `position` on (uint8): at least `least` bytes, fewer only before `stop`."""
        wanted = max(0, min(max(self._size, least), self.stop - position))
        lent = self._file.lend(position, max(0, min(max(self._most_lent, least), self.stop - position)))
        if lent is not None and lent.nbytes >= min(wanted, max(least, _LEAST_LENT)):
            return np.frombuffer(lent, dtype=np.uint8)
        if lent is not None:
            wanted = min(wanted, max(least, lent.nbytes + _LEAST_LENT))
        filled = self._copied(position, wanted)
        if len(filled) < wanted:
            self.stop = position + len(filled)
        return filled

    def _copied(self, position: int, wanted: int) -> np.ndarray:
        if self._fresh or wanted > self._size:
            target = np.empty(wanted, dtype=np.uint8)
        else:
            if len(self.buffer) < wanted:
                self.buffer = np.empty(wanted, dtype=np.uint8)
            target = self.buffer[:wanted]
        return target[: self._file.read_into(position, target.data)]


class EndReason(Enum):
    """Why a scan stopped."""

    COMPLETE = "the last batch ends where the range ends"
    TRAILING = "the bytes that remain are not a whole batch"
    BAD_SIZE = "the size field is smaller than any batch"
    BAD_HEADER = "the batch is smaller than its header, or its offsets are too large"


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """The end of a scan: `position` is after the last whole batch, `remaining` the bytes left in the range.

    `size` is the declared size of the entry at `position` (with overhead), 0 if it has no size field.
    """

    position: int
    reason: EndReason
    remaining: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one file. `data[0]` lies at `position`; `data` and `batches` are valid until the next step.

    `complete` is false for a batch that is too large to be held: its header is in `batches`, its bytes only in `file`.
    `memory` goes back to `ScanMemory`.
    """

    path: Path
    position: int
    data: np.ndarray
    batches: np.ndarray
    file: File
    complete: bool = True
    memory: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def size(self) -> int:
        """The bytes of its batches in the file."""
        return len(self.data) if self.complete else int(self.batches["size"][0])

    def checksums_valid(self) -> np.ndarray:
        """Returns which batches' stored checksum equals the computed one (bool, one a batch)."""
        if self.complete:
            return checksums_match(self.data, self.batches, self.position)
        return np.array([checksum_valid(self.file, self.batches[0])])

    def records(self, batches: np.ndarray | None = None) -> Iterator[Records]:
        """Decodes the records of some batches (rows of `batches`; None: of all), as `decoder.decode_records` does."""
        rows = self.batches if batches is None else batches
        if self.complete:
            return decode_records(self.data, rows, self.position)
        return decode_large(self.file, rows) if len(rows) else iter(())

    def pieces(self) -> Iterator[memoryview]:
        """Yields the bytes of its batches in order, from the file. Raises CorruptRecordError if the file was cut."""
        position, end = self.position, self.position + self.size
        while position < end:
            piece = memoryview(self.file.read_at(position, min(_PIECE_BYTES, end - position)))
            if not piece:
                raise CorruptRecordError(self.path, "the file was cut while it was read", position)
            yield piece
            position += len(piece)


class SegmentScan:
    """Iterates over the chunks of `path` from byte `start` (a batch boundary) to `end` (default: end of file).

    After the iteration `end` says how it stopped. A given `file` is read instead of opening `path`, and stays open. A
    chunk is valid until the next step; with a `memory`, until it is given back there. Batches larger than a chunk count
    in `account` until the next step.
    """

    def __init__(
        self,
        fs: FileSystem | None,
        path: Path,
        start: int = 0,
        end: int | None = None,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        held_bytes: int = HELD_BYTES,
        file: File | None = None,
        memory: ScanMemory | None = None,
        account: Account | None = None,
    ) -> None:
        self._memory = memory
        self._fs, self._path, self._start, self._stop = fs, path, start, end
        self._chunk_bytes, self._held_bytes = max(chunk_bytes, layout.HEADER_UP_TO_MAGIC + 1), held_bytes
        self._file, self._account = file, account
        self.end: ScanEnd | None = None

    @classmethod
    def of_file(cls, file: File, start: int, end: int) -> SegmentScan:
        """Scans a part of an open file, which stays open."""
        return cls(None, file.path, start, end, file=file)

    def __iter__(self) -> Iterator[Chunk]:
        if self._file is not None:
            yield from self._chunks(self._file)
            return
        assert self._fs is not None
        with self._fs.open(self._path, "r") as file:
            yield from self._chunks(file)

    def _chunks(self, file: File) -> Iterator[Chunk]:
        stop = file.size() if self._stop is None else min(self._stop, file.size())
        chunks = Chunks(file, stop, self._chunk_bytes)
        memory: tuple[np.ndarray, np.ndarray] | None = None
        position, least = self._start, 0
        while position < stop:
            if memory is None:
                memory = self._next_memory(chunks)
            # an ordinary chunk counts nothing and waits for nobody (`ordered_pool`)
            counted = self._account if least > self._chunk_bytes else None
            if counted is not None:
                counted.take(least)
            data = chunks.at(position, least)
            filled = len(data)
            stop = min(stop, chunks.stop)  # the file was cut while it was read
            if filled == 0:
                break
            found = scan_batches(data, 0, filled, position, memory[1])
            stopped = found.status not in (WALK_COMPLETE, WALK_FULL) and found.consumed < filled
            size = declared_size(data, found.consumed, filled) if stopped else 0
            if len(found.batches):
                given = None if self._memory is None else memory
                yield Chunk(self._path, position, data[: found.consumed], found.batches, file, memory=given)
                if given is not None:
                    memory = None
            if counted is not None:
                counted.give(least)
            position += found.consumed
            least = 0
            if stopped:
                reason = self._stopped(found.status, size, stop - position, position - found.consumed + filled == stop)
                large = None
                if reason is None and size > self._held_bytes:
                    large = entry_row(file, position, stop)
                    reason = EndReason.BAD_HEADER if large is None else None
                if reason is not None:
                    self.end = ScanEnd(position, reason, stop - position, size)
                    return
                is_control = (
                    large is not None and large["magic"][0] >= 2 and large["attributes"][0] & layout.CONTROL_MASK
                )
                if large is None or (is_control and size <= HELD_CONTROL_BYTES):
                    least = size
                else:
                    yield Chunk(self._path, position, _NOTHING, large, file, complete=False)
                    position += size
        self.end = ScanEnd(position, EndReason.COMPLETE, 0)

    def _next_memory(self, chunks: Chunks) -> tuple[np.ndarray, np.ndarray]:
        """Returns (buffer, table) for the next chunk; without `memory` they serve all chunks of the scan."""
        rows = max(_LEAST_ROWS, self._chunk_bytes // 64)
        if self._memory is None:
            return chunks.buffer, np.empty(rows, dtype=layout.BATCH)
        chunks.buffer = self._memory.buffer(self._chunk_bytes)
        return chunks.buffer, self._memory.table(rows)

    def _stopped(self, status: int, size: int, remaining: int, at_stop: bool) -> EndReason | None:
        """Returns why the first entry ends the scan, or None if a larger or further read will hold it."""
        if status == WALK_BAD_SIZE:
            return EndReason.BAD_SIZE
        if status == WALK_BAD_HEADER:
            return EndReason.BAD_HEADER
        if remaining <= layout.HEADER_UP_TO_MAGIC or size > remaining or (at_stop and size == 0):
            return EndReason.TRAILING
        # Kafka counts a batch's bytes, size field included, in an int
        return EndReason.BAD_SIZE if size > layout.INT32_MAX else None


def entry_row(file: File, position: int, stop: int) -> np.ndarray | None:
    """Returns the header (layout.BATCH, shape (1,)) of the entry at `position`, however large; None if it is none.

    The entry must end by `stop`.
    """
    head = np.zeros(layout.RECORD_BATCH_OVERHEAD, dtype=np.uint8)
    filled = file.read_into(position, head[: max(0, min(len(head), stop - position))].data)
    if filled <= layout.HEADER_UP_TO_MAGIC:
        return None
    size = declared_size(head, 0, filled)
    least = layout.LEAST_ENTRY_SIZE + layout.LOG_OVERHEAD
    if not least <= size <= min(stop - position, layout.INT32_MAX):
        return None
    # The kernel expects the entry's bytes: it gets a header with a size that includes no others.
    whole = min(size, len(head))
    head[8:12] = np.frombuffer((whole - layout.LOG_OVERHEAD).to_bytes(4, "big"), dtype=np.uint8)
    rows = scan_batches(head, 0, whole, position).batches
    if len(rows) != 1:
        return None
    rows["size"] = size
    return rows


def checksum_valid(file: File, row: np.void) -> bool:
    """True if the checksum of the entry of `row` (layout.BATCH) is right; reads it in pieces of bounded size."""
    legacy = row["magic"] < 2
    position, end = int(row["position"]), int(row["position"]) + int(row["size"])
    position += layout.MESSAGE_MAGIC_OFFSET if legacy else layout.ATTRIBUTES_OFFSET
    value = 0
    while position < end:
        piece = file.read_at(position, min(_PIECE_BYTES, end - position))
        if not piece:
            return False
        value = checksum.crc32(piece, value) if legacy else checksum.crc32c(piece, value)
        position += len(piece)
    return value == int(row["crc"])


def declared_size(data: np.ndarray, position: int, end: int) -> int:
    """Returns the declared size (with overhead) of the entry at `position`, or 0 if its size field is not complete."""
    if end - position < layout.LOG_OVERHEAD:
        return 0
    at = position + layout.SIZE_OFFSET
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True) + layout.LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """A batch's place: its base and last offset, byte position and size in bytes."""

    base_offset: int
    last_offset: int
    position: int
    size: int


def find_batch(chunks: Iterable[Chunk], offset: int) -> BatchPosition | None:
    """Returns the batch that holds `offset`, or the next one, as Kafka does (FileRecords.searchForOffsetFromPosition).

    The search ends at the first batch that begins at or above `offset`; the one before it is the answer if it reaches
    `offset`. If offsets do not ascend, this rule chooses among several batches.
    """
    before: np.ndarray | None = None
    for chunk in chunks:
        rows = chunk.batches
        reached = rows["base_offset"] >= offset
        if reached.any():
            at = int(np.argmax(reached))
            previous = before if at == 0 else rows[at - 1 : at]
            if rows["base_offset"][at] > offset and previous is not None and previous["last_offset"][0] >= offset:
                return _place(previous[0])
            return _place(rows[at])
        before = rows[-1:].copy()
    return _place(before[0]) if before is not None and before["last_offset"][0] >= offset else None


def indexed_batch(
    fs: FileSystem,
    path: Path,
    size: int,
    base_offset: int,
    entries: Iterator[tuple[int, int]],
    file: File | None = None,
) -> np.ndarray | None:
    """Returns the batch (layout.BATCH, shape (1,)) at which a search begins by its segment's index: that of the first
    of the `entries` (offset, position) that is believed; None: the search begins at the file's start.

    The entries begin with the last one that does not pass the wanted offset and go back from there, so that damage to
    one batch does not cost a walk through all that lies before it. In all, no more bytes are read than such a walk
    would read. `file` is the `.log` if it is open; without entries it is not opened.
    """
    nearest = next(entries, None)
    if nearest is None:
        return None
    with nullcontext(file) if file is not None else fs.open(path, "r") as log:
        return _believed_batch(log, size, base_offset, chain((nearest,), entries))


def _believed_batch(file: File, size: int, base_offset: int, entries: Iterable[tuple[int, int]]) -> np.ndarray | None:
    bytes_left = 0
    for offset, position in entries:
        if not 0 < position < size:
            continue
        bytes_left = bytes_left or max(position, _PIECE_BYTES)
        front = np.frombuffer(file.read_at(position, min(_FRONT_BYTES, size - position)), dtype=np.uint8)
        rows = scan_batches(front, 0, len(front), position, np.empty(1, dtype=layout.BATCH)).batches
        row = rows if len(rows) else entry_row(file, position, size)
        if row is None:
            continue
        bytes_left -= int(row["size"][0])
        if bytes_left < 0:
            return None
        if _is_believed(file, front, row, base_offset, offset):
            return row
    return None


def _is_believed(file: File, front: np.ndarray, row: np.ndarray, base_offset: int, offset: int) -> bool:
    """True if the batch of `row` (layout.BATCH, shape (1,)) is what an index entry for `offset` leads to, so that a
    search that begins there misses nothing: its checksum is right, and its first offset is one of the segment's and not
    above the entry's. `front` are its first bytes, or all.

    An entry holds the last offset of one append; before Kafka indexed each batch that was the last of all batches that
    a follower fetched (and before 0.10.1 the first one). A header alone proves nothing: an entry that leads into a
    record may find one there, and what follows such a header looks like damage. The first offset of a compressed
    message of magic 0 or 1, whose header holds its last one, is decoded if it matters.
    """
    first = int(row["base_offset"][0])
    is_wrapper = row["magic"][0] < 2 and row["attributes"][0] & layout.CODEC_MASK
    if first < base_offset or (first > offset and not is_wrapper):
        return False
    whole = row["size"][0] <= len(front)
    if not (checksums_match(front, row, int(row["position"][0]))[0] if whole else checksum_valid(file, row[0])):
        return False
    if first > offset:
        inner = next((records for records in decode_large(file, row) if len(records)), None)
        first = first if inner is None else int(inner.rows["offset"][0])
    return base_offset <= first <= offset


def _place(row: np.void) -> BatchPosition:
    return BatchPosition(int(row["base_offset"]), int(row["last_offset"]), int(row["position"]), int(row["size"]))
