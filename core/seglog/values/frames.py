"""The frames around keys and values, which say by which schema they were written.

| who | bytes |
|---|---|
| Confluent | 00, id (4 bytes, big-endian), payload |
| Confluent, newer | 01, GUID (16 bytes), payload; or this without the payload in a header of the record |
| AWS Glue | 03, 00 or 05 (zlib), UUID (16 bytes), payload |
| Apicurio | 00, id (8 bytes), payload; or the id in a header of the record |

In Protobuf the path of the message's type follows id or GUID: zig-zag numbers, their count first; a single 00 is the
first message. Sources: Confluent's `SchemaId` and `common/serde.py`, Materialize's `glue.rs`, Apicurio's `IdHandler`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple
from uuid import UUID

from seglog.model import Header
from seglog.values.schemas import NotDecodedError, SchemaId

Side = Literal["key", "value"]
SIDES: tuple[Side, ...] = ("key", "value")  # a record's, in the order of its parts

MOST_EXPANDED_BYTES = 16 << 20  # of a value that Glue's serializer has compressed
MOST_PATH = 64  # levels of nested messages

_CONFLUENT, _GUID, _GLUE = 0, 1, 3
_GLUE_PLAIN, _GLUE_ZLIB = 0, 5
PLAIN_FRAME_BYTES = 5


class Frame(NamedTuple):
    """What a frame says: the schema, and where the rest is.

    `data` has the payload from `start` on. `header`: what follows the id in a header, which is the path of Protobuf's
    message; None if the id is before the payload, and the path, too.
    """

    id: SchemaId
    data: bytes
    start: int
    header: bytes | None = None

    @property
    def payload(self) -> bytes:
        """The value without its frame; in Protobuf the path of its message is before it, unless `path` has it."""
        return self.data[self.start :] if self.start else self.data

    @property
    def path(self) -> bytes | None:
        """The path of Protobuf's message, empty for the schema's first; None if it is before the payload."""
        return None if self.header is None and self.start else self.header or b""


def named_in_headers(headers: bytes, side: Side) -> bool:
    """Returns if one of a record's headers, as they are written, may say the schema of a side."""
    return f"__{side}_schema_id".encode() in headers or f"apicurio.{side}.".encode() in headers


def plain_frames(column: Sequence[bytes | None], places: Iterable[int]) -> tuple[dict[SchemaId, list[int]], list[int]]:
    """Groups the keys or values in some places, which are not null and have no frame in a header, by the id in a frame
    that is 00 and four bytes. Returns the groups, and the places of those with another frame or none.
    """
    by_head: dict[bytes, list[int]] = {}
    for place in places:
        by_head.setdefault(column[place][:PLAIN_FRAME_BYTES], []).append(place)  # type: ignore[index]
    groups, others = dict[SchemaId, list[int]](), list[int]()
    for head, group in by_head.items():
        if len(head) == PLAIN_FRAME_BYTES and head[0] == _CONFLUENT and any(head):  # the id 0 begins a longer one
            groups[int.from_bytes(head[1:], "big")] = group
        else:
            others += group
    return groups, others


def frame_of(data: bytes, headers: Iterable[Header], side: Side) -> Frame | None:
    """Returns the frame of a key or value; None if there is none. Raises NotDecodedError for a broken one."""
    for header in headers:
        found = _of_header(header, data, side)
        if found is not None:
            return found
    if not data:
        return None
    if data[0] == _CONFLUENT and len(data) >= 5:
        number = int.from_bytes(data[1:5], "big")
        if number == 0 and len(data) >= 9:  # no registry gives the id 0: these are the first half of 8 bytes
            return Frame(int.from_bytes(data[1:9], "big"), data, 9)
        return Frame(number, data, 5)
    if data[0] == _GUID and len(data) >= 17:
        return Frame(UUID(bytes=data[1:17]), data, 17)
    if data[0] == _GLUE and len(data) >= 18 and data[1] in (_GLUE_PLAIN, _GLUE_ZLIB):
        number_of_version = UUID(bytes=data[2:18])
        if data[1] == _GLUE_PLAIN:
            return Frame(number_of_version, data, 18)
        return Frame(number_of_version, _expanded(data[18:]), 0)
    return None


def _of_header(header: Header, data: bytes, side: Side) -> Frame | None:
    value = header.value
    if value is None:
        return None
    if header.key == f"__{side}_schema_id":
        if len(value) >= 17 and value[0] == _GUID:
            return Frame(UUID(bytes=value[1:17]), data, 0, value[17:])
        if len(value) >= 5 and value[0] == _CONFLUENT:
            return Frame(int.from_bytes(value[1:5], "big"), data, 0, value[5:])
        raise NotDecodedError(f"the header {header.key} holds no schema id")
    if header.key in (f"apicurio.{side}.globalId", f"apicurio.{side}.contentId") and len(value) in (4, 8):
        return Frame(int.from_bytes(value, "big"), data, 0, b"")
    return None


def _expanded(data: bytes) -> bytes:
    machine = zlib.decompressobj()
    try:
        out = machine.decompress(data, MOST_EXPANDED_BYTES)
    except zlib.error as error:
        raise NotDecodedError(f"its compressed payload is broken: {error}") from error
    if not machine.eof:
        size = f"expands beyond {MOST_EXPANDED_BYTES} bytes" if len(out) == MOST_EXPANDED_BYTES else "ends early"
        raise NotDecodedError(f"its compressed payload {size}")
    return out


def message_path(payload: bytes, path: bytes | None) -> tuple[tuple[int, ...], int]:
    """Returns the path of a Protobuf message (the first message's nested one is (0, 0)), and where its bytes begin.

    `path` is that of `Frame`. Raises NotDecodedError if the path is broken.
    """
    if path == b"":
        return (0,), 0  # Glue and Apicurio name none
    data = payload if path is None else path
    count, at = _zigzag(data, 0)
    if not 0 <= count <= MOST_PATH:
        raise NotDecodedError(f"it names a message at a depth of {count}")
    indices = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indices.append(index)
    return tuple(indices) or (0,), at if path is None else 0


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise NotDecodedError("the path to its message is broken")
