"""`seglog top`: partitions under watch, beside a running broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from seglog.escaping import escaped
from seglog.units import count_text
from seglog_cli.failures import UsageError
from seglog_cli.options import MetadataDirectory, argument, command, duration_option, flag, one_of, option
from seglog_cli.progress import bytes_text
from seglog_cli.session import Session
from seglog_cli.tables import Layout
from seglog_cli.views.watching import COLUMNS, NAMED, SORTS, fitting, partitions_table, segments_table

if TYPE_CHECKING:
    from seglog.configuration.settings import DirectorySettings
    from seglog.look.report.figures import PartitionFigures
    from seglog.look.report.partition_figures import Surrounding
    from seglog.look.report.watch import Watch, WatchedPartition
    from seglog_cli.terminal import Screen

_DETAIL_SECONDS = 0.012  # of CPU time at each look, for details that are old
_FIRST_SECONDS = 0.1  # the same, for rows on the screen that have none yet
_SORT_DETAIL_SECONDS = 0.2  # where all partitions must be known because they are sorted by a detail
_SOON_SECONDS = 0.02  # the wait while rows on the screen lack details
_CHECKPOINTS_SECONDS = 5  # after so long, the checkpoints of a log directory are read again
_PLAIN_ROWS = 40
_HELP = "s sort  r reverse  / filter  ↑↓ enter segments  p pause  q quit"


@command()
def run(
    session: Session,
    paths: Annotated[
        list[Path] | None,
        argument("PATH", "Partition directories or log directories of this machine (default: the current directory)."),
    ] = None,
    every: Annotated[int, duration_option("--every", "Look again after this time (default: 2s).", least=100)] = 2000,
    sort: Annotated[
        str, option("--sort", "|".join(SORTS), "Sort by this column, from the largest down; names from a to z.")
    ] = "size",
    once: Annotated[bool, flag("--once", "Look twice, --every apart, show one frame, and end.")] = False,
    metadata_dir: MetadataDirectory = None,
) -> int:
    """Watches partitions: sizes, growth, compaction, retention.

    The display is redrawn every two seconds, beside a running broker if need be. Only file names, sizes, indexes,
    snapshots and checkpoints are read, nothing is locked, and access times stay (for root and the owner of the files).

    DIRTY is the share of dirty bytes. CLEANER tells what a broker's cleaner would do: clean (nothing to do), waiting
    (not dirty enough), young (min.compaction.lag.ms), cleanable, or blocked (a transaction was open when the newest
    snapshot was written). DUE IN is when retention deletes next. NEWEST is the age of the newest record. A dash stands
    for nothing, … for what is not known yet: details come for the rows on the screen, and for all others when they
    are sorted by.

    Keys: s sorts by the next column, r reverses, / filters by name, the arrows select, Enter shows a partition's
    segments, Escape goes back, p pauses, q ends.

    With --once, with --json, or where input or output is not a terminal, one frame is shown; growth is measured over
    --every.

    Examples:
      seglog top .
      seglog top --once --sort newest customers-0 orders-none-0
      seglog top --json --every 100ms .
    """
    one_of("--sort", sort, tuple(SORTS))
    watch = _watch(session, session.paths_or_here(paths), metadata_dir)
    screen = session.console.screen
    watch.look()
    view = View(watch, sort, session)
    if once or session.as_json or screen is None or not sys.stdin.isatty():
        session.clock.sleep(every / 1000)
        watch.look()
        view.show_once()
        return 0
    view.run(screen, every / 1000)
    return 0


def _watch(session: Session, paths: Sequence[Path], metadata_dir: Path | None) -> Watch:
    """Returns the watch over the paths. Raises NotALogError for a path that is not a log, UsageError for a file."""
    from seglog.format.filenames import parse_topic_partition
    from seglog.look.report.watch import Watch
    from seglog.operations.workspace import by_log_directory
    from seglog.scan.listing import TargetKind, resolve_paths

    targets = resolve_paths(session.fs, paths)
    for target in targets:
        if target.kind is TargetKind.FILE:
            raise UsageError(f"{target.path}: a file; name its partition, {target.path.absolute().parent}")
    places = by_log_directory(targets)
    named = [
        (place.log_directory, None if place.whole else [path.name for path in place.partitions]) for place in places
    ]
    detailed = _Details(session, metadata_dir)
    return Watch(named, lambda name: parse_topic_partition(name) is not None, detailed, session.clock)


class _Details:
    """Gathers the details of a partition. The configuration of a log directory is read when it is first needed."""

    def __init__(self, session: Session, metadata_dir: Path | None) -> None:
        from seglog.storage.untouched import UntouchedFileSystem

        self._session, self._metadata_dir = session.looking(UntouchedFileSystem()), metadata_dir
        self._around: dict[str, tuple[float, Surrounding]] = {}
        self._settings: dict[str, DirectorySettings] = {}

    def __call__(self, partition: WatchedPartition) -> PartitionFigures | None:
        from seglog.operations.watch import details

        return details(self._session.fs, partition, self._surroundings(partition.directory))

    def _surroundings(self, directory: str) -> Surrounding:
        """The checkpoints of a log directory, read anew after some seconds, and its configuration, read once."""
        from seglog.operations.watch import surroundings
        from seglog.operations.workspace import Sources

        session, now = self._session, self._session.clock.monotonic()
        read, around = self._around.get(directory, (0.0, None))
        if around is None or now - read > _CHECKPOINTS_SECONDS:
            if directory not in self._settings:
                sources = Sources(metadata_directory=self._metadata_dir)
                self._settings[directory] = session.config_of(Path(directory), sources, tell=False)
            around = surroundings(session.fs, Path(directory), self._settings[directory], session.clock.now_ms())
            self._around[directory] = now, around
        return around


@dataclass
class View:
    """What of a watch is on the screen, and what keys do to it."""

    watch: Watch
    sort: str
    session: Session
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    paused: bool = False
    selected: str = ""
    first: int = 0  # the first row on the screen
    drilled: bool = False
    segment: int = 0  # the first segment on the screen
    unknown: int = 0  # partitions that are not sorted in yet
    lacking: int = 0  # rows on the screen without details
    rows: int = 20

    def ordered(self) -> list[WatchedPartition]:
        """The partitions that pass the filter, sorted."""
        part = self.filter.casefold()
        partitions = [partition for partition in self.watch.partitions if part in partition.name.casefold()]
        down = (self.sort != NAMED.name) != self.reverse
        partitions.sort(key=NAMED.key)
        return sorted(partitions, key=SORTS[self.sort].key, reverse=down)

    def show_once(self) -> None:
        """Writes one frame: JSON lines, or a table of all partitions that fit a page."""
        self.watch.detail(self.watch.partitions, float("inf"))
        ordered, console = self.ordered(), self.session.console
        if console.as_json:
            for partition in ordered:
                console.json(_record(partition))
            size = sum(partition.bytes for partition in ordered)
            console.json({"type": "summary", "partitions": len(ordered), "bytes": size, "growth": self._growth()})
            return
        now_ms = self.session.clock.now_ms()
        listed = ordered if console.screen is None else ordered[:_PLAIN_ROWS]
        heading = (NAMED.heading, *(column.heading for column in COLUMNS))
        rows = [(partition.name, *(column.text(partition, now_ms) for column in COLUMNS)) for partition in listed]
        right = [number for number, column in enumerate(COLUMNS, 1) if column.right]
        wide = [number for number, column in enumerate(COLUMNS, 1) if column.wide]
        console.table(heading, rows, Layout(right=right, yielding=tuple(wide)))
        if len(listed) < len(ordered):
            console.message(f"{len(ordered) - len(listed)} more, which a file or a pipe gets")

    def run(self, screen: Screen, seconds: float) -> None:
        """Draws and reads keys until q. The screen's former contents come back at the end."""
        from rich.live import Live

        from seglog_cli.keys import REDRAW, Keyboard

        live = Live(console=screen.rich, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        with Keyboard(live.stop, live.start) as keys:
            live.start()
            try:
                self._draw(live, screen)  # at once, with what names and sizes tell
                next_look, fresh = time.monotonic() + seconds, True
                while True:
                    if time.monotonic() >= next_look and not self.paused:
                        self.watch.look()
                        next_look, fresh = time.monotonic() + seconds, True
                    self._detail(fresh)
                    fresh = False
                    self._draw(live, screen)
                    wait = seconds if self.paused else next_look - time.monotonic()
                    key = keys.read(_SOON_SECONDS if self.lacking else wait)
                    if key and key != REDRAW and self._pressed(key):
                        return
            finally:
                live.stop()

    def _detail(self, fresh: bool) -> None:
        """Gathers details of rows on the screen; after a `fresh` look those that are old, too."""
        ordered = self.ordered()
        visible = ordered[self.first : self.first + self.rows]
        self.lacking = self.watch.detail(
            (partition for partition in visible if partition.details is None), _FIRST_SECONDS
        )
        if not fresh:
            return
        self.watch.detail(visible, _DETAIL_SECONDS)
        if SORTS[self.sort].detailed:
            self.unknown = self.watch.detail(
                (partition for partition in ordered if partition.details is None), _SORT_DETAIL_SECONDS
            )
        else:
            self.unknown = 0

    def _draw(self, live: Any, screen: Screen) -> None:
        import shutil

        from rich.console import Group
        from rich.text import Text

        width, height = shutil.get_terminal_size()
        screen.rich.size = screen.rich.size.__class__(width, height)
        self.rows = max(1, height - 4)
        ordered, now_ms = self.ordered(), self.session.clock.now_ms()
        if ordered and self.selected not in {partition.path for partition in ordered}:
            self.selected = ordered[0].path
        self._follow(ordered)
        chosen = next((partition for partition in ordered if partition.path == self.selected), None)
        if self.drilled and chosen is not None:
            self.segment = max(0, min(self.segment, len(chosen.segments) - self.rows))
            table = segments_table(chosen, self.segment, self.rows, width, now_ms)
        else:
            visible_rows = ordered[self.first : self.first + self.rows]
            table = partitions_table(visible_rows, self.sort, self.reverse, self.selected, width, now_ms)
        head = Text(self._headline(ordered, chosen), style="bold", no_wrap=True, overflow="ellipsis")
        foot = Text(self._footline(len(ordered)), style="dim", no_wrap=True, overflow="ellipsis")
        live.update(Group(head, Text(""), table, foot), refresh=True)

    def _follow(self, ordered: Sequence[WatchedPartition]) -> None:
        """Keeps the selected row on the screen."""
        at = next((number for number, partition in enumerate(ordered) if partition.path == self.selected), 0)
        self.first = max(0, min(self.first, len(ordered) - self.rows))
        if at < self.first:
            self.first = at
        elif at >= self.first + self.rows:
            self.first = at - self.rows + 1

    def _headline(self, ordered: Sequence[WatchedPartition], chosen: WatchedPartition | None) -> str:
        if self.drilled and chosen is not None:
            held = count_text(len(chosen.segments), "segment", ",")
            return f"{escaped(chosen.name)}: {held}, {bytes_text(chosen.bytes)}"
        size = sum(partition.bytes for partition in ordered)
        growth = self._growth()
        words = [count_text(len(ordered), "partition", ","), bytes_text(size)]
        words += [] if growth is None else [f"{'+' if growth >= 0 else ''}{bytes_text(round(growth))}/s"]
        words += [f"filter {escaped(self.filter)}"] if self.filter and not self.typing else []
        words += [f"{self.unknown:,} not sorted in yet"] if self.unknown else []
        words += ["paused"] if self.paused else []
        return ", ".join(words)

    def _growth(self) -> float | None:
        grown = [partition.growth for partition in self.watch.partitions if partition.growth is not None]
        return sum(grown) if grown else None

    def _footline(self, count: int) -> str:
        if self.typing:
            return f"/{escaped(self.filter)}▏"
        if self.drilled:
            return "↑↓ scroll  escape back  p pause  q quit"
        last = min(count, self.first + self.rows)
        return f"{self.first + 1 if count else 0}-{last} of {count:,}  {_HELP}"

    def _pressed(self, key: str) -> bool:
        """Does what a key asks for; returns True to end."""
        if self.typing:
            self._typed(key)
            return False
        if key == "q":
            return True
        action = self._actions.get(key)
        if action is not None:
            action()
        return False

    @property
    def _actions(self) -> dict[str, Callable[[], None]]:
        return {
            "s": lambda: self._sort_by(1),
            "S": lambda: self._sort_by(-1),
            "r": lambda: setattr(self, "reverse", not self.reverse),
            "/": lambda: setattr(self, "typing", True),
            "p": lambda: setattr(self, "paused", not self.paused),
            " ": lambda: setattr(self, "paused", not self.paused),
            "up": lambda: self._move(-1),
            "k": lambda: self._move(-1),
            "down": lambda: self._move(1),
            "j": lambda: self._move(1),
            "page-up": lambda: self._move(-self.rows),
            "page-down": lambda: self._move(self.rows),
            "home": lambda: self._move(-(1 << 40)),
            "end": lambda: self._move(1 << 40),
            "enter": lambda: self._drill(True),
            "right": lambda: self._drill(True),
            "escape": lambda: self._drill(False),
            "left": lambda: self._drill(False),
        }

    def _typed(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter += key
        self.first = 0

    def _sort_by(self, step: int) -> None:
        import shutil

        names = [NAMED.name, *(column.name for column in fitting(shutil.get_terminal_size().columns))]
        at = names.index(self.sort) if self.sort in names else 0
        self.sort, self.first = names[(at + step) % len(names)], 0
        self.reverse = False

    def _move(self, step: int) -> None:
        if self.drilled:
            self.segment = max(0, self.segment + step)
            return
        ordered = self.ordered()
        at = next((number for number, partition in enumerate(ordered) if partition.path == self.selected), 0)
        if ordered:
            self.selected = ordered[max(0, min(len(ordered) - 1, at + step))].path

    def _drill(self, down: bool) -> None:
        if not down and not self.drilled:
            self.filter = ""
        self.drilled, self.segment = down, 0


def _record(partition: WatchedPartition) -> dict[str, Any]:
    """The JSON line of a partition: the growth of this frame, and the figures that `report` has."""
    fields = (
        {} if partition.details is None else {k: v for k, v in partition.details.as_dict().items() if k != "growth"}
    )
    return {
        **fields,
        "type": "partition",
        "partition": partition.name,
        "directory": partition.directory,
        "bytes": partition.bytes,
        "growth_per_second": partition.growth,
        "modified": partition.modified_ms,
        "problem": partition.problem,
    }
