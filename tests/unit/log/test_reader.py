"""Reading by offset: spans, bounds, isolation, and readers beside a writer."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError, OffsetOutOfRangeError, RefusedError
from seglog.log.append import ProducerIdentity
from seglog.log.log import Log
from seglog.model import Compression, Isolation, Record
from tests.support.open_descriptors import needs_descriptors, open_below
from tests.support.open_logs import START_MS, opened_log


def filled(directory: Path, count: int = 60, **config: object) -> Log:
    log = opened_log(directory, index_interval_bytes=100, **config)
    records = [Record(b"value %d" % i, timestamp=START_MS + i) for i in range(count)]
    log.append(records, batch_records=4)
    return log


def test_a_read_starts_at_the_batch_and_gives_the_records_from_the_offset(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0") as log:
        fetched = log.read(6, 1 << 20)
        assert int(fetched.batches["base_offset"][0]) == 4
        assert [record.offset for record in fetched.records()][:3] == [6, 7, 8]
        assert fetched.next_offset == 60


def test_the_first_batch_is_returned_whole_unless_min_one_message_is_false(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0") as log:
        fetched = log.read(6, 10)
        assert len(fetched.batches) == 1
        assert not fetched.first_batch_incomplete
        cut = log.read(6, 10, min_one_message=False)
        assert (cut.size, len(cut.batches), cut.first_batch_incomplete, cut.next_offset) == (10, 0, True, 6)
        assert log.read(6, 0, min_one_message=False).size == 0


def test_out_of_range_names_the_valid_range(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0") as log:
        log.increment_log_start_offset(10)
        for offset in (-1, 9, 61):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                log.read(offset, 100)
            assert (caught.value.log_start_offset, caught.value.log_end_offset) == (10, 60)
        assert log.read(60, 100).size == 0
        assert next(log.records()).offset == 10


def test_a_reader_asks_for_no_less_than_nothing(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"v", timestamp=START_MS + i) for i in range(3)], batch_records=1)
        assert log.read(0, 0).size > 0, "the first batch whole"
        assert log.read(0, 0, min_one_message=False).size == 0
        assert [record.offset for record in log.records(max_bytes=0)] == [0, 1, 2]
        for read in (log.read, log.records, log.columns):
            with pytest.raises(ValueError, match="max_bytes: -1 is not from 0"):
                read(0, max_bytes=-1)  # type: ignore[operator]


@needs_descriptors
def test_a_closed_log_reads_nothing_and_opens_no_file_again(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0") as log:
        log.append([Record(b"v", timestamp=START_MS + i) for i in range(3)], batch_records=1)
        begun = log.records(max_bytes=1)
        next(begun)
        columns = next(log.columns())
    for read in (
        lambda: log.read(0, 100),
        lambda: next(log.records()),
        lambda: list(begun),
        lambda: log.offset_for_timestamp(START_MS),
    ):
        with pytest.raises(RefusedError, match="t-0: the log is closed"):
            read()
    assert (columns.record(0).value, log.log_end_offset) == (b"v", 3)
    assert open_below(tmp_path) == []


def test_the_high_watermark_bounds_readers_but_not_replicas(tmp_path: Path) -> None:
    filled(tmp_path / "t-0", segment_bytes=700).close()
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.update_high_watermark(22) == 22
        # the batch of offsets 20 to 23 ends after the watermark, so it is not shown
        assert [record.offset for record in log.records()] == list(range(20))
        assert log.read(22, 100).size == 0
        assert log.read(30, 100).size == 0
        assert log.read(30, 100, None).size > 0
        assert len(list(log.records(isolation=None))) == 60


def test_read_committed_skips_aborted_batches_wherever_the_read_begins(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", segment_bytes=400, index_interval_bytes=0) as log:
        good, bad = (ProducerIdentity(i, 0, transactional=True) for i in (1, 2))
        for _ in range(6):
            for producer in (good, bad):
                log.append([Record(b"%d" % producer.producer_id, timestamp=1)] * 2, producer=producer)
            log.append_end_txn_marker(good, commit=True)
            log.append_end_txn_marker(bad, commit=False)
        log.append([Record(b"open", timestamp=1)], producer=good)
        committed = [r.offset for r in log.records(isolation=Isolation.READ_COMMITTED)]
        assert committed == [6 * i + j for i in range(6) for j in (0, 1)]
        for offset in range(log.log_end_offset):
            found = [r.offset for r in log.records(offset, Isolation.READ_COMMITTED, max_bytes=150)]
            assert found == [o for o in committed if o >= offset]


def test_a_wrong_checksum_is_an_error_with_place_and_offsets(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").close()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    with opened_log(tmp_path / "t-0", writable=False) as log:
        batch = log.read(8, 1).batches[0]
        data[int(batch["position"]) + 70] ^= 1
        path.write_bytes(data)
        assert len(list(log.read(0, 1).records())) == 4
        with pytest.raises(CorruptRecordError) as caught:
            list(log.read(8, 1).records())
        assert (caught.value.position, caught.value.first_offset) == (int(batch["position"]), 8)


def test_a_result_stays_readable_when_its_segment_is_deleted(tmp_path: Path) -> None:
    with filled(tmp_path / "t-0", segment_bytes=700) as log:
        fetched = log.read(0, 1 << 20)
        view = log.view
        log.retire_oldest(log.segments.snapshot()[:2], ["for the test"] * 2)
        assert log.log_start_offset == log.segments.first.base_offset > 0
        assert [record.offset for record in fetched.records()][:4] == [0, 1, 2, 3]
        assert view.log_start_offset == 0
        with pytest.raises(OffsetOutOfRangeError):
            log.read(0, 100)
        everything = log.segments.snapshot()
        log.retire_oldest(everything, ["all of them"] * len(everything))
        assert (log.log_start_offset, log.log_end_offset) == (60, 60)
        assert log.append([Record(b"on", timestamp=1)]).first_offset == 60


def test_concurrent_readers_see_complete_appends_in_order(tmp_path: Path) -> None:
    problems: list[str] = []
    with opened_log(tmp_path / "t-0", segment_bytes=5000, index_interval_bytes=50) as log:
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                view_end = log.log_end_offset
                offsets = [record.offset for record in log.records(max(0, view_end - 50), max_bytes=500)]
                if offsets != list(range(offsets[0], offsets[-1] + 1) if offsets else []):
                    problems.append(f"{offsets}")
                if view_end and (not offsets or offsets[-1] < view_end - 1):
                    problems.append(f"{view_end} was the log end, but {offsets[-1:]} was the last one read")
                log.offset_for_timestamp(START_MS + view_end // 2)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for i in range(150):
            records = [Record(b"v" * 20, timestamp=START_MS + i) for _ in range(7)]
            log.append(records, batch_records=3, codec=Compression(i % 2))
        done.set()
        for reader in readers:
            reader.join()
    assert problems == []


def positions(path: Path) -> list[int]:
    found, data = [0], path.read_bytes()
    while found[-1] < len(data):
        found.append(found[-1] + 12 + int.from_bytes(data[found[-1] + 8 : found[-1] + 12], "big"))
    return found[:-1]


def offsets_until(reading: Iterator[Record]) -> tuple[list[int], CorruptRecordError]:
    """The offsets that were read, and the error that ended it."""
    offsets: list[int] = []
    with pytest.raises(CorruptRecordError) as caught:
        for record in reading:
            offsets.append(record.offset)
    return offsets, caught.value


@pytest.mark.parametrize("number", [0, 7, 14])
@pytest.mark.parametrize("size", [0, -1, 2**31 - 1])
def test_a_log_is_read_up_to_the_batch_whose_size_is_wrong_and_no_further(
    tmp_path: Path, number: int, size: int
) -> None:
    filled(tmp_path / "t-0").close()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data, places = bytearray(path.read_bytes()), positions(path)
    struct.pack_into(">i", data, places[number] + 8, size)
    path.write_bytes(data)
    with opened_log(tmp_path / "t-0", writable=False) as log:
        if number == 14 and size > 0:  # as a write that was cut short leaves it
            assert [record.offset for record in log.records()] == list(range(56))
            assert log.unreadable_end is not None
            return
        offsets, error = offsets_until(log.records())
        assert offsets == list(range(4 * number))
        assert (error.path, error.position) == (path, places[number])
        assert (error.first_offset, error.last_offset) == (4 * number, 4 * number + 3 if number < 14 else None)


def test_an_offset_that_damage_may_hold_is_not_looked_for_after_it(tmp_path: Path) -> None:
    filled(tmp_path / "t-0", segment_bytes=700).close()
    path = sorted((tmp_path / "t-0").glob("*.log"))[1]
    first, places = int(path.stem), positions(path)
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, places[1] + 8, 0)
    path.write_bytes(data)
    path.with_suffix(".index").write_bytes(b"")
    with opened_log(tmp_path / "t-0", writable=False) as log:
        for offset in (first + 4, first + 7):
            with pytest.raises(CorruptRecordError, match=f"position {places[1]}: .*offsets {first + 4} to"):
                log.read(offset, 100)
        assert [record.offset for record in log.records(first + 8)] == list(range(first + 8, 60))
        with pytest.raises(CorruptRecordError, match=f"{path.name}: position {places[1]}: "):
            log.offset_for_timestamp(START_MS + first + 8)


def test_an_index_that_leads_nowhere_hides_no_record(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").close()
    index = tmp_path / "t-0" / "00000000000000000000.index"
    index.write_bytes(struct.pack(">ii", 3, 45) + struct.pack(">ii", 40, 50))
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert [record.offset for record in log.records(42)] == list(range(42, 60))


def test_the_records_before_a_wrong_checksum_are_read(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").close()
    path = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[positions(path)[9] + 70] ^= 1
    path.write_bytes(data)
    with opened_log(tmp_path / "t-0", writable=False) as log:
        offsets, error = offsets_until(log.records())
    assert offsets == list(range(36))
    assert (error.position, error.first_offset, error.last_offset) == (positions(path)[9], 36, 39)
