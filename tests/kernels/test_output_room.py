"""Room of rendering kernels: what they write at most for each byte, line and header, found by enumeration.

A position counts as written when two buffers that differed there before are equal afterwards, so what a kernel spoils
and later gives up counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np
import pytest

from seglog import layout
from seglog.kernels import render, render_dump_log, text
from seglog.look.dump import large_records
from seglog.look.dump.large_records import large_line
from seglog.look.dump.rendering import blocks
from seglog.look.kafka_dump_log.large_lines import large_dump_log_line
from tests.support.naive import varint

# One byte of each class that the text kernels tell apart, and the edges of these classes.
EDGES = bytes.fromhex("00 08 1f 22 41 5c 7f 80 8f 90 9f a0 bf c1 c2 df e0 e1 ec ed ef f0 f1 f4 f5 ff")
BYTES = [bytes([byte]) for byte in range(256)]
PAIRS = [bytes(pair) for pair in product(range(256), repeat=2)]
TRIPLES = [bytes(triple) for triple in product(EDGES, repeat=3)]
FOURS = [bytes(four) for four in product(bytes.fromhex("01 22 41 80 90 bf c2 e1 ed f0 f4 ff"), repeat=4)]
LONG = [a + b for a, b in product((b"plain888", b"\x01" * 8, b"\xff" * 8, b""), PAIRS[::97])]

Put = Callable[..., int]


def written(run: Callable[[np.ndarray], object], room: int) -> int:
    """How far into a buffer of `room` bytes `run` writes."""
    zeros, ones = np.zeros(room, dtype=np.uint8), np.full(room, 255, dtype=np.uint8)
    run(zeros)
    run(ones)
    touched = np.flatnonzero(zeros == ones)
    return int(touched[-1]) + 1 if len(touched) else 0


def most_written(put: Put, values: list[bytes]) -> float:
    """The most bytes that `put` writes for each byte of a value, over all values."""
    found = 0.0
    for value in values:
        source = np.frombuffer(value, dtype=np.uint8)
        far = written(lambda out, source=source: put(out, 0, source, 0, len(source)), 8 * len(value) + text.SLACK)
        found = max(found, far / len(value))
    return found


@pytest.mark.parametrize("values", [BYTES, PAIRS, TRIPLES, FOURS, LONG], ids=["1", "2", "3", "4", "long"])
@pytest.mark.parametrize(
    ("put", "bound"),
    [
        (text.put_json_text, text.MOST_JSON_EXPANSION),
        (text.put_java_text, text.MOST_JAVA_EXPANSION),
        (text.put_base64, text.MOST_JSON_EXPANSION),
    ],
    ids=["json", "java", "base64"],
)
def test_no_text_grows_beyond_its_bound(put: Put, bound: int, values: list[bytes]) -> None:
    assert most_written(put, values) <= bound


def test_the_bounds_are_met_and_no_larger_than_they_must_be() -> None:
    assert most_written(text.put_json_text, BYTES) == text.MOST_JSON_EXPANSION
    assert most_written(text.put_java_text, BYTES) == text.MOST_JAVA_EXPANSION


def widest(dtype: np.dtype) -> np.ndarray:
    """One row whose numbers all take the most digits."""
    row = np.zeros(1, dtype=dtype)
    for name in dtype.names or ():
        row[name] = np.iinfo(dtype[name]).min
    return row


def every_batch() -> Iterator[np.ndarray]:
    """Batches with the longest numbers, of every magic and all attributes."""
    for magic, attributes in product((-128, 0, 1, 2), range(256)):
        row = widest(layout.BATCH)
        row["magic"], row["attributes"] = magic, attributes
        yield row


def line_of(run: Callable[..., int], batch: np.ndarray, rows: np.ndarray, flags: int, arena: bytes) -> int:
    shown, source = np.array([flags], dtype=np.uint8), np.frombuffer(arena, dtype=np.uint8)
    return written(lambda out: run(source, batch, shown, rows, out, np.zeros(render.STATE_SIZE, np.int64)), 1 << 14)


def rendered(style: int, base64: bool) -> Callable[..., int]:
    return lambda *arguments: render.render(style, base64, *[np.zeros(0, dtype=np.uint8)] * 2, *arguments)


def dumped(flags: int) -> Callable[..., int]:
    none = np.zeros(0, dtype=np.uint8), np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.uint8)
    return lambda arena, batch, shown, rows, out, state: render_dump_log.render_dump_log(
        flags, arena, batch, shown, rows, *none, out, state
    )


EVERY_STYLE = [(style, base64) for style in (render.JSON, render.TEXT) for base64 in (False, True)]


@pytest.mark.parametrize("valid", [0, render.VALID])
def test_no_batch_line_is_longer_than_its_bound(valid: int) -> None:
    no_rows = np.zeros(0, dtype=layout.RECORD)
    for batch in every_batch():
        for style in (render.JSON, render.TEXT):
            far = line_of(rendered(style, False), batch, no_rows, render.SHOW_BATCH | valid, b"")
            assert far <= render.LINE_BYTES + text.SLACK
        far = line_of(dumped(0), batch, no_rows, render.SHOW_BATCH | valid, b"")
        assert far <= render_dump_log.LINE_BYTES + text.SLACK


def record_with(headers: int) -> tuple[np.ndarray, bytes]:
    """A row with the longest numbers and headers of no bytes; at its position lie a message's header, and headers."""
    arena = bytes(32) + (varint(0) + varint(-1)) * headers
    row = widest(layout.RECORD)
    row["position"], row["size"], row["batch"], row["headers_position"] = 0, len(arena), 0, 32
    row["key_position"] = row["value_position"] = row["key_size"] = row["value_size"] = 0
    row["header_count"] = headers
    return row, arena


@pytest.mark.parametrize("valid", [0, render.VALID])
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("nulls", [0, -1])
def test_no_record_line_is_longer_than_its_bound(magic: int, valid: int, nulls: int) -> None:
    row, arena = record_with(0)
    row["key_size"] = row["value_size"] = nulls
    batch = widest(layout.BATCH)
    batch["magic"] = magic
    for style, base64 in EVERY_STYLE:
        far = line_of(rendered(style, base64), batch, row, render.SHOW_RECORDS | valid, arena)
        assert 0 < far <= render.LINE_BYTES + text.SLACK
    for flags in range(4):
        far = line_of(dumped(flags), batch, row, render.SHOW_RECORDS | valid, arena)
        assert 0 < far <= render_dump_log.LINE_BYTES + text.SLACK


def test_no_header_is_longer_than_its_bound() -> None:
    batch = widest(layout.BATCH)
    batch["magic"] = 2
    ways = [(rendered(*style), render.HEADER_BYTES) for style in EVERY_STYLE]
    for run, bound in [*ways, (dumped(render_dump_log.PRINT_DATA), render_dump_log.HEADER_BYTES)]:
        few, many = (line_of(run, batch, *swapped(record_with(count))) for count in (1, 41))
        assert (many - few) / 40 <= bound


def swapped(record: tuple[np.ndarray, bytes]) -> tuple[np.ndarray, int, bytes]:
    row, arena = record
    return row, render.SHOW_RECORDS, arena


VALUES = [b"\x01", b'"', b"plain", b"\xe2\x82\xac", b"\x80", b"\xf0\x9f\x98", b"\xff"]


def large_record(value: bytes, end: bytes, headers: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, arena) of a record with a large key, value and headers."""
    text_ = value * (3000 // len(value) + 1) + end
    part = varint(len(text_)) + text_
    heads = b"".join(part + (part if i % 2 else varint(-1)) for i in range(headers))
    arena = bytes(32) + text_ + text_ + heads
    row = widest(layout.RECORD)
    row["position"], row["size"], row["batch"] = 0, len(arena), 0
    row["key_position"], row["key_size"] = 32, len(text_)
    row["value_position"], row["value_size"] = 32 + len(text_), len(text_)
    row["headers_position"], row["header_count"] = 32 + 2 * len(text_), headers
    return row, np.frombuffer(arena, dtype=np.uint8)


Large = Callable[..., Iterator[memoryview]]


def pieces_of(
    run: Callable[..., int], large: Large, batch: np.ndarray, row: np.ndarray, arena: np.ndarray, room: int
) -> bytes:
    """What `run` writes with a buffer of `room` bytes, or `large` in its place; nothing may be written after that."""
    shown = np.array([render.SHOW_RECORDS], np.uint8)
    buffers = []

    def write(out: np.ndarray, state: np.ndarray) -> int:
        size = run(arena, batch, shown, row, out[:room], state)
        assert (out[room:] == 0xEE).all()
        return size

    def buffer(_: int) -> np.ndarray:
        buffers.append(np.full(room + 64, 0xEE, dtype=np.uint8))
        return buffers[-1]

    pieces = blocks(1, write, partial(large, arena, batch, shown, row), buffer, lambda _: None)
    found = b"".join(bytes(piece) for piece in pieces)
    assert len(buffers) <= 2 and found
    return found


def large_rendered(style: int, base64: bool) -> Large:
    return partial(large_line, style, base64, *[np.zeros(0, dtype=np.uint8)] * 2)


def large_dumped(flags: int) -> Large:
    none = np.zeros(0, dtype=np.uint8), np.zeros(2, dtype=np.int64), np.zeros(1, dtype=np.uint8)
    return lambda arena, batch, shown, rows, b, r: large_dump_log_line(flags, arena, batch, shown, rows, *none, b, r)


@pytest.mark.parametrize("headers", [0, 3])
@pytest.mark.parametrize("end", [b"\xff", b"\xe2\x82", b""])
@pytest.mark.parametrize("value", VALUES)
def test_a_record_larger_than_the_buffer_is_written_in_pieces(
    value: bytes, end: bytes, headers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, arena = large_record(value, end, headers)
    batch = widest(layout.BATCH)
    batch["magic"] = 2
    least = max(render.LINE_BYTES, render_dump_log.LINE_BYTES) + text.SLACK
    ways = [(rendered(*style), large_rendered(*style)) for style in EVERY_STYLE]
    ways += [(dumped(flags), large_dumped(flags)) for flags in range(4)]
    for run, large in ways:
        whole = pieces_of(run, large, batch, row, arena, 1 << 20)
        for size in (6, 33, 999, 1 << 20):
            monkeypatch.setattr(large_records, "PIECE_BYTES", size // 3 * 3)
            assert pieces_of(run, large, batch, row, arena, least) == whole


def test_a_ready_ending_larger_than_the_buffer_is_written_in_pieces() -> None:
    row, arena = large_record(b"k", b"", 1)
    endings = np.frombuffer(bytes(range(256)) * 40, dtype=np.uint8)
    bounds, has = np.array([0, len(endings)], dtype=np.int64), np.ones(1, dtype=np.uint8)
    batch = widest(layout.BATCH)
    batch["magic"] = 2

    def run(arena: np.ndarray, batch: np.ndarray, shown: np.ndarray, rows: np.ndarray, *rest: np.ndarray) -> int:
        return render_dump_log.render_dump_log(1, arena, batch, shown, rows, endings, bounds, has, *rest)

    def large(
        arena: np.ndarray, batch: np.ndarray, shown: np.ndarray, rows: np.ndarray, *at: int
    ) -> Iterator[memoryview]:
        return large_dump_log_line(1, arena, batch, shown, rows, endings, bounds, has, *at)

    whole = pieces_of(run, large, batch, row, arena, 1 << 20)
    assert whole.endswith(endings.tobytes() + b"\n")
    assert pieces_of(run, large, batch, row, arena, render_dump_log.LINE_BYTES + text.SLACK) == whole
