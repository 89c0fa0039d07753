"""Memory of chunks goes round: a round gives back each chunk's once, and never one that it still looks at."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.log.log import Log
from seglog.model import Compression
from seglog.scan.segment_scan import Chunk, ScanMemory
from tests.support.cleaning import append, clean, compacted_log, many, transaction
from tests.support.log_files import files_of
from tests.support.open_logs import START_MS

pytestmark = pytest.mark.slow


def filled(directory: Path, codecs: tuple[Compression | None, ...], with_transactions: bool) -> Log:
    log = compacted_log(directory, segment_bytes=3000, delete_retention_ms=1000)
    for number in range(40):
        append(log, many(30, 90, number), 6, codecs[number % len(codecs)])
        if with_transactions:
            transaction(log, 7 + number % 2, many(9, 90, -number), number % 3 > 0, START_MS + number)
    log.roll()
    return log


@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize("codecs", [(None,), (Compression.LZ4,), (None, *Compression)], ids=["none", "lz4", "all"])
@pytest.mark.parametrize("with_transactions", [False, True])
@pytest.mark.parametrize("key_bytes_ahead", [0, 4 << 20])
def test_what_was_given_back_is_looked_at_by_nobody(
    tmp_path: Path,
    jobs: int,
    codecs: tuple[Compression | None, ...],
    with_transactions: bool,
    key_bytes_ahead: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seglog.cleaner.key_index._KEY_BYTES_AHEAD", key_bytes_ahead)
    given, ordinary = [], ScanMemory.give_back

    def spoil(memory: ScanMemory, chunk: Chunk) -> None:
        assert chunk.memory is not None
        given.append(chunk)
        for part in chunk.memory:
            part.view("u1")[:] = 0xFF
        ordinary(memory, chunk)

    directories = []
    for name in ("spoiled", "ordinary"):
        log = filled(tmp_path / name, codecs, with_transactions)
        end = log.log_end_offset
        with monkeypatch.context() as patch:
            if name == "spoiled":
                patch.setattr(ScanMemory, "give_back", spoil)
            for number, checkpoint in enumerate((None, end // 2)):
                options = {"dedupe_buffer_bytes": 1200} if number else {}  # several passes
                clean(log, at=START_MS + 5000, jobs=jobs, chunk_bytes=700, checkpoint=checkpoint, **options)
        directories.append(files_of(log.directory))
    assert directories[0] == directories[1]
    assert len(given) > 50
    assert len(set(map(id, given))) == len(given)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_round_needs_no_more_memory_than_it_has_chunks_at_once(
    tmp_path: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers: set[int] = set()
    kept, ordinary = [], ScanMemory.buffer

    def counted(memory: ScanMemory, size: int) -> object:
        buffer = ordinary(memory, size)
        buffers.add(id(buffer))
        kept.append(buffer)  # so that no other gets its id
        return buffer

    monkeypatch.setattr(ScanMemory, "buffer", counted)
    clean(filled(tmp_path, (None,), False), jobs=jobs, chunk_bytes=700)
    assert len(kept) > 80
    assert len(buffers) <= 2 * (jobs + 3)
