"""Texts of Avro's logical types that no JSON and no column has in a form of its own.

Apache Avro 1.12, "Logical Types"; `Conversions.BigDecimalConversion`, `TimePeriod`.
"""

from __future__ import annotations

from uuid import UUID

MOST_SCALE = 4096  # of a decimal number that is written without an exponent
MOST_DECIMAL_BYTES = 512  # writing a number takes the square of its size

DURATION_BYTES = 12
UUID_BYTES = 16


def decimal_text(data: bytes, scale: int) -> str:
    """Returns a number of big-endian bytes with `scale` digits after the point. Raises ValueError for a long one."""
    if len(data) > MOST_DECIMAL_BYTES:
        raise ValueError(f"it is a decimal number of {len(data)} bytes")
    return decimal_digits(int.from_bytes(data, "big", signed=True), scale)


def decimal_digits(digits: int, scale: int) -> str:
    """Returns a number with `scale` digits after the point; a scale that is negative, or more than MOST_SCALE, is an
    exponent.
    """
    if not scale:
        return str(digits)
    if not 0 < scale <= MOST_SCALE:
        return f"{digits}E{-scale:+d}"
    text = str(abs(digits)).rjust(scale + 1, "0")
    return f"{'-' if digits < 0 else ''}{text[:-scale]}.{text[-scale:]}"


def big_decimal_text(data: bytes) -> str:
    """Returns a number with a scale of its own: its bytes and their size, then the scale, as Avro writes bytes and an
    int. A scale that is negative, or more than MOST_SCALE, is an exponent. Raises ValueError for anything else.
    """
    size, at = _varint(data, 0)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError("it is not a decimal number with a scale")
    scale, after = _varint(data, end)
    if after != len(data) or not -(1 << 31) <= scale < 1 << 31:
        raise ValueError("it is not a decimal number with a scale")
    return decimal_text(data[at:end], scale)


def duration_text(data: bytes) -> str:
    """Returns months, days and milliseconds (12 bytes) in ISO 8601: `P1M2DT0.003S`."""
    months, days, milliseconds = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
    return f"P{months}M{days}DT{milliseconds // 1000}.{milliseconds % 1000:03}S"


def uuid_text(data: bytes) -> str:
    """Returns a UUID of 16 bytes."""
    return str(UUID(bytes=data))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the zig-zag number at a place, and where it ends. Raises ValueError if there is none."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("it is not a decimal number with a scale")
