"""How a command ends: the exit codes, and the signals as exceptions.

The codes are a contract with scripts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """The exit code of the process; `meaning` is its explanation in the manual."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        made = int.__new__(cls, code)
        made._value_, made.meaning = code, meaning
        return made

    DONE = 0, "done, and nothing is wrong"
    FOUND = 1, "something was found: damage, a difference, or with --check a plan that is not empty"
    USAGE = 2, "wrong usage: an option, a configuration key or an input line"
    INCOMPLETE = 3, "incomplete: some of the input could not be read"
    REPAIRED = 4, "damage was found and all of it repaired"
    REPAIRED_IN_PART = 5, "damage was found and partly repaired"
    NOT_A_LOG = 10, "no Kafka log at this path"
    LOCKED = 11, "locked by a broker or by another seglog"
    REFUSED = 12, "refused: not enough disk or memory, a safety check, or records that the log does not accept"
    UNSUPPORTED = 13, "an unsupported format, codec or feature, or an extra that is not installed"
    INTERNAL = 70, "an internal error: a bug in seglog"
    IO_ERROR = 74, "an error of the operating system while reading or writing"
    HUNG_UP = 129, "the terminal is gone (SIGHUP); what is on disk is consistent"
    INTERRUPTED = 130, "interrupted (SIGINT); what is on disk is consistent"
    PIPE_CLOSED = 141, "the reader of the output closed the pipe"
    TERMINATED = 143, "terminated (SIGTERM); what is on disk is consistent"


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, raised in the main thread."""


class HungUpError(KeyboardInterrupt):
    """SIGHUP, raised in the main thread: the terminal is gone."""


class Changes:
    """Whether this process has begun a command that may change logs."""

    begun = False


SIGNAL_WORDS: dict[type[KeyboardInterrupt], str] = {
    KeyboardInterrupt: "interrupted",
    TerminatedError: "terminated",
    HungUpError: "hung up",
}


def signal_sentence(kind: type[KeyboardInterrupt], far: str = "") -> str:
    """Returns what is said of a signal; `far` is how far a command came that changes nothing."""
    reached = f" after {far}" if far else ""
    return (
        f"{SIGNAL_WORDS[kind]}{reached}; {'what is on disk is consistent' if Changes.begun else 'no log was changed'}"
    )
