"""`salvage`: every good batch that can be found, copied into new and valid logs; sources are only read.

1. Sources are gathered: live segments first, then `.swap`, `.deleted` and `.cleaned` files, then images.
2. Their good batches are found (`carve`), also in a segment whose name is wrong. Of an image it is worked out which
   log each belongs to (`attribution`).
3. Of each log they are sorted by offset, copies dropped. Where batches overlap, those from the better source win, then
   those that fit between their neighbours.
4. They are written to segments of bounded size, whose indexes, producer snapshots and leader epochs are made by
   recovering the new log.

A batch is copied byte for byte. Memory is 89 bytes a batch found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from seglog.runs.beside import log_directory_lock, new_directory, require_free
from seglog.salvage.attribution import CarvedLog, attribute
from seglog.salvage.carve import FOUND, carve_image, carve_log, vouched
from seglog.salvage.messages import copy_07
from seglog.scan.listing import TargetKind, list_partition, resolve_path
from seglog.storage import links
from seglog.storage.adapters import InheritingFileSystem
from seglog.storage.files import copy_range
from seglog.storage.filesystem import File, FileStatus, FileSystem
from seglog.storage.room import check_space

DEFAULT_SEGMENT_BYTES = 1 << 30
CARVED = "carved"  # the topic of logs whose name nobody knows
_METADATA_LIMIT = 1 << 16
_RANK = {FileState.LIVE: 0, FileState.SWAP: 1, FileState.DELETED: 2, FileState.CLEANED: 3}


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """How to salvage. With `carve` any file is searched, byte by byte; the others only where they are log files.

    With `into_one` everything that is found counts as of one log.
    """

    carve: bool = False
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    into_one: bool = False


@dataclass(frozen=True, slots=True)
class SalvagedSource:
    """What a source gave: good batches `found`, and those of them that were `used` (others were there already).

    `unreadable` says why the system let it be read only so far, or not at all; "" otherwise.
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
    """A log that was written. `missing` are the ranges of offsets that no batch has, first and last included.

    `undecided`: it might be a part of another of the logs. `contradicting` counts good batches that were left out: they
    overlap in offsets with batches that were taken, and are no copies of them.
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
        """How many offsets between the first and the last batch nobody has (compaction leaves such gaps, too)."""
        return sum(last - first + 1 for first, last in self.missing)


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What was found where, and the logs that were made of it, the largest first: `target`, or several in it."""

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
        return tuple(found for log in self.logs for found in log.missing)

    @property
    def missing_offsets(self) -> int:
        """How many offsets are missing, in all logs."""
        return sum(log.missing_offsets for log in self.logs)

    @property
    def is_complete(self) -> bool:
        """Whether every source could be read to its end."""
        return not any(source.unreadable for source in self.sources)

    @property
    def undecided(self) -> int:
        """How many logs might be parts of others."""
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

    `target` must not exist, or be empty. When carving finds several logs, each goes to a directory of its own in it:
    `carved-0`, `carved-1` …, or the partition's name where that is known. What the system does not let be read is
    named in the report, and the rest is copied. LockedError when `target` is to be made in a log directory that is in
    use, NotALogError when no good batch is found, the OSError instead if a
    source could not be read; RefusedError when there is not enough disk space, when `target` holds something, or when
    `paths` are of several partitions, unless they are carved or wanted `into_one`.
    """
    _prepare_target(fs, paths, target)
    sources = _gathered(fs, paths, options)
    _refuse_several(sources, options)
    if sources and all(source.path.suffix == FileKind.LOG_07.value for source in sources):
        return _salvaged_07(fs, sources, target)
    found, failures = _found_in(fs, sources, progress)
    rank = np.array([source.rank for source in sources])
    logs = [_chosen(log, rank) for log in _told_apart(fs, sources, found, options) if len(log.rows)]
    if not logs and failures:
        raise next(iter(failures.values()))
    if not logs:
        raise NotALogError(paths[0], "no good batch was found" + ("" if options.carve else " (--carve looks harder)"))
    done = []
    with log_directory_lock(fs, target), new_directory(fs, target) as place:
        made = InheritingFileSystem(fs)
        check_space(fs, target.parent, sum(int(log.rows["size"].sum(dtype=np.int64)) for log in logs))
        for number, log in enumerate(logs):
            name = "" if len(logs) == 1 else log.name or f"{CARVED}-{number}"
            made.make_directory(place / name, parents=True)
            _write_segments(made, sources, log.rows, place / name, options)
            metadata = _metadata_of(fs, sources, paths, log, single=len(logs) == 1)
            complete_log(made, clock, metadata, place / name)
            done.append(_salvaged(log, target / name))
    return SalvageReport(target, _accounts(sources, found, [log.rows for log in logs], failures), tuple(done))


def _refuse_several(sources: Sequence[_Source], options: SalvageOptions) -> None:
    names = sorted({source.partition for source in sources if source.partition})
    if len(names) > 1 and not (options.carve or options.into_one):
        raise RefusedError(
            f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} are different partitions: salvage one at a time,"
            " or --into-one if they are copies of one log under different names"
        )


def _told_apart(
    fs: FileSystem, sources: Sequence[_Source], found: np.ndarray, options: SalvageOptions
) -> list[CarvedLog]:
    """The logs that were found: one, unless images were carved."""
    names = {number: source.partition for number, source in enumerate(sources) if source.partition}
    if not options.carve or options.into_one:
        return [CarvedLog("", found)]
    return attribute(fs, [source.path for source in sources], found, names)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The batches of a log to write: FOUND rows in the order of offsets."""

    name: str
    rows: np.ndarray
    undecided: bool
    contradicting: int


def _chosen(log: CarvedLog, rank: np.ndarray) -> _Chosen:
    ranks = rank[log.rows["source"]] + np.where(log.rows["outside"], len(_RANK) + 1, 0)
    chosen = choose(log.rows, ranks)
    rows = log.rows[chosen]
    left = np.delete(log.rows, chosen)
    identity = ["first_offset", "last_offset", "size", "crc"]
    copies = np.isin(np.ascontiguousarray(left[identity]), np.ascontiguousarray(rows[identity]))
    return _Chosen(log.name, rows, log.undecided, int(np.count_nonzero(~copies)))


def choose(found: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The rows of `found` (FOUND) to keep, as indexes in the order of offsets; `rank` of a row: lower is better.

    Overlapping batches exclude each other: the better rank wins, then the one that joins its predecessor, then
    the one that ends first. One that others of its rank lie within is the broken one: of a wrapper of magic 0 no
    checksum covers where it ends, and it would exclude them all.
    """
    order = np.lexsort((found["last_offset"], rank, found["first_offset"]))
    kept: list[int] = []
    end = -1
    for at, i in enumerate(order.tolist()):
        first, last = int(found["first_offset"][i]), int(found["last_offset"][i])
        if kept and first <= end and _lie_within(found, rank, order[at : at + 2], kept[-1]):
            kept.pop()
            end = int(found["last_offset"][kept[-1]]) if kept else -1
        if first > end:
            kept.append(i)
            end = last
            continue
        previous = kept[-1]
        joins = len(kept) < 2 or first == int(found["last_offset"][kept[-2]]) + 1
        better = rank[i] < rank[previous]
        behind_all = len(kept) < 2 or first > int(found["last_offset"][kept[-2]])
        if behind_all and better and joins:
            kept[-1], end = i, last
    return np.array(kept, dtype=np.int64)


def _lie_within(found: np.ndarray, rank: np.ndarray, rows: np.ndarray, outer: int) -> bool:
    """Whether two `rows`, one after the other, lie in the offsets of the row `outer`, and all are of one rank."""
    first, last = found["first_offset"][rows], found["last_offset"][rows]
    within = (first >= found["first_offset"][outer]) & (last <= found["last_offset"][outer])
    alike = len(rows) == 2 and bool((rank[rows] == rank[outer]).all())
    return alike and bool(within.all()) and int(first[1]) > int(last[0])


# --- sources ----------------------------------------------------------------------------------------------


def _partition_of(path: Path) -> str:
    """The partition that a log file's directory is named after; empty where it is named otherwise."""
    try:
        directory = links.resolve(path).parent
    except OSError:  # a link that cannot be followed lies where its own name is
        directory = links.resolve(path.parent)
    name = filenames.parse_partition_directory(directory.name)
    return "" if name is None else str(name.topic_partition)


def _prepare_target(fs: FileSystem, paths: Sequence[Path], target: Path) -> None:
    require_free(fs, target)
    for path in paths:
        found = fs.status(path)
        if found is None:
            raise NotALogError(path, "no such file or directory")
        source = links.resolve(path) if found.is_directory else links.resolve(path).parent
        if links.resolve(target) == source or (found.is_directory and source in links.resolve(target).parents):
            raise RefusedError(f"{target} lies inside {path}, which salvage never writes to")


def _gathered(fs: FileSystem, paths: Sequence[Path], options: SalvageOptions) -> list[_Source]:
    sources = [source for path in paths for source in _sources_of(fs, path, options)]
    return sorted(sources, key=lambda source: (source.rank, source.path.name))


def _sources_of(fs: FileSystem, path: Path, options: SalvageOptions) -> Iterator[_Source]:
    status = fs.status(path)
    if status is not None and status.is_directory:
        if not options.carve and resolve_path(fs, path).kind is TargetKind.LOG_DIRECTORY:
            raise RefusedError(f"{path} is a log directory: name one partition, whose batches make one log")
        for name in fs.list(path):
            found = _status_within(fs, path / name)
            parsed = parse_file_name(name)
            is_log = parsed is not None and parsed.kind in (FileKind.LOG, FileKind.LOG_07)
            if found is not None and not found.is_directory and (is_log or options.carve):
                rank = _RANK.get(parsed.state, 4) if is_log and parsed is not None else 4
                yield _Source(path / name, rank, found.size, is_log, _partition_of(path / name) if is_log else "")
    elif status is not None:
        parsed = parse_file_name(path.name)
        is_log = parsed is not None and parsed.kind in (FileKind.LOG, FileKind.LOG_07)
        rank = _RANK.get(parsed.state, 4) if is_log and parsed is not None else 4
        yield _Source(path, rank, status.size, is_log and not options.carve, _partition_of(path) if is_log else "")


def _status_within(fs: FileSystem, path: Path) -> FileStatus | None:
    """The status of an entry; of a link that cannot be followed its own: reading it says why."""
    try:
        return fs.status(path)
    except OSError:
        return fs.status(path, follow=False)


def _found_in(
    fs: FileSystem, sources: Sequence[_Source], progress: BytesRead | None
) -> tuple[np.ndarray, dict[int, OSError]]:
    """The good batches of all sources as FOUND rows, and by the source's number what ended its reading early."""
    parts, failures = [np.zeros(0, dtype=FOUND)], {}
    for number, source in enumerate(sources):
        carve = carve_log if source.is_log else carve_image
        try:
            for rows in carve(fs, source.path, number, progress):
                parts.append(rows)  # what came before an error stays
        except OSError as error:
            failures[number] = error
    names = (parse_file_name(source.path.name) for source in sources if source.is_log)
    return vouched(np.concatenate(parts), (name.offset for name in names if name is not None)), failures


# --- the new log ------------------------------------------------------------------------------------------


def _write_segments(
    fs: FileSystem, sources: Sequence[_Source], chosen: np.ndarray, target: Path, options: SalvageOptions
) -> None:
    files: dict[int, File] = {}
    writer: File | None = None
    position = base = 0
    try:
        for row in chosen:
            size, last = int(row["size"]), int(row["last_offset"])
            if writer is None or position + size > options.segment_bytes or last - base > layout.INT32_MAX:
                _close(writer)
                writer, base, position = None, int(row["first_offset"]), 0
                writer = fs.open(target / filenames.segment_file_name(base), "create_new")
            source = int(row["source"])
            if source not in files:
                if len(files) >= 64:
                    files.pop(next(iter(files))).close()
                files[source] = fs.open(sources[source].path, "r")
            for start, length in _pieces(row):
                copy_range(files[source], start, start + length, writer, position)
                position += length
    finally:
        _close(writer)
        for file in files.values():
            file.close()


def _pieces(row: np.void) -> tuple[tuple[int, int], ...]:
    """(position, length) of a batch's bytes, which may lie in two places."""
    size, first = int(row["size"]), int(row["first_size"])
    if not first:
        return ((int(row["position"]), size),)
    return ((int(row["position"]), first), (int(row["second_position"]), size - first))


def _close(writer: File | None) -> None:
    if writer is not None:
        writer.sync()
        writer.close()


def _metadata_of(
    fs: FileSystem, sources: Sequence[_Source], paths: Sequence[Path], log: _Chosen, *, single: bool
) -> bytes | None:
    """The `partition.metadata` of the partition that a log comes from, if it can be read."""
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
    """Makes indexes, snapshots and epochs of the new segments in `target` by recovery; the topic's id (the bytes of
    `partition.metadata`) goes along."""
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
    rows = []
    for i, source in enumerate(sources):
        mine, used = found[found["source"] == i], chosen[chosen["source"] == i]
        sizes = (int(part["size"].sum(dtype=np.int64)) for part in (mine, used))
        found_bytes, used_bytes = sizes
        reason = str(failures[i].strerror or failures[i]) if i in failures else ""
        rows.append(SalvagedSource(source.path, source.size, len(mine), found_bytes, len(used), used_bytes, reason))
    return tuple(rows)


def _salvaged(log: _Chosen, directory: Path) -> SalvagedLog:
    first, last = log.rows["first_offset"], log.rows["last_offset"]
    holes = np.flatnonzero(first[1:] > last[:-1] + 1)
    return SalvagedLog(
        directory,
        len(log.rows),
        int(log.rows["size"].sum(dtype=np.int64)),
        int(first[0]),
        int(last[-1]) + 1,
        tuple((int(last[i]) + 1, int(first[i + 1]) - 1) for i in holes.tolist()),
        log.undecided,
        log.contradicting,
    )


def _salvaged_07(fs: FileSystem, sources: Sequence[_Source], target: Path) -> SalvageReport:
    rows, end = [], 0
    with log_directory_lock(fs, target), new_directory(fs, target) as place:
        check_space(fs, target.parent, sum(source.size for source in sources))
        log_file = place / filenames.segment_file_name(0, FileKind.LOG_07)
        with InheritingFileSystem(fs).open(log_file, "create_new") as writer:
            for source in sources:
                count, size = copy_07(fs, source.path, writer, end)
                rows.append(SalvagedSource(source.path, source.size, count, size, count, size))
                end += size
            writer.sync()
    log = SalvagedLog(target, sum(row.used for row in rows), end, 0, end)
    return SalvageReport(target, tuple(rows), (log,))
