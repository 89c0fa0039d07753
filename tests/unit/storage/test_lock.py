"""The lock of a log directory, against other processes and within this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.errors import LockedError
from seglog.storage.lock import DirectoryLock, Holder, holder_of

_HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""
_TRY = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(1)
"""


@contextmanager
def other_process_holding(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that locks the file as a broker does, until the block ends."""
    command = [sys.executable, "-c", _HOLD, str(path), "kafka.Kafka"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.communicate()


def others_can_lock(path: Path) -> bool:
    return subprocess.run([sys.executable, "-c", _TRY, str(path)], check=False).returncode == 0


def test_another_process_is_named_with_its_command(tmp_path: Path) -> None:
    with other_process_holding(tmp_path / ".lock") as process:
        holder = holder_of(tmp_path)
        assert holder is not None
        assert holder.pid == process.pid
        assert "kafka.Kafka" in holder.command
        with pytest.raises(LockedError, match=r"kafka\.Kafka") as refused:
            DirectoryLock(tmp_path).acquire()
        assert (refused.value.pid, refused.value.path) == (process.pid, tmp_path)
    assert holder_of(tmp_path) is None
    with DirectoryLock(tmp_path):
        pass


def test_a_holder_that_lets_go_before_it_is_asked_for_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seglog.storage.lock._holder_by_kernel", lambda descriptor: None)
    with other_process_holding(tmp_path / ".lock"), pytest.raises(LockedError, match="another process") as refused:
        DirectoryLock(tmp_path).acquire()
    assert refused.value.pid == 0


def test_a_pipe_in_place_of_the_file_is_refused_and_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    opened = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(OSError, match="Not a regular file"):
        DirectoryLock(tmp_path).acquire()
    assert len(list(Path("/dev/fd").iterdir())) == opened


def test_others_are_kept_out_until_the_release(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    assert lock.held
    assert not others_can_lock(tmp_path / ".lock")
    lock.release()
    lock.release()
    assert not lock.held
    assert others_can_lock(tmp_path / ".lock")
    assert (tmp_path / ".lock").stat().st_size == 0


def test_a_second_owner_in_the_process_is_refused_and_the_lock_survives(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as first:
        with pytest.raises(LockedError, match="another part of this process"):
            DirectoryLock(tmp_path).acquire()
        with pytest.raises(LockedError, match="held already"):
            first.acquire()
        assert not others_can_lock(tmp_path / ".lock")


def test_the_same_directory_by_another_name_is_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    with DirectoryLock(tmp_path / "real"), pytest.raises(LockedError):
        DirectoryLock(tmp_path / "alias").acquire()


def test_probing_does_not_drop_our_own_lock(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path):
        holder = holder_of(tmp_path)
        assert holder is not None
        assert holder.pid == os.getpid()
        assert not others_can_lock(tmp_path / ".lock")


def test_probing_creates_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert holder_of(tmp_path) is None
        assert holder_of(tmp_path / "missing") is None
        assert list(tmp_path.iterdir()) == []
    finally:
        tmp_path.chmod(0o700)


def test_a_missing_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "missing").acquire()


def test_a_forked_child_does_not_think_it_holds_the_lock(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as lock:
        child = os.fork()
        if child == 0:
            holder = holder_of(tmp_path)
            sees_parent = holder is not None and holder.pid == os.getppid()
            lock.release()
            os._exit(0 if sees_parent and not lock.held else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not others_can_lock(tmp_path / ".lock")


def test_long_command_lines_are_shortened_in_the_middle() -> None:
    command = "/usr/lib/jvm/bin/java -cp " + ":".join(f"/opt/kafka/libs/{n}.jar" for n in range(300))
    text = Holder(7, command + " kafka.Kafka /etc/kafka/server.properties").describe()
    assert text.startswith("java … ")
    assert text.endswith("kafka.Kafka /etc/kafka/server.properties")
    assert len(text) <= 170
    assert Holder(0, "").describe() == "another process"
