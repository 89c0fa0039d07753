"""Which bytes a fetch gets: whole good batches, whatever lies around them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog.errors import CorruptionError, CorruptRecordError, OffsetOutOfRangeError
from seglog.format.decoder import checksums_match, scan_batches
from seglog.log.log import Log
from seglog.model import Isolation, Record
from seglog.scan.log_walk import LogWalk
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from seglog_rescue.serve.spans import FileSpan, Found, SpanEnds, empty_batch, find_span, is_at_hand
from tests.support.open_logs import opened_log

EACH = 5  # records a batch
BATCHES = 60
VALUE = b"v" * 200  # a batch has more than 1000 bytes, so that the index has entries
SEGMENT_BYTES = 20_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    with opened_log(path, segment_bytes=SEGMENT_BYTES) as log:
        for i in range(BATCHES):
            log.append([Record(VALUE, timestamp=1000 + i) for _ in range(EACH)])
    return path


@pytest.fixture
def log(directory: Path) -> Iterator[Log]:
    with opened_log(directory, writable=False) as opened:
        yield opened


def offsets_of(found: Found) -> list[int]:
    """Base offsets of the batches that were found; every one is whole and good."""
    if not isinstance(found.data, FileSpan):
        data = found.data
    else:
        with found.data.file as file:
            data = file.read_at(found.data.position, found.data.size)
    array = np.frombuffer(data, dtype=np.uint8)
    scan = scan_batches(array, 0, len(array), 0)
    assert scan.consumed == len(array)
    assert checksums_match(array, scan.batches, 0).all()
    return [int(each) for each in scan.batches["base_offset"]]


def find(
    log: Log,
    offset: int,
    max_bytes: int = 1,
    *,
    skip: bool = False,
    met: list[CorruptionError] | None = None,
    ends: SpanEnds | None = None,
) -> Found:
    noted = [] if met is None else met
    known = SpanEnds() if ends is None else ends
    everything = Isolation.READ_UNCOMMITTED
    return find_span(log.view, offset, max_bytes, everything, known, skip_damage=skip, report=noted.append)


def damage(directory: Path, batch: int, at: int = 100, length: int = 1, fill: bytes | None = None) -> None:
    """Breaks bytes of the batch-th batch of the log."""
    for path in sorted(directory.glob("*.log")):
        data = bytearray(path.read_bytes())
        array = np.frombuffer(bytes(data), dtype=np.uint8)
        rows = scan_batches(array, 0, len(array), 0).batches
        first = int(rows["base_offset"][0]) // EACH
        if first <= batch < first + len(rows):
            start = int(rows["position"][batch - first]) + at
            wrong = bytes(each ^ 0xFF for each in data[start : start + length]) if fill is None else fill * length
            data[start : start + length] = wrong
            path.write_bytes(data)
            return
    raise AssertionError("there is no such batch")


@pytest.mark.parametrize("offset", [0, 4, 5, 37, 150, BATCHES * EACH - 1])
def test_a_span_begins_with_the_batch_that_holds_the_offset(log: Log, offset: int) -> None:
    assert offsets_of(find(log, offset)) == [offset // EACH * EACH]


def test_a_span_holds_as_many_whole_batches_as_fit_and_ends_with_its_segment(log: Log) -> None:
    size = len(find(log, 0).data)
    assert offsets_of(find(log, 0, 3 * size + size // 2)) == [0, 5, 10]
    rest = offsets_of(find(log, 0, 1 << 30))
    assert rest[-1] + EACH == log.view.segments[1].base_offset
    assert offsets_of(find(log, rest[-1] + EACH)) == [rest[-1] + EACH]


def test_the_end_gives_nothing_and_outside_is_an_error(log: Log) -> None:
    assert find(log, log.log_end_offset).data == b""
    for outside in (-1, log.log_end_offset + 1):
        with pytest.raises(OffsetOutOfRangeError):
            find(log, outside)


@pytest.mark.parametrize("at", [100, 17, 25, 60], ids=["record", "crc", "last offset", "count"])
@pytest.mark.parametrize("skip", [False, True], ids=["fail", "skip"])
def test_a_batch_with_a_wrong_checksum_is_never_sent(directory: Path, at: int, skip: bool) -> None:
    damage(directory, 7, at)
    with opened_log(directory, writable=False) as log:
        assert offsets_of(find(log, 0, 1 << 20, skip=skip)) == [i * EACH for i in range(7)]
        met: list[CorruptionError] = []
        for offset in range(35, 40):
            if skip:
                assert offsets_of(find(log, offset, skip=True, met=met)) == [40]
                continue
            with pytest.raises(CorruptRecordError):
                find(log, offset, met=met)
        assert len(met) == EACH
        assert offsets_of(find(log, 40)) == [40]


@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
@pytest.mark.parametrize("skip", [False, True], ids=["fail", "skip"])
def test_what_follows_bytes_that_are_no_batch_is_found(directory: Path, fill: bytes, skip: bool) -> None:
    damage(directory, 7, 0, 1500, fill)
    with opened_log(directory, writable=False) as log:
        assert offsets_of(find(log, 30, 1 << 20, skip=skip)) == [30]
        if skip:
            assert offsets_of(find(log, 36, skip=True)) == [45]
        else:
            with pytest.raises(CorruptRecordError):
                find(log, 36)
        assert offsets_of(find(log, 46)) == [45]


def test_an_index_that_leads_astray_does_not_hide_a_batch(directory: Path) -> None:
    with opened_log(directory, writable=False) as log:
        first = log.view.segments[0]
        entries = bytearray(first.offset_index.path.read_bytes())
    for i in range(4, len(entries), 8):
        entries[i : i + 4] = (int.from_bytes(entries[i : i + 4], "big") + 5).to_bytes(4, "big")
    first.offset_index.path.write_bytes(entries)
    with opened_log(directory, writable=False) as log:
        for offset in range(first.offset_index.base_offset + 60):
            assert offsets_of(find(log, offset)) == [offset // EACH * EACH]


def test_who_reads_on_begins_where_the_last_span_ended(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, starts = SpanEnds(), []
    made = LogWalk.__init__

    def noting(walk: LogWalk, fs: object, path: Path, start: int = 0, *more: Any, **named: Any) -> None:
        starts.append(start)
        made(walk, fs, path, start, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(LogWalk, "__init__", noting)
    expected = begin = 0
    while expected < log.view.segments[1].base_offset:
        found = find(log, expected, 3000, ends=ends)
        assert isinstance(found.data, FileSpan) and found.data.position == begin
        begin += found.data.size
        expected = offsets_of(found)[-1] + EACH
    assert len(starts) > 3 and starts == sorted(set(starts))


def test_an_end_that_leads_astray_does_not_hide_a_batch(log: Log) -> None:
    size = log.view.segments[0].size
    for position in (7, len(find(log, 0).data), size - 1, size, size + 1, 1 << 40):
        ends = SpanEnds()
        ends.note(10, 0, position)
        assert offsets_of(find(log, 10, ends=ends)) == [10], position


def test_only_the_last_ends_are_remembered() -> None:
    ends = SpanEnds()
    for offset in range(1, 1000):
        ends.note(offset, 0, 3 * offset)
    assert (ends.find(999, 0), ends.find(999, 5), ends.find(1, 0)) == (2997, 0, 0)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux tells what is in its page cache")
def test_only_what_goes_on_after_a_span_and_is_cached_is_at_hand(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, asked = SpanEnds(), []
    assert not is_at_hand(log.view, 0, 3000, ends)
    offset = offsets_of(find(log, 0, 3000, ends=ends))[-1] + EACH

    def answering(result: int | OSError) -> None:
        def preadv(descriptor: int, buffers: list[bytearray], position: int, flags: int) -> int:
            asked.append((position, flags))
            if isinstance(result, OSError):
                raise result
            return result

        monkeypatch.setattr(os, "preadv", preadv)

    answering(1)
    assert is_at_hand(log.view, offset, 3000, ends)
    begin = ends.find(offset, 0)
    assert asked == [(begin, os.RWF_NOWAIT), (begin + 2999, os.RWF_NOWAIT)]
    for elsewhere in (-1, 0, offset + EACH, log.view.log_end_offset, log.view.log_end_offset + 1):
        assert not is_at_hand(log.view, elsewhere, 3000, ends), elsewhere
    for error in (BlockingIOError(11, "not cached"), OSError(95, "not supported")):
        answering(error)
        assert not is_at_hand(log.view, offset, 3000, ends)


class Handles(LocalFileSystem):
    """Knows how many of the files that it opened are open."""

    def __init__(self) -> None:
        self.made: list[LocalFile] = []

    def open(self, path: Path, mode: OpenMode) -> LocalFile:
        self.made.append(super().open(path, mode))
        return self.made[-1]

    def still_open(self) -> int:
        return sum(file.fileno() >= 0 for file in self.made)


def test_a_fetch_opens_its_file_once_and_leaves_none_open_that_nobody_gets(directory: Path) -> None:
    damage(directory, 7)
    fs = Handles()
    with opened_log(directory, fs=fs, writable=False) as log:
        find(log, 0)  # whose indexes are read
        before, made = fs.still_open(), len(fs.made)
        find(log, 30)
        assert (fs.still_open(), len(fs.made)) == (before + 1, made + 1)
        for offset, error in ((35, CorruptRecordError), (-1, OffsetOutOfRangeError)):
            with pytest.raises(error):
                find(log, offset)
        assert find(log, log.log_end_offset).data == b""
        assert fs.still_open() == before + 1


def test_offsets_lost_at_the_end_are_passed_by_an_empty_batch(directory: Path) -> None:
    end = BATCHES * EACH
    damage(directory, BATCHES - 1)
    with opened_log(directory, writable=False) as log:
        assert log.log_end_offset == end
        found = find(log, end - EACH, skip=True)
        assert offsets_of(found) == [end - EACH]
        rows = scan_batches(np.frombuffer(found.data, dtype=np.uint8), 0, len(found.data), 0).batches
        assert (int(rows["last_offset"][0]), int(rows["count"][0])) == (end - 1, 0)


def test_an_empty_batch_takes_at_most_what_its_delta_can_say() -> None:
    data = np.frombuffer(empty_batch(7, 7 + 2**40), dtype=np.uint8)
    scan = scan_batches(data, 0, len(data), 0)
    assert scan.consumed == len(data) and checksums_match(data, scan.batches, 0).all()
    assert int(scan.batches["last_offset"][0]) == 7 + 2**31 - 1
