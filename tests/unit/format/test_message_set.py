"""Messages of magic 0 and 1: the decoder reads back what was built, wrappers included."""

from __future__ import annotations

import numpy as np
import pytest

from seglog.errors import AppendError, InvalidTimestampError
from seglog.format.decoder import checksums_match, decode_records, scan_batches
from seglog.format.message_set import encode_message
from seglog.model import Compression, Header, Record
from tests.support.log_files import encode_message_set
from tests.support.naive import message

RECORDS = [Record(b"v%d" % i, key=None if i % 2 else b"k%d" % i, timestamp=100 + i) for i in range(9)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_messages_come_back(magic: int, codec: Compression) -> None:
    data = np.frombuffer(encode_message_set(RECORDS, 20, magic, codec), dtype=np.uint8).copy()
    batches = scan_batches(data, 0, len(data), 0).batches
    assert checksums_match(data, batches, 0).all()
    assert len(batches) == (1 if codec else 9)
    assert batches["last_offset"][-1] == 28
    found = [record for part in decode_records(data, batches, 0) for record in part]
    assert [(r.offset, r.key, r.value) for r in found] == [(20 + i, r.key, r.value) for i, r in enumerate(RECORDS)]
    assert [r.timestamp for r in found] == ([-1] * 9 if magic == 0 else [100 + i for i in range(9)])


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_has_the_bytes_written_by_hand(magic: int) -> None:
    expected = message(7, magic, None, b"value", timestamp=55)
    assert encode_message(Record(b"value", timestamp=55), 7, magic) == expected


def test_append_time_holds_for_all_inner_messages() -> None:
    data = encode_message_set(RECORDS, 0, 1, Compression.GZIP, append_time_ms=9000)
    buffer = np.frombuffer(data, dtype=np.uint8).copy()
    batches = scan_batches(buffer, 0, len(buffer), 0).batches
    assert batches["attributes"].tolist() == [9]
    assert {r.timestamp for part in decode_records(buffer, batches, 0) for r in part} == {9000}


def test_what_the_format_cannot_hold_is_refused() -> None:
    with pytest.raises(AppendError, match="headers"):
        encode_message(Record(b"v", headers=(Header("a", b"b"),)), 0, 1)
    with pytest.raises(AppendError, match="zstd"):
        encode_message_set(RECORDS, 0, 1, Compression.ZSTD)
    with pytest.raises(InvalidTimestampError):
        encode_message(Record(b"v", timestamp=-2), 0, 1)
