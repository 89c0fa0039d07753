"""Batches in parts: the records, in rows and status, that they give when they are decoded whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from seglog.format import decoder, windows
from seglog.format.columns import Records, joined
from seglog.format.compression import compress
from seglog.format.decoder import decode_large, decode_records, scan_batches
from seglog.kernels import legacy
from seglog.kernels import records as status_of
from seglog.storage.local import LocalFileSystem
from tests.support.broken.hostile_logs import hostile_log
from tests.support.interpreted import both
from tests.support.naive import NaiveRecord, batch_v2, message

Decoded = tuple[list[tuple], dict[int, int]]
HOSTILE = 4000


def summary(parts: Iterator[Records]) -> Decoded:
    """What every record is, and the status of every batch by its number; checks what parts say of each other."""
    records, status = [], {}
    expected = 0
    for part in parts:
        if part.rows_before or part.rows_after:
            assert len(part.batches) == 1 and len(part.rows)
            assert part.rows_before in (0, expected)
            expected = part.rows_before + len(part.rows)
        for i in range(len(part)):
            record, row = part.record(i), part.rows[i]
            numbers = tuple(int(row[name]) for name in ("size", "header_count"))
            batch = part.first_batch + int(row["batch"])
            headers = tuple((header.key, header.value) for header in record.headers)
            records.append((batch, record.offset, record.timestamp, record.key, record.value, headers, *numbers))
        for i, code in enumerate(part.status.tolist()):
            assert status.setdefault(part.first_batch + i, code) == code, "every part has the status of the end"
    return records, status


def scanned(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    array = np.frombuffer(data, dtype=np.uint8)
    return array, scan_batches(array, 0, len(array), 0).batches


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 60)
    monkeypatch.setattr(windows, "WINDOW_ROWS", 3)


def whole_and_in_parts(numbers: range) -> Iterator[tuple[int, Decoded, Decoded]]:
    for number in numbers:
        array, batches = scanned(hostile_log(number))
        whole = summary(decode_records(array, batches, 0))
        yield number, whole, summary(decode_records(array, batches, 0, arena_bytes=1))


@pytest.mark.slow
def test_hostile_batches_give_the_same_in_parts_and_at_once(small_windows: None) -> None:
    for number, whole, parts in whole_and_in_parts(range(HOSTILE)):
        assert parts == whole, number


@pytest.mark.slow
def test_hostile_uncompressed_batches_give_the_same_in_parts_and_at_once(
    small_windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = [scanned(hostile_log(number)) for number in range(HOSTILE)]
    whole = [summary(decode_records(array, batches, 0)) for array, batches in logs]
    monkeypatch.setattr(decoder, "ROWS_AT_ONCE", 2)
    for number, (array, batches) in enumerate(logs):
        assert summary(decode_records(array, batches, 0)) == whole[number], number


@pytest.mark.slow
def test_hostile_batches_give_the_same_from_their_file_and_from_memory(small_windows: None, tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(0, HOSTILE, 7):
        data = hostile_log(number)
        path.write_bytes(data)
        array, batches = scanned(data)
        whole = summary(decode_records(array, batches, 0))
        found: Decoded = ([], {})
        with LocalFileSystem().open(path, "r") as file:
            for i in range(len(batches)):
                records, status = summary(decode_large(file, batches[i : i + 1]))
                found[0].extend((i, *record[1:]) for record in records)
                found[1][i] = status[0]
        assert found == whole, number


def plain(count: int, value: bytes = b"v" * 30) -> bytes:
    return b"".join(NaiveRecord(i, i, b"k%d" % i, value).encode() for i in range(count))


def test_a_window_holds_a_record_that_is_larger_than_windows_are(small_windows: None) -> None:
    records = [NaiveRecord(i, 0, b"k", bytes([i]) * size) for i, size in enumerate((3, 700, 61, 0, 2000))]
    payload = compress(3, b"".join(record.encode() for record in records))
    array, batches = scanned(batch_v2(0, records, attributes=3, payload=payload))
    parts = list(decode_records(array, batches, 0, arena_bytes=1))
    assert [part.value(i) for part in parts for i in range(len(part))] == [record.value for record in records]
    assert len(parts) > 3 and max(len(part.arena) for part in parts) < 2100


def test_parts_say_how_many_records_come_before_and_after(small_windows: None) -> None:
    array, batches = scanned(
        batch_v2(0, [NaiveRecord(i, 0, b"", b"") for i in range(20)], attributes=1, payload=compress(1, plain(20)))
    )
    parts = list(decode_records(array, batches, 0, arena_bytes=1))
    assert [part.rows_before for part in parts] == list(np.cumsum([0, *[len(part) for part in parts[:-1]]]))
    assert all(part.rows_before + len(part) + part.rows_after == 20 for part in parts)


def test_parts_joined_are_the_whole(small_windows: None) -> None:
    lists = [[NaiveRecord(i, 0, b"k%d" % i, b"v" * i) for i in range(count)] for count in (2, 20, 1, 9)]
    log = b"".join(
        batch_v2(100 * i, records, attributes=codec, payload=compress(codec, b"".join(r.encode() for r in records)))
        for i, (records, codec) in enumerate(zip(lists, (4, 1, 4, 0), strict=True))
    )
    array, batches = scanned(log)
    parts = list(decode_records(array, batches, 0, arena_bytes=1))
    whole = joined(parts)
    assert len(parts) > 5 and len(whole.batches) == 4
    assert summary(iter([whole])) == summary(decode_records(array, batches, 0))


def test_a_record_beyond_the_limit_ends_the_batch_and_those_before_it_are_read(
    small_windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "RECORD_LIMIT", 500)
    records = [NaiveRecord(i, 0, b"k", b"v" * size) for i, size in enumerate((30, 400, 501, 3))]
    body = b"".join(record.encode() for record in records)
    array, batches = scanned(batch_v2(0, records, attributes=4, payload=compress(4, body)))
    found, status = summary(decode_records(array, batches, 0, arena_bytes=1))
    assert status == {0: status_of.RECORD_TOO_LARGE}
    assert [record[1] for record in found] == [0, 1]


def test_a_length_that_no_record_follows_is_a_wrong_length_however_large(small_windows: None) -> None:
    lying = plain(2) + b"\xfe\xff\xff\xff\x0f" + bytes(9)
    payload = compress(4, lying)
    array, batches = scanned(
        batch_v2(0, [NaiveRecord(i, 0, b"", b"") for i in range(3)], attributes=4, payload=payload)
    )
    found, status = summary(decode_records(array, batches, 0, arena_bytes=1))
    assert (len(found), status) == (2, {0: status_of.LENGTH_INVALID})


def test_a_batch_that_expands_beyond_its_limit_has_no_records(small_windows: None) -> None:
    payload = compress(1, plain(500))
    array, batches = scanned(
        batch_v2(0, [NaiveRecord(i, 0, b"", b"") for i in range(500)], attributes=1, payload=payload)
    )
    found = summary(decode_records(array, batches, 0, arena_bytes=1, limit=2000))
    assert found == ([], {0: status_of.DECOMPRESSION_TOO_LARGE})


def test_a_wrapper_that_cannot_be_read_to_its_end_gives_no_message_with_a_wrong_offset() -> None:
    run = b"".join(message(i, 1, b"k", b"v", timestamp=5) for i in range(3)) + message(3, 1, b"k", b"v", attributes=1)
    array, batches = scanned(message(103, 1, None, compress(1, run, magic=1), attributes=1))
    for arena_bytes in (1, 1 << 20):
        found = summary(decode_records(array, batches, 0, arena_bytes=arena_bytes))
        assert found == ([], {0: status_of.COMPRESSED_INSIDE})


def test_offsets_of_a_wrapper_wrap_alike_in_parts_and_whole(small_windows: None) -> None:
    run = b"".join(message(offset, 1, b"k", b"v", timestamp=5) for offset in (3, 4, 5, 6, -(1 << 63)))
    array, batches = scanned(message(103, 1, None, compress(1, run, magic=1), attributes=1))
    whole = summary(decode_records(array, batches, 0))
    assert [record[1] for record in whole[0]][-1] == 103
    assert summary(decode_records(array, batches, 0, arena_bytes=1)) == whole


Cut = Callable[[np.ndarray, int, int, int], tuple[int, int, int]]


@pytest.mark.parametrize("cut", both(status_of, "whole_records"))
def test_records_are_cut_by_their_lengths(cut: Cut) -> None:
    one, two = NaiveRecord(0, 0, b"k", b"v").encode(), NaiveRecord(1, 0, b"k", b"v" * 100).encode()
    data = np.frombuffer(b"??" + one + two + b"??", dtype=np.uint8)
    after_one, end = 2 + len(one), len(data) - 2
    assert tuple(map(int, cut(data, 2, end, 9))) == (end, 2, 0)
    assert tuple(map(int, cut(data, 2, end, 1))) == (after_one, 1, 0)
    assert tuple(map(int, cut(data, 2, end - 1, 9))) == (after_one, 1, len(two))
    assert tuple(map(int, cut(data, 2, after_one + 1, 9))) == (after_one, 1, 2)
    assert tuple(map(int, cut(data, 2, after_one, 9))) == (after_one, 1, 0)
    assert tuple(map(int, cut(np.array([2], dtype=np.uint8), 0, 1, 9))) == (0, 0, -1)
    assert tuple(map(int, cut(np.full(6, 255, dtype=np.uint8), 0, 6, 9))) == (0, 0, -1)


@pytest.mark.parametrize("cut", both(legacy, "whole_entries"))
def test_messages_are_cut_by_their_sizes(cut: Cut) -> None:
    one, two = message(0, 1, b"k", b"v"), message(1, 0, b"k", b"v" * 50)
    data = np.frombuffer(one + two, dtype=np.uint8)
    assert tuple(map(int, cut(data, 0, len(data), 9))) == (len(data), 2, 0)
    assert tuple(map(int, cut(data, 0, len(data) - 1, 9))) == (len(one), 1, len(two))
    assert tuple(map(int, cut(data, 0, len(one) + 25, 9))) == (len(one), 1, 0)
    broken = data.copy()
    broken[8:12] = 0
    assert tuple(map(int, cut(broken, 0, len(data), 9))) == (0, 0, -1)
