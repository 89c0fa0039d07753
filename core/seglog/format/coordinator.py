"""Decodes the records of Kafka's own topics: groups, transactions, share groups, cluster metadata.

Kafka: GroupCoordinatorRecordSerde, TransactionLog, ShareGroupStateRecord, MetadataRecordSerde. The text forms are
those of DumpLogSegments' decoders. `decode_*` functions return values and raise `WireError`; `*_text` never raise.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
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

TOMBSTONE_TEXT = "<DELETE>"

_ESCAPE = re.compile(r"\\u00[0-9a-f]{2}|\\\\")  # a doubled backslash begins no escape
_INT16 = struct.Struct(">h")
_OFFSET_COMMITS = (b"\x00\x00", b"\x00\x01")  # the first two types of keys
_GROUP_METADATA = 2
_CLASSIC_CONSUMER = "consumer"
_QUOTA = "CLIENT_QUOTA_RECORD"


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
    record_type = _version(key, "key")
    key_message, value_message = messages.get((record_type, "key")), messages.get((record_type, "value"))
    if key_message is None or value_message is None:
        raise UnknownRecordTypeError(record_type)
    parsed_key = _decoded(key_message, key, 0, record_type, "key")
    if value is None:
        return CoordinatorRecord(record_type, parsed_key, None, None)
    version = _version(value, "value")
    if not 0 <= version <= value_message.last_version:
        raise WireError(f"Found an unknown record version {version} for {record_type} type")
    parsed = _decoded(value_message, value, version, version, "value")
    return CoordinatorRecord(record_type, parsed_key, version, parsed)


def is_offset_commit(key: bytes) -> bool:
    """True if a key of `__consumer_offsets` is that of a committed offset; all others belong to groups."""
    return key[: _INT16.size] in _OFFSET_COMMITS


def decode_metadata_record(value: bytes | None) -> FramedRecord:
    """Decodes a value of `__cluster_metadata`. Raises `WireError`, also for bytes after the record."""
    return decode_framed(message_tables.framed_messages(message_tables.METADATA), value or b"")


def coordinator_text(table: str, key: bytes | None, value: bytes | None, offset: int) -> tuple[str, str | None]:
    """Returns DumpLogSegments' text of key and payload; the payload is None if it prints none."""
    try:
        record = decode_coordinator_record(table, key, value)
    except UnknownRecordTypeError as error:
        return f"Unknown record type {error.record_type} at offset {offset}, skipping.", None
    except WireError as error:
        return f"Error at offset {offset}, skipping. {error.kafka}", None
    key_text = json_text({"type": str(record.type), "data": record.key})
    if record.value is None:
        return key_text, TOMBSTONE_TEXT
    is_group = table is OFFSETS and record.type == _GROUP_METADATA
    data = _with_consumer_protocol(record.value) if is_group else record.value
    return key_text, json_text({"version": str(record.version), "data": data})


def metadata_text(value: bytes | None, offset: int) -> str:
    """Returns DumpLogSegments' text of a metadata record's payload."""
    try:
        record = decode_metadata_record(value)
    except WireError as error:
        return f"Error at {offset}, skipping. {error.kafka}"
    text = _quota_text(record.data) if record.name == _QUOTA else json_text(record.data)
    return f'{{"type":"{record.name}","version":{record.version},"data":{text}}}'


def json_text(value: object) -> str:
    """Returns JSON as Kafka prints it: without blanks, bytes in base64, escapes like Java's."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_base64)
    return _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)


def _quota_text(data: Mapping[str, Any]) -> str:
    """Returns the JSON of the only message with a floating-point number."""
    fields = [f"{json_text(name)}:{json_text(value)}" for name, value in data.items() if name != "value"]
    value = java_double(data["value"])
    fields.insert(list(data).index("value"), f'"value":{value if math.isfinite(data["value"]) else json_text(value)}')
    return f"{{{','.join(fields)}}}"


def java_double(value: float) -> str:
    """Formats like Java's Double.toString, which uses `1.0E7` from ten million on and below a thousandth."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(float.__repr__(value)).normalize().as_tuple()
    figures, exponent = "".join(map(str, digits)), int(exponent) + len(digits) - 1
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    minus = "-" if sign else ""
    if not -3 <= exponent < 7:
        return f"{minus}{figures[0]}.{figures[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{minus}0.{'0' * (-exponent - 1)}{figures}"
    whole = figures[: exponent + 1].ljust(exponent + 1, "0")
    return f"{minus}{whole}.{figures[exponent + 1 :] or '0'}"


def _base64(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no place in a message")
    return base64.b64encode(value).decode("ascii")


def _version(data: bytes, what: str) -> int:
    if len(data) < _INT16.size:
        raise WireError(f"Could not read version from {what}'s buffer.")
    return int(_INT16.unpack_from(data)[0])


def _decoded(message: Message, data: bytes, version: int, said: int, what: str) -> dict[str, Any]:
    try:
        return decode_message(message, data, version, _INT16.size)
    except WireError as error:
        reason = f"Could not read record with version {said} from {what}'s buffer due to: {error.kafka}."
        raise WireError(reason) from error


def _with_consumer_protocol(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the group with its members' subscription and assignment decoded where possible."""
    if group["protocolType"] != _CLASSIC_CONSUMER:
        return group
    members = [{name: _decoded_if_valid(name, each) for name, each in m.items()} for m in group["members"]]
    return {**group, "members": members}


def _decoded_if_valid(name: str, content: Any) -> object:
    message = message_tables.messages(message_tables.CONSUMER_PROTOCOL).get((0, name))
    if message is None:
        return content
    try:
        return decode_message(message, content, _version(content, name), _INT16.size)
    except WireError:
        return content
