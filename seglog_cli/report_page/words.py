"""Text of the report page. Everything that comes from names, files or records passes through `said`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seglog.escaping import escaped
from seglog.units import format_time

NOTHING = "-"


def said(text: object) -> str:
    """Returns text for the page: controls as escapes, markup as characters."""
    return html.escape(escaped(str(text)))


def moment(timestamp: int | None) -> str:
    """Returns a time in UTC to the minute, a dash for None."""
    if timestamp is None:
        return NOTHING
    return said(format_time(timestamp)[:16].replace("T", " "))


def number(value: int | None) -> str:
    """Returns a number with separators, a dash for None."""
    return NOTHING if value is None else f"{value:,}"


def percent(share: float) -> str:
    """Returns a share of 1."""
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.1f} %"


class Cell(NamedTuple):
    """A table cell of page text; `value` is what it is sorted by."""

    text: str
    value: float | None = None
    style: str = ""


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, sorts: bool = False) -> str:
    """Returns a table of rows of page text, each named by its first cell. A head that begins with `>` is right-aligned,
    and so are its cells; one with `.` is not sorted by."""
    cells = []
    for head in heads:
        right = " class=r" if head.startswith(">") else ""
        fixed = " data-fixed" if head.startswith(".") else ""
        cells.append(f"<th scope=col{right}{fixed}>{head.lstrip('>.')}</th>")
    body = "\n".join(f"<tr>{_row(heads, row)}" for row in rows)
    mark = " data-sort" if sorts else ""
    return (
        f"<div class=w><table{mark}><caption>{caption}</caption><thead><tr>{''.join(cells)}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def _row(heads: Sequence[str], row: Sequence[str | Cell]) -> str:
    parts = [f"<th scope=row>{row[0]}</th>"]
    for head, given in zip(heads[1:], row[1:], strict=True):
        cell = given if isinstance(given, Cell) else Cell(given)
        style = "r" if head.startswith(">") else cell.style
        by = "" if cell.value is None else f" data-v={cell.value:.10g}"
        parts.append(f"<td{f' class={style}' if style else ''}{by}>{cell.text}")
    return "".join(parts)


def more(count: int, what: str = "") -> str:
    """Returns a line on rows that are not shown; nothing if there are none."""
    return f"<p class=m>{count:,} more{what}</p>" if count > 0 else ""
