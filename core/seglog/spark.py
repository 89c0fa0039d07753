"""Distributed reading, writing and cleaning with PySpark (extra `spark`).

`session()` returns a session that knows `format("seglog")`; `configuration()` lists what it sets, and why. `clean` and
`verify` are the functions of one machine, spread over many tasks. `seglog_ask.spark` has them, and they are imported at
first use: the engine imports no Spark.
"""

from __future__ import annotations

from importlib import import_module

_HOMES = {
    "SeglogDataSource": "source",
    "Setting": "session",
    "clean": "library",
    "configuration": "session",
    "session": "session",
    "verify": "library",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'seglog.spark' has no attribute {name!r}")
    return getattr(import_module(f"seglog_ask.spark.{_HOMES[name]}"), name)
