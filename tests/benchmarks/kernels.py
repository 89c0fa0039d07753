"""Every kernel that Python calls, natively and under numba's JIT, on the arguments of real work.

    python -m tests.benchmarks.kernels [--records N] [--rounds N]

1. Commands look at, clean, copy and export a log of N records (and the legacy fixtures) in a process that keeps, of
   each kernel, the arguments of its largest call.
2. Two processes, one a mode, replay these calls in turn, round after round, on fresh copies. A kernel's time is its
   least CPU time over all rounds.
3. The table shows microseconds and the ratio native / JIT, which is to be 1.05 at most.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LEAST_NS = 3_000_000  # a measurement repeats short calls until they take this long together
Calls = dict[str, tuple[Any, ...]]


def main() -> None:
    """Records, replays, prints."""
    options = _options()
    if options.replay:
        _replay(Path(options.replay))
        return
    with tempfile.TemporaryDirectory(prefix="seglog-kernels-") as work:
        if options.record:
            _record(Path(options.record), options.records, Path(work))
            return
        calls = Path(work) / "calls"
        _run("native", "--record", str(calls), "--records", str(options.records))
        found = _compare(calls, options.rounds)
    _show(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    return parser.parse_args()


def _environment(mode: str) -> dict[str, str]:
    return {**os.environ, "SEGLOG_KERNELS": mode, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}


def _run(mode: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.kernels", *arguments]
    subprocess.run(command, env=_environment(mode), cwd=ROOT, check=True)


# --- recording ------------------------------------------------------------------------------------------------------


def _record(target: Path, records: int, work: Path) -> None:
    calls: Calls = {}
    _keep_arguments(calls)
    _work(records, work)
    target.write_bytes(pickle.dumps({name: _to_pickle(arguments) for name, arguments in calls.items()}))


def _keep_arguments(calls: Calls) -> None:
    """Wraps every kernel, before any is imported, so that `calls` has the largest call of each."""
    from seglog.kernels import _jit

    def keeping(function: Any, marked: Any) -> Any:
        name = _jit.native_name(function)

        def call(*arguments: Any) -> Any:
            if name not in calls or _size(arguments) > _size(calls[name]):
                calls[name] = _copy(arguments)
            return marked(*arguments)

        return call

    for marker in ("kernel", "inlined"):
        original = getattr(_jit, marker)
        setattr(_jit, marker, lambda function, original=original: keeping(function, original(function)))


def _size(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(_size(part) for part in value)
    return value.nbytes if isinstance(value, np.ndarray) else abs(int(value)) % (1 << 20) >> 10 if _number(value) else 0


def _number(value: Any) -> bool:
    return isinstance(value, (int, np.integer))


def _copy(value: Any) -> Any:
    """A copy of arguments; a strided column stays one."""
    if isinstance(value, tuple):
        return tuple(_copy(part) for part in value)
    if isinstance(value, np.void):
        return np.array([value], dtype=value.dtype)[0]
    if not isinstance(value, np.ndarray):
        return value
    return _table_of(value)[:, 0] if _is_column(value) else value.copy()


@dataclass(frozen=True)
class _Column:
    """A strided column to be pickled, which would make an array of it whose items lie side by side: column 0 here."""

    table: np.ndarray


def _is_column(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and not value.flags.c_contiguous


def _table_of(column: np.ndarray) -> np.ndarray:
    table = np.zeros((len(column), abs(column.strides[0]) // column.itemsize), dtype=column.dtype)
    table[:, 0] = column
    return table


def _to_pickle(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_to_pickle(part) for part in value)
    return _Column(_table_of(value)) if _is_column(value) else value


def _work(records: int, work: Path) -> None:
    from seglog_cli.app import run

    made = _logs(records, work)
    copy, cleaned = work / "copy", work / "cleaned"
    commands: list[list[str]] = []
    for log in made:
        commands += [["verify", "--level", level, str(log)] for level in ("crc", "record", "semantic")]
        commands += [["dump", "--records", str(log)], ["dump", "--records", "--json", str(log)]]
        commands += [["dump", "--records", "--key", "key-000000000001", str(log)]]
        commands += [["dump-log", "--print-data-log", "--files", str(next(log.glob("*.log")))], ["stats", str(log)]]
        commands += [["export", "--format", "parquet", "-o", str(work / f"{log.name}.parquet"), str(log)]]
        shutil.copytree(log, copy / log.name)
        shutil.copytree(log, cleaned / log.name)
        commands += [["diff", str(log), str(copy / log.name)], ["recover", str(copy / log.name)]]
        commands += [["clean", "--policy", "compact", "--roll", str(cleaned / log.name)]]
    for command in commands:
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            code = run(command)
        if code != 0:
            raise SystemExit(f"seglog {' '.join(command)} ended with {code}: its kernels cannot be compared")


def _logs(records: int, work: Path) -> list[Path]:
    """Keyed logs, uncompressed and lz4, one of them with headers; and a legacy one."""
    from seglog.configuration.keys import LogConfig
    from seglog.model import Compression, Header, Record, TopicPartition
    from tests.benchmarks.keyed_logs import append_keyed, open_directory

    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    (work / "logs").mkdir()
    with contextlib.closing(open_directory(work / "logs", config)) as directory:
        for name, codec in (("plain", Compression.NONE), ("packed", Compression.LZ4)):
            append_keyed(directory.log(TopicPartition(name, 0), create=True), records, records // 4, codec)
        headers = (Header("trace", b"0123456789abcdef"), Header("retries", None))
        log = directory.log(TopicPartition("headers", 0), create=True)
        log.append([Record(b"v" * 40, key=b"key-%012d" % (i % 1000), headers=headers) for i in range(records // 20)])
    return sorted((work / "logs").glob("*-0"))


# --- replaying ------------------------------------------------------------------------------------------------------


def _replay(calls_file: Path) -> None:
    """Answers each line on stdin, the name of a kernel, with its least CPU time in nanoseconds."""
    calls: Calls = {name: _own(arguments) for name, arguments in pickle.loads(calls_file.read_bytes()).items()}
    for line in sys.stdin:
        name = line.strip()
        _say(str(_measure(_kernel(name), calls[name])))


def _own(value: Any) -> Any:
    """Arguments with the very dtypes that the engine uses, not unpickled ones, which are compared field by field."""
    from seglog import layout

    if isinstance(value, _Column):
        return value.table[:, 0]
    if isinstance(value, tuple):
        return tuple(_own(part) for part in value)
    tables = [each for each in vars(layout).values() if isinstance(each, np.dtype)]
    own = [each for each in tables if each == getattr(value, "dtype", None)]
    if isinstance(value, np.void) and own:
        return np.array([value], dtype=own[0])[0]
    return value.view(own[0]) if own and value.dtype.names else value


def _kernel(name: str) -> Callable[..., Any]:
    import importlib

    module, _, function = name.rpartition("__")
    home = importlib.import_module(f"seglog.kernels.{module.replace('__', '.')}")
    found: Callable[..., Any] = getattr(home, function)
    return found


def _measure(kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    kernel(*_copy(arguments))  # compiles it, or brings it into the cache
    total = repeats = 0
    while total < LEAST_NS and repeats < 2000:
        fresh = _copy(arguments)
        start = time.thread_time_ns()
        kernel(*fresh)
        total += time.thread_time_ns() - start
        repeats += 1
    return total // repeats


def _compare(calls: Path, rounds: int) -> dict[str, tuple[int, int]]:
    names = sorted(pickle.loads(calls.read_bytes()))
    least: dict[str, list[int]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_worker(mode, calls)) for mode in ("native", "jit")]
        for name in names:
            times = [[worker(name) for worker in workers] for _ in range(rounds)]
            least[name] = [min(column) for column in zip(*times, strict=True)]
    return {name: (native, jit) for name, (native, jit) in least.items()}


@contextlib.contextmanager
def _worker(mode: str, calls: Path) -> Iterator[Callable[[str], int]]:
    command = [sys.executable, "-m", "tests.benchmarks.kernels", "--replay", str(calls)]
    with subprocess.Popen(
        command, env=_environment(mode), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        # cores need not be equally fast: with one of their own, each mode would have another machine
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def ask(name: str) -> int:
            stdin.write(name + "\n")
            stdin.flush()
            return int(stdout.readline())

        yield ask
        stdin.close()


def _show(found: dict[str, tuple[int, int]]) -> None:
    _say(f"{'kernel':40} {'native µs':>12} {'jit µs':>12} {'ratio':>7}")
    for name, (native, jit) in found.items():
        _say(f"{name.replace('__', '.'):40} {native / 1000:12.1f} {jit / 1000:12.1f} {native / jit:7.2f}")
    slower = [name for name, (native, jit) in found.items() if native > 1.05 * jit]
    _say(f"{len(found)} kernels, {len(slower)} slower than 1.05 of the JIT's time: {', '.join(slower) or 'none'}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
