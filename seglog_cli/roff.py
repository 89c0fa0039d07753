"""The part of roff that the manual pages need. No page is written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_INLINE = re.compile(r"`([^`]+)`|\*\*?(?=\S)([^*]+)\*\*?|\[([^\]]+)\]\([^)]+\)")
_ITEM = re.compile(r"(?:[-*]|(\d+\.)) +(.*)")


def escaped(text: str) -> str:
    """Escapes text for roff: backslashes, hyphens, and a dot or quote at the start of a line."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    safe = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in safe)
    return "\n".join("\\&" + line if line.startswith((".", "\\(aq")) else line for line in safe.split("\n"))


def inline(text: str) -> str:
    """Converts prose with `code`, **strong** and [links](…): the first two become bold, a link becomes its words."""
    parts, at = [], 0
    for match in _INLINE.finditer(text):
        parts.append(escaped(text[at : match.start()]))
        bold = match[1] or match[2]
        parts.append(f"\\fB{escaped(bold)}\\fR" if bold else escaped(match[3]))
        at = match.end()
    return "".join(parts) + escaped(text[at:])


def title(name: str, section: int, version: str) -> str:
    """Returns the first line of a page."""
    return f'.TH {name.upper()} {section} "" "seglog {version}" "seglog manual"'


def section(heading: str, *lines: str) -> list[str]:
    """Returns a section: its heading and its lines."""
    return [f'.SH "{heading}"', *lines]


def paragraph(text: str) -> list[str]:
    """Returns prose as a paragraph; text with indented lines keeps its lines."""
    if any(line[:1].isspace() for line in text.splitlines()):
        return literal(text.splitlines())
    return [".PP", inline(" ".join(text.split()))]


def literal(lines: Iterable[str]) -> list[str]:
    """Returns lines that are shown as they are."""
    return [".PP", ".nf", *(escaped(line) or "\\&" for line in lines), ".fi"]


def terms(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a list of words and their meanings."""
    lines: list[str] = []
    for word, meaning in pairs:
        lines += [".TP", f"\\fB{escaped(word)}\\fR", inline(meaning)]
    return lines


def of_markdown(text: str) -> list[str]:
    """Converts Markdown as in `core/FORMAT.md`: headings, prose, lists, tables, fenced blocks; drops the title."""
    lines: list[str] = []
    for block in _blocks(text):
        first = block[0]
        if first.startswith("```"):
            lines += literal(block[1:-1])
        elif first.startswith("## "):
            lines.append(f'.SH "{first[3:].upper()}"')
        elif first.startswith("### "):
            lines.append(f'.SS "{first[4:]}"')
        elif first.startswith("|"):
            lines += literal(_table(block))
        elif _ITEM.match(first):
            for label, item in _items(block):
                lines += [f".IP {label} 4" if label else ".IP \\(bu 2", inline(item)]
        elif not first.startswith("# "):
            lines += [".PP", inline(" ".join(" ".join(block).split()))]
    return lines


def _blocks(text: str) -> list[list[str]]:
    """Splits text into blocks: paragraphs, fenced blocks with their blank lines, and headings."""
    blocks: list[list[str]] = []
    block: list[str] = []
    fenced = False
    for line in [*text.splitlines(), ""]:
        heading = line.startswith("#") and not fenced
        if (not line.strip() and not fenced) or heading:
            if block:
                blocks.append(block)
            block = []
            if heading:
                blocks.append([line])
            continue
        block.append(line)
        if line.startswith("```"):
            fenced = not fenced
            if not fenced:
                blocks.append(block)
                block = []
    return blocks


def _items(block: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the items of a list: the number, or "" for a bullet, and the text."""
    items: list[tuple[str, str]] = []
    for line in block:
        match = _ITEM.match(line)
        if match:
            items.append((match[1] or "", match[2]))
        else:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
    return items


def _table(block: Sequence[str]) -> list[str]:
    """Returns a table in aligned columns, without its rule."""
    rows = [[cell.strip().replace("`", "") for cell in line.strip().strip("|").split(" | ")] for line in block]
    rows = [row for row in rows if not all(set(cell) <= set("-:|") for cell in row)]
    widths = [max(len(row[i]) if i < len(row) else 0 for row in rows) for i in range(max(map(len, rows)))]
    return ["  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows]
