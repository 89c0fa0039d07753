"""The doors of the engine: what it takes from the rooms around it, each imported when it is first needed.

The engine stands alone: it imports no object store and no table. Who gives it what it asks for is written here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

DOORS = {
    # opens what URLs name: () -> storage.routing.StoreFiles
    "store files": ("seglog.remote.routing", "shared_remote_files"),
    # a log's records for Arrow: (columns, topic partition, directory, records) -> pyarrow.RecordBatchReader
    "arrow reader": ("seglog.table.columns", "reader_of"),
}


@cache
def door(name: str) -> Callable[..., Any]:
    """Returns the function behind a door."""
    module, function = DOORS[name]
    opened: Callable[..., Any] = getattr(import_module(module), function)
    return opened
