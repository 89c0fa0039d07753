"""The README's tour shows what really happens, and every example in a `--help` works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from seglog_cli.manual import descriptions
from tests.support.command_line import ROOT, clean_logs, run, shell
from tests.support.readme_tour import shown_lines

README = (ROOT / "README.md").read_text()
EXAMPLES = [example for one in descriptions() for example in one.examples]


def tour() -> list[tuple[str, list[str]]]:
    """Command and expected lines, in order."""
    match = re.search(r"<!-- tour -->\n```console\n(.*?)```", README, re.DOTALL)
    assert match is not None
    steps: list[tuple[str, list[str]]] = []
    for line in match[1].splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def test_the_tour_shows_what_happens(tmp_path: Path) -> None:
    logs = clean_logs(tmp_path)
    for command, expected in tour():
        assert shown_lines(command, logs) == expected, f"{command}: run python -m tests.support.readme_tour"


@pytest.mark.parametrize("marker", ["main-command", "test-command"])
def test_the_two_commands_are_one_line_each(marker: str) -> None:
    match = re.search(rf"^<!-- {marker} -->\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert match is not None
    assert match[1].count("\n") == 1
    assert match[1].startswith("python3 -m venv .venv && .venv/bin/pip install -q ")


def test_the_main_command_does_its_work_on_the_fixtures() -> None:
    match = re.search(r"^<!-- main-command -->\n```\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert match is not None
    for part in match[1].split(" && ")[2:]:
        done = run(*shlex.split(part)[1:])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_help_work(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = clean_logs(tmp_path)
    target = tmp_path / "new"
    target.mkdir()
    (logs / "records.jsonl").write_text('{"key":"k","value":"v"}\n')
    (logs / "lines.txt").write_text("a\nb\n")
    assert run("append", "--create", target / "orders-0", logs / "lines.txt").exit_code == 0
    command = example.replace("/var/lib/kafka/data", str(logs)).replace("/tmp/logs", str(target))
    monkeypatch.chdir(logs)
    if re.search(r"[|<>]", command):
        done = shell(command, logs)
        assert done.returncode in (0, 1), done.stdout
    else:
        result = run(*shlex.split(command)[1:])
        assert result.exit_code in (0, 1), result.output
