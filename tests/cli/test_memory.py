"""Memory of a cleaning command: threads share what they free, and large batches stay within what was promised."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seglog.format import checksum
from seglog.format.compression import compress
from seglog.model import Compression
from tests.support.log_files import write_segment
from tests.support.naive import varint

ROOT = Path(__file__).resolve().parents[2]

# Eight threads by turns hold 32 MiB and give them back; small pieces, as large ones go back to the system anyway.
PROGRAM = """
import threading
from pathlib import Path
from seglog_cli.memory import share_freed_memory
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


def grown_pages(call: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)},
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas are Linux's")
def test_what_one_thread_freed_serves_the_next() -> None:
    assert grown_pages("share_freed_memory()") < 0.6 * grown_pages("pass")


# A round over a log, and the most that was resident: of this very process (VmHWM), not of what started it.
CLEANING = """
from pathlib import Path
from seglog_cli.process import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
status = Path("/proc/self/status").read_text()
print(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
"""
BUFFER_BYTES, BESIDE_IT = 128 << 20, 250 << 20


def payload_of(count: int, seed: int) -> bytes:
    """Records with keys of 12 bytes, random but one, and values of 64, of which 36 are half random."""
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


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is Linux's")
def test_batches_of_60_megabytes_take_no_more_than_the_buffer_and_250_mebibytes(tmp_path: Path) -> None:
    directory, count = tmp_path / "t-0", 1_400_000
    for number in range(3):
        payload = compress(Compression.ZSTD, payload_of(count, number))
        assert 58e6 < len(payload) < 66e6
        fields = Compression.ZSTD, count - 1, 1000, 1000, -1, -1, -1, count
        covered = struct.pack(">hiqqqhii", *fields) + payload
        head = struct.pack(">qiibI", number * count, 9 + len(covered), 0, 2, checksum.crc32c(covered))
        write_segment(directory, number * count, head + covered)
    write_segment(directory, 3 * count)
    done = subprocess.run(
        [sys.executable, "-c", CLEANING, "clean", "--policy", "compact", "-j", "8", str(directory)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'core'}"},
        check=True,
    )
    assert sum(path.stat().st_size for path in directory.glob("*.log")) > 165e6
    assert int(done.stdout.split()[-1]) << 10 < BUFFER_BYTES + BESIDE_IT
