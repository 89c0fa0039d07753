"""`salvage`: copies every good batch it can find into new, valid logs. Sources are only read.

1. Gather the sources: live segments first, then `.swap`, `.deleted` and `.cleaned` files, then images.
2. Find their good batches (`carve`), also in a segment with a wrong name. For an image, work out the log of each batch
   (`attribution`).
3. Sort the batches of each log by offset and drop copies. Where batches overlap, those from the better source win, then
   those that fit between their neighbours.
4. Write them to segments of bounded size. Recovery of the new log builds indexes, producer snapshots and leader epochs.

A batch is copied byte for byte. Memory: 89 bytes per batch found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.clock import Clock
from seglog.errors import CorruptCheckpointError, NotALogError, RefusedError
from seglog.format import filenames
from seglog.format.checkpoint import parse_partition_metadata
from seglog.format.filenames import FileKind, FileState, parse_file_name
from seglog.log.loader import LoadOptions, load_log
from seglog.progress import BytesRead
from seglog.repairs.undo.beside import log_directory_lock, new_directory, require_free
from seglog.scan.listing import TargetKind, list_partition, resolve_path
from seglog.storage import links
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.filesystem import File, FileStatus, FileSystem
from seglog.storage.room import check_space
from seglog_rescue.salvage.attribution import CarvedLog, attribute
from seglog_rescue.salvage.carve import FOUND, FoundBytes, carve_image, carve_log, vouched
from seglog_rescue.salvage.messages import copy_07

DEFAULT_SEGMENT_BYTES = 1 << 30
CARVED = "carved"  # the topic of logs with no known name
_METADATA_LIMIT = 1 << 16
_RANK = {FileState.LIVE: 0, FileState.SWAP: 1, FileState.DELETED: 2, FileState.CLEANED: 3}
_LAST_RANK = 4
_OFFSETS_PER_BYTE = 64  # more in a compressed wrapper of magic 0 or 1 are implausible


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """How to salvage: `carve` searches any file byte by byte, not only log files; `into_one` makes one log of all
    batches found."""

    carve: bool = False
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    into_one: bool = False


@dataclass(frozen=True, slots=True)
class SalvagedSource:
    """The yield of one source: good batches `found`, and those of them `used` (the others were copies).

    `unreadable` says why the source could not be read to its end; "" if it could.
    """

    path: Path
    size: int
    found: int
    found_bytes: int
    used: int
    used_bytes: int
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class SalvagedLog:
    """A written log. `missing` holds the offset ranges that no batch covers, first and last included.

    `undecided` is set if the log might be a part of another one. `contradicting` counts good batches left out: their
    offsets overlap with those of batches taken, and they are not copies of these.
    """

    directory: Path
    batches: int
    bytes: int
    log_start_offset: int
    log_end_offset: int
    missing: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    undecided: bool = False
    contradicting: int = 0

    @property
    def missing_offsets(self) -> int:
        """The number of missing offsets between the first and the last batch (compaction leaves such gaps, too)."""
        return sum(last - first + 1 for first, last in self.missing)


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """The yield of each source, and the new logs, the largest first: `target` itself, or several inside it."""

    target: Path
    sources: tuple[SalvagedSource, ...]
    logs: tuple[SalvagedLog, ...]

    @property
    def batches(self) -> int:
        """Batches written, in all logs."""
        return sum(log.batches for log in self.logs)

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """The ranges of missing offsets of all logs."""
        return tuple(offsets for log in self.logs for offsets in log.missing)

    @property
    def missing_offsets(self) -> int:
        """The number of missing offsets, in all logs."""
        return sum(log.missing_offsets for log in self.logs)

    @property
    def is_complete(self) -> bool:
        """True if every source could be read to its end."""
        return not any(source.unreadable for source in self.sources)

    @property
    def undecided(self) -> int:
        """The number of logs that might be parts of others."""
        return sum(log.undecided for log in self.logs)


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path
    rank: int
    size: int
    is_log: bool
    partition: str


def salvage(
    fs: FileSystem,
    clock: Clock,
    paths: Sequence[Path],
    target: Path,
    options: SalvageOptions,
    progress: BytesRead | None = None,
) -> SalvageReport:
    """Copies the good batches of `paths` (partition directories, log files, with `carve` anything) to `target`.

    `target` must not exist, or be empty. If carving finds several logs, each gets a directory in it: `carved-0`,
    `carved-1` …, or the partition's name if it is known. The report names sources that cannot be read; the rest is
    copied. Raises LockedError if `target` would lie in a log directory in use; NotALogError if there is no good batch,
    or the OSError of a source that could not be read; RefusedError if disk space is short, `target` is not empty, or
    `paths` belong to several partitions without `carve` or `into_one`.
    """
    _check_target(fs, paths, target)
    sources = [source for path in paths for source in _sources_of(fs, path, options)]
    sources.sort(key=lambda source: (source.rank, source.path.name))
    if not (options.carve or options.into_one):
        _require_one_partition(sources)
    if sources and all(source.path.suffix == FileKind.LOG_07.value for source in sources):
        return _salvage_07(fs, sources, target)
    batches, failures = _find_batches(fs, sources, progress)
    ranks = np.array([source.rank for source in sources])
    logs = [_chosen(log, ranks) for log in _split_into_logs(fs, sources, batches, options) if len(log.rows)]
    if not logs and failures:
        raise next(iter(failures.values()))
    if not logs:
        raise NotALogError(paths[0], "no good batch was found" + ("" if options.carve else " (--carve looks harder)"))
    done = []
    with log_directory_lock(fs, target), new_directory(fs, target) as place:
        made = InheritingFileSystem(fs)
        check_space(fs, target.parent, sum(_size_of(log.rows) for log in logs))
        for number, log in enumerate(logs):
            name = "" if len(logs) == 1 else log.name or f"{CARVED}-{number}"
            made.make_directory(place / name, parents=True)
            _write_segments(made, sources, log.rows, place / name, options.segment_bytes)
            metadata = _metadata_of(fs, sources, paths, log, single=len(logs) == 1)
            complete_log(made, clock, metadata, place / name)
            done.append(_salvaged_log(log, target / name))
    return SalvageReport(target, _accounts(sources, batches, [log.rows for log in logs], failures), tuple(done))


def _size_of(rows: np.ndarray) -> int:
    return int(rows["size"].sum(dtype=np.int64))


def _require_one_partition(sources: Sequence[_Source]) -> None:
    names = sorted({source.partition for source in sources if source.partition})
    if len(names) > 1:
        raise RefusedError(
            f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} are different partitions: salvage one at a time,"
            " or --into-one if they are copies of one log under different names"
        )


def _split_into_logs(
    fs: FileSystem, sources: Sequence[_Source], batches: np.ndarray, options: SalvageOptions
) -> list[CarvedLog]:
    """Returns the logs that the batches make: one, unless images were carved."""
    if not options.carve or options.into_one:
        return [CarvedLog("", batches)]
    names = {number: source.partition for number, source in enumerate(sources) if source.partition}
    return attribute(fs, [source.path for source in sources], batches, names)


@dataclass(frozen=True, slots=True)
class _ChosenLog:
    """The batches of a log to write: FOUND rows by offset."""

    name: str
    rows: np.ndarray
    undecided: bool
    contradicting: int


def _chosen(log: CarvedLog, source_ranks: np.ndarray) -> _ChosenLog:
    ranks = source_ranks[log.rows["source"]] + np.where(log.rows["outside"], _LAST_RANK + 1, 0)
    chosen = choose(log.rows, ranks)
    rows = log.rows[chosen]
    left = np.delete(log.rows, chosen)
    identity = ["first_offset", "last_offset", "size", "crc"]
    copies = np.isin(np.ascontiguousarray(left[identity]), np.ascontiguousarray(rows[identity]))
    return _ChosenLog(log.name, rows, log.undecided, int(np.count_nonzero(~copies)))


def choose(batches: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Returns the indexes of the rows of `found` (FOUND) to keep, by offset; a lower `rank` of a row is better.

    Overlapping batches exclude each other: the better rank wins, then the batch that joins its predecessor, then the
    one that ends first. A batch is dropped as broken if two others of its rank lie within it, or one if it is too small
    for its offsets: no checksum covers the end of a wrapper of magic 0, and it would exclude them all.
    """
    order = np.lexsort((batches["last_offset"], rank, batches["first_offset"]))
    chosen: list[int] = []
    end = -1
    for at, i in enumerate(order.tolist()):
        first, last = int(batches["first_offset"][i]), int(batches["last_offset"][i])
        if chosen and first <= end and _is_broken(batches, rank, chosen[-1], order[at : at + 2]):
            chosen.pop()
            end = int(batches["last_offset"][chosen[-1]]) if chosen else -1
        if first > end:
            chosen.append(i)
            end = last
            continue
        joins = len(chosen) < 2 or first == int(batches["last_offset"][chosen[-2]]) + 1
        if joins and rank[i] < rank[chosen[-1]]:
            chosen[-1], end = i, last
    return np.array(chosen, dtype=np.int64)


def _is_broken(batches: np.ndarray, rank: np.ndarray, outer: int, following: np.ndarray) -> bool:
    """True if enough of the two `following` rows, one after the other, lie within the row `outer` and have its rank."""
    span = int(batches["last_offset"][outer]) - int(batches["first_offset"][outer])
    implausible = int(batches["magic"][outer]) < 2 and span > _OFFSETS_PER_BYTE * int(batches["size"][outer])
    needed = 1 if implausible else 2
    rows = following[:needed]
    first, last = batches["first_offset"][rows], batches["last_offset"][rows]
    within = (first >= batches["first_offset"][outer]) & (last <= batches["last_offset"][outer])
    within &= rank[rows] == rank[outer]
    return len(rows) == needed and bool(within.all()) and bool((first[1:] > last[:-1]).all())


# --- sources ----------------------------------------------------------------------------------------------


def _check_target(fs: FileSystem, paths: Sequence[Path], target: Path) -> None:
    require_free(fs, target)
    for path in paths:
        status = fs.status(path)
        if status is None:
            raise NotALogError(path, "no such file or directory")
        source = links.resolve(path) if status.is_directory else links.resolve(path).parent
        if links.resolve(target) == source or (status.is_directory and source in links.resolve(target).parents):
            raise RefusedError(f"{target} lies inside {path}, which salvage never writes to")


def _sources_of(fs: FileSystem, path: Path, options: SalvageOptions) -> Iterator[_Source]:
    status = fs.status(path)
    if status is None:
        return
    if not status.is_directory:
        source = _source(path, status.size)
        yield replace(source, is_log=source.is_log and not options.carve)
        return
    if not options.carve and resolve_path(fs, path).kind is TargetKind.LOG_DIRECTORY:
        raise RefusedError(f"{path} is a log directory: name one partition, whose batches make one log")
    for name in fs.list(path):
        found = _status_within(fs, path / name)
        if found is not None and not found.is_directory:
            source = _source(path / name, found.size)
            if source.is_log or options.carve:
                yield source


def _source(path: Path, size: int) -> _Source:
    name = parse_file_name(path.name)
    if name is None or name.kind not in (FileKind.LOG, FileKind.LOG_07):
        return _Source(path, _LAST_RANK, size, False, "")
    try:
        directory = links.resolve(path).parent
    except OSError:  # a link that cannot be followed counts where it lies
        directory = links.resolve(path.parent)
    partition = filenames.parse_partition_directory(directory.name)
    label = "" if partition is None else str(partition.topic_partition)
    return _Source(path, _RANK.get(name.state, _LAST_RANK), size, True, label)


def _status_within(fs: FileSystem, path: Path) -> FileStatus | None:
    """Returns the status of an entry, or of the link itself if it cannot be followed: reading it reports why."""
    try:
        return fs.status(path)
    except OSError:
        return fs.status(path, follow=False)


def _find_batches(
    fs: FileSystem, sources: Sequence[_Source], progress: BytesRead | None
) -> tuple[np.ndarray, dict[int, OSError]]:
    """Returns the good batches of all sources as FOUND rows, and by a source's number the error that ended its
    reading."""
    parts, failures = [np.zeros(0, dtype=FOUND)], {}
    for number, source in enumerate(sources):
        carve = carve_log if source.is_log else carve_image
        try:
            for rows in carve(fs, source.path, number, progress):
                parts.append(rows)  # batches read before an error stay
        except OSError as error:
            failures[number] = error
    names = (parse_file_name(source.path.name) for source in sources if source.is_log)
    return vouched(np.concatenate(parts), (name.offset for name in names if name is not None)), failures


# --- the new log ------------------------------------------------------------------------------------------


def _write_segments(
    fs: FileSystem, sources: Sequence[_Source], chosen: np.ndarray, target: Path, segment_bytes: int
) -> None:
    writer: File | None = None
    position = base = 0
    with FoundBytes(fs, [source.path for source in sources]) as batches:
        try:
            for row in chosen:
                full = position + int(row["size"]) > segment_bytes
                if writer is None or full or int(row["last_offset"]) - base > layout.INT32_MAX:
                    _close(writer)
                    writer, base, position = None, int(row["first_offset"]), 0
                    writer = fs.open(target / filenames.segment_file_name(base), "create_new")
                position = batches.copy(row, writer, position)
        finally:
            _close(writer)


def _close(writer: File | None) -> None:
    if writer is not None:
        writer.sync()
        writer.close()


def _metadata_of(
    fs: FileSystem, sources: Sequence[_Source], paths: Sequence[Path], log: _ChosenLog, *, single: bool
) -> bytes | None:
    """Returns the `partition.metadata` of the log's partition, None if there is no readable one."""
    named = [source.path.parent for source in sources if log.name and source.partition == log.name]
    for directory in (*named, *((paths[0],) if single else ())):
        path = directory / filenames.PARTITION_METADATA
        with suppress(CorruptCheckpointError, OSError):
            if fs.status(path) is not None:
                data = fs.read_bytes(path, _METADATA_LIMIT)
                parse_partition_metadata(data, path)
                return data
    return None


def complete_log(fs: FileSystem, clock: Clock, metadata: bytes | None, target: Path) -> None:
    """Recovers the new log in `target`, which builds indexes, snapshots and epochs of its segments.

    `metadata` holds the bytes of its `partition.metadata`, for the topic id.
    """
    if metadata is not None:
        with fs.open(target / filenames.PARTITION_METADATA, "create_new") as file:
            file.write_at(0, metadata)
            file.sync()
    first = list_partition(fs, target).segments[0].base_offset
    loaded = load_log(fs, target, clock, LoadOptions(clean_shutdown=False, log_start_offset=first))
    loaded.leader_epochs.create_file()
    for segment in loaded.segments:
        segment.flush()
    loaded.segments.close(writable=True)
    fs.sync_directory(target)


def _accounts(
    sources: Sequence[_Source], found: np.ndarray, written: Sequence[np.ndarray], failures: Mapping[int, OSError]
) -> tuple[SalvagedSource, ...]:
    chosen = np.concatenate(written)
    accounts = []
    for i, source in enumerate(sources):
        mine, used = found[found["source"] == i], chosen[chosen["source"] == i]
        reason = str(failures[i].strerror or failures[i]) if i in failures else ""
        counts = len(mine), _size_of(mine), len(used), _size_of(used)
        accounts.append(SalvagedSource(source.path, source.size, *counts, reason))
    return tuple(accounts)


def _salvaged_log(log: _ChosenLog, directory: Path) -> SalvagedLog:
    first, last = log.rows["first_offset"], log.rows["last_offset"]
    holes = np.flatnonzero(first[1:] > last[:-1] + 1)
    return SalvagedLog(
        directory,
        len(log.rows),
        _size_of(log.rows),
        int(first[0]),
        int(last[-1]) + 1,
        tuple((int(last[i]) + 1, int(first[i + 1]) - 1) for i in holes.tolist()),
        log.undecided,
        log.contradicting,
    )


def _salvage_07(fs: FileSystem, sources: Sequence[_Source], target: Path) -> SalvageReport:
    accounts, end = [], 0
    with log_directory_lock(fs, target), new_directory(fs, target) as place:
        check_space(fs, target.parent, sum(source.size for source in sources))
        log_file = place / filenames.segment_file_name(0, FileKind.LOG_07)
        with InheritingFileSystem(fs).open(log_file, "create_new") as writer:
            for source in sources:
                count, size = copy_07(fs, source.path, writer, end)
                accounts.append(SalvagedSource(source.path, source.size, count, size, count, size))
                end += size
            writer.sync()
    log = SalvagedLog(target, sum(account.used for account in accounts), end, 0, end)
    return SalvageReport(target, tuple(accounts), (log,))
