"""Lines of records that are larger than a buffer, in pieces, as `look.dump.large_records` makes them for `dump`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seglog.kernels import render, render_dump_log, text
from seglog.look.dump import large_records
from seglog.look.dump.large_records import headers_of, pieces_of, row_of_batch

_NOTHING = np.zeros(0, dtype=np.uint8)


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
    row, bare = rows[r], row_of_batch(rows, r)
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
        for number, (key, _) in enumerate(headers_of(arena, row)):
            yield memoryview(words[render_dump_log.COMMA] if number else b"")
            yield from pieces_of(text.put_java_text, True, arena, *key)
        yield memoryview(words[render_dump_log.BRACKET])
    else:
        yield memoryview(line)
    if has_ending[r]:
        for start in range(int(bounds[r]), int(bounds[r + 1]), large_records.PIECE_BYTES):
            yield memoryview(endings[start : min(start + large_records.PIECE_BYTES, int(bounds[r + 1]))].tobytes())
    elif run & render_dump_log.PRINT_DATA:
        first = skip
        for name, word, first_word in (
            ("key", render_dump_log.KEY, render_dump_log.FIRST_KEY),
            ("value", render_dump_log.PAYLOAD, render_dump_log.FIRST_PAYLOAD),
        ):
            if row[f"{name}_size"] >= 0:
                yield memoryview(words[first_word if first else word])
                first = False
                yield from pieces_of(
                    text.put_java_text, True, arena, int(row[f"{name}_position"]), int(row[f"{name}_size"])
                )
    yield memoryview(b"\n")
