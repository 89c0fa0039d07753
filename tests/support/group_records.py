"""Records of `__consumer_offsets` and `__share_group_state`, as a coordinator writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from seglog.model import Record, TopicPartition

ORDERS = TopicPartition("orders", 3)
TOPIC_ID = UUID(int=77)


def text(value: str) -> bytes:
    """A string of the old form."""
    return struct.pack(">h", len(value.encode())) + value.encode()


def group_key(kind: int, group: str) -> bytes:
    """The key of a group's own record; `kind` is its type (2: classic, 3: consumer, 11: share, 17: streams)."""
    return struct.pack(">h", kind) + text(group)


def commit_key(group: str, partition: TopicPartition = ORDERS) -> bytes:
    """The key of a committed offset."""
    return struct.pack(">h", 1) + text(group) + text(partition.topic) + struct.pack(">i", partition.partition)


def commit(group: str, offset: int, *, partition: TopicPartition = ORDERS, timestamp: int = 1000) -> Record:
    """A committed offset."""
    value = struct.pack(">hqi", 3, offset, -1) + text("") + struct.pack(">q", timestamp)
    return Record(value, commit_key(group, partition), timestamp)


def _share_key(kind: int, group: str) -> bytes:
    return struct.pack(">h", kind) + text(group) + TOPIC_ID.bytes + struct.pack(">i", ORDERS.partition)


def _batches(batches: Iterable[tuple[int, int]]) -> bytes:
    rows = [struct.pack(">qqbh", first, last, 2, 1) + b"\0" for first, last in batches]
    return bytes([len(rows) + 1]) + b"".join(rows)


def _delivered(count: int) -> bytes:
    """The tagged field, which is left out where it has its default."""
    return b"\0" if count == -1 else b"\x01\x00\x04" + struct.pack(">i", count)


def share_snapshot(group: str, *, start: int, delivered: int, batches: Iterable[tuple[int, int]]) -> Record:
    """The whole state of a share group in a partition."""
    value = struct.pack(">hiiiqqq", 0, 1, 1, 1, start, 1000, 1000) + _batches(batches) + _delivered(delivered)
    return Record(value, _share_key(0, group), 1000)


def share_update(group: str, *, start: int, delivered: int, batches: Iterable[tuple[int, int]]) -> Record:
    """A change of it."""
    value = struct.pack(">hiiq", 0, 1, 1, start) + _batches(batches) + _delivered(delivered)
    return Record(value, _share_key(1, group), 1000)
