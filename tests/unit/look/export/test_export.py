"""Records exported: everything is there, null is not empty, damage is passed over."""

from __future__ import annotations

import csv
import errno
import gc
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import RefusedError, UnsupportedError
from seglog.model import TopicPartition
from seglog.scan.listing import Target, TargetKind
from seglog.scan.selection import Selection
from seglog.verification.findings import Finding
from seglog.verification.readable_files import Source, sources
from seglog_ask.table.engines.export import ExportFormat, ExportOptions, FileSink, export
from tests.support.fixtures import expected, fixture_copy
from tests.support.log_files import FS, batch, marker, write_segment
from tests.support.naive import NaiveRecord, batch_v2


def exported(log: Path, kind: ExportFormat, **options: Any) -> tuple[bytes, int, list[Finding]]:
    out, damage = io.BytesIO(), list[Finding]()
    logs = (one for one in sources(FS, Target(log, TargetKind.PARTITION)) if isinstance(one, Source))
    key = TopicPartition(log.name.rpartition("-")[0], 0)
    count = export([(key, logs)], out, ExportOptions(kind, **options), damage.append)
    return out.getvalue(), count, damage


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Nulls, empty strings, quotes and line ends; a marker; a timestamp that is none."""
    records = [
        NaiveRecord(0, 0, None, b""),
        NaiveRecord(1, 1, b"", None),
        NaiveRecord(2, 2, b'a,"b"', b"x\r\ny", ((b"h", None), (b"g", b"v"))),
    ]
    log = tmp_path / "t-0"
    write_segment(log, 0, batch_v2(0, records, base_timestamp=1000), marker(3, 9, commit=True), batch(4))
    return log


def test_csv_tells_null_from_empty(odd: Path) -> None:
    data, count, _ = exported(odd, ExportFormat.CSV)
    lines = data.decode().split("\r\n", 3)
    assert lines[:3] == ["topic,partition,offset,timestamp,key,value,headers", 't,0,0,1000,,"",', 't,0,1,1001,"",,']
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert (rows[2]["key"], rows[2]["value"], rows[2]["headers"]) == ('a,"b"', "x\r\ny", '[["h",null],["g","v"]]')
    assert ([row["offset"] for row in rows], count) == (["0", "1", "2", "4"], 4)


def test_csv_refuses_bytes_that_are_no_text_unless_base64(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0, value=b"\xff"))
    with pytest.raises(UnsupportedError, match=r"offset 0 .*--bytes base64"):
        exported(tmp_path / "t-0", ExportFormat.CSV)
    assert b",/w==," in exported(tmp_path / "t-0", ExportFormat.CSV, base64=True)[0]


def test_csv_writes_what_a_spreadsheet_would_run_as_it_is_and_with_an_apostrophe_when_asked(tmp_path: Path) -> None:
    run = [b"=1+1", b"+1", b"-1", b"@SUM(A1)", b"\t=1", b"\r=1", b"\n=1", "\uff1d1".encode()]
    cells = [*run, b"a=1", b"", b" =1", b"'=1"]
    write_segment(tmp_path / "-t-0", 0, batch_v2(0, [NaiveRecord(i, 0, c, c) for i, c in enumerate(cells)]))

    def columns(**options: Any) -> list[tuple[str, str, str]]:
        data = exported(tmp_path / "-t-0", ExportFormat.CSV, **options)[0].decode()
        rows = csv.DictReader(io.StringIO(data, newline=""))
        return [(row["topic"], row["key"], row["value"]) for row in rows]

    plain = [cell.decode() for cell in cells]
    assert columns() == [("-t", cell, cell) for cell in plain]
    harmless = ["'" + cell for cell in plain[:8]] + plain[8:]
    assert columns(csv_safe=True) == [("'-t", cell, cell) for cell in harmless]


def test_csv_in_base64_and_headers_are_made_harmless_too(tmp_path: Path) -> None:
    value = b"\xfb\xef\xbe"  # base64 that begins with +
    write_segment(tmp_path / "t-0", 0, batch_v2(0, [NaiveRecord(0, 0, b"k", value, ((b"\xff=", b"v"),))]))
    data = exported(tmp_path / "t-0", ExportFormat.CSV, base64=True, csv_safe=True)[0]
    assert data.splitlines()[1] == b"""t,0,0,1000,aw==,'++++,"[[""\\\\xff="",""dg==""]]\""""


def test_the_selection_is_exported_and_damage_in_it_reported(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    write_segment(log, 0, *(batch(2 * i, 2) for i in range(5)))
    path = log / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 5 + 70] ^= 1
    path.write_bytes(data)
    lines, count, damage = exported(log, ExportFormat.JSONL, selection=Selection(end_offset=7))
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [0, 1, 4, 5, 6]
    assert (count, [found.code for found in damage]) == (5, ["CRC_MISMATCH"])


@pytest.mark.parametrize("name", ["4.3.0/clean:orders-zstd-0", "0.10.2:v1-snappy-logappendtime-0", "0.8.2:v0-gzip-0"])
@pytest.mark.parametrize("kind", [ExportFormat.JSONL, ExportFormat.PARQUET])
def test_every_record_that_kafka_lists_is_there(name: str, kind: ExportFormat, tmp_path: Path) -> None:
    fixture, _, partition = name.partition(":")
    data, count, _ = exported(fixture_copy(fixture, tmp_path) / partition, kind)
    listed = [row for row in expected(fixture, partition, "list") if row["t"] == "record"]
    if kind is ExportFormat.JSONL:
        found = [(row["offset"], row["timestamp"]) for row in map(json.loads, data.splitlines())]
    else:
        from pyarrow import parquet

        table = parquet.read_table(io.BytesIO(data))
        stamps = [-1 if stamp is None else stamp for stamp in table["timestamp"].cast("int64").to_pylist()]
        found = list(zip(table["offset"].to_pylist(), stamps, strict=True))
    assert found == [(row["offset"], row["timestamp"]) for row in listed]
    assert count == len(listed) > 100


def test_parquet_keeps_bytes_and_headers(odd: Path) -> None:
    from pyarrow import parquet

    data, _, _ = exported(odd, ExportFormat.PARQUET)
    rows = parquet.read_table(io.BytesIO(data)).to_pylist()
    assert [(row["key"], row["value"]) for row in rows[:2]] == [(None, b""), (b"", None)]
    assert rows[2]["headers"] == [{"key": "h", "value": None}, {"key": "g", "value": b"v"}]
    assert (rows[0]["topic"], rows[0]["timestamp_type"], rows[0]["headers"]) == ("t", "CreateTime", None)


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with pytest.raises(ValueError, match="half"), FileSink(FS, path) as sink:
        sink.write(b"half")
        raise ValueError("half way")
    assert list(tmp_path.iterdir()) == []
    with FileSink(FS, path) as sink:
        sink.write(b"all of it")
        assert not path.exists()
    assert path.read_bytes() == b"all of it"
    with pytest.raises(RefusedError, match="exists already"):
        FileSink(FS, path)


def test_a_file_of_kafka_is_never_replaced(tmp_path: Path) -> None:
    kafkas = ("00000000000000000000.log", "00000000000000000042.timeindex.deleted", "leader-epoch-checkpoint", ".lock")
    link = tmp_path / "out.csv"
    for name in kafkas:
        path = tmp_path / name
        path.write_bytes(b"records")
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        for written in (path, link):
            with pytest.raises(RefusedError, match=r"never replaced|link"):
                FileSink(FS, written, replace=True)
        assert path.read_bytes() == b"records"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*kafkas, "out.csv"))


def test_a_parquet_file_that_an_error_cut_short_gets_nothing_more(odd: Path) -> None:
    """Arrow closes a writer when it is forgotten, and would write into a file that is closed."""
    out = io.BytesIO()

    def logs() -> Iterator[Source]:
        yield from (one for one in sources(FS, Target(odd, TargetKind.PARTITION)) if isinstance(one, Source))
        raise OSError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError):
        export([(TopicPartition("t", 0), logs())], out, ExportOptions(ExportFormat.PARQUET), list[Finding]().append)
    written = out.getvalue()
    gc.collect()
    assert out.getvalue() == written == b"PAR1"
