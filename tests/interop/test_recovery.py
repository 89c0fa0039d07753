"""Opening damaged and killed logs leaves what Kafka leaves: segments, bytes, indexes, snapshots and offsets."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog import layout
from seglog.clock import FixedClock
from seglog.configuration.keys import LogConfig
from seglog.log.directory import LogDirectory
from seglog.log.indexes import TransactionIndex
from seglog.log.loader import LoadOptions, load_log, plan_recovery
from seglog.model import Isolation, TopicPartition
from seglog.operations.keeping import Keeper
from seglog.operations.truncate import cut_log
from seglog.scan.listing import resolve_paths
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from tests.support.kafka import KafkaHarness
from tests.support.log_files import rewrite
from tests.support.open_logs import opened_log

pytestmark = pytest.mark.kafka

FS = LocalFileSystem()
NOW_MS = 1_700_000_100_000
INTERVAL = 256
OPTIONS: dict[str, Any] = {"segment_bytes": 8192, "index_interval_bytes": INTERVAL, "batch_records": 7, "records": 600}
LOGS: dict[str, dict[str, Any]] = {
    "plain": {"codec": ["none", "lz4"], "leader_epochs": 4, "jitter_ms": 300},
    "idempotent": {"idempotent": True, "producers": 3, "epoch_bump_ratio": 0.1},
    "transactions": {"transactional": True, "abort_ratio": 0.4, "producers": 4, "leave_open_txn": True},
    "transactions of version 2": {"transactional": True, "abort_ratio": 0.4, "txn_version": 2},
    "magic 0": {"magic": ["0"], "codec": ["none", "gzip"]},
    "upgraded": {"magic": ["0", "1", "2"], "codec": ["none", "snappy"]},
    "gaps": {"append_path": "follower", "offset_gap_ratio": 0.3},
}


def logs_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.log") if path.stat().st_size)


def flip_a_bit(directory: Path, rng: random.Random) -> None:
    path = rng.choice(logs_of(directory))
    data = bytearray(path.read_bytes())
    data[rng.randrange(17, len(data))] ^= 1 << rng.randrange(8)
    rewrite(path, bytes(data))


def tear_the_tail(directory: Path, rng: random.Random) -> None:
    path = logs_of(directory)[-1]
    data = path.read_bytes()
    rewrite(path, data[: -rng.randrange(1, 60)])


def leave_zeros(directory: Path, rng: random.Random) -> None:
    path = logs_of(directory)[-1]
    rewrite(path, path.read_bytes() + bytes(rng.choice([5, 17, 18, 300])))


def move_a_base_offset(directory: Path, rng: random.Random) -> None:
    path = rng.choice(logs_of(directory))
    data = bytearray(path.read_bytes())
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        position += layout.LOG_OVERHEAD + int(struct.unpack_from(">i", data, position + 8)[0])
    at = rng.choice(starts)
    struct.pack_into(">q", data, at, struct.unpack_from(">q", data, at)[0] + rng.choice([1, 5, 30]))
    rewrite(path, bytes(data))


def lose_indexes(directory: Path, rng: random.Random) -> None:
    for suffix in (".index", ".timeindex", ".txnindex"):
        found = sorted(directory.glob(f"*{suffix}"))
        if found:
            rng.choice(found).unlink()


def spoil_a_snapshot(directory: Path, rng: random.Random) -> None:
    found = sorted(directory.glob("*.snapshot"))
    if found:
        data = bytearray(found[-1].read_bytes())
        data[rng.randrange(len(data))] ^= 4
        found[-1].write_bytes(bytes(data))


def interrupt_a_cleaning(directory: Path, rng: random.Random) -> None:
    path = rng.choice(logs_of(directory)[:-1])
    for suffix in (".log", ".index", ".timeindex"):
        source = path.with_suffix(suffix)
        shutil.copy2(source, f"{source}.swap")
    shutil.copy2(path, f"{path}.deleted")


def nothing(directory: Path, rng: random.Random) -> None:
    """A killed broker's log, undamaged."""


DAMAGE: list[Callable[[Path, random.Random], None]] = [
    nothing,
    flip_a_bit,
    tear_the_tail,
    leave_zeros,
    move_a_base_offset,
    lose_indexes,
    spoil_a_snapshot,
    interrupt_a_cleaning,
]


def contents(directory: Path) -> dict[str, bytes]:
    """Name → bytes; of snapshots the checksum is left out and the entries are sorted, as their order is free."""
    found = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    size = layout.SNAPSHOT_ENTRY.itemsize
    for name, data in found.items():
        if name.endswith(".snapshot"):
            entries = [data[at : at + size] for at in range(layout.SNAPSHOT_HEADER, len(data), size)]
            found[name] = data[:2] + data[6 : layout.SNAPSHOT_HEADER] + b"".join(sorted(entries))
    return found


@pytest.fixture(scope="module")
def generated(kafka: KafkaHarness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The named log as a killed broker leaves it, generated once."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            root = tmp_path_factory.mktemp("generated")
            kafka.generate(root, seed=5, unclean=True, **{**OPTIONS, **LOGS[name]})
            made[name] = root / "t-0"
        return made[name]

    return of


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", LOGS)
def test_recovery_leaves_what_kafka_leaves(
    kafka: KafkaHarness,
    generated: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    damage: Callable[[Path, random.Random], None],
) -> None:
    ours, theirs = tmp_path / "ours" / "t-0", tmp_path / "theirs" / "t-0"
    shutil.copytree(generated(name), ours)
    damage(ours, random.Random(f"{name} {damage.__name__}"))
    shutil.copytree(ours, theirs)
    options = LoadOptions(clean_shutdown=False, index_interval_bytes=INTERVAL)
    planned = plan_recovery(FS, ours, FixedClock(NOW_MS), options)
    loaded = load_log(FS, ours, FixedClock(NOW_MS), options)
    loaded.producers.take_snapshot()
    loaded.segments.close(writable=True)
    answer = kafka.recover(theirs, now_ms=NOW_MS, segment_bytes=OPTIONS["segment_bytes"], index_interval_bytes=INTERVAL)
    assert "error" not in answer, answer
    assert contents(ours) == contents(theirs)
    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.report.truncated_bytes) == (
        answer["logStartOffset"],
        answer["logEndOffset"],
        answer["truncatedBytes"],
    )
    assert planned == loaded.report


def test_kafka_loads_a_log_that_was_truncated_to_its_start_within_a_batch(kafka: KafkaHarness, tmp_path: Path) -> None:
    kafka.generate(tmp_path, seed=5, **{**OPTIONS, **LOGS["transactions"]})
    config = LogConfig(segment_bytes=OPTIONS["segment_bytes"], index_interval_bytes=INTERVAL)
    with LogDirectory.open(tmp_path, fs=FS, config_of=lambda _: config, writable=True) as owner:
        log = owner.log(TopicPartition("t", 0))
        base = next(int(row["base_offset"]) for row in log.segments.active.rows().__next__())
        log.increment_log_start_offset(base + 2)
    cut_log(Keeper(FS, FixedClock(NOW_MS), lambda _: config, "test"), tmp_path / "t-0", base + 2, None)
    before = contents(tmp_path / "t-0")
    for answer in (
        kafka.load(tmp_path / "t-0", now_ms=NOW_MS, log_start_offset=base + 2),
        kafka.recover(tmp_path / "t-0", now_ms=NOW_MS, log_start_offset=base + 2),
    ):
        assert (answer["logStartOffset"], answer["logEndOffset"], answer["truncatedBytes"]) == (base + 2, base + 2, 0)
        assert [segment["baseOffset"] for segment in answer["segments"]] == [base + 2]
    assert contents(tmp_path / "t-0").keys() == before.keys()


@pytest.mark.parametrize("seed", range(3))
def test_of_a_follower_that_was_sent_all_at_once_verify_reports_entries_that_hide_an_abort_and_no_others(
    kafka: KafkaHarness, tmp_path: Path, seed: int
) -> None:
    leader, follower = tmp_path / "leader" / "t-0", tmp_path / "follower" / "t-0"
    options = {"transactional": True, "abort_ratio": 0.4, "nontxn_ratio": 0.3, "txn_batches": 1}
    kafka.generate(leader.parent, seed=seed, records=300, batch_records=7, producers=3, **options)
    name = f"{0:020d}.txnindex"
    kafka.append(follower, (leader / name).with_suffix(".log").read_bytes(), append_path="follower")
    right, listed = (TransactionIndex(FS, directory / name, 0).entries for directory in (leader, follower))
    differing = [entry for entry, derived in zip(listed, right, strict=True) if entry != derived]
    hiding = [
        entry
        for entry in differing
        if any(entry.last_offset < each.first_offset < entry.last_stable_offset for each in listed)
    ]
    found = Verification(FS, resolve_paths(FS, [follower]), VerifyOptions(level=Level.SEMANTIC), FixedClock(NOW_MS))
    reported = [each.last_offset for each in found if each.code == "TRANSACTION_INDEX_DIFFERS"]
    assert len(differing) > len(hiding)
    assert reported == [entry.last_offset for entry in hiding]
    assert any(_aborted_reads(leader)) and _aborted_reads(follower) == _aborted_reads(leader)


def _aborted_reads(directory: Path) -> list[list[tuple[int, int]]]:
    """What a reader of committed data is told with each batch: the producers and first offsets of what was aborted."""
    with opened_log(directory, writable=False) as log:
        return [
            [
                (each.producer_id, each.first_offset)
                for each in log.read(offset, 1, Isolation.READ_COMMITTED).aborted_transactions
            ]
            for offset in range(log.log_end_offset)
        ]


def test_before_a_segment_without_an_index_kafka_notes_producers_more_often_and_nothing_else_differs(
    kafka: KafkaHarness, generated: Callable[[str], Path], tmp_path: Path
) -> None:
    """Kafka recovers such a segment twice: when it loads it, and after all are loaded (core/DIFFERENCES.md)."""
    ours, theirs = tmp_path / "ours" / "t-0", tmp_path / "theirs" / "t-0"
    shutil.copytree(generated("idempotent"), ours)
    bases = [int(path.stem) for path in logs_of(ours)]
    (ours / f"{bases[4]:020d}.index").unlink()
    for snapshot in ours.glob("*.snapshot"):
        if int(snapshot.stem) <= bases[4]:
            snapshot.unlink()
    shutil.copytree(ours, theirs)
    options = LoadOptions(clean_shutdown=False, index_interval_bytes=INTERVAL, recovery_point=bases[4])
    loaded = load_log(FS, ours, FixedClock(NOW_MS), options)
    loaded.producers.take_snapshot()
    loaded.segments.close(writable=True)
    segments = {"segment_bytes": OPTIONS["segment_bytes"], "index_interval_bytes": INTERVAL}
    kafka.recover(theirs, now_ms=NOW_MS, recovery_point=bases[4], **segments)
    more = {f"{base:020d}.snapshot" for base in bases[2:4]}
    found = contents(theirs)
    assert more <= found.keys()
    assert contents(ours) == {name: data for name, data in found.items() if name not in more}
