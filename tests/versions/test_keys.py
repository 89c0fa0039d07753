"""The configuration keys that releases have lost, by their own classes."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from seglog.configuration.key_history import BROKERS_REMOVED, TOPICS_REMOVED
from seglog.kafka_version import KafkaVersion
from tests.support.kafka.jvm import find_java
from tests.support.kafka.released_broker import classpath_of
from tests.support.versions.matrix import CHOSEN

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "support" / "versions" / "java" / "Keys.java"


def keys_of(release: str) -> dict[str, set[str]]:
    """The keys of brokers and of topics."""
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", classpath_of(release), PROGRAM]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    rows = [line.split() for line in said.splitlines()]
    return {kind: {row[1] for row in rows if row[0] == kind} for kind in ("broker", "topic")}


def test_removed_keys_are_those_that_the_classes_no_longer_have() -> None:
    keys = {release: keys_of(release) for release in CHOSEN}
    for kind, removed in (("broker", BROKERS_REMOVED), ("topic", TOPICS_REMOVED)):
        assert keys[CHOSEN[0]][kind]
        for before, after in pairwise(CHOSEN):
            older, newer = KafkaVersion.parse(before), KafkaVersion.parse(after)
            listed = {key for key, first in removed.items() if older < first <= newer}
            gone = keys[before][kind] - keys[after][kind]
            assert gone == listed & keys[before][kind], (before, after)
            assert not listed & keys[after][kind], (before, after)
