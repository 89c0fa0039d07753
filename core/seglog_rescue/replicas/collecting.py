"""Reads log directories for `seglog replicas`: what a start of the broker would leave of each replica, and what lies on
disk, with digests. Everything is only read.

1. A start is tried on an overlay (`log.loader`): its offsets, and epochs, and what it would cut.
2. Every batch is checked and counted, past damage too.
3. The metadata in the directory says which replicas lead and are in sync (`rebuild.known`).

Of most partitions of a broker, which are small and sound, one reading of their files tells 1 and 2
(`verification.soundness`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog.clock import Clock
from seglog.configuration.cluster_metadata import read_cluster_metadata
from seglog.errors import CorruptionError, SeglogError, sentence_of
from seglog.format import filenames
from seglog.format.filenames import PartitionState
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.loader import LoadedLog, LoadOptions, load_log
from seglog.log.swap import settle_leftovers
from seglog.model import TopicPartition
from seglog.progress import BytesRead
from seglog.scan.listing import PartitionDirectory, PartitionListing, SegmentFiles, list_log_directory, list_partition
from seglog.scan.log_walk import Gap, LogWalk, WalkedEntries
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import EndReason
from seglog.scan.topic_ids import topic_id_in
from seglog.scan.view import require_no_run
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import require_unlocked
from seglog.storage.overlay import OverlayFileSystem
from seglog.verification.codes import Severity
from seglog.verification.losses import lost_before
from seglog.verification.soundness import SoundLog, sound_log
from seglog.verification.surroundings import Surroundings, read_surroundings
from seglog.verification.unsettled import unsettled
from seglog_rescue.rebuild.known import KnownMetadata, KnownPartition, KnownTopic, read_known
from seglog_rescue.replicas.digests import EpochFall, LogDigest
from seglog_rescue.replicas.facts import (
    AssignmentFacts,
    BrokerFacts,
    DirectoryFacts,
    Hole,
    MetadataFacts,
    ReplicaFacts,
    TopicFacts,
)
from seglog_rescue.replicas.keys import NewestRecords, edges
from seglog_rescue.replicas.lineage import Lineage
from seglog_rescue.replicas.rule import Candidate

_MOST_HOLES = 12
_MOST_SPAN = 1 << 31  # offsets of a batch whose header is believed
_UNCLEAN = "unclean.leader.election.enable"


def read_directory(
    fs: FileSystem, path: Path, node: int, clock: Clock, progress: BytesRead = lambda _size: None
) -> DirectoryFacts:
    """Reads the log directory `path` of broker `node`. Raises LockedError while a broker runs on it, RefusedError if a
    run that changes it is unfinished."""
    require_unlocked(path)
    require_no_run(fs, path)
    listing, around = list_log_directory(fs, path), read_surroundings(fs, path)
    around.foreseen = read_cluster_metadata(fs, path)  # without the assignments, most of it, which `read_known` decodes
    read = [
        _readable(fs, place, around, clock, progress) for place in listing.partitions if not place.is_cluster_metadata
    ]
    replicas = [facts for facts, _ in read]
    written = max((modified for facts, modified in read if not facts.state), default=0)
    return DirectoryFacts(
        str(path),
        node,
        around.directory_id or "",
        "" if around.meta is None else around.meta.cluster_id or "",
        around.clean,
        written,
        tuple(replicas),
    )


def _readable(
    fs: FileSystem, place: PartitionDirectory, around: Surroundings, clock: Clock, progress: BytesRead
) -> tuple[ReplicaFacts, int]:
    """Reads a replica; what cannot be read of it is a problem of this one."""
    key = place.topic_partition
    try:
        return read_replica(fs, place, around, clock, progress)
    except (OSError, SeglogError) as error:
        problem = f"not read: {sentence_of(error)}"
        return ReplicaFacts(key.topic, key.partition, str(place.path), place.state.value, problem=problem), 0


def read_replica(
    fs: FileSystem, place: PartitionDirectory, around: Surroundings, clock: Clock, progress: BytesRead
) -> tuple[ReplicaFacts, int]:
    """Reads a partition's directory; also returns when its last segment was written, epoch milliseconds.

    Raises OSError, and SeglogError for a log of Kafka 0.7.
    """
    log = _sound(fs, place, around)
    if log is None:
        return _read_usually(fs, place, around, clock, progress)
    progress(log.size)
    return _of_sound(fs, place, around, log), log.modified_ms


def _read_usually(
    fs: FileSystem, place: PartitionDirectory, around: Surroundings, clock: Clock, progress: BytesRead
) -> tuple[ReplicaFacts, int]:
    key, overlay = place.topic_partition, OverlayFileSystem(fs)
    settled = settle_leftovers(overlay, place.path)
    listing = list_partition(overlay, place.path)
    offsets = {name: around.offset(name, key) or 0 for name in _CHECKPOINTS} if place.state.is_served else {}
    cleaned = offsets.get(filenames.CLEANER_OFFSET_CHECKPOINT, 0)
    compacted = around.compacted(key.topic) is not False and (cleaned > 0 or around.compacted(key.topic) is True)
    loaded, problem = _started(overlay, place, around, clock, offsets)
    active = listing.segments[-1].base_offset if compacted and listing.segments else 0
    places = edges(active, loaded.log_end_offset) if compacted and loaded is not None else []
    walk = _Walk(compacted, NewestRecords(places, lambda: unsettled(overlay, listing)) if places else None)
    walk.read(overlay, listing, progress)
    epochs, unlisted = _epochs(overlay, place.path, walk.digest)
    start, end = walk.offsets if loaded is None else (loaded.log_start_offset, loaded.log_end_offset)
    holes = [*_before(fs, place.path, around, start), *walk.holes]
    facts = ReplicaFacts(
        topic=key.topic,
        partition=key.partition,
        directory=str(place.path),
        state=place.state.value,
        topic_id=_topic_id(fs, listing),
        segments=len(listing.segments),
        bytes=listing.size,
        start=min([start, *(hole.first for hole in holes)]),
        end=end,
        disk_end=max(walk.end, end),
        epochs=epochs,
        high_watermark=offsets.get(filenames.HIGH_WATERMARK_CHECKPOINT, 0),
        recovery_point=offsets.get(filenames.RECOVERY_POINT_CHECKPOINT, 0),
        cleaned=cleaned,
        active=active,
        newest_timestamp=walk.digest.newest_timestamp,
        marks=walk.digest.marks(),
        keys=() if walk.keys is None or holes else walk.keys.marks(),
        holes=tuple(holes),
        falls=tuple(_falls(walk.digest.fall, unlisted, listing)),
        torn_bytes=walk.torn_bytes,
        open_transactions=0 if loaded is None else len(loaded.producers.open_transactions),
        problem="; ".join(filter(None, [problem, *map(_REPLACED.format, settled.replaced)])),
    )
    return facts, listing.segments[-1].modified_ms if listing.segments else 0


def _falls(fall: EpochFall | None, unlisted: EpochFall | None, listing: PartitionListing) -> Iterator[Hole]:
    of_checkpoint = (
        "leader epoch {0.epoch}, and leader-epoch-checkpoint ends with {0.before}: a broker writes an epoch"
        " there before a batch, so the batch's is wrong (no checksum covers it)"
    )
    of_batches = "leader epoch {0.epoch} after {0.before}, so one of them is wrong (no checksum covers epochs)"
    for each, why in ((fall, of_batches), (unlisted, of_checkpoint)):
        if each is not None:
            file = max(segment.log.name for segment in listing.segments if segment.base_offset <= each.offset)
            yield Hole(each.offset, each.last_offset + 1, why.format(each), file, each.position)


def _unlisted(checkpoint: Collection[int], digest: LogDigest) -> EpochFall | None:
    """Returns the last batch if its leader epoch is above those of all other batches and of the checkpoint. It is not
    believed: a broker writes an epoch to the checkpoint, and syncs it, before it appends the epoch's first batch
    (UnifiedLog.append). Several such batches speak for them, and for a checkpoint that is older than the log."""
    last, epochs = digest.last, digest.epochs
    if not checkpoint or last is None or not epochs or epochs[-1] != (last.epoch, last.offset):
        return None
    listed = max(checkpoint)
    is_alone = len(epochs) < 2 or epochs[-2][0] <= listed
    return replace(last, before=listed) if last.epoch > listed and is_alone else None


def _sound(fs: FileSystem, place: PartitionDirectory, around: Surroundings) -> SoundLog | None:
    """Returns a small log of which one reading of its files tells that a start leaves it as it is, and that no cleaner
    has been there; None for any other, which is read as usual."""
    if place.state is not PartitionState.LIVE or around.compacted(place.topic_partition.topic) is True:
        return None
    log = sound_log(fs, place.path)
    return log if log is not None and log.is_as_stated(place.topic_partition, around) else None


def _of_sound(fs: FileSystem, place: PartitionDirectory, around: Surroundings, log: SoundLog) -> ReplicaFacts:
    """Returns what the usual reading would tell about a sound log."""
    key, digest = place.topic_partition, LogDigest()
    for piece in log.pieces.values():
        digest.add(piece.batches)
    offsets = {name: around.offset(name, key) or 0 for name in _CHECKPOINTS}
    start = max(log.base_offset, offsets[filenames.LOG_START_OFFSET_CHECKPOINT])
    holes = _before(fs, place.path, around, start)
    return ReplicaFacts(
        topic=key.topic,
        partition=key.partition,
        directory=str(place.path),
        topic_id=log.topic_id or "",
        segments=log.segments,
        bytes=log.size,
        start=min([start, *(hole.first for hole in holes)]),
        end=log.end_offset,
        disk_end=log.end_offset,
        epochs=tuple((entry.epoch, entry.start_offset) for entry in log.epochs),
        high_watermark=offsets[filenames.HIGH_WATERMARK_CHECKPOINT],
        recovery_point=offsets[filenames.RECOVERY_POINT_CHECKPOINT],
        newest_timestamp=digest.newest_timestamp,
        marks=digest.marks(),
        holes=tuple(holes),
    )


def _before(fs: FileSystem, directory: Path, around: Surroundings, start: int) -> list[Hole]:
    """Returns what is lost below the first segment, and was not deleted by retention or by an operator: no start brings
    it back, and other copies may have it. A start removes the traces, so they are looked for in the files as they lie.
    """
    loss = lost_before(fs, list_partition(fs, directory), around) if start else None
    if loss is None or loss.severity is not Severity.ERROR or loss.first_offset is None or loss.first_offset >= start:
        return []
    return [Hole(loss.first_offset, start, loss.message, loss.file)]


class WholeReplicas:
    """Reads replicas in whole as the rule compares them; what their log directories tell is read once."""

    def __init__(self, fs: FileSystem, clock: Clock, progress: BytesRead = lambda _size: None) -> None:
        self._fs, self._clock, self._progress = fs, clock, progress
        self._around: dict[Path, Surroundings] = {}

    def candidate(self, directory: Path, key: TopicPartition, node: int) -> Candidate:
        """Returns broker `node`'s replica in `directory`; one that its broker cannot load has no records. Raises
        LockedError while a broker runs there, RefusedError if a run that changes the log directory is unfinished."""
        parent = directory.parent
        if parent not in self._around:
            require_unlocked(parent)
            require_no_run(self._fs, parent)
            self._around[parent] = read_surroundings(self._fs, parent)
        place = PartitionDirectory(directory, key, PartitionState.LIVE)
        facts, _ = _readable(self._fs, place, self._around[parent], self._clock, self._progress)
        return Candidate(node, Lineage(0, 0)) if facts.problem else facts.candidate(node)


_CHECKPOINTS = (
    filenames.LOG_START_OFFSET_CHECKPOINT,
    filenames.RECOVERY_POINT_CHECKPOINT,
    filenames.HIGH_WATERMARK_CHECKPOINT,
    filenames.CLEANER_OFFSET_CHECKPOINT,
)


_REPLACED = "a replacement of segments would lose data ({})"


def _started(
    fs: FileSystem, place: PartitionDirectory, around: Surroundings, clock: Clock, offsets: Mapping[str, int]
) -> tuple[LoadedLog | None, str]:
    """Returns the log as a start of the broker would leave it; without one, why the broker cannot load it."""
    options = LoadOptions(
        clean_shutdown=around.clean,
        recovery_point=offsets.get(filenames.RECOVERY_POINT_CHECKPOINT, 0),
        log_start_offset=offsets.get(filenames.LOG_START_OFFSET_CHECKPOINT, 0),
        keeps_holes=True,
    )
    try:
        loaded = load_log(OverlayFileSystem(fs), place.path, clock, options)
    except SeglogError as error:
        return None, f"a broker cannot load it: {error}"
    loaded.segments.close()
    return loaded, ""


def _epochs(fs: FileSystem, directory: Path, digest: LogDigest) -> tuple[tuple[tuple[int, int], ...], EpochFall | None]:
    """Returns the epochs of the checkpoint, by which a broker goes, and those of batches that it lacks; also the last
    batch if its epoch is not believed."""
    entries = LeaderEpochCache(fs, directory, tolerant=True).entries
    checkpoint = {entry.epoch: entry.start_offset for entry in entries}
    unlisted = _unlisted(checkpoint, digest)
    believed = digest.epochs if unlisted is None else digest.epochs[:-1]
    return tuple(sorted({**dict(believed), **checkpoint}.items())), unlisted


def _topic_id(fs: FileSystem, listing: PartitionListing) -> str:
    if listing.partition_metadata is None:
        return ""
    try:
        return topic_id_in(fs, listing.partition_metadata)
    except CorruptionError:
        return ""  # doctor reports it; the metadata has the id, too


@dataclass(slots=True)
class _Walk:
    """One pass over the batches of a log. `compacted`: missing offsets mean nothing. `keys` get its good batches."""

    compacted: bool
    keys: NewestRecords | None = None
    digest: LogDigest = field(default_factory=LogDigest)
    first: int = -1
    end: int = 0
    torn_bytes: int = 0
    holes: list[Hole] = field(default_factory=list)
    _damage: Hole | None = None

    @property
    def offsets(self) -> tuple[int, int]:
        """The first offset, and the one after the last."""
        start = max(0, self.first)
        return start, max(self.end, start)

    def read(self, fs: FileSystem, listing: PartitionListing, progress: BytesRead) -> None:
        """Reads all segments in order."""
        if listing.segments:
            self.first = self.end = listing.segments[0].base_offset
        following = [segment.base_offset for segment in listing.segments[1:]]
        for segment in listing.segments:
            self._segment(fs, segment, following.pop(0) if following else None, progress)
        if self._damage is not None and self._damage.end > self.end:
            self.holes.append(self._damage)
            self.end = self._damage.end

    def _segment(self, fs: FileSystem, segment: SegmentFiles, following: int | None, progress: BytesRead) -> None:
        offsets = PlausibleOffsets.of_segment(segment.base_offset)
        for step in LogWalk(fs, segment.log, offsets=offsets):
            if isinstance(step, Gap):
                if following is None and step.at_end and (step.zeros or step.reason is EndReason.TRAILING):
                    self.torn_bytes = 0 if step.preallocated else step.length
                else:
                    self._note(step.why, segment, step.position)
                continue
            self._entries(step, segment)
            progress(len(step.data) if step.complete else int(step.batches["size"].sum(dtype=np.int64)))

    def _entries(self, step: WalkedEntries, segment: SegmentFiles) -> None:
        rows, at = step.batches, 0
        if step.valid.all():
            self._good(rows, segment, step)
            return
        for wrong in [*np.flatnonzero(~step.valid).tolist(), len(rows)]:
            self._good(rows[at:wrong], segment, step)
            if wrong < len(rows):
                row = rows[wrong]
                base, last = int(row["base_offset"]), int(row["last_offset"])
                believed = base == self.end and 0 <= last - base < _MOST_SPAN
                self._note("checksum mismatch", segment, int(row["position"]), last + 1 if believed else -1)
            at = wrong + 1

    def _note(self, why: str, segment: SegmentFiles, position: int, end: int = -1) -> None:
        """Notes damage from the present end of the log on; `end` is where it ends if its header is believed."""
        if self._damage is None:
            self._damage = Hole(self.end, max(end, self.end), why, segment.log.name, position)

    def _good(self, rows: np.ndarray, segment: SegmentFiles, step: WalkedEntries) -> None:
        """Takes good batches; those whose offsets do not ascend are damage, and not taken."""
        if not len(rows):
            return
        bases, last = rows["base_offset"], rows["last_offset"]
        follows = self._damage is None and bases[0] == self.end and (bases[1:] == last[:-1] + 1).all()
        if not follows:  # which costs most of the time where batches are large
            rows = self._ascending(rows, segment)
        if len(rows):
            self.digest.add(rows)
            self.end = int(rows["last_offset"][-1]) + 1
            if self.keys is not None:
                self.keys.add(step, rows)

    def _ascending(self, rows: np.ndarray, segment: SegmentFiles) -> np.ndarray:
        """Returns the batches whose offsets ascend, after noting what is missing before and between them."""
        highest = np.maximum.accumulate(np.concatenate(([self.end - 1], rows["last_offset"][:-1])))
        ascends = rows["base_offset"] > highest
        if self.digest.is_empty:
            ascends[0] = True
        if not ascends.all():
            self._note("offsets do not ascend", segment, int(rows[int(np.argmin(ascends))]["position"]))
            rows, highest = rows[ascends], highest[ascends]
            if not len(rows):
                return rows
        bases = rows["base_offset"]
        ends = np.concatenate(([self.end], rows["last_offset"][:-1] + 1))
        for at in np.flatnonzero(bases > ends).tolist():
            self._missing(int(ends[at]), int(bases[at]))
        self._damage = None
        return rows

    def _missing(self, first: int, end: int) -> None:
        damage, self._damage = self._damage, None
        if damage is not None:
            self._add(replace(damage, first=first, end=end))
        elif not self.compacted:
            self._add(Hole(first, end, "no batch holds these offsets"))

    def _add(self, hole: Hole) -> None:
        """Keeps the first holes; the others are joined into one, so that memory is bounded."""
        if len(self.holes) < _MOST_HOLES:
            self.holes.append(hole)
        else:
            last = self.holes[-1]
            self.holes[-1] = replace(last, end=hole.end, is_coarse=True)


# --- the metadata -------------------------------------------------------------------------------------------


def read_metadata(fs: FileSystem, path: Path, node: int) -> MetadataFacts | None:
    """Reads the metadata in a log directory, in a copy of the metadata log or in a snapshot; None without one."""
    image = read_known(fs, path)
    return None if image is None else metadata_facts(image, node)


def metadata_facts(image: KnownMetadata, node: int) -> MetadataFacts:
    """Returns what decides about replicas: topics with their assignments, and brokers."""
    brokers = [
        BrokerFacts(number, tuple(ids), image.registered_at.get(number, -1)) for number, ids in image.brokers.items()
    ]
    topics = []
    for name, topic in image.topics.items():
        assignments = [
            AssignmentFacts(
                number,
                entry.leader,
                entry.leader_epoch,
                tuple(entry.replicas),
                tuple(entry.isr),
                tuple(entry.eligible),
                tuple(entry.directories),
                entry.clean_since,
                tuple(entry.last_known),
            )
            for number, entry in sorted(topic.partitions.items())
        ]
        topics.append(TopicFacts(name, topic.topic_id, tuple(assignments), image.configuration(name).get(_UNCLEAN, "")))
    return MetadataFacts(
        str(image.source),
        node,
        image.end_offset,
        tuple(brokers),
        tuple(topics),
        tuple(image.problems),
        image.broker_default(_UNCLEAN),
    )


def as_known(metadata: MetadataFacts) -> KnownMetadata:
    """Returns the metadata in the form of which `rebuild.completeness` says what is missing."""
    image = KnownMetadata(Path(metadata.source), end_offset=metadata.end, problems=list(metadata.problems))
    image.brokers = {broker.node: list(broker.directories) for broker in metadata.brokers}
    for topic in metadata.topics:
        partitions = {
            each.partition: KnownPartition(
                list(each.replicas),
                list(each.isr),
                each.leader,
                each.leader_epoch,
                list(each.directories),
                list(each.eligible),
                each.clean_since,
                list(each.last_known),
            )
            for each in topic.partitions
        }
        image.topics[topic.name] = KnownTopic(topic.topic_id, partitions)
    return image
