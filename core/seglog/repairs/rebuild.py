"""Makes the new files of a partition's repair in the run's folder; only reads the log itself.

1. Rewrites segments from the ranges that stay; segments that are only cut stay in place.
2. On an overlay that shows the partition as it will be, recovers the affected segments as a broker does, which rebuilds
   their indexes, and replays producers from the newest snapshot before the first change.
3. Stages every file that differs from the one on disk and adds it to the list of changes.
4. If a segment other than the last loses its end, adds a note of it to the partition (`format.repair_note`).

The replay does not stop at contradictions in transactions, which a broker's recovery would refuse: `verify` reports
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from seglog.clock import Clock
from seglog.errors import CorruptSnapshotError, RefusedError
from seglog.format import checksum, filenames
from seglog.format.filenames import FileKind
from seglog.format.producer_snapshot import decode_snapshot
from seglog.format.repair_note import encode_note, note_name
from seglog.log.checkpoints import LeaderEpochCache
from seglog.log.producer_state import CompletedTransaction, ProducerStateManager
from seglog.log.segment import LogSegment
from seglog.repairs.epoch_mending import EpochPatch
from seglog.repairs.plan import PartitionPlan, RepairOptions, SegmentRepair
from seglog.repairs.undo.journal import NEW, Change, ChangeKind, FileFacts, group_of
from seglog.repairs.undo.quarantine import crc_of, facts_of
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.storage.files import pieces
from seglog.storage.filesystem import FileSystem
from seglog.storage.overlay import OverlayFileSystem
from seglog.units import count_text
from seglog.verification.segment_survey import ByteRange

_ORDER = {".log": 0, ".kafka": 0, ".index": 1, ".timeindex": 2, ".txnindex": 3}


class PartitionBuilder:
    """Stages the files of one partition's plan below `run` and lists the changes."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        plan: PartitionPlan,
        options: RepairOptions,
        run: Path,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._fs, self._clock, self._plan, self._options, self._run = fs, clock, plan, options, run
        self._progress = progress
        self._name = plan.directory.name
        self._overlay = OverlayFileSystem(fs)
        self._changes: dict[str, Change] = {}
        # Existing `.swap` files must not mix with those of this run: files are then replaced one by one.
        self._has_swaps = any(file.name.endswith(".swap") or file.source.endswith(".swap") for file in plan.files)

    def build(self) -> list[Change]:
        """Stages everything, durably, and returns the changes in the order in which to make them."""
        fs, staging = self._fs, self._run / NEW / self._name
        fs.make_directory(staging, parents=True)
        self._remove_and_move()
        for segment in self._plan.segments:
            self._write_segment(segment)
        listing = list_partition(self._overlay, self._plan.directory)
        if listing.format == "kafka":
            self._derive(listing.segments)
        if self._plan.gaps:
            note = encode_note(self._run.name, self._plan.gaps)
            self._stage(note_name(self._run.name), note, "the offsets that the repair removed")
        fs.sync_directory(staging)
        fs.sync_directory(staging.parent)
        fs.sync_directory(self._run)
        return sorted(self._changes.values(), key=_change_order)

    # --- step 1 -------------------------------------------------------------------------------------------

    def _remove_and_move(self) -> None:
        directory = self._plan.directory
        for file in self._plan.files:
            before = facts_of(self._fs, directory / file.name)
            if file.action == "remove" and before is not None:
                self._add("remove", file.name, before, None, file.reason)
                self._overlay.remove(directory / file.name)
            elif file.action == "move":
                after = facts_of(self._fs, directory / file.source)
                self._add("move", file.name, before, after, file.reason, source=file.source)
                self._overlay.rename(directory / file.source, directory / file.name)

    def _write_segment(self, segment: SegmentRepair) -> None:
        directory, name = self._plan.directory, segment.name
        before = facts_of(self._fs, directory / name)
        reason = ", ".join(sorted({removed.code for removed in segment.removed})) or "broken order or epochs"
        if segment.is_cut:
            assert before is not None
            with self._overlay.open(directory / name, "r+") as file:
                file.truncate(segment.size_after)
            crc = crc_of(self._fs, directory / name, 0, segment.size_after)
            self._add("cut", name, before, replace(before, size=segment.size_after, crc=crc), reason)
            return
        source, staged = directory / segment.source, self._staged(name)
        crc = self._copy_ranges(source, staged, segment)
        model = source if self._fs.status(source) is not None else directory / segment.kept[0].file
        self._fs.copy_attributes(model, staged)
        if segment.source != name:
            moved = self._changes.pop(name)
            self._add("remove", segment.source, moved.after, None, moved.reason)
        self._add("replace", name, before, facts_of(self._fs, staged, crc), reason)
        self._overlay.substitute(directory / name, staged)

    def _copy_ranges(self, source: Path, staged: Path, segment: SegmentRepair) -> int:
        crc = position = 0
        with self._fs.open(staged, "create_new") as writer:
            for part in segment.kept:
                for piece in self._pieces_of(part, source, () if part.file else segment.patches):
                    writer.write_at(position, piece)
                    crc, position = checksum.crc32c(piece, crc), position + len(piece)
                    if self._progress is not None:
                        self._progress(len(piece))
            writer.sync()
        return crc

    def _pieces_of(self, part: ByteRange, own: Path, patches: Sequence[EpochPatch]) -> Iterator[bytes]:
        source, at = own.with_name(part.file) if part.file else own, part.position
        with self._fs.open(source, "r") as reader:
            for piece in pieces(reader, at, part.end):
                if patches:
                    changed = bytearray(piece)
                    for patch in patches:
                        patch.apply(changed, at)
                    piece = bytes(changed)
                yield piece
                at += len(piece)
        if at < part.end:
            raise RefusedError(f"{source} became shorter while it was read")

    # --- step 2 -------------------------------------------------------------------------------------------

    def _derive(self, files: Sequence[SegmentFiles]) -> None:
        wanted = {file.name for file in self._plan.files if file.action == "rebuild"}
        segments = [self._segment(found.base_offset) for found in files]
        epochs = self._epochs()
        if self._plan.replay_from is None:
            for segment in segments:
                if wanted & _index_names(segment):
                    self._recover(segment, self._temporary_state())
        else:
            wanted |= self._replay(segments, wanted)
        if self._plan.epochs:
            for segment in segments:
                for rows in segment.rows():
                    epochs.assign_recovered(rows[rows["magic"] >= 2])
            epochs.flush()
        epochs.truncate_from_end(self._plan.log_end_offset)
        wanted.add(filenames.LEADER_EPOCH_CHECKPOINT)
        for segment in segments:
            segment.close_files()
        for name in sorted(wanted):
            self._stage_derived(name)

    def _replay(self, segments: list[LogSegment], wanted: set[str]) -> set[str]:
        """Recovers or replays every segment from the first change on; returns the names of the files it rebuilds."""
        start = self._plan.replay_from or 0
        producers = ProducerStateManager(self._overlay, self._plan.directory, strict=False)
        flagged = {name for name in wanted if name.endswith(FileKind.PRODUCER_SNAPSHOT.value)}
        found = set(producers.snapshots)
        for offset in sorted(found):
            if offset > start or producers.snapshot_path(offset).name in flagged:
                producers.remove_snapshot(offset)
        # A time of 0 keeps expired producers: a snapshot without them contradicts the log, and loading drops them.
        producers.truncate_and_reload(-1, start, now_ms=0)
        if not producers.snapshots:
            producers.end_offset = segments[0].base_offset if segments else 0
        touched = {producers.snapshot_path(offset).name for offset in found.difference(producers.snapshots)}
        snapshots: list[Path | None] = []
        for i, segment in enumerate(segments):
            next_base = segments[i + 1].base_offset if i + 1 < len(segments) else None
            if next_base is not None and next_base <= producers.end_offset:
                if wanted & _index_names(segment):
                    self._recover(segment, self._temporary_state())
                continue
            if segment.base_offset > producers.end_offset or (i > 0 and segment.base_offset >= start):
                producers.end_offset = max(segment.base_offset, producers.end_offset)
                snapshots.append(producers.take_snapshot())
            touched |= self._replay_segment(segment, producers, bool(wanted & _index_names(segment)))
        producers.end_offset = self._plan.log_end_offset
        snapshots.append(producers.take_snapshot())
        return touched | {path.name for path in snapshots if path is not None}

    def _replay_segment(self, segment: LogSegment, producers: ProducerStateManager, recover: bool) -> set[str]:
        index = segment.transaction_index
        if recover:
            self._recover(segment, producers)
            return {index.path.name}
        aborted: list[tuple[CompletedTransaction, int]] = []

        def completed(transaction: CompletedTransaction, last_stable_offset: int) -> None:
            if transaction.aborted:
                aborted.append((transaction, last_stable_offset))

        first = segment.translate_offset(producers.end_offset)
        for chunk in segment.scan(0 if first is None else first.position):
            producers.replay(chunk.data, chunk.batches, chunk.position, segment.path, completed)
        if producers.end_offset > segment.base_offset and first is not None and first.position > 0:
            return set()
        index.reset()
        for transaction, last_stable_offset in aborted:
            segment.append_aborted(transaction, last_stable_offset)
        return {index.path.name}

    def _temporary_state(self) -> ProducerStateManager:
        """Returns a producer state for one segment's recovery, discarded afterwards; does not list the directory."""
        overlay = OverlayFileSystem(self._overlay)
        return ProducerStateManager(overlay, self._plan.directory, strict=False, snapshots=[])

    def _recover(self, segment: LogSegment, producers: ProducerStateManager) -> None:
        size = segment.size
        recovered = segment.recover(producers)
        if recovered.truncated_bytes:
            raise RefusedError(
                f"{segment.path}: position {recovered.valid_bytes}: {recovered.reason}; recovery would still cut"
                f" {count_text(size - recovered.valid_bytes, 'byte')}; nothing was changed"
            )

    def _epochs(self) -> LeaderEpochCache:
        path = self._plan.directory / filenames.LEADER_EPOCH_CHECKPOINT
        if self._plan.epochs and self._overlay.status(path) is not None:
            self._overlay.open(path, "create").close()
        return LeaderEpochCache(self._overlay, self._plan.directory, tolerant=True)

    def _segment(self, base_offset: int) -> LogSegment:
        interval = self._options.interval_of(self._plan.directory)
        return LogSegment(self._overlay, self._plan.directory, base_offset, index_interval_bytes=interval)

    # --- step 3 -------------------------------------------------------------------------------------------

    def _stage_derived(self, name: str) -> None:
        """Stages the overlay's version of a file if it differs from the one on disk.

        If the file was to move here from another name, removes that one instead.
        """
        path = self._plan.directory / name
        status = self._overlay.status(path)
        known = self._changes.pop(name, None)
        before = facts_of(self._fs, path)
        data = None
        if status is not None and (status.size > 0 or not name.endswith(FileKind.TRANSACTION_INDEX.value)):
            with self._overlay.open(path, "r") as file:
                data = file.read_at(0, file.size())
            if before is not None and known is None and self._is_same(path, data):
                return
        if known is not None and known.kind == "move":
            self._add("remove", Path(known.source).name, known.after, None, known.reason)
        if data is not None:
            self._stage(name, data, "rebuilt from the data")
        elif before is not None:
            self._add("remove", name, before, None, "the log does not need it")

    def _stage(self, name: str, data: bytes, reason: str) -> None:
        path, staged = self._plan.directory / name, self._staged(name)
        before = facts_of(self._fs, path)
        with self._fs.open(staged, "create_new") as file:
            file.write_at(0, data)
            file.sync()
        self._fs.copy_attributes(path if before is not None else self._model, staged)
        self._fs.set_modified(staged, self._clock.now_ms())
        self._add("replace", name, before, facts_of(self._fs, staged), reason)

    def _is_same(self, path: Path, data: bytes) -> bool:
        """True if a file holds `data`; a snapshot's entries may be in any order."""
        old = self._fs.read_bytes(path)
        if old == data or not path.name.endswith(FileKind.PRODUCER_SNAPSHOT.value):
            return old == data
        try:
            entries = [sorted(map(repr, decode_snapshot(each, path))) for each in (old, data)]
        except CorruptSnapshotError:
            return False
        return entries[0] == entries[1]

    @cached_property
    def _model(self) -> Path:
        """The file whose owner and mode a new file gets: the partition's last log, or else its directory."""
        logs = [segment.log for segment in list_partition(self._fs, self._plan.directory).segments]
        return logs[-1] if logs else self._plan.directory

    def _staged(self, name: str) -> Path:
        return self._run / NEW / self._name / name

    def _add(
        self,
        kind: ChangeKind,
        name: str,
        before: FileFacts | None,
        after: FileFacts | None,
        reason: str,
        source: str = "",
    ) -> None:
        self._changes[name] = Change.of(
            kind,
            f"{self._name}/{name}",
            before,
            after,
            source=f"{self._name}/{source}" if source else "",
            group=-1 if self._has_swaps else group_of(name),
            reason=reason,
        )


def _change_order(change: Change) -> tuple[int, int, str]:
    path = Path(change.path)
    return change.group, _ORDER.get(path.suffix, 9), path.name


def _index_names(segment: LogSegment) -> set[str]:
    return {segment.offset_index.path.name, segment.time_index.path.name, segment.transaction_index.path.name}
