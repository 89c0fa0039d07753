"""Whether an election is held by hand where the controller may pass over the broker that registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.format.uuids import format_uuid
from seglog_rescue.operations.replicas import step_lines
from tests.support.lost_clusters import TOPIC_IDS, broker_directory, registration, topic_records
from tests.support.metadata_records import metadata_record, write_metadata_log
from tests.unit.rescue.replicas.test_comparison import report_of


@pytest.mark.parametrize("is_there", [False, True])
def test_an_election_by_hand_keeps_an_eligible_broker_without_its_copy_from_leading(
    tmp_path: Path, is_there: bool
) -> None:
    """In seed 47 the controller passed over broker 3, and took broker 2, whose disk was lost. With its copy that broker
    is the better one, and worth waiting for."""
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 5, "clicks-0": [0] * 30})
    two = broker_directory(tmp_path / "2", 2, {"clicks-0": [0]} | ({"orders-0": [0] * 12} if is_there else {}))
    three = broker_directory(tmp_path / "3", 3, {"orders-0": [0] * 10, "clicks-0": [0]})
    config = {"resourceType": 2, "resourceName": "clicks", "name": "unclean.leader.election.enable", "value": "true"}
    change = {"partitionId": 0, "topicId": format_uuid(TOPIC_IDS["orders"]), "leader": -1}
    records = [
        *map(registration, (1, 2, 3)),
        *topic_records("orders", [[1, 3, 2]], isr=[2]),
        *topic_records("clicks", [[1, 2, 3]], isr=[1]),
        metadata_record("CONFIG_RECORD", **config),
        metadata_record("PARTITION_CHANGE_RECORD", 2, **change, isr=[], eligibleLeaderReplicas=[2, 3]),
    ]
    write_metadata_log(one, records)
    report = report_of(one, two, three)
    start = report.start
    assert (start.order[0], "orders-0" in start.in_question) == (1, True)
    said = [line for line in step_lines(report) if "orders-0: this order" in line]
    if is_there:
        assert (start.leaders["orders-0"], start.elected) == (3, {})
        assert "may make broker 3 its leader instead of 2, and lose 2 offsets" in said[0]
    else:
        assert (start.order, start.leaders["orders-0"], start.elected) == ((1, 3, 2), 1, {3: ["orders-0"]})
        assert "may make broker 1 its leader instead of 3, and lose 5 offsets" in said[0]
