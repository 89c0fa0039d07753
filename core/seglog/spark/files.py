"""The files that the driver and the tasks read: the machine's, and what URLs lead to.

A task knows of the driver's machine nothing but what it is sent. For an object store that is the URL and
`StoreSettings`: what the options of the query say, and what the driver's environment says of stores that the options
leave open (as Spark sends the driver's AWS_* variables to executors for s3a). Where neither says anything, the
environment of the executor counts.

A process keeps what it has opened, and asks anew what is there for each plan and each task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from seglog.remote.routing import RoutingFileSystem, files_with, parse_location
from seglog.remote.settings import StoreSettings
from seglog.remote_path import RemotePath

_KEPT = 2  # each holds up to SEGLOG_REMOTE_CACHE bytes


def files_of(settings: StoreSettings) -> RoutingFileSystem:
    """What a plan or a task reads through; nothing that was listed before counts."""
    fs = _kept(settings)
    fs.forget_listings()
    return fs


_kept = lru_cache(maxsize=_KEPT)(files_with)


def sent_along(settings: StoreSettings, locations: Iterable[str | Path]) -> StoreSettings:
    """What tasks are told of the stores that `locations` lead to: `settings`, then this process's environment."""
    paths = [parse_location(one) for one in locations]
    return settings.beside(os.environ, sorted({path.scheme for path in paths if isinstance(path, RemotePath)}))
