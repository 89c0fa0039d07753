"""The slots into which kernels decode values (`avro_values`, `protobuf_values`), and the frames before the values.

A schema has a slot for each field that is no record. Row `i` of slot `s` is at `s * rows + i` of two arrays: `numbers`
(int64) has the number, the bits of a float, or where in the arena a text begins; `lengths` (int32) the bytes of a text,
0 for a number, and -1 for null. A record that may be null has a slot of its own, of which only the length counts.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import inlined, kernel, load_byte, load_uint32
from seglog.kernels.arrays import Bytes, Int32Column, WritableInt32s, WritableInt64s

# Statuses of values.
DECODED, NULL, BROKEN = 0, 1, 2

# What `frame_ids` gives for a value without an id.
NULL_VALUE, NO_PLAIN_FRAME = -1, -2

_FRAME = 5


@kernel
def frame_ids(arena: Bytes, positions: Int32Column, sizes: Int32Column, out: WritableInt64s) -> int:
    """Fills `out` with the ids in Confluent's frames (00, id): NULL_VALUE for null, NO_PLAIN_FRAME without a frame.

    The id 0 counts as none, as other frames begin with it. Returns the number of ids.
    """
    count = 0
    for i in range(min(len(positions), len(out))):
        position = np.int64(positions[i])
        size = np.int64(sizes[i])
        out[i] = NULL_VALUE if size < 0 else NO_PLAIN_FRAME
        if size >= _FRAME and position >= 0 and size <= len(arena) - position and load_byte(arena, position) == 0:
            number = load_uint32(arena, position + 1)
            if number != 0:
                out[i] = number
                count += 1
    return count


@inlined
def clear(numbers: WritableInt64s, lengths: WritableInt32s, first: int, stop: int, rows: int, row: int) -> None:
    """Makes the slots from `first` to before `stop` null in a row."""
    for slot in range(first, stop):
        numbers[slot * rows + row] = 0
        lengths[slot * rows + row] = -1


@inlined
def load_float(data: Bytes, p: int) -> int:
    """Returns the four bytes at `p`, the lowest first, as an unsigned number."""
    return (
        load_byte(data, p)
        | (load_byte(data, p + 1) << 8)
        | (load_byte(data, p + 2) << 16)
        | (load_byte(data, p + 3) << 24)
    )
