"""`seglog truncate`, `recover`, `reindex`, `config` and `read`: changes, output, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import clean_logs, json_lines, run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return clean_logs(tmp_path) / "orders-none-0"


def offsets(log: Path) -> list[int]:
    return [record["offset"] for record in json_lines(run("read", "--json", log))]


def contents(log: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.iterdir()}


def cut_in_two(log: Path) -> None:
    """Damages the second segment's first batch."""
    path = sorted(log.glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)


def test_truncating_to_an_offset_takes_whole_batches(log: Path) -> None:
    plan = json_lines(run("truncate", "--json", "--dry-run", "--to-offset", "500", log))[0]
    done = json_lines(run("truncate", "--json", "--to-offset", "500", log))[0]
    run_name = done["run"]
    assert {**done, "dry_run": True, "run": None} == plan
    assert (done["to_offset"], done["end_offset_before"], done["deleted_segments"]) == (500, 790, [750])
    assert offsets(log)[-1] == 499
    assert run("verify", log).exit_code == 0
    assert run("undo", run_name).exit_code == 0
    assert offsets(log)[-1] == 789


def test_what_a_truncation_says_is_what_it_does(log: Path) -> None:
    """The offset is inside a batch, which is cut as a whole."""
    before = contents(log)
    said = run("truncate", "-n", "--to-offset", "760", log).stdout
    assert contents(log) == before
    cut = json_lines(run("truncate", "--json", "--no-keep", "--to-offset", "760", log))[0]
    assert f"would cut orders-none-0: offsets {cut['first_offset']} to 789" in said
    assert f"offset 760 is in a batch that begins at {cut['first_offset']}: batches are cut as a whole" in said
    assert cut["first_offset"] < 760 and offsets(log)[-1] == cut["first_offset"] - 1
    assert cut["run"] is None


def test_truncating_to_a_time_and_after_the_end(log: Path) -> None:
    first = json_lines(run("read", "--json", "--limit", "1", "--from-offset", "700", log))[0]
    assert json_lines(run("truncate", "--json", "-n", "--to-time", str(first["timestamp"]), log))[0]["to_offset"] <= 700
    assert "nothing to cut" in run("truncate", "--to-offset", "9999", log).stdout
    assert offsets(log)[-1] == 789


def test_a_time_before_1970_is_before_every_record(log: Path) -> None:
    for time in ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z"):
        assert json_lines(run("truncate", "--json", "-n", "--to-time", time, log))[0]["to_offset"] == 0
        assert json_lines(run("read", "--json", "--since", time, "--limit", "1", log))[0]["offset"] == 0


@pytest.mark.parametrize("arguments", [[], ["--to-offset", "1", "--at-damage"]])
def test_where_to_cut_must_be_said_once(arguments: list[str], log: Path) -> None:
    assert run("truncate", log, *arguments).exit_code == 2


def test_cutting_at_damage_is_what_recovery_does(log: Path) -> None:
    cut_in_two(log)
    before = contents(log)
    plan = json_lines(run("recover", "--json", "--dry-run", "--recovery-point", "0", log))[0]
    done = json_lines(run("truncate", "--json", "--at-damage", log))[0]
    assert (plan["log_end_offset"], plan["truncated_bytes"]) == (done["log_end_offset"], done["truncated_bytes"])
    assert done["log_end_offset"] == 350
    assert offsets(log)[-1] == 349
    assert run("recover", "--check", "--dry-run", "--recovery-point", "0", log).exit_code == 0
    assert run("undo", done["run"]).exit_code == 0
    after = contents(log)
    assert {name: after[name] for name in before if name.endswith(".log")} == {
        name: data for name, data in before.items() if name.endswith(".log")
    }


def test_check_tells_by_exit_code_that_recovery_would_lose_something(log: Path) -> None:
    cut_in_two(log)
    assert run("recover", "--dry-run", "--recovery-point", "0", log).exit_code == 0
    before = contents(log)
    for options in (["--check"], ["--check", "--dry-run"]):
        assert run("recover", *options, "--recovery-point", "0", log).exit_code == 1
    assert contents(log) == before


def test_a_log_that_was_not_closed_is_recovered_though_nothing_is_to_be_cut(log: Path) -> None:
    (log.parent / ".kafka_cleanshutdown").unlink()
    (log.parent / "recovery-point-offset-checkpoint").unlink()
    last = sorted(log.glob("*.log"))[-1]
    torn = b"half of a batch"
    last.write_bytes(last.read_bytes() + torn)
    done = run("truncate", "--to-offset", "9999", log)
    assert "nothing to cut" in done.stdout
    assert f"{len(torn)} bytes cut off" in done.stderr
    assert not last.read_bytes().endswith(torn)


def test_whoever_reads_or_plans_beside_an_unfinished_run_is_warned(log: Path) -> None:
    quiet = [("ls", log), ("recover", "-n", log), ("doctor", "--quick", log.parent)]
    assert all("a run of seglog" not in run(*words).stderr for words in quiet)
    (log.parent / ".seglog-run").write_text("/somewhere\n")
    plans = [
        ("recover", "-n"),
        ("recover", "--check"),
        ("reindex", "-n"),
        ("verify", "--repair", "-n"),
        ("retain", "-n"),
    ]
    for words in (("read", "--limit", "1"), ("export", "-o", "-", "--format", "csv"), ("ls",), ("dump",), *plans):
        done = run(*words, log)
        assert f"warning: {log.parent}: a run of seglog was cut short here" in done.stderr, words
        assert done.exit_code == 0, words
    for path in (log.parent, sorted(log.glob("*.index"))[0]):
        assert run("dump", path).stderr.count("a run of seglog was cut short here") == 1
    served = run("serve", log)
    assert (served.exit_code, served.stderr.count("a run of seglog")) == (12, 1)


def test_a_partition_and_its_log_directory_are_recovered_from_the_same_point(log: Path) -> None:
    cut_in_two(log)  # below the checkpointed recovery point: a broker does not look there
    found = json_lines(run("recover", "--json", "--dry-run", log.parent))
    assert len(found) > 10
    assert sum(one["truncated_bytes"] for one in found) == 0
    assert json_lines(run("recover", "--json", "--dry-run", log))[0] in found


@pytest.mark.parametrize("command", ["recover", "reindex", "config show"])
def test_a_file_is_not_taken_for_its_partition(log: Path, command: str) -> None:
    (log.parent / ".kafka_cleanshutdown").unlink()
    before = contents(log)
    for path in (log / "00000000000000000350.log", log.parent / "meta.properties"):
        done = run(*command.split(), path)
        assert (done.exit_code, done.stdout, contents(log)) == (10, "", before)
        if path.suffix == ".log" or command == "config show":
            assert f"{path}: a file; the partition is a directory, perhaps {path.parent}" in done.stderr
        else:
            assert f"{path}: neither a segment nor a directory" in done.stderr


def test_indexes_come_back_as_they_were(log: Path) -> None:
    before = contents(log)
    for path in (*log.glob("*.index"), *log.glob("*.timeindex")):
        path.unlink()
    done = run("reindex", log)
    assert done.exit_code == 0, done.stderr
    after = contents(log)
    assert {n: d for n, d in after.items() if "index" in n} == {n: d for n, d in before.items() if "index" in n}
    assert {n: d for n, d in after.items() if n.endswith(".log")} == {
        n: d for n, d in before.items() if n.endswith(".log")
    }


@pytest.mark.parametrize(
    "name", ["00000000000000000750.snapshot.tmp", "00000000000000000000.log.deleted", "00000000000000009999.index"]
)
def test_reindexing_goes_on_where_files_wait_for_their_removal(log: Path, name: str) -> None:
    before = offsets(log)
    (log / name).write_bytes(b"left over")
    done = run("reindex", log)
    assert done.exit_code == 0, done.stderr
    assert not (log / name).exists()
    assert offsets(log) == before


@pytest.mark.parametrize("whole", [True, False])
def test_reindexing_settles_a_swap_that_loses_nothing_and_refuses_another(log: Path, whole: bool) -> None:
    segment = sorted(log.glob("*.log"))[0]
    swap, before = segment.with_name(f"{segment.name}.swap"), offsets(log)
    swap.write_bytes(segment.read_bytes() if whole else b"")
    done = run("reindex", log)
    assert done.exit_code == (0 if whole else 12), done.stderr
    assert swap.exists() == (not whole)
    swap.unlink(missing_ok=True)
    assert offsets(log) == before


def test_reindexing_refuses_to_lose_a_byte(log: Path) -> None:
    cut_in_two(log)
    before = contents(log)
    done = run("reindex", log)
    assert done.exit_code == 12
    assert "seglog repair" in done.stderr
    assert contents(log) == before


def test_reading_out_of_range_names_the_range(log: Path) -> None:
    done = run("read", log, "--from-offset", "791")
    assert done.exit_code == 2
    assert (
        "offset 791 is out of range: the log begins at offset 0, and the next offset to be written is 790"
        in done.stderr
    )
    assert run("read", log, "--from-offset", "790").exit_code == 0


def test_one_fetch_is_at_least_one_batch_and_at_most_its_size(log: Path) -> None:
    assert json_lines(run("read", "--json", "--max-bytes", "1", log))[0]["offset"] == 0
    one = len(json_lines(run("read", "--json", "--max-bytes", "1", log)))
    two = len(json_lines(run("read", "--json", "--max-bytes", "13000", log)))
    assert 0 < one < two < 790


def test_reading_a_log_whose_first_batch_is_unreadable_says_what_is_damaged(tmp_path: Path) -> None:
    log = clean_logs(tmp_path) / "orders-lz4-0"
    path = log / "00000000000000000000.log"
    data = path.read_bytes()
    path.write_bytes(data[:8] + bytes(4) + data[12:])
    for options in ((), ("--max-bytes", "100"), ("--from-offset", "49"), ("--since", "0"), ("--limit", "1")):
        done = run("read", log, *options)
        assert (done.exit_code, done.stdout) == (1, ""), options
        assert f"{path}: position 0: the size field is smaller than any batch" in done.stderr
        assert "(offsets 0 to 49)" in done.stderr
    assert run("read", log, "--from-offset", "700").exit_code == 0


def test_reading_a_log_that_ends_within_a_batch_shows_its_records_and_says_so(tmp_path: Path) -> None:
    log = clean_logs(tmp_path) / "orders-lz4-0"
    path = log / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-20])
    done = run("read", "--json", log)
    assert (done.exit_code, len(json_lines(done))) == (1, 750)
    assert "nothing good follows in this file, so 1394 bytes cannot be read (offset 750)" in done.stderr
    assert run("read", "--limit", "750", log).exit_code == 0


def test_reading_from_a_time_on(log: Path) -> None:
    wanted = json_lines(run("read", "--json", "--from-offset", "123", "--limit", "1", log))[0]
    found = json_lines(run("read", "--json", "--since", str(wanted["timestamp"]), "--limit", "1", log))[0]
    assert found == wanted
    assert run("read", log, "--since", "2099-01-01T00:00:00Z").stdout == ""


def test_read_committed_leaves_aborted_records_out(tmp_path: Path) -> None:
    payments = clean_logs(tmp_path) / "payments-0"
    uncommitted = json_lines(run("read", "--json", payments))
    committed = json_lines(run("read", "--json", "--isolation", "read_committed", payments))
    seen = {record["offset"] for record in uncommitted}
    assert {record["offset"] for record in committed} < seen


def test_configuration_says_where_each_value_comes_from(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    customers = log.parent / "customers-0"
    file = log.parent.parent / "c.yaml"
    file.write_text('retention.ms: 1h\ntopics:\n  "cust*":\n    delete.retention.ms: 5s\n')
    monkeypatch.setenv("SEGLOG_SEGMENT_MS", "9s")
    done = run("config", "show", "--json", "--config", file, "--set", "preallocate=true", customers)
    found = {line["key"]: (line["value"], line["origin"]) for line in json_lines(done)}
    assert found["preallocate"] == ("true", "--set")
    assert found["segment.ms"] == ("9s", "SEGLOG_SEGMENT_MS")
    assert found["delete.retention.ms"] == ("5s", f"{file}:4")
    assert found["retention.ms"] == ("1h", f"{file}:1")
    assert found["cleanup.policy"][0] == "compact"
    assert found["cleanup.policy"][1].startswith("__cluster_metadata-0/")
    assert "segment.bytes" not in found
    assert "segment.bytes" in run("config", "show", "--all", customers).stdout


def test_a_bad_configuration_file_names_its_line(log: Path) -> None:
    file = log.parent.parent / "c.yaml"
    file.write_text("retention.ms: 1h\nsegment.byte: 3\n")
    done = run("config", "show", "--config", file, log)
    assert done.exit_code == 2
    assert f"{file}:2: seglog knows no configuration key 'segment.byte'" in done.stderr
