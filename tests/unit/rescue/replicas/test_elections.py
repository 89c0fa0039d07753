"""Whether an election is held by hand where the controller may pass over the broker that registers."""

from __future__ import annotations

import subprocess
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
        assert (start.in_question["orders-0"], start.late) == ((2, 3), {"orders-0": (1,)})
        (late,) = [line for line in step_lines(report) if "election-late-without-1.json" in line]
        assert late.startswith("if kafka-topics --bootstrap-server ") and "stop broker 1, set BOOTSTRAP" in late
        assert subprocess.run(["bash", "-n"], input=late, text=True, check=False).returncode == 0
        assert "may make broker 3 its leader instead of 2, and lose 2 offsets" in said[0]
    else:
        assert (start.order, start.leaders["orders-0"], start.elected) == ((1, 3, 2), 1, {3: ["orders-0"]})
        assert "may make broker 1 its leader instead of 3, and lose 5 offsets" in said[0]


def test_where_the_controller_may_elect_nobody_a_line_elects_when_all_brokers_run(tmp_path: Path) -> None:
    """Broker 3 or broker 2 may be passed over when it registers anew; the best copy is the first of its assignment."""
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 5, "clicks-0": [0] * 30})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 12, "clicks-0": [0], "clicks-1": [0]})
    three = broker_directory(tmp_path / "3", 3, {"orders-0": [0] * 10, "clicks-0": [0], "clicks-1": [0] * 30})
    config = {"resourceType": 2, "resourceName": "clicks", "name": "unclean.leader.election.enable", "value": "true"}
    change = {"partitionId": 0, "topicId": format_uuid(TOPIC_IDS["orders"]), "leader": -1}
    records = [
        *map(registration, (1, 2, 3)),
        *topic_records("orders", [[2, 1, 3]], isr=[2]),
        *topic_records("clicks", [[1, 2, 3], [3, 2]], isr=[1, 3]),
        metadata_record("CONFIG_RECORD", **config),
        metadata_record("PARTITION_CHANGE_RECORD", 2, **change, isr=[], eligibleLeaderReplicas=[2, 3]),
    ]
    write_metadata_log(one, records)
    report = report_of(one, two, three)
    assert (report.start.order, report.start.late) == ((1, 3, 2), {"orders-0": ()})
    lines = list(step_lines(report))
    late = next(number for number, line in enumerate(lines) if line.endswith(" election-late.json"))
    assert lines[late].startswith("kafka-leader-election ")
    assert max(number for number, line in enumerate(lines) if ": start broker " in line) < late


def test_a_broker_without_a_copy_of_a_topic_with_unclean_elections_starts_later(tmp_path: Path) -> None:
    """Nobody else is in sync, so its only copy agrees with all that is asked for; any other broker would lead first."""
    one = broker_directory(tmp_path / "1", 1, {"clicks-0": [0] * 3})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 12, "clicks-0": [0] * 3})
    config = {"resourceType": 2, "resourceName": "orders", "name": "unclean.leader.election.enable", "value": "true"}
    records = [
        *map(registration, (1, 2)),
        *topic_records("orders", [[1, 2]], isr=[2]),
        *topic_records("clicks", [[1, 2]]),
    ]
    write_metadata_log(one, records)
    assert report_of(one, two).in_question == ()
    write_metadata_log(one, [*records, metadata_record("CONFIG_RECORD", **config)])
    report = report_of(one, two)
    (verdict,) = report.in_question
    assert verdict.remarks == (
        "unclean.leader.election.enable is on, and broker 1 has no copy of it: one without a copy that starts before"
        " broker 2 leads, and all is lost",
    )
    assert (report.start.order, report.start.leaders, report.start.elected) == ((2, 1), {"orders-0": 2}, {})


def test_no_line_elects_a_leader_of_a_topic_that_the_controllers_do_not_know(tmp_path: Path) -> None:
    """They were backed up before the brokers, and `clicks` was made in between: the line would fail."""
    partitions = {"orders-0": [0] * 3, "clicks-0": [0] * 3}
    one = broker_directory(tmp_path / "1", 1, partitions)
    two = broker_directory(tmp_path / "2", 2, {name: [*epochs, 0] for name, epochs in partitions.items()})
    controller = broker_directory(tmp_path / "9", 9, {})
    before = [*map(registration, (1, 2)), *topic_records("orders", [[1, 2]], isr=[1])]
    write_metadata_log(controller, before)
    write_metadata_log(one, [*before, *topic_records("clicks", [[1, 2]], isr=[1])])
    report = report_of(one, two, controller)
    assert "orders-0" in report.start.leaders and "clicks-0" not in report.start.leaders
    assert not any("clicks" in step.contents + step.why + "".join(step.lines) for step in report.steps)
    (remark,) = [each for each in report.cluster.remarks if "set aside as strays" in each]
    assert "it has no clicks: " in remark
    write_metadata_log(one, before)  # or it was deleted after the brokers had been backed up
    assert (again := report_of(one, two, controller)).cluster.unknown == {"clicks"}
    assert not any("clicks" in step.contents for step in again.steps)
    write_metadata_log(controller, [*before, *topic_records("clicks", [[1, 2]], isr=[1])])
    report = report_of(one, two, controller)
    assert "clicks-0" in report.start.leaders and any("clicks-0" in step.why for step in report.steps)
    assert not any("set aside" in each for each in report.cluster.remarks)
