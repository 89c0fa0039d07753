"""File systems over object stores: the process's, and those with settings of their own."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from seglog.storage.local import LocalFileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_stores.remote import traffic

if TYPE_CHECKING:
    from seglog_stores.remote.filesystem import RemoteFileSystem
    from seglog_stores.remote.settings import StoreSettings


def files_with(settings: StoreSettings) -> RoutingFileSystem:
    """Returns a file system with its own store settings, cache and listings. Listings stay valid until
    `forget_listings`.
    """

    def remote() -> RemoteFileSystem:
        from seglog_stores.remote.filesystem import RemoteFileSystem
        from seglog_stores.remote.limits import limits_of

        limits = limits_of(settings.over(os.environ))
        return RemoteFileSystem(
            settings=settings, limits=replace(limits, listing_s=math.inf), traffic=traffic.OF_PROCESS
        )

    return RoutingFileSystem(LocalFileSystem(), cache(remote))


def shared_remote_files() -> RemoteFileSystem:
    """Returns the process's remote file system; all its users share its cache and limits."""
    global _shared
    if _shared is None:
        from seglog_stores.remote.filesystem import RemoteFileSystem

        _shared = RemoteFileSystem(traffic=traffic.OF_PROCESS)
    return _shared


_shared: RemoteFileSystem | None = None
