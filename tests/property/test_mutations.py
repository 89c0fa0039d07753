"""Thousands of damaged logs: nothing crashes, hangs or takes memory without bound, and no good batch is missed.

Each log is a few kilobytes of batches written byte by byte. A mutation changes some bytes; batches that it left
alone must be in the dump at their place. `test_interpreted…` does a part with the kernels interpreted, whose
loads check bounds.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pytest

from seglog.look.dump.dump import DumpOptions, dump
from seglog.look.inspect.overview import overview
from seglog.look.inspect.statistics import log_statistics
from seglog.look.kafka_dump_log.dump_log import DumpLogOptions, Report, dump_log
from seglog.model import Compression
from seglog.scan.listing import Target, TargetKind, list_partition
from seglog.storage.local import LocalFileSystem
from seglog.verification.finding_codes import CODES
from seglog.verification.findings import Finding
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.support import effort
from tests.support import log_files as logs
from tests.support.manual_clock import ManualClock

FS = LocalFileSystem()
MOST_MEMORY = 96 << 20

KINDS = {
    "plain": logs.plain_batches,
    **{codec.label: (lambda codec=codec: logs.compressed_batches(codec)) for codec in list(Compression)[1:]},
    "transactions": logs.transactional_batches,
    "magic-0": lambda: logs.messages(0),
    "magic-1": lambda: logs.messages(1),
    "wrapper-0-lz4": lambda: logs.wrappers(0, Compression.LZ4),
    "wrapper-1-gzip": lambda: logs.wrappers(1, Compression.GZIP),
    "wrapper-1-snappy": lambda: logs.wrappers(1, Compression.SNAPPY),
}


@dataclass(frozen=True)
class Mutation:
    """`data[start:end]` became `replacement`."""

    start: int
    end: int
    replacement: bytes

    def apply(self, data: bytes) -> bytes:
        return data[: self.start] + self.replacement + data[self.end :]

    def survivors(self, batches: list[bytes], mutated: bytes) -> set[int]:
        """Where the batches lie that the mutation left alone."""
        found, position = set(), 0
        for batch in batches:
            end = position + len(batch)
            moved = position + (len(self.replacement) - (self.end - self.start) if position >= self.end else 0)
            untouched = end <= self.start or position >= self.end
            if untouched or mutated[position:end] == batch:
                found.add(moved if untouched else position)
            position = end
        return found


def mutation_of(data: bytes, starts: list[int], chance: random.Random) -> Mutation:
    """One of: a flipped bit, a random byte, a hostile size or count, zeros, a cut, foreign bytes, a lost block."""
    kind = chance.randrange(8)
    at = chance.randrange(len(data))
    header = chance.choice(starts)
    if kind == 0:
        return Mutation(at, at + 1, bytes([data[at] ^ 1 << chance.randrange(8)]))
    if kind == 1:
        at = min(header + chance.randrange(61), len(data) - 1)
        return Mutation(at, at + 1, bytes([chance.randrange(256)]))
    if kind == 2:
        size = chance.choice([0, -1, 13, 14, 48, 49, 2**31 - 1, -(2**31), chance.randrange(2 * len(data))])
        return Mutation(header + 8, header + 12, struct.pack(">i", size))
    if kind == 3:
        field = header + chance.choice([0, 8, 12, 16, 23, 27, 35, 43, 53, 57])
        return Mutation(field, field + 4, chance.randbytes(4)) if field + 4 <= len(data) else Mutation(at, at, b"")
    if kind == 4:
        end = min(len(data), at + chance.randrange(1, 200))
        return Mutation(at, end, bytes(end - at))
    if kind == 5:
        return Mutation(at, len(data), b"")
    if kind == 6:
        return Mutation(at, at, chance.randbytes(chance.randrange(1, 120)))
    return Mutation(at, min(len(data), at + chance.randrange(1, 150)), b"")


def look(path: Path) -> tuple[list[dict[str, object]], list[Finding]]:
    """Runs everything that only looks over the partition of `path`: (JSON lines of the dump, findings of verify)."""
    partition = [Target(path.parent, TargetKind.PARTITION)]
    lines: list[dict[str, object]] = []
    pieces = [bytes(b) for b in dump(FS, partition, DumpOptions(json=True, records=True)) if not isinstance(b, Finding)]
    for line in b"".join(pieces).decode("utf-8").split("\n")[:-1]:
        lines.append(json.loads(line))
    list(dump(FS, partition, DumpOptions(records=True, untrusted=True, base64=True)))
    for item in dump_log(FS, [path], DumpLogOptions(print_data_log=True)):
        assert isinstance(item, memoryview | Finding | Report)
    verification = Verification(FS, partition, VerifyOptions(level=Level.SEMANTIC), ManualClock(0))
    findings = list(verification)
    for level in (Level.CRC, Level.RECORD):
        list(Verification(FS, partition, VerifyOptions(level=level), ManualClock(0)))
    log_statistics(FS, list_partition(FS, path.parent))
    list(overview(FS, partition))
    return lines, findings


def mutate_and_look(directory: Path, kind: str, seeds: range) -> int:
    """The number of mutations done; fails on the first good batch that is not in the dump."""
    batches = KINDS[kind]()
    data = b"".join(batches)
    starts = [sum(map(len, batches[:i])) for i in range(len(batches))]
    done = 0
    for seed in seeds:
        mutation = mutation_of(data, starts, random.Random(f"{kind}:{seed}"))
        mutated = mutation.apply(data)
        path = logs.write_log(directory, [mutated])
        lines, findings = look(path)
        reported = {line["position"] for line in lines if line["type"] == "batch" and line["valid"]}
        missed = mutation.survivors(batches, mutated) - reported
        assert not missed, f"seed {seed}, {mutation}: good batches at {sorted(missed)} are not reported"
        assert all(found.code in CODES for found in findings)
        done += 1
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_no_mutation_hides_a_good_batch(kind: str, tmp_path: Path) -> None:
    tries = effort.tries(60)
    assert mutate_and_look(tmp_path, kind, range(tries)) == tries


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_other_mutation_hides_a_good_batch(kind: str, tmp_path: Path) -> None:
    tries = effort.tries(150)
    assert mutate_and_look(tmp_path, kind, range(1000, 1000 + tries)) == tries


@pytest.mark.parametrize("kind", KINDS)
def test_an_unharmed_log_has_no_finding(kind: str, tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, KINDS[kind]())
    _, findings = look(path)
    # the logs here have no index files, and the last transaction is left open on purpose
    assert {found.code for found in findings} <= {"INDEX_MISSING", "TRANSACTION_OPEN", "TRANSACTION_INDEX_DIFFERS"}


@pytest.mark.slow
def test_memory_stays_bounded_whatever_a_size_field_says(tmp_path: Path) -> None:
    for kind in ("plain", "lz4", "wrapper-1-gzip"):
        mutate_and_look(tmp_path, kind, range(2))  # kernels are compiled before memory is watched
        tracemalloc.start()
        try:
            mutate_and_look(tmp_path, kind, range(1000, 1030))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < MOST_MEMORY, f"{kind}: {peak} bytes"


SIDE_FILES = {
    "00000000000000000000.index": struct.pack(">iiii", 5, 300, 11, 900),
    "00000000000000000000.timeindex": struct.pack(">qiqi", 1012, 5, 1032, 11),
    "00000000000000000000.txnindex": struct.pack(">hqqqq", 0, 7, 0, 2, 3),
    "00000000000000000000.snapshot": bytes.fromhex(
        "0001e03b11a500000001000000000000000700030000000600000000000000650000000100000000000003edffffffff0000000000000064"
    ),
    "leader-epoch-checkpoint": b"0\n2\n0 0\n1 9\n",
    "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
}
# Of 120 mutations, some of which change nothing, so many are findings. What is left harms nobody: another time entry
# that is right, the last stable offset of an aborted transaction, blanks, names of fields, which Kafka does not read.
TOLD = {
    "00000000000000000000.index": 107,
    "00000000000000000000.timeindex": 107,
    "00000000000000000000.txnindex": 98,
    "00000000000000000000.snapshot": 120,
    "leader-epoch-checkpoint": 101,
    "partition.metadata": 86,
}


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_mutated_side_file_is_reported_and_never_raises(name: str, tmp_path: Path) -> None:
    path = logs.write_log(tmp_path, logs.plain_batches())
    for other, content in SIDE_FILES.items():
        (path.parent / other).write_bytes(content)
    original = SIDE_FILES[name]
    unharmed, told = set(look(path)[1]), 0
    for seed in range(120):
        mutation = mutation_of(original, [0], random.Random(f"{name}:{seed}"))
        (path.parent / name).write_bytes(mutation.apply(original))
        _, findings = look(path)
        told += set(findings) != unharmed
        target = [Target(path.parent / name, TargetKind.FILE)]
        for as_json in (True, False):
            list(dump(FS, target, DumpOptions(json=as_json)))
        list(dump_log(FS, [path.parent / name], DumpLogOptions()))
    assert told >= TOLD[name]


INTERPRETED = """
import sys
from pathlib import Path
from tests.property.test_mutations import KINDS, mutate_and_look
print(sum(mutate_and_look(Path(sys.argv[1]), kind, range(5000, 5004)) for kind in KINDS))
"""


def test_interpreted_kernels_never_leave_their_buffers(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "SEGLOG_KERNELS": "interpreted", "PYTHONPATH": f"{root / 'core'}{os.pathsep}{root}"}
    command = [sys.executable, "-W", "error::RuntimeWarning:seglog", "-c", INTERPRETED, str(tmp_path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.strip() == str(4 * len(KINDS))
