"""Checks, before a request is decoded, that it is as long as its arrays claim.

kio allocates an array before it reads it. A length of four thousand million in a request of forty bytes kills the
process without an exception. So this walk, by the same schema, first compares the length of every array with the bytes
that are left, and builds nothing.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, cast, get_args, get_origin

Walk = Callable[[bytes, int], int]  # from a position to the one after it

_SIZES = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uuid": 16, "timedelta_i32": 4, "timedelta_i64": 8}
_LONGEST_VARINT = 10


class TooShortError(ValueError):
    """Raised if a request is shorter than it claims."""


@cache
def walk_of(kind: Any) -> Walk:
    """Makes a walk over an entity of kio's. The walk returns the position after the entity, or raises TooShortError."""
    flexible = bool(kind.__flexible__)
    fields = [each for each in dataclasses.fields(kind) if "tag" not in each.metadata]
    walks = [_walk_of_field(each, flexible) for each in fields]
    if flexible:
        walks.append(_over_tags)

    def walk(data: bytes, position: int) -> int:
        for each in walks:
            position = each(data, position)
        return position

    return walk


def _walk_of_field(field: Any, flexible: bool) -> Walk:
    item = _item_of(field.type)
    name = field.metadata.get("kafka_type")
    single = _structure_in(field.type)
    if single is not None:
        return _over_nullable(walk_of(single)) if type(None) in get_args(field.type) else walk_of(single)
    one = walk_of(cast(Any, item)) if dataclasses.is_dataclass(item) else _walk_of_value(name, flexible)
    return one if item is None else _over_array(one, flexible)


def _structure_in(annotation: Any) -> Any:
    """Returns the type of a structure that is a field by itself, perhaps null; None for other types."""
    return (
        next((each for each in (annotation, *get_args(annotation)) if dataclasses.is_dataclass(each)), None)
        if (get_origin(annotation) is not tuple)
        else None
    )


def _over_nullable(one: Walk) -> Walk:
    """Walks over a structure after the byte that says whether it is there (-1: it is null)."""

    def walk(data: bytes, position: int) -> int:
        end = _within(data, position + 1)
        return end if data[position] >= 0x80 else one(data, end)

    return walk


def _item_of(annotation: Any) -> Any:
    """Returns the type of an array's items, None for other types."""
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0]
    return next((found for each in get_args(annotation) if (found := _item_of(each)) is not None), None)


def _walk_of_value(name: str, flexible: bool) -> Walk:
    if name in _SIZES:
        size = _SIZES[name]
        return lambda data, position: _within(data, position + size)
    length_format = struct.Struct(">h" if name == "string" else ">i")

    def walk(data: bytes, position: int) -> int:
        length, position = _length(data, position, flexible, length_format)
        return _within(data, position + max(length, 0))

    return walk


def _over_array(one: Walk, flexible: bool) -> Walk:
    length_format = struct.Struct(">i")

    def walk(data: bytes, position: int) -> int:
        length, position = _length(data, position, flexible, length_format)
        if length > len(data) - position:  # each element takes at least a byte
            raise TooShortError(f"an array of {length} in {len(data) - position} bytes")
        for _ in range(length):
            position = one(data, position)
        return position

    return walk


def _over_tags(data: bytes, position: int) -> int:
    """Walks over tagged fields by their sizes; no request has an array among them."""
    count, position = _varint(data, position)
    for _ in range(count):
        _, position = _varint(data, position)
        size, position = _varint(data, position)
        position = _within(data, position + size)
    return position


def _length(data: bytes, position: int, flexible: bool, length_format: struct.Struct) -> tuple[int, int]:
    """Returns a length (-1 for null; a varint if `flexible`) and the position after it."""
    if flexible:
        length, position = _varint(data, position)
        return length - 1, position
    end = _within(data, position + length_format.size)
    return length_format.unpack_from(data, position)[0], end


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for i in range(_LONGEST_VARINT):
        byte = data[_within(data, position + i + 1) - 1]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, position + i + 1
    raise TooShortError("a number that does not end")


def _within(data: bytes, position: int) -> int:
    if position > len(data):
        raise TooShortError(f"{position} bytes are claimed, but only {len(data)} are there")
    return position
