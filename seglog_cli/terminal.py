"""Drawing on a terminal with rich: styles, tables that fit, panels, moving progress.

Only `console` and `progress` import this module, and only for a terminal (or for `--color always`): help and pipes do
not load rich. Names and values are escaped before they come here, and rich takes them as plain text, never as markup.
All output goes through the console's own streams.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, cast

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
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
_WORD = re.compile(r"\S+")
# A command of ours in a sentence, as far as its words are certainly not the sentence's: options and their values, and
# words with a digit, a dot, a slash or a quote.
_COMMAND = re.compile(r"\bseglog [a-z][a-z-]*(?: --?[a-z][\w-]*(?:[ =][^\s,;]+)?| [^\s]*[\d/.'\"$][^\s,;]*)*")
_WIDE = 120  # from this width on, a table shows all columns
_NARROW = 100  # below this width, cells have their short forms
_BAR_CELLS = 24
_BETWEEN = 2  # blanks between columns
_READABLE, _SMALLEST = 16, 6  # cells of a column that is cut: while others can be left out, and where none can


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

    def table(self, heading: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout) -> int:
        """Draws a table that fits: below 100 columns short forms and fewer columns, from 120 on all columns.

        Returns the number of columns that it has.
        """
        narrow = self.width < _NARROW
        dropped = {*(layout.spare if narrow else ()), *(() if self.width >= _WIDE else layout.extra)}
        columns = [i for i in range(len(heading)) if i not in dropped]
        cells = [[_text(row[i], narrow) for i in range(len(heading))] for row in rows]
        within = {i: max([0, *(row[i].cell_len for row in cells)]) for i in columns}
        widths = {i: max(cell_len(escaped(heading[i])), width) for i, width in within.items()}
        whole = {i: width for i, width in within.items() if i in layout.right}
        least = _cut(widths, _READABLE, whole) if layout.cut else widths
        for i in layout.yielding:
            if i in columns and layout.indent + sum(least[one] + _BETWEEN for one in columns) - _BETWEEN > self.width:
                columns.remove(i)
        if layout.cut:
            room = self.width - layout.indent - _BETWEEN * (len(columns) - 1)
            fitted = _fitted({i: widths[i] for i in columns}, room, whole)
            if fitted is None:
                return self._lists(heading, cells)
            widths = fitted
        drawn = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="bold" if heading else None)
        for i in columns:
            right = i in layout.right
            if layout.cut:
                name = Text(escaped(heading[i]))
                name.truncate(widths[i], overflow="ellipsis")
                drawn.add_column(name, justify="right" if right else "left", no_wrap=True, width=widths[i])
            else:
                drawn.add_column(heading[i], justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in cells:
            drawn.add_row(*(row[i] for i in columns))
        self.rich.print(Padding(drawn, (0, 0, 0, layout.indent)) if layout.indent else drawn)
        return len(columns)

    def _lists(self, heading: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
        """Draws each row as lines of a name and a cell."""
        names = [Text(escaped(name), style="bold") for name in heading]
        most = max(1, min(max(name.cell_len for name in names), self.width // 3))
        for number, row in enumerate(rows, 1):
            self.rich.print(Text(f"row {number}", style="dim"), soft_wrap=True)
            for name, cell in zip(names, row, strict=True):
                name.truncate(most, overflow="ellipsis", pad=True)
                line = name + Text("  ") + cell
                line.truncate(self.width, overflow="ellipsis")
                self.rich.print(line, soft_wrap=True)
        return len(heading)

    def line(self, pieces: Sequence[tuple[str, str]], hang: int) -> None:
        """Draws a line of (style or "", text).

        A long line is broken between words, but not within a command, and continues `hang` cells further in.
        """
        text, keep = Text(), _unused(pieces)
        for style, piece in pieces:
            whole = piece.replace(" ", keep) if style == "command" else _COMMAND.sub(partial(_joined, keep), piece)
            text.append(whole, STYLES.get(style))
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        for number, (start, end) in enumerate(_lines(text.plain, indent, self.width, hang, keep)):
            part = text[start:end]
            part.plain = part.plain.replace(keep, " ")
            self.rich.print(Text(" " * (indent + hang * (number > 0))) + part, soft_wrap=True)

    def panel(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Draws (command, purpose) pairs below a heading.

        A command is one line, whatever its length and without anything around it, so that it can be copied.
        """
        self.rich.print(Text(f"{title}:", style="cyan"), soft_wrap=True)
        for command, why in rows:
            self.rich.print(Text(f"  {escaped(command)}", style="bold"), soft_wrap=True)
            if why:
                self.line([("dim", f"    {escaped(why)}")], 2)


def _unused(pieces: Sequence[tuple[str, str]]) -> str:
    """Returns a character of width one that the text does not have, for blanks at which a line is not broken."""
    return next(mark for mark in map(chr, range(0xE000, 0xF8FF)) if not any(mark in text for _, text in pieces))


def _joined(keep: str, command: re.Match[str]) -> str:
    return command[0].replace(" ", keep)


def _lines(plain: str, indent: int, width: int, hang: int, keep: str) -> Iterator[tuple[int, int]]:
    """Yields where each line of a text begins and ends: broken between words, and within a word that is too long,
    but never within a command.
    """
    if cell_len(plain) <= width:
        yield indent, len(plain)
        return
    start = end = indent
    room = max(width - indent, 20)
    for word in _WORD.finditer(plain, indent):
        if cell_len(plain[start : word.end()]) <= room:
            end = word.end()
            continue
        if end > start:
            yield start, end
            room = max(width - indent - hang, 20)
        start, end = word.span()
        while keep not in word[0] and cell_len(plain[start:end]) > room:
            cut = start + 1
            while cell_len(plain[start : cut + 1]) <= room:
                cut += 1
            yield start, cut
            start, room = cut, max(width - indent - hang, 20)
    if end > start:
        yield start, end


def _cut(widths: Mapping[int, int], most: int, whole: Mapping[int, int]) -> dict[int, int]:
    """Returns widths of columns that are cut to `most`, but not below their `whole`: a number keeps its digits."""
    return {i: min(width, max(most, whole.get(i, 0))) for i, width in widths.items()}


def _fitted(widths: Mapping[int, int], room: int, whole: Mapping[int, int]) -> dict[int, int] | None:
    """Returns widths of columns that fill the room at most: the widest are cut first. None if they do not fit."""
    for most in range(max([*widths.values(), _SMALLEST]), _SMALLEST - 1, -1):
        found = _cut(widths, most, whole)
        if sum(found.values()) <= room:
            return found
    return None


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
