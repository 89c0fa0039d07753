"""Batches that are too large to be worked on like others: cleaned one after the other, or refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner import chunks
from seglog.cleaner.cleaner import foresee_round
from seglog.cleaner.round import CleanerOptions, Strategy, plan_round
from seglog.errors import CorruptRecordError, InvalidRecordError, UnsupportedError
from seglog.format.compression import compress
from seglog.kernels import filtering
from seglog.log.log import Log
from seglog.model import Compression, Header, Record
from tests.support.cleaning import append, clean, compacted_log, digest, hold_no_batch, many, transaction
from tests.support.log_files import files_of, write_segment
from tests.support.manual_clock import ManualClock
from tests.support.naive import NaiveRecord, batch_v2, message
from tests.support.open_logs import START_MS


def versioned(count: int, keys: int, seed: int) -> list[Record]:
    """As `many`, with a version in a header that goes down as often as up."""
    records = many(count, keys, seed)
    versions = [(37 * i % 101).to_bytes(8, "big") for i in range(count)]
    headers = ((Header("version", version),) for version in versions)
    return [Record(r.value, r.key, r.timestamp, h) for r, h in zip(records, headers, strict=True)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jobs": 3},
        {"checkpoint": 90},
        {"checkpoint": 90, "dedupe_buffer_bytes": 300},
        {"strategy": Strategy.parse("timestamp")},
        {"strategy": Strategy.parse("header:version")},
    ],
    ids=["one thread", "three threads", "clean section", "several passes", "by timestamp", "by header"],
)
def test_batches_larger_than_an_arena_or_a_chunk_come_out_the_same(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("ordinary", "large"):
        log = compacted_log(tmp_path / name)
        for number, codec in enumerate((None, *Compression)):
            append(log, versioned(40, 25, number), 13, codec)
        log.roll()
        result = clean(log, **options)
        assert (result.stats.index_passes > 1) == ("dedupe_buffer_bytes" in options)
        found.append(files_of(log.directory))
        for limit in ("_ARENA_BYTES", "CHUNK_BYTES", "PACKED_CHUNK_BYTES", "WHOLE_BATCH_BYTES"):
            monkeypatch.setattr(chunks, limit, 200)
        monkeypatch.setattr("seglog.format.windows.WINDOW_BYTES", 150)
        monkeypatch.setattr("seglog.ordered_pool.LARGE_BYTES", 300)
        monkeypatch.setattr("seglog.cleaner.key_index._MAP_BESIDE_LARGE", 0)
    assert found[0] == found[1]


def test_the_maps_memory_is_free_when_large_batches_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    freed = []
    for number, (arena_bytes, checkpoint) in enumerate(((4 << 20, 0), (4 << 20, 60), (400, 60))):
        log = compacted_log(tmp_path / str(number))
        append(log, many(120, 50), 40, Compression.ZSTD)
        log.roll()
        monkeypatch.setattr(chunks, "_ARENA_BYTES", arena_bytes)
        monkeypatch.setattr("seglog.cleaner.key_index._MAP_BESIDE_LARGE", 100)
        plan = plan_round(log, CleanerOptions(), ManualClock(START_MS), checkpoint)
        indexed = foresee_round(log, plan, ManualClock(START_MS)).indexing
        freed.append(len(indexed.offset_map.store) == 1)
        assert (indexed.superseded is not None) == (arena_bytes == 400)
    assert freed == [True, False, True]


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_small_batch_of_the_clean_section_that_expands_a_lot_gets_the_maps_memory(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records in front are marked then, in the middle of the copy, and what was copied stays."""
    found = []
    for name, arena_bytes in (("ordinary", 4 << 20), ("large", 8000)):
        log = compacted_log(tmp_path / name)
        append(log, many(200, 50), 20, Compression.ZSTD)
        append(
            log, [Record(b"v" * 9000, b"key 7", START_MS), Record(b"v" * 9000, b"else", START_MS)], 2, Compression.ZSTD
        )
        append(log, many(100, 70), 20, Compression.ZSTD)
        log.roll()
        append(log, many(40, 90), 20, Compression.ZSTD)
        log.roll()
        monkeypatch.setattr(chunks, "_ARENA_BYTES", arena_bytes)
        monkeypatch.setattr("seglog.cleaner.key_index._MAP_BESIDE_LARGE", 100)
        plan = plan_round(log, CleanerOptions(jobs=jobs, chunk_bytes=500), ManualClock(START_MS), 302)
        indexed = foresee_round(log, plan, ManualClock(START_MS)).indexing
        assert (len(indexed.offset_map.store) == 1) == (indexed.superseded is not None) == (name == "large")
        clean(log, jobs=jobs, chunk_bytes=500, checkpoint=302)
        found.append(files_of(log.directory))
    assert found[0] == found[1]


CODECS = (None, *Compression)


def require_same_unheld(
    directory: Path, monkeypatch: pytest.MonkeyPatch, fill: Callable[[Path], Log], **options: Any
) -> Log:
    """Cleans what `fill` makes twice, with no batch held the second time; the files must be the same ones."""
    logs = []
    for name in ("held", "unheld"):
        log = fill(directory / name)
        log.roll()
        logs.append(log)
        for at in (START_MS + 5000, START_MS + 50_000):  # tombstones get a horizon, and go
            clean(log, at=at, **options)
        hold_no_batch(monkeypatch)
    assert files_of(logs[0].directory) == files_of(logs[1].directory)
    return logs[1]


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize(
    ("superseded", "tombstones"),
    [((), ()), ((3,), ()), ((0, 39), ()), ((), (5,)), ((7,), (0, 38)), (range(40), ()), ((), range(40))],
    ids=["whole", "one lost", "ends lost", "tombstone", "both", "all lost", "all tombstones"],
)
def test_batches_that_are_not_held_come_out_the_same(
    tmp_path: Path,
    jobs: int,
    codec: Compression | None,
    superseded: Sequence[int],
    tombstones: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill(directory: Path) -> Log:
        log = compacted_log(directory, delete_retention_ms=1000)
        first = [
            Record(None if i in tombstones else b"value %d" % i * (i % 7), b"key %d" % i, START_MS + i)
            for i in range(40)
        ]
        append(log, first, 40, codec)
        append(log, [Record(b"later", b"key %d" % i, START_MS + 100) for i in superseded], 40, codec)
        return log

    require_same_unheld(tmp_path, monkeypatch, fill, jobs=jobs)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("expire", [False, True])
def test_transactions_that_are_not_held_come_out_the_same(
    tmp_path: Path, jobs: int, expire: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(directory: Path) -> Log:
        log = compacted_log(directory, segment_bytes=1500, delete_retention_ms=1000)
        for number in range(30):
            transaction(log, 7 + number % 2, many(9, 30, number), number % 3 > 0, START_MS + number)
            append(log, many(5, 30, -number), 5, CODECS[number % 6])
        return log

    log = require_same_unheld(tmp_path, monkeypatch, fill, jobs=jobs, expire=expire)
    assert len(log.segments) > 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_messages_of_magic_0_and_1_that_are_not_held_come_out_the_same(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(directory: Path) -> Log:
        entries = []
        for number, (magic, codec) in enumerate(product((0, 1), CODECS[:5])):
            inner = [
                message(number * 20 + i, magic, b"k%d" % (i * 7 % 13), b"%d" % i, timestamp=START_MS) for i in range(20)
            ]
            if codec in (None, Compression.NONE):
                entries += inner
                continue
            packed = compress(codec, b"".join(inner), magic=magic)
            entries.append(message(number * 20 + 19, magic, None, packed, timestamp=START_MS, attributes=codec))
        write_segment(directory / "t-0", 0, *entries)
        write_segment(directory / "t-0", 200)
        return compacted_log(directory, delete_retention_ms=1000)

    for checkpoint in (None, 110):
        monkeypatch.undo()
        folder = tmp_path / str(checkpoint)
        require_same_unheld(folder, monkeypatch, fill, jobs=jobs, checkpoint=checkpoint)


def test_a_wrong_checksum_of_a_batch_that_is_not_held_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_no_batch(monkeypatch)
    log = compacted_log(tmp_path)
    append(log, many(40, 30), 20, Compression.LZ4)
    log.roll()
    second = next(log.segments.first.rows())[1]
    with log.segments.first.path.open("r+b") as file:
        file.seek(int(second["position"] + second["size"]) - 1)
        file.write(b"?")
    before = digest(log.directory)
    for options in ({}, {"jobs": 3}, {"checkpoint": 40, "expire": True}):
        with pytest.raises(CorruptRecordError, match="the checksum of the batch is wrong") as caught:
            clean(log, **options)
        assert (caught.value.position, caught.value.first_offset) == (second["position"], 20)
    assert digest(log.directory) == before


def test_a_file_that_is_cut_before_a_batch_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_no_batch(monkeypatch)
    log = compacted_log(tmp_path)
    append(log, [Record(b"value", b"key %d" % i, START_MS) for i in range(40)], 40, Compression.GZIP)
    log.roll()
    path = log.segments.first.path
    choose = filtering.filter_batches

    def cutting(*arguments: Any) -> tuple[int, int, int, int]:
        os.truncate(path, 100)
        return choose(*arguments)

    monkeypatch.setattr(filtering, "filter_batches", cutting)
    with pytest.raises(CorruptRecordError, match="the file was cut while it was read"):
        clean(log)
    assert path.stat().st_size == 100
    assert not list(log.directory.glob("*.cleaned"))


@pytest.mark.parametrize("dropped", [0, 20, 39])
@pytest.mark.parametrize("step_ms", [0, 1, 63, 1 << 20, -(1 << 33)])
@pytest.mark.parametrize("tombstone", [None, 1, 38])
def test_records_that_grow_in_place_overwrite_none_that_is_still_to_be_read(
    tmp_path: Path, dropped: int, step_ms: int, tombstone: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("ordinary", "large"):
        log = compacted_log(tmp_path / name)
        values = [None if i == tombstone else b"v" * (i % 3) for i in range(40)]
        keys = [b"gone" if i == dropped else b"%d" % i for i in range(40)]
        stamps = [START_MS + abs(step_ms) * 40 + i * step_ms for i in range(40)]
        append(log, list(map(Record, values, keys, stamps)), 40, Compression.ZSTD)
        append(log, [Record(b"later", b"gone", START_MS)])
        log.roll()
        result = clean(log)
        assert result.stats.records_written == 40
        found.append(files_of(log.directory))
        monkeypatch.setattr(chunks, "_ARENA_BYTES", 100)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda payload: payload[:-1], "a record's length"),
        (lambda payload: payload + b"x", "bytes follow the last record"),
        (lambda payload: payload.replace(b"\x0ckey 10", b"\x7fkey 10"), "headers are malformed"),
    ],
    ids=["cut", "trailing", "broken"],
)
def test_a_large_batch_whose_records_are_wrong_is_refused_by_name(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_ARENA_BYTES", 500)
    monkeypatch.setattr("seglog.format.windows.WINDOW_BYTES", 400)
    records = [NaiveRecord(i, i, b"key %d" % i, b"v" * 50) for i in range(40)]
    payload = damage(b"".join(record.encode() for record in records))
    data = batch_v2(0, records, attributes=Compression.ZSTD, payload=compress(Compression.ZSTD, payload))
    write_segment(tmp_path / "t-0", 0, data)
    write_segment(tmp_path / "t-0", 40)
    log = compacted_log(tmp_path)
    before = digest(log.directory)
    for jobs in (1, 3):
        with pytest.raises(InvalidRecordError, match=reason):
            clean(log, jobs=jobs)
    assert digest(log.directory) == before


@pytest.mark.parametrize("codec", [None, Compression.GZIP, Compression.ZSTD])
def test_a_batch_too_large_to_be_written_anew_is_refused_by_name(
    tmp_path: Path, codec: Compression | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "WHOLE_LIMIT", 2000)
    monkeypatch.setattr(chunks, "_ARENA_BYTES", 500)
    log = compacted_log(tmp_path)
    append(log, many(9, 3))
    append(log, [Record(b"v" * 3000, b"large", START_MS)], 1, codec)
    log.roll()
    position = int(next(log.segments.first.rows())["position"][-1])
    before = digest(log.directory)
    for jobs in (1, 3):
        with pytest.raises(UnsupportedError, match="with offsets 9 to 9 is, or expands to, more than") as caught:
            clean(log, jobs=jobs, chunk_bytes=200)
        assert f"{log.segments.first.path}: position {position}: " in str(caught.value)
    assert digest(log.directory) == before
