"""Beside a busy broker every reading command gives a verdict that one can act on: no false alarm, no vanished file.

A short run by default; `SEGLOG_EFFORT` makes it as long as wanted (the broker's starts do not count),
`SEGLOG_SEED` another one. The broker compacts, deletes, rolls, moves replicas, makes and deletes topics, is
killed and started again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support import effort
from tests.support.busy_broker import BusyBroker
from tests.support.command_line import run

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS = effort.tries(15)
SEED = effort.first_seed(1)
LIFE_S = 60.0  # after which the broker is killed or stopped, and started again
LEVELS = ("header", "crc", "record", "index", "semantic")
GONE = 10  # the exit code for a partition that was deleted before the command came to it


@dataclass
class Watch:
    """What the commands said that was wrong. `book` has it as soon as it is found: a run that dies keeps it."""

    book: Path
    alarms: list[str] = field(default_factory=list)
    commands: int = 0

    def call(self, *arguments: str | Path, allowed: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """Runs a command; its JSON lines. Another exit code is an alarm, and so is a traceback."""
        self.commands += 1
        done = run(*arguments)
        gone = done.exit_code == GONE and not all(Path(a).exists() for a in arguments if isinstance(a, Path))
        if done.exit_code not in allowed and not gone:
            self._alarm(f"{arguments}: exit code {done.exit_code}\n{done.stdout[-3000:]}\n{done.stderr[-1500:]}")
        if "--json" not in arguments or done.exit_code not in (0, 1):
            return []
        return [json.loads(line) for line in done.stdout.splitlines()]

    def sound(self, what: str, rows: Iterator[dict[str, Any]]) -> None:
        """Notes rows that should not be there."""
        for row in rows:
            self._alarm(f"{what}: {row}")

    def _alarm(self, text: str) -> None:
        self.alarms.append(text)
        with self.book.open("a") as book:
            book.write(text + "\n\n")


def partitions_of(directory: Path) -> list[Path]:
    live = (path for path in sorted(directory.iterdir()) if path.is_dir() and path.name[0] != "_")
    return [path for path in live if not path.name.endswith(("-delete", "-stray", "-future"))]


def unconfirmed(busy: BusyBroker, topic: str, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of hanging transactions that Kafka's own tool does not call so: a killed broker may leave out markers."""
    known = {first for _, first in busy.hanging_transactions(topic)}
    return (row for row in rows if row["first_offset"] not in known)


def look_at_directories(watch: Watch, busy: BusyBroker, chance: random.Random) -> None:
    directory = chance.choice(busy.directories)
    level = chance.choice(LEVELS)
    live = ["--live"] if chance.random() < 0.5 else []
    rows = watch.call("verify", "--json", "--level", level, *live, directory)
    grave = (row for row in rows if row["type"] == "finding" and row["severity"] != "info")
    watch.sound(f"verify --level {level} {live}", grave)
    rows = watch.call("doctor", "--json", *busy.directories, allowed=(0, 1))
    grave = [row for row in rows if row["type"] == "diagnosis" and row["severity"] != "note"]
    hanging = [row for row in grave if row["code"] == "TRANSACTION_HANGING"]
    watch.sound("doctor", (row for row in grave if row not in hanging))
    for topic in {row["partition"].rpartition("-")[0] for row in hanging}:
        here = (row for row in hanging if row["partition"].startswith(f"{topic}-"))
        watch.sound("doctor", unconfirmed(busy, topic, here))
    watch.call("ls", "--json", "--long", *busy.directories)
    watch.call("clean", "--dry-run", "--json", directory)
    watch.call("retain", "--dry-run", "--json", directory)
    watch.call("stats", "--json", directory)


def look_at_a_partition(watch: Watch, busy: BusyBroker, chance: random.Random, out: Path) -> None:
    every = [path for directory in busy.directories for path in partitions_of(directory)]
    if not every:
        return
    partition = chance.choice(every)
    rows = watch.call("txn", "--json", partition, "open", allowed=(0, 1))
    hanging = [row for row in rows if row.get("hanging")]
    if hanging:
        watch.sound("txn", unconfirmed(busy, partition.name.rpartition("-")[0], hanging))
    rows = watch.call("dump", "--json", "-r", partition)
    watch.sound("dump", (row for row in rows if row["type"] == "finding" and row["severity"] != "info"))
    watch.call("export", partition, "-o", out, "--replace", "--bytes", "base64")
    watch.call("explain", "--json", partition)
    watch.call("read", "--json", "--bytes", "base64", partition)
    watch.call("diff", "--json", partition, partition, allowed=(0, 1))
    watch.call("verify", "--json", "--level", "semantic", partition)
    if partition.name.startswith(("keyed", "both", "paid-keys")):
        watch.call("clean", "--dry-run", "--json", partition)


def test_no_false_alarm_beside_a_busy_broker(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="needs confluent-kafka (of the group dev)")
    chance, watch = random.Random(SEED), Watch(tmp_path / "alarms.txt")
    busy = BusyBroker(tmp_path, SEED)
    life, watched = min(LIFE_S, SECONDS / 2), 0.0
    while watched < SECONDS:
        busy.start()
        busy.occupy()
        begun, lasts = time.monotonic(), min(SECONDS - watched, life * chance.uniform(0.5, 1))
        try:
            while time.monotonic() < begun + lasts:
                look_at_directories(watch, busy, chance)
                look_at_a_partition(watch, busy, chance, tmp_path / "out.jsonl")
                if chance.random() < 0.1:
                    busy.move("plain", chance.randrange(2), chance.choice(busy.directories))
            watched += time.monotonic() - begun
        finally:
            (busy.kill if chance.random() < 0.7 else busy.stop)()
    assert watch.alarms == [], "\n\n".join(watch.alarms[:10])
