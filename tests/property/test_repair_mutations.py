"""Thousands of damaged logs, each repaired: nothing good is lost, the result is whole, undo gives the damage back.

`SEGLOG_EFFORT=40` runs about 10,000; the default is a sample that fits a test run.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from seglog.clock import FixedClock
from seglog.repairs.repair import examination, repair
from seglog.repairs.undo.apply import undo_run
from seglog.verification.codes import Severity
from tests.support import effort
from tests.support.broken.damage import batches_of, damage_derived, damage_log
from tests.support.crash_filesystem import CrashFileSystem
from tests.support.fixtures import KAFKA, fixture_now_ms

CASES = effort.tries(240)
PIECES = 12
LOGS = (
    ("4.3.0/generated", "mixed-0"),
    ("4.3.0/generated", "ledger-0"),
    ("4.3.0/generated", "gaps-0"),
    ("4.3.0/generated", "upgraded-0"),
    ("4.3.0/generated", "keyed-0"),
    ("4.3.0/clean", "payments-compact-0"),
    ("4.3.0/clean", "orders-zstd-0"),
    ("0.10.2", "v1-lz4-createtime-0"),
    ("0.8.2", "v0-gzip-0"),
    ("0.8.2", "v0-none-0"),
)
# Runs of batches in each other's place, around a change of leader epoch; batches that a damaged one swallowed; a base
# offset one bit off beside its neighbour; a header and a body from different batches; a wrapper that seems to
# reach over all later segments.
HARD = (4, 10, 227, 330, 1045, 2360, 4367, 5909, 6469, 6710, 7091, 7542, 700873)
# What no repair can mend: nothing says what the field was.
REMAINS = {"LEADER_EPOCH_DECREASING", "TRANSACTION_STATE_INVALID"}


@cache
def healthy(name: str, partition: str) -> dict[str, list[bytes]]:
    """The batches of each segment."""
    logs = sorted((KAFKA / name / partition).glob("*.log"))
    return {path.name: batches_of(path.read_bytes()) for path in logs}


def check_nothing_lost(healthy_batches: list[bytes], before: bytes, after: bytes, told: str) -> None:
    """Every batch that is whole in `before` is in `after`.

    Except where another one with a right checksum claims its offsets: the checksum does not cover the first bytes
    of a batch, so a header and a body from different batches can pass for one, and nobody can tell which is right.
    And except where it begins with the very bytes that a batch before it, itself whole, ends with.
    """
    known = set(healthy_batches)
    claimed = [_offsets(batch) for batch in batches_of(after) if batch not in known]
    for batch in healthy_batches:
        if batch in before and batch not in after:
            first, last = _offsets(batch)
            at = before.index(batch)
            shared = any(start < at < start + len(b) for b in batches_of(after) if (start := before.find(b)) >= 0)
            excused = shared or any(low <= last and high >= first for low, high in claimed)
            assert excused, f"{told}: lost offsets {first} to {last}"


def _offsets(batch: bytes) -> tuple[int, int]:
    """First and last offset; of a legacy wrapper, which may begin anywhere, the last one and many before it."""
    base = int.from_bytes(batch[:8], "big")
    if batch[16] == 2:
        return base, base + int.from_bytes(batch[23:27], "big")
    return (base - 30 if batch[17] & 7 else base), base


def mended(seed: int) -> None:
    chance = random.Random(seed)
    name, partition = LOGS[seed % len(LOGS)]
    directory = KAFKA / name / partition
    log_directory = directory.parent
    fs = CrashFileSystem.of(directory)
    told = f"seed {seed}: {name}/{partition} "
    told += damage_derived(fs, directory, chance) if chance.random() < 0.25 else damage_log(fs, directory, chance)
    if chance.random() < 0.1:
        told += " and " + damage_log(fs, directory, chance)
    damaged = fs.contents(log_directory)
    clock = FixedClock(fixture_now_ms(name))

    findings = examination(fs, clock, log_directory, [directory]).findings
    outcome = repair(fs, clock, log_directory, [directory], findings)

    assert outcome.failure is None, f"{told}: {outcome.failure}"
    for file, batches in healthy(name, partition).items():
        check_nothing_lost(batches, damaged.get(f"{partition}/{file}", b""), fs.contents(directory)[file], told)
    left = [f for each in examination(fs, clock, log_directory, [directory]).findings.values() for f in each]
    left = [f for f in left if f.severity is not Severity.INFO and f.code not in REMAINS]
    assert not left, f"{told}: {[(f.code, f.file, f.message) for f in left]}"
    if outcome.run is not None and seed % 4 == 0:
        undo_run(fs, outcome.run)
        assert fs.contents(log_directory) == damaged, told


@pytest.mark.parametrize("piece", range(PIECES))
def test_every_good_batch_survives_any_damage(piece: int) -> None:
    for seed in range(piece, CASES, PIECES):
        mended(seed)


@pytest.mark.parametrize("seed", HARD)
def test_damage_that_was_hard_once(seed: int) -> None:
    mended(seed)
