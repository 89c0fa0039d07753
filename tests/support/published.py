"""Partition directories copied whole below a prefix, as a manifest is to name them."""

from __future__ import annotations

from pathlib import Path

from seglog.format.filenames import parse_topic_partition
from seglog.scan.topic_ids import topic_id_of_partition
from seglog.storage.filesystem import FileSystem
from seglog.storage.routing import RoutingFileSystem
from seglog_stores.formats.log_manifest import ManifestPartition
from seglog_stores.tiers.publishing import epochs_in, new_place, put_segment, segments_to_put


def published(fs: FileSystem, store: RoutingFileSystem, prefix: Path, directory: Path) -> ManifestPartition:
    """The partition's entry for a manifest; its log begins with its first segment."""
    key = parse_topic_partition(directory.name)
    assert key is not None, directory
    place = new_place(prefix, key)
    segments = tuple(put_segment(fs, store, place, one) for one in segments_to_put(fs, directory))
    return ManifestPartition(
        key, topic_id_of_partition(fs, directory), segments[0].base_offset, None, epochs_in(fs, directory), segments
    )
