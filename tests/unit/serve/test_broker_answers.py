"""What a broker's answers hold where clients look; tests/interop compares all fields with a real broker's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from seglog.model import Record
from seglog_rescue.serve import protocol
from seglog_rescue.serve.protocol import ErrorCode
from tests.support.open_logs import opened_log
from tests.support.raw_client import RawClient
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    path = tmp_path_factory.mktemp("answers") / "t-0"
    with opened_log(path) as log:
        log.append([Record(b"value", timestamp=1000)])
    with Serving(path) as serving, RawClient(serving.address) as connected:
        yield connected


def test_a_name_that_no_topic_can_have_is_invalid(client: RawClient) -> None:
    names = ("a b", "", ".", "x" * 250, "x" * 249)
    asked = {"topics": [{"name": each, "topic_id": None} for each in names]}
    codes = [topic.error_code for topic in client.ask(protocol.METADATA, 12, asked).topics]
    assert codes == [ErrorCode.invalid_topic_exception] * 4 + [ErrorCode.unknown_topic_or_partition]


def test_a_fetch_that_goes_on_with_a_session_is_told_that_there_is_none(client: RawClient) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    asked = {"topics": [{"topic": "t", "partitions": [partition]}], "max_bytes": 1 << 20, "min_bytes": 0}
    for session, epoch, code in (
        (0, -1, ErrorCode.none),
        (0, 0, ErrorCode.none),
        (5, -1, ErrorCode.none),
        (5, 0, ErrorCode.none),
        (0, 4, ErrorCode.fetch_session_id_not_found),
        (5, 4, ErrorCode.fetch_session_id_not_found),
    ):
        answer = client.ask(protocol.FETCH, 12, {**asked, "session_id": session, "session_epoch": epoch})
        assert (answer.error_code, bool(answer.responses)) == (code, code is ErrorCode.none)


def test_the_values_of_a_topic_are_written_and_typed_as_kafka_does(client: RawClient) -> None:
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    (described,) = client.ask(protocol.DESCRIBE_CONFIGS, 4, {"resources": [asked]}).results
    values = {each.name: (each.value, each.config_type) for each in described.configs}
    assert values["message.timestamp.type"] == ("CreateTime", 2)
    assert values["preallocate"] == ("false", 1)
    assert (values["segment.bytes"][1], values["retention.ms"][1]) == (3, 5)
    assert values["min.cleanable.dirty.ratio"] == ("0.5", 6)
    assert values["cleanup.policy"] == ("delete", 7)


def test_a_refused_heartbeat_names_no_member_and_no_next_one(client: RawClient) -> None:
    joining = {"rebalance_timeout": timedelta(seconds=9), "subscribed_topic_names": ("t",), "topic_partitions": ()}
    for member_epoch, more in ((-3, {}), (-2, {}), (0, {**joining, "server_assignor": ""})):
        asked = {"group_id": "g", "member_id": "m", "member_epoch": member_epoch, "topic_partitions": None, **more}
        answer = client.ask(protocol.CONSUMER_GROUP_HEARTBEAT, 1, asked)
        told = (answer.member_id, answer.member_epoch, answer.heartbeat_interval, answer.assignment)
        assert told == (None, 0, timedelta(0), None)
        assert answer.error_code in (ErrorCode.invalid_request, ErrorCode.unsupported_assignor)


def test_a_member_of_the_consumer_protocol_commits_by_requests_that_know_its_epoch(client: RawClient) -> None:
    joining = {"rebalance_timeout": timedelta(seconds=9), "subscribed_topic_names": ("t",), "topic_partitions": ()}
    asked = {"group_id": "h", "member_id": "m", "member_epoch": 0, **joining}
    epoch = client.ask(protocol.CONSUMER_GROUP_HEARTBEAT, 1, asked).member_epoch
    entry = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    commit = {"group_id": "h", "generation_id_or_member_epoch": epoch, "member_id": "m"}
    commit["topics"] = [{"name": "t", "partitions": [entry]}]
    codes = [client.ask(protocol.OFFSET_COMMIT, each, commit).topics[0].partitions[0].error_code for each in (8, 9)]
    assert codes == [ErrorCode.unsupported_version, ErrorCode.none]
