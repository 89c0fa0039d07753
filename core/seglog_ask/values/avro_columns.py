"""Avro schemas as types of columns, and as programs of the kernel that decodes them (`kernels.avro_values`).

There is a program for records, lists and maps, for values without parts, and for what may be null beside one more
type. Others (other unions, recursion) are decoded by `seglog_ask.values.avro`, a value at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seglog.kernels import avro_values as kernel
from seglog.kernels.value_slots import STACK
from seglog.layout import INT32_MAX, INT64_MAX
from seglog_ask.values.avro_forms import A_SECOND
from seglog_ask.values.avro_schema import MOST_LEVELS, PREFIX, PRIMITIVES, safe_schema
from seglog_ask.values.schemas import Schema
from seglog_ask.values.shapes import (
    MOST_DIGITS,
    MOST_FIELDS,
    TEXT,
    Described,
    Leaf,
    LeafSlot,
    ListOf,
    ListSlot,
    MapOf,
    MapSlot,
    Outputs,
    Payloads,
    Program,
    Shape,
    Slotted,
    Struct,
    StructSlot,
    are_columns,
    size_of,
)

_OPERATION = {
    "boolean": kernel.BOOLEAN,
    "int": kernel.NUMBER,
    "long": kernel.NUMBER,
    "float": kernel.FLOAT,
    "double": kernel.DOUBLE,
    "bytes": kernel.TEXT,
    "string": kernel.TEXT,
    "fixed": kernel.FIXED,
}
_RANGES = {"int": (-INT32_MAX - 1, INT32_MAX), "long": (-INT64_MAX - 1, INT64_MAX)}
_STRING = Leaf("string")


def described(schema: Schema, references: Mapping[str, Schema]) -> Described:
    """Returns what a schema says of columns. Raises NotDecodedError for one that is wrong or not safe."""
    definition = safe_schema(schema, references).definition
    walk = _Walk()
    shape = walk.shape(definition, ())
    if size_of(shape) > MOST_FIELDS:
        return Described(TEXT)
    making = _Making(walk.named)
    root = making.of(definition)
    return Described(shape, None if root is None else AvroProgram(root, making))


class _Walk:
    """Finds the shape of a schema, in which each name comes first with its definition. `named` has these."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        self._size = 0

    def shape(self, definition: Any, above: tuple[str, ...], level: int = 0) -> Shape:
        """Returns the shape of a type, which is TEXT if it is within itself; `above` are the records around it."""
        self._size += 1
        if level > MOST_LEVELS or self._size > 2 * MOST_FIELDS:
            return TEXT
        if isinstance(definition, str) and definition not in PRIMITIVES:
            if definition in above:
                return TEXT
            definition = self.named[definition]
        if isinstance(definition, list):
            shapes = [self.shape(branch, above, level + 1) for branch in definition if branch != "null"]
            return shapes[0] if len(shapes) == 1 else TEXT
        if isinstance(definition, str):
            return TEXT if definition == "null" else Leaf(definition)
        if "name" in definition:
            self.named[definition["name"]] = definition
        kind = definition["type"]
        if kind == "record":
            inside = (*above, definition["name"])
            fields = [(one["name"], self.shape(one["type"], inside, level + 1)) for one in definition["fields"]]
            return Struct(tuple(fields)) if are_columns([name for name, _ in fields]) else TEXT
        if kind == "array":
            return ListOf(self.shape(definition["items"], above, level + 1))
        if kind == "map":
            return MapOf(self.shape(definition["values"], above, level + 1))
        return _leaf(definition)


def _leaf(definition: Mapping[str, Any]) -> Leaf:
    kind, logical = definition["type"], definition["logicalType"].removeprefix(PREFIX)
    if logical == "enum":
        return Leaf("string")
    if logical == "decimal":
        digits, scale = definition["seglog_precision"], definition["seglog_scale"]
        return Leaf("decimal", digits, scale) if digits <= MOST_DIGITS else TEXT
    if logical in ("uuid", "duration", "big-decimal"):
        return Leaf(logical)
    return Leaf("bytes" if kind in ("bytes", "fixed") else logical)


# --- programs -------------------------------------------------------------------------------------------------


class _Making:
    """Collects the operations of a program. `named` has the types that have names, `sizes` the slots of each table."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._operations: list[tuple[int, ...]] = []
        self._tables: list[int] = []  # of each operation
        self._table = 0
        self.sizes = [0]

    def operations(self, firsts: Sequence[int]) -> np.ndarray:
        """Returns the operations, the slots of which begin with `firsts` in each table."""
        made = np.array(self._operations, dtype=np.int64).reshape(-1, 6)
        of_each = np.array([firsts[table] for table in self._tables], dtype=np.int64)
        optional = made[:, kernel.CODE] == kernel.OPTIONAL
        made[~optional, kernel.SLOT] += of_each[~optional]
        for column in (kernel.LEAST, kernel.MOST):
            made[optional, column] += of_each[optional]
        return made

    def of(self, definition: Any, level: int = 0, *, optional: bool = False) -> Slotted | None:
        """Adds what decodes a type; `optional`: it may be null. Returns its slots, None if there is no program."""
        if sum(self.sizes) > MOST_FIELDS or level > MOST_LEVELS:
            return None
        if isinstance(definition, str) and definition not in PRIMITIVES:
            definition = self._named[definition]
        if isinstance(definition, list):
            return None if optional else self._union(definition, level)
        if definition == "null":
            return LeafSlot(TEXT, self._add(kernel.NOTHING))
        if isinstance(definition, str):
            return self._plain(Leaf(definition), definition)
        kind = definition["type"]
        if kind == "record":
            return self._record(definition, level, optional)
        if kind == "array":
            return self._repeated(definition["items"], level)
        if kind == "map":
            return self._repeated(definition["values"], level, is_map=True)
        leaf = _leaf(definition)
        if leaf == TEXT:
            return None  # a decimal number of any size
        symbols = definition.get("seglog_symbols")
        if symbols is not None:
            slot = self._add(kernel.NUMBER, least=0, most=len(symbols) - 1)
            return LeafSlot(leaf, slot, dict(enumerate(symbols)))
        return self._plain(leaf, kind, definition.get("size", 0))

    def _plain(self, leaf: Leaf, kind: str, size: int = 0) -> LeafSlot | None:
        if size > INT32_MAX:
            return None
        least, most = _range_of(leaf.kind, kind)
        return LeafSlot(leaf, self._add(_OPERATION[kind], size, least, most))

    def _record(self, definition: Mapping[str, Any], level: int, optional: bool) -> StructSlot | None:
        if not are_columns([one["name"] for one in definition["fields"]]):
            return None
        slot = self._add(kernel.PRESENT) if optional else -1
        fields: list[tuple[str, Slotted]] = []
        for one in definition["fields"]:
            within = self.of(one["type"], level + 1)
            if within is None:
                return None
            fields.append((one["name"], within))
        return StructSlot(tuple(fields), slot)

    def _repeated(self, definition: Any, level: int, *, is_map: bool = False) -> Slotted | None:
        table, outer, at = len(self.sizes), self._table, len(self._operations)
        slot = self._add(kernel.LIST)
        self.sizes.append(0)
        self._table = table
        key = LeafSlot(_STRING, self._add(kernel.TEXT)) if is_map else None
        item = self.of(definition, level + 1)
        self._table = outer
        self._operations[at] = (kernel.LIST, slot, table, len(self._operations), 0, len(self.sizes))
        if item is None:
            return None
        return ListSlot(item, slot, table) if key is None else MapSlot(key, item, slot, table)

    def _union(self, branches: list[Any], level: int) -> Slotted | None:
        if len(branches) != 2 or branches.count("null") != 1:
            return None
        null, at, first = branches.index("null"), len(self._operations), self.sizes[self._table]
        self._place(())
        slots = self.of(branches[1 - null], level + 1, optional=True)
        self._operations[at] = (kernel.OPTIONAL, 0, null, len(self._operations), first, self.sizes[self._table])
        return slots

    def _add(self, code: int, size: int = 0, least: int = 0, most: int = 0) -> int:
        """Adds an operation with a slot, and returns this."""
        slot = self.sizes[self._table]
        self._place((code, slot, size, 0, least, most))
        self.sizes[self._table] += 1
        return slot

    def _place(self, operation: tuple[int, ...]) -> None:
        self._operations.append(operation)
        self._tables.append(self._table)


def _range_of(logical: str, kind: str) -> tuple[int, int]:
    """Returns the numbers that a type has."""
    if logical.startswith("time-"):
        return 0, 86400 * A_SECOND[logical.removeprefix("time-")] - 1
    return _RANGES.get(kind, (0, 0))


class AvroProgram(Program):
    """Decodes values of a schema by `kernels.avro_values`."""

    def __init__(self, root: Slotted, making: _Making) -> None:
        super().__init__(root, making.sizes)
        self.operations = making.operations(self.firsts)

    def _decode(self, payloads: Payloads, tables: np.ndarray, outputs: Outputs) -> None:
        places = np.empty((min(kernel.BLOCK, len(payloads[1]) + 1), 3), dtype=np.int64)
        stack = np.empty(STACK, dtype=np.int64)
        done = kernel.decode_avro(*payloads, self.operations, tables, stack, places, *outputs)
        assert done != kernel.BAD_PROGRAM
