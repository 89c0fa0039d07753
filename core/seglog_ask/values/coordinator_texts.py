"""The texts that kafka-dump-log prints of the records in Kafka's own topics (Kafka: DumpLogSegments' decoders).

They never raise: of a record that cannot be decoded they are a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from seglog.format.coordinator import (
    CONSUMER_PROTOCOL,
    OFFSETS,
    VERSION_BYTES,
    decode_coordinator_record,
    json_text,
    version_of,
)
from seglog.format.message_tables import decode_metadata_record, messages
from seglog.format.wire import UnknownRecordTypeError, WireError, decode_message

_TOMBSTONE = "<DELETE>"
_GROUP_METADATA = 2
_CLASSIC_CONSUMER = "consumer"
_QUOTA = "CLIENT_QUOTA_RECORD"


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
        return key_text, _TOMBSTONE
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


def _with_consumer_protocol(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the group with its members' subscription and assignment decoded where possible."""
    if group["protocolType"] != _CLASSIC_CONSUMER:
        return group
    members = [{name: _decoded_if_valid(name, each) for name, each in m.items()} for m in group["members"]]
    return {**group, "members": members}


def _decoded_if_valid(name: str, content: Any) -> object:
    message = messages(CONSUMER_PROTOCOL).get((0, name))
    if message is None:
        return content
    try:
        return decode_message(message, content, version_of(content, name), VERSION_BYTES)
    except WireError:
        return content
