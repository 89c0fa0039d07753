"""Diagnoses of `doctor`, and the table of all cases: what a Kafka 4.3 broker does, and which command repairs it.

A *blocker* keeps the broker from starting or takes the log directory offline. A *danger* loses data, serves wrong
data, or stops a background thread. A *note* is settled by the broker itself, or is worth knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from seglog.escaping import command_line, shell_path
from seglog.remote_path import COPY_ON_A_DISK, RemotePath


class Gravity(Enum):
    """How serious a diagnosis is."""

    BLOCKER = "blocker"
    DANGER = "danger"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of diagnosis. `command` is one line for a shell, with the fields `{log_directory}`, `{partition}` and
    `{path}`. Words in capitals stand for what the operator knows.

    `offline`: the broker continues without the log directory, as long as another one has the metadata log.
    """

    code: str
    gravity: Gravity
    broker: str
    command: str = ""
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One diagnosis. `partition` is the directory's name ("" for the log directory itself), `file` a name in it.

    `position` and `length` are bytes in `file`; the offsets are those affected, None if there are none. `broker` says
    what a broker does, `command` what repairs it ("" if there is nothing to do). `offline` is as in `Case`.
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
    """Returns a `Diagnosis` of the file or directory `path`, with the texts of its case unless `fields` override them.

    `partition` is the partition directory concerned, None for the log directory; then the command names `path`.
    """
    case = CASES[code]
    named = {"log_directory": log_directory, "partition": partition or path, "path": path}
    command = case.command.format_map({name: shell_path(each) for name, each in named.items()})
    of_case = {"gravity": case.gravity, "broker": case.broker, "offline": case.offline}
    known = {**of_case, "command": command, **fields}
    if isinstance(log_directory, RemotePath):
        if code == "NOT_EXAMINED":
            known.update(_UNREAD_OBJECT)
        known["command"] = _for_a_copy(known["command"], log_directory)
    name = "" if partition is None else partition.name
    file = "" if path == log_directory else path.name
    return Diagnosis(code, log_directory=str(log_directory), partition=name, file=file, message=message, **known)


def format_command(cluster_id: str = "CLUSTER-ID", *, votes: bool = False) -> str:
    """Returns the command that formats those log directories of a node that are not formatted yet.

    Without the option, it refuses those of a node that `votes` in a dynamic quorum. An id that ZooKeeper's brokers made
    may begin with `-`: as a word of its own the tool would take it for an option.
    """
    option = ("--no-initial-controllers",) if votes else ()
    words = ("format", "--ignore-formatted", *option, f"--cluster-id={cluster_id}", "-c", "server.properties")
    return command_line("kafka-storage.sh", *words)


def apple_double_command(log_directory: Path) -> str:
    """Returns the one command that moves all AppleDouble files (`._NAME`, from copies made by macOS) out of a log
    directory. Files of one name come from many partitions, so the moves number them.
    """
    move = f"mv --backup=numbered -t {ASIDE}"
    return f"find {shell_path(log_directory)}/ -type f -name '._*' -exec {move} {{}} +"


def beside(log_directory: Path, what: str) -> Path:
    """Returns the place beside a log directory for what a command makes: a broker refuses to start on a log directory
    that holds a foreign one.
    """
    if log_directory.name in ("", ".."):  # "." and ".." have no name
        return log_directory / ".." / f"logs.{what}"
    return log_directory.with_name(f"{log_directory.name}.{what}")


def restore_command(aside: Path) -> str:
    """Returns the command that copies a partition that was set aside out of its log directory."""
    return command_line("seglog", "restore", aside, "-o", beside(aside.parent, "restored"))


def _for_a_copy(command: str, log_directory: RemotePath) -> str:
    """Returns what mends a log directory in a store: a command that works on a URL, or the one for a copy on a disk."""
    if command.startswith(TOOLS) and not command.startswith(_ON_URLS):
        return command.replace(str(log_directory), COPY_ON_A_DISK)
    return command


_B, _D, _N = Gravity.BLOCKER, Gravity.DANGER, Gravity.NOTE

UNFORESEEN = "Refuses to start: its code does not handle such a file (NumberFormatException or similar)."

# A mend that begins with one of these is a command.
TOOLS = ("seglog ", "mv ", "sed ", "printf ", "chown ", "chmod ", "cp ", "rm ", "rmdir ", "find ", "kafka-")
_ON_URLS = ("seglog dump ", "seglog txn ")
_UNREAD_OBJECT = {"broker": "Unknown: the store did not show it.", "command": "run the doctor again when it does"}

ASIDE = Path("SOMEWHERE-OUTSIDE-LOG.DIRS")

_REPAIR = "seglog repair {partition}"
_REINDEX = "seglog reindex {partition}"
_SET_ASIDE = f"mv {{path}} {ASIDE}"
_RESTORE = "before the start, copy the files from a replica (seglog replicas) or a backup"
_CHECKPOINTS = "seglog repair --only checkpoint {log_directory}"

_CASES = (
    # --- the log directory
    Case("DIRECTORY_LOCKED", _B, "Refuses to start while another process holds the lock.", "stop that process"),
    Case("BROKER_RUNS", _N, "Runs on this log directory now; another one would not start beside it."),
    Case(
        "DIRECTORY_NOT_GIVEN",
        _N,
        "Has partitions in a log directory that was not examined.",
        "run the doctor again with all log directories of this broker (log.dirs)",
    ),
    Case("DIRECTORY_UNREADABLE", _B, "Takes the log directory offline, and stops if it is its last one.", offline=True),
    Case(
        "NOT_EXAMINED",
        _N,
        "Unknown: this user cannot read it, and nothing shows that the broker's user cannot.",
        "run the doctor again as the broker's user, or as root",
    ),
    Case(
        "ACCESS_DENIED",
        _B,
        "Cannot open it (AccessDeniedException): refuses to start, or takes the log directory offline.",
        "chown -R BROKERS-USER {path}",
        offline=True,
    ),
    Case(
        "NOT_A_FILE",
        _B,
        "Cannot open it (Is a directory, or No such file): refuses to start, or takes the log directory offline.",
        _SET_ASIDE,
        offline=True,
    ),
    Case("STRANGE_DIRECTORY", _B, "Refuses to start: every subdirectory must be a partition.", _SET_ASIDE),
    Case(
        "RUN_UNFINISHED",
        _B,
        "Refuses to start, so that it does not append to a half-finished run of seglog.",
        "seglog repair {log_directory}",
    ),
    Case(
        "META_PROPERTIES_MISSING",
        _B,
        "Refuses to start: all its log directories must be formatted.",
        format_command(),
    ),
    Case("META_PROPERTIES_INVALID", _B, "Refuses to start: it cannot tell which broker owns the directory."),
    Case(
        "ZOOKEEPER_DIRECTORY",
        _N,
        "Its own release starts on it. Kafka 4.0 and later have no ZooKeeper.",
        "before the upgrade, move the cluster to KRaft with Kafka 3.9 (zookeeper.metadata.migration.enable)",
    ),
    Case(
        "ZOOKEEPER_UPGRADE",
        _D,
        "Starts with metadata that do not know its partitions, and renames every one of them to -stray. Migrate the"
        " cluster with Kafka 3.9 (zookeeper.metadata.migration.enable), or rebuild its metadata.",
    ),
    Case(
        "METADATA_VERSION_STAYS",
        _N,
        "Starts, and keeps it until somebody upgrades it. Once that is done, no older release starts any more.",
    ),
    Case(
        "BROKER_KEYS_REMOVED",
        _N,
        "Starts, and goes on without them.",
        "remove them from the file",
    ),
    Case(
        "TOPIC_VALUE_REFUSED",
        _B,
        "Refuses to start: it does not take the value when it loads the logs. Set it while the old release runs.",
    ),
    Case("TOPIC_KEYS_REMOVED", _N, "Starts, and ignores them."),
    Case(
        "OLD_MESSAGE_FORMAT",
        _N,
        "Reads and serves them as they are, and writes format 2 alone.",
    ),
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
        "Treats the whole file as empty: recovery starts at offset 0, and deleted records come back.",
        _CHECKPOINTS,
    ),
    Case("DUPLICATE_PARTITION", _B, "Refuses to start: one partition lies in two log directories.", _SET_ASIDE),
    Case(
        "CLEANER_CHECKPOINT_DUPLICATE",
        _D,
        "The cleaner thread dies on a partition that the cleaner checkpoints of two directories list.",
        "remove the line from the checkpoint of the directory that does not hold the partition",
    ),
    Case("STRAY_PARTITION", _D, "Renames the directory to -stray, or refuses the replica. No longer serves it."),
    Case(
        "MISNAMED_PARTITION",
        _D,
        "Loads it if the topic id is known. The name then breaks the checkpoints, and the next start fails.",
        _SET_ASIDE,
    ),
    Case(
        "FOREIGN_PARTITION",
        _D,
        "Loads it but does not serve it: its topic id belongs to another topic.",
        f"mv {{partition}} {ASIDE}",
    ),
    Case(
        "PARTITION_MISSING",
        _D,
        "Creates an empty log and serves it. A follower fetches everything again; on a leader the records are lost.",
        _RESTORE,
    ),
    Case(
        "STRAY_IN_FAILED_DIRECTORY",
        _B,
        "Refuses to start if the log directory goes offline first: it then cannot rename the stray partition.",
        _SET_ASIDE,
    ),
    Case(
        "PARTITIONS_MADE_ELSEWHERE",
        _D,
        "May create empty logs for them in another log directory, and refuses to start once this one is back.",
        "repair the log directory before the broker starts",
    ),
    Case(
        "FUTURE_BESIDE_PARTITION",
        _B,
        "Refuses to start: it cannot give the copy the partition's name, because that name is taken.",
    ),
    Case("FUTURE_PROMOTED", _D, "Makes this copy the partition, and deletes the other one a minute after it starts."),
    Case("FUTURE_CUT", _D, "Cuts this copy to the end of the partition that it serves, or of a new, empty one."),
    Case("DELETED_HOLDS_RECORDS", _D, "Deletes it a minute after it starts, and serves the partition without it."),
    Case("STRAY_HOLDS_RECORDS", _D, "Does not serve it, and gives its offsets to other records."),
    Case("DELETED_PARTITION", _N, "Deletes it a minute after it starts."),
    Case("SET_ASIDE_PARTITION", _N, "Does not serve it: no client gets its records, and it takes up space."),
    Case(
        "STRAY_UNSERVED",
        _D,
        "Does not serve it, and never deletes it: the topic is not in the cluster's metadata.",
    ),
    # --- the metadata log
    Case(
        "METADATA_MISSING",
        _D,
        "A node that is the only controller begins with empty metadata, and renames every partition to -stray."
        " Beside other controllers it fetches the metadata from them.",
    ),
    Case(
        "METADATA_CUT",
        _D,
        "Cuts the metadata log there. What the later records say is gone, unless another controller has them.",
    ),
    Case(
        "METADATA_REPLACED",
        _N,
        "Drops the log, and begins again after the snapshot.",
    ),
    Case("METADATA_SNAPSHOT_MISSING", _B, "Refuses to start: the beginning of its metadata is gone."),
    Case(
        "METADATA_SNAPSHOT_DAMAGED",
        _D,
        "Does not notice, and takes what is left for the cluster's metadata.",
    ),
    Case("METADATA_RECORD_REFUSED", _B, "Refuses to start: it cannot apply this record."),
    Case("QUORUM_STATE_UNREADABLE", _B, "Refuses to start: it cannot tell which leader it had voted for."),
    Case(
        "NOT_THE_VOTER",
        _B,
        "Waits for a controller, and ends after a minute: this node has no vote, and no other node has one.",
    ),
    Case(
        "VOTERS_UNKNOWN",
        _B,
        "Waits for a controller, and ends after a minute: nobody has a vote.",
        "set controller.quorum.voters=NODE-ID@HOST:PORT instead of controller.quorum.bootstrap.servers",
    ),
    Case(
        "BOOTSTRAP_UNREADABLE",
        _B,
        "Refuses to start: it reads the file also if the metadata log has long begun.",
        "mv {path} {path}.damaged",
    ),
    Case(
        "BOOTSTRAP_PASSED_OVER",
        _D,
        "A controller begins with metadata that knows no topic, and every broker renames its partitions to -stray.",
    ),
    Case("NODE_ID_DIFFERS", _B, "Refuses to start: the directory belongs to another node."),
    Case(
        "METADATA_UNREADABLE",
        _D,
        "The controller cannot replay its log beyond that position.",
        "copy the metadata log from another voter",
    ),
    Case(
        "NO_ROOM",
        _B,
        "Fails when it writes an index (InternalError) or a file (No space left on device). A recovery that cannot"
        " write a snapshot empties the segment that ends there, and deletes those after it.",
    ),
    # --- names in a partition
    Case("STRANGE_SEGMENT_NAME", _B, "Refuses to start: the file's name has no offset.", _SET_ASIDE),
    Case("SHORT_SEGMENT_NAME", _D, "Opens an empty segment beside the file, and does not read the file.", _SET_ASIDE),
    Case("KAFKA_07_LOG", _D, "Ignores `.kafka` files and creates an empty log beside them.", "seglog dump {partition}"),
    Case("LEFTOVER_SETTLED", _N, "Deletes it, or finishes the interrupted swap."),
    Case(
        "SWAP_DAMAGED",
        _D,
        "Replaces good segments with the damaged file, and deletes them.",
        _REPAIR,
    ),
    Case(
        "SWAP_SHORTER",
        _D,
        "Replaces good segments with a file that is empty or ends earlier, and deletes them.",
        _REPAIR,
    ),
    Case("ORPHAN_INDEX", _N, "Deletes the index, because its segment is gone."),
    Case("LEADER_EPOCHS_UNREADABLE", _B, "Takes the log directory offline.", _REPAIR, offline=True),
    Case(
        "PARTITION_METADATA_UNREADABLE",
        _B,
        "Takes the log directory offline.",
        "restore the file from another replica",
        offline=True,
    ),
    # --- starting
    Case("LOAD_FAILS", _B, "Refuses to start: loading the log fails.", _REPAIR),
    Case("LOG_END_UNREADABLE", _B, "Refuses to start: it cannot find the end of the log.", _REPAIR),
    Case("LOG_END_WRONG", _D, "Ends the log too early, and gives the offsets after that to other records.", _REINDEX),
    Case("TAIL_STAYS", _D, "Keeps these bytes. What it appends after them cannot be read.", _REPAIR),
    Case(
        "SNAPSHOT_UNWRITABLE",
        _D,
        "Takes the error for damage: empties the segment that ends there, and deletes those after it.",
        _SET_ASIDE,
    ),
    Case("RECOVERY_CUTS", _D, "Cuts the segment there. Everything after that position is lost.", _REPAIR),
    Case("RECOVERY_CUTS_ZEROS", _N, "Cuts preallocated zeros off. No record is in them."),
    Case("RECOVERY_DROPS_SEGMENTS", _D, "Deletes every segment after the damage, including good ones.", _REPAIR),
    Case("LOG_DROPPED", _D, "Deletes the whole log, because it ends below its checkpointed start.", _CHECKPOINTS),
    Case("SEGMENT_HOLE", _D, "Cuts this one segment and keeps later ones: the offsets have a hole.", _REPAIR),
    Case("SEGMENT_RECOVERED", _N, "Rebuilds the segment's indexes at start."),
    # --- indexes under a clean marker
    Case(
        "TIME_INDEX_PADDED",
        _D,
        "Takes 0 for the segment's largest timestamp, and retention by time deletes the segment at once.",
        _REINDEX,
    ),
    Case(
        "INDEX_PADDED",
        _D,
        "Counts the zeros as entries: the index is full, and the next roll may fail, but not that of an empty segment.",
        _REINDEX,
    ),
    Case(
        "TIME_INDEX_MISSING",
        _D,
        "Creates an empty one: retention and search by time then use the file's modification time.",
        _REINDEX,
    ),
    Case("INDEX_TRUSTED", _D, "Does not check indexes at start: reads and retention go wrong.", _REINDEX),
    Case("INDEX_TOO_LARGE", _B, "Refuses to start: the rebuilt index would exceed segment.index.bytes."),
    Case("ABORTED_EXPOSED", _D, "Serves aborted records as committed, or hides committed ones.", _REINDEX),
    # --- what is gone
    Case("LOG_MISSING", _D, "Creates an empty log and serves it.", _RESTORE),
    Case("SEGMENT_MISSING", _D, "Does not notice. Readers skip these offsets silently.", _RESTORE),
    Case("LOG_END_MISSING", _D, "Takes the end that it finds, and gives these offsets to other records.", _RESTORE),
    Case(
        "COMMITTED_BEYOND_END",
        _N,
        "Serves the log as it is. A consumer that begins at such an offset goes where its auto.offset.reset says.",
    ),
    # --- what the data holds
    Case("DAMAGE_SERVED", _D, "Does not notice at start. Readers and followers fail there.", _REPAIR),
    Case("CLEANER_LAUNDERS", _D, "The cleaner gives the damaged batch a new, valid checksum.", _REPAIR),
    Case("CLEANER_FAILS", _D, "The cleaner stops work on the partition until a restart, retention included.", _REPAIR),
    Case(
        "STATE_DELETED",
        _D,
        "Deletes old segments by age or size, and the state in them. The program that keeps it there may refuse the"
        " topic.",
    ),
    Case(
        "CLEANER_DROPS",
        _D,
        "The cleaner deletes records without a key, from 15 seconds after the start on. To keep them, start with"
        " log.cleaner.enable=false, change cleanup.policy, and restart without it.",
    ),
    Case(
        "SNAPSHOT_MISSING",
        _D,
        "Fails to copy the segment before it to remote storage, and tries for ever: nothing after it is copied either.",
        _REINDEX,
    ),
    Case("SNAPSHOT_LOST", _D, "Forgets all producers: may store retries twice.", _REINDEX),
    Case("SNAPSHOT_IGNORED", _N, "Deletes the snapshot and replays the log from an older one."),
    Case("SNAPSHOT_TRUSTED", _D, "Trusts the snapshot: may store duplicates or refuse good batches.", _REINDEX),
    Case("EPOCHS_WRONG", _D, "Followers may truncate to the wrong offset.", _REPAIR),
    Case("HEADER_ODD", _N, "Serves it as it is."),
    Case(
        "TRANSACTION_HANGING",
        _D,
        "Consumers with read_committed and the cleaner stop at this offset for ever.",
        "seglog txn {partition} abort-cmd",
    ),
    Case("TRANSACTION_OPEN", _N, "The transaction coordinator ends it, or aborts it when it times out."),
    Case("CHANGED_WHILE_READ", _N, "Continues its work."),
    Case("CHECKPOINT_BEYOND", _N, "Corrects the checkpoint at start."),
)

CASES: dict[str, Case] = {case.code: case for case in _CASES}
