"""Real Kafka 4.3.0 for tests: its classes in one JVM (`KafkaHarness`), or a whole broker (`Broker`)."""

from tests.support.kafka.broker import NODE_ID, Broker
from tests.support.kafka.jvm import JavaMissing, find_java, kafka_classpath
from tests.support.kafka.kafka import DumpOutput, KafkaFailure, KafkaHarness

__all__ = [
    "NODE_ID",
    "Broker",
    "DumpOutput",
    "JavaMissing",
    "KafkaFailure",
    "KafkaHarness",
    "find_java",
    "kafka_classpath",
]
