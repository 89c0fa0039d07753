"""Splits become Arrow batches with the rows that Kafka lists, however they are cut; the options decide about damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seglog.errors import CorruptRecordError
from seglog.format.filenames import parse_partition_directory
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan.schema import VIEWS, arrow_schema, default_projection
from seglog_ask.table.plan.splits import plan_splits
from seglog_ask.table.values import columns
from seglog_ask.table.values.columns import TIMESTAMPS
from tests.support import fixtures
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.support.rows import expected_rows, rows_of

FS = LocalFileSystem()
NAMES = ("4.3.0/clean", "4.3.0/killed", "4.3.0/generated", "0.10.2", "0.8.2")


def read(path: Path, **options: object) -> list[dict]:
    given = {"path": str(path), "includeHeaders": "true"} | {key: str(value) for key, value in options.items()}
    parsed = parse_read_options(given)
    projection = default_projection(parsed.view, parsed.columns, parsed.include_headers)
    schema, rows = arrow_schema(projection), []
    for split in plan_splits(FS, parsed):
        for batch in split_batches(FS, split, projection, parsed):
            assert batch.schema.equals(schema)
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: fixtures.fixture_copy(name, tmp_path_factory.mktemp("logs")) for name in NAMES}


CASES = [(name, part) for name in NAMES for part in fixtures.expected_partitions(name, "list")]


@pytest.mark.parametrize(("name", "partition"), CASES)
def test_rows_are_those_that_kafka_lists(copies, name, partition):
    listed = fixtures.expected(name, partition, "list")
    found = parse_partition_directory(partition)
    assert found is not None
    key = found.topic_partition
    wanted = expected_rows(listed, key.topic, key.partition)
    assert rows_of(read(copies[name] / partition)) == wanted
    assert rows_of(read(copies[name] / partition, maxPartitionBytes=10_000)) == wanted


@pytest.mark.parametrize("partition", ["payments-0", "orders-lz4-0"])
def test_every_offset_range_gives_its_records(copies, partition):
    directory = copies["4.3.0/clean"] / partition
    topic = partition.rsplit("-", 1)[0]
    everything = [row["offset"] for row in read(directory)]
    for first, after in ((0, 1), (1, 2), (177, 250), (everything[-1], everything[-1] + 1), (50, 50)):
        bounds = {
            "startingOffsets": f'{{"{topic}":{{"0":{first}}}}}',
            "endingOffsets": f'{{"{topic}":{{"0":{after}}}}}',
        }
        found = [row["offset"] for row in read(directory, maxPartitionBytes=20_000, **bounds)]
        assert found == [offset for offset in everything if first <= offset < after]


# --- hand-made logs -------------------------------------------------------------------------------------------


def partition_of(tmp_path: Path, *segments: tuple[int, bytes]) -> Path:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for base, data in segments:
        (directory / f"{base:020}.log").write_bytes(data)
    return directory


def records(count: int, first: int = 0) -> list[NaiveRecord]:
    return [NaiveRecord(i, i, b"k%d" % (first + i), b"v" * (i % 5)) for i in range(count)]


THREE = [batch_v2(i * 10, records(10, i * 10)) for i in range(3)]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def offsets(rows: list[dict]) -> list[int]:
    return [row["offset"] for row in rows]


def test_null_and_empty_are_different(tmp_path):
    made = [NaiveRecord(0, 0, None, b""), NaiveRecord(1, 0, b"", None, ((b"h", None), (b"\xff", b"")))]
    rows = read(partition_of(tmp_path, (0, batch_v2(0, made))))
    assert [(row["key"], row["value"]) for row in rows] == [(None, b""), (b"", None)]
    assert rows[0]["headers"] is None
    assert rows[1]["headers"] == [{"key": "h", "value": None}, {"key": "�", "value": b""}]


def test_a_timestamp_beyond_microseconds_is_the_last_one_that_they_hold(tmp_path):
    made = batch_v2(0, [NaiveRecord(0, 0, b"k", b"v")], base_timestamp=2**62, max_timestamp=2**62)
    options = parse_read_options({"path": str(partition_of(tmp_path, (0, made)))})
    projection = default_projection("records", ("timestamp", "timestampMs"), False)
    (split,) = plan_splits(FS, options)
    (batch,) = split_batches(FS, split, projection, options)
    assert [column.cast("int64").to_pylist() for column in batch.columns] == [[(TIMESTAMPS.stop - 1) * 1000], [2**62]]


def test_batches_are_cut_by_rows_and_by_bytes(monkeypatch):
    rows = np.zeros(10, dtype=[("size", np.int32)])
    rows["size"] = [1, 1, 1, 1, 9, 1, 20, 1, 1, 1]
    monkeypatch.setattr(columns, "BATCH_ROWS", 3)
    monkeypatch.setattr(columns, "BATCH_BYTES", 10)
    assert list(columns.cuts(rows)) == [(0, 3), (3, 5), (5, 6), (6, 7), (7, 10)]


def test_a_wrong_checksum_fails_and_names_the_place(tmp_path):
    damaged = flipped(THREE[1], 70)
    directory = partition_of(tmp_path, (0, THREE[0] + damaged + THREE[2]))
    with pytest.raises(CorruptRecordError) as caught:
        read(directory)
    assert f"position {len(THREE[0])}" in str(caught.value)
    assert "offsets 10 to 19" in str(caught.value)
    assert offsets(read(directory, onCorrupt="skip")) == [*range(10), *range(20, 30)]


def test_without_verification_a_wrong_checksum_passes(tmp_path):
    directory = partition_of(tmp_path, (0, flipped(THREE[0], layout_crc := 17) + THREE[1]))
    assert layout_crc == 17
    assert offsets(read(directory, verifyCrc="false")) == list(range(20))


def test_bytes_that_are_no_batch_are_skipped_or_fail(tmp_path):
    garbage = bytes(range(1, 200))
    directory = partition_of(tmp_path, (0, THREE[0] + garbage + THREE[1]), (20, THREE[2]))
    with pytest.raises(CorruptRecordError, match=f"position {len(THREE[0])}"):
        read(directory)
    assert offsets(read(directory, onCorrupt="skip")) == list(range(30))
    found = read(directory, view="findings")
    assert [(row["position"], row["size"], row["kind"]) for row in found] == [(len(THREE[0]), 199, "framing")]


def test_records_that_do_not_decode_are_skipped_with_their_batch(tmp_path):
    broken = batch_v2(10, records(3), payload=b"\x99" * 40)
    directory = partition_of(tmp_path, (0, THREE[0] + broken + THREE[2]))
    with pytest.raises(CorruptRecordError, match="offsets 10 to 12"):
        read(directory)
    assert offsets(read(directory, onCorrupt="skip")) == [*range(10), *range(20, 30)]
    assert [row["kind"] for row in read(directory, view="findings")] == ["contents"]


FLIPS = st.lists(st.tuples(st.integers(0, sum(map(len, THREE)) - 1), st.integers(1, 255)), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(flips=FLIPS, cut=st.integers(0, 20))
@pytest.mark.slow
def test_damage_costs_the_batches_it_touches_and_nothing_else(tmp_path_factory, flips, cut):
    data = bytearray(b"".join(THREE))
    for at, mask in flips:
        data[at] ^= mask
    data = data[: len(data) - cut]
    directory = partition_of(tmp_path_factory.mktemp("flips"), (0, bytes(data)))
    found = set(offsets(read(directory, onCorrupt="skip")))
    whole = [i for i in range(3) if bytes(data[i * len(THREE[0]) : (i + 1) * len(THREE[0])]) == THREE[i]]
    assert {offset for i in whole for offset in range(i * 10, i * 10 + 10)} <= found
    covered = data[17 : len(THREE[0])] != bytearray(THREE[0][17:])  # what the first batch's checksum covers
    if covered and 1 in whole:
        with pytest.raises(CorruptRecordError, match="position"):
            read(directory)


def test_offsets_that_cannot_be_there_are_damage(tmp_path):
    far = (2**40).to_bytes(8, "big") + THREE[1][8:]
    directory = partition_of(tmp_path, (0, THREE[0] + far + THREE[2]))
    with pytest.raises(CorruptRecordError, match="its offsets cannot be in this segment"):
        read(directory)
    assert offsets(read(directory, onCorrupt="skip")) == [*range(10), *range(20, 30)]


def test_batches_out_of_order_fail_and_are_kept_when_skipping(tmp_path):
    directory = partition_of(tmp_path, (0, THREE[0] + THREE[2] + THREE[1]))
    with pytest.raises(CorruptRecordError, match="do not follow those before it"):
        read(directory)
    assert offsets(read(directory, onCorrupt="skip")) == [*range(10), *range(20, 30), *range(10, 20)]
    assert [row["kind"] for row in read(directory, view="findings")] == ["order"]


def test_a_torn_tail_of_the_active_segment_is_no_error_if_everything_acknowledged_is_there(tmp_path):
    directory = partition_of(tmp_path, (0, THREE[0]), (10, THREE[1] + THREE[2][:-5]))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\ntopic 0 20\n")
    assert offsets(read(directory)) == list(range(20))
    (found,) = read(directory, view="findings")
    assert (found["kind"], found["position"]) == ("torn tail", len(THREE[1]))


def test_a_torn_tail_of_a_sealed_segment_is_damage(tmp_path):
    directory = partition_of(tmp_path, (0, THREE[0] + THREE[1][:-5]), (20, THREE[2]))
    with pytest.raises(CorruptRecordError):
        read(directory)


def test_legacy_messages_have_no_timestamp_type_or_time(tmp_path):
    data = message(0, 0, b"k", b"v") + message(1, 1, None, b"w", timestamp=5)
    rows = rows_of(read(partition_of(tmp_path, (0, data))))
    assert rows == [(b"k", b"v", "topic", 0, 0, -1, -1, None), (None, b"w", "topic", 0, 1, 5, 0, None)]


def transaction(tmp_path: Path) -> Path:
    """Producer 1 aborts offsets 0 to 9, producer 2 leaves 11 to 20 open; 21 to 30 are plain."""
    marker = NaiveRecord(0, 0, b"\0\0\0\0", b"\0\0\0\0\0\0")
    data = batch_v2(0, records(10), attributes=0x10, producer=(1, 0, 0))
    data += batch_v2(10, [marker], attributes=0x30, producer=(1, 0, -1))
    data += batch_v2(11, records(10, 11), attributes=0x10, producer=(2, 0, 0))
    data += batch_v2(21, records(10, 21))
    directory = partition_of(tmp_path, (0, data))
    entry = b"".join(value.to_bytes(8, "big") for value in (1, 0, 10, 11))
    (directory / f"{0:020}.txnindex").write_bytes(b"\0\0" + entry)
    return directory


def test_read_uncommitted_shows_all_but_control_records(tmp_path):
    assert offsets(read(transaction(tmp_path))) == [*range(10), *range(11, 31)]


def test_read_committed_ends_at_the_first_open_transaction_and_drops_aborted_ones(tmp_path):
    directory = transaction(tmp_path)
    assert offsets(read(directory, isolationLevel="read_committed")) == []
    commit = NaiveRecord(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")
    with (directory / f"{0:020}.log").open("ab") as file:
        file.write(batch_v2(31, [commit], attributes=0x30, producer=(2, 0, -1)))
    assert offsets(read(directory, isolationLevel="read_committed")) == list(range(11, 31))


def test_reading_creates_and_changes_no_file(tmp_path):
    directory = transaction(tmp_path)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}
    read(directory, isolationLevel="read_committed")
    read(directory, view="segments")
    assert before == {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()}


def test_a_plan_is_a_snapshot_of_a_log_that_grows(tmp_path):
    directory = partition_of(tmp_path, (0, THREE[0]), (10, THREE[1]), (20, THREE[2]))
    options = parse_read_options({"path": str(directory)})
    splits = plan_splits(FS, options)
    with (directory / f"{20:020}.log").open("ab") as file:
        file.write(batch_v2(30, records(10)))
    projection = default_projection("records", None, False)
    assert sum(len(batch) for split in splits for batch in split_batches(FS, split, projection, options)) == 30


def test_views_describe_batches_and_segments(tmp_path):
    directory = partition_of(tmp_path, (0, THREE[0] + THREE[1]), (20, THREE[2]))
    batches = read(directory, view="batches")
    assert [(row["baseOffset"], row["lastOffset"], row["count"]) for row in batches] == [
        (0, 9, 10),
        (10, 19, 10),
        (20, 29, 10),
    ]
    segments = read(directory, view="segments")
    assert [(row["baseOffset"], row["nextOffset"], row["records"], row["isActive"]) for row in segments] == [
        (0, 20, 20, False),
        (20, 30, 10, True),
    ]
    assert set(segments[0]) == {column.name for column in VIEWS["segments"]}


def test_where_a_record_comes_from_is_there_on_request(tmp_path):
    first = batch_v2(0, records(3), producer=(7, 2, 2**31 - 2), leader_epoch=5)
    directory = partition_of(tmp_path, (0, first + message(3, 1, b"k", b"v", timestamp=9)))
    assert not {"producerId", "file"} & set(read(directory)[0])
    names = "offset,producer_id,producerEpoch,sequence,leader_epoch,file,position"
    path = str(directory / f"{0:020}.log")
    found = [tuple(row.values()) for row in read(directory, columns=names)]
    assert found == [
        (0, 7, 2, 2**31 - 2, 5, path, 0),
        (1, 7, 2, 2**31 - 1, 5, path, 0),
        (2, 7, 2, 0, 5, path, 0),
        (3, -1, -1, -1, -1, path, len(first)),
    ]
    assert list(read(directory, columns=names)[0]) == names.split(",")
