"""`seglog clean`: the contract, refusals that change nothing, and a dry run that predicts the round."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.output import CleanerStats
from seglog.model import TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_cli.commands.clean import _REASONS
from tests.support.cleaning import append, compacted_log, keyed
from tests.support.command_line import clean_logs, json_lines, process, run
from tests.support.compacted_directories import broker_directory, fill, keys_of, opened
from tests.support.fixtures import fixture_copy
from tests.support.log_files import files_of, write_segment
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.support.open_logs import START_MS

pytestmark = pytest.mark.filterwarnings("ignore")


def logs(tmp_path: Path, **contents: tuple[int, int]) -> Path:
    return broker_directory(
        tmp_path / "logs", {f"{name}-0": shape for name, shape in (contents or {"t": (3, 5)}).items()}
    )


def snapshot(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Returns name → (modification time, inode, contents) of every file: equal only if no file was rewritten."""
    return {
        str(f.relative_to(path)): (f.stat().st_mtime_ns, f.stat().st_ino, f.read_bytes())
        for f in path.rglob("*")
        if f.is_file()
    }


def logs_of(partition: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(partition).items() if name.endswith(".log")}


def cleaned(*arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    result = run("clean", "--json", *arguments)
    assert result.exit_code == code, result.stderr
    return json_lines(result)


def test_a_named_partition_is_cleaned_whatever_its_ratio(tmp_path: Path) -> None:
    path = logs(tmp_path)
    (only,) = cleaned("--policy", "compact", "--set", "min.cleanable.dirty.ratio=1", path / "t-0")
    assert (only["type"], only["partition"], only["dry_run"]) == ("cleaning", "t-0", False)
    assert (only["first_dirty_offset"], only["end_offset"], only["records_written"]) == (0, 120, 5)
    assert (only["map_entries"], only["index_passes"], only["map_slots"]) == (5, 1, 5_592_405)
    assert len(keys_of(path, "t-0")) == 5
    assert (path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 120\n"


def test_a_named_partition_with_nothing_dirty_is_cleaned_again(tmp_path: Path) -> None:
    """A broker would not start a round, so tombstones of an idle log would never go."""
    path = logs(tmp_path, t=(1, 5))
    tombstone = '{"key":"k1","value":null}\n'
    assert run("append", path / "t-0", "--input-format", "jsonl", input_text=tombstone).exit_code == 0
    arguments = ("--policy", "compact", path / "t-0")
    (first,) = cleaned("--roll", "--now", str(START_MS), *arguments)
    assert (first["end_offset"], first["tombstones_kept"], first["records_written"]) == (41, 1, 5)
    (again,) = cleaned("--now", str(START_MS + 2 * 86_400_000), *arguments)
    assert (again["first_dirty_offset"], again["end_offset"]) == (41, 41)
    assert (again["records_written"], again["reasons"]["tombstones_expired"]) == (4, 1)
    assert b"k1" not in keys_of(path, "t-0")
    assert (path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 41\n"


def test_the_text_ends_with_the_block_that_a_broker_logs(tmp_path: Path) -> None:
    result = run("clean", "-v", "--policy", "compact", logs(tmp_path) / "t-0")
    block = "\n".join(result.stdout.splitlines()[-8:]) + "\n"
    number = r"(?:[0-9,]+\.\d|NaN|Infinity)"
    assert re.fullmatch(
        rf"""\tLog cleaner thread 0 cleaned log t-0 \(dirty section = \[0, 120\]\)
\t0\.0 MB of log processed in {number} seconds \(({number}) MB/sec\)\.
\tIndexed 0\.0 MB in {number} seconds \(({number}) Mb/sec, ({number})% of total time\)
\tBuffer utilization: 0\.0%
\tCleaned 0\.0 MB in {number} seconds \(({number}) Mb/sec, ({number})% of total time\)
\tStart size: 0\.0 MB \(120 messages\)
\tEnd size: 0\.0 MB \(5 messages\)
\t({number})% size reduction \(95\.8% fewer messages\)
""",
        block,
    )
    assert "115 records dropped: a later one has their key" in result.stdout


def test_one_record_is_one_record_and_every_reason_has_a_text(tmp_path: Path) -> None:
    records = "".join(f'{{"key":"{key}","value":"v"}}\n' for key in "aab")
    path = logs(tmp_path, t=(0, 1)) / "t-0"
    assert run("append", path, "--input-format", "jsonl", input_text=records).exit_code == 0
    said = [line.split(maxsplit=1) for line in run("clean", "--policy", "compact", "--roll", path).stdout.splitlines()]
    assert ["1", "record dropped: a later one has its key"] in said
    assert ["2", "records kept: the newest of their key"] in said
    assert set(_REASONS) == set(CleanerStats(ManualClock(0)).reasons())


def test_the_text_of_a_dry_run_says_of_nothing_that_it_was_cleaned(tmp_path: Path) -> None:
    path = logs(tmp_path) / "t-0"
    assert "cleaned log" not in run("clean", "--policy", "compact", "--dry-run", path).stdout.lower()  # nor in a pipe
    texts = [run("clean", "--policy", "compact", *options, "-v", path).stdout for options in (["--dry-run"], [])]
    block = texts[0].splitlines()[-8:]
    assert block[0] == "\tWould have cleaned log t-0 (dirty section = [0, 120])"
    said = [line for line in texts[0].splitlines() if "cleaned" in line.lower()]
    assert all("would have cleaned" in line.lower() or "is not cleaned" in line for line in said), said
    assert "Log cleaner thread 0 cleaned log" in texts[1]


def test_a_dry_run_touches_nothing_and_predicts_the_run(tmp_path: Path) -> None:
    path = logs(tmp_path)
    before = snapshot(path)
    for options in (["--roll"], ["--expire"], ["--dedupe-buffer-size", "72"], []):
        arguments = ["--policy", "compact", *options, path / "t-0"]
        (predicted,) = cleaned("--dry-run", *arguments)
        assert snapshot(path) == before
        if options:
            continue
        (done,) = cleaned(*arguments)
        for name in done:
            if not name.endswith("_seconds") and name != "dry_run":
                assert predicted[name] == done[name], name
        sizes = {f.name: f.stat().st_size for f in (path / "t-0").glob("*.log")}
        assert all(sizes[f"{s['base_offset']:020d}.log"] == s["size"] for s in predicted["segments_after"])


def test_check_tells_by_the_exit_code_whether_there_is_something_to_do(tmp_path: Path) -> None:
    path = logs(tmp_path)
    before = snapshot(path)
    cleaned("--check", "--policy", "compact", path / "t-0", code=1)
    assert snapshot(path) == before
    cleaned("--policy", "compact", path / "t-0")
    cleaned("--check", "--policy", "compact", path / "t-0")


def test_options_reach_the_round(tmp_path: Path) -> None:
    path = logs(tmp_path, t=(3, 30))
    options = ("--dedupe-buffer-size", "240", "--load-factor", "0.5", "--roll", "--strategy", "timestamp")
    (only,) = cleaned("--policy", "compact", *options, path / "t-0")
    assert (only["map_slots"], only["records_written"]) == (10, 30)
    assert only["index_passes"] >= 6


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["t-0"], 12, "the cleanup policy of t is not known"),
        (["--set", "cleanup.policy=delete", "t-0"], 12, "t is not compacted: its cleanup.policy is delete (--set)"),
        (["--policy", "compact", "."], 2, "--policy: only for named partitions"),
        (["--policy", "delete", "t-0"], 2, "is not one of compact"),
        (["--policy", "compact", "--strategy", "newest", "t-0"], 2, "strategy: 'newest' is not offset"),
        (["--policy", "compact", "--dedupe-buffer-size", "24", "t-0"], 2, "at least 2 are needed"),
        (["--policy", "compact", "--roll", "--dedupe-buffer-size", "8191P", "t-0"], 2, "lower log.cleaner.dedupe"),
        (["--policy", "compact", "missing-0"], 10, "no such file or directory"),
        (["--policy", "compact", "t-0/00000000000000000000.log"], 10, "not a file"),
    ],
)
def test_what_cannot_be_cleaned_is_refused_and_left_as_it_was(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    path = logs(tmp_path)
    before = snapshot(path)
    options, name = arguments[:-1], arguments[-1]
    result = run("clean", *options, path / name)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert snapshot(path) == before


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("0\n2\nt 0 0\nt 0 40\n", "is listed twice"),
        ("0\n1\nt 0 x\n", "is not a number"),
        ("gibberish", "version"),
        ("0\n5\nt 0 0\n", "announced"),
    ],
)
@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_an_unreadable_checkpoint_is_named_and_nothing_changed(
    tmp_path: Path, checkpoint: str, message: str, dry_run: list[str]
) -> None:
    path = logs(tmp_path)
    (path / "cleaner-offset-checkpoint").write_text(checkpoint)
    before = snapshot(path)
    result = run("clean", "--policy", "compact", *dry_run, path / "t-0")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "cleaner-offset-checkpoint" in result.stderr
    assert snapshot(path) == before


@pytest.mark.parametrize("shape", [(0, 1), (0, 0)])
def test_an_active_segment_only_is_nothing_to_clean_and_an_empty_log_too(
    tmp_path: Path, shape: tuple[int, int]
) -> None:
    path = logs(tmp_path, t=shape)
    before = snapshot(path)
    result = run("clean", "--policy", "compact", path / "t-0")
    assert (result.exit_code, result.stdout) == (0, "t-0: nothing to clean\n")
    assert snapshot(path) == before
    result = run("append", path / "t-0", "--key-separator", ":", input_text="a:1\na:2\n")
    before = snapshot(path)
    result = run("clean", "--policy", "compact", path / "t-0")
    assert "nothing to clean: the active segment begins at offset 0 and is not cleaned" in result.stdout
    assert "(--roll)" in result.stdout
    assert snapshot(path) == before
    young = ("--set", "min.compaction.lag.ms=1d")
    result = run("clean", "--policy", "compact", "--roll", *young, "--dry-run", path / "t-0")
    assert result.stdout == "t-0: nothing to clean: younger than min.compaction.lag.ms\n"
    (only,) = cleaned("--policy", "compact", "--roll", path / "t-0")
    assert (only["records_read"], only["records_written"]) == (2, 1)


def test_damage_is_named_with_what_mends_it_and_nothing_changed(tmp_path: Path) -> None:
    path = logs(tmp_path)
    segment = path / "t-0" / "00000000000000000040.log"
    data = segment.read_bytes()
    segment.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    before = snapshot(path)
    result = run("clean", "--policy", "compact", path / "t-0")
    assert result.exit_code == 1
    assert "00000000000000000040.log" in result.stderr
    assert "seglog repair" in result.stderr
    assert snapshot(path) == before


def test_messages_with_negative_timestamps_are_named_and_nothing_changed(tmp_path: Path) -> None:
    """Magic 2 cannot represent them; batches of magic 2 that have some are copied unchanged."""
    path = logs(tmp_path, other=(1, 1))
    entries = [message(0, 1, b"a", b"1", timestamp=7), message(1, 1, b"b", b"2", timestamp=-7)]
    write_segment(path / "t-0", 0, *entries)
    write_segment(path / "t-0", 2)
    with opened(path) as directory:
        assert directory.log(TopicPartition("t", 0)).log_end_offset == 2
    before = snapshot(path)
    result = run("clean", "--policy", "compact", path / "t-0")
    assert result.exit_code == 1
    assert "t-0/00000000000000000000.log" in result.stderr
    assert "a message has a negative timestamp" in result.stderr
    assert "nothing was changed (offset 1)" in result.stderr
    assert snapshot(path) == before


@pytest.mark.parametrize("clean_shutdown", [True, False])
def test_no_room_for_the_output_is_refused_by_figures_and_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_shutdown: bool
) -> None:
    path = logs(tmp_path)
    if not clean_shutdown:
        (path / ".kafka_cleanshutdown").unlink()
    (planned,) = cleaned("--dry-run", "--policy", "compact", path / "t-0")
    before = snapshot(path)
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda _, __: planned["bytes_written"] - 1)
    result = run("clean", "--policy", "compact", path / "t-0")
    assert result.exit_code == 12
    assert f"writes {planned['bytes_written']} bytes before it can free any" in result.stderr
    assert f"{planned['bytes_written'] - 1} are free" in result.stderr
    assert snapshot(path) == before
    monkeypatch.setattr(LocalFileSystem, "free_bytes", lambda _, __: planned["bytes_written"])
    (done,) = cleaned("--policy", "compact", path / "t-0")
    assert done["segments_after"] == planned["segments_after"]


def test_of_a_log_that_was_not_closed_properly_nothing_is_recovered_when_there_is_nothing_to_clean(
    tmp_path: Path,
) -> None:
    path = logs(tmp_path, t=(0, 0))
    assert run("append", path / "t-0", "--key-separator", ":", input_text="a:1\na:2\n").exit_code == 0
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path / name).unlink()
    (path / "t-0" / f"{2:020d}.snapshot").unlink()
    before = snapshot(path)
    result = run("clean", "--policy", "compact", path / "t-0")
    assert (result.exit_code, "nothing to clean" in result.stdout) == (0, True), result.stderr
    assert snapshot(path) == before


def test_a_locked_directory_is_refused_but_a_dry_run_is_not(tmp_path: Path) -> None:
    from seglog.storage.lock import DirectoryLock

    path = logs(tmp_path)
    before = snapshot(path)
    with DirectoryLock(path):
        done = process("clean", "--json", "--policy", "compact", path / "t-0")
        assert done.returncode == 11, done.stderr
        assert b"is locked by process" in done.stderr
        assert process("clean", "--dry-run", "--policy", "compact", path / "t-0").returncode == 0
    assert snapshot(path) == before


def test_a_log_directory_cleans_what_its_own_metadata_says_is_compacted(tmp_path: Path) -> None:
    path = clean_logs(tmp_path)
    (path / "cleaner-offset-checkpoint").unlink()
    names = ("orders-none-0", "clicks-0", "both-0")
    before = {name: logs_of(path / name) for name in names}
    result = run("clean", "-v", path)
    assert result.exit_code == 0, result.stderr
    assert "cleaned payments-compact-0" in result.stdout
    assert "cleaned orders" not in result.stdout
    assert "orders-none-0: not cleaned" in result.stderr
    assert "time went to: " in result.stderr
    assert {name: logs_of(path / name) for name in names} == before
    rolled = run("clean", "--roll", path)
    assert rolled.exit_code == 0, rolled.stderr
    assert "cleaned both-0" in rolled.stdout
    assert "nothing" not in run("clean", "--roll", "--dry-run", path).stdout


def test_past_rounds_are_kept_outside_the_log_directory_and_shown_by_stats(tmp_path: Path) -> None:
    path = logs(tmp_path)
    cleaned("--dry-run", "--policy", "compact", path / "t-0")
    cleaned("--policy", "compact", path / "t-0")
    rounds = [row for row in json_lines(run("stats", "--json", path / "t-0")) if row["type"] == "cleaning_round"]
    assert [(row["partition"], row["records_written"]) for row in rounds] == [("t-0", 5)]
    assert {entry.name for entry in path.iterdir()} >= {"t-0", "cleaner-offset-checkpoint"}
    assert not list(path.rglob("*.jsonl"))


def test_a_partition_beside_no_broker_stays_cleanly_closed(tmp_path: Path) -> None:
    path = broker_directory(tmp_path / "logs", {"t-0": (3, 5)})
    for file in path.iterdir():
        if file.is_file():
            file.unlink()
    cleaned("--policy", "compact", path / "t-0")
    assert (path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 120\n"
    (again,) = cleaned("--dry-run", "--policy", "compact", path / "t-0")
    assert again["first_dirty_offset"] == 120


def test_a_killed_log_directory_is_cleaned_or_refused_without_loss(tmp_path: Path) -> None:
    path = fixture_copy("4.3.0/killed", tmp_path)
    before = len(keys_of(path, "payments-compact-0"))
    result = run("clean", path / "payments-compact-0")
    assert result.exit_code == 0, result.stderr
    assert 0 < len(keys_of(path, "payments-compact-0")) < before


def test_progress_names_the_step_of_the_round_and_goes_over_the_log_as_often_as_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seglog_cli import progress

    monkeypatch.setattr(progress.PlainProgress, "interval", 0.0)
    path = broker_directory(tmp_path / "logs", {})
    with opened(path) as directory:
        fill(directory, "t-0", segments=1, keys=400, records=400, value=b"v" * 8000)
    arguments = ("--policy", "compact", "--dedupe-buffer-size", "4800", "--jobs", "1", "--progress", "plain")
    told = run("clean", *arguments, "--dry-run", path / "t-0").stderr
    lines = [line for line in told.splitlines() if line.startswith("t-0: ")]
    steps = list(dict.fromkeys(line.rpartition(": ")[0] for line in lines))
    assert steps[0] == "t-0: indexing"
    assert "t-0: indexing, pass 2" in steps
    assert steps[-1] == "t-0: counting the output"
    assert "of 3.2 MB" in told
    told = run("clean", *arguments, path / "t-0").stderr
    assert "t-0: copying: " in told


def test_without_a_terminal_there_is_no_progress(tmp_path: Path) -> None:
    done = process("clean", "--policy", "compact", logs(tmp_path) / "t-0")
    assert (done.returncode, done.stderr) == (0, b"")


def test_timestamps_that_overflow_wrap_also_where_kernels_run_interpreted(tmp_path: Path) -> None:
    records = [NaiveRecord(0, 0, b"k0", b"v"), NaiveRecord(1, 1, b"k1", b"v")]
    last = batch_v2(2, [NaiveRecord(0, 0, b"k0", b"v")], base_timestamp=1000)
    path = tmp_path / "logs" / "t-0"
    path.mkdir(parents=True)
    data = batch_v2(0, records, base_timestamp=2**63 - 1, max_timestamp=-(2**63)) + last
    (path / "00000000000000000000.log").write_bytes(data)
    for strategy in ("offset", "timestamp"):
        arguments = ("clean", "--dry-run", "--json", "--policy", "compact", "--roll", "--strategy", strategy, path)
        done = process(*arguments, variables={"SEGLOG_KERNELS": "interpreted"})
        assert done.returncode == 0, done.stderr
        figures = [json.loads(done.stdout.splitlines()[0]), *cleaned(*arguments[1:2], *arguments[3:])]
        assert len({(each["records_written"], each["bytes_written"]) for each in figures}) == 1, strategy


def test_it_says_what_needed_no_second_reading(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for value in ("1", "2"):
        append(log, keyed(("a", value), ("b", value)))
        log.roll()
    log.close()
    result = run("clean", "-v", "--policy", "compact", tmp_path / "t-0")
    assert result.exit_code == 0, result.stderr
    assert "t-0: 79 B of 158 B were read once, because no record in them survives" in result.stderr


def test_a_log_directory_with_nothing_to_clean_is_said_to_be_so(tmp_path: Path) -> None:
    soon = ("--now", "2026-11-22T00:00:00Z")  # customers-uncleaned has a min.compaction.lag.ms of 30 days
    done = run("clean", "--dry-run", *soon, clean_logs(tmp_path))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("nothing is due for cleaning")
    told = run("clean", "--dry-run", "-v", *soon, clean_logs(tmp_path / "other")).stderr
    assert "customers-uncleaned-0: not cleaned: " in told and "orders-none-0: not cleaned: " in told
