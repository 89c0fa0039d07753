"""Makes manifests without what is erased: parts of logs are others then, and the indexes that point into them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seglog import layout
from seglog.format.filenames import FileKind
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.redaction.finding import TouchedSegment
from seglog_rescue.backup.moving import ExtentMover, Extents, folder_of, moved_file, moved_part, tail_of_extents
from seglog_stores.formats.snapshot_manifest import Part as ManifestPart
from seglog_stores.formats.snapshot_manifest import StoredDirectory, StoredFile, StoredPartition
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest

_NOT_THE_SOURCES = 1 << 63  # of an inode: the next run does not take a rewritten file for the one at the source


@dataclass(slots=True)
class Part:
    """A part of a log, from batch to batch: its extents, what is to be rewritten in it, and what it then is. `segment`
    reads it, None if nothing is rewritten.
    """

    topic_partition: TopicPartition
    folder: str
    segment: LogSegment | None
    start: int
    extents: Extents
    touched: TouchedSegment
    already: int
    new: Extents | None = None
    sizes: dict[int, int] = field(default_factory=dict)  # of rewritten batches, by position

    @property
    def size(self) -> int:
        """Its bytes, before."""
        return sum(extent.size for extent in self.extents)


TouchedLogs = Mapping[tuple[TopicPartition, str, Extents], Sequence[Part]]


@dataclass(slots=True)
class ManifestChange:
    """What becomes of manifests: parts of the touched `logs` are others, and what lies in objects that go is moved."""

    mover: ExtentMover
    logs: TouchedLogs
    without_indexes: bool  # of touched logs
    _indexes: dict[tuple[Extents, Extents], Extents] = field(default_factory=dict)
    _changed: set[Extents] = field(default_factory=set)  # of files that became others
    _tails: dict[Extents, int] = field(default_factory=dict)
    _known: KnownLines[bool] = field(init=False)  # whether they change

    def __post_init__(self) -> None:
        self._known = KnownLines(lambda part: self._part(part) != part)

    def of(self, manifest: Manifest) -> Manifest:
        """Returns the manifest as it becomes, itself if nothing in it does; what it then names is stored, and was read
        back. Raises CorruptTierError, OSError.
        """
        self._known.take(manifest)
        self.mover.finish()
        for extents in self._changed - self._tails.keys():
            self._tails[extents] = tail_of_extents(self.mover.repository, extents)
        return manifest.changed(self._known, self._with_tails)

    def _with_tails(self, part: ManifestPart) -> ManifestPart:
        anew = self._part(part)
        files = (replace(file, tail=self._tails.get(file.extents, file.tail)) for file in anew.files)
        return replace(anew, files=tuple(files))

    def _part(self, part: ManifestPart) -> ManifestPart:
        return moved_part(self.mover, part) if isinstance(part, StoredDirectory) else self._partition(part)

    def _partition(self, partition: StoredPartition) -> StoredPartition:
        folder = folder_of(partition)
        logs: dict[str, Sequence[Part]] = {}
        of_index: dict[str, tuple[Extents, dict[int, tuple[int, int]]]] = {}  # by name: its log, changed sizes in it
        for file in partition.files:
            parts = self.logs.get((partition.topic_partition, file.name, file.extents))
            if parts is None:
                continue
            logs[file.name] = parts
            sizes = {
                batch.position: (batch.size, part.sizes[batch.position])
                for part in parts
                for batch in part.touched.batches
            }
            offsets, times = (
                file.name.replace(FileKind.LOG.value, kind.value, 1)
                for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
            )
            of_index[offsets], of_index[times] = (file.extents, sizes), (file.extents, {})  # times have no positions
        files: list[StoredFile] = []
        for file in partition.files:
            extents: Extents = ()
            if file.name in logs:
                for part in logs[file.name]:
                    extents += part.new if part.new is not None else self.mover.moved(file.name, folder, part.extents)
            elif file.name in of_index:
                if self.without_indexes:
                    continue  # a broker builds it again: its times and batches may be gone
                log, sizes = of_index[file.name]
                extents = self._index(file, log, sizes, folder)
            else:
                files.append(moved_file(self.mover, folder, file))
                continue
            self._changed.add(extents)
            files.append(replace(file, inode=file.inode | _NOT_THE_SOURCES, extents=extents))
        if not logs:
            return replace(partition, files=tuple(files))
        seen = hashlib.sha256(f"redacted {partition.seen}".encode()).hexdigest()[:32]
        return replace(partition, seen=seen, files=tuple(files))

    def _index(self, file: StoredFile, log: Extents, sizes: dict[int, tuple[int, int]], folder: str) -> Extents:
        """Returns an index with the positions that its batches have now."""
        if all(before == after for before, after in sizes.values()):
            return self.mover.moved(file.name, folder, file.extents)
        if (file.extents, log) not in self._indexes:
            stored = b"".join(piece for extent in file.extents for piece in self.mover.repository.extent_pieces(extent))
            self._indexes[file.extents, log] = self.mover.stored(file.name, folder, (_shifted(stored, sizes),))
        return self._indexes[file.extents, log]


def _shifted(data: bytes, sizes: dict[int, tuple[int, int]]) -> bytes:
    """Returns an offset index whose entries point to where batches are after some have got other sizes (old, new)."""
    width = layout.OFFSET_INDEX_ENTRY.itemsize
    whole = len(data) // width * width
    entries = np.frombuffer(data[:whole], layout.OFFSET_INDEX_ENTRY).copy()
    positions = np.array(sorted(sizes), dtype=np.int64)
    before, after = (np.array([sizes[at][i] for at in positions.tolist()], dtype=np.int64) for i in (0, 1))
    shifts = np.concatenate(([0], np.cumsum(after - before)))
    old = entries["position"].view(">u4").astype(np.int64)
    entries["position"] = old + shifts[np.searchsorted(positions + before, old, side="right")]
    return entries.tobytes() + data[whole:]
