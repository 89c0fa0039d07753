"""The endpoint over sockets: every version is answered, writes are refused, hostile clients are closed."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from seglog.log.log import Log
from seglog.model import Record
from seglog_rescue.serve import dispatch, protocol, server
from seglog_rescue.serve.endpoint import Limits
from seglog_rescue.serve.protocol import VERSIONS, ErrorCode
from tests.support.consumers import librdkafka_rows
from tests.support.open_logs import opened_log
from tests.support.raw_client import RawClient, request_frame
from tests.support.serving import LIMIT_SECONDS, Serving

RECORDS = 500


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served")
    for name in ("t-0", "t-2", "u-0"):
        with opened_log(path / name, segment_bytes=20_000) as log:
            for i in range(RECORDS // 10):
                log.append([Record(b"value %d" % i, b"key", 1000 + i) for _ in range(10)])
    return path


@pytest.fixture(scope="module")
def serving(directory: Path) -> Iterator[Serving]:
    with Serving(directory) as running:
        yield running


EVERY_VERSION = [(key, version) for key, (least, most) in VERSIONS.items() for version in range(least, most + 1)]


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_every_version_that_is_advertised_is_answered(serving: Serving, api_key: int, version: int) -> None:
    with RawClient(serving.address) as client:
        client.ask(api_key, version, {"acks": 1} if api_key == protocol.PRODUCE else {})
        assert client.ask(protocol.API_VERSIONS, 0).error_code == ErrorCode.none


def test_a_future_version_of_api_versions_is_answered_with_the_supported_ones(serving: Serving) -> None:
    with RawClient(serving.address) as client:
        client.send(struct.pack(">hhih", protocol.API_VERSIONS, 99, 5, -1) + b"\0")
        number, error, count = struct.unpack_from(">ihi", client.receive())
        assert (number, error, count) == (5, ErrorCode.unsupported_version, len(VERSIONS))


def test_a_missing_partition_below_the_highest_has_no_leader(serving: Serving) -> None:
    with RawClient(serving.address) as client:
        topics = {each.name: each for each in client.ask(protocol.METADATA, 12, {"topics": None}).topics}
    assert sorted(topics) == ["t", "u"]
    assert [each.leader_id for each in topics["t"].partitions] == [1, -1, 1]


def test_descriptions_of_partitions_have_empty_lists_where_javas_admin_client_takes_no_null(serving: Serving) -> None:
    """Kafka 4.3, KafkaAdminClient: it takes the eligible leader replicas (KIP-966), nullable by schema, as a list."""
    with RawClient(serving.address) as client:
        described = client.ask(protocol.DESCRIBE_TOPIC_PARTITIONS, 0, {"response_partition_limit": 10})
    replicas = [
        (each.eligible_leader_replicas, each.last_known_elr) for topic in described.topics for each in topic.partitions
    ]
    assert replicas == [((), ())] * 4


def test_writes_are_refused_for_good(serving: Serving) -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

    errors: list[int] = []
    producer = Producer({"bootstrap.servers": serving.bootstrap, "message.timeout.ms": 20_000})
    producer.produce("t", b"value", partition=0, on_delivery=lambda error, _: errors.append(error.code()))
    assert producer.flush(30) == 0
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    admin = AdminClient({"bootstrap.servers": serving.bootstrap})
    for futures in (
        admin.create_topics([NewTopic("new", 1, 1)]),
        admin.delete_topics(["t"]),
        admin.create_partitions([NewPartitions("t", 9)]),
    ):
        for future in futures.values():
            with pytest.raises(KafkaException) as raised:
                future.result(30)
            assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with RawClient(serving.address) as client:
        failed = client.ask(protocol.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        assert failed.error_code == ErrorCode.cluster_authorization_failed
    assert serving.endpoint.metrics.refused_writes_total >= 5


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1) + b"x" * 100,
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 8, 77, 0, 1),
        struct.pack(">ihhi", 8, protocol.FETCH, 18, 1),
        struct.pack(">ihhih", 10, protocol.METADATA, 1, 1, 9),
        struct.pack(">ihhihii", 18, protocol.LIST_OFFSETS, 1, 1, -1, -1, -1),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["negative", "empty", "too large", "too short", "API", "version", "cut short", "null array", "HTTP"],
)
def test_who_sends_no_request_is_closed_and_nothing_is_kept(serving: Serving, sent: bytes) -> None:
    before = serving.endpoint.metrics.hostile_total
    with RawClient(serving.address) as client:
        port = client.socket.getsockname()[1]
        client.socket.sendall(sent)
        assert client.is_closed()
    end = serving.observer.wait_for(lambda each: each.peer.endswith(f":{port}"))
    assert end.hostile and end.requests == 0
    assert serving.endpoint.metrics.hostile_total == before + 1
    assert serving.endpoint.metrics.requests_bytes == 0


def test_an_array_that_promises_more_than_the_frame_holds_takes_no_memory(serving: Serving) -> None:
    with RawClient(serving.address) as client:
        client.send(struct.pack(">hhih", protocol.METADATA, 1, 1, -1) + struct.pack(">i", 2**31 - 1) + b"\0" * 20)
        assert client.is_closed()


def test_connections_above_the_limit_are_closed_at_once(directory: Path) -> None:
    with Serving(directory, limits=Limits(connections=2)) as serving:
        first, second = RawClient(serving.address), RawClient(serving.address)
        for client in (first, second):
            client.ask(protocol.API_VERSIONS, 3)
        with RawClient(serving.address) as third:
            assert third.is_closed()
        first.close()
        serving.observer.wait_for(lambda end: end.reason == "closed by the client")
        with RawClient(serving.address) as fourth:
            fourth.ask(protocol.API_VERSIONS, 3)
        second.close()


def test_a_connection_that_is_left_idle_gives_way_to_a_new_one(directory: Path) -> None:
    with (
        Serving(directory, limits=Limits(connections=2, crowded_idle_s=0)) as serving,
        RawClient(serving.address) as first,
        RawClient(serving.address) as second,
    ):
        second.ask(protocol.API_VERSIONS, 3)
        with RawClient(serving.address) as third:
            third.ask(protocol.API_VERSIONS, 3)
            assert first.is_closed()
            second.ask(protocol.API_VERSIONS, 3)


def test_who_dawdles_within_a_request_is_closed(directory: Path) -> None:
    with Serving(directory, limits=Limits(frame_s=0.05)) as serving, RawClient(serving.address) as client:
        client.socket.sendall(struct.pack(">i", 100) + b"x")
        assert client.is_closed()
        assert serving.observer.wait_for(lambda end: True).reason == "timed out"


def test_requests_are_answered_in_order_however_their_bytes_arrive(serving: Serving) -> None:
    frames = [request_frame(protocol.METADATA, 12, {"topics": None}, number) for number in range(40)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    with RawClient(serving.address) as client:
        for size in (len(stream), 1, 5, 3000):
            for start in range(0, len(stream), size):
                client.socket.sendall(stream[start : start + size])
            assert [struct.unpack_from(">i", client.receive())[0] for _ in frames] == list(range(40))


def test_who_takes_no_answer_is_closed(directory: Path) -> None:
    asked = {"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]}
    frame = request_frame(protocol.FETCH, 4, {"max_bytes": 1 << 20, "topics": [asked]})
    with Serving(directory, limits=Limits(idle_s=0.3)) as serving, RawClient(serving.address) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.socket.sendall((struct.pack(">i", len(frame)) + frame) * 1000)  # their answers are 15 MB
        assert serving.observer.wait_for(lambda end: True).reason == "timed out"


def test_requests_beyond_the_budget_wait_for_their_turn(directory: Path) -> None:
    limits = Limits(requests_bytes=200, frame_s=30)
    with Serving(directory, limits=limits) as serving, RawClient(serving.address) as holder:
        holder.socket.sendall(struct.pack(">i", 190) + b"x")
        with RawClient(serving.address) as waiting:
            waiting.send(request_frame(protocol.METADATA, 12, {"topics": None}))
            waiting.socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                waiting.receive()
            holder.close()
            waiting.socket.settimeout(30)
            assert waiting.receive()


def test_what_members_of_groups_say_of_themselves_is_kept_within_a_bound(directory: Path) -> None:
    limits = Limits(groups_bytes=300_000)

    def asked(group: str, size: int) -> dict[str, object]:
        times = {"session_timeout": timedelta(minutes=30), "rebalance_timeout": timedelta(minutes=30)}
        named = [{"name": "range", "metadata": b"x" * size}]
        return {"group_id": group, "member_id": "", "protocol_type": "consumer", "protocols": named, **times}

    with Serving(directory, limits=limits) as serving:
        clients = [RawClient(serving.address) for _ in range(5)]
        errors = [
            client.ask(protocol.JOIN_GROUP, 2, asked(f"g{i}", 100_000)).error_code for i, client in enumerate(clients)
        ]
        assert errors == [ErrorCode.none] * 2 + [ErrorCode.group_max_size_reached] * 3
        assert clients[2].ask(protocol.JOIN_GROUP, 2, asked("small", 10)).error_code is ErrorCode.none
        sync = {"group_id": "g0", "generation_id": 1, "member_id": "m"}
        given = [{"member_id": "m", "assignment": b"x" * 200_000}]
        refused = clients[0].ask(protocol.SYNC_GROUP, 2, {**sync, "assignments": given})
        assert refused.error_code is ErrorCode.group_max_size_reached
        assert clients[3].ask(protocol.METADATA, 12, {"topics": None}).topics
        for client in clients:
            client.close()


def test_an_empty_protocol_of_a_member_counts_too(directory: Path) -> None:
    times = {"session_timeout": timedelta(minutes=30), "rebalance_timeout": timedelta(minutes=30)}
    asked = {"group_id": "g", "member_id": "", "protocol_type": "consumer", **times}
    with Serving(directory, limits=Limits(groups_bytes=300_000)) as serving, RawClient(serving.address) as client:
        joined = client.ask(protocol.JOIN_GROUP, 2, {**asked, "protocols": [{"name": "", "metadata": b""}] * 10_000})
        assert joined.error_code is ErrorCode.group_max_size_reached


def test_names_of_groups_and_metadata_of_commits_are_kept_within_a_bound(directory: Path) -> None:
    def commit(client: RawClient, group: str, metadata: str) -> ErrorCode:
        entry = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
        asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [{"name": "t", "partitions": [entry]}]
        (topic,) = client.ask(protocol.OFFSET_COMMIT, 8, {**asked, "topics": topics}).topics
        found: ErrorCode = topic.partitions[0].error_code
        return found

    with Serving(directory, limits=Limits(commits_bytes=1000)) as serving, RawClient(serving.address) as client:
        assert commit(client, "g" * 600, "") is ErrorCode.none
        assert commit(client, "h" * 600, "") is ErrorCode.group_max_size_reached
        assert commit(client, "g" * 600, "m" * 600) is ErrorCode.group_max_size_reached
        assert commit(client, "g" * 600, "m" * 400) is ErrorCode.none
        assert commit(client, "g" * 600, "m") is ErrorCode.none
        assert serving.commits.size == 601


def test_what_a_request_repeats_is_answered_once(serving: Serving) -> None:
    with RawClient(serving.address) as client:
        described = client.ask(protocol.METADATA, 1, {"topics": [{"name": "t"}] * 5000}).topics
        assert [topic.name for topic in described] == ["t"]
        resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
        assert len(client.ask(protocol.DESCRIBE_CONFIGS, 4, {"resources": [resource] * 5000}).results) == 1
        assert len(client.ask(protocol.DESCRIBE_GROUPS, 5, {"groups": ["g"] * 5000}).groups) == 1
        groups = [{"group_id": "g", "topics": None}] * 5000
        assert len(client.ask(protocol.OFFSET_FETCH, 8, {"groups": groups}).groups) == 1


def test_a_fetch_opens_a_bounded_number_of_files(directory: Path) -> None:
    partition = {"partition": 0, "fetch_offset": 4, "partition_max_bytes": 1 << 10}
    asked = {"topics": [{"topic": "t", "partitions": [partition] * 50}], "min_bytes": 1, "max_bytes": 1 << 20}
    with Serving(directory, limits=Limits(fetch_files=3)) as serving, RawClient(serving.address) as client:
        (topic,) = client.ask(protocol.FETCH, 4, {**asked, "replica_id": -1}).responses
        assert [bool(each.records) for each in topic.partitions] == [True] * 3 + [False] * 47
        assert {each.error_code for each in topic.partitions} == {ErrorCode.none}


@pytest.mark.parametrize("version", [10, 11])
def test_an_id_instead_of_a_name_is_refused_where_no_answer_can_carry_it(serving: Serving, version: int) -> None:
    asked = {"topics": [{"name": None, "topic_id": None}, {"name": "t", "topic_id": None}]}
    with RawClient(serving.address) as client:
        found = client.ask(protocol.METADATA, version, asked).topics
        refused = ErrorCode.invalid_request
        assert [(topic.name, topic.error_code) for topic in found] == [("", refused), ("t", refused)]
        assert client.ask(protocol.METADATA, 12, asked).topics[1].error_code is ErrorCode.none


def test_a_time_that_a_disk_does_not_give_is_an_error_of_its_partition(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    asked = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": 1010}]}], "replica_id": -1}
    with Serving(directory) as serving, RawClient(serving.address) as client:
        monkeypatch.setattr(Log, "offset_for_timestamp", fails)
        (topic,) = client.ask(protocol.LIST_OFFSETS, 5, asked).topics
        assert topic.partitions[0].error_code is ErrorCode.kafka_storage_error
        assert len(serving.observer.damages) == 1


def test_a_log_whose_data_finds_no_room_in_an_answer_is_not_opened_for_it(directory: Path) -> None:
    partitions = ({"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1},)
    asked = {"replica_id": -1, "max_bytes": 100_000, "min_bytes": 1, "session_epoch": -1}
    asked["topics"] = tuple({"topic": topic, "partitions": partitions} for topic in ("t", "u"))
    with Serving(directory, limits=Limits(fetch_files=1)) as serving, RawClient(serving.address) as client:
        first, second = (each.partitions[0] for each in client.ask(protocol.FETCH, 11, asked).responses)
        assert (first.error_code, first.high_watermark, bool(first.records)) == (ErrorCode.none, RECORDS, True)
        assert (second.error_code, second.high_watermark, bool(second.records)) == (ErrorCode.none, -1, False)
        assert not serving.catalog.topics["u"][0].is_open


def test_two_hundred_connections_are_served_at_once(serving: Serving) -> None:
    clients = [RawClient(serving.address) for _ in range(200)]
    asked = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}], "replica_id": -1}
    ends: list[int] = []

    def ask(client: RawClient) -> None:
        (topic,) = client.ask(protocol.LIST_OFFSETS, 5, asked).topics
        ends.append(topic.partitions[0].offset)

    threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ends == [RECORDS] * 200
    for client in clients:
        client.close()


def test_damage_ends_a_read_or_is_left_out(tmp_path: Path) -> None:
    from confluent_kafka import KafkaException

    with opened_log(tmp_path / "t-0") as log:
        for i in range(9):
            log.append([Record(b"value %d" % i, timestamp=1000)])
        path, position = log.segments.active.path, log.read(4, 1).position
    data = bytearray(path.read_bytes())
    data[position + 70] ^= 0xFF
    path.write_bytes(data)
    with Serving(tmp_path, skip_damage=True) as serving:
        rows = librdkafka_rows(serving.bootstrap, [("t", 0)], "read_uncommitted")["t", 0]
        assert [row[0] for row in rows] == [0, 1, 2, 3, 5, 6, 7, 8]
        assert [damage.first_offset for damage in serving.observer.damages] == [4]
    with Serving(tmp_path) as serving, RawClient(serving.address) as client:
        partition = {"partition": 0, "fetch_offset": 4, "partition_max_bytes": 1 << 20}
        asked = {"topics": [{"topic": "t", "partitions": [partition]}], "min_bytes": 1, "max_bytes": 1 << 20}
        (topic,) = client.ask(protocol.FETCH, 4, {**asked, "replica_id": -1}).responses
        assert topic.partitions[0].error_code == ErrorCode.corrupt_message
        with pytest.raises((KafkaException, AssertionError)):
            librdkafka_rows(serving.bootstrap, [("t", 0)], "read_uncommitted")


def test_a_stop_that_cuts_an_answer_off_is_no_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_GRACE_S", 0.01)
    asked = threading.Event()

    def slow(*_asked: object) -> dict[str, object]:
        asked.set()
        serving.observer.wait_for(lambda _end: True)
        return {}

    monkeypatch.setitem(cast(Any, dispatch._READERS), protocol.LIST_OFFSETS, slow)
    with Serving(directory) as serving:
        client = RawClient(serving.address)
        client.send(request_frame(protocol.LIST_OFFSETS, 7, {}))
        assert asked.wait(LIMIT_SECONDS)
    client.close()
    assert [end.reason for end in serving.observer.ends] == ["the endpoint stops"]
    assert [record for record in caplog.records if record.name == "asyncio"] == []
