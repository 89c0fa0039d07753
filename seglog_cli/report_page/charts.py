"""The pictures of the report page, as SVG. Every bar begins at zero, and every area is in proportion to its number.

Percentages place shapes and pixels place text, so that text keeps its size on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seglog_cli.progress import bytes_text as size
from seglog_cli.report_page.words import said

if TYPE_CHECKING:
    from seglog.look.report.figures import SegmentFigures
    from seglog.look.report.growth import Growth

_STRIP_WIDTH, _STRIP_HEIGHT = 160, 14
_MOST_SEGMENTS = 48  # of a strip
_SPARK_WIDTH, _SPARK_HEIGHT = 92, 20
_TILE_RATIO = 2.6  # the treemap's width to height, for the shapes of its tiles
_TREEMAP_WIDTHS = (1050, 335)  # pixels, on a wide and on a narrow screen
_LEAST_LABEL = 4  # characters of a shortened label
_STATES = {
    "clean": "k",
    "": "k-plain",
    **{name: f"k-{name}" for name in ("dirty", "young", "blocked", "due", "active")},
}


def bar(share: float, width: int = 110) -> str:
    """Returns a bar of a share (0 to 1) of its width."""
    length = max(0.0, min(1.0, share)) * width
    return f"<svg width={width} height=10 aria-hidden=true><rect class=b width={length:.1f} height=10 /></svg>"


def spark(growth: Growth | None) -> str:
    """Returns the small curve of a log's growth; nothing without one."""
    if growth is None or not growth.bytes[-1]:
        return ""
    points = _points(growth.bytes, _SPARK_WIDTH, _SPARK_HEIGHT)
    path = "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in points)
    area = f"{path}V{_SPARK_HEIGHT}H0z"
    return f'<svg width={_SPARK_WIDTH} height={_SPARK_HEIGHT} aria-hidden=true><path class=b d="{area}"/></svg>'


def _points(values: Sequence[int], width: float, height: float) -> list[tuple[float, float]]:
    most = max(values) or 1
    step = width / max(1, len(values) - 1)
    return [(number * step, height - value / most * height) for number, value in enumerate(values)]


def strip(segments: Sequence[SegmentFigures]) -> str:
    """Returns a log's segments side by side, as wide as they are large, by state. Neighbours of one state may join."""
    shown = _joined(segments)
    total = sum(length for _, length in shown)
    if not total:
        return ""
    paths: dict[str, list[str]] = {}
    x = 0.0
    for state, length in shown:
        width = length / total * _STRIP_WIDTH
        inner = max(0.6, width - 1)
        paths.setdefault(_STATES[state], []).append(f"M{x + 0.5:.1f} 1h{inner:.1f}v12h-{inner:.1f}z")
        x += width
    drawn = "".join(f'<path class={name} d="{"".join(parts)}"/>' for name, parts in paths.items())
    return f"<svg width={_STRIP_WIDTH} height={_STRIP_HEIGHT} aria-hidden=true>{drawn}</svg>"


def _joined(segments: Sequence[SegmentFigures]) -> list[tuple[str, int]]:
    found = [(one.state, one.size) for one in segments]
    if len(found) <= _MOST_SEGMENTS:
        return found
    joined: list[tuple[str, int]] = []
    for state, length in found:
        if joined and joined[-1][0] == state:
            joined[-1] = (state, joined[-1][1] + length)
        else:
            joined.append((state, length))
    return joined


def curve(growth: Growth) -> str:
    """Returns the large curve of growth. Its axes are said in words around it."""
    points = _points(growth.bytes, 1000, 100)
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    label = said(f"from {size(growth.bytes[0])} to {size(growth.bytes[-1])}")
    return (
        f'<svg class=f width="100%" height=180 viewBox="0 0 1000 100" preserveAspectRatio=none role=img'
        f' aria-label="{label}"><path class=a d="{path}V100H0z"/><path class=l d="{path}"/></svg>'
    )


def rounds(points: Sequence[tuple[float, float, str]]) -> str:
    """Returns past rounds as dots: (time as a share of the axis, buffer used, words)."""
    dots = "".join(
        f'<circle class=b r=4 cx="{100 * x:.2f}%" cy="{100 - 100 * min(1.0, y):.2f}%">'
        f"<title>{said(words)}</title></circle>"
        for x, y, words in points
    )
    return f'<svg class=f width="100%" height=120 overflow=visible role=img aria-label="Past rounds">{dots}</svg>'


def treemap(tiles: Sequence[tuple[str, int]]) -> str:
    """Returns rectangles in proportion to sizes, with names where they fit; the largest first."""
    total = sum(length for _, length in tiles)
    if not total:
        return ""
    drawn = []
    for (name, length), (x, y, width, height) in zip(tiles, squarified([length for _, length in tiles]), strict=True):
        words = f"{name}: {size(length)}, {100 * length / total:.1f} %"
        text = _labels(name, size(length), width, height * 3)
        drawn.append(
            f'<svg x="{x:.3f}%" y="{y:.3f}%" width="{width:.3f}%" height="{height:.3f}%"><title>{said(words)}</title>'
            f'<rect width="100%" height="100%"/>{text}</svg>'
        )
    return f'<svg class=t width="100%" height=300 role=img aria-label="Bytes by topic">{"".join(drawn)}</svg>'


def _labels(name: str, bytes_text: str, share: float, height: float) -> str:
    """Returns a tile's texts: its name where the wide page has room, and for a narrow one as much of its end.

    `share` is the tile's width in percent of the picture, `height` its height in pixels.
    """
    wide, narrow = (_shortened(name, share * width / 100) for width in _TREEMAP_WIDTHS)
    texts = ""
    if height > 20:
        if wide == narrow:
            texts = f"<text x=8 y=18>{said(wide)}</text>" if wide else ""
        else:
            texts = f"<text class=o x=8 y=18>{said(wide)}</text>" if wide else ""
            texts += f"<text class=s x=8 y=18>{said(narrow)}</text>" if narrow else ""
    if height > 40 and _shortened(bytes_text, share * _TREEMAP_WIDTHS[0] / 100) == bytes_text:
        fits = _shortened(bytes_text, share * _TREEMAP_WIDTHS[1] / 100) == bytes_text
        texts += f"<text{'' if fits else ' class=o'} x=8 y=34>{bytes_text}</text>"
    return texts


def _shortened(text: str, width: float) -> str:
    """Returns a text, or as much of its end as `width` pixels hold: names of topics differ at their ends."""
    room = int((width - 12) / 7)
    if len(text) <= room:
        return text
    return f"\u2026{text[1 - room :]}" if room >= _LEAST_LABEL else ""


def squarified(sizes: Sequence[int]) -> Iterator[tuple[float, float, float, float]]:
    """Yields (x, y, width, height) in percent for sizes in descending order, with tiles as square as it goes.

    Bruls, Huizing, van Wijk: Squarified Treemaps (2000).
    """
    total = sum(sizes)
    left, top, width, height = 0.0, 0.0, 100.0 * _TILE_RATIO, 100.0
    scale = width * height / total if total else 0.0
    at = 0
    while at < len(sizes):
        side = min(width, height)
        row = [max(sizes[at] * scale, 1e-9)]
        while at + len(row) < len(sizes):
            longer = [*row, max(sizes[at + len(row)] * scale, 1e-9)]
            if _worst(longer, side) > _worst(row, side):
                break
            row = longer
        thickness = sum(row) / side if side else 0.0
        offset = 0.0
        for area in row:
            length = area / thickness if thickness else 0.0
            if width >= height:
                yield left / _TILE_RATIO, top + offset, thickness / _TILE_RATIO, length
            else:
                yield (left + offset) / _TILE_RATIO, top, length / _TILE_RATIO, thickness
            offset += length
        if width >= height:
            left, width = left + thickness, width - thickness
        else:
            top, height = top + thickness, height - thickness
        at += len(row)


def _worst(row: Sequence[float], side: float) -> float:
    """Returns the worst ratio of a row's tiles along a side."""
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))
