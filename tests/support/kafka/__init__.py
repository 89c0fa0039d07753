"""Real Kafka for tests: the classes of 4.3.0 or 4.4.0 in one JVM (`KafkaHarness`), or a whole broker (`Broker`)."""

from tests.support.kafka.broker import NODE_ID, Broker, copied_jars, server_properties
from tests.support.kafka.jvm import NEWER_KAFKA_VERSION, JavaMissing, find_java, kafka_classpath
from tests.support.kafka.kafka import DumpOutput, KafkaFailure, KafkaHarness

__all__ = [
    "NEWER_KAFKA_VERSION",
    "NODE_ID",
    "Broker",
    "DumpOutput",
    "JavaMissing",
    "KafkaFailure",
    "KafkaHarness",
    "copied_jars",
    "find_java",
    "kafka_classpath",
    "server_properties",
]
