"""Logs that Kafka's own cleaner gives up on: messages of magic 0 and 1 at the end of the range, negative timestamps."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from seglog.cleaner import chunks
from seglog.format import windows
from seglog.format.compression import compress
from seglog.format.decoder import decode_records, scan_batches
from seglog.log.log import Log
from seglog.model import Compression
from seglog.storage.local import LocalFileSystem
from tests.support.cleaning import clean, compacted_log, contents
from tests.support.log_files import write_segment
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.support.open_logs import START_MS


def log_of(directory: Path, *entries: bytes) -> Log:
    """A log of one closed segment and an empty active one."""
    rows = scan_batches(np.frombuffer(b"".join(entries), dtype=np.uint8), 0, sum(map(len, entries)), 0).batches
    write_segment(directory / "t-0", 0, *entries)
    write_segment(directory / "t-0", int(rows["last_offset"][-1]) + 1)
    return compacted_log(directory)


def test_messages_become_batches_of_magic_2(tmp_path: Path) -> None:
    entries = [message(0, 0, b"a", b"1"), message(1, 1, b"b", b"2", timestamp=7), message(2, 1, b"a", b"3")]
    log = log_of(tmp_path, *entries)
    clean(log)
    rows = next(log.segments.first.rows())
    assert rows["magic"].tolist() == [2, 2]
    assert rows["max_timestamp"].tolist()[0] == 7
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", b"3")]


def test_the_last_message_leaves_an_empty_batch_when_nothing_of_it_stays(tmp_path: Path) -> None:
    log = log_of(tmp_path, message(0, 1, b"a", b"1"), message(1, 1, None, b"without key"))
    clean(log)
    rows = next(log.segments.first.rows())
    assert [(int(row["last_offset"]), int(row["count"])) for row in rows] == [(0, 1), (1, 0)]
    assert contents(log) == [(0, b"a", b"1")]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("younger_ms", "stays"), [(-1, False), (0, False), (1, True)])
def test_a_tombstone_goes_with_a_segment_that_is_a_retention_older_than_what_was_cleaned_last(
    tmp_path: Path, magic: int, younger_ms: int, stays: bool
) -> None:
    """The message has no delete horizon; modification times decide (Kafka: legacyDeleteHorizonMs)."""
    retention_ms, cleaned_ms = 60_000, START_MS
    directory = tmp_path / "t-0"
    write_segment(directory, 0, message(0, magic, b"a", None), message(1, magic, b"b", b"1"))
    write_segment(directory, 2, message(2, magic, b"c", b"2"))
    write_segment(directory, 3, message(3, magic, b"d", b"3"))
    write_segment(directory, 4)
    files = LocalFileSystem()
    files.set_modified(directory / f"{0:020d}.log", cleaned_ms - retention_ms + younger_ms)
    files.set_modified(directory / f"{2:020d}.log", cleaned_ms)
    files.set_modified(directory / f"{3:020d}.log", cleaned_ms + 10 * retention_ms)
    log = compacted_log(tmp_path, delete_retention_ms=retention_ms)
    clean(log, checkpoint=3)
    assert [offset for offset, _, _ in contents(log)] == ([0, 1, 2, 3] if stays else [1, 2, 3])


@pytest.mark.parametrize("magic", [0, 1])
def test_several_passes_see_a_wrapper_that_begins_in_front_of_the_dirty_section(tmp_path: Path, magic: int) -> None:
    """Its header has its last offset only, which comes after it."""
    inner = [message(i, magic, b"k%d" % (i % 7), b"%d" % i) for i in range(20)]
    wrapper = message(19, magic, None, compress(Compression.GZIP, b"".join(inner)), attributes=Compression.GZIP)
    found = []
    for buffer_bytes in (24 * 3, 1 << 20):
        log = log_of(tmp_path / str(buffer_bytes), wrapper)
        result = clean(log, checkpoint=11, dedupe_buffer_bytes=buffer_bytes)
        assert (result.stats.index_passes > 1) == (buffer_bytes == 24 * 3)
        found.append(contents(log))
    assert found[0] == found[1]
    assert [offset for offset, _, _ in found[0]] == list(range(13, 20))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_that_is_decoded_in_parts_becomes_one_batch(
    tmp_path: Path, magic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = [message(i, magic, b"k%d" % (i % 7), b"%d" % i) for i in range(20)]
    wrapper = message(19, magic, None, compress(Compression.GZIP, b"".join(inner)), attributes=Compression.GZIP)
    found = []
    for name in ("whole", "parts"):
        log = log_of(tmp_path / name, wrapper, message(20, magic, b"k20", b"last"))
        clean(log)
        found.append(log.segments.first.path.read_bytes())
        monkeypatch.setattr(windows, "WINDOW_BYTES", 60)
        monkeypatch.setattr(windows, "WINDOW_ROWS", 3)
        monkeypatch.setattr(chunks, "decode_records", partial(decode_records, arena_bytes=1))
    assert found[0] == found[1]


@pytest.mark.parametrize("ages_ms", [(0, 61_000), (61_000, 0)], ids=["the first is young", "the first is old"])
def test_expire_goes_by_the_age_of_each_tombstone(tmp_path: Path, ages_ms: tuple[int, int]) -> None:
    tombstones = [message(i, 1, b"k%d" % i, None, timestamp=START_MS - age) for i, age in enumerate(ages_ms)]
    write_segment(tmp_path / "t-0", 0, *tombstones, message(2, 1, b"k2", b"v", timestamp=START_MS))
    write_segment(tmp_path / "t-0", 3)
    log = compacted_log(tmp_path, delete_retention_ms=60_000)
    clean(log, at=START_MS, expire=True)
    assert [offset for offset, _, _ in contents(log)] == [ages_ms.index(0), 2]


def test_negative_timestamps_stay_as_they_are(tmp_path: Path) -> None:
    old = batch_v2(0, [NaiveRecord(i, -5 * i, b"k%d" % (i % 2), b"v") for i in range(4)], base_timestamp=-1000)
    log = log_of(tmp_path, old)
    clean(log)
    assert [(record.offset, record.timestamp) for record in log.records()] == [(2, -1010), (3, -1015)]
