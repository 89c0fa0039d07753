"""What people type first: repair, a command without a path, a code to explain, undo without a run; what comes next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seglog.verification.finding_codes import CODES
from seglog_cli.exit_codes import ExitCode
from seglog_rescue.doctor.cases import CASES
from tests.support.command_line import clean_logs, damage_logs, ended, keep_partitions
from tests.support.fixtures import CLEAN
from tests.support.object_server import object_server
from tests.support.terminals import on_terminal

KEPT = ("orders-none-0", "customers-0", "__cluster_metadata-0")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = clean_logs(tmp_path)
    keep_partitions(made, KEPT)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return made


def test_repair_is_a_command_and_does_what_verify_with_repair_does(logs: Path) -> None:
    damage_logs(logs)
    planned = ended("repair", "--dry-run", "--json", logs)
    assert planned.stdout == ended("verify", "--repair", "--dry-run", "--json", logs).stdout
    assert planned.code == ExitCode.FOUND
    done = ended("repair", "--json", logs)
    assert done.code == ExitCode.REPAIRED
    assert json.loads(done.stdout.splitlines()[-1])["run"]
    assert ended("repair", logs).code == ExitCode.DONE


def test_a_command_without_a_path_works_where_it_stands(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (logs, logs / "customers-0"):
        monkeypatch.chdir(place)
        for command in ("ls", "verify", "config") + (("doctor",) if place == logs else ()):
            here, named = ended(command), ended(command, ".")
            assert (here.code, here.stdout) == (named.code, named.stdout), command
            assert here.code == 0 and here.stdout


@pytest.mark.parametrize("command", ["ls", "verify", "doctor", "config"])
def test_a_command_without_a_path_refuses_a_directory_that_holds_no_log(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ended(command)
    assert done.code == ExitCode.USAGE
    assert b"the current directory is neither a log directory nor a partition" in done.stderr


@pytest.mark.parametrize("command", [("repair",), ("verify", "--repair"), ("recover",), ("clean",), ("retain",)])
def test_a_command_that_writes_never_guesses_where(
    command: tuple[str, ...], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs)
    assert ended(*command).code == ExitCode.USAGE


@pytest.mark.parametrize("code", ["CRC_MISMATCH", "crc_mismatch", "DIRECTORY_LOCKED", "4", "130"])
def test_a_code_is_explained(code: str, logs: Path) -> None:
    done = ended("explain", code)
    assert done.code == 0
    assert done.stdout.startswith(code.upper().encode())
    (row, *_) = map(json.loads, ended("explain", code, "--json").stdout.splitlines())
    assert row["type"] == "code" and row["code"] == code.upper()


def test_every_code_is_explained_with_what_a_broker_does(logs: Path) -> None:
    from seglog_cli.views.codes import meanings

    for code in (*CODES, *CASES):
        found = meanings(code)
        assert len(found) == (code in CODES) + (code in CASES)
        assert all(entry["broker"] for entry in found)
    for code in ExitCode:
        assert meanings(str(int(code)))[0]["meaning"]


def test_an_unknown_code_names_similar_ones(logs: Path) -> None:
    done = ended("explain", "CRC_MISSMATCH")
    assert done.code == ExitCode.USAGE
    assert b"similar: CRC_MISMATCH" in done.stderr
    assert ended("explain", "99").code == ExitCode.USAGE


def test_a_code_takes_no_option_of_a_partition(logs: Path) -> None:
    for options in (("--advise",), ("--quick",), ("--metadata-dir", logs), ("--local", logs)):
        refused = ended("explain", "CRC_MISMATCH", *options)
        assert refused.code == ExitCode.USAGE and b"CRC_MISMATCH is a code" in refused.stderr


def test_a_partition_is_explained_even_if_its_name_is_like_a_code(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "customers-0").rename(logs / "CRC_MISMATCH")
    for directory, name in ((tmp_path, str(logs / "CRC_MISMATCH")), (logs, "CRC_MISMATCH")):
        monkeypatch.chdir(directory)
        assert b"deletion:" in ended("explain", name).stdout


@pytest.mark.parametrize("command", ["undo", "quarantine"])
def test_without_a_run_the_runs_are_listed_from_anywhere(
    command: str, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "far" / "from" / "the" / "runs"  # of other tests: their quarantines lie beside their logs
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    damage_logs(logs)
    assert ended(command).stdout == b""
    run = json.loads(ended("repair", "--json", logs / "orders-none-0").stdout.splitlines()[-1])["run"]
    listed = ended(command)
    assert listed.code == 0
    assert listed.stdout.split()[0].decode() == run
    assert (b"seglog undo RUN" in listed.stderr) == (command == "undo")
    assert ended("undo", run).code == 0
    after = ended(command)
    if command == "quarantine":
        assert b"undone" in after.stdout
    else:  # it lists only what it can take back
        assert after.stdout == b"" and b"seglog undo RUN" not in after.stderr


def test_a_quarantine_that_is_not_there_is_no_empty_one(logs: Path, tmp_path: Path) -> None:
    for command in (["undo"], ["quarantine"], ["quarantine", "ls"]):
        assert ended(*command, "--quarantine", tmp_path / "typo").code == ExitCode.NOT_A_LOG
    assert ended("quarantine", tmp_path / "typo").code == ExitCode.NOT_A_LOG


def test_a_group_takes_the_path_for_its_usual_command(logs: Path) -> None:
    topic = logs / "customers-0"
    for options in ((), ("--all",), ("--json",)):
        assert ended("config", *options, topic).stdout == ended("config", "show", *options, topic).stdout
    damage_logs(logs)
    ended("repair", logs / "orders-none-0")
    assert ended("quarantine", logs).stdout == ended("quarantine", "ls", logs).stdout != b""


@pytest.mark.parametrize(("group", "commands"), [("config", "show"), ("quarantine", "ls or show or restore or purge")])
def test_a_word_that_is_neither_a_path_nor_a_command_is_said_to_be_neither(group: str, commands: str) -> None:
    done = ended(group, "customers-9")
    words = f"error: {group}: 'customers-9' is neither a file or directory nor a command ({commands})"
    assert (done.code, done.stderr.decode().splitlines()[0]) == (ExitCode.USAGE, words)


@pytest.mark.slow
def test_after_damage_at_a_url_no_command_is_named_that_a_url_cannot_take() -> None:
    log = bytearray((CLEAN / "orders-gzip-0" / "00000000000000000000.log").read_bytes())
    log[200] ^= 1
    name = "kafka/orders-gzip-0/00000000000000000000.log"
    with object_server() as server:
        server.objects[name] = bytes(log)
        shown = on_terminal(80, "verify", f"http://127.0.0.1:{server.port}/{name}")
    assert shown.code == 1
    assert shown.lines[shown.lines.index("what to do next:") + 1 :][0] == "  seglog explain CODE"
