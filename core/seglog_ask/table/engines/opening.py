"""Opens partitions as one table: finds what paths mean, and which segments there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from seglog.locations import parse_location
from seglog.model import Isolation
from seglog.scan.listing import topic_partitions
from seglog.storage.filesystem import FileSystem
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.options import OnCorrupt, ReadOptions, TierNames
from seglog_ask.table.read.source import Source
from seglog_stores.tiers.asked import shown_around


def open_source(
    fs: FileSystem,
    paths: Sequence[Path],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    on_corrupt: OnCorrupt = "fail",
    local: Path | None = None,
    tier_keys: Mapping[str, Path] | None = None,
    remote_metadata: Sequence[Path] = (),
    to_skip: str = "on_corrupt='skip'",
) -> Source:
    """Returns the partitions at the paths: partition or log directories, LOGDIR/TOPIC, single `.log` files, URLs.

    With `on_corrupt` "skip", damage and lost offsets are left out and counted. `to_skip` is what errors call that
    option. Raises the errors of `find_partitions`.
    """
    options = ReadOptions(
        paths=tuple(dict.fromkeys(str(target) for path in paths for target in _spelled_out(fs, path))),
        fail_on_data_loss=on_corrupt == "fail",
        isolation=isolation,
        on_corrupt=on_corrupt,
        tier=TierNames(local, tuple((tier_keys or {}).items()), tuple(remote_metadata)),
        to_skip=to_skip,
        to_lose=to_skip,
        with_metadata=True,
    )
    return Source(fs, options, find_partitions(fs, options))


def _spelled_out(fs: FileSystem, path: Path) -> list[Path]:
    """Returns the partition directories of LOGDIR/TOPIC, in a snapshot of a backup too, else the path itself."""
    path = parse_location(path)
    fs, path = shown_around(fs, path) or (fs, path)
    return [target.path for target in topic_partitions(fs, path)] or [path]
