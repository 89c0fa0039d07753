"""`seglog verify --repair`, `undo`, `quarantine` and `salvage`: output, exit codes, and undo of everything."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from seglog.storage.local import LocalFileSystem
from seglog.storage.lock import DirectoryLock
from tests.support.command_line import clean_logs, ended, json_lines, keep_partitions, process, run
from tests.support.fixtures import fixture_copy
from tests.support.log_files import batch, contents_below, write_segment
from tests.support.other_users import acting_as_user, given_to, needs_root, open_directory, planted_link

LOG = "00000000000000000000.log"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path / "data")  # a run beside `tmp_path` would be another test's


def break_batch(log: Path) -> None:
    data = bytearray((log / LOG).read_bytes())
    data[5000] ^= 0x10
    (log / LOG).write_bytes(data)


def test_exchanged_contents_are_gathered(tmp_path: Path) -> None:
    one, other = (write_segment(tmp_path / "t-0", base, batch(base, 3), batch(base + 3, 3)).path for base in (0, 6))
    whole = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(whole)
    done = run("verify", "--repair", tmp_path / "t-0")
    assert done.exit_code == 4
    assert f"gathered t-0/{LOG}: 2 batches moved back from other segments' files" in done.stdout
    assert one.read_bytes() == whole


def test_repair_and_undo_by_name(logs: Path) -> None:
    break_batch(logs / "orders-lz4-0")
    before = contents_below(logs)
    done = run("verify", "--json", "--repair", logs)
    summary = json_lines(done)[-1]
    assert (done.exit_code, summary["type"], summary["exit_code"], summary["remaining"]) == (4, "summary", 4, 0)
    assert {line["action"] for line in json_lines(done) if line["type"] == "plan"} >= {"excise", "rebuild"}
    assert run("verify", logs).exit_code == 0
    undone = run("undo", summary["run"])
    assert undone.exit_code == 0
    assert contents_below(logs) == before
    assert run("verify", logs).exit_code == 1
    assert run("undo", "--json", summary["run"]).exit_code == 0


def test_nothing_wrong_is_exit_code_0_and_makes_no_quarantine(logs: Path) -> None:
    before = contents_below(logs)
    done = run("verify", "--repair", logs / "orders-gzip-0")
    assert (done.exit_code, done.stdout) == (0, "nothing wrong\n")
    assert contents_below(logs) == before
    assert not (logs.parent / ".seglog-quarantine").exists()


def test_a_dry_run_shows_the_plan_and_changes_nothing(logs: Path) -> None:
    break_batch(logs / "orders-lz4-0")
    before = contents_below(logs)
    done = run("verify", "--repair", "--dry-run", logs / "orders-lz4-0")
    assert done.exit_code == 1
    assert f"excise orders-lz4-0/{LOG}: CRC_MISMATCH, position 3420" in done.stdout
    assert contents_below(logs) == before
    assert not (logs / ".lock").exists()


def test_what_cannot_be_repaired_is_exit_code_5(tmp_path: Path) -> None:
    logs = fixture_copy("0.7", tmp_path)
    first = sorted((logs / "ancient-0").glob("*.kafka"))[0]
    data = bytearray(first.read_bytes())
    data[3000] ^= 1
    first.write_bytes(data)
    done = process("verify", "--repair", logs / "ancient-0")
    assert done.returncode == 5
    assert b"a message's position is its offset" in done.stderr
    assert first.read_bytes() == data


def test_lost_offsets_that_no_file_shows_after_the_repair_still_count_as_left(logs: Path) -> None:
    """All logs of the partition are empty, and the repair resets the files that tell how far the log went."""
    log = logs / "orders-lz4-0"
    for path in log.glob("*.log"):
        path.write_bytes(b"")
    done = run("verify", "--repair", log)
    assert done.exit_code == 5
    assert "warning: stays: " in done.stderr and "the log ends at 0, but the high watermark is 790" in done.stderr
    assert "everything is repaired" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 finding left; seglog undo ")
    run_name = done.stdout.split("seglog undo ")[1].split()[0]
    assert run("undo", run_name).exit_code == 0
    summary = json_lines(run("verify", "--repair", "--json", log))[-1]
    assert (summary["exit_code"], summary["remaining"]) == (5, 1)


def test_a_lock_is_exit_code_11_and_a_bad_place_12(logs: Path) -> None:
    break_batch(logs / "orders-lz4-0")
    before = contents_below(logs)
    with DirectoryLock(logs):
        assert process("verify", "--repair", logs).returncode == 11
        for command in (["salvage"], ["convert"], ["fetch"]):
            made = process(*command, logs / "orders-gzip-0", "-o", logs / "new-0")
            assert (made.returncode, b"is locked by" in made.stderr) == (11, True), command
    refused = process("verify", "--repair", logs, "--quarantine", logs / "inside")
    assert (refused.returncode, b"inside the log directory" in refused.stderr) == (12, True)
    assert contents_below(logs) == before


@pytest.mark.slow
def test_a_partition_that_is_a_link_is_its_log_directorys(logs: Path, tmp_path: Path) -> None:
    """A broker follows the link, and holds no lock beside its target."""
    partition, target = logs / "orders-lz4-0", tmp_path / "elsewhere" / "orders-lz4-0"
    target.parent.mkdir()
    partition.rename(target)
    partition.symlink_to(target)
    break_batch(partition)
    before = contents_below(logs), contents_below(target)
    with DirectoryLock(logs):
        for command in (["verify", "--repair"], ["recover"], ["reindex"], ["retain"], ["truncate", "--to-offset", "1"]):
            assert process(*command, partition).returncode == 11, command
        assert b"verified as with --live" in process("verify", partition).stderr
    assert (contents_below(logs), contents_below(target)) == before
    assert process("verify", "--repair", partition).returncode == 4
    runs = [path for path in (logs.parent / ".seglog-quarantine").iterdir() if path.is_dir()]
    assert process("undo", runs[0]).returncode == 0
    assert partition.is_symlink()
    assert (contents_below(logs), contents_below(target)) == before


def test_a_partition_that_is_a_link_has_its_log_directorys_configuration(logs: Path, tmp_path: Path) -> None:
    partition, target = logs / "customers-0", tmp_path / "elsewhere" / "customers-0"
    told = run("explain", "--json", "--now", "2026-11-24", partition).stdout
    assert "cleanup.policy is compact" in told
    (logs / ".lock").touch()  # as in every directory in which a broker ran
    target.parent.mkdir()
    partition.rename(target)
    partition.symlink_to(target)
    assert run("explain", "--json", "--now", "2026-11-24", partition).stdout == told


@pytest.mark.parametrize(
    "options",
    [
        ["--repair", "--live"],
        ["--repair", "--sample", "5%"],
        ["--repair", "--level", "crc"],
        ["--policy", "truncate"],
        ["--dry-run"],
        ["--repair", "--policy", "best"],
        ["--repair", "--only", "logs"],
    ],
)
def test_options_that_do_not_go_together_are_exit_code_2(logs: Path, options: list[str]) -> None:
    assert process("verify", *options, logs / "orders-gzip-0").returncode == 2


def test_the_quarantine_is_listed_shown_restored_and_purged(logs: Path, tmp_path: Path) -> None:
    break_batch(logs / "orders-lz4-0")
    before = (logs / "orders-lz4-0" / LOG).read_bytes()
    name = json_lines(run("verify", "--json", "--repair", logs))[-1]["run"]
    listed = json_lines(run("quarantine", "ls", "--json", logs))
    assert [(line["run"], line["state"], line["partitions"]) for line in listed] == [
        (name, "finished", ["orders-lz4-0"])
    ]
    shown = json_lines(run("quarantine", "show", "--json", name))
    assert f"orders-lz4-0/{LOG}" in [line["path"] for line in shown if line["type"] == "change"]
    assert run("quarantine", "restore", name, "-o", tmp_path / "old").exit_code == 0
    assert (tmp_path / "old" / "orders-lz4-0" / LOG).read_bytes() == before
    assert process("quarantine", "purge", name, "--quarantine", logs.parent / ".seglog-quarantine").returncode == 2
    assert run("quarantine", "purge", name, "--yes").exit_code == 0
    assert run("quarantine", "ls", logs).stdout == ""
    assert process("undo", name, variables={"XDG_STATE_HOME": str(tmp_path / "state")}).returncode == 10


def test_the_runs_of_a_log_are_listed_and_those_of_others_beside_it_counted(logs: Path) -> None:
    other = shutil.copytree(logs, logs.parent / "other")
    names = {}
    for path in (logs, other):
        break_batch(path / "orders-lz4-0")
        names[path] = json_lines(run("verify", "--json", "--repair", path))[-1]["run"]

    def listed(path: Path) -> list[str]:
        return [line["run"] for line in json_lines(run("quarantine", "ls", "--json", path))]

    assert listed(logs) == listed(logs / "orders-lz4-0") == [names[logs]] and listed(other) == [names[other]]
    assert listed(logs / "orders-gzip-0") == []
    assert sorted(listed(logs.parent)) == sorted(listed(logs.parent / ".seglog-quarantine")) == sorted(names.values())
    assert "1 run of other logs" in run("quarantine", "ls", logs).stderr


def test_what_a_purge_that_was_cut_short_left_is_listed_and_purged(logs: Path) -> None:
    break_batch(logs / "orders-lz4-0")
    name = json_lines(run("verify", "--json", "--repair", logs))[-1]["run"]
    folder = logs.parent / ".seglog-quarantine" / name
    shutil.rmtree(folder)
    folder.mkdir()
    listed = run("quarantine", "ls", logs)
    assert listed.exit_code == 0 and f"{folder}: empty" in listed.stderr
    assert run("quarantine", "purge", name).exit_code != 0
    assert run("quarantine", "purge", name, "--yes").exit_code == 0
    assert not folder.exists()


@pytest.mark.parametrize("policy", ["smallest-loss", "truncate"])
def test_segments_at_relative_links_are_links_again_after_undo(logs: Path, tmp_path: Path, policy: str) -> None:
    log, other_disk = logs / "orders-lz4-0", logs.parent / "other-disk"
    break_batch(log)
    other_disk.mkdir()
    names = sorted(path.name for path in log.iterdir() if path.suffix in (".log", ".index", ".timeindex"))
    for name in names:
        (log / name).rename(other_disk / name)
        (log / name).symlink_to(f"../../other-disk/{name}")
    before, old = contents_below(logs), contents_below(other_disk)
    summary = json_lines(run("verify", "--json", "--repair", "--policy", policy, log))[-1]
    assert (summary["exit_code"], run("verify", log).exit_code) == (4, 0)
    run("quarantine", "restore", summary["run"], "-o", tmp_path / "old")
    assert (tmp_path / "old" / "orders-lz4-0" / LOG).read_bytes() == old[LOG]
    assert run("undo", summary["run"]).exit_code == 0
    assert (contents_below(logs), contents_below(other_disk)) == (before, old)
    assert all((log / name).is_symlink() for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["recover"], ["verify", "--repair"]])
def test_a_repair_that_was_cut_short_is_finished_by_the_next_command_that_writes(
    logs: Path, command: list[str]
) -> None:
    """The process is killed in the middle of the changes: the run's mark remains."""
    from seglog.clock import SystemClock
    from seglog.repairs.repair import examination, repair
    from seglog.repairs.undo.quarantine import PENDING_FILE
    from seglog.storage.local import LocalFileSystem

    class Killed(BaseException):
        pass

    class Mortal(LocalFileSystem):
        renames = 0

        def rename(self, source: Path, target: Path) -> None:
            self.renames += 1
            if self.renames == 4:
                raise Killed
            super().rename(source, target)

    break_batch(logs / "orders-lz4-0")
    fs, log = Mortal(), logs / "orders-lz4-0"
    with pytest.raises(Killed):
        repair(fs, SystemClock(), logs, [log], examination(fs, SystemClock(), logs, [log]).findings)
    assert (logs / PENDING_FILE).exists()
    done = process(*command, logs / "orders-none-0")
    assert done.returncode == 0, done.stderr
    assert b"which was cut short, is finished now" in done.stderr
    assert not (logs / PENDING_FILE).exists()
    assert run("verify", logs).exit_code == 0


def test_salvage_says_what_was_found_and_what_is_missing(logs: Path, tmp_path: Path) -> None:
    break_batch(logs / "orders-lz4-0")
    before = contents_below(logs)
    done = run("salvage", "--json", logs / "orders-lz4-0", "-o", tmp_path / "rescued" / "orders-lz4-0")
    source, missing, summary = json_lines(done)
    assert (source["type"], source["used"], missing["first_offset"]) == ("source", source["found"], 100)
    assert summary["missing_offsets"] == missing["last_offset"] - missing["first_offset"] + 1
    assert run("verify", tmp_path / "rescued" / "orders-lz4-0").exit_code == 0
    assert contents_below(logs) == before


def test_salvage_copies_what_it_can_read_and_names_what_it_cannot(logs: Path, tmp_path: Path) -> None:
    log = logs / "orders-lz4-0"
    (log / f"{10**9:020d}.log").symlink_to(f"{10**9:020d}.log")
    done = run("salvage", log, "-o", tmp_path / "rescued" / "orders-lz4-0")
    assert done.exit_code == 3
    assert f"{log}/{10**9:020d}.log: it could not be read completely: " in done.stderr
    assert run("verify", tmp_path / "rescued" / "orders-lz4-0").exit_code == 0


@needs_root
def test_carving_beside_another_users_link_copies_every_batch_and_names_the_link(logs: Path, tmp_path: Path) -> None:
    log, rescued, outside = logs / "orders-lz4-0", tmp_path / "rescued", tmp_path / "outside"
    outside.write_bytes(b"precious")
    index = log / LOG.replace(".log", ".index")
    index.unlink()
    planted_link(index, outside)
    done = run("salvage", "--carve", "--json", log, "-o", rescued)
    assert done.exit_code == 3
    assert [row["path"] for row in json_lines(done) if row.get("unreadable")] == [str(index)]
    assert (json_lines(done)[-1]["exit_code"], json_lines(done)[-1]["missing_offsets"]) == (3, 0)
    logs_of = [b"".join(path.read_bytes() for path in sorted(each.glob("*.log"))) for each in (log, rescued)]
    assert logs_of[0] == logs_of[1]
    assert run("verify", rescued).exit_code == 0


def test_an_image_of_several_logs_becomes_a_log_directory_with_one_each(logs: Path, tmp_path: Path) -> None:
    names = ("orders-lz4-0", "payments-0")
    image = b"".join(path.read_bytes() for name in names for path in sorted((logs / name).glob("*.log")))
    (tmp_path / "disk.img").write_bytes(image)
    done = run("salvage", "--carve", "--json", tmp_path / "disk.img", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    rows = json_lines(done)
    assert [row["type"] for row in rows] == ["source", "log", "log", "summary"]
    assert (rows[-1]["logs"], rows[-1]["undecided"], rows[-1]["missing_offsets"]) == (2, 0, 0)
    assert run("verify", tmp_path / "out").exit_code == 0
    done = run("salvage", "--carve", "--into-one", tmp_path / "disk.img", "-o", tmp_path / "one")
    assert done.exit_code == 1 and "contradict those of others" in done.stderr
    done = run("salvage", logs / "orders-lz4-0", logs / "payments-0", "-o", tmp_path / "two")
    assert done.exit_code == 12 and "--into-one" in done.stderr and not (tmp_path / "two").exists()


@pytest.mark.parametrize("name", [".", "..", "/", "", "no-such-run", "a/b"])
def test_what_is_the_name_of_no_run_is_not_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "seglog" / "runs").mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for command in (["undo", name], ["quarantine", "purge", name]):
        result = run(*command)
        assert (result.exit_code, result.stderr.count("error: ")) == (10, 1), result.output


def test_a_checkpoint_that_cannot_be_read_is_written_anew_and_no_value_is_shown_for_it(logs: Path) -> None:
    keep_partitions(logs, {"orders-none-0"})
    (logs / "recovery-point-offset-checkpoint").write_text("none\n")
    result = run("verify", "--repair", "--dry-run", logs)
    assert "set recovery-point-offset-checkpoint:" in result.stdout
    assert "rewritten" in result.stdout
    assert "None" not in result.stdout


def test_a_quarantine_is_not_looked_for_where_there_is_no_directory(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    for path, said in ((logs / "nowhere", "no such directory"), (logs / "meta.properties", "not a directory")):
        done = run("quarantine", "ls", path)
        assert (done.exit_code, done.stdout) == (10, "")
        assert f"{path}: {said}" in done.stderr


def test_an_unreadable_home_does_not_prevent_undo_in_the_log_directory(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"  # as another user's home under sudo
    closed.symlink_to(closed)
    monkeypatch.setenv("XDG_STATE_HOME", str(closed))
    break_batch(logs / "orders-lz4-0")
    before = contents_below(logs)
    name = json_lines(run("verify", "--json", "--repair", logs))[-1]["run"]
    monkeypatch.chdir(tmp_path)
    nowhere = process("undo", name, variables={"XDG_STATE_HOME": str(closed)})
    assert (nowhere.returncode, str(closed) in nowhere.stderr.decode()) == (74, True)
    monkeypatch.chdir(logs)
    undone = run("undo", name)
    assert (undone.exit_code, contents_below(logs)) == (0, before), undone.stderr
    measured = run("stats", logs / "orders-lz4-0")
    assert measured.exit_code == 0 and "past cleaning rounds cannot be read" in measured.stderr


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_repair_that_the_disk_ends_is_taken_back_and_no_repair_in_part(
    logs: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    break_batch(logs / "orders-lz4-0")
    before, rename, failed = contents_below(logs), LocalFileSystem.rename, []

    def once(fs: LocalFileSystem, source: Path, target: Path) -> None:
        if target == logs / "orders-lz4-0" / LOG and not failed:
            failed.append(target)
            raise OSError(number, os.strerror(number), str(target))
        rename(fs, source, target)

    monkeypatch.setattr(LocalFileSystem, "rename", once)
    done = ended("verify", "--json", "--repair", logs)
    assert failed
    assert done.code == 74
    told = done.stderr.decode()
    assert f"error: the repair failed and was taken back: {failed[0]}: {os.strerror(number)}" in told
    assert ("make room" in told) == (number == errno.ENOSPC)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["exit_code"], summary["run"]) == (74, None)
    assert contents_below(logs) == before
    assert run("verify", "--repair", logs).exit_code == 4


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_quarantine_that_cannot_be_there_is_refused_before_anything_is_verified(
    more: tuple[str, ...], tmp_path: Path
) -> None:
    path = clean_logs(tmp_path)
    result = run("repair", *more, "--quarantine", path / "quarantine", path)
    assert result.exit_code == 12 and "is inside the log directory" in result.stderr
    assert "batches" not in result.output and result.stdout == ""


@needs_root
@pytest.mark.parametrize("options", [("-n",), ()])
def test_a_segment_that_may_not_be_read_is_not_said_to_be_sound(options: tuple[str, ...]) -> None:
    """The dry run ended with 0, and the run said that nothing was wrong."""
    with open_directory() as place:
        log = clean_logs(place) / "orders-none-0"
        min(log.glob("*.log")).chmod(0)
        given_to(place)
        with acting_as_user():
            done = run("repair", *options, log)
    assert done.exit_code == 3 and "Permission denied" in done.output
    assert "nothing wrong" not in done.output and "nothing to repair" not in done.output
