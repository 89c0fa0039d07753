"""Tables: plain columns that `awk` and `cut` can read, and hints for a better layout on a terminal."""

from __future__ import annotations

import re
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
    only on a wide one; `yielding` are left out one by one, in this order, until a row fits on a line. `cut`: cells that
    do not fit end with …, and only as many yielding columns are left out as leave the others readable; numbers are not
    cut. Rows that even then do not fit are lists of their cells.

    Plain text has the spare and yielding columns and never the extra ones; nothing in it is cut.
    """

    right: Sequence[int] = ()
    spare: Sequence[int] = ()
    extra: Sequence[int] = ()
    yielding: Sequence[int] = ()
    indent: int = 0
    cut: bool = False


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
    return Cell(text, short=f"{text[:16].replace('T', ' ')}Z" if text.endswith("Z") else text)


_OF_RECORD = re.compile(rb"(\s*offset=\d+ timestamp=)(\d{10,15})\b")
_OF_BATCH = re.compile(rb"(?<= )((?:base|max)_timestamp=|delete_horizon=)(\d{10,15})\b")


def with_times(data: bytes | bytearray | memoryview) -> bytes:
    """Returns lines of batches and records with their timestamps in UTC instead of milliseconds, for a terminal."""
    from seglog.units import format_time

    def shown(found: re.Match[bytes]) -> bytes:
        return found[1] + format_time(int(found[2])).encode()

    lines = []
    for line in bytes(data).splitlines(keepends=True):
        of_record = _OF_RECORD.match(line)
        if of_record:
            line = shown(of_record) + line[of_record.end() :]
        elif line.startswith(b"batch "):
            line = _OF_BATCH.sub(shown, line)
        lines.append(line)
    return b"".join(lines)
