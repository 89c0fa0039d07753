"""The feature levels that the directories of a cluster without metadata show to be needed.

Groups of the newer protocols (KIP-848, KIP-932, KIP-1071) work only if the feature of their protocol is on. The broker
that wrote their records was of a release that has the feature, so it runs that release's first metadata.version too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seglog.configuration.feature_levels import METADATA_VERSION, first_level_with
from seglog.consumer_groups.coordinator_replay import OFFSETS_TOPIC, CoordinatorReplay
from seglog.consumer_groups.group_states import CONSUMER, SHARE, STREAMS, newer_kinds
from seglog.scan.listing import list_log_directory
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem

_FEATURES = {CONSUMER: "group.version", SHARE: "share.version", STREAMS: "streams.version"}


def shown_features(fs: FileSystem, log_directories: Sequence[Path]) -> dict[str, int]:
    """Returns the levels that the groups in `__consumer_offsets` need, metadata.version among them; empty if none does.

    What cannot be decoded is skipped. Raises OSError.
    """
    kinds: set[str] = set()
    for path in log_directories:
        for one in list_log_directory(fs, path).live:
            if one.topic_partition.topic == OFFSETS_TOPIC:
                replay = CoordinatorReplay()
                with PartitionView(fs, one.path) as view:
                    replay.take_view(view)
                kinds |= newer_kinds(replay.values)
    levels = {_FEATURES[kind]: 1 for kind in sorted(kinds)}
    if not levels:
        return {}
    return {METADATA_VERSION: max(first_level_with(name) for name in levels), **levels}
