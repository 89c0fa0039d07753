"""Chunks out of bytes that lie in memory anyway: the same batches wherever blocks end, and little is copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from seglog.kernels.crc32c import HARDWARE
from seglog.scan import segment_scan
from seglog.scan.log_walk import Gap, LogWalk
from seglog.scan.resync import PlausibleOffsets
from seglog.scan.segment_scan import Chunks, ScanMemory, SegmentScan
from seglog.storage.filesystem import File, OpenMode, PassingFile, PassingFileSystem
from seglog.storage.local import LocalFileSystem
from seglog.verification.batches import Level, clean_range
from tests.support.naive import NaiveRecord, batch_v2


@dataclass
class LendingFileSystem(PassingFileSystem):
    """Files that lie in memory in blocks; `copied` counts the bytes that were read all the same."""

    block_bytes: int
    copied: int = 0
    opened: int = 0
    announced: list[tuple[int, int]] = field(default_factory=list)
    _below: LocalFileSystem = field(default_factory=LocalFileSystem)

    def open(self, path: Path, mode: OpenMode) -> File:
        self.opened += 1
        return _LendingFile(super().open(path, mode), self)


class _LendingFile(PassingFile):
    def __init__(self, below: File, fs: LendingFileSystem) -> None:
        super().__init__(below)
        self._fs, self._data = fs, below.read_at(0, below.size())

    def read_into(self, position: int, buffer) -> int:
        filled = super().read_into(position, buffer)
        self._fs.copied += filled
        return filled

    def lend(self, position: int, size: int) -> memoryview | None:
        end = min(position + size, position - position % self._fs.block_bytes + self._fs.block_bytes)
        return memoryview(self._data)[position : max(end, position)]

    def advise_wanted(self, position: int, size: int, *, side_by_side: bool = False, again: bool = False) -> None:
        self._fs.announced.append((position, size))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_scan, "_LEAST_LENT", 64)


def log_of(path: Path, *, damaged: bool) -> Path:
    batches = [batch_v2(i, [NaiveRecord(0, 0, b"k", b"v" * (i * 37 % 500))]) for i in range(60)]
    if damaged:
        batches[20] = batches[20][:70] + b"\xff" + batches[20][71:]
        batches[30] = batches[30][:8] + b"\x7f\xff\xff\xff" + batches[30][12:]
        batches[45] = b"\0" * 333
        batches[-1] = batches[-1][:-5]
    path.write_bytes(b"".join(batches))
    return path


BLOCKS = [1, 7, 64, 100, 1000, 1 << 20]


def steps(fs, path: Path, **options) -> list[object]:
    found: list[object] = []
    for step in LogWalk(fs, path, **options):
        if isinstance(step, Gap):
            found.append(step)
            continue
        for row, valid in zip(step.batches, step.valid, strict=True):
            at = int(row["position"]) - step.position
            bytes_ = step.data[at : at + int(row["size"])].tobytes() if step.complete else b""
            found.append((int(row["base_offset"]), int(row["position"]), bool(valid), bytes_))
    return found


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("chunk_bytes", [64, 300, 1 << 20])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_walk_over_blocks_sees_what_one_over_a_disk_sees(
    tmp_path: Path, block_bytes: int, chunk_bytes: int, damaged: bool
) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=damaged)
    expected = steps(LocalFileSystem(), path, chunk_bytes=1 << 20)
    for fresh in (False, True):
        assert steps(LendingFileSystem(block_bytes), path, chunk_bytes=chunk_bytes, fresh=fresh) == expected


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("memory", [None, ScanMemory()])
def test_a_scan_over_blocks_gives_all_batches_and_its_end(
    tmp_path: Path, block_bytes: int, memory: ScanMemory | None
) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=False)
    path.write_bytes(path.read_bytes() + b"\x01" * 30)
    found = []
    for fs in (LocalFileSystem(), LendingFileSystem(block_bytes)):
        scan = SegmentScan(fs, path, chunk_bytes=700, memory=memory)
        rows = [(int(row["base_offset"]), int(row["position"])) for chunk in scan for row in chunk.batches]
        found.append((rows, scan.end))
    assert found[0] == found[1]
    assert len(found[0][0]) == 60


def test_chunks_of_a_scan_with_memory_stay_until_they_are_given_back(tmp_path: Path) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=False)
    fs, memory = LocalFileSystem(), ScanMemory()
    once = [(c.position, bytes(c.data), c.batches.tolist()) for c in SegmentScan(fs, path, chunk_bytes=700)]
    held = list(SegmentScan(fs, path, chunk_bytes=700, memory=memory))
    assert [(c.position, bytes(c.data), c.batches.tolist()) for c in held] == once
    owned = {id(part) for chunk in held for part in chunk.memory or ()}
    assert len(owned) == 2 * len(held)
    for chunk in held:
        memory.give_back(chunk)
    again = list(SegmentScan(fs, path, chunk_bytes=700, memory=memory))
    assert [(c.position, bytes(c.data), c.batches.tolist()) for c in again] == once
    assert {id(part) for chunk in again for part in chunk.memory or ()} == owned
    assert again[0].memory is not None and held[-1].memory is not None
    assert again[0].memory[0] is held[-1].memory[0], "what was used last comes first"


def test_memory_of_another_size_is_not_used(tmp_path: Path) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=False)
    memory = ScanMemory()
    for chunk_bytes in (700, 1 << 20, 5000):
        for chunk in SegmentScan(LocalFileSystem(), path, chunk_bytes=chunk_bytes, memory=memory):
            assert chunk.memory is not None and len(chunk.memory[0]) == chunk_bytes
            memory.give_back(chunk)


@pytest.mark.parametrize("block_bytes", BLOCKS)
@pytest.mark.parametrize("level", [Level.HEADER, Level.RECORD])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_range_over_blocks_is_judged_as_one_on_a_disk(
    tmp_path: Path, block_bytes: int, level: Level, damaged: bool
) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=damaged)
    size, offsets = path.stat().st_size, PlausibleOffsets()
    fs = LendingFileSystem(block_bytes)
    assert clean_range(fs, path, 0, size, offsets, level) == clean_range(
        LocalFileSystem(), path, 0, size, offsets, level
    )
    assert (0, size) in fs.announced
    if HARDWARE and not damaged:
        assert fs.opened == 1  # the quick way has done it


def test_only_batches_across_two_blocks_are_copied(tmp_path: Path) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=False)
    fs, size = LendingFileSystem(4096), path.stat().st_size
    assert clean_range(fs, path, 0, size, PlausibleOffsets(), Level.RECORD) is not None
    assert 0 < fs.copied <= (size // 4096) * (600 + 64)


def test_a_chunk_is_the_lent_bytes_themselves(tmp_path: Path) -> None:
    path = log_of(tmp_path / "00000000000000000000.log", damaged=False)
    with LendingFileSystem(4096).open(path, "r") as file:
        whole = file.lend(0, 4096)
        assert whole is not None
        chunk = Chunks(file, file.size(), 1000).at(100)
        assert np.shares_memory(chunk, np.frombuffer(whole, dtype=np.uint8))
        assert (len(chunk), chunk.flags.writeable) == (1000, False)
        assert len(Chunks(file, file.size(), 1000, most_lent=2000).at(100)) == 2000
        assert len(Chunks(file, file.size(), 1000).at(4096 - 100, 900)) == 900  # across two blocks, in one piece
        assert len(Chunks(file, 150, 1000).at(100)) == 50
