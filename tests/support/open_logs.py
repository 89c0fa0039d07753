"""Opening a `Log` in a test: local files, a clock that the test moves, no log directory around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seglog.clock import ManualClock
from seglog.configuration.keys import LogConfig
from seglog.log.log import Log
from seglog.storage.filesystem import FileSystem, LocalFileSystem

START_MS = 1_700_000_000_000


def opened_log(
    directory: Path,
    *,
    fs: FileSystem | None = None,
    clock: ManualClock | None = None,
    writable: bool = True,
    clean: bool = True,
    recovery_point: int = 0,
    high_watermark: int | None = None,
    **config: Any,
) -> Log:
    """The log in `directory`, which is made when it is missing; `config` are fields of LogConfig."""
    directory.mkdir(parents=True, exist_ok=True)
    return Log.open(
        directory,
        LogConfig(**config),
        fs=LocalFileSystem() if fs is None else fs,
        clock=ManualClock(START_MS) if clock is None else clock,
        writable=writable,
        clean_shutdown=clean,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
    )
