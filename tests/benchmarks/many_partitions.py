"""CPU time per partition of the commands that go through a whole log directory.

`python -m tests.benchmarks.many_partitions [COUNT…]`

A log directory gets hard links of one partition of three segments under many names; every command runs as a process of
its own, over 400 and over 4,000 partitions (or those named), and its user and system time is divided by their number,
after that of an empty directory is taken off. The largest resident size shows whether memory stays flat.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.log_files import batch, write_segment

COUNTS = (400, 4000)
SEGMENTS = 3
COMMANDS = {
    "ls": ("ls",),
    "verify crc": ("verify", "--level", "crc"),
    "doctor --quick": ("doctor", "--quick"),
    "doctor": ("doctor",),
    "retain --dry-run": ("retain", "--dry-run", "--retention-ms", "7d"),
    "clean --dry-run": ("clean", "--dry-run"),
    "recover --dry-run": ("recover", "--dry-run"),
}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


def directory_of(root: Path, count: int) -> Path:
    """A log directory, stopped in order, of `count` partitions of `SEGMENTS` segments of 2 x 50 records each."""
    logs, first = root / str(count), root / "first"
    if not first.exists():
        for base in range(0, SEGMENTS * 100, 100):
            write_segment(first, base, batch(base, 50, value=b"v" * 100), batch(base + 50, 50, value=b"v" * 100))
    logs.mkdir()
    (logs / ".kafka_cleanshutdown").touch()
    for number in range(count):
        (logs / f"t-{number}").mkdir()
        for path in first.iterdir():
            os.link(path, logs / f"t-{number}" / path.name)
    for name in CHECKPOINTS:
        lines = [f"t {number} {0 if name.startswith('log') else SEGMENTS * 100}" for number in range(count)]
        (logs / name).write_text("\n".join(["0", str(count), *lines, ""]))
    return logs


def cost(arguments: tuple[str, ...], logs: Path) -> tuple[float, int]:
    """User and system time of a command in seconds, and its largest resident size in MiB."""
    process = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", QUIETLY, *arguments, str(logs)])
    _, _, used = os.wait4(process, 0)
    return used.ru_utime + used.ru_stime, used.ru_maxrss >> 10


QUIETLY = "import os, sys; os.dup2(os.open(os.devnull, os.O_WRONLY), 1); from seglog_cli.process import main; main()"


def main() -> None:
    """Prints a row for each command."""
    counts = [int(text) for text in sys.argv[1:]] or list(COUNTS)
    root = Path(tempfile.mkdtemp(prefix="seglog-"))
    try:
        empty, many = directory_of(root, 0), [directory_of(root, count) for count in counts]
        sys.stdout.write(
            f"{'command':<20}" + "".join(f"{f'ms a partition of {count}':>26}{'MiB':>6}" for count in counts) + "\n"
        )
        for name, arguments in COMMANDS.items():
            start, _ = cost(arguments, empty)
            row = f"{name:<20}"
            for count, logs in zip(counts, many, strict=True):
                seconds, size = cost(arguments, logs)
                row += f"{1000 * (seconds - start) / count:>26.2f}{size:>6}"
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
