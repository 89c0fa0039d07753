"""Decodes the records of Kafka's own topics: groups, transactions, share groups, cluster metadata.

Kafka: GroupCoordinatorRecordSerde, TransactionLog, ShareGroupStateRecord, MetadataRecordSerde.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seglog.format import message_tables
from seglog.format.wire import (
    FramedRecord,
    Message,
    UnknownRecordTypeError,
    WireError,
    decode_framed,
    decode_message,
)

OFFSETS = message_tables.GROUPS
TRANSACTIONS = message_tables.TRANSACTIONS
SHARE_STATE = message_tables.SHARE
TRANSACTION_TOPIC = "__transaction_state"


_ESCAPE = re.compile(r"\\u00[0-9a-f]{2}|\\\\")  # a doubled backslash begins no escape
_INT16 = struct.Struct(">h")
VERSION_BYTES = _INT16.size
_OFFSET_COMMITS = (b"\x00\x00", b"\x00\x01")  # the first two types of keys


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A coordinator's record. `value` and `version` are None for a tombstone."""

    type: int
    key: Mapping[str, Any]
    version: int | None
    value: Mapping[str, Any] | None


def decode_coordinator_record(table: str, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Decodes key and value by one of OFFSETS, TRANSACTIONS and SHARE_STATE (Kafka: CoordinatorRecordSerde).

    Raises `WireError` with Kafka's text.
    """
    if key is None:
        raise WireError("the record has no key")
    messages = message_tables.messages(table)
    record_type = version_of(key, "key")
    key_message, value_message = messages.get((record_type, "key")), messages.get((record_type, "value"))
    if key_message is None or value_message is None:
        raise UnknownRecordTypeError(record_type)
    parsed_key = _decoded(key_message, key, 0, record_type, "key")
    if value is None:
        return CoordinatorRecord(record_type, parsed_key, None, None)
    version = version_of(value, "value")
    if not 0 <= version <= value_message.last_version:
        raise WireError(f"Found an unknown record version {version} for {record_type} type")
    parsed = _decoded(value_message, value, version, version, "value")
    return CoordinatorRecord(record_type, parsed_key, version, parsed)


def is_offset_commit(key: bytes) -> bool:
    """True if a key of `__consumer_offsets` is that of a committed offset; all others belong to groups."""
    return key[:VERSION_BYTES] in _OFFSET_COMMITS


def decode_metadata_record(value: bytes | None) -> FramedRecord:
    """Decodes a value of `__cluster_metadata`. Raises `WireError`, also for bytes after the record."""
    return decode_framed(message_tables.framed_messages(message_tables.METADATA), value or b"")


def json_text(value: object) -> str:
    """Returns JSON as Kafka prints it: without blanks, bytes in base64, escapes like Java's."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)
    return _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no place in a message")
    return base64.b64encode(value).decode("ascii")


def version_of(data: bytes, what: str) -> int:
    """Returns the version at the beginning of a key or value (`what`). Raises `WireError`."""
    if len(data) < VERSION_BYTES:
        raise WireError(f"Could not read version from {what}'s buffer.")
    return int(_INT16.unpack_from(data)[0])


def _decoded(message: Message, data: bytes, version: int, said: int, what: str) -> dict[str, Any]:
    try:
        return decode_message(message, data, version, VERSION_BYTES)
    except WireError as error:
        reason = f"Could not read record with version {said} from {what}'s buffer due to: {error.kafka}."
        raise WireError(reason) from error
