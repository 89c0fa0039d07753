"""What looking at a log can find: `Finding`, and the registry of all codes with what they mean to a broker.

Corruption found by looking is data. Every code stands in `CODES` with a sentence on what it is, what a Kafka 4.3
broker does about it, and which command mends it; the manual and `doctor` read them from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from seglog.storage.links import name_of


class Severity(Enum):
    """How bad it is: `error` is damage, `warning` may lead to some, `info` is worth knowing."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Notice(Enum):
    """When a broker would notice."""

    NEVER = "never"
    READ = "when it is read"
    UNCLEAN_START = "at an unclean start"
    START = "at every start"


@dataclass(frozen=True, slots=True)
class FindingCode:
    """A kind of finding. `repair` names what `seglog verify --repair` or another command does, "" when nothing."""

    code: str
    severity: Severity
    meaning: str
    broker: str
    notices: Notice
    repair: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. `position` and `length` are bytes in `file`; offsets are those affected, None where unknown.

    `offsets_lost` counts offsets whose records cannot be read any more, at most. `file` is the file's name,
    `partition` the directory's ("" for files of a log directory).
    """

    code: str
    severity: Severity
    partition: str
    file: str
    message: str
    position: int | None = None
    length: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    broker_notices: Notice = Notice.NEVER
    repair: str = ""
    offsets_lost: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        return {
            "type": "finding",
            "severity": self.severity.value,
            "code": self.code,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "length": self.length,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "message": self.message,
            "broker_notices": self.broker_notices.value,
            "repair": self.repair or None,
            "offsets_lost": self.offsets_lost,
        }


def finding(code: str, partition: str, file: str, message: str, **fields: Any) -> Finding:
    """A `Finding` with the severity, notice and repair of its code, unless `fields` say otherwise."""
    kind = CODES[code]
    fields = {"broker_notices": kind.notices, "repair": kind.repair, "severity": kind.severity, **fields}
    return Finding(code=code, partition=partition, file=file, message=message, **fields)


def place_of(path: Path) -> tuple[str, str]:
    """`partition` and `file` of a finding on the file `path` of a partition."""
    return name_of(path.parent), path.name


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

_REGISTRY = (
    FindingCode(
        "CRC_MISMATCH",
        _E,
        "The checksum of a batch does not match its bytes.",
        "Serves the batch until a consumer refuses it; an unclean start cuts the log there and drops all that follows.",
        Notice.UNCLEAN_START,
        "excise",
    ),
    FindingCode(
        "UNREADABLE_BYTES",
        _E,
        "Bytes between two good batches do not form a batch: a size field is damaged, or the data is foreign.",
        "Fails every read after that place; an unclean start cuts the log there and drops all that follows.",
        Notice.READ,
        "excise",
    ),
    FindingCode(
        "TORN_TAIL",
        _E,
        "The file ends within a batch: a write that was cut short.",
        "An unclean start cuts it off; after a clean one the next append follows it and cannot be read.",
        Notice.UNCLEAN_START,
        "truncate",
    ),
    FindingCode(
        "ZERO_BYTES",
        _E,
        "A run of zero bytes where a batch should begin: blocks that were allocated but never written.",
        "At the end of the last segment a clean start fails; an unclean start cuts the log there.",
        Notice.START,
        "excise",
    ),
    FindingCode(
        "OFFSETS_NOT_ASCENDING",
        _E,
        "A batch starts at or below the offset that the batch before it ends with.",
        "Nothing notices unless an index entry would go backwards: then an unclean start empties the segment.",
        Notice.NEVER,
        "excise",
    ),
    FindingCode(
        "OFFSET_OUT_OF_SEGMENT",
        _E,
        "A batch has offsets below its segment's base, beyond the next segment's, or too far from the base.",
        "An unclean start fails, or splits the segment.",
        Notice.UNCLEAN_START,
        "excise",
    ),
    FindingCode(
        "MAGIC_UNKNOWN",
        _E,
        "A batch of a magic that no Kafka writes; the checksum does not cover that byte.",
        "Reads it as a batch of magic 2 (or as a message, when negative); consumers refuse it.",
        Notice.READ,
        "excise",
    ),
    FindingCode(
        "CODEC_UNKNOWN",
        _E,
        "A batch names a compression codec that does not exist for its magic.",
        "Reading its records fails; the cleaner gives the partition up.",
        Notice.READ,
        "excise",
    ),
    FindingCode(
        "OFFSET_DELTA_INVALID",
        _E,
        "A batch ends before it starts.",
        "Recovery refuses or misplaces it.",
        Notice.UNCLEAN_START,
        "excise",
    ),
    FindingCode(
        "COUNT_INVALID",
        _E,
        "A batch claims a negative number of records, or more than it has offsets.",
        "Consumers fail on it.",
        Notice.READ,
        "excise",
    ),
    FindingCode(
        "PRODUCER_INVALID",
        _W,
        "A batch has a transaction without a producer, or a producer without epoch or sequence.",
        "Would refuse it from a client; recovery takes it as it is.",
        Notice.NEVER,
    ),
    FindingCode(
        "CONTROL_INVALID",
        _E,
        "A control batch does not hold one control record that Kafka can read.",
        "Recovery fails or cuts the log there; readers of committed data fail.",
        Notice.UNCLEAN_START,
        "excise",
    ),
    FindingCode(
        "LEADER_EPOCH_DECREASING",
        _W,
        "A batch has a lower leader epoch than one before it; the checksum does not cover the field.",
        "The epoch cache ignores it; followers may truncate to the wrong place.",
        Notice.NEVER,
        "mend",
    ),
    FindingCode(
        "TIMESTAMP_NEGATIVE",
        _W,
        "A batch has a negative maximum timestamp other than -1.",
        "Serves it, but the cleaner fails whenever it rewrites it.",
        Notice.READ,
    ),
    FindingCode(
        "RECORDS_INVALID",
        _E,
        "The checksum is right, but the records of a batch cannot be decoded.",
        "Consumers fail on it and the cleaner gives the partition up; recovery does not look.",
        Notice.READ,
        "excise",
    ),
    FindingCode(
        "RECORD_OFFSETS_INVALID",
        _E,
        "Records of a batch do not ascend, or lie outside the batch's offsets.",
        "Serves them as they are; the cleaner may drop or duplicate records.",
        Notice.NEVER,
        "excise",
    ),
    FindingCode(
        "RECORD_TIMESTAMP_ABOVE_MAX",
        _W,
        "A record is younger than the maximum timestamp in its batch's header.",
        "Search by time and retention may miss it.",
        Notice.NEVER,
    ),
    FindingCode(
        "BATCH_TOO_LARGE_TO_DECODE",
        _I,
        "A batch has a record of more than 128 MiB, or expands to more than 2 GiB; its records were not all read.",
        "Reads it if its clients may fetch that much.",
        Notice.NEVER,
    ),
    FindingCode(
        "INDEX_MISSING",
        _W,
        "A segment has no offset or time index.",
        "Recovers the segment for a missing offset index; makes an empty time index, so that retention goes by"
        " the file's modification time.",
        Notice.START,
        "reindex",
    ),
    FindingCode(
        "INDEX_SIZE_INVALID",
        _E,
        "An index file does not end with a whole entry.",
        "Opens it anyway; its own sanity check would refuse it.",
        Notice.NEVER,
        "reindex",
    ),
    FindingCode(
        "INDEX_PREALLOCATED",
        _I,
        "An index still has the zeros it was preallocated with: its broker was killed, or the file was copied"
        " from a running one.",
        "An unclean start rebuilds it; under a clean marker the time index ends at timestamp 0 and time retention"
        " may delete the segment at once.",
        Notice.UNCLEAN_START,
        "reindex",
    ),
    FindingCode(
        "OFFSET_INDEX_INVALID",
        _E,
        "An offset index contradicts itself or its log: entries that do not ascend, or lead to no batch.",
        "Fetches fail, or scan from a wrong place; an unclean start rebuilds it.",
        Notice.READ,
        "reindex",
    ),
    FindingCode(
        "TIME_INDEX_INVALID",
        _E,
        "A time index contradicts itself or its log: a record younger than an entry lies at or before its offset.",
        "Searches by time and retention go wrong; an unclean start rebuilds it.",
        Notice.READ,
        "reindex",
    ),
    FindingCode(
        "TIME_INDEX_SHORT",
        _W,
        "A closed segment's time index does not end with its largest timestamp.",
        "Retention and search take the last entry for the largest.",
        Notice.NEVER,
        "reindex",
    ),
    FindingCode(
        "TRANSACTION_INDEX_DIFFERS",
        _E,
        "A transaction index does not list the aborted transactions that the log holds.",
        "Readers of committed data see aborted records, or miss good ones.",
        Notice.NEVER,
        "reindex",
    ),
    FindingCode(
        "SNAPSHOT_CORRUPT",
        _W,
        "A producer snapshot cannot be read.",
        "Deletes it and takes the next older one, or replays the log.",
        Notice.START,
        "recover",
    ),
    FindingCode(
        "SNAPSHOT_DIFFERS",
        _W,
        "A producer snapshot does not hold the producers that the log leads to.",
        "Trusts it: duplicates may be accepted, or good batches refused.",
        Notice.NEVER,
        "recover",
    ),
    FindingCode(
        "TRANSACTION_STATE_INVALID",
        _E,
        "A producer wrote outside its own open transaction.",
        "Recovery of the log fails, and with it the broker's start.",
        Notice.UNCLEAN_START,
    ),
    FindingCode(
        "TRANSACTION_OPEN",
        _I,
        "A transaction has no end in the log.",
        "Holds back readers of committed data and the cleaner.",
        Notice.READ,
    ),
    FindingCode(
        "LEADER_EPOCHS_DIFFER",
        _W,
        "The leader-epoch checkpoint contradicts the epochs in the log's batches.",
        "Followers may truncate to the wrong place.",
        Notice.NEVER,
        "recover",
    ),
    FindingCode(
        "CHECKPOINT_CORRUPT",
        _E,
        "A checkpoint or properties file cannot be read.",
        "Takes it for empty, or takes the log directory offline.",
        Notice.START,
    ),
    FindingCode(
        "CHECKPOINT_BEYOND_LOG",
        _W,
        "A checkpoint holds an offset that its log does not reach or no longer has.",
        "Corrects it at start; a cleaner checkpoint out of range is reset.",
        Notice.START,
    ),
    FindingCode(
        "LOG_MISSING",
        _E,
        "A partition directory has no log file, and what lies around it says that it held records.",
        "Makes an empty log there and serves it. A follower fetches everything again; a leader has lost it.",
        Notice.NEVER,
    ),
    FindingCode(
        "SEGMENT_MISSING",
        _E,
        "No segment holds some offsets that the log once had: files of a segment are gone. It is a warning when only"
        " the hole says so, as a replica has the holes of its leader, too.",
        "Readers skip the offsets silently.",
        Notice.NEVER,
    ),
    FindingCode(
        "LOG_END_MISSING",
        _E,
        "The log ends before offsets that it once had: acknowledged records are gone. It is a warning when only"
        " a group's committed offset says so, as a client may commit any number.",
        "Takes the end that it finds, and gives the missing offsets out again to other records.",
        Notice.NEVER,
    ),
    FindingCode(
        "PARTITION_MISSING",
        _E,
        "Checkpoints or the cluster's metadata name a partition that has no directory.",
        "Makes an empty log for it and serves that. A follower fetches everything again; a leader has lost it.",
        Notice.NEVER,
    ),
    FindingCode(
        "CHANGED_WHILE_READ",
        _I,
        "What looked wrong was gone a moment later: a broker is at work on the files.",
        "Goes on with its work.",
        Notice.NEVER,
    ),
    FindingCode(
        "NEIGHBOURS_UNSEEN",
        _I,
        "A segment in an object store or on a web server was named by itself, and what lies beside it is not listed:"
        " snapshots and the other segments were not looked at, and of its indexes those that have the usual names.",
        "Is not concerned.",
        Notice.NEVER,
    ),
    FindingCode(
        "LEFTOVER_FILE",
        _W,
        "An interrupted deletion, cleaning or swap left this file.",
        "Deletes it or finishes the swap when it starts.",
        Notice.START,
        "recover",
    ),
    FindingCode(
        "ORPHAN_INDEX",
        _W,
        "The segment of this index is gone.",
        "Deletes it when it starts.",
        Notice.START,
        "recover",
    ),
    FindingCode(
        "STRANGE_FILE",
        _W,
        "Kafka never gives a file this name.",
        "Ignores names that do not end like its own. Refuses to start if one that does has no number in front, or if a"
        " directory is not a partition.",
        Notice.START,
    ),
    FindingCode(
        "SEGMENT_GAP_07",
        _E,
        "A Kafka 0.7 segment does not begin where the one before it ends.",
        "Refuses to load the log.",
        Notice.START,
    ),
    FindingCode(
        "UNREADABLE_FILE",
        _E,
        "The operating system would not read a file.",
        "Takes the log directory offline.",
        Notice.START,
    ),
)

UNREADABLE = "UNREADABLE_FILE"
CODES: dict[str, FindingCode] = {kind.code: kind for kind in _REGISTRY}
