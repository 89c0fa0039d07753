"""The matrix of clients: each reads from `serve` what the same client reads from the broker whose directory is served.

All records with order, headers, nulls, gaps of compaction and transactions, a log start above 0 and an empty partition;
half by one run, the rest by a second one that goes on from the group's commits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from seglog.model import Isolation
from tests.support.client_programs import ALL, CLIENTS, Asked, ClientProgram, PlacedRow, ToolMissing, read
from tests.support.command_line import clean_logs
from tests.support.kafka.broker import Broker
from tests.support.serving import Serving, local_rows

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPICS = (
    "clicks",
    "customers",
    "empty",
    "payments",
    *(f"orders-{codec}" for codec in ("gzip", "lz4", "none", "snappy", "zstd")),
)
LOG_START = 7


@dataclass(frozen=True)
class Both:
    """A broker, and `serve` on its directory."""

    broker: Broker
    serving: Serving

    def rows(self, client: ClientProgram, isolation: str) -> list[PlacedRow]:
        """What the library reads itself, for the topics that a client can read."""
        return [
            (each.topic, each.number, row)
            for each in sorted(self.serving.catalog, key=lambda each: (each.topic, each.number))
            if each.topic in TOPICS and not client.lacks(each.topic, isolation)
            for row in local_rows(each.log, Isolation(isolation == "read_committed"))
        ]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The directory that a real broker filled, with one more topic, and one that begins later."""
    from confluent_kafka import Producer, TopicPartition

    directory = clean_logs(tmp_path_factory.mktemp("clients"))
    with Broker(directory, settings={"log.flush.start.offset.checkpoint.interval.ms": "200"}) as broker:
        broker.create_topic("empty", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("empty", b"", b"", partition=1, headers=[("a", None), ("b", b""), ("a", b"2")])
        assert producer.flush(60) == 0
        admin = broker.admin()
        (deleted,) = admin.delete_records([TopicPartition("orders-none", 0, LOG_START)]).values()
        assert deleted.result(60).low_watermark == LOG_START
        noted = broker.log_directory / "log-start-offset-checkpoint"
        while f"orders-none 0 {LOG_START}" not in noted.read_text():
            time.sleep(0.1)
        with Serving(broker.log_directory) as serving:
            yield Both(broker, serving)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_reads_from_serve_what_it_reads_from_the_broker(name: str, isolation: str, both: Both) -> None:
    client = CLIENTS[name]
    if isolation != client.tier_level and not ALL:
        pytest.skip("only with SEGLOG_CLIENTS=all")
    if isolation not in client.levels:
        pytest.skip("the client has no such level")
    expected = both.rows(client, isolation)
    assert len(expected) > 1000
    assert min((row[0] for topic, _, row in expected if topic == "orders-none"), default=LOG_START) == LOG_START
    topics = [topic for topic in TOPICS if not client.lacks(topic, isolation)]
    group = re.sub(r"\W+", "-", f"{name}-{isolation}")
    try:
        from_broker, from_serve = (
            halves(client, Asked(bootstrap, topics, isolation, group, both.broker.bootstrap), len(expected))
            for bootstrap in (both.broker.bootstrap, both.serving.bootstrap)
        )
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert from_serve == from_broker
    shown, local = ([comparable(row, client) for row in rows] for rows in (from_serve, expected))
    assert shown == local


def halves(client: ClientProgram, asked: Asked, count: int) -> list[PlacedRow]:
    """All records: half of them, and the rest by a second run of the group, if the client has groups."""
    rows = read(client, asked, count // 2 if client.groups else count)
    if client.groups:
        assert len(rows) == count // 2 or (not client.exact and count // 2 < len(rows) < count), len(rows)
        rows += read(client, asked, count - len(rows))
    return sorted(rows, key=lambda row: (row[0], row[1], row[2][0]))


def comparable(row: PlacedRow, client: ClientProgram) -> PlacedRow:
    """A record without what not every client shows: null beside empty, the order of headers, the time of appending."""
    topic, number, (offset, stamp, key, value, headers) = row
    plain = tuple(sorted((name, data or b"") for name, data in headers))
    time_ms = 0 if topic == "clicks" and not client.broker_times else stamp
    return topic, number, (offset if client.offsets else 0, time_ms, key or b"", value or b"", plain)
