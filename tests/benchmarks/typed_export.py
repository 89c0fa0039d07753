"""What an export of decoded values costs: `python -m tests.benchmarks.typed_export [--records 6000000] [--runs 1]`.

Makes a log of framed Avro records (lz4; nested, with a decimal number, a time and a list), and prints in CPU seconds of
whole processes (best of `--runs`, in turns), with ratios within the run:

- `export -o FILE.parquet` of the bytes as they are;
- the same, decoded: columns with types (at most 12 s of 6 million records);
- `sql 'select *' -o FILE.parquet` of the same columns;
- with `--text`, `export -o FILE.csv`, which decodes to text.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import seglog
from seglog.configuration.keys import LogConfig
from seglog.model import TopicPartition
from tests.benchmarks.asking import cpu_of_command, show
from tests.benchmarks.keyed_logs import open_directory
from tests.support.schema_registry import avro, framed, registered, write_log

ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": "street", "type": "string"}, {"name": "city", "type": "string"}],
}
TYPES: dict[str, Any] = {
    "id": "long",
    "name": "string",
    "price": "double",
    "addr": ADDRESS,
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "tags": {"type": "array", "items": "string"},
}
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in TYPES.items()]}
_AT_ONCE = 30_000
_DIFFERENT = 300_000
_GOAL_SECONDS = 2e-6  # of a record: 12 s of 6 million


def orders(count: int) -> Iterator[bytes]:
    """Yields framed values."""
    draw = random.Random(1)
    for i in range(count):
        yield framed(
            1,
            avro(
                SCHEMA,
                {
                    "id": i,
                    "name": f"customer-{i % 1000}",
                    "price": draw.random() * 100,
                    "addr": {"street": f"street {i % 977}", "city": draw.choice(("Oslo", "Bern", "Rome"))},
                    "amount": Decimal(i % 100_000) / 100,
                    "at": datetime.fromtimestamp(1_700_000_000 + i, UTC),
                    "tags": ["a", "bb"][: i % 3],
                },
            ),
        )


def made(directory: Path, count: int) -> None:
    """Makes a log directory with so many records, of which 300,000 differ."""
    write_log(directory / "_schemas-0", [registered("orders-value", 1, 1, SCHEMA)])
    values = list(orders(min(count, _DIFFERENT)))
    with open_directory(directory, LogConfig.from_mapping({"segment.bytes": 100_000_000})) as logs:
        log = logs.log(TopicPartition("orders", 0), create=True)
        for first in range(0, count, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, count))
            records = [
                seglog.Record(values[i % len(values)], key=b"key-%d" % (i % 200_000), timestamp=1_700_000_000_000 + i)
                for i in numbers
            ]
            log.append(records, codec="lz4")


def main() -> None:
    """Runs with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--text", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="seglog-typed-export-") as name:
        directory = Path(name)
        made(directory / "logs", options.records)
        to_file = ["-o", str(directory / "o.parquet"), "--replace"]
        seglog_of = [sys.executable, "-m", "seglog"]
        export, decoded = [*seglog_of, "export", str(directory / "logs" / "orders-0")], ["--value-as", "registry"]
        asked = [*seglog_of, "sql", "select * from orders", str(directory / "logs")]
        commands = {
            "export to Parquet, bytes": [*export, *to_file],
            "export to Parquet, columns with types": [*export, *to_file, *decoded],
            "sql -o FILE.parquet": [*asked, *to_file, *decoded],
        }
        if options.text:
            commands["export to CSV, text"] = [*export, "-o", str(directory / "o.csv"), "--replace", *decoded]
        spent = dict.fromkeys(commands, float("inf"))
        for _ in range(options.runs):
            for what, command in commands.items():
                spent[what] = min(spent[what], cpu_of_command(command, 1))
        raw = spent["export to Parquet, bytes"]
        for what, seconds in spent.items():
            goal = f"(<= {options.records * _GOAL_SECONDS:.1f} s)" if "types" in what else ""
            show(what, seconds, raw, goal)


if __name__ == "__main__":
    main()
