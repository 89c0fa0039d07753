"""Control records: the markers that end transactions, and KRaft's own records.

Kafka: ControlRecordType, EndTransactionMarker, ControlRecordUtils; LeaderChangeMessage, SnapshotHeaderRecord,
SnapshotFooterRecord, KRaftVersionRecord, VotersRecord. Like Kafka, later versions of a key or of an EndTxn value are
read as version 0. A type that is not known is UNKNOWN, never an error.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seglog.format.wire import Field, Message, WireError, decode_message, encode_message
from seglog.model import ControlType

_KEY = struct.Struct(">hh")
_END_TRANSACTION = struct.Struct(">hi")
_VERSION = struct.Struct(">h")

_VERSION_FIELD = Field("version", "int16")
_VOTER_V1 = (Field("voterId", "int32"), Field("voterDirectoryId", "uuid", first=1))
_ENDPOINT = (Field("name", "string"), Field("host", "string"), Field("port", "uint16"))
_FEATURE = (Field("minSupportedVersion", "int16"), Field("maxSupportedVersion", "int16"))
_VOTER = (
    Field("voterId", "int32"),
    Field("voterDirectoryId", "uuid"),
    Field("endpoints", _ENDPOINT, array=True),
    Field("kRaftVersionFeature", _FEATURE),
)
_MESSAGES = {
    ControlType.LEADER_CHANGE: Message(
        (
            _VERSION_FIELD,
            Field("leaderId", "int32"),
            Field("voters", _VOTER_V1, array=True),
            Field("grantingVoters", _VOTER_V1, array=True),
        ),
        last_version=1,
    ),
    ControlType.SNAPSHOT_HEADER: Message((_VERSION_FIELD, Field("lastContainedLogTimestamp", "int64"))),
    ControlType.SNAPSHOT_FOOTER: Message((_VERSION_FIELD,)),
    ControlType.KRAFT_VERSION: Message((_VERSION_FIELD, Field("kRaftVersion", "int16"))),
    ControlType.KRAFT_VOTERS: Message((_VERSION_FIELD, Field("voters", _VOTER, array=True))),
}


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of a dynamic quorum (KIP-853): its node, its metadata directory's id in Kafka's text form, the addresses
    (listener, host, port) of its controller listeners, and the levels of kraft.version that it can run."""

    node: int
    directory_id: str
    endpoints: tuple[tuple[str, str, int], ...]
    least_version: int
    last_version: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Voter:
        """One element of a VotersRecord."""
        endpoints = tuple((str(one["name"]), str(one["host"]), int(one["port"])) for one in data["endpoints"])
        feature = data["kRaftVersionFeature"]
        least, last = int(feature["minSupportedVersion"]), int(feature["maxSupportedVersion"])
        return cls(int(data["voterId"]), str(data["voterDirectoryId"]), endpoints, least, last)

    def fields(self) -> dict[str, object]:
        """The element of a VotersRecord."""
        endpoints = [{"name": name, "host": host, "port": port} for name, host, port in self.endpoints]
        feature = {"minSupportedVersion": self.least_version, "maxSupportedVersion": self.last_version}
        return {
            "voterId": self.node,
            "voterDirectoryId": self.directory_id,
            "endpoints": endpoints,
            "kRaftVersionFeature": feature,
        }

    def __str__(self) -> str:
        """As `kafka-storage format --initial-controllers` takes it: ID@HOST:PORT:DIRECTORY-ID."""
        host, port = self.endpoints[0][1:] if self.endpoints else ("?", 0)
        return f"{self.node}@{f'[{host}]' if ':' in host else host}:{port}:{self.directory_id}"


class ControlRecordError(ValueError):
    """A control record whose key or value Kafka refuses (InvalidRecordException)."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A decoded control record.

    `type_id` is the type's number, also for an UNKNOWN type of a later version. Only ABORT and COMMIT have a
    `coordinator_epoch`, only KRaft's records have `data` (by Kafka's field names).
    """

    type: ControlType
    type_id: int
    coordinator_epoch: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def parse_control_type(key: bytes | None) -> tuple[ControlType, int]:
    """Returns the type in a control record's key, and its number. Raises `ControlRecordError`."""
    if key is None or len(key) < _KEY.size:
        raise ControlRecordError("the key of a control record has fewer than 4 bytes")
    version, type_id = _KEY.unpack_from(key)
    if version < 0:
        raise ControlRecordError(f"the key of a control record has version {version}")
    return (ControlType(type_id) if 0 <= type_id < len(ControlType) - 1 else ControlType.UNKNOWN), type_id


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Decodes key and value. Raises `ControlRecordError` for a value that does not fit its type."""
    control_type, type_id = parse_control_type(key)
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(control_type, type_id, parse_coordinator_epoch(value))
    if control_type is ControlType.UNKNOWN:
        return ControlRecord(control_type, type_id)
    message = _MESSAGES[control_type]
    if value is None or len(value) < _VERSION.size:
        raise ControlRecordError(f"the value of a {control_type.name} record has no version")
    version = _VERSION.unpack_from(value)[0]
    if version < 0:
        raise ControlRecordError(f"the value of a {control_type.name} record has version {version}")
    try:
        data = decode_message(message, value, min(version, message.last_version))
    except WireError as error:
        raise ControlRecordError(f"the value of a {control_type.name} record: {error}") from error
    return ControlRecord(control_type, type_id, data=data)


def parse_coordinator_epoch(value: bytes | None) -> int:
    """Returns the coordinator epoch in the value of an ABORT or COMMIT marker. Raises `ControlRecordError`."""
    if value is None or len(value) < _END_TRANSACTION.size:
        raise ControlRecordError("the value of a transaction marker has fewer than 6 bytes")
    version, epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise ControlRecordError(f"the value of a transaction marker has version {version}")
    return int(epoch)


def encode_control_key(control_type: ControlType | int) -> bytes:
    """Returns the key of a control record of this type."""
    return _KEY.pack(0, control_type)


def encode_transaction_marker(coordinator_epoch: int) -> bytes:
    """Returns the value of an ABORT or COMMIT record."""
    return _END_TRANSACTION.pack(0, coordinator_epoch)


def encode_control_value(control_type: ControlType, data: Mapping[str, Any]) -> bytes:
    """Returns the value of a KRaft control record in the version `data["version"]`."""
    return encode_message(_MESSAGES[control_type], data, int(data["version"]))
