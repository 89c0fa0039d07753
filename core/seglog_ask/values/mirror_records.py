"""Decodes what MirrorMaker 2 keeps in topics of its own: offset syncs, checkpoints and heartbeats.

| topic | key | value |
|---|---|---|
| offset syncs, in the source cluster (or the target) | topic, partition | offset in the source, offset in the target |
| checkpoints, in the target cluster | group, topic, partition | version, both offsets of the group, metadata |
| heartbeats, in the target cluster | aliases of source and target | version, timestamp (epoch ms) |

Kafka: OffsetSync, Checkpoint, Heartbeat of connect-mirror and connect-mirror-client, whose names the fields have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seglog.format.wire import NEVER, Field, Message, WireError, decode_message

_VERSION = Message((Field("version", "int16"),), 0, NEVER)


@dataclass(frozen=True, slots=True)
class MirrorFormat:
    """A kind of record. A `versioned` value begins with its version, of which Kafka has had only 0."""

    key: Message
    value: Message
    versioned: bool

    def decode_key(self, data: bytes) -> dict[str, Any]:
        """Returns the fields of a key. Raises `WireError`."""
        return decode_message(self.key, data, 0)

    def decode_value(self, data: bytes) -> dict[str, Any]:
        """Returns the fields of a value, with its version if it has one. Raises `WireError`."""
        if not self.versioned:
            return decode_message(self.value, data, 0)
        header = decode_message(_VERSION, data, 0)
        if header["version"] != 0:
            raise WireError(f"its version is {header['version']}, and only 0 is known")
        return header | decode_message(self.value, data, 0, 2)


def _message(**kinds: str) -> Message:
    return Message(tuple(Field(name, kind) for name, kind in kinds.items()), 0, NEVER)


OFFSET_SYNC = MirrorFormat(
    _message(topic="string", partition="int32"), _message(upstreamOffset="int64", offset="int64"), versioned=False
)
CHECKPOINT = MirrorFormat(
    _message(group="string", topic="string", partition="int32"),
    _message(upstreamOffset="int64", offset="int64", metadata="string"),
    versioned=True,
)
HEARTBEAT = MirrorFormat(
    _message(sourceClusterAlias="string", targetClusterAlias="string"), _message(timestamp="int64"), versioned=True
)
