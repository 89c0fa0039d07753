"""A snapshot of a backup stands where a log directory stands: each command that reads, reads it in place."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

import seglog
from seglog.format.filenames import parse_topic_partition
from seglog.storage.local import LocalFileSystem
from seglog_cli.exit_codes import ExitCode
from tests.support.command_line import clean_logs, ended, run
from tests.support.consumers import librdkafka_rows
from tests.support.fixtures import fixture_now_ms
from tests.support.log_files import contents_below
from tests.support.memory_cluster import MemoryCluster
from tests.support.object_server import object_server
from tests.support.serving import local_rows, served
from tests.support.target_directories import partitions_in, target_directory


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The log directory of a stopped broker, and a snapshot of it."""
    root = tmp_path_factory.mktemp("in-place")
    logs = clean_logs(root)
    assert ended("backup", logs, "--to", root / "backup").code == 0
    return logs, root / "backup#latest"


READING = (
    ("ls", "{logs}"),
    ("ls", "{logs}/orders-*"),
    ("ls", "{logs}/{{orders-gzip,customers}}-[0-9]"),
    ("read", "{logs}/orders-gzip-0"),
    ("dump", "{logs}/orders-gzip-0"),
    ("verify", "{logs}"),
    ("verify", "{logs}/customers-*"),
    ("stats", "{logs}"),
    ("explain", "{logs}/customers-0"),
    ("groups", "{logs}"),
    ("txn", "{logs}/payments-0"),
    ("doctor", "{logs}"),
    ("report", "{logs}"),
    ("metadata", "{logs}"),
    ("diff", "{logs}/customers-0", "{logs}/customers-1"),
    ("sql", "select topic, count(*) from records group by topic order by topic", "{logs}/orders-*"),
    ("latest", "{logs}/customers-0"),
    ("export", "{logs}/orders-gzip-0", "--format", "jsonl", "-o", "-"),
)


@pytest.mark.parametrize("line", READING, ids=" ".join)
def test_each_command_that_reads_reads_a_snapshot_as_its_source(
    places: tuple[Path, Path], line: tuple[str, ...]
) -> None:
    if line[0] == "sql":
        pytest.importorskip("duckdb")
    logs, snapshot = places
    expected = ended(*(part.format(logs=logs) for part in line))
    done = ended(*(part.format(logs=snapshot) for part in line))
    assert (done.code, done.stderr.replace(str(snapshot).encode(), str(logs).encode())) == (
        expected.code,
        expected.stderr,
    )
    assert done.stdout.replace(str(snapshot).encode(), str(logs).encode()) == expected.stdout and expected.code <= 1


@pytest.mark.parametrize(
    "line",
    [
        ("top", "--once", "{}"),
        ("replicas", "{}"),
        ("clean", "-n", "--policy", "compact", "{}/customers-0"),
        ("retain", "-n", "--retention-ms", "7d", "{}"),
        ("recover", "-n", "{}"),
        ("repair", "-n", "{}/customers-0"),
        ("reindex", "{}/customers-0"),
        ("append", "{}/customers-0"),
        ("redact", "-n", "--key", "x", "{}"),
        ("rebuild", "-n", "{}", "-o", "{}-new"),
        ("backup", "{}", "--to", "{}-new"),
    ],
    ids=lambda line: line[0],
)
def test_what_needs_directories_names_the_way_to_them(places: tuple[Path, Path], line: tuple[str, ...]) -> None:
    done = ended(*(part.format(places[1]) for part in line))
    assert done.code == 10 and b"seglog backup restore" in done.stderr and b"#latest" in done.stderr


def test_the_library_opens_what_a_pattern_in_a_snapshot_names(places: tuple[Path, Path]) -> None:
    pytest.importorskip("pyarrow")
    logs, snapshot = places
    shown, table = (seglog.open_table(f"{place}/orders-*").scanner().to_table() for place in (snapshot, logs))
    assert shown.num_rows == table.num_rows > 0 and shown.schema == table.schema


def test_clients_of_serve_read_a_snapshot(places: tuple[Path, Path]) -> None:
    logs, snapshot = places
    names = [("orders-gzip", 0), ("payments", 0), ("customers", 1)]
    with served(str(snapshot)) as (_, said):
        rows = librdkafka_rows(said["listen"], names, "read_uncommitted")
    for topic, number in names:
        with seglog.open_log(logs / f"{topic}-{number}") as log:
            assert rows[topic, number] == local_rows(log) != []


def test_a_snapshot_is_replayed_with_its_groups_as_its_source(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters, said = [], []
    for number, place in enumerate(places):
        topics = {key.topic: 10 for key in map(parse_topic_partition, partitions_in(places[0])) if key is not None}
        cluster = MemoryCluster(topics)
        monkeypatch.setattr("seglog_rescue.serve.replay.target.TargetCluster", lambda *_, made=cluster: made)
        files = ["--state", tmp_path / f"state{number}", "--map", tmp_path / f"map{number}.csv"]
        done = run("replay", "--to", cluster.bootstrap, *files, "--groups", place)
        assert done.exit_code == 0, done.stderr
        clusters.append(cluster)
        said.append(done.stdout)
    assert said[0] == said[1] and clusters[0].commits == clusters[1].commits != {}
    assert clusters[0].records == clusters[1].records and len(clusters[0].records) > 4


def test_a_snapshot_is_transplanted_in_full_as_its_source(places: tuple[Path, Path], tmp_path: Path) -> None:
    made = []
    for number, place in enumerate(places):
        target = target_directory(LocalFileSystem(), tmp_path / str(number) / "logs", partitions_in(places[0]))
        line = ("transplant", place, "--into", target, "--now", str(fixture_now_ms("4.3.0/clean")))
        planned, done = run(*line, "--dry-run"), run(*line)
        assert (planned.exit_code, done.exit_code) == (0, 0), done.stderr
        made.append(contents_below(target))
    assert made[0] == made[1]
    assert any(name.startswith("orders-gzip-0/") and len(data) > 1000 for name, data in made[0].items())


def test_a_snapshot_in_a_bucket_is_transplanted_and_nothing_else_there(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    logs, made = places[0], []
    with object_server() as server, patch.dict(os.environ, server.environment):
        assert ended("backup", logs, "--to", "s3://bucket/backup").code == 0
        for number, source in enumerate((logs, "s3://bucket/backup#latest")):
            target = target_directory(LocalFileSystem(), tmp_path / str(number) / "logs", partitions_in(logs))
            line = ("transplant", source, "--into", target, "--now", str(fixture_now_ms("4.3.0/clean")))
            done = ended(*line)
            assert done.code == 0, done.stderr
            made.append(contents_below(target))
        for option in ((), (logs, "--transactions-of")):
            refused = ended("transplant", *option, "s3://bucket/logs", "--into", target)
            assert refused.code == ExitCode.USAGE and b"only a snapshot of a backup" in refused.stderr
    assert made[0] == made[1]
