"""Statistics against counting by hand."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import NotALogError
from seglog.look.inspect import statistics
from seglog.look.inspect.statistics import _Leaders, log_statistics, measure_stretch, stretches_of
from seglog.model import Compression
from seglog.scan.listing import SegmentFiles, list_log_directory, list_partition
from seglog.scan.log_walk import LogWalk
from seglog.storage.filesystem import FileSystem
from seglog.storage.local import LocalFileSystem
from tests.support import log_files as logs
from tests.support.fixtures import fixture_copy, manifest
from tests.support.mutated_directories import mutate
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.varied_directory import base_directory, copy_tree

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


@pytest.fixture(params=["mutated", *(name for name in manifest() if name != "0.7")])
def directories(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """Log directories: of each fixture, and such as nobody wishes for."""
    if request.param != "mutated":
        return [fixture_copy(request.param, tmp_path)]
    base_directory(tmp_path / "base")
    made = [tmp_path / str(seed) for seed in range(10)]
    for seed, directory in enumerate(made):
        copy_tree(tmp_path / "base", directory)
        mutate(directory, random.Random(seed))
    return [tmp_path / "base", *made]


@pytest.mark.parametrize(("most_leaders", "stretch_bytes"), [(1, 1), (3, 30_000), (1 << 16, 1), (1 << 16, 30_000)])
def test_stretches_that_were_measured_elsewhere_lead_to_the_same_statistics(
    directories: list[Path], most_leaders: int, stretch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[Path] = []
    walk = statistics.LogWalk

    def counted(fs: FileSystem, path: Path) -> LogWalk:
        walked.append(path)
        return walk(fs, path)

    monkeypatch.setattr(statistics, "LogWalk", counted)
    monkeypatch.setattr(statistics, "_MOST_LEADERS", most_leaders)
    monkeypatch.setattr(statistics, "_STRETCH_BYTES", stretch_bytes)
    chance, compared = random.Random(most_leaders), 0
    for one in (one for directory in directories for one in list_log_directory(FS, directory).live):
        try:
            listing = list_partition(FS, one.path)
            expected = log_statistics(FS, listing)
        except (OSError, NotALogError):
            continue
        stretches = stretches_of(listing.segments)
        assert [log for logs in stretches for log in logs] == [segment.log for segment in listing.segments]
        for share in (0.5, 1.0):
            chosen = {logs for logs in stretches if chance.random() < share}
            found = [pickle.loads(pickle.dumps(measure_stretch(FS, logs))) for logs in chosen]
            walked.clear()
            assert log_statistics(FS, listing, measured={each.logs: each for each in found}) == expected
            assert {log for logs in stretches if logs not in chosen for log in logs} <= set(walked)
            if most_leaders > 3:
                assert not {log for logs in chosen for log in logs} & set(walked)  # what is known is not read again
            compared += len(chosen)
    assert compared > 2


def test_a_stretch_that_has_changed_since_it_was_measured_is_read_again(tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches(8, 4))
    listing, measured = list_partition(FS, path.parent), measure_stretch(FS, (path,))
    assert measured is not None
    path.write_bytes(path.read_bytes()[: -len(logs.plain_batches(8, 4)[-1])])
    known = {(path,): measured}
    assert log_statistics(FS, listing, measured=known).records == 28
    path.unlink()
    assert measure_stretch(FS, (path,)) is None


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


def test_leaders_of_a_stretch_tell_how_many_records_are_older_than_one_before_it() -> None:
    chance = random.Random(7)
    for _ in range(200):
        times = [chance.randrange(-1, 30) for _ in range(chance.randrange(1, 60))]
        leaders, counters = _Leaders(), 0
        for cut in range(0, len(times), 7):
            leaders.take(np.array(times[cut : cut + 7], dtype=np.int64))
        newest = -1
        for time in times:
            counters += 0 <= time < newest
            newest = max(newest, time)
        for before in range(-1, 31):
            newest, expected = before, 0
            for time in times:
                expected += 0 <= time < newest
                newest = max(newest, time)
            assert leaders.older_than(before) == expected - counters
            assert pickle.loads(pickle.dumps(leaders)).older_than(before) == expected - counters


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
