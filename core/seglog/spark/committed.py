"""Logs that a manifest has committed, as the driver's plan meets them: shown as partition directories, read as objects.

A task needs nothing of it: a piece names the object itself, which nobody changes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from seglog.errors import IncompleteError
from seglog.storage.filesystem import FileSystem
from seglog.tiers.contents import WholeObject
from seglog.tiers.recognition import recognise
from seglog.tiers.segments import GRAVE, Remark
from seglog.tiers.view import TierFileSystem, show_tiers

_logger = logging.getLogger(__name__)


def committed_files(fs: FileSystem, path: Path, *, fail_on_data_loss: bool = True) -> TierFileSystem | None:
    """What shows the committed logs that `path` means or lies among; None where a manifest commits none there.

    What the manifest names and is missing, or has another size, is an IncompleteError when its partition is looked at.
    """

    def hear(remark: Remark) -> None:
        if remark.problem in GRAVE and fail_on_data_loss:
            raise IncompleteError(f"{remark} (failOnDataLoss=false goes on with what is there)")
        _logger.warning("%s", remark)

    recognised = recognise(fs, [path])
    if recognised[0].prefix is None:
        return None
    shown, _ = show_tiers(fs, recognised, on_remark=hear)
    return shown if isinstance(shown, TierFileSystem) else None


def object_of(fs: FileSystem, path: Path) -> Path:
    """Where a task finds a file of a log: that of a committed log is an object under another name."""
    stored = fs.stored(path) if isinstance(fs, TierFileSystem) else None
    return stored.path if isinstance(stored, WholeObject) else path
