"""The keyword arguments that all verbs share, and paths, tiers and targets out of what callers give."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from seglog.arguments import acting_as, described, integer, mapping, several
from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import text_of
from seglog.configuration.settings import DirectorySettings
from seglog.operations.workspace import Sources, Workspace
from seglog.remote.routing import machine_files, parse_location, require_local
from seglog.scan.listing import Target, resolve_paths
from seglog.scan.view import unfinished_runs
from seglog.storage.filesystem import FileSystem
from seglog.tiers.recognition import recognise

if TYPE_CHECKING:
    from seglog.tiers.metadata import RemoteLogs
    from seglog.tiers.partition import TierOptions
    from seglog.tiers.segments import Remark

Location = str | os.PathLike[str]

_logger = logging.getLogger("seglog")


class Surroundings(TypedDict, total=False):
    """What a verb takes from its surroundings; all of it can be left out.

    `config`: values by Kafka's key, as `--set` takes them; they come before SEGLOG_CONFIG, the environment and
    ./seglog.yaml, which count as on the command line. `config_file`: a YAML file, as `--config`. `threads`: as many
    threads at most (all cores). `clock` and `fs`: another time than now, other files than the machine's.
    """

    config: Mapping[str, object] | None
    config_file: Location | None
    threads: int
    clock: Clock
    fs: FileSystem


def workspace_of(given: Surroundings) -> Workspace:
    """The surroundings as operations take them. TypeError and ValueError name the argument."""
    known = Surroundings.__annotations__
    for name in given:
        if name not in known:
            raise TypeError(f"{name!r} is not an argument; besides a verb's own there are {', '.join(known)}")
    config = mapping("config", given.get("config"), "a mapping from Kafka's keys to values")
    fs, clock = given.get("fs"), given.get("clock")
    file, threads = given.get("config_file"), given.get("threads")
    if threads is not None and integer("threads", threads) < 1:
        raise ValueError(f"threads: {threads} is less than 1")
    return Workspace(
        machine_files() if fs is None else acting_as("fs", fs, FileSystem),
        SystemClock() if clock is None else acting_as("clock", clock, Clock),
        tuple(f"{key}={text_of(value)}" for key, value in config.items()),
        None if file is None else parse_location(file),
        threads,
    )


def local_path(location: Location) -> Path:
    """The path, of this machine; ConfigError for a URL, where something would be written."""
    path = parse_location(location)
    require_local(path)
    return path


def local_paths_of(locations: Iterable[Location]) -> list[Path]:
    """As `paths_of`, of this machine."""
    found = paths_of(locations)
    for path in found:
        require_local(path)
    return found


def paths_of(locations: Iterable[Location]) -> list[Path]:
    """The paths; TypeError where there is none, or something else."""
    found = [parse_location(location) for location in locations]
    if not found:
        raise TypeError("name at least one path: a file, a partition directory or a log directory")
    return found


def targets_of(work: Workspace, locations: Iterable[Location]) -> list[Target]:
    """What the paths name. NotALogError where there is no log."""
    return resolve_paths(work.fs, paths_of(locations))


def settings_of(work: Workspace, log_directory: Path, sources: Sources | None = None) -> DirectorySettings:
    """The configuration of a log directory's topics; what is odd about it goes to the logger `seglog`."""
    found = work.settings(log_directory, sources)
    warn(*found.resolve(None).warnings, *found.problems)
    return found


def warn(*sentences: str) -> None:
    """What the caller should know, to the logger `seglog`; an empty sentence is none."""
    for sentence in filter(None, sentences):
        _logger.warning("%s", sentence)


def warn_of_runs(work: Workspace, paths: Iterable[Path]) -> None:
    """To the logger `seglog`: in which log directories around the paths a run that changes logs is not over."""
    warn(*unfinished_runs(work.fs, paths))


def optional_path(location: Location | None) -> Path | None:
    """The path, if one is given."""
    return None if location is None else parse_location(location)


def optional_integer(name: str, value: int | None, least: int | None = None) -> int | None:
    """The integer, if one is given; TypeError that names the argument for anything else, ValueError below `least`."""
    found = None if value is None else integer(name, value)
    if found is not None and least is not None and found < least:
        raise ValueError(f"{name}: {found} is less than {least}")
    return found


def text_list(name: str, given: str | Sequence[str] | None) -> list[str] | None:
    """One text or several; None where nothing is given."""
    if given is None or isinstance(given, str):
        return None if given is None else [part.strip() for part in given.split(",")]
    found = several(name, given, "text or a list of it")
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"{name} holds text, not {described(each)}")
    return found


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
