"""Partitions rewritten: offsets, timestamps, keys, values stay; the source is only read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.errors import CorruptRecordError, UnsupportedError
from seglog.format.compression import compress
from seglog.format.decoder import decode_records
from seglog.format.record_batch import RecordBatchHeader, encode_batch
from seglog.log.indexes import TransactionIndex
from seglog.log.opening import open_partition
from seglog.model import Compression
from seglog.operations.convert import Converted, ConvertOptions, convert
from seglog.scan.listing import Target, TargetKind, list_partition
from seglog.scan.log_walk import LogWalk, WalkedEntries
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.support.fixtures import fixture_copy
from tests.support.log_files import FS, batch, files_of, marker, transactional, write_segment
from tests.support.naive import NaiveRecord, batch_v2

CLOCK = FixedClock(1_800_000_000_000)
Contents = list[tuple[int, int, bytes | None, bytes | None, object]]


def converted(source: Path, target: Path, options: ConvertOptions) -> Converted:
    before = files_of(source)
    target.parent.mkdir(exist_ok=True)
    config = LogConfig(segment_bytes=100_000)
    owner, log = open_partition(target, fs=FS, clock=CLOCK, config_of=lambda _: config, writable=True, create=True)
    with owner:
        done = convert(FS, list_partition(FS, source), log, options)
    assert files_of(source) == before
    return done


def contents(log: Path) -> tuple[Contents, set[int], set[int]]:
    """(records, magics, codecs)."""
    found: Contents = []
    magics, codecs = set[int](), set[int]()
    for segment in list_partition(FS, log).segments:
        for step in LogWalk(FS, segment.log):
            assert isinstance(step, WalkedEntries) and step.valid.all()
            magics |= set(step.batches["magic"].tolist())
            codecs |= set((step.batches["attributes"] & 7).tolist())
            for records in decode_records(step.data, step.batches, step.position):
                found += [(r.offset or 0, r.timestamp or 0, r.key, r.value, r.headers) for r in records]
    return found, magics, codecs


def assert_healthy(log: Path) -> None:
    found = Verification(FS, [Target(log, TargetKind.PARTITION)], VerifyOptions(level=Level.SEMANTIC), CLOCK)
    assert [one for one in found if one.severity.value != "info"] == []


@pytest.mark.parametrize("codec", [None, *Compression])
@pytest.mark.parametrize("name", ["4.3.0/clean:orders-none-0", "4.3.0/clean:payments-0", "4.3.0/clean:customers-0"])
def test_recompressed_everything_stays(name: str, codec: Compression | None, tmp_path: Path) -> None:
    fixture, _, partition = name.partition(":")
    source = fixture_copy(fixture, tmp_path) / partition
    done = converted(source, tmp_path / "new" / partition, ConvertOptions(2, codec))
    before, after = contents(source), contents(tmp_path / "new" / partition)
    assert after[0] == before[0]
    assert codec is None or after[2] == {int(codec)}
    assert done.batches_read == done.batches_written > 0
    assert_healthy(tmp_path / "new" / partition)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [None, Compression.NONE, Compression.LZ4, Compression.GZIP])
@pytest.mark.parametrize("name", ["0.8.2:v0-none-0", "0.10.2:v1-gzip-createtime-0", "0.10.2:v1-none-logappendtime-0"])
def test_old_formats_up_and_down(name: str, codec: Compression | None, magic: int, tmp_path: Path) -> None:
    fixture, _, partition = name.partition(":")
    source = fixture_copy(fixture, tmp_path) / partition
    converted(source, tmp_path / "new" / partition, ConvertOptions(magic, codec))
    before, after = contents(source), contents(tmp_path / "new" / partition)
    assert after[1] == {magic}
    assert [(row[0], *row[2:]) for row in after[0]] == [(row[0], *row[2:]) for row in before[0]]
    if magic:
        assert [row[1] for row in after[0]] == [row[1] for row in before[0]]
    assert_healthy(tmp_path / "new" / partition)


def test_no_entry_of_the_transaction_index_hides_a_later_abort(tmp_path: Path) -> None:
    ended = [
        (transactional(offset, producer, sequence), marker(offset + 1, producer, commit=False))
        for offset, producer, sequence in ((0, 7, 0), (2, 7, 1), (4, 8, 0))
    ]
    write_segment(tmp_path / "t-0", 0, *(data for pair in ended for data in pair))
    converted(tmp_path / "t-0", tmp_path / "new" / "t-0", ConvertOptions(2, Compression.LZ4))
    index = TransactionIndex(FS, tmp_path / "new" / "t-0" / f"{0:020d}.txnindex", 0)
    assert [(entry.first_offset, entry.last_stable_offset) for entry in index.entries] == [(0, 2), (2, 4), (4, 6)]
    assert_healthy(tmp_path / "new" / "t-0")


def test_the_log_start_and_gaps_stay(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 500, batch(507, 2), batch(900))
    converted(tmp_path / "t-0", tmp_path / "new" / "t-0", ConvertOptions(1))
    assert [row[0] for row in contents(tmp_path / "new" / "t-0")[0]] == [507, 508, 900]
    assert list_partition(FS, tmp_path / "new" / "t-0").segments[0].base_offset == 500


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (transactional(0, 7, 0), ConvertOptions(1), "support transactions"),
        (
            batch_v2(0, [NaiveRecord(0, 0, b"k", b"v", ((b"h", b"v"),))]),
            ConvertOptions(0),
            "does not support record headers",
        ),
    ],
)
def test_what_an_old_format_cannot_hold_is_refused(
    data: bytes, options: ConvertOptions, said: str, tmp_path: Path
) -> None:
    write_segment(tmp_path / "t-0", 0, data)
    with pytest.raises(UnsupportedError, match=said):
        converted(tmp_path / "t-0", tmp_path / "new" / "t-0", options)
    with pytest.raises(UnsupportedError, match="does not support zstd"):
        ConvertOptions(0, Compression.ZSTD)


def test_damage_is_refused_but_for_a_torn_tail(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, batch(0), batch(1), batch(2))
    path = tmp_path / "t-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    done = converted(tmp_path / "t-0", tmp_path / "new" / "t-0", ConvertOptions(codec=Compression.LZ4))
    assert (done.batches_written, done.torn_bytes) == (2, len(whole) // 3 - 3)
    path.write_bytes(whole[:70] + b"?" + whole[71:])
    with pytest.raises(CorruptRecordError, match="position 0: the checksum of the batch is wrong"):
        converted(tmp_path / "t-0", tmp_path / "other" / "t-0", ConvertOptions())


@pytest.mark.parametrize("codec", [None, Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (Compression.GZIP, "cannot be decompressed"),
        (Compression.SNAPPY, "cannot be decompressed"),
        (Compression.LZ4, "cannot be decompressed"),
        (Compression.ZSTD, "cannot be decompressed"),
        (5, "codec"),
        (0, "does not fit|not as long|malformed|count"),
    ],
)
def test_a_batch_with_a_right_checksum_and_no_readable_records_is_named_with_its_offsets(
    tmp_path: Path, attributes: int, reason: str, codec: Compression | None
) -> None:
    good = batch(0, 3)
    header = RecordBatchHeader(base_offset=3, last_offset_delta=1, count=2, attributes=int(attributes))
    write_segment(tmp_path / "t-0", 0, good, encode_batch(header, b"\xff no records at all \xff"))
    with pytest.raises(CorruptRecordError, match=reason) as error:
        converted(tmp_path / "t-0", tmp_path / "new" / "t-0", ConvertOptions(2, codec))
    found = error.value
    assert (Path(found.path).name, found.position) == (f"{0:020d}.log", len(good))
    assert (found.first_offset, found.last_offset) == (3, 4)


def test_a_batch_whose_header_contradicts_its_records_is_refused_as_verify_finds_it(tmp_path: Path) -> None:
    data = bytearray(batch(0, 4))
    header = RecordBatchHeader.read(bytes(data))
    wrong = encode_batch(replace(header, last_offset_delta=1), bytes(data[61:]))
    write_segment(tmp_path / "t-0", 0, wrong)
    with pytest.raises(CorruptRecordError, match=r"COUNT_INVALID: \w+"):
        converted(tmp_path / "t-0", tmp_path / "new" / "t-0", ConvertOptions())


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_that_expands_beyond_the_limit_is_refused_by_name(
    tmp_path: Path, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seglog.operations.convert.WHOLE_LIMIT", 1000)
    records = [NaiveRecord(i, i, b"k", bytes(500)) for i in range(4)]
    body = compress(Compression.GZIP, b"".join(record.encode() for record in records))
    good = batch_v2(0, records, attributes=int(Compression.GZIP), payload=body)
    write_segment(tmp_path / "t-0", 0, good)
    with pytest.raises(UnsupportedError, match="offsets 0 to 3 is, or expands to, more than"):
        converted(tmp_path / "t-0", tmp_path / "new" / "t-0", ConvertOptions(2, codec))
