"""The README's tour shows the real output, and every example of a `--help` works."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from seglog_cli.exit_codes import ExitCode
from tests.support.command_line import COMMAND, ROOT, clean_logs, environment, run, shell
from tests.support.help_examples import (
    EXAMPLE_RUN,
    EXAMPLES,
    SERVE_EXAMPLES,
    stage,
    stage_dead_cluster,
    stage_run,
    staged,
)
from tests.support.readme_tour import commands, followed, installed_clone
from tests.support.schema_registry import shop

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
def test_the_page_shows_what_happens_in_a_fresh_clone(tmp_path: Path) -> None:
    assert len(commands(README)) > 12
    made = followed(README, installed_clone(tmp_path))
    assert made.splitlines() == README.splitlines(), "run python -m tests.support.readme_tour"


def test_the_page_activates_copies_and_enters_before_it_calls_seglog() -> None:
    opening = commands(README)[:3]
    assert [command.split()[0] for command in opening] == [".", "cp", "cd"]


@pytest.mark.parametrize(
    ("symptom", "command"), [("the broker does not start", "seglog doctor"), ("consumers stand still", "seglog txn")]
)
def test_the_night_table_names_the_command_for_each_symptom(symptom: str, command: str) -> None:
    (row,) = [line for line in README.splitlines() if symptom in line]
    assert f"`{command} " in row


@pytest.mark.parametrize(
    ("marker", "beginning"),
    [
        ("main-command", "python3 core/native/install.py && .venv/bin/seglog "),
        ("test-command", "python3 -m venv --upgrade-deps .venv && .venv/bin/pip install -q --no-compile --group dev "),
    ],
)
def test_the_two_commands_are_one_line_each(marker: str, beginning: str) -> None:
    match = re.search(rf"^<!-- {marker} -->\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert match is not None
    assert match[1].count("\n") == 1
    assert match[1].startswith(beginning)


def test_the_main_command_does_its_work_on_the_fixtures() -> None:
    match = re.search(r"^<!-- main-command -->\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert match is not None
    (part,) = match[1].split(" && ")[1:]
    done = run(*shlex.split(part)[1:])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_help_work(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, directory = staged(example, tmp_path)
    monkeypatch.chdir(directory)
    if re.search(r"[|<>]", command):
        done = shell(command, directory)
        assert done.returncode in (0, 1), done.stdout
    else:
        result = run(*shlex.split(command)[1:])
        assert result.exit_code in (0, 1), result.output


NIGHT_COMMANDS = sorted(set(re.findall(r"`(seglog [^`]+)`", README.split("## 3 a.m.\n")[1].split("\n## ")[0])))


@pytest.mark.parametrize("command", [command for command in NIGHT_COMMANDS if not command.startswith("seglog replay")])
def test_the_night_tables_commands_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as it is written, with a path for each placeholder; then without --dry-run. A replay needs a cluster."""
    logs, words = clean_logs(tmp_path), shlex.split(command.replace("…", ""))[1:]
    monkeypatch.chdir(logs)
    verb, partition = words[0], "customers-0" if words[0] in ("clean", "explain") else "orders-none-0"
    segment = f"{partition}/00000000000000000350.log"
    places = {"LOGDIR": ".", "PARTITION": partition, "PATH": partition, "FILE": segment, "IMAGE": segment, "N": "400"}
    places |= {"NEW": "../NEW", "NEW/TOPIC-N": "../NEW/orders-0", "DIR": "../DIR"}
    if "schemas" in words or "registry" in words:
        shop(logs)
    if verb == "undo":
        places["RUN"] = stage_run(logs, tmp_path)[EXAMPLE_RUN]
    elif verb in ("verify", "repair"):
        with (logs / "orders-none-0" / "00000000000000000350.log").open("r+b") as file:
            file.seek(5000)
            file.write(b"XXXX")
    elif verb == "restore":
        places["COPY"] = "orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-delete"
        (logs / "orders-none-0").rename(places["COPY"])
    elif verb == "transplant":
        dead, target, *_ = stage_dead_cluster(tmp_path).values()
        places |= {"NEW": dead, "OLD_LOGDIR": dead, "LOGDIR": target}
    given = [places.get(word, word) for word in words]
    answered = ["--yes"] if verb == "redact" else []  # on a terminal it asks
    done_for_good = [*(word for word in given if word != "--dry-run"), *answered]
    for arguments in [given, done_for_good][: 1 + ("--dry-run" in given)]:
        done = run(*arguments)
        assert done.exit_code in (0, 1, ExitCode.REPAIRED if words[0] == "repair" else 0), done.output


@pytest.mark.parametrize("example", SERVE_EXAMPLES)
def test_the_examples_of_serve_serve_until_they_are_stopped(example: str, tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    places = {
        **stage(logs, tmp_path),
        "/mnt/broker1/data": str(logs),
        "/mnt/broker2/data": str(tmp_path / "new"),
        "backup/orders-0": str(tmp_path / "new" / "orders-0"),
        ":9308": ":0",
    }
    command = example
    for written, real in sorted(places.items(), key=lambda place: -len(place[0])):
        command = command.replace(written, real)
    arguments = [*shlex.split(re.sub(r"--listen \S+", "", command))[1:], "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        server.send_signal(signal.SIGTERM)
        assert "read-only, on 127.0.0.1:" in said, said + server.stderr.read()
    assert server.returncode == ExitCode.TERMINATED
