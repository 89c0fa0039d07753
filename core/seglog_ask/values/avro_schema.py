"""Avro schemas made safe to decode by: self-contained, bounded, and with a cost that is known before a value is read.

A hostile schema makes six bytes expand to billions of values (an array of nulls), or to a structure that ends the
process (one level deeper for each byte). So a schema is walked before any library sees it:

- what may repeat must take bytes, so that a value's size bounds what it expands to (`Cost`);
- schemas are at most MOST_LEVELS deep, and recursive ones are marked, because a reader in C must not follow them;
- logical types that are valid get names of this package, bytes and enums too, for `avro_forms`; others are ignored, as
  the specification wants it.

Apache Avro 1.12, "Schema Declaration", "Names" and "Logical Types".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seglog_ask.values.avro_texts import DURATION_BYTES, MOST_SCALE, UUID_BYTES
from seglog_ask.values.schemas import MOST_NODES, MOST_SCHEMA_BYTES, NAME_BYTES, NotDecodedError, Schema

MOST_LEVELS = 64

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LEAST = {"null": 0, "float": 4, "double": 8}  # bytes; others take one
# The logical types that are shown in a form of their own, by the type beneath.
LOGICAL = {
    "bytes": ("decimal", "big-decimal"),
    "fixed": ("decimal", "uuid", "duration"),
    "int": ("date", "time-millis"),
    "long": (
        *("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ),
}
PREFIX = "seglog-"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a value of a type may take: at least `least` bytes, and at most `fixed + per_byte * bytes` nodes."""

    least: int
    fixed: int
    per_byte: int = 0


@dataclass(frozen=True, slots=True)
class SafeSchema:
    """A schema that fastavro may read by. `recursive`: only by its reader in Python."""

    definition: Any
    cost: Cost
    recursive: bool


def safe_schema(schema: Schema, references: Mapping[str, Schema]) -> SafeSchema:
    """Returns the schema with all that it refers to. Raises NotDecodedError for one that is wrong or not safe."""
    walk = _Walk()
    try:
        for referred in references.values():
            walk.of(_parsed(referred.text), "", 0)
        definition, cost = walk.of(_parsed(schema.text), "", 0, expand=True)
    except RecursionError:
        raise NotDecodedError(f"it is more than {MOST_LEVELS} levels deep") from None
    return SafeSchema(definition, cost, walk.recursive)


def _parsed(text: str) -> Any:
    if len(text) > MOST_SCHEMA_BYTES:
        raise NotDecodedError(f"it has {len(text)} bytes, more than {MOST_SCHEMA_BYTES}")
    if text.strip() in PRIMITIVES:  # a registry keeps "string" with and without quotes
        return text.strip()
    try:
        return json.loads(text)
    except ValueError as error:
        raise NotDecodedError(f"it is not JSON: {error}") from error


@dataclass
class _Walk:
    """Copies schemas. `named` has the types met so far; those in the making have no cost yet."""

    named: dict[str, tuple[Any, Cost | None]] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    recursive: bool = False

    def of(self, schema: Any, namespace: str, level: int, *, expand: bool = False) -> tuple[Any, Cost]:
        """Returns the copy of a schema and its cost. `expand` begins a copy that stands alone: the first mention of
        each type is its definition."""
        if level > MOST_LEVELS:
            raise NotDecodedError(f"it is more than {MOST_LEVELS} levels deep")
        if expand:
            self.shown.clear()
        if isinstance(schema, str):
            return self._mentioned(schema, namespace)
        if isinstance(schema, list):
            if any(isinstance(branch, list) for branch in schema) or not schema:
                raise NotDecodedError("a union in it is empty, or holds a union")
            branches = [self.of(branch, namespace, level + 1) for branch in schema]
            return [copy for copy, _ in branches], _either([cost for _, cost in branches])
        if not isinstance(schema, dict) or "type" not in schema:
            raise NotDecodedError(f"{str(schema)[:60]!r} in it is not a type")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, namespace, level + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(kind, schema, namespace, level)
        if kind == "array":
            items, cost = self.of(schema.get("items"), namespace, level + 1)
            return {"type": "array", "items": items}, _repeated(cost)
        if kind == "map":
            values, cost = self.of(schema.get("values"), namespace, level + 1)
            return {"type": "map", "values": values}, _repeated(Cost(cost.least + 1, cost.fixed + 1, cost.per_byte))
        if kind in PRIMITIVES:
            return _primitive(kind, schema)
        if not isinstance(kind, str):
            raise NotDecodedError(f"{str(kind)[:60]!r} in it is not a type")
        return self._mentioned(kind, namespace)

    def _mentioned(self, name: str, namespace: str) -> tuple[Any, Cost]:
        if name in PRIMITIVES:
            return _primitive(name, {})
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self.named else name  # a name without a namespace, from within one
        if full not in self.named:
            raise NotDecodedError(f"the type {name} is not defined")
        definition, cost = self.named[full]
        if cost is None:
            self.recursive = True
            return full, Cost(1, 1)  # takes a byte at least: without any, it would never end
        return self._shown(definition), cost

    def _shown(self, definition: Any) -> Any:
        """Returns a definition, with those of the types in it that are not shown yet, or its name if it is shown."""
        if isinstance(definition, str):
            if definition in PRIMITIVES or definition in self.shown:
                return definition
            return self._shown(self.named[definition][0])
        if isinstance(definition, list):
            return [self._shown(each) for each in definition]
        name = definition.get("name")
        if name in self.shown:
            return name
        if name is not None:
            self.shown.add(name)
        copy = dict(definition)
        for part in ("items", "values"):
            if part in copy:
                copy[part] = self._shown(copy[part])
        if "fields" in copy:
            copy["fields"] = [{"name": one["name"], "type": self._shown(one["type"])} for one in copy["fields"]]
        return copy

    def _definition(self, kind: str, schema: Mapping[str, Any], namespace: str, level: int) -> tuple[Any, Cost]:
        name = schema.get("name")
        if not isinstance(name, str) or not name:
            raise NotDecodedError(f"a type ({kind}) in it has no name")
        own = schema.get("namespace", namespace)
        space, _, short = name.rpartition(".") if "." in name else (own if isinstance(own, str) else "", "", name)
        full = f"{space}.{short}" if space else short
        if full in self.named and self.named[full][1] is None:
            raise NotDecodedError(f"the type {full} is defined within itself")
        self.shown.add(full)
        if kind in ("record", "error"):
            return self._record(full, space, schema.get("fields"), level)
        copy, cost = _enum(full, schema) if kind == "enum" else _fixed(full, schema)
        return self._known(full, copy, cost)

    def _record(self, full: str, space: str, fields: Any, level: int) -> tuple[Any, Cost]:
        if not isinstance(fields, list):
            raise NotDecodedError(f"the record {full} has no fields")
        self.named[full] = (None, None)
        copies, costs = [], []
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise NotDecodedError(f"a field of {full} has no name")
            copy, cost = self.of(one.get("type"), space, level + 1)
            copies.append({"name": one["name"], "type": copy})
            costs.append(cost)
        names = sum(len(one["name"]) // NAME_BYTES for one in copies)
        least, fixed = sum(cost.least for cost in costs), 1 + names + sum(cost.fixed for cost in costs)
        per_byte = max((cost.per_byte for cost in costs), default=0)
        if self.recursive:  # each record of a recursion takes a byte, whatever else is in it
            per_byte = max(per_byte, fixed)
        if fixed > MOST_NODES:
            raise NotDecodedError(f"a value of {full} has more than {MOST_NODES} parts")
        return self._known(full, {"type": "record", "name": full, "fields": copies}, Cost(least, fixed, per_byte))

    def _known(self, full: str, copy: Any, cost: Cost) -> tuple[Any, Cost]:
        self.named[full] = copy, cost
        return copy, cost


def _enum(full: str, schema: Mapping[str, Any]) -> tuple[Any, Cost]:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols) or not symbols:
        raise NotDecodedError(f"the enum {full} has no symbols")
    # Read as a number, because fastavro takes -1 for the last symbol.
    copy = {"type": "int", "logicalType": f"{PREFIX}enum", "seglog_symbols": symbols}
    return copy, Cost(1, 1 + max(map(len, symbols)) // NAME_BYTES)


def _fixed(full: str, schema: Mapping[str, Any]) -> tuple[Any, Cost]:
    size = schema.get("size")
    if not isinstance(size, int) or size < 0:
        raise NotDecodedError(f"the type {full} has no size")
    return {"type": "fixed", "name": full, "size": size, **_logical("fixed", schema, "fixed")}, Cost(size, 1)


def _primitive(kind: str, schema: Mapping[str, Any]) -> tuple[Any, Cost]:
    extra = _logical(kind, schema, "bytes" if kind == "bytes" else "")
    return ({"type": kind, **extra} if extra else kind), Cost(_LEAST.get(kind, 1), 1)


_SIZES = {"uuid": UUID_BYTES, "duration": DURATION_BYTES}  # of the fixed type beneath


def _logical(kind: str, schema: Mapping[str, Any], otherwise: str) -> dict[str, Any]:
    """Returns what a copy gets for a logical type: its name in this package, and a decimal's digits."""
    logical = schema.get("logicalType")
    ignored = {"logicalType": PREFIX + otherwise} if otherwise else {}
    if logical not in LOGICAL.get(kind, ()) or _SIZES.get(logical, schema.get("size")) != schema.get("size"):
        return ignored
    if logical != "decimal":
        return {"logicalType": f"{PREFIX}{logical}"}
    digits, scale = _number(schema.get("precision"), 0), _number(schema.get("scale"), 0)
    if not 0 <= scale <= min(digits, MOST_SCALE) or digits == 0:
        return ignored
    if kind == "fixed" and digits > _most_precision(schema["size"]):
        return ignored
    return {"logicalType": f"{PREFIX}decimal", "seglog_scale": scale, "seglog_precision": digits}


def _number(value: Any, absent: int) -> int:
    """Returns a property that is a whole number; -1 for another one."""
    if value is None:
        return absent
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _most_precision(size: int) -> int:
    """Returns the digits that every number of so many bytes has, as Java computes them (`LogicalTypes.Decimal`)."""
    return math.floor(math.log10(2) * (8 * size - 1))


def _either(costs: list[Cost]) -> Cost:
    least = 1 + min(cost.least for cost in costs)
    return Cost(least, max(cost.fixed for cost in costs), max(cost.per_byte for cost in costs))


def _repeated(item: Cost) -> Cost:
    if item.least == 0:
        raise NotDecodedError("the items of an array in it take no bytes, so a few bytes can be billions of values")
    return Cost(1, 1, -(-item.fixed // item.least) + item.per_byte)
