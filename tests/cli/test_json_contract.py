"""seglog-json(5) says what every line of `--json` holds: no field is missing there, none is more, each has its type."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from seglog_cli.exit_codes import ExitCode
from seglog_cli.manual import descriptions
from tests.support.command_line import COMMAND, clean_logs, ended, environment, run, shell
from tests.support.help_examples import EXAMPLES, SERVICE_EXAMPLES, staged
from tests.support.json_contract import CONTRACT, PAGE, line_faults, output_faults, read_type, types_in

# They write text in a form that others prescribe, and refuse --json.
WITHOUT_JSON = ("dump-log",)


def command_of(example: str) -> str:
    """The command of a line: `clean`, or `config show`."""
    words = shlex.split(re.findall(r"seglog (.*)", example)[-1])
    return next((name for name in (" ".join(words[:2]), words[0]) if name in CONTRACT), words[0])


def with_json(command: str) -> str:
    """The command line with --json after the command's name, where it is not there."""
    name = r"(.*)seglog ((?:config show|quarantine \w+|backup (?:create|list|verify|restore|prune|redact)|\S+))"
    return command if "--json" in command else re.sub(name, r"\1seglog \2 --json", command)


FOR_JSON = [example for example in EXAMPLES if command_of(example) not in WITHOUT_JSON and " -o - " not in example]


@pytest.mark.slow  # 120 examples, which the first tier runs as they are
@pytest.mark.parametrize("example", FOR_JSON)
def test_the_lines_of_an_example_are_what_the_page_says(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, directory = staged(example, tmp_path)
    monkeypatch.chdir(directory)
    command = with_json(command)
    if re.search(r"[|<>]", command):
        done = shell(f"{command} 2> {tmp_path / 'messages'}", directory)
        code, stdout = done.returncode, done.stdout
    else:
        result = run(*shlex.split(command)[1:])
        code, stdout = result.exit_code, result.stdout
    assert code in (0, 1, 2), stdout
    assert output_faults(command_of(example), stdout) == []


@pytest.mark.parametrize("example", SERVICE_EXAMPLES)
def test_a_services_example_runs_until_it_is_stopped_and_its_lines_are_what_the_page_says(
    example: str, tmp_path: Path
) -> None:
    command, directory = staged(example, tmp_path)
    arguments = shlex.split(with_json(command))[1:]
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, cwd=directory, env=environment(), text=True
    ) as service:
        assert service.stdout is not None
        stdout = service.stdout.readline()
        service.send_signal(signal.SIGTERM)
        stdout += service.stdout.read()
    assert service.returncode == ExitCode.TERMINATED
    assert stdout.count("\n") >= 1 and output_faults(command_of(example), stdout) == []


# Lines that no example of the help writes; {logs} is a broker's log directory, {damaged} one with a damaged batch.
MORE = (
    "dump --records {logs}/payments-0",
    "dump --records --untrusted {damaged}/orders-none-0",
    "dump {logs}/payments-0/00000000000000000265.snapshot {logs}/payments-compact-0/00000000000000000000.txnindex",
    "dump {logs}/payments-0/leader-epoch-checkpoint {logs}/payments-0/partition.metadata",
    "dump {logs}/recovery-point-offset-checkpoint {logs}/meta.properties {logs}/.kafka_cleanshutdown",
    "dump {logs}/payments-compact-0/00000000000000000000.timeindex {logs}/__cluster_metadata-0/quorum-state",
    "ls --long {logs} {damaged}",
    "verify {damaged}",
    "verify --repair --dry-run {damaged}",
    "repair {damaged}/orders-none-0",
    "recover --dry-run --recovery-point 0 {damaged}/orders-none-0",
    "reindex --dry-run {logs}/payments-0",
    "truncate --to-offset 700 --dry-run {damaged}/orders-none-0",
    "doctor {damaged}",
    "report --verify {damaged} {logs}",
    "diff --level batches {logs}/orders-none-0 {damaged}/orders-none-0",
    "txn {logs}/payments-0",
    "explain --advise {logs}/customers-0",
    "explain CRC_MISMATCH",
    "stats {damaged}/orders-none-0",
    "config show --all {logs}",
    "metadata --diff {logs}/__cluster_metadata-0 {damaged}/__cluster_metadata-0",
    "retain --retention-ms 1 --override-policy --dry-run {logs}/orders-none-0",
    "clean --dry-run --roll {logs}/customers-0",
    "salvage {damaged}/orders-none-0 -o {logs}/new-0",
    "spark conf",
    "replicas {logs} --collect {logs}/logs.facts",
    "backup {damaged} --to {logs}/../backup",
)


@pytest.mark.parametrize("line", MORE)
def test_the_lines_of_other_cases_are_what_the_page_says(line: str, tmp_path: Path) -> None:
    logs, damaged = clean_logs(tmp_path / "whole"), clean_logs(tmp_path / "damaged")
    log = sorted((damaged / "orders-none-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    result = run(*[word.format(logs=logs, damaged=damaged) for word in line.split()], "--json")
    assert result.exit_code in (0, 1, 4), result.output
    assert result.stdout
    assert output_faults(command_of(f"seglog {line}"), result.stdout) == []


def test_every_command_is_on_the_page() -> None:
    commands = {description.path.removeprefix("seglog ") for description in descriptions()}
    assert commands - CONTRACT.keys() == {*WITHOUT_JSON, "spark"}
    assert CONTRACT.keys() <= commands


def test_an_error_on_standard_error_is_what_the_page_says(tmp_path: Path) -> None:
    done = ended("read", "--json", tmp_path / "nothing")
    line = json.loads(done.stderr.splitlines()[-1])
    kinds = types_in(PAGE.read_text().split("\n## Messages\n")[1].split("\n## ")[0])
    assert line["type"] == "exit_error" and line_faults(kinds, line) == []


PROBES = {
    "a field that is missing": ({"type": "a", "n": 1}, 'no "text"', '"text"?: text if it may be missing'),
    "a field more": (
        {"type": "a", "n": 1, "text": "", "other": [1, None]},
        "a field more",
        '"other": [integer | null]',
    ),
    "a field of another type": ({"type": "a", "n": "1", "text": ""}, '"a".n is text', "integer | null"),
    "a number for an integer": ({"type": "a", "n": 1.5, "text": ""}, '"a".n is number', "integer | null"),
    "a truth for an integer": ({"type": "a", "n": True, "text": ""}, '"a".n is boolean', "integer | null"),
    "a line more": ({"type": "b", "of": {"it": 1}}, "no such line", '{"type": "b", "of": {"it": integer}}'),
}


@pytest.mark.parametrize(("line", "said", "advice"), PROBES.values(), ids=PROBES)
def test_what_does_not_hold_says_what_to_write(line: dict[str, object], said: str, advice: str) -> None:
    kinds = [read_type('{"type": "a", "n": integer | null, "text": text, "more"?: [{text: number}]}')]
    (fault,) = line_faults(kinds, line)
    assert said in fault and advice in fault


@pytest.mark.parametrize(
    "line",
    [
        {"type": "a", "n": None, "text": "", "more": [{"x": 1, "y": 0.5}]},
        {"type": "a", "n": 0, "text_b64": "/w=="},
        {"type": "a", "n": 0, "text": "\\xff", "text_b64": ["/w=="]},
    ],
)
def test_what_holds_has_no_faults(line: dict[str, object]) -> None:
    kinds = [read_type('{"type": "a", "n": integer | null, "text": text, "more"?: [{text: number}]}')]
    assert line_faults(kinds, line) == []


@pytest.mark.parametrize("text", ['{"a": whole}', '{"a": text, "a": text}', "[text", "text text", '{"a" text}'])
def test_a_type_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a type|stands twice|expected|left over|not a type"):
        read_type(text)
