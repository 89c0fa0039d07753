"""What the records of Kafka's own topics say: groups, transactions, share groups, cluster metadata.

Kafka: GroupCoordinatorRecordSerde, TransactionLog, ShareGroupStateRecord, MetadataRecordSerde; the text forms are
those of DumpLogSegments' decoders. `decode_*` give values and raise `WireError`, `*_text` never raise.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seglog.format import message_tables
from seglog.format.wire import Message, Reader, WireError, decode_message

METADATA_FRAME_VERSION = 1

OFFSETS = message_tables.GROUPS
TRANSACTIONS = message_tables.TRANSACTIONS
SHARE_STATE = message_tables.SHARE

TOMBSTONE_TEXT = "<DELETE>"

_INT16 = struct.Struct(">h")
_GROUP_METADATA = 2
_CLASSIC_CONSUMER = "consumer"


class UnknownRecordTypeError(WireError):
    """A record of a type that is not in the table."""

    def __init__(self, record_type: int) -> None:
        self.record_type = record_type
        super().__init__(f"unknown record type {record_type}")


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A coordinator's record. `value` and `version` are None for a tombstone."""

    type: int
    key: Mapping[str, Any]
    version: int | None
    value: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of the cluster's metadata; `name` is Kafka's, such as TOPIC_RECORD."""

    type: int
    name: str
    version: int
    data: Mapping[str, Any]


def decode_coordinator_record(table: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Key and value by one of OFFSETS, TRANSACTIONS, SHARE_STATE. Raises `WireError`."""
    if key is None:
        raise WireError("the record has no key")
    messages = message_tables.messages(table)
    record_type = _int16(key)
    key_message, value_message = messages.get((record_type, "key")), messages.get((record_type, "value"))
    if key_message is None or value_message is None:
        raise UnknownRecordTypeError(record_type)
    parsed_key = decode_message(key_message, key, 0, _INT16.size)
    if value is None:
        return CoordinatorRecord(record_type, parsed_key, None, None)
    version = _int16(value)
    parsed = decode_message(value_message, value, version, _INT16.size)
    return CoordinatorRecord(record_type, parsed_key, version, parsed)


def decode_metadata_record(value: bytes | None) -> MetadataRecord:
    """A value of `__cluster_metadata`. Raises `WireError`, for bytes behind the record too."""
    if value is None:
        raise WireError("the record has no value")
    frame = Reader(value, 0, True)
    frame_version = frame.unsigned_varint()
    if frame_version != METADATA_FRAME_VERSION:
        raise WireError(f"unknown frame version {frame_version}")
    record_type, version = frame.unsigned_varint(), frame.unsigned_varint()
    known = _metadata_messages().get(record_type)
    if known is None:
        raise UnknownRecordTypeError(record_type)
    name, message = known
    return MetadataRecord(
        record_type, name, version, decode_message(message, value, version, frame.position, exact=True)
    )


def coordinator_text(table: str, key: bytes | None, value: bytes | None, offset: int) -> tuple[str, str | None]:
    """What DumpLogSegments prints for key and payload; the payload is None where it prints none."""
    try:
        record = decode_coordinator_record(table, key, value)
    except UnknownRecordTypeError as error:
        return f"Unknown record type {error.record_type} at offset {offset}, skipping.", None
    except WireError as error:
        return f"Error at offset {offset}, skipping. {error}", None
    key_text = json_text({"type": str(record.type), "data": record.key})
    if record.value is None:
        return key_text, TOMBSTONE_TEXT
    data = _with_consumer_protocol(record.value) if _is_group_metadata(table, record) else record.value
    return key_text, json_text({"version": str(record.version), "data": data})


def metadata_text(value: bytes | None, offset: int) -> str:
    """What DumpLogSegments prints for the payload of a metadata record."""
    try:
        record = decode_metadata_record(value)
    except WireError as error:
        return f"Error at {offset}, skipping. {error}"
    return json_text({"type": record.name, "version": record.version, "data": record.data})


def json_text(value: object) -> str:
    """JSON as Kafka prints it: no blanks, bytes in base64."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no place in a message")
    return base64.b64encode(value).decode("ascii")


def _metadata_messages() -> dict[int, tuple[str, Message]]:
    found = message_tables.messages(message_tables.METADATA)
    return {number: (name, message) for (number, name), message in found.items()}


def _int16(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise WireError("the type or version is missing")
    return int(_INT16.unpack_from(data)[0])


def _is_group_metadata(table: str, record: CoordinatorRecord) -> bool:
    return table is OFFSETS and record.type == _GROUP_METADATA


def _with_consumer_protocol(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """The group with its members' subscription and assignment opened, where they can be."""
    if group["protocolType"] != _CLASSIC_CONSUMER:
        return group
    members = [
        {name: _opened(name, each) if name in ("subscription", "assignment") else each for name, each in m.items()}
        for m in group["members"]
    ]
    return {**group, "members": members}


def _opened(name: str, content: bytes) -> object:
    message = message_tables.messages(message_tables.CONSUMER_PROTOCOL)[0, name]
    try:
        return decode_message(message, content, _int16(content), _INT16.size)
    except WireError:
        return content
