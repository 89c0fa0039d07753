"""A log in a scratch directory that begins as a partition below a prefix is where its kept segments end.

What is appended to it makes the files that an append to the whole partition would make, whatever lies before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from seglog.clock import Clock
from seglog.configuration.keys import LogConfig
from seglog.format.checkpoint import format_leader_epochs
from seglog.format.filenames import LEADER_EPOCH_CHECKPOINT, FileKind, segment_file_name
from seglog.layout import INT64_MAX
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.log.partition_growth import Growth
from seglog.storage.filesystem import FileSystem
from seglog.tiers.manifests import object_of
from seglog.tiers.publishing import ObjectFiles, SegmentToPut, segments_to_put


@dataclass(frozen=True, slots=True)
class GrowingPrefix:
    """A prefix, and what makes its new segments: `scratch` is a directory of `scratch_fs`, for one run alone."""

    store: ObjectFiles
    path: Path
    scratch_fs: FileSystem
    scratch: Path
    clock: Clock
    config: LogConfig

    def snapshot(self, growth: Growth) -> bytes | None:
        """How producers stand where the new segments begin; None where none ever wrote, or it is not known. OSError."""
        last = growth.base_snapshot
        if last is None:
            return None
        return self.store.read_bytes(object_of(self.path, growth.topic_partition, last, FileKind.PRODUCER_SNAPSHOT))

    def log(self, directory: Path, growth: Growth, snapshot: bytes | None) -> Log:
        """The log, open for writing in an empty directory.

        With a snapshot the last kept segment is there as an empty file: a log has a producers' state where it begins
        only if a segment comes before. No producer is too old: how long one is remembered is for a broker to say.
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


def new_segments(fs: FileSystem, directory: Path, growth: Growth) -> list[SegmentToPut]:
    """The segments that came of it when it was closed, without snapshots of producers that nobody knew at its begin."""
    made = [one for one in segments_to_put(fs, directory) if one.base_offset >= growth.base_offset]
    return made if growth.knows_producers else list(map(without_snapshot, made))


def without_snapshot(segment: SegmentToPut) -> SegmentToPut:
    """The segment but for the snapshot of the producers after it."""
    kept = dict(segment.files)
    kept.pop(FileKind.PRODUCER_SNAPSHOT, None)
    return replace(segment, files=kept)


def _write(fs: FileSystem, path: Path, data: bytes) -> None:
    with fs.open(path, "create_new") as file:
        file.write_at(0, data)
