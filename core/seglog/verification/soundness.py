"""Tells that nothing is wrong with a small partition, by one reading of each of its files.

A broker has thousands of partitions, nearly all sound. For a small one, what a look sets up (a view, observers, a
trial of recovery) takes many times longer than reading its bytes. `sound_log` only ever answers "nothing is wrong":
None means that the partition is to be looked at as usual, and says nothing about it. What is rare in a sound partition
counts as unknown, too: transactions, holes, magic 0 and 1, leftovers, strange names.

What was read is handed on (`SoundLog.pieces`, `listing`): whoever tells facts of a sound partition, compares it, or
takes it over, needs no view of it, and does not read it again.

What holds for a sound log: its batches and records are right and leave out no offset from the first segment's base to
the end; both indexes of each segment are there and lead to the batches they name, and only those of the last segment
end with zeros; its snapshots and its leader epochs say what the batches say; no other file is in the directory.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seglog import layout
from seglog.errors import SeglogError
from seglog.format import filenames
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.format.producer_snapshot import NO_OFFSET, decode_snapshot
from seglog.format.record_batch import last_sequence
from seglog.kernels import validate
from seglog.kernels.crc32c import HARDWARE
from seglog.kernels.validate import walk_clean
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.listing import OFFSET_CHECKPOINTS, PartitionListing, listing_of
from seglog.scan.log_walk import WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.topic_ids import topic_id_of
from seglog.scan.view import is_live
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog.storage.padding import FRONT_BYTES, written_bytes
from seglog.verification.batches import LEAST_ENTRY, Level, clean_range, new_state
from seglog.verification.surroundings import Surroundings

_MOST_BYTES = 1 << 20  # of all files: for more, reading them is what takes time
_MOST_BATCHES = 4096
_KINDS = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.PRODUCER_SNAPSHOT)
_SMALL_FILES = (filenames.LEADER_EPOCH_CHECKPOINT, filenames.PARTITION_METADATA)
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ENTRY_BYTES: dict[FileKind | str, int] = {
    FileKind.OFFSET_INDEX: _OFFSET_ENTRY.size,
    FileKind.TIME_INDEX: _TIME_ENTRY.size,
}
_RARE = layout.TRANSACTIONAL_MASK | layout.CONTROL_MASK


@dataclass(frozen=True, slots=True)
class SoundLog:
    """A log with which nothing is wrong: its first offset, and the one after the last.

    `index_sizes` are the largest offset and time index in bytes of entries; with `is_padded` a broker's zeros follow
    those of the last segment, which it cuts off when it stops. `batches` and `segments` are counted; `snapshots` are
    the offsets of the producer snapshots, ascending, `snapshot_size` the largest one in bytes. `topic_id` is that of
    `partition.metadata`, None without the file. `size` are the bytes of the `.log` files, the last of which was written
    at `modified_ms`. `pieces` are what a walk through each `.log` yields, by base offset; an empty one has none.
    `entries` are the names in `directory` when the reading began.
    """

    directory: Path
    entries: Sequence[tuple[str, FileStatus]]

    base_offset: int
    end_offset: int
    segments: int
    batches: int
    index_sizes: tuple[int, int]
    is_padded: bool
    snapshots: tuple[int, ...]
    snapshot_size: int
    epochs: tuple[EpochEntry, ...]
    topic_id: str | None
    size: int
    modified_ms: int
    pieces: Mapping[int, WalkedEntries]

    def listing(self) -> PartitionListing:
        """Returns the listing of the directory."""
        return listing_of(self.directory, self.entries)

    def is_as_stated(self, key: TopicPartition, around: Surroundings) -> bool:
        """True if nothing states that the log of partition `key` reached further, at either end, than it does, or that
        a start would change it."""
        stated = {name: around.offset(name, key) for name in OFFSET_CHECKPOINTS}
        committed, start = around.committed.get(key), stated[filenames.LOG_START_OFFSET_CHECKPOINT]
        reached = [*stated.values(), None if committed is None else committed.offset]
        if any(offset is not None and offset > self.end_offset for offset in reached):
            return False
        if start is not None and (start < self.base_offset or any(entry.start_offset < start for entry in self.epochs)):
            return False
        was_compacted = stated[filenames.CLEANER_OFFSET_CHECKPOINT] is not None
        has_end = self.snapshots[-1:] == (self.end_offset,) or self.end_offset == 0  # there is none at offset 0
        is_closed = has_end and not self.is_padded
        return not was_compacted and (is_closed or not around.clean)


def sound_log_at_rest(fs: FileSystem, directory: Path) -> SoundLog | None:
    """Returns `sound_log`; None, too, if another process holds the lock of the log directory."""
    return None if is_live(directory) else sound_log(fs, directory)


def sound_log(fs: FileSystem, directory: Path) -> SoundLog | None:
    """Returns the log in a partition directory that nobody writes, None if anything about it is wrong, rare or large,
    or cannot be read.
    """
    if not HARDWARE or fs.reads_at_once(directory) > 1:  # a store delivers many files at once to the usual look
        return None
    try:
        contents = _read(fs, directory)
        return None if contents is None else _Soundness(fs, directory, contents).judge()
    except (OSError, SeglogError):
        return None  # the look meets it again, and tells


@dataclass(slots=True)
class _Contents:
    """The bytes of a partition's files by kind and offset, the small files by name at 0; indexes without the zeros
    that a broker allocates after their entries, and the base offsets of those with zeros."""

    entries: Sequence[tuple[str, FileStatus]]
    files: dict[FileKind | str, dict[int, bytes]]
    padded: set[int] = field(default_factory=set)
    written: dict[int, int] = field(default_factory=dict)  # when each log was, epoch milliseconds


def _read(fs: FileSystem, directory: Path) -> _Contents | None:
    """Returns the contents of a directory, None if anything else than the files of a log is there."""
    contents = _Contents(fs.entries(directory), {kind: {} for kind in (*_KINDS, *_SMALL_FILES)})
    files: list[tuple[FileKind | str, int, str, int]] = []
    total = 0
    for name, status in contents.entries:
        parsed = parse_file_name(name)
        is_index = parsed is not None and parsed.kind in _ENTRY_BYTES
        total += 0 if is_index else status.size
        if status.no_file or status.is_link or total > _MOST_BYTES:
            return None
        if parsed is not None and parsed.kind in _KINDS and parsed.state is FileState.LIVE:
            if parsed.kind is FileKind.LOG:
                contents.written[parsed.offset] = status.modified_ms
            files.append((parsed.kind, parsed.offset, name, status.size))
        elif name in _SMALL_FILES:
            files.append((name, 0, name, status.size))
        else:
            return None
    whole = [name for kind, _, name, size in files if size and (kind not in _ENTRY_BYTES or size <= FRONT_BYTES)]
    held: dict[str, bytes] = dict(zip(whole, fs.read_each(directory, whole), strict=True))
    for kind, offset, name, size in files:
        entry_bytes = _ENTRY_BYTES.get(kind)
        if size and name not in held:
            data = _written(fs, directory / name, size, entry_bytes or 1)
        else:
            data = held.get(name, b"")
            data = data if len(data) == size else None
        if data is not None and entry_bytes is not None:
            data = _entries(data, size, entry_bytes)
            if data is not None and len(data) < size:
                contents.padded.add(offset)
        if data is None:
            return None
        contents.files[kind][offset] = data
    return contents


def _entries(data: bytes, size: int, entry_bytes: int) -> bytes | None:
    """Returns the entries of an index up to the last that is not zero, None for a broken or too large one."""
    if size % entry_bytes or len(data) > _MOST_BYTES:
        return None
    return data[: -(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes]


def _written(fs: FileSystem, path: Path, size: int, entry_bytes: int) -> bytes | None:
    """Returns what is written of a large index, None if its size is another one by now."""
    with fs.open(path, "r") as file:
        return written_bytes(file, entry_bytes) if file.size() == size else None


class _Batch(NamedTuple):
    """A row of layout.BATCH."""

    position: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    crc: int
    size: int
    records: int
    leader_epoch: int
    base_sequence: int
    producer_epoch: int
    attributes: int
    magic: int


@dataclass(slots=True)
class _Soundness:
    """Judges a partition, segment by segment."""

    fs: FileSystem
    directory: Path
    contents: _Contents
    epochs: list[EpochEntry] = field(default_factory=list)
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # id → epoch, last offset, last sequence
    compared: set[int] = field(default_factory=set)  # the offsets of snapshots
    pieces: dict[int, WalkedEntries] = field(default_factory=dict)

    def judge(self) -> SoundLog | None:
        logs, offsets, times, snapshots = (self.contents.files[kind] for kind in _KINDS)
        bases = sorted(logs)
        if not bases or offsets.keys() != logs.keys() or times.keys() != logs.keys():
            return None
        reached, count = bases[0], 0
        for base, following in pairwise((*bases, None)):
            if base is None or base != reached or not self._snapshot_is_right(base):
                return None
            batches = self._batches(base, following)
            if batches is None or not self._follow(batches, base):
                return None
            reached, count = batches[-1].last_offset + 1 if batches else base, count + len(batches)
            if not self._indexes_are_right(base, batches, closed=following is not None):
                return None
        if not self._snapshot_is_right(reached) or snapshots.keys() - self.compared:
            return None
        epochs = self._listed_epochs(reached)
        if epochs is None:
            return None
        metadata = self.contents.files[filenames.PARTITION_METADATA].get(0)
        return SoundLog(
            directory=self.directory,
            entries=self.contents.entries,
            base_offset=bases[0],
            end_offset=reached,
            segments=len(bases),
            batches=count,
            index_sizes=(max(map(len, offsets.values())), max(map(len, times.values()))),
            is_padded=bool(self.contents.padded),
            snapshots=tuple(sorted(snapshots)),
            snapshot_size=max(map(len, snapshots.values()), default=0),
            epochs=epochs,
            topic_id=None if metadata is None else topic_id_of(metadata, self.directory / filenames.PARTITION_METADATA),
            size=sum(map(len, logs.values())),
            modified_ms=self.contents.written[bases[-1]],
            pieces=self.pieces,
        )

    # --- batches ------------------------------------------------------------------------------------------

    def _batches(self, base: int, following: int | None) -> list[_Batch] | None:
        """Returns the batches of a segment if they and their records are right, and the file ends with the last."""
        data = self.contents.files[FileKind.LOG][base]
        if not data:
            return []
        offsets = PlausibleOffsets.of_segment(base, following)
        rows = np.empty(len(data) // LEAST_ENTRY + 1, dtype=layout.BATCH)
        state, view = new_state(), np.frombuffer(data, dtype=np.uint8)
        consumed, right = walk_clean(view, len(data), 0, True, True, base, offsets.most, rows, state)
        count = int(state[validate.STATE_BATCHES])
        if not right and (rows["attributes"][:count] & layout.CODEC_MASK).any():
            table = self._opened_batches(base, offsets)
        else:
            table = rows[:count] if right and consumed == len(data) else None
        if table is None or len(table) > _MOST_BATCHES:
            return None
        source = partial(self.fs.open, self.directory / filenames.segment_file_name(base), "r")
        self.pieces[base] = WalkedEntries(0, view, table, np.ones(len(table), dtype=bool), source)
        return list(map(_Batch._make, table.tolist()))

    def _opened_batches(self, base: int, offsets: PlausibleOffsets) -> np.ndarray | None:
        """Returns the batches of a segment in which some are compressed."""
        data, log = self.contents.files[FileKind.LOG][base], self.directory / filenames.segment_file_name(base)
        result = clean_range(self.fs, log, 0, len(data), offsets, Level.RECORD, keep=True)
        if result is None or result.end != len(data):
            return None
        return np.concatenate([piece.batches for piece in result.pieces])

    def _follow(self, batches: Sequence[_Batch], reached: int) -> bool:
        """Notes epochs and producers. Returns False if an offset is left out, or if anything in the batches is rare."""
        snapshots = self.contents.files[FileKind.PRODUCER_SNAPSHOT]
        for batch in batches:
            at = batch.base_offset
            if at in snapshots and not self._snapshot_is_right(at):  # of an earlier stop, which the next start removes
                return False
            is_whole = batch.base_offset == reached and batch.records == batch.last_offset + 1 - reached
            if not is_whole or batch.magic != 2 or batch.attributes & _RARE:
                return False
            reached, latest = batch.last_offset + 1, self.epochs[-1].epoch if self.epochs else NO_LEADER_EPOCH
            if batch.leader_epoch > latest:
                self.epochs.append(EpochEntry(batch.leader_epoch, batch.base_offset))
            elif batch.leader_epoch not in (latest, NO_LEADER_EPOCH):
                return False
            if batch.producer_id >= 0:
                last = last_sequence(batch.base_sequence, batch.records - 1)
                self.producers[batch.producer_id] = batch.producer_epoch, batch.last_offset, last
        return True

    # --- files about them ---------------------------------------------------------------------------------

    def _indexes_are_right(self, base: int, batches: Sequence[_Batch], *, closed: bool) -> bool:
        offsets, times = (
            self.contents.files[FileKind.OFFSET_INDEX][base],
            self.contents.files[FileKind.TIME_INDEX][base],
        )
        if closed and base in self.contents.padded:
            return False
        return _offsets_are_right(offsets, base, batches) and _times_are_right(times, base, batches, closed=closed)

    def _snapshot_is_right(self, offset: int) -> bool:
        """True without a snapshot, or if its producers are as the batches before `offset` left them. The batches may
        have gone of those that the log does not show."""
        data = self.contents.files[FileKind.PRODUCER_SNAPSHOT].get(offset)
        if data is None or offset in self.compared:
            return True
        self.compared.add(offset)
        for entry in decode_snapshot(data, filenames.segment_file_name(offset, FileKind.PRODUCER_SNAPSHOT)):
            stated = entry.producer_epoch, entry.last_offset, entry.last_sequence
            if entry.current_txn_first_offset != NO_OFFSET or self.producers.get(entry.producer_id, stated) != stated:
                return False
        return True

    def _listed_epochs(self, end: int) -> tuple[EpochEntry, ...] | None:
        """Returns the checkpoint's epochs if they are those of the batches; a last one may begin at the log's end."""
        name, derived = filenames.LEADER_EPOCH_CHECKPOINT, tuple(self.epochs)
        data = self.contents.files[name].get(0)
        if data is None:
            return None if derived else ()
        listed = parse_leader_epochs(data, name)
        begun = listed[len(derived) :]
        if listed[: len(derived)] != derived or len(begun) > 1:
            return None
        is_new = all(entry.start_offset == end and entry.epoch > NO_LEADER_EPOCH for entry in begun)
        return listed if is_new and all(a.epoch < b.epoch for a, b in pairwise(listed)) else None


def _offsets_are_right(data: bytes, base: int, batches: Sequence[_Batch]) -> bool:
    """True if each entry leads to the batch that holds its offset, and both ascend."""
    at = {batch.position: batch for batch in batches} if data else {}
    before = -1
    for relative, position in _OFFSET_ENTRY.iter_unpack(data):
        batch = at.get(position)
        if batch is None or position <= before or not batch.base_offset <= base + relative <= batch.last_offset:
            return False
        before = position
    return True


def _times_are_right(data: bytes, base: int, batches: Sequence[_Batch], *, closed: bool) -> bool:
    """True if each entry has the largest timestamp up to its offset, both ascend, and the last one of a closed segment
    has the segment's largest."""
    lasts = [batch.last_offset for batch in batches]
    maxima, largest = [-1], -1  # before each batch, and at the end
    for batch in batches:
        largest = max(largest, batch.max_timestamp)
        maxima.append(largest)
    stamp, reached = -1, base
    for number, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(data)):
        offset = base + relative
        if not base <= reached <= offset <= (lasts[-1] if lasts else -1) or (number and timestamp <= stamp):
            return False
        holder = bisect_left(lasts, offset)
        least = maxima[holder + 1] if lasts[holder] == offset else maxima[holder]
        if not least <= timestamp <= maxima[holder + 1]:
            return False
        stamp, reached = timestamp, offset
    return not closed or stamp >= largest
