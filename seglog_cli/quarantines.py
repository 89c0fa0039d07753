"""Finding quarantines and runs from what a user types."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seglog_cli.session import Session

if TYPE_CHECKING:
    from seglog.runs.journal import RunRecord

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
    from seglog.locations import require_name
    from seglog.runs.quarantine import find_run

    require_name(name)
    known = places(quarantine, Path.cwd())
    note = _notes() / Path(name).name
    found = session.fs.status(note) if quarantine is None else None
    if found is not None and not (found.is_directory or found.is_special):  # as `.` would be
        known.append(Path(os.fsdecode(session.fs.read_bytes(note)).removesuffix("\n")).parent)
    return find_run(session.fs, name, known)


def remember_run(session: Session, folder: Path) -> None:
    """Notes where a run's folder is, so that its name is enough for `seglog undo`, wherever that is called."""
    try:
        session.fs.make_directory(_notes(), parents=True)
        with session.fs.open(_notes() / folder.name, "create") as note:
            note.write_at(0, os.fsencode(f"{folder}\n"))
    except OSError as error:
        session.console.detail(f"{_notes()} cannot be written ({error.strerror}); seglog undo needs {folder}")


def forget_run(session: Session, folder: Path) -> None:
    """The run is gone."""
    if session.fs.status(_notes() / folder.name, follow=False) is not None:
        session.fs.remove(_notes() / folder.name)


def _notes() -> Path:
    from seglog.cleaner.history import state_directory

    return state_directory(os.environ) / "runs"


def places(quarantine: Path | None, *paths: Path) -> list[Path]:
    """Where runs may be: the chosen quarantine, or those that belong to log directories at or around `paths`."""
    from seglog.format.filenames import QUARANTINE_WITHIN
    from seglog.runs.quarantine import QUARANTINE
    from seglog.storage import links

    if quarantine is not None:
        return [links.resolve(quarantine)]
    found = []
    for path in paths:
        full = links.resolve(path)
        around = (full, full.parent, full.parent.parent)
        found += [full, *(parent / name for parent in around for name in (QUARANTINE, QUARANTINE_WITHIN))]
    return list(dict.fromkeys(found))
