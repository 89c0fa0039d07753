"""The examples of `--help`, with what they mention made in a test's directory."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from seglog.storage.local import LocalFileSystem
from seglog_cli.manual import descriptions
from tests.support.command_line import clean_logs, run
from tests.support.fixtures import CLEAN, fixture_copy
from tests.support.log_files import write_segment
from tests.support.lost_clusters import broker_directory, topic_records
from tests.support.metadata_records import write_metadata_log
from tests.support.naive import NaiveRecord, batch_v2
from tests.support.schema_registry import shop
from tests.support.target_directories import partitions_in, target_directory
from tests.support.tiers import (
    PLAIN,
    SEALED,
    private_pem,
    remote_record,
    tier_segments,
    write_aiven,
    write_local_tiered,
)

ALL_EXAMPLES = [example for description in descriptions() for example in description.examples]
# Those of `seglog spark` need a session and a cluster's paths; tests/spark/test_jobs.py runs these commands. Those of
# `seglog replay` need a cluster: tests/interop/test_replay.py.
SERVE_EXAMPLES = [example for example in ALL_EXAMPLES if example.startswith("seglog serve")]
BACKUP_EXAMPLES = [example for example in ALL_EXAMPLES if example.startswith("seglog backup")]
SERVICE_EXAMPLES = [example for example in BACKUP_EXAMPLES if " --every " in example]  # they run until they are stopped
EXAMPLES = [
    example
    for example in ALL_EXAMPLES
    if not example.startswith(("seglog spark", "seglog serve", "seglog replay")) and example not in SERVICE_EXAMPLES
]
EXAMPLE_RUN = "20261121T015349Z-7f3a"


def staged(example: str, tmp_path: Path) -> tuple[str, Path]:
    """The example with the places of this test, and the directory to run it in."""
    logs = clean_logs(tmp_path)
    places = stage(logs, tmp_path)
    if re.search(r"doctor|diff|convert|salvage", example):
        places |= stage_copies(logs, tmp_path, example)
    if "transplant" in example:
        places |= stage_dead_cluster(tmp_path)
    if EXAMPLE_RUN in example:
        places |= stage_run(logs, tmp_path)
    if " registry" in example:
        shop(logs / "registry")
    if "/mnt/tier" in example:
        places |= stage_tier(logs, tmp_path, example)
    if example.startswith(("seglog rebuild", "seglog replicas")):
        places |= stage_lost_cluster(tmp_path)
    if "broker2.facts" in example:
        for node in (1, 2, 3):
            broker_directory(tmp_path / str(node), node, {"orders-0": [0] * node})
            assert run("replicas", "--collect", logs / f"broker{node}.facts", tmp_path / str(node)).exit_code == 0
    if example.startswith("seglog restore"):
        places |= stage_set_aside(logs, example)
    if "/mnt/backup" in example:
        saved = places.get("/mnt/old/kafka", logs)
        assert run("backup", saved, "--to", tmp_path / "backup").exit_code == 0
        places |= {"/mnt/backup": str(tmp_path / "backup"), "/tmp/restored": str(tmp_path / "restored")}
    if "server.properties" in example:
        (logs / "server.properties").write_text("segment.bytes=1048576\n")
    if "kafka-logs/orders" in example:
        shutil.copytree(tmp_path / "new" / "orders-0", logs / "kafka-logs" / "orders-0")
    command = example
    for written, real in sorted(places.items(), key=lambda place: -len(place[0])):
        command = command.replace(written, real)
    return command, tmp_path if example.startswith("seglog restore") else logs


def stage(logs: Path, tmp_path: Path) -> dict[str, str]:
    """Makes what the examples mention; returns each path in them → its place in this test."""
    target = tmp_path / "new"
    target.mkdir()
    (logs / "records.jsonl").write_text('{"key":"k","value":"v"}\n')
    (logs / "lines.txt").write_text("a\nb\n")
    assert run("append", "--create", target / "orders-0", logs / "lines.txt").exit_code == 0
    return {
        "/var/lib/kafka/data": str(logs),
        "/tmp/logs": str(target),
        "/disk1/kafka": str(logs),
        "/tmp/seglog-schemas": str(tmp_path / "schemas"),
    }


def stage_copies(logs: Path, tmp_path: Path, example: str) -> dict[str, str]:
    """Makes copies of partitions under the names that `diff`, `convert` and `salvage` use, and carved logs."""
    target = tmp_path / "new"
    for name, source in (
        ("broker1/orders-0", target / "orders-0"),
        ("broker2/orders-0", target / "orders-0"),
        ("before/customers-0", logs / "customers-0"),
        ("after/customers-0", logs / "customers-0"),
        ("orders-0", target / "orders-0"),
        ("v0-none-0", next(iter(sorted(fixture_copy("0.8.2", tmp_path / "old").glob("*-0"))))),
    ):
        shutil.copytree(source, logs / name)
    shutil.copytree(logs / "__cluster_metadata-0", target / "__cluster_metadata-0")
    rescued = tmp_path / "rescued"
    if "/tmp/rescued/logs/carved-" in example:
        for name, source in (("carved-0", target / "orders-0"), ("carved-3", logs / "orders-none-0")):
            shutil.copytree(source, rescued / "logs" / name)
    image = tmp_path / "disk.img"
    image.write_bytes(bytes(4096) + next((logs / "orders-none-0").glob("*.log")).read_bytes())
    return {
        "/disk2/kafka": str(target),
        "/backup/kafka": str(target),
        "/tmp/disk.img": str(image),
        "/tmp/rescued": str(rescued),
    }


def stage_run(logs: Path, tmp_path: Path) -> dict[str, str]:
    """Makes a repair for the examples that name one."""
    log = sorted((logs / "orders-none-0").glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    assert run("verify", "--repair", logs / "orders-none-0").exit_code == 4
    quarantine = logs.parent / ".seglog-quarantine"
    (made,) = quarantine.iterdir()
    return {
        "/var/lib/kafka/.seglog-quarantine": str(quarantine),
        EXAMPLE_RUN: made.name,
        "/tmp/before": str(tmp_path / "before"),
    }


def stage_dead_cluster(tmp_path: Path) -> dict[str, str]:
    """Makes a dead broker's directory that has `orders`, and those of stopped brokers that expect its partitions."""
    dead = fixture_copy("4.3.0/killed", tmp_path / "dead")
    (dead / "orders-gzip-0").rename(dead / "orders-0")
    target = target_directory(
        LocalFileSystem(), tmp_path / "other" / "logs", [*partitions_in(dead), "orders-restored-0"]
    )
    two = tmp_path / "two"  # log directories of another broker, each with a part of the partitions
    names = partitions_in(dead)
    for name, part in (("data1", names[::2]), ("data2", names[1::2])):
        (two / name).mkdir(parents=True)
        target_directory(LocalFileSystem(), two / name / "kafka", part)
    return {
        "/mnt/old/kafka": str(dead),
        "/var/lib/kafka/data": str(target),
        "/data1/kafka": str(two / "data1" / "kafka"),
        "/data2/kafka": str(two / "data2" / "kafka"),
    }


def stage_lost_cluster(tmp_path: Path) -> dict[str, str]:
    """Makes two brokers' directories, and the remains of their controller's."""
    lost = tmp_path / "lost"
    for node in (1, 2):
        broker_directory(lost / f"broker{node}", node, {"orders-0": [0, 0], "clicks-0": [0]})
    controller = broker_directory(lost / "controller", 3000, {})
    for place in (controller, lost / "backup"):
        write_metadata_log(place, topic_records("orders", [[1, 2]]))
    return {
        "/mnt/broker1/kafka": str(lost / "broker1"),
        "/mnt/broker2/kafka": str(lost / "broker2"),
        "/mnt/controller/kafka": str(controller),
        "/backup/": f"{lost / 'backup'}/",
    }


def stage_set_aside(logs: Path, example: str) -> dict[str, str]:
    """Makes a partition that a broker was about to delete, or the partition that a run had repaired."""
    if EXAMPLE_RUN in example:
        return {"/var/lib/kafka/data/orders-0": str(logs / "orders-none-0")}
    (logs / "customers-0").rename(logs / "orders-0.6b9f2c7d3e5a4f0c8d1b2a3c4d5e6f70-delete")
    return {}


def stage_tier(logs: Path, tmp_path: Path, example: str) -> dict[str, str]:
    """Makes a partition `orders-0` in a tier of the kind that the example names."""
    segments = tier_segments(CLEAN / "customers-uncleaned-0")
    if "kafka-tiered-storage" in example:
        write_local_tiered(tmp_path / "tier", "orders", 0, segments)
    else:
        write_aiven(tmp_path / "tier", "orders", 0, segments, SEALED if "--tier-key" in example else PLAIN)
    (logs / "private.pem").write_bytes(private_pem())
    finished = [remote_record(one, "orders", 0, state=1) for one in segments]
    known = batch_v2(0, [NaiveRecord(i, 0, None, value) for i, value in enumerate(finished)])
    write_segment(logs / "__remote_log_metadata-0", 0, known)
    return {"/mnt/tier": str(tmp_path / "tier")}
