"""Rewrites a partition with another magic or codec (`seglog convert`); offsets and timestamps stay.

1. Walks the source. Damage is an error (`salvage` handles damaged logs), except a torn tail of the last segment. A
   correct checksum is not enough: every record must be readable, even in batches that are copied unchanged.
2. Magic 2 to 2: recompresses records unchanged; header, producer, transaction and control data stay.
   Magic 0 or 1 to 2: turns each wrapper into a batch and groups plain messages into batches.
   To magic 0 or 1: writes messages or wrappers. Headers, transactions and zstd do not exist there and are refused;
   producer ids and, with magic 0, timestamps are lost.
3. Writes batches to the new log as a follower does, with their own offsets. The log appears once it is complete.

Kafka: AbstractRecords.downConvert, LogValidator's up-conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.clock import Clock
from seglog.errors import CorruptRecordError, NotALogError, UnsupportedError
from seglog.format.builder import BatchOptions, encode_columns
from seglog.format.columns import STATUS_REASONS, Records
from seglog.format.compression import compress, decompress
from seglog.format.decoder import WRONG_CHECKSUM, batch_error
from seglog.format.message_set import encode_messages
from seglog.format.payloads import DecompressionError
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.format.windows import WHOLE_LIMIT, too_large_to_rewrite
from seglog.log.directory import ConfigOf
from seglog.log.log import Log
from seglog.log.opening import open_partition
from seglog.model import Compression, Record
from seglog.operations.undo import Settled, settle_unfinished, unsettled
from seglog.repairs.undo.beside import log_directory_lock, new_directory
from seglog.scan.listing import PartitionListing, SegmentFiles, list_partition, require_partition
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import EndReason
from seglog.storage.filesystem import FileSystem
from seglog.units import count_is
from seglog.verification.finding_codes import CODES
from seglog.verification.segment_survey import SegmentSurveyor, code_of

_APPEND_BYTES = 1 << 20
_PLAIN_BATCH_BYTES = 16384


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The target `magic` (0, 1 or 2) and `codec` (None: each batch keeps its own)."""

    magic: int = 2
    codec: Compression | None = None

    def __post_init__(self) -> None:
        if self.codec is not None and self.magic < self.codec.least_magic:
            raise UnsupportedError(f"magic {self.magic} does not support {self.codec.label}")


@dataclass(slots=True)
class Converted:
    """The amounts read and written. `torn_bytes` counts the bytes skipped at the end of the last segment."""

    batches_read: int = 0
    batches_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    torn_bytes: int = 0


def convertible(fs: FileSystem, partition: Path) -> PartitionListing:
    """Returns a convertible partition's files. Raises NotALogError, and UnsupportedError for a log of Kafka 0.7."""
    require_partition(fs, partition)
    listing = list_partition(fs, partition)
    if listing.format == "0.7":
        raise UnsupportedError("logs of Kafka 0.7 cannot be converted: their messages have no offsets of their own")
    if not listing.segments:
        raise NotALogError(partition)
    return listing


def convert(
    fs: FileSystem,
    listing: PartitionListing,
    target: Log,
    options: ConvertOptions,
    progress: Callable[[int, int], None] | None = None,
) -> Converted:
    """Rewrites the partition of `listing` into `target`, a new, empty log.

    Raises CorruptRecordError for damage, UnsupportedError for data that the target magic cannot hold; batches written
    before that stay in `target`. `progress` is called with (bytes read, bytes in all).
    """
    done, writer, surveyor = Converted(), _Writer(target), SegmentSurveyor(fs)
    if listing.segments and listing.segments[0].base_offset > target.log_end_offset:
        target.truncate_fully(listing.segments[0].base_offset)
    for segment in listing.segments:
        is_last = segment is listing.segments[-1]
        for step in LogWalk(fs, segment.log):
            if isinstance(step, Gap):
                if not (is_last and step.at_end and step.reason is EndReason.TRAILING):
                    reason = f"{count_is(step.length, 'byte')} not a batch; `seglog salvage` copies the good data"
                    raise CorruptRecordError(segment.log, reason, step.position)
                done.torn_bytes += step.length
                continue
            _refuse_damage(surveyor, step, segment)
            done.batches_read += len(step.batches)
            done.bytes_read += int(step.batches["size"].astype(np.int64).sum())
            for data in _converted(segment.log, step, options):
                writer.take(data)
            if progress is not None:
                progress(done.bytes_read, listing.size)
    writer.flush()
    target.update_high_watermark(target.log_end_offset)
    target.flush()
    done.batches_written, done.bytes_written = writer.batches, writer.bytes
    return done


def convert_to(
    fs: FileSystem,
    clock: Clock,
    listing: PartitionListing,
    directory: Path,
    options: ConvertOptions,
    config_of: ConfigOf,
    progress: Callable[[int, int], None] | None = None,
    settled: Settled = unsettled,
) -> tuple[Converted, int]:
    """Rewrites the partition of `listing` into `directory`, which appears once it is complete; returns the log end
    offset as well.

    Settles an unfinished run in its log directory first and calls `settled` with it. Raises RefusedError if the
    directory is not empty, LockedError if its log directory is in use, and the errors of `convert`.
    """
    settle_unfinished(fs, directory.parent, settled)
    with log_directory_lock(fs, directory), new_directory(fs, directory) as place:
        owner, log = open_partition(place, fs=fs, clock=clock, config_of=config_of, writable=True, create=True)
        with owner:
            done = convert(fs, listing, log, options, progress)
            return done, log.log_end_offset


class _Writer:
    """Collects batches into appends of bounded size."""

    def __init__(self, target: Log) -> None:
        self._target = target
        self._most = min(_APPEND_BYTES, target.config.segment_bytes)
        self._waiting = bytearray()
        self.batches = self.bytes = 0

    def take(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > self._most:
            self.flush()
        self._waiting += data

    def flush(self) -> None:
        if self._waiting:
            info = self._target.append_as_follower(bytes(self._waiting), layout.INT32_MAX)
            self.batches += info.batches
            self.bytes += info.bytes
            self._waiting.clear()


def _refuse_damage(surveyor: SegmentSurveyor, piece: WalkedEntries, segment: SegmentFiles) -> None:
    """Raises CorruptRecordError for the first bad batch of a piece."""
    judged = surveyor.verdicts(segment.log, piece, PlausibleOffsets.of_segment(segment.base_offset))
    wrong = np.flatnonzero(judged.bits)
    if len(wrong):
        row, code = piece.batches[wrong[0]], code_of(int(judged.bits[wrong[0]]))
        reason = f"{_reason(piece, int(wrong[0]), code)}; `seglog salvage` copies the good data"
        raise batch_error(CorruptRecordError, segment.log, reason, row)


def _reason(piece: WalkedEntries, wrong: int, code: str) -> str:
    """Returns what is wrong with a batch, as part of a sentence: the decoder's reason, or the finding's meaning."""
    if not piece.valid[wrong]:
        return WRONG_CHECKSUM
    for records in piece.records(piece.batches[wrong : wrong + 1]):
        if records.status.any():
            return STATUS_REASONS[int(records.status[0])]
    meaning = CODES[code].meaning.rstrip(".")
    return f"{code}: {meaning[0].lower()}{meaning[1:]}"


def _converted(path: Path, piece: WalkedEntries, options: ConvertOptions) -> Iterator[bytes]:
    """Yields the converted batches of a piece: single ones, or a few back to back."""
    rows, first = piece.batches, 0
    while first < len(rows):
        row = rows[first]
        codec = int(row["attributes"]) & layout.CODEC_MASK
        stop = first + 1
        if int(row["magic"]) == options.magic and (options.codec is None or codec == options.codec):
            yield _bytes(piece, row)
        elif int(row["magic"]) == 2 and options.magic == 2:
            yield _recompressed(path, piece, row, options.codec)
        else:
            stop = _run_end(rows, first)
            yield from _rebuilt(path, piece, rows[first:stop], options)
        first = stop


def _bytes(piece: WalkedEntries, row: np.void) -> bytes:
    size = int(row["size"])
    if piece.complete:
        start = int(row["position"]) - piece.position
        return piece.data[start : start + size].tobytes()
    with piece.source() as file:
        if size > WHOLE_LIMIT:
            raise too_large_to_rewrite(file.path, row)
        return file.read_at(int(row["position"]), size)


def _recompressed(path: Path, piece: WalkedEntries, row: np.void, codec: Compression | None) -> bytes:
    data = _bytes(piece, row)
    header = RecordBatchHeader.read(data)
    payload: bytes | memoryview = memoryview(data)[layout.RECORD_BATCH_OVERHEAD :]
    if header.count:
        try:
            plain = decompress(header.codec, payload, limit=WHOLE_LIMIT)
        except DecompressionError as error:  # every other defect was found before
            raise too_large_to_rewrite(path, row) from error
        payload = compress(codec or Compression.NONE, plain)
    attributes = (header.attributes & ~layout.CODEC_MASK) | int(codec or Compression.NONE)
    return encode_batch(replace(header, attributes=attributes), payload)


def _run_end(rows: np.ndarray, first: int) -> int:
    """Returns the index after the run of plain messages of one magic with CreateTime; other entries are single runs."""
    attributes = rows["attributes"] & (layout.CODEC_MASK | layout.TIMESTAMP_TYPE_MASK)
    if rows["magic"][first] >= 2 or attributes[first]:
        return first + 1
    other = np.flatnonzero((rows["magic"][first:] != rows["magic"][first]) | (attributes[first:] != 0))
    return first + int(other[0]) if len(other) else len(rows)


def _rebuilt(path: Path, piece: WalkedEntries, rows: np.ndarray, options: ConvertOptions) -> Iterator[bytes]:
    flags = layout.CONTROL_MASK | layout.TRANSACTIONAL_MASK
    if rows["magic"][0] >= 2 and (rows["attributes"] & flags).any():
        first = int(rows["base_offset"][0])
        raise UnsupportedError(f"offset {first}: magic {options.magic} does not support transactions")
    codec = options.codec
    if codec is None:
        codec = Compression(int(rows["attributes"][0]) & layout.CODEC_MASK)
    append_time = int(rows["attributes"][0]) & layout.TIMESTAMP_TYPE_MASK and rows["magic"][0] > 0
    stamp = int(rows["max_timestamp"][0]) if append_time else None
    for records in piece.records(rows):
        if records.status.any():
            raise too_large_to_rewrite(path, records.batches[int(np.argmax(records.status != 0))])
        if len(records) and options.magic == 2:
            yield from _as_batches(records, codec, stamp, single=bool(int(rows["attributes"][0]) & layout.CODEC_MASK))
        elif len(records):
            yield _as_messages(list(records), options.magic, codec, stamp)


def _as_batches(records: Records, codec: Compression, stamp: int | None, single: bool) -> Iterator[bytes]:
    options = BatchOptions(
        codec=codec,
        batch_bytes=layout.INT32_MAX if single else _PLAIN_BATCH_BYTES,
        append_time_ms=stamp,
    )
    base = int(records.rows["offset"][0])
    for piece in encode_columns(records, base, options, keep_offsets=True):
        for row in piece.batches:
            start = int(row["position"])
            yield piece.data[start : start + int(row["size"])].tobytes()


def _as_messages(records: list[Record], magic: int, codec: Compression, stamp: int | None) -> bytes:
    """Encodes plain messages, or one wrapper."""
    for record in records:
        if record.headers:
            raise UnsupportedError(f"offset {record.offset}: magic {magic} does not support record headers")
    if magic < codec.least_magic:
        raise UnsupportedError(f"magic {magic} does not support {codec.label}: choose another codec")
    offsets = [record.offset or 0 for record in records]
    return encode_messages(records, offsets, magic, codec, append_time_ms=stamp)
