"""Consumers of the protocol `consumer` (KIP-848) read as those of the classic one; other protocols get an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from seglog.model import Record
from seglog_rescue.serve import protocol
from tests.support.open_logs import opened_log
from tests.support.raw_client import RawClient
from tests.support.serving import Serving

PARTITIONS, RECORDS = 4, 5
LIMIT_SECONDS = 60


@contextmanager
def topics_served(directory: Path, *topics: str) -> Iterator[Serving]:
    directory.mkdir(exist_ok=True)
    paths = []
    for topic in topics:
        for number in range(PARTITIONS):
            paths.append(directory / f"{topic}-{number}")
            with opened_log(paths[-1]) as log:
                log.append([Record(b"%d" % i, timestamp=1000 + i) for i in range(RECORDS)])
    with Serving(*paths) as serving:
        yield serving


def consumer(serving: Serving, **more: str) -> Any:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": serving.bootstrap, "group.id": "g", "group.protocol": "consumer"}
    return Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": "false", **more})


Rows = list[tuple[str, int, int]]


def poll_until(done: Callable[[Rows], bool], *consumers: Any) -> Rows:
    """Topic, partition and offset of what the consumers get until it is enough."""
    rows: Rows = []
    end = time.monotonic() + LIMIT_SECONDS
    while not done(rows):
        assert time.monotonic() < end, rows
        for each in consumers:
            message = each.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                rows.append((message.topic(), message.partition(), message.offset()))
    return rows


def all_rows(*topics: str) -> Rows:
    return sorted((topic, number, i) for topic in topics for number in range(PARTITIONS) for i in range(RECORDS))


def test_librdkafka_reads_all_by_the_newer_protocol_and_goes_on_from_its_commits(tmp_path: Path) -> None:
    with topics_served(tmp_path, "t") as serving:
        first = consumer(serving)
        first.subscribe(["t"])
        rows = poll_until(lambda rows: len(rows) == PARTITIONS * RECORDS, first)
        first.commit(asynchronous=False)
        first.close()
        assert sorted(rows) == all_rows("t")
        committed = {each.partition: commit.offset for each, commit in serving.commits.of("g").items()}
        assert committed == dict.fromkeys(range(PARTITIONS), RECORDS)
        with RawClient(serving.address) as client:
            described = client.ask(protocol.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ("g",)}).groups[0]
        assert (described.error_code, described.group_state, described.members) == (0, "Empty", ())


def test_a_pattern_of_librdkafka_is_matched_by_the_endpoint(tmp_path: Path) -> None:
    with topics_served(tmp_path, "orders.a", "orders.b", "clicks") as serving:
        reader = consumer(serving)
        reader.subscribe(["^orders\\.[ab]$"])
        rows = poll_until(lambda rows: len(rows) == 2 * PARTITIONS * RECORDS, reader)
        reader.close()
    assert sorted(rows) == all_rows("orders.a", "orders.b")


def test_a_second_member_takes_over_half_of_the_partitions(tmp_path: Path) -> None:
    with topics_served(tmp_path, "t") as serving:
        first, second = consumer(serving), consumer(serving)
        first.subscribe(["t"])
        poll_until(lambda rows: len(rows) == PARTITIONS * RECORDS, first)
        second.subscribe(["t"])
        poll_until(lambda _rows: len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2, first, second)
        numbers = [each.partition for each in (*first.assignment(), *second.assignment())]
        assert sorted(numbers) == list(range(PARTITIONS))
        first.close()
        poll_until(lambda _rows: len(second.assignment()) == PARTITIONS, second)
        second.close()


def test_share_groups_and_the_streams_protocol_are_told_what_to_use_instead(tmp_path: Path) -> None:
    with topics_served(tmp_path, "t") as serving, RawClient(serving.address) as client:
        for key, version, words in (
            (protocol.SHARE_GROUP_HEARTBEAT, 1, "read with a consumer"),
            (protocol.STREAMS_GROUP_HEARTBEAT, 0, "group.protocol=classic"),
        ):
            answer = client.ask(key, version)
            assert answer.error_code is ErrorCode.invalid_request
            assert words in answer.error_message


def test_the_topics_of_a_cluster_are_described_page_by_page(tmp_path: Path) -> None:
    with topics_served(tmp_path, "a", "b") as serving, RawClient(serving.address) as client:
        assert client.ask(protocol.DESCRIBE_CLUSTER, 2, {"endpoint_type": 1}).brokers[0].broker_id == 1
        assert client.ask(protocol.DESCRIBE_CLUSTER, 2, {"endpoint_type": 2}).error_code
        seen: list[tuple[str, int]] = []
        cursor: dict[str, Any] | None = None
        for _ in range(2 * PARTITIONS):
            asked = {"response_partition_limit": 3, "cursor": cursor}
            page = client.ask(protocol.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
            seen += [(topic.name, each.partition_index) for topic in page.topics for each in topic.partitions]
            if page.next_cursor is None:
                break
            cursor = {
                "topic_name": page.next_cursor.topic_name,
                "partition_index": page.next_cursor.partition_index,
            }
        assert seen == [(topic, number) for topic in "ab" for number in range(PARTITIONS)]


def test_every_special_time_has_its_offset(tmp_path: Path) -> None:
    with topics_served(tmp_path, "t") as serving, RawClient(serving.address) as client:
        found = {}
        for stamp in range(-7, 0):
            partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": stamp}
            topics = [{"name": "t", "partitions": [partition]}]
            answer = client.ask(protocol.LIST_OFFSETS, 11, {"replica_id": -1, "topics": topics})
            entry = answer.topics[0].partitions[0]
            found[stamp] = entry.error_code if entry.error_code else entry.offset
        assert found == {-7: ErrorCode.unsupported_version, -6: -1, -5: -1, -4: 0, -3: 4, -2: 0, -1: RECORDS}
