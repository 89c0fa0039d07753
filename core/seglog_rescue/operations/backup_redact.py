"""Erases records from the snapshots of a backup (`seglog backup redact`).

1. Each distinct part of a log is searched once, whatever the number of snapshots that have it. Damage refuses all.
2. Parts with such records are stored anew without them, once; so is what else lies in objects that must go: those with
   erased records, and packs with bytes that no snapshot names any more.
3. All of it is read back, and all manifests are made anew in another folder. One mark says that this one counts.
4. What no manifest names is removed: old objects, and what pruned snapshots and runs that were cut short have left.

A snapshot that is listed restores at any moment. Runs of `backup` that overlap commit nothing (`backup.erasures`). One
manifest is in memory at a time, and of each part of a log what was found in it.
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from seglog.clock import Clock
from seglog.errors import CorruptionError, CorruptRecordError, RefusedError, SeglogError, UnsupportedError
from seglog.format.checksum import byte_view
from seglog.format.filenames import FileKind, FileName, parse_file_name
from seglog.log.segment import LogSegment
from seglog.model import TopicPartition
from seglog.operations.redact import RedactionReport, RedactionRequest, is_kafkas_own, made_report
from seglog.progress import BytesRead
from seglog.redaction.applying import RewrittenFile, RewrittenSegment
from seglog.redaction.finding import FoundRecords, find_in_segment
from seglog.redaction.searching import CopySearch, Remembered, SearchReport, Trace
from seglog.remote_path import SNAPSHOT_MARK
from seglog.scan.listing import list_partition
from seglog.storage.filesystem import FileSystem
from seglog_rescue.backup.erasing import ManifestChange, Part
from seglog_rescue.backup.erasures import ErasureMark
from seglog_rescue.backup.moving import ExtentMover, Extents, folder_of
from seglog_rescue.backup.named import NamedObjects
from seglog_rescue.backup.pruning import remove_unnamed
from seglog_rescue.backup.repository import PRUNED, Repository
from seglog_stores.formats.snapshot_manifest import SNAPSHOTS, StoredDirectory, StoredFile, directory_names
from seglog_stores.formats.snapshot_manifest import Part as ManifestPart
from seglog_stores.formats.snapshot_reading import KnownLines, Manifest
from seglog_stores.tiers.contents import OneFile
from seglog_stores.tiers.recognition import TierPlace
from seglog_stores.tiers.snapshots import ShownSnapshot, files_of_kept
from seglog_stores.tiers.view import snapshot_files


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
        self._searched_manifests: dict[str, str] = {}  # their digests, by id
        self._there: set[TopicPartition] = set()
        self._named = NamedObjects()
        self._lines = KnownLines(_Once)
        self._parts: dict[tuple[TopicPartition, str, int, Extents], Part] = {}
        self._touched_logs: dict[tuple[TopicPartition, str, Extents], list[Part]] = {}
        self._remembered = Remembered(request.selection, request.erasure, secrets.token_bytes(32))
        self.files: list[RewrittenFile] = []
        self.removed = 0  # objects
        self._searched: SearchReport | None = None

    # --- searching ----------------------------------------------------------------------------------------

    def search(self) -> None:
        """Searches the snapshots that are listed. Raises RefusedError for damage in what must be searched, or a topic
        or partition that no snapshot has; UnsupportedError, CorruptTierError for a damaged manifest, OSError.
        """
        for identity in self._repository.ids():
            self._taken(self._repository, identity)
        missing = [str(key) for key in self.request.selection.offsets if key not in self._there]
        missing += sorted(self._topics - {key.topic for key in self._there})
        if missing:
            raise RefusedError(f"no snapshot in {self._repository.place} has {missing[0]}; nothing was changed")

    @property
    def found(self) -> tuple[FoundRecords, ...]:
        """What was found, by partition; content that several snapshots share counts once."""
        by_partition: dict[TopicPartition, list[Part]] = {}
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

    def _is_concerned(self, key: TopicPartition) -> bool:
        is_meant = not self._topics or key.topic in self._topics
        return is_meant and not is_kafkas_own(key.topic) and self.request.selection.concerns(key)

    def _taken(self, source: Repository, identity: str) -> Manifest | None:
        """Reads a manifest, and searches the snapshot unless that was done; None if it was pruned meanwhile."""
        try:
            manifest = source.manifest(identity)
        except FileNotFoundError:
            return None
        if self._searched_manifests.get(identity) != manifest.digest:
            self._named.take(manifest)
            for view in self._shown(manifest, self._named, self._lines):
                for place in view.places():
                    self._there.add(place.topic_partition)
                    if self._is_concerned(place.topic_partition):
                        self._search_partition(snapshot_files(source.fs, view), place)
            self._searched_manifests[identity] = manifest.digest
        return manifest

    def _shown(self, manifest: Manifest, named: NamedObjects, lines: KnownLines[_Once]) -> Iterator[ShownSnapshot]:
        """Yields each part of a manifest that was in none before, shown by itself; `named` has taken the manifest."""
        fs, place = self._repository.fs, self._repository.place
        root = place.with_name(f"{place.name}{SNAPSHOT_MARK}{manifest.id}")
        status = fs.status(self._repository.manifest_path(manifest.id))
        if status is None:
            raise RefusedError(f"snapshot {manifest.id} was removed from {place} meanwhile; run this again")
        directories = manifest.directories(named.lines)
        views = zip(directories, directory_names(directories), strict=True)
        for _, line in manifest.lines(lines):
            if line.is_directory:
                directory, name = next(views)
            part, line.part = line.part, None
            if part is not None:
                yield ShownSnapshot(fs, root / name, place, status, manifest.with_part(directory, part))

    def _search_partition(self, files: FileSystem, place: TierPlace) -> None:
        assert place.kept is not None
        if list_partition(files, place.directory).format != "kafka":
            raise UnsupportedError(f"{place.directory}: a log of Kafka 0.7 cannot be rewritten; nothing was changed")
        stored = files_of_kept(self._repository.fs, place.kept)
        for file in place.kept.partition.files:
            name = parse_file_name(file.name)
            if name is not None and name.kind is FileKind.LOG:
                path = place.directory / file.name  # and no more of the snapshot is kept
                self._search_log(OneFile(self._repository.fs, path, stored[file.name]), place, file, name)

    def _search_log(self, files: FileSystem, place: TierPlace, file: StoredFile, name: FileName) -> None:
        parts: list[Part] = []
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
    ) -> Part | None:
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
        return Part(key, folder, segment if touched.batches else None, start, extents, touched, already)

    def _refused(self, error: CorruptionError) -> RefusedError:
        return RefusedError(
            f"{error}; nothing was changed. What cannot be read may hold what must go: back up the repaired log again,"
            " and remove this snapshot with `seglog backup prune`"
        )

    # --- rewriting ----------------------------------------------------------------------------------------

    def apply(self, *, resume: bool = False) -> None:
        """Erases the records. With `resume` it goes on where one was cut short.

        Raises RefusedError if another is at work, or for what `search` refuses; CorruptTierError, OSError. If it fails
        before the new manifests count, nothing that is listed was changed.
        """
        if self.request.dry_run:
            raise RefusedError("a dry run changes nothing")
        mark = ErasureMark.begin(self._repository, self._clock.now_ms(), resume=resume)
        source = self._repository = self._repository.pinned()
        if mark.is_committed:  # one that was cut short when only the rest was left to remove
            named_now = NamedObjects()
            for identity in source.ids():
                named_now.take(source.manifest(identity))
            self._remove_rest(source, named_now.objects)
            mark.end(self._clock.now_ms())
            mark = ErasureMark.begin(source, self._clock.now_ms(), resume=False)
        target = replace(source, folder=f"{SNAPSHOTS}-{uuid.uuid4().hex}")
        try:
            named = self._made_anew(source, target)
        except (SeglogError, OSError):
            with suppress(OSError):
                target.discard_manifests()
                if not mark.is_committed:  # by another process that goes on with it
                    mark.end(self._clock.now_ms())
            raise
        mark.commit(target.listed())
        self._repository = target
        self._remove_rest(target, named)
        source.discard_manifests()
        mark.end(self._clock.now_ms())

    def _made_anew(self, source: Repository, target: Repository) -> set[str]:
        """Makes the manifests of what is listed, of runs that end meanwhile too; returns the objects that they name."""
        ids = source.ids()
        if self._searched_manifests.keys() != set(ids):
            self._forget_manifests()  # what was pruned names nothing any more
        for identity in self._missing(ids):
            self._taken(source, identity)
        while True:
            made = self._made_once(source, target)
            if made is not None and not self._missing(source.ids()):
                return made.objects
            for identity in self._missing(source.ids()):
                self._taken(source, identity)

    def _made_once(self, source: Repository, target: Repository) -> NamedObjects | None:
        """Makes the manifests of what is listed; None if one had to be searched: it may have more that must go."""
        searched, made, change = dict(self._searched_manifests), NamedObjects(), self._change()
        for identity in source.ids():
            manifest = self._taken(source, identity)
            if self._searched_manifests != searched:
                return None
            if manifest is None:
                continue
            anew = change.of(manifest)
            made.take(anew)  # which reads all of it
            target.replace(anew)
            del manifest, anew  # before the next one is read
        return made

    def _forget_manifests(self) -> None:
        self._searched_manifests.clear()
        self._named, self._lines = NamedObjects(), KnownLines(_Once)

    def _missing(self, ids: Sequence[str]) -> list[str]:
        return [identity for identity in ids if identity not in self._searched_manifests]

    def _remove_rest(self, repository: Repository, named: Collection[str]) -> None:
        for identity in repository.ids(PRUNED):
            repository.discard_manifest(identity, PRUNED)
        self.removed, _ = remove_unnamed(repository, named, None, dry_run=False)

    def _change(self) -> ManifestChange:
        """Stores the touched parts without what is erased; returns what makes other snapshots of snapshots."""
        touched = [part for part in self._parts.values() if part.touched.batches]
        going = {extent.object for part in touched for extent in part.extents} | self._named.sparse(self._repository)
        mover = ExtentMover(self._repository, frozenset(going))
        for part in touched:
            if part.new is None:
                self._rewrite(part, mover)
        mover.finish()
        return ManifestChange(mover, self._touched_logs, without_indexes=self.request.erasure.whole_record)

    def _rewrite(self, part: Part, mover: ExtentMover) -> None:
        assert part.segment is not None
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

    # --- proof --------------------------------------------------------------------------------------------

    def prove(self) -> tuple[Trace, ...]:
        """Searches all that snapshots name for copies, each content once."""
        repository, request = self._repository, self.request
        self._forget_manifests()  # they are large, and the proof reads them anew
        done, report = set[bytes](), SearchReport()
        ids, traces = repository.ids(), list[Trace]()
        named, lines = self._without_beginnings(ids, done), KnownLines(_Once)
        for identity in ids:
            for view in self._shown(repository.manifest(identity), named, lines):
                files = snapshot_files(repository.fs, view)
                search = CopySearch(files, request.selection, request.erasure, self._remembered)
                report.needles, search.searched = search.searched.needles, report
                paths = []
                for partition, name, extents, path in self._contents(view):
                    content = _content_key(partition, name, extents)
                    if content not in done:
                        done.add(content)
                        paths.append(path)
                traces += search.below(paths)
        for name, _ in repository.objects():
            if name not in named.objects:
                report.unread.append((repository.place / name, "no snapshot names it"))
        self._searched = report
        return tuple(traces)

    def _without_beginnings(self, ids: Sequence[str], done: set[bytes]) -> NamedObjects:
        """Returns what snapshots name; files that are the beginning of another one count as `done`."""
        named, lines = NamedObjects(), KnownLines(_Once)
        for identity in ids:
            manifest = self._repository.manifest(identity)
            named.take(manifest)
            for view in self._shown(manifest, named, lines):
                for partition, name, extents, _ in self._contents(view):
                    done |= {_content_key(partition, name, extents[:end]) for end in range(1, len(extents))}
            del manifest  # before the next one is read: they are large
        return named

    def _contents(self, view: ShownSnapshot) -> Iterator[tuple[str, str, Extents, Path]]:
        """Yields each file that is to be searched: its partition ("" for none), name, extents and path."""
        for directory, place in zip(view.snapshot.directories, view.log_directories, strict=True):
            for file in directory.files:
                yield "", file.name, file.extents, place / file.name
            for partition in directory.partitions:
                if self._topics and partition.topic_partition.topic not in self._topics:
                    continue
                for file in partition.files:
                    yield partition.name, file.name, file.extents, place / partition.name / file.name

    def report(self, traces: tuple[Trace, ...] | None = None) -> RedactionReport:
        """Returns what was done; `traces` are those of `prove`, None without it."""
        report = made_report(self.request, self._started_ms, self._clock.now_ms(), self.found, self.files)
        searched = None if traces is None else self._searched
        return replace(report, elsewhere=self.request.elsewhere, searched=searched, traces=traces or ())


class _Once:
    """A line of manifests; its part is there until it is taken."""

    __slots__ = ("is_directory", "part")

    def __init__(self, part: ManifestPart) -> None:
        self.is_directory = isinstance(part, StoredDirectory)
        self.part: ManifestPart | None = part


def _content_key(partition: str, name: str, extents: Extents) -> bytes:
    """Returns a digest of a file's content; of one that is the beginning of another one's, it is asked for, too."""
    return hashlib.blake2b(repr((partition, name, extents)).encode(), digest_size=16).digest()
