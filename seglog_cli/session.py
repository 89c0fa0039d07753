"""What every command gets: the common options, the console, and the doors to files, clock and settings.

Doors are opened when first asked for: a command that fails on its arguments imports nothing of the engine.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.console import ColorChoice, Console

if TYPE_CHECKING:
    from seglog.clock import Clock
    from seglog.storage.filesystem import FileSystem
    from seglog_cli.progress import Progress, ProgressChoice


@dataclass(frozen=True)
class Session:
    """The options that every command takes, and what follows from them."""

    console: Console
    progress_choice: ProgressChoice = "auto"
    jobs: int | None = None
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    now: int | None = None

    @property
    def as_json(self) -> bool:
        """Whether data goes out as JSON lines."""
        return self.console.as_json

    @property
    def threads(self) -> int:
        """`--jobs`, or as many threads as there are cores."""
        return self.jobs or len(os.sched_getaffinity(0))

    @functools.cached_property
    def fs(self) -> FileSystem:
        """The machine's files."""
        from seglog.storage.filesystem import LocalFileSystem

        return LocalFileSystem()

    @functools.cached_property
    def clock(self) -> Clock:
        """The machine's clock, or one that stands at `--now`."""
        from seglog.clock import FixedClock, SystemClock

        return SystemClock() if self.now is None else FixedClock(self.now)

    def progress(self, title: str, total: int | None = None) -> Progress:
        """A progress display on stderr as `--progress` wants it; `total` is in bytes."""
        from seglog_cli.progress import open_progress

        return open_progress(self.console, self.progress_choice, title, total)


def open_session(
    *,
    as_json: bool,
    quiet: bool,
    verbose: int,
    color: ColorChoice,
    progress: ProgressChoice,
    jobs: int | None,
    config: Path | None,
    overrides: list[str] | None,
    now: int | None,
) -> Session:
    """The session that the common options describe."""
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose, color=color)
    return Session(console, progress, jobs, config, tuple(overrides or ()), now)
