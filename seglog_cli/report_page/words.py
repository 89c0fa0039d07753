"""Text of the report page. Everything that comes from names, files or records passes through `said`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

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


def cell(text: str, *, value: float | None = None, right: bool = False) -> str:
    """Returns a table cell of page text; `value` is what it is sorted by."""
    by = "" if value is None else f" data-v={value:.10g}"
    return f"<td{' class=r' if right else ''}{by}>{text}"


def table(caption: str, heads: Sequence[str], rows: Iterable[str], *, sorts: bool = False) -> str:
    """Returns a table of rows that are page text already. A head that begins with `>` is right-aligned, one with `.`
    is not sorted by."""
    cells = []
    for head in heads:
        right = " class=r" if head.startswith(">") else ""
        fixed = " data-fixed" if head.startswith(".") else ""
        cells.append(f"<th scope=col{right}{fixed}>{head.lstrip('>.')}</th>")
    body = "\n".join(f"<tr>{row}" for row in rows)
    mark = " data-sort" if sorts else ""
    return (
        f"<div class=w><table{mark}><caption>{caption}</caption><thead><tr>{''.join(cells)}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def row_head(text: str) -> str:
    """Returns the cell that names a row."""
    return f"<th scope=row>{text}</th>"
