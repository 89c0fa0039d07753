"""LZ4 frames as Kafka writes and reads them.

Formats: LZ4 Frame Format 1.6 and LZ4 Block Format (Y. Collet). Kafka: Lz4BlockInputStream, whose limits apply here
too: version 1, independent blocks, no dictionary, blocks of 64 KiB to 4 MiB. Block checksums are verified. A content
checksum must be present, but is not verified. A size of 0 ends the frame, also with the bit of a stored block set; the
bytes after the end are ignored. In magic 0 the header checksum is wrong (KAFKA-3160), and not checked.
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

# Negative results.
MALFORMED = -1
NO_ROOM = -2
NO_MAGIC = -3
HEADER_UNSUPPORTED = -4
HEADER_CHECKSUM_WRONG = -5
BLOCK_SIZE_WRONG = -6
BLOCK_CHECKSUM_WRONG = -7
NO_END_MARK = -8
NO_CONTENT_CHECKSUM = -9

REASONS = {
    MALFORMED: "a block is malformed",
    NO_MAGIC: "the frame has no magic number",
    HEADER_UNSUPPORTED: "the frame has another version, linked blocks, a dictionary or an unknown block size",
    HEADER_CHECKSUM_WRONG: "the frame header's checksum is wrong",
    BLOCK_SIZE_WRONG: "a block is larger than the frame allows, or than the bytes that follow",
    BLOCK_CHECKSUM_WRONG: "a block's checksum is wrong",
    NO_END_MARK: "the frame ends without its end mark",
    NO_CONTENT_CHECKSUM: "the frame ends without its content checksum",
}

# A frame begins with its magic number, flags, a block descriptor, a content size if the flags say so, and a checksum.
MAGIC = 0x184D2204
FLAGS_AT = 4
DESCRIPTOR_AT = 5
_HEADER_BYTES = 6  # up to the content size, or the checksum
LEAST_HEADER_BYTES = _HEADER_BYTES + 1  # with the checksum, without a content size
CONTENT_SIZE_BYTES = 8

# Flags.
_VERSION_SHIFT = 6
_INDEPENDENT_BLOCKS = 0x20
BLOCK_CHECKSUMS = 0x10
CONTENT_SIZE = 0x08
CONTENT_CHECKSUM = 0x04
_RESERVED_OR_DICTIONARY = 0x03
FLAGS_WRITTEN = 1 << _VERSION_SHIFT | _INDEPENDENT_BLOCKS

# The descriptor holds the block size as a number from 4 (64 KiB) to 7 (4 MiB).
_BLOCK_SIZE_SHIFT = 4
_LEAST_BLOCK_SIZE = 4
_DESCRIPTOR_RESERVED = 0x8F
DESCRIPTOR_MASK = 0xFF & ~_DESCRIPTOR_RESERVED
DESCRIPTOR_WRITTEN = _LEAST_BLOCK_SIZE << _BLOCK_SIZE_SHIFT

# Each block follows its size; a size of 0 ends the frame.
BLOCK_SIZE_BYTES = 4
END_MARK = 0
STORED = 0x80000000  # bit of the size field: the block is not compressed
SIZE_MASK = 0x7FFFFFFF
CHECKSUM_BYTES = 4  # after each block, and after the end, if the flags say so

# A block is a run of sequences: a token of two nibbles, literals, and a match of at least four bytes.
_LONG = 15  # nibble of a length to which the following bytes add
_LEAST_MATCH = 4  # the token holds the match's length less this


@inlined
def _little_uint32(data: Bytes, p: int) -> int:
    return (
        load_byte(data, p) | load_byte(data, p + 1) << 8 | load_byte(data, p + 2) << 16 | load_byte(data, p + 3) << 24
    )


@inlined
def _length(data: Bytes, p: int, end: int, nibble: int) -> tuple[int, int]:
    """Returns (length that begins with `nibble`, index after its extra bytes, or -1 if they do not end)."""
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
    """Copies `length` bytes from `o - distance` to `o`; may write up to 15 more bytes inside `room`."""
    if distance >= 8 and length + 16 <= room - o:
        end = o + length
        while o < end:  # LLVM would vectorise a loop over a range, whose set-up takes longer than most matches
            store_int64(out, o, load_int64(out, o - distance))
            store_int64(out, o + 8, load_int64(out, o + 8 - distance))
            o += 16
        return
    for k in range(length):
        store_byte(out, o + k, load_byte(out, o + k - distance))


@apart  # inlined into the kernel of a run it took 1.4 times as long
def decompress_block(data: Bytes, start: int, end: int, out: WritableBytes, o: int, room: int) -> int:
    """Decompresses the block `data[start:end]` to `out[o:room]`; returns the index after it, or a negative status."""
    first = o
    p = start
    while p < end:
        token = load_byte(data, p)
        # The common sequence has short literals and a short match, far from both ends: it moves whole words unchecked.
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
            if p == end:  # the last sequence has only literals
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


@inlined
def header_checksum(data: Bytes, start: int, end: int) -> int:
    """Returns the checksum of a frame header's fields: the second byte of their hash."""
    return (xxh32(data, start, end) >> 8) & 0xFF


@inlined
def largest_block(descriptor: int) -> int:
    """Returns the most bytes of a block, compressed or expanded."""
    return 1 << (2 * (descriptor >> _BLOCK_SIZE_SHIFT) + 8)


@kernel
def _first_block(data: Bytes, start: int, end: int, check_header: bool) -> int:
    """Returns the index of the first block after a valid frame header, or a negative status."""
    if end - start < LEAST_HEADER_BYTES or _little_uint32(data, start) != MAGIC:
        return NO_MAGIC
    flags = load_byte(data, start + FLAGS_AT)
    descriptor = load_byte(data, start + DESCRIPTOR_AT)
    if flags >> _VERSION_SHIFT != 1 or flags & _RESERVED_OR_DICTIONARY != 0 or flags & _INDEPENDENT_BLOCKS == 0:
        return HEADER_UNSUPPORTED
    if descriptor & _DESCRIPTOR_RESERVED != 0 or descriptor >> _BLOCK_SIZE_SHIFT < _LEAST_BLOCK_SIZE:
        return HEADER_UNSUPPORTED
    checksum_at = start + _HEADER_BYTES + (CONTENT_SIZE_BYTES if flags & CONTENT_SIZE != 0 else 0)
    if checksum_at >= end:
        return NO_END_MARK
    if check_header and load_byte(data, checksum_at) != header_checksum(data, start + FLAGS_AT, checksum_at):
        return HEADER_CHECKSUM_WRONG
    return checksum_at + 1


@kernel
def decompress_frame(
    data: Bytes, start: int, end: int, check_header: bool, out: WritableBytes, o: int, room: int
) -> int:
    """Decompresses the frame `data[start:end]` to `out[o:room]`; returns the index after it, or a negative status."""
    p = _first_block(data, start, end, check_header)
    if p < 0:
        return p
    flags = load_byte(data, start + FLAGS_AT)
    block_bytes = largest_block(load_byte(data, start + DESCRIPTOR_AT))
    checksum_bytes = CHECKSUM_BYTES if flags & BLOCK_CHECKSUMS != 0 else 0
    while end - p >= BLOCK_SIZE_BYTES:
        field = _little_uint32(data, p)
        p += BLOCK_SIZE_BYTES
        size = field & SIZE_MASK
        if size == END_MARK:
            return NO_CONTENT_CHECKSUM if flags & CONTENT_CHECKSUM != 0 and end - p < CHECKSUM_BYTES else o
        if size > block_bytes or size + checksum_bytes > end - p:
            return BLOCK_SIZE_WRONG
        if checksum_bytes > 0 and _little_uint32(data, p + size) != xxh32(data, p, p + size):
            return BLOCK_CHECKSUM_WRONG
        if field & STORED != 0:
            if size > room - o:
                return NO_ROOM
            copy_bytes(data, p, out, o, size)
            o += size
        else:
            after = decompress_block(data, p, p + size, out, o, min(room, o + block_bytes))
            if after == NO_ROOM and room - o >= block_bytes:
                return BLOCK_SIZE_WRONG  # the block expands to more than its frame allows
            if after < 0:
                return after
            o = after
        p += size + checksum_bytes
    return NO_END_MARK


# --- compressing --------------------------------------------------------------------------------------------------

BLOCK_BYTES = 1 << 16  # of each block but the last; the table keeps positions in a block in 16 bits
TABLE_SLOTS = 1 << 13

_HASH_FACTOR = 2654435761  # 2^32 divided by the golden ratio, as in LZ4's own compressor
_HASH_SHIFT = 19  # 32 less the bits of a slot's number
# The format's rules: no match reaches into the last five bytes of a block, and none begins in the last twelve.
_LAST_LITERALS = 5
_MATCH_LIMIT = 12


@inlined
def _store_little_uint32(out: WritableBytes, p: int, value: int) -> None:
    for k in range(4):
        store_byte(out, p + k, value >> (8 * k))


@inlined
def _slot(word: int) -> int:
    """Returns the table slot for four bytes, the low half of `word`."""
    return ((word & 0xFFFFFFFF) * _HASH_FACTOR & 0xFFFFFFFF) >> _HASH_SHIFT


@inlined
def _write_length(out: WritableBytes, o: int, rest: int) -> int:
    """Writes the rest of a length whose nibble is _LONG."""
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
        for k in range(0, literals, 8):  # up to seven bytes too many, overwritten by the match and what follows it
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
    """Returns the number of bytes from `p` on, up to `end`, that equal those from `q` on."""
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
    """Compresses `data[start:end]`, at most BLOCK_BYTES, to `out[o:room]`; returns the index after it, or NO_ROOM.

    `table` (uint16[TABLE_SLOTS]) is scratch. Greedy, with one candidate per slot; the longer nothing matches, the wider
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
    """Writes `data[start:end]` as a frame like Kafka's to `out`, from `o` on; returns the index after it.

    Independent blocks of 64 KiB without checksums. `out` needs room for the data, 11 bytes, and 4 for each block;
    `table` is as for `compress_block`.
    """
    _store_little_uint32(out, o, MAGIC)
    store_byte(out, o + FLAGS_AT, FLAGS_WRITTEN)
    store_byte(out, o + DESCRIPTOR_AT, DESCRIPTOR_WRITTEN)
    store_byte(out, o + _HEADER_BYTES, header_checksum(out, o + FLAGS_AT, o + _HEADER_BYTES))
    o += LEAST_HEADER_BYTES
    p = start
    while p < end:
        block_end = min(p + BLOCK_BYTES, end)
        size = block_end - p
        block_at = o + BLOCK_SIZE_BYTES
        stop = compress_block(data, p, block_end, out, block_at, block_at + size, table)
        if stop >= 0 and stop - block_at < size:
            _store_little_uint32(out, o, stop - block_at)
            o = stop
        else:
            _store_little_uint32(out, o, size | STORED)
            copy_bytes(data, p, out, block_at, size)
            o = block_at + size
        p = block_end
    _store_little_uint32(out, o, END_MARK)
    return o + BLOCK_SIZE_BYTES
