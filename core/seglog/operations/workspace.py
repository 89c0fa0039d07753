"""The workspace of an operation: files, clock, threads, configuration sources, and seglog's own state.

A command makes one of its common options. The library and Spark make one of keyword arguments, which all their
functions share, and take paths, tiers and targets from the caller by the functions here.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from seglog.arguments import MOST_THREADS, acting_as, described, instance, integer, mapping, several, within
from seglog.clock import Clock, SystemClock
from seglog.configuration.keys import text_of
from seglog.configuration.precedence import Settings
from seglog.configuration.settings import DirectorySettings, load_settings
from seglog.doors import door
from seglog.errors import ArgumentError, ConfigError, NotALogError
from seglog.kafka_version import KafkaVersion
from seglog.layout import INT64_MAX
from seglog.locations import parse_location, require_local
from seglog.ordered_pool import available_threads
from seglog.progress import BytesRead
from seglog.scan.listing import Target, TargetKind
from seglog.scan.view import unfinished_runs
from seglog.storage import links
from seglog.storage.filesystem import FileSystem, write_atomically
from seglog.storage.lock import partition_path
from seglog.storage.routing import machine_files
from seglog.units import parse_duration, parse_size, parse_time

if TYPE_CHECKING:
    from seglog.cleaner.output import CleaningResult
    from seglog_stores.tiers.tiered_partition import TierOptions

Location = str | os.PathLike[str]
Keywords = TypeVar("Keywords")

_logger = logging.getLogger("seglog")

MOST_ROUNDS = 500  # of a log directory's cleaning history

# The numbers that readers of the history rely on.
_FIGURES = (
    *("time", "first_dirty_offset", "end_offset", "bytes_read", "bytes_written", "records_read", "records_written"),
    *("buffer_utilization", "index_passes", "index_seconds", "clean_seconds"),
)

Round = dict[str, Any]  # a round in the cleaning history


@dataclass(frozen=True)
class Sources:
    """Configuration from a command's own options.

    `chosen` are values by Kafka's key, None for an option that was not given. With `override_policy` the user insists
    on values that contradict the cluster's. `metadata_directory` is the log directory with the cluster's metadata.
    """

    chosen: Mapping[str, object] = field(default_factory=dict)
    override_policy: bool = False
    metadata_directory: Path | None = None


@dataclass(frozen=True)
class Workspace:
    """The files, clock, threads and configuration sources of an operation.

    `overrides` (`KEY=VALUE`) are the options --set, `config_file` is --config, `jobs` is --jobs (None: all cores).
    `named` are the paths that the user named: what they hold comes before what lies beside them.
    `environment` holds SEGLOG_CONFIG and the variables of single keys. `warn` takes sentences for the user.
    """

    fs: FileSystem = field(default_factory=machine_files)
    clock: Clock = field(default_factory=SystemClock)
    overrides: tuple[str, ...] = ()
    config_file: Path | None = None
    jobs: int | None = None
    named: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    warn: Callable[[str], None] = lambda sentence: _logger.warning("%s", sentence)

    @property
    def threads(self) -> int:
        """Number of threads that an operation may use."""
        return self.jobs or available_threads()

    def given_settings(self) -> Settings:
        """Returns the sources for every log directory. Raises ConfigError for an unknown key or a bad value."""
        return load_settings(
            self.fs,
            overrides=self.overrides,
            environment=self.environment,
            config=self.config_file,
            working_directory=working_directory(),
        )

    def settings(self, log_directory: Path, sources: Sources | None = None) -> DirectorySettings:
        """Returns the configuration of each topic in a log directory. Raises ConfigError as `given_settings` does."""
        said = sources or Sources()
        chosen = {key: value for key, value in said.chosen.items() if value is not None}
        if said.metadata_directory is not None:
            chosen["metadata.log.dir"] = links.resolve(said.metadata_directory)
        given = self.given_settings()
        return DirectorySettings(
            self.fs, log_directory, given, chosen, override_policy=said.override_policy, named=self.named
        )

    def given_options(self, arguments: Sequence[str] = ()) -> list[str]:
        """Returns --set and --config as on the command line, for the commands that messages suggest, without the keys
        that the `arguments` of such a command set anew.
        """
        anew = {argument.partition("=")[0] for argument in arguments}
        others = (override for override in self.overrides if override.partition("=")[0].strip() not in anew)
        options = [part for override in others for part in ("--set", override)]
        return [*options, *(["--config", str(self.config_file)] if self.config_file is not None else [])]


def working_directory() -> Path:
    """Returns the working directory, or `.` if it was deleted: then nothing is found in it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path()


@dataclass(frozen=True, slots=True)
class NamedLogs:
    """What was named in one log directory: `partitions` one by one, each once, and with `whole` the directory itself.

    Paths are resolved (`partition_path`).
    """

    log_directory: Path
    partitions: tuple[Path, ...]
    whole: bool


def by_log_directory(targets: Iterable[Target], no_file: str = "") -> list[NamedLogs]:
    """Groups targets by log directory, in their order. A file counts as its partition, or with `no_file` is a
    NotALogError with this text.
    """
    named: dict[Path, dict[Path, None]] = {}
    whole: set[Path] = set()
    for target in targets:
        if no_file and target.kind is TargetKind.FILE:
            raise NotALogError(target.path, no_file)
        if target.kind is TargetKind.LOG_DIRECTORY:
            log_directory = links.resolve(target.path)
            named.setdefault(log_directory, {})
            whole.add(log_directory)
        else:
            partition = partition_path(target.directory)
            named.setdefault(partition.parent, {})[partition] = None
    return [NamedLogs(path, tuple(partitions), path in whole) for path, partitions in named.items()]


def check_policy(policy: object, policies: Sequence[str], targets: Sequence[Target]) -> None:
    """Raises ArgumentError for a policy that is not one of `policies`, or that is given for a log directory."""
    if policy is None:
        return
    if policy not in policies:
        raise ArgumentError("policy", f"{policy!r} is not one of {', '.join(policies)}")
    if any(target.kind is TargetKind.LOG_DIRECTORY for target in targets):
        raise ArgumentError("policy", "only for named partitions, not for a whole log directory")


# --- what seglog remembers


class CleaningHistory:
    """Past cleaning rounds of the partitions in `log_directory`, in the file `path`, never in the log directory.

    Each log directory has one file, `cleaning/<digest of its path>.jsonl`, with a JSON object per round, newest last.
    Only the newest `MOST_ROUNDS` are kept. Only the process that holds the directory's lock writes the file. An
    unreadable line is skipped: history is a convenience and never blocks cleaning.
    """

    def __init__(self, fs: FileSystem, state: Path, log_directory: Path) -> None:
        import hashlib  # loads OpenSSL, and most commands make no history

        self._fs, self.log_directory = fs, links.resolve(log_directory)
        digest = hashlib.sha256(str(self.log_directory).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.path = state / "cleaning" / f"{digest}.jsonl"

    def rounds(self) -> list[Round]:
        """Returns the rounds in the file, oldest first. Raises OSError if it cannot be read."""
        if self._fs.status(self.path) is None:
            return []
        parsed = map(_parsed, self._fs.read_bytes(self.path).splitlines())
        return [round_ for round_ in parsed if round_ is not None]

    def add(self, results: Iterable[CleaningResult], now_ms: int) -> None:
        """Adds rounds that ended at `now_ms` (epoch milliseconds). Raises OSError if the file cannot be written."""
        new = []
        for result in results:
            facts = result.to_json()
            for name in ("segments_before", "segments_after"):
                facts[name] = {"count": len(facts[name]), "size": sum(segment["size"] for segment in facts[name])}
            new.append({"time": now_ms, "directory": str(self.log_directory), **facts})
        if new:
            kept = [*self.rounds(), *new][-MOST_ROUNDS:]
            self._fs.make_directory(self.path.parent, parents=True)
            lines = (json.dumps(round_, separators=(",", ":")) + "\n" for round_ in kept)
            write_atomically(self._fs, self.path, "".join(lines).encode())


def _parsed(line: bytes) -> Round | None:
    """Returns the round in a line of the history, or None if the line is not one."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("partition"), str):
        return None
    figures = (fields.get(name) for name in _FIGURES)
    return fields if all(isinstance(figure, int | float) and 0 <= figure < 2**63 for figure in figures) else None


# --- keyword arguments of the library and of Spark


class CommonArguments(TypedDict, total=False):
    """Keyword arguments of every function; all are optional.

    `config`: configuration values by Kafka's key, as --set takes them. They take precedence over SEGLOG_CONFIG, the
    environment and ./seglog.yaml, which count as on the command line. `config_file`: a YAML file, as --config.
    `threads`: the largest number of threads (default: all cores). `progress`: called with the number of bytes read
    since its last call, by one thread at a time. `clock`: replaces the current time. `fs`: replaces the machine's
    files.
    """

    config: Mapping[str, object] | None
    config_file: Location | None
    threads: int | None
    progress: BytesRead | None
    clock: Clock | None
    fs: FileSystem | None


def workspace_of(given: CommonArguments, named: Iterable[Path] = ()) -> Workspace:
    """Returns the workspace that the arguments describe, for an operation on the `named` paths. Raises TypeError or
    ValueError, which names the argument.
    """
    names = CommonArguments.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"{name!r} is not an argument; every function also takes {', '.join(names)}")
    config = mapping("config", given.get("config"), "a mapping from Kafka's keys to values")
    fs, clock = given.get("fs"), given.get("clock")
    file, threads = given.get("config_file"), given.get("threads")
    files = machine_files() if fs is None else acting_as("fs", fs, FileSystem)
    return Workspace(
        _counted(files, given.get("progress")),
        SystemClock() if clock is None else acting_as("clock", clock, Clock),
        tuple(f"{key}={text_of(value)}" for key, value in config.items()),
        optional_path("config_file", file),
        None if threads is None else within("threads", threads, 1, MOST_THREADS),
        tuple(named),
    )


def request_of(given: Mapping[str, Any], keywords: type[Keywords], named: Iterable[Path]) -> tuple[Workspace, Keywords]:
    """Returns the workspace and the keywords of a request, from all arguments of a verb. `named` are the paths that it
    is given. Raises as `workspace_of`."""
    own = {name: value for name, value in given.items() if name in keywords.__annotations__}
    common = {name: value for name, value in given.items() if name not in own}
    return workspace_of(cast(CommonArguments, common), named), cast(Keywords, own)


def _counted(fs: FileSystem, progress: BytesRead | None) -> FileSystem:
    if progress is None:
        return fs
    if not callable(progress):
        raise TypeError(f"progress must be a function that takes a number of bytes, not {described(progress)}")
    from seglog.storage.metered_files import GatedFileSystem, ReadMeter

    return GatedFileSystem(fs, ReadMeter(progress, lambda _what: None))


def path_of(name: str, location: Location) -> Path:
    """Returns the path. Raises TypeError or ConfigError, which names the argument, for a value that is not a path."""
    try:
        return parse_location(location)
    except (TypeError, ConfigError) as error:
        raise type(error)(f"{name}: {error}") from None


def local_path(name: str, location: Location) -> Path:
    """Returns a path of this machine, to write to. Raises ConfigError for a URL."""
    path = path_of(name, location)
    require_local(path)
    return path


def local_paths_of(locations: Iterable[Location]) -> list[Path]:
    """Returns paths of this machine, to write to. Raises ConfigError for a URL, TypeError if there is no path."""
    paths = paths_of(locations)
    for path in paths:
        require_local(path)
    return paths


def paths_of(locations: Iterable[Location]) -> list[Path]:
    """Returns the paths. Raises TypeError if there is none, or for a value that is not a path."""
    paths = [parse_location(location) for location in locations]
    if not paths:
        raise TypeError("name at least one path: a file, a partition directory or a log directory")
    return paths


def settings_of(work: Workspace, log_directory: Path, sources: Sources | None = None) -> DirectorySettings:
    """Returns the configuration of a log directory's topics, and warns of its problems."""
    settings = work.settings(log_directory, sources)
    for sentence in (*settings.resolve(None).warnings, *settings.problems, *settings.remarks):
        work.warn(sentence)
    return settings


def warn(*sentences: str) -> None:
    """Sends sentences to the logger `seglog` as warnings; skips empty ones."""
    for sentence in filter(None, sentences):
        _logger.warning("%s", sentence)


def warn_of_runs(work: Workspace, paths: Iterable[Path]) -> None:
    """Warns of log directories around the paths in which a run that changes logs is unfinished."""
    for sentence in unfinished_runs(work.fs, paths):
        work.warn(sentence)


def optional_path(name: str, location: Location | None) -> Path | None:
    """Returns the path, or None if none is given. Raises an error as `path_of` does."""
    return None if location is None else path_of(name, location)


def optional_integer(name: str, value: int | None, least: int | None = None) -> int | None:
    """Returns the integer, or None if none is given. Raises TypeError for another type, ValueError below `least`."""
    if value is None:
        return None
    if least is not None and integer(name, value) < least:
        raise ArgumentError(name, f"{value} is less than {least}")
    return within(name, value, -INT64_MAX - 1, INT64_MAX)


def optional_duration(name: str, value: int | str | None, least: int | None = None) -> int | None:
    """Returns milliseconds, from a number of them or from text such as `7d`; None if none is given."""
    return optional_integer(name, _number_of(name, value, parse_duration), least)


def optional_size(name: str, value: int | str | None, least: int | None = None) -> int | None:
    """Returns bytes, from a number of them or from text such as `1GiB`; None if none is given."""
    return optional_integer(name, _number_of(name, value, parse_size), least)


def optional_time(name: str, value: int | str | None, clock: Clock) -> int | None:
    """Returns epoch milliseconds, from a number of them or from text such as `2026-11-21` or `-1h`; None if none is
    given."""
    return optional_integer(name, _number_of(name, value, lambda text: parse_time(text, clock.now_ms)))


def optional_release(name: str, version: str | None) -> KafkaVersion | None:
    """Returns the release of Kafka that a text such as `4.3` names, or None if none is given."""
    return None if version is None else KafkaVersion.parse(instance(name, version, str, "text"))


def _number_of(name: str, value: int | str | None, parse: Callable[[str], int]) -> int | None:
    try:
        return parse(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ArgumentError(name, str(error)) from None


def text_list(name: str, given: str | Sequence[str] | None) -> list[str] | None:
    """Returns the items of a comma-separated text or of a sequence of texts, or None if none is given."""
    if given is None or isinstance(given, str):
        return None if given is None else [part.strip() for part in given.split(",")]
    texts = several(name, given, "text or a list of it")
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{name} must hold text, not {described(text)}")
    return texts


class ReadArguments(CommonArguments, total=False):
    """Keyword arguments of functions that only read; all are optional.

    The additional ones are for paths in tiered storage. `local`: the log directory with their local part. `tier_keys`:
    private key files (PEM) by key pair id; the id "" stands for every other pair. `remote_metadata`: partitions of
    `__remote_log_metadata`, or log directories that hold them. ValueError if one is given and no path is in a tier.
    """

    local: Location | None
    tier_keys: Mapping[str, Location] | None
    remote_metadata: Sequence[Location] | None


_TIER_OPTIONS = tuple(ReadArguments.__annotations__.keys() - CommonArguments.__annotations__.keys())


def looked_at(
    given: ReadArguments, locations: Iterable[Location], *, tell_of_runs: bool = True
) -> tuple[Workspace, list[Path]]:
    """Returns the workspace and the paths to read, which show paths in tiered storage as partition directories.

    Warns through the logger `seglog` about a tier when it is first read, and with `tell_of_runs` about unfinished runs
    that change logs. Raises NotALogError, OSError, and the error of a key file that cannot be read.
    """
    plain = {name: value for name, value in given.items() if name not in _TIER_OPTIONS}
    paths = paths_of(locations)
    work = workspace_of(cast(CommonArguments, plain), paths)
    if tell_of_runs:
        local = optional_path("local", given.get("local"))
        warn_of_runs(work, [*paths, *filter(None, (local,))])
    named = [name for name in _TIER_OPTIONS if given.get(name) is not None]
    options = _options(work.fs, given) if named else None
    shown = door("tiers")(work.fs, paths, lambda: options, lambda remark: warn(str(remark)))
    if shown is None:
        for name in named:
            raise ValueError(f"{name} is only for paths in tiered storage, and none of these is one")
        return work, paths
    return replace(work, fs=shown[0]), shown[1]


def tier_options(given: ReadArguments) -> tuple[Workspace, TierOptions]:
    """Returns the workspace and how tiers are read. Raises the error of a key file that cannot be read."""
    plain = {name: value for name, value in given.items() if name not in _TIER_OPTIONS}
    work = workspace_of(cast(CommonArguments, plain))
    return work, _options(work.fs, given)


def _options(fs: FileSystem, given: ReadArguments) -> TierOptions:
    keys = mapping("tier_keys", given.get("tier_keys"), "a mapping from ids of key pairs to files")
    pairs = {key_id: door("tier key")(fs, path_of("tier_keys", file)) for key_id, file in keys.items()}
    metadata, locations = None, given.get("remote_metadata")
    if locations is not None:
        named = several("remote_metadata", locations, "a list of paths")
        metadata = [path_of("remote_metadata", location) for location in named]
        if not metadata:
            raise ValueError("remote_metadata: the list is empty")
    options: TierOptions = door("tier options")(fs, optional_path("local", given.get("local")), pairs, metadata, warn)
    return options
