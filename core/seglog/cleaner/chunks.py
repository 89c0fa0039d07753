"""Reads segments for the cleaner: checked chunks of whole batches, with their payloads decompressed ("opened").

The cleaner never passes on bytes that it does not understand. Trailing bytes, an unknown magic or a wrong checksum end
the round before anything is changed (Kafka gives such a batch a new, valid checksum: specification §15, gap 1). So do
offsets that do not ascend: no checksum covers a base offset, and the latest record of a key is then unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.cleaner.opened_payloads import OpenedPayloads
from seglog.cleaner.round import CHUNK_BYTES, PACKED_CHUNK_BYTES, CleanerOptions
from seglog.errors import CorruptRecordError, InvalidRecordError, SeglogError
from seglog.format.checksum import byte_view
from seglog.format.columns import STATUS_REASONS, TOO_LARGE, Records, joined
from seglog.format.compression import decompress_into, expanded, is_known_codec
from seglog.format.decoder import batch_error, decode_large, decode_records, wrong_checksum
from seglog.format.payloads import DecompressionError, FilePayload, MemoryPayload, Payload
from seglog.format.windows import WHOLE_LIMIT, BadRecords, LargeBatch, too_large_to_rewrite
from seglog.format.zstd_library import zstd_slots
from seglog.kernels.decode import payload_spans
from seglog.kernels.rebuilding import MOST_GROWTH
from seglog.kernels.records import CODEC_UNKNOWN, DECOMPRESSION_FAILED, LEAST_RECORD_SIZE
from seglog.kernels.runs import DECOMPRESS, decompress_run
from seglog.log.segment import LogSegment
from seglog.model import Compression
from seglog.ordered_pool import Account, unlimited
from seglog.scan.segment_scan import Chunk, EndReason, ScanMemory, SegmentScan
from seglog.storage.filesystem import File

ADVICE = "; nothing was changed, see `seglog repair`"
# The largest batch whose bytes are held. Larger ones are processed one at a time, smaller ones by all threads.
WHOLE_BATCH_BYTES = 16 << 20
_ARENA_BYTES = 4 << 20
_UNWANTED = np.int8(-1)  # unlike any status of a batch that was read


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class OpenPart:
    """Batches [`first`, `last`) of a chunk with their payloads opened.

    For magic 2, batch i of the part has the payload `arena[starts[i]:ends[i]]`. For magic 0 and 1, `records` has the
    decoded records. A part may hold only some records of one batch: then `window` is its row with their number. A
    `spacious` part is one batch in its own memory, with MOST_GROWTH bytes free before it for each record.
    """

    first: int
    last: int
    arena: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    records: Records | None = None
    window: np.ndarray | None = None
    spacious: bool = False

    def batches(self, chunk: Chunk) -> np.ndarray:
        """Returns the rows (layout.BATCH) that `starts` and `ends` refer to."""
        return chunk.batches[self.first : self.last] if self.window is None else self.window


def read_chunks(
    segment: LogSegment,
    start: int,
    end_offset: int,
    options: CleanerOptions,
    account: Account | None = None,
    memory: ScanMemory | None = None,
    *,
    stop: int | None = None,
    again: bool = False,
) -> Iterator[Chunk]:
    """Yields the chunks of a segment from byte `start` to `stop` (None: to its end), each valid as in a SegmentScan.

    `end_offset` is the base offset of the next segment. `again` is as for `File.advise_wanted`. A batch larger than
    WHOLE_BATCH_BYTES comes without its bytes, which can be read from the file until the next step. Raises
    CorruptRecordError if batches break off or offsets do not ascend, UnsupportedError for a batch larger than
    WHOLE_LIMIT.
    """
    position = start
    last_offset = None
    reached = segment.base_offset - 1
    stop = segment.size if stop is None else stop
    with segment.fs.open(segment.path, "r") as file:
        file.advise_wanted(start, stop - start, again=again)
        scan = SegmentScan(
            segment.fs,
            segment.path,
            start,
            stop,
            chunk_bytes=min(options.chunk_bytes, _most_bytes(file, start, options)),
            held_bytes=min(WHOLE_BATCH_BYTES, WHOLE_LIMIT),
            file=file,
            account=account,
            memory=memory,
        )
        for chunk in scan:
            if not chunk.complete and chunk.size > WHOLE_LIMIT:
                raise too_large_to_rewrite(segment.path, chunk.batches[0])
            _require_order(chunk, reached, end_offset)
            position = chunk.position + chunk.size
            reached = last_offset = int(chunk.batches["last_offset"][-1])
            yield chunk
            del chunk  # a large one is not held while the next one is read
    reason = EndReason.COMPLETE if scan.end is None else scan.end.reason
    if reason is not EndReason.COMPLETE or segment.trailing_bytes:
        where = segment.path.name if last_offset is None else f"after offset {last_offset}"
        text = reason.value if reason is not EndReason.COMPLETE else EndReason.TRAILING.value
        raise CorruptRecordError(segment.path, f"{text} ({where}){ADVICE}", position)


def _require_order(chunk: Chunk, reached: int, end_offset: int) -> None:
    """Raises CorruptRecordError for the first batch that does not begin after the one before it, or reaches
    `end_offset`.

    `reached` is the last offset before the chunk. If the chunk has a wrong checksum, the error names that instead.
    """
    batches = chunk.batches
    last = batches["last_offset"]
    # only the contents of a compressed message set of magic 0 or 1 tell where it begins
    first = np.where(batches["magic"] < 2, last, batches["base_offset"])
    before = np.concatenate(([reached], last[:-1]))
    wrong = (first <= before) | (last < first) | (last >= end_offset)
    if not wrong.any():
        return
    at = int(np.argmax(wrong))
    row = check_chunk(chunk).batches[at]
    is_late = first[at] <= before[at]
    where = f"{before[at]} comes before it" if is_late else f"the next segment begins at {end_offset}"
    raise batch_error(CorruptRecordError, chunk.path, f"offsets do not ascend: {where}{ADVICE}", row)


def _most_bytes(file: File, start: int, options: CleanerOptions) -> int:
    """Returns the chunk size for a segment that goes on like its batch at `start`: small if it is compressed."""
    header = file.read_at(start, layout.RECORD_BATCH_OVERHEAD)
    plain = (
        len(header) == layout.RECORD_BATCH_OVERHEAD
        and header[layout.MAGIC_OFFSET] == 2
        and not header[layout.ATTRIBUTES_OFFSET + 1] & layout.CODEC_MASK
    )
    if not plain:
        return PACKED_CHUNK_BYTES
    return min(CHUNK_BYTES, options.most_chunk_bytes)


def attributes_met(batches: np.ndarray) -> int:
    """Returns the attribute bits of all batches or-ed together, to skip checks that no batch needs."""
    return int(np.bitwise_or.reduce(batches["attributes"]))


def held_by(chunk: Chunk) -> int:
    """Returns the bytes that a chunk counts in an account. While one is read from its file, no other may be read."""
    if not chunk.complete:
        return WHOLE_LIMIT
    return len(chunk.data) if is_large(chunk.data) else 0


def is_large(data: np.ndarray) -> bool:
    """True if the bytes of a chunk or a part are more than ordinary, so that they count in an account."""
    return len(data) > CHUNK_BYTES


def check_chunk(chunk: Chunk) -> Chunk:
    """Returns the chunk. Raises CorruptRecordError for the first batch with a wrong checksum or an unknown magic."""
    magic = chunk.batches["magic"]
    bad = np.flatnonzero((magic > 2) | (magic < 0) | ~chunk.checksums_valid())
    if len(bad):
        row = chunk.batches[bad[0]]
        if 0 <= int(row["magic"]) <= 2:
            raise wrong_checksum(chunk.path, row, ADVICE)
        raise batch_error(CorruptRecordError, chunk.path, f"unknown magic {row['magic']}{ADVICE}", row)
    return chunk


def invalid_records(path: Path, row: np.void, status: int) -> InvalidRecordError:
    """Returns the error for a batch whose records cannot be read."""
    reason = STATUS_REASONS.get(status, "the records cannot be read")
    return batch_error(InvalidRecordError, path, reason + ADVICE, row)


def open_parts(
    chunk: Chunk,
    wanted: np.ndarray | None = None,
    account: Account | None = None,
    opened: OpenedPayloads | None = None,
    *,
    in_windows: bool = False,
    make_room: Callable[[], None] = _nothing,
) -> Iterator[OpenPart]:
    """Yields the chunk's batches in order, in parts of about 4 MiB of records.

    Batches of magic 2 that are not `wanted` (bool per batch) get an empty payload, or their own. A large part counts in
    `account` until the next step. Payloads come from `opened` if it has them, and others are kept there while it has
    room. With `in_windows`, a batch larger than a part comes in several; otherwise it comes whole, after a call of
    `make_room`. Raises InvalidRecordError for a batch that cannot be decompressed.
    """
    batches = chunk.batches
    legacy = batches["magic"] < 2
    if chunk.complete and not attributes_met(batches) & layout.CODEC_MASK and not legacy.any():
        starts = batches["position"] - chunk.position + layout.RECORD_BATCH_OVERHEAD
        ends = starts + (batches["size"] - layout.RECORD_BATCH_OVERHEAD)
        yield OpenPart(0, len(batches), chunk.data, starts, ends)
        return
    opener = _Opener(chunk, wanted, account or unlimited(), opened, in_windows, make_room)
    if not chunk.complete and not legacy.any():
        yield from opener.from_file()
        return
    borders = [0, *(np.flatnonzero(legacy[1:] != legacy[:-1]) + 1).tolist(), len(batches)]
    for first, last in pairwise(borders):
        yield from opener.legacy(first, last) if legacy[first] else opener.modern(first, last)


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens the batches of one chunk, as `open_parts` says."""

    chunk: Chunk
    wanted: np.ndarray | None
    account: Account
    opened: OpenedPayloads | None
    in_windows: bool
    make_room: Callable[[], None]

    def legacy(self, first: int, last: int) -> Iterator[OpenPart]:
        """Decodes messages of magic 0 and 1."""
        chunk, rows = self.chunk, self.chunk.batches[first:last]
        waiting: list[Records] = []
        if chunk.complete:
            parts = decode_records(chunk.data, rows, chunk.position, limit=WHOLE_LIMIT)
        else:
            parts = decode_large(chunk.file, rows, limit=WHOLE_LIMIT)
        for found in parts:
            bad = np.flatnonzero(found.status)
            if len(bad) and found.status[bad[0]] in TOO_LARGE:
                raise too_large_to_rewrite(chunk.path, found.batches[bad[0]])
            if len(bad):
                raise invalid_records(chunk.path, found.batches[bad[0]], int(found.status[bad[0]]))
            waiting.append(found)
            if found.rows_after and not self.in_windows:
                self.make_room()
                continue  # a wrapper in parts is rewritten as a whole
            records = joined(waiting)
            waiting.clear()
            begin = first + records.first_batch
            nothing = np.zeros(0, dtype=np.int64)
            yield OpenPart(begin, begin + len(records.batches), records.arena, nothing, nothing, records)

    def modern(self, first: int, last: int) -> Iterator[OpenPart]:
        """Opens batches of magic 2, or takes their payloads from `opened`."""
        if self.opened is None:
            yield from self._in_arenas(first, last)
            return
        for stretch in self.opened.stretches(self.chunk, first, last):
            if stretch.arena is None or stretch.bounds is None:
                yield from self._in_arenas(stretch.first, stretch.last)
            else:
                yield OpenPart(stretch.first, stretch.last, stretch.arena, stretch.bounds[:-1], stretch.bounds[1:])

    def from_file(self) -> Iterator[OpenPart]:
        """Opens the only batch of a chunk without bytes."""
        chunk = self.chunk
        if (self.wanted is not None and not self.wanted[0]) or not chunk.batches[0]["count"]:
            nothing = np.zeros(1, dtype=np.int64)
            yield OpenPart(0, 1, np.empty(0, dtype=np.uint8), nothing, nothing)
            return
        position, size = chunk.position + layout.RECORD_BATCH_OVERHEAD, chunk.size - layout.RECORD_BATCH_OVERHEAD
        payload = partial(FilePayload, chunk.file, position, size)
        yield from self._large(0, payload, partial(_from_file, payload))

    def _in_arenas(self, first: int, last: int) -> Iterator[OpenPart]:
        """Decompresses batches, as many at a time as fit an arena."""
        packed = _Packed.of(self.chunk, first, last, self.wanted)
        i = 0
        while i < len(packed.rows):
            stop, arena, bounds = self._filled_arena(packed, i)
            if stop > i:
                yield OpenPart(first + i, first + stop, arena, bounds[:-1], bounds[1:])
                i = stop
                continue
            del arena
            piece = packed.data[packed.starts[i] : packed.ends[i]]
            yield from self._large(first + i, partial(MemoryPayload, piece), partial(_from_memory, piece))
            i += 1

    def _filled_arena(self, packed: _Packed, first: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Opens the batches from `first` on that fit an arena. Returns (the batch after them, arena, its bounds)."""
        space = None if self.opened is None else self.opened.space(_ARENA_BYTES)
        arena = np.empty(_ARENA_BYTES, dtype=np.uint8) if space is None else space.arena
        bounds = np.zeros(len(packed.rows) - first + 1, dtype=np.int64)
        stop, used = packed.fill(first, arena, bounds)
        bounds = bounds[: stop - first + 1]
        if self.opened is not None and space is not None:
            is_open = packed.status[first:stop] == 0
            self.opened.keep(space, self.chunk.path, packed.rows[first:stop], is_open, bounds)
        return stop, arena[:used], bounds

    def _large(
        self, i: int, payload: Callable[[], Payload], open_into: Callable[[int, np.ndarray], int]
    ) -> Iterator[OpenPart]:
        """Opens batch `i`, which fits no arena: a few megabytes at a time, or alone in its own memory.

        `open_into(codec, out)` decompresses the payload and returns its size.
        """
        if self.in_windows:
            yield from self._windows(i, payload)
            return
        self.make_room()
        self.account.take(WHOLE_LIMIT)  # its real size is known afterwards
        alone, start, end = _alone(self.chunk, self.chunk.batches[i], open_into)
        given = [alone]  # only the consumer will hold it
        if self.opened is not None and is_large(alone):
            self.opened.give_way()
        del alone
        self.account.give(WHOLE_LIMIT - (end - start))
        yield OpenPart(i, i + 1, given.pop(), np.array([start]), np.array([end]), spacious=True)
        self.account.give(end - start)

    def _windows(self, i: int, payload: Callable[[], Payload]) -> Iterator[OpenPart]:
        chunk, row = self.chunk, self.chunk.batches[i : i + 1]
        batch = LargeBatch(row, payload, limit=WHOLE_LIMIT, account=self.account)
        try:
            for window in batch.payloads():
                own = row.copy()
                own["count"] = window.records
                bounds = np.array([window.start, window.end], dtype=np.int64)
                yield OpenPart(i, i + 1, window.arena, bounds[:1], bounds[1:], window=own)
        except BadRecords as error:
            raise invalid_records(chunk.path, row[0], error.status) from error
        except DecompressionError as error:
            raise _not_opened(chunk, row[0], error) from error


def _from_memory(piece: np.ndarray, codec: int, out: np.ndarray) -> int:
    return decompress_into(codec, byte_view(piece), out)


def _from_file(payload: Callable[[], Payload], codec: int, out: np.ndarray) -> int:
    """Decompresses piece by piece, so that the compressed payload is never in memory as a whole."""
    return expanded(codec, payload(), magic=2).read_into(byte_view(out))


@dataclass(frozen=True, slots=True)
class _Packed:
    """Batches to open: payloads `data[starts[i]:ends[i]]`. `status` is _UNWANTED for those to skip."""

    data: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    codecs: list[int]
    status: np.ndarray

    @classmethod
    def of(cls, chunk: Chunk, first: int, last: int, wanted: np.ndarray | None) -> _Packed:
        """Returns batches [`first`, `last`) of a chunk, of magic 2."""
        rows, count = chunk.batches[first:last], last - first
        starts, ends = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        payload_spans(chunk.data, rows, chunk.position, starts, ends, np.empty(count, dtype=np.int8))
        codecs = np.where(rows["count"] != 0, rows["attributes"] & layout.CODEC_MASK, Compression.NONE)
        status = np.zeros(count, dtype=np.int8)
        if wanted is not None:
            status[~wanted[first:last]] = _UNWANTED
        return cls(chunk.data, rows, starts, ends, codecs.tolist(), status)

    def fill(self, first: int, arena: np.ndarray, bounds: np.ndarray) -> tuple[int, int]:
        """Fills the arena from batch `first` on. Returns (first batch that does not fit or is damaged, bytes used).

        Batch i ends in the arena at `bounds[i - first + 1]`.
        """
        count, i, used = len(self.rows), first, 0
        while i < count and self.status[i] != DECOMPRESSION_FAILED:
            if _in_runs(self.codecs[i]) and not self.status[i]:
                stop, used = self._run(i, arena, used, bounds[i - first + 1 :])
                if stop == i:
                    return i, used
                i = stop
                continue
            if not self.status[i]:
                size = _put(self.codecs[i], self.data[self.starts[i] : self.ends[i]], arena, used)
                if size is None:
                    return i, used
                used += size
            i += 1
            bounds[i - first] = used
        return i, used

    def _run(self, i: int, arena: np.ndarray, used: int, ends: np.ndarray) -> tuple[int, int]:
        """Fills the arena with the batches from `i` on that one kernel call can expand; sets their ends in `ends`.

        Returns (first batch that does not fit or is damaged, bytes used).
        """
        stop, after = decompress_run(
            self.data,
            self.starts[i:],
            self.ends[i:],
            self.rows[i:],
            0,
            len(self.rows) - i,
            self.status[i:],
            DECOMPRESSION_FAILED,
            zstd_slots(),  # those of the current thread
            arena,
            used,
            len(arena),
            len(arena),
            ends,
        )
        damaged = np.flatnonzero(self.status[i : i + stop] == DECOMPRESSION_FAILED)
        if not len(damaged):
            return i + int(stop), int(after)
        good = int(damaged[0])
        return i + good, int(ends[good - 1]) if good else used


def _in_runs(codec: int) -> bool:
    """True if a kernel decompresses runs of batches with this codec."""
    return codec == Compression.LZ4 or (codec == Compression.ZSTD and bool(zstd_slots()[DECOMPRESS]))


def _put(codec: int, piece: np.ndarray, arena: np.ndarray, used: int) -> int | None:
    """Decompresses a payload into the arena. Returns its size, or None if it does not fit or is damaged."""
    try:
        return decompress_into(codec, byte_view(piece), arena, used)
    except DecompressionError:
        return None


def _alone(chunk: Chunk, row: np.void, open_into: Callable[[int, np.ndarray], int]) -> tuple[np.ndarray, int, int]:
    """Opens one batch in its own memory (`OpenPart.spacious`). Returns the memory and the payload's bounds in it."""
    codec = int(row["attributes"]) & layout.CODEC_MASK if row["count"] else Compression.NONE
    # the claimed count is trusted as far as the bytes could hold it; pages that are not written take no memory
    count = min(max(int(row["count"]), 0), WHOLE_LIMIT // LEAST_RECORD_SIZE)
    start = layout.RECORD_BATCH_OVERHEAD + count * MOST_GROWTH
    arena = np.empty(start + WHOLE_LIMIT + 1, dtype=np.uint8)
    try:
        size = open_into(codec, arena[start:])
    except DecompressionError as error:
        raise _not_opened(chunk, row, error) from error
    if size > WHOLE_LIMIT:
        raise too_large_to_rewrite(chunk.path, row)
    return arena[: start + max(size, int(row["size"]))], start, start + size


def _not_opened(chunk: Chunk, row: np.void, error: DecompressionError) -> SeglogError:
    """Returns the error for a batch that cannot be decompressed."""
    if error.too_large:
        return too_large_to_rewrite(chunk.path, row)
    codec = int(row["attributes"]) & layout.CODEC_MASK
    status = DECOMPRESSION_FAILED if is_known_codec(codec, int(row["magic"])) else CODEC_UNKNOWN
    return invalid_records(chunk.path, row, status)
