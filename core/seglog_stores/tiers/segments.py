"""Reads the segments of one partition in tiered storage from the objects that a plugin has written.

| layout | complete segments | their end comes from |
|---|---|---|
| Aiven | those with a manifest, which is uploaded last | the manifest |
| LocalTieredStorage | those with a log and all of its indexes | the end of the log |
| Pinterest | those up to `offset.wm` | the end of the log |

What exists but cannot be used is a `Remark`; nothing is ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from seglog.errors import ConfigError, CorruptCheckpointError, CorruptTierError
from seglog.format.checkpoint import EpochEntry, parse_leader_epochs
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.layout import OFFSET_INDEX_ENTRY
from seglog.locations import parse_location
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.filesystem import FileStatus, FileSystem
from seglog_stores.formats.tier_keys import DataKey, PrivateKey
from seglog_stores.formats.tier_manifest import MANIFEST_BYTES_LIMIT, Section, SegmentManifest, parse_manifest
from seglog_stores.formats.tier_names import WATERMARK, ObjectKind, ObjectName, parse_object_name, parse_watermark
from seglog_stores.tiers.contents import (
    ChunkCache,
    ChunkedLog,
    OneFile,
    Opener,
    PartOfObject,
    SealedPart,
    Stored,
    WholeObject,
)
from seglog_stores.tiers.recognition import Layout, TierPlace

EPOCHS_BYTES_LIMIT = 64 << 20
_KEY_BYTES_LIMIT = 1 << 20
_AT_ONCE = 8  # segments that are read together
_T = TypeVar("_T")
_Key = TypeVar("_Key", int, tuple[int, str])  # a segment's base offset, and its id if it has one
_RAW_KINDS = {
    ObjectKind.LOG: FileKind.LOG,
    ObjectKind.OFFSET_INDEX: FileKind.OFFSET_INDEX,
    ObjectKind.TIME_INDEX: FileKind.TIME_INDEX,
    ObjectKind.TRANSACTION_INDEX: FileKind.TRANSACTION_INDEX,
    ObjectKind.PRODUCER_SNAPSHOT: FileKind.PRODUCER_SNAPSHOT,
}
_NEEDED = frozenset(_RAW_KINDS) - {ObjectKind.TRANSACTION_INDEX} | {ObjectKind.LEADER_EPOCHS}


class Problem(Enum):
    """What can be wrong with a partition in tiered storage; the value describes it in a word or two."""

    INCOMPLETE_UPLOAD = "incomplete upload"
    BAD_OBJECT = "damaged object"
    MISSING_OBJECT = "missing object"
    ORPHAN_OBJECT = "orphan object"
    DELETED = "being deleted"
    OUTSIDE_LINEAGE = "outside of the lineage"
    DUPLICATE = "duplicate"
    OVERLAP = "overlap"
    GAP = "gap"
    LOCAL_BEHIND = "local log behind"
    LOG_START = "log start within a segment"
    MOVED_OBJECT = "moved object"
    UNREADABLE = "unreadable"


# Problems that cost records or make an answer uncertain; tiered storage produces the others in normal operation.
GRAVE = frozenset({Problem.BAD_OBJECT, Problem.MISSING_OBJECT, Problem.GAP, Problem.LOCAL_BEHIND, Problem.UNREADABLE})


@dataclass(frozen=True, slots=True)
class Remark:
    """A message about a partition in tiered storage that its reader must know; offsets are inclusive."""

    problem: Problem
    partition: str
    message: str
    first_offset: int | None = None
    last_offset: int | None = None
    path: Path | None = None

    @property
    def is_grave(self) -> bool:
        """True if it costs records or makes an answer uncertain."""
        return self.problem in GRAVE

    def __str__(self) -> str:
        return f"{self.partition}: {self.message}"


@dataclass(frozen=True, slots=True, eq=False)
class TierSegment:
    """A segment in tiered storage. `end_offset` is inclusive.

    `files` are its log, indexes and the producer snapshot after it. `checkpoint` holds all leader epochs up to its end,
    `epochs` those of its own records (empty if unknown).
    """

    start_offset: int
    end_offset: int
    segment_id: str
    epochs: tuple[EpochEntry, ...]
    files: Mapping[FileKind, Stored]
    checkpoint: Stored | None
    path: Path
    event_timestamp_ms: int = -1

    @property
    def log(self) -> Stored:
        """Its `.log`."""
        return self.files[FileKind.LOG]

    def lineage(self) -> tuple[EpochEntry, ...]:
        """Returns the leader epochs in `checkpoint`. Raises OSError, CorruptCheckpointError."""
        if self.checkpoint is None:
            return ()
        with self.checkpoint.open(self.path) as file:
            return parse_leader_epochs(file.read_at(0, min(file.size(), EPOCHS_BYTES_LIMIT)), self.path)


def read_private_key(fs: FileSystem, path: Path) -> PrivateKey:
    """Reads the private key in a PEM file. Raises ConfigError if it is not one, OSError."""
    return PrivateKey.parse(fs.read_bytes(path, _KEY_BYTES_LIMIT), path)


@dataclass(slots=True)
class KeyPairs:
    """Key pairs by id; the id "" applies to all others. Decrypted data keys are kept."""

    pairs: Mapping[str, PrivateKey] = field(default_factory=dict)
    opened: dict[tuple[bytes, bytes], DataKey] = field(default_factory=dict)

    def opener(self, manifest: SegmentManifest, path: Path) -> Opener | None:
        """Returns a function that returns a segment's data key; None if nothing is encrypted."""
        sealed = manifest.encryption
        if sealed is None:
            return None

        def open_key() -> DataKey:
            key = self.opened.get((sealed.data_key, sealed.aad))
            if key is None:
                pair = self.pairs.get(sealed.key_id) or self.pairs.get("")
                if pair is None:
                    raise ConfigError(
                        f"{path}: it is encrypted with the key pair {sealed.key_id};"
                        f" give its private key with --tier-key {sealed.key_id}=FILE"
                    )
                key = DataKey(pair.data_key(sealed.data_key, path), sealed.aad)
                self.opened[sealed.data_key, sealed.aad] = key
            return key

        return open_key


Objects = Mapping[ObjectKind, WholeObject]
Locate = Callable[[str, Objects], Objects]  # segment id and the objects in its directory → its objects
_Objects = tuple[tuple[int, str], Objects]  # base offset and segment id, and the objects
_by_key = itemgetter(0)


class Inventory:
    """The contents of one partition's directory: `segments` in offset order, and `remarks`.

    Several threads call `locate` for the objects of each Aiven segment with a manifest. Raises OSError if the directory
    or a needed object cannot be read; for a survey (`is_survey`) such an object is a remark.
    """

    def __init__(
        self,
        fs: FileSystem,
        place: TierPlace,
        keys: KeyPairs,
        cache: ChunkCache,
        locate: Locate,
        *,
        is_survey: bool,
    ) -> None:
        self._fs, self._keys, self._cache, self._locate = fs, keys, cache, locate
        self._is_survey = is_survey
        self.place, self.remarks = place, list[Remark]()
        self.ids = set[str]()
        entries = [(name, status) for name, status in fs.entries(place.directory) if not status.is_directory]
        if place.layout is Layout.PINTEREST:
            segments = self._pinterest(dict(entries))
        else:
            one_of = self._aiven_one if place.layout is Layout.AIVEN else self._local_one
            segments = self._read(one_of, sorted(self._by_segment(dict(entries)).items(), key=_by_key))
        self.segments = sorted(segments, key=lambda segment: (segment.start_offset, segment.end_offset))

    def _remark(self, problem: Problem, message: str, path: Path, first: int, last: int | None = None) -> Remark:
        return Remark(problem, str(self.place.topic_partition), message, first, last, path)

    def _read(
        self, work: Callable[[tuple[_Key, _T]], TierSegment | Remark], work_list: Sequence[tuple[_Key, _T]]
    ) -> list[TierSegment]:
        """Runs `work` on the segments, several at a time, because each waits for a manifest or the end of a log."""

        def worked(task: tuple[_Key, _T]) -> TierSegment | Remark:
            try:
                return work(task)
            except OSError as error:
                if not self._is_survey:
                    raise
                base = task[0] if isinstance(task[0], int) else task[0][0]
                return unreadable(self.place, error, f"the segment at offset {base}", base)

        with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(work_list))), thread_name_prefix="seglog-tier") as pool:
            results = list(pool.map(worked, work_list))
        self.remarks += [result for result in results if isinstance(result, Remark)]
        return [result for result in results if isinstance(result, TierSegment)]

    def _by_segment(self, entries: Mapping[str, FileStatus]) -> dict[tuple[int, str], dict[ObjectKind, WholeObject]]:
        objects_of: dict[tuple[int, str], dict[ObjectKind, WholeObject]] = {}
        for text, status in entries.items():
            name = parse_object_name(text)
            if name is not None:
                whole = WholeObject(self._fs, self.place.directory / text, status)
                objects_of.setdefault((name.base_offset, name.segment_id), {})[name.kind] = whole
                self.ids.add(name.segment_id)
        return objects_of

    # --- Aiven --------------------------------------------------------------------------------------------

    def _aiven_one(self, named: _Objects) -> TierSegment | Remark:
        (base, segment_id), objects = named
        some = next(iter(objects.values())).path
        if ObjectKind.MANIFEST not in objects:
            message = f"the segment at offset {base} has no manifest, so its upload was not completed ({some})"
            return self._remark(Problem.INCOMPLETE_UPLOAD, message, some, base)
        objects = self._locate(segment_id, objects)
        missing = [kind for kind in (ObjectKind.LOG, ObjectKind.INDEXES) if kind not in objects]
        if missing:
            lacking = " and ".join(f"{ObjectName(base, segment_id, kind)}" for kind in missing)
            message = f"the segment at offset {base} has a manifest, but {lacking} is missing"
            return self._remark(Problem.MISSING_OBJECT, message, some, base)
        try:
            return self._aiven_segment(objects, base, segment_id)
        except CorruptTierError as error:
            return self._remark(Problem.BAD_OBJECT, f"the segment at offset {base}: {error}", some, base)

    def _aiven_segment(self, objects: Objects, base: int, segment_id: str) -> TierSegment:
        described = objects[ObjectKind.MANIFEST]
        if described.status.size > MANIFEST_BYTES_LIMIT:
            raise CorruptTierError(described.path, f"a manifest cannot have {described.status.size} bytes")
        manifest = parse_manifest(self._fs.read_bytes(described.path, MANIFEST_BYTES_LIMIT), described.path)
        segment, log, indexes = manifest.segment, objects[ObjectKind.LOG], objects[ObjectKind.INDEXES]
        if (segment.start_offset, segment.segment_id) != (base, segment_id):
            named = f"offset {segment.start_offset} and segment {segment.segment_id}"
            raise CorruptTierError(described.path, f"the manifest describes {named}, which contradicts its name")
        if log.status.size != manifest.chunks.stored_bytes:
            raise CorruptTierError(
                log.path,
                f"it has {log.status.size} bytes, but {manifest.chunks.stored_bytes} by its manifest",
            )
        opener = self._keys.opener(manifest, described.path)
        stored: Stored = log
        if opener is not None or manifest.compressed:
            stored = ChunkedLog(log, manifest.chunks, manifest.compressed, opener, self._cache)
        files: dict[FileKind, Stored] = {
            FileKind.LOG: stored,
            FileKind.OFFSET_INDEX: _section(indexes, manifest.offsets, opener),
            FileKind.TIME_INDEX: _section(indexes, manifest.timestamps, opener),
            FileKind.PRODUCER_SNAPSHOT: _section(indexes, manifest.producers, opener),
        }
        if manifest.transactions is not None:
            files[FileKind.TRANSACTION_INDEX] = _section(indexes, manifest.transactions, opener)
        checkpoint = _section(indexes, manifest.leader_epochs, opener)
        end, stamp = segment.end_offset, segment.event_timestamp_ms
        return TierSegment(base, end, segment_id, segment.epochs, files, checkpoint, described.path, stamp)

    # --- unchanged copies ---------------------------------------------------------------------------------

    def _local_one(self, named: _Objects) -> TierSegment | Remark:
        (base, segment_id), objects = named
        some = next(iter(objects.values())).path
        missing = sorted(kind.value for kind in _NEEDED - objects.keys())
        if missing:
            message = (
                f"the segment at offset {base} lacks {', '.join(missing)}, so its upload was not completed ({some})"
            )
            return self._remark(Problem.INCOMPLETE_UPLOAD, message, some, base)
        files: dict[FileKind, Stored] = {kind: objects[own] for own, kind in _RAW_KINDS.items() if own in objects}
        log, checkpoint = objects[ObjectKind.LOG], objects[ObjectKind.LEADER_EPOCHS]
        end = self._end_of(files, log.path, base)
        if isinstance(end, Remark):
            return end
        segment = TierSegment(base, end, segment_id, (), files, checkpoint, log.path, log.status.modified_ms)
        try:
            return replace(segment, epochs=own_epochs(segment.lineage(), base, end))
        except CorruptCheckpointError as error:
            return self._remark(Problem.BAD_OBJECT, f"the segment at offset {base}: {error}", checkpoint.path, base)

    def _pinterest(self, entries: Mapping[str, FileStatus]) -> list[TierSegment]:
        logs: dict[int, dict[FileKind, Stored]] = {}
        for text, status in entries.items():
            name = parse_file_name(text)
            if name is not None and name.state is FileState.LIVE and name.kind in _RAW_KINDS.values():
                logs.setdefault(name.offset, {})[name.kind] = WholeObject(self._fs, self.place.directory / text, status)
        path = self.place.directory / WATERMARK
        mark = entries.get(WATERMARK)  # None if it is a directory
        first, last = min(logs, default=0), None
        try:
            last = parse_watermark(self._fs.read_bytes(path, 1024) if mark is not None and mark.size <= 1024 else b"")
            if last is None:
                message = f"{path} does not hold an offset; every segment counts as complete"
                self.remarks.append(self._remark(Problem.BAD_OBJECT, message, path, first))
        except OSError as error:
            if not self._is_survey:
                raise
            self.remarks.append(unreadable(self.place, error, "every segment counts as complete", first))
        return self._read(lambda named: self._pinterest_one(*named, last), sorted(logs.items(), key=_by_key))

    def _pinterest_one(self, base: int, files: Mapping[FileKind, Stored], last: int | None) -> TierSegment | Remark:
        if FileKind.LOG not in files or (last is not None and base > last):
            why = "is beyond offset.wm" if FileKind.LOG in files else "has no log"
            message = f"the segment at offset {base} {why}, so its upload was not completed"
            return self._remark(Problem.INCOMPLETE_UPLOAD, message, self.place.directory / WATERMARK, base)
        place = self.place.directory / f"{base:020d}{FileKind.LOG.value}"
        end = self._end_of(files, place, base)
        return end if isinstance(end, Remark) else TierSegment(base, end, "", (), files, None, place)

    def _end_of(self, files: Mapping[FileKind, Stored], path: Path, base: int) -> int | Remark:
        """Returns the last offset in a log, found from its last index entry; a remark if it has no whole batch."""
        last = last_offset(self._fs, files[FileKind.LOG], files.get(FileKind.OFFSET_INDEX), path)
        if last is not None and last >= base:
            return last
        message = f"{path} has no whole batch with offset {base} or above"
        return self._remark(Problem.BAD_OBJECT, message, path, base)


def unreadable(place: TierPlace, error: OSError, subject: str, first: int | None = None) -> Remark:
    """Returns the remark that `subject` could not be read, and why."""
    path = place.directory if error.filename is None else parse_location(error.filename)
    message = f"{subject}: {path}: {error.strerror or error}"
    return Remark(Problem.UNREADABLE, str(place.topic_partition), message, first, path=path)


def own_epochs(lineage: Sequence[EpochEntry], first: int, last: int) -> tuple[EpochEntry, ...]:
    """Returns the epochs of the offsets `first` to `last` (Kafka: RemoteLogManager, segmentLeaderEpochs)."""
    before = [entry for entry in lineage if entry.start_offset <= first]
    own = [EpochEntry(before[-1].epoch, first)] if before else []
    return (*own, *(entry for entry in lineage if first < entry.start_offset <= last))


def last_offset(fs: FileSystem, log: Stored, index: Stored | None, path: Path) -> int | None:
    """Returns the last offset of the whole batches in a log, scanned from its last index entry; None if none."""
    start = 0 if index is None else _last_position(index, path, log.status.size)
    for begin in dict.fromkeys((start, 0)):
        last_offset = None
        for chunk in SegmentScan(OneFile(fs, path, log), path, begin):
            last_offset = int(chunk.batches["last_offset"][-1])
        if last_offset is not None:
            return last_offset
    return None


def cut_position(fs: FileSystem, log: Stored, path: Path, offset: int) -> int:
    """Returns the position of the first batch that ends at or above `offset`, the end of the batches if none does."""
    position = 0
    scan = SegmentScan(OneFile(fs, path, log), path)
    for chunk in scan:
        beyond = (chunk.batches["last_offset"] >= offset).nonzero()[0]
        if len(beyond):
            return int(chunk.batches["position"][beyond[0]])
        position = int(chunk.batches["position"][-1] + chunk.batches["size"][-1])
    return position


def _last_position(index: Stored, path: Path, log_bytes: int) -> int:
    """Returns the position in the last entry of an offset index, 0 without an entry that leads into the log."""
    width = OFFSET_INDEX_ENTRY.itemsize
    size = index.status.size - index.status.size % width
    if not size:
        return 0
    with index.open(path) as file:
        entry = file.read_at(size - width, width)
    position = int.from_bytes(entry[4:8], "big")
    return position if len(entry) == width and position < log_bytes else 0


def _section(indexes: WholeObject, section: Section, opener: Opener | None) -> Stored:
    if section.position + section.size > indexes.status.size:
        raise CorruptTierError(
            indexes.path,
            f"it has {indexes.status.size} bytes, but a part of it has {section.size} bytes at {section.position}",
            section.position,
        )
    if opener is not None and section.size:
        return SealedPart(indexes, section.position, section.size, opener)
    return PartOfObject(indexes, section.position, indexes.status._replace(size=section.size))
