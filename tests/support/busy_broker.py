"""A real broker that is kept busy: small segments, compaction, retention, transactions, topics that come and go.

Two log directories, so that replicas can move between them. Threads of this process are its clients; they live from
`start` to `stop` or `kill`, and what fails because the broker went away is no error.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.support.kafka import Broker
from tests.support.kafka.jvm import KAFKA_VERSION

SEGMENT_BYTES = 64 << 10
SETTINGS = {
    "log.retention.check.interval.ms": "700",
    "log.cleaner.backoff.ms": "300",
    "log.segment.delete.delay.ms": "1500",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "num.recovery.threads.per.data.dir": "2",
    "auto.create.topics.enable": "false",
}
COMPACTING = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 500}
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {"partitions": 2, "retention_bytes": 1 << 20},
    "young": {"retention_ms": 4000, "segment_ms": 1500},
    "keyed": {"partitions": 2, **COMPACTING, "segment_ms": 2000},
    "both": {**COMPACTING, "cleanup_policy": "compact,delete", "retention_bytes": 1 << 20},
    "paid": {"retention_bytes": 2 << 20},
    "paid-keys": {**COMPACTING, "segment_ms": 3000},
    "pruned": {},
}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BURST = 120


class Told(Protocol):
    """Is told what became of records."""

    def delivered(self, error: Any, message: Any) -> None:
        """A record was acknowledged, or failed."""

    def settled(self, topic: str, has_ended: bool) -> None:
        """All records of a transaction were acknowledged; then again, when it has ended."""


class BusyBroker:
    """The broker and its clients. `directories` are its log directories; the first one holds the metadata."""

    def __init__(
        self,
        root: Path,
        seed: int,
        *,
        pause_s: float = 0.03,
        settings: Mapping[str, str] | None = None,
        release: str = KAFKA_VERSION,
        told: Told | None = None,
    ) -> None:
        self.directories = (root / "a", root / "b")
        self.broker: Broker | None = None
        self._settings, self._release, self._told = settings or {}, release, told
        self._root, self._chance, self._pause_s = root, random.Random(seed), pause_s
        self._clients: Clients | None = None
        self._lives = 0

    def start(self, *, echo: int = 2) -> Broker:
        """Starts the broker and its clients. RuntimeError when it does not start."""
        dirs = ",".join(map(str, self.directories))
        self.broker = Broker(
            self.directories[0],
            settings={**SETTINGS, "log.dirs": dirs, **self._settings},
            work_directory=self._root / "work",
            echo=echo,
            release=self._release,
        )
        self._lives += 1
        if self._lives == 1:
            for topic, config in TOPICS.items():
                self.broker.create_topic(topic, internal_segment_bytes=SEGMENT_BYTES, **config)
        return self.broker

    def occupy(self) -> None:
        """Sets new clients to work."""
        assert self.broker is not None
        self._clients = Clients(self.broker, self._chance.getrandbits(32), self._lives, self._pause_s, self._told)

    def rest(self, *, seconds: float = 60.0) -> None:
        """Lets the clients end; those of a dead broker may wait for it for longer than `seconds`, and end then."""
        if self._clients is not None:
            self._clients.end(seconds)
        self._clients = None

    def stop(self) -> None:
        """Ends clients and broker in order."""
        self.rest()
        if self.broker is not None:
            self.broker.stop()

    def kill(self) -> None:
        """Kills the broker while its clients work."""
        if self.broker is not None:
            self.broker.kill()
        self.rest(seconds=3.0)

    def move(self, topic: str, partition: int, directory: Path) -> None:
        """Asks for a replica to be moved to another log directory (kafka-reassign-partitions)."""
        assert self.broker is not None
        wanted = {"topic": topic, "partition": partition, "replicas": [1], "log_dirs": [str(directory)]}
        plan = self._root / "work" / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        command = self.broker._java(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", self.broker.bootstrap,
            "--reassignment-json-file", plan, "--execute",
        )  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, capture_output=True, timeout=60, check=False)

    def hanging_transactions(self, topic: str) -> set[tuple[int, int]]:
        """Producer id and first offset of each transaction of a topic that no coordinator will end: Kafka's verdict."""
        assert self.broker is not None
        command = self.broker._java(
            "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", self.broker.bootstrap,
            "find-hanging", "--topic", topic, "--max-transaction-timeout", "0",
        )  # fmt: skip
        said = subprocess.run(command, capture_output=True, timeout=120, check=True, text=True).stdout
        rows = [line.split() for line in said.splitlines()[1:]]
        return {(int(row[2]), int(row[5])) for row in rows if len(row) > 5}


class Clients:
    """The clients of one of the broker's lives. Each has `ending` of its own life, so that none works in the next."""

    def __init__(self, broker: Broker, seed: int, life: int, pause_s: float, told: Told | None = None) -> None:
        self._broker, self._chance, self._life, self._pause_s = broker, random.Random(seed), life, pause_s
        self._told: Any = {} if told is None else {"on_delivery": told.delivered}
        self._settled = (lambda _topic, _has_ended: None) if told is None else told.settled
        self._ending = threading.Event()
        work: list[Callable[[], None]] = [
            *(lambda t=topic: self._write(t) for topic in ("plain", "young", "keyed", "both", "pruned")),
            *(lambda t=topic: self._transact(t) for topic in ("paid", "paid-keys")),
            self._read,
            self._prune,
            self._churn,
        ]
        self._threads = [threading.Thread(target=self._client, args=(one,), daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def end(self, seconds: float) -> None:
        """Lets the clients end, and waits for them for at most `seconds`."""
        self._ending.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))

    def _client(self, work: Callable[[], None]) -> None:
        from confluent_kafka import KafkaException

        while not self._ending.is_set():
            try:
                work()
            except (KafkaException, BufferError, TimeoutError):
                self._ending.wait(0.2)  # the broker is going, or was killed: a new client tries again

    def _settings(self, **more: str) -> dict[str, str]:
        return {"bootstrap.servers": self._broker.bootstrap, "log_level": "0", **more}

    def _bursts(self) -> Iterator[random.Random]:
        """A generator of chance for each burst, until the end."""
        chance = random.Random(self._chance.getrandbits(32))
        while not self._ending.is_set():
            yield chance
            self._ending.wait(self._pause_s * chance.uniform(0.2, 2))

    def _write(self, topic: str) -> None:
        from confluent_kafka import Producer

        partitions = TOPICS[topic].get("partitions", 1)
        codec = self._chance.choice(_CODECS)
        idempotent = self._chance.choice(("true", "false"))
        producer = Producer(self._settings(**{"compression.type": codec, "enable.idempotence": idempotent}))
        for chance in self._bursts():
            for _ in range(chance.randrange(1, _BURST)):
                key = None if topic in ("plain", "young", "pruned") else b"k%d" % chance.randrange(400)
                value = None if key is not None and chance.random() < 0.1 else chance.randbytes(chance.randrange(400))
                producer.produce(topic, value, key, partition=chance.randrange(partitions), **self._told)
            producer.flush(5)

    def _transact(self, topic: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(self._settings(**{"transactional.id": f"{topic}-{self._life}"}))
        producer.init_transactions(20)
        for chance in self._bursts():
            producer.begin_transaction()
            for _ in range(chance.randrange(1, _BURST)):
                key, value = b"k%d" % chance.randrange(300), chance.randbytes(chance.randrange(300))
                producer.produce(topic, value, key, **self._told)
            if producer.flush(5) == 0:
                self._settled(topic, False)
            (producer.abort_transaction if chance.random() < 0.3 else producer.commit_transaction)(20)
            self._settled(topic, True)

    def _read(self) -> None:
        from confluent_kafka import Consumer

        group = f"group-{self._chance.randrange(3)}"
        consumer = Consumer(self._settings(**{"group.id": group, "auto.offset.reset": "earliest"}))
        consumer.subscribe(["plain", "keyed", "paid"])
        try:
            for _ in self._bursts():
                consumer.consume(500, timeout=1)
                with contextlib.suppress(Exception):  # nothing to commit yet
                    consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def _prune(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        admin, place = self._broker.admin(), TopicPartition("pruned", 0)
        consumer = Consumer(self._settings(**{"group.id": "pruner"}))
        try:
            while not self._ending.wait(2):
                low, high = consumer.get_watermark_offsets(place, timeout=5)
                if high > low:
                    to = TopicPartition("pruned", 0, self._chance.randint(low, high))
                    admin.delete_records([to])[place].result(10)
        finally:
            consumer.close()

    def _churn(self) -> None:
        from confluent_kafka import Producer

        admin = self._broker.admin()
        while not self._ending.wait(1):
            name = f"churn-{self._chance.randrange(3)}"
            self._broker.create_topic(name, internal_segment_bytes=SEGMENT_BYTES, segment_ms=1000)
            producer = Producer(self._settings())
            for number in range(300):
                producer.produce(name, b"v%d" % number)
            producer.flush(5)
            self._ending.wait(self._chance.uniform(0.2, 3))
            admin.delete_topics([name])[name].result(20)


def wait_for(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether `condition` came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.1)
    return False
