"""The native library for a run of the tests: built first where it is out of date and what builds it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_current() -> None:
    """Does nothing where the run asks for another mode, or where the library is of these sources already."""
    asked = os.environ.get("SEGLOG_KERNELS", "native") == "native" and "SEGLOG_JIT" not in os.environ
    if asked and all(importlib.util.find_spec(tool) for tool in ("numba", "ziglang")):
        path = os.pathsep.join([str(ROOT / "core"), os.environ.get("PYTHONPATH", "")])
        subprocess.run([sys.executable, "-m", "native"], env={**os.environ, "PYTHONPATH": path}, check=True)
