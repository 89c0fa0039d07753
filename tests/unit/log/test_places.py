"""Where a search begins and ends: an index is believed where a good batch lies, whoever reads."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import seglog
from seglog.errors import CorruptRecordError
from seglog.log.segment import LogSegment
from seglog.model import Isolation
from seglog.scan.listing import SegmentFiles
from seglog.scan.log_walk import WalkedEntries
from seglog.scan.selection import Selection
from seglog.storage.filesystem import PassingFile
from seglog.verification.stretches import Reading, stretch_of
from seglog_ask.spark.read_options import parse_read_options
from seglog_ask.table.engines.arrow import split_batches
from seglog_ask.table.plan.discovery import find_partitions
from seglog_ask.table.plan.schema import default_projection
from seglog_ask.table.plan.splits import offset_for_timestamp, plan_splits
from seglog_rescue.serve.spans import FileSpan, SpanEnds, find_span
from tests.support.log_files import FS, batch, write_log

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

EACH = 10
INDEX = f"{0:020d}.index"


def forged_header(base_offset: int, last_offset: int, size: int) -> bytes:
    """The header of a batch of `size` bytes, with a wrong checksum."""
    header = bytearray(batch(base_offset)[:61])
    header[8:12] = struct.pack(">i", size - 12)
    header[23:27] = struct.pack(">i", last_offset - base_offset)
    return bytes(header)


@pytest.fixture
def astray(tmp_path: Path) -> Path:
    """A whole log of three batches, and an index that leads into a record of the first one. There lies what looks like
    the header of a batch up to the end of the file, with all offsets.
    """
    rest = [batch(i * EACH, EACH, value=b"v" * 400) for i in (1, 2)]
    plain = batch(0, EACH, value=bytes(61))
    tail = len(plain) - plain.index(bytes(61)) + sum(map(len, rest))
    first = batch(0, EACH, value=forged_header(0, 99, tail))
    path = write_log(tmp_path, [first, *rest]).parent
    (path / INDEX).write_bytes(struct.pack(">ii", 5, first.index(forged_header(0, 99, tail))))
    return path


def by_reader(path: Path, offset: int) -> int | None:
    with seglog.open_log(path, writable=False) as log:
        return next(log.records(offset)).offset


def by_serve(path: Path, offset: int) -> int:
    with seglog.open_log(path, writable=False) as log:
        span = find_span(
            log.view, offset, 1, Isolation.READ_UNCOMMITTED, SpanEnds(), skip_damage=True, report=_raise
        ).data
        assert isinstance(span, FileSpan)
        with span.file as file:
            base_offset = int.from_bytes(file.read_at(span.position, 8), "big")
    return base_offset + offset % EACH


def by_verify(path: Path, offset: int) -> int:
    log = path / f"{0:020d}.log"
    files = SegmentFiles(0, log, log.stat().st_size, 0, path / INDEX)
    steps = stretch_of(FS, files, None, Reading(Selection(offset, offset + 1))).walk(FS, log, fresh=True)
    (step,) = steps
    assert isinstance(step, WalkedEntries) and step.valid.all()
    return int(step.batches["base_offset"][step.batches["last_offset"] >= offset][0]) + offset % EACH


def by_table(path: Path, offset: int) -> int:
    options = parse_read_options({"path": str(path), "startingOffsets": f'{{"t":{{"0":{offset}}}}}'})
    (split,) = plan_splits(FS, options)
    rows = next(split_batches(FS, split, default_projection(options.view, options.columns, False), options))
    first: int = rows.to_pydict()["offset"][0]
    return first


def _raise(error: Exception) -> None:
    raise error


class Counting(PassingFile):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read_at(self, position: int, size: int) -> bytes:
        self.bytes_read += size
        return super().read_at(position, size)

    def read_into(self, position: int, buffer: WriteableBuffer) -> int:
        self.bytes_read += memoryview(buffer).nbytes
        return super().read_into(position, buffer)


@pytest.mark.parametrize("read", [by_reader, by_serve, by_verify, by_table])
def test_an_index_that_leads_to_a_header_within_a_record_misleads_nobody(
    read: Callable[[Path, int], int | None], astray: Path
) -> None:
    for offset in (5, 9, 10, 17, 25):
        assert read(astray, offset) == offset


def test_damage_at_the_nearest_entry_does_not_send_the_search_to_the_start(tmp_path: Path) -> None:
    batches = [batch(i * EACH, EACH, value=b"v" * 100) for i in range(20)]
    log = write_log(tmp_path, batches)
    starts = [sum(map(len, batches[:i])) for i in range(20)]
    log.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", i * EACH + 9, starts[i]) for i in range(1, 20)))
    data = bytearray(log.read_bytes())
    for damaged in (14, 15):
        data[starts[damaged] + 100] ^= 0xFF
    log.write_bytes(data)
    assert LogSegment(FS, log.parent, 0).indexed_position(159) == starts[12], "entries 15, 14, 12"


def test_no_more_is_read_to_believe_an_entry_than_the_walk_would_read(tmp_path: Path) -> None:
    """A header may claim most of a file, and each search would read it."""
    size = 40 << 20
    log = write_log(tmp_path, [batch(0), forged_header(1, 5, size)])
    os.truncate(log, len(batch(0)) + size)
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 1, len(batch(0))))
    with FS.open(log, "r") as opened:
        file = Counting(opened)
        assert LogSegment(FS, log.parent, 0).indexed_position(5, file=file) == 0
    assert file.bytes_read < 1 << 20


def stamped(base_offset: int) -> bytes:
    """Ten records, at 100 ms for each offset before the batch."""
    return batch(base_offset, EACH, timestamp=1000 + 100 * base_offset)


def write_times(log: Path, *entries: tuple[int, int], zeros: int = 0) -> None:
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    log.with_suffix(".timeindex").write_bytes(data + bytes(zeros))


def indexed_log(path: Path) -> Path:
    """Three batches of ten records, with an entry of the offset index for the second and the third one."""
    batches = [stamped(0), stamped(EACH), stamped(2 * EACH)]
    log = write_log(path, batches)
    at = len(batches[0]), len(batches[0]) + len(batches[1])
    log.with_suffix(".index").write_bytes(struct.pack(">iiii", 2 * EACH - 1, at[0], 3 * EACH - 1, at[1]))
    return log


def time_by_reader(path: Path, timestamp: int) -> int:
    with seglog.open_log(path, writable=False) as log:
        found = log.offset_for_timestamp(timestamp)
    assert found is not None
    return found.offset


def time_by_verify(path: Path, timestamp: int) -> int:
    (log,) = path.glob("*.log")
    files = SegmentFiles(0, log, log.stat().st_size, 0, log.with_suffix(".index"), log.with_suffix(".timeindex"))
    walk = stretch_of(FS, files, None, Reading(Selection(first_timestamp=timestamp))).walk(FS, log, fresh=True)
    batches = np.concatenate([step.batches for step in walk if isinstance(step, WalkedEntries)])
    return int(batches["base_offset"][batches["max_timestamp"] >= timestamp][0])


def time_by_table(path: Path, timestamp: int, **given: str) -> int | None:
    options = parse_read_options({"path": str(path), **given})
    (log,) = find_partitions(FS, options)
    skips = options.on_corrupt == "skip"
    return offset_for_timestamp(log, timestamp, skip_damage=skips, check=options.verify_crc)


@pytest.mark.parametrize("find", [time_by_reader, time_by_verify, time_by_table])
def test_a_time_index_that_leads_too_far_hides_no_record(
    find: Callable[[Path, int], int | None], tmp_path: Path
) -> None:
    log = indexed_log(tmp_path)
    for first in ((1500, 29), (1500, 25), (1500, 99), (3009, 29)):
        write_times(log, first, (3010, 29))
        assert find(log.parent, 2000) == EACH


@pytest.mark.parametrize("find", [time_by_reader, time_by_verify, time_by_table])
def test_a_time_index_that_is_right_spares_what_lies_before(
    find: Callable[[Path, int], int | None], tmp_path: Path
) -> None:
    log = indexed_log(tmp_path)
    write_times(log, (1009, 9), (2009, 19), (3009, 29))
    with log.open("r+b") as file:
        file.write(bytes(len(stamped(0))))
    assert find(log.parent, 3000) == 2 * EACH


def test_a_time_index_that_nobody_closed_does_not_make_its_segment_older(tmp_path: Path) -> None:
    """After a power cut zeros may follow the entries, and the newest entry was never written."""
    log = write_log(tmp_path, [stamped(0), stamped(EACH)])
    write_log(tmp_path, [stamped(2 * EACH)], base_offset=2 * EACH)
    write_times(log, (1009, 9), zeros=12 * 100)
    assert time_by_table(log.parent, 2000) == EACH
    write_times(log, (1009, 9))
    assert time_by_table(log.parent, 2000) == 2 * EACH, "as Kafka: a closed index ends with the largest timestamp"


def test_damage_before_the_record_of_a_time_is_an_error_or_passed_over(tmp_path: Path) -> None:
    first, second, third = stamped(0), stamped(EACH), stamped(2 * EACH)
    log = write_log(tmp_path, [first, bytes(len(second)), third])
    with pytest.raises(CorruptRecordError) as raised:
        time_by_table(log.parent, 2000)
    assert raised.value.position == len(first)
    assert time_by_table(log.parent, 2000, onCorrupt="skip") == 2 * EACH
    log.write_bytes(first + second[:-1] + b"?" + third)
    with pytest.raises(CorruptRecordError):
        time_by_table(log.parent, 2000)
    assert time_by_table(log.parent, 2000, onCorrupt="skip") == 2 * EACH
    assert time_by_table(log.parent, 2000, verifyCrc="false") == EACH
    log.write_bytes(first + second + third[:-1])
    assert time_by_table(log.parent, 2000) == EACH
    assert time_by_table(log.parent, 3000) is None, "a torn end is no damage"
