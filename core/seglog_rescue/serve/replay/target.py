"""The target cluster, through confluent-kafka (librdkafka); needs the extra `kafka`.

The producer is idempotent and waits for all in-sync replicas, so within one run each record arrives once and in order;
delivery reports of a partition come in that order too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from seglog import extras
from seglog.errors import IncompleteError, RefusedError, UnsupportedError
from seglog.model import Header, Record, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

ANSWER_SECONDS = 30.0
_PATIENCE_SECONDS = 3.0  # before the client believes that no server answers
_POLL_SECONDS = 0.1
_QUEUED_RECORDS = 100_000
_QUEUED_KBYTES = 64 << 10

_CREATE_TIME = 1  # confluent_kafka.TIMESTAMP_CREATE_TIME

Delivered = Callable[[TopicPartition, int], None]  # called with a record's target offset, in the partition's order


@dataclass(frozen=True, slots=True)
class Arrived:
    """A record in the target's log; `timestamp` is None if the log stamps records itself."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int | None

    def is_of(self, record: Record) -> bool:
        """True if producing `record` may have made this one."""
        same_time = None in (self.timestamp, record.timestamp) or self.timestamp == record.timestamp
        return same_time and (self.key, self.value, self.headers) == (record.key, record.value, record.headers)


class NotArrivedError(IncompleteError):
    """A record that the cluster did not take; `place` is its partition there."""

    def __init__(self, bootstrap: str, place: TopicPartition, reason: str, remedy: str, source: str = "") -> None:
        of = f" ({source})" if source else ""
        super().__init__(f"{bootstrap}: a record for {place}{of} did not arrive: {reason}; {remedy}")
        self.parts, self.place = (bootstrap, place, reason, remedy), place


class TargetCluster:
    """A connection to a cluster. Errors of cluster and client are raised as SeglogError.

    `properties` are librdkafka's, such as those for TLS and SASL. Raises RefusedError for those that exactly-once
    depends on.
    """

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self._client = _client()
        fixed = _FIXED.keys() & properties.keys()
        if fixed:
            raise RefusedError(f"{', '.join(sorted(fixed))}: replay sets this itself, or a record could arrive twice")
        self._common: dict[str, str | int | float | bool] = {
            "log_level": 0,  # errors are raised; lines of its own would bypass the console
            **properties,
            "bootstrap.servers": bootstrap,
        }
        self.bootstrap = bootstrap
        self._producer: Any = None
        self._failure: tuple[TopicPartition, KafkaError] | None = None
        self._delivered: Delivered

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)

    def topics(self) -> tuple[str, dict[str, int]]:
        """Returns the cluster's id and each topic's number of partitions."""
        found = self._first_answer()
        return str(found.cluster_id), {name: len(topic.partitions) for name, topic in found.topics.items()}

    def _first_answer(self) -> Any:
        """Returns the cluster's metadata; gives up early if every server turns the client away."""
        problems: list[KafkaError] = []
        admin, known = self._admin(error_cb=problems.append), self._client.KafkaError
        begun = time.monotonic()
        while True:
            try:
                return self._asked(lambda: admin.list_topics(timeout=_PATIENCE_SECONDS))
            except IncompleteError as error:
                admin.poll(0)
                is_down = any(problem.code() == known._ALL_BROKERS_DOWN for problem in problems)
                if not is_down and time.monotonic() - begun < ANSWER_SECONDS:
                    continue
                causes = [problem.str() for problem in problems if problem.code() != known._ALL_BROKERS_DOWN]
                if not causes:
                    raise
                raise IncompleteError(f"{self.bootstrap}: no answer: {causes[0]}") from error

    def end_offset(self, partition: TopicPartition) -> int:
        """Returns the offset of the next record of a partition."""
        consumer = self._consumer()
        try:
            place = self._client.TopicPartition(partition.topic, partition.partition)
            return int(self._asked(lambda: consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS))[1])
        finally:
            consumer.close()

    def records_from(self, partition: TopicPartition, offset: int, end: int) -> Iterator[Arrived]:
        """Yields the records of a partition from `offset` up to `end`, uncommitted ones included."""
        consumer = self._consumer()
        try:
            consumer.assign([self._client.TopicPartition(partition.topic, partition.partition, offset)])
            while True:
                message = self._asked(lambda: consumer.poll(ANSWER_SECONDS))
                if message is None:
                    raise IncompleteError(f"{self.bootstrap}: no record of {partition} came in {ANSWER_SECONDS:.0f} s")
                error = message.error()
                if error is not None and error.code() == self._client.KafkaError._PARTITION_EOF:
                    return
                if error is not None:
                    raise IncompleteError(f"{self.bootstrap}: {partition}: {error.str()}")
                if message.offset() >= end:
                    return
                yield _arrived(message)
        finally:
            consumer.close()

    def start(self, delivered: Delivered) -> None:
        """Makes the producer, which reports each delivery during `send` or `flush`."""
        self._delivered = delivered
        self._producer = self._asked(lambda: self._client.Producer({**_DEFAULTS, **self._common, **_FIXED}))

    def send(self, partition: TopicPartition, record: Record) -> None:
        """Hands a record to the producer; waits while its queue is full. Raises errors of earlier records, too."""
        arguments: dict[str, Any] = {"key": record.key, "partition": partition.partition, "on_delivery": self._report}
        if record.headers:
            arguments["headers"] = [(header.key, header.value) for header in record.headers]
        if record.timestamp is not None and record.timestamp >= 0:
            arguments["timestamp"] = record.timestamp
        while not self._queued(partition.topic, record.value, arguments):
            self._producer.poll(_POLL_SECONDS)
            self._raise_failure()
        self._producer.poll(0)
        self._raise_failure()

    def _queued(self, topic: str, value: bytes | None, arguments: Mapping[str, Any]) -> bool:
        """Returns False if the producer's queue is full."""
        try:
            self._producer.produce(topic, value, **arguments)
        except BufferError:
            return False
        except self._client.KafkaException as error:
            raise IncompleteError(f"{self.bootstrap}: {error.args[0].str()}") from error
        return True

    def flush(self, waiting: Callable[[], None]) -> None:
        """Waits until all records have arrived; calls `waiting` several times a second."""
        while self._producer.flush(_POLL_SECONDS):
            self._raise_failure()
            waiting()
        self._raise_failure()

    def commit(self, group: str, offsets: Sequence[tuple[TopicPartition, int]]) -> None:
        """Sets a group's committed offsets, as kafka-consumer-groups does; the group must have no members."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        places = [self._client.TopicPartition(key.topic, key.partition, offset) for key, offset in offsets]
        request = ConsumerGroupTopicPartitions(group, places)
        admin = self._admin()
        self._asked(lambda: admin.alter_consumer_group_offsets([request])[group].result(ANSWER_SECONDS))

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the group's committed offsets in these partitions, without those that it has none in."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        places = [self._client.TopicPartition(key.topic, key.partition) for key in partitions]
        admin = self._admin()
        asked = [ConsumerGroupTopicPartitions(group, places)]
        found = self._asked(lambda: admin.list_consumer_group_offsets(asked)[group].result(ANSWER_SECONDS))
        rows = ((TopicPartition(one.topic, one.partition), int(one.offset)) for one in found.topic_partitions)
        return {key: offset for key, offset in rows if offset >= 0}

    def stamping_topics(self, topics: Sequence[str]) -> list[str]:
        """Returns the topics whose brokers replace timestamps by the time of arrival (LogAppendTime)."""
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        admin = self._admin()
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        answers = admin.describe_configs(resources)
        found = self._asked(lambda: {one.name: answer.result(ANSWER_SECONDS) for one, answer in answers.items()})
        kinds = {topic: configs.get("message.timestamp.type") for topic, configs in found.items()}
        return sorted(topic for topic, kind in kinds.items() if kind is not None and kind.value == "LogAppendTime")

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            place = TopicPartition(str(message.topic()), int(message.partition() or 0))
            self._failure = self._failure or (place, error)
        elif self._failure is None:  # the next run finds the records after a failure again
            self._delivered(
                TopicPartition(str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
            )

    def _raise_failure(self) -> None:
        if self._failure is not None:
            place, error = self._failure
            raise NotArrivedError(self.bootstrap, place, error.str(), self._remedy(place, error))

    def _remedy(self, place: TopicPartition, error: KafkaError) -> str:
        if error.code() == self._client.KafkaError.MSG_SIZE_TOO_LARGE:
            return f"raise max.message.bytes of {place.topic} in the target, and run the same command again"
        if error.code() == self._client.KafkaError.INVALID_TIMESTAMP:
            return (
                f"raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of {place.topic} in the"
                " target, and run the same command again"
            )
        return "run the same command again to continue"

    def _admin(self, **more: Any) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self._common, **more})

    def _consumer(self) -> Any:
        settings = {"group.id": "seglog-replay", "enable.auto.commit": False, "enable.partition.eof": True}
        return self._client.Consumer({**self._common, **settings, "isolation.level": "read_uncommitted"})

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Calls the client; raises its exceptions as IncompleteError."""
        try:
            return ask()
        except self._client.KafkaException as error:
            reason = error.args[0]
            text = reason.str() if isinstance(reason, self._client.KafkaError) else str(error)
            raise IncompleteError(f"{self.bootstrap}: {text}") from error


_FIXED = {"enable.idempotence": True, "acks": "all"}
_DEFAULTS = {
    "linger.ms": 20,
    "compression.type": "lz4",
    "queue.buffering.max.messages": _QUEUED_RECORDS,
    "queue.buffering.max.kbytes": _QUEUED_KBYTES,
    "message.max.bytes": 1 << 27,
    "delivery.timeout.ms": 120_000,
}


def _client() -> Any:
    try:
        import confluent_kafka
    except ImportError as error:
        raise UnsupportedError(f"replay needs the extra kafka: {extras.advice('kafka')}") from error
    return confluent_kafka


def _arrived(message: Message) -> Arrived:
    kind, stamp = message.timestamp()
    headers: Any = message.headers() or ()
    return Arrived(
        offset=int(message.offset() or 0),
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple(Header(key, value) for key, value in headers),
        timestamp=stamp if kind == _CREATE_TIME else None,
    )


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
