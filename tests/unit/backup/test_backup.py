"""Snapshots hold what a log directory held, cost what is new, and come back byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import seglog
from seglog.errors import CorruptTierError, NotALogError, RefusedError
from seglog.storage.filesystem import File, OpenMode, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import restore_snapshots, verify_snapshots
from seglog_rescue.operations.backup import BackupOutcome, BackupRequest, backup, chosen_snapshots
from tests.support.command_line import clean_logs, json_lines, keep_partitions, run
from tests.support.log_files import batch, contents_below
from tests.support.manual_clock import ManualClock

BROKER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def logs_of(directory: Path, *batches: bytes, name: str = "orders-0") -> Path:
    """A log directory with a partition of one segment, whose broker is gone without closing it."""
    partition = directory / name
    partition.mkdir(parents=True)
    (partition / "00000000000000000000.log").write_bytes(b"".join(batches))
    return directory


def watermarks(logs: Path, **offsets: int) -> None:
    """Writes a broker's checkpoint; a partition is named orders_0."""
    entries = [f"{name.rpartition('_')[0]} {name.rpartition('_')[2]} {offset}" for name, offset in offsets.items()]
    temporary = logs / "new"
    temporary.write_text("\n".join(["0", str(len(entries)), *entries, ""]))
    temporary.rename(logs / "replication-offset-checkpoint")


def stored(
    logs: Path, place: Path, clock: ManualClock | None = None, fs: PassingFileSystem | None = None, **options: bool
) -> BackupOutcome:
    """The outcome of a run."""
    request = BackupRequest([logs], place, **options)
    clock = clock or ManualClock(1_700_000_000_000 + len(list(place.glob("snapshots/*"))) * 1000)
    return backup(fs or LocalFileSystem(), machine_files(), clock, request)


def restored(place: Path, target: Path, identity: str = "latest") -> Path:
    """The log directory that a snapshot becomes."""
    repository = Repository(machine_files(), place)
    snapshot = repository.read(repository.named(identity))
    restore_snapshots(repository, [snapshot], LocalFileSystem(), target, lambda _size: None)
    return target


def log_of(logs: Path, name: str = "orders-0") -> bytes:
    return b"".join(path.read_bytes() for path in sorted((logs / name).glob("*.log")))


@contextmanager
def broker_at_work(logs: Path) -> Iterator[None]:
    """Another process holds the directory's lock while the `with` lasts."""
    command = [sys.executable, "-c", BROKER, str(logs / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.communicate()


class WritingClock(ManualClock):
    """A clock whose passing lets a broker write its checkpoint, with higher numbers each time."""

    def __init__(self, logs: Path, *versions: dict[str, int]) -> None:
        super().__init__(1_700_000_000_000)
        self._logs, self._versions = logs, list(versions)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self._versions:
            watermarks(self._logs, **self._versions.pop(0))


# --- what comes back --------------------------------------------------------------------------------------


def test_a_closed_directory_comes_back_byte_for_byte(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    stored(logs, tmp_path / "backup")
    assert contents_below(restored(tmp_path / "backup", tmp_path / "new")) == contents_below(logs)


def test_large_files_are_objects_that_cp_restores(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i, value=bytes(100_000)) for i in range(20)))
    stored(logs, tmp_path / "backup")
    (made,) = (tmp_path / "backup" / "objects" / "orders-0" / "_").iterdir()
    assert made.name.startswith("00000000000000000000-0-") and made.read_bytes() == log_of(logs)


def test_a_page_of_text_restores_a_partition(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    keep_partitions(logs, ("payments-0",))
    stored(logs, tmp_path / "backup")
    repository = Repository(machine_files(), tmp_path / "backup")
    (directory,) = repository.read(repository.named("latest")).directories
    new = tmp_path / "by-hand"
    files = [(new / each.name / file.name, file) for each in directory.partitions for file in each.files]
    files += [(new / file.name, file) for file in directory.files]
    lines = ["set -e"]
    for path, file in files:
        lines.append(f"mkdir -p {path.parent}; touch {path}")
        lines += [f"tail -c +{at.position + 1} {at.object} | head -c {at.size} >> {path}" for at in file.extents]
    subprocess.run(["bash", "-c", "\n".join(lines)], cwd=tmp_path / "backup", check=True)
    assert contents_below(new) == contents_below(logs)


def test_several_directories_come_back_under_their_names(tmp_path: Path) -> None:
    one = logs_of(tmp_path / "one" / "data", batch(0))
    two = logs_of(tmp_path / "two" / "data", batch(0), name="clicks-0")
    request = BackupRequest([one, two], tmp_path / "backup")
    backup(LocalFileSystem(), machine_files(), ManualClock(1_700_000_000_000), request)
    new = restored(tmp_path / "backup", tmp_path / "new")
    assert (new / "1-data" / "orders-0").is_dir() and (new / "2-data" / "clicks-0").is_dir()


# --- what a run costs -------------------------------------------------------------------------------------


def test_a_run_with_nothing_new_sends_only_its_manifest(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    first = stored(logs, tmp_path / "backup")
    again = stored(logs, tmp_path / "backup")
    assert first.sent.bytes > 400_000
    assert (again.sent.objects, again.sent.bytes, again.unchanged) == (0, 0, 17)
    assert [each.files for each in again.snapshot.directories[0].partitions] == [
        each.files for each in first.snapshot.directories[0].partitions
    ]


def test_a_log_that_grew_costs_what_it_grew_by(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i, value=bytes(50_000)) for i in range(100)))
    stored(logs, tmp_path / "backup")
    more = batch(100, value=bytes(50_000))
    with (logs / "orders-0" / "00000000000000000000.log").open("ab") as file:
        file.write(more)
    again = stored(logs, tmp_path / "backup")
    assert again.sent.bytes == len(more)
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == log_of(logs)


def test_a_log_that_was_truncated_and_grew_again_is_stored_anew(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i, value=bytes(9000)) for i in range(10)))
    stored(logs, tmp_path / "backup")
    with (logs / "orders-0" / "00000000000000000000.log").open("r+b") as file:
        file.truncate(len(batch(0, value=bytes(9000))) * 9)
        file.seek(0, os.SEEK_END)
        file.write(b"".join(batch(i, value=b"\1" * 9000, epoch=1) for i in range(9, 12)))
    stored(logs, tmp_path / "backup")
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == log_of(logs)


def test_a_rewritten_segment_is_new_content_and_the_old_snapshot_stays(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    before, log = log_of(logs), logs / "orders-0" / "00000000000000000000.log"
    first = stored(logs, tmp_path / "backup")
    (logs / "new").write_bytes(batch(9))
    (logs / "new").rename(log)
    stored(logs, tmp_path / "backup")
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == batch(9)
    assert log_of(restored(tmp_path / "backup", tmp_path / "old", first.snapshot.id)) == before


def test_a_file_in_many_extents_becomes_one_again(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", batch(0))
    for i in range(1, 70):
        stored(logs, tmp_path / "backup")
        with (logs / "orders-0" / "00000000000000000000.log").open("ab") as file:
            file.write(batch(i))
    last = stored(logs, tmp_path / "backup")
    (partition,) = last.snapshot.directories[0].partitions
    assert max(len(file.extents) for file in partition.files) < 10
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == log_of(logs)


def test_what_a_moved_partition_holds_is_not_sent_again(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i, value=bytes(50_000)) for i in range(40)))
    stored(logs, tmp_path / "backup")
    shutil.copytree(logs / "orders-0", tmp_path / "copy")
    shutil.rmtree(logs / "orders-0")
    (tmp_path / "copy").rename(logs / "orders-0")
    assert stored(logs, tmp_path / "backup").sent.objects == 0


def test_a_dry_run_says_what_a_run_sends_and_writes_nothing(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    said = stored(logs, tmp_path / "backup", dry_run=True)
    assert not (tmp_path / "backup").exists()
    assert stored(logs, tmp_path / "backup").sent == said.sent


# --- the committed part -----------------------------------------------------------------------------------


@pytest.mark.parametrize("uncommitted", [False, True])
def test_a_stopped_brokers_log_is_stored_to_its_high_watermark(tmp_path: Path, uncommitted: bool) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i * 2, 2) for i in range(10)))
    watermarks(logs, orders_0=8)
    outcome = stored(logs, tmp_path / "backup", uncommitted=uncommitted)
    expected = b"".join(batch(i * 2, 2) for i in range(10 if uncommitted else 4))
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == expected
    assert outcome.snapshot.directories[0].partitions[0].cut == (None if uncommitted else 8)


def test_segments_indexes_and_snapshots_above_the_high_watermark_stay_out(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    (logs / ".kafka_cleanshutdown").unlink()
    checkpoint = logs / "replication-offset-checkpoint"
    ends = {line.rpartition(" ")[0]: int(line.split()[2]) for line in checkpoint.read_text().splitlines()[2:]}
    for share in (0.6,):
        lines = [f"{name} {int(end * share)}" for name, end in ends.items()]
        checkpoint.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        place = tmp_path / str(share)
        stored(logs, place)
        new = restored(place, tmp_path / f"new-{share}")
        for name, end in ends.items():
            topic, _, number = name.partition(" ")
            partition = f"{topic}-{number}"
            assert log_of(logs, partition).startswith(log_of(new, partition))
            with seglog.open_log(new / partition) as log:
                assert log.log_end_offset <= int(end * share)
            snapshots = [int(path.stem) for path in (new / partition).glob("*.snapshot")]
            assert all(offset <= int(end * share) for offset in snapshots)
        done = run("verify", "--json", new)
        codes = {line["code"] for line in json_lines(done) if line["type"] == "finding"}
        assert not {code for code in codes if "INDEX" in code}, done.output


def test_beside_a_broker_an_unfinished_batch_and_uncommitted_ones_stay_out(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)), batch(10)[:30])
    watermarks(logs, orders_0=2)
    with broker_at_work(logs):
        clock = WritingClock(logs, {"orders_0": 7})
        outcome = stored(logs, tmp_path / "backup", clock)
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == b"".join(batch(i) for i in range(7))
    assert outcome.remarks == [] and outcome.left_out == []


def test_a_broker_that_writes_no_checkpoint_is_told_of(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    watermarks(logs, orders_0=2)
    with broker_at_work(logs):
        outcome = stored(logs, tmp_path / "backup", ManualClock(1_700_000_000_000))
    (remark,) = outcome.remarks
    assert "has not written it for 15 s" in remark
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == batch(0) + batch(1)


def test_groups_are_stored_before_what_they_point_into(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    logs_of(logs, *(batch(i) for i in range(10)), name="__consumer_offsets-0")
    watermarks(logs, orders_0=1, __consumer_offsets_0=1)
    with broker_at_work(logs):
        clock = WritingClock(
            logs, {"orders_0": 3, "__consumer_offsets_0": 4}, {"orders_0": 8, "__consumer_offsets_0": 9}
        )
        stored(logs, tmp_path / "backup", clock)
    new = restored(tmp_path / "backup", tmp_path / "new")
    assert log_of(new, "__consumer_offsets-0") == b"".join(batch(i) for i in range(4))
    assert log_of(new) == b"".join(batch(i) for i in range(8))


def test_checkpoints_say_nothing_of_what_a_broker_wrote_after_its_partition_was_stored(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    watermarks(logs, orders_0=1)
    names = ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint")

    def go_on() -> None:
        watermarks(logs, orders_0=9, late_0=1)
        for name in names:
            shutil.copy(logs / "replication-offset-checkpoint", logs / name)

    with broker_at_work(logs):
        fs = Interfering("meta.properties", go_on)  # the first file of the directory itself
        stored(logs, tmp_path / "backup", WritingClock(logs, {"orders_0": 7}), fs)
    new = restored(tmp_path / "backup", tmp_path / "new")
    for name in (*names, "replication-offset-checkpoint"):
        assert (new / name).read_text().splitlines() == ["0", "1", "orders 0 7"]


def test_the_mark_of_a_clean_shutdown_is_left_out_where_a_log_is_cut(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    text = (logs / "replication-offset-checkpoint").read_text().splitlines()
    text[2:] = [" ".join([*line.split()[:2], str(int(line.split()[2]) // 2)]) for line in text[2:]]
    (logs / "replication-offset-checkpoint").write_text("\n".join([*text, ""]))
    stored(logs, tmp_path / "backup")
    assert not (restored(tmp_path / "backup", tmp_path / "new") / ".kafka_cleanshutdown").exists()


class Interfering(PassingFileSystem):
    """The local file system, where something happens when a file of this name is opened."""

    def __init__(self, name: str, happening: object) -> None:
        super().__init__(LocalFileSystem())
        self._name, self._happening = name, happening

    def open(self, path: Path, mode: OpenMode) -> File:
        if path.name == self._name and callable(self._happening):
            happening, self._happening = self._happening, None
            happening()
        return super().open(path, mode)


def test_a_partition_that_is_deleted_meanwhile_is_not_in_the_snapshot(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", batch(0))
    logs_of(logs, batch(0), name="clicks-0")
    fs = Interfering("00000000000000000000.log", lambda: shutil.rmtree(logs / "orders-0"))
    outcome = stored(logs, tmp_path / "backup", fs=fs)
    assert [each.name for each in outcome.snapshot.directories[0].partitions] == ["clicks-0"]
    assert outcome.left_out == []


@pytest.mark.parametrize("with_ids", [False, True])
def test_replicas_of_several_brokers_are_stored_each(tmp_path: Path, with_ids: bool) -> None:
    for node in (1, 2):
        logs_of(tmp_path / str(node), batch(0))
        if with_ids:
            text = f"version=1\ncluster.id=c2VnbG9nLXRlc3RzLS0tLQ\nnode.id={node}\n"
            (tmp_path / str(node) / "meta.properties").write_text(text)
    request = BackupRequest([tmp_path / "1", tmp_path / "2"], tmp_path / "backup")
    snapshot = backup(LocalFileSystem(), machine_files(), ManualClock(1_700_000_000_000), request).snapshot
    assert [[each.name for each in directory.partitions] for directory in snapshot.directories] == [["orders-0"]] * 2


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_a_partition_that_is_moved_to_another_disk_meanwhile_is_stored_once(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """It is moved from `one` to `two`, after a first partition of either directory was looked at."""
    for name in ("one", "two"):
        logs_of(tmp_path / name, batch(0), name=f"a{name}-0")
        text = "version=1\ncluster.id=c2VnbG9nLXRlc3RzLS0tLQ\nnode.id=1\n"
        (tmp_path / name / "meta.properties").write_text(text)
    logs_of(tmp_path / "one", batch(0), batch(1), name="moved-0")
    directories = [tmp_path / name for name in order]

    class Moving(PassingFileSystem):
        def open(self, path: Path, mode: OpenMode) -> File:
            if path.parent.name == f"a{order[1]}-0" and (tmp_path / "one" / "moved-0").exists():
                (tmp_path / "one" / "moved-0").rename(tmp_path / "two" / "moved-0")
            return super().open(path, mode)

    request = BackupRequest(directories, tmp_path / "backup")
    clock = ManualClock(1_700_000_000_000)
    outcome = backup(Moving(LocalFileSystem()), machine_files(), clock, request)
    names = [each.name for directory in outcome.snapshot.directories for each in directory.partitions]
    assert sorted(names) == ["aone-0", "atwo-0", "moved-0"] and outcome.left_out == []


def test_a_segment_that_is_replaced_meanwhile_is_stored_as_one_or_the_other(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i) for i in range(10)))
    log = logs / "orders-0" / "00000000000000000000.log"

    def clean() -> None:
        (logs / "new").write_bytes(batch(9))
        (logs / "new").rename(log)

    stored(logs, tmp_path / "backup", fs=Interfering(log.name, clean))
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == batch(9)


# --- damage -----------------------------------------------------------------------------------------------


def test_damage_is_stored_as_it_is_and_told_once_more_by_the_next_run(tmp_path: Path) -> None:
    damaged = bytearray(batch(1, value=b"x" * 1000))
    damaged[500] ^= 1
    logs = logs_of(tmp_path / "logs", batch(0), bytes(damaged), batch(2))
    first = run("backup", logs, "--to", tmp_path / "backup", "--json")
    with (logs / "orders-0" / "00000000000000000000.log").open("ab") as file:
        file.write(batch(3))
    again = run("backup", logs, "--to", tmp_path / "backup", "--json")
    for done in (first, again):
        assert done.exit_code == 1
        (sentence,) = json_lines(done)[-1]["damage"]
        assert f"position {len(batch(0))}: the checksum is wrong; stored as it is" in sentence
    assert log_of(restored(tmp_path / "backup", tmp_path / "new")) == log_of(logs)


def test_a_partition_that_cannot_be_read_is_left_out_by_name(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", batch(0))
    logs_of(logs, batch(0), name="clicks-0")

    class Unreadable(PassingFileSystem):
        def open(self, path: Path, mode: OpenMode) -> File:
            if path.parent.name == "orders-0":
                raise PermissionError(13, "Permission denied", str(path))
            return super().open(path, mode)

    outcome = stored(logs, tmp_path / "backup", fs=Unreadable(LocalFileSystem()))
    (sentence,) = outcome.left_out
    assert "orders-0 is not in the snapshot" in sentence and "Permission denied" in sentence
    assert [each.name for each in outcome.snapshot.directories[0].partitions] == ["clicks-0"]


@pytest.mark.parametrize("wound", ["missing", "cut", "changed"])
def test_verify_names_what_is_wrong_and_a_restore_leaves_nothing(tmp_path: Path, wound: str) -> None:
    logs = logs_of(tmp_path / "logs", *(batch(i, value=bytes(100_000)) for i in range(20)))
    identity = stored(logs, tmp_path / "backup").snapshot.id
    (made,) = (tmp_path / "backup" / "objects" / "orders-0" / "_").iterdir()
    data = bytearray(made.read_bytes())
    if wound == "missing":
        made.unlink()
    elif wound == "cut":
        made.write_bytes(data[:-1])
    else:
        data[1_500_000] ^= 1
        made.write_bytes(data)
    repository = Repository(machine_files(), tmp_path / "backup")
    done = verify_snapshots(repository, repository.ids(), 1, random.Random(1), lambda _size: None)
    ((error, named),) = done.problems
    assert error.path == made and named == (identity,)
    with pytest.raises(CorruptTierError):
        restored(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_sample_reads_a_share(tmp_path: Path) -> None:
    stored(clean_logs(tmp_path), tmp_path / "backup")
    repository = Repository(machine_files(), tmp_path / "backup")
    done = verify_snapshots(repository, repository.ids(), 0.3, random.Random(7), lambda _size: None)
    assert 20 < done.extents < 80


# --- what is refused --------------------------------------------------------------------------------------


def test_a_repository_is_made_only_in_a_new_place_outside_the_logs(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", batch(0))
    with pytest.raises(RefusedError, match="lies in the log directory"):
        stored(logs, logs / "backup")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("mine")
    with pytest.raises(RefusedError, match="holds something else"):
        stored(logs, tmp_path / "other")
    with pytest.raises(NotALogError):
        stored(tmp_path / "other", tmp_path / "backup")


def test_a_snapshot_is_chosen_by_name_or_by_time(tmp_path: Path) -> None:
    logs = logs_of(tmp_path / "logs", batch(0))
    ids = [stored(logs, tmp_path / "backup").snapshot.id for _ in range(3)]
    repository = Repository(machine_files(), tmp_path / "backup")
    assert repository.ids() == ids
    assert [each.id for each in chosen_snapshots(repository, None, None)] == [ids[-1]]
    assert [each.id for each in chosen_snapshots(repository, None, 1_700_000_001_999)] == [ids[1]]
    assert [each.id for each in chosen_snapshots(repository, ids[0][:18], None)] == [ids[0]]
    with pytest.raises(RefusedError, match="had ended by then"):
        chosen_snapshots(repository, None, 1)
    with pytest.raises(RefusedError, match="3 snapshots whose id begins"):
        chosen_snapshots(repository, "2023", None)
    stored(logs_of(tmp_path / "others", batch(0)), tmp_path / "backup")
    assert len(chosen_snapshots(repository, None, None)) == 2
    with pytest.raises(RefusedError, match="2 different sets"):
        chosen_snapshots(repository, "latest", None)


def test_a_restore_asks_for_room_and_an_empty_place(tmp_path: Path) -> None:
    stored(logs_of(tmp_path / "logs", batch(0)), tmp_path / "backup")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes").write_text("mine")
    with pytest.raises(RefusedError, match="not empty"):
        restored(tmp_path / "backup", tmp_path / "new")

    class Full(PassingFileSystem):
        def free_bytes(self, path: Path) -> int:
            return 10

    repository = Repository(machine_files(), tmp_path / "backup")
    snapshot = repository.read(repository.named("latest"))
    with pytest.raises(RefusedError, match="room for 10"):
        restore_snapshots(repository, [snapshot], Full(LocalFileSystem()), tmp_path / "other", lambda _size: None)
