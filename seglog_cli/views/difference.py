"""Differences for people: where, in which copies, and which one is right."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seglog.units import count_text
from seglog_cli.console import Console

if TYPE_CHECKING:
    from seglog.inspect.diff import Difference


def show_difference(console: Console, found: Difference, partition: str, copies: Sequence[str]) -> None:
    """One line: JSON, or text."""
    if console.as_json:
        row = found.as_dict(partition, copies)
        if found.key is not None:
            row.update(key_fields(found.key))
        console.json(row)
        return
    kind = console.styled(found.kind, "warning")
    what = partition if not found.file else f"{partition}/{found.file}"
    where = _offsets(found) if found.level != "bytes" else ""
    key = "" if found.key is None else f" key {found.key.decode('utf-8', 'backslashreplace')!r}"
    missing = [name for name, has in zip(copies, found.has, strict=True) if not has]
    lacks = f"; not in {', '.join(missing)}" if missing and len(missing) < len(copies) else ""
    right = "" if not found.right else f"; right: {', '.join(copies[i] for i in found.right)}"
    console.line(f"{kind} {what}{key}{where}: {found.message}{lacks}{right}")


def key_fields(key: bytes) -> dict[str, str]:
    """`key` when it is text, else `key_b64`."""
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_b64": base64.b64encode(key).decode()}


def show_diff_summary(console: Console, partitions: int, shown: int, cut: int, exit_code: int) -> None:
    """How much was compared, how many differences were shown, and of how many partitions there are more."""
    if console.as_json:
        counts = {"partitions": partitions, "differences": shown, "partitions_with_more": cut}
        console.json({"type": "summary", "exit_code": exit_code, **counts})
        return
    verdict = console.styled(count_text(shown, "difference"), "warning") if shown or cut else ""
    verdict = verdict or console.styled("no difference", "good")
    more = f" shown; there are more in {count_text(cut, 'partition')} (--limit)" if cut else ""
    console.line(f"{count_text(partitions, 'partition')} compared: {verdict}{more}")


def _offsets(found: Difference) -> str:
    if found.offsets:
        each = ", ".join("none" if offset is None else str(offset) for offset in found.offsets)
        return f" offsets {each}"
    if found.first_offset is None:
        return ""
    if found.last_offset is None:
        return f" from offset {found.first_offset}"
    batches = "" if found.count == 1 else f" ({count_text(found.count, 'batch')})"
    return f" offsets {found.first_offset} to {found.last_offset}{batches}"
