"""What every command gets: the common options, the console, and the doors to files, clock and settings.

Doors are opened when first asked for: a command that fails on its arguments imports nothing of the engine.
"""

from __future__ import annotations

import contextlib
import functools
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from seglog_cli.console import ColorChoice, Console

if TYPE_CHECKING:
    from seglog.clock import Clock
    from seglog.configuration.settings import DirectorySettings
    from seglog.log.log import Log
    from seglog.operations.workspace import Sources, Workspace
    from seglog.remote.traffic import Traffic
    from seglog.runs.journal import RunRecord
    from seglog.scan.listing import Target
    from seglog.storage.filesystem import FileSystem
    from seglog_cli.progress import Progress, ProgressChoice


@dataclass(frozen=True, slots=True)
class RelativeTime:
    """A time that was written as `-1h`: milliseconds from the moment that the session goes by."""

    distance_ms: int


@dataclass(frozen=True)
class Session:
    """The options that every command takes, and what follows from them."""

    console: Console
    progress_choice: ProgressChoice = "auto"
    jobs: int | None = None
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    now: int | None = None
    used: set[str] = field(default_factory=set)  # the common options that the command has asked for

    @property
    def as_json(self) -> bool:
        """Whether data goes out as JSON lines."""
        return self.console.as_json

    def begin_threads(self) -> int:
        """`--jobs`, or as many threads as there are cores; they may begin, and share from now on what they free."""
        from seglog.ordered_pool import available_threads
        from seglog_cli.memory import share_freed_memory

        self.used.add("--jobs")
        share_freed_memory()
        return self.jobs or available_threads()

    def workspace(self, *used: str) -> Workspace:
        """What the engine's operations need of these options; those that count are `used`. Threads may begin."""
        from seglog.operations.workspace import Workspace
        from seglog_cli.memory import share_freed_memory

        self.used.update(used)
        share_freed_memory()
        return Workspace(self.fs, self._clock, self.overrides, self.config, self.jobs)

    def settled(self, run: RunRecord) -> None:
        """Says that a run that was cut short was settled, and remembers where it is."""
        from seglog_cli.quarantines import remember_run

        remember_run(self, run.folder)
        command = run.start.get("command", "repair")
        self.console.message(f"the {command} {run.name}, which was cut short, is {run.state.value} now")

    @functools.cached_property
    def fs(self) -> FileSystem:
        """The machine's files, and what URLs lead to."""
        from seglog.remote.routing import machine_files

        return machine_files()

    @property
    def clock(self) -> Clock:
        """The machine's clock, or one that stands at `--now`."""
        self.used.add("--now")
        return self._clock

    @functools.cached_property
    def _clock(self) -> Clock:
        from seglog.clock import FixedClock, SystemClock

        return SystemClock() if self.now is None else FixedClock(self.now)

    def resolved(self, path: Path) -> Path:
        """The absolute path without links; UntrustedLinkError for a link that is not followed."""
        from seglog.storage.links import resolve

        return resolve(path)

    @contextlib.contextmanager
    def open_log(
        self,
        partition: Path,
        *,
        writable: bool = False,
        create: bool = False,
        settings: Mapping[str, object] | None = None,
        command: str = "recover",
    ) -> Iterator[Log]:
        """The log in a partition directory; its directory's lock is held while a writable one is open.

        `settings` are configuration values that options of the command give, as in `Sources`. What opening a writable
        one cuts off is kept in a run for `command`, as `undo` wants it.
        """
        from seglog.operations.workspace import Sources
        from seglog_cli.views.recovery import tell_recovery

        config_of = self.config_of(self.resolved(partition).parent, Sources(settings or {}))
        if not writable:
            from seglog.api.opening import opened_for_reading

            with opened_for_reading(partition, fs=self.fs, clock=self.clock, config_of=config_of) as log:
                if log.settled or self.console.verbose:
                    tell_recovery(self, log.recovery)
                yield log
            return
        from seglog.operations.keeping import Keeper

        keeper = Keeper(self.fs, self.clock, config_of, command, settled=self.settled)
        owner, log, report = keeper.open(partition, create=create)
        with owner:
            tell_recovery(self, report)
            yield log

    def config_of(self, log_directory: Path, sources: Sources | None = None, *, tell: bool = True) -> DirectorySettings:
        """The configuration of each topic in a log directory; with `tell`, what is odd about it is reported."""
        found = self.workspace("--config", "--set").settings(log_directory, sources)
        for sentence in (*found.resolve(None).warnings, *found.problems) if tell else ():
            self.console.warning(sentence)
        return found

    def warn_of_runs(self, paths: Iterable[Path]) -> None:
        """Says in which log directories around the paths a run is unfinished: what is read there may be a part. URLs
        are passed over, as runs are only on disks."""
        from seglog.scan.view import unfinished_runs

        for problem in unfinished_runs(self.fs, paths):
            self.console.warning(problem)

    def check_configuration(self) -> None:
        """ConfigError for a --config or --set that cannot be, also in a command that asks for no setting."""
        if self.config is not None or self.overrides:
            self.workspace().given_settings()

    def offer_to_apply(self) -> None:
        """At a terminal, after a plan: the command line that does what was shown."""
        planned = ("-n", "--dry-run", "--check")
        command = shlex.join(["seglog", *(word for word in sys.argv[1:] if word not in planned)])
        self.console.next_steps([(command, "does what is shown here")])

    def tell_unused(self) -> None:
        """Warns of the common options that were given and that the command never asked for."""
        if self._asked_stores:
            self.used.update(("--config", "--set"))  # the price list
        given = {
            "--jobs": self.jobs is not None,
            "--config": self.config is not None,
            "--set": bool(self.overrides),
            "--now": self.now is not None,
            "--progress plain": self.progress_choice == "plain",
        }
        for name in (name for name, is_given in given.items() if is_given and name not in self.used):
            self.console.warning(f"{name} had no effect: this command does not use it on this input")

    def tell_traffic(self) -> None:
        """With `-v`: what object stores were asked for, how much came, and what that costs by `remote.price.*`."""
        found = self._asked_stores
        if found is None:
            return
        from seglog.errors import ConfigError

        try:
            cost = f"{found.cost(self.workspace().given_settings().resolve(None).prices):.6f}"
        except ConfigError as error:
            cost = f"unknown ({error})"
        self.console.detail(
            f"object stores: {found.requests} requests ({found.listings} listings, {found.heads} heads,"
            f" {found.gets} reads), {found.bytes_read} bytes; cost by remote.price.*: {cost}"
        )

    @property
    def _asked_stores(self) -> Traffic | None:
        """What `-v` tells of object stores; None without it, and where none was asked."""
        if not self.console.verbose:
            return None
        from seglog.remote.routing import traffic

        found = traffic()
        return found if found.requests else None

    def config_of_target(self, target: Target, sources: Sources | None = None) -> DirectorySettings:
        """The same for whatever log directory a typed path lies in."""
        from seglog.scan.listing import log_directory_of

        return self.config_of(log_directory_of(target), sources)

    def progress(self, title: str, total: int | None = None, unit: str = "") -> Progress:
        """A progress display on stderr as `--progress` wants it; without a `unit` it counts bytes."""
        from seglog_cli.progress import open_progress

        self.used.add("--progress plain")
        return open_progress(self.console, self.progress_choice, title, total, unit)


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
    now: int | RelativeTime | None,
) -> Session:
    """The session that the common options describe."""
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose, color=color)
    if isinstance(now, RelativeTime):
        from seglog.clock import SystemClock

        now = SystemClock().now_ms() + now.distance_ms
    return Session(console, progress, jobs, config, tuple(overrides or ()), now)
