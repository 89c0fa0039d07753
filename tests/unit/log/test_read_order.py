"""Logs whose offsets do not ascend: whoever reads on gets every offset once, in the order of the files, and is told."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.errors import CorruptRecordError
from seglog.log import reader
from seglog.log.log import Log
from seglog.model import Compression, Isolation, Record, TopicPartition
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.filesystem import File
from seglog.verification.readable_files import Source
from seglog_ask.table.engines.export import ExportFormat, ExportOptions, export
from tests.support.log_files import FS, batch, encode_message_set, marker, transactional
from tests.support.open_logs import opened_log


def laid_out(directory: Path, *segments: tuple[int, bytes]) -> Path:
    """A partition with these bytes in its `.log` files, and empty indexes."""
    directory.mkdir(parents=True, exist_ok=True)
    for base, data in segments:
        (directory / f"{base:020d}.log").write_bytes(data)
        for kind in ("index", "timeindex"):
            (directory / f"{base:020d}.{kind}").write_bytes(b"")
    return directory


def read(directory: Path, offset: int | None = None, max_bytes: int = 300) -> list[int | None]:
    with opened_log(directory, writable=False) as log:
        return [record.offset for record in log.records(offset, max_bytes=max_bytes)]


def exported(directory: Path) -> tuple[list[int], list[str]]:
    sink, found = io.BytesIO(), []
    logs = [Source(FS, path) for path in sorted(directory.glob("*.log"))]
    key, options = TopicPartition("t", 0), ExportOptions(ExportFormat.CSV)
    export([(key, logs)], sink, options, lambda each: found.append(each.code))
    lines = sink.getvalue().decode().splitlines()[1:]
    return [int(line.split(",")[2]) for line in lines], found


TWICE = batch(0, 5) + batch(5, 5) + batch(0, 5) + batch(5, 5) + batch(10, 3)
MOVED = batch(0, 5) + batch(10, 5) + batch(5, 5) + batch(15, 5)
STRAY = ((0, batch(0, 5) + batch(1000, 5) + batch(5, 5)), (10, batch(10, 90)), (100, batch(100, 950)))
OVERLAPPING = ((0, batch(0, 10) + batch(10, 10)), (10, batch(5, 10) + batch(15, 10)))
BELOW = ((0, batch(0, 5)), (10, batch(10, 5)), (15, batch(7, 1) + batch(15, 5)))
LAYOUTS = {
    "a block twice": (((0, TWICE),), [*range(13)]),
    "a block moved": (((0, MOVED),), [*range(5), *range(10, 15), *range(5, 10), *range(15, 20)]),
    "a batch from elsewhere": (STRAY, [*range(5), *range(1000, 1005), *range(5, 1000), *range(1005, 1050)]),
    "segments that overlap": (OVERLAPPING, [*range(25)]),
    "a batch below its segment": (BELOW, [*range(5), *range(10, 15), 7, *range(15, 20)]),
}


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_each_offset_comes_once_in_the_order_of_the_files(tmp_path: Path, name: str, max_bytes: int) -> None:
    segments, expected = LAYOUTS[name]
    directory = laid_out(tmp_path / "t-0", *segments)
    assert read(directory, max_bytes=max_bytes) == expected
    assert exported(directory)[0] == expected


@pytest.mark.parametrize("chunk_bytes", [100, 200])
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_so_it_is_in_a_span_too_large_to_be_held(
    tmp_path: Path, name: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in chunks, and those before the one at work are known."""

    def of_file(file: File, start: int, end: int) -> SegmentScan:
        return SegmentScan(None, file.path, start, end, chunk_bytes=chunk_bytes, file=file)

    monkeypatch.setattr(reader, "HELD_BYTES", 0)
    monkeypatch.setattr(SegmentScan, "of_file", of_file)
    segments, expected = LAYOUTS[name]
    directory = laid_out(tmp_path / "t-0", *segments)
    assert read(directory, max_bytes=1 << 20) == expected
    with opened_log(directory, writable=False) as log:
        first = sorted({*expected} & {*range(segments[0][0], 1 << 20)})[0]
        found = log.read(first, max_bytes=1 << 20, isolation=Isolation.READ_UNCOMMITTED).records()
        offsets = [record.offset for record in found]
    assert offsets == expected[: len(offsets)] and offsets


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_where_offsets_do_not_ascend_is_said(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    directory = laid_out(tmp_path / "t-0", *LAYOUTS[name][0])
    with caplog.at_level(logging.WARNING), opened_log(directory, writable=False) as log:
        list(log.records())
        assert log.disorders
        assert str(log.disorders[0].path) in caplog.text
    assert set(exported(directory)[1]) == {"OFFSETS_NOT_ASCENDING"}


def test_the_notice_names_place_and_figures(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "t-0", (0, TWICE))
    with opened_log(directory, writable=False) as log:
        list(log.records())
        (found,) = log.disorders
    position = len(batch(0, 5) + batch(5, 5))
    assert str(found) == (
        f"{found.path}: position {position}: offset 0 comes after 9; 2 batches with offsets that were read before are"
        " skipped; `seglog verify` says more"
    )


def test_one_fetch_gives_each_offset_once_and_says_where_to_go_on(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "t-0", (0, batch(0, 5) + batch(5, 5) + batch(0, 5)))
    with opened_log(directory, writable=False) as log:
        fetched = log.read(3, 1 << 20, None)
        assert [record.offset for record in fetched.records()] == list(range(3, 10))
        assert fetched.next_offset > fetched.offset


def test_a_healthy_log_is_read_without_a_word(tmp_path: Path) -> None:
    directory = laid_out(tmp_path / "t-0", (0, batch(0, 5) + batch(9, 5)), (20, batch(20, 5)))
    with opened_log(directory, writable=False) as log:
        assert [record.offset for record in log.records(2)] == [2, 3, 4, *range(9, 14), *range(20, 25)]
        assert log.disorders == ()


def test_wrappers_that_came_twice_are_read_once(tmp_path: Path) -> None:
    wrappers = [
        encode_message_set([Record(b"v", timestamp=1000)] * 4, first, 1, Compression.GZIP) for first in (0, 4, 8)
    ]
    directory = laid_out(tmp_path / "t-0", (0, wrappers[0] + wrappers[1] + wrappers[0] + wrappers[1] + wrappers[2]))
    assert read(directory) == list(range(12)) == exported(directory)[0]


def test_what_a_transaction_hides_stays_hidden_when_it_came_twice(tmp_path: Path) -> None:
    aborted = transactional(0, 7, 0) + marker(1, 7, commit=False)
    with opened_log(laid_out(tmp_path / "t-0", (0, aborted + batch(2, 1))), clean=False) as log:
        assert log.log_end_offset == 3
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(aborted + batch(2, 1) + aborted + batch(3, 1))
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert [record.offset for record in log.records(isolation="read_committed")] == [2, 3]


@pytest.mark.parametrize("size", [1, 2**31 - 1, 500])
def test_damage_between_batches_ends_a_read_with_its_place(tmp_path: Path, size: int) -> None:
    data = bytearray(batch(0, 5) + batch(5, 5) + batch(10, 5))
    at = len(batch(0, 5))
    data[at + 8 : at + 12] = size.to_bytes(4, "big")
    directory = laid_out(tmp_path / "t-0", (0, bytes(data)), (15, batch(15, 5)))
    with (
        opened_log(directory, writable=False) as log,
        pytest.raises(CorruptRecordError, match=f"position {at}:"),
    ):
        list(log.records())


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([1, 250, 1 << 20]),
    st.integers(0, 3),
)
@settings(max_examples=60)
def test_any_layout_is_read_as_a_set_of_offsets_would_tell(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int, bool]], max_bytes: int, start: int
) -> None:
    segments: list[tuple[int, bytes]] = []
    expected, seen = [], set()
    for base, count, rolls in batches:
        if not segments or (rolls and base > segments[-1][0]):
            segments.append((base if segments else 0, b""))
        segments[-1] = (segments[-1][0], segments[-1][1] + batch(base, count))
        news = [offset for offset in range(base, base + count) if offset not in seen]
        expected += news
        seen |= set(news)
    directory = laid_out(tmp_path_factory.mktemp("any") / "t-0", *segments)
    assert read(directory, 0, max_bytes) == expected == exported(directory)[0]
    with opened_log(directory, writable=False) as log:
        position, steps = min(start, log.log_end_offset), 0
        while (fetched := log.read(position, max_bytes, None)).size:
            assert fetched.next_offset > position
            position, steps = fetched.next_offset, steps + 1
            if position > log.log_end_offset:
                break
        assert steps <= 40


@pytest.mark.parametrize("given", ["read_committed", "READ_COMMITTED", Isolation.READ_COMMITTED])
def test_an_isolation_may_be_text(tmp_path: Path, given: str) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append_as_follower(transactional(0, 7, 0) + marker(1, 7, commit=False) + batch(2, 1), 0)
        log.update_high_watermark(3)
        assert [record.offset for record in log.records(isolation=given)] == [2]
        assert [record.offset for record in log.read(0, 1000, given).records()] == [2]
        assert [record.offset for part in log.columns(0, given) for record in part] == [2]
        assert [record.offset for record in log.records()] == [0, 2]


@pytest.mark.parametrize("given", ["committed", "", "read-committed", 1, True])
def test_another_isolation_is_refused_at_once_with_those_that_there_are(tmp_path: Path, given: object) -> None:
    kind = ValueError if isinstance(given, str) else TypeError

    def refused(log: Log) -> list[str]:
        told = []
        for ask in (log.records, log.columns, lambda _, level: log.read(0, 100, level)):
            with pytest.raises(kind, match="read_uncommitted, read_committed") as error:
                ask(0, given)  # type: ignore[arg-type]
            told.append(str(error.value))
        return told

    with opened_log(tmp_path / "t-0") as log:
        assert len(set(refused(log))) == 1
