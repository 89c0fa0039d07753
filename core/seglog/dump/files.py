"""Files of a log directory that are no `.log`, as rendered rows, and which files hold batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from seglog.dump.render_json import json_line, text_line
from seglog.evidence.file_rows import rows_of
from seglog.evidence.findings import Finding
from seglog.evidence.messages_07 import Row
from seglog.format.filenames import FileKind, parse_file_name
from seglog.storage.filesystem import FileSystem
from seglog.storage.links import name_of

_LINES_A_BLOCK = 8192
_LOG_KINDS = (FileKind.LOG, FileKind.METADATA_SNAPSHOT)


def is_log(path: Path) -> bool:
    """Whether the file holds batches: a `.log`, a KRaft `.checkpoint`, or a leftover of one."""
    name = parse_file_name(path.name)
    if name is not None:
        return name.kind in _LOG_KINDS
    stem = path.name.removesuffix(".deleted").removesuffix(".part")
    return stem.endswith((".log", ".checkpoint"))


def dump_file(fs: FileSystem, path: Path, as_json: bool) -> Iterator[memoryview | Finding]:
    """The rows of a small file as rendered blocks, and findings on it. UnsupportedError for an unknown name."""
    return rendered_rows(fs, path, rows_of(fs, path), as_json)


def rendered_rows(
    fs: FileSystem, path: Path, rows: Iterable[Row | Finding], as_json: bool
) -> Iterator[memoryview | Finding]:
    """Rows of a file as rendered blocks, after a line for the file itself, and the findings among them."""
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
