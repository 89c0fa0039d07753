"""What mends a finding or a diagnosis, in general words, where no command in a table says it.

`doctor` computes the very command of such a diagnosis from the state that it meets: a cluster id, a size, a topic.
"""

from __future__ import annotations

from seglog.verification.finding_codes import CODES, Severity
from seglog_rescue.doctor.cases import ASIDE, CASES, Gravity

NOT_NEEDED = "none is needed"
_DOCTOR = "seglog doctor LOGDIR names the command"
_RESTORE = "seglog restore PATH -o NEW, and seglog transplant NEW --into LOGDIR"
_REBUILD = "seglog rebuild LOGDIR… -o DIR with all log directories of all brokers, or another voter's metadata log"
_COPY_OR_REBUILD = f"copy the directory from another voter, or {_REBUILD}"

_MENDS = {
    "DIRECTORY_UNREADABLE": "make the disk or directory readable, or take it out of log.dirs",
    "META_PROPERTIES_INVALID": f"write the lines that are wrong as another directory of the broker has them; {_DOCTOR}",
    "META_PROPERTIES_DIFFER": "take out of log.dirs the directory that belongs to another cluster or broker",
    "ZOOKEEPER_UPGRADE": f"migrate with Kafka 3.9, or {_REBUILD}",
    "METADATA_VERSION_STAYS": "kafka-features.sh upgrade --release-version, once no older release is needed",
    "TOPIC_VALUE_REFUSED": "kafka-configs.sh --alter for that topic, while the old release runs",
    "STRAY_PARTITION": _RESTORE,
    "FUTURE_BESIDE_PARTITION": f"mv one of the two directories to {ASIDE}: the one that ends earlier",
    "FUTURE_PROMOTED": f"if the other copy is better, mv this one to {ASIDE}",
    "FUTURE_CUT": f"if this copy is longer, mv it to {ASIDE} before the broker starts, then {_RESTORE}",
    "DELETED_HOLDS_RECORDS": f"copy the directory away before the broker starts, then {_RESTORE}",
    "STRAY_HOLDS_RECORDS": _RESTORE,
    "STRAY_UNSERVED": _RESTORE,
    "METADATA_MISSING": _REBUILD,
    "METADATA_CUT": _COPY_OR_REBUILD,
    "METADATA_SNAPSHOT_MISSING": _COPY_OR_REBUILD,
    "METADATA_SNAPSHOT_DAMAGED": _COPY_OR_REBUILD,
    "METADATA_RECORD_REFUSED": f"start the release that wrote it, or {_REBUILD}",
    "BOOTSTRAP_PASSED_OVER": f"put the snapshot with the topics where the release reads it; {_DOCTOR}",
    "QUORUM_STATE_UNREADABLE": f"mv the file to {ASIDE}: the node then votes anew",
    "NOT_THE_VOTER": f"write the voter's directory.id into meta.properties; {_DOCTOR}",
    "NODE_ID_DIFFERS": "set node.id in server.properties, or log.dirs to the directories of this node",
    "STATE_DELETED": "set cleanup.policy=compact for the topic (kafka-configs.sh) when the broker runs",
    "CLEANER_DROPS": "start with log.cleaner.enable=false, set another cleanup.policy (kafka-configs.sh), and restart",
    "NO_ROOM": "seglog retain --free SIZE LOGDIR; seglog doctor LOGDIR computes the size",
    "INDEX_TOO_LARGE": "raise segment.index.bytes of the topic; seglog doctor LOGDIR computes how far",
    # --- findings alone
    "PARTITION_MISSING": "copy the partition from another replica or a backup before the start (seglog replicas)",
    "CHECKPOINT_CORRUPT": "seglog repair --only checkpoint LOGDIR",
    "METADATA_SNAPSHOT_CORRUPT": _COPY_OR_REBUILD,
    "CHECKPOINT_BEYOND_LOG": "none is needed at a start; seglog repair --only checkpoint LOGDIR",
    "TRANSACTION_STATE_INVALID": "seglog repair PATH",
    "PRODUCER_INVALID": "none: the record stays as its producer wrote it",
    "TIMESTAMP_NEGATIVE": "seglog clean PARTITION where Kafka's cleaner fails on it; else none is needed",
    "RECORD_TIMESTAMP_ABOVE_MAX": "none is needed for reading; searches by time may pass the record",
    "STRANGE_FILE": f"mv PATH {ASIDE}",
    "SEGMENT_GAP_07": "copy the missing segment from another replica or a backup",
    "UNREADABLE_FILE": "make the file readable, or copy it from another replica or a backup",
}


def general_mend(code: str) -> str:
    """Returns what mends a diagnosis or finding whose table entry names no command.

    Raises KeyError for a code that needs a mend and has none here.
    """
    mild = code in CASES and CASES[code].gravity is Gravity.NOTE
    mild = mild or (code in CODES and CODES[code].severity is Severity.INFO)
    return _MENDS.get(code, NOT_NEEDED) if mild else _MENDS[code]
