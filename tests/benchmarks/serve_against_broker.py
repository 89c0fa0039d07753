"""`seglog serve` against a real broker on the same directory, in one run: a consumer's throughput, and memory.

    python -m tests.benchmarks.serve_against_broker [--records 1000000] [--sizes 100,1024] [--runs 5]
        [--client librdkafka|franz-go]
    python -m tests.benchmarks.serve_against_broker --partitions 10000

The first needs Java 17+ and Maven, as the `kafka` tests do, and Go for franz-go. A broker writes a topic of each record
size; then one consumer (librdkafka by confluent-kafka, whose Python loop takes a microsecond a record, or franz-go)
reads each from its first offset to its end, from that broker and from a `seglog serve` beside it by turns, so that what
else the machine does slows both. Time begins when the first record comes. The best of the runs counts on both sides;
memory is the most that each process ever held. Only the ratios of one run mean anything.

With --partitions a `seglog serve` over so many partitions of three small segments is started, and librdkafka asks it
for all of them: the seconds from the start of the process to the answer, and its most memory, with the goals for
10,000.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.many_partitions import directory_of
from tests.support.client_programs import go_program
from tests.support.kafka.broker import Broker

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 60
CHUNK_RECORDS = 10_000
FIRST_ANSWER_SECONDS, FIRST_ANSWER_MIB = 2.0, 100
TRIED = """On an idle machine of two cores: 0.99 and 0.91 of a broker (100 bytes, 1 KiB) by franz-go, 0.88 and 0.92 by
librdkafka. Finding the next span in a thread while the answer is sent, in turns without it: 0.96 and 1.37 times as fast
by librdkafka, 1.10 and 0.80 times by franz-go, for 0.95, 1.08, 1.06 and 1.31 times the CPU time. The machine was quiet
in the first of these rows only.
"""


@dataclass(frozen=True)
class Read:
    """One run: records and bytes of keys and values, and the seconds between the first record and the last."""

    records: int
    size: int
    seconds: float


def produce(bootstrap: str, topic: str, records: int, size: int) -> None:
    """Writes records of random, so incompressible, values."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    value = os.urandom(size)
    for i in range(records):
        while True:
            try:
                producer.produce(topic, value, b"%016d" % i)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(LIMIT_SECONDS * 5)
    assert left == 0, f"{left} records were not written"


def consume_by_librdkafka(bootstrap: str, topic: str, records: int) -> Read:
    """Reads the topic's partition 0 once."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    options = {"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False}
    # With 100,000 messages in its queue the client pauses for a second (its default), whoever serves: best cases differ
    # by nothing but the number of these seconds.
    consumer = Consumer({**options, "fetch.queue.backoff.ms": 1})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        count = size = 0
        begun = 0.0
        while count < records:
            messages = consumer.consume(CHUNK_RECORDS, timeout=LIMIT_SECONDS if not count else 1)
            begun = begun or time.perf_counter()
            count += len(messages)
            size += sum(len(each.value()) for each in messages)
        return Read(count, size, time.perf_counter() - begun)
    finally:
        consumer.close()


def consume_by_franz_go(bootstrap: str, topic: str, records: int) -> Read:
    """Reads the topic's partition 0 once."""
    command = [go_program("rate"), bootstrap, topic, str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    return Read(**json.loads(done.stdout))


CONSUMERS: dict[str, Callable[[str, str, int], Read]] = {
    "librdkafka": consume_by_librdkafka,
    "franz-go": consume_by_franz_go,
}


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("the system does not say")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(directory: Path) -> Iterator[tuple[int, str]]:
    """`seglog serve` on a directory: its process, and where it listens."""
    command = [sys.executable, "-m", "seglog_cli", "serve", "--json", "--listen", "127.0.0.1:0", str(directory)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'core'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
    assert process.stdout is not None
    try:
        yield process.pid, json.loads(process.stdout.readline())["listen"]
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_SECONDS)


@dataclass
class Side:
    """One side: its process, where it listens, every run of each topic, and the processor time of all of them."""

    pid: int
    bootstrap: str
    consume: Callable[[str, str, int], Read]
    runs: dict[str, list[Read]] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    def read(self, topic: str, records: int) -> None:
        before = cpu_seconds(self.pid)
        self.runs.setdefault(topic, []).append(self.consume(self.bootstrap, topic, records))
        self.cpu[topic] = self.cpu.get(topic, 0.0) + cpu_seconds(self.pid) - before

    def best(self, topic: str) -> float:
        """Bytes of values a second."""
        return max(run.size / run.seconds for run in self.runs[topic])


def measure(sides: tuple[Side, Side], topics: dict[str, int], records: int, runs: int) -> None:
    for topic in topics:
        for side in sides:
            side.consume(side.bootstrap, topic, records)  # until everything is warm
        for i in range(runs):
            for side in sides if i % 2 else reversed(sides):
                side.read(topic, records)


def first_answer(partitions: int) -> None:
    """Prints how long clients wait for a server that has just been started."""
    from confluent_kafka.admin import AdminClient

    with tempfile.TemporaryDirectory(prefix="seglog-serve-") as work:
        logs, begun = directory_of(Path(work), partitions), time.perf_counter()
        with serving(logs) as (pid, bootstrap):
            topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=LIMIT_SECONDS).topics
            seconds, mib = time.perf_counter() - begun, peak_bytes(pid) >> 20
            count = sum(len(topic.partitions) for topic in topics.values())
            assert count == partitions, f"{count} partitions were told"
            used = cpu_seconds(pid)
    answer = f"{seconds:.2f} s (goal {FIRST_ANSWER_SECONDS:.1f}), {used:.2f} CPU s, {mib} MiB (goal {FIRST_ANSWER_MIB})"
    sys.stdout.write(f"first answer of {partitions:,} partitions: {answer}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--sizes", default="100,1024")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--client", choices=CONSUMERS, default="librdkafka")
    parser.add_argument("--partitions", type=int, help="ask a server of so many partitions for all of them, only")
    given = parser.parse_args()
    if given.partitions:
        first_answer(given.partitions)
        return
    consume = CONSUMERS[given.client]
    topics = {f"size-{size}": int(size) for size in given.sizes.split(",")}
    with tempfile.TemporaryDirectory(prefix="seglog-serve-") as work:
        directory = Path(work) / "logs"
        with Broker(directory, measured=True) as broker:
            for topic, size in topics.items():
                broker.create_topic(topic)
                produce(broker.bootstrap, topic, given.records, size)
            with serving(directory) as (pid, bootstrap):
                sides = Side(broker.process.pid, broker.bootstrap, consume), Side(pid, bootstrap, consume)
                measure(sides, topics, given.records, given.runs)
                title = f"one {given.client} consumer, the same directory, the best of {given.runs} runs by turns"
                show(title, topics, *sides)


def show(title: str, topics: dict[str, int], kafka: Side, seglog: Side) -> None:
    table = Table(title=title)
    for column in ("record bytes", "broker MB/s", "seglog MB/s", "ratio", "broker CPU s", "seglog CPU s"):
        table.add_column(column, justify="right")
    for topic, size in topics.items():
        theirs, ours = kafka.best(topic), seglog.best(topic)
        cpu = (f"{side.cpu[topic] / len(side.runs[topic]):.2f}" for side in (kafka, seglog))
        table.add_row(str(size), f"{theirs / 1e6:.1f}", f"{ours / 1e6:.1f}", f"{ours / theirs:.2f}", *cpu)
    console = Console()
    console.print(table)
    peaks = (peak_bytes(side.pid) >> 20 for side in (kafka, seglog))
    console.print("peak memory: broker {} MiB, seglog {} MiB".format(*peaks))
    console.print(TRIED, highlight=False)


if __name__ == "__main__":
    main()
