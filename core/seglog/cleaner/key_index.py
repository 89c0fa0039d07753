"""Builds the offset map over the dirty section (Kafka: Cleaner.buildOffsetMap), and keeps its results for the copy.

1. Read the dirty section, check every batch's checksum, and open its records.
2. Skip control batches and batches of aborted transactions.
3. Put the other records into the map. Once the map is full, later records of new keys stay unsettled.
4. While records are unsettled: mark the records of the clean section whose keys are in the map (they would not get
   another chance), empty the map, and pass again from the first chunk with an unsettled record.
5. If nothing lies before the first mapped offset, free the map: its bits answer the rest. Otherwise the copy frees it
   as soon as it meets a large batch, which needs the map's memory, and first marks the records before that offset.

Indexed stretches in which no record survives are dead: the copy skips them unread (`offset_map.IndexedChunks`).
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from seglog import layout
from seglog.cleaner.chunks import (
    attributes_met,
    check_chunk,
    held_by,
    invalid_records,
    open_parts,
    read_chunks,
)
from seglog.cleaner.offset_map import DECIDED_ELSEWHERE, DeadStretch, IndexedChunks, KeyReader, KeyTable, OffsetMap
from seglog.cleaner.opened_payloads import OpenedPayloads
from seglog.cleaner.output import CleanerStats
from seglog.cleaner.round import CleaningRound
from seglog.kernels import filter_slots, superseding
from seglog.kernels.decode import rows_needed
from seglog.kernels.filtering import Place
from seglog.kernels.records import RECORDS_VALID
from seglog.log.indexes import AbortedTransaction
from seglog.log.places import SegmentPlaces
from seglog.log.producer_state import read_markers
from seglog.log.segment import LogSegment
from seglog.log.segments import collect_aborted
from seglog.ordered_pool import Account, in_order
from seglog.scan.segment_scan import Chunk, ScanMemory

_MAP_BESIDE_LARGE = 16 << 20  # bytes of a map that fits memory while a large batch is copied
_NO_BITS = np.zeros(1, dtype=np.uint8)
_KEY_BYTES_AHEAD = 4 << 20  # of a chunk's key tables, filled before its turn: usually all of them


@dataclass(slots=True)
class OffsetIndexing:
    """The results of the index passes.

    `aborted` are the base offsets of unmapped batches of aborted transactions. After more than one pass, `superseded`
    holds a bit for each record of the clean section. `entries` counts the keys of all passes, `most_entries` those of
    the fullest. `has_transactions` is True if the dirty section has transactional or control batches.
    """

    offset_map: OffsetMap
    passes: int = 1
    aborted: list[int] = field(default_factory=list)
    superseded: np.ndarray | None = None
    most_entries: int = 0
    entries: int = 0
    has_transactions: bool = False
    opened: OpenedPayloads | None = None  # payloads that the copy need not decompress again
    chunks: IndexedChunks | None = None  # chunks that it need not read again if they are dead
    dirty_starts: list[tuple[int, int]] = field(default_factory=list)  # per segment: base offset, next ordinal
    clean_starts: list[tuple[int, int]] = field(default_factory=list)
    memory: ScanMemory = field(default_factory=ScanMemory)  # for chunks, shared by the index and the copy
    lock: threading.RLock = field(default_factory=threading.RLock)  # guards the map and `superseded`

    def ordinals_at(self, base_offset: int) -> tuple[int, int]:
        """Returns the next ordinals, dirty and clean, at the start of a segment."""
        return _start_at(self.dirty_starts, base_offset, self.offset_map.next_ordinal), _start_at(
            self.clean_starts, base_offset, 0
        )

    def dead_stretches(self, segment: LogSegment) -> Iterator[DeadStretch]:
        """Yields the stretches of a segment that the copy may skip, in order."""
        if self.chunks is not None:
            yield from self.chunks.dead(segment.base_offset, self.offset_map.survivors)


def _start_at(starts: list[tuple[int, int]], base_offset: int, end: int) -> int:
    """Returns a segment's first ordinal. An unread segment begins where the next one does, or at `end`."""
    at = bisect_left(starts, (base_offset, 0))
    return starts[at][1] if at < len(starts) else end


def _note_start(starts: list[tuple[int, int]], segment: LogSegment, ordinal: int) -> None:
    if not starts or starts[-1][0] < segment.base_offset:
        starts.append((segment.base_offset, ordinal))


def _first_tables(tables: Iterator[KeyTable]) -> tuple[list[KeyTable], bool]:
    """Returns the first tables of a chunk, up to _KEY_BYTES_AHEAD, and True if they are all."""
    taken, key_bytes = [], 0
    for table in tables:
        taken.append(table)
        key_bytes += len(table.keys)
        if key_bytes >= _KEY_BYTES_AHEAD:
            return taken, False
    return taken, True


@dataclass(frozen=True, slots=True)
class _Opened:
    """A chunk whose first key tables are filled. If those are all, its memory may already be given back."""

    segment_number: int
    chunk: Chunk
    tables: list[KeyTable]
    rest: Iterator[KeyTable]
    batches: int
    by_records_alone: bool
    given_back: bool = False


def _held_by(item: tuple[int, Chunk, np.ndarray]) -> int:
    return held_by(item[1])


INDEXING, LOOKING_UP = "indexing", "looking keys up in the clean section"
Step = Callable[[str, int], None]  # called with a step's name and the least bytes that it will read


def build_offset_map(round_: CleaningRound, stats: CleanerStats, pool: Executor | None, step: Step) -> OffsetIndexing:
    """Indexes [`first_mapped_offset`, `first_uncleanable_offset`). Raises CorruptionError; the log is only read."""
    indexing = OffsetIndexing(
        OffsetMap(round_.options, round_.plan.first_uncleanable_offset - round_.plan.first_mapped_offset)
    )
    passes = _Passes(round_, indexing, stats, pool, step)
    start: _PassStart | None = _PassStart(0, 0, 0)
    while start is not None:
        start = passes.run(start)
    if indexing.superseded is not None or not round_.segments_before_dirty:
        indexing.offset_map.release()
    return indexing


class _PassStart(NamedTuple):
    """Where a pass begins: a chunk of the dirty section, and the ordinal of its first record."""

    segment_number: int
    position: int
    ordinal: int


class _Passes:
    def __init__(
        self,
        round_: CleaningRound,
        indexing: OffsetIndexing,
        stats: CleanerStats,
        pool: Executor | None,
        step: Step,
    ) -> None:
        self._round, self._indexing, self._stats, self._pool, self._step = round_, indexing, stats, pool, step
        self._map = indexing.offset_map
        self._chunks = indexing.chunks = IndexedChunks(round_.plan)
        self._keys = KeyReader(
            round_.plan.first_mapped_offset, round_.options.strategy, self._map.seeds, self._map.hash_mask
        )
        self._segments = round_.dirty_segments
        self._first_pass = True
        self._unsettled: _PassStart | None = None  # where the next pass begins
        self._aborted: np.ndarray = np.zeros(0, dtype=np.int64)

    def run(self, start: _PassStart) -> _PassStart | None:
        """Runs one pass. Returns where the next pass begins, or None."""
        if not self._first_pass:
            self._indexing.passes += 1
            self._map.begin_pass(start.ordinal)
        self._unsettled = None
        size = sum(segment.size for segment in self._segments[start.segment_number :]) - start.position
        self._step(INDEXING if self._first_pass else f"{INDEXING}, pass {self._indexing.passes}", size)
        chunks = self._first_chunks() if self._first_pass else self._later_chunks(start)
        options = self._round.options
        in_order(self._pool, options.jobs, self._open, chunks, options.chunks_ahead, self._take, held=_held_by)
        unsettled = self._unsettled
        self._indexing.entries += self._map.entries
        self._indexing.most_entries = max(self._indexing.most_entries, self._map.entries)
        if unsettled is not None or not self._first_pass:
            clean = sum(segment.size for segment in self._round.segments_before_dirty)
            if clean:
                self._step(LOOKING_UP, clean)
            _mark_clean_section(self._round, self._indexing)
        if self._first_pass:
            if self._indexing.opened is not None:
                self._indexing.opened.end()
            self._aborted = np.array(sorted(self._indexing.aborted), dtype=np.int64)
            self._first_pass = False
        return unsettled

    # --- reading

    def _start_of(self, segment: LogSegment) -> int:
        """Returns the position in a dirty segment of the batches that reach the first mapped offset."""
        return SegmentPlaces.of_open(segment).start(self._round.plan.first_mapped_offset).position

    def _first_chunks(self) -> Iterator[tuple[int, Chunk, np.ndarray]]:
        """Yields (segment number, chunk, aborted batches as bool) in the first pass, and tracks transactions."""
        round_, plan = self._round, self._round.plan
        tracker = TransactionTracker()
        first = round_.segments.index(self._segments[0]) if self._segments else 0
        tracker.add_aborted(
            # only those that end later: a transaction whose marker is not read would go on to the next marker
            collect_aborted(round_.segments, first, plan.first_mapped_offset, plan.first_uncleanable_offset)
        )
        for number, segment in enumerate(self._segments):
            for chunk in self._chunks_of(segment, self._start_of(segment)):
                if self._indexing.opened is None and attributes_met(chunk.batches) & layout.CODEC_MASK:
                    self._indexing.opened = OpenedPayloads(self._spare_bytes())
                yield number, chunk, self._aborted_batches(chunk, tracker)
                del chunk  # a large one is not held while the next one is read

    def _later_chunks(self, start: _PassStart) -> Iterator[tuple[int, Chunk, np.ndarray]]:
        """Yields (segment number, chunk, batches that the first pass found aborted) from the start of a later pass."""
        first = start.segment_number
        for number, segment in enumerate(self._segments[first:], start=first):
            position = start.position if number == first else self._start_of(segment)
            for chunk in self._chunks_of(segment, position):
                yield number, chunk, np.isin(chunk.batches["base_offset"], self._aborted)
                del chunk

    def _chunks_of(self, segment: LogSegment, start: int) -> Iterator[Chunk]:
        """Yields chunks, to be given back to `_indexing.memory`."""
        end_offset = self._round.plan.end_of(segment)
        return read_chunks(segment, start, end_offset, self._round.options, memory=self._indexing.memory, again=True)

    def _aborted_batches(self, chunk: Chunk, tracker: TransactionTracker) -> np.ndarray:
        aborted = np.zeros(len(chunk.batches), dtype=bool)
        for i, discard in track_batches(chunk, tracker):
            self._indexing.has_transactions = True
            if discard and not chunk.batches[i]["attributes"] & layout.CONTROL_MASK:
                aborted[i] = True
                self._indexing.aborted.append(int(chunk.batches[i]["base_offset"]))
        return aborted

    def _open(self, item: tuple[int, Chunk, np.ndarray], account: Account) -> _Opened:
        number, chunk, aborted = item
        if self._first_pass:
            with self._stats.phase("checksum"):
                check_chunk(chunk)
        batches = chunk.batches
        control = batches["attributes"] & layout.CONTROL_MASK != 0
        skipped = aborted | control & (batches["magic"] >= 2)
        skipped |= batches["last_offset"] < self._round.plan.first_mapped_offset
        tables = self._keys.tables(chunk, skipped, account, self._indexing.opened)
        of_chunk = len(batches), self._first_pass and self._chunks.by_records_alone(chunk)
        if self._pool is None:
            return _Opened(number, chunk, [], tables, *of_chunk)
        with self._stats.phase("keys"):
            first, complete = _first_tables(tables)
        if complete:  # at once: the next chunk of this thread finds its memory in the core's cache
            self._indexing.memory.give_back(chunk)
        return _Opened(number, chunk, first, tables, *of_chunk, given_back=complete)

    # --- mapping

    def _take(self, opened: _Opened) -> None:
        before = _PassStart(opened.segment_number, opened.chunk.position, self._map.next_ordinal)
        if self._first_pass:
            _note_start(self._indexing.dirty_starts, self._segments[opened.segment_number], before.ordinal)
        with self._stats.phase("map"):
            self._put(opened)
        if self._unsettled is None and self._map.is_full:
            self._unsettled = before

    def _put(self, opened: _Opened) -> None:
        before = self._map.next_ordinal
        for table in chain(opened.tables, opened.rest):
            self._map.put(table)
            self._keys.give_back(table)
        if not opened.given_back:
            self._indexing.memory.give_back(opened.chunk)
        kept = self._indexing.opened
        if kept is not None:
            kept.shrink(self._spare_bytes())
        if self._first_pass:
            records = self._map.next_ordinal - before
            self._stats.map_bytes_read += opened.chunk.size
            self._stats.map_records_read += records
            if opened.by_records_alone:
                base_offset = self._segments[opened.segment_number].base_offset
                self._chunks.note(base_offset, opened.chunk, opened.batches, before, records)

    def _spare_bytes(self) -> int:
        """Returns the bytes of the dedupe buffer that the map leaves unused."""
        return max(self._round.options.dedupe_buffer_bytes - self._map.bytes_used, 0)


def make_room_for_large(round_: CleaningRound, indexing: OffsetIndexing) -> None:
    """Frees a large map for a batch that fits no arena. From then on bits answer instead of the map.

    Any thread of the copy may call it at any time.
    """
    with indexing.lock:
        if indexing.offset_map.bytes_used <= _MAP_BESIDE_LARGE:
            return
        if indexing.superseded is None:
            _mark_clean_section(round_, indexing)
        indexing.offset_map.release()


def _mark_clean_section(round_: CleaningRound, indexing: OffsetIndexing) -> None:
    """Marks the records before the first mapped offset whose keys are in the map."""
    if indexing.superseded is None:
        indexing.superseded = np.zeros(1 << 13, dtype=np.uint8)
    ordinals = first_ordinals()
    settings = _filter_settings(round_, indexing)
    for segment in round_.segments_before_dirty:
        _note_start(indexing.clean_starts, segment, int(ordinals[filter_slots.CLEAN_ORDINAL]))
        for chunk in read_chunks(segment, 0, round_.plan.end_of(segment), round_.options, again=True):
            check_chunk(chunk)
            last_offset = int(chunk.batches[-1]["last_offset"])
            _mark_chunk(chunk, indexing, ordinals, settings)
            del chunk  # a large one is not held while the next one is read
            # by the last offset, because the header of a legacy wrapper does not tell its first one
            if last_offset + 1 >= round_.plan.first_mapped_offset:
                return


def _mark_chunk(chunk: Chunk, indexing: OffsetIndexing, ordinals: np.ndarray, settings: np.ndarray) -> None:
    for part in open_parts(chunk, in_windows=True):
        bits, offset_map = indexing.superseded, indexing.offset_map
        assert bits is not None
        batches, records = part.batches(chunk), part.records
        count = len(records.rows) if records else int(rows_needed(batches, part.starts, part.ends))
        missing = (int(ordinals[filter_slots.CLEAN_ORDINAL]) + count) // 8 + 1 - len(bits)
        if missing > 0:
            bits = np.concatenate((bits, np.zeros(max(missing, len(bits)), dtype=np.uint8)))
            indexing.superseded = bits
        place = (ordinals, offset_map.slots, offset_map.store, offset_map.seeds, settings, bits)
        if records is not None:
            superseding.mark_superseded_rows(part.arena, records.rows, *place)
            continue
        done, status = superseding.mark_superseded(part.arena, part.starts, part.ends, batches, *place)
        if status != RECORDS_VALID:
            raise invalid_records(chunk.path, batches[done], status)


def first_ordinals() -> np.ndarray:
    """Returns the ordinals (int64) of the first dirty and the first clean record, by `filter_slots.*_ORDINAL`."""
    return np.zeros(filter_slots.CLEAN_ORDINAL + 1, dtype=np.int64)


def place_of(round_: CleaningRound, indexing: OffsetIndexing, compressed: bool, in_place: bool = False) -> Place:
    """Returns the arrays that tell which record is the latest, as `kernels.filtering` takes them."""
    with indexing.lock:
        offset_map = indexing.offset_map
        settings = _filter_settings(round_, indexing)
        settings[filter_slots.COMPRESSED], settings[filter_slots.IN_PLACE] = compressed, in_place
        superseded = _NO_BITS if indexing.superseded is None else indexing.superseded
        return offset_map.survivors, superseded, offset_map.slots, offset_map.store, offset_map.seeds, settings


def _filter_settings(round_: CleaningRound, indexing: OffsetIndexing) -> np.ndarray:
    """Returns the settings (int64) of `kernels.filtering`."""
    settings = np.zeros(filter_slots.SETTINGS_SLOTS, dtype=np.int64)
    settings[filter_slots.FIRST_DIRTY] = round_.plan.first_mapped_offset
    settings[filter_slots.NEW_HORIZON] = round_.plan.new_horizon_ms
    settings[filter_slots.SLOTS] = indexing.offset_map.slot_count if indexing.offset_map.entries else 0
    settings[filter_slots.KEY_OVERHEAD] = indexing.offset_map.key_overhead
    settings[filter_slots.HASH_MASK] = indexing.offset_map.hash_mask
    settings[filter_slots.CLEAN_BITS] = indexing.superseded is not None
    settings[filter_slots.LAST_KEPT] = round_.plan.always_kept_offset
    return settings


# --- transactions


class TransactionTracker:
    """Decides which transactional batches and markers a round may drop (Kafka: CleanedTransactionMetadata).

    Batches and markers come in log order:

    1. Aborted transactions that have begun by a batch's last offset become ongoing, one per producer.
    2. A data batch of an ongoing aborted transaction is discarded, and the transaction counts as observed.
    3. An ABORT marker ends it. If a batch was observed, the marker stays and its entry goes to the new transaction
       index; otherwise the marker may go. A COMMIT marker may go if no data batch of its transaction was seen.

    "Seen" means read, as in Kafka, so a marker outlives its batches by one round. A round that expires markers passes
    `remains(base_offset)`, which is True for the data batches that it writes; then only those count as seen.

    `observed` and `committed` are the producers with a seen batch of an aborted or another transaction, and no marker
    yet.
    """

    def __init__(self, remains: Callable[[int], bool] | None = None) -> None:
        self._remains = remains
        self._upcoming: list[tuple[int, int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self.observed: set[int] = set()
        self.committed: set[int] = set()
        self._added = 0
        self.kept_aborted: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Announces aborted transactions. One may be announced again until its marker has been read."""
        for transaction in transactions:
            heapq.heappush(self._upcoming, (transaction.first_offset, self._added, transaction))
            self._added += 1

    def on_batch(self, producer_id: int, base_offset: int, last_offset: int) -> bool:
        """Returns True if a transactional data batch belongs to an aborted transaction."""
        self._begin(last_offset)
        seen = self._remains is None or self._remains(base_offset)
        if producer_id in self._aborted:
            if seen:
                self.observed.add(producer_id)
            return True
        if seen:
            self.committed.add(producer_id)
        return False

    def on_marker(self, producer_id: int, last_offset: int, aborted: bool) -> bool:
        """Returns True if a COMMIT or ABORT marker has no batch left. Adds a kept ABORT to `kept_aborted`."""
        self._begin(last_offset)
        if not aborted:
            seen = producer_id in self.committed
            self.committed.discard(producer_id)
            return not seen
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self.observed:
            return True
        self.observed.remove(producer_id)
        self.kept_aborted.append(transaction)
        return False

    def take_kept_aborted(self) -> list[AbortedTransaction]:
        """Returns the aborted transactions whose markers were kept since the last call."""
        taken, self.kept_aborted = self.kept_aborted, []
        return taken

    def take_state(self, other: TransactionTracker) -> None:
        """Takes over the state of `other`, which is not used any more."""
        self._upcoming, self._aborted, self._added = other._upcoming, other._aborted, other._added
        self.observed, self.committed = other.observed, other.committed

    def _begin(self, last_offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= last_offset:
            transaction = heapq.heappop(self._upcoming)[2]
            if transaction.producer_id not in self._aborted:
                self._aborted[transaction.producer_id] = transaction


def track_batches(chunk: Chunk, tracker: TransactionTracker) -> Iterator[tuple[int, bool]]:
    """Yields (batch, True if it may go) for every transactional or control batch of the chunk, in order."""
    batches = chunk.batches
    if not attributes_met(batches) & DECIDED_ELSEWHERE:
        return
    attributes = batches["attributes"]
    modern = batches["magic"] >= 2
    control = modern & (attributes & layout.CONTROL_MASK != 0)
    wanted = np.flatnonzero(control | modern & (attributes & layout.TRANSACTIONAL_MASK != 0))
    markers = read_markers(chunk.data, batches[control], chunk.position, chunk.path)
    columns = (batches["producer_id"], batches["base_offset"], batches["last_offset"], control, batches["count"])
    rows = zip(wanted.tolist(), *(column[wanted].tolist() for column in columns), strict=True)
    for i, producer_id, base_offset, last_offset, is_control, count in rows:
        if not is_control:
            yield i, tracker.on_batch(producer_id, base_offset, last_offset)
            continue
        marker = next(markers)
        if isinstance(marker, Exception):
            raise marker
        if marker is None:
            yield i, count == 0
        else:
            yield i, tracker.on_marker(producer_id, last_offset, marker.aborted)
