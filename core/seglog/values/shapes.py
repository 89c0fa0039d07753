"""The types of columns that schemas describe, whatever their format; and the programs by which kernels decode.

A shape is a leaf, a record of shapes, a list or a map. What no type of a column expresses is the leaf TEXT: the JSON of
the value, or the characters of a string. `merged` gives the one shape that fits the values of several schemas.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

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
class Row:
    """A record: its fields by name, in order."""

    fields: tuple[tuple[str, Shape], ...]

    def __str__(self) -> str:
        return "record"


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    item: Shape

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class Named:
    """A map from strings."""

    value: Shape

    def __str__(self) -> str:
        return "map"


Shape: TypeAlias = Leaf | Row | Items | Named

TEXT = Leaf("text")
MOST_DIGITS = 38  # of a decimal number in a column
MOST_FIELDS = 2000  # of a column with all that is within
KINDS = (
    *("text", "boolean", "int", "long", "float", "double", "bytes", "string", "decimal", "unsigned", "date"),
    *("time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
)
_NAME = re.compile(r"\w{1,300}")
# What becomes what without losing a digit.
_WIDER = {("int", "long"): "long", ("float", "double"): "double", ("int", "double"): "double"}


def are_columns(names: Sequence[str]) -> bool:
    """True if names can be those of a record's columns: engines do not tell upper from lower case."""
    return 0 < len({name.lower() for name in names}) == len(names) and all(map(_NAME.fullmatch, names))


def size_of(shape: Shape) -> int:
    """Returns the number of shapes in a shape, with itself."""
    if isinstance(shape, Leaf):
        return 1
    if isinstance(shape, Row):
        return 1 + sum(size_of(one) for _, one in shape.fields)
    return 1 + size_of(shape.item if isinstance(shape, Items) else shape.value)


def merged(first: Shape, second: Shape, say: Callable[[str], None], path: str) -> Shape:
    """Returns the shape of a column for values of both: the union of fields; of two types the wider one, else TEXT.

    `say` gets a sentence for each type that changes; `path` is the column's name.
    """
    if first == second:
        return first
    if isinstance(first, Row) and isinstance(second, Row):
        fields = dict(first.fields)
        for name, shape in second.fields:
            fields[name] = merged(fields[name], shape, say, f"{path}.{name}") if name in fields else shape
        if are_columns(list(fields)):
            return Row(tuple(fields.items()))
    if isinstance(first, Items) and isinstance(second, Items):
        return Items(merged(first.item, second.item, say, f"{path}[]"))
    if isinstance(first, Named) and isinstance(second, Named):
        return Named(merged(first.value, second.value, say, f"{path}[]"))
    if isinstance(first, Leaf) and isinstance(second, Leaf):
        low, high = sorted((first.kind, second.kind), key=KINDS.index)
        if {low, high} == {"text", "string"}:
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
class RowSlot:
    """A record, the fields of which have slots; `slot` tells whether it is there (-1: always)."""

    fields: tuple[tuple[str, Slotted], ...]
    slot: int = -1


Slotted: TypeAlias = LeafSlot | RowSlot


@dataclass(frozen=True, slots=True)
class Slots:
    """Decoded values (`kernels.value_slots`): `numbers` and `lengths` have a line for each slot."""

    arena: np.ndarray
    numbers: np.ndarray
    lengths: np.ndarray
    statuses: np.ndarray

    def give_up(self, rows: np.ndarray) -> None:
        """Makes rows broken that a kernel has decoded."""
        self.statuses[rows] = BROKEN
        self.lengths[:, rows] = -1


class Program(ABC):
    """Decodes values of one schema by a kernel. `root` has their slots, `skipped` the bytes of what comes first."""

    root: Slotted
    slots: int

    def run(self, arena: np.ndarray, positions: np.ndarray, sizes: np.ndarray, skipped: int) -> Slots:
        """Decodes the spans of `sizes` bytes at `positions`, without their first `skipped` bytes."""
        rows = len(positions)
        numbers, lengths = np.empty((self.slots, rows), dtype=np.int64), np.empty((self.slots, rows), dtype=np.int32)
        slots = Slots(arena, numbers, lengths, np.empty(rows, dtype=np.int8))
        self._decode(slots, positions, sizes, skipped)
        return slots

    @abstractmethod
    def _decode(self, slots: Slots, positions: np.ndarray, sizes: np.ndarray, skipped: int) -> None: ...


@dataclass(frozen=True)
class Described:
    """What a schema says of columns: their shape, and a program if a kernel decodes all of it."""

    shape: Shape
    program: Program | None = field(default=None, compare=False)
