"""The state that all requests share: the served partitions, the address, limits, counters, and the observer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from seglog.clock import Clock
from seglog.errors import CorruptionError
from seglog.log.loader import RecoveryReport
from seglog.serve.catalog import Catalog
from seglog.serve.limits import Limits
from seglog.serve.metrics import Metrics

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

    def report(self, damage: CorruptionError) -> None:
        """Reports damage that a fetch has met, each place once."""
        place = (str(damage.path), damage.position)
        if place in self._places or len(self._places) >= _MAX_PLACES:
            return
        self._places.add(place)
        self.metrics.damages_total += 1
        self.observer.damaged(damage)
