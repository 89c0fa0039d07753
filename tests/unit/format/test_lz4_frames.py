"""LZ4 payloads of several frames, which Kafka's reader does not go on to read."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.format.compression import compress
from seglog.model import Compression
from tests.support.log_files import write_segment
from tests.support.naive import NaiveRecord, batch_v2


def test_an_lz4_payload_of_two_frames_gives_the_records_of_the_first(tmp_path: Path) -> None:
    records = [NaiveRecord(i, 0, b"key", b"value") for i in range(3)]
    frames = [b"".join(each.encode() for each in part) for part in (records[:2], records[2:])]
    payload = b"".join(bytes(compress(Compression.LZ4, data)) for data in frames)
    write_segment(tmp_path / "t-0", 0, batch_v2(0, records, attributes=Compression.LZ4, payload=payload))
    offsets = []
    with seglog.open_log(tmp_path / "t-0") as log, pytest.raises(seglog.InvalidRecordError):
        for record in log.records():
            offsets.append(record.offset)
    assert offsets == [0, 1]
