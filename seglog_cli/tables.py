"""Plain tables: columns aligned by blanks, so that `awk` and `cut` can work with them."""

from __future__ import annotations

from collections.abc import Sequence


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Lines of a table; the columns in `right` are set to the right. Without rows only the heading."""
    everything = [heading, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(heading))]
    lines = []
    for row in everything:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines
