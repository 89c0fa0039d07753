"""Mutated requests of every API and version: answered, or an error of their connection, and nothing stays."""

from __future__ import annotations

import random
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from seglog.model import Isolation, Record
from seglog_rescue.serve import protocol
from seglog_rescue.serve.catalog import Catalog
from seglog_rescue.serve.endpoint import ConnectionEnd, Limits
from seglog_rescue.serve.protocol import VERSIONS
from tests.support import effort
from tests.support.consumers import librdkafka_rows
from tests.support.open_logs import opened_log
from tests.support.raw_client import RawClient, request_frame
from tests.support.serving import Serving, local_rows
from tests.support.wire_answers import PAID, TOPIC, readings

FUZZED = effort.tries(800)
FUZZED_MEMORY = 24 << 20  # beyond what the first requests took: the libraries', and what the limits below allow
WARM_UP = 200  # requests
ANSWER_SECONDS = 0.01


def test_mutated_requests_neither_crash_nor_hang_nor_stay_nor_take_memory(tmp_path: Path) -> None:
    """SEGLOG_EFFORT=125 runs 100,000: requests that were answered, or for which the connection was closed."""
    chance = random.Random(FUZZED)
    for name in (f"{TOPIC}-0", f"{TOPIC}-1", f"{PAID}-0"):
        with opened_log(tmp_path / name, segment_bytes=20_000) as log:
            for i in range(50):
                log.append([Record(b"value %d" % i, b"key", 1000 + i) for _ in range(10)])
    limits = Limits(wait_ms=5, frame_s=5, requests_bytes=8 << 20, groups=50, group_members=20, commits=500)
    with Serving(tmp_path, limits=limits) as serving:
        shapes = [*ordinary(serving.catalog), *of_members(serving.catalog)]
        metrics, ends = serving.endpoint.metrics, serving.observer.ends
        wrong, first, most = list[ConnectionEnd](), 0, 0
        while (taken := metrics.requests_total + metrics.hostile_total) < FUZZED:
            if taken >= WARM_UP:
                most = max(most, resident_bytes())
                first = first or most
            with RawClient(serving.address) as client:
                for _ in range(chance.randrange(1, 30)):
                    frame = mutated(chance, chance.choice(shapes))
                    with suppress(ConnectionError):
                        client.socket.sendall(struct.pack(">i", len(frame)) + frame)
                    if not still_open(client.socket):
                        break
            while ends:  # keeping them all would look like growth
                wrong += filter(is_internal, [ends.pop()])
        with RawClient(serving.address) as client:
            assert client.ask(protocol.METADATA, 12, {"topics": None}).topics
        assert wrong + list(filter(is_internal, ends)) == []
        assert most - first < FUZZED_MEMORY
        rows = librdkafka_rows(serving.bootstrap, [(TOPIC, 0)], Isolation.READ_COMMITTED.label)[TOPIC, 0]
        found = serving.catalog.find(TOPIC, 0)
        assert found is not None and rows == local_rows(found.log)


def is_internal(end: ConnectionEnd) -> bool:
    """Whether a connection ended because the endpoint went wrong."""
    return end.reason.startswith("internal error")


def ordinary(catalog: Catalog) -> Iterator[bytes]:
    """Those that the endpoint's answers are compared with a broker's for, in all versions."""
    for asked in readings(catalog.topic_id(TOPIC)):
        least, most = VERSIONS[asked.api_key]
        for version in range(max(least, asked.first), min(most, asked.last) + 1):
            yield request_frame(asked.api_key, version, asked.values)


def of_members(catalog: Catalog) -> Iterator[bytes]:
    """Requests of members of both protocols, more often than their share: they change what the endpoint keeps."""
    seconds = timedelta(seconds=6)
    joining: dict[str, Any] = {"rebalance_timeout": seconds, "topic_partitions": (), "member_epoch": 0}
    owned = [{"topic_id": catalog.topic_id(TOPIC), "partitions": (0, 1)}]
    for more in (
        joining | {"subscribed_topic_names": (TOPIC,)},
        joining | {"subscribed_topic_names": (TOPIC, PAID), "instance_id": "i", "server_assignor": "range"},
        joining | {"subscribed_topic_regex": "(pl|pa[a-z]{2,9})*"},
        {"member_epoch": 1, "topic_partitions": None},
        {"member_epoch": 1, "topic_partitions": owned, "rebalance_timeout": seconds},
        {"member_epoch": -1, "topic_partitions": None},
    ):
        for version in (0, 1):
            asked = {"group_id": "h", "member_id": "m", **more}
            yield from [request_frame(protocol.CONSUMER_GROUP_HEARTBEAT, version, asked)] * 9
    entry = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": -1, "committed_metadata": "m"}
    topics = [{"name": TOPIC, "topic_id": catalog.topic_id(TOPIC), "partitions": [entry]}]
    for version in (8, 9, 10):
        asked = {"group_id": "h", "member_id": "m", "generation_id_or_member_epoch": 1, "topics": topics}
        yield from [request_frame(protocol.OFFSET_COMMIT, version, asked)] * 9
    named = [{"name": "range", "metadata": b"x"}]
    for version in range(VERSIONS[protocol.JOIN_GROUP][1] + 1):
        asked = {"group_id": "g", "member_id": "", "protocol_type": "consumer", "protocols": named}
        asked |= {"session_timeout": seconds, "rebalance_timeout": seconds}
        yield from [request_frame(protocol.JOIN_GROUP, version, asked)] * 3
    for key in (protocol.CONSUMER_GROUP_DESCRIBE, protocol.DESCRIBE_GROUPS):
        yield from [request_frame(key, 0, {"group_ids": ("g", "h"), "groups": ("g", "h")})] * 9


def resident_bytes() -> int:
    """What this process holds of memory; the endpoint is a thread of it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def still_open(connection: socket.socket) -> bool:
    """Whether the endpoint has not closed it; takes what has come, for a moment."""
    connection.settimeout(ANSWER_SECONDS)
    try:
        return bool(connection.recv(1 << 20))
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def mutated(chance: random.Random, frame: bytes) -> bytes:
    """The frame with a few changed, inserted or cut off bytes."""
    data = bytearray(frame)
    for _ in range(chance.choice((0, 1, 1, 2, 8))):
        at = chance.randrange(4, len(data)) if len(data) > 4 and chance.random() < 0.9 else chance.randrange(len(data))
        how = chance.choice((0, 0, 0, 1, 2, 3))
        if how == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[at] = chance.choice((0, 0x7F, 0x80, 0xFF))
        elif how == 2:
            del data[at:]
        else:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        if not data:
            data += b"\0"
    return bytes(data)
