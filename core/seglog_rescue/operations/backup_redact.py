"""Erases records from the snapshots of a backup (`seglog backup redact`).

1. Each distinct part of a log is searched once, whatever the number of snapshots that have it. Damage refuses all.
2. Parts with such records are stored anew without them, once; so is what else lies in objects that must go: those with
   erased records, and packs with bytes that no snapshot names any more.
3. All of it is read back, and then each manifest is replaced as a whole.
4. What no manifest names is removed: old objects, and what pruned snapshots and runs that were cut short have left.

A snapshot that is listed restores at any moment. Runs of `backup` that overlap commit nothing (`backup.erasures`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.clock import Clock
from seglog.errors import CorruptionError, CorruptRecordError, RefusedError, SeglogError, UnsupportedError
from seglog.format.checksum import byte_view
from seglog.format.filenames import FileKind, FileName, parse_file_name
from seglog.format.snapshot_manifest import Snapshot, StoredFile, StoredPartition
from seglog.format.tier_names import SNAPSHOT_MARK
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.operations.redact import RedactionReport, RedactionRequest, is_kafkas_own, made_report
from seglog.progress import BytesRead
from seglog.redaction.applying import RewrittenFile, RewrittenSegment
from seglog.redaction.finding import FoundRecords, TouchedSegment, find_in_segment
from seglog.redaction.searching import CopySearch, Remembered, SearchReport, Trace
from seglog.scan.listing import list_partition
from seglog.storage.filesystem import FileSystem
from seglog_rescue.backup.erasures import ErasureMark
from seglog_rescue.backup.moving import ExtentMover, Extents, folder_of, moved_file, tail_of_extents, with_files
from seglog_rescue.backup.pruning import remove_unnamed
from seglog_rescue.backup.repository import PRUNED, Repository
from seglog_stores.tiers.recognition import TierPlace
from seglog_stores.tiers.snapshots import ShownSnapshot
from seglog_stores.tiers.view import snapshot_files

_NOT_THE_SOURCES = 1 << 63  # of an inode: the next run does not take a rewritten file for the one at the source


@dataclass(slots=True)
class _Part:
    """A part of a log, from batch to batch: its extents, what is to be rewritten in it, and what it then is."""

    topic_partition: TopicPartition
    folder: str
    segment: LogSegment
    start: int
    extents: Extents
    touched: TouchedSegment
    already: int
    new: Extents | None = None
    sizes: dict[int, int] = field(default_factory=dict)  # of rewritten batches, by position

    @property
    def size(self) -> int:
        return sum(extent.size for extent in self.extents)


class BackupRedaction:
    """A request about the snapshots of a repository. `topics`: only these, if there are any. `search` comes first;
    `apply` changes the repository.
    """

    def __init__(
        self,
        repository: Repository,
        clock: Clock,
        request: RedactionRequest,
        topics: Collection[str] = (),
        progress: BytesRead = lambda _size: None,
    ) -> None:
        if request.erasure.zeros:
            raise RefusedError(
                "a backup does not say which topics are compacted, and there a value of zeros would count as the newest"
                " of its key; nothing was changed. Erase to null"
            )
        self._repository, self._clock, self.request, self._topics = repository, clock, request, frozenset(topics)
        self._progress, self._started_ms = progress, clock.now_ms()
        self._snapshots: dict[str, Snapshot] = {}
        self._parts: dict[tuple[TopicPartition, str, int, Extents], _Part] = {}
        self._touched_logs: dict[tuple[TopicPartition, str, Extents], list[_Part]] = {}
        self._remembered = Remembered(request.selection, request.erasure, secrets.token_bytes(32))
        self.files: list[RewrittenFile] = []
        self.removed = 0  # objects
        self._searched: SearchReport | None = None

    # --- searching ----------------------------------------------------------------------------------------

    def search(self) -> None:
        """Searches the snapshots that are listed. Raises RefusedError for damage in what must be searched, or a topic
        or partition that no snapshot has; UnsupportedError, CorruptTierError for a damaged manifest, OSError.
        """
        self._search_new()
        there = {each.topic_partition for each in self._partitions()}
        missing = [str(key) for key in self.request.selection.offsets if key not in there]
        missing += sorted(self._topics - {key.topic for key in there})
        if missing:
            raise RefusedError(f"no snapshot in {self._repository.place} has {missing[0]}; nothing was changed")

    @property
    def found(self) -> tuple[FoundRecords, ...]:
        """What was found, by partition; content that several snapshots share counts once."""
        by_partition: dict[TopicPartition, list[_Part]] = {}
        for part in self._parts.values():
            by_partition.setdefault(part.topic_partition, []).append(part)
        return tuple(
            FoundRecords(
                key,
                self._repository.place / str(key),
                tuple(part.touched for part in parts if part.touched.batches),
                sum(part.already for part in parts),
                sum(part.size for part in parts),
            )
            for key, parts in sorted(by_partition.items())
        )

    @property
    def records(self) -> int:
        """The number of records to erase, as often as they are stored."""
        return sum(found.records for found in self.found)

    def _partitions(self) -> Iterator[StoredPartition]:
        for snapshot in self._snapshots.values():
            for directory in snapshot.directories:
                yield from directory.partitions

    def _is_concerned(self, key: TopicPartition) -> bool:
        is_meant = not self._topics or key.topic in self._topics
        return is_meant and not is_kafkas_own(key.topic) and self.request.selection.concerns(key)

    def _search_new(self) -> bool:
        """Searches the snapshots that are new, or that a prune has changed; returns whether there were any."""
        listed: dict[str, Snapshot] = {}
        for identity in self._repository.ids():
            with suppress(FileNotFoundError):  # pruned meanwhile
                listed[identity] = self._repository.read(identity)
        new = [each for identity, each in listed.items() if each != self._snapshots.get(identity)]
        self._snapshots = listed
        for snapshot in new:
            view = self._shown(snapshot)
            files = snapshot_files(self._repository.fs, view)
            for place in view.places():
                if self._is_concerned(place.topic_partition):
                    self._search_partition(files, place)
        return bool(new)

    def _shown(self, snapshot: Snapshot) -> ShownSnapshot:
        place = self._repository.place
        root = place.with_name(f"{place.name}{SNAPSHOT_MARK}{snapshot.id}")
        status = self._repository.fs.status(self._repository.manifest_path(snapshot.id))
        if status is None:
            raise RefusedError(f"snapshot {snapshot.id} was removed from {place} meanwhile; run this again")
        return ShownSnapshot(self._repository.fs, root, place, status, snapshot)

    def _search_partition(self, files: FileSystem, place: TierPlace) -> None:
        assert place.kept is not None
        if list_partition(files, place.directory).format != "kafka":
            raise UnsupportedError(f"{place.directory}: a log of Kafka 0.7 cannot be rewritten; nothing was changed")
        for file in place.kept.partition.files:
            name = parse_file_name(file.name)
            if name is not None and name.kind is FileKind.LOG:
                self._search_log(files, place, file, name)

    def _search_log(self, files: FileSystem, place: TierPlace, file: StoredFile, name: FileName) -> None:
        parts: list[_Part] = []
        start, first, extents = 0, 0, file.extents
        for end in range(1, len(extents) + 1):
            key = (place.topic_partition, file.name, start, extents[first:end])
            if key not in self._parts:
                segment = LogSegment(files, place.directory, name.offset, state=name.state)
                part = self._part(segment, place, start, key[3], is_last=end == len(extents))
                if part is None:
                    continue  # a batch goes on in the next extent
                self._parts[key] = part
            parts.append(self._parts[key])
            start, first = start + parts[-1].size, end
        if any(part.touched.batches for part in parts):
            self._touched_logs[place.topic_partition, file.name, extents] = parts

    def _part(
        self, segment: LogSegment, place: TierPlace, start: int, extents: Extents, *, is_last: bool
    ) -> _Part | None:
        assert place.kept is not None
        key, folder = place.topic_partition, folder_of(place.kept.partition)
        end = start + sum(extent.size for extent in extents)
        selection, erasure = self.request.selection.of(key), self.request.erasure
        try:
            touched, already = find_in_segment(segment, selection, erasure, self._remembered.take, start, end)
        except CorruptRecordError as error:
            if not is_last:
                return None
            raise self._refused(error) from error
        except CorruptionError as error:
            raise self._refused(error) from error
        self._progress(end - start)
        return _Part(key, folder, segment, start, extents, touched, already)

    def _refused(self, error: CorruptionError) -> RefusedError:
        return RefusedError(
            f"{error}; nothing was changed. What cannot be read may hold what must go: back up the repaired log again,"
            " and remove this snapshot with `seglog backup prune`"
        )

    # --- rewriting ----------------------------------------------------------------------------------------

    def apply(self, *, resume: bool = False) -> None:
        """Erases the records. With `resume` it goes on where one was cut short.

        Raises RefusedError if another is at work, or for what `search` refuses; CorruptTierError, OSError.
        """
        if self.request.dry_run:
            raise RefusedError("a dry run changes nothing")
        mark = ErasureMark.begin(self._repository, self._clock.now_ms(), resume=resume)
        self._snapshots.clear()  # the manifests may have been replaced since
        try:
            self._search_new()
            planned = self._rewritten()
        except (SeglogError, OSError):
            if not resume:
                mark.end(self._clock.now_ms())  # no manifest was replaced
            raise
        while True:
            self._replace(planned)
            if not self._search_new():  # of runs that ended while this one began
                break
            planned = self._rewritten()
        for identity in self._repository.ids(PRUNED):
            self._repository.discard_manifest(identity, PRUNED)
        named = {name for snapshot in self._snapshots.values() for name in snapshot.objects()}
        self.removed, _ = remove_unnamed(self._repository, named, None, dry_run=False)
        mark.end(self._clock.now_ms())

    def _replace(self, planned: Sequence[Snapshot]) -> None:
        listed = set(self._repository.ids())
        for snapshot in planned:
            if snapshot.id in listed:  # or else it was pruned meanwhile
                self._repository.replace(snapshot)
            self._snapshots[snapshot.id] = snapshot

    def _rewritten(self) -> list[Snapshot]:
        """Stores what is rewritten or moved; returns the snapshots that become others."""
        touched = [part for part in self._parts.values() if part.touched.batches]
        going = {extent.object for part in touched for extent in part.extents} | self._partly_named()
        mover = ExtentMover(self._repository, frozenset(going))
        for part in touched:
            if part.new is None:
                self._rewrite(part, mover)
        indexes: dict[tuple[Extents, Extents], Extents] = {}
        anew: dict[Extents, int] = {}
        file_of = partial(moved_file, mover, "")
        snapshots = [
            with_files(each, lambda partition: self._partition(partition, mover, indexes, anew), file_of)
            for each in self._snapshots.values()
        ]
        mover.finish()
        for extents in anew:
            anew[extents] = tail_of_extents(self._repository, extents)

        def with_tail(file: StoredFile) -> StoredFile:
            return replace(file, tail=anew[file.extents]) if file.extents in anew else file

        def partition_with_tails(partition: StoredPartition) -> StoredPartition:
            return replace(partition, files=tuple(map(with_tail, partition.files)))

        made = (with_files(each, partition_with_tails, with_tail) for each in snapshots)
        return [each for each in made if each != self._snapshots[each.id]]

    def _partly_named(self) -> set[str]:
        """Returns the objects with bytes that no snapshot names: an erased record may lie there."""
        extents = {extent for each in self._snapshots.values() for file in each.all_files() for extent in file.extents}
        named: dict[str, int] = {}
        for extent in extents:
            named[extent.object] = named.get(extent.object, 0) + extent.size
        return {name for name, status in self._repository.objects() if status.size > named.get(name, status.size)}

    def _rewrite(self, part: _Part, mover: ExtentMover) -> None:
        touched, erasure, path = part.touched, self.request.erasure, part.segment.path
        content = RewrittenSegment(part.segment, touched, erasure)
        end = part.start + part.size

        def pieces() -> Iterator[memoryview]:
            for _, data in content.parts(part.start, end):
                yield from (byte_view(data),) if isinstance(data, np.ndarray) else data

        part.new = mover.stored(path.name, part.folder, pieces())
        part.sizes = content.sizes
        last = touched.batches[-1]
        if last.position + last.size == end and not content.sizes[last.position]:
            raise RefusedError(
                f"{path}: the record at offset {last.last_offset} is the last one of a log whose format cannot keep its"
                " offset without it; nothing was changed. Erase its value"
            )
        size = sum(extent.size for extent in part.new)
        self.files.append(content.file(touched, self._repository.place / part.extents[0].object, size))

    def _partition(
        self,
        partition: StoredPartition,
        mover: ExtentMover,
        indexes: dict[tuple[Extents, Extents], Extents],
        anew: dict[Extents, int],
    ) -> StoredPartition:
        folder = folder_of(partition)
        logs: dict[str, list[_Part]] = {}
        of_index: dict[str, tuple[Extents, dict[int, tuple[int, int]]]] = {}  # by name: its log, changed sizes in it
        for file in partition.files:
            parts = self._touched_logs.get((partition.topic_partition, file.name, file.extents))
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
                    extents += part.new if part.new is not None else mover.moved(file.name, folder, part.extents)
            elif file.name in of_index:
                if self.request.erasure.whole_record:
                    continue  # a broker builds it again: its times and batches may be gone
                log, sizes = of_index[file.name]
                extents = self._index(file, log, sizes, folder, mover, indexes)
            else:
                files.append(moved_file(mover, folder, file))
                continue
            anew[extents] = 0
            files.append(replace(file, inode=file.inode | _NOT_THE_SOURCES, extents=extents))
        if not logs:
            return replace(partition, files=tuple(files))
        seen = hashlib.sha256(f"redacted {partition.seen}".encode()).hexdigest()[:32]
        return replace(partition, seen=seen, files=tuple(files))

    def _index(
        self,
        file: StoredFile,
        log: Extents,
        sizes: dict[int, tuple[int, int]],
        folder: str,
        mover: ExtentMover,
        indexes: dict[tuple[Extents, Extents], Extents],
    ) -> Extents:
        """Returns an index with the positions that its batches have now."""
        if all(before == after for before, after in sizes.values()):
            return mover.moved(file.name, folder, file.extents)
        if (file.extents, log) not in indexes:
            stored = b"".join(piece for extent in file.extents for piece in self._repository.extent_pieces(extent))
            indexes[file.extents, log] = mover.stored(file.name, folder, (_shifted(stored, sizes),))
        return indexes[file.extents, log]

    # --- proof --------------------------------------------------------------------------------------------

    def prove(self) -> tuple[Trace, ...]:
        """Searches all that snapshots name for copies, each content once."""
        views = [self._shown(self._repository.read(identity)) for identity in self._repository.ids()]
        files = snapshot_files(self._repository.fs, *views)
        request = self.request
        search = CopySearch(files, request.selection, request.erasure, self._remembered)
        self._searched = search.searched
        named = {name for each in views for name in each.snapshot.objects()}
        for name, _ in self._repository.objects():
            if name not in named:
                search.searched.unread.append((self._repository.place / name, "no snapshot names it"))
        return tuple(search.below(self._contents(views)))

    def _contents(self, views: Sequence[ShownSnapshot]) -> list[Path]:
        """Returns a path for each content of a file that is not the beginning of another one."""
        paths: dict[tuple[str, str, Extents], Path] = {}
        for view in views:
            for directory, place in zip(view.snapshot.directories, view.log_directories, strict=True):
                paths |= {("", file.name, file.extents): place / file.name for file in directory.files}
                for partition in directory.partitions:
                    if self._topics and partition.topic_partition.topic not in self._topics:
                        continue
                    where = place / partition.name
                    paths |= {(partition.name, file.name, file.extents): where / file.name for file in partition.files}
        beginnings = {(*key[:2], key[2][:end]) for key in paths for end in range(1, len(key[2]))}
        return [path for key, path in paths.items() if key not in beginnings]

    def report(self, traces: tuple[Trace, ...] | None = None) -> RedactionReport:
        """Returns what was done; `traces` are those of `prove`, None without it."""
        report = made_report(self.request, self._started_ms, self._clock.now_ms(), self.found, self.files)
        searched = None if traces is None else self._searched
        return replace(report, elsewhere=self.request.elsewhere, searched=searched, traces=traces or ())


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
