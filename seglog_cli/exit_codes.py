"""How a command ends: the exit codes, and the signals as exceptions.

The codes are a contract with scripts.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit code of the process; `meaning` is its explanation in the manual."""

    DONE = 0
    FOUND = 1
    USAGE = 2
    INCOMPLETE = 3
    REPAIRED = 4
    REPAIRED_IN_PART = 5
    NOT_A_LOG = 10
    LOCKED = 11
    REFUSED = 12
    UNSUPPORTED = 13
    INTERNAL = 70
    IO_ERROR = 74
    HUNG_UP = 129
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.DONE: "done, and nothing is wrong",
    ExitCode.FOUND: "something was found: damage, a difference, or with --check a plan that is not empty",
    ExitCode.USAGE: "wrong usage: an option, a configuration key or an input line",
    ExitCode.INCOMPLETE: "incomplete: some of the input could not be read",
    ExitCode.REPAIRED: "damage was found and all of it repaired",
    ExitCode.REPAIRED_IN_PART: "damage was found and partly repaired",
    ExitCode.NOT_A_LOG: "no Kafka log at this path",
    ExitCode.LOCKED: "locked by a broker or by another seglog",
    ExitCode.REFUSED: "refused: not enough disk or memory, a safety check, or records that the log does not accept",
    ExitCode.UNSUPPORTED: "an unsupported format, codec or feature, or an extra that is not installed",
    ExitCode.INTERNAL: "an internal error: a bug in seglog",
    ExitCode.IO_ERROR: "an error of the operating system while reading or writing",
    ExitCode.HUNG_UP: "the terminal is gone (SIGHUP); what is on disk is consistent",
    ExitCode.INTERRUPTED: "interrupted (SIGINT); what is on disk is consistent",
    ExitCode.PIPE_CLOSED: "the reader of the output closed the pipe",
    ExitCode.TERMINATED: "terminated (SIGTERM); what is on disk is consistent",
}


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
