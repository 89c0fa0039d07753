"""Partitions as an Arrow dataset: every method, pushed filters, damage, and what is never opened."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.compute as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402

import seglog  # noqa: E402
from seglog.errors import ConfigError, CorruptRecordError, IncompleteError, UnsupportedError  # noqa: E402
from seglog_ask.table.engines import pruning  # noqa: E402
from seglog_ask.table.engines.dataset import Table, pieces_of_source  # noqa: E402
from seglog_ask.table.values.columns import TIMESTAMPS  # noqa: E402
from tests.support import fixtures  # noqa: E402
from tests.support.naive import NaiveRecord, batch_v2  # noqa: E402
from tests.support.watched_files import CountingFileSystem  # noqa: E402

COUNT = 40
TIMES = pa.timestamp("ms", "UTC")


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """40 records in segments of 10, a millisecond apart, keys a to d and null."""
    directory = tmp_path / "logs" / "orders-0"
    directory.parent.mkdir()
    with seglog.open_log(directory, create=True, config={"segment.bytes": 1024, "index.interval.bytes": 0}) as log:
        for i in range(COUNT):
            key = None if i % 5 == 4 else "abcd"[i % 5].encode()
            headers = (seglog.Header("h", b"\x00"),) if i % 7 == 0 else ()
            log.append([seglog.Record(b"v%d" % i * 10, key, 1000 + i, headers)])
    return directory


def test_every_method_of_a_dataset_is_the_tables_own(orders: Path) -> None:
    names = {name for name in dir(ds.FileSystemDataset) if not name.startswith("_")}
    assert {name for name in dir(ds.Dataset) if not name.startswith("_")} <= names
    assert names - set(vars(Table)) == set()


def test_each_method_works_or_raises(orders: Path) -> None:
    table = seglog.open_table(orders)
    whole = table.to_table()
    assert table.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert whole["offset"].to_pylist() == list(range(COUNT))
    assert whole["timestamp"].cast(pa.int64()).to_pylist() == [1000 + i for i in range(COUNT)]
    assert whole["key"].to_pylist()[:5] == [b"a", b"b", b"c", b"d", None]
    assert whole["headers"].to_pylist()[:2] == [[{"key": "h", "value": b"\x00"}], None]
    assert set(whole["topic"].to_pylist()) == {"orders"}
    assert table.count_rows() == COUNT
    assert table.count_rows(pc.field("key").is_null()) == 8
    assert table.head(3, columns=["offset"]).to_pylist() == [{"offset": 0}, {"offset": 1}, {"offset": 2}]
    assert table.take([39, 0], columns=["offset"])["offset"].to_pylist() == [39, 0]
    assert sum(batch.num_rows for batch in table.to_batches(batch_size=3)) == COUNT
    assert max(batch.num_rows for batch in table.to_batches(batch_size=3)) == 3
    assert table.sort_by([("offset", "descending")]).to_table()["offset"].to_pylist()[0] == COUNT - 1
    late = table.filter(pc.field("offset") >= 30)
    assert late.filter(pc.field("key") == b"a").to_table(columns=["offset"])["offset"].to_pylist() == [30, 35]
    plain = seglog.open_table(orders, columns=["partition", "offset"])  # Arrow joins no lists
    late = plain.filter(pc.field("offset") >= 30)
    assert plain.join(late, keys="offset", join_type="inner", right_suffix="_r").count_rows() == 10
    assert plain.join_asof(late, on="offset", by="partition", tolerance=0).count_rows() == COUNT
    assert table.partition_expression.equals(pc.scalar(True))
    doubled = table.to_table(columns={"twice": pc.field("offset") * 2}, filter=pc.field("offset") < 2)
    assert doubled.to_pylist() == [{"twice": 0}, {"twice": 2}]
    assert pa.table(table).equals(whole)  # through __arrow_c_stream__
    for refused in ("replace_schema", "from_paths"):
        with pytest.raises(UnsupportedError):
            getattr(table, refused)(None)
    for refused in ("files", "filesystem", "format", "partitioning"):
        with pytest.raises(UnsupportedError):
            getattr(table, refused)


def test_what_reaches_the_object_beneath_is_an_error_and_no_crash(orders: Path) -> None:
    code = (
        "import sys, seglog, pyarrow.dataset as ds\n"
        "table = seglog.open_table(sys.argv[1])\n"
        "try:\n    ds.UnionDataset(table.schema, [table]).to_table()\n"
        "except FileNotFoundError as error:\n    print('use the table' in str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, orders], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n")


def test_a_scanner_has_what_pyarrows_has(orders: Path) -> None:
    scanner = seglog.open_table(orders).scanner(["offset"], pc.field("offset") < 4)
    names = {name for name in dir(ds.Scanner) if not name.startswith(("_", "from_"))}
    assert names <= set(dir(scanner))
    assert scanner.projected_schema.names == ["offset"]
    assert len(scanner.dataset_schema) == 7
    assert scanner.count_rows() == len(scanner.take([0, 1, 2, 3])) == 4
    assert [tagged.record_batch.num_rows for tagged in scanner.scan_batches()] == [4]
    assert pa.table(scanner).equals(scanner.to_table())  # through __arrow_c_stream__


def test_columns_on_request_and_unknown_ones(orders: Path) -> None:
    asked = ["timestamp_type", "producer_id", "producer_epoch", "sequence", "leader_epoch", "segment", "position"]
    row = seglog.open_table(orders, columns=asked).head(1).to_pylist()[0]
    assert row == {
        "timestamp_type": "CreateTime",
        "producer_id": -1,
        "producer_epoch": -1,
        "sequence": -1,
        "leader_epoch": 0,
        "segment": str(orders / f"{0:020}.log"),
        "position": 0,
    }
    with pytest.raises(ConfigError, match="no column 'ofset'; did you mean offset"):
        seglog.open_table(orders, columns=["ofset"])
    with pytest.raises(ConfigError, match="no column 'nope'"):
        seglog.open_table(orders).to_table(columns=["nope"])


def opened_logs(fs: CountingFileSystem) -> set[str]:
    return {name for name in fs.opened if name.endswith(".log")}


def read_offsets(fs: CountingFileSystem, path: Path, condition: pc.Expression) -> list[int]:
    fs.opened.clear()
    return seglog.open_table(path, fs=fs).to_table(columns=["offset"], filter=condition)["offset"].to_pylist()


def test_segments_that_cannot_match_are_not_opened(orders: Path, tmp_path: Path) -> None:
    fs = CountingFileSystem()
    names = sorted(path.name for path in orders.glob("*.log"))
    assert len(names) >= 4
    bases = [int(name[:20]) for name in names]
    assert read_offsets(fs, orders, pc.field("offset") == bases[2]) == [bases[2]]
    assert opened_logs(fs) == {names[2]}
    assert read_offsets(fs, orders, pc.field("offset").isin([0, COUNT - 1])) == [0, COUNT - 1]
    assert opened_logs(fs) <= {names[0], names[-1], names[-2]}
    since = pc.field("timestamp") >= pa.scalar(1000 + bases[-1], TIMES)
    assert read_offsets(fs, orders, since) == list(range(bases[-1], COUNT))
    assert opened_logs(fs) == {names[-1]}
    assert read_offsets(fs, orders, pc.field("topic") == "others") == []
    assert read_offsets(fs, orders.parent, pc.field("partition") == 7) == []
    assert opened_logs(fs) == set()


def test_opening_a_table_opens_no_log(orders: Path) -> None:
    fs = CountingFileSystem()
    seglog.open_table(orders, fs=fs)
    assert opened_logs(fs) == set()


def test_only_the_pieces_that_may_match_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PIECE_BYTES", 4096)
    path = tmp_path / "orders-0"
    with seglog.open_log(path, create=True) as log:
        for i in range(1000):
            log.append([seglog.Record(b"x" * 500, timestamp=1000 + i)])
    table = seglog.open_table(path)
    source, size = table._source, next(path.glob("*.log")).stat().st_size

    def bytes_of(condition: pc.Expression) -> int:
        return sum(piece.bytes for piece in pieces_of_source(source, pruning.Question(condition, table.schema)))

    for offset in (0, 17, 500, 998, 999):
        condition = pc.field("offset") == offset
        assert table.to_table(columns=["offset"], filter=condition).to_pylist() == [{"offset": offset}]
        assert bytes_of(condition) <= 4 * 4096 < size // 20
    late = pc.field("timestamp") >= pa.scalar(1990, TIMES)
    assert table.to_table(columns=["offset"], filter=late)["offset"].to_pylist() == list(range(990, 1000))
    assert bytes_of(late) <= size // 20
    assert bytes_of(pc.field("timestamp") < pa.scalar(1010, TIMES)) == size  # CreateTime has no order


def test_an_index_that_lies_loses_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "PIECE_BYTES", 4096)
    path = tmp_path / "orders-0"
    with seglog.open_log(path, create=True) as log:
        for i in range(300):
            log.append([seglog.Record(b"x" * 500, timestamp=1000 + i)])
    (index,) = path.glob("*.index")
    entries = np.frombuffer(index.read_bytes(), dtype=">i4").reshape(-1, 2).copy()
    entries[1:-1, 0] += 3  # each entry says that later offsets begin there
    index.write_bytes(entries.tobytes())
    table = seglog.open_table(path)
    for offset in (0, 50, 100, 152, 299):
        assert table.count_rows(pc.field("offset") == offset) == 1


def test_damage_ends_a_read_or_is_left_out_and_counted(
    orders: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = sorted(orders.glob("*.log"))[1]
    base = int(log.name[:20])
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=rf"{log}: position \d+: .*on_corrupt='skip'.*offset 20"):
        seglog.open_table(orders).to_table()
    assert seglog.open_table(orders).count_rows(pc.field("offset") < base) == base
    skipping = seglog.open_table(orders, on_corrupt="skip")
    with caplog.at_level(logging.WARNING, "seglog"):
        assert len(skipping.to_table()) == COUNT - 1
        assert len(skipping.to_table()) == COUNT - 1
    assert (skipping.left_out.ranges, str(log) in skipping.left_out.first) == (1, True)
    assert len([one for one in caplog.records if "left out 1 damaged range," in one.message]) == 1


def test_a_lost_segment_is_an_error_or_left_out(orders: Path) -> None:
    sorted(orders.glob("*.log"))[1].unlink()
    with pytest.raises(IncompleteError, match="on_corrupt='skip'"):
        seglog.open_table(orders).to_table()
    table = seglog.open_table(orders, on_corrupt="skip")
    assert 0 < table.count_rows() < COUNT
    assert table.left_out.ranges == 1


def test_a_log_that_grows_and_is_cleaned_meanwhile(orders: Path) -> None:
    table = seglog.open_table(orders)
    seglog.clean(orders, policy="compact", roll=True, config={"min.cleanable.dirty.ratio": 0})
    with seglog.open_log(orders, writable=True) as log:
        log.append([seglog.Record(b"late", b"z")])
    found = table.to_table(columns=["offset", "key"], filter=pc.field("key") == b"a")
    assert found["offset"].to_pylist() == [35]


def test_whole_log_directories_topics_and_isolation(tmp_path: Path) -> None:
    directory = fixtures.fixture_copy("4.3.0/clean", tmp_path)
    table = seglog.open_table(directory)
    topics = set(table.to_table(columns=["topic"])["topic"].unique().to_pylist())
    assert {"payments", "orders-lz4", "__cluster_metadata"} <= topics
    assert seglog.open_table(directory / "orders-lz4").count_rows() == table.count_rows(
        pc.field("topic") == "orders-lz4"
    )
    committed = seglog.open_table(directory / "payments-0", isolation="read_committed")
    assert committed.count_rows() < seglog.open_table(directory / "payments-0").count_rows()
    for name in ("payments-0", "orders-zstd-0"):
        for isolation in ("read_uncommitted", "read_committed"):
            with seglog.open_log(directory / name) as log:
                offsets = [record.offset for record in log.records(isolation=isolation)]
            found = seglog.open_table(directory / name, isolation=isolation)
            assert found.to_table(columns=["offset"])["offset"].to_pylist() == offsets
            assert found.count_rows() == len(offsets)


def test_a_log_becomes_arrow_and_arrow_a_log(orders: Path, tmp_path: Path) -> None:
    with seglog.open_log(orders) as log:
        table = log.to_arrow().read_all()
        assert log.to_arrow(["offset"], offset=38).read_all().to_pylist() == [{"offset": 38}, {"offset": 39}]
    assert table.equals(seglog.open_table(orders).to_table())
    copy = tmp_path / "orders-0"
    assert seglog.append_table(copy, seglog.open_table(orders), create=True) == range(COUNT)
    assert seglog.open_table(copy).to_table().equals(table)


def test_tables_of_pandas_and_polars_are_appended(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    path = tmp_path / "t-0"
    frame = pandas.DataFrame({"key": ["a", None], "value": ["1", "2"], "timestamp": [5, 6]})
    assert seglog.append_table(path, frame, create=True) == range(2)
    assert seglog.append_table(path, polars.DataFrame({"value": [b"3", None]})) == range(2, 4)
    assert seglog.append_table(path, polars.LazyFrame({"value": ["4"]})) == range(4, 5)
    stamps = pa.array([7_000_000, None], pa.timestamp("ns"))
    assert seglog.append_table(path, pa.record_batch({"value": ["5", "6"], "timestamp": stamps})) == range(5, 7)
    rows = seglog.open_table(path).to_table()
    assert rows["value"].to_pylist() == [b"1", b"2", b"3", None, b"4", b"5", b"6"]
    assert rows["key"].to_pylist() == [b"a", *[None] * 6]
    assert rows["timestamp"].cast(pa.int64()).to_pylist()[:2] == [5, 6]
    assert rows["timestamp"].cast(pa.int64()).to_pylist()[5] == 7
    for wrong, why in (
        (pa.table({"key": ["a"]}), "no column 'value'"),
        (pa.table({"value": ["a"], "vlaue": ["b"]}), "no column 'vlaue'"),
        (pa.table({"value": [1]}), "type int64"),
        (pa.table({"value": ["a"], "timestamp": ["b"]}), "'timestamp' has type string"),
        ([1, 2], "a list is not a table"),
    ):
        with pytest.raises(seglog.AppendError, match=why):
            seglog.append_table(path, wrong)
    assert len(seglog.open_table(path).to_table()) == 7


def test_engines_push_columns_and_filters(orders: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    fs = CountingFileSystem()
    table = seglog.open_table(orders, fs=fs)
    last = sorted(orders.glob("*.log"))[-1]
    fs.opened.clear()
    with duckdb.connect() as connection:
        connection.register("orders", table)
        found = connection.execute('select "offset" from orders where "offset" >= 39').fetchall()
    assert (found, opened_logs(fs)) == ([(39,)], {last.name})
    fs.opened.clear()
    frame = table.to_polars().filter(polars.col("offset") >= 39).select("offset").collect()
    assert (frame.rows(), opened_logs(fs)) == ([(39,)], {last.name})
    assert table.to_pandas(columns=["offset"])["offset"].sum() == sum(range(COUNT))


def test_timestamps_that_engines_cannot_hold_are_the_nearest_ones_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    least, most = TIMESTAMPS.start, TIMESTAMPS.stop - 1
    stamps = [-1, -5, 2**62, 1000, -(2**63)]
    value = NaiveRecord(0, 0, None, b"v")
    data = b"".join(batch_v2(i, [value], base_timestamp=stamp) for i, stamp in enumerate(stamps))
    (path / f"{0:020}.log").write_bytes(data)
    table = seglog.open_table(path, columns=["offset", "timestamp", "timestamp_ms"])
    found = table.to_table()
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [None, -5, most, 1000, least]
    assert found["timestamp_ms"].to_pylist() == [None, -5, 2**62, 1000, -(2**63)]
    later = pc.field("timestamp") > pa.scalar(500, pa.timestamp("ms", "UTC"))
    assert table.to_table(filter=later)["offset"].to_pylist() == [2, 3]
    (told,) = [one.message for one in caplog.records if "beyond the years -260000 to 260000" in one.message]
    assert f"t-0, offset 2: {2**62}" in told
