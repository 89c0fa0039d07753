"""Arrow's arrays of the shapes of values (`seglog_ask.values.shapes`): their types, and how they are made.

What a kernel decoded into slots becomes arrays without a copy of its numbers; what a library decoded comes as values of
JSON (`ColumnType.reader`), in which dates and times are Arrow's numbers, and decimal numbers texts that Arrow reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import pyarrow as pa

from seglog.kernels import hashing, value_slots
from seglog_ask.table.values.columns import spans
from seglog_ask.values.avro_texts import UUID_BYTES, big_decimal_text, duration_text
from seglog_ask.values.schemas import Remarks
from seglog_ask.values.shapes import (
    Leaf,
    LeafSlot,
    ListOf,
    ListSlot,
    MapOf,
    MapSlot,
    PairSlot,
    Shape,
    Slots,
    SlotTable,
    Slotted,
    Struct,
    StructSlot,
)

_MOST_DECIMAL_BYTES = 16
_A_SECOND = 10**9  # in nanoseconds
_MOST_SECONDS = 9_223_372_036  # that with any nanoseconds are in 64 bits
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_UTC = "UTC"
_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "uuid": pa.string(),
    "duration": pa.string(),
    "big-decimal": pa.string(),
    "unsigned": pa.decimal128(20, 0),  # 64 bits without a sign, which many engines do not have
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", _UTC),
    "timestamp-micros": pa.timestamp("us", _UTC),
    "timestamp-nanos": pa.timestamp("ns", _UTC),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_HALVES = ("int", "date", "time-millis")  # types of 32 bits
_NUMBERED = frozenset(kind for kind in _TYPES if kind == "date" or "time" in kind)  # kinds whose values are numbers
_PLAIN = ("boolean", "int", "long", "float", "double", "string")  # kinds that JSON has
_MADE: dict[str, Callable[[bytes], str]] = {
    "duration": duration_text,
    "big-decimal": big_decimal_text,
}  # texts of bytes
_UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)  # raised for values that a type does not have
# What an array of one kind may become.
_CASTS = {
    ("int", "long"),
    ("int", "double"),
    ("float", "double"),
    ("timestamp-millis", "timestamp-micros"),
    ("local-timestamp-millis", "local-timestamp-micros"),
    *((kind, "text") for kind in ("string", "uuid", "duration", "big-decimal", "int", "long", "boolean")),
}


_SEEDS = np.frombuffer(os.urandom(8 * hashing.SEED_WORDS), dtype=np.int64)  # of hashes of keys


class UnreadableError(Exception):
    """Rows that do not fit the type of a column; only the row by row way knows why."""

    def __init__(self, rows: np.ndarray) -> None:
        super().__init__(f"{len(rows)} rows")
        self.rows = rows


def type_of(shape: Shape) -> pa.DataType:
    """Returns the type of a shape."""
    if isinstance(shape, Struct):
        return pa.struct([pa.field(name, type_of(child)) for name, child in shape.fields])
    if isinstance(shape, ListOf):
        return pa.list_(type_of(shape.item))
    if isinstance(shape, MapOf):
        return pa.map_(pa.string(), type_of(shape.value))
    return pa.decimal128(shape.precision, shape.scale) if shape.kind == "decimal" else _TYPES[shape.kind]


def array_of_values(values: Sequence[Any], shape: Shape) -> pa.Array:
    """Returns an array of Python's values. Raises UnreadableError with the rows that do not fit."""
    try:
        return _of_values(values, shape)
    except _UNFIT as error:
        rows = np.array([i for i, value in enumerate(values) if not _is_fit(value, shape)], dtype=np.int64)
        if not len(rows):
            raise
        raise UnreadableError(rows) from error


def _is_fit(value: Any, shape: Shape) -> bool:
    try:
        _of_values([value], shape)
    except _UNFIT:
        return False
    return True


def fitted(value: Any, shape: Shape, remarks: Remarks, path: str = "") -> Any:
    """Returns one of Python's values with null for each part that `array_of_values` does not take; says which."""
    if value is None or _is_fit(value, shape):
        return value
    if isinstance(shape, Struct):
        within = f"{path}." if path else ""
        return {name: fitted(value[name], child, remarks, f"{within}{name}") for name, child in shape.fields}
    if isinstance(shape, ListOf):
        return [fitted(one, shape.item, remarks, f"{path}[]") for one in value]
    if isinstance(shape, MapOf):
        return {name: fitted(one, shape.value, remarks, f"{path}[]") for name, one in value.items()}
    remarks.add(f"{path}: {value} does not fit {shape}" if path else f"{value} does not fit {shape}")
    return None


def _of_values(values: Sequence[Any], shape: Shape) -> pa.Array:
    if isinstance(shape, Struct):
        children = [
            _of_values([None if value is None else value[name] for value in values], child)
            for name, child in shape.fields
        ]
        absent = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(type_of(shape)), mask=absent)
    if isinstance(shape, ListOf):
        return pa.ListArray.from_arrays(_offsets(values), _of_values(list(_parts(values)), shape.item))
    if isinstance(shape, MapOf):
        keys = pa.array([key for value in values for key in value or ()], pa.string())
        pairs = [value.values() for value in values if value is not None]
        return pa.MapArray.from_arrays(_offsets(values), keys, _of_values(list(_parts(pairs)), shape.value))
    if shape.kind == "bytes":
        return pa.array([None if value is None else value.encode("iso-8859-1") for value in values], pa.binary())
    if shape.kind in _PLAIN:
        return pa.array(values, type_of(shape))
    if shape.kind in _NUMBERED:
        return pa.array(values, pa.int32() if shape.kind in _HALVES else pa.int64()).view(type_of(shape))
    texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    return texts.cast(type_of(shape))


def _parts(values: Iterable[Iterable[Any] | None]) -> Iterator[Any]:
    return (part for value in values for part in value or ())


def _offsets(values: Sequence[Sized | None]) -> pa.Array:
    """Returns where each list begins, and where the last one ends; null for one that is null."""
    found: list[int | None] = []
    at = 0
    for value in values:
        found.append(None if value is None else at)
        at += len(value or ())
    return pa.array([*found, at], pa.int32())


# --- of slots -------------------------------------------------------------------------------------------------


def array_of_slots(slotted: Slotted, slots: Slots, shape: Shape) -> pa.Array:
    """Returns an array of a shape of what a kernel decoded; rows that are not decoded are null.

    Raises UnreadableError with rows whose texts or numbers the type does not have, or whose maps have a key twice.
    """
    return _of_slots(slotted, slots, slots.tables[0], shape, slots.statuses != 0)


def can_become(slotted: Slotted, shape: Shape) -> bool:
    """True if `array_of_slots` makes arrays of the shape."""
    if isinstance(slotted, StructSlot):
        wanted = dict(shape.fields) if isinstance(shape, Struct) else {}
        return isinstance(shape, Struct) and all(can_become(one, wanted[name]) for name, one in slotted.fields)
    if isinstance(slotted, ListSlot):
        return isinstance(shape, ListOf) and can_become(slotted.item, shape.item)
    if isinstance(slotted, MapSlot):
        return isinstance(shape, MapOf) and can_become(slotted.value, shape.value)
    if isinstance(slotted, PairSlot):
        return slotted.leaf == shape
    return slotted.leaf == shape or (isinstance(shape, Leaf) and (slotted.leaf.kind, shape.kind) in _CASTS)


def _of_slots(slotted: Slotted, slots: Slots, table: SlotTable, shape: Shape, absent: np.ndarray | None) -> pa.Array:
    if isinstance(slotted, LeafSlot):
        made = _leaf(slotted, slots.arena, table)
        return made if slotted.leaf == shape else _cast(made, type_of(shape))
    if isinstance(slotted, PairSlot):
        return _pairs(slotted, table)
    if isinstance(slotted, ListSlot | MapSlot):
        return _repeated(slotted, slots, table, shape)
    assert isinstance(shape, Struct)
    known = dict(slotted.fields)
    rows = table.lengths.shape[1]
    children = [
        _of_slots(known[name], slots, table, child, None) if name in known else pa.nulls(rows, type_of(child))
        for name, child in shape.fields
    ]
    if slotted.slot >= 0:
        absent = table.lengths[slotted.slot] < 0
    mask = pa.array(absent) if absent is not None and absent.any() else None
    return pa.StructArray.from_arrays(children, fields=list(type_of(shape)), mask=mask)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise UnreadableError(
            np.array([i for i in range(len(array)) if not _is_castable(array[i : i + 1], kind)])
        ) from error


def _is_castable(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _repeated(slotted: ListSlot | MapSlot, slots: Slots, table: SlotTable, shape: Shape) -> pa.Array:
    """Returns an array of lists or maps."""
    counts, without, within = table.numbers[slotted.slot], table.lengths[slotted.slot] < 0, slots.tables[slotted.table]
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    validity = None
    if without.any():
        _clear(slotted, within, np.repeat(without, counts))  # items of values that are given up
        validity = pa.array(~without).buffers()[1]
    kind = type_of(shape)
    try:
        if isinstance(slotted, ListSlot):
            assert isinstance(shape, ListOf)
            items = _of_slots(slotted.item, slots, within, shape.item, None)
        else:
            assert isinstance(shape, MapOf)
            keys = _leaf(slotted.key, slots.arena, within).cast(pa.string())
            values = _of_slots(slotted.value, slots, within, shape.value, None)
            items = pa.StructArray.from_arrays([keys, values], fields=[kind.key_field, kind.item_field])
    except UnreadableError as error:
        raise UnreadableError(np.unique(np.searchsorted(offsets, error.rows, side="right") - 1)) from error
    if isinstance(slotted, MapSlot):
        _check_keys(slotted.key, slots.arena, within, counts, without)
    return pa.Array.from_buffers(kind, len(counts), [validity, pa.py_buffer(offsets)], children=[items])


def _clear(slotted: ListSlot | MapSlot, within: SlotTable, rows: np.ndarray) -> None:
    """Makes items null; keys, which may not be null, empty."""
    within.lengths[:, rows] = -1
    if isinstance(slotted, MapSlot):
        within.numbers[slotted.key.slot, rows] = within.lengths[slotted.key.slot, rows] = 0


def _check_keys(key: LeafSlot, arena: np.ndarray, within: SlotTable, counts: np.ndarray, without: np.ndarray) -> None:
    """Raises UnreadableError for maps that have a key twice: libraries take the last one."""
    marks, seeds = np.empty(len(counts), dtype=np.int8), _SEEDS
    places = np.full(2 << int(counts.max(initial=1)).bit_length(), -1, dtype=np.int64)
    numbers, lengths = within.numbers[key.slot], within.lengths[key.slot]
    count = value_slots.mark_twins(arena, counts, numbers, lengths, key.leaf.kind == "string", seeds, places, marks)
    assert count >= 0
    has_twins = (marks != 0) & ~without
    if count and has_twins.any():
        raise UnreadableError(np.flatnonzero(has_twins))


def _leaf(slotted: LeafSlot, arena: np.ndarray, table: SlotTable) -> pa.Array:
    kind, numbers, lengths = slotted.leaf.kind, table.numbers[slotted.slot], table.lengths[slotted.slot]
    without = lengths < 0
    mask = without if without.any() else None
    if slotted.symbols is not None:
        return _symbols(slotted.symbols, numbers, without)
    if kind == "decimal":
        return _decimals(slotted.leaf, numbers, lengths, arena, mask)
    if kind == "unsigned":
        return pa.array(numbers.view(np.uint64), mask=mask).cast(_TYPES[kind])
    if kind == "uuid":
        return _uuids(numbers, without, arena)
    if kind in _MADE:
        return _made(_MADE[kind], numbers, lengths, arena)
    if kind in ("string", "bytes", "text"):
        array = spans(arena, numbers.astype(np.int32), lengths)
        return array if kind == "bytes" else _strings(array)
    if kind == "boolean":
        return pa.array(numbers != 0, mask=mask)
    if kind == "float":
        return pa.array(numbers.astype(np.uint32).view(np.float32), mask=mask)
    if kind == "double":
        return pa.array(numbers.view(np.float64), mask=mask)
    numbers = numbers.astype(np.int32) if kind in _HALVES else numbers
    return pa.array(numbers, mask=mask).view(_TYPES[kind])


def _strings(array: pa.Array) -> pa.Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise UnreadableError(np.array([i for i, one in enumerate(array) if not _is_text(one)])) from error


def _is_text(data: pa.BinaryScalar) -> bool:
    try:
        (data.as_py() or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _pairs(slotted: PairSlot, table: SlotTable) -> pa.Array:
    """Returns moments, or numbers of seconds, that have nanoseconds. Those that 64 bits of these may not hold, or that
    are none, are left to the library.
    """
    seconds, nanos = table.numbers[slotted.seconds], table.numbers[slotted.nanos]
    without = table.lengths[slotted.seconds] < 0
    is_moment = slotted.leaf.kind != "decimal"
    wrong = (np.abs(nanos) >= _A_SECOND) | (seconds >= _MOST_SECONDS) | (seconds <= -_MOST_SECONDS)
    wrong |= nanos < 0 if is_moment else ((seconds < 0) & (nanos > 0)) | ((seconds > 0) & (nanos < 0))
    wrong &= ~without
    if wrong.any():
        raise UnreadableError(np.flatnonzero(wrong))
    numbers = np.where(without, 0, seconds) * _A_SECOND + np.where(without, 0, nanos)
    mask = without if without.any() else None
    if is_moment:
        return pa.array(numbers, mask=mask).view(type_of(slotted.leaf))
    halves = np.stack((numbers, numbers >> 63), axis=1)
    validity = None if mask is None else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(type_of(slotted.leaf), len(numbers), [validity, pa.py_buffer(halves)])


def _uuids(numbers: np.ndarray, without: np.ndarray, arena: np.ndarray) -> pa.Array:
    """Returns UUIDs, of 16 bytes each, as text."""
    data = arena[numbers[~without][:, None] + np.arange(UUID_BYTES)]
    digits = np.empty((len(data), 2 * UUID_BYTES), dtype=np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEXADECIMAL[data >> 4], _HEXADECIMAL[data & 15]
    texts = np.insert(digits, (8, 12, 16, 20), ord("-"), axis=1)
    kind = pa.binary(texts.shape[1])
    array = pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(texts)]).cast(pa.binary()).cast(pa.string())
    return array.take(pa.array(np.cumsum(~without) - 1, mask=without)) if without.any() else array


def _made(text_of: Callable[[bytes], str], numbers: np.ndarray, lengths: np.ndarray, arena: np.ndarray) -> pa.Array:
    """Returns the texts that a function makes of bytes; it raises ValueError where it does not."""
    texts: list[str | None] = []
    wrong = []
    for i, (number, length) in enumerate(zip(numbers.tolist(), lengths.tolist(), strict=True)):
        try:
            texts.append(None if length < 0 else text_of(arena[number : number + length].tobytes()))
        except ValueError:
            wrong.append(i)
    if wrong:
        raise UnreadableError(np.array(wrong))
    return pa.array(texts, pa.string())


def _symbols(symbols: Any, numbers: np.ndarray, without: np.ndarray) -> pa.Array:
    known = np.array(sorted(symbols), dtype=np.int64)
    places = np.searchsorted(known, numbers)
    places[places == len(known)] = 0
    unknown = ~without & (known[places] != numbers)
    if unknown.any():
        raise UnreadableError(np.flatnonzero(unknown))
    texts = pa.array([symbols[one] for one in known.tolist()], pa.string())
    return texts.take(pa.array(places, mask=without))


def _decimals(leaf: Leaf, numbers: np.ndarray, lengths: np.ndarray, arena: np.ndarray, mask: Any) -> pa.Array:
    """Returns decimal numbers of big-endian bytes."""
    kind = pa.decimal128(leaf.precision, leaf.scale)
    long = lengths > _MOST_DECIMAL_BYTES
    if long.any():
        raise UnreadableError(np.flatnonzero(long))
    out = np.zeros((len(numbers), _MOST_DECIMAL_BYTES), dtype=np.uint8)
    there = lengths > 0
    negative = np.zeros(len(numbers), dtype=bool)
    negative[there] = arena[numbers[there]] > 0x7F
    for i in range(_MOST_DECIMAL_BYTES):
        within = lengths > i
        out[within, i] = arena[numbers[within] + lengths[within] - 1 - i]
        out[~within, i] = np.where(negative[~within], 0xFF, 0)
    validity = None if mask is None else pa.array(~mask).buffers()[1]
    array = pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(out)])
    low, high = out[:, :8].copy().view(np.uint64).ravel(), out[:, 8:].copy().view(np.int64).ravel()
    most = 10**leaf.precision
    beyond = _at_least(low, high, most) | ~_at_least(low, high, 1 - most)
    beyond &= lengths >= 0
    if beyond.any():
        raise UnreadableError(np.flatnonzero(beyond))
    return array


def _at_least(low: np.ndarray, high: np.ndarray, limit: int) -> np.ndarray:
    """True where a number of 128 bits, in two halves, is at least `limit`."""
    limit_low, limit_high = np.uint64(limit & 0xFFFFFFFFFFFFFFFF), np.int64(limit >> 64)
    found: np.ndarray = (high > limit_high) | ((high == limit_high) & (low >= limit_low))
    return found
