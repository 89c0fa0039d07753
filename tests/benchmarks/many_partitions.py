"""What commands over a whole log directory cost, and starting them, beside an older build and the goals.

    python -m tests.benchmarks.many_partitions [COUNT] [--against PYTHON] [--rows doctor,ls] [--turns 1] [--kafka]

Log directories of COUNT partitions (default 1,000; goals are also stated for 10,000) of three segments of about 10 KB
are made: hard links, or copies where files are changed. Every figure is the user and system time of a process, its
least of all turns, in which the builds take turns; MiB is the largest resident size. PYTHON is the interpreter of an
environment with the older build. The goal is the largest share of the older build's time; without PYTHON none is
judged. Builds whose kernels are not compiled are refused. `ms` is the time for a partition (for a start of the whole
process). Where a goal is not met, or the 100 MiB, what was tried is printed beside it; beside a start, what numpy and
Typer alone take.

With --kafka, what Kafka's own classes take for the same partitions is printed beside doctor and clean: the load that a
LogManager does (stopped or killed), and its Cleaner, partition by partition in one JVM, from the first answer on.

Issue 46's other rows are in `against_kafka` (clean of 630 MB), `asking` (sql), `typed_export`, `serve_against_broker`
and `spark_against_kafka`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seglog.model import Record
from seglog.storage.local import LocalFileSystem
from tests.support.fixtures import fixture_copy
from tests.support.kafka.kafka import KafkaHarness
from tests.support.open_logs import START_MS, opened_log
from tests.support.target_directories import target_directory

SEGMENTS, BATCHES, RECORDS = 3, 2, 40
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")
COMPACT = ("--set", "cleanup.policy=compact", "--set", "min.cleanable.dirty.ratio=0")
MEMORY_GOAL = 100
TIMES_FIND = 4


@dataclass(frozen=True)
class Row:
    """A command and its goal: the largest share of the older build's time.

    `place` makes what it runs on; `fresh` if each turn needs its own, as the command changes it. `kafka` is what the
    harness is asked for the same. `tried` is what was tried for a goal that is not met, and what it gave.
    """

    name: str
    goal: float
    arguments: Callable[[Path], Sequence[str | Path]]
    place: str = "stopped"
    fresh: bool = False
    kafka: str = ""
    tried: str = ""


_OPENED = (
    "opening takes 1.04 ms, of it the view 0.44; map and copy a third, telling 9 % (profile); fewer questions for a"
    " file's status 4 %; C hashes of kinds: none; small files read at once into the view, as each log is let go: 4 %,"
    " taken back; ranking closed logs by their names lists each once more, 5 %, and holds one log: 341 to 60 MiB, but"
    " with --roll or without the marker of a clean stop all are still opened first; a round writes its checkpoint once:"
    " 0.23 ms of 9 at 10,000; not tried: a log made of one reading, as doctor has it, instead of view and load"
)
_LISTED = (
    "a listing takes 0.11 ms (its system calls 0.04, joins of paths 0.016), each index 0.02; small indexes read"
    " together: 13 % of a partition; no status before an index, paths made when asked for, one unpacking of a status,"
    " lines written at once, os.scandir (56 instead of 53 us): within the noise; each directory opened once instead of"
    " twice: 8 us, taken back, as doubles in tests count it; no collector, C hashes of kinds: nothing; a third is"
    " start-up at 1,000, not at 10,000; not tried: a listing without an object for each segment"
)
_REPORTED = "growth by lists instead of numpy: 0.055 to 0.015 ms of a partition, .86 to .81"
_IMPORTS = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy, typer"  # as the command line sets it
_POLICY = ("--policy", "compact")
_STARTED = (
    "imports: numpy is a third of it, Typer a tenth, making dataclasses a fifth (117 for verify, 0.5 ms each in Python"
    " 3.11); classes compiled at their first use took 30 % of the instructions off report, for a decorator of our own:"
    " taken back; not met with it either"
)

ROWS = (
    Row("doctor, stopped", 1 / 3, lambda logs: ("doctor", logs), kafka="load"),
    Row("doctor, killed", 1 / 3, lambda logs: ("doctor", logs), "killed", kafka="recover"),
    Row("clean --dry-run", 1 / 5, lambda logs: ("clean", "--dry-run", *COMPACT, logs), "copied", tried=_OPENED),
    Row("clean", 1 / 5, lambda logs: ("clean", *COMPACT, logs), "copied", fresh=True, kafka="clean", tried=_OPENED),
    Row("retain --dry-run", 1 / 2, lambda logs: ("retain", "--dry-run", "--retention-ms", "7d", logs)),
    Row("explain of one", 1 / 2, lambda logs: ("explain", logs / "t-0"), tried=_STARTED),
    Row("stats", 1 / 2, lambda logs: ("stats", logs)),
    Row("report", 1 / 2, lambda logs: ("report", logs), tried=f"{_REPORTED}; {_LISTED}; {_STARTED}"),
    Row("diff of two", 1 / 2, lambda logs: ("diff", logs, logs.with_name("killed"))),
    Row("transplant --dry-run", 1 / 2, lambda logs: ("transplant", "-n", logs, "--into", logs.with_name("target"))),
    Row("ls", 1 / 3, lambda logs: ("ls", logs), tried=_LISTED),
    Row("top, one frame", 1 / 3, lambda logs: ("top", "--once", "--every", "100ms", logs), tried=_LISTED),
    Row("start: ls", 0.6, lambda logs: ("ls", logs), "fixture", tried=_STARTED),
    Row("start: dump", 0.6, lambda logs: ("dump", logs / "orders-none-0"), "fixture", tried=_STARTED),
    Row("start: verify", 0.6, lambda logs: ("verify", logs / "orders-none-0"), "fixture", tried=_STARTED),
    Row(
        "start: clean -n", 0.6, lambda logs: ("clean", "-n", *_POLICY, logs / "customers-0"), "fixture", tried=_STARTED
    ),
)


def first_partition(directory: Path) -> None:
    """A partition of `SEGMENTS` segments, closed as a broker closes it, whose keys come again."""
    with opened_log(directory) as log:
        for segment in range(SEGMENTS):
            if segment:
                log.roll()
            for batch in range(BATCHES):
                first = (segment * BATCHES + batch) * RECORDS
                log.append([Record(b"v" * 100, b"key-%d" % i, START_MS + first + i) for i in range(RECORDS)])
        log.close()


def directory_of(root: Path, count: int, name: str = "", *, stopped: bool = True, linked: bool = True) -> Path:
    """A log directory of `count` partitions with the files of one: hard links of them, or copies."""
    logs, first = root / (name or str(count)), root / "first" / "t-0"
    if not first.exists():
        first_partition(first)
    logs.mkdir()
    if stopped:
        (logs / ".kafka_cleanshutdown").touch()
    for number in range(count):
        (logs / f"t-{number}").mkdir()
        for path in first.iterdir():
            (os.link if linked else shutil.copyfile)(path, logs / f"t-{number}" / path.name)
    end = SEGMENTS * BATCHES * RECORDS
    for file in CHECKPOINTS:
        offset = 0 if file.startswith("log") or (file.startswith("recovery") and not stopped) else end
        lines = [f"t {number} {offset}" for number in range(count)]
        (logs / file).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return logs


class Places:
    """The directories that rows run on, each made when it is first needed."""

    def __init__(self, root: Path, count: int) -> None:
        self._root, self._count, self._fresh = root, count, 0

    def of(self, row: Row) -> Path:
        if row.fresh:
            shutil.rmtree(self._root / f"fresh{self._fresh}", ignore_errors=True)
            self._fresh += 1
            return directory_of(self._root, self._count, f"fresh{self._fresh}", linked=False)
        for name in {row.place, *(("killed", "target") if row.place == "stopped" else ())}:
            if not (self._root / name).exists():
                self._make(name)
        return self._root / name if row.place == name else self._root / row.place

    def _make(self, name: str) -> None:
        if name == "fixture":
            fixture_copy("4.3.0/clean", self._root / "fixtures").rename(self._root / name)
        elif name == "target":
            names = [f"t-{number}" for number in range(self._count)]
            target_directory(LocalFileSystem(), self._root / name, names)
        else:
            directory_of(self._root, self._count, name, stopped=name != "killed", linked=name != "copied")


# Runs a command from a small process: the largest size of a child begins with the size of its parent.
LAUNCHER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
"""


def cost(line: Sequence[str | Path], state: Path) -> tuple[float, int]:
    """User and system time of a process in seconds, and its largest resident size in MiB."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SEGLOG_", "PYTHON"))}
    environment |= {"XDG_STATE_HOME": str(state), "SEGLOG_CONFIG": os.devnull}
    launched = [sys.executable, "-I", "-S", "-c", LAUNCHER, *map(str, line)]
    done = subprocess.run(launched, capture_output=True, env=environment, cwd="/", text=True, errors="replace")
    code, seconds, mib = done.stdout.split()
    if int(code) not in (0, 1):
        sys.exit(f"{' '.join(map(str, line))} ended with {code}: {done.stderr}")
    return float(seconds), int(mib)


def require_compiled(python: str) -> None:
    """Ends the benchmark if a build's kernels are not compiled."""
    line = [python, "-m", "seglog_cli", "--version", "-v"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True, cwd="/").stdout
    if "kernels: native" not in shown:
        sys.exit(f"{python}: figures of kernels that are not compiled say nothing: {shown}")


def of_kafka(row: Row, root: Path, count: int) -> float:
    """Returns the CPU seconds in which Kafka's classes do the same to each partition, without the JVM's start."""
    logs = directory_of(root, count + 1, f"kafka {row.name}", stopped=row.place != "killed", linked=False)
    first, *others = sorted(each for each in logs.iterdir() if each.is_dir())
    options = {"dedupe_buffer_bytes": 1 << 20} if row.kafka == "clean" else {}
    with KafkaHarness(measuring=True) as kafka:
        work = getattr(kafka, row.kafka)
        work(first, **options)
        before = kafka.cpu_seconds()
        for each in others:
            work(each, **options)
        seconds = kafka.cpu_seconds() - before
    shutil.rmtree(logs)
    return seconds


def measure(
    row: Row, places: Places, builds: Sequence[str], turns: int, count: int, state: Path, *, with_kafka: bool
) -> None:
    """Prints a row."""
    least = [float("inf")] * len(builds)
    size = 0
    for _ in range(turns):
        for number, python in enumerate(builds):
            logs = places.of(row)
            seconds, resident = cost([python, "-m", "seglog_cli", *row.arguments(logs)], state)
            least[number] = min(least[number], seconds)
            size = resident if number == 0 else size
    alone = 1 if row.place == "fixture" or "of one" in row.name else count
    line = f"{row.name:<24}{least[0]:>9.2f} s{1000 * least[0] / alone:>9.2f} ms{size:>6} MiB"
    if len(builds) > 1:
        share = least[0] / least[1]
        line += f"{least[1]:>9.2f} s{share:>8.2f}{row.goal:>7.2f}  {'met' if share <= row.goal else 'NOT MET'}"
    line += "" if size <= MEMORY_GOAL else f"  more than {MEMORY_GOAL} MiB"
    if row.name == "ls":
        floor, _ = cost(["find", places.of(row), "-ls"], state)
        line += f"  find -ls {floor:.2f} s, {least[0] / floor:.1f} times it (goal {TIMES_FIND})"
    if len(builds) > 1 and row.place == "fixture":
        floor = min(cost([sys.executable, "-c", _IMPORTS], state)[0] for _ in range(turns))
        line += f"  numpy and Typer alone {floor:.2f} s, {floor / least[1]:.2f}"
    if with_kafka and row.kafka:
        theirs = of_kafka(row, state.parent, count)
        line += f"  Kafka's {row.kafka} {theirs:.2f} s, {least[0] / theirs:.2f} of it"
    is_slow = len(builds) > 1 and least[0] > row.goal * least[1]
    if row.tried and (is_slow or size > MEMORY_GOAL):
        line += f"\n    tried: {row.tried}"
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Prints a row for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--against", metavar="PYTHON")
    parser.add_argument("--rows", default="", help="beginnings of rows' names")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--kafka", action="store_true", help="print what Kafka's classes take, too")
    given = parser.parse_args()
    builds = [sys.executable, *([given.against] if given.against else [])]
    for python in builds:
        require_compiled(python)
    with tempfile.TemporaryDirectory(prefix="scale-") as root:
        places = Places(Path(root), given.count)
        sys.stdout.write(f"{'':<24}{'this build':>11}{'each':>12}{'memory':>10}{'older':>11}{'share':>8}{'goal':>7}\n")
        for row in ROWS:
            if not given.rows or row.name.startswith(tuple(given.rows.split(","))):
                measure(row, places, builds, given.turns, given.count, Path(root) / "state", with_kafka=given.kafka)


if __name__ == "__main__":
    main()
