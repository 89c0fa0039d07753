"""Tells that a start does nothing to a partition, which `examine_partition` would find at many times the cost.

The partition's own files are sound (`verification.soundness`). Here they are held against what the log directory, the
metadata and the configuration say of it. Like there, False only means that the partition is to be examined.
"""

from __future__ import annotations

from seglog import layout
from seglog.configuration.cluster_metadata import ClusterMetadata
from seglog.configuration.precedence import ResolvedConfig
from seglog.log.stateful_topics import state_deleted
from seglog.model import TopicPartition
from seglog.storage.overlay import blocks
from seglog.verification.soundness import SoundLog
from seglog.verification.surroundings import Surroundings
from seglog_rescue.doctor.placement import is_rightly_placed

_ENTRY_BYTES = layout.OFFSET_INDEX_ENTRY.itemsize + layout.TIME_INDEX_ENTRY.itemsize


def starts_unchanged(
    log: SoundLog,
    key: TopicPartition,
    around: Surroundings,
    resolved: ResolvedConfig,
    metadata: ClusterMetadata | None,
) -> bool:
    """True if a broker that is not running loads this partition, which it serves, as it is, and nothing is to be said
    about that. After an unclean stop it makes the same indexes and snapshots again (`room_to_recover`).
    """
    return (
        _is_plain(key.topic, around, resolved)
        and log.is_as_stated(key, around)
        and (around.clean or max(log.index_sizes) <= resolved.log.segment_index_bytes // 8 * 8)
        and is_rightly_placed(metadata, key, log.topic_id, around.node_id)
    )


def room_to_recover(log: SoundLog) -> int:
    """Returns the bytes on disk that a recovery of the whole log takes at most: all indexes and snapshots are new."""
    for_segment = 2 * blocks(1) + blocks(log.snapshot_size + 1)
    return (log.segments + 1) * for_segment + _ENTRY_BYTES * log.batches + blocks(1)


def _is_plain(topic: str, around: Surroundings, resolved: ResolvedConfig) -> bool:
    """True if the topic is neither compacted nor tiered, and no state of another program."""
    config = resolved.log
    is_rare = config.compact or config.remote_storage_enable or around.compacted(topic) or around.tiered(topic)
    return not is_rare and not (resolved.policy_known and state_deleted(topic, config))
