"""Where runs may lie: in the quarantines around a path, and in those that this user's notes name; and what they keep.

A note below `$XDG_STATE_HOME/seglog/runs` records where a run's folder is, so that its name is enough from anywhere.
Nothing heavy is imported: `ls` and `verify` ask here each time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from seglog.format.filenames import QUARANTINE_WITHIN
from seglog.repairs.undo.journal import RunRecord, RunState
from seglog.repairs.undo.partition_state import records_taken
from seglog.repairs.undo.quarantine import QUARANTINE, runs_in
from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path
from seglog.storage.state import state_directory


def notes_of(environment: Mapping[str, str]) -> Path:
    """Returns the directory of the notes that say where this user's runs are: a file of the run's name for each."""
    return state_directory(environment) / "runs"


def places(quarantine: Path | None, *paths: Path) -> list[Path]:
    """Returns where runs may be: the chosen quarantine, or those of log directories at or around `paths`."""
    if quarantine is not None:
        return [links.resolve(quarantine)]
    found = []
    for path in paths:
        full = partition_path(path)
        around = (full, full.parent, full.parent.parent)
        found += [full, *(parent / name for parent in around for name in (QUARANTINE, QUARANTINE_WITHIN))]
    return list(dict.fromkeys(found))


def noted_places(fs: FileSystem, environment: Mapping[str, str]) -> list[Path]:
    """Returns the quarantines of the runs that this user's notes name; none if the notes cannot be read."""
    folder = notes_of(environment)
    try:
        names = fs.list(folder) if fs.status(folder) is not None else []
        noted = [Path(os.fsdecode(fs.read_bytes(folder / name)).removesuffix("\n")).parent for name in sorted(names)]
    except OSError:
        return []
    return list(dict.fromkeys(noted))


def quarantines(fs: FileSystem, environment: Mapping[str, str], *paths: Path) -> list[Path]:
    """Returns the quarantines in which runs over log directories or partitions at `paths` may be."""
    around = [place for place in places(None, *paths) if place.name in (QUARANTINE, QUARANTINE_WITHIN)]
    return list(dict.fromkeys([*around, *noted_places(fs, environment)]))


def kept_records(
    fs: FileSystem, environment: Mapping[str, str], paths: Sequence[Path]
) -> list[tuple[RunRecord, dict[str, int]]]:
    """Returns the runs, oldest first, that took records out of the partitions or log directories at `paths` and still
    keep them, with the bytes by partition directory. Leaves out quarantines and runs that cannot be read.
    """
    wanted = {partition_path(path) for path in paths}
    found: dict[Path, tuple[RunRecord, dict[str, int]]] = {}
    for place in quarantines(fs, environment, *paths):
        with contextlib.suppress(OSError):  # another user's quarantine
            for run in runs_in(fs, place):
                if not isinstance(run, RunRecord) or run.state is not RunState.FINISHED:
                    continue
                whole, taken = run.log_directory in wanted, records_taken(run)
                mine = {name: size for name, size in taken.items() if whole or run.log_directory / name in wanted}
                if mine:
                    found[run.folder] = run, mine
    return [each for _, each in sorted(found.items())]
