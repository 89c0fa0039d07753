"""Partitions under watch: what a look sees, what it costs, and that it leaves no trace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from seglog.format.filenames import parse_topic_partition
from seglog.look.report.figures import PartitionFigures
from seglog.look.report.watch import Watch, WatchedPartition
from seglog.storage import untouched
from tests.support.command_line import clean_logs
from tests.support.manual_clock import ManualClock

SECOND_NS = 1_000_000_000


def watch(logs: Path, clock: ManualClock, asked: list[str] | None = None) -> Watch:
    def detailed(one: WatchedPartition) -> PartitionFigures:
        if asked is not None:
            asked.append(one.name)
        return PartitionFigures(one.name, one.name, "", one.directory, "live", "kafka")

    return Watch([(logs, None)], lambda name: parse_topic_partition(name) is not None, detailed, clock)


def settle(logs: Path) -> None:
    """Lets every change lie some seconds back, so that it hides nothing."""
    for path in (logs, *logs.rglob("*")):
        os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 5 * SECOND_NS))


def by_name(found: Watch) -> dict[str, WatchedPartition]:
    return {one.name: one for one in found.partitions}


def test_growth_rolls_and_deletions_are_seen(tmp_path: Path) -> None:
    logs, clock = clean_logs(tmp_path), ManualClock()
    settle(logs)
    found = watch(logs, clock)
    found.look()
    before = by_name(found)["orders-none-0"].bytes
    assert before == sum(path.stat().st_size for path in (logs / "orders-none-0").glob("*.log"))
    assert by_name(found)["orders-none-0"].growth is None
    with (logs / "orders-none-0" / "00000000000000000750.log").open("ab") as file:
        file.write(b"x" * 5000)
    clock.advance(2000)
    found.look()
    assert by_name(found)["orders-none-0"].growth == 2500
    (logs / "orders-none-0" / "00000000000000000900.log").write_bytes(b"y" * 700)
    (logs / "orders-none-0" / "00000000000000000000.log").unlink()
    shutil.rmtree(logs / "customers-0")
    shutil.copytree(logs / "payments-0", logs / "new-7")
    clock.advance(1000)
    found.look()
    seen = by_name(found)
    assert [one.name for one in seen["orders-none-0"].segments][-1] == "00000000000000000900.log"
    assert "customers-0" not in seen
    assert seen["new-7"].growth is None


def test_a_quiet_partition_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, clock = clean_logs(tmp_path), ManualClock()
    settle(logs)
    found = watch(logs, clock)
    found.look()
    listed: list[str] = []
    monkeypatch.setattr("seglog.look.report.watch.glance", lambda path, suffix: listed.append(path) or [])
    monkeypatch.setattr("seglog.look.report.watch.names_of_directories", lambda path: listed.append(path) or [])
    found.look()
    assert listed == []
    (logs / "orders-none-0" / "00000000000000000750.log.deleted").write_bytes(b"")
    found.look()
    assert listed == [str(logs / "orders-none-0")]


def test_a_change_in_the_tick_of_the_listing_is_not_missed(tmp_path: Path) -> None:
    logs, clock = clean_logs(tmp_path), ManualClock()
    found = watch(logs, clock)
    os.utime(logs / "orders-none-0")
    found.look()
    stamp = (logs / "orders-none-0").stat().st_mtime_ns
    (logs / "orders-none-0" / "00000000000000000900.log").write_bytes(b"y" * 700)
    os.utime(logs / "orders-none-0", ns=(stamp, stamp))
    found.look()
    assert by_name(found)["orders-none-0"].segments[-1].size == 700


def test_details_come_in_turn_and_stay_until_the_log_changes(tmp_path: Path) -> None:
    logs, clock, asked = clean_logs(tmp_path), ManualClock(), list[str]()
    settle(logs)
    found = watch(logs, clock, asked)
    found.look()
    rows = found.partitions[:4]
    assert found.detail(rows, 0.0) == 3
    assert found.detail(rows, 1e9) == 0
    assert asked == [one.name for one in rows]
    clock.advance(9_000)
    assert found.detail(rows, 1e9) == 0
    assert len(asked) == 4
    with (logs / rows[0].name / rows[0].segments[-1].name).open("ab") as file:
        file.write(b"x")
    found.look()
    found.detail(rows, 1e9)
    assert asked[4:] == [rows[0].name]
    clock.advance(40_000)
    found.detail(rows, 1e9)
    assert len(asked) == 9


def test_access_times_stay(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    if not untouched._UNTOUCHED:
        pytest.skip("the system has no O_NOATIME")
    old = {path: (1_000 * SECOND_NS, path.stat().st_mtime_ns) for path in (logs, *logs.rglob("*"))}
    for path, times in old.items():
        os.utime(path, ns=times)  # an access time before the modification time moves with the next read
    fs = untouched.UntouchedFileSystem()
    for path in old:
        if path.is_dir():
            assert fs.entries(path) is not None
            untouched.glance(str(path), ".log")
            untouched.names_of_directories(str(path))
        else:
            fs.read_bytes(path)
    assert {path: (path.stat().st_atime_ns, path.stat().st_mtime_ns) for path in old} == old
