"""Files and functions stay small: hard limits for all, and a ratchet on what is above the habit."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for name in ("core/seglog", "core/native", "seglog_cli") for path in (ROOT / name).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FILE_LINES = 500
FUNCTION_LINES = 70
# Functions above the habit of 40 lines may only become fewer.
HABIT_LINES = 40
ABOVE_HABIT = 15


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


def longer_functions(limit: int) -> list[str]:
    """The functions of the sources with more lines than the limit, a line each."""
    return [
        f"{path.relative_to(ROOT)}: {name} {size}" for path in SOURCES for name, size in functions(path) if size > limit
    ]


def test_no_file_is_longer_than_the_limit() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in (*SOURCES, *TESTS)}
    assert {name: size for name, size in sizes.items() if size > FILE_LINES} == {}


def test_no_function_is_longer_than_the_limit() -> None:
    assert longer_functions(FUNCTION_LINES) == []


def test_functions_above_the_habit_become_fewer_only() -> None:
    above = longer_functions(HABIT_LINES)
    assert len(above) <= ABOVE_HABIT, "\n".join(above)
