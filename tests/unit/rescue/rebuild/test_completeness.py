"""A set of log directories that lacks some of the cluster's is refused by name, and goes on only where that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from seglog.clock import FixedClock
from seglog.errors import Obstacles, RefusedError
from seglog.format.checkpoint import MetaProperties, format_meta_properties
from seglog.format.uuids import format_uuid
from seglog.storage.local import LocalFileSystem
from seglog_rescue.operations.rebuild import RebuildRequest, plan_rebuild
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record
from seglog_rescue.rebuild.plan import PlannedPartition, RebuildPlan
from tests.support.lost_clusters import CLUSTER, TOPIC_IDS, broker_directory, directory_id, registration, topic_records
from tests.support.metadata_records import write_metadata_log


def plan(*directories: Path, **more: Any) -> RebuildPlan:
    request = RebuildRequest(list(directories), **more)
    return plan_rebuild(LocalFileSystem(), FixedClock(1000), request, new_id=lambda: UUID(int=1 << 100))


def change(number: int, **fields: Any) -> bytes:
    topic = format_uuid(TOPIC_IDS["orders"])
    return encode_metadata_record("PARTITION_CHANGE_RECORD", {"partitionId": number, "topicId": topic, **fields})


def only(found: RebuildPlan) -> PlannedPartition:
    (topic,) = found.topics
    (partition,) = topic.partitions
    return partition


def test_a_broker_that_went_on_alone_is_missed_by_the_stale_copy_of_the_one_that_died_first(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0]})
    write_metadata_log(one, [registration(1), registration(2), *topic_records("orders", [[1, 2]])])
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0, 1, 1]})
    with pytest.raises(RefusedError) as refused:
        plan(one)
    said = str(refused.value)
    assert f"no log directory of broker 2 is given (directory.id {format_uuid(directory_id(2))})" in said
    assert "1 replica (orders-0), 1 of them in sync" in said and "--without 2" in said
    whole = plan(one, two)
    assert (only(whole).leader, only(whole).log_end) == (2, 4)
    assert any("is older than the logs" in note for note in whole.notes)
    told = plan(one, without=[2])
    assert (only(told).leader, only(told).log_end) == (1, 2)
    assert any(note.startswith("without the log directories of broker 2") for note in told.notes)
    assert told.next_producer_id >= 1_000_000  # the missing broker may have got more


def test_a_forgotten_second_log_directory_is_named_by_its_id_with_its_partitions(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1a", 1, {"orders-0": [0]})
    other = broker_directory(tmp_path / "1b", 1, {"orders-1": [0, 0]}, number=1)
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0], "orders-1": [0]})
    records = [registration(1, 2), registration(2), *topic_records("orders", [[1, 2], [1, 2]], isr=[1])]
    write_metadata_log(one, records)
    with pytest.raises(RefusedError) as refused:
        plan(one, two)
    missing = format_uuid(directory_id(1, 1))
    assert f"broker 1 has more log directories than are given (directory.id {missing})" in str(refused.value)
    assert "1 replica in sync (orders-1)" in str(refused.value)
    assert not [note for note in plan(one, other, two).notes if "lost" in note]
    told = plan(one, two, without=[1])
    (note,) = [note for note in told.notes if note.startswith("orders-1")]
    assert "broker 2 leads, which was not in sync" in note
    assert [partition.leader for partition in told.topics[0].partitions] == [1, 2]


def test_a_directory_that_lost_its_meta_properties_counts_as_the_one_that_is_missing(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    write_metadata_log(one, [registration(1), *topic_records("orders", [[1]])])
    (one / "meta.properties").unlink()
    assert only(plan(one, nodes={one: 1})).leader == 1
    made_anew = MetaProperties(1, CLUSTER, 1, UUID(int=77 << 64))
    (one / "meta.properties").write_bytes(format_meta_properties(made_anew, 0))
    assert only(plan(one)).leader == 1


def test_a_replica_in_sync_that_no_directory_of_its_broker_holds_is_missed_without_ids(
    tmp_path: Path,
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    two = broker_directory(tmp_path / "2", 2, {"clicks-0": [0]})
    write_metadata_log(one, topic_records("orders", [[1, 2]]) + topic_records("clicks", [[2]]))
    with pytest.raises(RefusedError, match=r"none of .* of broker 2 holds 1 replica in sync \(orders-0\)"):
        plan(one, two)
    out_of_sync = [*topic_records("orders", [[1, 2]], isr=[1]), *topic_records("clicks", [[2]])]
    write_metadata_log(one, out_of_sync)
    assert {topic.name for topic in plan(one, two).topics} == {"orders", "clicks"}


def test_one_that_was_in_sync_leads_before_a_longer_log_of_one_that_was_not(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0, 0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0]})
    records = topic_records("orders", [[1, 2]])
    write_metadata_log(one, [*records, change(0, isr=[2], leader=2)])
    found = plan(one, two)
    assert (only(found).leader, only(found).leader_epoch) == (2, 2)
    (note,) = [note for note in found.notes if note.startswith("orders-0")]
    assert "broker 1 goes on to offset 2 and was not in sync" in note
    eligible = change(0, isr=[], leader=-1, eligibleLeaderReplicas=[1, 2])
    write_metadata_log(one, [*records, eligible])
    assert only(plan(one, two)).leader == 1
    cleared = encode_metadata_record("CLEAR_ELR_RECORD", {"topicName": "orders"})
    write_metadata_log(one, [*records, change(0, isr=[2], eligibleLeaderReplicas=[1]), cleared])
    assert only(plan(one, two)).leader == 2


def test_a_broker_that_was_unregistered_is_not_missed_and_one_without_replicas_is(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    records = [registration(1), registration(3), *topic_records("orders", [[1]])]
    write_metadata_log(one, records)
    with pytest.raises(RefusedError, match=r"no log directory of broker 3 is given .* with 0 replicas"):
        plan(one)
    write_metadata_log(
        one, [*records, encode_metadata_record("UNREGISTER_BROKER_RECORD", {"brokerId": 3, "brokerEpoch": 1})]
    )
    assert only(plan(one)).leader == 1


def test_every_missing_broker_is_told_at_once_and_a_wrong_without_is_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    write_metadata_log(one, topic_records("orders", [[1, 2, 3]]))
    with pytest.raises(Obstacles, match=r"broker 2 is given.*broker 3 is given"):
        plan(one)
    with pytest.raises(RefusedError, match="no log directory of broker 3"):
        plan(one, without=[2])
    with pytest.raises(RefusedError, match="--without 4: the metadata names no directory of broker 4 that is missing"):
        plan(one, without=[2, 3, 4])


def test_without_any_metadata_the_operator_is_told_that_nothing_says_what_is_missing(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    assert any(note.startswith("no metadata says which brokers") for note in plan(one).notes)
    with pytest.raises(RefusedError, match="--without 2"):
        plan(one, without=[2])
