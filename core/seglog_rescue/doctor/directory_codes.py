"""The codes of diagnoses about a log directory and its metadata log."""

from __future__ import annotations

from seglog.verification.codes import ASIDE, COPY_OR_REBUILD, REBUILD, Severity
from seglog_rescue.doctor.mends import (
    CHECKPOINTS,
    NAMED_BY_DOCTOR,
    RESTORE_FIRST,
    RESTORED,
    SET_ASIDE,
    case,
    format_command,
)

_B, _D, _N = Severity.BLOCKER, Severity.DANGER, Severity.NOTE

DIRECTORY_CODES = (
    # --- the log directory
    case("DIRECTORY_LOCKED", _B, "Refuses to start while another process holds the lock.", "stop that process"),
    case("BROKER_RUNS", _N, "Runs on this log directory now; another one would not start beside it."),
    case(
        "DIRECTORY_NOT_GIVEN",
        _N,
        "Has partitions in a log directory that was not examined.",
        "run the doctor again with all log directories of this broker (log.dirs)",
    ),
    case(
        "DIRECTORY_UNREADABLE",
        _B,
        "Takes the log directory offline, and stops if it is its last one.",
        offline=True,
        mend="make the disk or directory readable, or take it out of log.dirs",
    ),
    case(
        "NOT_EXAMINED",
        _N,
        "Unknown: this user cannot read it, and nothing shows that the broker's user cannot.",
        "run the doctor again as the broker's user, or as root",
    ),
    case(
        "ACCESS_DENIED",
        _B,
        "Cannot open it (AccessDeniedException): refuses to start, or takes the log directory offline.",
        "chown -R BROKERS-USER {path}",
        offline=True,
    ),
    case(
        "NOT_A_FILE",
        _B,
        "Cannot open it (Is a directory, or No such file): refuses to start, or takes the log directory offline.",
        SET_ASIDE,
        offline=True,
    ),
    case("STRANGE_DIRECTORY", _B, "Refuses to start: every subdirectory must be a partition.", SET_ASIDE),
    case(
        "RUN_UNFINISHED",
        _B,
        "Refuses to start, so that it does not append to a half-finished run of seglog.",
        "seglog repair {log_directory}",
    ),
    case(
        "META_PROPERTIES_MISSING", _B, "Refuses to start: all its log directories must be formatted.", format_command()
    ),
    case(
        "META_PROPERTIES_INVALID",
        _B,
        "Refuses to start: it cannot tell which broker owns the directory.",
        mend=f"write the lines that are wrong as another directory of the broker has them; {NAMED_BY_DOCTOR}",
    ),
    case(
        "ZOOKEEPER_DIRECTORY",
        _N,
        "Its own release starts on it. Kafka 4.0 and later have no ZooKeeper.",
        "before the upgrade, move the cluster to KRaft with Kafka 3.9 (zookeeper.metadata.migration.enable)",
    ),
    case(
        "ZOOKEEPER_UPGRADE",
        _D,
        "Starts with metadata that do not know its partitions, and renames every one of them to -stray. Migrate the"
        " cluster with Kafka 3.9 (zookeeper.metadata.migration.enable), or rebuild its metadata.",
        mend=f"migrate with Kafka 3.9, or {REBUILD}",
    ),
    case(
        "METADATA_VERSION_STAYS",
        _N,
        "Starts, and keeps it until somebody upgrades it. Once that is done, no older release starts any more.",
        mend="kafka-features.sh upgrade --release-version, once no older release is needed",
    ),
    case("BROKER_KEYS_REMOVED", _N, "Starts, and goes on without them.", "remove them from the file"),
    case(
        "TOPIC_VALUE_REFUSED",
        _B,
        "Refuses to start: it does not take the value when it loads the logs. Set it while the old release runs.",
        mend="kafka-configs.sh --alter for that topic, while the old release runs",
    ),
    case("TOPIC_KEYS_REMOVED", _N, "Starts, and ignores them."),
    case("OLD_MESSAGE_FORMAT", _N, "Reads and serves them as they are, and writes format 2 alone."),
    case(
        "META_PROPERTIES_DIFFER",
        _B,
        "Refuses to start: its log directories must agree on cluster and node.",
        mend="take out of log.dirs the directory that belongs to another cluster or broker",
    ),
    case(
        "CHECKPOINT_UNREADABLE",
        _B,
        "Takes the log directory offline when it reads the file, and stops if it is its last one.",
        CHECKPOINTS,
        offline=True,
    ),
    case(
        "CHECKPOINT_IGNORED",
        _D,
        "Treats the whole file as empty: recovery starts at offset 0, and deleted records come back.",
        CHECKPOINTS,
    ),
    case("DUPLICATE_PARTITION", _B, "Refuses to start: one partition lies in two log directories.", SET_ASIDE),
    case(
        "CLEANER_CHECKPOINT_DUPLICATE",
        _D,
        "The cleaner thread dies on a partition that the cleaner checkpoints of two directories list.",
        "remove the line from the checkpoint of the directory that does not hold the partition",
    ),
    case(
        "STRAY_PARTITION",
        _D,
        "Renames the directory to -stray, or refuses the replica. No longer serves it.",
        mend=RESTORED,
    ),
    case(
        "MISNAMED_PARTITION",
        _D,
        "Loads it if the topic id is known. The name then breaks the checkpoints, and the next start fails.",
        SET_ASIDE,
    ),
    case(
        "FOREIGN_PARTITION",
        _D,
        "Loads it but does not serve it: its topic id belongs to another topic.",
        f"mv {{partition}} {ASIDE}",
    ),
    case(
        "PARTITION_MISSING",
        _D,
        "Creates an empty log and serves it. A follower fetches everything again; on a leader the records are lost.",
        RESTORE_FIRST,
    ),
    case(
        "STRAY_IN_FAILED_DIRECTORY",
        _B,
        "Refuses to start if the log directory goes offline first: it then cannot rename the stray partition.",
        SET_ASIDE,
    ),
    case(
        "PARTITIONS_MADE_ELSEWHERE",
        _D,
        "May create empty logs for them in another log directory, and refuses to start once this one is back.",
        "repair the log directory before the broker starts",
    ),
    case(
        "FUTURE_BESIDE_PARTITION",
        _B,
        "Refuses to start: it cannot give the copy the partition's name, because that name is taken.",
        mend=f"mv one of the two directories to {ASIDE}: the one that ends earlier",
    ),
    case(
        "FUTURE_PROMOTED",
        _D,
        "Makes this copy the partition, and deletes the other one a minute after it starts.",
        mend=f"if the other copy is better, mv this one to {ASIDE}",
    ),
    case(
        "FUTURE_CUT",
        _D,
        "Cuts this copy to the end of the partition that it serves, or of a new, empty one.",
        mend=f"if this copy is longer, mv it to {ASIDE} before the broker starts, then {RESTORED}",
    ),
    case(
        "DELETED_HOLDS_RECORDS",
        _D,
        "Deletes it a minute after it starts, and serves the partition without it.",
        mend=f"copy the directory away before the broker starts, then {RESTORED}",
    ),
    case("STRAY_HOLDS_RECORDS", _D, "Does not serve it, and gives its offsets to other records.", mend=RESTORED),
    case("DELETED_PARTITION", _N, "Deletes it a minute after it starts."),
    case("SET_ASIDE_PARTITION", _N, "Does not serve it: no client gets its records, and it takes up space."),
    case(
        "STRAY_UNSERVED",
        _D,
        "Does not serve it, and never deletes it: the topic is not in the cluster's metadata.",
        mend=RESTORED,
    ),
    # --- the metadata log
    case(
        "METADATA_MISSING",
        _D,
        "A node that is the only controller begins with empty metadata, and renames every partition to -stray."
        " Beside other controllers it fetches the metadata from them.",
        mend=REBUILD,
    ),
    case(
        "METADATA_CUT",
        _D,
        "Cuts the metadata log there. What the later records say is gone, unless another controller has them.",
        mend=COPY_OR_REBUILD,
    ),
    case("METADATA_REPLACED", _N, "Drops the log, and begins again after the snapshot."),
    case(
        "METADATA_SNAPSHOT_MISSING",
        _B,
        "Refuses to start: the beginning of its metadata is gone.",
        mend=COPY_OR_REBUILD,
    ),
    case(
        "METADATA_SNAPSHOT_DAMAGED",
        _D,
        "Does not notice, and takes what is left for the cluster's metadata.",
        mend=COPY_OR_REBUILD,
    ),
    case(
        "METADATA_RECORD_REFUSED",
        _B,
        "Refuses to start: it cannot apply this record.",
        mend=f"start the release that wrote it, or {REBUILD}",
    ),
    case(
        "QUORUM_STATE_UNREADABLE",
        _B,
        "Refuses to start: it cannot tell which leader it had voted for.",
        mend=f"mv the file to {ASIDE}: the node then votes anew",
    ),
    case(
        "NOT_THE_VOTER",
        _B,
        "Waits for a controller, and ends after a minute: this node has no vote, and no other node has one.",
        mend=f"write the voter's directory.id into meta.properties; {NAMED_BY_DOCTOR}",
    ),
    case(
        "VOTERS_UNKNOWN",
        _B,
        "Waits for a controller, and ends after a minute: nobody has a vote.",
        "set controller.quorum.voters=NODE-ID@HOST:PORT instead of controller.quorum.bootstrap.servers",
    ),
    case(
        "BOOTSTRAP_UNREADABLE",
        _B,
        "Refuses to start: it reads the file also if the metadata log has long begun.",
        "mv {path} {path}.damaged",
    ),
    case(
        "BOOTSTRAP_PASSED_OVER",
        _D,
        "A controller begins with metadata that knows no topic, and every broker renames its partitions to -stray.",
        mend=f"put the snapshot with the topics where the release reads it; {NAMED_BY_DOCTOR}",
    ),
    case(
        "NODE_ID_DIFFERS",
        _B,
        "Refuses to start: the directory belongs to another node.",
        mend="set node.id in server.properties, or log.dirs to the directories of this node",
    ),
    case(
        "METADATA_UNREADABLE",
        _D,
        "The controller cannot replay its log beyond that position.",
        "copy the metadata log from another voter",
    ),
    case(
        "NO_ROOM",
        _B,
        "Fails when it writes an index (InternalError) or a file (No space left on device). A recovery that cannot"
        " write a snapshot empties the segment that ends there, and deletes those after it.",
        mend="seglog retain --free SIZE LOGDIR; seglog doctor LOGDIR computes the size",
    ),
)
