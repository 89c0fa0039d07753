"""What `doctor` can say: `Diagnosis`, and every case with what a Kafka 4.3 broker does and which command mends it.

A *blocker* keeps the broker from starting or takes the log directory offline; a *danger* loses data, serves what it
should not, or stops a background thread; a *note* is settled by the broker alone, or is worth knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any


class Gravity(Enum):
    """How much it matters."""

    BLOCKER = "blocker"
    DANGER = "danger"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of diagnosis. `command` has `{log_directory}`, `{partition}` and `{path}` to fill in.

    `offline`: the broker goes on without the log directory, as long as another one has the metadata log.
    """

    code: str
    gravity: Gravity
    broker: str
    command: str = ""
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One row. `partition` is the directory's name ("" for the log directory itself), `file` a name in it.

    `position` and `length` are bytes in `file`, offsets those affected, None where there are none. `broker` says
    what a broker does, `command` what mends it ("" when nothing is to be done); `offline` as in `Case`.
    """

    code: str
    gravity: Gravity
    log_directory: str
    partition: str
    file: str
    message: str
    broker: str
    command: str
    position: int | None = None
    length: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    count: int = 1
    offline: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The JSON line's fields, `type` first."""
        return {
            "type": "diagnosis",
            "severity": self.gravity.value,
            "code": self.code,
            "log_directory": self.log_directory,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "length": self.length,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "count": self.count,
            "message": self.message,
            "broker": self.broker,
            "command": self.command or None,
        }


def diagnosis(
    code: str, log_directory: Path, partition: Path | None, path: Path, message: str, **fields: Any
) -> Diagnosis:
    """A `Diagnosis` of the file or directory `path` with what its case says, unless `fields` say otherwise.

    `partition` is the directory that it is about, None where that is the log directory: its command takes `path` then.
    """
    case = CASES[code]
    command = case.command.format(log_directory=log_directory, partition=partition or path, path=path)
    of_case = {"gravity": case.gravity, "broker": case.broker, "offline": case.offline}
    known = {**of_case, "command": command, **fields}
    name = "" if partition is None else partition.name
    return Diagnosis(code, log_directory=str(log_directory), partition=name, file=path.name, message=message, **known)


_B, _D, _N = Gravity.BLOCKER, Gravity.DANGER, Gravity.NOTE

UNFORESEEN = "Refuses to start: it cannot handle such a file (a NumberFormatException, or the like)."

_REPAIR = "seglog verify --repair {partition}"
_REINDEX = "seglog reindex {partition}"
_SET_ASIDE = "mv {path} SOMEWHERE-OUTSIDE-LOG.DIRS"
_RESTORE = "copy the files from another replica or a backup before the broker starts"
_CHECKPOINTS = "seglog verify --repair --only checkpoint {log_directory}"

_CASES = (
    # --- the log directory
    Case("DIRECTORY_LOCKED", _B, "Refuses to start while another process holds the lock.", "stop that process"),
    Case("DIRECTORY_UNREADABLE", _B, "Takes the log directory offline, and stops if it is its last one.", offline=True),
    Case(
        "ACCESS_DENIED",
        _B,
        "Cannot open it (AccessDeniedException): refuses to start, or takes the log directory offline.",
        "chown -R BROKERS-USER {path}",
        offline=True,
    ),
    Case("STRANGE_DIRECTORY", _B, "Refuses to start: every sub-directory must be a partition's.", _SET_ASIDE),
    Case(
        "RUN_UNFINISHED",
        _B,
        "Refuses to start, so that nobody writes after a part of what the run makes.",
        "seglog verify --repair {log_directory}",
    ),
    Case(
        "META_PROPERTIES_MISSING",
        _B,
        "Refuses to start: each of its log directories must have been formatted.",
        "kafka-storage.sh format --ignore-formatted -t CLUSTER-ID -c server.properties",
    ),
    Case("META_PROPERTIES_INVALID", _B, "Refuses to start: it does not know whose directory this is."),
    Case("META_PROPERTIES_DIFFER", _B, "Refuses to start: its log directories must agree on cluster and node."),
    Case(
        "CHECKPOINT_UNREADABLE",
        _B,
        "Takes the log directory offline when it reads the file, and stops if it is its last one.",
        _CHECKPOINTS,
        offline=True,
    ),
    Case(
        "CHECKPOINT_IGNORED",
        _D,
        "Takes the whole file for empty: recovery starts at offset 0, and deleted records come back.",
        _CHECKPOINTS,
    ),
    Case("DUPLICATE_PARTITION", _B, "Refuses to start: one partition lies in two log directories.", _SET_ASIDE),
    Case(
        "CLEANER_CHECKPOINT_DUPLICATE",
        _D,
        "The cleaner thread dies on a partition that two directories' cleaner checkpoints list.",
        "remove the line from the checkpoint of the directory that does not hold the partition",
    ),
    Case("STRAY_PARTITION", _D, "Renames the directory to -stray, or refuses the replica; it is not served any more."),
    Case(
        "MISNAMED_PARTITION",
        _D,
        "Loads it if it knows its topic id; such a name then breaks the checkpoints, and the next start fails.",
        _SET_ASIDE,
    ),
    Case("FOREIGN_PARTITION", _D, "Loads it and does not serve it: its id is another topic's.", _SET_ASIDE),
    Case(
        "PARTITION_MISSING",
        _D,
        "Makes an empty log for it and serves that. A follower fetches everything again; a leader has lost it.",
        _RESTORE,
    ),
    Case(
        "STRAY_IN_FAILED_DIRECTORY",
        _B,
        "Refuses to start if the log directory fails first: it cannot rename the partition then.",
        _SET_ASIDE,
    ),
    Case(
        "PARTITIONS_MADE_ELSEWHERE",
        _D,
        "May make empty logs for them in another log directory; once this one is back, it refuses to start.",
        "mend the log directory before the broker starts",
    ),
    Case("DELETED_PARTITION", _N, "Deletes it a minute after it started."),
    Case("SET_ASIDE_PARTITION", _N, "Does not serve it; it only takes up space."),
    Case("METADATA_UNREADABLE", _D, "The controller cannot replay its log beyond that place.", "copy from a voter"),
    # --- names in a partition
    Case("STRANGE_SEGMENT_NAME", _B, "Refuses to start: the file's name has no offset.", _SET_ASIDE),
    Case("SHORT_SEGMENT_NAME", _D, "Opens an empty segment beside the file; what is in it is not read.", _SET_ASIDE),
    Case("KAFKA_07_LOG", _D, "Ignores `.kafka` files and begins an empty log beside them.", "seglog dump {partition}"),
    Case("LEFTOVER_SETTLED", _N, "Deletes it, or finishes the interrupted swap."),
    Case(
        "SWAP_DAMAGED",
        _D,
        "Puts the damaged file in place of good segments, which it deletes.",
        _REPAIR,
    ),
    Case(
        "SWAP_SHORTER",
        _D,
        "Puts a file that is empty or ends sooner in place of good segments, which it deletes.",
        _REPAIR,
    ),
    Case("ORPHAN_INDEX", _N, "Deletes an index whose segment is gone."),
    Case("LEADER_EPOCHS_UNREADABLE", _B, "Takes the log directory offline.", _REPAIR, offline=True),
    Case(
        "PARTITION_METADATA_UNREADABLE",
        _B,
        "Takes the log directory offline.",
        "restore it from another replica",
        offline=True,
    ),
    # --- starting
    Case("LOAD_FAILS", _B, "Refuses to start: loading the log fails.", _REPAIR),
    Case("LOG_END_UNREADABLE", _B, "Refuses to start: it cannot find the end of the log.", _REPAIR),
    Case("LOG_END_WRONG", _D, "Ends the log too early and gives the offsets that follow out again.", _REINDEX),
    Case("TAIL_STAYS", _D, "Keeps these bytes; what it appends follows them and cannot be read.", _REPAIR),
    Case("RECOVERY_CUTS", _D, "Cuts the segment there; all that follows is gone.", _REPAIR),
    Case("RECOVERY_DROPS_SEGMENTS", _D, "Deletes every segment after the damage, good ones too.", _REPAIR),
    Case("LOG_DROPPED", _D, "Deletes the whole log: it ends below its checkpointed start.", _CHECKPOINTS),
    Case("SEGMENT_HOLE", _D, "Cuts that one segment and keeps later ones: a hole in the offsets.", _REPAIR),
    Case("SEGMENT_RECOVERED", _N, "Rebuilds the segment's indexes when it starts."),
    # --- indexes under a clean marker
    Case(
        "TIME_INDEX_PADDED",
        _D,
        "Takes 0 for the segment's largest timestamp: time retention deletes it at once.",
        _REINDEX,
    ),
    Case("INDEX_PADDED", _D, "Takes the zeros for entries: the index is full, and the next roll may fail.", _REINDEX),
    Case(
        "TIME_INDEX_MISSING",
        _D,
        "Makes an empty one: retention and search by time go by the file's modification time.",
        _REINDEX,
    ),
    Case("INDEX_TRUSTED", _D, "Does not check indexes when it starts: reads and retention go wrong.", _REINDEX),
    Case("INDEX_TOO_LARGE", _B, "Refuses to start: rebuilding the index exceeds segment.index.bytes."),
    Case("ABORTED_EXPOSED", _D, "Serves aborted records as committed, or hides committed ones.", _REINDEX),
    # --- what is gone
    Case("LOG_MISSING", _D, "Makes an empty log in its place and serves that.", _RESTORE),
    Case("SEGMENT_MISSING", _D, "Does not notice; readers skip these offsets silently.", _RESTORE),
    Case("LOG_END_MISSING", _D, "Takes the end that it finds, and gives these offsets out again.", _RESTORE),
    # --- what the data holds
    Case("DAMAGE_SERVED", _D, "Does not notice when it starts; readers and followers fail there.", _REPAIR),
    Case("CLEANER_LAUNDERS", _D, "The cleaner gives the damaged batch a new, valid checksum.", _REPAIR),
    Case("CLEANER_FAILS", _D, "The cleaner gives the partition up until a restart, retention included.", _REPAIR),
    Case("SNAPSHOT_LOST", _D, "Forgets all producers: retries may be stored twice.", _REINDEX),
    Case("SNAPSHOT_IGNORED", _N, "Deletes the snapshot and replays the log from an older one."),
    Case("SNAPSHOT_TRUSTED", _D, "Trusts it: duplicates may be stored, or good batches refused.", _REINDEX),
    Case("EPOCHS_WRONG", _D, "Followers may truncate to the wrong place.", _REINDEX),
    Case("HEADER_ODD", _N, "Serves it as it is."),
    Case(
        "TRANSACTION_HANGING",
        _D,
        "Holds back readers of committed data and the cleaner for ever.",
        "seglog txn {partition} abort-cmd",
    ),
    Case("TRANSACTION_OPEN", _N, "Its coordinator ends it, or aborts it when it times out."),
    Case("CHANGED_WHILE_READ", _N, "Goes on with its work."),
    Case("CHECKPOINT_BEYOND", _N, "Corrects the checkpoint when it starts."),
)

CASES: dict[str, Case] = {case.code: case for case in _CASES}
