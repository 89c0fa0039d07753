"""The kernels a second time, as plain Python: same source, imported with SEGLOG_JIT=0 beside the compiled ones.

Interpreted loads and stores check every index, so a kernel that reads out of bounds fails here and not in a core
dump. Where numba is switched off for the whole run, both are the same code.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

_modules: dict[str, ModuleType] = {}


def interpreted(name: str) -> ModuleType:
    """The interpreted twin of `seglog.kernels.<name>`."""
    if name not in _modules:
        _modules[name] = _import_interpreted(f"seglog.kernels.{name}")
    return _modules[name]


def _import_interpreted(name: str) -> ModuleType:
    def own() -> dict[str, ModuleType]:
        return {key: sys.modules.pop(key) for key in list(sys.modules) if key.startswith("seglog.kernels")}

    parent = sys.modules.get("seglog")
    package = getattr(parent, "kernels", None)
    compiled = own()
    before = os.environ.get("SEGLOG_JIT")
    os.environ["SEGLOG_JIT"] = "0"
    try:
        return importlib.import_module(name)
    finally:
        own()
        sys.modules.update(compiled)
        if parent is not None and package is not None:
            parent.kernels = package  # type: ignore[attr-defined]
        if before is None:
            del os.environ["SEGLOG_JIT"]
        else:
            os.environ["SEGLOG_JIT"] = before


def both(module: ModuleType, name: str) -> list:
    """[compiled, interpreted] kernel `name` of a module of `seglog.kernels`."""
    return [getattr(module, name), getattr(interpreted(module.__name__.rsplit(".", 1)[1]), name)]
