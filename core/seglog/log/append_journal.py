"""The journal of an append to several partitions, by which a crash is settled (see `staged_append`).

Two small files in the log directory, replaced atomically; a broker ignores both. They are believed only if this user
wrote them, and they name no path: staged files lie in a directory beside the log directory.

- `.seglog-append` is there while an append is open: which staged files it comes from, and where their batches go.
- `.seglog-streams` holds the last batch of each stream that was appended; of `MOST_STREAMS` streams, the latest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from seglog.errors import CorruptCheckpointError, RefusedError, SeglogError
from seglog.format.filenames import APPEND_JOURNAL_FILE, STREAMS_FILE, parse_topic_partition
from seglog.format.log_manifest import ManifestSegment
from seglog.layout import INT64_MAX
from seglog.model import TopicPartition
from seglog.storage.files import write_atomically
from seglog.storage.filesystem import Access, FileSystem
from seglog.storage.trust import read_trusted

MOST_STREAMS = 1000

_VERSION = 1
# Ours alone, whoever the directory belongs to; every reader of the logs may see it.
_ACCESS = Access(-1, -1, 0o755)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """Batch `number` of a stream. `query` is the id in the metadata of Spark's checkpoint, which survives a restart.

    `entry` is a digest of what the checkpoint says of this batch, "" where it could not be read: a checkpoint that was
    set back counts from a lower number again, and another batch then has this one's number.
    """

    query: str
    number: int
    entry: str = ""


@dataclass(frozen=True, slots=True)
class MadeSegment:
    """A segment whose objects a task has put, and the leader epoch of its batches."""

    segment: ManifestSegment
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Whole batches of one partition in the file `name` of a staging directory; `size` in bytes.

    `first_offset` is None when the batches are numbered from 0 and get their offsets as they are appended. `made` is
    the segment that the file is already, of a partition that ends where it begins (`made`); the batches of
    such a file are numbered from its base offset.
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
    """Where the batches of one partition's files go: from offset `start` on, with this leader epoch.

    The first `skipped` bytes of the files, taken together, are in the log already, before `start`.
    """

    topic_partition: TopicPartition
    start: int
    epoch: int
    files: tuple[StagedFile, ...]
    skipped: int = 0

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class AppendJournal:
    """An open append. `staging` is the name of the staging directory, which lies beside the log directory.

    `forward` says that somebody else's records follow a part of it, so that it can only be completed.
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
    """The journal of a log directory, whether it is there or not."""
    return log_directory / APPEND_JOURNAL_FILE


def is_unfinished(fs: FileSystem, log_directory: Path) -> bool:
    """Whether an append was cut short in a log directory, or (without its lock) is under way."""
    return fs.status(journal_path(log_directory), follow=False) is not None


def read_journal(fs: FileSystem, log_directory: Path) -> AppendJournal | None:
    """The open append of a log directory, or None.

    CorruptCheckpointError when it cannot be read, RefusedError when another user wrote it.
    """
    return _read(fs, journal_path(log_directory), _journal)


def open_starts(fs: FileSystem, log_directory: Path) -> dict[TopicPartition, int]:
    """Where an open append began in each partition: what comes after may be taken back. For readers, of any user.

    Empty as well where the journal cannot be read.
    """
    try:
        journal = _journal(json.loads(fs.read_bytes(journal_path(log_directory))))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SeglogError):
        return {}
    return {} if journal.forward else {one.topic_partition: one.start for one in journal.placements}


def write_journal(fs: FileSystem, log_directory: Path, journal: AppendJournal) -> None:
    """Opens an append, or says how it goes on; durable on return."""
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
    """The last batch of a stream that was appended for good. Errors are those of `read_journal`."""
    found = _read(fs, log_directory / STREAMS_FILE, _streams) or ()
    return next((batch for batch in found if batch.query == query), None)


def was_appended(place: Path, known: StreamBatch | None, stream: StreamBatch) -> bool:
    """Whether a stream's batch is part of the logs in `place`, where `known` is the last one that was appended.

    RefusedError for another batch of the same number, or of a lower one.
    """
    if known is None or known.number < stream.number:
        return False
    if known.number == stream.number and (known.entry == stream.entry or not (known.entry and stream.entry)):
        return True
    raise RefusedError(
        f"{place}: stream {stream.query} has appended its batches up to {known.number}, and brings another"
        f" batch {stream.number}: its checkpoint was set back or copied. Give the stream a new checkpoint, and"
        " starting offsets that it has not read"
    )


def record_batch(fs: FileSystem, log_directory: Path, batch: StreamBatch) -> None:
    """Notes that a batch was appended for good, in place of the stream's one before; durable on return."""
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
        raise ValueError(f"{value['partition']!r} is no partition")
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
    """The name of a file in a directory that is known, and nothing that leads out of it."""
    name = _checked(value, str)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name[:80]!r} is no name")
    return name


def _number(value: Any) -> int:
    number = _checked(value, int)
    if isinstance(value, bool) or not 0 <= number <= INT64_MAX:
        raise ValueError(f"{value!r} is no number")
    return number


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:80]!r} is no {kind.__name__}")
    return value
