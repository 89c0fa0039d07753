"""A cluster put together from directories and metadata: who leads, what is new, and what cannot be."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from seglog.clock import FixedClock
from seglog.errors import LockedError, NotALogError, Obstacles, RefusedError
from seglog.format import coordinator, message_tables
from seglog.format.control import Voter
from seglog.format.filenames import FIRST_SNAPSHOT
from seglog.format.producer_snapshot import ProducerEntry, encode_snapshot
from seglog.format.uuids import format_uuid
from seglog.format.wire import encode_message
from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from seglog_rescue.operations.rebuild import RebuildRequest, plan_rebuild
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record, metadata_snapshot
from seglog_rescue.rebuild.plan import PlannedPartition, RebuildPlan
from tests.support.group_records import group_key, text
from tests.support.lost_clusters import TOPIC_IDS, broker_directory, changed_id, directory_id, topic_records
from tests.support.metadata_records import write_metadata_log
from tests.support.open_logs import opened_log

FS = LocalFileSystem()
OTHER_ID = format_uuid(UUID(int=12345 << 70))


def plan(*directories: Path, new_id: Callable[[], UUID] = lambda: UUID(int=1 << 100), **more: Any) -> RebuildPlan:
    return plan_rebuild(FS, FixedClock(1000), RebuildRequest(list(directories), **more), new_id=new_id)


def partition_of(found: RebuildPlan, name: str) -> PlannedPartition:
    topic, _, number = name.rpartition("-")
    (one,) = [
        one for known in found.topics if known.name == topic for one in known.partitions if one.number == int(number)
    ]
    return one


def test_the_newest_leader_epoch_leads_then_the_longest_log_and_the_new_epoch_is_above_all(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0, 0, 0], "orders-1": [2, 2]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0, 5], "orders-1": [2, 2, 2]})
    found = plan(one, two)
    first, second = partition_of(found, "orders-0"), partition_of(found, "orders-1")
    assert (first.leader, first.isr, first.leader_epoch, first.log_end) == (2, (2,), 6, 3)
    assert (second.leader, second.leader_epoch, second.log_end) == (2, 3, 3)
    assert first.replicas == (2, 1)
    assert first.directories == (format_uuid(directory_id(2)), format_uuid(directory_id(1)))
    (note,) = [note for note in found.notes if note.startswith("orders-0")]
    assert "broker 1 goes on to offset 3 in an older leader epoch" in note and str(one / "orders-0") in note
    assert found.topics[0].topic_id == format_uuid(TOPIC_IDS["orders"])


def test_a_replica_in_sync_whose_log_has_lost_acknowledged_records_does_not_lead(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": []})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0, 0]})
    (two / "replication-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    write_metadata_log(one, topic_records("orders", [[1, 2]], isr=[1]))
    found = plan(one, two)
    assert (partition_of(found, "orders-0").leader, partition_of(found, "orders-0").log_end) == (2, 3)
    assert any("broker 2 leads, which was not in sync: the logs of the brokers [1]" in note for note in found.notes)


def test_replicas_that_are_equal_lead_in_turn_unless_one_led_before(tmp_path: Path) -> None:
    logs = {f"orders-{number}": [0] for number in range(4)}
    one, two = (broker_directory(tmp_path / str(node), node, logs) for node in (1, 2))
    assert [partition_of(plan(one, two), name).leader for name in logs] == [1, 2, 1, 2]
    assert [partition_of(plan(one, two), name).replicas for name in logs] == [(1, 2), (2, 1), (1, 2), (2, 1)]
    write_metadata_log(one, topic_records("orders", [[2, 1]] * 4))
    assert [partition_of(plan(one, two), name).leader for name in logs] == [2, 2, 2, 2]


def test_what_a_crash_left_at_a_logs_end_does_not_make_it_the_leader(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0, 0, 0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0]})
    log = one / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 50] ^= 1  # in the second of three batches
    log.write_bytes(data)
    assert (partition_of(plan(one, two), "orders-0").leader, partition_of(plan(one, two), "orders-0").log_end) == (2, 2)


def test_an_unknown_configuration_keeps_records_and_kafkas_own_topics_get_theirs(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0], "__consumer_offsets-0": [0]})
    (one / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    found = plan(one)
    values = {topic.name: dict(topic.configuration) for topic in found.topics}
    assert values == {"__consumer_offsets": {"cleanup.policy": "compact"}, "orders": {"retention.ms": "-1"}}
    assert any(note.startswith("the configuration of orders is not known") for note in found.notes)
    assert any(note.startswith("orders was compacted") for note in found.notes)
    assert dict(found.features) == {"metadata.version": 19}


@pytest.mark.parametrize(
    ("kinds", "chosen", "features", "note"),
    [
        ((3,), {}, {"metadata.version": 22, "group.version": 1}, "with group.version=1, which its groups and"),
        ((11, 3), {}, {"metadata.version": 26, "group.version": 1, "share.version": 1}, "share.version=1, which"),
        ((17,), {}, {"metadata.version": 26, "streams.version": 1}, "with streams.version=1, which its groups"),
        ((3,), {"metadata.version": 25}, {"metadata.version": 25, "group.version": 1}, ""),
        ((3,), {"metadata.version": 19}, {"metadata.version": 19}, "the cluster had group.version=1, which begin with"),
        ((3,), {"group.version": 0}, {"metadata.version": 19}, "it begins with metadata.version=19, which Kafka"),
        ((2,), {}, {"metadata.version": 19}, "it begins with metadata.version=19, which Kafka 3.7 and later run"),
    ],
)
def test_groups_of_the_newer_protocols_show_which_features_a_cluster_without_metadata_needs(
    tmp_path: Path, kinds: tuple[int, ...], chosen: dict[str, int], features: dict[str, int], note: str
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    with opened_log(one / "__consumer_offsets-0") as log:
        log.append([Record(b"\0\0\0\0\0\x07", group_key(kind, "group")) for kind in kinds])
        log.append([Record(b"\0\0", group_key(11, "gone")), Record(None, group_key(11, "gone"))])
    found = plan(one, features=chosen)
    assert dict(found.features) == features
    assert any(note in one for one in found.notes)


@pytest.mark.parametrize(
    ("value_version", "client_version", "features"),
    [
        (0, None, {"metadata.version": 19}),
        (1, None, {"metadata.version": 22, "transaction.version": 1}),
        (1, 2, {"metadata.version": 22, "transaction.version": 2}),
        (1, 30_000, {"metadata.version": 22, "transaction.version": 2}),
        (9, 2, {"metadata.version": 19}),  # nothing that is known
    ],
)
def test_transactions_show_with_which_version_they_were_made(
    tmp_path: Path, value_version: int, client_version: int | None, features: dict[str, int]
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    message = message_tables.messages(coordinator.TRANSACTIONS)[0, "value"]
    value = {
        "producerId": 1,
        "producerEpoch": 0,
        "transactionTimeoutMs": 1,
        "transactionStatus": 0,
        "transactionLastUpdateTimestampMs": 1,
        "transactionStartTimestampMs": 1,
        "transactionPartitions": None,
    }
    if client_version is not None:
        value["clientTransactionVersion"] = client_version
    data = struct.pack(">h", value_version) + encode_message(message, value, min(value_version, 1))
    with opened_log(one / "__transaction_state-0") as log:
        log.append([Record(data, b"\0\0" + text("id"))])
    assert dict(plan(one).features) == features
    assert dict(plan(one, features={"transaction.version": 0}).features) == {"metadata.version": 19}


def test_readable_metadata_brings_replicas_configuration_features_and_what_else_was_known(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    user = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"s", "storedKey": b"k", "serverKey": b"v"}
    write_metadata_log(
        one,
        [
            encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": "group.version", "featureLevel": 1}),
            encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": "metadata.version", "featureLevel": 25}),
            *topic_records("orders", [[2, 1]], epoch=9, isr=[1]),
            config("orders", "retention.ms", "5"),
            config("orders", "segment.bytes", "7"),
            config("orders", "segment.bytes", None),
            encode_metadata_record("USER_SCRAM_CREDENTIAL_RECORD", user),
            encode_metadata_record("PRODUCER_IDS_RECORD", {"brokerId": 1, "brokerEpoch": 3, "nextProducerId": 4000}),
        ],
    )
    found = plan(one, broker_directory(tmp_path / "2", 2, {}))
    partition = partition_of(found, "orders-0")
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((2, 1), 1, 10)
    assert list(found.features.items()) == [("metadata.version", 25), ("group.version", 1)]
    assert dict(found.topics[0].configuration) == {"retention.ms": "5"}
    assert [(record.name, record.data["salt"]) for record in found.records] == [("USER_SCRAM_CREDENTIAL_RECORD", b"s")]
    assert (found.next_producer_id, found.problems, found.notes) == (4000, (), ())


def config(topic: str, name: str, value: str | None) -> bytes:
    fields = {"resourceType": 2, "resourceName": topic, "name": name, "value": value}
    return encode_metadata_record("CONFIG_RECORD", fields)


def test_damaged_metadata_counts_up_to_the_damage_and_deleted_topics_do_not_come_back(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    records = [*topic_records("orders", [[1]], epoch=3), *topic_records("clicks", [[1]]), config("orders", "a", "b")]
    log = write_metadata_log(one, records) / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-5])
    found = plan(one)
    assert [topic.name for topic in found.topics] == ["orders"]
    assert len(found.problems) == 1 and found.end_offset == 4
    assert any(note.startswith("clicks is left out") for note in found.notes)
    assert found.next_producer_id >= 1_000_000


def test_the_voter_that_is_readable_furthest_counts(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    write_metadata_log(one, [*topic_records("orders", [[1]])])
    other = write_metadata_log(tmp_path / "voter", [*topic_records("orders", [[1]]), config("orders", "x", "1")])
    assert dict(plan(one, metadata=[other]).topics[0].configuration) == {"x": "1"}


def test_partitions_on_brokers_that_were_not_given_stay_as_the_controller_had_them(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    write_metadata_log(one, topic_records("orders", [[1, 2], [2, 3]], epoch=4))
    found = plan(one, without=[2, 3])
    second = partition_of(found, "orders-1")
    assert (second.replicas, second.isr, second.leader, second.leader_epoch) == ((2, 3), (2, 3), 2, 5)
    assert second.origin == "metadata"
    assert any(note.startswith("orders-1: no replica that was in sync") for note in found.notes)


def test_new_producer_ids_are_above_all_that_snapshots_and_logs_have(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    entries = [ProducerEntry(4711), ProducerEntry((1 << 62) + 5)]  # the second one came by a transplant
    (one / "orders-0" / f"{1:020}.snapshot").write_bytes(encode_snapshot(entries))
    assert plan(one).next_producer_id == 5000 + 1_000_000


def test_lost_small_files_are_made_anew(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0], "orders-1": [0], "clicks-0": [0]})
    for name in ("meta.properties", "orders-1/partition.metadata", "clicks-0/partition.metadata"):
        (one / name).unlink()
    with pytest.raises(RefusedError, match=r"meta\.properties is missing.*say --node"):
        plan(one)
    found = plan(one, nodes={one: 3})
    assert found.cluster_id_is_new and list(found.nodes) == [3]
    made = {str(file.place.relative_to(one)): file.contents.decode() for file in found.files}
    assert set(made) == {"meta.properties", "orders-1/partition.metadata", "clicks-0/partition.metadata"}
    assert "node.id=3\n" in made["meta.properties"] and f"cluster.id={found.cluster_id}\n" in made["meta.properties"]
    assert format_uuid(TOPIC_IDS["orders"]) in made["orders-1/partition.metadata"]
    clicks = next(topic for topic in found.topics if topic.name == "clicks")
    assert clicks.id_is_new and clicks.topic_id in made["clicks-0/partition.metadata"]


# --- what cannot be -------------------------------------------------------------------------------------------


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0]}, cluster="YW5vdGhlci1jbHVzdGVyLQ")
    with pytest.raises(RefusedError, match="several clusters"):
        plan(one, two)


def test_a_partition_twice_on_a_broker_and_a_copy_of_a_directory_are_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    two = broker_directory(tmp_path / "2", 1, {"orders-0": [0]}, number=1)
    with pytest.raises(RefusedError, match="broker 1 has orders-0 twice"):
        plan(one, two)
    shutil.copytree(one, tmp_path / "3")
    with pytest.raises(RefusedError, match="one is a copy of the other"):
        plan(one, tmp_path / "3")


def test_topic_ids_that_contradict_each_other_are_refused_with_their_places(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0], "clicks-1": [0]})
    changed_id(two / "orders-0", OTHER_ID)
    with pytest.raises(Obstacles) as caught:  # everything at once
        plan(one, two)
    said = str(caught.value)
    assert f"orders has several topic ids ({format_uuid(TOPIC_IDS['orders'])} in {one / 'orders-0'}" in said
    assert f"{OTHER_ID} in {two / 'orders-0'}" in said and "clicks-0 is in none of the directories" in said


def test_a_partition_that_is_missing_begins_empty_only_when_it_is_said(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0], "orders-2": [0]})
    with pytest.raises(RefusedError, match="orders-1 is in none of the directories"):
        plan(one)
    found = plan(one, allow_missing=True)
    assert (partition_of(found, "orders-1").origin, partition_of(found, "orders-1").replicas) == ("empty", (1,))
    assert any(note.startswith("orders-1 is in none of the directories: it begins empty") for note in found.notes)


@pytest.mark.parametrize("allow_missing", [False, True])
def test_a_directory_whose_number_makes_a_giant_of_its_topic_is_one_refusal(
    tmp_path: Path, allow_missing: bool
) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0], "orders-2147483647": [0]})
    with pytest.raises(RefusedError, match="orders-2147483647 would be the last of 2147483648 partitions, but only 2"):
        plan(one, allow_missing=allow_missing)


def test_a_running_broker_and_what_is_no_log_directory_are_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    with DirectoryLock(one), pytest.raises(LockedError):
        plan(one)
    (one / ".seglog-run").write_text("/somewhere\n")
    with pytest.raises(RefusedError, match=f"{one}: a run of seglog was cut short here"):
        plan(one)
    (one / ".seglog-run").unlink()
    with pytest.raises(NotALogError, match="a partition; name the log directory"):
        plan(one / "orders-0")
    with pytest.raises(RefusedError, match="is not one of the directories"):
        plan(one, nodes={tmp_path: 1})


def test_directories_that_a_broker_set_aside_and_foreign_ones_are_left_out_and_named(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0], "clicks-0": [0]})
    (one / "clicks-0").rename(one / f"clicks-0.{'a' * 32}-stray")
    (one / "lost+found").mkdir()
    found = plan(one)
    assert {path.name: reason.partition(";")[0] for path, reason in found.left_out} == {
        f"clicks-0.{'a' * 32}-stray": "a broker had set it aside",
        "lost+found": "not a partition",
    }
    assert [topic.name for topic in found.topics] == ["orders"]


def voter(node: int, number: int = 0) -> Voter:
    return Voter(node, format_uuid(directory_id(node, number)), (("CONTROLLER", f"c{node}.example", 9093),), 0, 1)


def controller_directory(path: Path, node: int, voters: tuple[Voter, ...], number: int = 0) -> Path:
    """As `kafka-storage format --standalone` leaves it: meta.properties, and a snapshot at 0 with the voters."""
    directory = broker_directory(path, node, {}, number=number)
    inside = directory / "__cluster_metadata-0"
    inside.mkdir()
    level = encode_metadata_record("FEATURE_LEVEL_RECORD", {"name": "metadata.version", "featureLevel": 33})
    (inside / FIRST_SNAPSHOT).write_bytes(metadata_snapshot([level], 1000, voters))
    return directory


def test_a_dynamic_quorum_goes_on_with_the_voters_that_its_metadata_names_last(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    three = controller_directory(tmp_path / "3", 3, (voter(3), voter(4)))
    write_metadata_log(three, topic_records("orders", [[1]]))
    result = plan(one, three)
    assert (result.voters, result.quorum_is_known) == ((voter(3), voter(4)), True)
    assert result.voters_source == three / "__cluster_metadata-0"
    assert plan(one).quorum_is_known is False


def test_voters_of_a_newly_formatted_controller_come_before_those_of_the_old_metadata(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    three = controller_directory(tmp_path / "3", 3, (voter(3), voter(4)))
    write_metadata_log(three, topic_records("orders", [[1]]))
    new = controller_directory(tmp_path / "new", 3, (voter(3, 1),), 1)
    result = plan(one, three, new)
    assert (result.voters, result.notes) == ((voter(3, 1),), ())
    snapshots = result.snapshots(1000)
    (place,) = [place for place in snapshots if place.name == FIRST_SNAPSHOT]
    assert snapshots[place] != snapshots[Path("bootstrap.checkpoint")]


def test_voters_whose_directories_are_others_now_leave_no_majority_and_are_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    three = controller_directory(tmp_path / "3", 3, (voter(3, 7),))
    write_metadata_log(three, topic_records("orders", [[1]]))
    with pytest.raises(RefusedError, match=r"controller 3 votes with the directory .* no controller would be elected"):
        plan(one, three)
    shutil.rmtree(three)
    three = controller_directory(tmp_path / "3", 3, (voter(3, 7), voter(4), voter(5)))
    write_metadata_log(three, topic_records("orders", [[1]]))
    (note,) = [note for note in plan(one, three).notes if note.startswith("controller 3")]
    assert f"directory.id={format_uuid(directory_id(3))}" in note
