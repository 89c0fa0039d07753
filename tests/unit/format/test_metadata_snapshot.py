"""Snapshots of metadata, read again by what reads those of controllers."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.format.metadata_snapshot import encode_metadata_record, metadata_snapshot
from seglog.look.inspect.metadata_image import read_metadata_image
from seglog.storage.local import LocalFileSystem
from tests.support.metadata_records import MetadataHistory


def test_a_snapshot_holds_every_record_between_header_and_footer(tmp_path: Path) -> None:
    records = list(MetadataHistory(3).records(400))
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(metadata_snapshot(records, 1000))
    image = read_metadata_image(LocalFileSystem(), path)
    assert (image.problems, image.records, image.end_offset) == ([], len(records), len(records) + 2)


def test_a_record_without_a_field_that_it_needs_is_an_error() -> None:
    with pytest.raises(KeyError):
        encode_metadata_record("TOPIC_RECORD", {"name": "orders"})
