"""Opening a `Log` in a test: local files, a clock that the test moves, no log directory around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seglog.configuration.keys import LogConfig
from seglog.log.loader import LoadOptions
from seglog.log.log import Log
from seglog.log.read_loader import LogPlace
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support.manual_clock import ManualClock

START_MS = 1_700_000_000_000


def opened_log(
    directory: Path,
    *,
    fs: FileSystem | None = None,
    clock: ManualClock | None = None,
    writable: bool = True,
    clean: bool = True,
    recovery_point: int = 0,
    **config: Any,
) -> Log:
    """The log in `directory`, which is made when it is missing; `config` are fields of LogConfig."""
    directory.mkdir(parents=True, exist_ok=True)
    options = LoadOptions(clean_shutdown=clean, recovery_point=recovery_point, writable=writable)
    fs, clock = fs or LocalFileSystem(), clock or ManualClock(START_MS)
    if writable:
        return Log.open(directory, LogConfig(**config), fs=fs, clock=clock, options=options)
    return Log.open_for_reading(LogPlace(fs, directory, clock, 0, lambda: options), LogConfig(**config))
