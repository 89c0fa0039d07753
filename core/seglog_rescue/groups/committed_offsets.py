"""Committed offsets of consumer groups, and the state of share groups.

A consumer commits what it has read, so a committed offset above a log's end shows that the log was once longer. This
is weaker evidence than the broker's own files, because a client may commit any offset.

Kafka: OffsetMetadataManager (`__consumer_offsets`), ShareCoordinatorShard (`__share_group_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seglog.format.coordinator import (
    OFFSETS,
    SHARE_STATE,
    CoordinatorRecord,
    decode_coordinator_record,
    is_offset_commit,
)
from seglog.format.wire import WireError
from seglog.model import NO_LEADER_EPOCH, TopicPartition
from seglog.scan.listing import list_log_directory
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem
from seglog.verification.surroundings import Committed
from seglog_rescue.groups.coordinator_replay import (
    OFFSETS_TOPIC,
    SHARE_TOPIC,
    CoordinatorReplay,
    ShareReplay,
    StoredRecord,
)

UNKNOWN = -1  # Kafka: the start offset or delivery count of a share partition without one


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A committed offset: the group has read everything below `offset` of `partition`. Times are epoch milliseconds;
    `expires_ms` is None if the group's retention applies (all commits since Kafka 2.1).
    """

    group: str
    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None
    stored: StoredRecord


class ShareBatch(NamedTuple):
    """The offsets from `first` to `last`, and how often they were delivered; `state` as in Kafka's RecordState."""

    first: int
    last: int
    state: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The progress of a share group in a partition.

    Records below `start_offset` are processed, and `delivered` records from there on (UNKNOWN if not known). `reached`
    is the offset after the last delivered one. The leader epoch is the partition's when the state was written.
    `written` are the batches of the last snapshot and of the updates after it.
    """

    group: str
    topic_id: str
    partition: int
    start_offset: int
    delivered: int
    reached: int
    leader_epoch: int
    stored: StoredRecord
    written: tuple[ShareBatch, ...] = ()


def read_committed_offsets(
    fs: FileSystem, log_directory: Path, topic_of: Callable[[str], str | None]
) -> dict[TopicPartition, Committed]:
    """Returns the greatest committed offset of each partition, from the group topics in a log directory.

    `topic_of` returns the name of a topic id, because share groups store only the id. Records that cannot be decoded
    are skipped, and partitions that this user may not read. Raises OSError.
    """
    found: dict[TopicPartition, Committed] = {}
    for key, committed in _all_committed(fs, log_directory, topic_of):
        known = found.get(key)
        if known is None or known.offset < committed.offset:
            found[key] = committed
    return found


def _all_committed(
    fs: FileSystem, log_directory: Path, topic_of: Callable[[str], str | None]
) -> Iterator[tuple[TopicPartition, Committed]]:
    for directory in list_log_directory(fs, log_directory).live:
        if directory.topic_partition.topic not in (OFFSETS_TOPIC, SHARE_TOPIC):
            continue
        is_share = directory.topic_partition.topic == SHARE_TOPIC
        replay = ShareReplay() if is_share else CoordinatorReplay()
        try:
            with PartitionView(fs, directory.path) as view:
                replay.take_view(view)
        except PermissionError:  # of this user; who looks at the partition itself reports it
            continue
        if isinstance(replay, ShareReplay):
            for state in share_states(replay):
                topic = topic_of(state.topic_id) if isinstance(state, ShareState) else None
                if isinstance(state, ShareState) and topic is not None:
                    yield TopicPartition(topic, state.partition), Committed(state.group, state.reached, share=True)
            continue
        for commit in offset_commits(replay.values.values()):
            if isinstance(commit, OffsetCommit):
                yield commit.partition, Committed(commit.group, commit.offset)


def offset_commits(values: Iterable[StoredRecord]) -> Iterator[OffsetCommit | WireError]:
    """Yields the offset commits among values of `__consumer_offsets`, and an error for each undecodable one."""
    for stored in values:
        if not is_offset_commit(stored.key):
            continue
        try:
            record = decode_coordinator_record(OFFSETS, stored.key, stored.value)
        except WireError as error:
            yield error
            continue
        if record.value is not None:
            yield _commit(record, stored)


def _commit(record: CoordinatorRecord, stored: StoredRecord) -> OffsetCommit:
    value = record.value or {}
    expires = int(value.get("expireTimestamp", -1))
    return OffsetCommit(
        group=str(record.key["group"]),
        partition=TopicPartition(str(record.key["topic"]), int(record.key["partition"])),
        offset=int(value["offset"]),
        leader_epoch=int(value.get("leaderEpoch", NO_LEADER_EPOCH)),
        metadata=str(value.get("metadata") or ""),
        committed_ms=int(value["commitTimestamp"]),
        expires_ms=None if expires < 0 else expires,
        stored=stored,
    )


def share_states(replay: ShareReplay) -> Iterator[ShareState | WireError]:
    """Yields the progress of each share group in each partition, and an error for each undecodable record."""
    for chain in replay.chains.values():
        state: ShareState | None = None
        for stored in chain:
            try:
                record = decode_coordinator_record(SHARE_STATE, stored.key, stored.value)
            except WireError as error:
                yield error
                continue
            state = _share_state(record, stored, state)
        if state is not None:
            yield state


def _share_state(record: CoordinatorRecord, stored: StoredRecord, before: ShareState | None) -> ShareState:
    """Returns the state after a snapshot or an update. An update omits what it does not change. A missing `delivered`
    means UNKNOWN: a broker before 4.2, which does not count, wrote it (Kafka: ShareCoordinatorShard.merge).
    """
    value = record.value or {}
    start, delivered = int(value["startOffset"]), int(value.get("deliveryCompleteCount", UNKNOWN))
    epoch = int(value["leaderEpoch"])
    written = tuple(
        ShareBatch(*(int(batch[name]) for name in ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")))
        for batch in value.get("stateBatches") or ()
    )
    reached = max((batch.last + 1 for batch in written), default=UNKNOWN)
    if before is not None:
        start = before.start_offset if start == UNKNOWN else start
        epoch = before.leader_epoch if epoch == NO_LEADER_EPOCH else epoch
        reached, written = max(reached, before.reached), before.written + written
    return ShareState(
        group=str(record.key["groupId"]),
        topic_id=str(record.key["topicId"]),
        partition=int(record.key["partition"]),
        start_offset=start,
        delivered=delivered,
        reached=max(reached, start),
        leader_epoch=epoch,
        stored=stored,
        written=written,
    )
