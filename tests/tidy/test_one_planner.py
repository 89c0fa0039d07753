"""Which bytes of a segment hold a range is answered in one place (`log.places`), and nobody else asks an index."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.test_sizes import ROOT, SOURCES

ENGINE = (ROOT / "core/seglog/log", ROOT / "core/seglog/scan")
# from an offset or a time to a byte position, or the files that tell it (`log.places` asks them for everybody)
ANSWERS = frozenset(
    {"OffsetIndex", "TimeIndex", "entries_to", "find_batch", "indexed_batch", "indexed_position", "row_before"}
)


def calls(path: Path) -> Iterator[str]:
    """The calls in a file that turn offsets into byte positions, by name and line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ANSWERS:
                yield f"{path.name}:{node.lineno}: {name}"


def test_offsets_become_positions_in_the_engine_only() -> None:
    elsewhere = [call for path in SOURCES if path.parent not in ENGINE for call in calls(path)]
    assert not elsewhere


@pytest.mark.parametrize("line", ["OffsetIndex(fs, path, 0)", "segment.indexed_position(5)", "find_batch(scan, 5)"])
def test_such_a_call_is_seen(line: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(line + "\n")
    assert len(list(calls(path))) == 1
