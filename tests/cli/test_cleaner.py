"""`seglog cleaner` as a process: it cleans, reports, and ends on a signal with a consistent log."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.model import Record, TopicPartition
from seglog.storage.lock import DirectoryLock, holder_of
from tests.support.command_line import COMMAND, ROOT, clean_logs, environment, json_lines, process, run
from tests.support.compacted_directories import broker_directory, keys_of, opened
from tests.support.log_files import files_of
from tests.support.open_logs import START_MS

POLICY = ("--set", "cleanup.policy=compact")


@contextmanager
def service(path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "cleaner", *POLICY, *arguments, str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if condition():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    pytest.fail("it did not happen")


def large_log(path: Path) -> Path:
    """Makes a log for which a throttled round takes minutes."""
    broker_directory(path, {})
    with opened(path) as directory:
        log = directory.log(TopicPartition("t", 0), create=True)
        value = os.urandom(20_000)
        log.append([Record(value, b"%d" % (n % 50), START_MS + n) for n in range(200)], batch_records=4)
        log.roll()
    return path


def test_one_pass_over_a_clean_directory_says_so(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    assert run("cleaner", *POLICY, "--once", path).stdout
    again = run("cleaner", *POLICY, "--once", path)
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "nothing is due for cleaning (seglog explain PARTITION says why)\n"
    assert run("cleaner", *POLICY, "--once", "-q", path).stderr == ""


def test_one_pass_cleans_and_ends(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5), "u-0": (3, 7)})
    gauges = tmp_path / "seglog.prom"
    result = run("cleaner", "--once", "--json", *POLICY, "--prometheus", gauges, path)
    assert result.exit_code == 0, result.stderr
    assert sorted(row["partition"] for row in json_lines(result)) == ["t-0", "u-0"]
    assert (len(keys_of(path, "t-0")), len(keys_of(path, "u-0"))) == (5, 7)
    text = gauges.read_text()
    assert f'kafka_log_logcleanermanager_uncleanable_partitions_count{{directory="{path}"}} 0\n' in text
    assert "# TYPE kafka_log_logcleaner_cleaner_recopy_percent gauge\n" in text


# At 100 kB a second the round takes more than a minute, of which a stop waits for none.
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_in_the_middle_of_a_round_ends_it_with_the_log_as_it_was(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    path = large_log(tmp_path / "logs")
    before = files_of(path / "t-0")
    with service(path, "--throttle", "100kB") as process:
        wait_for(lambda: holder_of(path) is not None, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == code, said
        assert "consistent" in said
    assert files_of(path / "t-0") == before
    assert not list((path / "t-0").glob("*.cleaned"))
    assert (path / ".kafka_cleanshutdown").exists()
    done = run("cleaner", "--once", *POLICY, path)
    assert done.exit_code == 0, done.stderr
    assert len(keys_of(path, "t-0")) == 50


@pytest.mark.slow
def test_a_killed_service_leaves_the_log_as_it_was_and_the_next_one_does_the_work(tmp_path: Path) -> None:
    path = large_log(tmp_path / "logs")
    partition = path / "t-0"
    before = files_of(partition)
    with service(path, "--throttle", "2MB") as process:
        wait_for(lambda: any(partition.glob("*.log.cleaned")), process)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    found = files_of(partition)
    assert {name: found[name] for name in before} == before
    assert {name.partition(".")[2] for name in found.keys() - before.keys()} <= {
        "log.cleaned",
        "index.cleaned",
        "timeindex.cleaned",
    }
    done = run("cleaner", "--once", *POLICY, path)
    assert done.exit_code == 0, done.stderr
    assert len(keys_of(path, "t-0")) == 50
    assert not list(partition.glob("*.cleaned"))


@pytest.mark.slow
def test_what_is_appended_while_it_rests_is_cleaned_soon(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (2, 5)})
    checkpoint = path / "cleaner-offset-checkpoint"
    with service(path, "--set", "log.cleaner.backoff.ms=200") as running:
        wait_for(lambda: checkpoint.exists() and "t 0 80" in checkpoint.read_text(), running)
        lines = "".join(f"k{n % 5}:v\n" for n in range(200))
        for _ in range(20):
            if process("append", "--key-separator", ":", path / "t-0", input_bytes=lines.encode()).returncode == 0:
                break
        with_roll = process("clean", "--roll", "--policy", "compact", path / "t-0")
        assert with_roll.returncode in (0, 11), with_roll.stderr
        running.terminate()
        running.communicate(timeout=60)
    assert len(set(keys_of(path, "t-0"))) == 5


def test_an_uncleanable_partition_is_named_with_its_reason(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"bad-0": (3, 5), "good-0": (3, 5)})
    segment = path / "bad-0" / f"{40:020d}.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    gauges = tmp_path / "seglog.prom"
    result = run("cleaner", "--once", *POLICY, "--prometheus", gauges, path)
    assert result.exit_code == 1
    assert "bad-0 is uncleanable" in result.stderr
    assert "cleaned log good-0" in result.stdout
    assert 'partition="bad-0"' in gauges.read_text()


def test_a_directory_without_logs_is_no_log(tmp_path: Path) -> None:
    assert process("cleaner", "--once", tmp_path / "missing").returncode == 10


def test_a_partition_is_no_log_directory(tmp_path: Path) -> None:
    """The service would find nothing to do in it, for ever."""
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    done = run("cleaner", "--once", path / "t-0")
    assert done.exit_code == 10
    assert f"a partition, not a log directory; name the one it lies in, {path}" in done.stderr


def test_a_single_pass_that_could_not_begin_ends_with_the_code_of_the_reason(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    before = files_of(path / "t-0")
    with DirectoryLock(path):
        done = process("cleaner", "--once", *POLICY, path)
    assert done.returncode == 11, done.stderr
    assert b"is locked by process" in done.stderr
    (path / "cleaner-offset-checkpoint").write_text("0\n2\nt 0 0\nt 0 40\n")
    result = run("cleaner", "--once", *POLICY, path)
    assert result.exit_code == 1, result.stderr
    assert "is listed twice" in result.stderr
    assert files_of(path / "t-0") == before


def test_the_service_leaves_alone_what_the_clusters_metadata_says_is_not_compacted(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    names = ("orders-none-0", "clicks-0")
    sizes = {name: sorted(f.stat().st_size for f in (path / name).glob("*.log")) for name in names}
    done = run("cleaner", "--once", *POLICY, path)
    assert "orders-none: no cleaning: cleanup.policy compact (--set) instead of delete" in done.stderr
    for name, before in sizes.items():
        assert sorted(f.stat().st_size for f in (path / name).glob("*.log")) == before
