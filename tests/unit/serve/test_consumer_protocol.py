"""Consumers of the protocol `consumer` (KIP-848) get an error that their client shows, and do not wait for ever."""

from __future__ import annotations

from pathlib import Path

from seglog.model import Record
from tests.support.open_logs import opened_log
from tests.support.serving import Serving


def test_librdkafka_says_why_a_consumer_of_the_newer_protocol_gets_nothing(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"value", timestamp=1000)])
    with Serving(tmp_path / "t-0") as serving:
        consumer = Consumer({"bootstrap.servers": serving.bootstrap, "group.id": "g", "group.protocol": "consumer"})
        consumer.subscribe(["t"])
        try:
            message = consumer.poll(30)
            assert message is not None, "neither a record nor an error"
            error = message.error()
        except KafkaException as raised:
            error = raised.args[0]
        finally:
            consumer.close()
    assert error is not None
    assert error.code() in (KafkaError._FATAL, KafkaError.UNSUPPORTED_VERSION)
    assert "ConsumerGroupHeartbeat" in error.str() and "API version not supported" in error.str()
