"""Kafka's own command-line tools, run against a broker."""

from __future__ import annotations

import subprocess

from tests.support.kafka.broker import Broker
from tests.support.kafka.jvm import KAFKA_VERSION, find_java, kafka_classpath

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
LIMIT_SECONDS = 120


def java(*arguments: str, release: str = KAFKA_VERSION) -> list[str]:
    """The command line of a class of Kafka's, or of the harness."""
    return [str(find_java()), "-Xmx256m", "-Dseglogkafka.echo=2", "-cp", kafka_classpath(release), *arguments]


def tool(name: str, broker: Broker, *arguments: str, release: str = KAFKA_VERSION) -> str:
    """What one of Kafka's commands, of a release, prints."""
    # the tools' own is 5 seconds; one knows no such option
    patience = () if name == CONFIGS else ("--timeout", str(LIMIT_SECONDS * 1000))
    command = java(name, "--bootstrap-server", broker.bootstrap, *patience, *arguments, release=release)
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_SECONDS, check=False)
    assert done.returncode == 0 and "Error:" not in done.stdout, done.stdout + done.stderr
    return done.stdout
