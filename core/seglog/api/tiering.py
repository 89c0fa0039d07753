"""Paths in tiered storage as the library takes them: what `--local`, `--tier-key` and `--remote-metadata` say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from seglog.api.surroundings import Location, Surroundings, optional_path, paths_of, warn, warn_of_runs, workspace_of
from seglog.arguments import mapping, several
from seglog.locations import parse_location
from seglog.operations.workspace import Workspace
from seglog.storage.filesystem import FileSystem
from seglog.tiers.recognition import recognise

if TYPE_CHECKING:
    from seglog.tiers.metadata import RemoteLogs
    from seglog.tiers.partition import TierOptions
    from seglog.tiers.segments import Remark


class LookingSurroundings(Surroundings, total=False):
    """What a verb that only looks takes besides, for paths in tiered storage.

    `local`: the log directory with their local part. `tier_keys`: the private key's file (PEM) by the id of the key
    pair; the id "" stands for every other one. `remote_metadata`: partitions of `__remote_log_metadata`, or log
    directories with them. ValueError where one is given and no path is a tier.
    """

    local: Location | None
    tier_keys: Mapping[str, Location] | None
    remote_metadata: Sequence[Location] | None


_TIER_OPTIONS = tuple(LookingSurroundings.__annotations__.keys() - Surroundings.__annotations__.keys())


def looked_at(
    given: LookingSurroundings, locations: Iterable[Location], *, tell_of_runs: bool = True
) -> tuple[Workspace, list[Path]]:
    """The surroundings and the paths to go on with, through which tiers are read. To the logger `seglog` goes what must
    be known about a tier, when it is first read, and that a run which changes logs is not over, unless the verb itself
    looks at that. NotALogError, OSError, and what a key that cannot be read raises.
    """
    plain = {name: value for name, value in given.items() if name not in _TIER_OPTIONS}
    work, paths = workspace_of(cast(Surroundings, plain)), paths_of(locations)
    if tell_of_runs:
        local = optional_path(given.get("local"))
        warn_of_runs(work, [*paths, *filter(None, (local,))])
    named = [name for name in _TIER_OPTIONS if given.get(name) is not None]
    options = _options(work.fs, given) if named else None
    recognised = recognise(work.fs, paths)
    if not any(found.is_tier for found in recognised):
        for name in named:
            raise ValueError(f"{name} is only for paths in tiered storage, and none of these is one")
        return work, paths
    from seglog.tiers.view import show_tiers  # with all that reads a tier

    fs, shown = show_tiers(work.fs, recognised, options, _tell)
    return replace(work, fs=fs), shown


def _options(fs: FileSystem, given: LookingSurroundings) -> TierOptions:
    from seglog.tiers.partition import TierOptions
    from seglog.tiers.segments import Keys, read_private_key

    local = given.get("local")
    keys = mapping("tier_keys", given.get("tier_keys"), "a mapping from ids of key pairs to files")
    pairs = {key_id: read_private_key(fs, parse_location(file)) for key_id, file in keys.items()}
    found = given.get("remote_metadata")
    return TierOptions(
        None if local is None else parse_location(local), Keys(pairs), None if found is None else _metadata(fs, found)
    )


def _metadata(fs: FileSystem, locations: Sequence[Location]) -> RemoteLogs:
    from seglog.tiers.metadata import read_remote_logs

    found = read_remote_logs(fs, paths_of(several("remote_metadata", locations, "a list of paths")))
    warn(*found.problems)
    if found.unreadable > len(found.problems):
        warn(f"{found.unreadable - len(found.problems)} more records or batches cannot be read")
    return found


def _tell(remark: Remark) -> None:
    warn(str(remark))
