"""MessagePack and CBOR as JSON (extra `schemas`): the one module that knows their libraries.

A value must be consumed to its end. What JSON lacks is text: bytes in base64, numbers of more than 64 bits and decimal
numbers by their digits, times in RFC 3339. A key that is not text is its JSON; a map of which two keys have one text is
a list of objects of `key` and `value`. Tags of CBOR show what they tag (RFC 8949 §6.1).

Values are hostile: a map whose keys collide takes the square of its size. Keys of MessagePack come as pairs and are
never hashed as they are, and large values of CBOR may have no other keys than text and bytes. Nothing is shared,
compiled or made an object of another class, as cbor2 does by itself for some tags.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import cbor2
import msgpack

from seglog.escaping import json_value
from seglog_ask.values.avro_texts import MOST_DECIMAL_BYTES, UUID_BYTES, decimal_digits, uuid_text
from seglog_ask.values.java_times import iso_moment
from seglog_ask.values.schemas import NotDecodedError, first_line

_MOST_LEVELS = 200
_MOST_BITS = 64
_NANOS = 10**9
_MOST_OF_ANY_KEYS = 64 << 10  # bytes of a value of CBOR that may have keys of any type


def of_messagepack(data: bytes) -> str:
    """Returns a value in MessagePack as JSON. Raises NotDecodedError for anything else."""
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=False, object_pairs_hook=_Pairs, timestamp=0)
    except Exception as error:
        raise NotDecodedError(f"it is not MessagePack: {_reason(error)}") from error
    return _json(value)


def of_cbor(data: bytes) -> str:
    """Returns a value in CBOR as JSON. Raises NotDecodedError for anything else."""
    file, has_text_keys = BytesIO(data), len(data) > _MOST_OF_ANY_KEYS
    try:
        decoder = cbor2.CBORDecoder(
            file, semantic_decoders=_TAGS, max_depth=_MOST_LEVELS, strict_hashable_types=has_text_keys
        )
        value = decoder.decode()
    except Exception as error:
        raise NotDecodedError(f"it is not CBOR: {_reason(error)}") from error
    left = len(data) - file.tell()
    if left:
        raise NotDecodedError(f"{left} bytes follow the value")
    return _json(value)


class _Pairs(list[tuple[Any, Any]]):
    """A map as its keys and values."""


def _json(value: Any) -> str:
    try:
        return json_value(_shown(value, 0))
    except RecursionError:
        raise NotDecodedError("it nests too deeply") from None


def _shown(value: Any, level: int) -> Any:
    """Returns a value of a library's as one that JSON has."""
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MOST_BITS else str(value)  # of CBOR, at most 65
    if level > _MOST_LEVELS:
        raise NotDecodedError(f"it nests more than {_MOST_LEVELS} levels")
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, _Pairs):
        return _map(value, level)
    if isinstance(value, Mapping):  # a key that is a map is another class than dict
        return _map(list(value.items()), level)
    if isinstance(value, msgpack.ExtType):
        return {"type": value.code, "data": base64.b64encode(value.data).decode()}
    if isinstance(value, list | tuple):
        return [_shown(one, level + 1) for one in value]
    return _of_class(value, level)


def _of_class(value: Any, level: int) -> Any:
    if isinstance(value, msgpack.Timestamp):
        return f"{iso_moment(value.seconds * _NANOS + value.nanoseconds, _NANOS)}Z"
    if isinstance(value, cbor2.CBORTag):
        return _shown(value.value, level + 1)
    if isinstance(value, cbor2.CBORSimpleValue):
        return f"simple({value.value})"
    if value is cbor2.undefined:
        return None
    raise NotDecodedError(f"it has a {type(value).__name__}, which is not shown")


def _map(pairs: Sequence[tuple[Any, Any]], level: int) -> Any:
    entries = [(_shown(key, level + 1), _shown(value, level + 1)) for key, value in pairs]
    named = {key if isinstance(key, str) else json_value(key): value for key, value in entries}
    return named if len(named) == len(entries) else [{"key": key, "value": value} for key, value in entries]


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError | msgpack.StackError):
        return "it nests too deeply"
    cause = error.__cause__
    if isinstance(cause, NotDecodedError):
        return str(cause)
    text = first_line(error) + (f": {first_line(cause)}" if isinstance(cause, Exception) and str(cause) else "")
    return text or type(error).__name__


# --- tags of CBOR -------------------------------------------------------------------------------------------------


def _content(value: Any) -> Any:
    return value


def _big(value: Any) -> Any:
    return str(int.from_bytes(value, "big")) if _is_number(value) else value


def _big_negative(value: Any) -> Any:
    return str(-1 - int.from_bytes(value, "big")) if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) <= MOST_DECIMAL_BYTES


def _decimal(value: Any) -> Any:
    try:
        exponent, digits = (int(one) for one in value)
    except (TypeError, ValueError):
        return value
    return decimal_digits(digits, -exponent)


def _epoch(value: Any) -> Any:
    return f"{iso_moment(value, 1)}Z" if isinstance(value, int) else value


def _uuid(value: Any) -> Any:
    return uuid_text(value) if isinstance(value, bytes) and len(value) == UUID_BYTES else value


def _shared(_value: Any) -> Any:
    raise NotDecodedError("a part of it stands for another part, which is not shown")


_MADE: dict[int, Callable[[Any], Any]] = {
    **dict.fromkeys((0, 5, 28, 30, 35, 36, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799), _content),
    1: _epoch,
    2: _big,
    3: _big_negative,
    4: _decimal,
    25: _shared,
    29: _shared,
    37: _uuid,
}


def _of_tag(made: Callable[[Any], Any]) -> Callable[[Any, bool], Any]:
    return lambda value, _is_immutable: made(value)


_TAGS = {tag: _of_tag(made) for tag, made in _MADE.items()}
