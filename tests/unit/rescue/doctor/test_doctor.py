"""What doctor says of log directories, and where it sees the end of a log."""

from __future__ import annotations

import shutil
import struct
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.precedence import Settings
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.format.checkpoint import (
    MetaProperties,
    PartitionMetadata,
    format_meta_properties,
    format_partition_metadata,
)
from seglog.kafka_version import KafkaVersion
from seglog.scan.listing import list_partition
from seglog.verification.codes import Severity
from seglog_rescue.doctor.doctor import CASES, Diagnosis, Doctor
from seglog_rescue.doctor.segment_end import kafka_end
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import FS, batch, transactional, write_segment

NOW_MS = 1_700_000_000_000


def diagnose(
    *paths: Path,
    now_ms: int = NOW_MS,
    deep: bool = True,
    settings: Mapping[str, str] | None = None,
    kafka: KafkaVersion | None = None,
) -> list[Diagnosis]:
    overrides = [f"{key}={value}" for key, value in (settings or {}).items()]
    given = load_settings(FS, overrides=overrides, environment={}, config=None, working_directory=paths[0])
    settings_of = partial(_settings_of, given)
    return list(Doctor(FS, paths, FixedClock(now_ms), settings_of, deep=deep, kafka=kafka))


def _settings_of(given: Settings, path: Path) -> DirectorySettings:
    return DirectorySettings(FS, path, given)


def codes(*paths: Path, **options: object) -> set[str]:
    return {row.code for row in diagnose(*paths, **options)}  # type: ignore[arg-type]


def test_each_examination_replays_a_directorys_metadata_for_its_settings_once(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    given = load_settings(FS, environment={}, config=None, working_directory=logs)
    asked: list[Path] = []

    def settings_of(path: Path) -> DirectorySettings:
        asked.append(path)
        return DirectorySettings(FS, path, given)

    doctor = Doctor(FS, [logs], FixedClock(NOW_MS), settings_of)
    first = list(doctor)
    assert asked == [logs]
    assert list(doctor) == first
    assert asked == [logs, logs]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with the partition t-0 of one segment, without a marker of a clean stop."""
    write_segment(tmp_path / "logs" / "t-0", 0, batch(0, 4), batch(4, 4))
    return tmp_path / "logs"


@pytest.mark.parametrize("name", ["4.3.0/clean", "4.3.0/killed", "4.3.0/generated", "0.10.2", "0.8.2"])
@pytest.mark.parametrize("deep", [True, False], ids=["deep", "quick"])
def test_healthy_directories_have_no_blocker_and_no_danger(name: str, deep: bool, tmp_path: Path) -> None:
    rows = diagnose(fixture_copy(name, tmp_path), now_ms=fixture_now_ms(name), deep=deep)
    assert [row for row in rows if row.gravity is not Severity.NOTE] == []


def test_a_log_of_kafka_07_would_be_hidden(tmp_path: Path) -> None:
    assert codes(fixture_copy("0.7", tmp_path)) == {"KAFKA_07_LOG"}


def test_every_row_says_what_a_broker_does() -> None:
    assert all(case.broker.endswith(".") for case in CASES.values())
    assert {case.severity for case in CASES.values()} == {Severity.BLOCKER, Severity.DANGER, Severity.NOTE}


CHECKPOINT = b"0\n1\nt 0 8\n"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("recovery-point-offset-checkpoint", CHECKPOINT, None),
        ("recovery-point-offset-checkpoint", b"", None),
        ("recovery-point-offset-checkpoint", b"1\n0\n", "CHECKPOINT_UNREADABLE"),
        ("replication-offset-checkpoint", b"0\n2\nt 0 8\n", "CHECKPOINT_UNREADABLE"),
        ("log-start-offset-checkpoint", b"0\n1\nt 0 x\n", "CHECKPOINT_IGNORED"),
        ("cleaner-offset-checkpoint", b"0\n1\nt 0 99\n", "CHECKPOINT_BEYOND"),
        ("meta.properties", b"version=1\nnode.id=1\n", "META_PROPERTIES_INVALID"),
        ("meta.properties", b"version=7\ncluster.id=a\nnode.id=1\n", "META_PROPERTIES_INVALID"),
        ("meta.properties", b"", "META_PROPERTIES_INVALID"),
        ("t-0/partition.metadata", b"version: 0\n", "PARTITION_METADATA_UNREADABLE"),
        ("some.file", b"", None),
    ],
)
def test_a_small_file_has_the_code_of_what_a_broker_does_with_it(
    logs: Path, name: str, data: bytes, code: str | None
) -> None:
    (logs / name).write_bytes(data)
    assert codes(logs) == (set() if code is None else {code})


@pytest.mark.parametrize(
    ("name", "data", "refuses"),
    [
        ("leader-epoch-checkpoint", b"0\n5\n", False),
        ("leader-epoch-checkpoint", b"1\n0\n", False),
        ("leader-epoch-checkpoint", b"0\n1\nx 0\n", True),
        ("leader-epoch-checkpoint", b"0\n-1\n", True),
        ("partition.metadata", b"version: x\ntopic_id: y\n", False),
        ("partition.metadata", b"", True),
        ("partition.metadata", b"version: 0\n", True),
        ("partition.metadata", b"version: 0\ntopic_id: nonsense\n", True),
    ],
)
def test_what_kafka_does_not_foresee_in_a_small_file_keeps_a_broker_from_starting(
    logs: Path, name: str, data: bytes, refuses: bool
) -> None:
    (logs / "t-0" / name).write_bytes(data)
    (row,) = [row for row in diagnose(logs) if row.gravity is Severity.BLOCKER]
    assert row.broker.startswith("Refuses to start" if refuses else "Takes the log directory offline")


@pytest.mark.parametrize("name", ["recovery-point", "replication", "log-start", "cleaner"])
def test_a_checkpoint_that_ends_after_its_version_is_taken_for_an_empty_one(logs: Path, name: str) -> None:
    (logs / f"{name}-offset-checkpoint").write_bytes(b"0\n")
    (row,) = diagnose(logs)
    assert (row.code, row.gravity) == ("CHECKPOINT_IGNORED", Severity.DANGER)
    assert row.broker.startswith("Treats the file as empty")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("lost+found", "STRANGE_DIRECTORY"),
        (".snapshot", "STRANGE_DIRECTORY"),
        ("t-x", "STRANGE_DIRECTORY"),
        ("seglog-run-unfinished", "RUN_UNFINISHED"),
        ("remote-log-index-cache", None),
        (f"t-1.{'0' * 32}-delete", "DELETED_PARTITION"),
        (f"t-1.{'0' * 32}-stray", "SET_ASIDE_PARTITION"),
        ("__cluster_metadata-0", "META_PROPERTIES_MISSING"),
    ],
)
def test_a_sub_directory_has_the_code_of_what_a_broker_takes_it_for(logs: Path, name: str, code: str | None) -> None:
    (logs / name).mkdir()
    assert codes(logs) == (set() if code is None else {code})


def test_what_may_not_be_in_two_directories(logs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_segment(other / "t-0", 0, batch(0))
    for path, node in ((logs, 1), (other, 2)):
        meta = MetaProperties(1, "cluster", node, uuid.UUID(int=700))
        (path / "meta.properties").write_bytes(format_meta_properties(meta, NOW_MS))
        (path / "cleaner-offset-checkpoint").write_bytes(b"0\n1\nt 0 0\n")
    assert codes(logs, other) == {"DUPLICATE_PARTITION", "META_PROPERTIES_DIFFER", "CLEANER_CHECKPOINT_DUPLICATE"}
    assert codes(logs) == codes(other) == set()


METADATA = b"version=1\ncluster.id=c\nnode.id=1\n"


@pytest.mark.parametrize(
    ("data", "of_the_metadata", "code", "broker"),
    [
        (b"version=5\ncluster.id=c\nnode.id=1\n", False, "META_PROPERTIES_INVALID", "Takes the log directory offline"),
        (b"version=1\ncluster.id=c\n", False, "META_PROPERTIES_INVALID", "Takes the log directory offline"),
        (b"version=5\ncluster.id=c\nnode.id=1\n", True, "META_PROPERTIES_INVALID", "Refuses to start"),
        (b"version=1\nnode.id=1\n", False, "META_PROPERTIES_INVALID", "Refuses to start"),
        (b"", False, "META_PROPERTIES_INVALID", "Refuses to start"),
        (None, False, "META_PROPERTIES_MISSING", "Refuses to start"),
        (METADATA.replace(b"=c", b"=d"), False, "META_PROPERTIES_DIFFER", "Refuses to start"),
    ],
)
def test_an_unreadable_meta_properties_costs_one_directory_unless_it_is_the_metadata_logs(
    tmp_path: Path, data: bytes | None, of_the_metadata: bool, code: str, broker: str
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    write_segment(good / "t-0", 0, batch(0))
    write_segment(bad / "u-0", 0, batch(0))
    (good / "meta.properties").write_bytes(METADATA)
    if data is not None:
        (bad / "meta.properties").write_bytes(data)
    ((bad if of_the_metadata else good) / "__cluster_metadata-0").mkdir()
    rows = [row for row in diagnose(good, bad) if row.code.startswith("META_")]
    assert [(row.code, row.log_directory, row.broker.partition(":")[0].partition(",")[0]) for row in rows] == [
        (code, str(bad), broker)
    ]


def test_two_directories_with_the_metadata_log_keep_a_broker_from_starting(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "__cluster_metadata-0").mkdir(parents=True)
        (tmp_path / name / "meta.properties").write_bytes(METADATA)
    assert codes(tmp_path / "a", tmp_path / "b") == {"DUPLICATE_PARTITION"}


def test_a_partition_whose_topic_id_the_metadata_does_not_know_would_be_set_aside(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    (logs / "both-0" / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(uuid.UUID(int=9))))
    (logs / "clicks-0" / "partition.metadata").unlink()
    shutil.copytree(logs / "customers-0", logs / "customers-2")  # the topic has two partitions
    rows = [row for row in diagnose(logs, deep=False) if row.code == "STRAY_PARTITION"]
    found = {row.partition: row.message for row in rows}
    assert all(row.message.endswith(f"--topic {row.partition[:-2]}=NEW-TOPIC") for row in rows)  # the names are taken
    assert found.keys() == {"both-0", "clicks-0", "customers-2"}
    assert "but no partition 2" in found["customers-2"] and "recreated" in found["both-0"]


def test_a_replica_that_was_moved_to_other_brokers_would_be_set_aside(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    meta = logs / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    rows = diagnose(logs, deep=False)
    live = {path.name for path in logs.iterdir() if path.is_dir() and path.name != "__cluster_metadata-0"}
    assert {row.partition for row in rows if row.code == "STRAY_PARTITION"} == live
    assert "not on this one (7)" in next(row.message for row in rows if row.code == "STRAY_PARTITION")


def test_a_directory_with_another_topics_id_is_loaded_and_not_served(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    (logs / "customers-0").rename(logs / "patrons-0")
    shutil.rmtree(logs / "clicks-0")
    shutil.copytree(logs / "orders-none-0", logs / "clicks-0")
    found = {row.partition: row for row in diagnose(logs, deep=False) if row.code == "FOREIGN_PARTITION"}
    assert found.keys() == {"patrons-0", "clicks-0"}
    assert "no topic has" in found["patrons-0"].broker and "does not serve" in found["clicks-0"].broker


def test_the_metadata_of_another_directory_of_the_same_broker_counts(tmp_path: Path) -> None:
    logs, other = two_directories(tmp_path)
    (other / "customers-0").rename(other / "customers-2")
    stray = [row.log_directory for row in diagnose(logs, other, deep=False) if row.code == "STRAY_PARTITION"]
    assert stray == [str(other)]


def two_directories(tmp_path: Path) -> tuple[Path, Path]:
    """A broker's directory with the metadata log, and a second one of it with customers-0 alone."""
    logs = fixture_copy("4.3.0/clean", tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    meta = (logs / "meta.properties").read_text().splitlines()
    (other / "meta.properties").write_text("\n".join(line for line in meta if not line.startswith("directory.id")))
    shutil.move(logs / "customers-0", other / "customers-0")
    return logs, other


def test_partitions_of_a_directory_that_goes_offline_may_be_made_anew_in_another(tmp_path: Path) -> None:
    logs, other = two_directories(tmp_path)
    assert "PARTITIONS_MADE_ELSEWHERE" not in codes(logs, other, deep=False)
    (other / "customers-0" / "leader-epoch-checkpoint").write_text("x\n")
    rows = [row for row in diagnose(logs, other, deep=False) if row.code == "PARTITIONS_MADE_ELSEWHERE"]
    assert [(row.log_directory, row.count, row.gravity) for row in rows] == [(str(other), 1, Severity.DANGER)]
    (logs / "clicks-0" / "leader-epoch-checkpoint").write_text("x\n")  # without the metadata log it does not go on
    assert "PARTITIONS_MADE_ELSEWHERE" not in codes(logs, other, deep=False)


@pytest.mark.parametrize(
    ("name", "stops"),
    [
        ("customers-0/leader-epoch-checkpoint", True),
        ("recovery-point-offset-checkpoint", True),
        ("log-start-offset-checkpoint", True),
        ("replication-offset-checkpoint", False),  # which is read after the logs were loaded
    ],
)
def test_a_stray_partition_stops_a_broker_once_its_directory_is_offline(name: str, stops: bool, tmp_path: Path) -> None:
    logs, other = two_directories(tmp_path)
    shutil.copytree(other / "customers-0", other / "customers-2")  # the topic has two partitions
    assert "STRAY_IN_FAILED_DIRECTORY" not in codes(logs, other, deep=False)
    (other / name).write_bytes(b"\xfe")
    rows = [row for row in diagnose(logs, other, deep=False) if row.code == "STRAY_IN_FAILED_DIRECTORY"]
    assert [(row.file, row.gravity) for row in rows] == [("customers-2", Severity.BLOCKER)] * stops


@pytest.mark.parametrize("state", ["delete", "stray"])
def test_a_deleted_or_stray_directory_that_cannot_be_loaded_stops_a_broker(logs: Path, state: str) -> None:
    directory = logs / f"t-1.{'0' * 32}-{state}"
    write_segment(directory, 0, batch(0, 4))
    aside = {"delete": "DELETED_PARTITION", "stray": "SET_ASIDE_PARTITION"}[state]
    assert codes(logs) - {"STRAY_UNSERVED"} == {aside}
    (directory / "partition.metadata").write_bytes(b"")
    assert codes(logs) - {"STRAY_UNSERVED"} == {aside, "PARTITION_METADATA_UNREADABLE"}
    (directory / "partition.metadata").unlink()
    (directory / "x.log").touch()
    assert codes(logs) - {"STRAY_UNSERVED"} == {aside, "STRANGE_SEGMENT_NAME"}
    (row,) = [row for row in diagnose(logs) if row.gravity is Severity.BLOCKER]
    assert row.partition == directory.name


def test_a_transaction_hangs_when_its_coordinator_has_ended_it(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/killed", tmp_path)
    log = logs / "payments-0"
    segment = list_partition(FS, log).segments[-1]
    # a late write of a producer whose transaction its coordinator has completed
    states = {row.message.split("says: ")[1] for row in diagnose(logs) if row.code == "TRANSACTION_OPEN"}
    assert all("Ongoing" in state for state in states)
    from seglog.verification.transaction_coordinators import read_coordinators

    known = read_coordinators(FS, logs)
    assert known is not None
    settled = next(one for one in known.values() if one.state in (4, 5))
    end = kafka_end(FS, segment).next_offset
    data = segment.log.read_bytes() + transactional(end, settled.producer_id, 0, epoch=settled.producer_epoch)
    segment.log.write_bytes(data)
    hanging = [row for row in diagnose(logs) if row.code == "TRANSACTION_HANGING"]
    assert [(row.partition, row.first_offset) for row in hanging] == [("payments-0", end)]


def test_a_snapshot_may_hold_a_transaction_open_of_which_nothing_is_left(logs: Path) -> None:
    from seglog.format.producer_snapshot import ProducerEntry, encode_snapshot

    entry = ProducerEntry(5, 0, 0, 2, 0, NOW_MS, -1, 2)
    (logs / "t-0" / f"{8:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    assert "TRANSACTION_HANGING" in codes(logs)


def test_rows_of_one_kind_and_file_are_one(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    write_segment(log, 0, *(batch(i) for i in range(9)))
    write_segment(log, 9, batch(9))
    path = log / f"{0:020d}.log"
    size = path.stat().st_size // 9
    data = bytearray(path.read_bytes())
    for i in (2, 3, 6):
        data[i * size + 50] ^= 1
    path.write_bytes(data)
    (tmp_path / ".kafka_cleanshutdown").touch()
    (row,) = [row for row in diagnose(tmp_path) if row.code == "DAMAGE_SERVED"]
    assert (row.position, row.length, row.first_offset, row.count) == (2 * size, size, 2, 3)


# --- the end of the log as Kafka sees it -------------------------------------------------------------------


def test_the_end_is_after_the_last_batch(logs: Path) -> None:
    (segment,) = list_partition(FS, logs / "t-0").segments
    assert kafka_end(FS, segment).next_offset == 8
    assert kafka_end(FS, segment).position == segment.size


ENDS: dict[str, tuple[Callable[[bytes], bytes], int, bool]] = {
    "17 bytes": (lambda data: data + bytes(17), 8, False),
    "18 zeros": (lambda data: data + bytes(18), 8, True),
    "a torn batch": (lambda data: data[:-5], 4, False),
    "nothing": (lambda data: b"", 0, False),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_broker_ends_the_log_before_a_torn_batch_and_refuses_zeros_after_the_last(logs: Path, name: str) -> None:
    change, next_offset, refused = ENDS[name]
    path = logs / "t-0" / f"{0:020d}.log"
    path.write_bytes(change(path.read_bytes()))
    (segment,) = list_partition(FS, logs / "t-0").segments
    end = kafka_end(FS, segment)
    assert (end.next_offset, bool(end.refusal)) == (next_offset, refused)


def test_an_index_is_believed(logs: Path) -> None:
    log = logs / "t-0"
    (log / f"{0:020d}.index").write_bytes(struct.pack(">ii", 7, 1 << 20))
    (segment,) = list_partition(FS, log).segments
    assert kafka_end(FS, segment).next_offset == 0
    (log / f"{0:020d}.index").write_bytes(struct.pack(">ii", 7, segment.size // 2) + bytes(80))
    assert kafka_end(FS, segment).next_offset == 8, "zero padding leads to the segment's start"


@pytest.mark.parametrize(
    ("replacement", "code", "lost"),
    [
        (b"", "SWAP_SHORTER", (0, 7)),
        (batch(0, 4), "SWAP_SHORTER", (4, 7)),
        (batch(0, 8)[:-1], "SWAP_DAMAGED", (0, 7)),
    ],
    ids=["empty", "shorter", "damaged"],
)
@pytest.mark.parametrize("deep", [True, False], ids=["deep", "quick"])
def test_a_swap_that_loses_is_a_danger_with_the_offsets_that_go(
    replacement: bytes, code: str, lost: tuple[int, int], deep: bool, logs: Path
) -> None:
    log = logs / "t-0" / f"{0:020d}.log"
    log.with_name(f"{log.name}.swap").write_bytes(replacement)
    size = log.stat().st_size
    (row,) = (row for row in diagnose(logs, deep=deep) if row.code.startswith("SWAP_"))
    assert (row.code, row.gravity) == (code, Severity.DANGER)
    assert (row.first_offset, row.last_offset, row.length) == (*lost, size)
    assert f"{log.name} ({size} bytes, up to offset 7) would be replaced" in row.message


def test_a_swap_that_holds_all_that_it_replaces_is_a_note(logs: Path) -> None:
    log = logs / "t-0" / f"{0:020d}.log"
    shutil.copy(log, f"{log}.swap")
    assert not {code for code in codes(logs) if code.startswith("SWAP_")}


@pytest.mark.parametrize("data", [bytes(24), bytes(10_485_756), None], ids=["padded", "only zeros", "missing"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_time_index_that_no_recovery_rebuilds_is_a_danger_after_any_stop(
    tmp_path: Path, data: bytes | None, clean: bool
) -> None:
    partition, logs = tmp_path / "t-0", tmp_path
    for base in (0, 4, 8):
        write_segment(partition, base, batch(base, 4))
    (logs / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 8\n")
    if clean:
        (logs / ".kafka_cleanshutdown").touch()
    index = partition / f"{0:020d}.timeindex"
    if data is None:
        index.unlink()
    else:
        index.write_bytes(data if len(data) > 24 else index.read_bytes() + data)
    (row,) = [row for row in diagnose(logs) if row.gravity is not Severity.NOTE]
    assert (row.code, row.file) == ("TIME_INDEX_MISSING" if data is None else "TIME_INDEX_PADDED", index.name)


def test_a_time_index_that_the_recovery_rebuilds_is_no_danger(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    for base in (0, 4, 8):
        write_segment(partition, base, batch(base, 4))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    for base in (4, 8):
        (partition / f"{base:020d}.timeindex").write_bytes(bytes(1200))
    assert codes(tmp_path) == set()


@pytest.mark.parametrize("lost", [[], ["0"], ["0", "1"]], ids=["no log knows it", "one is missing", "all are missing"])
def test_a_transaction_without_a_coordinator_anywhere_hangs(tmp_path: Path, lost: list[str]) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    segment = list_partition(FS, logs / "payments-0").segments[-1]
    end = kafka_end(FS, segment).next_offset
    now_ms = fixture_now_ms("4.3.0/clean")
    segment.log.write_bytes(segment.log.read_bytes() + transactional(end, 77, 0, timestamp=now_ms - 1000))
    for number in lost:
        shutil.rmtree(logs / f"__transaction_state-{number}")
    rows = diagnose(logs, now_ms=now_ms)
    (row,) = [row for row in rows if row.code.startswith("TRANSACTION")]
    assert (row.code, row.gravity, row.first_offset) == ("TRANSACTION_HANGING", Severity.DANGER, end)
    shutil.rmtree(logs / "__cluster_metadata-0")  # then another broker may have its state
    (row,) = [row for row in diagnose(logs, now_ms=now_ms) if row.code.startswith("TRANSACTION")]
    assert (row.code, row.gravity) == ("TRANSACTION_OPEN", Severity.NOTE)


def test_a_stray_that_nothing_else_serves_is_a_danger_that_names_restore(logs: Path) -> None:
    directory = logs / f"t-1.{'0' * 32}-stray"
    write_segment(directory, 0, batch(0, 4))
    (row,) = [row for row in diagnose(logs) if row.code == "STRAY_UNSERVED"]
    assert row.gravity is Severity.DANGER
    assert row.command == f"seglog restore {directory} -o {logs}.restored"
    shutil.copytree(directory, logs / "t-1")
    assert "STRAY_UNSERVED" not in codes(logs)


def test_a_broker_without_the_metadata_log_names_its_place_and_rebuild(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    shutil.rmtree(logs / "__cluster_metadata-0")
    (row,) = [row for row in diagnose(logs, deep=False) if row.code == "METADATA_MISSING"]
    assert row.gravity is Severity.DANGER and "metadata.log.dir" in row.message
    assert row.command == f"seglog rebuild {logs} -o {logs}.rebuilt"


def test_damage_in_the_middle_of_the_metadata_log_is_cut_there_and_names_rebuild(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    log = logs / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    (row,) = [row for row in diagnose(logs, deep=False) if row.code == "METADATA_CUT"]
    assert row.gravity is Severity.DANGER and row.command.startswith("seglog rebuild ")


def test_the_configured_node_id_must_be_the_stored_one(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/clean", tmp_path)
    assert "NODE_ID_DIFFERS" in codes(logs, deep=False, settings={"node.id": "7"})
    assert "NODE_ID_DIFFERS" not in codes(logs, deep=False, settings={"node.id": "1"})
