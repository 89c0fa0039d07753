"""The signals that end a command, as errors, and what is said of each."""

from __future__ import annotations


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, raised in the main thread."""


class HungUpError(KeyboardInterrupt):
    """SIGHUP, raised in the main thread: the terminal is gone."""


SENTENCES = {
    KeyboardInterrupt: "interrupted; what is on disk is consistent",
    TerminatedError: "terminated; what is on disk is consistent",
    HungUpError: "hung up; what is on disk is consistent",
}
