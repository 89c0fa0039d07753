"""LZ4 in frames. Blocks are expanded by a kernel (`kernels.lz4`) and compressed by cramjam.

A kernel compresses too, for runs of batches that a cleaning has rebuilt (`kernels.runs.pack_run`), at Kafka's default
level: batch by batch through this module, `clean lz4` of tests/benchmarks/against_kafka takes 1.58 times the CPU.

Kafka: Lz4Compression, Lz4BlockInputStream, Lz4BlockOutputStream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import cramjam
import numpy as np

from seglog.format.checksum import byte_view
from seglog.format.payloads import Codec, DecompressionError, Payload, Pieces, larger_than
from seglog.kernels import lz4

_LITTLE_UINT32 = struct.Struct("<I")
_MAGIC = _LITTLE_UINT32.pack(lz4.MAGIC)
_DESCRIPTOR = bytes((lz4.FLAGS_WRITTEN, lz4.DESCRIPTOR_WRITTEN))
_FAST_LEVEL = 9  # Kafka: level 9 names the fast compressor, the others the high-compression one
_RUN_BYTES = 1 << 20


@lru_cache(maxsize=64)
def _header_checksum(hashed: bytes) -> int:
    return int(lz4.header_checksum(np.frombuffer(hashed, dtype=np.uint8), 0, len(hashed)))


def _frame(data: memoryview, level: int, magic: int) -> Iterator[bytes]:
    # Kafka: KAFKA-3160, writers of magic 0 hashed the frame's magic number too.
    hashed = _MAGIC + _DESCRIPTOR if magic == 0 else _DESCRIPTOR
    yield _MAGIC + _DESCRIPTOR + bytes([_header_checksum(hashed)])
    for start in range(0, len(data), lz4.BLOCK_BYTES):
        source = data[start : start + lz4.BLOCK_BYTES]
        block = _block(source, level)
        if len(block) < len(source):
            yield _LITTLE_UINT32.pack(len(block))
            yield block
        else:
            yield _LITTLE_UINT32.pack(len(source) | lz4.STORED)
            yield bytes(source)
    yield _LITTLE_UINT32.pack(lz4.END_MARK)


def _block(source: memoryview, level: int) -> bytes:
    if level == _FAST_LEVEL:
        return bytes(cramjam.lz4.compress_block(source, store_size=False))
    return bytes(cramjam.lz4.compress_block(source, mode="high_compression", compression=level, store_size=False))


def _expand_into(data: memoryview, room: memoryview, magic: int) -> int:
    source, out = np.frombuffer(data, dtype=np.uint8), np.frombuffer(room, dtype=np.uint8)
    size = lz4.decompress_frame(source, 0, len(source), magic > 0, out, 0, len(out))
    if size == lz4.NO_ROOM:
        raise larger_than(len(room))
    if size < 0:
        raise DecompressionError(f"lz4: {lz4.REASONS[size]}")
    return int(size)


def _pieces(payload: Payload, magic: int) -> Iterator[memoryview]:
    """Expands run after run of blocks; the kernel gets each run as a frame of its own."""
    header = bytes(payload.read(lz4.LEAST_HEADER_BYTES))
    largest, flags = 0, 0
    if len(header) == lz4.LEAST_HEADER_BYTES:
        largest, flags = lz4.largest_block(header[lz4.DESCRIPTOR_AT] & lz4.DESCRIPTOR_MASK), header[lz4.FLAGS_AT]
    if flags & lz4.CONTENT_SIZE:
        header += bytes(payload.read(lz4.CONTENT_SIZE_BYTES))
    block_checksum = lz4.CHECKSUM_BYTES if flags & lz4.BLOCK_CHECKSUMS else 0
    content_checksum = lz4.CHECKSUM_BYTES if flags & lz4.CONTENT_CHECKSUM else 0
    at_end = False
    while not at_end:
        run: list[bytes | memoryview] = [header]
        blocks = 0
        while blocks * largest < _RUN_BYTES and not at_end:
            field = payload.read(lz4.BLOCK_SIZE_BYTES)
            size = _LITTLE_UINT32.unpack(field)[0] & lz4.SIZE_MASK if len(field) == lz4.BLOCK_SIZE_BYTES else 0
            at_end = size == lz4.END_MARK or size > largest
            run.append(field)
            if at_end:
                run.append(payload.read(content_checksum))
            else:
                run.append(payload.read(size + block_checksum))
                blocks += 1
        if not at_end:
            run.append(bytes(lz4.BLOCK_SIZE_BYTES + content_checksum))  # in place of the frame's own end
        source, out = np.frombuffer(b"".join(run), dtype=np.uint8), np.empty((blocks + 1) * largest, dtype=np.uint8)
        size = lz4.decompress_frame(source, 0, len(source), magic > 0, out, 0, len(out))
        if size < 0:
            raise DecompressionError(f"lz4: {lz4.REASONS.get(size, lz4.REASONS[lz4.BLOCK_SIZE_WRONG])}")
        yield byte_view(out)[:size]


CODEC = Codec(compress=_frame, expand=lambda payload, magic: Pieces(_pieces(payload, magic)), expand_into=_expand_into)
