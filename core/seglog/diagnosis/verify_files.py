"""Checking the files around the segments: names, leftovers, checkpoints, properties, and Kafka 0.7 logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from seglog.diagnosis.dump_files import rows_of
from seglog.diagnosis.findings import Finding, Severity, finding
from seglog.errors import CorruptCheckpointError, RefusedError, UnsupportedError
from seglog.format import checkpoint, filenames
from seglog.log.listing import LogDirectoryListing, PartitionListing
from seglog.model import TopicPartition
from seglog.storage.filesystem import FileSystem


def verify_names(fs: FileSystem, listing: PartitionListing) -> Iterator[Finding]:
    """Leftovers, orphans and strangers in a partition directory, and its `partition.metadata`."""
    partition = listing.directory.resolve().name
    for path in listing.leftovers:
        # A running broker deletes `.deleted` files a minute later: they are no damage.
        severity = Severity.WARNING if path.name.endswith((".swap", ".cleaned")) else Severity.INFO
        message = "left by an interrupted deletion, cleaning, swap or write"
        yield finding("LEFTOVER_FILE", partition, path.name, message, severity=severity)
    for orphan in listing.orphans:
        yield finding("ORPHAN_INDEX", partition, orphan.path.name, "there is no segment of that base offset")
    for path in listing.strangers:
        severity = Severity.ERROR if path.name.endswith(".log") else Severity.WARNING
        message = "Kafka gives no such name"
        yield finding("STRANGE_FILE", partition, path.name, message, severity=severity)
    if listing.partition_metadata is not None:
        yield from _readable(fs, listing.partition_metadata, partition)


def verify_log_directory(
    fs: FileSystem, listing: LogDirectoryListing, extents: Mapping[TopicPartition, tuple[int, int]]
) -> Iterator[Finding]:
    """Checkpoints and properties. `extents` gives (first segment's base, log end offset) of partitions that
    were verified; entries of others are not judged.
    """
    for path in listing.strangers:
        message = "a directory that is no partition: a broker does not start with it"
        yield finding("STRANGE_FILE", "", path.name, message, severity=Severity.ERROR)
    if listing.meta_properties is not None:
        yield from _readable(fs, listing.meta_properties, "")
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for name, path in listing.checkpoints.items():
        try:
            offsets[name] = checkpoint.parse_offset_checkpoint(fs.read_bytes(path), path)
        except (CorruptCheckpointError, RefusedError) as error:
            yield finding("CHECKPOINT_CORRUPT", "", name, str(error))
    for key, (base, end) in sorted(extents.items()):
        yield from _offsets_of(key, base, end, {name: found.get(key) for name, found in offsets.items()})


def _offsets_of(key: TopicPartition, base: int, end: int, found: Mapping[str, int | None]) -> Iterator[Finding]:
    start = found.get(filenames.LOG_START_OFFSET_CHECKPOINT)
    least = base if start is None else max(start, base)
    watermark = found.get(filenames.HIGH_WATERMARK_CHECKPOINT)
    for name, offset in found.items():
        if offset is None:
            continue
        if not 0 <= offset <= end:
            yield _beyond(name, key, f"offset {offset} is not within the log, which ends at {end}")
        elif name == filenames.CLEANER_OFFSET_CHECKPOINT and offset < least:
            yield _beyond(name, key, f"offset {offset} is below the log's start, {least}")
    if start is not None and watermark is not None and start > watermark:
        yield _beyond(filenames.LOG_START_OFFSET_CHECKPOINT, key, f"{start} is above the high watermark {watermark}")


def _beyond(name: str, key: TopicPartition, message: str) -> Finding:
    return finding("CHECKPOINT_BEYOND_LOG", "", name, f"{key}: {message}")


def _readable(fs: FileSystem, path: Path, partition: str) -> Iterator[Finding]:
    try:
        for row in rows_of(fs, path):
            if isinstance(row, Finding):
                yield row
    except UnsupportedError as error:
        yield finding("STRANGE_FILE", partition, path.name, str(error))


def verify_07(fs: FileSystem, listing: PartitionListing) -> Iterator[Finding]:
    """A log of Kafka 0.7: every message's checksum and contents, and that the files join."""
    partition = listing.directory.resolve().name
    expected: int | None = None
    for segment in listing.segments:
        if expected is not None and segment.base_offset != expected:
            message = f"the file before it ends at {expected}"
            yield finding("SEGMENT_GAP_07", partition, segment.log.name, message, first_offset=expected)
        expected = segment.base_offset + segment.size
        for row in rows_of(fs, segment.log):
            if isinstance(row, Finding):
                yield row
