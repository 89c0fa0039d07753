"""Memory of commands: what is freed is shared or given back, large batches stay within the promised limits."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from seglog.format import checksum
from seglog.format.compression import compress
from seglog.model import Compression
from tests.support.log_files import write_segment
from tests.support.naive import varint
from tests.support.object_server import object_server
from tests.support.s3_server import BUCKET

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

# Eight threads by turns hold 32 MiB and give them back; small pieces, as large ones go back to the system anyway.
PROGRAM = """
import threading
from pathlib import Path
from seglog_cli.session import share_freed_memory
{call}
def use():
    pieces = [bytearray(60_000) for _ in range(500)]
    pieces[-1][0] = 1
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
before, waiting = resident(), []
for _ in range(8):
    entered, leave = threading.Event(), threading.Event()
    def run(entered=entered, leave=leave):
        use()
        entered.set()
        leave.wait()
    threading.Thread(target=run).start()
    entered.wait()
    waiting.append(leave)
print(resident() - before)
for leave in waiting:
    leave.set()
"""


# A large block that was freed, and another one, after which small ones come that stay.
LARGE_PROGRAM = """
from pathlib import Path
from seglog_cli.session import return_large_blocks
{call}
def large():
    block = bytearray(24 << 20)
    block[:: 4096] = b"1" * (len(block) // 4096)
    return block
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])
before, block = resident(), large()
del block
block = large()
small = [bytes(1000) for _ in range(1000)]
del block
print(resident() - before)
"""


KEPT_FREE = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30)}  # with any such setting, no threshold of glibc's moves


def grown_pages(call: str, program: str, settings: Mapping[str, str]) -> int:
    done = subprocess.run(
        [sys.executable, "-c", program.format(call=call)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}", **settings},
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas are Linux's")
def test_what_one_thread_freed_serves_the_next() -> None:
    grown, usual = (grown_pages(call, PROGRAM, KEPT_FREE) for call in ("share_freed_memory()", "pass"))
    assert grown < 0.6 * usual


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap is Linux's")
def test_a_large_block_goes_back_when_it_is_freed() -> None:
    grown, usual = (grown_pages(call, LARGE_PROGRAM, {}) for call in ("return_large_blocks()", "pass"))
    assert grown < 0.3 * usual


# A command, and the most that was resident: of this very process (VmHWM), not of what started it.
COMMAND = """
from pathlib import Path
from seglog_cli.process import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
status = Path("/proc/self/status").read_text()
print(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
"""
BUFFER_BYTES, CACHE_BYTES, BESIDE_IT = 128 << 20, 64 << 20, 250 << 20


def payload_of(count: int, seed: int) -> bytes:
    """Makes records with 12-byte keys, random but one, and 64-byte values of which 36 bytes are half random."""
    chance, pieces, first = np.random.default_rng(seed), [], 0
    for width in (1, 2, 3, 4):  # bytes of the offset delta
        stop = min(count, 1 << (7 * width - 1))
        rows = np.zeros((stop - first, 84 + width), dtype=np.uint8)
        rows[:, 0:2] = np.frombuffer(varint(82 + width), dtype=np.uint8)
        raw = np.arange(first, stop, dtype=np.int64) * 2
        for byte in range(width):
            rows[:, 4 + byte] = (raw >> 7 * byte & 0x7F) | (0x80 if byte < width - 1 else 0)
        key = 5 + width
        rows[:, key - 1] = varint(12)[0]
        rows[:, key : key + 12] = chance.integers(0, 256, (stop - first, 12))
        rows[:, key + 12 : key + 14] = np.frombuffer(varint(64), dtype=np.uint8)
        rows[:, key + 14 : key + 50] = chance.integers(97, 113, (stop - first, 36))
        pieces.append(rows)
        first = stop
    pieces[0][0, 6:18] = np.frombuffer(b"the same key", dtype=np.uint8)
    return b"".join(piece.tobytes() for piece in pieces)


def batch(codec: Compression, base_offset: int, count: int, payload: bytes) -> bytes:
    """Makes a batch of magic 2 without a producer."""
    packed = compress(codec, payload)
    fields = codec, count - 1, 1000, 1000, -1, -1, -1, count
    covered = struct.pack(">hiqqqhii", *fields) + packed
    return struct.pack(">qiibI", base_offset, 9 + len(covered), 0, 2, checksum.crc32c(covered)) + covered


def records(keys: np.ndarray, value_size: int) -> bytes:
    """Makes records with these keys (uint8, one a row, at most 60 of them), and values of zeros."""
    pieces = []
    for i, key in enumerate(keys):
        value = varint(value_size) + bytes(value_size) + b"\0"
        body = b"\0\0" + varint(i) + varint(len(key)) + key.tobytes() + value
        pieces.append(varint(len(body)) + body)
    return b"".join(pieces)


def peak_of(*arguments: str, **environment: str) -> int:
    """Returns the peak resident bytes of a process that ran a command."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'core'}", **environment},
        check=True,
    )
    return int(done.stdout.split()[-1]) << 10


def peak_of_clean(directory: Path, jobs: int) -> int:
    """Returns the peak of a round over a partition."""
    return peak_of("clean", "--policy", "compact", "-j", str(jobs), str(directory))


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is Linux's")
@pytest.mark.parametrize("jobs", [1, 8])
def test_batches_of_a_few_kilobytes_that_expand_to_100_megabytes_get_the_memory_of_a_full_map(
    tmp_path: Path, jobs: int
) -> None:
    directory, chance = tmp_path / "t-0", np.random.default_rng(1)
    keys = chance.integers(0, 256, (2600, 50, 1000), np.uint8)  # 130 MB
    for i in range(4):
        own = np.concatenate((keys[i, :1], chance.integers(0, 256, (49, 1000), np.uint8)))
        large = batch(Compression.ZSTD, 50 * i, 50, records(own, 2 << 20))
        assert len(large) < 64 << 10
        write_segment(directory, 50 * i, large)
    batches = (batch(Compression.NONE, 200 + 50 * i, 50, records(chunk, 1)) for i, chunk in enumerate(keys))
    write_segment(directory, 200, *batches)
    write_segment(directory, 200 + 50 * len(keys))
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 200\n")
    assert peak_of_clean(directory, jobs) < BUFFER_BYTES + BESIDE_IT


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is Linux's")
def test_batches_of_60_megabytes_take_no_more_than_the_buffer_and_250_mebibytes(tmp_path: Path) -> None:
    directory, count = tmp_path / "t-0", 1_400_000
    for number in range(3):
        data = batch(Compression.ZSTD, number * count, count, payload_of(count, number))
        assert 58e6 < len(data) < 66e6
        write_segment(directory, number * count, data)
    write_segment(directory, 3 * count)
    peak = peak_of_clean(directory, 8)
    assert sum(path.stat().st_size for path in directory.glob("*.log")) > 165e6
    assert peak < BUFFER_BYTES + BESIDE_IT


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is Linux's")
def test_batches_of_60_megabytes_in_an_object_store_are_verified_in_its_cache_and_250_mebibytes(tmp_path: Path) -> None:
    directory, count = tmp_path / "t-0", 1_400_000
    payload = payload_of(count, 0)
    for number in range(8):
        write_segment(directory, number * count, batch(Compression.ZSTD, number * count, count, payload))
    write_segment(directory, 8 * count)
    objects = {f"{BUCKET}/logs/t-0/{path.name}": path.read_bytes() for path in directory.iterdir()}
    assert max(map(len, objects.values())) > 58e6
    with object_server(**objects) as server:
        peak = peak_of("verify", f"s3://{BUCKET}/logs/t-0", **server.environment)
    assert peak < CACHE_BYTES + BESIDE_IT
