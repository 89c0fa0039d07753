"""The common options of every command, and access to console, files, clock and settings.

Each of these is opened when it is first used: a command that fails on its arguments imports nothing of the engine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.errors import ConfigError, NotALogError
from seglog.escaping import command_line
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.clock import Clock
    from seglog.configuration.settings import DirectorySettings
    from seglog.log.loader import RecoveryReport
    from seglog.log.log import Log
    from seglog.operations.workspace import Sources, Workspace
    from seglog.repairs.undo.journal import RunRecord
    from seglog.storage.filesystem import FileSystem
    from seglog_cli.progress import Progress, ProgressChoice
    from seglog_stores.remote.traffic import Traffic

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # mallopt(3)
_LARGE_BLOCK = 8 << 20


@dataclass(frozen=True, slots=True)
class RelativeTime:
    """A time written as `-1h`: milliseconds from the session's current time."""

    distance_ms: int


@dataclass(frozen=True)
class Session:
    """The common options, and what depends on them."""

    console: Console
    progress_choice: ProgressChoice = "auto"
    jobs: int | None = None
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    now: int | None = None
    named: list[Path] = field(default_factory=list)  # the paths among the command's arguments and options
    used: set[str] = field(default_factory=set)  # the common options that the command has read
    displays: list[Progress] = field(default_factory=list)  # the progress displays that were opened

    @property
    def as_json(self) -> bool:
        """True if data is written as JSON lines."""
        return self.console.as_json

    def begin_threads(self) -> int:
        """Returns the number of threads (`--jobs`, or one for each core), which from now on share freed memory."""
        from seglog.ordered_pool import available_threads

        self.used.add("--jobs")
        share_freed_memory()
        return self.jobs or available_threads()

    def workspace(self, *used: str) -> Workspace:
        """Returns these options as the engine's operations take them; `used` names those that have an effect."""
        from seglog.operations.workspace import Workspace

        self.used.update(used)
        share_freed_memory()
        named, warn = tuple(self.named), self.console.warning
        return Workspace(self.fs, self._clock, self.overrides, self.config, self.jobs, named, warn=warn)

    def settled(self, run: RunRecord) -> None:
        """Reports that an interrupted run was settled, and remembers where it is."""
        self.remember_run(run.folder)
        self.console.message(f"the {run.command} {run.name}, which was cut short, is {run.state.value} now")

    def remember_run(self, folder: Path) -> None:
        """Notes where a run's folder is, so that `seglog undo NAME` finds it from any directory."""
        from seglog.operations.undo import remember_run

        problem = remember_run(self.fs, os.environ, folder)
        if problem:
            self.console.detail(problem)

    def tell_recovery(self, report: RecoveryReport) -> None:
        """Reports on stderr what opening a log had to change; details with -v."""
        for event in report.events:
            self.console.detail(event)
        if report.truncated_bytes:
            self.console.warning(f"{report.directory}: {lost_text(report)}{self.kept_text(report)}")

    def kept_text(self, report: RecoveryReport) -> str:
        """Returns how to get back what a recovery cut off, if it was kept, and remembers the run."""
        if report.run is None:
            return ""
        self.remember_run(report.run)
        return f"; kept: seglog undo {report.run.name} gives it back"

    @functools.cached_property
    def fs(self) -> FileSystem:
        """Local files and URLs."""
        from seglog.storage.routing import machine_files

        return machine_files()

    def looking(self, fs: FileSystem) -> Session:
        """Returns this session with other files."""
        seeing = replace(self)
        seeing.__dict__["fs"] = fs
        return seeing

    @property
    def clock(self) -> Clock:
        """The system clock, or one that always shows `--now`."""
        self.used.add("--now")
        return self._clock

    @functools.cached_property
    def _clock(self) -> Clock:
        from seglog.clock import FixedClock, SystemClock

        return SystemClock() if self.now is None else FixedClock(self.now)

    def resolved(self, path: Path) -> Path:
        """Returns the absolute path without links. Raises UntrustedLinkError for a link that is not followed."""
        from seglog.storage.links import resolve

        return resolve(path)

    def paths_or_here(self, paths: Sequence[Path] | None) -> list[Path]:
        """Returns the paths, or the current directory if none is given.

        Raises ConfigError if the current directory is neither a log directory nor a partition.
        """
        if paths:
            return list(paths)
        from seglog.scan.listing import resolve_path

        here = Path()
        try:
            resolve_path(self.fs, here)
        except NotALogError as error:
            raise ConfigError(
                "name a PATH: the current directory is neither a log directory nor a partition"
            ) from error
        return [here]

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
        """Opens the log in a partition directory. While it is open for writing, its log directory is locked.

        `settings` are configuration values from the command's options, as in `Sources`. If opening for writing cuts
        something off, a run of `command` keeps it for `undo`.
        """
        from seglog.operations.workspace import Sources
        from seglog.storage.lock import partition_path

        config_of = self.config_of(partition_path(partition).parent, Sources(settings or {}))
        if not writable:
            from seglog.api.opening import opened_for_reading

            with opened_for_reading(partition, fs=self.fs, clock=self.clock, config_of=config_of) as log:
                if log.settled or self.console.verbose:
                    self.tell_recovery(log.recovery)
                yield log
            return
        from seglog.operations.keeping import Keeper

        keeper = Keeper(self.fs, self.clock, config_of, command, settled=self.settled)
        owner, log, report = keeper.open(partition, create=create)
        with owner:
            self.tell_recovery(report)
            yield log

    def config_of(self, log_directory: Path, sources: Sources | None = None, *, tell: bool = True) -> DirectorySettings:
        """Returns the configuration of the topics in a log directory; with `tell`, prints its warnings and problems."""
        found = self.workspace("--config", "--set").settings(log_directory, sources)
        for sentence in (*found.resolve(None).warnings, *found.problems) if tell else ():
            self.console.warning(sentence)
        return found

    def warn_of_runs(self, paths: Iterable[Path]) -> None:
        """Warns of log directories with an unfinished run: data read there may be incomplete.

        URLs are skipped, because runs are only on disks.
        """
        from seglog.scan.view import unfinished_runs

        for problem in unfinished_runs(self.fs, paths):
            self.console.warning(problem)

    def check_configuration(self) -> None:
        """Raises ConfigError for an impossible --config or --set, even if the command uses no setting."""
        if self.config is not None or self.overrides:
            self.workspace().given_settings()

    def offer_to_apply(self) -> None:
        """After a plan, shows the command line that applies it; only at a terminal."""
        planned = ("-n", "--dry-run", "--check")
        command = command_line("seglog", *(word for word in sys.argv[1:] if word not in planned))
        self.console.next_steps([(command, "applies this plan")])

    def tell_unused(self) -> None:
        """Warns of common options that were given but that the command did not use."""
        if self._asked_stores:
            self.used.update(("--config", "--set"))  # for the price list
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
        """With `-v`, reports requests to object stores, bytes read, and their cost by `remote.price.*`."""
        found = self._asked_stores
        if found is None:
            return
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
        """The traffic with object stores that `-v` reports; None without `-v`, or without any request."""
        if not self.console.verbose:
            return None
        from seglog_stores.remote.traffic import OF_PROCESS

        return OF_PROCESS if OF_PROCESS.requests else None

    def progress(self, title: str, total: int | None = None, unit: str = "") -> Progress:
        """Opens a progress display on stderr, as chosen by `--progress`; without a `unit` it counts bytes."""
        from seglog_cli.progress import open_progress

        self.used.add("--progress plain")
        self.displays.append(open_progress(self.console, self.progress_choice, title, total, unit))
        return self.displays[-1]

    @contextlib.contextmanager
    def reading(self, title: str, logs: Sequence[Path]) -> Iterator[Session]:
        """Shows how much of the logs, partition directories or single files, is read through the yielded session."""
        with self.progress(title) as progress:
            if progress.reporter is None:  # nothing is shown, so nothing is counted
                yield self
                return
            from seglog.storage.metered_files import GatedFileSystem, ReadMeter

            progress.total = sum(map(self._log_bytes, logs))
            yield self.looking(GatedFileSystem(self.fs, ReadMeter(progress.advance, progress.wait)))

    def _log_bytes(self, path: Path) -> int:
        from seglog.scan.listing import list_partition

        try:
            status = self.fs.status(path)
            if status is not None and not status.is_directory:
                return status.size
            return sum(segment.size for segment in list_partition(self.fs, path).segments)
        except (NotALogError, OSError):
            return 0  # the command reports it when its turn comes

    def how_far(self) -> str:
        """Returns how far the work came that was shown last, or "" if that was not counted."""
        last = self.displays[-1] if self.displays else None
        if last is None or not last.done:
            return ""
        from seglog_cli.progress import portion

        return portion(last.done, last.total, last.unit)


def lost_text(report: RecoveryReport) -> str:
    """Returns how much a recovery cut off, and where the log ends now."""
    from seglog.units import count_text

    did = "replaced by less" if report.replaced and not report.truncated_segments else "cut off"
    text = f"{count_text(report.truncated_bytes, 'byte')} {did}"
    if report.deleted_segments:
        text += f", {count_text(len(report.deleted_segments), 'segment')} with them"
    return f"{text}; the log ends at offset {report.log_end_offset}"


def share_freed_memory() -> None:
    """Lets all threads of the process share freed memory. Call it before threads start; it affects glibc only.

    glibc keeps the memory that a thread frees for that thread. Threads that work by turns then hold several times what
    is in use: 480 MiB instead of 210 for a round of 110 passes with eight threads, and 400 instead of 270 for a
    verification of 60 MB batches in an object store, whose library has its own threads. No command took more CPU time
    for sharing. A library leaves this setting alone; a command owns its process.
    """
    _mallopt(_M_ARENA_MAX, 1)


def return_large_blocks() -> None:
    """Lets the process give back blocks of 8 MiB or more whenever they are freed. It affects glibc only.

    Once a block of up to 32 MiB was freed, glibc takes the next ones of its size from the heap, where small ones that
    are allocated after it keep it. Manifests of backups are of that size, and read one after the other: a prune that
    wrote packs of 60 snapshots of 10,000 partitions anew took 339 MiB instead of 225, and an erasure 187 to 264, by
    chance, instead of 171 to 188.
    """
    _mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def _mallopt(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes  # few commands need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(option, value)
