"""What doctor says of the log directories that a broker has beside those that were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seglog.format.uuids import format_uuid
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from tests.support.command_line import json_lines, run
from tests.support.lost_clusters import TOPIC_IDS, broker_directory, directory_id
from tests.support.metadata_records import write_metadata_log


def replica(number: int, directory: int) -> bytes:
    """A partition of `orders` on broker 1, in one of its log directories."""
    fields = {"partitionId": number, "topicId": format_uuid(TOPIC_IDS["orders"]), "replicas": [1], "isr": [1]}
    fields |= {"removingReplicas": [], "addingReplicas": [], "leader": 1, "leaderEpoch": 0, "partitionEpoch": 0}
    return encode_metadata_record(
        "PARTITION_RECORD", {**fields, "directories": [format_uuid(directory_id(1, directory))]}
    )


def not_given(*paths: Path) -> list[dict[str, Any]]:
    return [row for row in json_lines(run("doctor", "--json", *paths)) if row.get("code") == "DIRECTORY_NOT_GIVEN"]


def test_doctor_says_which_log_directories_of_the_broker_were_not_given(tmp_path: Path) -> None:
    disks = [
        broker_directory(tmp_path / f"d{i}", 1, {f"orders-{n}": [0] for n in numbers}, number=i)
        for i, numbers in enumerate(([0], [1, 2], [3]))
    ]
    topic = encode_metadata_record("TOPIC_RECORD", {"name": "orders", "topicId": format_uuid(TOPIC_IDS["orders"])})
    write_metadata_log(disks[0], [topic, replica(0, 0), replica(1, 1), replica(2, 1), replica(3, 2)])
    ids = [format_uuid(directory_id(1, number)) for number in range(3)]
    told = [(row["count"], row["severity"], row["message"]) for row in not_given(disks[0])]
    assert [(count, severity) for count, severity, _ in told] == [(2, "note"), (1, "note")]
    assert ids[1] in told[0][2] and ids[2] in told[1][2]
    assert not_given(*disks) == []
