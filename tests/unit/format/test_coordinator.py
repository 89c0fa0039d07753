"""Records of Kafka's own topics: what Kafka 4.3.0 printed for them, and every message of the tables both ways."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.format import message_tables
from seglog.format.coordinator import (
    CONSUMER_PROTOCOL,
    OFFSETS,
    SHARE_STATE,
    TRANSACTIONS,
    UnknownRecordTypeError,
    decode_coordinator_record,
)
from seglog.format.message_tables import decode_metadata_record
from seglog.format.uuids import format_uuid
from seglog.format.wire import NEVER, Field, Message, Reader, WireError, decode_message, encode_message
from seglog_ask.values.coordinator_texts import coordinator_text, java_double, metadata_text

TABLES = (message_tables.METADATA, OFFSETS, TRANSACTIONS, SHARE_STATE, CONSUMER_PROTOCOL)
MESSAGES = [message for table in TABLES for message in message_tables.messages(table).values()]

# Values of a broker's metadata log, and what DumpLogSegments --cluster-metadata-decoder prints for them.
METADATA = [
    (
        "010c00116d657461646174612e76657273696f6e001e00",
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":30}}',
    ),
    (
        "0104000401146d696e2e696e73796e632e7265706c69636173023100",
        '{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":4,"resourceName":"",'
        '"name":"min.insync.replicas","value":"1"}}',
    ),
    (
        "01110300000001000000000000000b01030101",
        '{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":3,"data":{"brokerId":1,"brokerEpoch":11,'
        '"cordonedLogDirs":[]}}',
    ),
    (
        "0102000c6f72646572732d6e6f6e65a47efabf6904457991d8c06eeff1b0ca00",
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"orders-none","topicId":"pH76v2kERXmR2MBu7_Gwyg"}}',
    ),
    (
        "01030200000000a47efabf6904457991d8c06eeff1b0ca02000000010200000001010100000001000000000000000002cfce4706"
        "afbd31e06ffd508dcdcc0ba200",
        '{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":0,"topicId":"pH76v2kERXmR2MBu7_Gwyg",'
        '"replicas":[1],"isr":[1],"removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":0,'
        '"partitionEpoch":0,"directories":["z85HBq-9MeBv_VCNzcwLog"]}}',
    ),
    (
        "0105020000000088af27752e0a4247a49ba318ec2c313f040001010104ffffffff0605020000000107050200000001",
        '{"type":"PARTITION_CHANGE_RECORD","version":2,"data":{"partitionId":0,'
        '"topicId":"iK8ndS4KQkekm6MY7CwxPw","isr":[],"leader":-1,"eligibleLeaderReplicas":[1],"lastKnownElr":[1]}}',
    ),
]
MEMBER = "rdkafka-af538893-da39-4cab-9b1e-37f1ece4c466"
COORDINATORS = [
    (
        OFFSETS,
        "000100056772702d3000087061796d656e747300000000",
        "000400000000000002f10000000001000001a1fbd668d40100105aedc7e491684c30a67fd0d1dc60f079",
        '{"type":"1","data":{"group":"grp-0","topic":"payments","partition":0}}',
        '{"version":"4","data":{"offset":753,"leaderEpoch":0,"metadata":"","commitTimestamp":1795226495188,'
        '"topicId":"Wu3H5JFoTDCmf9DR3GDweQ"}}',
    ),
    (
        OFFSETS,
        "000200056772702d30",
        "00030008636f6e73756d657200000001000572616e6765002c72646b61666b612d61663533383839332d646133392d346361622d"
        "396231652d333766316563653463343636000001a1fbd6681800000001002c72646b61666b612d61663533383839332d64613339"
        "2d346361622d396231652d333766316563653463343636ffff000772646b61666b61000a2f3132372e302e302e31000493e00000"
        "afc80000002a000300000002000a6f72646572732d6c7a3400087061796d656e74730000000000000000ffffffff000000000030"
        "000000000002000a6f72646572732d6c7a34000000010000000000087061796d656e7473000000010000000000000000",
        '{"type":"2","data":{"group":"grp-0"}}',
        f'{{"version":"3","data":{{"protocolType":"consumer","generation":1,"protocol":"range","leader":"{MEMBER}",'
        f'"currentStateTimestamp":1795226495000,"members":[{{"memberId":"{MEMBER}","groupInstanceId":null,'
        '"clientId":"rdkafka","clientHost":"/127.0.0.1","rebalanceTimeout":300000,"sessionTimeout":45000,'
        '"subscription":{"topics":["orders-lz4","payments"],"userData":"","ownedPartitions":[],"generationId":-1,'
        '"rackId":""},"assignment":{"assignedPartitions":[{"topic":"orders-lz4","partitions":[0]},'
        '{"topic":"payments","partitions":[0]}],"userData":""}}]}}',
    ),
    (
        TRANSACTIONS,
        "0000000c7061796d656e74732d302d37",
        "0001000000000000000200000000ea600102097061796d656e7473020000000000000001a1fbd65793000001a1fbd65793010008"
        "0000000000000002",
        '{"type":"0","data":{"transactionalId":"payments-0-7"}}',
        '{"version":"1","data":{"producerId":2,"previousProducerId":2,"producerEpoch":0,'
        '"transactionTimeoutMs":60000,"transactionStatus":1,"transactionPartitions":[{"topic":"payments",'
        '"partitionIds":[0]}],"transactionLastUpdateTimestampMs":1795226490771,'
        '"transactionStartTimestampMs":1795226490771}}',
    ),
]

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
FIXED = {
    "bool": st.booleans(),
    "uint16": st.integers(0, 65535),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "uuid": st.uuids().map(format_uuid),
    **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in INTEGERS.items()},
}


def values_of(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    present = [field for field in fields if field.exists_in(version)]
    required = {field.name: value_of(field, version) for field in present if field.tag is None}
    tagged = {field.name: value_of(field, version) for field in present if field.tag is not None}
    return st.fixed_dictionaries(required, optional=tagged)


def value_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    one = FIXED[field.type] if isinstance(field.type, str) else values_of(field.type, version)
    value = st.lists(one, max_size=2) if field.array else one
    return st.none() | value if version >= field.nullable_from else value


def without_defaults(fields: tuple[Field, ...], value: Any) -> Any:
    """What a reader finds: a tagged field is not written when it has its default."""
    if isinstance(value, list):
        return [without_defaults(fields, each) for each in value]
    if value is None:
        return None
    found = {}
    for field in fields:
        if field.name in value and (field.tag is None or value[field.name] != field.default):
            each = value[field.name]
            found[field.name] = without_defaults(field.type, each) if isinstance(field.type, tuple) else each
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[Message, int, dict[str, Any]]:
    message = draw(st.sampled_from(MESSAGES))
    version = draw(st.integers(0, message.last_version))
    fields = message.fields
    return message, version, draw(values_of(fields, version))


def decode_all(message: Message, data: bytes, version: int) -> dict[str, Any]:
    """What `decode_message` returns, of bytes that end with the message."""
    reader = Reader(data, version, version >= message.flexible_from)
    value = reader.structure(message.fields)
    assert reader.position == len(data)
    return value


@given(cases())
def test_every_message_of_the_tables_round_trips(case: tuple[Message, int, dict[str, Any]]) -> None:
    message, version, value = case
    if version < message.flexible_from:
        value = {f.name: value[f.name] for f in message.fields if f.name in value and f.tag is None}
    found = decode_all(message, encode_message(message, value, version), version)
    assert found == without_defaults(message.fields, value)


@given(cases(), st.data())
def test_truncated_messages_are_errors(case: tuple[Message, int, dict[str, Any]], data: st.DataObject) -> None:
    message, version, value = case
    encoded = encode_message(message, value, version)
    if encoded:
        cut = data.draw(st.integers(0, len(encoded) - 1))
        with pytest.raises(WireError):
            decode_message(message, encoded[:cut], version)


@pytest.mark.parametrize(("value", "expected"), METADATA)
def test_metadata_records_read_as_kafka_prints_them(value: str, expected: str) -> None:
    assert metadata_text(bytes.fromhex(value), 5) == expected


@pytest.mark.parametrize(("table", "key", "value", "key_text", "value_text"), COORDINATORS)
def test_coordinator_records_read_as_kafka_prints_them(
    table: str, key: str, value: str, key_text: str, value_text: str
) -> None:
    assert coordinator_text(table, bytes.fromhex(key), bytes.fromhex(value), 5) == (key_text, value_text)
    assert coordinator_text(table, bytes.fromhex(key), None, 5) == (key_text, "<DELETE>")


def test_a_topic_record_gives_name_and_id() -> None:
    record = decode_metadata_record(bytes.fromhex(METADATA[3][0]))
    assert (record.name, record.data["name"]) == ("TOPIC_RECORD", "orders-none")


@pytest.mark.parametrize("value", ["", "02", "0102", "01ff01", "010201", "0104000401146d", METADATA[0][0] + "00"])
def test_metadata_that_cannot_be_read_has_kafkas_text(value: str) -> None:
    assert metadata_text(bytes.fromhex(value), 7).startswith("Error at 7, skipping. ")
    with pytest.raises(WireError):
        decode_metadata_record(bytes.fromhex(value))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (0.001, "0.001"),
        (0.000999, "9.99E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456.75, "123456.75"),
        (1e300, "1.0E300"),
        (float("inf"), "Infinity"),
    ],
)
def test_numbers_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert java_double(number) == text


def test_a_member_of_the_classic_protocol_in_a_consumer_group_is_read() -> None:
    message = message_tables.messages(OFFSETS)[5, "value"]
    member = {
        "instanceId": None, "rackId": None, "clientId": "c", "clientHost": "h", "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": None, "rebalanceTimeoutMs": 1, "serverAssignor": None,
    }  # fmt: skip
    # what Kafka 4.3.0 writes after it: one tagged field, 0, of 8 bytes; 1 for a struct that is there
    tail = bytes.fromhex("01000801000013880100") + b""
    value = decode_all(message, encode_message(message, member, 0)[:-1] + tail, 0)
    assert value["classicMemberMetadata"] == {"sessionTimeoutMs": 5000, "supportedProtocols": []}


def test_unknown_record_types_have_kafkas_text() -> None:
    assert coordinator_text(OFFSETS, b"\x00\x63", b"", 9) == ("Unknown record type 99 at offset 9, skipping.", None)
    with pytest.raises(UnknownRecordTypeError):
        decode_metadata_record(bytes.fromhex("016300"))


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"", b""), (b"\x00\x01\x00", b""), (b"\x00\x02\x00\x00", b"\x00\x63")]
)
def test_coordinator_records_that_cannot_be_read_have_kafkas_text(key: bytes | None, value: bytes) -> None:
    text, payload = coordinator_text(OFFSETS, key, value, 9)
    assert text.startswith("Error at offset 9, skipping. ")
    assert payload is None


def test_a_subscription_that_cannot_be_read_stays_base64() -> None:
    message = message_tables.messages(OFFSETS)[2, "value"]
    member = {
        "memberId": "m", "groupInstanceId": None, "clientId": "c", "clientHost": "h", "rebalanceTimeout": 1,
        "sessionTimeout": 1, "subscription": b"\x00\x63", "assignment": b"",
    }  # fmt: skip
    group = {
        "protocolType": "consumer", "generation": 1, "protocol": None, "leader": None, "currentStateTimestamp": 1,
        "members": [member],
    }  # fmt: skip
    value = b"\x00\x03" + encode_message(message, group, 3)
    _, text = coordinator_text(OFFSETS, b"\x00\x02\x00\x01g", value, 0)
    found = json.loads(text or "")["data"]["members"][0]
    assert (found["subscription"], found["assignment"]) == ("AGM=", "")


@given(
    st.sampled_from([OFFSETS, TRANSACTIONS, SHARE_STATE]),
    st.integers(0, 25),
    st.binary(max_size=60),
    st.none() | st.tuples(st.integers(0, 5), st.binary(max_size=100)),
)
def test_random_coordinator_records_never_raise(
    table: str, record_type: int, key: bytes, value: tuple[int, bytes] | None
) -> None:
    content = None if value is None else value[0].to_bytes(2, "big") + value[1]
    text, payload = coordinator_text(table, record_type.to_bytes(2, "big") + key, content, 1)
    assert payload is None or json.loads(text)


@given(st.integers(0, 30), st.integers(0, 5), st.binary(max_size=100))
def test_random_metadata_never_raises(record_type: int, version: int, body: bytes) -> None:
    assert metadata_text(bytes([1, record_type, version]) + body, 1)


def test_offset_commits_of_every_version_are_known() -> None:
    key = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
    bodies = {
        0: "000000000000002a0001780000000000000009",
        1: "000000000000002a00017800000000000000090000000000000009",
        2: "000000000000002a0001780000000000000009",
        3: "000000000000002affffffff0001780000000000000009",
    }
    for version, body in bodies.items():
        record = decode_coordinator_record(OFFSETS, key, version.to_bytes(2, "big") + bytes.fromhex(body))
        assert record.value is not None
        assert (record.value["offset"], record.value["metadata"], record.value["commitTimestamp"]) == (42, "x", 9)
        assert ("expireTimestamp" in record.value) == (version == 1)


def test_tables_hold_what_they_should() -> None:
    metadata = message_tables.messages(message_tables.METADATA)
    assert len(metadata) == 27
    group = message_tables.messages(OFFSETS)
    keys = {number for number, name in group if name == "key"}
    assert keys == {number for number, name in group if name == "value"}
    assert group[1, "key"].flexible_from == NEVER
