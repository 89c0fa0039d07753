"""How the processor time of looking commands grows: with partitions, and with segments a partition.

    python -m tests.benchmarks.scale [--commands ls,verify] [--partitions 10,500,1000] [--segments 1,3,10]

Each partition is a set of hard links of one that is written first, so it takes no space and is in memory. Every
command is a process of its own, and the least processor time of two runs counts. Printed are the milliseconds that each
further partition takes; if growth is linear, the columns are the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from seglog.model import Record
from tests.support.command_line import environment
from tests.support.open_logs import START_MS, opened_log

RECORDS = 300


def write(directory: Path, segments: int) -> None:
    """Writes a partition of so many segments."""
    with opened_log(directory) as log:
        for segment in range(segments):
            if segment:
                log.roll()
            for i in range(0, RECORDS, 50):
                log.append([Record(b"v" * 100, b"%d" % j, START_MS + j) for j in range(i, i + 50)])


def spread(partition: Path, log_directory: Path, count: int) -> None:
    """Gives a partition so many names."""
    for number in range(count):
        target = log_directory / f"t-{number}"
        target.mkdir(parents=True)
        for path in partition.iterdir():
            if path.is_file():
                os.link(path, target / path.name)


def cpu_seconds(command: str, log_directory: Path) -> float:
    """The processor time of a command."""

    def used() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    before = used()
    line = [sys.executable, "-m", "seglog_cli", *command.split(), str(log_directory)]
    ended = subprocess.run(line, stdout=subprocess.DEVNULL, env=environment(), check=False)
    assert ended.returncode in (0, 1), ended
    return used() - before


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", default="ls,verify,doctor,doctor --quick")
    parser.add_argument("--partitions", type=numbers, default=[10, 500, 1000])
    parser.add_argument("--segments", type=numbers, default=[1, 3, 10])
    given = parser.parse_args()
    table = Table(title="CPU ms of each further partition")
    for column in ("command", "segments", *(f"{a} to {b}" for a, b in pairwise(given.partitions))):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(prefix="seglog-scale-") as work:
        for segments in given.segments:
            write(Path(work) / f"one-{segments}" / "t-0", segments)
            places = [Path(work) / f"many-{segments}-{count}" for count in given.partitions]
            for place, count in zip(places, given.partitions, strict=True):
                spread(Path(work) / f"one-{segments}" / "t-0", place, count)
            for command in given.commands.split(","):
                least = [min(cpu_seconds(command, place) for _ in range(2)) for place in places]
                steps = zip(pairwise(least), pairwise(given.partitions), strict=True)
                each = (f"{1000 * (b - a) / (more - fewer):.2f}" for (a, b), (fewer, more) in steps)
                table.add_row(command, str(segments), *each)
    Console().print(table)


if __name__ == "__main__":
    main()
