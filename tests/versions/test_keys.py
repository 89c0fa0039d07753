"""The configuration keys that releases have lost, by their own classes."""

from __future__ import annotations

import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from seglog.configuration.key_history import BROKERS_REMOVED, TOPICS_REMOVED, is_topic_key_of, older_default
from seglog.configuration.keys import KEYS
from seglog.kafka_version import KafkaVersion
from tests.support.kafka.jvm import find_java
from tests.support.kafka.released_broker import classpath_of
from tests.support.versions.matrix import CHOSEN

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.xdist_group("releases")]

PROGRAM = Path(__file__).parents[1] / "support" / "versions" / "java" / "Keys.java"


@cache
def keys_of(release: str) -> dict[str, dict[str, str]]:
    """The keys of brokers and of topics, with their defaults."""
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", classpath_of(release), PROGRAM]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    rows = [(*line.split(" ", 2), "")[:3] for line in said.splitlines()]
    return {kind: {key: default for of, key, default in rows if of == kind} for kind in ("broker", "topic")}


def test_removed_keys_are_those_that_the_classes_no_longer_have() -> None:
    keys = {release: {kind: set(found) for kind, found in keys_of(release).items()} for release in CHOSEN}
    for kind, removed in (("broker", BROKERS_REMOVED), ("topic", TOPICS_REMOVED)):
        assert keys[CHOSEN[0]][kind]
        for before, after in pairwise(CHOSEN):
            older, newer = KafkaVersion.parse(before), KafkaVersion.parse(after)
            listed = {key for key, first in removed.items() if older < first <= newer}
            gone = keys[before][kind] - keys[after][kind]
            assert gone == listed & keys[before][kind], (before, after)
            assert not listed & keys[after][kind], (before, after)


@pytest.mark.parametrize("release", CHOSEN)
def test_a_releases_topics_have_the_keys_and_the_defaults_that_config_shows_for_it(release: str) -> None:
    version, theirs = KafkaVersion.parse(release), keys_of(release)["topic"]
    ours = {key.name: key for key in KEYS if key.topic_level}
    assert {name for name in ours if is_topic_key_of(name, version)} == ours.keys() & theirs.keys()
    for name in ours.keys() & theirs.keys():
        default = theirs[name].strip("[]")  # a list, in the case of cleanup.policy
        assert ours[name].parse(older_default(name, version) or default) == ours[name].parse(default), name
        assert older_default(name, version) is not None or ours[name].parse(default) == ours[name].default, name
