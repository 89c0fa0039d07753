"""The frames around keys and values, which say by which schema they were written.

| who | bytes |
|---|---|
| Confluent | 00, id (4 bytes, big-endian), payload |
| Confluent, newer | 01, GUID (16 bytes), payload; or this without the payload in a header of the record |
| AWS Glue | 03, 00 or 05 (zlib), UUID (16 bytes), payload |
| Apicurio | 00, id (8 bytes), payload; or the id in a header of the record |

In Protobuf the message is named after the id or in a header (`schemas.Naming`): by Confluent with a path of zig-zag
numbers, their count first, where a single 00 is the first message; by Glue with the number of the message among all of
the schema, sorted by name; by Apicurio with its name.

Avro's single-object encoding names no id: `single_object`.

Sources: Confluent's `SchemaId`, `ProtobufSchema.toMessageIndexes` and `common/serde.py`, Materialize's `glue.rs`,
Glue's `MessageIndexFinder`, Apicurio's `IdHandler` and `ProtobufSerializer`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np

from seglog.format.columns import Side
from seglog.model import Header
from seglog_ask.values.schemas import Naming, NotDecodedError, SchemaId

MOST_EXPANDED_BYTES = 16 << 20  # of a value that Glue's serializer has compressed
MOST_PATH = 64  # levels of nested messages

_CONFLUENT, _GUID, _GLUE = 0, 1, 3
_GLUE_PLAIN, _GLUE_ZLIB = 0, 5
PLAIN_FRAME_BYTES = 5
ZERO_FRAME = bytes(PLAIN_FRAME_BYTES)  # of the id 0, or the beginning of an id of 8 bytes
_LEAST_LONG_FRAME, _MOST_LONG_FRAME = 9, 18  # bytes
_MOST_GROUPS = 50
PATH_BEFORE, FIRST = Naming("path before"), Naming("first")
_NUMBER_BEFORE = Naming("number before")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")

MessageName = tuple[int, ...] | int | str  # a path (the first message's nested one is (0, 0)), Glue's number, or a name


class Frame(NamedTuple):
    """What a frame says: the schema, the payload (`data` from `start` on), and how the payload names its message."""

    id: SchemaId
    data: bytes
    start: int
    naming: Naming = PATH_BEFORE

    @property
    def payload(self) -> bytes:
        """The value without its frame."""
        return self.data[self.start :] if self.start else self.data


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


def other_frames(
    arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray, places: np.ndarray, side: Side
) -> Iterator[tuple[Frame, np.ndarray]]:
    """Groups the keys or values in some places, which have no frame in a header, by a longer frame before the payload.

    Yields the frame of a group, without the payload, and the places of the group. Those that have none, or whose
    payload is compressed, are in no group; nor are any after _MOST_GROUPS.
    """
    left = places[sizes[places] >= _LEAST_LONG_FRAME]
    for _ in range(_MOST_GROUPS):
        if not len(left):
            return
        position, size = int(positions[left[0]]), min(int(sizes[left[0]]), _MOST_LONG_FRAME)
        try:
            frame = frame_of(arena[position : position + size].tobytes(), (), side)
        except NotDecodedError:  # compressed, and cut here
            frame = None
        if frame is None or frame.start < _LEAST_LONG_FRAME:
            left = left[1:]
            continue
        same = sizes[left] >= frame.start
        heads = positions[left[same]].astype(np.int64)[:, None] + np.arange(frame.start)
        same[same] = (arena[heads] == arena[position : position + frame.start]).all(axis=1)
        yield frame, left[same]
        left = left[~same]


def frame_of(data: bytes, headers: Sequence[Header], side: Side, has_zero: Callable[[], bool] = bool) -> Frame | None:
    """Returns the frame of a key or value; None if there is none. Raises NotDecodedError for a broken one.

    `has_zero` says if there is a schema with the id 0, which registries of others than Confluent give.
    """
    for header in headers:
        found = _of_header(header, data, side)
        if found is not None:
            return found._replace(naming=_apicurio_type(headers, side)) if found.naming is FIRST else found
    if not data:
        return None
    if data[0] == _CONFLUENT and len(data) >= 5:
        number = int.from_bytes(data[1:5], "big")
        if number == 0 and len(data) >= 9 and not has_zero():  # then these are the first half of 8 bytes
            return Frame(int.from_bytes(data[1:9], "big"), data, 9)
        return Frame(number, data, 5)
    if data[0] == _GUID and len(data) >= 17:
        return Frame(UUID(bytes=data[1:17]), data, 17)
    if data[0] == _GLUE and len(data) >= 18 and data[1] in (_GLUE_PLAIN, _GLUE_ZLIB):
        number_of_version = UUID(bytes=data[2:18])
        if data[1] == _GLUE_PLAIN:
            return Frame(number_of_version, data, 18, _NUMBER_BEFORE)
        return Frame(number_of_version, _expanded(data[18:]), 0, _NUMBER_BEFORE)
    return None


def _of_header(header: Header, data: bytes, side: Side) -> Frame | None:
    value = header.value
    if value is None:
        return None
    if header.key == f"__{side}_schema_id":
        if len(value) >= 17 and value[0] == _GUID:
            return Frame(UUID(bytes=value[1:17]), data, 0, _in_header(value[17:]))
        if len(value) >= 5 and value[0] == _CONFLUENT:
            return Frame(int.from_bytes(value[1:5], "big"), data, 0, _in_header(value[5:]))
        raise NotDecodedError(f"the header {header.key} holds no schema id")
    if header.key in (f"apicurio.{side}.globalId", f"apicurio.{side}.contentId") and len(value) in (4, 8):
        return Frame(int.from_bytes(value, "big"), data, 0, FIRST)
    return None


def _in_header(path: bytes) -> Naming:
    return Naming("path", path) if path else FIRST


def _apicurio_type(headers: Iterable[Header], side: Side) -> Naming:
    name = "apicurio.protobuf.type" + (".key" if side == "key" else "")
    return next((Naming("type", header.value) for header in headers if header.key == name and header.value), FIRST)


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


def message_named(payload: bytes, naming: Naming) -> tuple[MessageName, int]:
    """Returns how a payload's Protobuf message is named, and where its bytes begin. Raises NotDecodedError."""
    if naming.how == "path before":
        # Apicurio's `Ref`: its size, then a field 1 with a name. As a path it would be that of a message within others.
        end = payload[0] + 1 if payload else 0
        if 3 < end < 0x80 and payload[1:3] == bytes((0x0A, end - 3)) and _NAME.fullmatch(payload, 3, end):
            return payload[3:end].decode(), end
        return _path(payload)
    if naming.how == "number before":
        return _varint(payload, 0)
    if naming.how == "type":
        return naming.what.decode(errors="replace"), 0
    return (_path(naming.what)[0] if naming.how == "path" else (0,)), 0


def path_bytes(path: tuple[int, ...]) -> bytes:
    """Returns a path as it is written before a payload."""
    if path == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        rest = number << 1
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def _path(data: bytes) -> tuple[tuple[int, ...], int]:
    count, at = _zigzag(data, 0)
    if not 0 <= count <= MOST_PATH:
        raise NotDecodedError(f"it names a message at a depth of {count}")
    path = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        path.append(index)
    return tuple(path) or (0,), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise NotDecodedError("the path to its message is broken")
