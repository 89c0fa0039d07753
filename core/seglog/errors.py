"""All errors of the engine. They have no exit codes and no rendering: the command line maps classes to codes.

    SeglogError
    ├── ConfigError                   an invalid key or value (with file and line if known)
    │   └── ArgumentError             a value that an argument or its option does not take
    ├── InputError                    a line of input that is not a record
    ├── NotALogError                  there is no Kafka log
    ├── LockedError                   a broker or another seglog holds the directory
    ├── RefusedError                  a safety check, or not enough disk or memory
    │   └── UntrustedLinkError        a symbolic link of another user on the way to a file
    ├── Obstacles                     several of the errors above, all of which prevent a request
    ├── UnsupportedError              a format, codec or platform feature that seglog does not handle
    ├── IncompleteError               part of the input could not be read
    ├── OffsetOutOfRangeError         a read or truncation outside [log start, log end]
    ├── SegmentOffsetOverflowError    a batch whose relative offset does not fit 31 bits
    ├── CorruptionError               bytes on disk that break a rule, met while working
    │   ├── CorruptRecordError        Kafka: CorruptRecordException (framing, size or CRC of a batch)
    │   ├── InvalidRecordError        Kafka: InvalidRecordException (contents of a batch)
    │   ├── CorruptIndexError         Kafka: CorruptIndexException
    │   ├── CorruptSnapshotError      Kafka: CorruptSnapshotException
    │   ├── CorruptCheckpointError    a text checkpoint, partition.metadata or meta.properties
    │   └── CorruptTierError          a manifest or a chunk of a segment in tiered storage
    └── AppendError                   records or batches that the log does not accept
        ├── RecordTooLargeError       over max.message.bytes
        ├── RecordBatchTooLargeError  over segment.bytes
        ├── InvalidTimestampError     outside the accepted range, or negative
        ├── OffsetsOutOfOrderError    a follower's append that does not ascend
        ├── UnexpectedAppendOffsetError  a follower's append below the log end offset
        ├── OutOfOrderSequenceError   a gap in a producer's sequence
        ├── ProducerFencedError       an epoch older than the producer's current one
        └── InvalidTransactionStateError  a batch that contradicts the producer's open transaction

Corruption that a check finds is data (`seglog.verification.findings.Finding`), not an exception.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path


class SeglogError(Exception):
    """Base of every error that seglog raises on purpose; `str()` is one complete sentence for an operator.

    Errors can be pickled, so that a pool of processes can pass them on.
    """

    def __reduce__(self) -> tuple[object, ...]:
        return reduced(self)


def reduced(error: Exception) -> tuple[object, ...]:
    """Implements `__reduce__` for an error whose `__init__` takes other arguments than its base keeps in `args`."""
    arguments = (error.errno, error.strerror, error.filename) if isinstance(error, OSError) else error.args
    return _restored, (type(error), arguments, error.__dict__)


def _restored(kind: type[Exception], arguments: tuple[object, ...], state: Mapping[str, object]) -> Exception:
    error = kind.__new__(kind, *arguments)
    if isinstance(error, OSError):
        OSError.__init__(error, *arguments)
    error.__dict__.update(state)
    return error


def sentence_of(error: Exception) -> str:
    """Returns the text of any error for an operator; for an error of the system, the file and the reason."""
    if isinstance(error, SeglogError) or not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"


class ConfigError(SeglogError):
    """An invalid configuration key or value. `path` and `line` (from 1) are its place, if it came from a file."""

    def __init__(self, reason: str, path: Path | None = None, line: int | None = None) -> None:
        self.reason, self.path, self.line = reason, path, line
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + reason)


class ArgumentError(ConfigError, ValueError):
    """A value that an argument does not take. `name` is the argument's, "" for a path; the command line shows the
    option's name instead."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"{name}: {problem}" if name else problem)


class InputError(SeglogError):
    """Line `line` (from 1) of the input `source` is not a record; the lines before it were accepted."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        self.source, self.line, self.reason = source, line, reason
        super().__init__(f"{source}: line {line}: {reason}")


class NotALogError(SeglogError):
    """`path` holds no Kafka log (missing, or nothing in it has a name that Kafka gives)."""

    def __init__(self, path: Path, reason: str = "no Kafka log there") -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class LockedError(SeglogError):
    """Another process holds the log directory's `.lock`; `pid` is 0 where the system does not tell."""

    def __init__(self, path: Path, pid: int, holder: str) -> None:
        self.path, self.pid, self.holder = path, pid, holder
        by = f"process {pid} ({holder})" if pid else holder
        super().__init__(f"{path} is locked by {by}; stop it first, or work on a copy")


class RefusedError(SeglogError):
    """A safety check refused a request before anything was changed."""


class UntrustedLinkError(RefusedError, PermissionError):
    """`path` is a symbolic link of another user, `owner`, or has a second name, and is not followed (`storage.links`).

    Like the kernel's own refusal it is a PermissionError, so that callers that continue after an unreadable file
    continue after this one.
    """

    def __init__(self, path: Path, owner: str, target: Path) -> None:
        self.path, self.owner, self.target = path, owner, target
        reason = (
            f"a symbolic link of {owner}, which could lead anywhere, is not followed:"
            f" remove it, or name its target ({target})"
        )
        PermissionError.__init__(self, errno.EACCES, reason, str(path))

    def __str__(self) -> str:
        return f"{self.path}: {self.strerror}"


class Obstacles(SeglogError):
    """All errors that prevent a request, in order. Nothing was changed."""

    def __init__(self, errors: Sequence[SeglogError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, errors)))


def raise_errors(errors: Collection[SeglogError]) -> None:
    """Raises the error that prevents a request, as it is, or Obstacles for several; does nothing if there is none."""
    if errors:
        raise next(iter(errors)) if len(errors) == 1 else Obstacles(tuple(errors))


class UnsupportedError(SeglogError):
    """A format, codec or platform feature that seglog does not handle."""


class IncompleteError(SeglogError):
    """The work was done for part of the input; the rest could not be read."""


class OffsetOutOfRangeError(SeglogError):
    """`offset` lies outside the readable range [`log_start_offset`, `log_end_offset`]."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int, what: str = "") -> None:
        self.offset, self.log_start_offset, self.log_end_offset = offset, log_start_offset, log_end_offset
        subject = f"{what}: " if what else ""
        super().__init__(
            f"{subject}offset {offset} is out of range: the log begins at offset {log_start_offset}, and the next"
            f" offset to be written is {log_end_offset}"
        )


class SegmentOffsetOverflowError(SeglogError):
    """A batch whose last offset is not within 2^31-1 of its segment's base offset."""

    def __init__(self, path: Path, base_offset: int, offset: int, position: int) -> None:
        self.path, self.base_offset, self.offset, self.position = path, base_offset, offset, position
        super().__init__(
            f"{path}: position {position}: offset {offset} does not fit a segment that starts at {base_offset}"
        )


class CorruptionError(SeglogError):
    """Bytes on disk that break a rule.

    `position` is a byte position in `path` (None for text files); `first_offset` and `last_offset` are the affected log
    offsets, if known.
    """

    def __init__(
        self,
        path: Path | str,
        reason: str,
        position: int | None = None,
        first_offset: int | None = None,
        last_offset: int | None = None,
    ) -> None:
        self.path, self.reason, self.position = path, reason, position
        self.first_offset, self.last_offset = first_offset, last_offset
        where = f"{path}: " if position is None else f"{path}: position {position}: "
        which = ""
        if first_offset is not None:
            same = last_offset is None or last_offset == first_offset
            which = f" (offset {first_offset})" if same else f" (offsets {first_offset} to {last_offset})"
        super().__init__(f"{where}{reason}{which}")


class CorruptRecordError(CorruptionError):
    """A batch whose framing, size or checksum is wrong."""


class InvalidRecordError(CorruptionError):
    """A batch whose checksum may be right but whose records are not."""


class CorruptIndexError(CorruptionError):
    """An offset, time or transaction index that contradicts itself or its segment."""


class CorruptSnapshotError(CorruptionError):
    """A producer snapshot with a wrong version, size or checksum."""


class CorruptCheckpointError(CorruptionError):
    """A text checkpoint, `partition.metadata` or `meta.properties` that cannot be read."""


class CorruptTierError(CorruptionError, OSError):
    """A damaged object in tiered storage: a segment's manifest, a chunk or an encrypted index.

    It is also an OSError, so that callers that continue after an unreadable file continue after this one.
    """

    def __init__(self, path: Path | str, reason: str, position: int | None = None) -> None:
        CorruptionError.__init__(self, path, reason, position)
        self.errno, self.filename = errno.EIO, str(path)
        self.strerror = reason if position is None else f"position {position}: {reason}"

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class AppendError(SeglogError):
    """Records or batches that the log does not accept; none of them was written."""


class AppendCutShortError(SeglogError):
    """The system failed in the middle of an input.

    The log has the input's records with offsets `first_offset` to `last_offset`; those before `flushed_end` are on
    stable storage. `path` is the file that failed, if known.
    """

    def __init__(self, error: OSError, directory: Path, begun_at: int, log_end_offset: int, flushed_end: int) -> None:
        self.path = error.filename
        self.first_offset, self.last_offset, self.flushed_end = begun_at, log_end_offset - 1, flushed_end
        flushed = f"up to {flushed_end - 1}" if flushed_end > begun_at else "none of them"
        place = "" if error.filename is None else f"{error.filename}: "
        super().__init__(
            f"{place}{error.strerror or error}; the first {log_end_offset - begun_at} records of the input are in the"
            f" log, offsets {begun_at} to {self.last_offset} (flushed: {flushed}). When the cause is gone, run"
            f" `seglog recover {directory}`, which shows where the log ends, and append the rest"
        )


class RecordTooLargeError(AppendError):
    """A batch larger than `max.message.bytes`."""


class RecordBatchTooLargeError(AppendError):
    """A batch larger than `segment.bytes`."""


class InvalidTimestampError(AppendError):
    """A record timestamp that is negative or outside what the configuration accepts."""


class OffsetsOutOfOrderError(AppendError):
    """A follower's append whose offsets do not ascend."""


class UnexpectedAppendOffsetError(AppendError):
    """A follower's append that starts below the log end offset."""


class OutOfOrderSequenceError(AppendError):
    """A producer's batch whose first sequence does not follow the last one."""


class ProducerFencedError(AppendError):
    """A producer or coordinator epoch older than the current one."""


class InvalidTransactionStateError(AppendError):
    """A batch that contradicts its producer's open transaction, or lacks a transaction that it needs."""


class ChangedObjectError(OSError):
    """An object of a store is no longer the version that was listed or opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.ESTALE, "the object was changed while it was read; start again", str(path))

    def __reduce__(self) -> tuple[object, ...]:
        return reduced(self)


# A file that was listed was removed or replaced before it was read; an object says so at its first read.
GONE = (FileNotFoundError, ChangedObjectError)
