"""Decompresses and compresses runs of batches, one call per run, so that threads do not wait for each other.

lz4 is seglog's own (`lz4`). For zstd the library's function is called by its address. A run ends at a batch of another
codec, or of zstd if the address is not known; the caller handles that batch by itself.

`zstd` (int64[ZSTD_SLOTS]) holds addresses and contexts, or zeros; a context serves one thread at a time.
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

_LZ4 = layout.LZ4_CODEC
_ZSTD = layout.ZSTD_CODEC
_CODEC_MASK = layout.CODEC_MASK
_OVERHEAD = layout.RECORD_BATCH_OVERHEAD

# A zstd frame (RFC 8878): magic number, flags, a window descriptor unless it is a single segment, a content size.
_ZSTD_MAGIC_LOW = 0x2FB528  # the first three bytes, little-endian
_ZSTD_MAGIC_HIGH = 0xFD
_FLAGS_AT = 4
_FIELDS_AT = 5
SINGLE_SEGMENT = 0x20
CONTENT_CHECKSUM = 0x04
DICTIONARY = 0x03  # bits for the size of a dictionary's id
CONTENT_SIZE_SHIFT = 6
CONTENT_CHECKSUM_BYTES = 4

# A window descriptor: mantissa (3 bits), exponent above that of the least window (5 bits).
WINDOW_MANTISSA_BITS = 3
WINDOW_MANTISSA_MASK = 0x07
LEAST_WINDOW_BITS = 10
MOST_WINDOW_BITS = 27  # 128 MiB, the largest window that Kafka's reader, and zstd's by default, accepts
_MOST_WINDOW = (MOST_WINDOW_BITS - LEAST_WINDOW_BITS) << WINDOW_MANTISSA_BITS

# Three bytes precede a block: last (1 bit), kind (2 bits), size.
BLOCK_HEADER_BYTES = 3
LAST_BLOCK = 0x01
BLOCK_KIND_SHIFT = 1
BLOCK_KIND_MASK = 0x03
REPEATED_BYTE = 1  # kind of a block that holds a single byte, to be repeated
BLOCK_SIZE_SHIFT = 3

# `packed_bound`: no codec makes a payload larger than by a sixth and this.
_MOST_GROWTH = 256


@inlined
def _little_uint24(data: Bytes, p: int) -> int:
    return load_byte(data, p) | load_byte(data, p + 1) << 8 | load_byte(data, p + 2) << 16


@inlined
def block_bytes(header: int) -> int:
    """Returns the bytes of a zstd block in its frame, by the number in its three-byte header."""
    return 1 if header >> BLOCK_KIND_SHIFT & BLOCK_KIND_MASK == REPEATED_BYTE else header >> BLOCK_SIZE_SHIFT


@kernel
def is_plain_zstd(data: Bytes, start: int, end: int) -> bool:
    """True if `data[start:end]` is exactly one zstd frame, with a window of at most 128 MiB and no dictionary.

    The library's function would accept several frames and any window. Format: RFC 8878.
    """
    if end - start < _FIELDS_AT + 1 or _little_uint24(data, start) != _ZSTD_MAGIC_LOW:
        return False
    if load_byte(data, start + 3) != _ZSTD_MAGIC_HIGH:
        return False
    flags = load_byte(data, start + _FLAGS_AT)
    single = flags & SINGLE_SEGMENT != 0
    if flags & DICTIONARY != 0 or (not single and load_byte(data, start + _FIELDS_AT) > _MOST_WINDOW):
        return False
    size_bytes = 1 << (flags >> CONTENT_SIZE_SHIFT)
    if size_bytes == 1 and not single:
        size_bytes = 0
    p = start + _FIELDS_AT + (0 if single else 1) + size_bytes
    while end - p >= BLOCK_HEADER_BYTES:
        block = _little_uint24(data, p)
        p += BLOCK_HEADER_BYTES + block_bytes(block)
        if block & LAST_BLOCK != 0:
            return p + (CONTENT_CHECKSUM_BYTES if flags & CONTENT_CHECKSUM != 0 else 0) == end
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
    """Decompresses the lz4 and zstd payloads `data[starts[i]:ends[i]]` of batches `first` to `last`, one after another.

    `bounds[i]` becomes the index in `out` after batch `i`. A malformed lz4 frame sets `status[i] = failed` and takes
    no room. Stops at a batch of another codec, at one that needs more room than `out` or `limit` gives, at zstd that
    is damaged or not one plain frame, and as soon as the index reaches `full`. Returns (first batch not done, index
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
    """Returns an upper bound of the bytes of these rows once their payloads of `size` bytes are compressed."""
    total = 0
    for i in range(len(targets)):
        size = int(targets[i]["size"])
        total += _OVERHEAD + _MOST_GROWTH + size + size // 6
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
    """Puts the rows of `filtering.filter_batches` from `first` on side by side into `out`, from `o` on.

    Verbatim batches come from `data` (`data[0]` lies at `file_position`), empty ones and the payloads of rebuilt ones
    from `payloads`; payloads of rebuilt batches are compressed, and the batches sealed. `out` has room for
    `packed_bound`; `table` is lz4's scratch. Positions and sizes of `targets` become those in `out`. Returns (first row
    not done, index after the last one).
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
