"""The columns of each view of the source, and the projection that a query asks for.

The view `records` has the columns of Spark's kafka source, in its order, and others on request. A column may be written
with underscores (`producer_id`). A schema is kept as names and SQL types; only
`arrow_schema` needs pyarrow, and nothing here needs pyspark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seglog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS = "records"
BATCHES = "batches"
SEGMENTS = "segments"
FINDINGS = "findings"

HEADERS = "headers"
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its SQL type as `DataType.simpleString()` writes it, and whether it is never null.

    `on_request`: only there if the query names it.
    """

    name: str
    type: str
    required: bool = False
    on_request: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A requested column: `name` as the caller writes it, `column` as the view calls it."""

    name: str
    column: str
    type: str
    nullable: bool = True


_PLACE = (Column("topic", "string", True), Column("partition", "int", True), Column("segment", "string", True))

VIEWS: dict[str, tuple[Column, ...]] = {
    RECORDS: (
        Column("key", "binary"),
        Column("value", "binary"),
        Column("topic", "string", True),
        Column("partition", "int", True),
        Column("offset", "bigint", True),
        Column("timestamp", "timestamp"),
        Column("timestampType", "int", True),
        Column(HEADERS, _HEADERS_TYPE, on_request=True),
        Column("producerId", "bigint", True, on_request=True),
        Column("producerEpoch", "int", True, on_request=True),
        Column("sequence", "int", True, on_request=True),
        Column("leaderEpoch", "int", True, on_request=True),
        Column("file", "string", True, on_request=True),
        Column("position", "bigint", True, on_request=True),
        Column("timestampMs", "bigint", True, on_request=True),
    ),
    BATCHES: (
        *_PLACE,
        Column("position", "bigint", True),
        Column("size", "int", True),
        Column("magic", "int", True),
        Column("baseOffset", "bigint", True),
        Column("lastOffset", "bigint", True),
        Column("count", "int"),
        Column("codec", "string", True),
        Column("timestampType", "int", True),
        Column("maxTimestamp", "timestamp"),
        Column("deleteHorizon", "timestamp"),
        Column("leaderEpoch", "int", True),
        Column("producerId", "bigint", True),
        Column("producerEpoch", "int", True),
        Column("baseSequence", "int", True),
        Column("isTransactional", "boolean", True),
        Column("isControl", "boolean", True),
        Column("crc", "bigint", True),
        Column("isValid", "boolean", True),
    ),
    SEGMENTS: (
        *_PLACE,
        Column("baseOffset", "bigint", True),
        Column("nextOffset", "bigint", True),
        Column("size", "bigint", True),
        Column("validBytes", "bigint", True),
        Column("modified", "timestamp", True),
        Column("isActive", "boolean", True),
        Column("batches", "bigint", True),
        Column("records", "bigint"),
        Column("damagedBatches", "bigint", True),
        Column("maxTimestamp", "timestamp"),
        Column("hasOffsetIndex", "boolean", True),
        Column("hasTimeIndex", "boolean", True),
        Column("hasTransactionIndex", "boolean", True),
    ),
    FINDINGS: (
        *_PLACE,
        Column("position", "bigint", True),
        Column("size", "bigint", True),
        Column("firstOffset", "bigint"),
        Column("lastOffset", "bigint"),
        Column("kind", "string", True),
        Column("reason", "string", True),
    ),
}


def columns_of(view: str) -> tuple[Column, ...]:
    """Returns the columns of a view. ConfigError lists the views."""
    if view not in VIEWS:
        raise ConfigError(f"there is no view '{view}'; views are {', '.join(VIEWS)}")
    return VIEWS[view]


def default_projection(
    view: str, names: Sequence[str] | None, include_headers: bool, decoded: Sequence[Column] = ()
) -> tuple[Field, ...]:
    """Returns the projection without a user's schema: the `names` of the option `columns`, or all columns.

    Headers are included if requested by name or by `includeHeaders`. `decoded` are columns of decoded keys and values,
    in place of those of their names, or beside them.
    """
    if names is not None:
        found = [(name, _column(view, name, decoded)) for name in names]
        return tuple(Field(name, column.name, column.type) for name, column in found)
    chosen = (c for c in _with_decoded(view, decoded) if not c.on_request or (include_headers and c.name == HEADERS))
    return tuple(Field(c.name, c.name, c.type) for c in chosen)


def projection_of(view: str, schema: Any, decoded: Sequence[Column] = ()) -> tuple[Field, ...]:
    """Converts a StructType to a projection. Raises ConfigError for an unknown column or another type."""
    fields = []
    for wanted in schema.fields:
        column = _column(view, wanted.name, decoded)
        given = wanted.dataType.simpleString()
        if given != column.type:
            raise ConfigError(
                f"column '{wanted.name}' of the view '{view}' has type {column.type}, not {given}:"
                " cast it after reading"
            )
        if not wanted.nullable and not column.required:
            raise ConfigError(f"column '{wanted.name}' of the view '{view}' can be null; drop the NOT NULL")
        fields.append(Field(wanted.name, column.name, column.type, bool(wanted.nullable)))
    return tuple(fields)


def ddl(projection: Iterable[Field]) -> str:
    """Returns the projection as Spark's DDL."""
    return ", ".join(f"`{field.name}` {field.type}" for field in projection)


def arrow_schema(projection: Sequence[Field], decoded: Mapping[str, pa.DataType] | None = None) -> pa.Schema:
    """Returns the exact Arrow schema that Spark checks the first batch against: order, types and nullability.

    `decoded` has the types of columns of decoded keys and values, by column.
    """
    special = decoded or {}
    import pyarrow as pa

    types = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", "UTC"),
        _HEADERS_TYPE: headers_type(),
    }
    kinds = [special[field.column] if field.column in special else types[field.type] for field in projection]
    return pa.schema(
        [pa.field(field.name, kind, field.nullable) for field, kind in zip(projection, kinds, strict=True)]
    )


def headers_type() -> pa.DataType:
    """Returns the Arrow type of a record's headers, in every table."""
    import pyarrow as pa

    return pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def _with_decoded(view: str, decoded: Sequence[Column]) -> list[Column]:
    """Returns the columns of a view, with those that are decoded in their place or after the others."""
    columns = {column.name: column for column in columns_of(view)}
    return list((columns | {column.name: column for column in decoded}).values())


def _column(view: str, name: str, decoded: Sequence[Column]) -> Column:
    columns = _with_decoded(view, decoded)
    for column in columns:
        if column.name.lower() == name.replace("_", "").lower():
            return column
    legal = ", ".join(f"{column.name} {column.type}" for column in columns)
    raise ConfigError(f"the view '{view}' has no column '{name}'; its columns are {legal}")
