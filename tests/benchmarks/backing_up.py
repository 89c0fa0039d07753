"""What `seglog backup` costs: against cp and a pass over all checksums, with nothing new, after growth by 1 % and after
a compaction; in requests to a bucket; and how much memory its commands take when a repository has many snapshots of
many partitions.

    python -m tests.benchmarks.backing_up [--mib 1024] [--partitions 10000] [--snapshots 60] [--turns 3]
        [--restic /usr/bin/restic]

CPU seconds are the user and system time of a process, the least of all turns, in which the commands take turns. The
first run stores one partition of closed segments of 64 MiB; `cp -r` and `seglog verify --level crc` do the same work
apart, and restic (Debian has it) does it into a repository of its own. With nothing new, `seglog ls` lists the same
partitions. MiB is the largest resident size. Of the many snapshots, the first is a run's; in each other one, 1 % of the
partitions have grown, and closed segments are others than in the first; the second row of redact erases a record, and
the prune removes the first one and writes its packs anew. The bucket is on loopback. Every other repository is below
TMPDIR, beside what it stores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from seglog.model import Record
from seglog.storage.routing import machine_files
from seglog_rescue.backup.repository import Repository, snapshot_id
from seglog_rescue.backup.sending import Sender
from seglog_stores.formats.snapshot_manifest import StoredPartition
from seglog_stores.tiers.snapshots import ended_ms, source_of
from tests.benchmarks.many_partitions import BATCHES, COMPACT, RECORDS, cost, directory_of, require_compiled
from tests.support.log_files import batch
from tests.support.object_server import object_server
from tests.support.open_logs import START_MS, opened_log

SEGMENT_BYTES = 64 << 20
VALUE_BYTES, BATCH_RECORDS = 10_000, 100
SEGLOG = [sys.executable, "-m", "seglog_cli"]
MEMORY_GOAL = 250
MANIFEST = (
    "the rest is the manifest, which names all files: 29 MB as plain lines, 2.3 as a zstd frame (6 if no content comes"
    " twice; level 3: 6.5); not tried: parts that snapshots share, as restic's trees: the lines of the 100 partitions"
    " that grew are 290 kB by themselves, and what is shared would be one more thing that prune and redact must keep"
)
SEGMENT_RECORDS = BATCHES * RECORDS  # of a partition among many


def append(logs: Path, size: int, first: int = 0) -> int:
    """Appends batches of random values to a partition, at least `size` bytes of them; returns the next number."""
    chance, written, in_segment = np.random.default_rng(first), 0, 0
    with opened_log(logs / "big-0") as log:
        while written < size:
            values = [chance.bytes(VALUE_BYTES) for _ in range(BATCH_RECORDS)]
            log.append([Record(value, b"key", START_MS + first + i) for i, value in enumerate(values)])
            first, written = first + len(values), written + VALUE_BYTES * BATCH_RECORDS
            in_segment += VALUE_BYTES * BATCH_RECORDS
            if in_segment >= SEGMENT_BYTES:
                log.roll()
                in_segment = 0
        log.close()
    return first


def bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def row(name: str, figure: float, goal: float | None, more: str) -> None:
    judged = f"{'':>7}  {'':<9}" if goal is None else f"{goal:>7.2f}  {'met' if figure <= goal else 'NOT MET':<9}"
    sys.stdout.write(f"{name:<28}{figure:>7.2f}{judged}{more}\n")
    sys.stdout.flush()


def least(
    turns: int, state: Path, lines: Sequence[Sequence[str | Path]], clean: Sequence[Path]
) -> tuple[list[float], int]:
    """The least CPU seconds of each line, and the largest resident size of the first; `clean` goes before each turn."""
    seconds, size = [float("inf")] * len(lines), 0
    for _ in range(turns):
        for path in clean:
            shutil.rmtree(path, ignore_errors=True)
        for number, line in enumerate(lines):
            used, resident = cost(line, state)
            seconds[number] = min(seconds[number], used)
            size = resident if number == 0 else size
    return seconds, size


def first_run(root: Path, mib: int, turns: int, restic: str | None) -> None:
    """The first run, and one after the log grew by 1 %."""
    logs, place = root / "logs", root / "backup"
    logs.mkdir()
    reached = append(logs, mib << 20)
    (logs / ".kafka_cleanshutdown").touch()
    lines = [
        [*SEGLOG, "backup", logs, "--to", place],
        ["cp", "-r", logs, root / "copy"],
        [*SEGLOG, "verify", "--level", "crc", "--jobs", "1", logs],
    ]
    others = root / "restic"
    if restic is not None:
        options = [restic, "-r", others, "--password-command", "echo benchmark", "--no-cache", "--quiet"]
        lines.append(["sh", "-c", '"$@" init && "$@" backup "$0"', logs, *options])
    (own, copy, check, *rest), size = least(turns, root / "state", lines, [place, root / "copy", others])
    more = f"{own:.2f} s; cp {copy:.2f} s, verify --level crc {check:.2f} s; {size} MiB"
    row("first run / (cp + crc)", own / (copy + check), 1.3, more + ("" if size <= MEMORY_GOAL else "  too much"))
    for used in rest:
        row("first run / restic", own / used, 0.2, f"restic {used:.2f} s")
    shutil.rmtree(root / "copy")
    shutil.rmtree(others, ignore_errors=True)
    before = bytes_in(logs)
    append(logs, (mib << 20) // 100, reached)
    grown = bytes_in(logs) - before
    sent = outcome_of(logs, place)["sent_bytes"]
    row("bytes sent / new bytes", sent / grown, 1.05, f"{sent} of {grown} new bytes")
    shutil.rmtree(logs)
    shutil.rmtree(place)


def after_compaction(root: Path, mib: int) -> None:
    """What a run sends of a log of which a compaction has removed a tenth."""
    logs, place = root / "logs", root / "backup"
    chance, count = np.random.default_rng(1), (mib << 20) // VALUE_BYTES
    with opened_log(logs / "big-0") as log:
        for i in range(count):
            key = b"%d" % (i if chance.random() < 0.9 else i % 100)
            log.append([Record(chance.bytes(VALUE_BYTES), key, START_MS + i)])
            if i and i % (SEGMENT_BYTES // 4 // VALUE_BYTES) == 0:
                log.roll()
        log.close()
    (logs / ".kafka_cleanshutdown").touch()
    subprocess.run([*SEGLOG, "backup", logs, "--to", place], capture_output=True, check=True)
    before = {path: path.stat().st_ino for path in logs.rglob("*.log")}
    subprocess.run([*SEGLOG, "clean", *COMPACT, logs], capture_output=True, check=True)
    rewritten = [path for path in logs.rglob("*.log") if path.stat().st_ino != before.get(path)]
    sent, size = outcome_of(logs, place)["sent_bytes"], sum(path.stat().st_size for path in rewritten)
    removed = f"{len(before) - len(list(logs.rglob('*.log')))} of {len(before)} segments gone"
    row("bytes sent / rewritten", sent / size, 1.05, f"{sent} of {size} bytes in {len(rewritten)} segments, {removed}")
    shutil.rmtree(logs)
    shutil.rmtree(place)


def outcome_of(logs: Path, place: Path | str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a run says of itself."""
    line = [*SEGLOG, "backup", logs, "--to", place, "--json"]
    done = subprocess.run(line, capture_output=True, check=True, text=True, env=environment)
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def requests(root: Path, count: int) -> None:
    """The requests of a first run into a bucket, of one after 1 % of the partitions grew, and with nothing new."""
    logs = directory_of(root, count, "bucket", linked=False)
    with object_server() as server:

        def asked(name: str, goal: float | None) -> int:
            server.asked.clear()
            outcome = outcome_of(logs, "s3://bucket/backup", {**os.environ, **server.environment})
            what = f"{outcome['objects']} objects, {outcome['sent_bytes']} bytes; {outcome['unchanged']} of {count}"
            row(f"requests: {name}", len(server.asked), goal, f"{what} partitions unchanged")
            return int(outcome["sent_bytes"])

        asked("first run", None)
        before = bytes_in(logs)
        ends: dict[int, int] = {}
        for number in range(0, count, 100):
            with opened_log(logs / f"t-{number}") as log:
                log.append([Record(b"v" * 100, b"key", START_MS)])
                ends[number] = log.log_end_offset
                log.close()
        path = logs / "replication-offset-checkpoint"
        lines = path.read_text().splitlines()
        for number, end in ends.items():
            lines[2 + number] = f"t {number} {end}"
        path.write_text("\n".join([*lines, ""]))
        new, sent = bytes_in(logs) - before + path.stat().st_size, asked("1 % grew", None)
        row("bytes sent / new, 1 % grew", sent / new, 1.05, f"{sent} of {new} new bytes; {MANIFEST}")
        asked("nothing new", 20)
    shutil.rmtree(logs)


def nothing_new(root: Path, count: int, turns: int) -> None:
    """A run with nothing new over many partitions."""
    logs = directory_of(root, count, "many")
    subprocess.run([*SEGLOG, "backup", logs, "--to", root / "backup"], check=True, capture_output=True)
    lines = [[*SEGLOG, "backup", logs, "--to", root / "backup"], [*SEGLOG, "ls", logs]]
    (own, listing), size = least(turns, root / "state", lines, [])
    row("nothing new / ls", own / listing, 1.5, f"{own:.2f} s; ls {listing:.2f} s; {size} MiB; {count} partitions")


def add_snapshots(repository: Repository, count: int) -> None:
    """Adds snapshots to a repository with one: the first has all closed segments anew; in each, every hundredth
    partition's last log has an extent more.
    """
    snapshot = repository.read(repository.ids()[0])
    first = ended_ms(snapshot.id)
    for number in range(1, count):
        sender = Sender(repository, set())
        (directory,) = snapshot.directories
        partitions = list(directory.partitions)
        if number == 1:
            partitions = [rewritten(sender, partition) for partition in partitions]
        for i in range(number % 100, len(partitions), 100):
            *files, last = sorted(partitions[i].files, key=lambda file: file.name.endswith(".log"))
            grown = replace(last, extents=(*last.extents, sender.packed(batch(1000 + number))))
            partitions[i] = replace(partitions[i], files=(*files, grown))
        sender.flush()
        ended = first + 3_600_000 * number
        identity = snapshot_id(ended, source_of(snapshot.id))
        directories = (replace(directory, partitions=tuple(partitions)),)
        snapshot = replace(snapshot, id=identity, started_ms=ended, ended_ms=ended, directories=directories)
        repository.write(snapshot)


def rewritten(sender: Sender, partition: StoredPartition) -> StoredPartition:
    """The partition with smaller values in its closed segments."""
    active = max(file.name for file in partition.files if file.name.endswith(".log"))
    files = [
        replace(file, extents=(sender.packed(batch(int(file.name[:20]), SEGMENT_RECORDS)),))
        if file.name.endswith(".log") and file.name < active
        else file
        for file in partition.files
    ]
    return replace(partition, files=tuple(files))


def many_snapshots(root: Path, partitions: int, count: int) -> None:
    """The largest resident size of each command on a repository of many snapshots of many partitions."""
    place, state, erased = root / "backup", root / "state", root / "erased.csv"
    erased.write_text("topic,partition,offset\nt,1,7\n")
    add_snapshots(Repository(machine_files(), place), count)
    lines: dict[str, Sequence[str | Path]] = {
        "backup, nothing new": ["--to", place, root / "many"],
        "backup list": ["list", place],
        "backup verify": ["verify", place],
        "backup redact of nothing": ["redact", "--key", "nobody", "--yes", place],
        "backup redact --verify": ["redact", "--offsets-from", erased, "--verify", "--yes", place],
        "backup prune": ["prune", "--keep-last", str(count - 1), "--grace", "0s", place],
    }
    for name, arguments in lines.items():
        used, size = cost([*SEGLOG, "backup", *arguments], state)
        row(f"MiB: {name}", size, MEMORY_GOAL, f"{used:.2f} s; {count} snapshots of {partitions} partitions")
    used, size = cost([*SEGLOG, "fetch", f"{place}#latest/t-0", "-o", root / "fetched"], state)
    row("MiB: fetch of a partition", size, MEMORY_GOAL, f"{used:.2f} s")


def main() -> None:
    """Prints a row for each measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--restic", default=shutil.which("restic"))
    given = parser.parse_args()
    require_compiled(sys.executable)
    sys.stdout.write(f"{'':<28}{'ratio':>7}{'goal':>7}\n")
    with tempfile.TemporaryDirectory(prefix="backing-up-") as root:
        first_run(Path(root), given.mib, given.turns, given.restic)
        after_compaction(Path(root), given.mib // 4)
        requests(Path(root), given.partitions)
        nothing_new(Path(root), given.partitions, given.turns)
        many_snapshots(Path(root), given.partitions, given.snapshots)


if __name__ == "__main__":
    main()
