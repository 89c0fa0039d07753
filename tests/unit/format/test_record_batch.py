"""The v2 header as a value: read = written, and its derived fields."""

from __future__ import annotations

import numpy as np
import pytest

from seglog.errors import CorruptRecordError
from seglog.format.decoder import checksums_match, scan_batches
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.model import TimestampType
from tests.support.naive import NaiveRecord, batch_v2

BATCH = batch_v2(
    1000,
    [NaiveRecord(0, 0, b"k", b"v"), NaiveRecord(3, 5, None, None)],
    attributes=0x18,
    producer=(4, 2, 2**31 - 2),
    leader_epoch=6,
)


def test_a_header_read_and_encoded_again_is_the_same_batch() -> None:
    header = RecordBatchHeader.read(b"junk" + BATCH, 4)
    assert header.size == len(BATCH)
    assert encode_batch(header, BATCH[61:]) == BATCH


def test_the_header_tells_kind_codec_and_last_offset_of_its_batch() -> None:
    header = RecordBatchHeader.read(BATCH)
    assert (header.last_offset, header.last_sequence, header.codec) == (1003, 1, 0)
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert (header.is_transactional, header.is_control) == (True, False)


def test_a_row_of_the_batch_table_gives_the_same_header() -> None:
    data = np.frombuffer(BATCH, dtype=np.uint8).copy()
    batches = scan_batches(data, 0, len(data), 0).batches
    assert checksums_match(data, batches, 0).all()
    assert RecordBatchHeader.of_row(batches[0]) == RecordBatchHeader.read(BATCH)


def test_a_short_buffer_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        RecordBatchHeader.read(BATCH[:60])
