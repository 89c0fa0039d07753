"""Which of several sources decides a configuration key, and where that goes against the cluster.

Kafka's rule is kept for every key that a topic can have: a topic's own value beats every broker's default, wherever
either was written. Strongest first:

| rank | what is said of the topic itself | rank | what is said of every topic |
|---|---|---|---|
| 1 | an option of the command (`--policy`, `--retention-ms`) | 6 | the metadata's value for this broker |
| 2 | `--set`, the environment, by the topic's key (`retention.ms`) | 7 | the metadata's value for all brokers |
| 3 | the file's entry for the topic | 8 | `--set`, the environment, by a broker's name (`log.retention.hours`) |
| 4 | the topic's own value in the cluster's metadata | 9 | the file's top level |
| 5 | what Kafka itself gives its own topics | 10 | Kafka's default |

Ranks 8 and 9 stand for a broker's server.properties, which dynamic values (6, 7) beat (Kafka: DynamicBrokerConfig,
KafkaConfig.extractLogConfigMap, ServerTopicConfigSynonyms). Keys that only a broker has (`log.cleaner.threads`) concern
the run at hand: options, environment and file come before the metadata there.

Ranks 1 to 3 may say what the cluster denies. Where following them lets more records go than the cluster's own value
would, that is a `Contradiction`, which is shown. Where it could cost the last value of a key, or records that are not
due, whoever deletes or cleans refuses it unless the user insists (`--override-policy`).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.configuration.keys import (
    COMPACT,
    DELETE,
    KEYS,
    BrokerConfig,
    CleanerConfig,
    Key,
    LogConfig,
    key_named,
    text_of,
)
from seglog.errors import ConfigError
from seglog.remote.traffic import Prices

POLICY = "cleanup.policy"
DEFAULT = "default"
OVERRIDE_OPTION = "--override-policy"

_KAFKAS_OWN = "Kafka's own topic"
_COMPACTED = {POLICY: COMPACT}
_KEYS_BY_NAME = {name: key for key in KEYS for name in key.names}
# What brokers create their own topics with (Kafka: GroupCoordinatorConfig, TransactionLogConfig,
# ShareCoordinatorConfig, TopicBasedRemoteLogMetadataManager).
KAFKAS_OWN_TOPICS: Mapping[str, Mapping[str, str]] = {
    "__consumer_offsets": _COMPACTED,
    "__transaction_state": _COMPACTED,
    "__share_group_state": _COMPACTED,
    "__remote_log_metadata": {POLICY: DELETE, "retention.ms": "-1"},
}
# Which policy a key belongs to: it decides nothing where the other one is in force. Those of compaction cost readers
# that lag behind a tombstone or an older value, and never the last value of a key: they are shown, and not refused.
_BELONGS_TO = {
    "retention.ms": DELETE,
    "retention.bytes": DELETE,
    "remote.storage.enable": DELETE,
    "delete.retention.ms": COMPACT,
    "min.compaction.lag.ms": COMPACT,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in force: as parsed, as written, and where that was (`seglog.yaml:3`, `--set`, `default`, …)."""

    key: Key
    value: Any
    text: str
    origin: str


Layer = Mapping[str, Setting]  # by Kafka's topic-level (or only) key
Written = tuple[str, str, str]  # name, text, origin
Stored = Mapping[str, tuple[str, str]]  # key → (value, where)


@dataclass(frozen=True, slots=True)
class Layers:
    """All that was said, by who said it. `given` and `given_defaults` are the user's, strongest first.

    `topic`, `node` and `cluster` come from the cluster's metadata: the topic's own values, this broker's, all
    brokers'; a key that is unusable there has the origin DEFAULT. `listed` says where the metadata lists the topic, and
    is empty where it does not, or cannot be relied on.
    """

    given: Sequence[Layer]
    given_defaults: Sequence[Layer]
    topic: Layer
    node: Layer
    cluster: Layer
    listed: str


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The user's `given` lets more records go than `stated`, which the cluster says (or Kafka, of its own topics).

    `policies` are those it matters to: COMPACT to cleaning, DELETE to retention.
    """

    given: Setting
    stated: Setting
    policies: frozenset[str]

    @property
    def refused(self) -> bool:
        """Whether it needs the user's insistence."""
        return _BELONGS_TO.get(self.given.key.name) != COMPACT

    def __str__(self) -> str:
        key, given, stated = self.given.key.name, self.given, self.stated
        return f"{key} {given.text or 'empty'} ({given.origin}) instead of {stated.text or 'empty'} ({stated.origin})"


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A topic's configuration. `settings` has one entry for every key, `origin` DEFAULT among them.

    `policy_known` is False where nobody said what the cleanup policy is: then nothing may be cleaned by it. `warnings`
    are sentences about values that a broker would refuse. `override_policy`: the user insists on `contradictions`.
    """

    log: LogConfig
    cleaner: CleanerConfig
    broker: BrokerConfig
    settings: Mapping[str, Setting]
    warnings: tuple[str, ...]
    contradictions: tuple[Contradiction, ...]
    override_policy: bool

    @property
    def policy_known(self) -> bool:
        """Whether the cleanup policy was stated anywhere, or follows from what was."""
        return self.settings[POLICY].origin != DEFAULT

    @property
    def prices(self) -> Prices:
        """What an object store asks for its answers."""
        return Prices(**_fields(self.settings, Prices))

    def against(self, policy: str) -> tuple[Contradiction, ...]:
        """The contradictions that matter to cleaning (COMPACT) or to retention (DELETE)."""
        return tuple(found for found in self.contradictions if policy in found.policies)

    def refusal(self, policy: str) -> str:
        """Why cleaning (COMPACT) or retention (DELETE) must not go by this configuration; empty if it may."""
        found = [one for one in self.against(policy) if one.refused]
        if self.override_policy or not found:
            return ""
        what = "; ".join(map(str, found))
        return (
            f"{what}: this contradicts the cluster's configuration of the topic; {OVERRIDE_OPTION} does it nevertheless"
        )


def resolve_layers(
    topic: str | None, layers: Layers, warnings: Sequence[str], *, override_policy: bool
) -> ResolvedConfig:
    """The configuration of `topic` (None: of no topic in particular) out of everything that was said."""
    stated = (layers.topic, _kafkas_own(topic), layers.node, layers.cluster)
    inferred = {} if any(POLICY in layer for layer in (*stated, *layers.given_defaults)) else _inferred(layers.listed)
    stack = (*layers.given, *stated, *layers.given_defaults, inferred)
    brokers_stack = (*layers.given, *layers.given_defaults, layers.node, layers.cluster)
    found = {key.name: _first(stack if key.topic_level else brokers_stack, key) for key in KEYS}
    log = LogConfig(**_fields(found, LogConfig))
    objections = filter(None, (one.key.warning(one.value) for one in found.values()))
    return ResolvedConfig(
        log=log,
        cleaner=CleanerConfig(**_fields(found, CleanerConfig)),
        broker=BrokerConfig(**_fields(found, BrokerConfig)),
        settings=found,
        warnings=(*warnings, *objections, *log.contradictions),
        contradictions=_contradictions(layers.given, (*stated, inferred), log),
        override_policy=override_policy,
    )


def _kafkas_own(topic: str | None) -> Layer:
    values = KAFKAS_OWN_TOPICS.get(topic or "", {})
    keys = [key_named(name) for name in values]
    return {key.name: Setting(key, key.parse(values[key.name]), values[key.name], _KAFKAS_OWN) for key in keys}


def _inferred(listed: str) -> Layer:
    """The policy of a topic that the metadata lists, where nobody says what it is: the default of Kafka's brokers."""
    key = key_named(POLICY)
    origin = f"Kafka's default: {listed} lists the topic and says nothing else"
    return {POLICY: Setting(key, key.default, text_of(key.default), origin)} if listed else {}


def _first(stack: Sequence[Layer], key: Key) -> Setting:
    for layer in stack:
        if key.name in layer:
            return layer[key.name]
    return Setting(key, key.default, text_of(key.default), DEFAULT)


def _fields(found: Mapping[str, Setting], owner: type) -> dict[str, Any]:
    return {item.key.field: item.value for item in found.values() if item.key.owner is owner}


# --- contradictions


def _contradictions(given: Sequence[Layer], stated: Sequence[Layer], log: LogConfig) -> tuple[Contradiction, ...]:
    contradictions = []
    for name in (POLICY, *_BELONGS_TO):
        user = next((layer[name] for layer in given if name in layer), None)
        cluster = next((layer[name] for layer in stated if name in layer), None)
        if user is None or cluster is None or cluster.origin == DEFAULT:
            continue
        policies = _released(name, user.value, cluster.value, log)
        if policies:
            contradictions.append(Contradiction(user, cluster, policies))
    return tuple(contradictions)


def _released(name: str, given: Any, stated: Any, log: LogConfig) -> frozenset[str]:
    """The policies under which `given` lets records go that `stated` keeps."""
    if name == POLICY:
        return frozenset(given) - frozenset(stated)
    policy = _BELONGS_TO[name]
    if policy not in log.cleanup_policy:
        return frozenset()
    if name == "remote.storage.enable":
        looser = stated and not given
    elif policy == DELETE:
        looser = given >= 0 and (stated < 0 or given < stated)  # a negative limit is none
    else:
        looser = given < stated
    return frozenset({policy}) if looser else frozenset()


# --- what was said, in layers


@dataclass(frozen=True, slots=True)
class Settings:
    """The layers that hold for every topic. Made by `load_settings`.

    `options` and `environment` name a topic's keys, `option_defaults` and `environment_defaults` a broker's.
    """

    options: Layer = field(default_factory=dict)
    environment: Layer = field(default_factory=dict)
    top_level: Layer = field(default_factory=dict)
    topics: Mapping[str, Layer] = field(default_factory=dict)
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    option_defaults: Layer = field(default_factory=dict)
    environment_defaults: Layer = field(default_factory=dict)

    def resolve(
        self,
        topic: str | None,
        *,
        chosen: Mapping[str, object] | None = None,
        stored: Stored | None = None,
        stored_brokers: Stored | None = None,
        stored_node: Stored | None = None,
        listed: str = "",
        override_policy: bool = False,
    ) -> ResolvedConfig:
        """The configuration of `topic` (None: of no topic in particular).

        `chosen` are values that options of a command give, by Kafka's key. `stored`, `stored_node` and `stored_brokers`
        are the values of the topic, of the broker at hand and of all brokers in the cluster's metadata: key → (value,
        where). `listed` says where the metadata lists the topic. Keys there that seglog does not know are passed over:
        they are the cluster's, not a typing error; a value there that cannot be is passed over with a warning.
        ConfigError for any other impossible value.
        """
        warnings = [*self.warnings]
        layers = Layers(
            given=(
                layer_of((name, text_of(value), "option") for name, value in (chosen or {}).items()),
                self.options,
                self.environment,
                *self._matching(topic),
            ),
            given_defaults=(self.option_defaults, self.environment_defaults, self.top_level),
            topic=_stored_layer(stored, warnings),
            node=_stored_layer(stored_node, warnings),
            cluster=_stored_layer(stored_brokers, warnings),
            listed=listed,
        )
        return resolve_layers(topic, layers, warnings, override_policy=override_policy)

    def _matching(self, topic: str | None) -> list[Layer]:
        if topic is None:
            return []
        patterns = [name for name in self.topics if fnmatch.fnmatchcase(topic, name)]
        patterns.reverse()
        patterns.sort(key=lambda name: name != topic)  # the exact name, then the patterns from the last one on
        return [self.topics[name] for name in patterns]


def layer_of(values: Iterable[Written]) -> Layer:
    """A layer of (name, text, origin); of several names of one key the strongest counts."""
    written: dict[str, tuple[str, str]] = {name: (text, origin) for name, text, origin in values}
    layer: dict[str, Setting] = {}
    for name in written:
        key = key_named(name)
        strongest = next(other for other in key.names if other in written)
        text, origin = written[strongest]
        try:
            layer[key.name] = Setting(key, key.parse(text, strongest), text, origin)
        except ValueError as error:
            raise ConfigError(f"{error} ({origin})") from error
    return layer


def _stored_layer(stored: Stored | None, warnings: list[str]) -> Layer:
    """A layer out of the cluster's metadata. Of a value that cannot be nobody knows what it meant: a warning says so,
    and the key counts as not stated, whatever weaker layers say."""
    usable: list[Written] = []
    unusable: dict[str, Setting] = {}
    for name, (text, origin) in (stored or {}).items():
        key = _KEYS_BY_NAME.get(name)
        if key is None:
            continue
        try:
            key.parse(text, name)
        except ValueError as error:
            warnings.append(f"{error} ({origin}): passed over")
            unusable[key.name] = Setting(key, key.default, text_of(key.default), DEFAULT)
        else:
            usable.append((name, text, origin))
    return {**layer_of(usable), **unusable}
