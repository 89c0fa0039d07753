"""What engines take for an open table: `python -m tests.benchmarks.engines [--records 1000000] [--engine NAME]`.

Makes a log of four partitions (values of 80 bytes), and for each engine that is installed prints, in a process of its
own: CPU seconds of going through all records (`Engine.all`: a question to keys and offsets, or a copy), without what
importing the engine takes, and the peak of its memory above that before. README's table of engines has these figures.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

import seglog
from tests.support.engines import ENGINES, NOT_INSTALLED, Engine, installed

PARTITIONS, _AT_ONCE = 4, 50_000
_WARM = 1000  # records of the log whose reading imports what an engine needs


def made(directory: Path, count: int) -> None:
    """Makes a log directory with so many records."""
    directory.mkdir()
    for number in range(PARTITIONS):
        for first in range(0, count // PARTITIONS, _AT_ONCE):
            numbers = np.arange(first, min(first + _AT_ONCE, count // PARTITIONS))
            rows = {
                "key": [b"customer-%d" % (i * 7919 % 1000) for i in numbers.tolist()],
                "value": [b'{"n": %d, "city": "Oslo", "text": "%s"}' % (i, b"x" * 50) for i in numbers.tolist()],
                "timestamp": pa.array(1_700_000_000_000 + numbers, pa.timestamp("ms", "UTC")),
            }
            path = directory / f"orders-{number}"
            seglog.append_table(path, pa.table(rows), create=True, config={"segment.bytes": "32 MiB"})


def measured(engine: Engine, home: Path) -> str:
    """Returns the CPU seconds and MiB of this process, which has done nothing else before."""
    engine.all(seglog.open_table(home / "warm"), _new(home / "warm-copy"))
    Path("/proc/self/clear_refs").write_text("5")
    before, begun = _resident("VmRSS"), time.process_time()
    engine.all(seglog.open_table(home / "logs"), _new(home / "copy"))
    return f"{time.process_time() - begun:8.2f} s {(_resident('VmHWM') - before) / 1024:8.0f} MiB"


def _new(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _resident(what: str) -> int:
    found = re.search(rf"^{what}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def main() -> None:
    """Runs with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=[engine.name for engine in ENGINES])
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)  # the directory that the first process made
    options = parser.parse_args()
    chosen = [engine for engine in ENGINES if options.engine in (None, engine.name)]
    if options.within is not None:
        sys.stdout.write(measured(chosen[0], options.within))
        return
    with tempfile.TemporaryDirectory(prefix="seglog-engines-") as name:
        home = Path(name)
        made(home / "logs", options.records)
        made(home / "warm", _WARM)
        size = sum(path.stat().st_size for path in home.glob("logs/*/*.log"))
        sys.stdout.write(f"{options.records} records, {size / 1e6:.0f} MB\n")
        for engine in chosen:
            if not installed(engine):
                sys.stdout.write(f"{engine.name:16} {NOT_INSTALLED.format(engine.package)}\n")
                continue
            with tempfile.TemporaryDirectory(dir=home) as place:
                (Path(place) / "logs").symlink_to(home / "logs")
                (Path(place) / "warm").symlink_to(home / "warm")
                command = [sys.executable, "-m", __spec__.name, "--engine", engine.name, "--within", place]
                found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            package = "pylance" if engine.package == "lance" else engine.package
            sys.stdout.write(f"{engine.name:16} {version(package):10} {found}\n")


if __name__ == "__main__":
    main()
