"""The values that a shell offers for options and arguments: choices, partitions, configuration keys, finding codes.

Each offer takes the text typed so far and returns its possible completions. If it returns none, the shell offers files.
An offer never fails and never writes: what cannot be read is not offered. The engine is imported only
when a shell asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

# names without an underscore in a module without one, which Typer does not declare as exported
from typer.completion import completion_init, get_completion_script, install  # type: ignore[attr-defined]

VARIABLE = "_SEGLOG_COMPLETE"  # set for Typer by a shell that asks
DECODER_CLASSES = ("StringDecoder", "DefaultDecoder", "IntegerDecoder", "LongDecoder")  # `kafka_dump_log.decoders`
PARTS = ("log", "index", "snapshot", "epochs", "checkpoint")

Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]
_ZSH_AT_ONCE = '[[ "$funcstack[1]" == "_seglog" ]] && _seglog_completion'

Offer = Callable[[str], list[str]]


def typed_words() -> list[str]:
    """Returns the words of the command line being completed, which tell the command that is meant.

    The variables are those that Typer's scripts set, so users' shells have them.
    """
    return f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}".split()


def whole(text: str) -> str:
    """Returns a summary as a shell shall show it: whole, and with its apostrophes.

    Typer cuts a summary that is not given to it as short help, and escapes quotes in a way that zsh takes away again.
    """
    if os.environ.get(VARIABLE) != "complete_zsh":
        return text
    return text.replace("'", "\u2019").replace('"', "\u201d")


def be_ready_to_answer() -> None:
    """Lets Typer know its shells, as its own options for completion would have done."""
    completion_init()


def script_of(shell: Shell) -> str:
    """Returns the script with which a shell asks seglog for completions.

    zsh runs the script at the first Tab of a session. Typer's then only registers its function; ours also calls it, so
    that the first Tab offers something too.
    """
    script: str = get_completion_script(prog_name="seglog", complete_var=VARIABLE, shell=shell)
    return f"{script}\n{_ZSH_AT_ONCE}" if shell == "zsh" else script


def install_script(shell: Shell) -> list[str]:
    """Installs a shell's script for this user; returns sentences: which files were written, and what is left to do.

    Typer's way for zsh adds a completion menu for all commands and a second compinit to ~/.zshrc. That file is the
    user's; the line that it needs is only shown. Raises OSError.
    """
    if shell == "zsh":
        path = Path.home() / ".zfunc" / "_seglog"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script_of(shell) + "\n")
        return [f"wrote {path}", _left_in_zshrc()]
    settings = Path.home() / ".bashrc"
    before = _text_of(settings)
    _, place = install(shell, "seglog", VARIABLE)
    added = " ".join(_text_of(settings).removeprefix(before).split())
    lines = [f"wrote {place}", *([f"added to {settings}: {added}"] if added else [])]
    return [*lines, f"{shell} completion takes effect in new terminals"]


def _left_in_zshrc() -> str:
    """Says what ~/.zshrc lacks so that zsh finds the script."""
    path = Path(os.environ.get("ZDOTDIR") or Path.home()) / ".zshrc"
    lines = [line.partition("#")[0] for line in _text_of(path).splitlines()]
    if any(".zfunc" in line for line in lines):
        return "zsh completion takes effect in new terminals"
    if any("compinit" in line or "oh-my-zsh" in line for line in lines):
        return f"{path} is left as it is; zsh finds the script after this line, above compinit: fpath+=~/.zfunc"
    return f"{path} is left as it is; zsh finds the script after: fpath+=~/.zfunc; autoload -Uz compinit; compinit"


def _text_of(path: Path) -> str:
    """Returns a file's text; "" if it is not there."""
    try:
        return path.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return ""


def offer_of(metavar: str | None, name: str) -> Offer | None:
    """Returns the offer for an option or argument, by its metavar and name; None means files."""
    if name == "overrides":
        return configuration_keys
    if metavar is not None and "|" in metavar and metavar not in _BY_METAVAR:
        words = metavar.split("|")
        return choices(word.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for word in words)  # in `header:NAME` the name is free
    return _BY_METAVAR.get(metavar or "")


def choices(values: Iterable[str]) -> Offer:
    """Offers these values, in this order."""
    every = list(values)

    def offer(incomplete: str) -> list[str]:
        return [value for value in every if value.startswith(incomplete)]

    return offer


def partitions(incomplete: str) -> list[str]:
    """Offers partition directories, and the directories on the way to them."""
    from seglog.format.filenames import parse_partition_directory

    folder, start = os.path.split(incomplete)
    try:
        found = [entry for entry in os.scandir(folder or ".") if entry.name.startswith(start) and entry.is_dir()]
    except OSError:
        return []
    named = sorted(entry.name for entry in found if parse_partition_directory(entry.name) is not None)
    return [f"{incomplete.removesuffix(start)}{name}" for name in named]


def configuration_keys(incomplete: str) -> list[str]:
    """Offers `KEY=` for each of Kafka's keys that seglog knows."""
    from seglog.configuration.keys import BY_NAME

    return sorted(f"{name}=" for name in BY_NAME if name.startswith(incomplete))


def finding_codes(incomplete: str) -> list[str]:
    """Offers the codes of findings."""
    from seglog.verification.finding_codes import CODES

    return [code for code in sorted(CODES) if code.startswith(incomplete.upper())]


def listed(values: Iterable[str]) -> Offer:
    """Offers one more of these values in a comma-separated list."""
    every = list(values)

    def offer(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        named = given.split(",")
        return [f"{given}{comma}{value}" for value in every if value.startswith(last) and value not in named]

    return offer


def partitions_or_codes(incomplete: str) -> list[str]:
    """Offers partition directories, and the codes of findings once their beginning is typed."""
    return [*partitions(incomplete), *(finding_codes(incomplete) if incomplete else ())]


_BY_METAVAR: dict[str, Offer] = {
    "PARTITION": partitions,
    "PATH": partitions,
    "COPY": partitions,
    "SOURCE": partitions,
    "CLASS": choices(DECODER_CLASSES),
    "CODE": finding_codes,
    "PARTITION|CODE": partitions_or_codes,
    "PARTS": listed(PARTS),
}
