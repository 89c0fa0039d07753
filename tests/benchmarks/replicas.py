"""What `seglog replicas` costs, beside `doctor` and `verify` on the same logs.

`python -m tests.benchmarks.replicas [COUNT [MEBIBYTES]]`

1. `--collect` and `doctor` over COUNT (4,000) partitions of three small segments: CPU time, and bytes of facts.
2. `--collect` and `verify --level crc` over a log of MEBIBYTES (512), closed in order: bytes a CPU second. Eight
   partitions share its files, so that a start's noise does not count.
3. Comparing the facts of three such brokers, all of whose copies agree, and of which one is behind in every partition.

Commands run in turns, each as a process of its own; the least user and system time counts, after that of an empty
directory is taken off.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from seglog.format import filenames
from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.format.producer_snapshot import encode_snapshot
from seglog_rescue.replicas.facts import HostFacts
from seglog_rescue.replicas.facts_file import parse_facts, write_facts
from tests.benchmarks.many_partitions import BATCHES, RECORDS, SEGMENTS, cost, directory_of, require_compiled
from tests.support.log_files import batch, write_segment
from tests.support.lost_clusters import broker_meta, registration, topic_id, topic_records
from tests.support.metadata_records import write_metadata_log

TRIED = """On a machine of two cores under load: collect 1.26 and 1.28 of doctor (1,000 partitions), 1.37 and,
since assignments are read once, 1.18 (4,000); digests 0.81 of verify crc over 4 GiB (0.36 and 1.20
over 512 MiB and 1 GiB, where a start's noise counts). Comparing 3 x 4,000, one behind in each: 4.26
CPU s, and 3.67 since a copy's lineage is kept. Writing plain fields of facts without a call for
each gained nothing. Of 1.25 s of collect, 0.14 are digests: numpy's calls over few rows; a second
way for few rows would be a second place for the sum.
"""
ROUNDS = 3
NODES = (1, 2, 3)
SHARING = 8
LARGE_BATCH, VALUE = 100, bytes(range(256)) * 4


def say(line: str) -> None:
    """Writes a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def brokers(root: Path, count: int, *, behind: bool = False, known: int = 0) -> list[Path]:
    """The log directories of three brokers with the same partitions; the third may lack every last segment. The
    metadata knows of `known` partitions, or of as many as there are."""
    made = []
    for node in NODES:
        logs = directory_of(root, count, f"{node}{'-behind' if behind else ''}{'' if count else '-empty'}")
        shared = root / filenames.PARTITION_METADATA  # without it, doctor does not know a partition as a sound one
        shared.write_bytes(format_partition_metadata(PartitionMetadata(topic_id("t"))))
        for number in range(count):
            os.link(shared, logs / f"t-{number}" / shared.name)
        last = (SEGMENTS - 1) * BATCHES * RECORDS
        for number in range(count if behind and node == NODES[-1] else 0):
            for file in (logs / f"t-{number}").glob(f"{last:020}.*"):
                file.unlink()
        broker_meta(logs, node)
        write_metadata_log(logs, [*map(registration, NODES), *topic_records("t", [NODES] * (known or count))])
        made.append(logs)
    return made


def in_turns(commands: dict[str, tuple[str | Path, ...]], state: Path) -> dict[str, tuple[float, int]]:
    """The least CPU time of each command, and its largest resident size."""
    seen: dict[str, list[tuple[float, int]]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, arguments in commands.items():
            seen[name].append(cost([sys.executable, "-m", "seglog_cli", *arguments], state))
    return {name: (min(time for time, _ in costs), max(size for _, size in costs)) for name, costs in seen.items()}


def rest(costs: dict[str, tuple[float, int]], name: str) -> float:
    """The time of a command without that of an empty directory."""
    return costs[name][0] - costs[f"{name}, empty"][0]


def small_partitions(root: Path, count: int) -> None:
    """Measures one broker's directory of small partitions."""
    many, empty, facts = brokers(root, count)[0], brokers(root, 0)[0], root / "small.facts"
    collect = ("replicas", "--replace", "--collect", facts)
    commands = {"doctor, empty": ("doctor", empty), "collect, empty": (*collect, empty)}
    costs = in_turns(commands | {"doctor": ("doctor", many), "collect": (*collect, many)}, root)
    lines = [line for line in facts.read_bytes().splitlines() if b'"type":"replica"' in line]
    mine, other = rest(costs, "collect"), rest(costs, "doctor")
    say(f"{count} partitions: collect {mine:.2f}, doctor {other:.2f} CPU s: {mine / other:.2f} (goal 1.3)")
    say(f"facts: at most {max(map(len, lines))} bytes a partition (goal 1,024)")


def large_log(root: Path, mebibytes: int) -> None:
    """Measures a large log, as several partitions."""
    logs, empty, size, offset = root / "large", root / "empty", 0, 0
    one = batch(0, LARGE_BATCH, value=VALUE)
    while size < mebibytes << 20:
        count = min((64 << 20) // len(one), ((mebibytes << 20) - size) // len(one) + 1)
        batches = (batch(offset + i * LARGE_BATCH, LARGE_BATCH, value=VALUE) for i in range(count))
        write_segment(logs / "t-0", offset, *batches)
        size, offset = size + count * len(one), offset + count * LARGE_BATCH
    (logs / "t-0" / f"{offset:020}.snapshot").write_bytes(encode_snapshot([]))
    for number in range(1, SHARING):
        shutil.copytree(logs / "t-0", logs / f"t-{number}", copy_function=os.link)
    size *= SHARING
    for directory in (logs, empty):
        broker_meta(directory, 1)
        (directory / ".kafka_cleanshutdown").touch()
    points = "".join(f"t {number} {offset}\n" for number in range(SHARING))
    (logs / "recovery-point-offset-checkpoint").write_text(f"0\n{SHARING}\n{points}")
    collect, verify = ("replicas", "--replace", "--collect", root / "large.facts"), ("verify", "--level", "crc")
    commands = {"verify": (*verify, logs), "collect": (*collect, logs)}
    costs = in_turns(commands | {"verify, empty": (*verify, empty), "collect, empty": (*collect, empty)}, root)
    mine, other = rest(costs, "collect"), rest(costs, "verify")
    rates = f"collect {size / mine / 1e6:.0f} MB, verify crc {size / other / 1e6:.0f} MB a CPU s"
    say(f"{size >> 20} MiB: {rates}: {other / mine:.2f} (goal 0.8)")


def multiplied(facts: HostFacts, count: int) -> HostFacts:
    """The facts of a broker with one partition, as those of one with `count` such partitions."""
    (directory,) = facts.directories
    (one,) = directory.replicas
    every = [replace(one, partition=n, directory=f"{directory.path}/{one.topic}-{n}") for n in range(count)]
    return replace(facts, directories=(replace(directory, replicas=tuple(every)),))


def comparing(root: Path, count: int) -> None:
    """Measures the comparison of three files of facts."""
    for behind in (False, True):
        place = root / f"behind-{behind}"
        place.mkdir()
        files = []
        for logs in brokers(place, 1, behind=behind, known=count):
            files.append(root / f"{behind}-{logs.name}.facts")
            cost([sys.executable, "-m", "seglog_cli", "replicas", "--collect", files[-1], logs], root)
            files[-1].write_bytes(write_facts(multiplied(parse_facts(files[-1].read_bytes(), files[-1]), count)))
        ((time, size),) = in_turns({"compare": ("replicas", *files)}, root).values()
        what = "one behind in each" if behind else "all alike"
        say(f"comparing 3 x {count}, {what}: {time:.2f} CPU s (goal 5), {size} MiB (goal 150)")


def main() -> None:
    """Prints the ratios."""
    require_compiled(sys.executable)
    numbers = [int(text) for text in sys.argv[1:]]
    count, mebibytes = [*numbers, *(4000, 512)[len(numbers) :]][:2]
    with tempfile.TemporaryDirectory(prefix="seglog-") as place:
        root = Path(place)
        small_partitions(root, count)
        large_log(root, mebibytes)
        comparing(root, count)
    say(TRIED)


if __name__ == "__main__":
    main()
