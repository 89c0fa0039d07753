"""The topic id in a partition directory."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from seglog.errors import CorruptCheckpointError
from seglog.format.checkpoint import PartitionMetadata, format_partition_metadata
from seglog.format.uuids import format_uuid
from seglog.scan.topic_ids import topic_id_of_partition
from seglog.storage.local import LocalFileSystem

FS, TOPIC = LocalFileSystem(), UUID(int=0x1234567890ABCDEF1234567890ABCDEF)


def test_a_partitions_topic_id_is_that_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    assert topic_id_of_partition(FS, tmp_path) is None
    path.write_bytes(format_partition_metadata(PartitionMetadata(TOPIC)))
    assert topic_id_of_partition(FS, tmp_path) == format_uuid(TOPIC)
    path.write_bytes(b"version: 0\ntopic_id: no id\n")
    with pytest.raises(CorruptCheckpointError):
        topic_id_of_partition(FS, tmp_path)
