"""Parses and formats the names of the files and directories that make up a log.

Kafka: LogFileUtils, UnifiedLog.parseTopicPartitionName, Topic, Snapshots (raft), LogManager.

A name that Kafka never uses parses to None. For file names, parsing and formatting are exact inverses. A directory
name may have a truncated topic (`-delete`, `-stray`) or leading zeros in its partition number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

from seglog.model import TopicPartition

# As in `layout`, which imports numpy: what only lists files does without it, and starts in half the time.
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
# seglog's own files, which brokers ignore.
SEGLOG_RUN_FILE = ".seglog-run"  # names the folder of a run in progress
APPEND_JOURNAL_FILE = ".seglog-append"  # exists while an append to several partitions is open
STREAMS_FILE = ".seglog-streams"  # the last batch of each stream that was appended
REPAIR_NOTE_PREFIX = ".seglog-repaired-"  # in a partition: the offsets that a repair removed (`repair_note`)
# A directory that exists as long as SEGLOG_RUN_FILE: no broker starts while it is there (LogManager.loadLogs).
SEGLOG_RUN_BARRIER = "seglog-run-unfinished"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
FIRST_SNAPSHOT = f"{0:020}-{0:010}.checkpoint"  # in the metadata log: where `kafka-storage format` puts voters
_WITHOUT_OFFSET = frozenset(
    {
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
        META_PROPERTIES,
        CLEAN_SHUTDOWN_FILE,
        LOCK_FILE,
        LEADER_EPOCH_CHECKPOINT,
        PARTITION_METADATA,
        QUORUM_STATE,
        BOOTSTRAP_CHECKPOINT,
    }
)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
REMOTE_INDEX_CACHE = "remote-log-index-cache"
# Names of seglog's own directories within a log directory: LogManager skips every directory whose name is that of the
# controller's log, and the controller opens only `__cluster_metadata-0` (LogManager.loadLogs, KafkaRaftManager).
_OWN_PREFIX, _OWN_SUFFIX = "__cluster_metadata-0.seglog-", "-future"
QUARANTINE = ".seglog-quarantine"  # beside a log directory
QUARANTINE_WITHIN = f"{_OWN_PREFIX}quarantine{_OWN_SUFFIX}"
UNFINISHED_PREFIX, UNFINISHED_SUFFIX = f"{_OWN_PREFIX}new-", _OWN_SUFFIX
FETCH_PREFIX = f"{_OWN_PREFIX}fetch-"  # holds the files of an unfinished fetch, which resumes there

MAX_TOPIC_CHARACTERS = 249
MAX_DIRECTORY_CHARACTERS = 255
OFFSET_DIGITS = 20
EPOCH_DIGITS = 10


class FileKind(Enum):
    """The kind of a file named after an offset; the value is its suffix."""

    LOG = ".log"
    LOG_07 = ".kafka"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    METADATA_SNAPSHOT = ".checkpoint"  # `<offset>-<epoch>.checkpoint` of the KRaft metadata log


class FileState(Enum):
    """The state of a file; the value is the suffix after that of its kind."""

    LIVE = ""
    DELETED = ".deleted"  # waits for its deletion
    CLEANED = ".cleaned"  # incomplete output of the cleaner or the splitter
    SWAP = ".swap"  # complete output, about to replace live segments
    TEMPORARY = ".tmp"  # half written
    PARTIAL = ".part"  # a metadata snapshot being written or fetched


class PartitionState(Enum):
    """The state of a partition directory; the value is its suffix."""

    LIVE = ""
    DELETED = "-delete"
    STRAY = "-stray"
    FUTURE = "-future"

    @property
    def is_served(self) -> bool:
        """True if a broker uses the directory: it serves a live partition, and continues to fill a future one."""
        return self in (PartitionState.LIVE, PartitionState.FUTURE)


@dataclass(frozen=True, slots=True)
class FileName:
    """The parts of a name such as `00000000000000000042.log.deleted`.

    `offset` is the base offset of a segment or the end offset (exclusive) of a snapshot; for `.kafka` files it is a
    byte position. Only metadata snapshots have an `epoch`.
    """

    offset: int
    kind: FileKind
    state: FileState = FileState.LIVE
    epoch: int | None = None

    def __str__(self) -> str:
        return format_file_name(self)


@dataclass(frozen=True, slots=True)
class PartitionDirectoryName:
    """The parts of `<topic>-<partition>[.<unique><state>]`; `unique` is empty in a live directory's name."""

    topic_partition: TopicPartition
    state: PartitionState = PartitionState.LIVE
    unique: str = ""

    @property
    def may_be_cut(self) -> bool:
        """True if the topic's name may go on after what is left of it: the directory's name is as long as can be."""
        is_cuttable = self.state in (PartitionState.DELETED, PartitionState.STRAY)
        return is_cuttable and len(str(self)) >= MAX_DIRECTORY_CHARACTERS

    def __str__(self) -> str:
        return format_partition_directory(self)


_KINDS = "|".join(re.escape(kind.value) for kind in FileKind if kind is not FileKind.METADATA_SNAPSHOT)
_STATES = "|".join(re.escape(state.value) for state in FileState)
# What Java's parseInt and parseLong take, but for their limits: digits of any script that are one UTF-16 unit each.
JAVA_NUMBER = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d){1,40}")
_SEGMENT_FILE = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})({_KINDS})({_STATES})")
_METADATA_SNAPSHOT = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})-([0-9]{{{EPOCH_DIGITS}}})\.checkpoint({_STATES})")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_TOPIC_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]{1,10})")
_SUFFIXED_DIRECTORY = re.compile(r"(\S+-\S+)\.([^\s.]+)(-delete|-stray|-future)")


def is_seglogs_directory(name: str) -> bool:
    """True if the directory in a log directory is seglog's own, such as the quarantine, and not a partition."""
    return name.startswith(_OWN_PREFIX) and name.endswith(_OWN_SUFFIX)


def format_file_name(name: FileName) -> str:
    """Returns the file's name. Raises `ValueError` for a negative or too large number."""
    if not 0 <= name.offset <= INT64_MAX:
        raise ValueError(f"offset {name.offset} cannot be part of a file name")
    if name.kind is not FileKind.METADATA_SNAPSHOT:
        return f"{name.offset:0{OFFSET_DIGITS}d}{name.kind.value}{name.state.value}"
    if name.epoch is None or not 0 <= name.epoch <= INT32_MAX:
        raise ValueError(f"epoch {name.epoch} cannot be part of a snapshot's name")
    stem = f"{name.offset:0{OFFSET_DIGITS}d}-{name.epoch:0{EPOCH_DIGITS}d}"
    return f"{stem}{name.kind.value}{name.state.value}"


def segment_file_name(base_offset: int, kind: FileKind = FileKind.LOG, state: FileState = FileState.LIVE) -> str:
    """Returns the name of one of a segment's files, or of a producer snapshot."""
    return format_file_name(FileName(base_offset, kind, state))


def is_of_kafka(name: str) -> bool:
    """True if a broker or controller gives files this name."""
    return name in _WITHOUT_OFFSET or parse_file_name(name) is not None


@lru_cache(maxsize=1 << 16)  # a directory is listed several times, and may hold ten thousand segments
def parse_file_name(name: str) -> FileName | None:
    """Returns the parts of a file name that begins with an offset, or None for any other name."""
    match = _SEGMENT_FILE.fullmatch(name)
    epoch = None
    if match is not None:
        kind = FileKind(match[2])
    else:
        match = _METADATA_SNAPSHOT.fullmatch(name)
        if match is None or int(match[2]) > INT32_MAX:
            return None
        kind, epoch = FileKind.METADATA_SNAPSHOT, int(match[2])
    offset = int(match[1])
    return FileName(offset, kind, FileState(match[3]), epoch) if offset <= INT64_MAX else None


def topic_name_problem(topic: str) -> str | None:
    """Returns why Kafka would refuse a topic of this name, as part of a sentence, or None if it would not."""
    if not topic:
        return "a topic name cannot be empty"
    if topic in (".", ".."):
        return f"a topic cannot be named '{topic}'"
    if len(topic) > MAX_TOPIC_CHARACTERS:
        return f"a topic name has at most {MAX_TOPIC_CHARACTERS} characters, this one has {len(topic)}"
    if _TOPIC.fullmatch(topic) is None:
        return f"topic name {topic!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def is_taken_for_partition(name: str) -> bool:
    """True if a broker takes a directory of this name for a partition; any other name keeps it from starting.

    The topic may be any text; Java must accept the number (Kafka: UnifiedLog.parseTopicPartitionName).
    """
    state = next((s for s in PartitionState if s.value and name.endswith(s.value)), PartitionState.LIVE)
    if state is not PartitionState.LIVE:
        match = _SUFFIXED_DIRECTORY.fullmatch(name)
        if match is None:
            return False
        name = name[: name.rindex(".")]
    topic, _, number = name.rpartition("-")
    return bool(topic) and JAVA_NUMBER.fullmatch(number) is not None and -INT32_MAX - 1 <= int(number) <= INT32_MAX


def parse_topic_partition(name: str) -> TopicPartition | None:
    """Parses `topic-partition`, split at the last `-`; returns None for any other form."""
    match = _TOPIC_PARTITION.fullmatch(name)
    if match is None or int(match[2]) > INT32_MAX or topic_name_problem(match[1]) is not None:
        return None
    return TopicPartition(match[1], int(match[2]))


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """Returns the parts of a partition directory's name, or None for any other name.

    The topic of a deleted or stray directory may be truncated, to keep the name within 255 characters.
    """
    state, unique = PartitionState.LIVE, ""
    match = _SUFFIXED_DIRECTORY.fullmatch(name)
    if match is not None:
        name, unique, state = match[1], match[2], PartitionState(match[3])
    topic_partition = parse_topic_partition(name)
    return None if topic_partition is None else PartitionDirectoryName(topic_partition, state, unique)


def format_partition_directory(name: PartitionDirectoryName) -> str:
    """Returns the directory's name; that of a deleted or stray one is truncated to 255 characters within its topic."""
    if name.state is PartitionState.LIVE:
        return str(name.topic_partition)
    tail = f"-{name.topic_partition.partition}.{name.unique}{name.state.value}"
    topic = name.topic_partition.topic
    if name.state is not PartitionState.FUTURE:
        topic = topic[: MAX_DIRECTORY_CHARACTERS - len(tail)]
    return topic + tail


def topic_partition_of(directory: Path) -> TopicPartition:
    """Returns the partition that a directory's name stands for; any other name stands for partition 0 of that topic.

    Between layers a partition is a path, and whoever needs the name asks here: any directory may be opened as a log, so
    a name kept beside the path would be a second thing to keep true.
    """
    return partition_named(directory)[0]


def partition_named(directory: Path) -> tuple[TopicPartition, bool]:
    """Returns `topic_partition_of` a directory, and whether the name is the live partition's own."""
    name = parse_partition_directory(directory.name)
    if name is None:
        return TopicPartition(directory.name, 0), False
    return name.topic_partition, name.state is PartitionState.LIVE
