"""Log directories: checkpoints, marker, lock; and partitions that no log directory owns."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptCheckpointError, LockedError, NotALogError, RefusedError
from seglog.format.checkpoint import parse_offset_checkpoint
from seglog.log.checkpoints import OffsetCheckpoint
from seglog.log.directory import LogDirectory
from seglog.log.opening import open_partition
from seglog.log.segments import shutdown_evidence
from seglog.model import Record, TopicPartition
from seglog.scan.listing import list_partition
from tests.support.log_files import FS, batch, files_of, write_segment
from tests.support.watched_files import CountingFileSystem

CLOCK = FixedClock(5000)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
MARKER, RECOVERY = ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"


def opened(path: Path, writable: bool = True) -> LogDirectory:
    return LogDirectory.open(path, fs=FS, clock=CLOCK, config_of=lambda _: LogConfig(), writable=writable)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two partitions of twenty records, closed as by a broker."""
    for name in ("t-0", "t-1"):
        write_segment(tmp_path / name, 0, batch(0, 10), batch(10, 10))
    (tmp_path / RECOVERY).write_text("0\n3\nt 0 20\nt 1 20\ngone 7 5\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\nt 0 15\nt 1 20\n")
    (tmp_path / MARKER).write_text('{"version":0,"brokerEpoch":17}')
    return tmp_path


def test_working_on_one_partition_leaves_the_entries_of_the_others(root: Path) -> None:
    with opened(root) as directory:
        directory.log(FIRST).append([Record(b"v")])
        assert not (root / MARKER).exists()
    assert (root / RECOVERY).read_text() == "0\n3\ngone 7 5\nt 0 21\nt 1 20\n"
    assert (root / "replication-offset-checkpoint").read_text() == "0\n2\nt 0 21\nt 1 20\n"
    assert (root / MARKER).read_text() == '{"version":0,"brokerEpoch":17}'
    assert (root / "t-0" / f"{21:020d}.snapshot").exists()


def test_a_checkpoint_is_parsed_again_only_if_another_process_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []

    def counted(data: bytes, path: Path) -> dict[TopicPartition, int]:
        parsed.append(data)
        return parse_offset_checkpoint(data, path)

    monkeypatch.setattr("seglog.log.checkpoints.parse_offset_checkpoint", counted)
    path = tmp_path / RECOVERY
    path.write_text("0\n1\nother 0 7\n")
    checkpoint = OffsetCheckpoint(FS, path)
    for offset in range(5):  # each round of a cleaning writes its end
        checkpoint.update({FIRST: offset})
    assert len(parsed) == 1
    path.write_text("0\n1\nother 0 8\n")
    checkpoint.update({FIRST: 9})
    assert len(parsed) == 2
    assert parse_offset_checkpoint(path.read_bytes(), path) == {TopicPartition("other", 0): 8, FIRST: 9}
    assert checkpoint.offsets == {TopicPartition("other", 0): 8, FIRST: 9}


@pytest.mark.parametrize("partitions", [1, 12])
def test_closing_reads_and_writes_each_checkpoint_once_however_many_partitions_there_are(
    tmp_path: Path, partitions: int
) -> None:
    for number in range(partitions):
        write_segment(tmp_path / f"t-{number}", 0, batch(0, 10))
    (tmp_path / RECOVERY).write_text("0\n0\n")
    fs = CountingFileSystem()
    with LogDirectory.open(tmp_path, fs=fs, clock=CLOCK, config_of=lambda _: LogConfig(), writable=True) as directory:
        directory.load_all()
        fs.opened.clear()
    assert {name: times for name, times in fs.opened.items() if name.startswith(RECOVERY)} == {
        RECOVERY: 1,
        f"{RECOVERY}.tmp": 1,
    }
    assert len((tmp_path / RECOVERY).read_text().splitlines()) == 2 + partitions


def test_opening_alone_keeps_the_brokers_high_watermark(root: Path) -> None:
    with opened(root) as directory:
        assert directory.log(FIRST).high_watermark == 20
    assert "t 0 15" in (root / "replication-offset-checkpoint").read_text()


def test_an_error_leaves_the_directory_unclean_and_unlocked(root: Path) -> None:
    with pytest.raises(ZeroDivisionError), opened(root) as directory:
        directory.log(FIRST)
        raise ZeroDivisionError
    assert not (root / MARKER).exists()
    opened(root).close()


def test_without_the_marker_it_comes_only_when_every_partition_was_recovered(root: Path) -> None:
    (root / MARKER).unlink()
    with opened(root) as directory:
        assert directory.log(FIRST).recovery.clean_shutdown is False
    assert not (root / MARKER).exists()
    with opened(root) as directory:
        assert len(directory.load_all()) == 2
    assert (root / MARKER).exists()


def test_reading_takes_no_lock_and_changes_nothing(root: Path) -> None:
    before = files_of(root), files_of(root / "t-0")
    with opened(root), opened(root, writable=False) as reading:
        assert reading.log(FIRST).log_end_offset == 20
        (root / ".lock").unlink()
    assert (files_of(root), files_of(root / "t-0")) == before


def test_two_writers_exclude_each_other(root: Path) -> None:
    with opened(root), pytest.raises(LockedError):
        opened(root)


def test_a_missing_partition_is_made_only_when_asked(root: Path) -> None:
    with opened(root) as directory:
        with pytest.raises(NotALogError):
            directory.log(TopicPartition("new", 3))
        assert directory.log(TopicPartition("new", 3), create=True).log_end_offset == 0
    assert (root / "new-3" / f"{0:020d}.log").exists()
    assert "new 3 0" in (root / RECOVERY).read_text()


def test_the_controllers_log_is_not_written(root: Path) -> None:
    with opened(root) as directory, pytest.raises(RefusedError):
        directory.log(TopicPartition("__cluster_metadata", 0), create=True)


def test_log_start_offsets_are_kept_while_above_the_first_segment(root: Path) -> None:
    with opened(root) as directory:
        directory.log(FIRST).increment_log_start_offset(5)
    assert (root / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
    with opened(root, writable=False) as directory:
        assert directory.log(FIRST).log_start_offset == 5


@pytest.mark.parametrize("stated", [True, False])
def test_the_log_start_of_a_tiered_topic_stays_below_the_first_segment(root: Path, stated: bool) -> None:
    """Without the entry a broker lets it start at 0, and what was deleted returns (Kafka: LogLoader,
    LogManager.checkpointLogStartOffsetsInDir)."""
    for file in (root / str(FIRST)).glob(f"{0:020}.*"):
        file.unlink()
    write_segment(root / str(FIRST), 10, batch(10, 10))
    OffsetCheckpoint(FS, root / "log-start-offset-checkpoint").update({FIRST: 5})
    (root / ".kafka_cleanshutdown").touch()  # else the entry may be older than a deletion
    config = LogConfig(remote_storage_enable=stated)
    with LogDirectory.open(root, fs=FS, clock=CLOCK, config_of=lambda _: config, writable=True) as directory:
        directory.log(FIRST).append([Record(b"more")])
    with opened(root, writable=False) as directory:
        assert directory.log_start_offsets[FIRST] == 5


def test_a_cleaner_offset_after_the_end_is_lowered(root: Path) -> None:
    (root / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    with opened(root) as directory:
        directory.log(FIRST).truncate_to(10)
    assert (root / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"


def test_a_damaged_checkpoint_stops_a_writer_and_not_a_reader(root: Path) -> None:
    (root / RECOVERY).write_text("0\n9\nt 0 20\n")
    with pytest.raises(CorruptCheckpointError):
        opened(root)
    with opened(root, writable=False) as directory:
        assert len(directory.problems) == 1


def test_an_entry_that_is_no_number_makes_the_file_count_as_empty(root: Path) -> None:
    (root / RECOVERY).write_text("0\n1\nt 0 x\n")
    with opened(root) as directory:
        assert (directory.recovery_points, len(directory.problems)) == ({}, 1)


def test_updating_a_checkpoint_writes_only_news(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(FS, tmp_path / RECOVERY)
    checkpoint.update({FIRST: 5, SECOND: 6})
    before = checkpoint.path.stat().st_ino
    checkpoint.update({FIRST: 5})
    assert checkpoint.path.stat().st_ino == before
    checkpoint.update({SECOND: None})
    assert checkpoint.path.read_text() == "0\n1\nt 0 5\n"


def test_an_update_that_could_not_be_written_is_not_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = OffsetCheckpoint(FS, tmp_path / RECOVERY)
    checkpoint.update({FIRST: 5})
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr("seglog.log.checkpoints.write_atomically", _fails)
        checkpoint.update({SECOND: 6})
    checkpoint.update({FIRST: 7})
    assert checkpoint.path.read_text() == "0\n1\nt 0 7\n"


def _fails(*_: object) -> None:
    raise OSError("the disk is full")


def test_a_lone_partition_is_written_with_only_a_lock_beside_it(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, 10))
    owner, log = open_partition(tmp_path / "t-0", fs=FS, clock=CLOCK, config_of=lambda _: LogConfig(), writable=True)
    with owner:
        log.append([Record(b"v")])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "t-0"]
    assert shutdown_evidence(FS, list_partition(FS, tmp_path / "t-0"))[0]


@pytest.mark.parametrize(
    ("spoil", "clean", "recovery_point"),
    [
        ("nothing", True, 40),
        ("padding", False, 20),
        ("index", False, 0),
        ("index beyond", False, 20),
        ("times beyond", False, 20),
        ("tail", False, 20),
        ("snapshot", False, 20),
    ],
)
def test_a_clean_stop_shows_in_the_files(tmp_path: Path, spoil: str, clean: bool, recovery_point: int) -> None:
    for base in (0, 20):
        write_segment(tmp_path, base, batch(base, 10), batch(base + 10, 10))
    snapshot = tmp_path / f"{40:020d}.snapshot"
    snapshot.write_bytes(b"")
    if spoil == "padding":
        (tmp_path / f"{20:020d}.index").write_bytes(bytes(80))
    elif spoil == "index":
        (tmp_path / f"{0:020d}.timeindex").unlink()
    elif spoil == "index beyond":
        end = (tmp_path / f"{20:020d}.log").stat().st_size
        (tmp_path / f"{20:020d}.index").write_bytes(struct.pack(">II", 19, end))
    elif spoil == "times beyond":
        (tmp_path / f"{20:020d}.timeindex").write_bytes(struct.pack(">QI", 10**12, 20))
    elif spoil == "tail":
        with (tmp_path / f"{20:020d}.log").open("ab") as file:
            file.write(b"torn")
    elif spoil == "snapshot":
        snapshot.unlink()
    assert shutdown_evidence(FS, list_partition(FS, tmp_path)) == (clean, recovery_point)


def test_planning_a_recovery_changes_nothing(root: Path) -> None:
    (root / MARKER).unlink()
    with (root / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"torn")
    before = files_of(root / "t-0"), files_of(root)
    with opened(root, writable=False) as directory:
        assert directory.plan_recovery(FIRST).truncated_bytes == 4
    assert (files_of(root / "t-0"), files_of(root)) == before


def test_the_marker_goes_before_the_first_change_and_not_earlier(root: Path) -> None:
    with opened(root) as directory:
        directory.load_all()
    with opened(root) as directory:
        assert len(list(directory.log(FIRST).records())) == 20
        assert (root / MARKER).exists()
        directory.log(FIRST).append([Record(b"v")])
        assert not (root / MARKER).exists()
    assert (root / MARKER).exists()


def test_opening_for_writing_and_closing_again_writes_nothing(root: Path) -> None:
    with opened(root) as directory:
        directory.load_all()
    (root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    before = stamps(root)
    with opened(root) as directory:
        directory.load_all()
    assert stamps(root) == before


def stamps(root: Path) -> dict[Path, tuple[int, int, bytes]]:
    return {p: (p.stat().st_mtime_ns, p.stat().st_ino, p.read_bytes()) for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("opens", [True, False])
def test_a_log_that_changed_and_did_not_open_leaves_the_directory_unclean(tmp_path: Path, opens: bool) -> None:
    for name in ("t-0", "u-0"):
        write_segment(tmp_path / name, 0, batch(0, 4))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 4\nu 0 4\n")
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.touch()
    with LogDirectory.open(tmp_path, writable=True) as directory:
        if opens:
            directory.log(TopicPartition("u", 0))
        directory.log_files.open(tmp_path / "u-0" / f"{0:020d}.index", "create").close()
    assert marker.exists() == opens
