"""The registry of all finding codes.

`CODES` gives for each code what it means, what a Kafka 4.3
broker does about it, and which command repairs it. The manual and `doctor` take their texts from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto


class Severity(Enum):
    """`error` is damage, `warning` may lead to damage, `info` is worth knowing."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Notice(Enum):
    """When a broker notices."""

    NEVER = "never"
    READ = "when it is read"
    UNCLEAN_START = "at an unclean start"
    START = "at every start"


class Trait(Flag):
    """What a kind of finding is to the code that works with it."""

    NONE = 0
    LOCAL = auto()  # a second look at the segment alone can confirm it
    DAMAGE = auto()  # its bytes count as damaged
    LOSS = auto()  # no file holds its offsets


@dataclass(frozen=True, slots=True)
class FindingCode:
    """A kind of finding. `repair` names what `seglog repair` or another command does, "" if nothing. `doctor` is the
    doctor's diagnosis of it, "" for none."""

    code: str
    severity: Severity
    meaning: str
    broker: str
    notices: Notice
    repair: str = ""
    traits: Trait = Trait.NONE
    doctor: str = ""

    @property
    def leaves_the_log(self) -> bool:
        """True if a repair takes it out of a `.log`."""
        return self.repair in ("excise", "truncate")


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_LOCAL, _DAMAGE, _LOSS = Trait.LOCAL, Trait.DAMAGE, Trait.LOSS

_REGISTRY = (
    FindingCode(
        "CRC_MISMATCH",
        _E,
        "The checksum of a batch does not match its bytes.",
        "Serves the batch, and consumers refuse it. At an unclean start, cuts the log there and drops everything"
        " after it.",
        Notice.UNCLEAN_START,
        "excise",
        traits=_LOCAL | _DAMAGE,
    ),
    FindingCode(
        "UNREADABLE_BYTES",
        _E,
        "Bytes between two good batches are not a batch: a size field is damaged, or the data is foreign.",
        "Fails every read beyond that position. At an unclean start, cuts the log there and drops everything after it.",
        Notice.READ,
        "excise",
        traits=_LOCAL | _DAMAGE,
    ),
    FindingCode(
        "TORN_TAIL",
        _E,
        "The file ends within a batch: a write was cut short.",
        "At an unclean start, cuts it off. At a clean start, keeps it; what is appended after it cannot be read.",
        Notice.UNCLEAN_START,
        "truncate",
        traits=_LOCAL | _DAMAGE,
    ),
    FindingCode(
        "ZERO_BYTES",
        _E,
        "A run of zero bytes lies where a batch should begin: blocks were allocated but never written.",
        "At a clean start, fails to start if the zeros end the last segment. At an unclean start, cuts the log there.",
        Notice.START,
        "excise",
        traits=_LOCAL | _DAMAGE,
    ),
    FindingCode(
        "OFFSETS_NOT_ASCENDING",
        _E,
        "A batch starts at or below the last offset of the batch before it.",
        "Serves it. If an index entry would go backwards, an unclean start empties the segment.",
        Notice.NEVER,
        "excise",
    ),
    FindingCode(
        "OFFSET_OUT_OF_SEGMENT",
        _E,
        "A batch has offsets below its segment's base offset, at or above the next segment's, or too far above its own"
        " segment's.",
        "At an unclean start, fails to start or splits the segment if an offset is below its base or too far above it."
        " Keeps offsets of a later segment in both files, and serves some of them from either.",
        Notice.UNCLEAN_START,
        "excise",
        traits=_LOCAL,
    ),
    FindingCode(
        "MAGIC_UNKNOWN",
        _E,
        "A batch has a magic that no Kafka version writes. The checksum does not cover that byte.",
        "Reads it as a batch of magic 2, or as a message if the magic is negative. Consumers refuse it.",
        Notice.READ,
        "excise",
        traits=_LOCAL,
    ),
    FindingCode(
        "CODEC_UNKNOWN",
        _E,
        "A batch names a compression codec that does not exist for its magic.",
        "Cannot read its records. The cleaner stops cleaning the partition.",
        Notice.READ,
        "excise",
        traits=_LOCAL,
    ),
    FindingCode(
        "OFFSET_DELTA_INVALID",
        _E,
        "A batch's last offset is below its base offset.",
        "At an unclean start, recovery refuses or misplaces the batch.",
        Notice.UNCLEAN_START,
        "excise",
        traits=_LOCAL,
    ),
    FindingCode(
        "COUNT_INVALID",
        _E,
        "A batch declares a negative number of records, or more records than it has offsets.",
        "Serves it, and consumers fail on it.",
        Notice.READ,
        "excise",
        traits=_LOCAL,
    ),
    FindingCode(
        "PRODUCER_INVALID",
        _W,
        "A batch is transactional without a producer id, or has a producer id without an epoch or a sequence.",
        "Would refuse such a batch from a client. Recovery accepts it.",
        Notice.NEVER,
        doctor="HEADER_ODD",
    ),
    FindingCode(
        "CONTROL_INVALID",
        _E,
        "A control batch holds a record that Kafka cannot read, or a producer's holds several, or one that is not a"
        " transaction marker.",
        "At an unclean start, recovery fails if a producer's record is not of a marker's type, and cuts the log after a"
        " record of his that it cannot read. It reads the first record of a batch alone.",
        Notice.UNCLEAN_START,
        "excise",
    ),
    FindingCode(
        "LEADER_EPOCH_DECREASING",
        _W,
        "A batch has a lower leader epoch than an earlier batch. The checksum does not cover the field.",
        "Ignores it in the epoch cache. Followers may truncate to the wrong offset.",
        Notice.NEVER,
        "mend",
        doctor="EPOCHS_WRONG",
    ),
    FindingCode(
        "TIMESTAMP_NEGATIVE",
        _W,
        "A batch has a negative maximum timestamp other than -1.",
        "Serves it. The cleaner fails whenever it rewrites it.",
        Notice.READ,
        traits=_LOCAL,
        doctor="HEADER_ODD",
    ),
    FindingCode(
        "RECORDS_INVALID",
        _E,
        "The checksum of a batch is right, but its records cannot be decoded.",
        "Serves it, and consumers fail on it. The cleaner stops cleaning the partition. Recovery does not look at"
        " records.",
        Notice.READ,
        "excise",
        traits=_LOCAL | _DAMAGE,
    ),
    FindingCode(
        "RECORD_OFFSETS_INVALID",
        _E,
        "The record offsets in a batch do not ascend, or lie outside the batch's offsets.",
        "Serves them as they are. The cleaner may drop or duplicate records.",
        Notice.NEVER,
        "excise",
        traits=_LOCAL,
    ),
    FindingCode(
        "RECORD_TIMESTAMP_ABOVE_MAX",
        _W,
        "A record's timestamp is later than the maximum timestamp in its batch's header.",
        "Search by time and retention by time may miss it.",
        Notice.NEVER,
        traits=_LOCAL,
        doctor="HEADER_ODD",
    ),
    FindingCode(
        "BATCH_TOO_LARGE_TO_DECODE",
        _I,
        "A batch has a record of more than 128 MiB, or expands to more than 2 GiB. seglog did not read all its"
        " records.",
        "Serves it to clients that may fetch that much.",
        Notice.NEVER,
    ),
    FindingCode(
        "INDEX_MISSING",
        _W,
        "A segment has no offset or time index.",
        "Recovers the segment if the offset index is missing. Creates an empty time index if that one is missing;"
        " retention by time then uses the file's modification time.",
        Notice.START,
        "reindex",
        traits=_LOCAL,
    ),
    FindingCode(
        "INDEX_SIZE_INVALID",
        _E,
        "An index file ends within an entry.",
        "Opens it anyway. Kafka's own sanity check would refuse it.",
        Notice.NEVER,
        "reindex",
        traits=_LOCAL,
        doctor="INDEX_TRUSTED",
    ),
    FindingCode(
        "LOG_PREALLOCATED",
        _I,
        "The last log ends with preallocated zeros (`preallocate`): the broker was killed, or the file is a copy of a"
        " running broker's.",
        "At an unclean start, cuts the zeros off; no record is in them.",
        Notice.UNCLEAN_START,
        traits=_LOCAL,
    ),
    FindingCode(
        "INDEX_PREALLOCATED",
        _I,
        "An index still has its preallocated zeros: the broker was killed, or the file was copied from a running"
        " broker.",
        "At an unclean start, rebuilds it. At a clean start, takes 0 for the last timestamp of a time index, and"
        " retention by time may delete the segment at once.",
        Notice.UNCLEAN_START,
        "reindex",
    ),
    FindingCode(
        "OFFSET_INDEX_INVALID",
        _E,
        "An offset index contradicts itself or its log: entries do not ascend, or do not lead to a batch.",
        "Fetches fail or scan from the wrong position. An unclean start rebuilds the index.",
        Notice.READ,
        "reindex",
        traits=_LOCAL,
        doctor="INDEX_TRUSTED",
    ),
    FindingCode(
        "TIME_INDEX_INVALID",
        _E,
        "A time index contradicts itself or its log: a record at or before an entry's offset has a later timestamp than"
        " the entry.",
        "Search by time and retention by time give wrong results. An unclean start rebuilds the index.",
        Notice.READ,
        "reindex",
        traits=_LOCAL,
        doctor="INDEX_TRUSTED",
    ),
    FindingCode(
        "TIME_INDEX_SHORT",
        _W,
        "The time index of a closed segment does not end with the segment's largest timestamp.",
        "Retention and search take the last entry for the largest timestamp.",
        Notice.NEVER,
        "reindex",
        traits=_LOCAL,
        doctor="INDEX_TRUSTED",
    ),
    FindingCode(
        "TRANSACTION_INDEX_DIFFERS",
        _E,
        "A transaction index does not match the aborted transactions in the log.",
        "Consumers with read_committed see aborted records, or miss committed ones.",
        Notice.NEVER,
        "reindex",
        doctor="ABORTED_EXPOSED",
    ),
    FindingCode(
        "SNAPSHOT_CORRUPT",
        _W,
        "A producer snapshot cannot be read.",
        "Deletes it, and loads the next older snapshot or replays the log.",
        Notice.START,
        "recover",
        doctor="SNAPSHOT_IGNORED",
    ),
    FindingCode(
        "SNAPSHOT_DIFFERS",
        _W,
        "A producer snapshot does not match the producers in the log.",
        "Trusts the snapshot: may accept duplicates or refuse good batches.",
        Notice.NEVER,
        "recover",
        doctor="SNAPSHOT_TRUSTED",
    ),
    FindingCode(
        "TRANSACTION_STATE_INVALID",
        _E,
        "A producer wrote a batch that does not belong to its open transaction.",
        "At an unclean start, recovery of the log fails and the broker does not start.",
        Notice.UNCLEAN_START,
        doctor="DAMAGE_SERVED",
    ),
    FindingCode(
        "TRANSACTION_OPEN",
        _I,
        "A transaction has no end marker in the log.",
        "Consumers with read_committed and the cleaner stop at its first offset.",
        Notice.READ,
    ),
    FindingCode(
        "LEADER_EPOCHS_DIFFER",
        _W,
        "The leader-epoch checkpoint contradicts the epochs in the log's batches.",
        "Followers may truncate to the wrong offset.",
        Notice.NEVER,
        "recover",
        doctor="EPOCHS_WRONG",
    ),
    FindingCode(
        "CHECKPOINT_CORRUPT",
        _E,
        "A checkpoint or properties file, or a controller's `quorum-state`, cannot be read.",
        "Treats it as empty, takes the log directory offline, or refuses to start.",
        Notice.START,
    ),
    FindingCode(
        "METADATA_SNAPSHOT_CORRUPT",
        _E,
        "A snapshot of the cluster's metadata, or `bootstrap.checkpoint`, is damaged or has lost its end.",
        "Refuses to start, or takes what is left for the cluster's metadata.",
        Notice.START,
    ),
    FindingCode(
        "CHECKPOINT_BEYOND_LOG",
        _W,
        "A checkpoint holds an offset beyond the end of its log, or before its start.",
        "Corrects it at start. Resets a cleaner checkpoint that is out of range.",
        Notice.START,
    ),
    FindingCode(
        "LOG_MISSING",
        _E,
        "A partition directory has no log file. It is a remark if no other file shows that it held records.",
        "Creates an empty log and serves it. A follower fetches everything again; on a leader the records are lost.",
        Notice.NEVER,
        traits=_LOSS,
        doctor="LOG_MISSING",
    ),
    FindingCode(
        "SEGMENT_MISSING",
        _E,
        "No segment holds some offsets that the log once had: the files of a segment are gone. It is a warning if the"
        " hole itself is the only evidence, because a replica also has the holes of its leader.",
        "Readers skip the offsets silently.",
        Notice.NEVER,
        traits=_LOSS,
        doctor="SEGMENT_MISSING",
    ),
    FindingCode(
        "LOG_END_MISSING",
        _E,
        "The log ends before offsets that it once had: acknowledged records are gone. It is a warning if a group's"
        " committed offset is the only evidence, because a client may commit any offset.",
        "Takes the end that it finds, and gives the missing offsets to other records.",
        Notice.NEVER,
        traits=_LOSS,
        doctor="LOG_END_MISSING",
    ),
    FindingCode(
        "COMMITTED_BEYOND_END",
        _I,
        "A group has committed an offset above the log's end, and the broker's checkpoints agree with that end."
        " MirrorMaker, tools that reset offsets, and clients of a topic that was made again commit such offsets.",
        "Serves the log as it is. A consumer that begins there is told that the offset is out of range, and goes where"
        " its auto.offset.reset says.",
        Notice.READ,
        doctor="COMMITTED_BEYOND_END",
    ),
    FindingCode(
        "PARTITION_MISSING",
        _E,
        "A checkpoint or the cluster's metadata names a partition that has no directory.",
        "Creates an empty log and serves it. A follower fetches everything again; on a leader the records are lost.",
        Notice.NEVER,
    ),
    FindingCode(
        "CHANGED_WHILE_READ",
        _I,
        "What looked wrong was gone a moment later: a broker is changing the files.",
        "Continues its work.",
        Notice.NEVER,
    ),
    FindingCode(
        "NEIGHBOURS_UNSEEN",
        _I,
        "A single segment in an object store or on a web server was named, and its directory cannot be listed. seglog"
        " looked only at its log and at indexes of the usual names, not at snapshots or other segments.",
        "Not affected.",
        Notice.NEVER,
    ),
    FindingCode(
        "LEFTOVER_FILE",
        _W,
        "An interrupted deletion, cleaning or swap left this file.",
        "Deletes it, or finishes the swap, at start.",
        Notice.START,
        "recover",
    ),
    FindingCode(
        "ORPHAN_INDEX",
        _W,
        "The segment of this index is gone.",
        "Deletes the index at start.",
        Notice.START,
        "recover",
    ),
    FindingCode(
        "STRANGE_FILE",
        _W,
        "Kafka never gives a file this name.",
        "Ignores the file unless its name ends like one of Kafka's. Refuses to start if such a name does not begin"
        " with a number, or if a directory is not a partition.",
        Notice.START,
    ),
    FindingCode(
        "SEGMENT_GAP_07",
        _E,
        "A Kafka 0.7 segment does not begin where the previous one ends.",
        "Refuses to load the log.",
        Notice.START,
    ),
    FindingCode(
        "UNREADABLE_FILE",
        _E,
        "The operating system cannot read a file.",
        "Takes the log directory offline.",
        Notice.START,
        doctor="DIRECTORY_UNREADABLE",
    ),
)

UNREADABLE = "UNREADABLE_FILE"
CODES: dict[str, FindingCode] = {kind.code: kind for kind in _REGISTRY}
