"""Puts the temporary files of a test run into memory, where the machine has room for them.

Half of what the tests do is making and syncing small files. On a disk that waits for each sync and each freed block the
run takes up to three times as long, and nothing here tests the disk: power cuts are simulated.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

PLACE = Path("/dev/shm")
PREFIX = "seglog-tests-"  # before the process id
ROOM_BYTES = 4 << 30  # of which a run uses a tenth at a time
FREE_MEMORY_BYTES = 8 << 30  # a JVM for Kafka and one for Spark run beside


def use_memory(config: pytest.Config) -> None:
    """Makes a directory in memory that is TMPDIR until the run ends, unless the user chose one."""
    if os.environ.get("TMPDIR") or config.getoption("basetemp") or not _has_room():
        return
    _remove_what_killed_runs_left()
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=PLACE))
    directory.chmod(0o755)  # some tests are other users
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None  # it is asked for again


def _remove_what_killed_runs_left() -> None:
    """They would take memory until the machine starts again."""
    for left in PLACE.glob(f"{PREFIX}*-*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if left.lstat().st_uid == os.getuid() and not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)


def _has_room() -> bool:
    try:
        room = os.statvfs(PLACE)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # another system
        return False
    free = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    runs_programs = not room.f_flag & os.ST_NOEXEC
    return runs_programs and room.f_bavail * room.f_frsize >= ROOM_BYTES and free >= FREE_MEMORY_BYTES
