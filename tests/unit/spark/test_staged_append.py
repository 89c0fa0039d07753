"""Settling an append that was cut short: what is cut, what is completed, and what is refused because nobody can tell.

That it holds at every moment: tests/crash/test_staged_append.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.configuration.keys import LogConfig
from seglog.errors import RefusedError
from seglog.log.directory import LogDirectory
from seglog.model import Record, TopicPartition
from seglog.storage.local import LocalFileSystem
from seglog_ask.spark import staged_append
from seglog_ask.spark.staged_append import StagedAppend
from seglog_ask.spark.staged_journal import StreamBatch
from seglog_ask.spark.staged_settling import discard_staged
from tests.support.manual_clock import ManualClock
from tests.support.open_logs import START_MS
from tests.support.staged_rows import stage

FS = LocalFileSystem()
BATCH = StreamBatch("q", 1)
ROWS = [b"row %d" % n for n in range(6)]


class Killed(BaseException):
    """The driver is gone."""


class Place:
    """A log directory with the partition t-0, and a staging directory beside it."""

    def __init__(self, home: Path) -> None:
        self.logs, self.staging = home / "logs", home / ".seglog-write-logs-x"
        self.logs.mkdir()
        (self.logs / "meta.properties").write_text("version=1\n")
        self.append(b"first")

    def opened(self, *, settle: bool = True) -> LogDirectory:
        return LogDirectory.open(
            self.logs, fs=FS, clock=ManualClock(START_MS), config_of=lambda _: LogConfig(), writable=True, settle=settle
        )

    def append(self, *values: bytes, settle: bool = True) -> None:
        with self.opened(settle=settle) as directory:
            log = directory.log(TopicPartition("t", 0), create=True)
            log.append([Record(value, b"k") for value in values])

    def write(self, stream: StreamBatch | None = None, *, first: int | None = None) -> int:
        files = [stage(FS, self.staging, "t-0", ROWS, first=first)]
        try:
            append = StagedAppend(FS, self.logs, ManualClock(START_MS), lambda _: LogConfig())
            return append.run(self.staging, files, stream)
        finally:
            discard_staged(FS, self.logs, self.staging)

    def cut_short(self, monkeypatch: pytest.MonkeyPatch, stream: StreamBatch | None, first: int | None = None) -> None:
        """A write whose driver is killed when half of it is in the log."""

        def half(log, staging, placement) -> None:
            data = (staging / placement.files[0].name).read_bytes()
            half = data[: len(data) // 3]  # the first of three batches
            base = placement.start if first is None else first
            log.append_as_follower(base.to_bytes(8, "big") + half[8:], placement.epoch)
            log.flush()
            raise Killed

        def gone(*_: object) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(staged_append, "append_placed", half)
            patch.setattr(staged_append, "settle_if_possible", gone)
            with pytest.raises(Killed):
                self.write(stream, first=first)
        assert (self.logs / ".seglog-append").exists() and list(self.staging.iterdir())

    def values(self) -> list[bytes | None]:
        with LogDirectory.open(
            self.logs, fs=FS, clock=ManualClock(START_MS), config_of=lambda _: LogConfig(), writable=False
        ) as directory:
            return [record.value for record in directory.log(TopicPartition("t", 0)).records()]

    def is_settled(self) -> bool:
        return not (self.logs / ".seglog-append").exists() and not self.staging.exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("stream", [None, BATCH])
def test_opening_for_writing_takes_back_what_was_cut_short(
    place: Place, monkeypatch: pytest.MonkeyPatch, stream: StreamBatch | None
) -> None:
    place.cut_short(monkeypatch, stream)
    assert place.values() == [b"first", *ROWS[:2]]  # reading changes nothing
    place.append(b"second")
    assert place.values() == [b"first", b"second"]
    assert place.is_settled()


def test_a_batch_that_others_follow_is_completed_and_not_brought_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.cut_short(monkeypatch, BATCH)
    place.append(b"a broker's", settle=False)
    assert place.write(BATCH) == 0
    assert place.values() == [b"first", *ROWS[:2], b"a broker's", *ROWS[2:]]
    assert place.is_settled()


def test_a_jobs_rows_that_others_follow_are_left_to_the_operator(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.cut_short(monkeypatch, None)
    place.append(b"a broker's", settle=False)
    with pytest.raises(RefusedError, match=r"another writer has written after it \(t-0 from offset 1 on\)"):
        place.write()
    place.append(b"still possible")
    assert place.values() == [b"first", *ROWS[:2], b"a broker's", b"still possible"]
    (place.logs / ".seglog-append").unlink()
    assert place.write() == 6


def lose_staged(place: Place) -> None:
    for path in place.staging.iterdir():
        path.unlink()


def spoil_staged(place: Place) -> None:
    for path in place.staging.iterdir():
        path.write_bytes(bytes(len(path.read_bytes())))


def clean_up_to_the_end(place: Place) -> None:
    (place.logs / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    place.append(b"a broker's", settle=False)


def delete_the_beginning(place: Place) -> None:
    with place.opened(settle=False) as directory:
        directory.log(TopicPartition("t", 0)).increment_log_start_offset(2)


@pytest.mark.parametrize("change", [lose_staged, spoil_staged, clean_up_to_the_end, delete_the_beginning])
@pytest.mark.parametrize("stream", [None, BATCH])
def test_records_that_cannot_be_distinguished_from_others_are_kept_and_reported(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Place], None],
    stream: StreamBatch | None,
) -> None:
    place.cut_short(monkeypatch, stream)
    change(place)
    before = place.values()
    with pytest.raises(RefusedError, match=r"t-0: a write was interrupted here at offset 1, .*Remove .*seglog-append"):
        place.write(stream)
    assert place.values() == before
    place.append(b"still possible")
    assert place.values() == [*before, b"still possible"]


def test_rows_with_offsets_that_others_have_taken_are_not_moved(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.cut_short(monkeypatch, BATCH, first=1)
    place.append(b"a broker's", settle=False)
    with pytest.raises(RefusedError, match="its rows go on at offset 3, which others have taken"):
        place.write(BATCH, first=1)
    assert place.values() == [b"first", *ROWS[:2], b"a broker's"]


def test_records_equal_to_the_writes_own_are_not_cut_where_others_follow_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.cut_short(monkeypatch, None)
    place.append(*ROWS[2:4], settle=False)  # the same values, written by somebody else
    with pytest.raises(RefusedError, match="another writer has written after it"):
        place.write()
    assert place.values() == [b"first", *ROWS[:4]]
