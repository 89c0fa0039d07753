"""Statistics against counting by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.look.inspect.statistics import log_statistics, stretches_of
from seglog.model import Compression
from seglog.scan.listing import SegmentFiles, list_partition
from seglog.storage.local import LocalFileSystem
from tests.support import log_files as logs
from tests.support.naive import NaiveRecord, batch_v2

FS = LocalFileSystem()


def test_records_are_counted_by_kind(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches(8, 4))
    found = log_statistics(FS, list_partition(FS, path.parent))
    assert (found.records, found.batches, found.null_keys, found.tombstones) == (32, 8, 8, 8)
    assert (found.headers, found.records_with_headers) == (32, 16)
    assert found.key_sizes == {0: 8, 2: 16} and found.largest_key == 3
    assert (found.oldest_timestamp, found.newest_timestamp) == (1000, 1073)
    assert found.records_per_batch == {4: 8}
    assert found.distinct_keys == 3


def test_control_batches_hold_no_records(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.transactional_batches())
    found = log_statistics(FS, list_partition(FS, path.parent))
    assert (found.batches, found.control_batches, found.transactional_batches) == (7, 3, 7)
    assert (found.records, found.producers) == (8, 3)


def test_damage_is_counted_and_passed_over(tmp_path: Path) -> None:
    batches = logs.plain_batches(8, 4)
    path = logs.write_log(tmp_path, [*batches[:3], b"\x55" * 77, *batches[3:]])
    found = log_statistics(FS, list_partition(FS, path.parent))
    assert (found.records, found.damaged_bytes) == (32, 77)


def test_codecs_tell_how_much_they_save(tmp_path: Path) -> None:
    plain = logs.write_log(tmp_path, [batch_v2(0, logs.records(4, 0))], name="p-0")
    path = logs.write_log(tmp_path, logs.compressed_batches(Compression.ZSTD, 1))
    codec = log_statistics(FS, list_partition(FS, path.parent)).codecs[0]
    reference = log_statistics(FS, list_partition(FS, plain.parent)).codecs[0]
    assert (codec.codec, codec.batches) == ("zstd", 1)
    assert codec.uncompressed_bytes == reference.uncompressed_bytes == reference.bytes
    assert codec.bytes == path.stat().st_size - 61


@pytest.mark.slow
def test_a_log_of_any_size_has_a_bounded_number_of_stretches(tmp_path: Path) -> None:
    for count, size in ((3, 1 << 30), (20_000, 64 << 20), (300_000, 1 << 20), (3_000, 1 << 30), (1000, 300 << 20)):
        files = [
            SegmentFiles(base_offset=i, log=tmp_path / f"{i:020d}.log", size=size, modified_ms=0) for i in range(count)
        ]
        found = stretches_of(files)
        assert [log for each in found for log in each] == [each.log for each in files]
        assert min(count, 3) <= len(found) <= 513
    assert stretches_of([]) == []


def test_time_that_goes_back_is_counted(tmp_path: Path) -> None:
    records = [NaiveRecord(i, delta, b"k", b"v") for i, delta in enumerate((0, 50, 20, 60, 10))]
    path = logs.write_log(tmp_path, [batch_v2(0, records)])
    assert log_statistics(FS, list_partition(FS, path.parent)).out_of_order == 2


def test_distinct_and_frequent_keys_of_many_are_found(tmp_path: Path) -> None:
    batches = []
    for i in range(200):
        keys = [b"hot" if k % 2 else b"key-%d" % (i * 50 + k) for k in range(100)]
        batches.append(batch_v2(100 * i, [NaiveRecord(k, 0, key, b"v") for k, key in enumerate(keys)]))
    path = logs.write_log(tmp_path, batches)
    found = log_statistics(FS, list_partition(FS, path.parent))
    exact = len({b"hot", *(b"key-%d" % (i * 50 + k) for i in range(200) for k in range(0, 100, 2))})
    assert abs(found.distinct_keys - exact) < exact * 0.05
    assert found.frequent_keys[0].key == b"hot"
    assert 9_000 <= found.frequent_keys[0].count <= 10_000
