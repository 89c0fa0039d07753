"""Pictures of text, at most 80 cells wide: bars in eighths of a cell, and curves in braille dots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_BAR_CELLS = 32
_LABEL_CELLS = 21
_CURVE_CELLS, _CURVE_ROWS = 72, 6
# The dots of a braille cell from the lowest to the highest, of its left and its right column (Unicode 2800).
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def bar(value: float, most: float) -> str:
    """Returns a bar in proportion to `most`; the smallest value above 0 is still seen."""
    eighths = round(8 * _BAR_CELLS * value / most) if most else 0
    whole, part = divmod(max(eighths, 1 if value else 0), 8)
    return ("█" * whole + _EIGHTHS[part]).rstrip()


def bars(title: str, rows: Iterable[tuple[str, float, str]]) -> list[str]:
    """Returns a titled chart of (label, value, text of the value), each bar from zero on; nothing without values."""
    shown = list(rows)
    most = max((value for _, value, _ in shown), default=0)
    if not most:
        return []
    lines = [f"  {title}"]
    for label, value, text in shown:
        name = label if len(label) <= _LABEL_CELLS else f"{label[: _LABEL_CELLS - 1]}…"
        lines.append(f"    {name:>{_LABEL_CELLS}} {bar(value, most):<{_BAR_CELLS}} {text}")
    return lines


def curve(title: str, values: Sequence[float], left: str, right: str, top: str) -> list[str]:
    """Returns a titled area from zero on, its height named above, its ends below; nothing without values."""
    most = max(values, default=0)
    if not most:
        return []
    columns = 2 * _CURVE_CELLS
    heights = [
        round(4 * _CURVE_ROWS * values[min(len(values) - 1, column * len(values) // columns)] / most)
        for column in range(columns)
    ]
    lines = [f"  {title}", f"    {top}"]
    for row in reversed(range(_CURVE_ROWS)):
        cells = []
        for cell in range(_CURVE_CELLS):
            dots = 0
            for side in (0, 1):
                filled = max(0, min(4, heights[2 * cell + side] - 4 * row))
                dots |= sum(_DOTS[side][:filled])
            cells.append(chr(0x2800 + dots) if dots else " ")
        lines.append(f"    {''.join(cells)}".rstrip())
    return [*lines, f"    {left}{right:>{_CURVE_CELLS - len(left)}}"]
