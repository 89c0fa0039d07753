"""Chooses the decoder for kafka-dump-log's options; decodes text, numbers and control records as that tool does.

Kafka: DumpLogSegmentsOptions.messageParser, StringDecoder, DefaultDecoder, IntegerDecoder, LongDecoder.
`values.internal_topics` decodes the records of Kafka's internal topics.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from seglog.doors import door
from seglog.errors import UnsupportedError
from seglog.format import coordinator
from seglog.format.control import ControlRecordError, parse_control_record
from seglog.format.wire import java_text
from seglog.model import ControlType

if TYPE_CHECKING:
    from seglog_ask.values.internal_topics import Decoder

PartDecoder = Literal["string", "default", "integer", "long"]

CLASSES: dict[str, PartDecoder] = {
    "StringDecoder": "string",
    "DefaultDecoder": "default",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
}


# Topics by parser; the first one that was asked for wins.
_PARSERS = {
    "offsets": "__consumer_offsets",
    "transaction-log": "__transaction_state",
    "cluster-metadata": "__cluster_metadata",
    "remote-log-metadata": "__remote_log_metadata",
    "share-group-state": "__share_group_state",
}

_CONTROL_NAMES = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


@dataclass(frozen=True, slots=True)
class PartDecoders:
    """`--key-decoder-class` and `--value-decoder-class`; the kernel itself renders text for both."""

    key: PartDecoder = "string"
    value: PartDecoder = "string"

    def __call__(self, key: bytes | None, value: bytes | None, _offset: int) -> tuple[str | None, str | None]:
        return _text_of(self.key, key), _text_of(self.value, value)


def _text_of(decoder: PartDecoder, data: bytes | None) -> str | None:
    if data is None:
        return None
    if decoder == "integer":
        return str(int.from_bytes(data[:4], "big", signed=True)) if len(data) >= 4 else "?"
    if decoder == "long":
        return str(int.from_bytes(data[:8], "big", signed=True)) if len(data) >= 8 else "?"
    # Kafka's DefaultDecoder prints the identity of a Java array, which is useless; this prints the bytes.
    return java_text(data) if decoder == "string" else base64.b64encode(data).decode("ascii")


def choose_decoder(parsers: Collection[str], key_class: str | None, value_class: str | None) -> Decoder | None:
    """Returns the decoder for parser options (`--offsets-decoder` is "offsets" in `parsers`, …) or decoder classes.

    Classes are named with or without their package. Returns None if no decoder is asked for. Raises UnsupportedError
    for a class that only a JVM could load.
    """
    for name, topic in _PARSERS.items():
        if name in parsers:
            decoder: Decoder = door("internal decoder")(topic)
            return decoder
    if key_class is None and value_class is None:
        return None
    return PartDecoders(_named(key_class), _named(value_class))


def _named(name: str | None) -> PartDecoder:
    if name is None:
        return "string"
    found = CLASSES.get(name.rpartition(".")[2])
    if found is None:
        raise UnsupportedError(f"decoder class {name[:200]}: only {', '.join(CLASSES)} are known here")
    return found


def control_text(key: bytes | None, value: bytes | None) -> str:
    """Returns the text that follows a control record's metadata."""
    try:
        record = parse_control_record(key, value)
    except ControlRecordError as error:
        return f" invalid control record: {error}"
    if record.type in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {record.type.name} coordinatorEpoch: {record.coordinator_epoch}"
    if record.type is ControlType.UNKNOWN:
        return f" controlType: UNKNOWN({record.type_id})"
    return f" {_CONTROL_NAMES[record.type]} {coordinator.json_text(record.data)}"
