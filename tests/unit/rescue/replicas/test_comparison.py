"""Which copy is chosen, what each choice loses, and what is said or refused instead of guessed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.errors import LockedError, NotALogError, RefusedError
from seglog.format.checkpoint import format_offset_checkpoint
from seglog.format.uuids import format_uuid
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from seglog_rescue.operations.replicas import (
    ReplicasReport,
    ReplicasRequest,
    collect,
    compare,
    step_lines,
    write_collected,
)
from seglog_rescue.replicas.comparison import Choice, PartitionVerdict
from seglog_rescue.replicas.facts_file import write_facts
from tests.support.group_records import commit
from tests.support.log_files import batch
from tests.support.lost_clusters import (
    CLUSTER,
    TOPIC_IDS,
    broker_directory,
    changed_id,
    registration,
    topic_records,
)
from tests.support.manual_clock import ManualClock
from tests.support.metadata_records import metadata_record, write_metadata_log
from tests.support.open_logs import opened_log

FS = LocalFileSystem()
ORDERS = TopicPartition("orders", 0)


def brokers(place: Path, *epochs: Sequence[int], name: str = "orders-0") -> list[Path]:
    """The log directories of brokers 1, 2 …, by the epoch of each record."""
    return [broker_directory(place / str(node), node, {name: each}) for node, each in enumerate(epochs, 1)]


def watermark(directory: Path, offset: int, name: str = "replication-offset-checkpoint") -> None:
    (directory / name).write_bytes(format_offset_checkpoint({ORDERS: offset}))


def assigned(directory: Path, nodes: Sequence[int], *changes: bytes, epoch: int = 0, isr: Sequence[int] = ()) -> None:
    topic = topic_records("orders", [nodes], epoch=epoch, isr=isr or nodes)
    write_metadata_log(directory, [*map(registration, nodes), *topic, *changes])


def report_of(*directories: Path, **more: object) -> ReplicasReport:
    return compare(FS, ManualClock(10**15), ReplicasRequest(directories, **more))  # type: ignore[arg-type]


def verdict_of(*directories: Path) -> PartitionVerdict:
    (verdict,) = [each for each in report_of(*directories).partitions if each.partition == ORDERS]
    return verdict


def ranges(choice: Choice) -> list[tuple[int, int, int, str, str]]:
    return [(loss.node, loss.first, loss.end, loss.cause.value, loss.acknowledged.value) for loss in choice.losses]


def losses(verdict: PartitionVerdict, node: int) -> list[tuple[int, int, int, str, str]]:
    return ranges(next(choice for choice in verdict.choices if choice.node == node))


def flip(log: Path, batch_number: int, size: int = 75) -> None:
    data = bytearray(log.read_bytes())
    data[batch_number * size + 70] ^= 1
    log.write_bytes(data)


def log_of(directory: Path) -> Path:
    return directory / "orders-0" / f"{0:020}.log"


def test_copies_that_agree_need_no_decision(tmp_path: Path) -> None:
    directories = brokers(tmp_path, [0, 0, 1], [0, 0, 1])
    assigned(directories[0], [1, 2], epoch=1)
    report = report_of(*directories)
    assert (report.in_question, report.steps, report.is_complete) == ((), (), True)


def test_the_other_choices_lose_what_lies_beyond_their_end_by_high_watermark_and_replicas_in_sync(
    tmp_path: Path,
) -> None:
    one, two, three = brokers(tmp_path, [0] * 10, [0] * 8, [0] * 4)
    assigned(one, [1, 2, 3], isr=[1, 2])
    watermark(one, 6)
    verdict = verdict_of(one, two, three)
    assert (verdict.choice, losses(verdict, 1)) == (1, [])
    assert losses(verdict, 2) == [(1, 8, 10, "beyond the end", "no")]
    expected = [(4, 6, "yes"), (6, 8, "perhaps"), (8, 10, "no")]
    assert losses(verdict, 3) == [(1, first, end, "beyond the end", word) for first, end, word in expected]


def test_records_of_an_older_epoch_are_perhaps_acknowledged_after_an_unclean_election(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 4 + [2] * 3)
    identity = format_uuid(TOPIC_IDS["orders"])
    change = {"partitionId": 0, "topicId": identity}
    gone = metadata_record("PARTITION_CHANGE_RECORD", **change, isr=[1], leader=-1)
    unclean = metadata_record("PARTITION_CHANGE_RECORD", **change, isr=[2], leader=2)
    assigned(two, [1, 2], gone, unclean)
    verdict = verdict_of(one, two)
    assert (verdict.choice, losses(verdict, 2)) == (2, [(1, 4, 10, "diverged", "perhaps")])
    clean = metadata_record("PARTITION_CHANGE_RECORD", **change, isr=[2], leader=-1)
    shutil.rmtree(two / "__cluster_metadata-0")
    assigned(two, [1, 2], clean, unclean)
    assert losses(verdict_of(one, two), 2) == [(1, 4, 10, "diverged", "no")]


def test_what_a_start_cuts_is_lost_unless_the_chosen_copy_has_it(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 8)
    flip(log_of(one), 5)
    verdict = verdict_of(one, two)
    assert verdict.choice == 2
    assert losses(verdict, 2) == [(1, 8, 10, "beyond the end", "perhaps")]
    assert losses(verdict, 1) == [
        (1, 6, 10, "cut by the start", "perhaps"),
        (2, 5, 6, "beyond the end", "perhaps"),
    ]
    (hole,) = next(copy for copy in verdict.copies if copy.copy.node == 1).holes
    assert (hole.first, hole.end, hole.reason, hole.position) == (5, 6, "checksum mismatch", 375)


def test_damage_that_a_clean_start_serves_is_lost_by_that_choice_and_the_whole_copy_is_chosen(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 10)
    for directory in (one, two):
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        watermark(directory, 10)
        log_of(directory).with_suffix(".index").touch()  # a broker recovers a segment without an index
    flip(log_of(one), 5)
    assigned(two, [1, 2])
    report = report_of(one, two)
    (verdict,) = report.partitions
    assert (verdict.choice, losses(verdict, 1)) == (2, [(2, 5, 6, "damaged", "yes")])
    assert losses(verdict, 2) == []
    moved = [line for line in step_lines(report) if line.startswith("mv ")]
    assert report.start.order == (2, 1)
    assert moved == [f"mv {one}/orders-0 {tmp_path}/replicas-aside-1"]


def test_a_copy_in_sync_that_its_start_cuts_below_its_high_watermark_is_not_chosen_and_is_salvaged(
    tmp_path: Path,
) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 8)
    flip(log_of(one), 5)
    watermark(one, 9)
    assigned(two, [1, 2], isr=[1])
    report = report_of(one, two)
    (verdict,) = report.partitions
    assert (verdict.choice, verdict.copies[0].in_sync, report.start.order) == (2, False, (2, 1))
    assert losses(verdict, 2) == [
        (1, 8, 9, "beyond the end", "yes"),
        (1, 9, 10, "beyond the end", "perhaps"),
    ]
    aside = tmp_path / "replicas-aside-1"
    first, second, _ = [line for line in step_lines(report) if line.startswith("seglog ")]
    assert first == f"seglog salvage {aside}/orders-0 -o {aside}-salvaged/orders-0"
    assert second.startswith("seglog read --json --from-offset 8 --to-offset 10 ")
    assert second.endswith(f" {aside}-salvaged/orders-0 > orders-0.broker-1.jsonl")


@pytest.mark.parametrize("what", ["files", "directory", "zeros"])
def test_the_last_one_in_sync_starts_after_another_is_elected_if_its_log_was_emptied(tmp_path: Path, what: str) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 8)
    assigned(two, [1, 2], isr=[1])
    if what == "directory":
        shutil.rmtree(one / "orders-0")
    for file in () if what == "directory" else sorted((one / "orders-0").iterdir()):
        if what == "zeros":
            file.write_bytes(bytes(file.stat().st_size))
        else:
            file.unlink()
    report = report_of(one, two)
    (verdict,) = report.partitions
    assert (verdict.choice, report.start.order, report.start.elected) == (2, (2, 1), {2: ["orders-0"]})
    assert all(word == "perhaps" for choice in verdict.choices for *_, word in ranges(choice))


def test_what_no_producer_was_told_is_safe_is_written_to_a_file_before_its_broker_cuts_it(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 8)
    assigned(one, [1, 2], isr=[2])
    report = report_of(one, two)
    (verdict,) = report.partitions
    assert losses(verdict, 2) == [(1, 8, 10, "beyond the end", "no")]
    lines = list(step_lines(report))
    read = "seglog read --json --from-offset 8 --to-offset 10"
    written = f"{read} {one}/orders-0 > orders-0.broker-1.unacknowledged.jsonl"
    (start,) = [number for number, line in enumerate(lines) if "start broker 1" in line]
    assert lines.index(written) < start
    assert not any(line.startswith(("cp ", "seglog replay")) for line in lines)


def test_what_several_copies_of_a_broker_held_is_brought_back_by_one_replay(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 9, "clicks-0": [0] * 8})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 5 + [2], "clicks-0": [0] * 3 + [2]})
    records = [*topic_records("orders", [[1, 2]], epoch=2), *topic_records("clicks", [[1, 2]], epoch=2)]
    write_metadata_log(two, [registration(1), registration(2), *records])
    watermark(one, 9)
    lines = [line for line in step_lines(report_of(one, two)) if line.startswith("seglog ")]
    assert [line.rpartition(" > ")[2] for line in lines[:-1]] == ["clicks-0.broker-1.jsonl", "orders-0.broker-1.jsonl"]
    assert lines[-1].endswith(
        f" --state broker-1.state --topic clicks=clicks-saved --topic orders=orders-saved"
        f" {tmp_path}/replicas-aside-1/clicks-0 {tmp_path}/replicas-aside-1/orders-0"
    )


def test_a_copy_that_its_broker_cannot_load_is_moved_away_before_that_broker_starts(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 8)
    (one / "orders-0" / "leader-epoch-checkpoint").write_bytes(bytes(14))
    assigned(two, [1, 2], isr=[1])
    report = report_of(one, two)
    lines = list(step_lines(report))
    (start,) = [number for number, line in enumerate(lines) if ": start broker 1," in line]
    assert lines.index(f"mv {one}/orders-0 {tmp_path}/replicas-aside-1") < start
    assert report.start.order == (2, 1)
    shutil.rmtree(two / "orders-0")
    assert f"mv {one}/orders-0 {tmp_path}/replicas-aside-1" in step_lines(report_of(one, two))


def test_a_compacted_copy_that_is_cut_lacks_the_old_records_of_keys_whose_new_ones_are_cut(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 10)
    new = [batch(i, value=b"new") for i in range(4, 10)]
    log_of(one).write_bytes(b"".join(new))  # its cleaner has dropped the first four
    flip(log_of(one), 3, len(new[0]))
    watermark(one, 9, "cleaner-offset-checkpoint")
    verdict = verdict_of(one, two)
    assert verdict.choice == 2
    assert losses(verdict, 1)[-1] == (2, 0, 7, "compacted for what is lost", "perhaps")
    assert not verdict.choices[1].losses[-1].exact
    flip(log_of(one), 3, len(new[0]))
    assert not any("compacted" in cause for _, _, _, cause, _ in losses(verdict_of(one, two), 1))


def test_batches_that_differ_within_an_epoch_are_said_but_not_where_a_cleaner_has_been(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 100, [0] * 100)
    data = [batch(i, value=b"other" if i == 60 else b"value") for i in range(100)]
    log_of(two).write_bytes(b"".join(data))
    verdict = verdict_of(one, two)
    ((first, end),) = next(copy.differs for copy in verdict.copies if copy.differs)
    assert first <= 60 < end <= first + 32
    assert not verdict.agrees
    for directory in (one, two):
        watermark(directory, 90, "cleaner-offset-checkpoint")
    assert verdict_of(one, two).agrees


def test_a_log_that_begins_later_loses_nothing_that_was_not_deleted_on_purpose(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 10)
    (two / "orders-0" / f"{4:020}.log").write_bytes(b"".join(batch(i) for i in range(4, 10)))
    log_of(two).unlink()
    watermark(two, 4, "log-start-offset-checkpoint")
    verdict = verdict_of(one, two)
    assert verdict.agrees
    assert losses(verdict, 2) == [(1, 0, 4, "below the log start", "perhaps")]


def test_groups_above_the_chosen_end_are_named(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 10, [0] * 4 + [1])
    with opened_log(two / "__consumer_offsets-0") as log:
        log.append([commit("slow", 3, partition=ORDERS), commit("fast", 8, partition=ORDERS)])
    verdict = verdict_of(one, two)
    assert verdict.choice == 2
    assert [choice.groups_above for choice in verdict.choices] == [(("fast", 8),), ()]


def test_two_log_directories_of_a_broker_are_one_broker(tmp_path: Path) -> None:
    first = broker_directory(tmp_path / "1a", 1, {"orders-0": [0, 0]})
    second = broker_directory(tmp_path / "1b", 1, {"clicks-0": [0]}, number=1)
    other = broker_directory(tmp_path / "2", 2, {"orders-0": [0, 0], "clicks-0": [0]})
    assert report_of(first, second, other).in_question == ()
    broker_directory(tmp_path / "1c", 1, {"orders-0": [0]}, number=2)
    with pytest.raises(RefusedError, match="broker 1 has orders-0 twice"):
        report_of(first, tmp_path / "1c", other)


def test_a_lost_disk_leaves_its_replicas_missing_and_its_leader_is_elected_by_hand(tmp_path: Path) -> None:
    _, two, three = brokers(tmp_path, [1] * 9, [1] * 6, [1] * 8)
    assigned(two, [1, 2, 3], epoch=1, isr=[1])
    report = report_of(two, three)
    (verdict,) = report.partitions
    assert (verdict.choice, verdict.missing) == (3, (1,))
    assert any("no log directory of broker 1 is given" in remark for remark in report.cluster.remarks)
    (election,) = [step for step in report.steps if step.file]
    assert report.start.order == (3, 2)
    assert json.loads(election.contents) == {"partitions": [{"topic": "orders", "partition": 0}]}
    assert "--election-type unclean --path-to-json-file election-3.json" in election.lines[0]
    assert losses(verdict, 3) == []


def test_an_eligible_replica_counts_as_in_sync(tmp_path: Path) -> None:
    one, two, three = brokers(tmp_path, [0] * 5, [0] * 9, [0] * 7)
    change = {"partitionId": 0, "topicId": format_uuid(TOPIC_IDS["orders"]), "leader": -1}
    eligible = metadata_record("PARTITION_CHANGE_RECORD", 2, **change, isr=[1], eligibleLeaderReplicas=[3])
    assigned(one, [1, 2, 3], eligible, isr=[1, 3])
    verdict = verdict_of(one, two, three)
    assert (verdict.choice, verdict.copies[0].in_sync) == (3, True)
    assert losses(verdict, 3) == [(2, 7, 9, "beyond the end", "no")]


def test_topics_of_one_name_are_told_apart_by_the_metadata_and_without_it_nothing_is_chosen(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 4)
    changed_id(one / "orders-0", "AAAAAAAAAAcAAAAAAAAAZQ")
    verdict = verdict_of(one, two)
    assert (verdict.choice, verdict.choices) == (None, ())
    assert "several topics of that name" in verdict.remarks[0]
    assigned(two, [1, 2])
    verdict = verdict_of(one, two)
    assert verdict.choice == 2
    assert "a deleted topic of that name" in verdict.remarks[0]


def test_directories_of_two_clusters_or_one_directory_twice_are_refused(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0]})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0]}, cluster="another-cluster")
    with pytest.raises(RefusedError, match=rf"several clusters \({one} to {CLUSTER}, {two} to another-cluster\)"):
        report_of(one, two)
    write_collected(FS, collect(FS, ManualClock(), ReplicasRequest([one])), tmp_path / "a")
    file = tmp_path / "a"
    with pytest.raises(RefusedError, match=rf"several clusters \({one} in {file} to {CLUSTER}, {two} to another-"):
        report_of(file, two)
    same = rf"{one} and {one} in {file} are the same log directory of broker 1 .* may have run in between"
    with pytest.raises(RefusedError, match=same):
        report_of(one, file)


def test_a_broker_that_has_started_since_its_facts_were_made_is_said(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 4, [0] * 4)
    assigned(one, [1, 2])
    assigned(two, [1, 2], registration(1))
    assert any("broker 1 registered at offset" in remark for remark in report_of(one, two).cluster.remarks)


def test_clocks_that_are_apart_are_said(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0], [0])
    for node, directory, now in ((1, one, 1000), (2, two, 10**15)):
        write_collected(FS, collect(FS, ManualClock(now), ReplicasRequest([directory])), tmp_path / f"{node}.facts")
    remarks = report_of(tmp_path / "1.facts", tmp_path / "2.facts").cluster.remarks
    assert any("clocks are apart" in remark and "1.facts" in remark for remark in remarks)


def test_a_running_broker_an_unknown_one_and_other_paths_are_refused(tmp_path: Path) -> None:
    (one,) = brokers(tmp_path, [0] * 4)
    with DirectoryLock(one), pytest.raises(LockedError):
        report_of(one)
    (one / "meta.properties").unlink()
    with pytest.raises(RefusedError, match="say --node"):
        report_of(one)
    assert report_of(one, nodes={one: 7}).partitions[0].choice == 7
    with pytest.raises(NotALogError, match="name the log directory"):
        report_of(one / "orders-0")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(NotALogError, match="not one of facts"):
        report_of(tmp_path / "text")
    with pytest.raises(NotALogError, match="no such file"):
        report_of(tmp_path / "absent")


def test_a_topic_that_elects_by_itself_is_warned_of_and_its_choice_is_started_first(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 4, [0] * 9)
    config = {"resourceType": 2, "resourceName": "orders", "name": "unclean.leader.election.enable", "value": "true"}
    assigned(one, [1, 2], metadata_record("CONFIG_RECORD", **config), isr=[2])
    report = report_of(one, two)
    assert report.start.order == (2, 1)
    assert "unclean.leader.election.enable is on" in report.steps[0].why


def test_an_order_that_cannot_serve_every_partition_says_what_it_loses_and_copies_it_first(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 9, "clicks-0": [0] * 3})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 5, "clicks-0": [0] * 8})
    records = [*topic_records("orders", [[1, 2]]), *topic_records("clicks", [[1, 2]])]
    write_metadata_log(one, [registration(1), registration(2), *records])
    report = report_of(one, two)
    assert {str(each.partition): each.choice for each in report.partitions} == {"clicks-0": 2, "orders-0": 1}
    assert report.start.leaders == {"clicks-0": report.start.order[0], "orders-0": report.start.order[0]}
    assert any("no order gives every partition its best copy" in step.why for step in report.steps)


def test_a_copy_is_saved_whole_if_every_order_makes_a_broker_without_one_its_leader(tmp_path: Path) -> None:
    """Each broker is the last one in sync of a partition whose directory it has lost."""
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 9})
    two = broker_directory(tmp_path / "2", 2, {"clicks-0": [0] * 20})
    records = [*topic_records("orders", [[1, 2]], isr=[2]), *topic_records("clicks", [[1, 2]], isr=[1])]
    write_metadata_log(one, [registration(1), registration(2), *records])
    report = report_of(one, two)
    assert (report.start.order, report.start.leaders) == ((2, 1), {"clicks-0": 2, "orders-0": 2})
    lines = list(step_lines(report))
    saved = lines.index(f"cp -a {one}/orders-0 {tmp_path}/replicas-aside-1")
    assert saved < next(number for number, line in enumerate(lines) if "start broker 2" in line)
    assert any("orders-0: this order makes broker 2 its leader, which has no copy of it" in line for line in lines)
    assert any(line.startswith("seglog read --json --from-offset 0 --to-offset 9 ") for line in lines)


def test_a_controller_alone_is_not_among_the_brokers_to_start(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 4, [0] * 9)
    controller = broker_directory(tmp_path / "controller", 3000, {})
    assigned(controller, [1, 2])
    assert report_of(one, two, controller).start.order == (2, 1)


def test_the_order_gives_a_partition_the_copy_to_choose_though_an_election_had_given_up_more(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 4 + [2] * 3, [0] * 30)
    watermark(two, 30)
    config = {"resourceType": 2, "resourceName": "orders", "name": "unclean.leader.election.enable", "value": "true"}
    assigned(one, [1, 2], metadata_record("CONFIG_RECORD", **config), isr=[1], epoch=2)
    report = report_of(one, two)
    assert report.start.order == (1, 2)
    assert not any("no order gives" in step.why for step in report.steps)


def test_a_broker_is_elected_by_hand_unless_it_is_the_last_one_in_sync(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 4)
    assigned(one, [1, 2], isr=[1])
    assert report_of(one, two).start.elected == {}
    shutil.rmtree(one / "__cluster_metadata-0")
    assigned(one, [1, 2], isr=[1, 2])
    start = report_of(one, two).start
    assert (start.order, start.elected) == ((1, 2), {1: ["orders-0"]})


def test_a_follower_that_would_lack_keys_is_copied_anew_before_its_start_or_after_it(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 4 + [2] * 3, [0] * 30)
    watermark(two, 20, "cleaner-offset-checkpoint")
    assigned(one, [1, 2], isr=[1], epoch=2)
    report = report_of(one, two)
    (verdict,) = report.partitions
    assert any("it lacks keys that its leader has" in remark for remark in verdict.remarks)
    lines = list(step_lines(report))
    assert f"mv {two}/orders-0 {tmp_path}/replicas-aside-2" in lines
    assert not any(line.startswith("cp ") and "orders-0" in line for line in lines)


def test_replicas_of_which_none_is_known_to_be_in_sync_are_not_called_so(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 9, [0] * 4)
    change = {"partitionId": 0, "topicId": format_uuid(TOPIC_IDS["orders"]), "leader": -1}
    nobody = metadata_record("PARTITION_CHANGE_RECORD", 2, **change, isr=[], lastKnownElr=[2])
    assigned(one, [1, 2], nobody)
    verdict = verdict_of(one, two)
    assert (verdict.choice, verdict.copies[0].in_sync) == (1, False)
    assert losses(verdict, 2) == [(1, 4, 9, "beyond the end", "perhaps")]


def test_a_copy_whose_broker_must_start_before_the_leader_is_moved_away_after_it_has_followed(tmp_path: Path) -> None:
    one = broker_directory(tmp_path / "1", 1, {"orders-0": [0] * 4 + [2] * 3, "clicks-0": [0] * 3})
    two = broker_directory(tmp_path / "2", 2, {"orders-0": [0] * 30, "clicks-0": [0] * 8})
    watermark(two, 20, "cleaner-offset-checkpoint")
    records = [*topic_records("orders", [[1, 2]], epoch=2, isr=[1]), *topic_records("clicks", [[1, 2]])]
    write_metadata_log(one, [registration(1), registration(2), *records])
    report = report_of(one, two)
    assert report.start.order == (2, 1)
    late = [step for step in report.steps if step.why.startswith("stop broker 2 ")]
    assert [step.lines for step in late] == [
        (f"mkdir -p {tmp_path}/replicas-aside-2-followed", f"mv {two}/orders-0 {tmp_path}/replicas-aside-2-followed")
    ]
    assert f"cp -a {two}/orders-0 {tmp_path}/replicas-aside-2" in step_lines(report)


def test_a_log_in_a_bucket_is_read_where_it_is_and_nothing_is_moved_there(tmp_path: Path) -> None:
    one, two = brokers(tmp_path, [0] * 4 + [2] * 3, [0] * 30)
    assigned(one, [1, 2], isr=[1], epoch=2)
    facts = collect(FS, ManualClock(10**15), ReplicasRequest([one, two]))
    url = "s3://bucket/two"
    (directory,) = [each for each in facts.directories if each.node == 2]
    (replica,) = directory.replicas
    moved = replace(directory, path=url, replicas=(replace(replica, directory=f"{url}/orders-0"),))
    (tmp_path / "f").write_bytes(write_facts(replace(facts, directories=(facts.directories[0], moved))))
    lines = list(step_lines(report_of(tmp_path / "f")))
    assert not any(line.startswith(("cp ", "mv ")) for line in lines)
    assert any(f"{url}/orders-0 > orders-0.broker-2.jsonl" in line for line in lines)
