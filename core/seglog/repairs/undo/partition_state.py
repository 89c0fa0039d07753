"""What a run keeps of its partitions besides the files that it changes, so that undo restores all of a partition.

- Copies of the files that a broker derives from a log's end and changes whenever it runs: producer snapshots, leader
  epochs, the indexes of the last segment. After an undo they would contradict the restored log.
- The names of all files, and size and time of the logs that stay. They show later whether the partition went on.
- The partitions' entries in the checkpoints that all partitions of the log directory share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seglog.errors import CorruptCheckpointError
from seglog.format import filenames
from seglog.format.checkpoint import format_offset_checkpoint, parse_offset_checkpoint
from seglog.format.filenames import FileKind, FileState, PartitionState, parse_file_name
from seglog.model import TopicPartition
from seglog.repairs.undo.journal import NEW, Change, RunRecord, Standing
from seglog.repairs.undo.quarantine import facts_of
from seglog.scan.listing import INDEX_KINDS, OFFSET_CHECKPOINTS
from seglog.storage.files import copy_bytes
from seglog.storage.filesystem import Access, FileStatus, FileSystem

Settings = Mapping[str, "Mapping[TopicPartition, int | None] | bytes"]
"""What a run sets in the checkpoints, by file name: entries (None removes one), or the bytes of a whole new file."""

_LOGS = (FileKind.LOG, FileKind.LOG_07)
_DERIVED = (*INDEX_KINDS, FileKind.PRODUCER_SNAPSHOT)


def is_log(name: str) -> bool:
    """True for a file that holds records, whatever its state (`.swap`, `.deleted`)."""
    parsed = parse_file_name(name)
    return parsed is not None and parsed.kind in _LOGS


def is_live_log(name: str) -> bool:
    """True for a segment's data file."""
    parsed = parse_file_name(name)
    return parsed is not None and parsed.kind in _LOGS and parsed.state is FileState.LIVE


def is_derived(name: str) -> bool:
    """True for a file that a broker makes from the records."""
    parsed = parse_file_name(name)
    return name == filenames.LEADER_EPOCH_CHECKPOINT or (parsed is not None and parsed.kind in _DERIVED)


def records_taken(run: RunRecord) -> dict[str, int]:
    """Returns the bytes of records that a run took out of its partitions, by directory name, where there are any."""
    taken: dict[str, int] = {}
    for change in run.changed:
        directory, _, file = change.path.rpartition("/")
        if not is_live_log(file) or (change.kind == "move" and is_live_log(Path(change.source).name)):
            continue
        sizes = [0 if facts is None else facts.size for facts in (change.before, change.after)]
        taken[directory] = taken.get(directory, 0) + sizes[0] - sizes[1]
    return {directory: size for directory, size in taken.items() if size > 0}


def own_partitions(names: Sequence[str]) -> list[TopicPartition]:
    """Returns the partitions whose checkpoint entries belong to these directories: the live ones."""
    parsed = (filenames.parse_partition_directory(name) for name in names)
    return [each.topic_partition for each in parsed if each is not None and each.state is PartitionState.LIVE]


def standing_of(fs: FileSystem, log_directory: Path, names: Sequence[str], changes: Sequence[Change]) -> Standing:
    """Returns the files of the partitions `names`, by directory; size and time (ns) of the logs that stay."""
    touched = {path for change in changes for path in (change.path, change.source)}
    standing: dict[str, dict[str, Sequence[int]]] = {}
    for name in names:
        files = standing.setdefault(name, {})
        for file, status in _entries(fs, log_directory / name):
            stays = is_live_log(file) and f"{name}/{file}" not in touched
            files[file] = (status.size, status.modified_ns) if stays else ()
    return standing


def copies_of(
    fs: FileSystem, log_directory: Path, folder: Path, names: Sequence[str], changes: Sequence[Change]
) -> Iterator[Change]:
    """Copies the files that a broker will change into the run's folder, durably; yields a `keep` for each."""
    by_name: dict[str, list[Change]] = {}
    for change in changes:
        by_name.setdefault(Path(change.path).parent.name, []).append(change)
    for name in names:
        own = by_name.get(name, [])
        touched = {Path(path).name for change in own for path in (change.path, change.source) if path}
        kept = []
        for file in _to_copy([file for file, _ in _entries(fs, log_directory / name)], own):
            status = fs.status(log_directory / name / file, follow=False)
            if file in touched or status is None or status.is_link or status.is_special:
                continue
            facts = facts_of(fs, log_directory / name / file)
            kept.append(Change.of("keep", f"{name}/{file}", facts, facts))
        for change in kept:
            _copy(fs, log_directory / change.path, folder / change.saved)
        yield from kept


def _to_copy(files: Sequence[str], own: Sequence[Change]) -> Iterator[str]:
    """Yields the names to copy: small files, and indexes of the segments that are the last before or after the run."""
    gone = {Path(change.path).name for change in own if change.after is None}
    gone |= {Path(change.source).name for change in own if change.source}
    made = {Path(change.path).name for change in own if change.after is not None}
    last = set()
    for logs in (set(files), (set(files) - gone) | made):
        offsets = [parsed.offset for log in logs if is_live_log(log) and (parsed := parse_file_name(log)) is not None]
        last |= {max(offsets)} if offsets else set()
    for file in files:
        parsed = parse_file_name(file)
        if file in (filenames.LEADER_EPOCH_CHECKPOINT, filenames.PARTITION_METADATA):
            yield file
        elif parsed is None or parsed.state is not FileState.LIVE:
            continue
        elif parsed.kind is FileKind.PRODUCER_SNAPSHOT or (parsed.kind in INDEX_KINDS and parsed.offset in last):
            yield file


def _entries(fs: FileSystem, directory: Path) -> Sequence[tuple[str, FileStatus]]:
    found = fs.status(directory)
    return fs.entries(directory) if found is not None and found.is_directory else ()


def _copy(fs: FileSystem, source: Path, target: Path) -> None:
    status = fs.status(source)
    assert status is not None
    fs.make_directory(target.parent, parents=True)
    copy_bytes(fs, source, target, 0, status.size)
    fs.copy_attributes(source, target)
    for directory in (target.parent, target.parent.parent):
        fs.sync_directory(directory)


# --- checkpoints ------------------------------------------------------------------------------------------


def stage_checkpoints(
    fs: FileSystem, log_directory: Path, folder: Path, names: Sequence[str], settings: Settings
) -> Iterator[Change]:
    """Stages the checkpoints with what the run sets; yields a change for each that can be read, or is replaced whole.

    The entries of all partitions in `names` are noted, also in a checkpoint that stays: a broker changes them later.
    """
    fs.make_directory(folder / NEW, parents=True)
    for name in OFFSET_CHECKPOINTS:
        path, setting = log_directory / name, settings.get(name, {})
        before = facts_of(fs, path)
        if isinstance(setting, bytes):
            _stage(fs, log_directory, folder, name, setting)
            yield Change.of("replace", name, before, facts_of(fs, folder / NEW / name))
            continue
        try:
            offsets = {} if before is None else parse_offset_checkpoint(fs.read_bytes(path), path)
        except CorruptCheckpointError:
            if setting:
                raise
            continue
        if before is not None:
            _copy(fs, path, folder / Change.of("entries", name, before, None).saved)
        wanted = {key: offset for key, offset in {**offsets, **setting}.items() if offset is not None}
        own = dict.fromkeys([*own_partitions(names), *setting])
        entries = {str(key): (offsets.get(key), wanted.get(key)) for key in own}
        after = before
        if wanted != offsets:
            _stage(fs, log_directory, folder, name, format_offset_checkpoint(wanted, sort=False))
            after = facts_of(fs, folder / NEW / name)
        yield Change.of("entries", name, before, after, entries=entries)
    fs.sync_directory(folder / NEW)
    fs.sync_directory(folder)


def _stage(fs: FileSystem, log_directory: Path, folder: Path, name: str, contents: bytes) -> None:
    directory, staged = fs.status(log_directory), folder / NEW / name
    assert directory is not None
    with fs.open(staged, "create_new") as file:
        file.give(Access.within(directory))
        file.write_at(0, contents)
        file.sync()
    old = fs.status(log_directory / name)
    if old is not None:
        with fs.open(staged, "r+") as file:
            file.give(Access.of(old))


def restored_entries(live: Mapping[TopicPartition, int], change: Change) -> dict[TopicPartition, int]:
    """Returns a checkpoint's entries with the run's own ones as they were; `live` are those now, in file order."""
    wanted = dict(live)
    for name, (before, _) in change.entries.items():
        key = _key_of(name)
        wanted.pop(key, None) if before is None else wanted.update({key: before})
    return wanted


def own_entries(live: Mapping[TopicPartition, int], change: Change) -> dict[str, int | None]:
    """Returns the offsets that the run's own partitions have in a checkpoint, by name."""
    return {name: live.get(_key_of(name)) for name in change.entries}


def _key_of(name: str) -> TopicPartition:
    key = filenames.parse_topic_partition(name)
    assert key is not None
    return key
