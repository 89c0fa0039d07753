"""Jobs over many logs, and their commands, give the results of the one-machine functions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seglog.clock import SystemClock
from seglog.configuration.keys import CleanerConfig, LogConfig
from seglog.errors import RefusedError
from seglog.look.inspect.sizing import SizingRequest, size_partition
from seglog.look.inspect.statistics import log_statistics
from seglog.scan.listing import list_partition, resolve_paths
from seglog.scan.topic_ids import topic_id_of_partition
from seglog.storage.local import LocalFileSystem
from seglog.verification.verify import Level, Verification, VerifyOptions
from seglog_ask.spark import jobs, tasks
from seglog_ask.spark.exporting import export
from seglog_ask.spark.latest import latest
from seglog_cli.app import run
from seglog_stores.tiers.manifests import read_committed
from tests.support import fixtures
from tests.support.json_contract import output_faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FS = LocalFileSystem()


def damaged_copy(logs: Path, target: Path) -> Path:
    shutil.copytree(logs, target)
    path = next(target.glob("orders-none-0/*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    return target


def test_verify_finds_what_the_one_machine_verifier_finds(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    path = damaged_copy(logs, tmp_path / "logs")
    options = VerifyOptions(level=Level.SEMANTIC, jobs=1)
    targets = resolve_paths(FS, [path])
    alone = Verification(FS, targets, options, SystemClock())
    expected = list(alone)
    found = jobs.verify(spark, targets, options)
    assert sorted(map(repr, found.findings)) == sorted(map(repr, expected))
    assert found.summary == alone.summary
    assert any(finding.code == "CRC_MISMATCH" for finding in found.findings)


def test_giants_are_verified_in_parts_by_several_tasks(
    spark: SparkSession, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = damaged_copy(logs, tmp_path / "logs")
    alone = Verification(FS, resolve_paths(FS, [path]), VerifyOptions(jobs=1), SystemClock())
    expected = tuple(alone)
    monkeypatch.setattr(jobs, "cores_of", lambda _: 100)
    monkeypatch.setattr(jobs, "GIANT_BYTES", 10_000)
    monkeypatch.setattr(jobs, "PART_BYTES", 10_000)
    monkeypatch.setattr(tasks, "_LEAST_TASK_BYTES", 10_000)
    monkeypatch.setattr(tasks, "_OPENING_BYTES", 0)
    ran: list[int] = []
    try_tasks = tasks.try_tasks

    def counted(*given: Any) -> Any:
        ran.append(len(given[1]))
        return try_tasks(*given)

    monkeypatch.setattr(tasks, "try_tasks", counted)
    found = jobs.verify(spark, resolve_paths(FS, [path]), VerifyOptions(jobs=1))
    assert (found.findings, found.summary) == (expected, alone.summary)
    assert len(ran) == 2 and ran[0] > 4


def test_statistics_and_sizing_are_those_of_each_partition(spark: SparkSession, logs: Path) -> None:
    listings = [list_partition(FS, path) for path in sorted(logs.glob("*-[0-9]"))]
    request = SizingRequest(LogConfig(), CleanerConfig(dedupe_buffer_size=2400), fixtures.fixture_now_ms("4.3.0/clean"))
    found = jobs.statistics(spark, listings, sizing_of=lambda _: request)
    assert [one.log for one in found] == [log_statistics(FS, listing) for listing in listings]
    for listing, one in zip(listings, found, strict=True):
        keys, records = one.log.distinct_keys, one.log.records
        assert one.sizing == size_partition(FS, listing.directory, request, keys=keys, records=records)
    of = {one.log.partition: one.sizing for one in found}
    assert of["customers-0"] is not None and of["customers-0"].kafka_rounds > 1
    assert {one.dirty_ratio > 0 for one in of.values() if one is not None} == {True, False}


def test_export_writes_every_record_by_topic_and_date(
    spark: SparkSession, read: Callable[..., DataFrame], logs: Path, tmp_path: Path
) -> None:
    output = tmp_path / "lake"
    done = export(spark, [logs], output, {"maxPartitionBytes": "20000"})
    back = spark.read.parquet(str(output))
    assert {"topic", "date"} <= set(back.columns)
    assert back.count() == done.rows == read(logs).count()
    wanted = read(logs).selectExpr("topic", "partition", "offset", "key", "value").collect()
    got = back.selectExpr("topic", "partition", "offset", "key", "value").collect()
    assert {tuple(row) for row in got} == {tuple(row) for row in wanted}
    assert not list(output.glob("_staging*"))
    with pytest.raises(RefusedError, match="it is not empty"):
        export(spark, [logs], output)


def test_latest_is_the_last_value_of_each_key_without_tombstones(
    spark: SparkSession, read: Callable[..., DataFrame], logs: Path
) -> None:
    expected: dict[tuple[str, int, bytes], tuple[int, bytes | None]] = {}
    for row in read(logs, isolationLevel="read_committed").orderBy("offset").collect():
        if row.key is not None:
            expected[row.topic, row.partition, bytes(row.key)] = (row.offset, row.value)
    live = {place: found for place, found in expected.items() if found[1] is not None}
    rows = latest(spark, [logs]).collect()
    assert {(r.topic, r.partition, bytes(r.key)): (r.offset, r.value) for r in rows} == live


def test_diff_of_replicas_names_the_partition_that_differs(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    other = damaged_copy(logs, tmp_path / "other")
    found = jobs.diff(spark, [logs, other])
    assert [one.partition for one in found if one.differences] == ["orders-none-0"]


def test_commands_print_data_and_give_the_exit_codes_of_their_sisters(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = damaged_copy(logs, tmp_path / "other")
    assert run(["spark", "verify", "--json", "--level", "crc", str(logs / "orders-none-0")]) == 0
    verified = capsys.readouterr().out
    assert output_faults("spark verify", verified) == []
    summary = json.loads(verified.splitlines()[-1])
    assert (summary["type"], summary["errors"]) == ("summary", 0)
    assert run(["spark", "diff", str(logs), str(other)]) == 1
    assert run(["spark", "export", "-o", str(tmp_path / "out"), str(logs / "orders-none-0")]) == 0
    capsys.readouterr()
    assert run(["spark", "latest", "--limit", "3", "--json", str(logs / "orders-none-0")]) == 0
    assert output_faults("spark latest", capsys.readouterr().out) == []
    assert run(["spark", "latest", "-o", str(logs), str(logs / "orders-none-0")]) == 12
    assert "it is not empty" in capsys.readouterr().err
    assert run(["spark", "latest", str(other / "orders-none-0")]) == 1
    assert ".log: position" in capsys.readouterr().err
    assert run(["spark", "conf"]) == 0
    assert "spark.python.unix.domain.socket.enabled true" in capsys.readouterr().out
    assert run(["spark", "clean", str(logs / "orders-none-0")]) == 12
    refusal = capsys.readouterr().err  # the cluster's metadata beside the log makes the default known
    assert "orders-none is not compacted: its cleanup.policy is delete (Kafka's default: " in refusal
    assert "lists the topic without a policy" in refusal


def test_clean_with_an_output_commits_logs_that_the_commands_read(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, prefix = logs / "customers-0", tmp_path / "cleaned"
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    assert run(["spark", "clean", "--policy", "compact", "--output", str(prefix), str(source)]) == 0
    assert "customers-0" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    committed = read_committed(LocalFileSystem(), prefix)
    assert committed is not None
    (partition,) = committed.manifest.partitions
    assert partition.topic_id == topic_id_of_partition(LocalFileSystem(), source) is not None
    for command in ("verify --json", "stats --json"):
        said = []
        for first in ([], ["spark"]):
            code = run([*first, *command.split(), str(prefix)])
            said.append((code, capsys.readouterr().out))
            assert output_faults(" ".join([*first, command.split()[0]]), said[-1][1]) == []
        assert said[0] == said[1], command
        assert said[0][0] == 0
    assert run(["spark", "diff", "--level", "view", str(source), str(prefix / "customers-0")]) == 0
    assert run(["spark", "clean", "--policy", "compact", "--output", str(prefix), str(source)]) == 12  # it is not new
    capsys.readouterr()
    assert run(["spark", "clean", "--policy", "compact", "s3://bkt/kafka/customers-0"]) == 2
    assert "with --output it only reads" in capsys.readouterr().err
