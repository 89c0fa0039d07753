"""The feature levels that the directories of a cluster without metadata show to be needed.

Groups of the newer protocols (KIP-848, KIP-932, KIP-1071) work only if the feature of their protocol is on. Records of
transactions say with which version they were made (KIP-890): without it, their producers go on as older ones do. The
broker that wrote the records was of a release that has the feature, so it runs that release's first metadata.version
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seglog.configuration.feature_levels import METADATA_VERSION, first_level_with
from seglog.format.coordinator import TRANSACTION_TOPIC, TRANSACTIONS, decode_coordinator_record
from seglog.format.wire import WireError
from seglog.scan.listing import list_log_directory
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog_rescue.groups.coordinator_replay import OFFSETS_TOPIC, CoordinatorReplay
from seglog_rescue.groups.states import CONSUMER, SHARE, STREAMS, newer_kinds

TRANSACTION_VERSION = "transaction.version"

_FLEXIBLE_VALUE, _LAST_TRANSACTION_VERSION = 1, 2
_FEATURES = {CONSUMER: "group.version", SHARE: "share.version", STREAMS: "streams.version"}


def shown_features(fs: FileSystem, log_directories: Sequence[Path]) -> dict[str, int]:
    """Returns the levels that `__consumer_offsets` and `__transaction_state` show to have been on, metadata.version
    among them; empty if they show none.

    What cannot be decoded is skipped. Raises OSError.
    """
    levels: dict[str, int] = {}
    for path in log_directories:
        for partition in list_log_directory(fs, path).live:
            if partition.topic_partition.topic in _SHOWN:
                replay = CoordinatorReplay()
                with PartitionView(fs, partition.path) as view:
                    replay.take_view(view)
                for name, level in _SHOWN[partition.topic_partition.topic](replay).items():
                    levels[name] = max(level, levels.get(name, 0))
    if not levels:
        return {}
    return {METADATA_VERSION: max(first_level_with(name) for name in levels), **dict(sorted(levels.items()))}


def _of_groups(replay: CoordinatorReplay) -> dict[str, int]:
    return {_FEATURES[kind]: 1 for kind in newer_kinds(replay.values)}


def _of_transactions(replay: CoordinatorReplay) -> dict[str, int]:
    """Returns transaction.version: 1 brought the flexible version of values, from 2 on they have a client's version."""
    level = 0
    for stored in replay.values.values():
        with suppress(WireError):
            record = decode_coordinator_record(TRANSACTIONS, stored.key, stored.value)
            version = int((record.value or {}).get("clientTransactionVersion", 0))
            level = max(level, int(record.version == _FLEXIBLE_VALUE), min(version, _LAST_TRANSACTION_VERSION))
    return {TRANSACTION_VERSION: level} if level else {}


_SHOWN = {OFFSETS_TOPIC: _of_groups, TRANSACTION_TOPIC: _of_transactions}
