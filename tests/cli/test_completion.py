"""Completion: a script for each shell, and values for options."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from seglog_cli import completing
from tests.support.command_line import COMMAND, environment, process
from tests.support.terminals import typed


def offered(line: str, directory: Path) -> list[str]:
    """Returns the offers of bash for the last word of a line; a trailing blank begins a new word."""
    count = len(line.split()) - (not line.endswith(" "))
    variables = environment(COMP_WORDS=line, COMP_CWORD=str(count), _SEGLOG_COMPLETE="complete_bash")
    command = list(COMMAND)
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=directory, check=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("completion")
    for name in ("orders-0", "orders-1", "other", "payments-0"):
        (made / "kafka" / name).mkdir(parents=True)
    return made


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("seglog ver", ["verify"]),
        ("seglog append --codec z", ["zstd"]),
        ("seglog read --isolation ", ["read_committed", "read_uncommitted"]),
        ("seglog verify --code CRC", ["CRC_MISMATCH"]),
        ("seglog verify --only log,s", ["log,snapshot"]),
        ("seglog ls --set min.comp", ["min.compaction.lag.ms="]),
        ("seglog read kafka/or", ["kafka/orders-0", "kafka/orders-1"]),
        ("seglog clean --strategy h", ["header:"]),
        ("seglog txn kafka/orders-0 a", ["abort-cmd"]),
        ("seglog transplant kafka/or", ["kafka/orders-0", "kafka/orders-1"]),
        ("seglog dump-log --key-decoder-class S", ["StringDecoder"]),
    ],
)
def test_a_shell_is_offered_values(line: str, values: list[str], logs: Path) -> None:
    assert offered(line, logs) == values


@pytest.mark.parametrize(
    ("shell", "said"), [("bash", b"complete -o default"), ("zsh", b"#compdef seglog"), ("fish", b"complete --command")]
)
def test_each_shell_has_a_script_of_its_own(shell: str, said: bytes, tmp_path: Path) -> None:
    done = process("--show-completion", shell)
    assert (done.returncode, done.stderr) == (0, b"")
    assert said in done.stdout
    installed = process("--install-completion", shell, variables={"HOME": str(tmp_path)})
    assert (installed.returncode, installed.stderr) == (0, b"")
    assert f"wrote {tmp_path}".encode() in installed.stdout
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"bash": {".bashrc", "seglog.sh"}, "zsh": {"_seglog"}, "fish": {"seglog.fish"}}[shell]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (None, "after: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
        ("alias l=ls\n# compinit\n", "after: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
        ("autoload -Uz compinit; compinit\n", "after this line, above compinit: fpath+=~/.zfunc\n"),
        ("fpath+=~/.zfunc; autoload -Uz compinit; compinit\n", "zsh completion takes effect in new terminals"),
    ],
)
def test_the_settings_of_zsh_stay_as_they_are_and_what_they_lack_is_said(
    settings: str | None, left: str, tmp_path: Path
) -> None:
    path = tmp_path / ".zshrc"
    if settings is not None:
        path.write_text(settings)
    done = process("--install-completion", "zsh", variables={"HOME": str(tmp_path), "ZDOTDIR": ""})
    assert f"wrote {tmp_path}/.zfunc/_seglog\n" in done.stdout.decode() and left in done.stdout.decode()
    assert (path.read_text() if path.exists() else None) == settings
    assert {each.name for each in tmp_path.iterdir()} <= {".zshrc", ".zfunc"}


def test_what_is_added_to_the_settings_of_bash_is_said(tmp_path: Path) -> None:
    path = tmp_path / ".bashrc"
    path.write_text("alias l=ls\n")
    done = process("--install-completion", "bash", variables={"HOME": str(tmp_path)}).stdout.decode()
    script = tmp_path / ".bash_completions" / "seglog.sh"
    assert f"wrote {script}\nadded to {path}: source '{script}'\n" in done
    assert path.read_text().startswith("alias l=ls\n")
    again = process("--install-completion", "bash", variables={"HOME": str(tmp_path)}).stdout.decode()
    assert "added to" not in again


def test_zsh_is_answered_at_the_first_tab_of_a_session(tmp_path: Path) -> None:
    script = process("--show-completion", "zsh").stdout.decode()
    assert script.rstrip().endswith('[[ "$funcstack[1]" == "_seglog" ]] && _seglog_completion')
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed here: its script was only read")
    (tmp_path / "_seglog").write_text(script)
    command = tmp_path / "seglog"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    first_tab = (
        f"compdef() {{ : }}; _arguments() {{ print -r -- $1 }}; path+=({tmp_path}); fpath=({tmp_path} $fpath);"
        " autoload -U _seglog; words=(seglog append --codec z); CURRENT=4; _seglog"
    )
    done = subprocess.run([zsh, "-fc", first_tab], capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, '*: :(("zstd"))\n', "")


def wrapped(directory: Path) -> Path:
    """Makes a directory for PATH in which `seglog` is this tree's command line."""
    directory.mkdir(parents=True, exist_ok=True)
    command = directory / "seglog"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    return directory


def tabs_of_zsh(line: str, said: Sequence[str], logs: Path, scratch: Path) -> None:
    """Types a line in an interactive zsh, and then a Tab for each text that is waited for."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed here")
    (scratch / "functions").mkdir()
    (scratch / "functions" / "_seglog").write_bytes(process("--show-completion", "zsh").stdout)
    setup = f"fpath=({scratch}/functions $fpath); autoload -U compinit; compinit -u -D; PS1='ready> '\n"
    path = f"{wrapped(scratch / 'bin')}:/usr/bin:/bin"
    given = environment(PATH=path, HOME=str(scratch), TERM="xterm", COLUMNS="160")
    prompt = re.compile(r"[^']ready> \Z")  # and not the quoted one, which is typed

    def shows(text: str) -> Callable[[str], bool]:
        return lambda shown: text in " ".join(shown.split("\n")).replace("kafka/ ", "kafka/")

    tabs = [(f"{line if not number else ''}\t", shows(text)) for number, text in enumerate(said)]
    typed([zsh, "-f"], [(setup, lambda shown: prompt.search(shown) is not None), *tabs], logs, given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("seglog ", ["dump-log    -- Takes kafka-dump-log\u2019s options and prints its text."]),
        ("seglog ", ["ls          -- Lists partitions, segments and leftovers: sizes, offsets, times."]),
        ("seglog explain --", ["\u2019s metadata, if it is another one"]),
        ("seglog quarantine ", ["restore  -- Copies the old files of a run to another directory; the log stays"]),
        ("seglog read kafka/or", ["kafka/orders-", "kafka/orders-0"]),
    ],
)
def test_an_interactive_zsh_shows_whole_sentences(line: str, said: list[str], logs: Path, tmp_path: Path) -> None:
    tabs_of_zsh(line, said, logs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("seglog ", "dump-log\tTakes kafka-dump-log's options and prints its text."),
        (
            "seglog quarantine ",
            "purge\tRemoves a run for good: it can no longer be undone, and the files it kept are gone.",
        ),
        ("seglog append --codec z", "zstd"),
        ("seglog read kafka/or", "kafka/orders-0"),
    ],
)
def test_fish_shows_whole_sentences(line: str, said: str, logs: Path, tmp_path: Path) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("fish is not installed here")
    script = tmp_path / "seglog.fish"
    script.write_bytes(process("--show-completion", "fish").stdout)
    path = f"{wrapped(tmp_path / 'bin')}:/usr/bin:/bin"
    command = [fish, "-N", "-c", f"source {script}; complete -C '{line}'"]
    given = environment(PATH=path, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path))
    done = subprocess.run(command, capture_output=True, text=True, env=given, cwd=logs, check=True)
    assert said in done.stdout.splitlines()


@pytest.mark.parametrize(("line", "code"), [("seglog append --codec z", 0), ("seglog dump kafka/orders-0/0", 1)])
def test_fish_learns_from_the_exit_code_alone_whether_there_are_values(line: str, code: int, logs: Path) -> None:
    variables = environment(_SEGLOG_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="is-args")
    command = list(COMMAND)
    asked = {**variables, "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(command, capture_output=True, text=True, env=asked, cwd=logs, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_shell_that_is_not_known_or_not_named_is_wrong_usage() -> None:
    for words in (["--show-completion"], ["--show-completion", "tcsh"]):
        done = process(*words)
        assert done.returncode == 2
        assert b"internal error" not in done.stderr


def test_nothing_is_offered_where_nothing_can_be_read(tmp_path: Path) -> None:
    assert completing.partitions(str(tmp_path / "nowhere" / "x")) == []
    assert completing.offer_of("FILE", "config") is None
