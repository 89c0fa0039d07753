"""Values used everywhere: partitions, records, codecs, timestamp types. No behaviour, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, TypeVar

from seglog.arguments import described
from seglog.errors import ArgumentError

E = TypeVar("E", bound=Enum)

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


def member(kind: type[E], value: E | str, name: str = "") -> E:
    """Returns `value` if it is a member of `kind`, or the member with that label, in upper or lower case.

    Raises ValueError for other text and TypeError for anything else; both name the labels, and the argument `name`.
    """
    prefix = f"{name}: " if name else ""
    if isinstance(value, kind):
        return value
    labels = {str(getattr(each, "label", each.value)): each for each in kind}
    if not isinstance(value, str):
        raise TypeError(f"{prefix}{described(value)} is not a member of {kind.__name__}: {', '.join(labels)}")
    for label, each in labels.items():
        if label.lower() == value.lower():
            return each
    raise ArgumentError(name, f"{value!r} is not one of {', '.join(labels)}")


class Levels(NamedTuple):
    """A codec's levels: the least, the most, and Kafka's default, which may lie outside."""

    least: int
    most: int
    usual: int


class Compression(IntEnum):
    """Codecs; the value is that of bits 0-2 of a batch's attributes (Kafka: CompressionType).

    `format/codecs` has a module for each, of its name: how it writes and reads a payload.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name of the codec, in lower case."""
        return self.name.lower()

    @property
    def levels(self) -> Levels | None:
        """Kafka's levels of the codec; None if it has none."""
        return _LEVELS.get(self)

    @property
    def least_magic(self) -> int:
        """The least magic of batches that may have the codec."""
        return 2 if self is Compression.ZSTD else 0


_LEVELS = {
    Compression.GZIP: Levels(1, 9, -1),
    Compression.LZ4: Levels(1, 17, 9),
    Compression.ZSTD: Levels(-131072, 22, 3),
}


def codec_name(number: int) -> str:
    """Returns Kafka's name of the codec with that number, or "unknown"."""
    return Compression(number).label if number in set(Compression) else "unknown"


class TimestampType(IntEnum):
    """Who set a record's timestamp (Kafka: TimestampType). Magic 0 has none."""

    NONE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's name: NoTimestampType, CreateTime or LogAppendTime."""
        return _TIMESTAMP_LABELS[self]


_TIMESTAMP_LABELS = {
    TimestampType.NONE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class ControlType(IntEnum):
    """Type of a control record, the second int16 of its key (Kafka: ControlRecordType)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class Isolation(IntEnum):
    """How far a read may go (Kafka: FetchIsolation): to the log end, or to the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @property
    def label(self) -> str:
        """Kafka's name: read_uncommitted or read_committed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A topic and a partition number; `str()` is the directory name `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Header(NamedTuple):
    """A record header. Its key is text, in which surrogate escapes keep bytes that are not UTF-8."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A single record.

    `offset` is None until the record is appended. `timestamp` is in epoch milliseconds; None lets the log choose.
    A `key` or `value` of None is Kafka's null, which differs from the empty string.

    It is a named tuple because reading creates one for every record: measured, a frozen dataclass takes seven times as
    long.
    """

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[Header, ...] = ()
    offset: int | None = None
    sequence: int = NO_SEQUENCE

    @property
    def is_tombstone(self) -> bool:
        """True if the record has a key and a null value: in a compacted topic it deletes the key."""
        return self.key is not None and self.value is None
