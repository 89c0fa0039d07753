"""A real broker starts on what `fetch` brought out of a bucket, or of an encrypted tier: clients read all and go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.consumers import Place, Row
from tests.support.dead_clusters import begun, finish, produce, producer, read_all
from tests.support.kafka.broker import Broker
from tests.support.s3_server import make_bucket, put_directory, s3_server
from tests.support.tiers import KEY_ID, SEALED, private_pem, tier_segments, write_aiven

pytestmark = pytest.mark.kafka

TOPIC, PLACES = "orders", [("orders", 0)]
SETTINGS = {"internal_segment_bytes": 4096, "retention_ms": -1}
LIMIT_SECONDS = 300


@dataclass
class Lost:
    """A stopped cluster's partition, and what clients had read of it."""

    partition: Path
    rows: dict[str, dict[Place, list[Row]]]


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    logs = tmp_path_factory.mktemp("lost") / "logs"
    with Broker(logs) as broker:
        broker.create_topic(TOPIC, **SETTINGS)
        produce(producer(broker.bootstrap, compression_type="lz4"), TOPIC, range(120))
        for name, commit in (("a", True), ("b", False)):
            writer = begun(broker.bootstrap, name)
            produce(writer, TOPIC, range(40))
            finish(writer, broker.bootstrap, name, commit=commit)
        produce(producer(broker.bootstrap), TOPIC, range(120, 200))
        rows = read_all(broker.bootstrap, PLACES)
    assert len(list((logs / "orders-0").glob("*.log"))) > 3
    assert len(rows["read_uncommitted"][TOPIC, 0]) == 280 and len(rows["read_committed"][TOPIC, 0]) == 240
    return Lost(logs / "orders-0", rows)


@pytest.fixture
def logs(lost: Lost, tmp_path: Path) -> Path:
    """The log directory of the stopped cluster, from which the partition has gone."""
    shutil.copytree(lost.partition.parent, tmp_path / "logs")
    shutil.rmtree(tmp_path / "logs" / lost.partition.name)
    return tmp_path / "logs"


@pytest.fixture(scope="module")
def bucket(lost: Lost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of the partition's copy in a bucket, and the environment of the store's clients."""
    base = tmp_path_factory.mktemp("bucket")
    shutil.copytree(lost.partition, base / "copy" / lost.partition.name)
    with s3_server(base / "moto.log") as variables:
        make_bucket(variables)
        yield f"{put_directory(variables, base / 'copy')}/{lost.partition.name}", variables


@pytest.fixture
def tier(lost: Lost, tmp_path: Path) -> list[str]:
    """Arguments that name an encrypted tier of Aiven's with all segments of the partition, and its key."""
    directory = write_aiven(tmp_path / "tier", TOPIC, 0, tier_segments(lost.partition, active=True), SEALED)
    (tmp_path / "private.pem").write_bytes(private_pem())
    return [str(directory), "--tier-key", f"{KEY_ID}={tmp_path / 'private.pem'}"]


def seglog(*arguments: object, variables: Mapping[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "seglog_cli", *map(str, arguments)]
    values = environment(**(variables or {}))
    done = subprocess.run(command, env=values, capture_output=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done


def take_id(lost: Lost, logs: Path) -> None:
    """Gives the fetched partition the id of its topic, without which a broker sets it aside."""
    target = logs / lost.partition.name / "partition.metadata"
    assert not target.exists()
    shutil.copyfile(lost.partition / "partition.metadata", target)


def require_all(logs: Path, lost: Lost) -> None:
    with Broker(logs) as broker:
        assert read_all(broker.bootstrap, PLACES) == lost.rows
        produce(producer(broker.bootstrap), TOPIC, range(20))
        assert len(read_all(broker.bootstrap, PLACES)["read_committed"][TOPIC, 0]) == 260
        said = broker.log_text()
    assert "stray" not in said.lower() and "truncat" not in said.lower(), said


def test_a_broker_starts_on_a_partition_that_was_fetched_from_a_bucket(
    lost: Lost, logs: Path, bucket: tuple[str, dict[str, str]]
) -> None:
    url, variables = bucket
    seglog("fetch", url, "-o", logs / lost.partition.name, variables=variables)
    take_id(lost, logs)
    require_all(logs, lost)


def test_a_broker_starts_on_a_partition_that_was_fetched_from_an_encrypted_tier(
    lost: Lost, logs: Path, tier: list[str]
) -> None:
    seglog("fetch", *tier, "-o", logs / lost.partition.name)
    take_id(lost, logs)
    require_all(logs, lost)


def test_transplant_gives_what_was_fetched_to_another_cluster(lost: Lost, tier: list[str], tmp_path: Path) -> None:
    """Whose producers get the ids of the partition's own ones."""
    other, restored = tmp_path / "other", tmp_path / "restored"
    with Broker(other) as broker:
        broker.create_topic(TOPIC, **SETTINGS)
    seglog("fetch", *tier, "-o", restored / lost.partition.name)
    seglog("transplant", restored, "--into", other)
    require_all(other, lost)
