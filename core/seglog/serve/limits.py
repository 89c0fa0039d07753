"""The limits for clients, which bound the endpoint's memory, descriptors and threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds or, with `_ms`, milliseconds. The comments give a broker's names."""

    connections: int = 1000  # max.connections
    request_bytes: int = 1 << 20  # socket.request.max.bytes; the largest honest one is a commit of many partitions
    requests_bytes: int = 64 << 20  # queued.max.request.bytes: all requests that are being read or answered
    fetch_bytes: int = 55 << 20  # fetch.max.bytes
    fetch_partitions: int = 10_000  # of one request
    wait_ms: int = 30_000  # the longest wait of an empty fetch
    idle_s: float = 600.0  # connections.max.idle.ms
    frame_s: float = 30.0  # from a request's first byte to its last
    groups: int = 1000
    group_members: int = 1000  # group.max.size
    groups_bytes: int = 16 << 20  # ids, metadata and assignments of all members of all groups
    session_least_ms: int = 6_000  # group.min.session.timeout.ms
    session_most_ms: int = 1_800_000  # group.max.session.timeout.ms
    first_join_ms: int = 200  # group.initial.rebalance.delay.ms; shorter than a broker's
    commits: int = 1_000_000  # group, topic and partition
    commit_metadata_bytes: int = 4096  # offset.metadata.max.bytes
