"""`seglog undo`: takes a repair back."""

from __future__ import annotations

import os
from typing import Annotated

from seglog_cli.options import Quarantine, argument, command
from seglog_cli.session import Session


@command()
def run(
    session: Session,
    name: Annotated[str | None, argument("RUN", "The name of a run, or its folder.")] = None,
    quarantine: Quarantine = None,
) -> None:
    """Takes a repair back: restores its partitions bit for bit.

    Every file also gets its times, mode and owner back. A run of recover, truncate or transplant is undone in the same
    way. In checkpoints, which all partitions share, only the entries of the run's own partitions are restored. Runs
    on other partitions may have come since, and a broker may have run.

    The command refuses, and changes nothing, if the partition's records have changed since: data would be lost. If a
    later run changed them, undo that one first.

    Without --quarantine, the run is searched where this user made it, and in the quarantine of the current directory if
    that is a log directory or in one.

    Without RUN, the runs that can be taken back are listed, and nothing is changed.

    Examples:
      seglog undo
      seglog undo 20261121T015349Z-7f3a --quarantine /var/lib/kafka/.seglog-quarantine
      seglog undo /var/lib/kafka/.seglog-quarantine/20261121T015349Z-7f3a
    """
    if name is None:
        from seglog_cli.commands.quarantine import list_runs

        if list_runs(session, None, quarantine, undone=False):
            session.console.message("name one of these runs to take it back: seglog undo RUN")
        return
    from seglog.operations.undo import named_run, undo

    found = undo(session.fs, named_run(session.fs, os.environ, name, quarantine))
    count = len(found.changed)
    restored = f"{count} files are as they were" if count != 1 else "1 file is as it was"
    session.console.result({"type": "undone", "run": found.name, "files": count}, f"{found.name} is undone: {restored}")
