"""Files and functions stay small: hard limits for all, and a ratchet on what is above the habit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for name in ("core/seglog", "core/native", "seglog_cli") for path in (ROOT / name).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FILE_LINES = 500
FUNCTION_LINES = 70
# Functions above the habit of 40 lines may only become fewer.
HABIT_LINES = 40
ABOVE_HABIT = 40


def functions(path: Path) -> list[tuple[str, int]]:
    """(name, lines of its body without the docstring) of every function in a file.

    A command's signature is its table of options, and a kernel's its columns: they do not count.
    """
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            found.append((node.name, (node.end_lineno or node.lineno) - first.lineno + 1))
    return found


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_longer_than_the_limit(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_function_is_longer_than_the_limit(path: Path) -> None:
    assert [(name, size) for name, size in functions(path) if size > FUNCTION_LINES] == []


def test_functions_above_the_habit_become_fewer_only() -> None:
    above = [
        f"{path.relative_to(ROOT)}: {name} {size}"
        for path in SOURCES
        for name, size in functions(path)
        if size > HABIT_LINES
    ]
    assert len(above) <= ABOVE_HABIT, "\n".join(above)
