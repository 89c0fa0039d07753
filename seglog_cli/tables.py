"""Tables: plain ones, aligned by blanks so that `awk` and `cut` work with them, and what a terminal may do better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


class Cell(str):
    """A cell of a table; on a terminal it has a `style` of the console, and a `short` form where room is scarce."""

    __slots__ = ("short", "style")
    style: str
    short: str

    def __new__(cls, text: str, style: str = "", short: str = "") -> Self:
        made = super().__new__(cls, text)
        made.style, made.short = style, short
        return made


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns by number: `right` are set to the right, `spare` go where a terminal is narrow, `extra` are there only
    where it is wide, and of `yielding` go as many as must, in this order, for a row to fit into a line. Plain text has
    the spare and the yielding ones and never the extra ones."""

    right: Sequence[int] = ()
    spare: Sequence[int] = ()
    extra: Sequence[int] = ()
    yielding: Sequence[int] = ()
    indent: int = 0


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout) -> list[str]:
    """Lines of a plain table. Without rows only the heading."""
    columns = [i for i in range(len(heading)) if i not in layout.extra]
    everything = [heading, *rows]
    widths = {i: max(len(row[i]) for row in everything) for i in columns}
    lines = []
    for row in everything:
        cells = [row[i].rjust(widths[i]) if i in layout.right else row[i].ljust(widths[i]) for i in columns]
        lines.append(" " * layout.indent + "  ".join(cells).rstrip())
    return lines


def number_cell(value: int | None) -> str:
    """A number, or a dash for what is not known."""
    return "-" if value is None else str(value)


def time_cell(timestamp: int) -> Cell:
    """A time, on a narrow terminal to the minute."""
    from seglog.units import format_time

    text = format_time(timestamp)
    return Cell(text, short=text[:16].replace("T", " ") if text.endswith("Z") else text)
