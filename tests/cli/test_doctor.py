"""`seglog doctor`, `diff`, `txn`, `export`, `convert`: output, exit codes, refusals."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import seglog
from tests.support.broken.wounded_starts import made, sound
from tests.support.command_line import clean_logs, json_lines, run
from tests.support.fixtures import fixture_copy, fixture_now_ms
from tests.support.log_files import files_of, write_segment


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return clean_logs(tmp_path)


def flip(log: Path, at: int = 100) -> None:
    path = sorted(log.glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


# --- doctor -----------------------------------------------------------------------------------------------


def test_doctor_of_a_healthy_directory(logs: Path) -> None:
    done = run("doctor", "--json", "--now", str(fixture_now_ms("4.3.0/clean")), logs)
    *rows, summary = json_lines(done)
    assert (done.exit_code, summary["loads"], summary["blockers"], summary["dangers"]) == (0, True, 0, 0)
    assert {row["severity"] for row in rows} <= {"note"}
    assert run("doctor", "--quick", logs).stdout.endswith(
        " partitions: a Kafka 4.3 broker would start; nothing wrong\n"
    )


def test_doctor_counts_a_single_partition_as_one(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0)
    assert run("doctor", tmp_path).stdout.splitlines()[-1].startswith("1 partition: a Kafka 4.3 broker would start")


def test_doctor_of_a_partition_names_its_log_directory(logs: Path) -> None:
    """A broker would start on it, and serve none of its data."""
    done = run("doctor", logs / "payments-0")
    assert done.exit_code == 10
    assert f"a partition, not a log directory; name the one it lies in, {logs}" in done.stderr
    assert done.stdout == ""


def test_an_empty_directory_may_be_a_broker_s_next(tmp_path: Path) -> None:
    (tmp_path / "kafka-logs-1").mkdir()
    done = run("doctor", tmp_path / "kafka-logs-1")
    assert (done.exit_code, done.stdout) == (0, "0 partitions: a Kafka 4.3 broker would start; nothing wrong\n")


def test_doctor_names_place_broker_and_command(logs: Path) -> None:
    flip(logs / "orders-none-0")
    (logs / "lost+found").mkdir()
    done = run("doctor", "--json", logs)
    rows = [row for row in json_lines(done) if row["type"] == "diagnosis" and row["severity"] != "note"]
    assert done.exit_code == 1
    assert [(row["severity"], row["code"]) for row in rows] == [
        ("blocker", "STRANGE_DIRECTORY"),
        ("danger", "DAMAGE_SERVED"),
    ]
    assert rows[1]["command"] == f"seglog repair {logs / 'orders-none-0'}"
    assert (rows[1]["file"], rows[1]["position"], rows[1]["first_offset"]) == ("00000000000000000000.log", 0, 0)
    text = run("doctor", logs).stdout
    assert "danger DAMAGE_SERVED orders-none-0/00000000000000000000.log position 0: " in text
    assert "a Kafka 4.3 broker would not start; 1 blocker, 1 danger" in text


def test_doctor_changes_nothing(logs: Path) -> None:
    (logs / ".kafka_cleanshutdown").unlink()
    before = {path: files_of(path) for path in [logs, *logs.iterdir()] if path.is_dir()}
    run("doctor", logs)
    assert {path: files_of(path) for path in [logs, *logs.iterdir()] if path.is_dir()} == before


def test_doctor_of_nothing_is_no_log(tmp_path: Path) -> None:
    assert run("doctor", tmp_path / "none").exit_code == 10


# --- diff -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["bytes", "batches", "view"])
def test_diff_of_equal_directories(logs: Path, tmp_path: Path, level: str) -> None:
    shutil.copytree(logs, tmp_path / "copy")
    done = run("diff", "--json", "--level", level, logs, tmp_path / "copy")
    assert (done.exit_code, json_lines(done)) == (
        0,
        [{"type": "summary", "exit_code": 0, "partitions": 16, "differences": 0, "partitions_with_more": 0}],
    )


def test_diff_names_the_right_copy(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs, tmp_path / "copy")
    flip(tmp_path / "copy" / "orders-none-0")
    shutil.rmtree(tmp_path / "copy" / "clicks-0")
    done = run("diff", "--json", logs, tmp_path / "copy")
    gone, damaged, _ = json_lines(done)
    assert done.exit_code == 1
    assert (gone["kind"], gone["partition"], gone["not_in"]) == (
        "missing",
        "clicks-0",
        [str(tmp_path / "copy/clicks-0")],
    )
    assert (damaged["first_offset"], damaged["right"]) == (0, [str(logs / "orders-none-0")])
    assert f"right: {logs / 'orders-none-0'}" in run("diff", logs, tmp_path / "copy").stdout


def test_diff_of_views_shows_keys(logs: Path) -> None:
    done = run("diff", "--json", "--level", "view", "--limit", "3", logs / "customers-0", logs / "customers-1")
    *rows, summary = json_lines(done)
    assert (len(rows), summary["differences"], done.exit_code) == (3, 3, 1)
    assert all(row["key"] and len(row["offsets"]) == 2 for row in rows)


@pytest.mark.parametrize(("level", "limit"), [("batches", 0), ("batches", 2), ("view", 2)])
def test_a_limit_hides_differences_and_not_that_there_are_some(level: str, limit: int, logs: Path) -> None:
    copies = (logs / "customers-0", logs / "customers-1")
    every = run("diff", "--json", "--level", level, *copies)
    total = json_lines(every)[-1]
    assert (total["differences"] > 2, total["partitions_with_more"]) == (True, 0)
    *rows, summary = json_lines(run("diff", "--json", "--level", level, "--limit", str(limit), *copies))
    assert [summary[name] for name in ("differences", "partitions_with_more", "exit_code")] == [limit, 1, 1]
    assert rows == json_lines(every)[:limit]
    said = run("diff", "--level", level, "--limit", str(limit), *copies)
    shown = f"{limit} differences shown; there are more in 1 partition (--limit)"
    assert (said.exit_code, said.stdout.splitlines()[-1]) == (1, f"1 partition compared: {shown}")


@pytest.mark.parametrize("arguments", [["a-0"], ["--level", "words", "a-0", "a-0"]])
def test_diff_refuses_a_single_directory_and_an_unknown_level(arguments: list[str], tmp_path: Path) -> None:
    assert run("diff", *arguments).exit_code == 2


# --- txn --------------------------------------------------------------------------------------------------


def test_txn_lists_and_counts(logs: Path) -> None:
    rows = json_lines(run("txn", "--json", logs / "payments-0"))
    (counts,) = json_lines(run("txn", "--json", logs / "payments-0", "stat"))
    for state in ("committed", "aborted", "open"):
        assert counts[state] == sum(row["state"] == state for row in rows)
    assert counts["aborted"] > 10
    assert counts["longest_ms"] == max(row["duration_ms"] for row in rows)
    assert run("txn", logs / "payments-0", "close").exit_code == 2


def test_an_open_transaction_hangs_where_no_coordinator_knows_it(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/killed", tmp_path)
    opened = json_lines(run("txn", "--json", logs / "payments-0", "open"))
    assert {(row["state"], row["last_offset"], row["hanging"]) for row in opened} == {("open", None, False)}
    assert all(row["coordinator"].endswith(" Ongoing") for row in opened)
    assert run("txn", logs / "payments-0", "abort-cmd").stdout == ""
    # alone, without the coordinator's log beside it, its age tells
    shutil.copytree(logs / "payments-0", tmp_path / "alone" / "payments-0")
    done = run("txn", tmp_path / "alone" / "payments-0", "abort-cmd", "--bootstrap-server", "b:1")
    command = "kafka-transactions.sh --bootstrap-server b:1 abort --topic payments --partition 0 --start-offset"
    assert done.stdout == "".join(f"{command} {row['first_offset']}\n" for row in opened) != ""
    assert done.exit_code == 1


def test_a_commit_whose_marker_was_left_out_is_not_aborted_without_a_warning(tmp_path: Path) -> None:
    logs = fixture_copy("4.3.0/killed", tmp_path)
    for path in logs.glob("__transaction_state-*"):
        with seglog.open_log(path, writable=True) as log:
            known = [(one.value, one.key, one.timestamp) for one in log.records() if one.value is not None]
            for value, key, timestamp in known:
                for state in (2, 4):  # PrepareCommit, CompleteCommit: the byte after version, id, epoch and timeout
                    log.append([seglog.Record(value[:16] + bytes([state]) + value[17:], key, timestamp + 1)])
    opened = json_lines(run("txn", "--json", logs / "payments-0", "open"))
    assert opened and all(row["hanging"] and row["coordinator"].endswith(" to commit it") for row in opened)
    done = run("txn", logs / "payments-0", "abort-cmd")
    assert done.exit_code == 1 and done.stdout.count("abort --topic payments") == len(opened)
    assert done.stderr.count("was acknowledged as committed") == len(opened)


# --- export and convert -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv", "o.parquet"])
def test_export_writes_a_file(logs: Path, tmp_path: Path, name: str) -> None:
    done = run("export", "--json", logs / "orders-lz4-0", "-o", tmp_path / name, "--to-offset", "5")
    assert json_lines(done) == [{"type": "exported", "file": str(tmp_path / name), "records": 5, "damage": 0}]
    again = run("export", logs / "orders-lz4-0", "-o", tmp_path / name)
    assert again.exit_code == 12
    assert run("export", logs / "orders-lz4-0", "-o", tmp_path / name, "--replace").exit_code == 0


def test_export_to_stdout_is_what_append_reads(logs: Path, tmp_path: Path) -> None:
    done = run("export", logs / "orders-none-0", "-o", "-", "--format", "jsonl", "--from-offset", "90")
    (tmp_path / "new").mkdir()
    again = run("append", "--create", tmp_path / "new" / "t-0", "--input-format", "jsonl", input_text=done.stdout)
    assert again.exit_code == 0
    copied = json_lines(run("dump", "--json", "--records", tmp_path / "new" / "t-0"))
    wanted = json_lines(done)
    values = [(row["key"], row["value"], row["timestamp"]) for row in copied if row["type"] == "record"]
    assert values == [(row["key"], row["value"], row["timestamp"]) for row in wanted] != []


def test_export_without_pyarrow_names_the_extra(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "seglog_ask.table.engines.parquet", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("export", logs / "orders-lz4-0", "-o", tmp_path / "o.parquet")
    assert (done.exit_code, "pip install '.[arrow]' in seglog's clone" in done.stderr) == (13, True)
    assert not (tmp_path / "o.parquet").exists()


def test_export_of_damage_goes_on_and_says_so(logs: Path, tmp_path: Path) -> None:
    flip(logs / "orders-none-0")
    done = run("export", logs / "orders-none-0", "-o", tmp_path / "o.csv")
    assert (done.exit_code, "CRC_MISMATCH" in done.stderr) == (1, True)
    assert run("export", logs, "-o", tmp_path / "p.csv").exit_code == 2
    assert run("export", logs / "orders-none-0", "-o", tmp_path / "p.xml").exit_code == 2


def test_convert_makes_a_log_with_the_same_view(logs: Path, tmp_path: Path) -> None:
    done = run("convert", "--json", logs / "customers-0", "-o", tmp_path / "new", "--codec", "lz4")
    (row,) = json_lines(done)
    assert (done.exit_code, row["directory"]) == (0, str(tmp_path / "new" / "customers-0"))
    same = run("diff", "--level", "view", logs / "customers-0", tmp_path / "new" / "customers-0")
    assert same.exit_code == 0, same.stdout
    assert run("verify", tmp_path / "new" / "customers-0").exit_code == 0
    assert run("convert", logs / "customers-0", "-o", tmp_path / "new").exit_code == 12


def test_a_conversion_that_fails_leaves_nothing(logs: Path, tmp_path: Path) -> None:
    done = run("convert", logs / "payments-0", "-o", tmp_path / "new" / "p-0", "--magic", "1")
    assert (done.exit_code, list((tmp_path / "new").glob("p-0"))) == (13, [])


@pytest.mark.parametrize(("node_id", "differs"), [(1, False), (7, True)])
def test_the_node_id_of_a_server_properties_is_compared_with_the_stored_one(
    node_id: int, differs: bool, tmp_path: Path
) -> None:
    (logs,) = made(sound("clean"), tmp_path)
    file = tmp_path / "server.properties"
    file.write_text(f"process.roles=broker\nnode.id={node_id}\nlog.dirs={logs}\n")
    done = run("doctor", "--json", "--quick", "--config", file, logs)
    assert ("NODE_ID_DIFFERS" in [row.get("code") for row in json_lines(done)]) == differs
    assert done.exit_code == differs
