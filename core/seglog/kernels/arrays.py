"""Aliases for the arrays that kernels take: each states the items, the shape, and whether the kernel writes the array.

To a type checker every alias is `np.ndarray`. The builder of the native library (`core/native`) reads them: they give
the types that a kernel is compiled for, and what the library checks before a kernel sees a buffer. Integers are
`int` (64 bits), truth values `bool`; a tuple of arrays is an alias of a tuple of these aliases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

VECTOR = "vector"  # one dimension, items side by side
COLUMN = "column"  # one dimension, any distance between items: a column of a table
TABLE = "table"  # two dimensions, C order, as many columns as `width`
ROW = "row"  # one row of a table, as `table[i]` gives it


@dataclass(frozen=True, slots=True)
class Array:
    """An array parameter; `items` names a NumPy type, or a table's dtype in `seglog.layout`."""

    items: str
    writable: bool = False
    shape: str = VECTOR
    width: int = 1


Bools: TypeAlias = Annotated[np.ndarray, Array("bool")]
Bytes: TypeAlias = Annotated[np.ndarray, Array("uint8")]
Int8s: TypeAlias = Annotated[np.ndarray, Array("int8")]
Int32s: TypeAlias = Annotated[np.ndarray, Array("int32")]
Int64s: TypeAlias = Annotated[np.ndarray, Array("int64")]
Int32Column: TypeAlias = Annotated[np.ndarray, Array("int32", shape=COLUMN)]
Batches: TypeAlias = Annotated[np.ndarray, Array("BATCH")]
Records: TypeAlias = Annotated[np.ndarray, Array("RECORD")]
BatchRow: TypeAlias = Annotated[np.ndarray, Array("BATCH", shape=ROW)]
RecordRow: TypeAlias = Annotated[np.ndarray, Array("RECORD", shape=ROW)]
ByteTables: TypeAlias = Annotated[np.ndarray, Array("int64", shape=TABLE, width=256)]
Quads: TypeAlias = Annotated[np.ndarray, Array("int64", shape=TABLE, width=4)]
Quintets: TypeAlias = Annotated[np.ndarray, Array("int64", shape=TABLE, width=5)]
Sextets: TypeAlias = Annotated[np.ndarray, Array("int64", shape=TABLE, width=6)]
Octets: TypeAlias = Annotated[np.ndarray, Array("int64", shape=TABLE, width=8)]

WritableBools: TypeAlias = Annotated[np.ndarray, Array("bool", writable=True)]
WritableBytes: TypeAlias = Annotated[np.ndarray, Array("uint8", writable=True)]
WritableInt8s: TypeAlias = Annotated[np.ndarray, Array("int8", writable=True)]
WritableInt32s: TypeAlias = Annotated[np.ndarray, Array("int32", writable=True)]
WritableInt64s: TypeAlias = Annotated[np.ndarray, Array("int64", writable=True)]
WritableUInt16s: TypeAlias = Annotated[np.ndarray, Array("uint16", writable=True)]
WritableUInt32s: TypeAlias = Annotated[np.ndarray, Array("uint32", writable=True)]
WritablePairs: TypeAlias = Annotated[np.ndarray, Array("int64", writable=True, shape=TABLE, width=2)]
WritableTriples: TypeAlias = Annotated[np.ndarray, Array("int64", writable=True, shape=TABLE, width=3)]
WritableSextets: TypeAlias = Annotated[np.ndarray, Array("int64", writable=True, shape=TABLE, width=6)]
WritableBatches: TypeAlias = Annotated[np.ndarray, Array("BATCH", writable=True)]
WritableRecords: TypeAlias = Annotated[np.ndarray, Array("RECORD", writable=True)]
WritableBatchRow: TypeAlias = Annotated[np.ndarray, Array("BATCH", writable=True, shape=ROW)]
WritableRecordRow: TypeAlias = Annotated[np.ndarray, Array("RECORD", writable=True, shape=ROW)]
