"""Tables: plain columns that `awk` and `cut` can read, and hints for a better layout on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


class Cell(str):
    """A cell of a table; on a terminal it has a `style` of the console, and a `short` form for narrow ones."""

    __slots__ = ("short", "style")
    style: str
    short: str

    def __new__(cls, text: str, style: str = "", short: str = "") -> Self:
        made = super().__new__(cls, text)
        made.style, made.short = style, short
        return made


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns by number: `right` are right-aligned; `spare` are left out on a narrow terminal; `extra` are shown
    only on a wide one; `yielding` are left out one by one, in this order, until a row fits on a line.

    Plain text has the spare and yielding columns and never the extra ones.
    """

    right: Sequence[int] = ()
    spare: Sequence[int] = ()
    extra: Sequence[int] = ()
    yielding: Sequence[int] = ()
    indent: int = 0


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], layout: Layout) -> list[str]:
    """Returns the lines of a plain table; without rows, only the heading."""
    columns = [i for i in range(len(heading)) if i not in layout.extra]
    everything = [heading, *rows]
    widths = {i: max(len(row[i]) for row in everything) for i in columns}
    lines = []
    for row in everything:
        cells = [row[i].rjust(widths[i]) if i in layout.right else row[i].ljust(widths[i]) for i in columns]
        lines.append(" " * layout.indent + "  ".join(cells).rstrip())
    return lines


def number_cell(value: int | None) -> str:
    """Returns a number, or a dash for None."""
    return "-" if value is None else str(value)


def time_cell(timestamp: int) -> Cell:
    """Returns a time; on a narrow terminal it is shown to the minute."""
    from seglog.units import format_time

    text = format_time(timestamp)
    return Cell(text, short=text[:16].replace("T", " ") if text.endswith("Z") else text)
