"""The crash model keeps its promises, or every crash test would prove nothing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.support.crash_filesystem import CrashFileSystem, PowerCut

FOLDER = Path("/logs/a-0")
SEEDS = range(60)


def fresh() -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.make_directory(FOLDER, parents=True)
    fs.sync_all()
    return fs


def write(fs: CrashFileSystem, name: str, data: bytes, *, sync: bool) -> None:
    with fs.open(FOLDER / name, "create") as file:
        file.write_at(0, data)
        if sync:
            file.sync()


def outcomes(fs: CrashFileSystem) -> list[dict[str, bytes]]:
    return [fs.survivor(seed).contents(FOLDER) for seed in SEEDS]


def test_synced_contents_under_a_synced_name_always_survive() -> None:
    fs = fresh()
    write(fs, "f", b"data", sync=True)
    fs.sync_directory(FOLDER)
    assert all(found == {"f": b"data"} for found in outcomes(fs))


def test_a_synced_file_can_lose_its_name() -> None:
    fs = fresh()
    write(fs, "f", b"data", sync=True)
    found = outcomes(fs)
    assert {} in found and {"f": b"data"} in found


def test_unsynced_contents_survive_as_prefixes_or_zeros() -> None:
    fs = fresh()
    write(fs, "f", b"data", sync=True)
    fs.sync_directory(FOLDER)
    with fs.open(FOLDER / "f", "r+") as file:
        file.write_at(4, b"more")
        file.write_at(8, b"last")
    found = {outcome["f"] for outcome in outcomes(fs)}
    assert {b"data", b"datamore", b"datamorelast", b"data\0\0\0\0"} <= found
    assert all(data.startswith(b"data") for data in found)
    assert b"data\0\0\0\0last" not in found, "a later write never survives an earlier one that is lost"


def test_a_rename_is_all_or_nothing_and_keeps_order() -> None:
    fs = fresh()
    write(fs, "f", b"old", sync=True)
    write(fs, "f.tmp", b"new", sync=True)
    fs.sync_directory(FOLDER)
    fs.rename(FOLDER / "f.tmp", FOLDER / "f")
    write(fs, "g", b"", sync=True)
    found = outcomes(fs)
    assert {"f": b"old", "f.tmp": b"new"} in found and {"f": b"new"} in found
    assert not any("g" in outcome and "f.tmp" in outcome for outcome in found)


def test_the_power_goes_at_the_chosen_call_and_stays_off() -> None:
    fs = fresh()
    before = fs.mutations
    fs.cut_at(1, fraction=0.5)
    with pytest.raises(PowerCut):
        write(fs, "f", b"12345678", sync=True)
    assert fs.mutations == before + 2
    with pytest.raises(PowerCut):
        fs.list(FOLDER)
    assert {outcome.get("f") for outcome in outcomes(fs)} <= {None, *(b"1234"[:n] for n in range(5)), b"\0\0\0\0"}


def test_a_full_disk_takes_part_of_a_write_and_says_so() -> None:
    fs = fresh()
    fs.fill_disk_after(3)
    with pytest.raises(OSError) as error, fs.open(FOLDER / "f", "create") as file:
        file.write_at(0, b"12345")
    assert error.value.errno == errno.ENOSPC
    assert fs.read_bytes(FOLDER / "f") == b"123"


def test_real_directories_come_in_and_go_out(tmp_path: Path) -> None:
    (tmp_path / "in" / "a-0").mkdir(parents=True)
    (tmp_path / "in" / "a-0" / "f").write_bytes(b"data")
    fs = CrashFileSystem.of(tmp_path / "in")
    fs.remove(tmp_path / "in" / "a-0" / "f")
    write_back = [fs.survivor(seed) for seed in SEEDS]
    kept = [copy for copy in write_back if copy.status(tmp_path / "in" / "a-0" / "f") is not None]
    assert 0 < len(kept) < len(write_back)
    kept[0].write_to(tmp_path / "out", tmp_path / "in")
    assert (tmp_path / "out" / "a-0" / "f").read_bytes() == b"data"


def test_a_file_moved_between_directories_is_in_exactly_one_of_them() -> None:
    fs, other = fresh(), Path("/logs/b-0")
    fs.make_directory(other)
    fs.sync_directory(other.parent)
    write(fs, "f", b"data", sync=True)
    fs.rename(FOLDER / "f", other / "f")
    places = set()
    for seed in SEEDS:
        survivor = fs.survivor(seed)
        places.add(("f" in survivor.contents(FOLDER), "f" in survivor.contents(other)))
    assert (True, True) not in places
    assert {(True, False), (False, True)} <= places
    fs.sync_directory(other)
    assert all(fs.survivor(seed).contents(other.parent) == {"b-0/f": b"data"} for seed in SEEDS)


def test_a_directory_made_and_removed_may_come_back_empty() -> None:
    fs = fresh()
    fs.make_directory(FOLDER / "new")
    fs.remove_directory(FOLDER / "new")
    assert {tuple(fs.survivor(seed).list(FOLDER)) for seed in SEEDS} == {(), ("new",)}
