"""The image of a metadata log against Kafka's own: a snapshot that Kafka writes of the same records says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.look.inspect.metadata_image import MetadataImage, read_metadata_image
from seglog.storage.local import LocalFileSystem
from tests.support.kafka import KafkaHarness
from tests.support.metadata_records import MetadataHistory, write_metadata_log

pytestmark = pytest.mark.kafka


def image_of(directory: Path, records: list[bytes]) -> MetadataImage:
    write_metadata_log(directory, records)
    image = read_metadata_image(LocalFileSystem(), directory)
    assert image.problems == []
    return image


@pytest.mark.parametrize("seed", range(4))
def test_an_image_is_what_kafka_makes_of_the_same_records(tmp_path: Path, kafka: KafkaHarness, seed: int) -> None:
    records = list(MetadataHistory(seed).records(60 + 20 * seed))
    ours = image_of(tmp_path / "ours", records)
    snapshot = kafka.image(records)
    kafkas = image_of(tmp_path / "kafkas", list(snapshot))
    assert ours.entries() == kafkas.entries()
    assert {"features", "brokers", "topics", "configs"} <= set(ours.tree())
