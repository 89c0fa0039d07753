"""Does work that removes data from a log (recovery, truncation) as a run that `undo` takes back.

1. The work runs on an overlay, as in a dry run; its result there is carried out.
2. The differences in the partition's files, and in its entries of the log directory's checkpoints, are staged in the
   run's folder and recorded in its journal: tails to cut, files to remove, files to replace.
3. `apply` makes the changes; the run's folder holds removed data before it leaves the log.

A `.log` that is removed whole is moved without being read, however large. Kafka itself keeps nothing of what it cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from seglog.clock import Clock
from seglog.errors import CorruptCheckpointError, SeglogError
from seglog.escaping import command_line
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.format.filenames import FileState, parse_file_name
from seglog.model import TopicPartition
from seglog.repairs.undo.apply import apply_run, finish_run, take_back_after
from seglog.repairs.undo.journal import NEW, Change, ChangeKind, FileFacts, RunRecord, group_of, read_journal
from seglog.repairs.undo.partition_state import Settings, is_log, own_partitions
from seglog.repairs.undo.prepare import prepare_run
from seglog.repairs.undo.quarantine import UNKNOWN_CRC, crc_of, facts_of
from seglog.scan.listing import OFFSET_CHECKPOINTS, SEGMENT_KINDS
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.files import copy_range, pieces
from seglog.storage.filesystem import Access, FileSystem, write_atomically
from seglog.storage.overlay import OverlayFileSystem
from seglog.storage.room import salvaging
from seglog.units import count_text

T = TypeVar("T")


def undoable(
    fs: FileSystem,
    clock: Clock,
    partition: Path,
    command: str,
    work: Callable[[FileSystem], T],
    quarantine: Path | None = None,
    unclean: bool | None = None,
) -> tuple[T, RunRecord | None]:
    """Does `work` on the log in `partition`; returns its result and the run, None if no file changed.

    `unclean` says whether the logs were not closed properly; None if the clean-shutdown marker still shows it.
    The caller holds the log directory's lock and has no file of the log open. Raises RefusedError if there is no place
    for a quarantine or not enough disk space for the saved data. After any error the log is as it was.
    """
    overlay, log_directory = OverlayFileSystem(fs), partition.parent
    result = work(overlay)
    plan = _Plan(fs, overlay, partition)
    if not plan.changes:
        for name in _changed_checkpoints(overlay, log_directory):
            contents = overlay.read_bytes(log_directory / name)
            write_atomically(InheritingFileSystem(fs), log_directory / name, contents)
        return result, None
    run, journal = prepare_run(
        fs,
        clock,
        log_directory,
        plan.stage,
        command=command,
        partitions=[partition.name],
        bytes_needed=plan.bytes_needed,
        checkpoints=_settings(fs, overlay, partition),
        quarantine=quarantine,
        way_out=_way_out(partition, command, plan.lost_bytes),
        unclean=unclean,
    )
    try:
        apply_run(fs, run, journal)
        finish_run(fs, run, journal)
    except (SeglogError, OSError, KeyboardInterrupt) as error:
        take_back_after(error, fs, run, journal)
        raise
    return result, read_journal(fs, run.folder)


def _way_out(partition: Path, command: str, lost: int) -> str:
    """Returns advice for a full disk on which nothing else can be deleted."""
    if command == "truncate":
        return (
            f"--no-keep needs no room for what it cuts: {count_text(lost, 'byte')} of the log are then"
            " lost, as with a broker"
        )
    unkept = command_line("seglog", "recover", "--no-keep", partition)
    return (
        f"{salvaging(partition)}; `{unkept}` then needs no room for what it cuts: up to"
        f" {count_text(lost, 'byte')} of the log are"
        " lost, as with a broker"
    )


def _changed_checkpoints(overlay: OverlayFileSystem, log_directory: Path) -> list[str]:
    return [name for name in OFFSET_CHECKPOINTS if log_directory / name in overlay.changed]


def _settings(fs: FileSystem, overlay: OverlayFileSystem, partition: Path) -> Settings:
    """Returns what the work changed in the checkpoints: entries of the partition, or a file that nobody could read."""
    settings: dict[str, dict[TopicPartition, int | None] | bytes] = {}
    own = own_partitions([partition.name])
    for name in _changed_checkpoints(overlay, partition.parent):
        path = partition.parent / name
        contents = overlay.read_bytes(path)
        try:
            before = {} if fs.status(path) is None else parse_offset_checkpoint(fs.read_bytes(path), path)
        except CorruptCheckpointError:
            settings[name] = contents
            continue
        after = parse_offset_checkpoint(contents, path)
        changed = [key for key in dict.fromkeys((*before, *after)) if before.get(key) != after.get(key)]
        settings[name] = {key: after.get(key) for key in dict.fromkeys((*own, *changed))}
    return settings


class _Plan:
    """The `changes` that turn a partition into its overlaid version, in the order in which to make them.

    Segments after a cut are removed before it, the newest first: a crash leaves a shorter log, never a hole.
    `bytes_needed` is the disk space for staged and saved data.
    """

    def __init__(self, fs: FileSystem, overlay: OverlayFileSystem, partition: Path) -> None:
        self._fs, self._overlay, self._partition = fs, overlay, partition
        self._moved: set[Path] = set()
        self.bytes_needed = 0
        mine = [path for path in overlay.changed if path.parent == partition]
        changes = [change for path in mine if (change := self._changed(path)) is not None]
        for path in overlay.gone:
            before = facts_of(fs, path, UNKNOWN_CRC)
            if path.parent == partition and path not in self._moved and before is not None:
                changes.append(self._change("remove", path, before, None))
        self.changes = sorted(changes, key=_order)

    @property
    def lost_bytes(self) -> int:
        """Bytes of `.log` files that leave the log."""
        lost = 0
        for change in self.changes:
            if change.path.endswith(".log") and change.before is not None:
                left = change.after.size if change.kind == "cut" and change.after is not None else 0
                lost += change.before.size - left
        return lost

    def stage(self, folder: Path) -> list[Change]:
        """Writes all new contents into the run's folder, durably; returns the changes with complete facts."""
        fs, place = self._fs, folder / NEW / self._partition.name
        fs.make_directory(place, parents=True)
        staged = [self._staged(change, folder) for change in self.changes]
        for directory in (place, place.parent, folder):
            fs.sync_directory(directory)
        return staged

    def _changed(self, path: Path) -> Change | None:
        fs, derived = self._fs, self._overlay.derived(path)
        before = facts_of(fs, path, UNKNOWN_CRC)
        source = derived.source if derived.kept == derived.size else None
        if source == path and before is not None and (is_log(path.name) or derived.size == before.size):
            if derived.size == before.size:
                return None
            status = fs.status(path)
            self.bytes_needed += min(before.size - derived.size, 0 if status is None else status.allocated)
            return self._change("cut", path, before, replace(before, size=derived.size))
        whole = None if source is None else facts_of(fs, source, UNKNOWN_CRC)
        if source is not None and whole is not None and whole.size == derived.size and source.parent == path.parent:
            self._moved.add(source)
            return self._change("move", path, before, whole, source=source.name)
        if before is not None and before.size == derived.size and self._is_same(path):
            return None
        self.bytes_needed += derived.size
        return self._change("replace", path, before, None)

    def _change(
        self, kind: ChangeKind, path: Path, before: FileFacts | None, after: FileFacts | None, source: str = ""
    ) -> Change:
        name, place = path.name, self._partition.name
        return Change.of(
            kind,
            f"{place}/{name}",
            before,
            after,
            source=f"{place}/{source}" if source else "",
            group=group_of(name),
        )

    def _staged(self, change: Change, folder: Path) -> Change:
        path = self._partition / Path(change.path).name
        if change.kind == "cut":
            assert change.before is not None and change.after is not None
            front = crc_of(self._fs, path, 0, change.after.size)
            whole = crc_of(self._fs, path, change.after.size, value=front)
            return replace(change, before=replace(change.before, crc=whole), after=replace(change.after, crc=front))
        if change.kind != "replace":
            return change
        staged, status = folder / change.staged, self._overlay.status(path)
        assert status is not None
        with self._overlay.open(path, "r") as source, self._fs.open(staged, "create_new") as target:
            target.give(Access.of(status))
            copy_range(source, 0, status.size, target, 0)
            target.sync()
        return replace(change, after=facts_of(self._fs, staged))

    def _is_same(self, path: Path) -> bool:
        with self._overlay.open(path, "r") as ours, self._fs.open(path, "r") as theirs:
            size = ours.size()
            both = zip_longest(pieces(ours, 0, size), pieces(theirs, 0, size))
            return all(our == their for our, their in both)


def _order(change: Change) -> tuple[int, int, int, str]:
    """Sorts removed `.swap` files first, as their names are needed; then removed segments, the newest first; then
    changed segments, each with its indexes; then the files that concern the whole partition.
    """
    name = Path(change.path).name
    parsed = parse_file_name(name)
    if change.kind == "remove" and parsed is not None and parsed.state is FileState.SWAP:
        return -1, 0, 0, name
    if change.group < 0:
        return 2, 0, 0, name
    assert parsed is not None
    kind = SEGMENT_KINDS.index(parsed.kind) if parsed.kind in SEGMENT_KINDS else 0
    return (0, -change.group, kind, name) if change.kind == "remove" else (1, change.group, kind, name)
