"""Reads what Kafka Streams writes around keys and values, in changelogs of its stores and in topics between its parts.

| what | key | value |
|---|---|---|
| a window store, `KSTREAM-JOINTHIS-…` | key, start of the window, number (4 bytes) | as its serde wrote it |
| a session store | key, end of the session, start | as its serde wrote it |
| a windowed key of a topic (TimeWindowedSerializer) | key, start | as its serde wrote it |
| what an outer join holds back, `KSTREAM-OUTERSHARED-…` | time, 1 (left) or 0, key | a list of sides and values |
| what a suppression holds back, `KTABLE-SUPPRESS-…` | as its serde wrote it | the record's context, values, time |
| a foreign-key join, `KTABLE-FK-JOIN-…` | size of the foreign key, it, the primary key | a subscription |

Times are 8 bytes, epoch milliseconds. Timestamped and versioned stores put their timestamps into the records of a
changelog, not into values (they are in front of values only in RocksDB); so their changelogs need no decoder.

Bytes of the application's own are text, or `NAME_b64` where they are not UTF-8.

Kafka: WindowKeySchema, SessionKeySchema, TimestampedKeyAndJoinSideSerializer, LeftOrRightValueSerializer,
ListSerializer, BufferValue, ProcessorRecordContext, CombinedKeySchema, SubscriptionWrapperSerde,
SubscriptionResponseWrapperSerde.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from typing import Any

from seglog.escaping import json_value
from seglog_ask.values.plain_forms import text_or_reason
from seglog_ask.values.schemas import NotDecodedError, Text

_LONG, _INT = struct.Struct(">q"), struct.Struct(">i")
_START_AND_NUMBER, _TWO_LONGS = struct.Struct(">qi"), struct.Struct(">qq")
_NULL, _SAME_AS_PRIOR = -1, -2
_LISTED_WITH_SIZES = 1  # Kafka: SerializationStrategy.VARIABLE_SIZE
_WITHOUT_HASH = 0x80
_INSTRUCTIONS = (
    "DELETE_KEY_NO_PROPAGATE",
    "DELETE_KEY_AND_PROPAGATE",
    "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
    "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
)

Fields = dict[str, Any]


def parts(
    key_fields: Callable[[bytes], Fields] | None, value_fields: Callable[[bytes], Fields] | None
) -> Callable[[bytes | None, bytes | None, int], tuple[Text | None, Text | None]]:
    """Returns a decoder of records from those of keys and values; None: they are shown as they are."""

    def side(data: bytes | None, fields: Callable[[bytes], Fields] | None) -> Text | None:
        if data is None or fields is None:
            return None
        return text_or_reason(lambda data: json_value(fields(data)), data)

    return lambda key, value, _offset: (side(key, key_fields), side(value, value_fields))


def window_key(data: bytes) -> Fields:
    """Returns the fields of a key in a window store's changelog. Raises NotDecodedError, as all functions here."""
    key, (start, number) = _ending(data, _START_AND_NUMBER)
    return {**_bytes("key", key), "start": start, "number": number}


def session_key(data: bytes) -> Fields:
    """Returns the fields of a session's key, in a changelog or another topic."""
    key, (end, start) = _ending(data, _TWO_LONGS)
    return {**_bytes("key", key), "start": start, "end": end}


def windowed_key(data: bytes) -> Fields:
    """Returns the fields of a key with the start of its window, as TimeWindowedSerializer writes it."""
    key, (start,) = _ending(data, _LONG)
    return {**_bytes("key", key), "start": start}


def held_join_key(data: bytes) -> Fields:
    """Returns the fields of a key of the records that an outer join holds back."""
    reader = _Reader(data)
    time, side = reader.number(_LONG), reader.take(1)[0]
    return {"time": time, "side": _side(side), **_bytes("key", reader.rest())}


def held_join_values(data: bytes) -> Fields:
    """Returns the values that an outer join holds back under one key."""
    reader = _Reader(data)
    strategy, count = reader.take(1)[0], reader.number(_INT)
    if strategy != _LISTED_WITH_SIZES or not 0 <= count <= len(data):
        raise NotDecodedError(f"it is not a list of values: it begins with {data[:5].hex()}")
    values = []
    for _ in range(count):
        value = reader.sized()
        values.append(None if not value else {"side": _side(value[0]), **_bytes("value", value[1:])})
    reader.require_end()
    return {"values": values}


def suppressed(data: bytes) -> Fields:
    """Returns what a suppression holds back: the record's context, its values, and its time in the buffer."""
    reader = _Reader(data)
    context: Fields = {"timestamp": reader.number(_LONG), "offset": reader.number(_LONG)}
    context |= {"topic": _some(reader.sized()).decode("utf-8", "replace"), "partition": reader.number(_INT)}
    count = reader.number(_INT)
    if not -1 <= count <= len(data):
        raise NotDecodedError(f"it says that it has {count} headers, in {len(data)} bytes")
    context["headers"] = [
        {"key": _some(reader.sized()).decode("utf-8", "replace"), **_bytes("value", reader.sized())}
        for _ in range(max(count, 0))
    ]
    prior = reader.sized()
    size = reader.number(_INT)
    old = prior if size == _SAME_AS_PRIOR else reader.of_size(size)
    new, time = reader.sized(), reader.number(_LONG)
    reader.require_end()
    return {**context, **_bytes("prior", prior), **_bytes("old", old), **_bytes("new", new), "time": time}


def subscription_key(data: bytes) -> Fields:
    """Returns the fields of a key in the store of a foreign-key join's subscriptions."""
    reader = _Reader(data)
    foreign = _some(reader.sized())
    return {**_bytes("foreign_key", foreign), **_bytes("primary_key", reader.rest())}


def subscription(data: bytes) -> Fields:
    """Returns the fields of a foreign-key join's subscription: which primary key waits for it, and what to do."""
    reader = _Reader(data)
    first, instruction = reader.take(1)[0], reader.take(1)[0]
    version = _version(first, 1)
    if instruction >= len(_INSTRUCTIONS):
        raise NotDecodedError(f"its instruction is {instruction}, which Kafka does not have")
    fields: Fields = {"version": version, "instruction": _INSTRUCTIONS[instruction], "hash": _hash(reader, first)}
    if version == 0:
        return {**fields, **_bytes("primary_key", reader.rest())}
    key, (partition,) = _ending(reader.rest(), _INT)
    return {**fields, **_bytes("primary_key", key), "partition": partition}


def subscription_response(data: bytes) -> Fields:
    """Returns the fields of the answer to a subscription: the hash of the value it was made for, and what was there."""
    reader = _Reader(data)
    first = reader.take(1)[0]
    fields: Fields = {"version": _version(first, 0), "hash": _hash(reader, first)}
    return {**fields, **_bytes("value", reader.rest() or None)}


def _version(first: int, last: int) -> int:
    version = first & ~_WITHOUT_HASH
    if version > last:
        raise NotDecodedError(f"its version is {version}, and the last one known is {last}")
    return version


def _hash(reader: _Reader, first: int) -> str | None:
    return None if first & _WITHOUT_HASH else reader.take(16).hex()


def _side(number: int) -> str:
    if number not in (0, 1):
        raise NotDecodedError(f"its side is {number}, neither 1 (left) nor 0 (right)")
    return "left" if number else "right"


def _bytes(name: str, data: bytes | None) -> Mapping[str, str | None]:
    """Returns bytes as a field of text, or of base64 where they are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_b64": base64.b64encode(data).decode()}


def _some(data: bytes | None) -> bytes:
    if data is None:
        raise NotDecodedError("a part of it is null that never is")
    return data


def _ending(data: bytes, end: struct.Struct) -> tuple[bytes, tuple[int, ...]]:
    """Returns what stands before the numbers at the end, and these."""
    if len(data) < end.size:
        raise NotDecodedError(f"it has {len(data)} bytes, and at least {end.size} are expected")
    return data[: -end.size], end.unpack(data[-end.size :])


class _Reader:
    """Reads bytes from their beginning; checks every bound."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        """Returns the next bytes."""
        left = len(self._data) - self._at
        if not 0 <= size <= left:
            raise NotDecodedError(f"{size} bytes are expected at byte {self._at}, {left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """Returns all bytes that are left."""
        return self.take(len(self._data) - self._at)

    def number(self, kind: struct.Struct) -> int:
        """Returns the next number."""
        return int(kind.unpack(self.take(kind.size))[0])

    def sized(self) -> bytes | None:
        """Returns the next bytes after their size; None for a size of -1."""
        return self.of_size(self.number(_INT))

    def of_size(self, size: int) -> bytes | None:
        """Returns the next bytes of this size; None for a size of -1."""
        return None if size == _NULL else self.take(size)

    def require_end(self) -> None:
        """Raises NotDecodedError if bytes are left."""
        if self._at < len(self._data):
            raise NotDecodedError(f"{len(self._data) - self._at} bytes follow its end")
