"""Lines of records that are larger than a buffer, in pieces: the kernels of `dump` and `dump-log` leave them out.

A kernel writes the line without what may be large, and the rest is put between: each text in pieces that do not cut a
character, so that a line costs no more memory than a piece, whatever its record holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from seglog.kernels import render, render_dump_log, text
from seglog.kernels.varint import read_varint

_PIECE_BYTES = 3 << 16  # a whole number of base64's steps
_NOTHING = np.zeros(0, dtype=np.uint8)


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
    row, bare = rows[r], _row_of_batch(rows, r)
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
        yield from _pieces(text.put_json_text if as_text else text.put_base64, as_text, arena, start, size)
        yield memoryview(words[render.QUOTE])

    yield memoryview(head)
    yield from part(render.KEY, base64, int(row["key_position"]), int(row["key_size"]))
    yield from part(render.VALUE, base64, int(row["value_position"]), int(row["value_size"]))
    yield memoryview(words[render.HEADERS])
    for number, (key, value) in enumerate(_headers(arena, row)):
        yield memoryview(words[render.NEXT_HEADER if number else render.HEADER])
        yield from part(render.HEADER_KEY, False, *key)
        yield from part(render.VALUE, base64, *value)
        yield memoryview(words[render.HEADER_END])
    yield memoryview(tail)


def large_dump_log_line(
    run: int,
    arena: np.ndarray,
    batches: np.ndarray,
    flags: np.ndarray,
    rows: np.ndarray,
    endings: np.ndarray,
    bounds: np.ndarray,
    has_ending: np.ndarray,
    b: int,
    r: int,
) -> Iterator[memoryview]:
    """Yields what `render_dump_log`, the kernel, called with these arguments, would write for row `r` of batch `b`."""
    words = [word.encode() for word in render_dump_log.WORDS]
    row, bare = rows[r], _row_of_batch(rows, r)
    shown = flags[b : b + 1] & ~np.uint8(render.SHOW_BATCH)
    out = np.empty(render_dump_log.LINE_BYTES + text.SLACK, dtype=np.uint8)
    state, none = np.zeros(render.STATE_SIZE, dtype=np.int64), np.zeros(2, dtype=np.int64)
    metadata = run & ~render_dump_log.PRINT_DATA
    size = render_dump_log.render_dump_log(
        metadata, arena, batches[b : b + 1], shown, bare, _NOTHING, none, np.zeros(1, dtype=np.uint8), out, state
    )
    line = out[: size - 1].tobytes()
    skip = run & render_dump_log.SKIP_METADATA != 0
    if row["header_count"] > 0 and not skip:
        yield memoryview(line.removesuffix(words[render_dump_log.BRACKET]))
        for number, (key, _) in enumerate(_headers(arena, row)):
            yield memoryview(words[render_dump_log.COMMA] if number else b"")
            yield from _pieces(text.put_java_text, True, arena, *key)
        yield memoryview(words[render_dump_log.BRACKET])
    else:
        yield memoryview(line)
    if has_ending[r]:
        for start in range(int(bounds[r]), int(bounds[r + 1]), _PIECE_BYTES):
            yield memoryview(endings[start : min(start + _PIECE_BYTES, int(bounds[r + 1]))].tobytes())
    elif run & render_dump_log.PRINT_DATA:
        first = skip
        for name, word, first_word in (
            ("key", render_dump_log.KEY, render_dump_log.FIRST_KEY),
            ("value", render_dump_log.PAYLOAD, render_dump_log.FIRST_PAYLOAD),
        ):
            if row[f"{name}_size"] >= 0:
                yield memoryview(words[first_word if first else word])
                first = False
                yield from _pieces(
                    text.put_java_text, True, arena, int(row[f"{name}_position"]), int(row[f"{name}_size"])
                )
    yield memoryview(b"\n")


def _row_of_batch(rows: np.ndarray, r: int) -> np.ndarray:
    """Returns a copy of a row alone, of batch 0, without its headers."""
    bare = rows[r : r + 1].copy()
    bare["batch"] = bare["header_count"] = 0
    return bare


def _headers(arena: np.ndarray, row: np.void) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yields ((position, size) of the key, those of the value) of each header; a null value has a size of -1."""
    at, end = int(row["headers_position"]), int(row["position"]) + int(row["size"])
    for _ in range(int(row["header_count"])):
        key_size, key_at = read_varint(arena, at, end)
        value_size, value_at = read_varint(arena, key_at + key_size, end)
        yield (int(key_at), int(key_size)), (int(value_at), int(value_size))
        at = value_at + max(value_size, 0)


def _pieces(put: Callable[..., int], as_text: bool, arena: np.ndarray, start: int, size: int) -> Iterator[memoryview]:
    """Yields `arena[start:start + size]` as `put`, a kernel of `text`, writes it."""
    at, end = start, start + size
    while at < end:
        stop = int(text.text_cut(arena, at, end, _PIECE_BYTES)) if as_text else min(at + _PIECE_BYTES, end)
        out = np.empty(text.MOST_JSON_EXPANSION * (stop - at) + text.SLACK, dtype=np.uint8)
        written = put(out, 0, arena, at, stop)
        yield out.data[:written]
        at = stop
