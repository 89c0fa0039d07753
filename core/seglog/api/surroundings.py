"""The keyword arguments that all verbs share, and paths and targets out of what callers give."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from seglog.arguments import acting_as, described, integer, mapping, several
from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import text_of
from seglog.configuration.settings import DirectorySettings
from seglog.locations import parse_location, require_local
from seglog.operations.workspace import Sources, Workspace
from seglog.remote.routing import machine_files
from seglog.scan.listing import Target, resolve_paths
from seglog.scan.view import unfinished_runs
from seglog.storage.filesystem import FileSystem

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


def optional_integer(name: str, value: int | None) -> int | None:
    """The integer, if one is given; TypeError that names the argument for anything else."""
    return None if value is None else integer(name, value)


def text_list(name: str, given: str | Sequence[str] | None) -> list[str] | None:
    """One text or several; None where nothing is given."""
    if given is None or isinstance(given, str):
        return None if given is None else [part.strip() for part in given.split(",")]
    found = several(name, given, "text or a list of it")
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"{name} holds text, not {described(each)}")
    return found
