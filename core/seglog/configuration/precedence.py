"""Decides which source sets a configuration key, and finds contradictions with the cluster.

Kafka's rule holds for every key that a topic can have: a topic's own value beats any broker default, wherever either
is set. Strongest first:

| rank | values of the topic itself | rank | defaults for every topic |
|---|---|---|---|
| 1 | an option of the command (`--policy`, `--retention-ms`) | 6 | the metadata's value for this broker |
| 2 | `--set`, the environment, by the topic's key (`retention.ms`) | 7 | the metadata's value for all brokers |
| 3 | the file's entry for the topic | 8 | `--set`, the environment, by a broker's name (`log.retention.hours`) |
| 4 | the topic's own value in the cluster's metadata | 9 | the file's top level |
| 5 | Kafka's own values for its internal topics | 10 | Kafka's default |

Ranks 8 and 9 correspond to a broker's server.properties, which dynamic values (6, 7) override (Kafka:
DynamicBrokerConfig, KafkaConfig.extractLogConfigMap, ServerTopicConfigSynonyms). Keys that only a broker has
(`log.cleaner.threads`) concern the current run, so options, environment and file override the metadata there.

Ranks 1 to 3 may contradict the cluster. If they remove more records than the cluster's own value would, that is a
`Contradiction`, which is shown. If it could cost the last value of a key, or records that are not due, commands that
delete or clean refuse it without `--override-policy`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seglog.configuration.keys import (
    BY_NAME,
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
from seglog.configuration.prices import Prices
from seglog.errors import ConfigError

POLICY = "cleanup.policy"
DEFAULT = "default"
OVERRIDE_OPTION = "--override-policy"

_KAFKAS_OWN = "Kafka's own topic"
_COMPACTED = {POLICY: COMPACT}
# The configuration of topics that brokers create (Kafka: GroupCoordinatorConfig, TransactionLogConfig,
# ShareCoordinatorConfig, TopicBasedRemoteLogMetadataManager).
KAFKAS_OWN_TOPICS: Mapping[str, Mapping[str, str]] = {
    "__consumer_offsets": _COMPACTED,
    "__transaction_state": _COMPACTED,
    "__share_group_state": {POLICY: DELETE, "retention.ms": "-1"},
    "__remote_log_metadata": {POLICY: DELETE, "retention.ms": "-1"},
}
# The policy under which a key has an effect. Keys of compaction can only cost a slow reader a tombstone or an older
# value, never the last value of a key, so their contradictions are shown but not refused.
_BELONGS_TO = {
    "retention.ms": DELETE,
    "retention.bytes": DELETE,
    "remote.storage.enable": DELETE,
    "delete.retention.ms": COMPACT,
    "min.compaction.lag.ms": COMPACT,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """An effective value: parsed, as written, and its origin (`seglog.yaml:3`, `--set`, `default`, …)."""

    key: Key
    value: Any
    text: str
    origin: str


Layer = Mapping[str, Setting]  # by Kafka's topic-level (or only) key
Written = tuple[str, str, str]  # name, text, origin
Stored = Mapping[str, tuple[str, str]]  # key → (value, where)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The user's `given` value removes more records than `stated`, the cluster's (or Kafka's for its own topics).

    `policies` are those affected: COMPACT for cleaning, DELETE for retention.
    """

    given: Setting
    stated: Setting
    policies: frozenset[str]

    @property
    def refused(self) -> bool:
        """True if it needs `--override-policy`."""
        return _BELONGS_TO.get(self.given.key.name) != COMPACT

    def __str__(self) -> str:
        key, given, stated = self.given.key.name, self.given, self.stated
        return f"{key} {given.text or 'empty'} ({given.origin}) instead of {stated.text or 'empty'} ({stated.origin})"


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A topic's configuration. `settings` has an entry for every key; those not set anywhere have the origin DEFAULT.

    `warnings` are messages about values that a broker would refuse. `override_policy`: the user accepts the
    `contradictions`.
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
        """True if the cleanup policy is set anywhere or can be inferred. Otherwise nothing may be cleaned."""
        return self.settings[POLICY].origin != DEFAULT

    @property
    def prices(self) -> Prices:
        """The prices of an object store's requests and bytes."""
        return Prices(**_fields(self.settings, Prices))

    def against(self, policy: str) -> tuple[Contradiction, ...]:
        """Returns the contradictions that affect cleaning (COMPACT) or retention (DELETE)."""
        return tuple(found for found in self.contradictions if policy in found.policies)

    def refusal(self, policy: str) -> str:
        """Returns why cleaning (COMPACT) or retention (DELETE) must not use this configuration, "" if it may."""
        found = [one for one in self.against(policy) if one.refused]
        if self.override_policy or not found:
            return ""
        values = "; ".join(map(str, found))
        contradicts = "this contradicts the cluster's configuration of the topic"
        return f"{values}: {contradicts}; use {OVERRIDE_OPTION} to do it anyway"


def _kafkas_own(topic: str | None) -> Layer:
    values = KAFKAS_OWN_TOPICS.get(topic or "", {})
    keys = [key_named(name) for name in values]
    return {key.name: Setting(key, key.parse(values[key.name]), values[key.name], _KAFKAS_OWN) for key in keys}


def _inferred(listed: str) -> Layer:
    """Returns the policy of a topic that the metadata lists without any policy: the default of Kafka's brokers."""
    key = key_named(POLICY)
    origin = f"Kafka's default: {listed} lists the topic without a policy"
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
    """Returns the policies under which `given` removes records that `stated` keeps."""
    if name == POLICY:
        return frozenset(given) - frozenset(stated)
    policy = _BELONGS_TO[name]
    if policy not in log.cleanup_policy:
        return frozenset()
    if name == "remote.storage.enable":
        looser = stated and not given
    elif policy == DELETE:
        looser = given >= 0 and (stated < 0 or given < stated)  # a negative value means no limit
    else:
        looser = given < stated
    return frozenset({policy}) if looser else frozenset()


# --- layers


@dataclass(frozen=True, slots=True)
class Settings:
    """The layers that apply to every topic, made by `load_settings`.

    `options` and `environment` use a topic's keys, `option_defaults` and `environment_defaults` a broker's.
    `other_keys` are those in a server.properties that seglog does not have.
    """

    options: Layer = field(default_factory=dict)
    environment: Layer = field(default_factory=dict)
    top_level: Layer = field(default_factory=dict)
    topics: Mapping[str, Layer] = field(default_factory=dict)
    path: Path | None = None
    warnings: tuple[str, ...] = ()
    option_defaults: Layer = field(default_factory=dict)
    environment_defaults: Layer = field(default_factory=dict)
    other_keys: tuple[str, ...] = ()

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
        """Returns the configuration of `topic` (None: of no particular topic).

        `chosen` are values from command options, by Kafka's key. `stored`, `stored_node` and `stored_brokers` are the
        values of the topic, this broker and all brokers in the cluster's metadata: key → (value, origin). `listed`
        names the metadata that lists the topic, if that is complete. Unknown keys in the metadata are ignored, because
        they are not typing errors; impossible values there are ignored with a warning, and count as not set. Raises
        ConfigError for any other impossible value.
        """
        warnings = [*self.warnings]
        options = layer_of((name, text_of(value), "option") for name, value in (chosen or {}).items())
        given = (options, self.options, self.environment, *(self.topics[name] for name in self._patterns(topic)))
        defaults = (self.option_defaults, self.environment_defaults, self.top_level)
        of_topic, node, cluster = (_stored_layer(each, warnings) for each in (stored, stored_node, stored_brokers))
        stated = (of_topic, _kafkas_own(topic), node, cluster)
        inferred = {} if any(POLICY in layer for layer in (*stated, *defaults)) else _inferred(listed)
        stack = (*given, *stated, *defaults, inferred)
        brokers_stack = (*given, *defaults, node, cluster)
        found = {key.name: _first(stack if key.topic_level else brokers_stack, key) for key in KEYS}
        log = LogConfig(**_fields(found, LogConfig))
        objections = filter(None, (one.key.warning(one.value) for one in found.values()))
        unused = dict.fromkeys(name for layer in given for name, one in layer.items() if not one.key.is_used)
        ignored = [f"seglog does not use {', '.join(unused)}: only brokers do"] if unused else []
        return ResolvedConfig(
            log=log,
            cleaner=CleanerConfig(**_fields(found, CleanerConfig)),
            broker=BrokerConfig(**_fields(found, BrokerConfig)),
            settings=found,
            warnings=(*warnings, *ignored, *objections, *log.contradictions),
            contradictions=_contradictions(given, (*stated, inferred), log),
            override_policy=override_policy,
        )

    def kind_of(self, topic: str | None) -> tuple[str, ...]:
        """Returns what tells a topic's layers from another's: topics of one kind differ only in what is stored."""
        own = [topic] if topic is not None and topic in KAFKAS_OWN_TOPICS else []
        return (*own, *self._patterns(topic))

    def _patterns(self, topic: str | None) -> list[str]:
        if topic is None:
            return []
        patterns = [name for name in self.topics if fnmatch.fnmatchcase(topic, name)]
        patterns.reverse()
        patterns.sort(key=lambda name: name != topic)  # the exact name, then the patterns from last to first
        return patterns


def layer_of(values: Iterable[Written]) -> Layer:
    """Returns a layer from (name, text, origin); of several names of one key the strongest counts."""
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
    """Returns a layer from the cluster's metadata. An impossible value gives a warning, and its key counts as not set,
    whatever weaker layers have.
    """
    usable: list[Written] = []
    unusable: dict[str, Setting] = {}
    for name, (text, origin) in (stored or {}).items():
        key = BY_NAME.get(name)
        if key is None:
            continue
        try:
            key.parse(text, name)
        except ValueError as error:
            warnings.append(f"{error} ({origin}); the value is ignored")
            unusable[key.name] = Setting(key, key.default, text_of(key.default), DEFAULT)
        else:
            usable.append((name, text, origin))
    return {**layer_of(usable), **unusable}
