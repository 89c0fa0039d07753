"""What `sql` over framed Avro records costs: `python -m tests.benchmarks.typed_asking [--records 6000000] [--runs 2]`.

Makes the log of `typed_export` (lz4; nested, with a decimal number, a time and a list), and prints in CPU seconds of
whole processes (best of `--runs`, in turns) what each question takes, less the same question to a log of ten records,
with its goal for so many records. `--seglog PROGRAM` asks another build beside this one; `--log` asks a log that is
there already, made by an earlier `--keep DIRECTORY`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.asking import cpu_of_command
from tests.benchmarks.typed_export import made

_OF_GOALS = 6_000_000
_FEW = 10
# What is told beside a goal that is not met.
_TRIED = {
    "a nested field": "made are only the fields that are named (half of the time before), a filter's rows are copied"
    " whole; of 0.30 us a record the kernels take 0.18 (walking Avro 0.10, lz4 0.05, records 0.03), the filter 0.03",
    "the last hundredth": "0.1 s is one segment's index, one piece of records and DuckDB's plan; starts differ by more",
}


def questions(count: int) -> dict[str, tuple[str, float]]:
    """Returns a query for each question, and the CPU seconds that it may take of 6 million records."""
    return {
        "a nested field": ("select count(\"offset\") from orders where value.addr.city = 'Oslo'", 0.9),
        "one key": ("select \"offset\", value.id from orders where key = 'key-77'", 0.9),
        "the last hundredth": (
            f'select count(*), max(value.id) from orders where "offset" >= {count * 99 // 100}',
            0.1,
        ),
        "group by key": (
            "select count(*) from (select key, count(*), max(value.id) from orders group by key)",
            2.5,
        ),
        "group by a nested field": ("select value.addr.city, avg(value.price) from orders group by 1", 0.0),
        "count": ("select count(*) from orders", 0.0),
    }


def main() -> None:
    """Runs with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=_OF_GOALS)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seglog", type=Path, help="the program of another build")
    parser.add_argument("--keep", type=Path, help="a directory for the logs, which are made unless they are there")
    options = parser.parse_args()
    with ExitStack() as stack:
        home = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seglog-typed-asking-")))
        for name, count in (("many", options.records), ("few", _FEW)):
            if not (home / name).exists():
                made(home / name, count)
        builds = {"this build": [sys.executable, "-m", "seglog"]}
        if options.seglog is not None:
            builds["the other"] = [str(options.seglog)]
        for what, (query, goal) in questions(options.records).items():
            spent = dict.fromkeys(((build, name) for build in builds for name in ("many", "few")), float("inf"))
            for _ in range(options.runs):
                for build, name in spent:
                    command = [*builds[build], "sql", query, str(home / name), "--value-as", "registry"]
                    spent[build, name] = min(spent[build, name], cpu_of_command(command, 1))
            least = goal * options.records / _OF_GOALS
            took = spent["this build", "many"] - spent["this build", "few"]
            aim = f"(goal {least:.2f})" if goal else ""
            nets = [f"{build} {spent[build, 'many'] - spent[build, 'few']:6.2f} s" for build in builds]
            starts = [f"{spent[build, 'few']:.2f}" for build in builds]
            sys.stdout.write(f"{what:26} {', '.join(nets)} {aim}; start-up {', '.join(starts)}\n")
            if goal and took > least:
                sys.stdout.write(f"{'':26} tried: {_TRIED.get(what, 'nothing yet')}\n")


if __name__ == "__main__":
    main()
