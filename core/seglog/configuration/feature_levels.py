"""The levels of Kafka's features: what a level of the metadata is called, and which levels a release writes and knows.

Kafka: MetadataVersion, Feature, FeatureControlManager. A broker or controller does not start on metadata whose level
it does not know. No level can be taken back once it is finalized, unless nothing but its number has changed.
"""

from __future__ import annotations

from seglog.kafka_version import KafkaVersion

METADATA_VERSION = "metadata.version"

# metadata.version: the first and the last level of each release since 3.3, the first in which KRaft was not a preview.
_LEVELS: dict[KafkaVersion, tuple[int, int]] = {
    KafkaVersion(3, 3): (4, 7),
    KafkaVersion(3, 4): (8, 8),
    KafkaVersion(3, 5): (9, 11),
    KafkaVersion(3, 6): (12, 14),
    KafkaVersion(3, 7): (15, 19),
    KafkaVersion(3, 8): (20, 20),
    KafkaVersion(3, 9): (21, 21),
    KafkaVersion(4, 0): (22, 25),
    KafkaVersion(4, 1): (26, 27),
    KafkaVersion(4, 2): (28, 29),
    KafkaVersion(4, 3): (30, 30),
    KafkaVersion(4, 4): (31, 33),
}

_WITHOUT_OLD_METADATA = KafkaVersion(4, 0)

# The last level of every other feature, by the release that has it. 0 means that the feature is off.
_OTHERS: dict[str, tuple[tuple[KafkaVersion, int], ...]] = {
    "kraft.version": ((KafkaVersion(3, 9), 1),),
    "transaction.version": ((KafkaVersion(4, 0), 2),),
    "group.version": ((KafkaVersion(4, 0), 1),),
    "eligible.leader.replicas.version": ((KafkaVersion(4, 0), 1),),
    "share.version": ((KafkaVersion(4, 1), 1), (KafkaVersion(4, 4), 2)),
    "streams.version": ((KafkaVersion(4, 1), 1),),
}


def level_name(level: int) -> str:
    """Returns Kafka's name of a metadata.version, `3.9-IV0`; "" for a level that no known release has."""
    release = release_of(level)
    return "" if release is None else f"{release}-IV{level - _LEVELS[release][0]}"


def release_of(level: int) -> KafkaVersion | None:
    """Returns the release that brought a metadata.version, None if no known one has."""
    return next((release for release, (first, last) in _LEVELS.items() if first <= level <= last), None)


def supported_levels(release: KafkaVersion) -> dict[str, tuple[int, int]]:
    """Returns the first and the last level of each feature that a release knows (QuorumFeatures).

    Kafka 4.0 and later start on the metadata of 3.3-IV3 or later; 3.3 to 3.9 on that of 3.0-IV1 too.
    """
    least = _LEVELS[KafkaVersion(3, 3)][1] if release >= _WITHOUT_OLD_METADATA else 1
    known = {name: (0, last_level(release, name)) for name in _OTHERS}
    return {METADATA_VERSION: (least, last_level(release)), **{name: pair for name, pair in known.items() if pair[1]}}


def last_level(release: KafkaVersion, feature: str = METADATA_VERSION) -> int:
    """Returns the last level of a feature that a release knows, 0 if it does not know the feature."""
    if feature == METADATA_VERSION:
        return max((last for of, (_, last) in _LEVELS.items() if of <= release), default=0)
    return max((level for of, level in _OTHERS.get(feature, ()) if of <= release), default=0)


def first_level_with(feature: str) -> int:
    """Returns the first metadata.version of the release that brought another feature. Raises KeyError."""
    return _LEVELS[_OTHERS[feature][0][0]][0]
