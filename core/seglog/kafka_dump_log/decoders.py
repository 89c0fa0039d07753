"""How kafka-dump-log shows keys and values that are text or numbers, and control records.

Kafka: StringDecoder, DefaultDecoder, IntegerDecoder, LongDecoder. Records of Kafka's internal topics are decoded by
`dump.internal_topics`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal

from seglog.format import coordinator
from seglog.format.control import ControlRecordError, parse_control_record
from seglog.format.wire import java_text
from seglog.model import ControlType

PartDecoder = Literal["string", "default", "integer", "long"]

_CONTROL_NAMES = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


@dataclass(frozen=True, slots=True)
class PartDecoders:
    """`--key-decoder-class` and `--value-decoder-class`; UTF-8 for both is what the kernel renders by itself."""

    key: PartDecoder = "string"
    value: PartDecoder = "string"

    def __call__(self, key: bytes | None, value: bytes | None, _offset: int) -> tuple[str | None, str | None]:
        return _part(self.key, key), _part(self.value, value)


def _part(decoder: PartDecoder, data: bytes | None) -> str | None:
    if data is None:
        return None
    if decoder == "integer":
        return str(int.from_bytes(data[:4], "big", signed=True)) if len(data) >= 4 else "?"
    if decoder == "long":
        return str(int.from_bytes(data[:8], "big", signed=True)) if len(data) >= 8 else "?"
    # Kafka's DefaultDecoder prints the identity of a Java array, which tells nothing: the bytes do
    return java_text(data) if decoder == "string" else base64.b64encode(data).decode("ascii")


def control_text(key: bytes | None, value: bytes | None) -> str:
    """What follows a control record's metadata."""
    try:
        record = parse_control_record(key, value)
    except ControlRecordError as error:
        return f" invalid control record: {error}"
    if record.type in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {record.type.name} coordinatorEpoch: {record.coordinator_epoch}"
    if record.type is ControlType.UNKNOWN:
        return f" controlType: UNKNOWN({record.type_id})"
    return f" {_CONTROL_NAMES[record.type]} {coordinator.json_text(record.data)}"
