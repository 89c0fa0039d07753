"""LZ4 frames as Kafka writes and reads them.

Formats: LZ4 Frame Format 1.6 and LZ4 Block Format (Y. Collet). Kafka: Lz4BlockInputStream, whose limits hold here
too: version 1, independent blocks, no dictionary, blocks of 64 KiB to 4 MiB; block checksums are verified, the
content checksum is not read, bytes after the end mark are ignored. A frame of magic 0 has a wrong header
checksum (KAFKA-3160), which is not looked at.
"""

from __future__ import annotations

from seglog.kernels._jit import (
    apart,
    copy_bytes,
    inlined,
    kernel,
    load_byte,
    load_int64,
    load_little_int64,
    store_byte,
    store_int64,
    trailing_zeros,
)
from seglog.kernels.arrays import Bytes, WritableBytes, WritableUInt16s
from seglog.kernels.xxhash import xxh32

# What a negative result means.
MALFORMED = -1
NO_ROOM = -2
NO_MAGIC = -3
HEADER_UNSUPPORTED = -4
HEADER_CHECKSUM_WRONG = -5
BLOCK_SIZE_WRONG = -6
BLOCK_CHECKSUM_WRONG = -7
NO_END_MARK = -8

REASONS = {
    MALFORMED: "a block is malformed",
    NO_MAGIC: "the frame has no magic number",
    HEADER_UNSUPPORTED: "the frame is of another version, or has linked blocks, a dictionary or an unknown block size",
    HEADER_CHECKSUM_WRONG: "the frame header's checksum is wrong",
    BLOCK_SIZE_WRONG: "a block of more bytes than the frame allows or holds",
    BLOCK_CHECKSUM_WRONG: "a block's checksum is wrong",
    NO_END_MARK: "the frame ends without its end mark",
}

# A frame: its magic number, flags, a descriptor of its blocks, a content size where the flags say so, a checksum.
_MAGIC = 0x184D2204
_FLAGS_AT = 4
_DESCRIPTOR_AT = 5
_HEADER_BYTES = 6  # up to the content size, or the checksum

# Flags.
_VERSION_SHIFT = 6
_INDEPENDENT_BLOCKS = 0x20
_BLOCK_CHECKSUMS = 0x10
_CONTENT_SIZE = 0x08
_RESERVED_OR_DICTIONARY = 0x03
_FLAGS_WRITTEN = 1 << _VERSION_SHIFT | _INDEPENDENT_BLOCKS

# The descriptor: the size of blocks as a number from 4 (64 KiB) to 7 (4 MiB).
_BLOCK_SIZE_SHIFT = 4
_LEAST_BLOCK_SIZE = 4
_DESCRIPTOR_RESERVED = 0x8F

# Before each block: its size, or the end mark.
_BLOCK_SIZE_BYTES = 4
_END_MARK = 0
_CHECKSUM_BYTES = 4  # after each block, where the flags say so
_LONG = 15  # a length's nibble when bytes follow that add to it
_LEAST_MATCH = 4  # a sequence says by how much its match is longer
_STORED = 0x80000000  # set in it: the block is not compressed
_SIZE_MASK = 0x7FFFFFFF


@inlined
def _little_uint32(data: Bytes, p: int) -> int:
    return (
        load_byte(data, p) | load_byte(data, p + 1) << 8 | load_byte(data, p + 2) << 16 | load_byte(data, p + 3) << 24
    )


@inlined
def _length(data: Bytes, p: int, end: int, nibble: int) -> tuple[int, int]:
    """(a length that starts with `nibble`, index after its extra bytes, or -1 where they do not end)."""
    if nibble < _LONG:
        return nibble, p
    total = nibble
    while p < end:
        byte = load_byte(data, p)
        p += 1
        total += byte
        if byte != 255:
            return total, p
    return 0, -1


@inlined
def _copy_match(out: WritableBytes, o: int, distance: int, length: int, room: int) -> None:
    """Copies `length` bytes from `distance` behind `o` to `o`; may write up to 15 bytes more inside `room`."""
    if distance >= 8 and length + 16 <= room - o:
        end = o + length
        while o < end:  # of a loop over a range LLVM makes vectors: preparing them takes longer than most matches
            store_int64(out, o, load_int64(out, o - distance))
            store_int64(out, o + 8, load_int64(out, o + 8 - distance))
            o += 16
        return
    for k in range(length):
        store_byte(out, o + k, load_byte(out, o + k - distance))


@apart  # within the run's kernel it took 1.4 times as long
def decompress_block(data: Bytes, start: int, end: int, out: WritableBytes, o: int, room: int) -> int:
    """Decompresses the block `data[start:end]` to `out[o:room]`; the index after the result, or a negative status."""
    first = o
    p = start
    while p < end:
        token = load_byte(data, p)
        # The common sequence, short literals and a short match far from both ends, moves whole words unchecked.
        if token < 0xF0 and end - p > 20 and room - o >= 48:
            store_int64(out, o, load_int64(data, p + 1))
            store_int64(out, o + 8, load_int64(data, p + 9))
            p += 1 + (token >> 4)
            o += token >> 4
            distance = load_byte(data, p) | load_byte(data, p + 1) << 8
            length = (token & _LONG) + _LEAST_MATCH
            if length < 19 and distance >= 8 and distance <= o - first:
                store_int64(out, o, load_int64(out, o - distance))
                store_int64(out, o + 8, load_int64(out, o + 8 - distance))
                if length > 16:
                    store_int64(out, o + 16, load_int64(out, o + 16 - distance))
                p += 2
                o += length
                continue
        else:
            literals, p = _length(data, p + 1, end, token >> 4)
            if p < 0 or literals > end - p:
                return MALFORMED
            if literals > room - o:
                return NO_ROOM
            copy_bytes(data, p, out, o, literals)
            p += literals
            o += literals
            if p == end:  # the last sequence has literals only
                return o
            if end - p < 2:
                return MALFORMED
            distance = load_byte(data, p) | load_byte(data, p + 1) << 8
        length, p = _length(data, p + 2, end, token & _LONG)
        length += _LEAST_MATCH
        if p < 0 or distance == 0 or distance > o - first:
            return MALFORMED
        if length > room - o:
            return NO_ROOM
        _copy_match(out, o, distance, length, room)
        o += length
    return MALFORMED


@kernel
def _first_block(data: Bytes, start: int, end: int, check_header: bool) -> int:
    """The index of the first block after a valid frame header, or a negative status."""
    if end - start < _HEADER_BYTES + 1 or _little_uint32(data, start) != _MAGIC:
        return NO_MAGIC
    flags = load_byte(data, start + _FLAGS_AT)
    descriptor = load_byte(data, start + _DESCRIPTOR_AT)
    if flags >> _VERSION_SHIFT != 1 or flags & _RESERVED_OR_DICTIONARY != 0 or flags & _INDEPENDENT_BLOCKS == 0:
        return HEADER_UNSUPPORTED
    if descriptor & _DESCRIPTOR_RESERVED != 0 or descriptor >> _BLOCK_SIZE_SHIFT < _LEAST_BLOCK_SIZE:
        return HEADER_UNSUPPORTED
    checksum_at = start + _HEADER_BYTES + (8 if flags & _CONTENT_SIZE != 0 else 0)
    if checksum_at >= end:
        return NO_END_MARK
    if check_header and load_byte(data, checksum_at) != (xxh32(data, start + _FLAGS_AT, checksum_at) >> 8) & 0xFF:
        return HEADER_CHECKSUM_WRONG
    return checksum_at + 1


@kernel
def decompress_frame(
    data: Bytes, start: int, end: int, check_header: bool, out: WritableBytes, o: int, room: int
) -> int:
    """Decompresses the frame `data[start:end]` to `out[o:room]`; the index after the result, or a negative status."""
    p = _first_block(data, start, end, check_header)
    if p < 0:
        return p
    block_bytes = 1 << (2 * (load_byte(data, start + _DESCRIPTOR_AT) >> _BLOCK_SIZE_SHIFT) + 8)
    checksum_bytes = _CHECKSUM_BYTES if load_byte(data, start + _FLAGS_AT) & _BLOCK_CHECKSUMS != 0 else 0
    while end - p >= _BLOCK_SIZE_BYTES:
        field = _little_uint32(data, p)
        p += _BLOCK_SIZE_BYTES
        if field == _END_MARK:
            return o
        size = field & _SIZE_MASK
        if size > block_bytes or size + checksum_bytes > end - p:
            return BLOCK_SIZE_WRONG
        if checksum_bytes > 0 and _little_uint32(data, p + size) != xxh32(data, p, p + size):
            return BLOCK_CHECKSUM_WRONG
        if field & _STORED != 0:
            if size > room - o:
                return NO_ROOM
            copy_bytes(data, p, out, o, size)
            o += size
        else:
            after = decompress_block(data, p, p + size, out, o, min(room, o + block_bytes))
            if after == NO_ROOM and room - o >= block_bytes:
                return BLOCK_SIZE_WRONG  # the block is larger than its frame allows
            if after < 0:
                return after
            o = after
        p += size + checksum_bytes
    return NO_END_MARK


# --- compressing --------------------------------------------------------------------------------------------------

BLOCK_BYTES = 1 << 16  # a block of a frame; positions in it are kept in 16 bits
TABLE_SLOTS = 1 << 13

_HASH_SHIFT = 19  # 32 bits less those of a slot's number
_LAST_LITERALS = 5  # the format: no match reaches into the last five bytes, none begins in the last twelve
_MATCH_LIMIT = 12


@inlined
def _store_little_uint32(out: WritableBytes, p: int, value: int) -> None:
    for k in range(4):
        store_byte(out, p + k, value >> (8 * k))


@inlined
def _slot(word: int) -> int:
    """Where the table keeps the position of four bytes, the low half of `word`."""
    return ((word & 0xFFFFFFFF) * 2654435761 & 0xFFFFFFFF) >> _HASH_SHIFT


@inlined
def _write_length(out: WritableBytes, o: int, rest: int) -> int:
    """What is left of a length whose nibble is _LONG."""
    while rest >= 255:
        store_byte(out, o, 255)
        rest -= 255
        o += 1
    store_byte(out, o, rest)
    return o + 1


@inlined
def _write_sequence(
    data: Bytes, anchor: int, literals: int, out: WritableBytes, o: int, distance: int, match: int
) -> int:
    """Writes literals and a match of `match` bytes (0: none, at the end); returns the index after them."""
    token = o
    o += 1
    store_byte(out, token, min(literals, _LONG) << 4)
    if literals >= _LONG:
        o = _write_length(out, o, literals - _LONG)
    if match > 0 and literals <= 32:
        for k in range(0, literals, 8):  # up to seven bytes too many, which the match and what follows it hold
            store_int64(out, o + k, load_int64(data, anchor + k))
    else:
        copy_bytes(data, anchor, out, o, literals)
    o += literals
    if match > 0:
        store_byte(out, o, distance)
        store_byte(out, o + 1, distance >> 8)
        o += 2
        store_byte(out, token, min(literals, _LONG) << 4 | min(match - _LEAST_MATCH, _LONG))
        if match - _LEAST_MATCH >= _LONG:
            o = _write_length(out, o, match - _LEAST_MATCH - _LONG)
    return o


@inlined
def _matching(data: Bytes, p: int, q: int, end: int) -> int:
    """How many bytes from `p` on equal those from `q` on, up to `end`."""
    first = p
    while end - p >= 8:
        different = load_little_int64(data, p) ^ load_little_int64(data, q)
        if different != 0:
            return p - first + (trailing_zeros(different) >> 3)
        p += 8
        q += 8
    while p < end and load_byte(data, p) == load_byte(data, q):
        p += 1
        q += 1
    return p - first


@kernel
def compress_block(
    data: Bytes, start: int, end: int, out: WritableBytes, o: int, room: int, table: WritableUInt16s
) -> int:
    """Compresses at most BLOCK_BYTES of `data[start:end]` to `out[o:room]`; the index after the result, or NO_ROOM.

    `table` (uint16[TABLE_SLOTS]) is scratch. Greedy, one candidate a slot, and the longer nothing matches the wider
    the steps, as in LZ4's fast compressor.
    """
    table[:] = 0
    anchor = start
    p = start + 1
    tries = 1 << 6
    while p <= end - _MATCH_LIMIT:
        word = load_little_int64(data, p)
        slot = _slot(word)
        q = start + int(table[slot])
        table[slot] = p - start
        if (word ^ load_little_int64(data, q)) & 0xFFFFFFFF != 0:
            p += tries >> 6
            tries += 1
            continue
        while p > anchor and q > start and load_byte(data, p - 1) == load_byte(data, q - 1):
            p -= 1
            q -= 1
        match = _LEAST_MATCH + _matching(data, p + _LEAST_MATCH, q + _LEAST_MATCH, end - _LAST_LITERALS)
        literals = p - anchor
        if o + 16 + literals + literals // 255 + match // 255 > room:
            return NO_ROOM
        o = _write_sequence(data, anchor, literals, out, o, p - q, match)
        p += match
        anchor = p
        tries = 1 << 6
        if p <= end - _MATCH_LIMIT:
            table[_slot(load_little_int64(data, p - 2))] = p - 2 - start
    literals = end - anchor
    if o + 2 + literals + literals // 255 > room:
        return NO_ROOM
    return _write_sequence(data, anchor, literals, out, o, 0, 0)


@kernel
def compress_frame(data: Bytes, start: int, end: int, out: WritableBytes, o: int, table: WritableUInt16s) -> int:
    """Writes `data[start:end]` as a frame like Kafka's to `out`, from `o` on: room for the data, 11 bytes, and 4
    for each block.

    Independent blocks of 64 KiB without checksums. Returns the index after it. `table` as for `compress_block`.
    """
    _store_little_uint32(out, o, _MAGIC)
    store_byte(out, o + _FLAGS_AT, _FLAGS_WRITTEN)
    store_byte(out, o + _DESCRIPTOR_AT, _LEAST_BLOCK_SIZE << _BLOCK_SIZE_SHIFT)
    store_byte(out, o + _HEADER_BYTES, xxh32(out, o + _FLAGS_AT, o + _HEADER_BYTES) >> 8)
    o += _HEADER_BYTES + 1
    p = start
    while p < end:
        block_end = min(p + BLOCK_BYTES, end)
        stop = compress_block(
            data, p, block_end, out, o + _BLOCK_SIZE_BYTES, o + _BLOCK_SIZE_BYTES + block_end - p, table
        )
        if stop >= 0 and stop - o - _BLOCK_SIZE_BYTES < block_end - p:
            _store_little_uint32(out, o, stop - o - _BLOCK_SIZE_BYTES)
            o = stop
        else:
            _store_little_uint32(out, o, (block_end - p) | _STORED)
            copy_bytes(data, p, out, o + _BLOCK_SIZE_BYTES, block_end - p)
            o += _BLOCK_SIZE_BYTES + block_end - p
        p = block_end
    _store_little_uint32(out, o, _END_MARK)
    return o + _BLOCK_SIZE_BYTES
