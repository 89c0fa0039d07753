"""Finding quarantines and runs from what a user types."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.runs.journal import RunRecord
    from seglog.storage.filesystem import FileSystem


class Told(Protocol):
    """What looking at a run asks of a session: files, and where to say something."""

    @property
    def fs(self) -> FileSystem: ...
    @property
    def console(self) -> Console: ...


def named_run(session: Told, name: str, quarantine: Path | None) -> RunRecord:
    """The run called `name`, or whose folder that is. NotALogError when it is nowhere."""
    from seglog.operations.undo import named_run

    return named_run(session.fs, os.environ, name, quarantine)


def remember_run(session: Told, folder: Path) -> None:
    """Notes where a run's folder is, so that its name is enough for `seglog undo`, wherever that is called."""
    from seglog.operations.undo import remember_run

    problem = remember_run(session.fs, os.environ, folder)
    if problem:
        session.console.detail(problem)
