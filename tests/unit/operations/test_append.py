"""A stream into a log: batches of the size asked for, and acknowledgement only after a flush."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import AppendCutShortError, InputError, RecordTooLargeError
from seglog.format.builder import columns_of
from seglog.format.columns import Records
from seglog.model import Compression, Record, TopicPartition
from seglog.operations.append import Appended, Ingest
from tests.support.faulty_filesystem import Faults, FaultyFileSystem
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import opened_log


@dataclass
class Info:
    last_offset: int
    flushed: bool


@dataclass
class RecordingLog:
    """Remembers the values of each append; flushes itself as `flush.messages` asks."""

    config: LogConfig = field(default_factory=LogConfig)
    topic_partition: TopicPartition = field(default_factory=lambda: TopicPartition("t", 0))
    clock: ManualClock = field(default_factory=ManualClock)
    log_end_offset: int = 100
    flushed_to: int = 100
    flushed_ms: int = 0
    appends: list[list[bytes | None]] = field(default_factory=list)

    def append(
        self,
        records: Records,
        *,
        codec: Compression | None = None,
        batch_records: int | None = None,
        batch_bytes: int | None = None,
    ) -> Info:
        del codec, batch_records, batch_bytes
        self.appends.append([record.value for record in records])
        self.log_end_offset += len(records)
        if self.log_end_offset - self.flushed_to >= self.config.flush_messages:
            self.flush()
        return Info(self.log_end_offset - 1, self.flushed_to == self.log_end_offset)

    def flush(self) -> None:
        self.flushed_to, self.flushed_ms = self.log_end_offset, self.clock.now_ms()

    def flush_if_due(self, now_ms: int) -> bool:
        if self.log_end_offset > self.flushed_to and now_ms - self.flushed_ms >= self.config.flush_ms:
            self.flush()
        return self.flushed_to == self.log_end_offset


def piece(*values: str) -> Records:
    return columns_of([Record(value.encode(), headers=()) for value in values])


def offsets(found: list[Appended]) -> list[tuple[int, int]]:
    return [(one.first_offset, one.last_offset) for one in found]


def test_without_a_flush_policy_the_end_of_the_stream_is_acknowledged_once() -> None:
    log = RecordingLog()
    assert offsets(list(Ingest(log, [piece("a"), piece("b", "c")]))) == [(100, 102)]
    assert log.flushed_to == 103


def test_an_empty_stream_acknowledges_nothing() -> None:
    assert list(Ingest(RecordingLog(), [piece()])) == []


def test_flush_messages_bounds_each_append_and_acknowledges_it() -> None:
    log = RecordingLog(LogConfig(flush_messages=2))
    found = list(Ingest(log, [piece("a", "b", "c", "d", "e")]))
    assert offsets(found) == [(100, 101), (102, 103), (104, 104)]
    assert [len(values) for values in log.appends] == [2, 2, 1]


def test_batches_are_filled_across_pieces_and_records_stay_in_order() -> None:
    log = RecordingLog()
    list(Ingest(log, [piece("a"), piece("b", "c", "d"), piece("e")], batch_records=3))
    assert log.appends == [[b"a", b"b", b"c"], [b"d", b"e"]]


def test_a_pause_appends_what_was_held_back() -> None:
    log = RecordingLog()
    list(Ingest(log, [piece("a"), None, piece("b")], batch_records=3))
    assert log.appends == [[b"a"], [b"b"]]


def test_flush_ms_acknowledges_during_a_pause() -> None:
    log = RecordingLog(LogConfig(flush_ms=500))

    def pieces() -> Iterator[Records | None]:
        yield piece("a")
        log.clock.advance(499)
        yield None
        log.clock.advance(1)
        yield None
        yield piece("b")

    assert offsets(list(Ingest(log, pieces()))) == [(100, 100), (101, 101)]


def test_what_came_before_a_bad_line_is_acknowledged_before_the_error() -> None:
    log = RecordingLog()

    def pieces() -> Iterator[Records | None]:
        yield piece("a")
        raise InputError("input", 2, "bad")

    ingest = iter(Ingest(log, pieces()))
    assert next(ingest).last_offset == 100
    assert log.flushed_to == 101
    with pytest.raises(InputError):
        next(ingest)


def test_what_came_before_a_record_that_the_log_refuses_is_acknowledged_before_the_error(tmp_path: Path) -> None:
    with opened_log(tmp_path / "t-0", max_message_bytes=1000) as log:
        ingest = iter(Ingest(log, [piece("a", "b"), piece("x" * 1000), piece("c")]))
        assert offsets([next(ingest)]) == [(0, 1)]
        assert log.recovery_point == 2
        with pytest.raises(RecordTooLargeError):
            next(ingest)
    with opened_log(tmp_path / "t-0", writable=False) as log:
        assert log.log_end_offset == 2


@pytest.mark.parametrize("kind", ["full", "error"])
@pytest.mark.parametrize("flush_messages", [2, 1000])
def test_after_an_error_of_the_disk_the_records_that_the_log_holds_are_named(
    tmp_path: Path, kind: str, flush_messages: int
) -> None:
    """At each call that changes something: recovery finds the records that the error counted, and no torn batch."""
    pieces = [piece(f"{n}a", f"{n}b") for n in range(5)]
    at, named = 0, set[int]()
    while True:
        faults = Faults(None, kind)
        directory = tmp_path / f"{kind}-{at}" / "t-0"
        log = opened_log(directory, fs=FaultyFileSystem(faults), flush_messages=flush_messages)
        faults.at = faults.calls + at
        acknowledged: list[Appended] = []
        try:
            for one in Ingest(log, pieces):
                acknowledged.append(one)
        except AppendCutShortError as error:
            first, end, flushed = error.first_offset, error.last_offset + 1, error.flushed_end
            assert (first, flushed) == (0, acknowledged[-1].last_offset + 1 if acknowledged else 0)
            assert f"the first {end} records of the input are in the log, offsets 0 to {end - 1}" in str(error)
            named.add(end)
        except OSError:
            end = 0
        else:
            break
        log_file = directory / "00000000000000000000.log"
        before = log_file.stat().st_size
        with opened_log(directory, clean=False) as recovered:
            assert recovered.log_end_offset == end
        assert log_file.stat().st_size == before
        at += 1
    assert named >= {2, 4, 6, 8}
