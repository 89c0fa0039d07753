"""Reads configuration from `--set`, the environment, a YAML file and the cluster's metadata.

1. Each source becomes layers (key → value) that are checked on their own. So an impossible value is an error that names
   its file and line, even if a stronger source overrides it.
2. Within a source, values of a topic (`retention.ms`, or anything below `topics`) are separate from defaults for every
   topic (`log.retention.hours`, or anything at the file's top level).
3. `precedence` stacks the layers; the first with a key decides. The origin is kept for `seglog config show`.

`load_settings` reads the user's sources. `DirectorySettings` are those of one log directory, with the values in its
cluster's metadata (`metadata_directories`). Kafka has no such file; `keys.KEYS` are its keys and their meaning.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from seglog.configuration.cluster_metadata import (
    METADATA_PARTITION,
    ClusterMetadata,
    StoredValue,
    read_cluster_metadata,
)
from seglog.configuration.keys import BY_NAME, LogConfig, key_named
from seglog.configuration.precedence import Layer, ResolvedConfig, Settings, Written, layer_of
from seglog.configuration.writers import Releases, recognise
from seglog.errors import ConfigError, RefusedError, SeglogError, UntrustedLinkError
from seglog.format.checkpoint import parse_meta_properties
from seglog.format.filenames import META_PROPERTIES, PARTITION_METADATA, parse_partition_directory
from seglog.format.properties import parse_properties
from seglog.locations import parse_location
from seglog.scan.listing import Target, TargetKind, list_log_directory
from seglog.storage import links
from seglog.storage.filesystem import FileSystem, read_whole
from seglog.storage.links import name_of
from seglog.storage.trust import ROOT, reason_for_doubt

CONFIG_VARIABLE = "SEGLOG_CONFIG"
FILE_NAME = "seglog.yaml"
PROPERTIES = ".properties"

_PREFIX = "SEGLOG_"
# Variables that are not configuration keys.
OTHER_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        "SEGLOG_KERNELS",
        "SEGLOG_JIT",
        "SEGLOG_BUILD_CACHE",
        "SEGLOG_BUILD_TARGET",
        "SEGLOG_BUNDLE",
        "SEGLOG_BUNDLE_CACHE",
        "SEGLOG_COMMAND",
        "SEGLOG_TEST_CACHE",
        "SEGLOG_EFFORT",
        "SEGLOG_REQUIRE_JAVA",
        "SEGLOG_SEED",
        "SEGLOG_REMOTE_CACHE",
        "SEGLOG_REMOTE_REQUESTS",
        "SEGLOG_REMOTE_RETRIES",
        "SEGLOG_REMOTE_TIMEOUT",
    }
)
# What Kubernetes sets in every pod for a Service whose name begins with `seglog`.
_OF_A_SERVICE = re.compile(r"SEGLOG_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\w+)?)")
_ALIKE = 0.85  # of names, by difflib's measure
_FILE_LIMIT = 1 << 20
_MOST_NEIGHBOURS = 1024
_PROPERTIES_LIMIT = 1 << 16


def load_settings(
    fs: FileSystem,
    *,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str],
    config: Path | None = None,
    working_directory: Path,
) -> Settings:
    """Reads the sources that apply to all topics.

    `overrides` are `KEY=VALUE` (`--set`). The file is `config` (`--config`), else `SEGLOG_CONFIG`, else `seglog.yaml`
    in the working directory or `$XDG_CONFIG_HOME/seglog/config.yaml`; /dev/null means no file. Raises ConfigError with
    file and line, also if a named file is missing. Raises RefusedError if root finds a file that others may write and
    that `config` does not name.
    """
    path, unreachable = _config_path(fs, environment, config, working_directory)
    top_level, topics, others = _read_file(fs, path, is_named=config is not None) if path else ({}, {}, ())
    variables, unknown = _environment(environment)
    said = [_override(text) for text in overrides]
    for name, _, _ in said:
        if sum(name == other for other, _, _ in said) > 1:
            raise ConfigError(f"--set gives {name} more than once")
    options, option_defaults = _by_level(iter(said))
    own, defaults = _by_level(iter(variables))
    warnings = (*unreachable, *unknown)
    return Settings(options, own, top_level, topics, path, warnings, option_defaults, defaults, others)


def _by_level(values: Iterator[Written]) -> tuple[Layer, Layer]:
    """Separates values under a topic's key (or a key that only brokers have) from defaults under a broker's name."""
    own: list[Written] = []
    defaults: list[Written] = []
    for written in values:
        (defaults if key_named(written[0]).is_default(written[0]) else own).append(written)
    return layer_of(own), layer_of(defaults)


def _override(text: str) -> Written:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set takes KEY=VALUE, not {text[:64]!r}")
    key_named(name.strip())
    return name.strip(), value, "--set"


def _environment(environment: Mapping[str, str]) -> tuple[list[Written], tuple[str, ...]]:
    names = {_PREFIX + name.upper().replace(".", "_"): name for name in BY_NAME}
    written = [(names[name], value, name) for name, value in environment.items() if name in names]
    unknown = sorted(
        name for name in environment if name.startswith(_PREFIX) and name not in names and name not in OTHER_VARIABLES
    )
    return written, tuple(_ignored(name, names) for name in unknown if not _OF_A_SERVICE.fullmatch(name))


def _ignored(name: str, names: Collection[str]) -> str:
    from difflib import get_close_matches

    meant = get_close_matches(name, [*names, *OTHER_VARIABLES], 1, _ALIKE)
    hint = f" (did you mean {meant[0]}?)" if meant else ""
    return f"{name} is set, but no setting has this name{hint}; it is ignored"


def _config_path(
    fs: FileSystem, environment: Mapping[str, str], config: Path | None, working_directory: Path
) -> tuple[Path | None, tuple[str, ...]]:
    """Returns the file to read, if any, and a line for each place without a name that this user cannot look into."""
    named = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if named is not None:
        path = working_directory / named
        if path == Path(os.devnull):
            return None, ()
        try:
            found = fs.status(path)
        except OSError as error:  # a name that no file can have
            raise ConfigError(f"the configuration file cannot be read: {error.strerror}", path) from error
        if found is None:
            raise ConfigError("the configuration file does not exist", path)
        if found.is_directory:
            raise ConfigError("the configuration file is a directory", path)
        return path, ()
    closed: list[str] = []
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "/")) / ".config")
    for path in (working_directory / FILE_NAME, Path(home) / "seglog" / "config.yaml"):
        try:
            if fs.status(path) is not None:
                return path, tuple(closed)
        except UntrustedLinkError:
            raise
        except PermissionError as error:  # `sudo -u kafka` in root's home
            closed.append(f"{path} is not used: {error.strerror}")
    return None, tuple(closed)


def _read_text(fs: FileSystem, path: Path, *, is_named: bool) -> bytes:
    """Reads the file. It decides what is deleted, so root refuses another user's file unless it is named."""
    with fs.open(path, "r") as file:
        if os.geteuid() == ROOT and not is_named:
            for each, found in ((path, file.status()), (path.parent, fs.status(path.parent))):
                reason = "" if found is None else reason_for_doubt(found)
                if reason:
                    raise RefusedError(
                        f"root does not use the configuration {path}, which decides what is deleted: {each} {reason}."
                        f" Name it with --config {path}, use --config {os.devnull} for none, or let only root write it"
                    )
        return read_whole(file, _FILE_LIMIT)


def _read_file(fs: FileSystem, path: Path, *, is_named: bool) -> tuple[Layer, dict[str, Layer], tuple[str, ...]]:
    """Returns the top level of a YAML file, and its `topics` in file order; for a broker's server.properties (a name
    that ends with .properties) the keys that seglog has, and the names of the others.
    """
    if path.suffix == PROPERTIES:
        layer, others = _read_properties(path, _read_text(fs, path, is_named=is_named))
        return layer, {}, others
    from seglog.configuration.yaml_file import parse_yaml  # most commands find no file

    return (*parse_yaml(path, _read_text(fs, path, is_named=is_named)), ())


def _read_properties(path: Path, data: bytes) -> tuple[Layer, tuple[str, ...]]:
    """Returns the values of a broker's own file, and its other keys: a broker has many more than seglog."""
    written: list[Written] = []
    others: list[str] = []
    try:
        for name, text in parse_properties(data).items():
            if name in BY_NAME:
                key_named(name).parse(text, name)
                written.append((name, text, str(path)))
            else:
                others.append(name)
    except ValueError as error:
        raise ConfigError(str(error), path) from error
    return layer_of(written), tuple(others)


class DirectorySettings:
    """Topic and broker configuration for the partitions in `log_directory`.

    Call it with a topic to get its LogConfig (the `config_of` of LogDirectory). `chosen` are values from command
    options, by Kafka's key; `named` the paths that the user named, which come before what lies beside the directory.
    `problems` are messages about metadata that could not be read, `remarks` about its torn end. With `override_policy`
    the user accepts values that contradict the metadata.
    """

    def __init__(
        self,
        fs: FileSystem,
        log_directory: Path,
        given: Settings,
        chosen: Mapping[str, object] | None = None,
        *,
        override_policy: bool = False,
        named: Sequence[Path] = (),
    ) -> None:
        self._chosen, self._override_policy = chosen, override_policy
        broker = given.resolve(None, chosen=chosen).broker
        stated = _directory("metadata.log.dir", broker.metadata_log_dir) if broker.metadata_log_dir else None
        others = tuple(_directory("log.dirs", path) for path in broker.log_dirs)
        self._fs, self._log_directory = fs, log_directory
        answering = metadata_directories(fs, log_directory, stated, _log_directories(named), others)
        self._given = replace(given, warnings=(*given.warnings, *_rivals(log_directory, answering)))
        self.metadata_directory = answering[0] if answering else None
        self.metadata: ClusterMetadata | None = None
        self._node: dict[str, tuple[str, str]] = {}
        self._cluster: dict[str, tuple[str, str]] = {}
        self._resolved: dict[tuple[Any, ...], ResolvedConfig] = {}
        if self.metadata_directory is not None:
            self.metadata = read_cluster_metadata(fs, self.metadata_directory)
        if self.metadata is not None:
            node_id = identity_of(fs, log_directory).get("node.id", "")
            self._cluster = self._stored(self.metadata.broker_values())
            if node_id.isascii() and node_id.isdigit():
                self._node = self._stored(self.metadata.broker_values(int(node_id)))
        self.problems = () if self.metadata is None else tuple(self.metadata.problems)
        self.remarks = () if self.metadata is None else tuple(self.metadata.torn)

    def resolve(self, topic: str | None) -> ResolvedConfig:
        """Returns the configuration of a topic, or with None of the broker alone, with its origins."""
        own = {} if self.metadata is None or topic is None else self._stored(self.metadata.topic_values(topic))
        listed = self._listed(topic)
        # Nearly all of ten thousand topics have the configuration of others.
        alike = (topic is None, self._given.kind_of(topic), listed, tuple(own.items()))
        if alike not in self._resolved:
            self._resolved[alike] = self._given.resolve(
                topic,
                chosen=self._chosen,
                stored=own,
                stored_brokers=self._cluster,
                stored_node=self._node,
                listed=listed,
                override_policy=self._override_policy,
            )
        return self._resolved[alike]

    def __call__(self, topic: str) -> LogConfig:
        return self.resolve(topic).log

    @cached_property
    def writer(self) -> Releases | None:
        """The releases of Kafka that can have written the log directory, None if nothing shows it."""
        path = self._log_directory / META_PROPERTIES
        try:
            meta = parse_meta_properties(self._fs.read_bytes(path, _PROPERTIES_LIMIT), path)
            partitions = list_log_directory(self._fs, self._log_directory).live[:1]
            ids = any(self._fs.status(one.path / PARTITION_METADATA) for one in partitions)
        except (SeglogError, OSError):
            return None  # `doctor` reports it
        return recognise(meta, self.metadata, topic_ids=ids)

    @property
    def file(self) -> Path | None:
        """The configuration file that applies."""
        return self._given.path

    @property
    def other_keys(self) -> tuple[str, ...]:
        """The keys of a broker's server.properties that seglog does not have."""
        return self._given.other_keys

    @property
    def producer_expiration_ms(self) -> int:
        """How long a producer may be silent before brokers forget it."""
        return self.resolve(None).broker.producer_id_expiration_ms

    def _listed(self, topic: str | None) -> str:
        """Returns the name of the metadata that lists the topic; "" also if part of the metadata is missing."""
        metadata = self.metadata
        if metadata is None or metadata.problems or topic not in metadata.topic_ids:
            return ""
        return self._name_of(metadata.directory)

    def _stored(self, values: Mapping[str, StoredValue]) -> dict[str, tuple[str, str]]:
        return {
            key: (stored.value, f"{self._name_of(stored.path)} offset {stored.offset}")
            for key, stored in values.items()
        }

    def _name_of(self, path: Path) -> str:
        """Returns a path in the metadata relative to the log directory, or whole if it is in another one."""
        return str(path.relative_to(self._log_directory) if path.is_relative_to(self._log_directory) else path)


def topic_of(target: Target) -> str | None:
    """Returns the topic of a partition target, None for a log directory."""
    if target.kind is TargetKind.LOG_DIRECTORY:
        return None
    name = name_of(target.directory)
    found = parse_partition_directory(name)
    return name if found is None else found.topic_partition.topic


def _directory(key: str, text: str) -> Path:
    try:
        return parse_location(text)
    except SeglogError as error:
        raise ConfigError(f"{key}: {error}") from error


# --- location of the metadata


def identity_of(fs: FileSystem, log_directory: Path) -> dict[str, str]:
    """Returns `cluster.id`, `node.id`, `directory.id` … from `meta.properties`; empty if it cannot be read."""
    path = log_directory / META_PROPERTIES
    status = fs.status(path)
    if status is None or status.is_directory:
        return {}
    try:
        return parse_properties(fs.read_bytes(path, _PROPERTIES_LIMIT))
    except (ValueError, OSError, RefusedError):
        return {}  # `doctor` reports it


def differing_owner(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Returns the first of `cluster.id` and `node.id` in which the identities of two log directories differ; "" for
    those of one broker, and where neither names any."""
    return next((key for key in ("cluster.id", "node.id") if one.get(key) != other.get(key)), "")


def metadata_directories(
    fs: FileSystem, log_directory: Path, stated: Path | None, *others: Iterable[Path]
) -> Sequence[Path]:
    """Finds the log directories whose `__cluster_metadata-0` may apply to `log_directory`: one unless copies lie there.

    A broker with several `log.dirs` keeps it in only one of them (Kafka: metadata.log.dir). The search order:

    1. The configured directory (`metadata.log.dir`, `--metadata-dir`).
    2. The log directory itself.
    3. The directories that the user named, the other configured `log.dirs`, and sibling directories and those of the
       same name beside its parent (`/data1/kafka`, `/data2/kafka`), each only if the ones before have no answer. Such
       a directory must have the same cluster, the same node and another directory id in its `meta.properties`, and
       belong to the log directory's owner or root, because the metadata decides what is deleted.

    `others` are the groups of directories that come before the neighbours. Raises ConfigError if there is no metadata
    in `stated`, RefusedError if it is another cluster's.
    """
    if stated is not None:
        return [_stated(fs, log_directory, stated)]
    if _has_metadata(fs, log_directory):
        return [log_directory]
    own = identity_of(fs, log_directory)
    if not own.get("cluster.id") or not own.get("node.id"):
        return []
    for candidates in (*others, _neighbours(fs, log_directory)):
        answering = [path for path in dict.fromkeys(candidates) if _is_sibling(fs, log_directory, own, path)]
        if answering:
            return answering
    return []


def _log_directories(named: Iterable[Path]) -> Iterator[Path]:
    """Yields what may be a log directory: paths that were named, and those that hold named partitions or files."""
    for path in named:
        with contextlib.suppress(SeglogError, OSError):  # whoever works on it reports why
            place = links.resolve(path)
            yield from (place, *place.parents[:2])


def _rivals(log_directory: Path, answering: Sequence[Path]) -> Iterator[str]:
    if len(answering) > 1:
        several = ", ".join(map(str, answering))
        yield (
            f"{len(answering)} directories may have the cluster's metadata for {log_directory}, copies of each other:"
            f" {several}; the first counts, unless --metadata-dir names another one"
        )


def _stated(fs: FileSystem, log_directory: Path, stated: Path) -> Path:
    found = stated.parent if stated.name == METADATA_PARTITION else stated
    if not _has_metadata(fs, found):
        raise ConfigError(f"metadata.log.dir: there is no {METADATA_PARTITION} in {found}")
    own, theirs = (identity_of(fs, path).get("cluster.id") for path in (log_directory, found))
    if own and theirs and own != theirs:
        raise RefusedError(f"{found} is the metadata of cluster {theirs}, but {log_directory} belongs to cluster {own}")
    return found


def _has_metadata(fs: FileSystem, log_directory: Path) -> bool:
    status = fs.status(log_directory / METADATA_PARTITION)
    return status is not None and status.is_directory


def _neighbours(fs: FileSystem, log_directory: Path) -> Iterator[Path]:
    parent = log_directory.parent
    if parent != log_directory:  # a root or a bucket has no siblings
        yield from (parent / name for name in _names(fs, parent))
    if parent.parent != parent:
        yield from (parent.parent / name / log_directory.name for name in _names(fs, parent.parent))


def _names(fs: FileSystem, directory: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return fs.list(directory)[:_MOST_NEIGHBOURS]
    return []


def _is_sibling(fs: FileSystem, log_directory: Path, own: dict[str, str], path: Path) -> bool:
    try:
        if path == log_directory or not _has_metadata(fs, path):
            return False
        owners = {status.owner for status in map(fs.status, (path, path / METADATA_PARTITION)) if status is not None}
        directory = fs.status(log_directory)
    except OSError:
        return False
    if directory is None or not owners <= {directory.owner, ROOT}:
        return False
    theirs = identity_of(fs, path)
    return not differing_owner(own, theirs) and own.get("directory.id") != theirs.get("directory.id")
