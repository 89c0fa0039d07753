"""`seglog undo`: a repair, taken back."""

from __future__ import annotations

from typing import Annotated

from seglog_cli.options import Quarantine, argument, command
from seglog_cli.quarantines import named_run
from seglog_cli.session import Session


@command
def run(
    session: Session,
    name: Annotated[str, argument("RUN", "The name of a run, or its folder.")],
    quarantine: Quarantine = None,
) -> None:
    """Takes a repair back: restores every file bit for bit, with its times, mode and owner.

    A run of recover, truncate or transplant is taken back in the same way; of checkpoints, which all partitions share,
    the entries of its own partitions. It refuses when a file that the run changed has changed again since, as data
    would then be lost. It looks for the run where this user made it and in the quarantine of the current directory, if
    that is (in) a log directory; with --quarantine only there.

    Examples:
      seglog undo 20261121T015349Z-7f3a --quarantine /var/lib/kafka/.seglog-quarantine
      seglog undo /var/lib/kafka/.seglog-quarantine/20261121T015349Z-7f3a
    """
    from seglog.operations.undo import undo

    found = undo(session.fs, named_run(session, name, quarantine))
    if session.as_json:
        session.console.json({"type": "undone", "run": found.name, "files": len(found.changes)})
    else:
        session.console.line(f"{found.name} is undone: {len(found.changes)} files are as they were")
