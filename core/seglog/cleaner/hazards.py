"""What makes Kafka's cleaner fail on a compacted log, or give damage a valid checksum.

Kafka's cleaner reads headers and records and never compares a checksum. It copies a batch whose records all stay, and
builds every other batch anew: there a negative timestamp (KIP-228 lets producers write them) is an
IllegalArgumentException, and what it cannot decompress or parse a CorruptRecordException or worse. The partition is
then uncleanable until a restart. seglog's cleaner checks checksums, and keeps negative timestamps.

Kafka: Cleaner.cleanInto, MemoryRecords.filterTo, MemoryRecordsBuilder.appendWithOffset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.configuration.keys import LogConfig
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.decoder import WRONG_CHECKSUM
from seglog.kafka_version import KafkaVersion
from seglog.model import NO_TIMESTAMP
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.storage.filesystem import FileSystem
from seglog.units import count_is, count_text

FAILS, LAUNDERS, DROPS = "CLEANER_FAILS", "CLEANER_LAUNDERS", "CLEANER_DROPS"

_BOUNDS_RECORDS = KafkaVersion(4, 4)  # the first release with max.decompressed.message.bytes
# The most bytes of a record whose length, a zigzag varint before its body, takes 1, 2, 3 or 4 bytes.
_LENGTHS = np.array([bytes_ + (1 << 7 * bytes_ - 1) - 1 for bytes_ in (1, 2, 3, 4)])
_REWRITTEN = ", and the cleaner cannot rewrite such a batch"

Survives = Callable[[int, int], bool]


class HazardReason(Enum):
    """Why Kafka's cleaner fails. Only with DAMAGE is the data not whole; else `seglog clean` can do the round. KEYLESS
    records fail nothing: every cleaner drops them."""

    DAMAGE = auto()
    NEGATIVE_TIMESTAMP = auto()
    TOO_LARGE = auto()
    KEYLESS_END = auto()
    KEYLESS = auto()


@dataclass(frozen=True, slots=True)
class Hazard:
    """The first of `count` hazards of one code and reason in a segment. `code` is FAILS, LAUNDERS or DROPS, which
    counts records."""

    code: str
    segment: SegmentFiles
    position: int
    length: int
    message: str
    first_offset: int | None
    reason: HazardReason
    count: int = 1

    @property
    def place(self) -> str:
        """The hazard with its segment and position, for a sentence."""
        return f"{self.segment.log.name} position {self.position}: {self.message}"


def largest_decompressed(kafka: KafkaVersion, config: LogConfig) -> int | None:
    """Returns the bytes that a record in a compressed batch may have for a release's cleaner; None for any number."""
    return config.max_decompressed_message_bytes if kafka >= _BOUNDS_RECORDS else None


def first_too_large(
    fs: FileSystem, partition: Path, bases: Collection[int], kafka: KafkaVersion, config: LogConfig
) -> Hazard | None:
    """Returns the first record in the segments with these base offsets that is too large for a release's cleaner, None
    if there is none. The segments are asked for only if the cleaner has a bound that a record can reach: Kafka's
    default is above every record. Raises OSError.
    """
    largest = largest_decompressed(kafka, config)
    if largest is None or largest >= LogConfig().max_decompressed_message_bytes or fs.status(partition) is None:
        return None
    segments = [segment for segment in list_partition(fs, partition).segments if segment.base_offset in bases]
    hazards = cleaner_hazards(fs, segments, largest=largest)
    return next((hazard for hazard in hazards if hazard.reason is HazardReason.TOO_LARGE), None)


def cleaner_hazards(
    fs: FileSystem, segments: Sequence[SegmentFiles], survives: Survives | None = None, largest: int | None = None
) -> Iterator[Hazard]:
    """Yields the hazards in a log's segments, the last of which is the active one. `survives` tells of a byte of a
    segment (base offset, position) whether it is still there after the start; None: all are. `largest` is that of
    `largest_decompressed`. Raises OSError.
    """
    for segment in segments:
        yield from _Segment(fs, segment, segment is not segments[-1], survives, largest).hazards()


class _Segment:
    """The hazards in one segment: the first of each kind, with a count."""

    def __init__(
        self, fs: FileSystem, segment: SegmentFiles, closed: bool, survives: Survives | None, largest: int | None
    ) -> None:
        self._fs, self._segment, self._closed, self._survives, self._largest = fs, segment, closed, survives, largest
        self._found: dict[tuple[str, HazardReason], Hazard] = {}
        self._keyless_end: np.void | None = None

    def hazards(self) -> Iterator[Hazard]:
        for step in LogWalk(self._fs, self._segment.log):
            if isinstance(step, Gap):
                if not step.at_end or self._closed:
                    self._note(FAILS, step.position, step.length, f"{count_is(step.length, 'byte')} not a batch")
                continue
            self._damaged(step)
            good = step.batches[step.valid & (step.batches["magic"] > 0)]
            for row in good[good["max_timestamp"] < NO_TIMESTAMP]:
                message = f"the batch's max timestamp {int(row['max_timestamp'])} is negative{_REWRITTEN}"
                self._batch(FAILS, row, message, HazardReason.NEGATIVE_TIMESTAMP)
            self._records(step)
        if self._closed and self._keyless_end is not None:
            message = "the segment ends with magic 0 or 1 messages without keys, on which Kafka's cleaner fails"
            self._batch(FAILS, self._keyless_end, message, HazardReason.KEYLESS_END)
        for hazard in self._found.values():
            counted = f"{count_text(hazard.count, 'record')} without a key"
            yield replace(hazard, message=counted) if hazard.code == DROPS else hazard

    def _damaged(self, piece: WalkedEntries) -> None:
        """Notes batches with a wrong checksum: one that can still be parsed gets a right one."""
        if piece.valid.all():
            return
        for records in piece.records(piece.batches[~piece.valid]):
            for i in range(len(records.batches)) if not records.rows_after else ():
                status = int(records.status[i])
                message = f"{WRONG_CHECKSUM}, and "
                message += STATUS_REASONS[status] if status else "the cleaner does not check it"
                self._batch(FAILS if status else LAUNDERS, records.batches[i], message)

    def _records(self, piece: WalkedEntries) -> None:
        for records in piece.records(piece.batches[piece.valid]):
            for i in np.flatnonzero(records.status).tolist() if not records.rows_before else ():
                self._batch(FAILS, records.batches[i], STATUS_REASONS[int(records.status[i])])
            stamps = records.batches["magic"][records.rows["batch"]] > 0
            for i in np.flatnonzero(stamps & (records.rows["timestamp"] < NO_TIMESTAMP)).tolist():
                row = records.batches[int(records.rows["batch"][i])]
                if row["max_timestamp"] >= NO_TIMESTAMP:
                    message = f"a record's timestamp {int(records.rows['timestamp'][i])} is negative{_REWRITTEN}"
                    self._batch(FAILS, row, message, HazardReason.NEGATIVE_TIMESTAMP)
            self._note_large(records)
            self._note_keyless(records)
            self._note_end(records)

    def _note_large(self, records: Records) -> None:
        """Notes compressed batches with a record that is larger than the cleaner decompresses."""
        rows, batches = records.rows, records.batches
        if self._largest is None or len(rows) == 0 or int(rows["size"].max()) <= self._largest:
            return
        bodies = rows["size"] - (1 + (rows["size"][:, None] > _LENGTHS).sum(axis=1))
        bounded = (batches["attributes"] & layout.CODEC_MASK != 0) & (batches["magic"] == 2)
        is_large = bounded[rows["batch"]] & (bodies > self._largest)
        for number in np.unique(rows["batch"][is_large]).tolist():
            size = int(bodies[is_large & (rows["batch"] == number)].max())
            message = f"a record of {count_text(size, 'byte')}, compressed, and max.decompressed.message.bytes is"
            self._batch(FAILS, batches[number], f"{message} {self._largest}", HazardReason.TOO_LARGE)

    def _note_keyless(self, records: Records) -> None:
        """Notes data records without a key: policy became compact after they were written, for a broker takes none."""
        data = records.batches["attributes"] & layout.CONTROL_MASK == 0
        batch_of = records.rows["batch"][(records.rows["key_size"] < 0) & data[records.rows["batch"]]]
        if len(batch_of):
            self._batch(DROPS, records.batches[int(batch_of[0])], "", HazardReason.KEYLESS, len(batch_of))

    def _note_end(self, records: Records) -> None:
        rows, batches = records.rows, records.batches
        if len(batches) == 0 or (records.rows_before and self._keyless_end is None):
            return  # nothing, or a later part of a batch that has a key
        last = batches[-1]
        own = rows["key_size"][rows["batch"] == len(batches) - 1]
        legacy = int(last["magic"]) < 2 and not int(last["attributes"]) & layout.CONTROL_MASK
        self._keyless_end = last if legacy and len(own) and bool((own < 0).all()) else None

    def _batch(
        self, code: str, row: np.void, message: str, reason: HazardReason = HazardReason.DAMAGE, count: int = 1
    ) -> None:
        where = int(row["position"]), int(row["size"])
        self._note(code, *where, message, int(row["base_offset"]), reason, count)

    def _note(
        self,
        code: str,
        position: int,
        length: int,
        message: str,
        first_offset: int | None = None,
        reason: HazardReason = HazardReason.DAMAGE,
        count: int = 1,
    ) -> None:
        if self._survives is not None and not self._survives(self._segment.base_offset, position):
            return
        known = self._found.get((code, reason))
        if known is None:
            known = Hazard(code, self._segment, position, length, message, first_offset, reason, 0)
        self._found[code, reason] = replace(known, count=known.count + count)
