"""Which records have a certain key."""

from __future__ import annotations

from seglog.kernels._jit import kernel, load_byte
from seglog.kernels.arrays import Bytes, Records, WritableBools


@kernel
def match_keys(arena: Bytes, rows: Records, key: Bytes, out: WritableBools) -> int:
    """Fills `out` (bool, one a row of layout.RECORD) with whether the record's key equals `key` (uint8).

    Returns how many do. Null keys equal none.
    """
    found = 0
    for i in range(len(rows)):
        same = int(rows[i]["key_size"]) == len(key)
        if same:
            at = int(rows[i]["key_position"])
            for k in range(len(key)):
                if load_byte(arena, at + k) != load_byte(key, k):
                    same = False
                    break
        out[i] = same
        if same:
            found += 1
    return found
