"""Kafka's configuration keys by release: which ones a release no longer has, or not yet, and defaults that were others.

A broker reports a key of server.properties that it does not know, and goes on without it; a topic keeps its keys, and
`seglog doctor` says what comes of it. Kafka: KafkaConfig, LogConfig; upgrade notes of 3.0 and 4.0; KAFKA-4203.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from seglog.configuration.keys import LONG_MAX
from seglog.configuration.precedence import DEFAULT, ResolvedConfig
from seglog.kafka_version import KafkaVersion

_BROKERS: dict[KafkaVersion, str] = {
    KafkaVersion(3, 0): """
        advertised.host.name advertised.port host.name port quota.consumer.default quota.producer.default
        zookeeper.sync.time.ms""",
    KafkaVersion(4, 0): """
        auto.include.jmx.reporter broker.id.generation.enable control.plane.listener.name
        controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms delegation.token.master.key
        eligible.leader.replicas.enable inter.broker.protocol.version leader.imbalance.per.broker.percentage
        log.message.downconversion.enable log.message.format.version log.message.timestamp.difference.max.ms
        offsets.commit.required.acks password.encoder.cipher.algorithm password.encoder.iterations
        password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
        password.encoder.secret reserved.broker.max.id zookeeper.clientCnxnSocket zookeeper.connect
        zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable
        zookeeper.metadata.migration.min.batch.size zookeeper.session.timeout.ms zookeeper.set.acl
        zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
        zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm
        zookeeper.ssl.keystore.location zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type
        zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol zookeeper.ssl.truststore.location
        zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type""",
    KafkaVersion(4, 2): """
        group.coordinator.new.enable group.share.max.groups metadata.log.segment.min.bytes
        share.fetch.max.fetch.records""",
    KafkaVersion(4, 3): "group.share.enable internal.metadata.max.fetch.size.in.bytes",
}
_TOPICS: dict[KafkaVersion, str] = {
    KafkaVersion(4, 0): "message.downconversion.enable message.format.version message.timestamp.difference.max.ms",
}
BROKERS_REMOVED = {key: version for version, keys in _BROKERS.items() for key in keys.split()}
TOPICS_REMOVED = {key: version for version, keys in _TOPICS.items() for key in keys.split()}

# The first release with a topic's key, for those that 0.11 does not have.
_ADDED: dict[KafkaVersion, str] = {
    KafkaVersion(2, 3): "max.compaction.lag.ms",
    KafkaVersion(3, 0): "local.retention.bytes local.retention.ms remote.storage.enable",
    KafkaVersion(3, 6): "message.timestamp.after.max.ms message.timestamp.before.max.ms",
    KafkaVersion(3, 8): "compression.gzip.level compression.lz4.level compression.zstd.level",
    KafkaVersion(3, 9): "remote.log.copy.disable",
    KafkaVersion(4, 4): """
        errors.deadletterqueue.group.enable max.decompressed.message.bytes remote.copy.lag.bytes remote.copy.lag.ms""",
}
TOPICS_ADDED = {key: version for version, keys in _ADDED.items() for key in keys.split()}
# A topic's key → the first release with today's default, and the one before.
_DEFAULTS_BEFORE: dict[str, tuple[KafkaVersion, str]] = {
    "max.message.bytes": (KafkaVersion(2, 5), "1000012"),
    "message.timestamp.after.max.ms": (KafkaVersion(4, 0), str(LONG_MAX)),
}


def is_topic_key_of(key: str, release: KafkaVersion) -> bool:
    """True unless a release does not yet have a topic's key."""
    return TOPICS_ADDED.get(key, release) <= release


def older_default(key: str, release: KafkaVersion) -> str | None:
    """Returns a release's default of a topic's key, None if it is today's."""
    first, before = _DEFAULTS_BEFORE.get(key, (release, ""))
    return before if release < first else None


def of_release(resolved: ResolvedConfig, release: KafkaVersion) -> ResolvedConfig:
    """Returns what `resolved` shows of a release: its own defaults, and only the topic's keys that it has."""
    settings = {}
    for name, setting in resolved.settings.items():
        older = older_default(name, release) if setting.origin == DEFAULT else None
        if older is not None:
            settings[name] = replace(setting, value=setting.key.parse(older), text=older)
        elif setting.origin != DEFAULT or is_topic_key_of(name, release):
            settings[name] = setting
    return replace(resolved, settings=settings)


def removed_from_brokers(keys: Iterable[str], release: KafkaVersion) -> list[str]:
    """Returns those of a server.properties' keys that a release no longer has, in order."""
    return [key for key in keys if key in BROKERS_REMOVED and BROKERS_REMOVED[key] <= release]


def removed_from_topics(keys: Iterable[str], release: KafkaVersion) -> list[str]:
    """Returns those of a topic's keys that a release no longer has, in order."""
    return [key for key in keys if key in TOPICS_REMOVED and TOPICS_REMOVED[key] <= release]
