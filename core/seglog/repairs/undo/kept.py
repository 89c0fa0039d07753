"""What the runs in quarantines still keep of the records that they took out of logs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from seglog.repairs.undo.journal import RunRecord, RunState
from seglog.repairs.undo.partition_state import records_taken
from seglog.repairs.undo.quarantine import runs_in
from seglog.storage.filesystem import FileSystem
from seglog.storage.lock import partition_path


def kept_records(
    fs: FileSystem, quarantines: Sequence[Path], paths: Sequence[Path]
) -> list[tuple[RunRecord, dict[str, int]]]:
    """Returns the runs, oldest first, that took records out of the partitions or log directories at `paths` and still
    keep them, with the bytes by partition directory. Leaves out quarantines and runs that cannot be read.
    """
    wanted = {partition_path(path) for path in paths}
    kept: dict[Path, tuple[RunRecord, dict[str, int]]] = {}
    for place in quarantines:
        with contextlib.suppress(OSError):  # another user's quarantine
            for run in runs_in(fs, place):
                if not isinstance(run, RunRecord) or run.state is not RunState.FINISHED:
                    continue
                whole = run.log_directory in wanted
                names = {name for name in run.partitions if whole or run.log_directory / name in wanted}
                mine = {name: size for name, size in records_taken(run).items() if name in names} if names else {}
                if mine:
                    kept[run.folder] = run, mine
    return [kept[folder] for folder in sorted(kept)]
