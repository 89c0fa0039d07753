"""The state that all requests share: the served partitions, the address, limits, counters, and the observer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from seglog.clock import Clock
from seglog.errors import CorruptionError, NotALogError, SeglogError
from seglog.log.loader import RecoveryReport
from seglog.log.log import Log
from seglog_rescue.serve.catalog import Catalog, ServedPartition
from seglog_rescue.serve.metrics import Metrics

NODE_ID = 1
CLUSTER_ID = "seglog-serve"  # if no directory names its cluster

_MAX_PLACES = 10_000


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for clients, which bound the endpoint's memory, descriptors and threads.

    Sizes are in bytes, times in seconds or, with `_ms`, milliseconds. The comments give a broker's names.
    """

    connections: int = 1000  # max.connections
    request_bytes: int = 1 << 20  # socket.request.max.bytes; the largest honest one is a commit of many partitions
    requests_bytes: int = 64 << 20  # queued.max.request.bytes: all requests that are being read or answered
    fetch_bytes: int = 55 << 20  # fetch.max.bytes
    fetch_partitions: int = 10_000  # of one request
    fetch_files: int = 64  # open for one answer; later partitions with data wait for the client's next fetch
    wait_ms: int = 30_000  # the longest wait of an empty fetch
    idle_s: float = 600.0  # connections.max.idle.ms
    crowded_idle_s: float = 10.0  # a connection idle for so long gives way to a new one when there are too many
    frame_s: float = 30.0  # from a request's first byte to its last
    groups: int = 1000
    group_members: int = 1000  # group.max.size
    groups_bytes: int = 16 << 20  # ids, metadata and assignments of all members of all groups
    session_least_ms: int = 6_000  # group.min.session.timeout.ms
    session_most_ms: int = 1_800_000  # group.max.session.timeout.ms
    consumer_session_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_ms: int = 1_000  # group.consumer.heartbeat.interval.ms; shorter than a broker's
    first_join_ms: int = 200  # group.initial.rebalance.delay.ms; shorter than a broker's
    commits: int = 1_000_000  # group, topic and partition
    commits_bytes: int = 256 << 20  # names of groups, and metadata
    commit_metadata_bytes: int = 4096  # offset.metadata.max.bytes


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """The account of a closed connection: its peer, its work, and the reason for its end."""

    peer: str
    client_id: str
    requests: int
    sent_bytes: int
    seconds: float
    reason: str
    hostile: bool


class Observer(Protocol):
    """Receives events for the operator. Called from the event loop and from reading threads."""

    def connection_ended(self, end: ConnectionEnd) -> None: ...

    def damaged(self, damage: CorruptionError) -> None: ...

    def offsets_not_kept(self, path: Path, error: OSError) -> None: ...

    def recovery_would_cut(self, report: RecoveryReport) -> None: ...


@dataclass(slots=True)
class Endpoint:
    """The shared state. `advertised` is the address given to clients."""

    catalog: Catalog
    advertised: Address
    clock: Clock
    observer: Observer
    limits: Limits = field(default_factory=Limits)
    skip_damage: bool = False
    metrics: Metrics = field(default_factory=Metrics)
    _places: set[tuple[str, int | None]] = field(default_factory=set)

    @property
    def cluster_id(self) -> str:
        return self.catalog.cluster_id or CLUSTER_ID

    def log_of(self, partition: ServedPartition) -> Log | None:
        """Returns the partition's log, opened at its first use; None, after reporting it, if that is not possible."""
        try:
            return partition.log
        except CorruptionError as error:
            self.report(error)
        except (SeglogError, OSError) as error:
            self.report_unreadable(partition.directory, error)
        return None

    def report_unreadable(self, directory: Path, error: Exception) -> None:
        """Reports what of a partition cannot be read, once: by the error's own path, which may be another copy's."""
        path, reason = directory, str(error)
        if isinstance(error, NotALogError):
            path, reason = error.path, error.reason
        elif isinstance(error, OSError):
            reason = error.strerror or reason
            if isinstance(error.filename, str) and Path(error.filename).is_absolute():
                path = Path(error.filename)
        self.report(CorruptionError(path, f"cannot be read: {reason}"))

    def report(self, damage: CorruptionError) -> None:
        """Reports damage that a fetch has met, each place once."""
        place = (str(damage.path), damage.position)
        if place in self._places or len(self._places) >= _MAX_PLACES:
            return
        self._places.add(place)
        self.metrics.damages_total += 1
        self.observer.damaged(damage)
