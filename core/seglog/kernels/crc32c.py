"""CRC-32C, the checksum of every v2 batch, of many batches in one call, by the processor's own instruction.

The instruction takes three cycles, but one can start every cycle. So three blocks run side by side and their registers
are joined: advancing a register over n zero bytes is a linear map over GF(2), tabulated for the two block lengths used
here (M. Adler, crc32c.c; V. Gopal et al., Intel 2011). One call per chunk keeps Python out of the loop: a Python call
costs more than the checksum of a 16 KiB batch. Without the instruction (`HARDWARE` is False), callers use the crc32c
library.
"""

from __future__ import annotations

import numpy as np

from seglog import layout
from seglog.kernels._jit import HAS_CRC32C_INSTRUCTION as HARDWARE
from seglog.kernels._jit import crc32c_word, kernel, load_byte, load_little_int64
from seglog.kernels.arrays import Batches, Bytes, ByteTables, WritableInt64s

__all__ = ["HARDWARE", "batch_checksums", "crc32c"]

_POLYNOMIAL = 0x82F63B78
_LONG = 2048
_SHORT = 256
_ATTRIBUTES_OFFSET = layout.ATTRIBUTES_OFFSET


def _times(matrix: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Returns the products of a matrix over GF(2), with one column per bit of a vector, and each of `vectors`."""
    bits = vectors[:, None] >> np.arange(len(matrix)) & 1
    products: np.ndarray = np.bitwise_xor.reduce(bits * matrix, axis=1)
    return products


def _zeros_table(length: int) -> np.ndarray:
    """Returns the register's map over `length` zero bytes (a power of two): int64 (4, 256), one table per byte.

    Every command computes it at start. As array operations it takes half a millisecond.
    """
    matrix = np.array([_POLYNOMIAL, *(1 << bit for bit in range(31))], dtype=np.int64)  # one zero bit
    for _ in range((length * 8).bit_length() - 1):
        matrix = _times(matrix, matrix)
    return np.stack([_times(matrix[byte : byte + 8], np.arange(256)) for byte in range(0, 32, 8)])


def _byte_table() -> np.ndarray:
    """Returns the register after one byte, int64 (256,), for the bytes at the end that do not fill a word."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, _POLYNOMIAL, 0)
    return table


_LONG_ZEROS = _zeros_table(_LONG)
_SHORT_ZEROS = _zeros_table(_SHORT)
_BYTES = _byte_table()


@kernel
def _advance(zeros: ByteTables, crc: int) -> int:
    return (
        zeros[0, crc & 0xFF] ^ zeros[1, (crc >> 8) & 0xFF] ^ zeros[2, (crc >> 16) & 0xFF] ^ zeros[3, (crc >> 24) & 0xFF]
    )


@kernel
def _three_blocks(data: Bytes, p: int, block: int, zeros: ByteTables, crc: int) -> int:
    """Returns the register after `3 * block` bytes at `p`."""
    first = crc
    second = np.int64(0)
    third = np.int64(0)
    for i in range(p, p + block, 8):
        first = crc32c_word(first, load_little_int64(data, i))
        second = crc32c_word(second, load_little_int64(data, i + block))
        third = crc32c_word(third, load_little_int64(data, i + 2 * block))
    return _advance(zeros, _advance(zeros, first) ^ second) ^ third


@kernel
def crc32c(data: Bytes, start: int, end: int) -> int:
    """Returns the CRC-32C of `data[start:end]`, unsigned. The caller checks the bounds."""
    crc = np.int64(0xFFFFFFFF)
    p = start
    while end - p >= 3 * _LONG:
        crc = _three_blocks(data, p, _LONG, _LONG_ZEROS, crc)
        p += 3 * _LONG
    while end - p >= 3 * _SHORT:
        crc = _three_blocks(data, p, _SHORT, _SHORT_ZEROS, crc)
        p += 3 * _SHORT
    while end - p >= 8:
        crc = crc32c_word(crc, load_little_int64(data, p))
        p += 8
    while p < end:
        crc = (crc >> 8) ^ _BYTES[(crc ^ load_byte(data, p)) & 0xFF]
        p += 1
    return crc ^ 0xFFFFFFFF


@kernel
def batch_checksums(data: Bytes, batches: Batches, file_position: int, out: WritableInt64s) -> None:
    """Fills `out` (int64) with the CRC-32C of each record batch; `data[0]` lies at `file_position`.

    Legacy rows, and rows whose bytes are not all in `data`, get -1.
    """
    for i in range(len(batches)):
        start = batches[i]["position"] - file_position
        end = start + batches[i]["size"]
        if batches[i]["magic"] < 2 or start < 0 or end > len(data) or end - start < _ATTRIBUTES_OFFSET:
            out[i] = -1
        else:
            out[i] = crc32c(data, start + _ATTRIBUTES_OFFSET, end)
