"""Finding quarantines and runs from what a user types."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.diagnosis.journal import RunRecord

QuarantineOption = Annotated[
    Path | None,
    typer.Option(
        "--quarantine",
        metavar="DIR",
        help="The quarantine (default: .seglog-quarantine beside the log directory).",
        show_default=False,
    ),
]


def named_run(session: Session, name: str, quarantine: Path | None) -> RunRecord:
    """The run called `name`, or whose folder that is. NotALogError when it is nowhere.

    Without a quarantine it is looked for around the working directory, and where this user made it.
    """
    from seglog.diagnosis.quarantine import find_run

    known = places(quarantine, Path.cwd())
    note = _notes() / Path(name).name
    if quarantine is None and note.is_file():
        known.append(Path(os.fsdecode(note.read_bytes().strip())).parent)
    return find_run(session.fs, name, known)


def remember_run(session: Session, folder: Path) -> None:
    """Notes where a run's folder is, so that its name is enough for `seglog undo`, wherever that is called."""
    try:
        _notes().mkdir(parents=True, exist_ok=True)
        (_notes() / folder.name).write_bytes(os.fsencode(f"{folder}\n"))
    except OSError as error:
        session.console.detail(f"{_notes()} cannot be written ({error.strerror}); seglog undo needs {folder}")


def forget_run(folder: Path) -> None:
    """The run is gone."""
    (_notes() / folder.name).unlink(missing_ok=True)


def _notes() -> Path:
    from seglog.cleaner.history import state_directory

    return state_directory(os.environ) / "runs"


def places(quarantine: Path | None, *paths: Path) -> list[Path]:
    """Where runs may be: the chosen quarantine, or those that belong to log directories at or around `paths`."""
    from seglog.diagnosis.quarantine import QUARANTINE
    from seglog.storage import links

    if quarantine is not None:
        return [links.resolve(quarantine)]
    found = []
    for path in paths:
        full = links.resolve(path)
        found += [full, *(parent / QUARANTINE for parent in (full, full.parent, full.parent.parent))]
    return list(dict.fromkeys(found))
