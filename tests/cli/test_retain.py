"""`seglog retain`: reasons, files left as .deleted, --free, and data that is deleted only on request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seglog.log import checkpoints
from seglog.operations.retain import IN_TIER, KAFKAS_OWN
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.command_line import clean_logs, json_lines, process, run
from tests.support.compacted_directories import broker_directory
from tests.support.open_logs import START_MS

NOW = str(START_MS + 86_400_000)


def logs(tmp_path: Path) -> Path:
    return broker_directory(tmp_path / "logs", {"t-0": (3, 5), "u-0": (2, 5)}, cleanup_policy=frozenset({"delete"}))


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def bases(path: Path) -> list[int]:
    return sorted(int(f.stem) for f in path.glob("*.log"))


def test_segments_go_with_a_reason_and_wait_as_deleted(tmp_path: Path) -> None:
    path = logs(tmp_path) / "t-0"
    result = run("retain", "--now", NOW, "--retention-ms", "1h", path)
    assert result.exit_code == 0, result.stderr
    assert "deleted 3 of 4 segments of t-0" in result.stdout
    assert "old, and retention.ms is 1h" in result.stdout
    assert "stays  120" in result.stdout
    assert "wait as .deleted" in result.stderr
    assert bases(path) == [120]
    assert len(list(path.glob("*.log.deleted"))) == 3
    run("append", path, input_text="x\n")
    assert not list(path.glob("*.deleted"))


def test_without_delay_the_files_are_gone_at_the_end(tmp_path: Path) -> None:
    path = logs(tmp_path) / "t-0"
    run("retain", "--now", NOW, "--retention-ms", "1h", "--delay", "0", path)
    assert (bases(path), list(path.glob("*.deleted"))) == ([120], [])


def test_a_dry_run_and_a_check_change_nothing(tmp_path: Path) -> None:
    path = logs(tmp_path)
    before = snapshot(path)
    result = run("retain", "--json", "--dry-run", "--now", NOW, "--retention-bytes", "1", path / "t-0")
    (row,) = json_lines(result)
    assert (row["type"], row["dry_run"], row["deleted_segments"]) == ("retention", True, [0, 40])
    assert row["segments"][0]["rule"] == "size"
    assert run("retain", "--check", "--now", NOW, "--retention-ms", "1h", path / "t-0").exit_code == 1
    assert run("retain", "--check", "--now", NOW, "--retention-ms", "100d", path / "t-0").exit_code == 0
    assert snapshot(path) == before


def test_a_file_does_not_stand_for_its_partition(tmp_path: Path) -> None:
    path = logs(tmp_path)
    before = snapshot(path)
    done = run("retain", "--now", NOW, "--retention-ms", "1h", sorted((path / "t-0").glob("*.log"))[0])
    assert (done.exit_code, snapshot(path)) == (10, before)
    assert "not a file" in done.stderr


def test_what_looks_tiered_loses_nothing_unless_it_is_said_not_to_be(tmp_path: Path) -> None:
    path = logs(tmp_path)
    first = bases(path / "t-0")[0]
    for file in (path / "t-0").glob(f"{first:020d}.*"):
        file.unlink()
    starts, left = path / "log-start-offset-checkpoint", bases(path / "t-0")
    starts.write_text(f"0\n1\nt 0 {first}\n")
    rule = ("--now", NOW, "--retention-ms", "1h", "--json", path / "t-0")
    for dry_run in (["--dry-run"], []):
        (row,) = json_lines(run("retain", *dry_run, *rule))
        assert (row["deleted_segments"], row["note"]) == ([], IN_TIER)
    assert (bases(path / "t-0"), starts.read_text()) == (left, f"0\n1\nt 0 {first}\n")
    (row,) = json_lines(run("retain", "--set", "remote.storage.enable=false", *rule))
    assert row["deleted_segments"] == left[:-1]


def test_a_log_directory_is_looked_at_once_however_many_partitions_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looked = logs(tmp_path), []

    def looked_at(_: FileSystem, log_directory: Path) -> list[str]:
        looked.append(log_directory)
        return ["it is damaged"]

    monkeypatch.setattr(checkpoints, "directory_obstacles", looked_at)
    result = run("retain", "--dry-run", "--now", NOW, path)
    assert result.stderr.count("a broker does not start with this: it is damaged") == 1
    assert looked == [path]


def test_a_rule_that_nobody_stated_deletes_nothing(tmp_path: Path) -> None:
    path = logs(tmp_path)
    much_later = str(START_MS + 400 * 86_400_000)
    for arguments in (
        [path],
        [path / "t-0"],
        ["--retention-bytes", "-1", path / "t-0"],
        ["--retention-ms", "1h", path],
    ):
        result = run("retain", "--now", much_later, *arguments)
        assert result.exit_code == 0, result.stderr
        assert "nothing to delete" in result.stdout
        assert "cleanup.policy is empty" not in result.stdout
    assert "cleanup.policy is not known: only segments below" in run("retain", "--dry-run", path).stdout
    assert bases(path / "t-0") == [0, 40, 80, 120]


def test_compacted_and_internal_topics_keep_their_segments(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    for name in ("customers-0", "__consumer_offsets-0", "payments-compact-0"):
        result = run("retain", "--now", "2036-01-01T00:00:00Z", "--retention-ms", "0", path / name)
        assert f"{name}: nothing to delete" in result.stdout


def test_freeing_takes_whole_oldest_segments_and_tells_a_shortage(tmp_path: Path) -> None:
    path = logs(tmp_path)
    settings = ("--set", "cleanup.policy=delete", "--now", NOW)
    size = taken(path / "t-0", 0)
    result = run("retain", "--free", f"+{size + 1}", *settings, path)
    assert result.exit_code == 0, result.stderr
    assert (bases(path / "t-0"), bases(path / "u-0")) == ([40, 80, 120], [40, 80])
    assert not list(path.rglob("*.deleted"))
    assert [line.partition(": ")[0] for line in result.stdout.splitlines()] == [
        "deleted 1 of 4 segments of t-0", "deleted 1 of 3 segments of u-0", str(path)]  # fmt: skip
    rows = json_lines(run("retain", "--json", "--dry-run", "--free", "+1", *settings, path))
    reasons = [segment["reason"] for segment in rows[1]["segments"]]
    assert (reasons[0], reasons[-1]) == ("enough is free without it", "the last segment, and empty")
    result = run("retain", "--free", "+50GB", *settings, path)
    assert result.exit_code == 1
    assert "no more closed segments may go" in result.stderr
    assert (bases(path / "t-0"), bases(path / "u-0")) == ([120], [80])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--free", "1GB", "--retention-ms", "1h", "t-0"], 2),
        (["--free", "0", "t-0"], 2),
        (["--free", "+0", "t-0"], 2),
        (["--free", "much", "t-0"], 2),
        (["--free", "1GB", "--delay", "1h", "t-0"], 2),
        (["--policy", "compact", "t-0"], 2),
        (["--policy", "delete", "."], 2),
        (["--retention-ms", "soon", "t-0"], 2),
        (["missing-0"], 10),
    ],
)
def test_wrong_usage_is_told(tmp_path: Path, arguments: list[str], code: int) -> None:
    path = logs(tmp_path)
    assert process("retain", *arguments[:-1], path / arguments[-1]).returncode == code


def test_damage_that_opening_would_cut_is_refused(tmp_path: Path) -> None:
    path = logs(tmp_path)
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    segment = path / "t-0" / f"{40:020d}.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    before = snapshot(path / "t-0")
    result = run("retain", "--now", NOW, "--retention-ms", "1h", path / "t-0")
    assert result.exit_code == 1
    assert "opening the log would cut" in result.stderr
    assert snapshot(path / "t-0") == before


@pytest.mark.parametrize("damage", ["torn", "flipped"])
def test_freeing_takes_closed_segments_of_a_log_whose_last_one_is_damaged_and_leaves_that_as_it_is(
    tmp_path: Path, damage: str
) -> None:
    path = logs(tmp_path)
    (path / ".kafka_cleanshutdown").unlink()
    (path / "recovery-point-offset-checkpoint").unlink()
    (path / "t-0" / f"{120:020d}.log").unlink()
    active = path / "t-0" / f"{80:020d}.log"
    data = active.read_bytes()
    active.write_bytes(data[:-7] if damage == "torn" else data[:-7] + bytes([data[-7] ^ 1]) + data[-6:])
    before = snapshot(path / "t-0")
    arguments = ("--json", "--free", "+50GB", "--set", "cleanup.policy=delete", "--now", NOW, path)
    (planned, *_) = [row for row in json_lines(run("retain", "--dry-run", *arguments)) if row.get("partition") == "t-0"]
    assert snapshot(path / "t-0") == before
    result = run("retain", *arguments)
    (row,) = [row for row in json_lines(result) if row.get("partition") == "t-0"]
    assert (row["deleted_segments"], row["log_start_offset"], row["dry_run"]) == ([0, 40], 80, False)
    assert planned | {"dry_run": False} == row
    assert "only closed segments are taken" in row["note"] and "left unchanged" not in result.stderr
    after = snapshot(path / "t-0")
    assert {name for name in before if not name.startswith((f"{0:020d}", f"{40:020d}"))} <= set(after)
    assert after[active.name] == before[active.name]
    run("recover", path / "t-0")
    assert bases(path / "t-0") == [80]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
@pytest.mark.parametrize("contents", ["0\n2\nt 0 0\nt 0 40\n", "gibberish"])
def test_a_checkpoint_that_cannot_be_relied_on_is_named_and_nothing_deleted(
    tmp_path: Path, name: str, contents: str
) -> None:
    path = logs(tmp_path)
    (path / name).write_text(contents)
    before = snapshot(path)
    result = run("retain", "--policy", "delete", "--retention-bytes", "1", path / "t-0")
    assert result.exit_code == 1
    assert name in result.stderr
    assert snapshot(path) == before


def test_a_log_start_beyond_the_log_drops_nothing(tmp_path: Path) -> None:
    path = logs(tmp_path)
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 9223372036854775807\n")
    before = snapshot(path / "t-0")
    result = run("retain", "--now", NOW, "--retention-ms", "1h", path / "t-0")
    assert result.exit_code == 1
    assert "log-start-offset-checkpoint" in result.stderr
    assert snapshot(path / "t-0") == before


# --- room on a disk


def taken(partition: Path, base_offset: int) -> int:
    """Returns the bytes on disk that a segment's files take."""
    kinds = (".log", ".index", ".timeindex", ".txnindex")
    files = (partition / f"{base_offset:020d}{kind}" for kind in kinds)
    return sum(f.stat().st_blocks * 512 for f in files if f.exists())


class Disk(LocalFileSystem):
    """A file system of `size` bytes, on which the files below `root` are all there is."""

    def __init__(self, root: Path, size: int) -> None:
        self.root, self.total = root, size

    def free_bytes(self, path: Path) -> int:
        return self.total - sum(f.stat().st_blocks * 512 for f in self.root.rglob("*") if f.is_file())


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Makes a disk of one MB below `tmp_path`."""
    found = Disk(tmp_path, 1_000_000)
    monkeypatch.setattr("seglog_cli.session.Session.fs", found)
    return found


def test_freeing_goes_on_until_that_much_is_free_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    path = logs(tmp_path)
    settings = ("--set", "cleanup.policy=delete", "--now", NOW)
    free = disk.free_bytes(path)
    result = run("retain", "--free", str(free - 1), *settings, path)
    assert (result.exit_code, bases(path / "t-0")) == (0, [0, 40, 80, 120])
    assert "nothing to free" in result.stdout
    rows = json_lines(run("retain", "--json", "--dry-run", "--free", str(free + 1), *settings, path))
    assert [row["deleted_segments"] for row in rows[:2]] == [[0], []]
    assert (rows[2]["type"], rows[2]["wanted_bytes"], rows[2]["reached"]) == ("freed", 1, True)
    result = run("retain", "--free", str(free + 1), *settings, path)
    assert (result.exit_code, bases(path / "t-0"), bases(path / "u-0")) == (0, [40, 80, 120], [0, 40, 80])
    assert disk.free_bytes(path) > free


def test_two_log_directories_on_one_disk_free_the_room_once(tmp_path: Path, disk: Disk) -> None:
    one, other = (broker_directory(tmp_path / name, {"t-0": (3, 5)}) for name in ("one", "other"))
    size = taken(one / "t-0", 0)
    wanted = str(disk.free_bytes(one) + size)
    for dry_run in (["--dry-run"], []):
        result = run("retain", "--json", *dry_run, "--free", wanted, "--set", "cleanup.policy=delete", one, other)
        rows = json_lines(result)
        assert [row["deleted_segments"] for row in rows if row["type"] == "retention"] == [[0], []]


def test_files_of_an_unfinished_deletion_are_named_in_the_dry_run_as_in_the_run(tmp_path: Path, disk: Disk) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    leftover = path / "t-0" / f"{99:020}.log.deleted"
    leftover.write_bytes(b"x" * 5000)
    settings = ("--set", "cleanup.policy=delete")
    for arguments in (("--free", "1"), ("--retention-ms", "-1")):
        planned = run("retain", "--dry-run", *arguments, *settings, path)
        assert leftover.exists() and "would remove 1 file of an unfinished deletion in t-0: " in planned.stdout
        rows = json_lines(run("retain", "--dry-run", "--json", *arguments, *settings, path))
        assert (rows[0]["leftover_files"], rows[0]["leftover_bytes"] >= 5000) == (1, True)
        done = run("retain", *arguments, *settings, path)
        assert not leftover.exists() and "removed 1 file of an unfinished deletion in t-0: " in done.stdout
        leftover.write_bytes(b"x" * 5000)
    said = run("retain", "--free", "1", *settings, path).stdout
    assert "of files of an unfinished deletion were freed: " in said and "nothing to free" not in said


def test_partitions_that_give_nothing_are_counted_by_the_reason(tmp_path: Path, disk: Disk) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5), "u-0": (0, 5), "u-1": (0, 5)})
    arguments = ("retain", "--dry-run", "--free", "1GB", "--set", "cleanup.policy=delete", path)
    lines = run(*arguments).stdout.splitlines()
    assert lines[0].startswith("would delete 3 of 4 segments of t-0: ")
    assert lines[1] == "2 partitions give nothing (-v names them):" and lines[2].startswith("  2: ")
    assert not any(line.startswith("u-") for line in lines)
    assert sum(line.startswith("u-") for line in run(*arguments, "-v").stdout.splitlines()) == 2


def test_files_that_wait_for_their_deletion_are_room_too(tmp_path: Path, disk: Disk) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    run("retain", "--now", NOW, "--retention-bytes", "1", path / "t-0")
    waiting, left = list((path / "t-0").glob("*.deleted")), bases(path / "t-0")
    wanted = disk.free_bytes(path) + sum(f.stat().st_blocks * 512 for f in waiting)
    assert waiting
    for dry_run in (["--dry-run"], []):
        result = run("retain", "--json", *dry_run, "--free", str(wanted), "--set", "cleanup.policy=delete", path)
        assert [row["reached"] for row in json_lines(result) if row["type"] == "freed"] == [True]
        assert bases(path / "t-0") == left


def test_freeing_takes_what_the_brokers_default_lets_go_and_nothing_of_kafkas_own(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    result = run("retain", "--json", "--free", "+1TB", path)
    assert result.exit_code == 1
    rows = {row["partition"]: row for row in json_lines(result) if row["type"] == "retention"}
    lost = {name for name, row in rows.items() if row["deleted_segments"]}
    assert {"orders-none-0", "payments-0"} <= lost
    assert not [name for name in lost if name.startswith(("__", "customers-"))]
    assert "__cluster_metadata-0" not in rows


def test_freeing_never_takes_kafkas_own_topics_whatever_their_policy(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"__remote_log_metadata-0": (3, 5), "t-0": (1, 5)})
    for partition in (path, path / "__remote_log_metadata-0"):
        rows = json_lines(run("retain", "--json", "--free", "+1GB", partition))
        (row,) = [row for row in rows if row.get("partition") == "__remote_log_metadata-0"]
        assert (row["deleted_segments"], row["note"]) == ([], KAFKAS_OWN)


def test_a_disk_without_the_metadata_goes_by_the_same_brokers_other_disk(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    disk = tmp_path / "disk2"
    disk.mkdir()
    (path / "orders-none-0").rename(disk / "orders-none-0")
    (path / "customers-0").rename(disk / "customers-0")
    identity = (path / "meta.properties").read_text()
    assert not json_lines(run("retain", "--json", "--dry-run", "--free", "+1GB", disk))[0]["deleted_segments"]
    (disk / "meta.properties").write_text(re.sub("directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAQ", identity))
    rows = {row.get("partition"): row for row in json_lines(run("retain", "--json", "--free", "+1GB", disk))}
    assert rows["orders-none-0"]["deleted_segments"] and not rows["customers-0"]["deleted_segments"]
    far = tmp_path / "far" / "away" / "disk"
    far.parent.mkdir(parents=True)
    path.rename(far)
    found = json_lines(run("config", "show", "--json", disk / "customers-0", "--metadata-dir", far))
    assert {row["key"]: row["value"] for row in found}["cleanup.policy"] == "compact"
    assert not json_lines(run("config", "show", "--json", disk / "customers-0"))


# --- what the cluster's metadata denies


def test_a_brokers_default_never_beats_a_topics_own_policy(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    arguments = ("--set", "log.cleanup.policy=delete", "--set", "log.retention.ms=1", "--now", "2036-01-01T00:00:00Z")
    before = bases(path / "customers-0")
    rows = {row["partition"]: row for row in json_lines(run("retain", "--json", *arguments, path))}
    assert rows["customers-0"]["deleted_segments"] == [] and "compact" in rows["customers-0"]["segments"][0]["reason"]
    assert rows["orders-none-0"]["deleted_segments"]
    assert bases(path / "customers-0") == before


@pytest.mark.parametrize(
    "arguments", [("--set", "cleanup.policy=delete"), ("--policy", "delete"), ("--policy", "compact,delete")]
)
def test_a_policy_that_the_metadata_denies_is_refused_before_anything_is_changed(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = clean_logs(tmp_path)
    before = snapshot(path)
    rule = ("--retention-ms", "0", "--now", "2036-01-01T00:00:00Z", *arguments)
    for dry_run in ([], ["--dry-run"]):
        result = run("retain", *dry_run, *rule, path / "orders-none-0", path / "customers-0")
        assert result.exit_code == 12
        assert "instead of compact (__cluster_metadata-0/" in result.stderr and "--override-policy" in result.stderr
        assert snapshot(path) == before


def test_insisting_on_a_policy_follows_it_and_shows_what_it_goes_against(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    rule = ("--policy", "delete", "--retention-ms", "0", "--now", "2036-01-01T00:00:00Z", "--override-policy")
    result = run("retain", "--dry-run", *rule, path / "customers-0")
    assert result.exit_code == 0
    assert (
        "this contradicts the cluster's configuration: cleanup.policy delete (option) instead of compact"
        in result.stdout
    )
    (row,) = json_lines(run("retain", "--json", *rule, path / "customers-0"))
    assert row["deleted_segments"]
    assert [found["stated_value"] for found in row["contradictions"]] == ["compact"]


def test_in_a_log_directory_only_what_the_metadata_denies_is_left_as_it_was(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    before = snapshot(path / "customers-0")
    now = ("--now", "2036-01-01T00:00:00Z")
    result = run("retain", "--json", "--set", "cleanup.policy=delete", "--retention-ms", "0", *now, path)
    assert result.exit_code == 12
    assert "customers-0: left unchanged" in result.stderr
    assert {row["partition"] for row in json_lines(result) if row["deleted_segments"]} >= {"orders-none-0", "clicks-0"}
    assert snapshot(path / "customers-0") == before


def test_a_rule_shorter_than_the_topics_own_is_refused_and_a_longer_one_is_not(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    result = run("retain", "--dry-run", "--retention-ms", "10d", path / "both-0")  # both: retention.ms is -1 there
    assert result.exit_code == 12 and "retention.ms 864000000 (option) instead of -1" in result.stderr
    assert run("retain", "--dry-run", "--retention-ms", "-1", path / "both-0").exit_code == 0
    assert run("retain", "--dry-run", "--retention-ms", "10d", path / "orders-none-0").exit_code == 0


def test_the_controllers_own_log_is_refused_in_a_dry_run_too(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    for dry_run in ([], ["--dry-run"]):
        result = run("retain", *dry_run, "--retention-ms", "0", path / "__cluster_metadata-0")
        assert result.exit_code == 12 and "the controller's own log" in result.stderr
        assert run("clean", *dry_run, "--policy", "compact", path / "__cluster_metadata-0").exit_code == 12
