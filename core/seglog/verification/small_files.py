"""Verifies the files around the segments: names, leftovers, checkpoints, properties; and Kafka 0.7 logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from seglog.configuration.metadata_log import MetadataReplay
from seglog.errors import UnsupportedError
from seglog.format import filenames
from seglog.format.filenames import FileKind, FileState
from seglog.log.checkpoints import NAMED_BY_OFFSET, is_offset
from seglog.model import TopicPartition
from seglog.scan.listing import LogDirectoryListing, PartitionListing
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.absent_partitions import absent_partitions
from seglog.verification.batches import Totals
from seglog.verification.codes import Notice, Severity
from seglog.verification.file_rows import rows_of
from seglog.verification.finding_codes import CODES
from seglog.verification.findings import Finding, finding
from seglog.verification.messages_07 import Messages07
from seglog.verification.surroundings import Surroundings


class ContradictedOffset(NamedTuple):
    """A partition's offset in the checkpoint `file` that contradicts its log."""

    topic_partition: TopicPartition
    file: str
    message: str
    severity: Severity = CODES["CHECKPOINT_BEYOND_LOG"].severity


def verify_names(fs: FileSystem, listing: PartitionListing, *, live: bool) -> Iterator[Finding]:
    """Yields findings on leftovers, orphans and strange files in a partition directory, and on `partition.metadata`.

    With `live` a broker is running, which has such files while it cleans and deletes.
    """
    partition = name_of(listing.directory)
    for path in listing.leftovers:
        # A running broker deletes `.deleted` files after a minute, so they are not damage.
        left = path.name.endswith((".swap", ".cleaned")) and not live
        severity = Severity.WARNING if left else Severity.INFO
        message = "left by an interrupted deletion, cleaning, swap or write"
        yield finding("LEFTOVER_FILE", partition, path.name, message, severity=severity)
    for orphan in listing.orphans:
        yield finding("ORPHAN_INDEX", partition, orphan.path.name, "there is no segment with that base offset")
    for path in listing.strangers:
        yield _stranger(fs, path, partition)
    if listing.partition_metadata is not None:
        try:
            yield from (row for row in rows_of(fs, listing.partition_metadata) if isinstance(row, Finding))
        except UnsupportedError as error:
            yield finding("STRANGE_FILE", partition, listing.partition_metadata.name, str(error))
    key = listing.topic_partition
    if key is not None and key.topic == filenames.CLUSTER_METADATA_TOPIC:
        yield from _controller_files(fs, listing.directory)


def _controller_files(fs: FileSystem, directory: Path) -> Iterator[Finding]:
    """Yields findings on a controller's vote, and on the snapshots of its log."""
    vote = directory / filenames.QUORUM_STATE
    if fs.status(vote) is not None:
        yield from (row for row in rows_of(fs, vote) if isinstance(row, Finding))
    for name in map(filenames.parse_file_name, fs.list(directory)):
        if name is not None and name.kind is FileKind.METADATA_SNAPSHOT and name.state is FileState.LIVE:
            yield from _snapshot(fs, directory / str(name), name_of(directory))


def _snapshot(fs: FileSystem, path: Path, partition: str) -> Iterator[Finding]:
    """Yields the finding on a snapshot of cluster metadata that does not hold from its header to its footer."""
    replay = MetadataReplay(lambda *_: None, (), trusting=True)
    replay.read_snapshot(fs, path)
    for problem in [*replay.problems, *replay.unnoticed][:1]:
        yield finding("METADATA_SNAPSHOT_CORRUPT", partition, path.name, problem.removeprefix(f"{path}: "))


def _stranger(fs: FileSystem, path: Path, partition: str) -> Finding:
    """Returns the finding on a strange file. A broker reads only names with an offset and one of its suffixes."""
    status = fs.status(path)
    is_file = status is not None and not status.no_file
    if is_file and path.name.endswith(NAMED_BY_OFFSET):
        numbered = is_offset(path.name.partition(".")[0])
        message = "Kafka never gives a file this name" + ("" if numbered else ", and it has no offset")
        severity = Severity.ERROR if path.name.endswith(".log") or not numbered else Severity.WARNING
        return finding("STRANGE_FILE", partition, path.name, message, severity=severity)
    if not is_file and filenames.is_of_kafka(path.name):
        return finding(
            "STRANGE_FILE", partition, path.name, "this is the name of a file of Kafka's, and no file has it"
        )
    message = f"this {'file' if is_file else 'directory'} is not Kafka's; a broker ignores it"
    return finding("STRANGE_FILE", partition, path.name, message, severity=Severity.INFO, broker_notices=Notice.NEVER)


def verify_log_directory(
    fs: FileSystem,
    listing: LogDirectoryListing,
    around: Surroundings,
    extents: Mapping[TopicPartition, tuple[int, int]],
    *,
    live: bool,
) -> Iterator[Finding]:
    """Yields findings on checkpoints and properties, and on missing partitions. `extents` gives (base offset of the
    first segment, log end offset) of the verified partitions; checkpoint entries of others are not checked.
    """
    for path in listing.strangers:
        message = "this directory is not a partition; a broker refuses to start with it"
        if path.name == filenames.SEGLOG_RUN_BARRIER:
            message = "a run of seglog is in progress here, or was cut short; no broker starts before it is finished"
        yield finding("STRANGE_FILE", "", path.name, message, severity=Severity.ERROR)
    for path in listing.misnamed:
        message = "no topic can have this name, but a broker treats the directory as a partition"
        yield finding("STRANGE_FILE", "", path.name, message)
    if around.meta_damage is not None:
        yield finding("CHECKPOINT_CORRUPT", "", filenames.META_PROPERTIES, str(around.meta_damage))
    for name, error in around.damage.items():
        yield finding("CHECKPOINT_CORRUPT", "", name, str(error))
    bootstrap = listing.path / filenames.BOOTSTRAP_CHECKPOINT
    if fs.status(bootstrap) is not None:
        yield from _snapshot(fs, bootstrap, "")
    for key, name, message, severity in contradicted_offsets(around, extents, live=live):
        yield finding("CHECKPOINT_BEYOND_LOG", "", name, f"{key}: {message}", severity=severity)
    for absent in absent_partitions([(listing, around)]):
        where = {"first_offset": absent.first_offset, "last_offset": absent.last_offset}
        name = str(absent.topic_partition)
        if fs.status(absent.path / name) is not None:
            continue  # a view of tiered storage lists the tier's partitions only
        yield finding("PARTITION_MISSING", name, "", absent.message, severity=absent.severity, **where)


def contradicted_offsets(
    around: Surroundings, extents: Mapping[TopicPartition, tuple[int, int]], *, live: bool
) -> Iterator[ContradictedOffset]:
    """Yields the checkpointed offsets that contradict the logs; `extents` is as in `verify_log_directory`."""
    for key, (base, end) in sorted(extents.items()):
        offsets = {name: found[key] for name, found in around.offsets.items() if key in found}
        start = offsets.get(filenames.LOG_START_OFFSET_CHECKPOINT)
        least = base if start is None else max(start, base)
        watermark = offsets.get(filenames.HIGH_WATERMARK_CHECKPOINT)
        for name, offset in offsets.items():
            if not 0 <= offset <= end:
                message = f"offset {offset} is outside the log, which ends at {end}"
                yield ContradictedOffset(key, name, message)
            elif name == filenames.CLEANER_OFFSET_CHECKPOINT and offset < least:
                # the log start has moved on: the cleaner begins there
                message = f"offset {offset} is below the log start {least}"
                yield ContradictedOffset(key, name, message, Severity.INFO)
        # a broker writes the two at different times
        if not live and start is not None and watermark is not None and start > watermark:
            message = f"the log start {start} is above the high watermark {watermark}"
            yield ContradictedOffset(key, filenames.LOG_START_OFFSET_CHECKPOINT, message)


def verify_07(fs: FileSystem, listing: PartitionListing, totals: Totals, file: str | None) -> Iterator[Finding]:
    """Verifies a Kafka 0.7 log, or one `file` of it: each message's checksum and contents, and that files are adjacent.

    Adds messages and payloads to `totals`, as batches and records.
    """
    partition = name_of(listing.directory)
    expected: int | None = None
    for segment in listing.segments:
        following, expected = expected, segment.base_offset + segment.size
        if file is not None and segment.log.name != file:
            continue
        if following is not None and segment.base_offset != following:
            message = f"the file begins at {segment.base_offset}, but the one before it ends at {following}"
            yield finding("SEGMENT_GAP_07", partition, segment.log.name, message, first_offset=following)
        messages = Messages07(fs, segment.log, records=False)
        yield from (row for row in messages.rows() if isinstance(row, Finding))
        totals.bytes += segment.size
        totals.batches += messages.messages
        totals.records += messages.payloads
