"""What is gone is told, as offsets, by every witness that is left; what compaction and retention took is not."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.precedence import KAFKAS_OWN_TOPICS
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.errors import RefusedError
from seglog.format.producer_snapshot import ProducerEntry, encode_snapshot
from seglog.model import TopicPartition
from seglog.repairs.plan import RepairOptions
from seglog.repairs.repair import examination, repair
from seglog.repairs.undo.apply import undo_run
from seglog.repairs.undo.journal import RunRecord
from seglog.scan.listing import Target, TargetKind, resolve_paths
from seglog.verification.codes import Severity
from seglog.verification.findings import Finding
from seglog.verification.surroundings import read_surroundings
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_rescue.doctor.doctor import Diagnosis, Doctor
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.group_records import commit
from tests.support.log_files import FS, batch, write_segment
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import opened_log

LOSSES = {"LOG_MISSING", "SEGMENT_MISSING", "LOG_END_MISSING", "PARTITION_MISSING", "COMMITTED_BEYOND_END"}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def losses(path: Path) -> list[Finding]:
    targets = resolve_paths(FS, [path])
    found = Verification(FS, targets, VerifyOptions(level=Level.SEMANTIC), ManualClock(0))
    return [each for each in found if each.code in LOSSES]


def told(path: Path) -> list[tuple[str, int | None, int | None]]:
    return [(each.code, each.first_offset, each.last_offset) for each in losses(path)]


def diagnosed(path: Path, *, deep: bool = True) -> list[tuple[str, Severity, int | None, int | None]]:
    given = load_settings(FS, overrides=[], environment={}, config=None, working_directory=path)
    doctor = Doctor(FS, [path], FixedClock(0), lambda each: DirectorySettings(FS, each, given), deep=deep)
    rows: list[Diagnosis] = [row for row in doctor if row.code in LOSSES]
    return [(row.code, row.gravity, row.first_offset, row.last_offset) for row in rows]


def checkpoint(logs: Path, name: str, offset: int, partition: str = "t 0") -> None:
    (logs / name).write_text(f"0\n1\n{partition} {offset}\n")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A broker's log directory with t-0: segments 0, 10, 20, 30 of ten records each, closed at offset 40."""
    directory = tmp_path / "logs"
    for base in range(0, 40, 10):
        write_segment(directory / "t-0", base, batch(base, 5), batch(base + 5, 5))
        if base:
            (directory / "t-0" / f"{base:020d}.snapshot").write_bytes(encode_snapshot([]))
    (directory / "t-0" / f"{40:020d}.snapshot").write_bytes(encode_snapshot([]))
    (directory / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (directory / ".kafka_cleanshutdown").touch()
    for name in CHECKPOINTS:
        checkpoint(directory, name, 40)
    return directory


def lose(logs: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in list((logs / "t-0").glob(pattern)):
            path.unlink()


def test_an_intact_log_has_lost_nothing(logs: Path) -> None:
    assert losses(logs) == [] == losses(logs / "t-0")
    assert diagnosed(logs) == [] == diagnosed(logs, deep=False)


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "quick"])
def test_all_logs_gone_is_a_danger_with_the_offsets(logs: Path, deep: bool) -> None:
    lose(logs, "*.log")
    assert told(logs) == told(logs / "t-0") == [("LOG_MISSING", 0, 39)]
    assert diagnosed(logs, deep=deep) == [("LOG_MISSING", Severity.DANGER, 0, 39)]


@pytest.mark.parametrize(
    "gone", [("*20.log",), ("*20.log", "*20.*index"), ("*20.*",)], ids=["log", "log and indexes", "everything"]
)
@pytest.mark.parametrize("deep", [True, False], ids=["deep", "quick"])
def test_a_middle_segment_gone_is_a_danger_with_the_offsets(logs: Path, gone: tuple[str, ...], deep: bool) -> None:
    lose(logs, *gone)
    assert told(logs) == [("SEGMENT_MISSING", 20, 29)]
    # without a look at the records nothing tells a hole that compaction left, unless a file of the segment is there
    seen = deep or ("*20.log" in gone[:1] and len(gone) == 1)
    assert diagnosed(logs, deep=deep) == ([("SEGMENT_MISSING", Severity.DANGER, 20, 29)] if seen else [])


def test_a_replica_that_copied_its_leaders_hole_has_not_certainly_lost_a_segment(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    with opened_log(directory, segment_bytes=2 * len(batch(0, 5))) as log:
        for base in (0, 5, 20, 25):  # the leader's log had nothing between
            log.append_as_follower(batch(base, 5), 0)
        assert [segment.base_offset for segment in log.segments] == [0, 20]
    for name in CHECKPOINTS:
        checkpoint(directory.parent, name, 30)
    (found,) = losses(directory.parent)
    assert (found.code, found.severity, found.first_offset, found.last_offset) == (
        "SEGMENT_MISSING",
        Severity.WARNING,
        10,
        19,
    )
    assert "or this is a copy of a log that never had them" in found.message


def test_a_log_start_within_a_hole_is_no_witness_of_what_was_there(logs: Path) -> None:
    """Deleting records moves the first leader epoch to the log start."""
    lose(logs, "*20.*")
    (logs / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 24\n")
    checkpoint(logs, "log-start-offset-checkpoint", 24)
    (found,) = losses(logs)
    assert (found.severity, found.first_offset, found.last_offset) == (Severity.WARNING, 24, 29)


@pytest.mark.parametrize("inside", [True, False])
def test_a_producer_who_wrote_in_a_hole_proves_the_loss(logs: Path, inside: bool) -> None:
    lose(logs, "*20.*")
    entry = ProducerEntry(7, 0, 4, 27 if inside else 19, 4)
    (logs / "t-0" / f"{30:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    (found,) = losses(logs)
    assert found.severity is (Severity.ERROR if inside else Severity.WARNING)
    text = f"{30:020d}.snapshot has a batch of producer 7 that ended at 27"
    assert (text in found.message) is inside


def test_a_missing_last_segment_is_detected_by_checkpoints_and_snapshots(logs: Path) -> None:
    lose(logs, "*30.*")
    assert told(logs) == [("LOG_END_MISSING", 30, 39)]
    for name in CHECKPOINTS:
        (logs / name).unlink()
    assert told(logs) == [("LOG_END_MISSING", 30, 39)], "the snapshot of offset 40 is still there"
    lose(logs, "*40.snapshot")
    assert told(logs) == []


@pytest.mark.parametrize("name", [*CHECKPOINTS, "log-start-offset-checkpoint"])
def test_a_checkpoint_that_promises_more_than_there_is_is_an_error(logs: Path, name: str) -> None:
    checkpoint(logs, name, 3799)
    (found,) = losses(logs)
    assert (found.code, found.severity, found.first_offset, found.last_offset) == (
        "LOG_END_MISSING",
        Severity.ERROR,
        40,
        3798,
    )
    assert diagnosed(logs) == [("LOG_END_MISSING", Severity.DANGER, 40, 3798)]


def test_the_cleaners_checkpoint_alone_proves_nothing(logs: Path) -> None:
    checkpoint(logs, "cleaner-offset-checkpoint", 99)
    assert told(logs) == []


def test_an_epoch_that_begins_after_the_end_says_that_the_log_was_longer(logs: Path) -> None:
    (logs / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 40\n")
    assert told(logs) == [], "an epoch may have no record yet"
    (logs / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 55\n")
    assert told(logs) == [("LOG_END_MISSING", 40, 54)]


def test_an_index_without_its_log_tells_how_far_the_log_reached(logs: Path) -> None:
    (logs / "t-0" / f"{40:020d}.timeindex").write_bytes(struct.pack(">qi", 1000, 7))
    assert told(logs) == [("LOG_END_MISSING", 40, 47)]
    (logs / "t-0" / f"{40:020d}.log.deleted").touch()
    assert told(logs) == [], "it was about to be deleted"


def test_a_missing_first_segment_is_reported_where_the_log_start_did_not_move(logs: Path) -> None:
    lose(logs, "0000*00.log")
    assert told(logs) == [("SEGMENT_MISSING", 0, 9)], "its indexes are there"
    lose(logs, "0000*00.*")
    assert told(logs) == [], "retention may have taken it"
    checkpoint(logs, "log-start-offset-checkpoint", 4)
    (found,) = losses(logs)
    assert (found.code, found.first_offset, found.last_offset) == ("SEGMENT_MISSING", 4, 9)
    assert found.severity is Severity.WARNING and "may be in tiered storage" in found.message
    (logs / ".kafka_cleanshutdown").unlink()
    assert told(logs) == [], "a crash may have come between deleting it and writing the checkpoint"


def compacted(logs: Path) -> None:
    """Makes offsets below 20 look cleaned: one segment with holes, and the cleaner's checkpoint."""
    lose(logs, "0000*00.*", "*10.*")
    write_segment(logs / "t-0", 0, batch(3, 1), batch(7, 2))
    checkpoint(logs, "cleaner-offset-checkpoint", 20)


def test_holes_that_compaction_left_are_no_loss(logs: Path) -> None:
    compacted(logs)
    assert losses(logs) == []


def test_a_segment_of_the_dirty_section_of_a_compacted_log_is_missed(logs: Path) -> None:
    compacted(logs)
    lose(logs, "*20.*")
    assert told(logs) == [("SEGMENT_MISSING", 20, 29)]


def test_an_index_in_a_hole_of_the_clean_section_says_that_a_segment_is_gone(logs: Path) -> None:
    compacted(logs)
    (logs / "t-0" / f"{14:020d}.index").write_bytes(struct.pack(">ii", 3, 100))
    assert told(logs) == [("SEGMENT_MISSING", 14, 19)]


def test_a_hole_in_a_lone_directory_of_unknown_policy_is_no_loss(logs: Path) -> None:
    lose(logs, "*20.*")
    for name in (*CHECKPOINTS, ".kafka_cleanshutdown"):
        (logs / name).unlink()
    assert told(logs / "t-0") == []


def test_damaged_offsets_are_not_reported_again_as_losses(logs: Path) -> None:
    path = logs / "t-0" / f"{20:020d}.log"
    path.write_bytes(path.read_bytes()[:-20])
    assert losses(logs) == []


def test_a_checkpoint_of_a_partition_that_was_deleted_before_says_nothing_of_its_successor(logs: Path) -> None:
    checkpoint(logs, "replication-offset-checkpoint", 3799)
    (logs / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (logs / "recovery-point-offset-checkpoint").unlink()
    os.utime(logs / "replication-offset-checkpoint", (0.5, 0.5))
    os.utime(logs / "t-0" / "partition.metadata", (0.9, 0.9))
    assert told(logs) == [], "the partition was made after the checkpoint was written, and its records later"
    os.utime(logs / "t-0" / "partition.metadata", (2000, 2000))
    assert told(logs) == [("LOG_END_MISSING", 40, 3798)], "a copy made later, whose records are older"


def test_a_partition_that_checkpoints_name_and_that_is_not_there_is_missed(logs: Path) -> None:
    (logs / "t-0").rename(logs.parent / "elsewhere")
    assert told(logs) == [("PARTITION_MISSING", 0, 39)]
    assert diagnosed(logs) == [("PARTITION_MISSING", Severity.DANGER, 0, 39)]
    (logs.parent / "elsewhere").rename(logs / f"t-0.{'0' * 32}-delete")
    assert told(logs) == [], "it is being deleted"


def test_kafka_compacts_its_own_topics_of_groups_and_transactions_and_deletes_from_the_others(logs: Path) -> None:
    """The state of share groups, too, is deleted below what is needed (Kafka: ShareCoordinatorConfig)."""
    around = read_surroundings(FS, logs)
    policies = {topic: (around.compacted(topic), around.deletes(topic)) for topic in KAFKAS_OWN_TOPICS}
    assert policies == {
        "__consumer_offsets": (True, False),
        "__transaction_state": (True, False),
        "__share_group_state": (False, True),
        "__remote_log_metadata": (False, True),
    }


def test_share_groups_without_their_state_stand_still_until_their_offsets_are_set(logs: Path) -> None:
    for name in CHECKPOINTS:
        checkpoint(logs, name, 40, "__share_group_state 0")
    shutil.rmtree(logs / "t-0")
    given = load_settings(FS, overrides=[], environment={}, config=None, working_directory=logs)
    rows = Doctor(FS, [logs], FixedClock(0), lambda each: DirectorySettings(FS, each, given))
    (row,) = [row for row in rows if row.code == "PARTITION_MISSING"]
    assert "stand still" in row.broker
    assert row.command.startswith("kafka-share-groups.sh --bootstrap-server HOST:PORT --reset-offsets --group GROUP ")


@pytest.mark.parametrize(
    ("topic", "words", "command"),
    [
        ("app-store-changelog", "with an empty state and without an error", "kafka-streams-application-reset.sh "),
        ("connect-offsets", "without which connectors begin anew", ""),
        ("mm2-offset-syncs.new.internal", "MirrorMaker's map of offsets", ""),
    ],
)
def test_what_a_lost_partition_was_the_memory_of_is_said(logs: Path, topic: str, words: str, command: str) -> None:
    for name in CHECKPOINTS:
        checkpoint(logs, name, 40, f"{topic} 0")
    shutil.rmtree(logs / "t-0")
    given = load_settings(FS, overrides=[], environment={}, config=None, working_directory=logs)
    rows = list(Doctor(FS, [logs], FixedClock(0), lambda each: DirectorySettings(FS, each, given)))
    (row,) = [row for row in rows if row.code == "PARTITION_MISSING"]
    assert row.broker.startswith("Creates an empty log.") and words in row.broker
    assert row.command.startswith(command)


def test_a_partition_in_the_brokers_other_directory_is_not_missed(logs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (logs / "t-0").rename(other / "t-0")
    given = load_settings(FS, overrides=[], environment={}, config=None, working_directory=logs)
    rows = Doctor(FS, [logs, other], FixedClock(0), lambda each: DirectorySettings(FS, each, given))
    assert [row for row in rows if row.code in LOSSES] == []


def test_what_the_controller_gave_to_this_broker_and_nobody_else_has_is_missed(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    assert losses(logs) == []
    shutil.rmtree(logs / "orders-lz4-0")
    (found,) = losses(logs)
    assert (found.code, found.partition, found.severity) == ("PARTITION_MISSING", "orders-lz4-0", Severity.ERROR)
    assert found.first_offset == 0 and found.last_offset is not None and "no other broker has a copy" in found.message
    for name in CHECKPOINTS:
        text = (logs / name).read_text().splitlines()
        kept = [line for line in text[2:] if not line.startswith("orders-lz4 ")]
        (logs / name).write_text("\n".join([text[0], str(len(kept)), *kept, ""]))
    (found,) = losses(logs)
    assert found.severity is Severity.WARNING and "group" in found.message, "only its readers say that it held records"
    for path in logs.glob("__consumer_offsets-*/*.log"):
        path.write_bytes(b"")
    (found,) = [each for each in losses(logs) if each.partition == "orders-lz4-0"]
    assert (found.severity, found.last_offset) == (Severity.INFO, None), "nothing says that it held records"


def test_what_a_group_has_read_and_the_log_no_longer_holds_is_a_warning(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    around = read_surroundings(FS, logs)
    key, committed = max(around.committed.items(), key=lambda item: item[1].offset)
    partition = logs / str(key)
    for path in sorted(partition.glob("*.log"))[1:]:
        for each in partition.glob(f"{path.stem}.*"):
            each.unlink()
    first = next(iter(sorted(partition.glob("*.log"))))
    first.write_bytes(b"")
    for each in (*partition.glob("*.snapshot"), *partition.glob("*index"), *(logs / name for name in CHECKPOINTS)):
        each.unlink()
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    (found,) = [each for each in losses(logs) if each.partition == str(key)]
    assert (found.code, found.severity) == ("LOG_END_MISSING", Severity.WARNING)
    assert found.last_offset == committed.offset - 1 and committed.group in found.message


def commits_offset(logs: Path, offset: int) -> None:
    with opened_log(logs / "__consumer_offsets-0") as log:
        log.append([commit("mirror", offset, partition=TopicPartition("t", 0))])


@pytest.mark.parametrize("offset", [41, 710, 1 << 62])
@pytest.mark.parametrize("agrees", CHECKPOINTS)
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_committed_offset_above_an_end_that_the_broker_wrote_down_is_its_clients_own(
    logs: Path, offset: int, agrees: str, clean: bool
) -> None:
    commits_offset(logs, offset)
    for name in CHECKPOINTS:
        checkpoint(logs, name, 40 if name == agrees else 25)
    if not clean:
        (logs / ".kafka_cleanshutdown").unlink()
    (found,) = losses(logs)
    assert (found.code, found.severity, found.offsets_lost) == ("COMMITTED_BEYOND_END", Severity.INFO, 0)
    assert f"group mirror has read up to {offset}" in found.message and "ends at 40" in found.message
    note = [("COMMITTED_BEYOND_END", Severity.NOTE, None, None)]
    assert diagnosed(logs) == note == diagnosed(logs, deep=False)


def test_a_committed_offset_is_a_witness_where_no_checkpoint_agrees_with_the_end(logs: Path) -> None:
    commits_offset(logs, 45)
    for name in CHECKPOINTS:
        checkpoint(logs, name, 25)
    (found,) = losses(logs)
    assert (found.code, found.severity, found.last_offset) == ("LOG_END_MISSING", Severity.WARNING, 44)


def test_a_committed_offset_hides_no_better_witness(logs: Path) -> None:
    commits_offset(logs, 710)
    (logs / "t-0" / f"{55:020d}.snapshot").write_bytes(encode_snapshot([]))
    assert told(logs) == [("LOG_END_MISSING", 40, 709)]
    assert diagnosed(logs)[0][1] is Severity.DANGER


@pytest.mark.parametrize("name", ["4.3.0/clean", "4.3.0/killed", "4.3.0/generated", "0.10.2", "0.8.2", "0.7"])
def test_healthy_directories_of_every_version_have_lost_nothing(name: str, tmp_path: Path) -> None:
    logs = fixture_copy(name, tmp_path)
    assert losses(logs) == []
    assert diagnosed(logs, deep=False) == []
    assert fixture_now_ms(name) > 0
    named = [Target(path, TargetKind.PARTITION) for path in sorted(logs.glob("*-0"))]
    found = Verification(FS, named, VerifyOptions(level=Level.SEMANTIC), ManualClock(0))
    assert [each for each in found if each.code in LOSSES] == []


def deleted_records(logs: Path, start: int, epochs: str) -> None:
    checkpoint(logs, "log-start-offset-checkpoint", start)
    (logs / "t-0" / "leader-epoch-checkpoint").write_text(epochs)


@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (lambda logs: deleted_records(logs, 23, "0\n1\n0 23\n"), False),
        (lambda logs: deleted_records(logs, 0, "0\n1\n0 23\n"), False),
        (lambda logs: deleted_records(logs, 0, "0\n1\n3 23\n"), True),
        (lambda logs: deleted_records(logs, 0, "0\n1\n1 20\n"), True),
    ],
    ids=["records deleted", "a crash before the log start was written", "another epoch", "an epoch too late"],
)
def test_epochs_below_the_log_start_are_forgotten_lawfully(
    logs: Path, damage: Callable[[Path], None], wrong: bool
) -> None:
    lose(logs, "0000*00.*", "*10.*")
    damage(logs)
    found = Verification(FS, resolve_paths(FS, [logs]), VerifyOptions(level=Level.SEMANTIC), ManualClock(0))
    assert ("LEADER_EPOCHS_DIFFER" in {each.code for each in found}) == wrong


def rotten_end(logs: Path, base: int) -> Path:
    """A bit of the segment's last batch is another one."""
    path = logs / "t-0" / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    return path


def repaired(logs: Path, quarantine: Path | None = None) -> RunRecord:
    partitions = [logs / "t-0"]
    findings = examination(FS, FixedClock(0), logs, partitions, whole=True).findings
    outcome = repair(FS, FixedClock(0), logs, partitions, findings, RepairOptions(quarantine=quarantine))
    assert outcome.run is not None and outcome.complete
    return outcome.run


def graves(logs: Path) -> list[tuple[str, Severity]]:
    return [(each.code, each.severity) for each in losses(logs)]


@pytest.mark.parametrize("place", [None, "elsewhere"])
def test_what_a_repair_took_is_no_lost_segment_wherever_it_is_kept(logs: Path, tmp_path: Path, place: str) -> None:
    rotten_end(logs, 10)
    run = repaired(logs, None if place is None else tmp_path / place)
    assert graves(logs) == [("SEGMENT_MISSING", Severity.INFO)]
    shutil.rmtree(run.folder.parent)  # purged, moved away, or not mounted
    assert graves(logs) == graves(logs / "t-0") == [("SEGMENT_MISSING", Severity.INFO)]
    shutil.copytree(logs, tmp_path / "copy")
    assert graves(tmp_path / "copy") == [("SEGMENT_MISSING", Severity.INFO)]


def test_a_missing_segment_that_a_repair_removed_is_info_though_its_snapshot_exists(logs: Path) -> None:
    path = logs / "t-0" / f"{20:020d}.log"
    path.write_bytes(bytes(path.stat().st_size))
    repaired(logs)
    assert graves(logs) == [("SEGMENT_MISSING", Severity.INFO)]
    (found,) = losses(logs)
    assert (found.first_offset, found.last_offset) == (20, 29)
    assert "20.snapshot exists; a repair removed them together with damage" in found.message


def test_undo_takes_the_note_of_its_own_repair_and_no_other(logs: Path, tmp_path: Path) -> None:
    before = rotten_end(logs, 10).read_bytes()
    first = repaired(logs, tmp_path / "elsewhere")
    healthy = logs / "t-0" / f"{20:020d}.log"
    shutil.copy2(healthy, tmp_path / "healthy")
    rotten_end(logs, 20)
    second = repaired(logs)
    assert [each.first_offset for each in losses(logs)] == [15, 25]
    undo_run(FS, second)
    assert [path.name for path in (logs / "t-0").glob(".seglog-repaired-*")] == [f".seglog-repaired-{first.name}"]
    with pytest.raises(RefusedError, match="was changed"):  # by the rot between the runs, in a log that it left alone
        undo_run(FS, first)
    shutil.copy2(tmp_path / "healthy", healthy)
    undo_run(FS, first)
    assert (logs / "t-0" / f"{10:020d}.log").read_bytes() == before
    assert not list((logs / "t-0").glob(".seglog-*"))


def test_a_note_speaks_of_its_offsets_alone(logs: Path) -> None:
    rotten_end(logs, 10)
    repaired(logs)
    lose(logs, "*20.*")
    assert [(each.severity, each.first_offset, each.last_offset) for each in losses(logs)] == [
        (Severity.WARNING, 15, 29)
    ]


@pytest.mark.parametrize("note", [b"", b"[]", b'{"version":1,"gaps":[[19,15]]}', b'{"version":2,"gaps":[[0,99]]}'])
def test_a_note_that_cannot_be_read_is_named(logs: Path, note: bytes) -> None:
    rotten_end(logs, 10)
    run = repaired(logs)
    (logs / "t-0" / f".seglog-repaired-{run.name}").write_bytes(note)
    (loss,) = losses(logs)
    assert loss.severity is Severity.WARNING and f".seglog-repaired-{run.name}" in loss.message
