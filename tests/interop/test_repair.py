"""Repaired logs before Kafka 4.3: opened after a clean and after an unclean stop, nothing is cut, all good batches
are served; a cleaned up log is what Kafka would have kept and more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.clock import FixedClock
from seglog.repairs.plan import Policy, RepairOptions
from seglog.repairs.repair import examination, repair
from seglog.storage.local import LocalFileSystem
from seglog_rescue.salvage.salvage import SalvageOptions, salvage
from tests.support.broken.damage import LOG_DAMAGE, damage_derived, damage_log, rewrite
from tests.support.crash_filesystem import CrashFileSystem, PowerCut
from tests.support.fixtures import KAFKA, fixture_copy, fixture_now_ms
from tests.support.kafka import KafkaHarness

pytestmark = pytest.mark.kafka
FS = LocalFileSystem()
LOGS = (
    ("4.3.0/generated", "mixed-0"),
    ("4.3.0/generated", "ledger-0"),
    ("4.3.0/generated", "gaps-0"),
    ("4.3.0/generated", "upgraded-0"),
    ("4.3.0/generated", "keyed-0"),
    ("4.3.0/clean", "payments-0"),
    ("4.3.0/clean", "customers-0"),
    ("0.10.2", "v1-snappy-createtime-0"),
    ("0.8.2", "v0-lz4-0"),
)


def opened_by_kafka(kafka: KafkaHarness, fs: CrashFileSystem, directory: Path, target: Path, told: str) -> None:
    """Kafka loads copies of the log as after both kinds of stop."""
    sizes = {name: len(data) for name, data in fs.contents(directory).items() if name.endswith(".log")}
    for how in ("load", "recover"):
        copy = target / how / directory.name
        fs.write_to(copy, directory)
        answer = kafka.load(copy) if how == "load" else kafka.recover(copy)
        assert "error" not in answer, f"{told}: {how}: {answer['error']} {answer.get('message')}"
        assert answer.get("truncatedBytes", 0) == 0, f"{told}: {how}: {answer.get('events')}"
        left = {path.name: path.stat().st_size for path in copy.glob("*.log")}
        assert left == sizes, f"{told}: {how}"


@pytest.mark.parametrize(("name", "partition"), LOGS)
def test_kafka_opens_what_was_repaired(kafka: KafkaHarness, tmp_path: Path, name: str, partition: str) -> None:
    directory = KAFKA / name / partition
    clock = FixedClock(fixture_now_ms(name))
    for seed in range(10):
        chance = random.Random(seed)
        fs = CrashFileSystem.of(directory)
        told = f"seed {seed}: " + (damage_log if seed % 4 else damage_derived)(fs, directory, chance)
        findings = examination(fs, clock, directory.parent, [directory]).findings
        assert repair(fs, clock, directory.parent, [directory], findings).failure is None
        opened_by_kafka(kafka, fs, directory, tmp_path / str(seed), told)


@pytest.mark.parametrize("way", LOG_DAMAGE)
def test_policy_truncate_leaves_what_kafkas_recovery_leaves(
    kafka: KafkaHarness, tmp_path: Path, way: Callable[[bytearray, random.Random], None]
) -> None:
    directory = KAFKA / "4.3.0/generated/gaps-0"
    clock = FixedClock(fixture_now_ms("4.3.0/generated"))
    path = directory / "00000000000000000357.log"
    for seed in range(3):
        fs = CrashFileSystem.of(directory)
        data = bytearray(fs.read_bytes(path))
        way(data, random.Random(seed))
        rewrite(fs, path, bytes(data))
        theirs = tmp_path / str(seed) / directory.name
        fs.write_to(theirs, directory)
        answer = kafka.recover(theirs, index_interval_bytes=4096)
        if "error" in answer:
            continue  # Kafka does not start at all: there is nothing to be equal to
        findings = examination(fs, clock, directory.parent, [directory]).findings
        options = RepairOptions(policy=Policy.TRUNCATE)
        outcome = repair(fs, clock, directory.parent, [directory], findings, options)
        assert outcome.failure is None
        ours = {name: data for name, data in fs.contents(directory).items() if name.endswith(".log")}
        assert ours == {path.name: path.read_bytes() for path in theirs.glob("*.log")}, f"seed {seed}"


def test_kafka_reads_a_salvaged_log(kafka: KafkaHarness, tmp_path: Path) -> None:
    source = fixture_copy("4.3.0/generated", tmp_path) / "mixed-0"
    data = bytearray((source / "00000000000000000258.log").read_bytes())
    data[5000:6000] = bytes(1000)
    (source / "00000000000000000258.log").write_bytes(data)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    target = tmp_path / "out" / "mixed-0"
    report = salvage(FS, FixedClock(fixture_now_ms("4.3.0/generated")), [source], target, SalvageOptions())
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    rows = [row for row in kafka.list(target) if row["t"] == "batch"]
    (log,) = report.logs
    assert len(rows) == log.batches
    for answer in (kafka.load(target), kafka.recover(target)):
        assert "error" not in answer
        assert answer.get("truncatedBytes", 0) == 0
        assert answer["logEndOffset"] == log.log_end_offset


def test_a_broker_that_starts_in_the_middle_of_a_repair_finds_the_old_log_or_the_new_one(
    kafka: KafkaHarness, tmp_path: Path
) -> None:
    directory = KAFKA / "4.3.0/generated/mixed-0"
    clock = FixedClock(fixture_now_ms("4.3.0/generated"))

    def damaged() -> CrashFileSystem:
        fs = CrashFileSystem.of(directory)
        path = directory / "00000000000000000258.log"
        data = bytearray(fs.read_bytes(path))
        data[len(data) // 2] ^= 4
        rewrite(fs, path, bytes(data))
        fs.sync_all()
        return fs

    def mended(fs: CrashFileSystem) -> None:
        findings = examination(fs, clock, directory.parent, [directory]).findings
        repair(fs, clock, directory.parent, [directory], findings)

    def logs(files: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in files.items() if name.endswith(".log")}

    whole = damaged()
    before, start = logs(whole.contents(directory)), whole.mutations
    mended(whole)
    after, outcomes = logs(whole.contents(directory)), set()
    for cut in range(whole.mutations - start):
        fs = damaged()
        fs.cut_at(cut)
        with pytest.raises(PowerCut):
            mended(fs)
        survivor = fs.survivor(seed=cut)
        if survivor.contents(directory) == damaged().contents(directory):
            continue  # nothing has changed yet
        copy = tmp_path / str(cut) / directory.name
        survivor.write_to(copy, directory)
        answer = kafka.load(copy)
        assert "error" not in answer, f"cut at {cut}, {fs.trace[-1]}: {answer}"
        left = {path.name: path.read_bytes() for path in copy.glob("*.log")}
        assert left in (before, after), f"cut at {cut}, {fs.trace[-1]}"
        outcomes.add(left == after)
    assert outcomes == {True} or outcomes == {True, False}
