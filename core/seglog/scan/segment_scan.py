"""Reading a `.log` file as a stream of chunks of whole batches, in bounded memory (Kafka: FileLogInputStream).

A chunk is one fill of a reused buffer, cut after its last whole batch. A batch larger than the buffer makes it
grow to that batch, up to `held_bytes`; the next chunk shrinks back. A batch above that comes as a chunk by itself,
without its bytes: checksum and records are read from the file piece by piece. Reading is by `pread`, never by a
mapping: a broker that truncates under us must not kill the process. Nor is a mapping quicker: 126 MB, read and
checksummed, take 25 ms of the CPU through one and 20 ms by `pread`. Bytes that lie in memory anyway (`File.lend`: what
has come of an object) are given as they lie there; only where lent bytes end within a batch a few of both sides are
copied together. The scan itself never judges: it stops where Kafka's iterator would, and `end` says where and why.

`find_batch` and `believed_batch` decide which batch holds an offset also where offsets do not ascend (a block of
batches written twice, a batch from elsewhere): readers, truncation and the replay of producers then begin at the batch
at which a broker's do (Kafka: FileRecords).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.errors import CorruptRecordError
from seglog.format import checksum
from seglog.format.columns import Records
from seglog.format.decoder import checksums_valid, decode_large, decode_records, scan_batches
from seglog.kernels.batches import WALK_BAD_HEADER, WALK_BAD_SIZE, WALK_COMPLETE, WALK_FULL
from seglog.ordered_pool import Account
from seglog.storage.filesystem import File, FileSystem

CHUNK_BYTES = 1 << 20
# The largest batch whose bytes are held: several threads may have several of them at once. Of control batches, which
# are read as a whole, more.
HELD_BYTES = 4 << 20
HELD_CONTROL_BYTES = 128 << 20

_LEAST_LENT = 64 << 10
_LEAST_ROWS = 1024
_PIECE_BYTES = 1 << 20
_NOTHING = np.zeros(0, dtype=np.uint8)


class ScanMemory:
    """Memory of chunks that goes round: a reader that is done with a chunk gives it back, and the next one, of any
    scan that was given this, gets it. What was used last comes first, while a core's cache still has it. For several
    threads.
    """

    def __init__(self) -> None:
        self._buffers: deque[np.ndarray] = deque()
        self._tables: deque[np.ndarray] = deque()

    def buffer(self, size: int) -> np.ndarray:
        """`size` bytes (uint8)."""
        return self._spare(self._buffers, size, np.dtype(np.uint8))

    def table(self, count: int) -> np.ndarray:
        """`count` rows (layout.BATCH)."""
        return self._spare(self._tables, count, layout.BATCH)

    @staticmethod
    def _spare(spare: deque[np.ndarray], count: int, dtype: np.dtype) -> np.ndarray:
        while True:
            try:
                memory = spare.pop()
            except IndexError:  # none to spare
                return np.empty(count, dtype=dtype)
            if len(memory) == count:
                return memory

    def give_back(self, chunk: Chunk) -> None:
        """Takes the memory of a chunk that nobody looks at any more; only once."""
        if chunk.memory is not None:
            buffer, table = chunk.memory
            self._buffers.append(buffer)
            self._tables.append(table)


class Chunks:
    """Chunks of at most `size` bytes of `file`, `most_lent` where they are lent (0: `size`), none from `stop` on.

    A chunk that is a copy is valid until the next one, unless it is a `fresh` buffer. `stop` becomes lower when the
    file was found to be cut.
    """

    def __init__(self, file: File, stop: int, size: int, *, most_lent: int = 0, fresh: bool = False) -> None:
        self.stop, self._file, self._size, self._fresh = stop, file, size, fresh
        self._most_lent = max(most_lent, size)
        self.buffer = np.empty(0, dtype=np.uint8)

    def at(self, position: int, least: int = 0) -> np.ndarray:
        """The chunk from `position` on (uint8): `least` bytes at least, fewer only before `stop`."""
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
    """Where a scan stopped: `position` is after the last whole batch, `remaining` the bytes left in the range.

    `size` is what the entry at `position` declares (with overhead), where it has a size field, else 0.
    """

    position: int
    reason: EndReason
    remaining: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one file. `data[0]` lies at `position`; `data` and `batches` are valid until the next step.

    `complete` is false for one batch that is too large to be held: its header is there, its bytes are in `file`.
    `memory` is what `ScanMemory` takes back.
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
        """Bytes of its batches in the file."""
        return len(self.data) if self.complete else int(self.batches["size"][0])

    def checksums_valid(self) -> np.ndarray:
        """Which batches' stored checksum equals the computed one (bool, one a batch)."""
        if self.complete:
            return checksums_valid(self.data, self.batches, self.position)
        return np.array([checksum_valid(self.file, self.batches[0])])

    def records(self, batches: np.ndarray | None = None) -> Iterator[Records]:
        """The decoded records of some of the batches (rows of `batches`; None: of all), as `decoder.decode_records`."""
        rows = self.batches if batches is None else batches
        if self.complete:
            return decode_records(self.data, rows, self.position)
        return decode_large(self.file, rows) if len(rows) else iter(())

    def pieces(self) -> Iterator[memoryview]:
        """The bytes of its batches one after the other, as they are in the file. CorruptRecordError where it ends."""
        position, end = self.position, self.position + self.size
        while position < end:
            piece = memoryview(self.file.read_at(position, min(_PIECE_BYTES, end - position)))
            if not piece:
                raise CorruptRecordError(self.path, "the file was cut while it was read", position)
            yield piece
            position += len(piece)


class SegmentScan:
    """Iterates over the chunks of `path` from byte `start` (a batch boundary) to `end` (default: end of file).

    After the iteration `end` tells how it stopped. `file`, when given, is read instead of opening `path` and
    stays open. A chunk is valid until the next step; where the scan is given a `memory`, until it is given back there.
    What is larger than a chunk counts in `account` until the next step.
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
        """A scan of a part of a file that is open, and stays so."""
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
                if large is None or _is_held_control(large):
                    least = size
                else:
                    yield Chunk(self._path, position, _NOTHING, large, file, complete=False)
                    position += size
        self.end = ScanEnd(position, EndReason.COMPLETE, 0)

    def _next_memory(self, chunks: Chunks) -> tuple[np.ndarray, np.ndarray]:
        """(buffer, table) for the next chunk: those of a scan without `memory` serve them all."""
        rows = max(_LEAST_ROWS, self._chunk_bytes // 64)
        if self._memory is None:
            return chunks.buffer, np.empty(rows, dtype=layout.BATCH)
        chunks.buffer = self._memory.buffer(self._chunk_bytes)
        return chunks.buffer, self._memory.table(rows)

    def _stopped(self, status: int, size: int, remaining: int, at_stop: bool) -> EndReason | None:
        """Why the entry at the front ends the scan, or None when a larger or further read will hold it."""
        if status == WALK_BAD_SIZE:
            return EndReason.BAD_SIZE
        if status == WALK_BAD_HEADER:
            return EndReason.BAD_HEADER
        if remaining <= layout.HEADER_UP_TO_MAGIC or size > remaining or (at_stop and size == 0):
            return EndReason.TRAILING
        # Kafka counts a batch's bytes, size field included, in an int
        return EndReason.BAD_SIZE if size > layout.INT32_MAX else None


def _is_held_control(row: np.ndarray) -> bool:
    """Whether this is a control batch that is read as a whole all the same."""
    control = row["magic"][0] >= 2 and row["attributes"][0] & layout.CONTROL_MASK
    return bool(control) and int(row["size"][0]) <= HELD_CONTROL_BYTES


def entry_row(file: File, position: int, stop: int) -> np.ndarray | None:
    """The header (layout.BATCH, shape (1,)) of the entry at `position`, however large; None when it is no entry.

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
    # The kernel wants the entry's bytes: it gets a header whose size says that there are no others.
    whole = min(size, len(head))
    head[8:12] = np.frombuffer((whole - layout.LOG_OVERHEAD).to_bytes(4, "big"), dtype=np.uint8)
    rows = scan_batches(head, 0, whole, position).batches
    if len(rows) != 1:
        return None
    rows["size"] = size
    return rows


def checksum_valid(file: File, row: np.void) -> bool:
    """Whether the checksum of the entry of `row` (layout.BATCH) is right, read in pieces of bounded size."""
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
    """The size with overhead that the entry at `position` declares, or 0 when its size field is not all there."""
    if end - position < layout.LOG_OVERHEAD:
        return 0
    at = position + layout.SIZE_OFFSET
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True) + layout.LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """Where a batch lies: its base and last offset, byte position and size in bytes."""

    base_offset: int
    last_offset: int
    position: int
    size: int


def find_batch(chunks: Iterable[Chunk], offset: int) -> BatchPosition | None:
    """The batch that holds `offset`, or the next one, as Kafka looks for it (FileRecords.searchForOffsetFromPosition).

    The first batch that begins at `offset` or above it ends the search; the one before it is the answer when it
    reaches `offset`. Where offsets do not ascend this says which of several batches it is.
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


def believed_batch(file: File, size: int, base_offset: int, entry: tuple[int, int]) -> np.ndarray | None:
    """The batch (layout.BATCH, shape (1,)) to which an entry (offset, position) leads; None where it leads astray.

    A search that begins at a believed entry misses nothing: a batch begins there, in the first `size` bytes of the
    segment's file, and its first offset is one of the segment's, and not above the entry's. Entries name the last
    offset of what was appended at once: before Kafka indexed each batch, of all the batches that a follower fetched
    (and before 0.10.1 the first one). The header tells, and no checksum is compared; a compressed message of magic 0
    or 1, whose header says with which offset it ends, is decoded where it must be known with which it begins.
    """
    offset, position = entry
    row = entry_row(file, position, size) if 0 < position < size else None
    if row is None:
        return None
    first = int(row["base_offset"][0])
    if first > offset and row["magic"][0] < 2 and row["attributes"][0] & layout.CODEC_MASK:
        inner = next((records for records in decode_large(file, row) if len(records)), None)
        first = first if inner is None else int(inner.rows["offset"][0])
    return row if base_offset <= first <= offset else None


def _place(row: np.void) -> BatchPosition:
    return BatchPosition(int(row["base_offset"]), int(row["last_offset"]), int(row["position"]), int(row["size"]))
