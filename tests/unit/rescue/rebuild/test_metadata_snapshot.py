"""Snapshots of metadata, read again by what reads those of controllers."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from seglog.configuration.metadata_log import MetadataReplay
from seglog.format.control import Voter
from seglog.format.uuids import format_uuid
from seglog.look.inspect.metadata_image import read_metadata_image
from seglog.scan.segment_scan import SegmentScan
from seglog.storage.local import LocalFileSystem
from seglog_rescue.rebuild.metadata_snapshot import encode_metadata_record, metadata_snapshot
from tests.support.metadata_records import MetadataHistory


def test_a_snapshot_holds_every_record_between_header_and_footer(tmp_path: Path) -> None:
    records = list(MetadataHistory(3).records(400))
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(metadata_snapshot(records, 1000))
    image = read_metadata_image(LocalFileSystem(), path)
    assert (image.problems, image.records, image.end_offset) == ([], len(records), len(records) + 2)


def test_the_voters_of_a_dynamic_quorum_stand_in_the_first_batch_and_are_read_again(tmp_path: Path) -> None:
    voters = (
        Voter(1, format_uuid(UUID(int=5 << 64)), (("CONTROLLER", "c1.example", 9093),), 0, 1),
        Voter(70000, format_uuid(UUID(int=6 << 64)), (("CONTROLLER", "::1", 65535), ("OTHER", "h", 1)), 0, 1),
    )
    path = tmp_path / f"{0:020}-{0:010}.checkpoint"
    path.write_bytes(metadata_snapshot(list(MetadataHistory(3).records(9)), 1000, voters))
    first = next(iter(SegmentScan(LocalFileSystem(), path))).batches[0]
    assert (first["base_offset"], first["last_offset"]) == (0, 2)
    replay = MetadataReplay(lambda _record, _source: None)
    replay.read_snapshot(LocalFileSystem(), path)
    assert (replay.problems, replay.voters) == ([], voters)
    assert str(voters[1]) == f"70000@[::1]:65535:{format_uuid(UUID(int=6 << 64))}"


def test_a_record_without_a_field_that_it_needs_is_an_error() -> None:
    with pytest.raises(KeyError):
        encode_metadata_record("TOPIC_RECORD", {"name": "orders"})
