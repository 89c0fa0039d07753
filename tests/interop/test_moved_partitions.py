"""What a real broker does with partitions that have several directories is what doctor foretells."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.clock import SystemClock
from seglog.log.loader import LoadOptions, plan_recovery
from seglog.scan.listing import list_log_directory
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import json_lines, run
from tests.support.moved_partitions import FATES, beside_its_future, moved_partitions
from tests.support.prognoses import try_start

pytestmark = pytest.mark.kafka

PATHS = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def served(directories: Sequence[Path]) -> dict[str, tuple[int, str]]:
    """The end offset of each partition under its own name, and the name of its log directory."""
    fs, found = LocalFileSystem(), {}
    for one in directories:
        for each in list_log_directory(fs, one).live:
            end = plan_recovery(fs, each.path, SystemClock(), LoadOptions(clean_shutdown=False)).log_end_offset
            found[each.path.name] = end, one.name
    return found


def test_a_broker_serves_of_several_directories_what_doctor_foretells(tmp_path: Path) -> None:
    left = moved_partitions(tmp_path / "left")
    course = try_start(left, tmp_path / "left-work", {})
    assert course.started, course.said[-5000:]
    after = served(left)
    assert {name: after[name] for name in FATES} == {n: (fate.served_end, fate.directory) for n, fate in FATES.items()}


def test_a_broker_serves_all_records_of_several_directories_after_doctors_commands(tmp_path: Path) -> None:
    mended, aside = moved_partitions(tmp_path), tmp_path / "aside"
    rows = json_lines(run("doctor", "--json", *mended))
    commands = {str(row["command"]).replace("SOMEWHERE-OUTSIDE-LOG.DIRS", shlex.quote(str(aside))) for row in rows
                if row["type"] == "diagnosis" and str(row["command"]).startswith(("mv", "seglog"))}  # fmt: skip
    aside.mkdir()
    for command in sorted(commands):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=PATHS, check=False)
        assert done.returncode == 0, (command, done)
    course = try_start(mended, tmp_path / "work", {})
    assert course.started, course.said[-5000:]
    there, restored = served(mended), served((aside,))
    ends = {name: max(found[name][0] for found in (there, restored) if name in found) for name in FATES}
    assert ends == {name: fate.end for name, fate in FATES.items()}


def test_a_future_copy_beside_its_partition_stops_a_broker(tmp_path: Path) -> None:
    left = moved_partitions(tmp_path)
    beside_its_future(left[0] / "payments-compact-0")
    assert not try_start(left, tmp_path / "work", {}).started
