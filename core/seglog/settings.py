"""Where a configuration value comes from: `--set`, the environment, a YAML file, the cluster's metadata, the default.

1. Each source becomes a layer: key → value, checked on its own, so that an impossible value is an error that
   names its file and line even where a stronger source overrides it.
2. A topic's layers are stacked, strongest first: options, environment, the file's entry for the topic (an
   exact name before patterns, of patterns the last one), the file's top level, the topic's own
   configuration in `__cluster_metadata-0`, the brokers' there.
3. The first layer that knows a key decides; its origin is kept for `seglog config show`.

Kafka has no such file: its keys and their meaning are `config.KEYS`. A broker synonym
(`log.retention.hours`) in a strong layer wins over the topic-level name in a weak one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from seglog.config import KEYS, BrokerConfig, CleanerConfig, Key, LogConfig, key_named, text_of
from seglog.errors import ConfigError
from seglog.storage.filesystem import FileSystem

CONFIG_VARIABLE = "SEGLOG_CONFIG"
FILE_NAME = "seglog.yaml"
TOPICS = "topics"
POLICY = "cleanup.policy"

_PREFIX = "SEGLOG_"
# Variables that mean something else than a configuration key.
_OTHER_VARIABLES = frozenset(
    {CONFIG_VARIABLE, "SEGLOG_JIT", "SEGLOG_CACHE_DIR", "SEGLOG_TEST_CACHE", "SEGLOG_REQUIRE_JAVA"}
)
_FILE_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in force: as parsed, as written, and where that was (`seglog.yaml:3`, `--set`, `default`, …)."""

    key: Key
    value: Any
    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A topic's configuration. `settings` has one entry for every key of Kafka's, `origin` "default" among them.

    `policy_known` is False where nobody said what the cleanup policy is: then nothing may be cleaned by it.
    `warnings` are sentences about values that a broker would refuse.
    """

    log: LogConfig
    cleaner: CleanerConfig
    broker: BrokerConfig
    settings: Mapping[str, Setting]
    warnings: tuple[str, ...]

    @property
    def policy_known(self) -> bool:
        """Whether the cleanup policy was stated anywhere."""
        return self.settings[POLICY].origin != "default"


Layer = dict[str, Setting]


@dataclass(frozen=True, slots=True)
class Settings:
    """The layers that hold for every topic. Made by `load_settings`."""

    options: Layer = field(default_factory=dict)
    environment: Layer = field(default_factory=dict)
    top_level: Layer = field(default_factory=dict)
    topics: Mapping[str, Layer] = field(default_factory=dict)
    path: Path | None = None
    warnings: tuple[str, ...] = ()

    def resolve(
        self,
        topic: str | None,
        *,
        chosen: Mapping[str, object] | None = None,
        stored: Mapping[str, tuple[str, str]] | None = None,
        stored_brokers: Mapping[str, tuple[str, str]] | None = None,
    ) -> ResolvedConfig:
        """The configuration of `topic` (None: of no topic in particular).

        `chosen` are values that options of a command give, by Kafka's key. `stored` and `stored_brokers`
        are the topic's and the brokers' values in the cluster's metadata: key → (value, where). Keys there
        that seglog does not know are passed over: they are the cluster's, not a typing error. ConfigError
        for impossible values.
        """
        stack = [
            _layer(((name, text_of(value), "option") for name, value in (chosen or {}).items())),
            self.options,
            self.environment,
            *self._matching(topic),
            self.top_level,
            _stored_layer(stored),
            _stored_layer(stored_brokers),
        ]
        found = {key.name: _first(stack, key) for key in KEYS}
        warnings = [*self.warnings, *filter(None, (item.key.warning(item.value) for item in found.values()))]
        log = LogConfig(**_fields(found, LogConfig))
        return ResolvedConfig(
            log=log,
            cleaner=CleanerConfig(**_fields(found, CleanerConfig)),
            broker=BrokerConfig(**_fields(found, BrokerConfig)),
            settings=found,
            warnings=(*warnings, *log.contradictions),
        )

    def _matching(self, topic: str | None) -> list[Layer]:
        if topic is None:
            return []
        patterns = [name for name in self.topics if fnmatch.fnmatchcase(topic, name)]
        patterns.reverse()
        patterns.sort(key=lambda name: name != topic)  # the exact name, then the patterns from the last one on
        return [self.topics[name] for name in patterns]


def load_settings(
    fs: FileSystem,
    *,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str],
    config: Path | None = None,
    working_directory: Path,
) -> Settings:
    """Reads the sources that hold for all topics.

    `overrides` are `KEY=VALUE` (`--set`); `config` is `--config`, else `SEGLOG_CONFIG`, `seglog.yaml` in
    the working directory or `$XDG_CONFIG_HOME/seglog/config.yaml` is read, the first that is there.
    ConfigError names file and line; a named file that is missing is an error.
    """
    path = _config_path(fs, environment, config, working_directory)
    top_level, topics = _read_file(fs, path) if path else ({}, {})
    variables, unknown = _environment(environment)
    return Settings(_layer(map(_override, overrides)), variables, top_level, topics, path, unknown)


def _first(stack: Sequence[Layer], key: Key) -> Setting:
    for layer in stack:
        if key.name in layer:
            return layer[key.name]
    return Setting(key, key.default, text_of(key.default), "default")


def _fields(found: Mapping[str, Setting], owner: type) -> dict[str, Any]:
    return {item.key.field: item.value for item in found.values() if item.key.owner is owner}


def _layer(values: Iterator[tuple[str, str, str]] | map[tuple[str, str, str]]) -> Layer:
    """A layer of (name, text, origin); of several names of one key the strongest counts."""
    written: dict[str, tuple[str, str]] = {name: (text, origin) for name, text, origin in values}
    layer: Layer = {}
    for name in written:
        key = key_named(name)
        strongest = next(other for other in key.names if other in written)
        text, origin = written[strongest]
        try:
            layer[key.name] = Setting(key, key.parse(text, strongest), text, origin)
        except ValueError as error:
            raise ConfigError(f"{error} ({origin})") from error
    return layer


def _stored_layer(stored: Mapping[str, tuple[str, str]] | None) -> Layer:
    known = {name for key in KEYS for name in key.names}
    return _layer((name, *value) for name, value in (stored or {}).items() if name in known)


def _override(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set takes KEY=VALUE, not {text[:64]!r}")
    key_named(name.strip())
    return name.strip(), value, "--set"


def _environment(environment: Mapping[str, str]) -> tuple[Layer, tuple[str, ...]]:
    names = {_PREFIX + name.upper().replace(".", "_"): name for key in KEYS for name in key.names}
    layer = _layer((names[name], value, name) for name, value in environment.items() if name in names)
    unknown = sorted(
        name for name in environment if name.startswith(_PREFIX) and name not in names and name not in _OTHER_VARIABLES
    )
    return layer, tuple(f"{name} is set, but names no configuration key: ignored" for name in unknown)


def _config_path(
    fs: FileSystem, environment: Mapping[str, str], config: Path | None, working_directory: Path
) -> Path | None:
    named = config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    if named is not None:
        path = working_directory / named
        if fs.status(path) is None:
            raise ConfigError("the configuration file does not exist", path)
        return path
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "/")) / ".config")
    for path in (working_directory / FILE_NAME, Path(home) / "seglog" / "config.yaml"):
        if fs.status(path) is not None:
            return path
    return None


def _read_file(fs: FileSystem, path: Path) -> tuple[Layer, dict[str, Layer]]:
    """The top level of a YAML file and its `topics`, in the order written."""
    try:
        text = fs.read_bytes(path, _FILE_LIMIT).decode()
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(error.problem or "not YAML", path, mark.line + 1 if mark else None) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"not YAML: {error}", path) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", path) from error
    if root is None:
        return {}, {}
    topics: dict[str, Layer] = {}
    values: list[tuple[yaml.Node, yaml.Node]] = []
    for name, value in _entries(path, root, "a mapping of Kafka's keys"):
        if name.value == TOPICS:
            for pattern, settings in _entries(path, value, "a mapping of topic names or patterns"):
                topics[pattern.value] = _file_layer(path, _entries(path, settings, "a mapping of keys"), topic=True)
        else:
            values.append((name, value))
    return _file_layer(path, iter(values), topic=False), topics


def _entries(path: Path, node: yaml.Node, expected: str) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{expected} is expected here", path, node.start_mark.line + 1)
    seen: dict[str, int] = {}
    for name, value in node.value:
        line = name.start_mark.line + 1
        if not isinstance(name, yaml.ScalarNode):
            raise ConfigError("a key must be plain text", path, line)
        if name.value in seen:
            raise ConfigError(f"{name.value} stands here a second time (first in line {seen[name.value]})", path, line)
        seen[name.value] = line
        yield name, value


def _file_layer(path: Path, entries: Iterator[tuple[yaml.Node, yaml.Node]], *, topic: bool) -> Layer:
    written: list[tuple[str, str, str]] = []
    for name, value in entries:
        line = name.start_mark.line + 1
        try:
            key = key_named(name.value)
            if topic and not key.topic_level:
                raise ConfigError(f"{name.value} is a broker's key: a topic cannot have its own")
            text = _text(value)
            key.parse(text, name.value)
        except (ConfigError, ValueError) as error:
            raise ConfigError(str(error), path, line) from error
        written.append((name.value, text, f"{path}:{line}"))
    return _layer(iter(written))


def _text(value: yaml.Node) -> str:
    if isinstance(value, yaml.ScalarNode):
        if value.tag == "tag:yaml.org,2002:null":
            raise ConfigError("a value is missing")
        return str(value.value)
    if isinstance(value, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in value.value):
        return ",".join(str(item.value) for item in value.value)
    raise ConfigError("a value must be text, a number or a list of these")
