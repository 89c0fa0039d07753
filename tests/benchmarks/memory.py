"""Peak resident memory of this process and of those it started, as Linux counts it (`VmHWM` in /proc).

A peak is counted from `reset()`. A process that ended before `peaks()` was asked is not seen: Spark keeps its Python
workers for a minute after a job. What workers share with the process they were forked from counts in each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_RESET_PEAK = "5"  # see clear_refs in proc(5)


@dataclass(frozen=True, slots=True)
class Peaks:
    """Bytes: this process, the JVM that it started, and the largest of Spark's Python processes."""

    driver: int
    jvm: int
    worker: int


def reset() -> None:
    """Peaks begin anew, with what is resident now."""
    for process in (os.getpid(), *_descendants(os.getpid())):
        Path(f"/proc/{process}/clear_refs").write_text(_RESET_PEAK)


def peaks() -> Peaks:
    """The peaks since `reset()`."""
    own = os.getpid()
    found = {process: (_status(process, "Name"), _peak(process)) for process in _descendants(own)}
    jvm = max((peak for name, peak in found.values() if name == "java"), default=0)
    worker = max((peak for name, peak in found.values() if name.startswith("python")), default=0)
    return Peaks(_peak(own), jvm, worker)


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


def _peak(process: int) -> int:
    return int((_status(process, "VmHWM") or "0 kB").split()[0]) * 1024


def _status(process: int, field: str) -> str:
    """A field of the process's status; empty for one that has ended meanwhile."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith(f"{field}:")), "")
