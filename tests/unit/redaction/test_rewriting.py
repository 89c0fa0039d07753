"""A rewritten batch has lost what was named, and nothing else: every format, every codec, every way to erase."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog import layout
from seglog.errors import CorruptRecordError
from seglog.format.builder import BatchOptions, columns_of, encode_all
from seglog.format.columns import joined
from seglog.format.decoder import checksums_match, decode_records, scan_batches
from seglog.model import Compression, Header, Record
from seglog.redaction.rewriting import Erasure, rewritten
from tests.support.log_files import encode_message_set

ERASURES = {
    "null": Erasure(),
    "zeros": Erasure(zeros=True),
    "headers": Erasure(drop_headers=True),
    "digest": Erasure(secret=b"s" * 32),
    "digest of zeros": Erasure(zeros=True, secret=b"s" * 32),
    "record": Erasure(whole_record=True),
}
OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)
SHAPES = [(2, codec) for codec in Compression] + [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS]


def records(headers: bool) -> list[Record]:
    return [
        Record(
            None if i == 3 else b"value-%d" % i * (i + 1),
            None if i == 4 else b"key-%d" % (i % 3),
            1000 + i,
            (Header("h", b"%d" % i), Header("none", None)) if headers and i % 2 else (),
        )
        for i in range(9)
    ]


def encoded(magic: int, codec: Compression, given: list[Record], base_offset: int = 100) -> bytes:
    if magic == 2:
        options = BatchOptions(codec=codec, producer_id=5, producer_epoch=1, base_sequence=7, transactional=True)
        return encode_all(columns_of(given), base_offset, options)
    return encode_message_set(given, base_offset, magic, codec)


def decoded(data: bytes) -> list[Record]:
    array = np.frombuffer(data, dtype=np.uint8)
    scan = scan_batches(array, 0, len(array), 0)
    assert scan.consumed == len(array)
    assert checksums_match(array, scan.batches, 0).all()
    return [record for part in decode_records(array, scan.batches, 0) for record in part]


def expected(record: Record, erasure: Erasure) -> Record:
    value = bytes(len(record.value)) if erasure.zeros and record.value is not None else None
    key = None if record.key is None else erasure.digest(record.key)
    return record._replace(key=key, value=value, headers=() if erasure.drop_headers else record.headers)


@pytest.mark.parametrize("how", ERASURES)
@pytest.mark.parametrize(("magic", "codec"), SHAPES, ids=lambda each: str(each))
@pytest.mark.parametrize("chosen", [(0,), (4,), (8,), (1, 2, 8), tuple(range(9))], ids=str)
def test_only_named_records_change(how: str, magic: int, codec: Compression, chosen: tuple[int, ...]) -> None:
    erasure, data = ERASURES[how], encoded(magic, codec, records(headers=magic == 2))
    before = decoded(data)
    array = np.frombuffer(data, dtype=np.uint8)
    made = []
    for i, row in enumerate(scan_batches(array, 0, len(array), 0).batches):
        table = np.array([row])
        span = array[int(row["position"]) : int(row["position"] + row["size"])]
        wanted = np.array([100 + k for k in chosen if magic == 2 or codec or k == i], dtype=np.int64)
        made.append(rewritten(Path("log"), span, table, wanted, erasure) if len(wanted) else span.tobytes())
    after = decoded(b"".join(made))
    left = [
        expected(record, erasure) if record.offset - 100 in chosen else record
        for record in before
        if not (erasure.whole_record and record.offset - 100 in chosen)
    ]
    assert after == left


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("how", ERASURES)
def test_the_place_of_a_batch_in_the_log_stays(how: str, codec: Compression) -> None:
    data = encoded(2, codec, records(headers=True))
    array = np.frombuffer(data, dtype=np.uint8)
    row = scan_batches(array, 0, len(array), 0).batches
    made = np.frombuffer(rewritten(Path("log"), array, row, np.array([103, 108]), ERASURES[how]), dtype=np.uint8)
    new = scan_batches(made, 0, len(made), 0).batches
    changing = {"size", "crc", "count", "max_timestamp"} if how == "record" else {"size", "crc"}
    assert [name for name in layout.BATCH.names or () if new[0][name] != row[0][name] and name not in changing] == []


def test_a_batch_may_lose_all_its_records_and_keeps_its_offsets() -> None:
    data = encoded(2, Compression.ZSTD, records(headers=False))
    array = np.frombuffer(data, dtype=np.uint8)
    row = scan_batches(array, 0, len(array), 0).batches
    made = np.frombuffer(rewritten(Path("log"), array, row, np.arange(100, 109), ERASURES["record"]), dtype=np.uint8)
    new = scan_batches(made, 0, len(made), 0).batches[0]
    assert (new["base_offset"], new["last_offset"], new["count"]) == (100, 108, 0)
    assert len(made) == layout.RECORD_BATCH_OVERHEAD


@given(st.lists(st.tuples(st.binary(max_size=300) | st.none(), st.binary(max_size=300) | st.none()), min_size=1))
def test_any_keys_and_values_survive_beside_a_named_record(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    given_records = [Record(value, key, 1000 + i) for i, (key, value) in enumerate(pairs)]
    data = encode_all(columns_of(given_records), 0, BatchOptions(batch_bytes=1 << 30))
    array = np.frombuffer(data, dtype=np.uint8)
    row = scan_batches(array, 0, len(array), 0).batches
    made = rewritten(Path("log"), array, row, np.array([len(pairs) // 2]), Erasure())
    assert [r.value for r in decoded(made)] == [
        None if i == len(pairs) // 2 else value for i, (_, value) in enumerate(pairs)
    ]


def test_a_batch_that_cannot_be_decoded_is_named() -> None:
    data = bytearray(encoded(2, Compression.LZ4, records(headers=False)))
    data[80:90] = b"\xff" * 10
    array = np.frombuffer(bytes(data), dtype=np.uint8)
    row = scan_batches(array, 0, len(array), 0).batches
    with pytest.raises(CorruptRecordError, match="offsets 100 to 108"):
        rewritten(Path("log"), array, row, np.array([103]), Erasure())


def test_what_is_erased_already_is_known() -> None:
    data = encode_all(columns_of([Record(b"\x00\x00"), Record(b"a\x00"), Record(None), Record(b"")]), 0, BatchOptions())
    array = np.frombuffer(data, dtype=np.uint8)
    part = joined(list(decode_records(array, scan_batches(array, 0, len(array), 0).batches, 0)))
    assert Erasure().done(part).tolist() == [False, False, True, False]
    assert Erasure(zeros=True).done(part).tolist() == [True, False, True, True]
