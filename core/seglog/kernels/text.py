"""Writes text into a byte buffer: numbers, JSON strings, base64, and Java's text of bytes that are not UTF-8.

Every `put_…` writes at `out[p]` and returns the index after the text; the caller makes sure that there is room. Fixed
words come from a table of 32-byte cells and are copied as whole cells (one or two machine instructions). A writer may
therefore spoil up to 32 bytes after its text: callers keep `SLACK` bytes free at the end.
"""

from __future__ import annotations

import numpy as np

from seglog.kernels._jit import (
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
from seglog.kernels.arrays import Bytes, Int64s, WritableBytes

SLACK = 32
CELL = 32

# Most bytes written for each byte read:
# - JSON: one byte becomes itself (1), a backslash and a letter (2) or \\u00XX (6); a character of two to four bytes is
#   copied (1 per byte) or escaped (at most 3 per byte). Bytes that are not UTF-8 end the text; base64 replaces it.
# - Java: an ASCII byte or a whole character is copied (1 per byte); one to three malformed bytes become U+FFFD (3).
# - Base64: up to three bytes become four, so a single byte becomes four, which is below JSON's six.
MOST_JSON_EXPANSION = 6
MOST_JAVA_EXPANSION = 3

_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)
_PAIRS = np.stack((np.repeat(_BASE64, 64), np.tile(_BASE64, 64)), axis=1).ravel()  # two characters for each twelve bits
_LOW_BITS = 0x0101010101010101
_SPACES = 0x2020202020202020
_QUOTES = 0x2222222222222222
_BACKSLASHES = 0x5C5C5C5C5C5C5C5C
_HIGH_BITS = -0x7F7F7F7F7F7F7F80  # 0x80 in every byte, as int64
_LEAST_INT64 = -(2**63)
_QUOTE = 0x22
_MINUS = 0x2D
_ZERO = 0x30
_ZEROS = 0x3030303030303030
_EIGHT_DIGITS = 100_000_000
_PADDING = 0x3D  # of base64
_BACKSLASH = 0x5C
_LETTER_U = 0x75


def _escapes() -> np.ndarray:
    """Returns how ASCII is escaped, uint8 (128,): 0 not at all, 1 as \\u00XX, else the letter after the backslash."""
    table = np.zeros(128, dtype=np.uint8)
    table[:0x20] = 1
    table[0x7F] = 1
    for character, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True):
        table[ord(character)] = ord(letter)
    return table


_ESCAPES = _escapes()


def make_cells(words: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (cells, sizes) of fixed words of at most 32 ASCII characters, for `put_word`."""
    cells = np.zeros(CELL * len(words), dtype=np.uint8)
    for i, word in enumerate(words):
        encoded = word.encode("ascii")
        if len(encoded) > CELL:
            raise ValueError(f"{word!r} does not fit a cell")
        cells[CELL * i : CELL * i + len(encoded)] = np.frombuffer(encoded, dtype=np.uint8)
    return cells, np.array([len(word) for word in words], dtype=np.int64)


@inlined
def put_word(cells: Bytes, sizes: Int64s, word: int, out: WritableBytes, p: int) -> int:
    """Writes the fixed word with number `word` of a table from `make_cells`."""
    copy_bytes(cells, CELL * word, out, p, CELL)
    return p + int(sizes[word])


@inlined
def put_integer(out: WritableBytes, p: int, value: int) -> int:
    """Writes an int64 in decimal: at most 20 bytes."""
    if value < 0:
        store_byte(out, p, _MINUS)
        p += 1
        if value == _LEAST_INT64:
            p = put_integer_digits(out, p, 922337203685477580)
            store_byte(out, p, _ZERO + 8)  # its last digit
            return p + 1
        value = 0 - value  # not `-value`: compiled, an int8 of -128 would stay negative
    return put_integer_digits(out, p, value)


@inlined
def put_integer_digits(out: WritableBytes, p: int, value: int) -> int:
    """Writes a number that is not negative."""
    if value < 10:
        store_byte(out, p, _ZERO + value)
        return p + 1
    if value < _EIGHT_DIGITS:
        return _put_first_digits(out, p, value)
    high = value // _EIGHT_DIGITS
    low = value - high * _EIGHT_DIGITS
    if high < _EIGHT_DIGITS:
        p = _put_first_digits(out, p, high)
    else:
        top = high // _EIGHT_DIGITS
        p = _put_first_digits(out, p, top)
        store_int64(out, p, _eight_digits(high - top * _EIGHT_DIGITS))
        p += 8
    store_int64(out, p, _eight_digits(low))
    return p + 8


@inlined
def _put_first_digits(out: WritableBytes, p: int, value: int) -> int:
    """Writes a number of at most eight digits without leading zeros; spoils the rest of eight bytes."""
    size = 1 + (value >= 10) + (value >= 100) + (value >= 1000) + (value >= 10_000)
    size += (value >= 100_000) + (value >= 1_000_000) + (value >= 10_000_000)
    store_int64(out, p, _eight_digits(value) << (64 - 8 * size))
    return p + size


@inlined
def _eight_digits(value: int) -> int:
    """Returns the eight decimal digits of a number below 10^8 as a word whose highest byte is the first digit.

    The halves, then the quarters, of the word are divided at once, by multiplication: times 10486 / 2^20 is a division
    by 100 for numbers up to 9999, times 103 / 2^10 one by 10 for numbers up to 99.
    """
    high = value // 10_000
    word = high << 32 | (value - high * 10_000)
    hundreds = (word * 10486) >> 20 & 0x0000007F0000007F
    word = hundreds << 16 | (word - hundreds * 100)
    tens = (word * 103) >> 10 & 0x000F000F000F000F
    return (tens << 8 | (word - tens * 10)) + _ZEROS


@kernel
def utf8_size(data: Bytes, i: int, end: int) -> int:
    """Returns the bytes of the well-formed UTF-8 character at `i`, whose first byte is 0x80 or more; 0 if malformed."""
    first = load_byte(data, i)
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if size > end - i:
        return 0
    second = load_byte(data, i + 1)
    least, most = 0x80, 0xBF
    if first == 0xE0:
        least = 0xA0  # shorter forms exist
    elif first == 0xED:
        most = 0x9F  # surrogates
    elif first == 0xF0:
        least = 0x90
    elif first == 0xF4:
        most = 0x8F  # beyond U+10FFFF
    if second < least or second > most:
        return 0
    for k in range(2, size):
        byte = load_byte(data, i + k)
        if byte < 0x80 or byte > 0xBF:
            return 0
    return size


@inlined
def _special(word: int) -> int:
    """Returns the high bits of those of eight bytes that JSON text must not contain unescaped; 0 if it may hold all.

    These are bytes beyond ASCII, DEL, control characters, quote and backslash. A carry or borrow may also set the bit
    of a byte after such a byte, never of one before it: so the lowest set bit is right.
    """
    quotes = (word ^ _QUOTES) - _LOW_BITS
    slashes = (word ^ _BACKSLASHES) - _LOW_BITS
    return (word | (word + _LOW_BITS) | (word - _SPACES) | quotes | slashes) & _HIGH_BITS


@inlined
def _copy_plain(out: WritableBytes, p: int, data: Bytes, i: int, end: int, json: bool) -> int:
    """Copies from `data[i:end]` up to the first byte that must be escaped or checked; returns the number of bytes.

    For JSON those are the bytes of `_special`, else those beyond ASCII. Spoils up to eight bytes after them. Copies
    nothing within the last seven bytes of `data`, where a load of eight bytes would leave the buffer. Callers use it
    only where two ASCII bytes stand together: elsewhere, waiting for the count takes longer than a loop over bytes
    whose branches the processor predicts.
    """
    first = i
    while i < end and len(data) - i >= 8:
        word = load_little_int64(data, i)
        found = _special(word) if json else word & _HIGH_BITS
        if end - i < 8:
            found |= _HIGH_BITS << (8 * (end - i))
        copy_bytes(data, i, out, p, 8)
        if found != 0:
            i += trailing_zeros(found) >> 3
            break
        i += 8
        p += 8
        while end - i >= 32:
            a, b = load_little_int64(data, i), load_little_int64(data, i + 8)
            c, d = load_little_int64(data, i + 16), load_little_int64(data, i + 24)
            found = (_special(a) | _special(b) | _special(c) | _special(d)) if json else (a | b | c | d) & _HIGH_BITS
            if found != 0:
                break
            copy_bytes(data, i, out, p, 32)
            i += 32
            p += 32
    return i - first


@inlined
def put_json_text(out: WritableBytes, p: int, data: Bytes, start: int, end: int) -> int:
    """Writes `data[start:end]` escaped for a JSON string, without its quotes; returns -1 if it is not UTF-8.

    Characters beyond ASCII stay as they are, except those that a terminal obeys (`seglog.escaping`). Writes at most
    `MOST_JSON_EXPANSION` bytes for each byte.
    """
    i = start
    while i < end:
        byte = load_byte(data, i)
        if byte < 0x80 and load_byte(data, min(i + 1, end - 1)) < 0x80:
            plain = _copy_plain(out, p, data, i, end, True)
            i += plain
            p += plain
            if i == end:
                break
            byte = load_byte(data, i)
        if byte >= 0x80:
            size = utf8_size(data, i, end)
            if size == 0:
                return -1
            code = _unsafe_character(data, i, byte)
            if code != 0:
                p = _put_unicode_escape(out, p, code)
                i += size
                continue
            for k in range(size):
                store_byte(out, p + k, load_byte(data, i + k))
            i += size
            p += size
            continue
        escape = int(_ESCAPES[byte])
        if escape == 0:
            store_byte(out, p, byte)
            p += 1
        elif escape == 1:
            p = _put_unicode_escape(out, p, byte)
        else:
            store_byte(out, p, _BACKSLASH)
            store_byte(out, p + 1, escape)
            p += 2
        i += 1
    return p


@inlined
def _unsafe_character(data: Bytes, i: int, first: int) -> int:
    """Returns the code of the well-formed character at `i` beyond ASCII if a terminal would obey it, else 0.

    These are C1 controls, line and paragraph separators, and characters that change the direction of writing.
    """
    if first == 0xC2:
        second = load_byte(data, i + 1)
        return int(second) if second < 0xA0 else 0
    if first == 0xD8:
        return 0x061C if load_byte(data, i + 1) == 0x9C else 0
    if first != 0xE2:
        return 0
    code = 0x2000 | (load_byte(data, i + 1) & 0x3F) << 6 | (load_byte(data, i + 2) & 0x3F)
    if 0x200E <= code <= 0x200F or 0x2028 <= code <= 0x202E or 0x2066 <= code <= 0x2069:
        return code
    return 0


@kernel
def _put_unicode_escape(out: WritableBytes, p: int, code: int) -> int:
    store_byte(out, p, _BACKSLASH)
    store_byte(out, p + 1, _LETTER_U)
    store_byte(out, p + 2, _HEX[code >> 12])
    store_byte(out, p + 3, _HEX[(code >> 8) & 15])
    store_byte(out, p + 4, _HEX[(code >> 4) & 15])
    store_byte(out, p + 5, _HEX[code & 15])
    return p + 6


@kernel
def is_utf8(data: Bytes, start: int, end: int) -> bool:
    """True if `data[start:end]` is well-formed UTF-8, so that `put_json_text` accepts it."""
    i = start
    while i < end:
        if end - i >= 8 and load_int64(data, i) & _HIGH_BITS == 0:
            i += 8
        elif load_byte(data, i) < 0x80:
            i += 1
        else:
            size = utf8_size(data, i, end)
            if size == 0:
                return False
            i += size
    return True


@kernel
def text_cut(data: Bytes, start: int, end: int, most: int) -> int:
    """Returns where `data[start:end]` may be cut after at most `most` bytes (4 or more) without splitting a character.

    That is before a byte that does not continue a character. If the four bytes up to the limit are all continuation
    bytes, no character can contain the last of them, and the cut is before it.
    """
    if end - start <= most:
        return end
    stop = start + most
    for back in range(4):
        if load_byte(data, stop - back) & 0xC0 != 0x80:
            return stop - back
    return stop


@kernel
def put_base64(out: WritableBytes, p: int, data: Bytes, start: int, end: int) -> int:
    """Writes `data[start:end]` in base64 (RFC 4648, padded): four bytes for every three or fewer."""
    i = start
    while end - i >= 3:
        word = load_byte(data, i) << 16 | load_byte(data, i + 1) << 8 | load_byte(data, i + 2)
        copy_bytes(_PAIRS, 2 * (word >> 12), out, p, 2)
        copy_bytes(_PAIRS, 2 * (word & 0xFFF), out, p + 2, 2)
        i += 3
        p += 4
    if i == end:
        return p
    word = load_byte(data, i) << 16
    if end - i == 2:
        word |= load_byte(data, i + 1) << 8
    store_byte(out, p, _BASE64[word >> 18])
    store_byte(out, p + 1, _BASE64[(word >> 12) & 63])
    store_byte(out, p + 2, _BASE64[(word >> 6) & 63] if end - i == 2 else _PADDING)
    store_byte(out, p + 3, _PADDING)
    return p + 4


@kernel
def _malformed_size(data: Bytes, i: int, end: int) -> int:
    """Returns the number of bytes at `i` that Java's String decodes as one malformed character (one U+FFFD)."""
    first = load_byte(data, i)
    if first < 0xC2 or first > 0xF4 or end - i < 2:
        return 1
    second = load_byte(data, i + 1)
    if second & 0xC0 != 0x80 or first < 0xE0:
        return 1
    if first < 0xF0:
        if first == 0xE0 and second < 0xA0:
            return 1
        if first == 0xED and second > 0x9F:
            # a surrogate counts as one character, if all its bytes are there
            return 3 if end - i >= 3 and load_byte(data, i + 2) & 0xC0 == 0x80 else 2
        return 2
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 1
    return 3 if end - i >= 3 and load_byte(data, i + 2) & 0xC0 == 0x80 else 2


@kernel
def put_java_text(out: WritableBytes, p: int, data: Bytes, start: int, end: int) -> int:
    """Writes `data[start:end]` as Java prints `new String(bytes, UTF_8)`: malformed characters become U+FFFD.

    Writes at most `MOST_JAVA_EXPANSION` bytes for each byte.
    """
    i = start
    while i < end:
        byte = load_byte(data, i)
        if byte < 0x80 and load_byte(data, min(i + 1, end - 1)) < 0x80:
            plain = _copy_plain(out, p, data, i, end, False)
            i += plain
            p += plain
            if i == end:
                break
            byte = load_byte(data, i)
        size = 1 if byte < 0x80 else utf8_size(data, i, end)
        if size == 0:
            store_byte(out, p, 0xEF)
            store_byte(out, p + 1, 0xBF)
            store_byte(out, p + 2, 0xBD)
            p += 3
            i += _malformed_size(data, i, end)
            continue
        for k in range(size):
            store_byte(out, p + k, load_byte(data, i + k))
        i += size
        p += size
    return p
