"""Filters the batches of a round and rebuilds those that lose records (Kafka: Cleaner.cleanInto).

1. In log order, one chunk after the other, transactions and producers decide which batches may go and which stay as
   empty ones (`RecordFilter.tasks`). Each chunk gets the ordinals at which it begins.
2. In any order, on several threads, records are chosen and batches rebuilt (`filter_chunk`). Compressed batches are
   compressed again at their codec's default level. Messages of magic 0 and 1 become batches of magic 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from seglog import layout
from seglog.cleaner import chunks
from seglog.cleaner.chunks import (
    OpenPart,
    attributes_met,
    check_chunk,
    invalid_records,
    is_large,
    open_parts,
    read_chunks,
)
from seglog.cleaner.key_index import (
    OffsetIndexing,
    TransactionTracker,
    first_ordinals,
    make_room_for_large,
    place_of,
    track_batches,
)
from seglog.cleaner.legacy_filter import filter_legacy
from seglog.cleaner.offset_map import DeadStretch
from seglog.cleaner.output import CleanerStats
from seglog.cleaner.round import CHUNK_BYTES, CleaningRound
from seglog.errors import CorruptRecordError
from seglog.format.checksum import byte_view
from seglog.format.compression import compressed_pieces
from seglog.format.zstd_library import zstd_slots
from seglog.kernels import filter_slots, filtering, lz4, rebuilding, runs
from seglog.kernels.encode import seal_batch
from seglog.kernels.filter_slots import DELETE, DIRTY, DISCARD, EXPIRED, KEEP_ALL, RETAIN_EMPTY, STAMP_MARKER, UNREAD
from seglog.kernels.records import LEAST_RECORD_SIZE
from seglog.log.indexes import AbortedTransaction
from seglog.log.segment import LogSegment
from seglog.ordered_pool import Account, unlimited
from seglog.scan.segment_scan import Chunk

_OVERHEAD = layout.RECORD_BATCH_OVERHEAD
_NOT_PLAIN = layout.CONTROL_MASK | layout.TRANSACTIONAL_MASK | layout.DELETE_HORIZON_MASK
_SLACK_BYTES = 64 << 10

FilteredPiece = tuple[np.ndarray, np.ndarray]  # rows (layout.BATCH, positions within the bytes), bytes


@dataclass(slots=True)
class FilteredChunk:
    """The remaining pieces of a chunk, in order, and the counts of `kernels.filtering`.

    A dead stretch counts in `bytes_read` and in `bytes_unread`.
    """

    bytes_read: int
    pieces: list[FilteredPiece] = field(default_factory=list)
    counters: np.ndarray = field(default_factory=lambda: np.zeros(filter_slots.COUNTER_SLOTS, dtype=np.int64))
    held_bytes: int = 0  # in the account of its task
    memory: list[np.ndarray] = field(default_factory=list)  # holds the pieces
    aborted: list[AbortedTransaction] = field(default_factory=list)
    bytes_unread: int = 0


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """A chunk with the flags of its batches and the ordinals at which it begins."""

    chunk: Chunk
    flags: np.ndarray
    ordinals: np.ndarray
    aborted: list[AbortedTransaction]


@dataclass(frozen=True, slots=True)
class _ChosenPiece:
    """Remaining batches: their rows, their source batches in the part, the actions taken, and bytes `out[:used]`."""

    targets: np.ndarray
    sources: np.ndarray
    actions: np.ndarray
    out: np.ndarray
    used: int


@dataclass(slots=True)
class _Chosen:
    """The remaining pieces of a part.

    The bytes of batches that are `compressed`, or were rebuilt `in_place`, are payloads that still must be packed.
    `taken` bytes count in the account until they are.
    """

    compressed: bool
    in_place: bool
    taken: int
    pieces: list[_ChosenPiece] = field(default_factory=list)


def held_by(task: ChunkTask | FilteredChunk) -> int:
    """Returns the bytes of large data that a task holds: the `held` of `in_order`."""
    if isinstance(task, FilteredChunk):
        return sum(len(data) for _, data in task.pieces if is_large(data))
    return chunks.held_by(task.chunk)


def _bytes_of(chunk: Chunk) -> np.ndarray:
    """Reads an unchanged batch from its file. Raises CorruptRecordError if the file ends within it."""
    data = np.empty(chunk.size, dtype=np.uint8)
    if chunk.file.read_into(chunk.position, byte_view(data)) < len(data):
        raise CorruptRecordError(chunk.path, "the file was cut while it was read; nothing was changed", chunk.position)
    return data


def _is_plain_rebuilt(piece: _ChosenPiece) -> bool:
    """True if the first batch of the piece was rebuilt and is uncompressed."""
    is_plain = not int(piece.targets[0]["attributes"]) & layout.CODEC_MASK
    return is_plain and bool(piece.actions[0] == rebuilding.REBUILT)


def _sealed_in_place(piece: _ChosenPiece) -> FilteredPiece:
    """Completes the batch of a piece that was rebuilt in place: its header fits before its records."""
    target = piece.targets[0]
    start, size = int(target["position"]) - _OVERHEAD, int(target["size"]) + _OVERHEAD
    target["size"] = size
    seal_batch(piece.out, start, target, True)
    target["position"] = 0
    return piece.targets, piece.out[start : start + size]


class RecordFilter:
    """Filters the groups of a round, in order. `tracker` is for a filter that starts at a later group, or expires
    markers.

    Without `recompress`, rebuilt batches stay uncompressed.
    """

    def __init__(
        self,
        round_: CleaningRound,
        indexing: OffsetIndexing,
        stats: CleanerStats,
        *,
        recompress: bool = True,
        tracker: TransactionTracker | None = None,
    ) -> None:
        self._round, self._indexing, self._stats, self._recompress = round_, indexing, stats, recompress
        self._tracker = tracker or TransactionTracker()
        self._unmapped = np.array(sorted(indexing.aborted), dtype=np.int64)
        self._spare: deque[np.ndarray] = deque()
        self.ordinals = first_ordinals()

    # --- in log order

    def tasks(
        self, group: tuple[LogSegment, ...], account: Account | None = None
    ) -> Iterator[ChunkTask | FilteredChunk]:
        """Yields the chunks of a group with their decisions; a large one counts in `account` until the next step.

        A dead stretch is not read: it yields only its counts.
        """
        for i, segment in enumerate(group):
            bound = group[i + 1].base_offset if i + 1 < len(group) else segment.read_next_offset()[0]
            self._tracker.add_aborted(self._round.aborted_from(segment, bound))
            read, position = partial(self._read, segment, segment.modified_ms, account), 0
            for dead in self._indexing.dead_stretches(segment):
                yield from read(position, dead.position)
                yield self._passed_over(dead)
                position = dead.end
            yield from read(position, segment.size)

    def _read(
        self, segment: LogSegment, modified_ms: int, account: Account | None, start: int, stop: int
    ) -> Iterator[ChunkTask | FilteredChunk]:
        if start == stop > 0:
            return
        plan, memory = self._round.plan, self._indexing.memory
        end_offset = plan.end_of(segment)
        for chunk in read_chunks(segment, start, end_offset, plan.options, account, memory, stop=stop):
            yield self._task(chunk, modified_ms, account)
            del chunk

    def _passed_over(self, dead: DeadStretch) -> FilteredChunk:
        self.ordinals[filter_slots.DIRTY_ORDINAL] += dead.records
        filtered = FilteredChunk(dead.size, bytes_unread=dead.size)
        for slot in (filter_slots.RECORDS_READ, filter_slots.RECORDS_SUPERSEDED):
            filtered.counters[slot] = dead.records
        filtered.counters[filter_slots.BATCHES_READ] = dead.batches
        return filtered

    def _task(self, chunk: Chunk, modified_ms: int, account: Account | None) -> ChunkTask | FilteredChunk:
        batches = chunk.batches
        flags = self._flags(chunk, modified_ms)
        aborted = self._tracker.take_kept_aborted()
        if (batches["magic"] < 2).any():
            # only decoding tells the number of records in a wrapper, which the next chunk's ordinals need
            return self.filter_chunk(ChunkTask(chunk, flags, self.ordinals, aborted), account or unlimited())
        counted = (batches["attributes"] & layout.CONTROL_MASK == 0) & (flags & KEEP_ALL == 0)
        counts = np.where(counted, np.maximum(batches["count"], 0), 0).astype(np.int64)
        dirty, ordinals = flags & DIRTY != 0, self.ordinals.copy()
        self.ordinals += (int(counts[dirty].sum()), int(counts[~dirty].sum()))
        return ChunkTask(chunk, flags, ordinals, aborted)

    def _flags(self, chunk: Chunk, modified_ms: int) -> np.ndarray:
        """Returns the flags (uint8) of each batch: the table of specification §12.6."""
        batches, round_ = chunk.batches, self._round
        dirty = batches["last_offset"] >= round_.plan.first_mapped_offset
        flags = dirty.astype(np.uint8)
        flags *= DIRTY
        is_plain = not attributes_met(batches) & _NOT_PLAIN and not (batches["magic"] < 2).any()
        if not is_plain or round_.options.expire or len(self._unmapped):
            self._flag_special(chunk, modified_ms, dirty, flags)
        last = round_.plan.last_records
        filtering.flag_last_batches(batches, last.producer_ids, last.offsets, last.epochs, flags)
        flags[batches["last_offset"] + 1 == round_.plan.kept_end_offset] |= RETAIN_EMPTY
        flags[(flags & (DISCARD | RETAIN_EMPTY)) == DISCARD] |= DELETE
        return flags

    def _flag_special(self, chunk: Chunk, modified_ms: int, dirty: np.ndarray, flags: np.ndarray) -> None:
        """Adds flags for transactions, markers, delete horizons and messages of magic 0 and 1."""
        batches = chunk.batches
        modern = batches["magic"] >= 2
        control = modern & (batches["attributes"] & layout.CONTROL_MASK != 0)
        may_go = np.zeros(len(batches), dtype=bool)
        for i, discard in track_batches(chunk, self._tracker):
            may_go[i] = discard
        past = self._past_horizon(batches, modern, modified_ms)
        flags[may_go & (~control | past)] |= DISCARD
        flags[may_go & control] |= STAMP_MARKER
        flags[past] |= EXPIRED
        if len(self._unmapped):
            flags[dirty & modern & ~control & np.isin(batches["base_offset"], self._unmapped)] |= KEEP_ALL

    def _past_horizon(self, batches: np.ndarray, modern: np.ndarray, modified_ms: int) -> np.ndarray:
        """Returns True (bool) per batch if its tombstones and marker are past their delete horizon (KIP-534).

        For messages of magic 0 and 1, the segment's modification time decides.
        """
        round_ = self._round
        stamped = modern & (batches["attributes"] & layout.DELETE_HORIZON_MASK != 0)
        past = stamped & (batches["base_timestamp"] <= round_.plan.now_ms)
        past = past | ~modern & (modified_ms <= round_.plan.legacy_horizon_ms)
        if round_.options.expire:
            timestamps = batches["max_timestamp"]
            timestamps = np.where(~modern & (timestamps < 0), modified_ms, timestamps)
            due = timestamps <= round_.plan.now_ms - round_.plan.delete_retention_ms
            past = past | ~stamped & (timestamps >= 0) & due
        answer: np.ndarray = past
        return answer

    # --- on several threads

    def filter_chunk(self, task: ChunkTask | FilteredChunk, account: Account) -> FilteredChunk:
        """Filters a chunk. Large output counts in `account`.

        Raises InvalidRecordError or CorruptRecordError for a batch that cannot be read.
        """
        if isinstance(task, FilteredChunk):
            return task
        chunk = task.chunk
        if chunk.batches[0]["last_offset"] < self._round.plan.first_mapped_offset or not self._round.dirty_segments:
            with self._stats.phase("checksum"):
                check_chunk(chunk)
        filtered = FilteredChunk(chunk.size, aborted=task.aborted)
        make_room = partial(make_room_for_large, self._round, self._indexing)
        if not (chunk.batches["magic"] < 2).any():
            place = place_of(self._round, self._indexing, compressed=False)
            filtering.flag_dead_batches(chunk.batches, task.ordinals[filter_slots.DIRTY_ORDINAL], place, task.flags)
        wanted = task.flags & UNREAD == 0
        parts = open_parts(chunk, wanted, account, self._indexing.opened, make_room=make_room)
        while True:
            with self._stats.phase("decompress"):
                part = next(parts, None)
            if part is None:
                self._indexing.memory.give_back(chunk)
                return filtered
            batches, flags = chunk.batches[part.first : part.last], task.flags[part.first : part.last]
            if part.records is not None:
                place = place_of(self._round, self._indexing, compressed=True)
                with self._stats.phase("filter"):
                    filtered.pieces += filter_legacy(
                        self._round, batches, part.records, flags, task.ordinals, place, filtered.counters
                    )
            else:
                chosen = self._filter_part(task, part, batches, flags, filtered, account)
                del part  # frees a large payload before its remaining records are compressed
                self._add(task.chunk, batches, chosen, filtered, account)
                del chosen

    def _filter_part(
        self,
        task: ChunkTask,
        part: OpenPart,
        batches: np.ndarray,
        flags: np.ndarray,
        filtered: FilteredChunk,
        account: Account,
    ) -> _Chosen:
        chunk = task.chunk
        # a batch in its own memory gets its header only when it is packed
        compressed = part.spacious or bool((batches["attributes"] & layout.CODEC_MASK != 0).any())
        place = place_of(self._round, self._indexing, compressed, in_place=part.spacious)
        # a claimed count is trusted as far as the bytes could hold it
        most_records = max(int(np.minimum(batches["count"], (part.ends - part.starts) // LEAST_RECORD_SIZE).max()), 0)
        kept_bytes, first = (most_records + 1) * rebuilding.KEPT_ROW_BYTES, 0
        room = 0 if part.spacious else len(part.arena) + _SLACK_BYTES
        taken = kept_bytes + room if is_large(part.arena) else 0
        account.take(taken)
        chosen = _Chosen(compressed, part.spacious, taken)
        kept = np.empty(kept_bytes, dtype=np.uint8)
        while first < len(batches):
            left = len(batches) - first
            out = part.arena if part.spacious else self._memory(room)
            targets = np.empty(left, dtype=layout.BATCH)
            sources, actions = np.empty(left, dtype=np.int64), np.empty(left, dtype=np.int8)
            with self._stats.phase("filter"):
                done, used, rows, status = filtering.filter_batches(
                    chunk.data,
                    chunk.position,
                    part.arena,
                    part.starts,
                    part.ends,
                    batches,
                    first,
                    flags,
                    task.ordinals,
                    place,
                    kept,
                    out,
                    targets,
                    sources,
                    actions,
                    filtered.counters,
                )
            if status > 0:
                raise invalid_records(chunk.path, batches[done], status)
            if rows:
                chosen.pieces.append(_ChosenPiece(targets[:rows], sources[:rows], actions[:rows], out, used))
            else:
                self._keep(out)
            room = room if done > first else 2 * room
            first = done
        return chosen

    def _add(
        self, chunk: Chunk, batches: np.ndarray, chosen: _Chosen, filtered: FilteredChunk, account: Account
    ) -> None:
        """Adds the remaining pieces of a part to those of its chunk."""
        while chosen.pieces:
            piece = chosen.pieces.pop(0)
            if not chunk.complete and piece.actions[0] == rebuilding.VERBATIM:
                targets = piece.targets
                del piece  # frees the payload before the batch is read
                filtered.pieces.append((targets, _bytes_of(chunk)))
            elif chosen.in_place and _is_plain_rebuilt(piece):
                filtered.pieces.append(_sealed_in_place(piece))
            elif chosen.compressed:
                with self._stats.phase("compress"):
                    filtered.pieces.append(self._packed(chunk, batches, piece))
                self._keep(piece.out)
            else:
                filtered.pieces.append((piece.targets, piece.out[: piece.used]))
                filtered.memory.append(piece.out)
        if chosen.compressed:
            account.give(chosen.taken)  # packed, it is small
        else:
            filtered.held_bytes += chosen.taken

    def _packed(self, chunk: Chunk, batches: np.ndarray, piece: _ChosenPiece) -> FilteredPiece:
        """Joins verbatim, empty and rebuilt batches, and compresses the rebuilt ones."""
        targets, sources, actions, payloads = piece.targets, piece.sources, piece.actions, piece.out
        if not self._recompress:
            targets["attributes"][actions == rebuilding.REBUILT] &= 0xFF ^ layout.CODEC_MASK
        out, table = np.empty(runs.packed_bound(targets), dtype=np.uint8), np.empty(lz4.TABLE_SLOTS, dtype=np.uint16)
        row = used = 0
        while row < len(targets):
            row, used = runs.pack_run(
                chunk.data,
                chunk.position,
                batches,
                payloads,
                targets,
                sources,
                actions,
                row,
                zstd_slots(),
                table,
                out,
                used,
            )
            if row < len(targets):  # a codec without a kernel
                at, size = int(targets[row]["position"]), int(targets[row]["size"])
                codec = int(targets[row]["attributes"]) & layout.CODEC_MASK
                stop = used + _OVERHEAD
                for packed in compressed_pieces(codec, byte_view(payloads)[at : at + size]):
                    out[stop : stop + len(packed)] = np.frombuffer(packed, dtype=np.uint8)
                    stop += len(packed)
                targets[row]["position"], targets[row]["size"] = used, stop - used
                seal_batch(out, used, targets[row], True)
                row, used = row + 1, stop
        return targets, out[:used]

    # --- memory

    def give_back(self, filtered: FilteredChunk) -> None:
        """Takes back the memory of a written chunk for reuse: fresh memory costs as much as filling it."""
        filtered.pieces.clear()
        while filtered.memory:
            self._keep(filtered.memory.pop())

    def _keep(self, memory: np.ndarray) -> None:
        if len(memory) <= CHUNK_BYTES + _SLACK_BYTES and len(self._spare) < self._round.options.chunks_ahead:
            self._spare.append(memory)

    def _memory(self, size: int) -> np.ndarray:
        """Returns memory of at least `size` bytes."""
        with suppress(IndexError):  # none to spare
            memory = self._spare.pop()
            if len(memory) >= size:
                return memory
        return np.empty(size, dtype=np.uint8)
