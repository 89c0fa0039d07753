"""Ranges of a log that one kernel call a chunk finds right are right by the rules of decoded records, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.decoder import scan_batches
from seglog.memory_budget import unlimited
from seglog.scan.resync import OffsetRange
from seglog.storage.filesystem import LocalFileSystem
from seglog.verification.batches import Level, RangeResult, _clean_entries, _clean_pieces
from tests.support.hostile_logs import hostile_log

FS = LocalFileSystem()
OFFSETS = OffsetRange(0, layout.INT64_MAX)


def plain_batches(numbers: range) -> Iterator[bytes]:
    """Each uncompressed batch of magic 2 that hostile logs hold whole."""
    for number in numbers:
        data = hostile_log(number)
        for batch in scan_batches(np.frombuffer(data, dtype=np.uint8), 0, len(data), 0).batches:
            if batch["magic"] == 2 and not int(batch["attributes"]) & layout.CODEC_MASK:
                yield data[int(batch["position"]) : int(batch["position"]) + int(batch["size"])]


def both(path: Path, level: Level) -> tuple[RangeResult | None, RangeResult | None]:
    size = path.stat().st_size
    by_kernel = _clean_entries(FS, path, 0, size, OFFSETS, level)
    return by_kernel, _clean_pieces(FS, path, 0, size, OFFSETS, level, unlimited())


def test_the_kernel_and_the_decoder_find_the_same_batches_right(tmp_path: Path) -> None:
    right = broken_batches = broken_records = 0
    path = tmp_path / f"{0:020d}.log"
    for data in plain_batches(range(300)):
        path.write_bytes(data)
        headers, whole = both(path, Level.CRC), both(path, Level.RECORD)
        assert headers[0] == headers[1] and whole[0] == whole[1]
        right += whole[1] is not None
        broken_batches += headers[1] is None
        broken_records += headers[1] is not None and whole[1] is None
    assert right > 50 and broken_batches > 5 and broken_records > 50, (right, broken_batches, broken_records)


def test_what_the_kernel_finds_right_of_whole_hostile_logs_is_right(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    for number in range(250):
        path.write_bytes(hostile_log(number))
        by_kernel, by_decoder = both(path, Level.RECORD)
        assert by_kernel is None or by_kernel == by_decoder
