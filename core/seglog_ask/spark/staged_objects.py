"""Appending staged batches to partitions below a prefix of an object store: all of them, or none.

1. Read the newest manifest, which alone counts. A stream's batch that it names is not appended again.
2. If a single task has made a segment of all its rows of a partition, adopt it as it is (`made`, `adopted`). Append
   other batches through the engine to a log in a scratch directory that begins where the kept segments end, or with the
   joined ones (`growth_of`); segments, indexes, epochs and snapshots are those of any other append.
3. Store them as new objects in a place of this attempt alone.
4. Create the manifest that names them, and the stream's batch, under the next number.

Nothing is visible before step 4. An attempt that fails earlier has changed nothing, and leaves objects that no manifest
names; of two attempts that began with the same manifest, the second one to reach step 4 gets an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.errors import IncompleteError
from seglog.format.checkpoint import EpochEntry, format_leader_epochs
from seglog.format.checksum import crc32c
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, segment_file_name
from seglog.format.producer_snapshot import encode_snapshot
from seglog.layout import INT64_MAX
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.model import TopicPartition
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.files import remove_tree
from seglog.storage.filesystem import FileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_ask.spark.staged_batches import append_placed, by_partition, check_staged, placed_at
from seglog_ask.spark.staged_journal import MOST_STREAMS, MadeSegment, Placement, StagedFile, StreamBatch, was_appended
from seglog_stores.formats.log_manifest import ManifestPartition, ManifestSegment, StoredObject, StreamEntry
from seglog_stores.tiers.manifests import CommittedLogs, object_of, read_committed
from seglog_stores.tiers.publishing import (
    SegmentToPut,
    commit,
    epochs_in,
    new_place,
    put_segment,
    require_new,
    segments_to_put,
)

JOINED_BYTES = 32 << 20  # a larger segment is never copied again
_LARGER = 2
_JOINED_OFFSETS = 1 << 30  # an index counts offsets from the segment's base in 32 bits
_AT_ONCE = 8  # partitions


class ObjectAppend:
    """Appends to the partitions below one prefix; its scratch directory holds the logs of `_AT_ONCE` of them."""

    def __init__(self, prefix: GrowingPrefix) -> None:
        self._at, self._store, self._prefix = prefix, prefix.store, prefix.path

    def run(self, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        """Appends the files, whose names are relative to the prefix; returns the records appended, 0 for a stream's
        batch that was appended before.

        Raises RefusedError if another writer has committed meanwhile, or if the prefix of a first append is not new;
        OffsetsOutOfOrderError, IncompleteError, CorruptTierError, OSError and the errors of appending. Nothing was
        appended then, unless only the answer to the last request was lost: reading the manifest again tells.
        """
        held = [file for file in files if file.records]
        if not held:
            return 0
        before = read_committed(self._store, self._prefix)
        if before is None:
            require_new(self._store, self._prefix)
        streams = {} if before is None else dict(before.manifest.streams)
        if stream is not None:
            last = streams.get(stream.query)
            known = None if last is None else StreamBatch(stream.query, last.batch, last.entry)
            if was_appended(self._prefix, known, stream):
                return 0
            streams.pop(stream.query, None)
            streams[stream.query] = StreamEntry(stream.number, stream.entry)
        kept = dict(list(streams.items())[-MOST_STREAMS:])
        commit(self._store, self._prefix, before, self._grown(before, held), self._at.clock, kept)
        return sum(file.records for file in held)

    def _grown(self, before: CommittedLogs | None, files: Sequence[StagedFile]) -> list[ManifestPartition]:
        """Returns all partitions below the prefix, including the new batches."""
        partitions = () if before is None else before.manifest.partitions
        committed = {partition.topic_partition: partition for partition in partitions}
        chosen = by_partition(files)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            running = {name: pool.submit(self._after, committed.get(name), staged) for name, staged in chosen.items()}
            return list((committed | {name: staged.result() for name, staged in running.items()}).values())

    def _after(self, before: ManifestPartition | None, files: Sequence[StagedFile]) -> ManifestPartition:
        """Returns a partition with the batches of its files appended."""
        for file in files:
            check_staged(self._store, self._prefix, file)
        growth, name = beside(files[0].topic_partition, before), str(files[0].topic_partition)
        placed_at(self._prefix / name, growth.end_offset, growth.leader_epoch, files)
        now, count = adopted(self._at, growth, files)
        return self._append(now, files[count:]) if now is None or count < len(files) else now

    def _append(self, before: ManifestPartition | None, files: Sequence[StagedFile]) -> ManifestPartition:
        """Returns a partition with the new batches, which the engine appends to a log in the scratch directory."""
        name = files[0].topic_partition
        growth = growth_of(name, before, sum(file.size for file in files), self._at.config.segment_bytes)
        placement = placed_at(self._prefix / str(name), growth.end_offset, growth.leader_epoch, files)
        snapshot, directory = self._at.snapshot(growth), self._at.scratch / str(name)
        self._at.scratch_fs.make_directory(directory)
        try:
            with self._at.log(directory, growth, snapshot) as log:
                for segment in growth.joined:
                    self._join(log, growth, segment)
                append_placed(log, self._prefix, placement, self._store)
            return growth.after(self._put(directory, growth), epochs_in(self._at.scratch_fs, directory))
        finally:
            remove_tree(self._at.scratch_fs, directory)

    def _join(self, log: Log, growth: GrowingPartition, segment: ManifestSegment) -> None:
        """Appends the batches of a segment that is joined. Raises IncompleteError if its object is not whole."""
        path = object_of(self._prefix, growth.topic_partition, segment, FileKind.LOG)
        wanted = segment.objects[FileKind.LOG].size
        if not wanted:
            return
        scan = SegmentScan(self._store, path, 0, chunk_bytes=min(4 << 20, self._at.config.segment_bytes))
        for chunk in scan:
            log.append_as_follower(chunk.data, growth.leader_epoch)
        reached = 0 if scan.end is None else scan.end.position
        if reached != wanted or log.log_end_offset > segment.end_offset + 1:
            raise IncompleteError(
                f"{path}: {reached} bytes of batches, up to offset {log.log_end_offset - 1}, instead of {wanted} up to"
                f" {segment.end_offset}: it was changed after it was committed"
            )

    def _put(self, directory: Path, growth: GrowingPartition) -> list[ManifestSegment]:
        place, fs = new_place(self._prefix, growth.topic_partition), self._at.scratch_fs
        return [put_segment(fs, self._store, place, one) for one in new_segments(fs, directory, growth)]


@dataclass(frozen=True, slots=True)
class GrowingPartition:
    """A partition that is appended to: its state `before` (None: it is new), and the segments to keep and to join.

    Objects cannot be appended to, so each append makes new segments, and small appends would make many. Therefore the
    last segments are joined with the new batches, like the digits of a counter: a segment is joined if it is at most
    twice as large as everything after it. Every byte is then copied a few times, and a thousand equal appends leave a
    handful of segments.
    """

    topic_partition: TopicPartition
    before: ManifestPartition | None
    kept: tuple[ManifestSegment, ...]
    joined: tuple[ManifestSegment, ...]

    @property
    def base_offset(self) -> int:
        """The offset at which the new segments begin."""
        return self.kept[-1].end_offset + 1 if self.kept else self.joined[0].base_offset if self.joined else 0

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return 0 if self.before is None else self.before.log_end_offset

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The leader epochs so far."""
        return () if self.before is None else self.before.epochs

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that the append continues."""
        return self.epochs[-1].epoch if self.epochs else 0

    @property
    def knows_producers(self) -> bool:
        """True if the producers' state at the start of the new segments is known."""
        return FileKind.PRODUCER_SNAPSHOT in self.kept[-1].objects if self.kept else self.base_offset == 0

    @property
    def base_snapshot(self) -> ManifestSegment | None:
        """The segment whose snapshot holds the producers' state before the new segments; None if none wrote."""
        return self.kept[-1] if self.kept and self.knows_producers else None

    def after(self, segments: Sequence[ManifestSegment], epochs: Sequence[EpochEntry]) -> ManifestPartition:
        """Returns the partition's manifest entry with the new segments and the epochs of their batches."""
        known = self.epochs[-1].epoch if self.epochs else -1
        all_epochs = (*self.epochs, *(one for one in epochs if one.epoch > known))
        every = (*self.kept, *segments)
        if self.before is None:
            return ManifestPartition(self.topic_partition, None, every[0].base_offset, None, all_epochs, every)
        return replace(self.before, epochs=all_epochs, segments=every)


def beside(topic_partition: TopicPartition, before: ManifestPartition | None) -> GrowingPartition:
    """Returns a growth that joins nothing: new segments begin where the partition ends."""
    segments = () if before is None else before.segments
    count = len(segments) - 1 if segments and not segments[-1].objects[FileKind.LOG].size else len(segments)
    return GrowingPartition(topic_partition, before, segments[:count], segments[count:])


def growth_of(
    topic_partition: TopicPartition, before: ManifestPartition | None, added: int, segment_bytes: int
) -> GrowingPartition:
    """Decides how a partition takes `added` bytes, in segments of `segment_bytes`.

    Cleaned segments are not joined, nor one at whose start the producers' state is unknown. An empty last segment is
    always dropped: its name is the next one's.
    """
    segments = () if before is None else before.segments
    clean = 0 if before is None or before.cleaned_offset is None else before.cleaned_offset
    most, total, count = min(segment_bytes, JOINED_BYTES), added, len(segments)
    while count:
        last = segments[count - 1]
        size = last.objects[FileKind.LOG].size
        knows = FileKind.PRODUCER_SNAPSHOT in segments[count - 2].objects if count > 1 else last.base_offset == 0
        near = segments[-1].end_offset - last.base_offset < _JOINED_OFFSETS and last.base_offset >= clean
        if size and not (size <= _LARGER * total and size + total <= most and near and knows):
            break
        total, count = total + size, count - 1
    return GrowingPartition(topic_partition, before, tuple(segments[:count]), tuple(segments[count:]))


@dataclass(frozen=True, slots=True)
class GrowingPrefix:
    """A prefix, and the means to make its new segments: `scratch` is a directory of `scratch_fs` for this run alone."""

    store: RoutingFileSystem
    path: Path
    scratch_fs: FileSystem
    scratch: Path
    clock: Clock
    config: LogConfig

    def snapshot(self, growth: GrowingPartition) -> bytes | None:
        """Returns the producers' snapshot at the start of the new segments; None if none wrote, or it is not known.

        Raises OSError.
        """
        last = growth.base_snapshot
        if last is None:
            return None
        return self.store.read_bytes(object_of(self.path, growth.topic_partition, last, FileKind.PRODUCER_SNAPSHOT))

    def log(self, directory: Path, growth: GrowingPartition, snapshot: bytes | None) -> Log:
        """Opens a log for writing, in an empty directory, that begins where the partition's kept segments end.

        Appending to it makes the same files as appending to the whole partition. With a snapshot the last kept segment
        exists as an empty file: a log has a producers' state at its start only if a segment comes before. No producer
        expires: that is for a broker to decide.
        """
        fs, base = self.scratch_fs, growth.base_offset
        start = base if snapshot is None else growth.kept[-1].base_offset
        if snapshot is not None:
            _write(fs, directory / segment_file_name(base, FileKind.PRODUCER_SNAPSHOT), snapshot)
        for offset in {start, base}:
            for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
                _write(fs, directory / segment_file_name(offset, kind), b"")
        epochs = [one for one in growth.epochs if one.start_offset < base]
        _write(fs, directory / LEADER_EPOCH_CHECKPOINT, format_leader_epochs(epochs))
        options = LoadOptions(
            clean_shutdown=True, recovery_point=base, log_start_offset=start, producer_expiration_ms=INT64_MAX
        )
        return Log.open(directory, self.config, fs=fs, clock=self.clock, options=options)


def new_segments(fs: FileSystem, directory: Path, growth: GrowingPartition) -> list[SegmentToPut]:
    """Returns the segments of a closed log, without producers' snapshots if their state at its start was unknown."""
    made = [one for one in segments_to_put(fs, directory) if one.base_offset >= growth.base_offset]
    return made if growth.knows_producers else list(map(without_snapshot, made))


def without_snapshot(segment: SegmentToPut) -> SegmentToPut:
    """Returns the segment without the producers' snapshot at its end."""
    kept = dict(segment.files)
    kept.pop(FileKind.PRODUCER_SNAPSHOT, None)
    return replace(segment, files=kept)


def _write(fs: FileSystem, path: Path, data: bytes) -> None:
    with fs.open(path, "create_new") as file:
        file.write_at(0, data)


def made(prefix: GrowingPrefix, growth: GrowingPartition, file: StagedFile) -> StagedFile | None:
    """Makes a staged file of the scratch directory the next segment of a partition, and stores it. Returns None if it
    cannot be a single segment: its offsets are taken, or it is too large.

    The bytes of a task with a large part of a partition then need not pass the driver: the task assumes that it alone
    has rows of the partition, and makes the segment that follows the committed ones. If nobody else has appended when
    the driver commits, the manifest names it, and the driver only adds the producers' snapshot, unchanged from before
    (`adopted`). Otherwise the batches are read from the object and appended like all others.
    """
    name, base, fs = file.topic_partition, growth.base_offset, prefix.scratch_fs
    if file.first_offset is not None and file.first_offset < base:
        return None
    directory = prefix.scratch / f"{file.name}.log"
    fs.make_directory(directory)
    try:
        with prefix.log(directory, growth, None) as log:
            append_placed(log, prefix.scratch, Placement(name, base, growth.leader_epoch, (file,)))
        segments = new_segments(fs, directory, growth)
        if len(segments) != 1:
            return None
        place = new_place(prefix.path, name)
        segment = put_segment(fs, prefix.store, place, without_snapshot(segments[0]))
    finally:
        remove_tree(fs, directory)
    return replace(
        file,
        name=str(Path(str(name), place.name, segment.name_of(FileKind.LOG))),
        last_offset=segment.end_offset,
        made=MadeSegment(segment, growth.leader_epoch),
    )


def adopted(
    prefix: GrowingPrefix, growth: GrowingPartition, files: Sequence[StagedFile]
) -> tuple[ManifestPartition | None, int]:
    """Returns the partition with those first files that already are its next segments, and how many they are.

    `growth` joins nothing. Raises OSError.
    """
    taken: list[ManifestSegment] = []
    end = growth.end_offset
    for file in files:
        made = file.made
        if made is None or (made.segment.base_offset, made.leader_epoch) != (end, growth.leader_epoch):
            break
        taken.append(made.segment)
        end = made.segment.end_offset + 1
    if not taken:
        return growth.before, 0
    if growth.knows_producers:
        found = prefix.snapshot(growth)
        data = encode_snapshot(()) if found is None else found
        taken = [_with_snapshot(prefix, growth, one, data) for one in taken]
    return growth.after(taken, [EpochEntry(growth.leader_epoch, taken[0].base_offset)]), len(taken)


def after_made(growth: GrowingPartition, made: MadeSegment) -> GrowingPartition:
    """Returns the growth of the partition with this segment added."""
    after = growth.after([made.segment], [EpochEntry(made.leader_epoch, made.segment.base_offset)])
    return GrowingPartition(growth.topic_partition, after, after.segments, ())


def _with_snapshot(
    prefix: GrowingPrefix, growth: GrowingPartition, segment: ManifestSegment, data: bytes
) -> ManifestSegment:
    kind = FileKind.PRODUCER_SNAPSHOT
    prefix.store.put(object_of(prefix.path, growth.topic_partition, segment, kind), [data], len(data))
    return replace(segment, objects={**segment.objects, kind: StoredObject(len(data), crc32c(data))})
