"""What asking a log costs: `python -m tests.benchmarks.asking [--records 5000000] [--codecs none,lz4] [--log DIR]`.

Makes a log per codec (or takes the partition directory --log), and prints, in CPU seconds of this process (user and
system; best of `--runs`) and as ratios within one run, what must be reached:

- an Arrow stream against `Log.columns()`: key, value, offset, timestamp; offset and timestamp alone;
- DuckDB's group by against an export (a process of its own) and the same query on its file;
- the last hundredth by offset and by time, and a point: bytes that are read, and CPU against a query that reads all;
- a key's newest record from the end on, and a key that is not there against a scan of all keys;
- planning of 10,000 segments in 1,000 partitions; the peak of this process's memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import seglog
from seglog.configuration.keys import LogConfig
from seglog.format.filenames import segment_file_name
from seglog.kernels.row_keys import match_keys
from seglog.model import TopicPartition
from seglog.storage.routing import machine_files
from seglog_ask.table.engines.dataset import pieces_of_source
from seglog_ask.table.engines.newest import newest_of_key
from seglog_ask.table.engines.opening import open_source
from seglog_ask.table.engines.pruning import Question
from seglog_ask.table.read.records import records_of
from tests.benchmarks.keyed_logs import keyed_columns, open_directory

STREAM_GOALS = {"none": 1.7, "lz4": 1.45, "zstd": 1.2}
VALUES = ["offset", "timestamp", "key", "value"]
GROUP_BY = "select count(*) from (select key, count(*) from orders group by key)"
LONGEST = "select max(octet_length(key)), max(octet_length(value)), count(*) from orders"


def cpu_of(work: Callable[[], Any], runs: int) -> float:
    """The least CPU seconds of this process over `runs` runs."""
    found = []
    for _ in range(runs):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found)


def cpu_of_command(arguments: list[str], runs: int) -> float:
    """The least CPU seconds of a process over `runs` runs."""
    found = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(arguments, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def show(what: str, seconds: float, compared: float | None = None, goal: str = "", more: str = "") -> None:
    """Prints a line: CPU seconds, the ratio, the goal."""
    ratio = "" if compared is None else f"{seconds / compared:8.3f} x"
    sys.stdout.write(f"{what:<52} {seconds:8.4f} s {ratio:>10} {goal:<18} {more}\n")
    sys.stdout.flush()


def made(directory: Path, count: int, codec: str) -> Path:
    """Makes a log of that many records, a millisecond apart, in segments of 100 MB."""
    config = LogConfig.from_mapping({"segment.bytes": 100_000_000})
    directory.mkdir()
    with open_directory(directory, config) as logs:
        log = logs.log(TopicPartition("orders", 0), create=True)
        first = 0
        for columns in keyed_columns(count, max(count // 5, 1)):
            columns.rows["timestamp"] = 1_700_000_000_000 + np.arange(first, first + len(columns))
            log.append(columns, codec=codec)
            first += len(columns)
    return directory / "orders-0"


def streams(path: Path, codec: str, runs: int) -> None:
    """The Arrow stream against the engine's own columns."""

    def columns() -> int:
        with seglog.open_log(path) as log:
            return sum(map(len, log.columns()))

    table = seglog.open_table(path)
    alone = cpu_of(columns, runs)
    show("columns()", alone)
    for names, goal in ((VALUES, STREAM_GOALS[codec]), (table.schema.names, None), (VALUES[:2], 1.15)):
        spent = cpu_of(partial(rows_of, table, names), runs)
        show(f"Arrow of {len(names)} columns", spent, alone, f"(<= {goal})" if goal else "")
    show("count_rows()", cpu_of(table.count_rows, runs), alone)


def rows_of(table: Any, names: list[str]) -> int:
    """Streams some columns of a table; returns the number of rows."""
    return sum(batch.num_rows for batch in table.scanner(names).to_reader())


def engines(path: Path, runs: int) -> None:
    """DuckDB on the table against an export and a query on its file."""
    orders = seglog.open_table(path)
    with duckdb.connect(config={"threads": 1}) as connection, tempfile.TemporaryDirectory() as name:
        connection.register("orders", orders)
        direct = cpu_of(lambda: connection.execute(GROUP_BY).fetchall(), runs)
        show("DuckDB group by key, on the table", direct)
        files = {"parquet": "read_parquet", "jsonl": "read_json"}
        for extension, read in files.items():
            file = Path(name) / f"o.{extension}"
            command = [sys.executable, "-m", "seglog", "export", str(path), "-o", str(file), "--replace"]
            exported = cpu_of_command(command, runs)
            size = file.stat().st_size
            query = GROUP_BY.replace("from orders", f"from {read}('{file}')")
            asked = cpu_of(lambda query=query: connection.execute(query).fetchall(), runs)
            goal = "(<= 4.0 s)" if extension == "parquet" else ""
            show(f"export to {extension}, {size / 1e6:.0f} MB", exported, None, goal)
            show(f"group by on the {extension}", asked)
            share = "0.4" if extension == "parquet" else "0.333"
            show(f"  on the table / export to {extension} and query", direct, exported + asked, f"(<= {share})")


def pruned(path: Path, runs: int) -> None:
    """Queries of the last hundredth and of one record, against one that reads everything."""
    orders = seglog.open_table(path)
    whole = orders.to_table(columns=["offset", "timestamp"])
    first, last = int(pc.quantile(whole["offset"], 0.99)[0].as_py()), int(whole["offset"][-1].as_py())
    since = int(np.quantile(whole["timestamp"].cast(pa.int64()).to_numpy(), 0.99))
    source = open_source(machine_files(), [path])
    size = sum(piece.bytes for piece in pieces_of_source(source, Question(None, orders.schema)))
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("orders", orders)
        everything = cpu_of(lambda: connection.execute(LONGEST).fetchall(), runs)
        show("DuckDB reads key and value of all", everything)
        stamp = pa.scalar(since, pa.timestamp("ms", "UTC"))
        offset, time_of = pc.field("offset"), pc.field("timestamp")
        asked = [
            ("last hundredth by offset", f'"offset" >= {first}', offset >= first, "(<= 0.025)", 0.02),
            (
                "last hundredth by time",
                f"timestamp >= make_timestamptz({since}000)",
                time_of >= stamp,
                "(<= 0.025)",
                0.02,
            ),
            ("one record by offset", f'"offset" = {last // 2}', offset == last // 2, "(<= 0.030 s)", 0.005),
        ]
        for what, where, condition, goal, bytes_goal in asked:
            read = sum(piece.bytes for piece in pieces_of_source(source, Question(condition, orders.schema)))
            spent = cpu_of(lambda where=where: connection.execute(f"{LONGEST} where {where}").fetchall(), runs + 3)
            show(what, spent, everything, goal, f"{read / size:.2%} of the bytes (<= {bytes_goal:.1%})")


def newest(path: Path, runs: int) -> None:
    """A key's newest record from the end on."""
    source = open_source(machine_files(), [path])
    with seglog.open_log(path) as log:
        late = next(record.key for record in log.records(log.log_end_offset - 10)) or b""
    wanted = np.frombuffer(b"absent", dtype=np.uint8)

    def scan() -> None:
        for piece in pieces_of_source(source, Question(None, pa.schema([]))):
            for records in records_of(source.fs, piece, source.options):
                match_keys(records.arena, records.rows, wanted, np.empty(len(records), dtype=bool))

    show(
        "newest record of a key in the last hundredth",
        cpu_of(lambda: list(newest_of_key(source, late)), runs),
        None,
        "(<= 0.030 s)",
    )
    scanned = cpu_of(scan, runs)
    show("scan of all keys", scanned)
    show("a key that is not there", cpu_of(lambda: list(newest_of_key(source, b"absent")), runs), scanned, "(<= 1.1)")


def planning(home: Path) -> None:
    """Opening and planning 1,000 partitions of ten segments each."""
    with seglog.open_log(home / "few-0", create=True) as log:
        log.append([seglog.Record(b"v" * 50, timestamp=1000)])
    first = home / "few-0" / segment_file_name(0)
    data = first.read_bytes()
    many = home / "many"
    many.mkdir()
    for number in range(1000):
        directory = many / f"t{number % 100}-{number}"
        directory.mkdir()
        for base in range(10):
            (directory / segment_file_name(base)).write_bytes(data if base == 0 else b"")
    wanted = (pc.field("offset") == 7) & (pc.field("partition") == 500)
    found: list[Any] = []

    def plan() -> None:
        source = open_source(machine_files(), [many])
        found[:] = list(pieces_of_source(source, Question(wanted, seglog.open_table(first.parent).schema)))

    show("10,000 segments: opened, planned for one of them", cpu_of(plan, 2), None, "(<= 1 s)")
    every = pc.field("offset") == 7
    source = open_source(machine_files(), [many])
    asked = Question(every, seglog.open_table(first.parent).schema)
    show("10,000 segments: planned for one of each partition", cpu_of(lambda: list(pieces_of_source(source, asked)), 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seglog-asking-") as name:
        for codec in options.codecs.split(","):
            path = options.log or made(Path(name) / codec, options.records, codec)
            sys.stdout.write(f"\n{path}, {codec}\n")
            streams(path, codec, options.runs)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            sys.stdout.write(f"peak memory of this process so far: {peak} MiB (<= 300)\n")
            engines(path, options.runs)
            pruned(path, options.runs)
            newest(path, options.runs)
        planning(Path(name))


if __name__ == "__main__":
    main()
