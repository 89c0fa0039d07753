"""What a piece of work takes at least on this machine: seconds of one thread for its bytes and codecs alone."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from seglog import layout
from seglog.format.compression import compress
from seglog.format.zstd_library import zstd_slots
from seglog.kernels.decode import payload_spans
from seglog.kernels.runs import decompress_run
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem

_FS = LocalFileSystem()
_BATCH_BYTES = 1 << 14
_ARENA_BYTES = 4 << 20
_PIECE_BYTES = 1 << 20
_FAILED = 10


def reading(directory: Path) -> float:
    """The log once from the page cache into memory.

    That begins with a page: 16 bytes after one, where malloc puts large arrays, whole pages take twice as long to copy.
    """
    buffer = mmap.mmap(-1, _PIECE_BYTES)

    def once() -> None:
        for path in directory.glob("*.log"):
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    return _least(once)


def writing(directory: Path, target: Path) -> float:
    """The log's bytes once from memory into the page cache, as a new file `target`."""
    data = [path.read_bytes() for path in directory.glob("*.log")]

    def once() -> None:
        with target.open("wb", buffering=0) as file:
            for whole in data:
                for position in range(0, len(whole), _PIECE_BYTES):
                    file.write(memoryview(whole)[position : position + _PIECE_BYTES])
        target.unlink()

    return _least(once)


def syncing(directory: Path, kept: float, target: Path) -> float:
    """What the disk takes for the output of a round: the share `kept` of each segment in a file of its own, and two
    indexes, each fsynced, and the directory `target` three times.
    """
    segments = [int(path.stat().st_size * kept) for path in directory.glob("*.log")]
    least = math.inf
    for _ in range(3):
        target.mkdir()
        files = []
        for number, size in enumerate(segments):
            for name, length in (("log", size), ("index", size >> 11), ("timeindex", size >> 11)):
                files.append(target / f"{number}.{name}")
                files[-1].write_bytes(bytes(length))
        start = time.perf_counter()
        for path in (*files, *[target] * 3):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        least = min(least, time.perf_counter() - start)
        shutil.rmtree(target)
    return least


def starting(code: str) -> float:
    """A Python process that runs `code` and nothing else."""
    return _least(lambda: subprocess.run([sys.executable, "-c", code], check=True))


def opening(directory: Path) -> float:
    """All payloads decompressed once, run after run; 0 where nothing is compressed."""
    runs = list(_payloads(directory))
    if not any((batches["attributes"] & layout.CODEC_MASK).any() for _, batches, _, _ in runs):
        return 0.0
    arena = np.empty(_ARENA_BYTES, dtype=np.uint8)
    return _least(lambda: [_opened(run, arena) for run in runs])


def cleaning(directory: Path, kept: float) -> float:
    """Two reads of the log and one write of the share that is `kept`; payloads opened once, that share packed once."""
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    data = np.zeros(max(1, int(size * kept)), dtype=np.uint8)
    written = np.empty_like(data)
    return (
        2 * reading(directory)
        + opening(directory)
        + _least(lambda: np.copyto(written, data))
        + _packing(directory, kept)
    )


def _packing(directory: Path, kept: float) -> float:
    runs = list(_payloads(directory))
    codec = int(runs[0][1]["attributes"][0]) & layout.CODEC_MASK
    if not codec:
        return 0.0
    arena = np.empty(_ARENA_BYTES, dtype=np.uint8)
    wanted = [arena[: int(_opened(run, arena) * kept)].tobytes() for run in runs]
    pieces = [part[p : p + _BATCH_BYTES] for part in wanted for p in range(0, len(part), _BATCH_BYTES)]
    return _least(lambda: [compress(codec, piece) for piece in pieces])


Run = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # bytes, batches, where payloads begin and end


def _payloads(directory: Path) -> Iterator[Run]:
    """Runs of batches that fit the arena when they are opened."""
    for path in sorted(directory.glob("*.log")):
        for chunk in SegmentScan(_FS, path, chunk_bytes=1 << 18):
            count = len(chunk.batches)
            starts, ends = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
            data, batches = chunk.data.copy(), chunk.batches.copy()
            payload_spans(data, batches, chunk.position, starts, ends, np.empty(count, dtype=np.int8))
            yield data, batches, starts, ends


def _opened(run: Run, arena: np.ndarray) -> int:
    data, batches, starts, ends = run
    status, bounds = np.zeros(len(batches), dtype=np.int8), np.zeros(len(batches), dtype=np.int64)
    after, used = decompress_run(
        data,
        starts,
        ends,
        batches,
        0,
        len(batches),
        status,
        _FAILED,
        zstd_slots(),
        arena,
        0,
        len(arena),
        len(arena),
        bounds,
    )
    assert after == len(batches) and not status.any(), (
        "the floor is measured with a log of one codec, and whole batches"
    )
    return int(used)


def _least(work: Callable[[], object], runs: int = 3) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
