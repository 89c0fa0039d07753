"""Renders the rows of files that hold no batches (indexes, snapshots, checkpoints) as lines of JSON or text.

Batches and records have a kernel for that (`kernels.render`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seglog.escaping import escaped, json_text, json_value
from seglog.format.filenames import FileKind, parse_file_name
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of
from seglog.verification.file_rows import rows_of
from seglog.verification.findings import Finding
from seglog.verification.messages_07 import Row

_LINES_A_BLOCK = 8192
_LOG_KINDS = (FileKind.LOG, FileKind.METADATA_SNAPSHOT)


def is_log(path: Path) -> bool:
    """True if the file holds batches: a `.log`, a KRaft `.checkpoint`, or a leftover of one."""
    name = parse_file_name(path.name)
    if name is not None:
        return name.kind in _LOG_KINDS
    stem = path.name.removesuffix(".deleted").removesuffix(".part")
    return stem.endswith((".log", ".checkpoint"))


def json_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Returns one JSON object and a line feed, `type` first; keeps text beyond ASCII as it is."""
    return json_text({"type": kind, **fields}).encode() + b"\n"


def text_line(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Returns `kind name=value …` and a line feed; text that is not a single plain word is quoted."""
    words = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    return f"{kind} {words}\n".encode()


def _value(value: Any) -> str:
    if isinstance(value, str) and value and not any(c.isspace() or c in '"\\=' or not c.isprintable() for c in value):
        return value
    return escaped(json_value(value))


def dump_file(fs: FileSystem, path: Path, as_json: bool) -> Iterator[memoryview | Finding]:
    """Yields a small file's rows as rendered blocks, and its findings. Raises UnsupportedError for an unknown name."""
    return rendered_rows(fs, path, rows_of(fs, path), as_json)


def rendered_rows(
    fs: FileSystem, path: Path, rows: Iterable[Row | Finding], as_json: bool
) -> Iterator[memoryview | Finding]:
    """Yields a file's rows as rendered blocks (text begins with a line for the file) and the findings among them."""
    partition = name_of(path.parent)
    if not as_json:
        status = fs.status(path)
        yield memoryview(text_line("file", {"path": str(path), "size": 0 if status is None else status.size}))
    lines: list[bytes] = []
    for row in rows:
        if isinstance(row, Finding):
            if lines:
                yield memoryview(b"".join(lines))
                lines = []
            yield row
            continue
        kind, fields = row
        if as_json:
            lines.append(json_line(kind, {"partition": partition, "file": path.name, **fields}))
        else:
            lines.append(text_line(kind, fields))
        if len(lines) == _LINES_A_BLOCK:
            yield memoryview(b"".join(lines))
            lines = []
    if lines:
        yield memoryview(b"".join(lines))
