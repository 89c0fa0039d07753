"""What `fetch` brings out of a tier, Kafka's own classes load, read and go on with."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from seglog.clock import SystemClock
from seglog.storage.routing import machine_files
from seglog_ask.spark.sinks import ObjectSink
from seglog_ask.spark.write_options import parse_write_options
from seglog_stores.formats.tier_keys import PrivateKey
from seglog_stores.operations.fetch import fetch
from seglog_stores.tiers.publishing import commit
from seglog_stores.tiers.segments import KeyPairs
from seglog_stores.tiers.tiered_partition import TierOptions
from seglog_stores.tiers.view import see_tiers
from tests.support import effort
from tests.support.command_line import environment
from tests.support.kafka import KafkaHarness
from tests.support.log_files import FS, files_of
from tests.support.object_server import Fault, ObjectServer, object_server
from tests.support.published import published
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven

pytestmark = pytest.mark.kafka

KILLS = effort.tries(4)
SEED = effort.first_seed(1)
PLACE = "bkt/kafka/"


def test_kafka_loads_a_fetched_partition_with_its_producers_and_records(tmp_path: Path, kafka: KafkaHarness) -> None:
    kafka.generate(
        tmp_path / "genuine",
        segment_bytes=8192,
        index_interval_bytes=256,
        batch_records=7,
        records=600,
        transactional=True,
        abort_ratio=0.4,
        producers=4,
    )
    (genuine,) = (path for path in (tmp_path / "genuine").iterdir() if path.is_dir())
    segments = tier_segments(genuine)
    topic, _, number = genuine.name.rpartition("-")
    directory = write_aiven(tmp_path / "tier", topic, int(number), segments, SEALED)
    fs, (seen,) = see_tiers(FS, [directory], TierOptions(keys=KeyPairs({"": PrivateKey.parse(private_pem(), "key")})))
    target = tmp_path / "restored" / genuine.name
    fetch(fs, seen, FS, target)
    for path in sorted(genuine.glob("*.log"))[:-1]:
        assert kafka.digest(target / path.name) == kafka.digest(path)
    loaded = kafka.load(target)
    assert "error" not in loaded
    assert (loaded["logEndOffset"], loaded["truncatedBytes"]) == (segments[-1].end + 1, 0)


def test_kafka_loads_what_is_fetched_out_of_committed_logs(tmp_path: Path, kafka: KafkaHarness) -> None:
    kafka.generate(
        tmp_path / "genuine", segment_bytes=8192, batch_records=7, records=600, transactional=True, producers=4
    )
    (genuine,) = (path for path in (tmp_path / "genuine").iterdir() if path.is_dir())
    store, prefix, target = machine_files(), tmp_path / "prefix", tmp_path / "restored" / genuine.name
    commit(store, prefix, None, [published(FS, store, prefix, genuine)], SystemClock())
    fs, (seen,) = see_tiers(FS, [prefix / genuine.name])
    fetch(fs, seen, FS, target)
    for path in sorted(genuine.glob("*.log")):
        assert kafka.digest(target / path.name) == kafka.digest(path)
    loaded, before = kafka.load(target), kafka.load(genuine)
    assert "error" not in loaded
    assert loaded["truncatedBytes"] == 0
    assert loaded["logEndOffset"] == before["logEndOffset"]


def test_kafka_loads_what_sparks_sink_has_added_to_committed_logs(tmp_path: Path, kafka: KafkaHarness) -> None:
    """Rows after a broker's log with open transactions and producers, out of segments of tasks and of the driver."""
    kafka.generate(
        tmp_path / "genuine", segment_bytes=8192, batch_records=7, records=600, transactional=True, producers=4
    )
    (genuine,) = (path for path in (tmp_path / "genuine").iterdir() if path.is_dir())
    topic, _, number = genuine.name.rpartition("-")
    store, prefix, target = machine_files(), tmp_path / "prefix", tmp_path / "restored" / genuine.name
    commit(store, prefix, None, [published(FS, store, prefix, genuine)], SystemClock())
    options = parse_write_options({"path": str(prefix), "topic": topic, "partition": number, "compression": "zstd"})
    rows = pa.record_batch({"value": pa.array([b"value %d" % i for i in range(1000)], pa.binary())})
    for sink in (ObjectSink(options), ObjectSink(options, made_bytes=1), ObjectSink(options)):
        assert sink.commit("job", sink.stage("job", [rows])) == 1000
    fs, (seen,) = see_tiers(FS, [prefix / genuine.name])
    fetch(fs, seen, FS, target)
    before = kafka.load(genuine)
    loaded = kafka.load(target, now_ms=before["nowMs"])
    assert "error" not in loaded
    assert loaded["truncatedBytes"] == 0
    assert loaded["logEndOffset"] == before["logEndOffset"] + 3000
    assert loaded["activeProducers"] == before["activeProducers"] > 0


@dataclass
class Unsteady:
    """A bucket whose objects change while they are fetched, and the one who kills the fetch, request by request."""

    server: ObjectServer
    chance: random.Random
    whole: dict[str, bytes]
    asked: int = 0
    listed: dict[str, bytes] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    kills: int = 0

    def run(self, target: Path, *, steady: bool = False) -> subprocess.CompletedProcess[bytes]:
        """One fetch; unless `steady`, something happens at one of its requests, and perhaps a kill at another."""
        self.server.objects = dict(self.whole)
        self.asked, self.listed = 0, {}
        change_at, kill_at = (0, 0) if steady else (self.chance.randrange(1, 60), self.chance.randrange(1, 60))
        command = [sys.executable, "-m", "seglog_cli", "fetch", f"s3://{PLACE}{target.name}", "-o", str(target)]
        variables = environment(**self.server.environment, SEGLOG_REMOTE_RETRIES="0")
        with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:

            def before(method: str, path: str) -> Fault | None:
                if method not in ("BODY", "LISTING"):
                    self.asked += 1
                    if self.asked == change_at:
                        self.change()
                    if self.asked == kill_at:
                        process.kill()
                        self.kills += 1
                    if "list-type" in path:
                        self.listed = dict(self.server.objects)
                return None

            self.server.fault = before
            stdout, stderr = process.communicate(timeout=300)
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    def change(self) -> None:
        """An object is replaced by another good one, damaged, cut, or gone."""
        key = self.chance.choice(sorted(key for key in self.whole if key.endswith((".log", ".index", ".snapshot"))))
        data, what = self.whole[key], self.chance.randrange(4)
        if what == 0:
            del self.server.objects[key]
        elif what == 1 and key.endswith(".log"):
            self.server.objects[key] = data[:12] + (1).to_bytes(4, "big") + data[16:]  # another leader's epoch
        elif what == 2 and data:
            at = self.chance.randrange(len(data))
            self.server.objects[key] = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        else:
            self.server.objects[key] = data[: len(data) // 2]


def test_a_fetch_killed_again_and_again_from_a_bucket_that_changes_ends_in_a_partition_that_kafka_loads(
    tmp_path: Path, kafka: KafkaHarness
) -> None:
    kafka.generate(
        tmp_path / "genuine", segment_bytes=4096, index_interval_bytes=256, batch_records=7, records=600, producers=4
    )
    (genuine,) = (path for path in (tmp_path / "genuine").iterdir() if path.is_dir())
    names = {name: data for name, data in files_of(genuine).items() if name != "partition.metadata"}
    whole = {f"{PLACE}{genuine.name}/{name}": data for name, data in names.items()}
    chance, fetched, refused = random.Random(SEED), 0, 0
    with object_server() as server:
        bucket = Unsteady(server, chance, whole)
        while bucket.kills < KILLS:
            target = tmp_path / f"restored{fetched}" / genuine.name
            done = bucket.run(target)
            at = f"seed {SEED}, kill {bucket.kills}: {done}"
            if done.returncode == 0:
                # all of one listing: nothing of a listing before it, and nothing that came later
                assert {f"{PLACE}{target.name}/{name}": data for name, data in files_of(target).items()} == (
                    {key: data for key, data in bucket.listed.items() if key.startswith(f"{PLACE}{target.name}/")}
                ), at
                assert "error" not in kafka.load(target), at
                fetched += 1
                continue
            assert not target.exists(), at
            if done.returncode > 0:
                refused += 1
                assert done.returncode in (1, 12, 74), at
                assert done.stderr.count(b"\n") == 1 and b"s3://bkt/kafka/" in done.stderr, at
        target = tmp_path / f"restored{fetched}" / genuine.name
        done = bucket.run(target, steady=True)
        assert done.returncode == 0, done
    assert files_of(target) == names
    loaded = kafka.load(target)
    assert "error" not in loaded and loaded["truncatedBytes"] == 0
    if KILLS >= 40:
        assert refused and fetched, "nothing was changed at the right moment"
