"""The types of columns that schemas describe, whatever their format; and the programs by which kernels decode.

A shape is a leaf, a record of shapes, a list or a map. What no type of a column expresses is the leaf TEXT: the JSON of
the value, or the characters of a string. `merged` gives the one shape that fits the values of several schemas.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

import numpy as np

from seglog.kernels import value_slots
from seglog.kernels.value_slots import BROKEN


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without parts. `kind` is one of KINDS; a decimal number has digits (`precision`) and `scale`."""

    kind: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})" if self.kind == "decimal" else self.kind


@dataclass(frozen=True, slots=True)
class Struct:
    """A record: its fields by name, in order."""

    fields: tuple[tuple[str, Shape], ...]

    def __str__(self) -> str:
        return "record"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list."""

    item: Shape

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from strings."""

    value: Shape

    def __str__(self) -> str:
        return "map"


Shape: TypeAlias = Leaf | Struct | ListOf | MapOf

TEXT = Leaf("text")
MOST_DIGITS = 38  # of a decimal number in a column
MOST_FIELDS = 2000  # of a column with all that is within
MOST_NUMBERS = 1 << 22  # of lists, in slots at once: 12 bytes each
_TELLING = 1000  # values, after which the next ones are expected to have as many items
KINDS = (
    *("text", "boolean", "int", "long", "float", "double", "bytes", "string", "uuid", "duration", "big-decimal"),
    *("decimal", "unsigned", "date"),
    *("time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
)
_NAME = re.compile(r"\w{1,300}|\[[\w.]{1,298}\]")  # in brackets: an extension of Protobuf
# What becomes what without losing a digit. Avro's own int as float would lose some: a double has all of both.
_WIDER = {
    ("int", "long"): "long",
    ("float", "double"): "double",
    ("int", "double"): "double",
    ("int", "float"): "double",
}
_TEXTS = frozenset({"text", "string", "uuid", "duration", "big-decimal"})  # kinds that are texts


def are_columns(names: Sequence[str]) -> bool:
    """True if names can be those of a record's columns: engines do not tell upper from lower case."""
    return 0 < len({name.lower() for name in names}) == len(names) and all(map(_NAME.fullmatch, names))


def size_of(shape: Shape) -> int:
    """Returns the number of shapes in a shape, with itself."""
    if isinstance(shape, Leaf):
        return 1
    if isinstance(shape, Struct):
        return 1 + sum(size_of(one) for _, one in shape.fields)
    return 1 + size_of(shape.item if isinstance(shape, ListOf) else shape.value)


def merged(first: Shape, second: Shape, say: Callable[[str], None], path: str) -> Shape:
    """Returns the shape of a column for values of both: the union of fields; of two types the wider one, else TEXT.

    `say` gets a sentence for each type that changes; `path` is the column's name.
    """
    if first == second:
        return first
    if isinstance(first, Struct) and isinstance(second, Struct):
        fields = dict(first.fields)
        for name, shape in second.fields:
            fields[name] = merged(fields[name], shape, say, f"{path}.{name}") if name in fields else shape
        if are_columns(list(fields)):
            return Struct(tuple(fields.items()))
    if isinstance(first, ListOf) and isinstance(second, ListOf):
        return ListOf(merged(first.item, second.item, say, f"{path}[]"))
    if isinstance(first, MapOf) and isinstance(second, MapOf):
        return MapOf(merged(first.value, second.value, say, f"{path}[]"))
    if isinstance(first, Leaf) and isinstance(second, Leaf):
        low, high = sorted((first.kind, second.kind), key=KINDS.index)
        if {low, high} <= _TEXTS:
            return TEXT
        if (low, high) in _WIDER:
            say(f"{path} is {_WIDER[low, high]}, as schemas have it as {first} and as {second}")
            return Leaf(_WIDER[low, high])
    if TEXT not in (first, second):
        say(f"{path} is text, as schemas have it as {first} and as {second}")
    return TEXT


# --- what kernels decode --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeafSlot:
    """A leaf in a slot. `symbols`: the slot has numbers, which stand for these texts."""

    leaf: Leaf
    slot: int
    symbols: Mapping[int, str] | None = None


@dataclass(frozen=True, slots=True)
class PairSlot:
    """A leaf in two slots: a moment or a number of seconds, and its nanoseconds."""

    leaf: Leaf
    seconds: int
    nanos: int


@dataclass(frozen=True, slots=True)
class StructSlot:
    """A record, the fields of which have slots; `slot` tells whether it is there (-1: always)."""

    fields: tuple[tuple[str, Slotted], ...]
    slot: int = -1


@dataclass(frozen=True, slots=True)
class ListSlot:
    """A list: `slot` has its number of items, which are in a table of their own."""

    item: Slotted
    slot: int
    table: int


@dataclass(frozen=True, slots=True)
class MapSlot:
    """A map, as `ListSlot`. `key` and `value` are in the table of its entries."""

    key: LeafSlot
    value: Slotted
    slot: int
    table: int


Slotted: TypeAlias = LeafSlot | PairSlot | StructSlot | ListSlot | MapSlot


@dataclass(frozen=True, slots=True)
class SlotTable:
    """`numbers` and `lengths` have a line for each slot of a table, with a column for each of its rows."""

    numbers: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, slots=True)
class Slots:
    """Decoded values (`kernels.value_slots`): the first table is that of the values."""

    arena: np.ndarray
    tables: Sequence[SlotTable]
    statuses: np.ndarray

    def give_up(self, rows: np.ndarray) -> None:
        """Makes values broken that a kernel has decoded."""
        self.statuses[rows] = BROKEN
        self.tables[0].lengths[:, rows] = -1


# What kernels take: an arena, positions and sizes of values in it, and how many bytes of each come before its payload.
Payloads: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, int]
Outputs: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]  # numbers, lengths, statuses


class Program(ABC):
    """Decodes values of one schema by a kernel. `root` has their slots, `sizes` the number of slots of each table."""

    def __init__(self, root: Slotted, sizes: Sequence[int]) -> None:
        self.root, self.sizes = root, tuple(sizes)
        self.firsts = (0, *accumulate(sizes[:-1]))  # slot of each table
        self._likely = (2.0,) * (len(sizes) - 1)  # items for each value, as those before had

    @property
    def slots(self) -> int:
        """The number of slots in all tables."""
        return sum(self.sizes)

    def run(self, arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray, skipped: int) -> Slots | None:
        """Decodes the spans of `sizes` bytes at `positions`, without their first `skipped` bytes.

        Returns None if these have more than MOST_NUMBERS in lists: then try fewer at once.
        """
        rows = len(positions)
        most = 1 + MOST_NUMBERS // self.slots
        rooms = [rows, *(min(1 + int(rows * likely), most) for likely in self._likely)]
        statuses = np.empty(rows, dtype=np.int8)
        while True:
            tables, total = self.laid_out(rooms)
            numbers, lengths = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int32)
            self._decode((arena, positions, sizes, skipped), tables, (numbers, lengths, statuses))
            items = tables[1:, value_slots.ITEMS].tolist()
            if all(count < room for count, room in zip(items, rooms[1:], strict=True)):
                break
            rooms[1:] = [count + 1 for count in items]
            if sum(count * size for count, size in zip(items, self.sizes[1:], strict=True)) > MOST_NUMBERS:
                return None
        if rows >= _TELLING:
            self._likely = tuple(count / rows * 1.1 for count in items)
        within, at = list[SlotTable](), 0
        for room, size, count in zip(rooms, self.sizes, (rows, *items), strict=True):
            of_table = (one[at : at + room * size].reshape(size, room)[:, :count] for one in (numbers, lengths))
            within.append(SlotTable(*of_table))
            at += room * size
        return Slots(arena, within, statuses)

    def laid_out(self, rooms: Sequence[int]) -> tuple[np.ndarray, int]:
        """Returns the tables for a kernel, of which each has room for so many rows, and the room of all in numbers."""
        tables, at = [], 0
        for first, size, room in zip(self.firsts, self.sizes, rooms, strict=True):
            tables.append((first, first + size, at - first * room, room, 0, 0))
            at += room * size
        return np.array(tables, dtype=np.int64), at

    @abstractmethod
    def _decode(self, payloads: Payloads, tables: np.ndarray, outputs: Outputs) -> None: ...


@dataclass(frozen=True)
class Described:
    """What a schema says of columns: their shape, and a program if a kernel decodes all of it."""

    shape: Shape
    program: Program | None = field(default=None, compare=False)
