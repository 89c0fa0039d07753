"""Decompressing and compressing run after run of batches in one call, so that threads do not wait for each other.

lz4 is ours (`lz4`). zstd is the library's own function, called by its address. Where its address is not known, and for
other codecs, a run ends, and the caller does that batch by itself.

`zstd` (int64[ZSTD_SLOTS]) holds addresses and contexts, zeros where there are none; a context serves one thread at a
time.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels import lz4
from seglog.kernels._jit import call_codec, copy_bytes, inlined, kernel, load_byte
from seglog.kernels.arrays import (
    Batches,
    Bytes,
    Int8s,
    Int64s,
    WritableBatches,
    WritableBytes,
    WritableInt8s,
    WritableInt64s,
    WritableUInt16s,
)
from seglog.kernels.encode import seal_batch
from seglog.kernels.rebuilding import REBUILT, VERBATIM

# Slots of `zstd`.
DECOMPRESS = 0
DECOMPRESS_CONTEXT = 1
COMPRESS = 2
COMPRESS_CONTEXT = 3
ZSTD_SLOTS = 4

_LZ4 = 3
_ZSTD = 4
_CODEC_MASK = layout.CODEC_MASK
_OVERHEAD = layout.RECORD_BATCH_OVERHEAD

# A zstd frame: its magic number, flags, a window descriptor unless it is one segment, a content size. RFC 8878.
_ZSTD_MAGIC_LOW = 0x2FB528  # the first three bytes, little-endian
_ZSTD_MAGIC_HIGH = 0xFD
_FLAGS_AT = 4
_FIELDS_AT = 5
_SINGLE_SEGMENT = 0x20
_CONTENT_CHECKSUM = 0x04
_DICTIONARY = 0x03
_CONTENT_SIZE_SHIFT = 6

# The three bytes in front of a block: last (1 bit), kind (2), size.
_BLOCK_HEADER = 3
_LAST_BLOCK = 1
_REPEATED_BYTE = 1

_MOST_WINDOW = (27 - 10) << 3  # as a window descriptor: 128 MiB, the most that Kafka's reader (and zstd's own) accepts


@inlined
def _little_uint24(data: Bytes, p: int) -> int:
    return load_byte(data, p) | load_byte(data, p + 1) << 8 | load_byte(data, p + 2) << 16


@kernel
def is_plain_zstd(data: Bytes, start: int, end: int) -> bool:
    """Whether `data[start:end]` is one zstd frame, nothing before or after it, with a window of at most 128 MiB.

    The library's function takes several frames and any window. Format: RFC 8878.
    """
    if end - start < _FIELDS_AT + 1 or _little_uint24(data, start) != _ZSTD_MAGIC_LOW:
        return False
    if load_byte(data, start + 3) != _ZSTD_MAGIC_HIGH:
        return False
    flags = load_byte(data, start + _FLAGS_AT)
    single = flags & _SINGLE_SEGMENT != 0
    if flags & _DICTIONARY != 0 or (not single and load_byte(data, start + _FIELDS_AT) > _MOST_WINDOW):
        return False  # a dictionary, or too large a window
    size_bytes = 1 << (flags >> _CONTENT_SIZE_SHIFT)
    if size_bytes == 1 and not single:
        size_bytes = 0
    p = start + _FIELDS_AT + (0 if single else 1) + size_bytes
    while end - p >= _BLOCK_HEADER:
        block = _little_uint24(data, p)
        p += _BLOCK_HEADER + (1 if block >> 1 & 3 == _REPEATED_BYTE else block >> 3)
        if block & _LAST_BLOCK != 0:
            return p + (4 if flags & _CONTENT_CHECKSUM != 0 else 0) == end
    return False


@kernel
def decompress_run(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    batches: Batches,
    first: int,
    last: int,
    status: WritableInt8s,
    failed: int,
    zstd: Int64s,
    out: WritableBytes,
    o: int,
    limit: int,
    full: int,
    bounds: WritableInt64s,
) -> tuple[int, int]:
    """Decompresses the lz4 and zstd payloads `data[starts[i]:ends[i]]` of batches `first` to `last` one after another.

    `bounds[i]` becomes the index in `out` after batch `i`. A malformed lz4 frame sets `status[i] = failed` and takes
    no room. Stops at a batch of another codec, at one that needs more room than `out` or `limit` gives, at zstd that
    is not one plain frame or damaged, and as soon as the index reaches `full`; returns (first batch not done, index
    after the last result).
    """
    for i in range(first, last):
        codec = np.int64(batches[i]["attributes"]) & _CODEC_MASK
        magic = batches[i]["magic"]
        if (codec != _LZ4 and (codec != _ZSTD or zstd[DECOMPRESS] == 0 or magic < 2)) or (i > first and o >= full):
            return i, o
        if status[i] == 0 and batches[i]["count"] != 0:
            room = min(len(out), o + limit)
            start = int(starts[i])
            end = int(ends[i])
            if codec == _ZSTD:
                if not is_plain_zstd(data, start, end):
                    return i, o
                size = call_codec(
                    zstd[DECOMPRESS], zstd[DECOMPRESS_CONTEXT], out, o, room - o, data, start, end - start
                )
                if size < 0:
                    return i, o
                o += size
            else:
                after = lz4.decompress_frame(data, start, end, magic > 0, out, o, room)
                if after == lz4.NO_ROOM:
                    return i, o
                if after < 0:
                    status[i] = failed
                else:
                    o = after
        bounds[i] = o
    return last, o


@kernel
def packed_bound(targets: Batches) -> int:
    """Most bytes of these rows (layout.BATCH) when their payloads of `size` bytes are compressed by any codec."""
    total = 0
    for i in range(len(targets)):
        size = int(targets[i]["size"])
        total += _OVERHEAD + 256 + size + size // 6
    return total


@kernel
def pack_run(
    data: Bytes,
    file_position: int,
    batches: Batches,
    payloads: Bytes,
    targets: WritableBatches,
    sources: Int64s,
    actions: Int8s,
    first: int,
    zstd: Int64s,
    table: WritableUInt16s,
    out: WritableBytes,
    o: int,
) -> tuple[int, int]:
    """Puts the rows of `filtering.filter_batches` from `first` on side by side in `out`, from `o` on.

    Verbatim batches come from `data` (whose first byte is at `file_position`), empty ones and the payloads of rebuilt
    ones from `payloads`; the latter are compressed, and sealed. `out` has room for `packed_bound`; `table` is lz4's
    scratch. Positions and sizes of `targets` become those in `out`. Returns (first row not done, index after).
    """
    for i in range(first, len(targets)):
        at = int(targets[i]["position"])
        size = int(targets[i]["size"])
        begin = o
        if actions[i] == VERBATIM:
            copy_bytes(data, int(batches[sources[i]]["position"]) - file_position, out, o, size)
            o += size
        elif actions[i] != REBUILT:
            copy_bytes(payloads, at, out, o, size)
            o += size
        else:
            codec = int(targets[i]["attributes"]) & _CODEC_MASK
            o += _OVERHEAD
            if codec == 0:
                copy_bytes(payloads, at, out, o, size)
                o += size
            elif codec == _LZ4:
                o = lz4.compress_frame(payloads, at, at + size, out, o, table)
            elif codec == _ZSTD and zstd[COMPRESS] != 0:
                packed = call_codec(zstd[COMPRESS], zstd[COMPRESS_CONTEXT], out, o, len(out) - o, payloads, at, size)
                if packed < 0:
                    return i, begin
                o += packed
            else:
                return i, begin
            targets[i]["size"] = o - begin
            seal_batch(out, begin, targets[i], True)
        targets[i]["position"] = begin
    return len(targets), o
