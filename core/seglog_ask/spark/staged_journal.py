"""The journal of an append to several partitions, for settling it after a crash (see `staged_append`).

Two small files in the log directory, replaced atomically; a broker ignores both. They are obeyed only if this user
wrote them, and they contain no paths: staged files lie in a directory beside the log directory.

- `.seglog-append` exists while an append is open: its staged files, and where their batches go.
- `.seglog-streams` holds the last appended batch of each stream, for the latest `MOST_STREAMS` streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.format.filenames import APPEND_JOURNAL_FILE, STREAMS_FILE, parse_topic_partition
from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog.storage.filesystem import Access, FileSystem, write_atomically
from seglog.storage.trust import read_trusted
from seglog_stores.formats.log_manifest import ManifestSegment

MOST_STREAMS = 1000

_VERSION = 1
# The file stays this user's, whoever owns the directory; every reader of the logs may read it.
_ACCESS = Access(-1, -1, 0o755)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """Batch `number` of a stream. `query` is the id in the metadata of Spark's checkpoint, which survives a restart.

    `entry` is a digest of the checkpoint's entry for this batch, "" if it could not be read: a checkpoint that was set
    back counts from a lower number again, and a different batch then has this one's number.
    """

    query: str
    number: int
    entry: str = ""


@dataclass(frozen=True, slots=True)
class MadeSegment:
    """A segment whose objects a task has stored, and the leader epoch of its batches."""

    segment: ManifestSegment
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Whole batches of one partition in the file `name` of a staging directory; `size` in bytes.

    `first_offset` is None if the batches are numbered from 0 and get their offsets when they are appended. `made` is
    set if the file already is a segment, for a partition that ends where it begins (`spark.staged_objects.made`); its
    batches are numbered from its base offset.
    """

    topic_partition: TopicPartition
    name: str
    records: int
    size: int
    first_offset: int | None
    last_offset: int
    made: MadeSegment | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The destination of one partition's files: from offset `start` on, with this leader epoch.

    The first `skipped` bytes of all files together are already in the log, before `start`.
    """

    topic_partition: TopicPartition
    start: int
    epoch: int
    files: tuple[StagedFile, ...]
    skipped: int = 0

    @property
    def size(self) -> int:
        """The bytes of all batches."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class AppendJournal:
    """An open append. `staging` is the name of the staging directory, which lies beside the log directory.

    `forward`: another writer's records follow a part of it, so it can only be completed.
    """

    staging: str
    placements: tuple[Placement, ...]
    stream: StreamBatch | None = None
    forward: bool = False

    @property
    def file_names(self) -> frozenset[str]:
        """The names of the staged files."""
        return frozenset(file.name for placement in self.placements for file in placement.files)

    def staging_path(self, log_directory: Path) -> Path:
        return log_directory.parent / self.staging


def journal_path(log_directory: Path) -> Path:
    """Returns the path of a log directory's journal."""
    return log_directory / APPEND_JOURNAL_FILE


def read_journal(fs: FileSystem, log_directory: Path) -> AppendJournal | None:
    """Returns the open append of a log directory, or None.

    Raises CorruptCheckpointError if the journal cannot be read, RefusedError if another user wrote it.
    """
    return _read(fs, journal_path(log_directory), _journal)


def open_starts(fs: FileSystem, log_directory: Path) -> dict[TopicPartition, int]:
    """Returns the start offset of an open append in each partition: later records may be taken back.

    For readers, so the journal may be any user's; {} if it cannot be read.
    """
    try:
        journal = _journal(json.loads(fs.read_bytes(journal_path(log_directory))))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SeglogError):
        return {}
    return {} if journal.forward else {one.topic_partition: one.start for one in journal.placements}


def write_journal(fs: FileSystem, log_directory: Path, journal: AppendJournal) -> None:
    """Writes the journal of an append that begins or continues; durable on return."""
    stream = None if journal.stream is None else asdict(journal.stream)
    value = {
        "version": _VERSION,
        "staging": journal.staging,
        "stream": stream,
        "forward": journal.forward,
        "partitions": [_placement_value(placement) for placement in journal.placements],
    }
    _write(fs, journal_path(log_directory), value)


def remove_journal(fs: FileSystem, log_directory: Path) -> None:
    """Ends an append; durable on return."""
    fs.remove(journal_path(log_directory))
    fs.sync_directory(log_directory)


def last_batch(fs: FileSystem, log_directory: Path, query: str) -> StreamBatch | None:
    """Returns the last batch of a stream whose append is complete. Raises the errors of `read_journal`."""
    found = _read(fs, log_directory / STREAMS_FILE, _streams) or ()
    return next((batch for batch in found if batch.query == query), None)


def was_appended(place: Path, known: StreamBatch | None, stream: StreamBatch) -> bool:
    """True if a stream's batch is already in the logs in `place`; `known` is the last batch appended there.

    Raises RefusedError for a different batch with the same or a lower number.
    """
    if known is None or known.number < stream.number:
        return False
    if known.number == stream.number and (known.entry == stream.entry or not (known.entry and stream.entry)):
        return True
    raise RefusedError(
        f"{place}: stream {stream.query} has appended its batches up to {known.number}, and brings a different"
        f" batch {stream.number}: its checkpoint was set back or copied. Give the stream a new checkpoint, and"
        " starting offsets that it has not read"
    )


def record_batch(fs: FileSystem, log_directory: Path, batch: StreamBatch) -> None:
    """Records a batch as the stream's last complete one; durable on return."""
    path = log_directory / STREAMS_FILE
    others = [other for other in _read(fs, path, _streams) or () if other.query != batch.query]
    kept = [*others, batch][-MOST_STREAMS:]
    _write(fs, path, {"version": _VERSION, "streams": [asdict(one) for one in kept]})


# --- values -------------------------------------------------------------------------------------------------


def _read(fs: FileSystem, path: Path, parse: Callable[[Any], T]) -> T | None:
    data = read_trusted(fs, path)
    if data is None:
        return None
    try:
        value = json.loads(data)
        if value["version"] != _VERSION:
            raise ValueError(f"version {value['version']} is not {_VERSION}")
        return parse(value)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptCheckpointError(path, f"not a journal of seglog's ({error}); remove it to go on") from error


def _write(fs: FileSystem, path: Path, value: Mapping[str, Any]) -> None:
    write_atomically(fs, path, json.dumps(value).encode(), _ACCESS)


def _placement_value(placement: Placement) -> dict[str, Any]:
    files = [
        {"name": file.name, "records": file.records, "size": file.size, "first": file.first_offset,
         "last": file.last_offset}
        for file in placement.files
    ]  # fmt: skip
    return {
        "partition": str(placement.topic_partition),
        "start": placement.start,
        "epoch": placement.epoch,
        "skipped": placement.skipped,
        "files": files,
    }


def _journal(value: Mapping[str, Any]) -> AppendJournal:
    return AppendJournal(
        staging=_name(value["staging"]),
        placements=tuple(_placement(one) for one in value["partitions"]),
        stream=None if value["stream"] is None else _batch(value["stream"]),
        forward=_checked(value["forward"], bool),
    )


def _placement(value: Mapping[str, Any]) -> Placement:
    name = parse_topic_partition(_name(value["partition"]))
    if name is None:
        raise ValueError(f"{value['partition']!r} is not a partition")
    files = tuple(
        StagedFile(
            name,
            _name(file["name"]),
            _number(file["records"]),
            _number(file["size"]),
            None if file["first"] is None else _number(file["first"]),
            _number(file["last"]),
        )
        for file in value["files"]
    )
    return Placement(name, _number(value["start"]), _number(value["epoch"]), files, _number(value["skipped"]))


def _streams(value: Mapping[str, Any]) -> tuple[StreamBatch, ...]:
    found: Iterable[Mapping[str, Any]] = _checked(value["streams"], list)
    return tuple(_batch(one) for one in found)


def _batch(value: Mapping[str, Any]) -> StreamBatch:
    return StreamBatch(_checked(value["query"], str), _number(value["number"]), _checked(value["entry"], str))


def _name(value: Any) -> str:
    """Returns a plain file name; raises ValueError for a name that leads out of its directory."""
    name = _checked(value, str)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name[:80]!r} is not a name")
    return name


def _number(value: Any) -> int:
    number = _checked(value, int)
    if isinstance(value, bool) or not 0 <= number <= INT64_MAX:
        raise ValueError(f"{value!r} is not a number")
    return number


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:80]!r} is not of type {kind.__name__}")
    return value
