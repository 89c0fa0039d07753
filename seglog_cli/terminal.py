"""Drawing on a terminal with rich: styles, tables that fit, panels, moving progress.

Only `console` and `progress` import this module, and only for a terminal (or for `--color always`): help and pipes do
not load rich. Names and values are escaped before they come here, and rich takes them as plain text, never as markup.
All output goes through the console's own streams.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import IO, cast

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.style import Style
from rich.table import Table
from rich.text import Text

from seglog.escaping import escaped
from seglog_cli.tables import Cell, Layout

STYLES = {
    "error": Style.parse("bold red"),
    "warning": Style.parse("yellow"),
    "good": Style.parse("green"),
    "strong": Style.parse("bold"),
    "dim": Style.parse("dim"),
    "name": Style.parse("cyan"),
    "command": Style.parse("bold"),
}
_WIDE = 120  # from this width on, a table shows all columns
_NARROW = 100  # below this width, cells have their short forms
_BAR_CELLS = 24
_BETWEEN = 2  # blanks between columns


class _Out(io.TextIOBase):
    """A text file that writes to the console's stream."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def write(self, text: str) -> int:
        self._write(text.encode("utf-8", "surrogateescape"))
        return len(text)

    def isatty(self) -> bool:
        return True


class Screen:
    """A terminal to draw on. `measured` returns its current width; without it the width never changes."""

    def __init__(
        self, write: Callable[[bytes], object], width: int, color: bool, measured: Callable[[], int] | None = None
    ) -> None:
        self.width, self._measured = width, measured
        self.rich = Console(
            file=cast("IO[str]", _Out(write)),
            force_terminal=True,
            color_system="standard" if color else None,
            no_color=not color,
            width=width,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def measure(self) -> None:
        """Fits later drawing to the current size of the terminal."""
        if self._measured is not None:
            self.width = self.rich.width = self._measured()

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout) -> None:
        """Draws a table that fits: below 100 columns short forms and fewer columns, from 120 on all columns."""
        narrow = self.width < _NARROW
        dropped = {*(layout.spare if narrow else ()), *(() if self.width >= _WIDE else layout.extra)}
        columns = [i for i in range(len(heading)) if i not in dropped]
        cells = [[_text(row[i], narrow) for i in range(len(heading))] for row in rows]
        widths = {i: max([cell_len(heading[i]), *(row[i].cell_len for row in cells)]) for i in columns}
        for i in layout.yielding:
            if i in columns and layout.indent + sum(widths[one] + _BETWEEN for one in columns) - _BETWEEN > self.width:
                columns.remove(i)
        drawn = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="bold" if heading else None)
        for i in columns:
            right = i in layout.right
            drawn.add_column(heading[i], justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in cells:
            drawn.add_row(*(row[i] for i in columns))
        self.rich.print(Padding(drawn, (0, 0, 0, layout.indent)) if layout.indent else drawn)

    def line(self, pieces: Sequence[tuple[str, str]], hang: int) -> None:
        """Draws a line of (style or "", text).

        A long line is broken between words and continues `hang` cells further in.
        """
        text = Text(overflow="fold")
        for style, piece in pieces:
            text.append(piece, STYLES.get(style))
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        if text.cell_len <= self.width:
            self.rich.print(text, soft_wrap=True)
            return
        text = text[indent:]
        first = text.wrap(self.rich, max(self.width - indent, 20))[0]
        rest = text[len(first) :]
        rest = rest[len(rest) - len(rest.plain.lstrip(" ")) :]
        others = list(rest.wrap(self.rich, max(self.width - indent - hang, 20))) if rest else []
        for part, further in ((first, 0), *((other, hang) for other in others)):
            part.rstrip()
            self.rich.print(Text(" " * (indent + further)) + part, soft_wrap=True)

    def panel(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Draws a box of (command, purpose) pairs."""
        grid = Table.grid(padding=(0, 0))
        for command, why in rows:
            grid.add_row(Text(escaped(command), style="bold", overflow="fold"))
            if why:
                grid.add_row(Padding(Text(escaped(why), style="dim"), (0, 0, 0, 2)))
        self.rich.print(Panel(grid, title=title, title_align="left", border_style="cyan", expand=False, width=None))


def _text(cell: str, narrow: bool) -> Text:
    shown = cell.short if narrow and isinstance(cell, Cell) and cell.short else cell
    style = STYLES.get(cell.style, "") if isinstance(cell, Cell) else ""
    return Text(escaped(shown), style=style)


class Moving:
    """Steps of work, redrawn in place. Drawing happens only on request: no thread, no timer."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live: Live | None = None

    def draw(self, steps: Sequence[tuple[str, float | None, str]]) -> None:
        """Draws `steps`: (title, share done or None, more text), the last one being at work."""
        self._screen.measure()
        drawn = self._rows(steps)
        if self._live is None:
            self._live = Live(
                drawn,
                console=self._screen.rich,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(drawn, refresh=True)

    def clear(self) -> None:
        """Removes the display."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _rows(self, steps: Sequence[tuple[str, float | None, str]]) -> RenderableType:
        grid = Table.grid(padding=(0, 1), expand=False)
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(self._screen.width * 2 // 5, 20))
        grid.add_column(width=min(_BAR_CELLS, self._screen.width // 8))
        grid.add_column(no_wrap=True, overflow="ellipsis")
        for title, share, text in steps:
            bar = Text("") if share is None else ProgressBar(total=1.0, completed=share)
            grid.add_row(Text(escaped(title)), bar, Text(escaped(text), style="dim" if share == 1.0 else ""))
        return grid
