"""What `fetch` brings out of a tier, Kafka's own classes load, read and go on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.format.tier_keys import PrivateKey
from seglog.operations.fetch import fetch
from seglog.tiers.partition import TierOptions
from seglog.tiers.segments import Keys
from seglog.tiers.view import see_tiers
from tests.support.kafka import KafkaHarness
from tests.support.log_files import FS
from tests.support.tiers import SEALED, private_pem, tier_segments, write_aiven

pytestmark = pytest.mark.kafka


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
    fs, (seen,) = see_tiers(FS, [directory], TierOptions(keys=Keys({"": PrivateKey.parse(private_pem(), "key")})))
    target = tmp_path / "restored" / genuine.name
    fetch(fs, seen, FS, target)
    for path in sorted(genuine.glob("*.log"))[:-1]:
        assert kafka.digest(target / path.name) == kafka.digest(path)
    loaded = kafka.load(target)
    assert "error" not in loaded
    assert (loaded["logEndOffset"], loaded["truncatedBytes"]) == (segments[-1].end + 1, 0)
