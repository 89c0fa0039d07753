"""Planning: the bytes of each split, and the queries that are refused before anything is read."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import ConfigError, CorruptionError, NotALogError, OffsetOutOfRangeError
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.files import files_of
from seglog_ask.table.plan.splits import (
    SegmentPiece,
    batch_range,
    offset_for_timestamp,
    pack,
    plan_splits,
    target_bytes,
)
from seglog_ask.table.read.records import records_of
from seglog_stores.remote.settings import StoreSettings
from tests.support import fixtures
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.object_server import object_server

FS = LocalFileSystem()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fixtures.fixture_copy("4.3.0/clean", tmp_path_factory.mktemp("logs"))


def options(path: Path | str, **given: object):
    return parse_read_options({"path": str(path)} | {key: str(value) for key, value in given.items()})


def plan(path: Path | str, **given: object):
    return plan_splits(FS, options(path, **given))


def test_pieces_cover_every_byte_once(logs):
    pieces = [piece for split in plan(logs, maxPartitionBytes=5000) for piece in split.pieces]
    by_file: dict[str, list[SegmentPiece]] = {}
    for piece in pieces:
        by_file.setdefault(piece.path, []).append(piece)
    for path, parts in by_file.items():
        assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
        assert parts[-1].end == Path(path).stat().st_size
    assert any(len(parts) > 1 for parts in by_file.values())


def test_small_segments_are_packed_into_one_split(logs):
    assert len(plan(logs)) == 1
    assert 3 <= len(plan(logs, maxPartitionBytes="64KiB")) < 40


def test_min_partitions_raises_the_number(logs):
    assert len(plan(logs / "orders-none-0", minPartitions=8)) >= 8


def test_the_target_lies_between_32_and_256_mib():
    plain = options("/x")
    assert [target_bytes(size << 20, plain) >> 20 for size in (1, 1 << 10, 4 << 10, 1 << 20)] == [32, 170, 256, 256]
    assert target_bytes(1 << 30, options("/x", maxPartitionBytes="1MiB")) == 1 << 20


def test_a_segment_without_index_stays_whole(logs, tmp_path):
    copy = tmp_path / "orders-none-0"
    shutil.copytree(logs / "orders-none-0", copy)
    for index in copy.glob("*.index"):
        index.unlink()
    pieces = [piece for split in plan(copy, maxPartitionBytes=1000) for piece in split.pieces]
    assert all(piece.start == 0 and piece.end == piece.size for piece in pieces)


def test_a_log_with_a_wrong_index_is_not_split(logs, tmp_path):
    copy = tmp_path / "orders-none-0"
    shutil.copytree(logs / "orders-none-0", copy)
    for index in copy.glob("*.index"):
        data = bytearray(index.read_bytes())
        for at in range(7, len(data), 8):
            data[at] ^= 1
        index.write_bytes(data)
    pieces = [piece for split in plan(copy, maxPartitionBytes=1000) for piece in split.pieces]
    assert all(piece.start == 0 and piece.end == piece.size for piece in pieces)


@pytest.mark.parametrize("fixture", ["4.3.0/clean", "0.10.2", "0.8.2"])
def test_each_piece_has_a_share_of_the_offsets_that_holds_its_records_and_no_others(fixture, tmp_path):
    logs = fixtures.fixture_copy(fixture, tmp_path)
    chosen = options(logs, maxPartitionBytes=500)
    pieces = [piece for split in plan_splits(FS, chosen) for piece in split.pieces]
    by_partition: dict[tuple[str, int], list[SegmentPiece]] = {}
    for piece in pieces:
        by_partition.setdefault((piece.topic, piece.partition), []).append(piece)
    for parts in by_partition.values():
        assert all(one.share[1] <= other.share[0] for one, other in itertools.pairwise(parts))
        for piece in parts:
            first, after = piece.share
            found = np.concatenate([part.rows["offset"] for part in records_of(FS, piece, chosen)] or [[]])
            assert ((found >= first) & (found < after)).all()
    assert len(pieces) > len(by_partition)


def test_packing_keeps_the_order():
    pieces = [SegmentPiece("t", 0, f"/{i}", 0, 0, size, size, 0, False) for i, size in enumerate((5, 5, 1, 9, 30, 1))]
    packed = [[piece.path for piece in split.pieces] for split in pack(pieces, 10)]
    assert packed == [["/0", "/1"], ["/2", "/3"], ["/4"], ["/5"]]


# --- paths ----------------------------------------------------------------------------------------------------


def topics(path: Path | str, **given: object) -> list[str]:
    return [str(log.topic_partition) for log in find_partitions(FS, options(path, **given))]


def test_a_path_is_a_log_directory_a_partition_a_file_or_a_glob(logs):
    assert "orders-lz4-0" in topics(logs) and "__cluster_metadata-0" not in topics(logs)
    assert topics(logs / "orders-lz4-0") == ["orders-lz4-0"]
    assert topics(logs / "customers-[01]") == ["customers-0", "customers-1"]
    assert topics(logs / "*") == sorted({*topics(logs), "__cluster_metadata-0"}, key=lambda name: name.rsplit("-", 1))
    segment = min((logs / "clicks-0").glob("*.log"))
    assert topics(segment) == ["clicks-0"]
    assert topics(f"file://{logs}/clicks-0") == ["clicks-0"]


def test_selection_limits_the_partitions(logs):
    assert topics(logs, assign='{"customers":[1]}') == ["customers-1"]
    assert topics(logs, subscribe="customers,clicks") == ["clicks-0", "customers-0", "customers-1"]
    codecs = ("gzip", "lz4", "none", "snappy", "zstd")
    assert topics(logs, subscribePattern="orders-.*") == [f"orders-{codec}-0" for codec in codecs]


@pytest.mark.parametrize(
    ("given", "message"),
    [({"subscribe": "nobody"}, "nobody: no such partition"), ({"assign": '{"clicks":[7]}'}, "clicks-7: no such")],
)
def test_a_partition_that_is_asked_for_must_be_there(logs, given, message):
    with pytest.raises(ConfigError, match=message):
        topics(logs, **given)


def test_what_is_no_log_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path / "gone", tmp_path, tmp_path / "*", tmp_path / "nothing-*"):
        with pytest.raises(NotALogError, match=str(tmp_path)):
            topics(path)


def test_two_replicas_are_not_mixed(logs, tmp_path):
    shutil.copytree(logs / "clicks-0", tmp_path / "clicks-0")
    both = parse_read_options({"paths": json.dumps([str(logs), str(tmp_path / "clicks-0")])})
    with pytest.raises(ConfigError, match="both hold clicks-0"):
        find_partitions(FS, both)


def test_a_broken_checkpoint_is_named(logs, tmp_path):
    shutil.copytree(logs / "clicks-0", tmp_path / "clicks-0")
    (tmp_path / "log-start-offset-checkpoint").write_text("garbage\n")
    with pytest.raises(CorruptionError, match="log-start-offset-checkpoint"):
        topics(tmp_path / "clicks-0")


# --- bounds ---------------------------------------------------------------------------------------------------


def bounded(logs: Path, **given: object):
    splits = plan(logs / "clicks-0", **given)
    return {(piece.first_offset, piece.stop_offset) for split in splits for piece in split.pieces}


def test_the_log_start_checkpoint_hides_older_records(logs, tmp_path):
    shutil.copytree(logs / "clicks-0", tmp_path / "clicks-0")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nclicks 0 100\n")
    assert {first for first, _ in bounded(tmp_path)} == {100}
    with pytest.raises(OffsetOutOfRangeError, match=r"clicks-0: starting offset .*: offset 99 is out of range"):
        bounded(tmp_path, startingOffsets='{"clicks":{"0":99}}')
    relaxed = bounded(tmp_path, startingOffsets='{"clicks":{"0":99}}', failOnDataLoss="false")
    assert {first for first, _ in relaxed} == {100}


def test_offsets_outside_the_log_are_data_loss(logs):
    for side in ("startingOffsets", "endingOffsets"):
        with pytest.raises(OffsetOutOfRangeError, match="failOnDataLoss"):
            bounded(logs, **{side: '{"clicks":{"0":999999}}'})
    assert bounded(logs, startingOffsets='{"clicks":{"0":999999}}', failOnDataLoss="false") == set()


def test_an_end_before_the_start_is_refused(logs):
    given = {"startingOffsets": '{"clicks":{"0":300}}', "endingOffsets": '{"clicks":{"0":299}}'}
    with pytest.raises(ConfigError, match="ending offset 299 is before the starting offset 300"):
        bounded(logs, **given)


def test_offsets_of_a_partition_that_is_not_there_are_refused(logs):
    with pytest.raises(ConfigError, match="startingOffsets names partitions that do not exist: other-1"):
        bounded(logs, startingOffsets='{"other":{"1":5}}')


@pytest.mark.parametrize("suffix", ["Offsets", "OffsetsByTimestamp"])
def test_partitions_that_are_not_named_are_read_in_full(tmp_path, suffix):
    records = [NaiveRecord(i, 0, b"k", b"v") for i in range(10)]
    for number in range(3):
        (tmp_path / f"t-{number}").mkdir()
        for base in (0, 10):
            (tmp_path / f"t-{number}" / f"{base:020}.log").write_bytes(batch_v2(base, records, base_timestamp=base))
    chosen = options(tmp_path, **{f"starting{suffix}": '{"t":{"1":10}}', f"ending{suffix}": '{"t":{"2":10}}'})
    found = [batch_range(log, chosen) for log in find_partitions(FS, chosen)]
    assert [(one.first, min(one.stop, 20)) for one in found] == [(0, 20), (10, 20), (0, 10)]
    assert len(plan_splits(FS, chosen)) == 1


def test_a_file_on_a_web_server_is_read_by_itself(logs):
    log = logs / "payments-0" / f"{265:020d}.log"
    with object_server() as server:
        server.objects[f"kafka/payments-0/{log.name}"] = log.read_bytes()
        chosen = options(f"http://127.0.0.1:{server.port}/kafka/payments-0/{log.name}")
        (found,) = find_partitions(files_of(StoreSettings()), chosen)
        assert (str(found.topic_partition), [found.names[i].base_offset for i in found.chosen]) == ("payments-0", [265])


def test_a_timestamp_finds_the_first_record_that_is_not_older(logs):
    (log,) = find_partitions(FS, options(logs / "orders-none-0"))
    listed = [line for line in fixtures.expected("4.3.0/clean", "orders-none-0", "list") if line["t"] == "record"]
    stamps = [line["timestamp"] for line in listed]
    for stamp in (0, stamps[0], stamps[1] + 1, stamps[len(stamps) // 2], max(stamps)):
        wanted = next(line["offset"] for line in listed if line["timestamp"] >= stamp)
        assert offset_for_timestamp(log, stamp) == wanted
    assert offset_for_timestamp(log, max(stamps) + 1) is None


def test_a_timestamp_later_than_all_records_begins_at_the_end_or_fails_where_that_is_asked(logs):
    assert bounded(logs, startingTimestamp=2**60) == set()
    with pytest.raises(ConfigError, match="no offset matches the timestamp"):
        bounded(logs, startingTimestamp=2**60, startingOffsetsByTimestampStrategy="error")
