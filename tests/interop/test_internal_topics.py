"""Records of MirrorMaker, Connect and Streams, as their own classes write them: those on which decoders are tested.

`SEGLOG_TOPICS_VERSIONS` names the releases of Connect and Streams, with commas between: 4.3.0, or also 4.4.0.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.kafka.jvm import KAFKA_VERSION, application_jars, compiled

pytestmark = pytest.mark.kafka

SOURCES = Path(__file__).parents[1] / "support" / "kafka" / "topics_java"
WRITTEN = Path(__file__).parents[1] / "golden" / "internal_topics.jsonl"

Row = tuple[str, str | None, str | None, int]


def topics_classpath(version: str = KAFKA_VERSION) -> str:
    """Class path of Streams, Connect and MirrorMaker, and of what is compiled against them."""
    jars = application_jars(version)
    return f"{compiled(SOURCES, jars)}:{jars}/*"


def in_java(version: str, state: Path) -> list[Row]:
    """Topic, key, value and timestamp of the records that Kafka's classes write."""
    command = ["java", "-Xmx512m", f"-Dstate={state}", "-cp", topics_classpath(version)]
    done = subprocess.run(
        [*command, "seglogtopics.Topics"], capture_output=True, text=True, encoding="utf-8", check=True, timeout=300
    )
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return [(topic, None if key == "-" else key, None if value == "-" else value, int(timestamp))
            for topic, key, value, timestamp in rows]  # fmt: skip


@pytest.mark.parametrize("version", os.environ.get("SEGLOG_TOPICS_VERSIONS", KAFKA_VERSION).split(","))
def test_the_kept_records_are_those_that_kafkas_classes_write(version: str, tmp_path: Path) -> None:
    kept = [json.loads(line) for line in WRITTEN.read_text(encoding="utf-8").splitlines()]
    rows = in_java(version, tmp_path)
    assert [(one["topic"], one["key_b64"], one["value_b64"], one["timestamp"]) for one in kept] == [
        row for row in rows if row[0] in {one["topic"] for one in kept}
    ]
    others = {row[0]: row for row in rows if row[0] not in {one["topic"] for one in kept}}
    plain = {topic.removeprefix("shop-"): base64.b64decode(row[2] or "") for topic, row in others.items()}
    assert plain["stamped-changelog"] == bytes(7) + b"\2"  # no timestamp stands before the value
    assert plain["versioned-changelog"] == b"one"
