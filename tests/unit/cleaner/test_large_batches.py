"""Batches that are too large to be worked on like others: cleaned one after the other, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.cleaner import chunks
from seglog.errors import UnsupportedError
from seglog.model import Compression, Record
from tests.support.cleaning import append, clean, compacted_log, digest, many
from tests.support.log_files import files_of
from tests.support.open_logs import START_MS


@pytest.mark.parametrize("jobs", [1, 3])
def test_batches_larger_than_an_arena_or_a_chunk_come_out_the_same(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("ordinary", "large"):
        log = compacted_log(tmp_path / name)
        for number, codec in enumerate((None, *Compression)):
            append(log, many(40, 25, number), 13, codec)
        log.roll()
        clean(log, jobs=jobs)
        found.append(files_of(log.directory))
        for limit in ("_ARENA_BYTES", "CHUNK_BYTES", "PACKED_CHUNK_BYTES"):
            monkeypatch.setattr(chunks, limit, 200)
        monkeypatch.setattr("seglog.ordered_pool.LARGE_BYTES", 300)
    assert found[0] == found[1]


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
