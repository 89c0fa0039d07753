"""Lines of records that are larger than a buffer, in pieces: the kernel of `dump` leaves them out.

A kernel writes the line without what may be large, and the rest is put between: each text in pieces that do not cut a
character, so that a line costs no more memory than a piece, whatever its record holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from seglog.kernels import render, text
from seglog.kernels.varint import read_varint

PIECE_BYTES = 3 << 16  # a whole number of base64's steps


def large_line(
    style: int,
    base64: bool,
    prefix: np.ndarray,
    record_prefix: np.ndarray,
    arena: np.ndarray,
    batches: np.ndarray,
    flags: np.ndarray,
    rows: np.ndarray,
    b: int,
    r: int,
) -> Iterator[memoryview]:
    """Yields what `render.render`, called with these arguments, would write for row `r` of batch `b`."""
    words = [word.encode() for word in (render.TEXT_WORDS if style == render.TEXT else render.JSON_WORDS)]
    row, bare = rows[r], row_of_batch(rows, r)
    bare["key_size"] = bare["value_size"] = -1
    shown = flags[b : b + 1] & ~np.uint8(render.SHOW_BATCH)
    out = np.empty(render.LINE_BYTES + text.SLACK + len(record_prefix), dtype=np.uint8)
    state = np.zeros(render.STATE_SIZE, dtype=np.int64)
    size = render.render(style, base64, prefix, record_prefix, arena, batches[b : b + 1], shown, bare, out, state)
    without = words[render.KEY + render.AS_NULL] + words[render.VALUE + render.AS_NULL] + words[render.HEADERS]
    head, _, tail = out[:size].tobytes().rpartition(without)

    def part(word: int, base64: bool, start: int, size: int) -> Iterator[memoryview]:
        if size < 0:
            yield memoryview(words[word + render.AS_NULL])
            return
        as_text = not base64 and text.is_utf8(arena, start, start + size)
        yield memoryview(words[word + (render.AS_TEXT if as_text else render.AS_BASE64)])
        yield from pieces_of(text.put_json_text if as_text else text.put_base64, as_text, arena, start, size)
        yield memoryview(words[render.QUOTE])

    yield memoryview(head)
    yield from part(render.KEY, base64, int(row["key_position"]), int(row["key_size"]))
    yield from part(render.VALUE, base64, int(row["value_position"]), int(row["value_size"]))
    yield memoryview(words[render.HEADERS])
    for number, (key, value) in enumerate(headers_of(arena, row)):
        yield memoryview(words[render.NEXT_HEADER if number else render.HEADER])
        yield from part(render.HEADER_KEY, False, *key)
        yield from part(render.VALUE, base64, *value)
        yield memoryview(words[render.HEADER_END])
    yield memoryview(tail)


def row_of_batch(rows: np.ndarray, r: int) -> np.ndarray:
    """Returns a copy of a row alone, of batch 0, without its headers."""
    bare = rows[r : r + 1].copy()
    bare["batch"] = bare["header_count"] = 0
    return bare


def headers_of(arena: np.ndarray, row: np.void) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yields ((position, size) of the key, those of the value) of each header; a null value has a size of -1."""
    at, end = int(row["headers_position"]), int(row["position"]) + int(row["size"])
    for _ in range(int(row["header_count"])):
        key_size, key_at = read_varint(arena, at, end)
        value_size, value_at = read_varint(arena, key_at + key_size, end)
        yield (int(key_at), int(key_size)), (int(value_at), int(value_size))
        at = value_at + max(value_size, 0)


def pieces_of(put: Callable[..., int], as_text: bool, arena: np.ndarray, start: int, size: int) -> Iterator[memoryview]:
    """Yields `arena[start:start + size]` as `put`, a kernel of `text`, writes it."""
    at, end = start, start + size
    while at < end:
        stop = int(text.text_cut(arena, at, end, PIECE_BYTES)) if as_text else min(at + PIECE_BYTES, end)
        out = np.empty(text.MOST_JSON_EXPANSION * (stop - at) + text.SLACK, dtype=np.uint8)
        written = put(out, 0, arena, at, stop)
        yield out.data[:written]
        at = stop
