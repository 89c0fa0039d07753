"""Jobs over committed logs and tiers give the results of one machine, and no task lists them again."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seglog.clock import FixedClock
from seglog.locations import parse_location
from seglog.look.inspect.statistics import view_statistics
from seglog.model import TopicPartition
from seglog.scan.listing import list_log_directory, list_partition, resolve_paths
from seglog.storage.filesystem import FileSystem
from seglog.storage.routing import machine_files
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_ask.spark import jobs
from seglog_ask.table.plan.files import files_of, shown_at, size_of, task_files
from seglog_stores.formats.remote_metadata import RemotePartitionState
from seglog_stores.formats.tier_keys import PrivateKey
from seglog_stores.remote.settings import StoreSettings
from seglog_stores.tiers.metadata import RemoteLogs
from seglog_stores.tiers.publishing import commit
from seglog_stores.tiers.recognition import Layout, TierPlace
from seglog_stores.tiers.segments import KeyPairs, Remark
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support.fixtures import clean_partition
from tests.support.log_files import FS
from tests.support.manual_clock import ManualClock
from tests.support.object_server import ObjectServer, object_server
from tests.support.published import published
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven, write_pinterest

NAMES = ("customers-0", "payments-0")
SPARK: Any = None
OPTIONS = VerifyOptions(level=Level.SEMANTIC, jobs=1)


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Runs the tasks in this process, with pickled inputs and outputs, which it keeps."""
    kept: list[bytes] = []

    def run(
        _spark: object, items: Sequence[Any], body: Callable[[Any], Any], _watch: object = None, **_: object
    ) -> list[Any]:
        kept.append(pickle.dumps((body, list(items))))
        there, work = pickle.loads(kept[-1])
        return [pickle.loads(pickle.dumps(there(item))) for item in work]

    monkeypatch.setattr(jobs, "run_tasks", run)
    monkeypatch.setattr(jobs, "run_tasks", run)
    return kept


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in NAMES:
        clean_partition(name, tmp_path / "logs")
    return tmp_path / "logs"


@pytest.fixture
def prefix(logs: Path, tmp_path: Path) -> Path:
    prefix, store = tmp_path / "prefix", machine_files()
    partitions = [published(FS, store, prefix, logs / name) for name in NAMES]
    first = replace(partitions[1], log_start_offset=100)  # said by a checkpoint that no object is
    commit(store, prefix, None, [partitions[0], first], FixedClock(1_700_000_000_000))
    return prefix


def seen(path: Path, remarks: list[Remark] | None = None, **options: Any) -> tuple[FileSystem, Path]:
    hear = None if remarks is None else remarks.append
    fs, (shown,) = see_tiers(FS, [path], TierOptions(**options), hear)
    return fs, shown


def damage(log: Path) -> None:
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)


@pytest.mark.parametrize("path", ["", "payments-0"])
def test_verify_of_committed_logs_finds_what_one_machine_finds(prefix: Path, path: str) -> None:
    damage(max(prefix.glob("payments-0/*/*.log"), key=lambda one: one.stat().st_size))
    fs, shown = seen(prefix / path)
    alone = Verification(fs, resolve_paths(fs, [shown]), OPTIONS, ManualClock(1_700_000_000_000))
    expected = tuple(alone)
    fs, shown = seen(prefix / path)
    report = jobs.verify(SPARK, resolve_paths(fs, [shown]), OPTIONS, seen=fs)
    assert report.findings == expected
    assert report.summary == alone.summary
    assert any(finding.code == "CRC_MISMATCH" for finding in expected)
    assert [str(remark) for remark in report.remarks if "begins at offset 100" in str(remark)]


def test_a_missing_object_is_in_the_report(prefix: Path) -> None:
    max(prefix.glob("customers-0/*/*.log"), key=lambda one: one.name).unlink()
    fs, shown = seen(prefix)
    alone = Verification(fs, resolve_paths(fs, [shown]), OPTIONS, ManualClock(1_700_000_000_000))
    expected = tuple(alone)
    fs, shown = seen(prefix)
    report = jobs.verify(SPARK, resolve_paths(fs, [shown]), OPTIONS, seen=fs)
    assert [remark for remark in report.remarks if "is missing" in str(remark)]
    assert report.findings == expected
    assert {one.file for one in expected if one.partition == "" and "checkpoint" in one.file} != set(), expected


def test_statistics_of_committed_logs_are_those_of_the_logs(prefix: Path, logs: Path) -> None:
    fs, shown = seen(prefix)
    listings = [list_partition(fs, one.path) for one in list_log_directory(fs, shown).live]
    found = jobs.statistics(SPARK, listings, seen=fs)
    for name, one in zip(NAMES, found, strict=True):
        expected = view_statistics(FS, logs / name)
        assert (one.log.records, one.log.batches) == (expected.records, expected.batches) != (0, 0)


def test_a_committed_log_is_compared_with_the_log_it_was_made_of(prefix: Path, logs: Path) -> None:
    fs, shown = see_tiers(FS, [logs, prefix])
    assert [one.differences for one in jobs.diff(SPARK, shown, "batches", seen=fs)] == [(), ()]
    changed = logs / "customers-0"
    max(changed.glob("*.log")).unlink()
    fs, shown = see_tiers(FS, [logs, prefix])
    found = jobs.diff(SPARK, shown, "batches", seen=fs)
    assert [bool(one.differences) for one in found] == [True, False]


@pytest.fixture
def served(prefix: Path) -> Iterator[ObjectServer]:
    with object_server() as server:
        for path in prefix.rglob("*"):
            if path.is_file():
                server.objects[f"bkt/{prefix.name}/{path.relative_to(prefix)}"] = path.read_bytes()
        yield server


def test_tasks_ask_for_no_manifest_and_list_their_partition_once(served: ObjectServer, sent: list[bytes]) -> None:
    settings = StoreSettings.of(served.environment)
    fs, shown = see_tiers(files_of(settings), [parse_location("s3://bkt/prefix")])
    targets = resolve_paths(fs, shown)
    expected = jobs.verify(SPARK, targets, OPTIONS, store=settings, seen=fs)
    body, items = pickle.loads(sent[-1])
    for item in items:
        before = len(served.asked)
        report = body(item).report
        asked = served.asked[before:]
        assert report.summary.records > 0
        assert not [each for each in asked if "_seglog/" in each and "list-type" not in each]
        own = [each for each in asked if "list-type" in each and f"{item[0].path.name}%2F" in each]
        assert len(own) <= 1, asked
    assert expected.summary.records > 0
    assert b"s3cr3t" not in repr(items).encode()


def test_an_encrypted_tier_is_verified_by_tasks_and_its_key_is_printed_nowhere(
    tmp_path: Path, logs: Path, sent: list[bytes]
) -> None:
    directory = write_aiven(tmp_path / "tier", "payments", 0, tier_segments(logs / "payments-0"), SEALED)
    key = PrivateKey.parse(private_pem(), "key.pem")
    fs, shown = seen(directory, keys=KeyPairs({"key1": key}))
    alone = Verification(fs, resolve_paths(fs, [shown]), OPTIONS, ManualClock(1_700_000_000_000))
    expected = tuple(alone)
    report = jobs.verify(SPARK, resolve_paths(fs, [shown]), OPTIONS, seen=fs)
    assert (report.findings, report.summary) == (expected, alone.summary)
    assert report.summary.records > 0
    _, items = pickle.loads(sent[-1])
    assert str(key._exponent) not in repr(items)


def test_a_task_heeds_how_far_an_upload_has_come(tmp_path: Path, logs: Path) -> None:
    directory = write_pinterest(tmp_path, "payments", 0, tier_segments(logs / "payments-0"))
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    (directory / "offset.wm").write_text(f"{bases[0]:020d}")
    fs, shown = seen(directory)
    told: list[Remark] = []
    there = task_files(StoreSettings(), pickle.loads(pickle.dumps(shown_at(fs, [shown]))), told.append)
    assert [one.base_offset for one in list_partition(there, shown).segments] == [bases[0]]
    assert size_of(fs, shown) == sum(status.size for _, status in there.entries(shown))
    assert shown_at(FS, [logs]) == ()


def test_the_size_and_the_checkpoints_of_a_committed_log_are_its_manifests(prefix: Path, logs: Path) -> None:
    fs, shown = seen(prefix)
    for path in prefix.glob("customers-0/*/*.log"):
        path.unlink()  # it is not looked at
    files = [path for path in (logs / "customers-0").iterdir() if path.suffix in (".log", ".index", ".timeindex")]
    assert size_of(fs, shown / "customers-0") >= sum(path.stat().st_size for path in files) > 0
    assert size_of(fs, shown / "nothing-0") == 0
    there = task_files(StoreSettings(), shown_at(fs, [shown / "payments-0"]), lambda _: None)
    checkpoint = there.read_bytes(shown / "log-start-offset-checkpoint")
    assert checkpoint.splitlines()[2:] == [b"payments 0 100"]  # nothing of other partitions


def test_a_task_is_sent_what_the_records_say_of_its_partition_alone(tmp_path: Path) -> None:
    keys = [("a", 0), ("a", 1), ("b", 0)]
    everything = RemoteLogs(
        {key: {} for key in keys}, dict.fromkeys(keys, RemotePartitionState.DELETE_PARTITION_STARTED)
    )
    place = TierPlace(tmp_path, Layout.AIVEN, TopicPartition("orders", 0), "a")
    assert list(everything.only(place).copies) == [("a", 0)]
    assert list(everything.only(replace(place, topic_id=None)).copies) == [("a", 0), ("b", 0)]
    assert ("a", 1) not in everything.only(place).deleted
