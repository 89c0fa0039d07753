"""Plans: how open transactions end, what is there already, and what an operator is warned of."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import seglog
from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import LockedError, NotALogError, Obstacles, RefusedError
from seglog.log.append import ProducerIdentity
from seglog.model import Isolation, Record, TopicPartition
from seglog.storage.filesystem import FileStatus
from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from seglog.verification.transaction_coordinators import Coordinated
from seglog_rescue.operations.transplant import plan_transplant
from seglog_rescue.transplant.apply import carry_out
from seglog_rescue.transplant.counts import SourceCounts
from seglog_rescue.transplant.plan import PartitionPlan, TransplantPlan
from seglog_rescue.transplant.planner import Circumstances, PartitionToTake, TransplantPlanner
from seglog_rescue.transplant.target import TargetDirectory
from tests.support.command_line import ended
from tests.support.open_logs import START_MS, opened_log
from tests.support.target_directories import CONFIG, everything, planned, request, target_directory, transplanted
from tests.support.watched_files import CountingFileSystem

FS = LocalFileSystem()
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
LATER_MS = START_MS + 1000  # than any marker


def source_with_open_transaction(root: Path) -> Path:
    """A plain record, an aborted transaction, and one that is open: of producer 7, epoch 3."""
    directory = root / "old" / "t-0"
    with opened_log(directory) as log:
        log.append([Record(b"plain", b"p")], producer=ProducerIdentity(2, 0, 0))
        producer = ProducerIdentity(7, 3, None, transactional=True)
        log.append([Record(b"gone", b"g")], producer=producer)
        log.append_end_txn_marker(producer, commit=False, coordinator_epoch=5)
        log.append([Record(b"open", b"a"), Record(b"open", b"b")], producer=producer)
        log.append([Record(b"after", b"z")])
    return directory


def planned_with(root: Path, coordinators: dict[int, Coordinated] | None) -> PartitionPlan:
    directory = source_with_open_transaction(root)
    target = TargetDirectory(FS, target_directory(FS, root / "new", ["t-0"]))
    counts = SourceCounts(FS, [directory.parent])
    planner = TransplantPlanner(FS, Circumstances(target, coordinators, counts, START_MS), lambda _size: None)
    key = TopicPartition("t", 0)
    return planner.plan(PartitionToTake(directory, key, key), CONFIG)


def known(*states: tuple[int, int, str] | int, changed_ms: int = LATER_MS) -> dict[int, Coordinated]:
    """What the coordinator wrote of producer 7, one after the other: state, epoch and the topic that it names."""
    found: Coordinated | None = None
    for one in states:
        state, epoch, topic = (
            (one, 3, "t" if one in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else "") if isinstance(one, int) else one
        )
        named = [{"topic": topic, "partitionIds": [0]}] if topic else None
        value = {"producerId": 7, "producerEpoch": epoch, "transactionStatus": state, "transactionPartitions": named}
        times = {"transactionTimeoutMs": 60_000, "transactionStartTimestampMs": -1}
        value |= {"transactionLastUpdateTimestampMs": changed_ms, **times}
        found = Coordinated.read("billing", value, found)
    assert found is not None
    return {7: found}


@pytest.mark.parametrize(
    ("coordinators", "marker", "certain"),
    [
        (known(PREPARE_COMMIT), "COMMIT", True),
        (known((PREPARE_COMMIT, 4, "t")), "COMMIT", True),  # transactions of version 2 go on with the next epoch
        (known(COMPLETE_COMMIT), "COMMIT", True),
        (known(PREPARE_COMMIT, COMPLETE_COMMIT, (EMPTY, 4, "")), "COMMIT", True),  # its marker was left out
        (known(PREPARE_COMMIT, COMPLETE_COMMIT, (ONGOING, 4, "other")), "COMMIT", True),
        (known(PREPARE_COMMIT, COMPLETE_COMMIT, (ONGOING, 4, "t")), "ABORT", True),  # both are open as one
        (known(PREPARE_COMMIT, COMPLETE_COMMIT, PREPARE_ABORT, COMPLETE_ABORT), "ABORT", True),
        (known(PREPARE_COMMIT, COMPLETE_COMMIT, changed_ms=START_MS), "ABORT", True),  # its marker came: a late write
        (known(PREPARE_COMMIT, changed_ms=START_MS), "COMMIT", True),  # clocks differ
        (known((PREPARE_COMMIT, 3, "other")), "ABORT", True),
        (known((PREPARE_COMMIT, 9, "t")), "ABORT", True),  # a later transaction's
        (known(ONGOING), "ABORT", True),
        (known(PREPARE_ABORT), "ABORT", True),
        (known(COMPLETE_ABORT), "ABORT", True),
        (known(EMPTY), "ABORT", True),
        ({}, "ABORT", False),
        (None, "ABORT", False),
    ],
)
def test_an_open_transaction_ends_as_its_coordinator_had_decided(
    tmp_path: Path, coordinators: dict[int, Coordinated] | None, marker: str, certain: bool
) -> None:
    plan = planned_with(tmp_path, coordinators)
    (ending,) = plan.endings
    assert (ending.marker, ending.certain, ending.offset) == (marker, certain, 6)
    assert (ending.coordinator_epoch, ending.transaction.records) == (5, 2)
    assert any("--transactions-of" in note for note in plan.notes) == (not certain)
    done = carry_out(FS, FixedClock(START_MS), whole(tmp_path, plan), lambda _topic: CONFIG, lambda _size: None)
    assert done.run is not None and done.failure is None
    with opened_log(tmp_path / "new" / "t-0", writable=False) as log:
        seen = [record.value for record in log.records(isolation=Isolation.READ_COMMITTED)]
        assert seen == [b"plain", *([b"open", b"open"] if marker == "COMMIT" else []), b"after"]
        assert [record.value for record in log.records()] == [b"plain", b"gone", b"open", b"open", b"after"]
        assert log.log_end_offset == plan.log_end == 7
        assert set(log.producers.producers) == {(1 << 62) + 7}


def whole(root: Path, plan: PartitionPlan) -> TransplantPlan:
    return TransplantPlan(root / "new", (plan,))


@pytest.mark.parametrize("where", ["old", "third"])
def test_a_part_of_what_a_run_makes_is_not_taken_for_the_source(tmp_path: Path, where: str) -> None:
    """The end of what is there would become the end of the log, and a decision that is not there yet an ABORT."""
    directory = source_with_open_transaction(tmp_path)
    (tmp_path / "third").mkdir()
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    asked = request(FS, target, directory, transactions_of=[tmp_path / "third"])
    assert len(planned(FS, START_MS, asked).partitions) == 1
    (tmp_path / where / ".seglog-run").write_text("/somewhere\n")
    with pytest.raises(RefusedError, match=f"{tmp_path / where}: a run of seglog was cut short here"):
        planned(FS, START_MS, asked)


def test_transactions_of_another_directory_tell_how_one_ended(tmp_path: Path) -> None:
    directory = source_with_open_transaction(tmp_path)
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    alone = planned(FS, START_MS, request(FS, target, directory))
    assert "there is no __transaction_state" in alone.endings[0].why
    with opened_log(tmp_path / "third" / "__transaction_state-0"):
        pass
    asked = request(FS, target, directory, transactions_of=[tmp_path / "third"])
    assert "does not know its producer" in planned(FS, START_MS, asked).endings[0].why


def test_transactions_of_a_snapshot_tell_how_one_ended(tmp_path: Path) -> None:
    directory = source_with_open_transaction(tmp_path)
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    with opened_log(tmp_path / "third" / "__transaction_state-0"):
        pass
    assert ended("backup", tmp_path / "third", "--to", tmp_path / "backup", "--uncommitted").code == 0
    shutil.rmtree(tmp_path / "third")
    snapshot = tmp_path / "backup#latest"
    plan = seglog.plan_transplant(directory, into=target, transactions_of=[snapshot])
    assert "does not know its producer" in plan.partitions[0].endings[0].why
    line = ("transplant", directory, "--into", target, "--dry-run", "--json", "--transactions-of", snapshot)
    assert "does not know its producer" in ended(*line).stdout.decode()


def test_a_target_that_was_written_to_since_holds_the_data_too(tmp_path: Path) -> None:
    directory = source_with_open_transaction(tmp_path)
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    wanted = request(FS, target, directory)
    assert transplanted(FS, START_MS, wanted).run is not None
    with opened_log(target / "t-0") as log:
        log.append([Record(b"new")], leader_epoch=6)
    assert not planned(FS, START_MS, wanted).pending
    with opened_log(directory) as log:
        log.append([Record(b"more of the old")])
    with pytest.raises(RefusedError, match="holds other data"):
        planned(FS, START_MS, wanted)


def test_an_empty_partition_keeps_the_offset_at_which_it_ends(tmp_path: Path) -> None:
    with opened_log(tmp_path / "old" / "t-0") as log:
        log.append([Record(b"x")] * 4)
        log.truncate_fully(500)
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    assert transplanted(FS, START_MS, request(FS, target, tmp_path / "old" / "t-0")).run is not None
    with opened_log(target / "t-0", writable=False) as log:
        assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert not (target / "t-0" / f"{0:020}.log").exists()


def test_retention_that_would_delete_the_data_is_warned_of(tmp_path: Path) -> None:
    with opened_log(tmp_path / "old" / "t-0", segment_bytes=200) as log:
        for n in range(6):
            log.append([Record(b"value" * 20, timestamp=START_MS + n)])
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    wanted, later = request(FS, target, tmp_path / "old" / "t-0"), FixedClock(START_MS + 10 * 86_400_000)
    plan = plan_transplant(FS, later, wanted, lambda _topic: LogConfig())
    assert any("retention.ms=604800000 of the new cluster deletes 6 of 6 segments" in note for note in plan.notes)
    assert not [note for note in planned(FS, START_MS, wanted).notes if "retention.ms" in note]


def test_records_that_were_acknowledged_and_are_not_there_are_said(tmp_path: Path) -> None:
    directory = source_with_open_transaction(tmp_path)
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\nt 0 44\n")
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    notes = planned(FS, START_MS, request(FS, target, directory)).notes
    assert any("ends at offset 6, and offsets below 44 had been acknowledged" in note for note in notes)


def test_a_source_whose_broker_runs_is_refused(tmp_path: Path) -> None:
    directory = source_with_open_transaction(tmp_path)
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    with DirectoryLock(directory.parent), pytest.raises(LockedError, match="old is locked by"):
        planned(FS, START_MS, request(FS, target, directory))


def test_all_obstacles_are_reported_at_once_and_nothing_is_done(tmp_path: Path) -> None:
    source_with_open_transaction(tmp_path)
    for name in ("u-0", "v-0", "w-0"):
        with opened_log(tmp_path / "old" / name) as log:
            log.append([Record(b"x")])
    target = target_directory(FS, tmp_path / "new", ["t-0", "w-0"])
    (target / "w-0" / "partition.metadata").unlink()
    before = everything(target)
    with pytest.raises(Obstacles, match=r"has no u-0, v-0, so .*w-0/partition.metadata is missing"):
        planned(FS, START_MS, request(FS, target, tmp_path / "old"))
    assert everything(target) == before


def test_groups_are_left_out_and_reported_where_the_new_cluster_has_none(tmp_path: Path) -> None:
    source_with_open_transaction(tmp_path)
    with opened_log(tmp_path / "old" / "__consumer_offsets-0") as log:
        log.append([Record(b"x", b"k")])
    target = target_directory(FS, tmp_path / "new", ["t-0"])
    plan = planned(FS, START_MS, request(FS, target, tmp_path / "old"))
    assert [str(one.partition) for one in plan.partitions] == ["t-0"]
    assert "groups would not resume" in dict(plan.left_out)[str(tmp_path / "old" / "__consumer_offsets-0")]
    with pytest.raises(NotALogError, match="groups would not resume"):
        planned(FS, START_MS, request(FS, target, tmp_path / "old" / "__consumer_offsets-0"))


def test_directories_that_a_broker_had_set_aside_are_taken_when_they_are_named(tmp_path: Path) -> None:
    directory = source_with_open_transaction(tmp_path)
    aside = directory.rename(directory.with_name("t-0.0123456789abcdef0123456789abcdef-delete"))
    with opened_log(tmp_path / "old" / "u-0") as log:
        log.append([Record(b"x")])
    target = target_directory(FS, tmp_path / "new", ["t-0", "u-0"])
    plan = planned(FS, START_MS, request(FS, target, tmp_path / "old"))
    assert "a broker has set it aside (-delete)" in dict(plan.left_out)[str(aside)]
    assert [str(one.partition) for one in planned(FS, START_MS, request(FS, target, aside)).partitions] == ["t-0"]


class _Looks(CountingFileSystem):
    """Counts how often a directory's entries are listed, too."""

    def entries(self, directory: Path) -> Sequence[tuple[str, FileStatus]]:
        self.listed[directory.name] += 1
        return super().entries(directory)


def test_what_a_plan_reads_of_the_log_directories_does_not_grow_with_their_partitions(tmp_path: Path) -> None:
    costs = []
    for count in (2, 5):
        root, names = tmp_path / str(count), [f"t-{n}" for n in range(count)]
        for name in names:
            with opened_log(root / "old" / name) as log:
                log.append([Record(b"x")])
        (root / "old" / "log-start-offset-checkpoint").write_text("0\n0\n")
        target, fs = target_directory(FS, root / "new", names), _Looks()
        assert len(planned(fs, START_MS, request(fs, target, root / "old")).pending) == count
        costs.append((fs.listed["old"], fs.listed["new"], fs.opened["log-start-offset-checkpoint"]))
    assert costs[0] == costs[1]
    assert costs[0][2] == 1
