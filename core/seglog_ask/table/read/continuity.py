"""Offsets that no batch covers, and the bytes after a log's last batch: what of them is a loss, damage, or lawful.

Where a broker deletes (cleanup.policy=delete), the offsets of a log follow each other; so a hole is a loss. A cleaner
makes holes, so they are lawful where one has worked. Evidence, the cheapest first:

1. A batch of the same piece with fewer records than offsets: only a cleaner leaves that.
2. The policy of the topic in the cluster's metadata, if it lies in the same log directory.
3. The cleaner's checkpoint: everything below its offset was cleaned, whatever the policy is now.
4. Without a policy: an index whose log is gone proves a loss. Otherwise a hole is lawful if the cleaner's checkpoint
   names the partition, or the segments around it have traces of a cleaner, which a hole inside a segment is, too. A log
   without any is one that Kafka's default policy deletes.

After a log's last batch, zeros or the beginning of the next batch are the unfinished write of a running or a killed
broker. That is expected if the log reaches its checkpointed high watermark, as nothing acknowledged is missing. It is
damage after an orderly stop, or if no checkpoint can tell. Any other bytes there are damage. A log that ends before its
high watermark has lost offsets, wherever its last batch ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from seglog import layout
from seglog.format import filenames
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.layout import INT64_MAX
from seglog.locations import parse_location
from seglog.model import TopicPartition
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.view import is_held
from seglog.storage.filesystem import File, FileSystem
from seglog.storage.lock import partition_path
from seglog.verification.surroundings import Surroundings, read_surroundings
from seglog_ask.table.plan.partition_log import SegmentName, list_segments, permitted
from seglog_ask.table.plan.splits import SegmentPiece
from seglog_ask.table.read.damage import FRAMING, MISSING, OFFSETS, TORN_TAIL, Damage

_HEAD_BYTES = 27  # of a batch: up to its last offset delta
_LAST_DELTA_AT = 23
_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
_V2 = 2


class Continuity:
    """Follows the good batches of a piece, in order, and tells which offsets between and after them are lost."""

    def __init__(self, fs: FileSystem, piece: SegmentPiece) -> None:
        self._fs, self._piece = fs, piece
        self._chain = _Chain(piece.share[0], piece.start)
        self._damaged_to: int | None = None  # the offsets of damage after the last good batch; INT64_MAX if unknown

    def holes(self, good: np.ndarray) -> Iterator[Damage]:
        """Takes the next good batches (layout.BATCH), and yields the holes before them that are a loss."""
        if len(good):
            self._damaged_to = None
        for first, stop, position in self._chain.take(good):
            yield from self._hole(first, stop, position)

    def damaged(self, damage: Iterable[Damage]) -> None:
        """Notes damage; what lies after the last good batch stands for offsets there."""
        for one in damage:
            if one.position >= self._chain.end:
                credible = one.last_offset is not None and one.kind != OFFSETS
                last = one.last_offset if credible and one.last_offset is not None else INT64_MAX - 1
                self._damaged_to = max(self._damaged_to or 0, last + 1)

    def end(self) -> Iterator[Damage]:
        """At the end of the piece, yields what is lost between it and what follows, or the checkpointed end."""
        piece, reached = self._piece, self._chain.next_offset
        if piece.next_offset < INT64_MAX or piece.end < piece.size:
            if self._damaged_to is None:
                yield from self._hole(reached, piece.share[1], piece.end)
            return
        reached = max(reached, self._damaged_to or 0)
        stop = min(piece.share[1], piece.acknowledged)
        if reached < stop:
            reason = f"the log ends before its high watermark {piece.acknowledged}"
            yield Damage(piece.path, piece.end, 0, MISSING, reason, reached, stop - 1)

    def torn(self, file: File, gap: Gap) -> Damage:
        """Returns the bytes after the last batch of a log as damage; `expected` if a broker leaves them."""
        acknowledged, following = self._piece.acknowledged, self._chain.next_offset
        offsets = _offsets_of(file.read_at(gap.position, min(_HEAD_BYTES, gap.length)), gap, following)
        last = acknowledged - 1 if acknowledged > following else None
        if not gap.zeros and offsets is None:
            reason = f"after the last batch: {gap.why}"
            return Damage(self._piece.path, gap.position, gap.length, FRAMING, reason, following, last)
        first, last = offsets or (following, last)
        what, expected = gap.why if gap.zeros else "the last batch is not complete", False
        if acknowledged > following:
            what += f", and the log ends before its high watermark {acknowledged}"
        elif self._evidence.is_written:
            expected = True
        elif acknowledged < 0:
            what += ", and no checkpoint of a high watermark shows whether it was acknowledged"
        elif self._evidence.stopped_in_order:
            what += ", although the broker stopped in order"
        else:
            expected = True
        return Damage(self._piece.path, gap.position, gap.length, TORN_TAIL, what, first, last, expected)

    def _hole(self, first: int, stop: int, position: int) -> Iterator[Damage]:
        first, stop = max(first, self._piece.share[0]), min(stop, self._piece.share[1])
        if first >= stop or self._chain.thin or self._piece.vouched or first < self._evidence.lawful_to:
            return
        reason = self._evidence.loss_of(first, stop)
        if reason:
            yield Damage(self._piece.path, position, 0, MISSING, reason, first, stop - 1)

    @cached_property
    def _evidence(self) -> _Evidence:
        return _Evidence(self._fs, self._piece)


class _Chain:
    """Batches of one file in order, and where their offsets do not follow each other.

    `thin`: a batch had fewer records than offsets.
    """

    def __init__(self, next_offset: int, end: int) -> None:
        self.next_offset, self.end, self.thin = next_offset, end, False

    def take(self, batches: np.ndarray) -> list[tuple[int, int, int]]:
        """Returns the holes before these batches: first offset, offset after the last, position. No hole is returned
        where other bytes lie in between.
        """
        if not len(batches):
            return []
        last, positions = batches["last_offset"], batches["position"].astype(np.int64)
        v2 = batches["magic"] >= 2
        # only decoding shows the first offset of a legacy wrapper
        is_wrapper = ~v2 & ((batches["attributes"] & layout.CODEC_MASK) != 0)
        begins = np.where(is_wrapper, np.int64(-1), batches["base_offset"])
        expected = np.maximum.accumulate(np.concatenate(([self.next_offset], last[:-1] + 1)))
        ends = positions + batches["size"]
        adjacent = positions == np.concatenate(([self.end], ends[:-1]))
        self.thin = self.thin or bool((v2 & (batches["count"] < last - batches["base_offset"] + 1)).any())
        self.next_offset, self.end = max(self.next_offset, int(last.max()) + 1), int(ends[-1])
        places = np.flatnonzero(adjacent & (begins > expected)).tolist()
        return [(int(expected[i]), int(begins[i]), int(positions[i])) for i in places]


class _Evidence:
    """What the files around a piece say of holes and of unfinished writes."""

    def __init__(self, fs: FileSystem, piece: SegmentPiece) -> None:
        self._fs, self._piece = fs, piece
        self._directory = parse_location(piece.path).parent
        self._log_directory = partition_path(self._directory).parent

    @property
    def is_written(self) -> bool:
        """True if a process holds the log directory's lock."""
        return is_held(self._log_directory)

    @property
    def stopped_in_order(self) -> bool:
        """True if the broker's mark of an orderly stop is there."""
        return self._fs.status(self._log_directory / filenames.CLEAN_SHUTDOWN_FILE) is not None

    @cached_property
    def lawful_to(self) -> int:
        """Holes that begin before this offset are a cleaner's."""
        return INT64_MAX if self._is_compacted else self._cleaned_to or 0

    def loss_of(self, first: int, stop: int) -> str:
        """Returns why a hole that begins at `lawful_to` or later is a loss, or "" if it need not be one."""
        if self._is_compacted is False:
            return "the topic's policy deletes, so its offsets must follow each other"
        for base, name in self._orphans:
            if first <= base < stop:
                return f"{name} is there, and its log is gone"
        if self._cleaned_to is not None or self._has_traces:
            return ""
        return "nothing here shows that a cleaner has worked on this log"

    @cached_property
    def _around(self) -> Surroundings:
        with permitted():
            return read_surroundings(self._fs, self._log_directory, ask_readers=False)

    @cached_property
    def _is_compacted(self) -> bool | None:
        return self._around.compacted(self._piece.topic)

    @cached_property
    def _cleaned_to(self) -> int | None:
        key = TopicPartition(self._piece.topic, self._piece.partition)
        return self._around.offset(filenames.CLEANER_OFFSET_CHECKPOINT, key)

    @cached_property
    def _orphans(self) -> list[tuple[int, str]]:
        """The indexes whose log is gone: base offset and name."""
        parsed = [
            (each, name) for name in self._fs.list(self._directory) if (each := parse_file_name(name)) is not None
        ]
        logs = {each.offset for each, _ in parsed if each.kind is FileKind.LOG}
        indexes = [
            (each.offset, name) for each, name in parsed if each.kind in _INDEXES and each.state is FileState.LIVE
        ]
        return [(base, name) for base, name in indexes if base not in logs]

    @cached_property
    def _has_traces(self) -> bool:
        """True if the segments around the piece have holes inside, or batches that lack records."""
        names = list_segments(self._fs, self._directory)
        at = next((i for i, name in enumerate(names) if name.base_offset == self._piece.base_offset), 0)
        return any(_is_thinned(self._fs, name) for name in names[max(0, at - 1) : at + 2])


def _is_thinned(fs: FileSystem, name: SegmentName) -> bool:
    chain = _Chain(name.base_offset, 0)
    for step in LogWalk(fs, name.log):
        if isinstance(step, WalkedEntries) and (
            chain.take(step.batches[step.valid]) or chain.thin or _lacks_messages(step)
        ):
            return True
    return False


def _lacks_messages(step: WalkedEntries) -> bool:
    """True if a legacy wrapper lacks messages between its first and its last one."""
    batches = step.batches[step.valid]
    wrappers = batches[(batches["magic"] < 2) & ((batches["attributes"] & layout.CODEC_MASK) != 0)]
    for records in step.records(wrappers) if len(wrappers) else ():
        rows = records.rows
        same = np.diff(rows["batch"]) == 0
        if (np.diff(rows["offset"])[same] > 1).any():
            return True
    return False


def _offsets_of(head: bytes, gap: Gap, following: int) -> tuple[int, int | None] | None:
    """Returns the first and last offset of an incomplete batch that begins with `head` (last: None if its header is cut
    too). Returns None for bytes that do not begin the batch that must come next.
    """
    expected = struct.pack(">q", following)
    if len(head) < len(expected):
        return (following, None) if expected.startswith(head) else None
    (base,) = struct.unpack_from(">q", head)
    if len(head) < layout.HEADER_UP_TO_MAGIC:
        return (following, None) if base == following else None
    if gap.size <= gap.length or head[layout.MAGIC_OFFSET] > _V2:
        return None
    if head[layout.MAGIC_OFFSET] < _V2:  # a wrapper's offset is its last one
        return (following, base) if following <= base <= following + layout.INT32_MAX else None
    if base != following:
        return None
    if len(head) < _HEAD_BYTES:
        return following, None
    (delta,) = struct.unpack_from(">i", head, _LAST_DELTA_AT)
    return (following, following + delta) if delta >= 0 else None
