"""Offsets that readers have stored: committed ones of groups, and the state of share groups.

A reader commits what it has read, so that an offset above a log's end says that the log was once longer. It is a
weaker witness than the broker's own files, as a client may commit any number.

Kafka: GroupMetadataManager (`__consumer_offsets`), ShareCoordinatorShard (`__share_group_state`). The last record of
each key counts; only that one is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog import layout
from seglog.format.coordinator import OFFSETS, SHARE_STATE, decode_coordinator_record
from seglog.format.wire import WireError
from seglog.model import TopicPartition
from seglog.scan.listing import list_log_directory
from seglog.scan.log_walk import Piece, walk_view
from seglog.scan.view import PartitionView
from seglog.storage.filesystem import FileSystem

OFFSETS_TOPIC = "__consumer_offsets"
SHARE_TOPIC = "__share_group_state"

_COMMITS = {b"\x00\x00", b"\x00\x01"}  # key types of offset commits (the others are members and assignments)


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has read: everything below `offset`."""

    group: str
    offset: int
    share: bool = False


def read_committed_offsets(
    fs: FileSystem, log_directory: Path, topic_of: Callable[[str], str | None]
) -> dict[TopicPartition, Committed]:
    """The greatest committed offset of each partition that the groups' own topics in a log directory name.

    `topic_of` gives the name of a topic id, which is all that share groups know. What cannot be decoded is passed
    over. Raises OSError.
    """
    found: dict[TopicPartition, Committed] = {}
    for key, committed in (
        *_of_groups(_last_values(fs, log_directory, OFFSETS_TOPIC)),
        *_of_share_groups(_last_values(fs, log_directory, SHARE_TOPIC), topic_of),
    ):
        known = found.get(key)
        if known is None or known.offset < committed.offset:
            found[key] = committed
    return found


def _last_values(fs: FileSystem, log_directory: Path, topic: str) -> dict[bytes, bytes]:
    """The last value of each key in the partitions of a topic; without those that were deleted."""
    found: dict[bytes, bytes] = {}
    for partition in list_log_directory(fs, log_directory).live:
        if partition.topic_partition.topic != topic:
            continue
        with PartitionView(fs, partition.path) as view:
            for _, step in walk_view(view):
                if isinstance(step, Piece):
                    _take(step, found)
    return found


def _take(piece: Piece, found: dict[bytes, bytes]) -> None:
    data = piece.batches[piece.valid & ((piece.batches["attributes"] & layout.CONTROL_MASK) == 0)]
    for records in piece.records(data):
        for i in range(len(records)):
            key, value = records.key(i), records.value(i)
            if key is None:
                continue
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value


def _of_groups(values: dict[bytes, bytes]) -> Iterator[tuple[TopicPartition, Committed]]:
    for key, value in values.items():
        if key[:2] not in _COMMITS:
            continue
        try:
            record = decode_coordinator_record(OFFSETS, key, value)
        except WireError:
            continue
        if record.value is not None:
            name = TopicPartition(str(record.key["topic"]), int(record.key["partition"]))
            yield name, Committed(str(record.key["group"]), int(record.value["offset"]))


def _of_share_groups(
    values: dict[bytes, bytes], topic_of: Callable[[str], str | None]
) -> Iterator[tuple[TopicPartition, Committed]]:
    for key, value in values.items():
        try:
            record = decode_coordinator_record(SHARE_STATE, key, value)
        except WireError:
            continue
        topic = topic_of(str(record.key["topicId"]))
        if record.value is None or topic is None:
            continue
        batches = record.value.get("stateBatches") or ()
        reached = max((int(batch["lastOffset"]) + 1 for batch in batches), default=int(record.value["startOffset"]))
        name = TopicPartition(topic, int(record.key["partition"]))
        yield name, Committed(str(record.key["groupId"]), reached, share=True)
