"""What a controller gets of the directory that `seglog rebuild` made."""

from __future__ import annotations

import shutil
from pathlib import Path

from seglog_rescue.operations.rebuild import snapshot_places


def copy_snapshots(made: Path, metadata_log_directory: Path) -> list[Path]:
    """Does the step `cp -R DIR/bootstrap.checkpoint DIR/__cluster_metadata-0 METADATA_LOG_DIR/`; returns the copies."""
    copies = []
    for source in snapshot_places(made):
        target = metadata_log_directory / source.name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
        copies += [target, *(target.iterdir() if target.is_dir() else ())]
    return copies
