"""Building batches: what was put in comes out of the decoder, whatever the codec and however it is split."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from seglog.errors import AppendError, InvalidTimestampError
from seglog.format.builder import (
    BatchOptions,
    columns,
    columns_of,
    columns_of_arrays,
    encode_all,
    encode_columns,
)
from seglog.format.decoder import checksums_match, decode_records, scan_batches
from seglog.model import Compression, Header, Record

RECORDS = [
    Record(
        value=None if i % 7 == 0 else b"value %d " % i * (i % 5),
        key=None if i % 3 == 0 else b"key %d" % i,
        timestamp=1000 + i % 11,
        headers=(Header("höher", None), Header("", b"x" * i)) if i % 4 == 0 else (),
    )
    for i in range(300)
]


def read_back(data: bytes) -> tuple[list[Record], np.ndarray]:
    buffer = np.frombuffer(data, dtype=np.uint8).copy()
    batches = scan_batches(buffer, 0, len(buffer), 0).batches
    assert checksums_match(buffer, batches, 0).all()
    assert batches["size"].sum() == len(buffer)
    return [record for part in decode_records(buffer, batches, 0) for record in part], batches


def stripped(records: list[Record]) -> list[tuple[object, ...]]:
    return [(r.key, r.value, r.timestamp, r.headers) for r in records]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("threads", [False, True])
def test_every_codec_gives_the_records_back(codec: Compression, threads: bool) -> None:
    options = BatchOptions(codec=codec, batch_records=40, leader_epoch=2)
    with ThreadPoolExecutor(2) as pool:
        pieces = encode_columns(columns_of(RECORDS), 50, options, pool=pool if threads else None, piece_bytes=4096)
        data = b"".join(piece.data.tobytes() for piece in pieces)
    records, batches = read_back(data)
    assert stripped(records) == stripped(RECORDS)
    assert [record.offset for record in records] == list(range(50, 350))
    assert batches["count"].max() <= 40
    assert (batches["attributes"] == codec).all()


def test_pieces_join_to_the_same_batches_as_one_piece() -> None:
    options = BatchOptions(batch_records=7, producer_id=5, producer_epoch=0, base_sequence=0)
    whole = encode_all(columns_of(RECORDS), 0, options)
    small = b"".join(p.data.tobytes() for p in encode_columns(columns_of(RECORDS), 0, options, piece_bytes=2048))
    # a piece ends with a whole batch: where it ends early the batches are cut anew, but no record is lost
    assert stripped(read_back(small)[0]) == stripped(read_back(whole)[0])
    assert [r.sequence for r in read_back(small)[0]] == list(range(300))


def test_a_record_larger_than_piece_and_batch_gets_a_batch_of_its_own() -> None:
    records = [Record(b"a", timestamp=1), Record(b"x" * 100_000, timestamp=2), Record(b"b", timestamp=3)]
    data = b"".join(
        p.data.tobytes()
        for p in encode_columns(columns_of(records), 0, BatchOptions(batch_bytes=500), piece_bytes=1024)
    )
    found, batches = read_back(data)
    assert stripped(found) == stripped(records)
    assert batches["count"].tolist() == [1, 1, 1]


def test_append_time_goes_into_every_batch() -> None:
    records, batches = read_back(encode_all(columns_of(RECORDS), 0, BatchOptions(append_time_ms=777)))
    assert (batches["max_timestamp"] == 777).all()
    assert {record.timestamp for record in records} == {777}


def test_kept_offsets_leave_gaps() -> None:
    records = [Record(b"v", timestamp=1, offset=offset) for offset in (12, 15, 19, 40)]
    options = BatchOptions(batch_records=2)
    found, batches = read_back(encode_all(columns_of(records), 10, options, keep_offsets=True))
    assert [record.offset for record in found] == [12, 15, 19, 40]
    assert batches["base_offset"].tolist() == [10, 19]
    with pytest.raises(AppendError, match="does not follow"):
        encode_all(columns_of(records), 13, options, keep_offsets=True)


def test_a_negative_timestamp_is_refused_and_named() -> None:
    records = [*RECORDS[:20], Record(b"v", timestamp=-7)]
    with pytest.raises(InvalidTimestampError, match="record 20: timestamp -7"):
        encode_all(columns_of(records), 0, BatchOptions(batch_records=3))


def test_spans_outside_the_arena_are_refused() -> None:
    made = columns_of(RECORDS[:3])
    rows = made.rows.copy()
    rows["value_position"][2] = 1 << 30
    with pytest.raises(AppendError, match="record 2"):
        encode_all(columns(made.arena, rows), 0, BatchOptions())


def test_arrow_like_buffers_become_records() -> None:
    values, keys = np.frombuffer(b"onetwothree", np.uint8), np.frombuffer(b"ab", np.uint8)
    made = columns_of_arrays(
        values,
        np.array([0, 3, 6, 11]),
        np.array([1, 2, 3]),
        keys=keys,
        key_offsets=np.array([0, 1, 1, 2]),
        null_values=np.array([False, True, False]),
    )
    found, _ = read_back(encode_all(made, 0, BatchOptions()))
    assert [(r.key, r.value, r.timestamp) for r in found] == [
        (b"a", b"one", 1),
        (b"", None, 2),
        (b"b", b"three", 3),
    ]


def test_no_records_are_no_batches() -> None:
    assert encode_all(columns_of([]), 0, BatchOptions()) == b""
