"""Appending staged batches to partitions below a prefix of an object store: all of them, or none.

1. What counts is read: the newest manifest. A stream's batch that it knows is not appended again.
2. What a task alone has of a partition, and has made a segment of, is taken as it is (`object_pieces`).
   Other batches are appended through the engine to a log in a scratch directory. It begins where the kept segments end,
   or with those that are joined (`partition_growth`); segments, indexes, epochs and snapshots are those of any other
   append.
3. They are put as new objects into a place that no other attempt has.
4. The manifest that names them is created under the next number. It names the stream's batch, too.

Until step 4 nobody sees anything. Whoever fails before has changed nothing, and leaves objects that no manifest names;
of two that began with the same manifest, the second one to come to step 4 gets an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from seglog.errors import IncompleteError
from seglog.format.filenames import FileKind
from seglog.format.log_manifest import ManifestPartition, ManifestSegment, StreamEntry
from seglog.log.append_journal import MOST_STREAMS, StagedFile, StreamBatch, was_appended
from seglog.log.log import Log
from seglog.log.object_pieces import adopted
from seglog.log.partition_growth import Growth, beside, growth_of
from seglog.log.scratch_log import GrowingPrefix, new_segments
from seglog.log.staged_batches import append_placed, by_partition, check_staged, placed_at
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.trees import remove_tree
from seglog.tiers.manifests import CommittedLogs, object_of, read_committed
from seglog.tiers.publishing import commit, epochs_in, new_place, put_segment, require_new

_AT_ONCE = 8  # partitions


class ObjectAppend:
    """Appends to the partitions below one prefix; its scratch directory takes what comes for `_AT_ONCE` of them."""

    def __init__(self, prefix: GrowingPrefix) -> None:
        self._at, self._store, self._prefix = prefix, prefix.store, prefix.path

    def run(self, files: Sequence[StagedFile], stream: StreamBatch | None = None) -> int:
        """Records appended; 0 for a stream's batch that was appended before. The files' names begin at the prefix.

        RefusedError where another writer has committed meanwhile, or where the prefix of a first append is not new;
        OffsetsOutOfOrderError, IncompleteError, CorruptTierError, OSError and what appending raises. Nothing was
        appended then, unless the answer to the last request was lost: the next look tells.
        """
        held = [file for file in files if file.records]
        if not held:
            return 0
        before = read_committed(self._store, self._prefix)
        if before is None:
            require_new(self._store, self._prefix)
        streams = {} if before is None else dict(before.manifest.streams)
        if stream is not None and was_appended(self._prefix, _last_batch(streams, stream.query), stream):
            return 0
        if stream is not None:
            streams.pop(stream.query, None)
            streams[stream.query] = StreamEntry(stream.number, stream.entry)
        kept = dict(list(streams.items())[-MOST_STREAMS:])
        commit(self._store, self._prefix, before, self._grown(before, held), self._at.clock, kept)
        return sum(file.records for file in held)

    def _grown(self, before: CommittedLogs | None, files: Sequence[StagedFile]) -> list[ManifestPartition]:
        """All partitions below the prefix, those with new batches as they are after them."""
        known = {} if before is None else {one.topic_partition: one for one in before.manifest.partitions}
        chosen = by_partition(files)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            running = {name: pool.submit(self._after, known.get(name), each) for name, each in chosen.items()}
            return list((known | {name: each.result() for name, each in running.items()}).values())

    def _after(self, before: ManifestPartition | None, files: Sequence[StagedFile]) -> ManifestPartition:
        """A partition with the batches of its files."""
        for file in files:
            check_staged(self._store, self._prefix, file)
        growth, name = beside(files[0].topic_partition, before), str(files[0].topic_partition)
        placed_at(self._prefix / name, growth.end_offset, growth.leader_epoch, files)
        now, count = adopted(self._at, growth, files)
        return self._append(now, files[count:]) if now is None or count < len(files) else now

    def _append(self, before: ManifestPartition | None, files: Sequence[StagedFile]) -> ManifestPartition:
        """The same through the engine."""
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

    def _join(self, log: Log, growth: Growth, segment: ManifestSegment) -> None:
        """Appends the batches of a segment that is written again. IncompleteError where its object is not whole."""
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
                f"{path}: {reached} bytes of batches, up to offset {log.log_end_offset - 1}, in place of {wanted} up to"
                f" {segment.end_offset}: it was changed since it was committed"
            )

    def _put(self, directory: Path, growth: Growth) -> list[ManifestSegment]:
        place, fs = new_place(self._prefix, growth.topic_partition), self._at.scratch_fs
        return [put_segment(fs, self._store, place, one) for one in new_segments(fs, directory, growth)]


def _last_batch(streams: Mapping[str, StreamEntry], query: str) -> StreamBatch | None:
    known = streams.get(query)
    return None if known is None else StreamBatch(query, known.batch, known.entry)
