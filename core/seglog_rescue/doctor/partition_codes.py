"""The codes of diagnoses about a partition: its files, its start, its indexes, and what its data holds."""

from __future__ import annotations

from seglog.verification.codes import Severity
from seglog_rescue.doctor.mends import CHECKPOINTS, REINDEX, REPAIR, RESTORE_FIRST, SET_ASIDE, case

_B, _D, _N = Severity.BLOCKER, Severity.DANGER, Severity.NOTE

PARTITION_CODES = (
    # --- names in a partition
    case("STRANGE_SEGMENT_NAME", _B, "Refuses to start: the file's name has no offset.", SET_ASIDE),
    case("SHORT_SEGMENT_NAME", _D, "Opens an empty segment beside the file, and does not read the file.", SET_ASIDE),
    case("KAFKA_07_LOG", _D, "Ignores `.kafka` files and creates an empty log beside them.", "seglog dump {partition}"),
    case("LEFTOVER_SETTLED", _N, "Deletes it, or finishes the interrupted swap."),
    case("SWAP_DAMAGED", _D, "Replaces good segments with the damaged file, and deletes them.", REPAIR),
    case(
        "SWAP_SHORTER",
        _D,
        "Replaces good segments with a file that is empty or ends earlier, and deletes them.",
        REPAIR,
    ),
    case("ORPHAN_INDEX", _N, "Deletes the index, because its segment is gone."),
    case("LEADER_EPOCHS_UNREADABLE", _B, "Takes the log directory offline.", REPAIR, offline=True),
    case(
        "PARTITION_METADATA_UNREADABLE",
        _B,
        "Takes the log directory offline.",
        "restore the file from another replica",
        offline=True,
    ),
    # --- starting
    case("LOAD_FAILS", _B, "Refuses to start: loading the log fails.", REPAIR),
    case("LOG_END_UNREADABLE", _B, "Refuses to start: it cannot find the end of the log.", REPAIR),
    case("LOG_END_WRONG", _D, "Ends the log too early, and gives the offsets after that to other records.", REINDEX),
    case("TAIL_STAYS", _D, "Keeps these bytes. What it appends after them cannot be read.", REPAIR),
    case(
        "SNAPSHOT_UNWRITABLE",
        _D,
        "Takes the error for damage: empties the segment that ends there, and deletes those after it.",
        SET_ASIDE,
    ),
    case("RECOVERY_CUTS", _D, "Cuts the segment there. Everything after that position is lost.", REPAIR),
    case("RECOVERY_CUTS_ZEROS", _N, "Cuts preallocated zeros off. No record is in them."),
    case("RECOVERY_DROPS_SEGMENTS", _D, "Deletes every segment after the damage, including good ones.", REPAIR),
    case("LOG_DROPPED", _D, "Deletes the whole log, because it ends below its checkpointed start.", CHECKPOINTS),
    case("SEGMENT_HOLE", _D, "Cuts this one segment and keeps later ones: the offsets have a hole.", REPAIR),
    case("SEGMENT_RECOVERED", _N, "Rebuilds the segment's indexes at start."),
    # --- indexes under a clean marker
    case(
        "TIME_INDEX_PADDED",
        _D,
        "Takes 0 for the segment's largest timestamp, and retention by time deletes the segment at once.",
        REINDEX,
    ),
    case(
        "INDEX_PADDED",
        _D,
        "Counts the zeros as entries: the index is full, and the next roll may fail, but not that of an empty segment.",
        REINDEX,
    ),
    case(
        "TIME_INDEX_MISSING",
        _D,
        "Creates an empty one: retention and search by time then use the file's modification time.",
        REINDEX,
    ),
    case("INDEX_TRUSTED", _D, "Does not check indexes at start: reads and retention go wrong.", REINDEX),
    case(
        "INDEX_TOO_LARGE",
        _B,
        "Refuses to start: the rebuilt index would exceed segment.index.bytes.",
        mend="raise segment.index.bytes of the topic; seglog doctor LOGDIR computes how far",
    ),
    case("ABORTED_EXPOSED", _D, "Serves aborted records as committed, or hides committed ones.", REINDEX),
    # --- what is gone
    case("LOG_MISSING", _D, "Creates an empty log and serves it.", RESTORE_FIRST),
    case("SEGMENT_MISSING", _D, "Does not notice. Readers skip these offsets silently.", RESTORE_FIRST),
    case(
        "LOG_END_MISSING", _D, "Takes the end that it finds, and gives these offsets to other records.", RESTORE_FIRST
    ),
    case(
        "COMMITTED_BEYOND_END",
        _N,
        "Serves the log as it is. A consumer that begins at such an offset goes where its auto.offset.reset says.",
    ),
    # --- what the data holds
    case("DAMAGE_SERVED", _D, "Does not notice at start. Readers and followers fail there.", REPAIR),
    case("CLEANER_LAUNDERS", _D, "The cleaner gives the damaged batch a new, valid checksum.", REPAIR),
    case("CLEANER_FAILS", _D, "The cleaner stops work on the partition until a restart, retention included.", REPAIR),
    case(
        "STATE_DELETED",
        _D,
        "Deletes old segments by age or size, and the state in them. The program that keeps it there may refuse the"
        " topic.",
        mend="set cleanup.policy=compact for the topic (kafka-configs.sh) when the broker runs",
    ),
    case(
        "CLEANER_DROPS",
        _D,
        "The cleaner deletes records without a key, from 15 seconds after the start on. To keep them, start with"
        " log.cleaner.enable=false, change cleanup.policy, and restart without it.",
        mend="start with log.cleaner.enable=false, set another cleanup.policy (kafka-configs.sh), and restart",
    ),
    case(
        "SNAPSHOT_MISSING",
        _D,
        "Fails to copy the segment before it to remote storage, and tries for ever: nothing after it is copied either.",
        REINDEX,
    ),
    case("SNAPSHOT_LOST", _D, "Forgets all producers: may store retries twice.", REINDEX),
    case("SNAPSHOT_IGNORED", _N, "Deletes the snapshot and replays the log from an older one."),
    case("SNAPSHOT_TRUSTED", _D, "Trusts the snapshot: may store duplicates or refuse good batches.", REINDEX),
    case("EPOCHS_WRONG", _D, "Followers may truncate to the wrong offset.", REPAIR),
    case("HEADER_ODD", _N, "Serves it as it is."),
    case(
        "TRANSACTION_HANGING",
        _D,
        "Consumers with read_committed and the cleaner stop at this offset for ever.",
        "seglog txn {partition} abort-cmd",
    ),
    case("TRANSACTION_OPEN", _N, "The transaction coordinator ends it, or aborts it when it times out."),
    case("CHANGED_WHILE_READ", _N, "Continues its work."),
    case("CHECKPOINT_BEYOND", _N, "Corrects the checkpoint at start."),
)
