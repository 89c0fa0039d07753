"""What a shell offers for a value: choices, partitions, configuration keys, finding codes.

A function here gets what was typed so far and gives what it may become. Where it gives nothing, the shell offers files.
Nothing may fail or write: what cannot be read is not offered. The engine is imported only while a shell asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

VARIABLE = "_SEGLOG_COMPLETE"  # Typer's: set while a shell asks
PARTS = ("log", "index", "snapshot", "epochs", "checkpoint")

Offer = Callable[[str], list[str]]


def typed_words() -> list[str]:
    """The words of the line that a shell asks about, as far as they tell which command is meant."""
    return f"{os.environ.get('COMP_WORDS', '')} {os.environ.get('_TYPER_COMPLETE_ARGS', '')}".split()


def answer_zsh_at_once() -> None:
    """zsh runs the script at a session's first Tab, and Typer's only gets ready then: ours answers that one, too."""
    from typer import _completion_shared as shared

    answer = '[[ "$funcstack[1]" == "_%(prog_name)s" ]] && %(complete_func)s\n'
    shared._completion_scripts["zsh"] = shared.COMPLETION_SCRIPT_ZSH + answer


def offer_of(metavar: str | None, name: str) -> Offer | None:
    """What is offered for an option or argument, by its metavar and its name; None: files."""
    if name == "overrides":
        return configuration_keys
    if metavar is not None and "|" in metavar:
        return choices_of(metavar)
    return _BY_METAVAR.get(metavar or "")


def choices(values: Iterable[str]) -> Offer:
    """Offers these, in their order."""
    every = list(values)

    def offer(incomplete: str) -> list[str]:
        return [value for value in every if value.startswith(incomplete)]

    return offer


def choices_of(metavar: str) -> Offer:
    """The choices that a metavar such as `bytes|batches|view` names; in `header:NAME` the name is free."""
    return choices(word.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for word in metavar.split("|"))


def partitions(incomplete: str) -> list[str]:
    """Partition directories, and the directories on the way to them, below what was typed."""
    from seglog.format.filenames import parse_partition_directory

    folder, start = os.path.split(incomplete)
    try:
        found = [entry for entry in os.scandir(folder or ".") if entry.name.startswith(start) and entry.is_dir()]
    except OSError:
        return []
    named = sorted(entry.name for entry in found if parse_partition_directory(entry.name) is not None)
    return [f"{incomplete.removesuffix(start)}{name}" for name in named]


def configuration_keys(incomplete: str) -> list[str]:
    """`KEY=` for each of Kafka's keys that count here."""
    from seglog.configuration.keys import KEYS

    return sorted({f"{name}=" for key in KEYS for name in key.names if name.startswith(incomplete)})


def finding_codes(incomplete: str) -> list[str]:
    """The codes of findings."""
    from seglog.evidence.findings import CODES

    return [code for code in sorted(CODES) if code.startswith(incomplete.upper())]


def decoder_classes(incomplete: str) -> list[str]:
    """The decoders of kafka-dump-log that are known here."""
    from seglog.kafka_dump_log.options import CLASSES

    return [name for name in CLASSES if name.startswith(incomplete)]


def listed(values: Iterable[str]) -> Offer:
    """One more of these after those that a comma ends."""
    every = list(values)

    def offer(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        named = given.split(",")
        return [f"{given}{comma}{value}" for value in every if value.startswith(last) and value not in named]

    return offer


_BY_METAVAR: dict[str, Offer] = {
    "PARTITION": partitions,
    "PATH": partitions,
    "COPY": partitions,
    "SOURCE": partitions,
    "CLASS": decoder_classes,
    "CODE": finding_codes,
    "PARTS": listed(PARTS),
}
