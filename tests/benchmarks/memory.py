"""Peak resident memory of this process and of those it started, as Linux counts it (`VmHWM` in /proc).

Processes are looked at ten times a second, because Spark ends Python workers that have been idle: of one that ends,
what it took in its last tenth of a second is not seen. What a worker shares with the process it was forked from
counts in each.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_RESET_PEAK = "5"  # see clear_refs in proc(5)
_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes: this process, the JVM that it started, and the largest of Spark's Python processes."""

    driver: int
    jvm: int
    worker: int


class MemoryMeter:
    """Watches while it is entered; peaks begin with what is resident then. `peaks` afterwards."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory-meter", daemon=True)
        self._own = os.getpid()
        self._found: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> MemoryMeter:
        for process in (self._own, *_descendants(self._own)):
            Path(f"/proc/{process}/clear_refs").write_text(_RESET_PEAK)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    @property
    def peaks(self) -> Peaks:
        """The largest of each kind; 0 for a kind that was never there."""
        others = [found for process, found in self._found.items() if process != self._own]
        jvm = max((peak for name, peak in others if name == "java"), default=0)
        worker = max((peak for name, peak in others if name.startswith("python")), default=0)
        return Peaks(self._found[self._own][1], jvm, worker)

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            self._look()

    def _look(self) -> None:
        for process in (self._own, *_descendants(self._own)):
            name, peak = _status(process, "Name"), _status(process, "VmHWM")
            if peak:
                before = self._found.get(process, (name, 0))[1]
                self._found[process] = (name, max(before, int(peak.split()[0]) * 1024))


def _descendants(process: int) -> list[int]:
    """Living processes below this one."""
    parents: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            child = int(directory.name)
            parents.setdefault(int(_status(child, "PPid") or 0), []).append(child)
    found, waiting = [], [process]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def _status(process: int, field: str) -> str:
    """A field of the process's status; empty for one that has ended meanwhile."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(f"{field}:")), "")
