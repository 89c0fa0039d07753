"""Where runs may lie: in the quarantines around a path, and in those that this user's notes name.

A note below `$XDG_STATE_HOME/seglog/runs` records where a run's folder is, so that its name is enough from anywhere.
Nothing heavy is imported: `ls` and `verify` ask here each time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from seglog.format.filenames import QUARANTINE, QUARANTINE_WITHIN
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
    """Returns the quarantines that exist and in which runs over log directories or partitions at `paths` may be."""
    around = [place for place in places(None, *paths) if place.name in (QUARANTINE, QUARANTINE_WITHIN)]
    candidates = dict.fromkeys([*around, *noted_places(fs, environment)])
    return [place for place in candidates if _may_exist(fs, place)]


def _may_exist(fs: FileSystem, place: Path) -> bool:
    try:
        return fs.status(place) is not None
    except OSError:
        return True  # another user's: whoever reads it says why it cannot be read
