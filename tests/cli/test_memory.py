"""Threads of a cleaning command share what they free: memory does not grow with their number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
