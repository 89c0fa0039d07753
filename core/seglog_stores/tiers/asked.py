"""What commands and the library ask of tiers, through `seglog.doors`: most paths are in none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.storage import links
from seglog.storage.filesystem import FileSystem
from seglog_stores.tiers.recognition import recognise, snapshot_around

if TYPE_CHECKING:
    from seglog_stores.formats.tier_keys import PrivateKey
    from seglog_stores.tiers.tiered_partition import TierOptions
    from seglog_stores.tiers.view import OnRemark


def shown_tiers(
    fs: FileSystem, paths: Sequence[Path], options: Callable[[], TierOptions | None], on_remark: OnRemark
) -> tuple[FileSystem, list[Path]] | None:
    """Returns what `view.see_tiers` does, with its errors; None if no path is in tiered storage. `options` are asked
    for only then.
    """
    recognised = recognise(fs, paths)
    if not any(path.is_tier for path in recognised):
        return None
    from seglog_stores.tiers.view import show_tiers  # imports everything that reads a tier

    return show_tiers(fs, recognised, options(), on_remark)


def shown_around(fs: FileSystem, path: Path) -> tuple[FileSystem, Path] | None:
    """Returns a file system that shows the snapshot of a backup in which a path is, and the path there; None if it is
    in none. Raises RefusedError if the repository has no such snapshot, CorruptTierError, OSError.
    """
    snapshot = snapshot_around(fs, path)
    if snapshot is None:
        return None
    from seglog_stores.tiers.snapshots import shown_snapshot
    from seglog_stores.tiers.view import snapshot_files

    return snapshot_files(fs, shown_snapshot(fs, snapshot)), links.resolve(path)


def tier_options(
    fs: FileSystem,
    local: Path | None,
    keys: Mapping[str, PrivateKey],
    metadata: Sequence[Path] | None,
    warn: Callable[[str], None],
) -> TierOptions:
    """Returns how tiers are read: with the local parts in log directory `local`, private keys by the id of their pair,
    and the partitions of `__remote_log_metadata` at or in `metadata`.

    Warns of what cannot be read of those. Raises the errors of `metadata.read_remote_logs`.
    """
    from seglog_stores.tiers.metadata import read_remote_logs
    from seglog_stores.tiers.segments import KeyPairs
    from seglog_stores.tiers.tiered_partition import TierOptions

    logs = None if metadata is None else read_remote_logs(fs, metadata)
    if logs is not None:
        for sentence in logs.problems:
            warn(sentence)
        if logs.unreadable > len(logs.problems):
            warn(f"{logs.unreadable - len(logs.problems)} more records or batches cannot be read")
    return TierOptions(local, KeyPairs(keys), logs)
