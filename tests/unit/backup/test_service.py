"""A backup as a service: it goes on after failures, stops at once, and several brokers share a repository."""

from __future__ import annotations

import errno
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import RefusedError
from seglog.storage.filesystem import File, FileSystem, OpenMode, PassingFileSystem
from seglog.storage.gauges import gauges_text
from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import machine_files
from seglog_cli.commands.backup import _Reporter
from seglog_cli.console import Console
from seglog_cli.session import Session
from seglog_rescue.backup.repository import Repository
from seglog_rescue.backup.restoring import restore_snapshots
from seglog_rescue.operations.backup import BackupRequest, backup, chosen_snapshots
from seglog_rescue.operations.backup_service import BackupService, RunOfBackup, gauges_of
from tests.support.command_line import COMMAND, ROOT, environment, json_lines, run
from tests.support.log_files import batch
from tests.support.manual_clock import ManualClock
from tests.support.metadata_records import metadata_record, topic_id, write_metadata_log

START_MS = 1_700_000_000_000


def logs_in(directory: Path, *names: str, value: bytes = b"v") -> Path:
    """A log directory with partitions of one batch."""
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / "00000000000000000000.log").write_bytes(batch(0, value=value))
    return directory


class Heard:
    """What a service told; `then` is called after each run."""

    def __init__(self, then: Callable[[RunOfBackup], None] = lambda _run: None) -> None:
        self.runs: list[RunOfBackup] = []
        self._then = then

    def ended(self, run: RunOfBackup) -> None:
        self.runs.append(run)
        self._then(run)


class Failing(PassingFileSystem):
    """Files of which some runs can open none."""

    def __init__(self, below: FileSystem) -> None:
        super().__init__(below)
        self.error: OSError | None = None

    def open(self, path: Path, mode: OpenMode) -> File:
        if self.error is not None and path.suffix == ".log":
            raise self.error
        return super().open(path, mode)


# --- running on -------------------------------------------------------------------------------------------


def test_runs_begin_at_the_interval_and_a_failed_one_is_tried_again_after_waits_that_double(tmp_path: Path) -> None:
    logs, clock, fs = logs_in(tmp_path / "logs", "orders-0"), ManualClock(START_MS), Failing(LocalFileSystem())
    begins: list[int] = []

    def then(_run: RunOfBackup) -> None:
        begins.append(clock.now_ms() - START_MS)
        with (logs / "orders-0" / "00000000000000000000.log").open("ab") as file:
            file.write(batch(len(heard.runs)))
        fs.error = OSError(errno.EIO, "broken") if 2 <= len(heard.runs) < 6 else None

    heard = Heard(then)
    request = BackupRequest([logs], tmp_path / "backup", uncommitted=True)
    BackupService(fs, machine_files(), clock, request, 60_000, heard).run(runs=8)
    assert [begin // 1000 for begin in begins] == [0, 60, 120, 130, 150, 190, 250, 310]
    assert [run.failures for run in heard.runs] == [0, 0, 1, 2, 3, 4, 0, 0]
    assert [run.wait_s for run in heard.runs[2:6]] == [10, 20, 40, 60]
    assert all(isinstance(run.error, OSError) == (run.outcome is None) for run in heard.runs)
    assert len(Repository(machine_files(), tmp_path / "backup").ids()) == 4


def test_a_first_run_that_is_refused_ends_the_service(tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "logs", "orders-0")
    for place in (logs / "backup", logs):
        service = BackupService(
            LocalFileSystem(), machine_files(), ManualClock(START_MS), BackupRequest([logs], place), 1000, Heard()
        )
        with pytest.raises(RefusedError):
            service.run()


def test_a_stop_in_the_middle_of_a_run_lists_nothing_and_leaves_the_next_run_what_it_needs(tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "logs", "a-0", "b-0", "c-0", value=bytes(2_000_000))
    place, clock = tmp_path / "backup", ManualClock(START_MS)

    class Stopping(PassingFileSystem):
        def open(self, path: Path, mode: OpenMode) -> File:
            if path.parent.name == "b-0":
                service.stop.set()
            return super().open(path, mode)

    request, heard = BackupRequest([logs], place, uncommitted=True), Heard()
    service = BackupService(Stopping(LocalFileSystem()), machine_files(), clock, request, 60_000, heard)
    service.run()
    assert heard.runs == [] and Repository(machine_files(), place).ids() == []
    assert not list(place.rglob("*.part"))
    BackupService(LocalFileSystem(), machine_files(), clock, request, 60_000, heard).run(runs=1)
    assert len(heard.runs) == 1 and len(Repository(machine_files(), place).ids()) == 1


def test_a_throttle_limits_what_is_read_a_second(tmp_path: Path) -> None:
    logs, clock = logs_in(tmp_path / "logs", "a-0", value=bytes(3_000_000)), ManualClock(START_MS)
    heard = Heard()
    request = BackupRequest([logs], tmp_path / "backup", uncommitted=True)
    BackupService(LocalFileSystem(), machine_files(), clock, request, 60_000, heard, throttle=100_000).run(runs=1)
    assert 29 <= heard.runs[0].seconds <= 45


def test_the_gauges_tell_of_the_last_snapshot_and_the_last_run(tmp_path: Path) -> None:
    logs, heard, clock = logs_in(tmp_path / "logs", "a-0", "b-0"), Heard(), ManualClock(START_MS)
    request = BackupRequest([logs], tmp_path / "backup", uncommitted=True)
    BackupService(LocalFileSystem(), machine_files(), clock, request, 60_000, heard).run(runs=1)
    failed = RunOfBackup(None, OSError("broken"), 3.5, START_MS, failures=2, wait_s=20)
    text = gauges_text(gauges_of("/backup", heard.runs[0], failed))
    assert f'seglog_backup_last_success_timestamp_seconds{{repository="/backup"}} {START_MS // 1000}\n' in text
    assert 'seglog_backup_failed_runs{repository="/backup"} 2\n' in text
    assert 'seglog_backup_partitions{repository="/backup"} 2\n' in text
    assert 'seglog_backup_last_success_timestamp_seconds{repository="/backup"} 0\n' in gauges_text(
        gauges_of("/backup", None, failed)
    )


def test_signals_end_the_service_of_the_command_line_with_what_is_listed_complete(tmp_path: Path) -> None:
    logs, gauges = logs_in(tmp_path / "logs", "orders-0"), tmp_path / "seglog.prom"
    command = [*COMMAND, "backup", str(logs), "--to", str(tmp_path / "backup"), "--uncommitted", "--every", "1h"]
    command += ["--prometheus", str(gauges), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert '"partitions":1' in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143 and "what is listed is complete" in process.stderr.read()
    assert 'seglog_backup_failed_runs{repository="' in gauges.read_text()
    assert len(json_lines(run("backup", "list", "--json", tmp_path / "backup"))) == 2


def test_options_of_the_service_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    logs = logs_in(tmp_path / "logs", "orders-0")
    (tmp_path / "notes").write_text("mine")
    for options in (["--every", "5m", "--dry-run"], ["--prometheus", "x.prom"], ["--every", "0s"]):
        assert run("backup", logs, "--to", tmp_path / "backup", *options).exit_code == 2
    done = run("backup", logs, "--to", tmp_path / "backup", "--every", "5m", "--prometheus", tmp_path / "notes")
    assert done.exit_code == 12 and "holds something else than gauges" in done.stderr
    assert not (tmp_path / "backup").exists()


# --- several brokers --------------------------------------------------------------------------------------

LEADERS = {("orders", 0): 1, ("orders", 1): 2, ("orders", 2): -1}


def broker(directory: Path, node: int, *, replicas: tuple[int, ...] = (1, 2)) -> Path:
    """The log directory of a broker of a cluster with three partitions, each on every broker."""
    logs = logs_in(directory, "orders-0", "orders-1", "orders-2", "stray-0")
    records = [metadata_record("TOPIC_RECORD", name="orders", topicId=topic_id(1))]
    for (_, number), leader in LEADERS.items():
        records.append(
            metadata_record(
                "PARTITION_RECORD",
                partitionId=number,
                topicId=topic_id(1),
                replicas=list(replicas),
                isr=list(replicas),
                removingReplicas=[],
                addingReplicas=[],
                leader=leader,
                leaderEpoch=0,
                partitionEpoch=0,
                directories=[topic_id(2000 + each) for each in replicas],
            )
        )
    write_metadata_log(logs, records)
    (logs / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={node}\n")
    marks = "".join(f"orders {number} 1\n" for number in range(3))
    (logs / "replication-offset-checkpoint").write_text(f"0\n3\n{marks}")
    return logs


def test_each_broker_stores_what_it_leads_and_a_restore_puts_the_newest_of_each_together(tmp_path: Path) -> None:
    place, ids = tmp_path / "backup", []
    directories = [broker(tmp_path / str(node) / "data", node) for node in (2, 1)]
    for at, directory in enumerate([*directories, directories[0]]):
        request = BackupRequest([directory], place, leaders=True)
        outcome = backup(LocalFileSystem(), machine_files(), ManualClock(START_MS + at * 1000), request)
        ids.append(outcome.snapshot.id)
        assert outcome.led_elsewhere == 1 and outcome.snapshot.leaders
    repository = Repository(machine_files(), place)
    chosen = chosen_snapshots(repository, None, None)
    assert [each.id for each in chosen] == [ids[1], ids[2]]
    assert [each.id for each in chosen_snapshots(repository, None, START_MS + 1999)] == [ids[1], ids[0]]
    target = tmp_path / "new"
    restore_snapshots(repository, chosen, LocalFileSystem(), target, lambda _size: None)
    assert sorted(path.name for path in target.iterdir()) == ["broker-1-data", "broker-2-data"]
    for node, led in ((1, "orders-0"), (2, "orders-1")):
        restored = target / f"broker-{node}-data"
        names = {path.name for path in restored.iterdir() if path.is_dir()}
        assert names == {led, "orders-2", "stray-0", "__cluster_metadata-0"}
        marks = (restored / "replication-offset-checkpoint").read_text()
        assert marks.splitlines()[1] == "2" and led.replace("-", " ") in marks


def test_a_broker_that_got_another_disk_is_restored_from_its_newest_snapshot_alone(tmp_path: Path) -> None:
    place, first = tmp_path / "backup", broker(tmp_path / "1" / "data", 1)
    second = logs_in(tmp_path / "1" / "more", "clicks-0")
    (second / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    for at, directories in enumerate([[first], [first, second]]):
        backup(LocalFileSystem(), machine_files(), ManualClock(START_MS + at * 1000), BackupRequest(directories, place))
    (only,) = chosen_snapshots(Repository(machine_files(), place), None, None)
    assert [directory.name for directory in only.directories] == ["data", "more"]


def test_leaders_are_asked_of_the_metadata_of_one_broker(tmp_path: Path) -> None:
    one, two = broker(tmp_path / "1", 1), broker(tmp_path / "2", 2)
    without = logs_in(tmp_path / "3", "orders-0")
    (without / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=3\n")
    cases = (
        ([one, two], "of one broker"),
        ([without], "name metadata.log.dir"),
        ([logs_in(tmp_path / "4", "x-0")], "node.id"),
    )
    for directories, message in cases:
        request = BackupRequest(directories, tmp_path / "backup", leaders=True)
        with pytest.raises(RefusedError, match=message):
            backup(LocalFileSystem(), machine_files(), ManualClock(START_MS), request)
    assert run("backup", one, "--to", tmp_path / "backup", "--leaders").exit_code == 0


def test_every_run_that_fails_is_told_and_what_lasts_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = _Reporter(Session(Console()), "repository", tmp_path / "nowhere" / "gauges.prom")
    for failures in (1, 2, 3):
        reporter.ended(RunOfBackup(None, RefusedError("no room"), 1.0, START_MS, failures, 60.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("warning: the run failed, and is tried again in 60 s: no room") == 3
    assert [line for line in lines if "not written" in line] == lines[1:2]
