"""The tools of the house find nothing: layers, linter, types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TOOLS = {
    "layers": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
    "ruff check": ["-m", "ruff", "check", "."],
    "ruff format": ["-m", "ruff", "format", "--check", "."],
    "mypy --strict": ["-m", "mypy"],
    "mypy --strict, of what uses the library": ["-m", "mypy", "tests/support/library_types.py"],
}


@pytest.mark.slow
def test_the_tools_find_nothing() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}
    for name, arguments in TOOLS.items():
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
