"""The kernels a second time, as plain Python: the same source, imported anew with SEGLOG_KERNELS=interpreted.

Interpreted loads and stores check every index, so a kernel that reads out of bounds fails here and not in a core
dump. Where the whole run is interpreted, both are the same code.
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
        """All modules of kernels but `arrays`, whose types are those of both."""
        names = [name for name in sys.modules if name.startswith("seglog.kernels") and not name.endswith(".arrays")]
        return {name: sys.modules.pop(name) for name in names}

    parent = sys.modules.get("seglog")
    package = getattr(parent, "kernels", None)
    compiled = own()
    before = os.environ.get("SEGLOG_KERNELS")
    os.environ["SEGLOG_KERNELS"] = "interpreted"
    try:
        return importlib.import_module(name)
    finally:
        own()
        sys.modules.update(compiled)
        if parent is not None and package is not None:
            parent.kernels = package  # type: ignore[attr-defined]
        if before is None:
            del os.environ["SEGLOG_KERNELS"]
        else:
            os.environ["SEGLOG_KERNELS"] = before


def both(module: ModuleType, name: str) -> list:
    """[compiled, interpreted] kernel `name` of a module of `seglog.kernels`."""
    return [getattr(module, name), getattr(interpreted(module.__name__.rsplit(".", 1)[1]), name)]
