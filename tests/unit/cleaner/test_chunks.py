"""Chunks for the cleaner: what is not understood ends the round by name, and payloads are laid open as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.cleaner import chunks
from seglog.cleaner.chunks import check_chunk, open_parts, read_chunks
from seglog.cleaner.round import CleanerOptions
from seglog.errors import CorruptRecordError, InvalidRecordError
from seglog.format.compression import compress
from seglog.layout import CODEC_MASK, INT64_MAX, LAST_OFFSET_DELTA_OFFSET, RECORD_BATCH_OVERHEAD
from seglog.log.segment import LogSegment
from seglog.model import Compression
from seglog.scan.segment_scan import Chunk
from tests.support.log_files import FS, batch, write_segment
from tests.support.naive import NaiveRecord, batch_v2

OPTIONS = CleanerOptions()


def packed(base_offset: int, codec: Compression, value: bytes = b"value") -> bytes:
    """A batch of three records, compressed."""
    records = [NaiveRecord(i, i, b"k%d" % i, value) for i in range(3)]
    payload = compress(codec, b"".join(record.encode() for record in records))
    return batch_v2(base_offset, records, attributes=int(codec), payload=payload)


def plain(base_offset: int, value: bytes = b"value") -> bytes:
    return batch(base_offset, 3, timestamp=0, value=value)


def segment_of(directory: Path, *batches: bytes, after: bytes = b"") -> LogSegment:
    write_segment(directory, 0, *batches)
    path = directory / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + after)
    return LogSegment(FS, directory, 0)


def only_chunk(segment: LogSegment) -> Chunk:
    (chunk,) = read_chunks(segment, 0, INT64_MAX, OPTIONS)
    return chunk


def payloads(chunk: Chunk, wanted: np.ndarray | None = None) -> list[bytes]:
    """The records' bytes of each batch, in order."""
    found = []
    for part in open_parts(chunk, wanted):
        assert part.first == len(found)
        found += [part.arena[start:end].tobytes() for start, end in zip(part.starts, part.ends, strict=True)]
    return found


@pytest.mark.parametrize(
    ("after", "reason"),
    [(batch(6, 3)[:-1], "not a whole batch"), (b"\0" * 7, "not a whole batch"), (b"\0" * 40, "smaller than any batch")],
    ids=["cut short", "too few", "zeros"],
)
def test_bytes_that_are_no_batch_are_refused_by_their_place(tmp_path: Path, after: bytes, reason: str) -> None:
    segment = segment_of(tmp_path, plain(0), plain(3), after=after)
    with pytest.raises(CorruptRecordError, match=rf"{reason}.*after offset 5.*nothing was changed") as raised:
        list(read_chunks(segment, 0, INT64_MAX, OPTIONS))
    assert raised.value.position == len(plain(0)) * 2


def test_a_wrong_checksum_and_an_unknown_magic_are_refused_by_their_offsets(tmp_path: Path) -> None:
    wrong = bytearray(plain(3))
    wrong[-1] ^= 1
    chunk = only_chunk(segment_of(tmp_path / "crc", plain(0), bytes(wrong)))
    with pytest.raises(CorruptRecordError, match="the checksum of the batch is wrong") as raised:
        check_chunk(chunk)
    assert (raised.value.first_offset, raised.value.last_offset, raised.value.position) == (3, 5, len(plain(0)))
    good = only_chunk(segment_of(tmp_path / "magic", plain(0)))
    assert check_chunk(good) is good
    good.batches["magic"][0] = 3
    with pytest.raises(CorruptRecordError, match="unknown magic 3"):
        check_chunk(good)


@pytest.mark.parametrize(
    ("bases", "end_offset", "number", "reason"),
    [
        ((10, 1000, 16), 2000, 2, "1002 comes before it"),
        ((10, 13, 13), 2000, 2, "15 comes before it"),
        ((10, 14, 16), 2000, 2, "16 comes before it"),
        ((9, 13, 16), 2000, 0, "9 comes before it"),
        ((10, 13, 16), 18, 2, "the next segment begins at 18"),
    ],
    ids=["far ahead", "twice", "overlap", "before the segment", "within the next segment"],
)
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_offsets_that_do_not_ascend_are_refused_by_the_batch(
    tmp_path: Path, bases: tuple[int, ...], end_offset: int, number: int, reason: str, chunk_bytes: int
) -> None:
    write_segment(tmp_path, 10, *map(plain, bases))
    segment, options = LogSegment(FS, tmp_path, 10), CleanerOptions(chunk_bytes=chunk_bytes)
    with pytest.raises(CorruptRecordError, match=f"offsets do not ascend: {reason}; nothing was changed") as raised:
        list(read_chunks(segment, 0, end_offset, options))
    base, size = bases[number], len(plain(0))
    found = (raised.value.first_offset, raised.value.last_offset, raised.value.position)
    assert found == (base, base + 2, number * size)


def test_a_wrong_checksum_is_named_before_the_offsets_that_it_covers(tmp_path: Path) -> None:
    wrong = bytearray(plain(3))
    wrong[LAST_OFFSET_DELTA_OFFSET] ^= 0x40
    with pytest.raises(CorruptRecordError, match="the checksum of the batch is wrong"):
        only_chunk(segment_of(tmp_path, plain(0), bytes(wrong), plain(6)))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_payloads_of_every_codec_are_laid_open_in_order(tmp_path: Path, codec: Compression) -> None:
    """Beside plain ones, which lie in the same arena then."""
    chunk = only_chunk(segment_of(tmp_path, plain(0), packed(3, codec), plain(6), packed(9, codec, b"other")))
    assert (chunk.batches["attributes"] & CODEC_MASK).tolist() == [0, int(codec), 0, int(codec)]
    ordinary, other = plain(0)[RECORD_BATCH_OVERHEAD:], plain(0, b"other")[RECORD_BATCH_OVERHEAD:]
    assert payloads(chunk) == [ordinary, ordinary, ordinary, other]


def test_batches_without_a_codec_are_read_in_place(tmp_path: Path) -> None:
    chunk = only_chunk(segment_of(tmp_path, plain(0), plain(3)))
    (part,) = open_parts(chunk)
    assert part.arena is chunk.data
    assert payloads(chunk) == [plain(0)[RECORD_BATCH_OVERHEAD:]] * 2


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_batch_that_nobody_wants_is_not_decompressed(tmp_path: Path, codec: Compression) -> None:
    """Also where that would fail."""
    chunk = only_chunk(segment_of(tmp_path, packed(0, codec), packed(3, codec)))
    chunk.data[RECORD_BATCH_OVERHEAD : RECORD_BATCH_OVERHEAD + 8] = 0xEE
    with pytest.raises(InvalidRecordError, match="nothing was changed") as raised:
        payloads(chunk)
    assert raised.value.position == 0
    assert payloads(chunk, np.array([False, True]))[1] == plain(3)[RECORD_BATCH_OVERHEAD:]


@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_what_no_arena_takes_is_laid_open_alone(
    tmp_path: Path, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither it nor its neighbours are lost, and each batch comes once."""
    monkeypatch.setattr(chunks, "_ARENA_BYTES", 200)
    large = b"x" * 500
    batches = [packed(0, codec), packed(3, codec, large), packed(6, codec), packed(9, codec)]
    chunk = only_chunk(segment_of(tmp_path, *batches))
    small = plain(0)[RECORD_BATCH_OVERHEAD:]
    assert payloads(chunk) == [small, plain(0, large)[RECORD_BATCH_OVERHEAD:], small, small]
